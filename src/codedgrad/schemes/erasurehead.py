"""ErasureHead. Wang, Charles, Papailiopoulos, arXiv 1901.09671."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, approximate


def erasurehead(
    workers: int,
    copies: int,
    *,
    budget: float | None = None,
    count: int | None = None,
    decoding: str = "any",
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Groups of COPIES replicas that may stop early and lack some groups.

    Args:
        workers: Number of workers.
        copies: Workers that hold a part; must divide `workers`.
        budget: Seconds after which a step ends.
        count: Answers after which it ends, as published.
        decoding: `any` (one answer of a group) or `sum` (all of them over COPIES).
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    code = codes.erasurehead(workers, copies, decoding=decoding)
    return approximate(
        "erasurehead",
        code,
        {"copies": copies},
        budget,
        count,
        pieces,
        parts,
        decoding=None if decoding == "any" else decoding,
    )
