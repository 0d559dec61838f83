"""Gradient coding with cyclic support. Tandon et al., ICML 2017."""

from codedgrad import codes
from codedgrad.schemes.coded import Coded, exact, title


def cyclic(
    workers: int, tolerance: int, *, rule: str = "decodable", pieces: int = 1
) -> Coded:
    """Any TOLERANCE workers may be late, whoever they are; cyclic coefficients.

    Args:
        workers: Number of workers.
        tolerance: Late workers survived.
        rule: `decodable`, or `threshold` (count, as the papers do).
        pieces: Parts for each worker at the uncoded load.
    """
    code = codes.cyclic(workers, tolerance)
    name = title("cyclic", tolerance=tolerance, rule=rule, pieces=pieces)
    return exact(name, code, rule, pieces)
