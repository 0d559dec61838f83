"""Gradient coding with cyclic support. Tandon et al., ICML 2017."""

from codedgrad import codes
from codedgrad.codes import Code
from codedgrad.codes.arguments import divisors
from codedgrad.errors import IllConditioned, InvalidScheme
from codedgrad.schemes.coded import Coded, exact


def cyclic(
    workers: int,
    tolerance: int,
    *,
    rule: str = "decodable",
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """Any TOLERANCE workers may be late, whoever they are; cyclic coefficients.

    Args:
        workers: Number of workers.
        tolerance: Late workers survived.
        rule: `decodable`, or `threshold` (count, as the papers do).
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    code = well_conditioned(workers, tolerance)
    return exact("cyclic", code, rule, pieces, parts, tolerance=tolerance)


def well_conditioned(workers: int, tolerance: int) -> Code:
    """Return the cyclic code, or say which schemes do without so many lost digits."""
    try:
        return codes.cyclic(workers, tolerance)
    except IllConditioned as error:
        groups = [d for d in divisors(workers) if d > tolerance]
        advice = [
            f"clustered(clusters={workers // size}, tolerance={tolerance})"
            for size in groups[1:-1]
            if _is_fine(size, tolerance)
        ][:1]
        if workers % (tolerance + 1) == 0:
            advice.append(f"fractional(tolerance={tolerance})")
        smaller = [s for s in range(tolerance) if _is_fine(workers, s)]
        advice.append(f"cyclic(tolerance={smaller[-1]})")
        raise InvalidScheme(
            f"cyclic(tolerance={tolerance}) for {workers} workers: {error.problem}",
            " or ".join(advice),
        ) from None


def _is_fine(workers: int, tolerance: int) -> bool:
    try:
        codes.cyclic(workers, tolerance)
    except IllConditioned:
        return False
    return True
