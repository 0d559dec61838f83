"""Wait for all: every worker has parts of its own."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, exact, title


def uncoded(workers: int, *, pieces: int = 1) -> Coded:
    """Wait for everybody; no redundant work. What plain synchronous training does.

    Args:
        workers: Number of workers.
        pieces: Parts for each worker.
    """
    return exact(
        title("uncoded", pieces=pieces), codes.uncoded(workers), "decodable", pieces
    )
