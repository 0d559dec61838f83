"""Gradient coding by fractional repetition. Tandon et al., ICML 2017."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, exact


def fractional(
    workers: int,
    tolerance: int,
    *,
    rule: str = "decodable",
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Groups of TOLERANCE + 1 replicas; one answer per group is enough.

    Args:
        workers: Number of workers.
        tolerance: Late workers survived; `tolerance` + 1 must divide `workers`.
        rule: `decodable` or `threshold`; the same here.
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    code = codes.fractional(workers, tolerance)
    return exact("fractional", code, rule, pieces, parts, tolerance=tolerance)
