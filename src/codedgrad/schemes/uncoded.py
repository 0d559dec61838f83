"""Wait for all: every worker has parts of its own."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, exact


def uncoded(workers: int, *, pieces: int = 1, parts: int | None = None) -> Coded:
    """Wait for everybody; no redundant work. What plain synchronous training does.

    Args:
        workers: Number of workers.
        pieces: Parts for each worker.
        parts: Parts in all; None: `pieces` for each worker.
    """
    return exact("uncoded", codes.uncoded(workers), "decodable", pieces, parts)
