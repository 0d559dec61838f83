"""ErasureHead. Wang, Charles, Papailiopoulos, arXiv 1901.09671."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, approximate, title


def erasurehead(
    workers: int,
    copies: int,
    *,
    budget: float | None = None,
    count: int | None = None,
    pieces: int = 1,
) -> Coded:
    """Groups of COPIES replicas that may stop early and lack some groups.

    Args:
        workers: Number of workers.
        copies: Workers that hold a part; must divide `workers`.
        budget: Seconds after which a step ends.
        count: Answers after which it ends, as published.
        pieces: Parts for each worker at the uncoded load.
    """
    code = codes.erasurehead(workers, copies)
    name = title(
        "erasurehead", copies=copies, budget=budget, count=count, pieces=pieces
    )
    return approximate(name, code, budget, count, pieces)
