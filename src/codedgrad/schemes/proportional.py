"""Heterogeneity-aware gradient coding: parts in proportion to speed, exact."""

from collections.abc import Sequence

from codedgrad import codes
from codedgrad.codes.arguments import divisors, whole
from codedgrad.errors import IllConditioned, InvalidScheme
from codedgrad.schemes.coded import Coded, rule_named, title


def proportional(
    workers: int,
    tolerance: int,
    speeds: float | Sequence[float],
    *,
    parts: int | None = None,
    rule: str = "decodable",
    pieces: int = 1,
) -> Coded:
    """Any TOLERANCE workers may be late; fast ones hold more parts, slow ones fewer.

    Args:
        workers: Number of workers.
        tolerance: Late workers survived.
        speeds: Of the workers, in any unit, `[one, per, worker]`.
        parts: Parts in all; None: `pieces` times 1 to 4 for each worker, as loads need
            them to be in proportion.
        rule: `decodable`, or `threshold` (count, as the papers do).
        pieces: Parts with the same coefficients; must divide `parts`.
    """
    pieces = whole("proportional", "pieces", pieces, least=1)
    if parts is not None and whole("proportional", "parts", parts, least=1) % pieces:
        raise InvalidScheme(
            f"proportional: pieces = {pieces} must divide parts = {parts}",
            f"pieces in {divisors(parts)}",
        )
    blocks = None if parts is None else parts // pieces
    try:
        code = codes.proportional(workers, tolerance, speeds, parts=blocks)
    except IllConditioned as error:
        better = next(
            fewer
            for fewer in range(tolerance - 1, -1, -1)
            if _is_fine(workers, fewer, speeds, blocks)
        )
        raise InvalidScheme(
            f"proportional(tolerance={tolerance}) for {workers} workers: "
            f"{error.problem}",
            f"tolerance={better}",
        ) from None
    name = title(
        "proportional",
        tolerance=tolerance,
        speeds=speeds,
        parts=parts,
        rule=rule,
        pieces=None if pieces == 1 else pieces,
    )
    return Coded(name, codes.refined(code, pieces), rule_named(rule))


def _is_fine(
    workers: int,
    tolerance: int,
    speeds: float | Sequence[float],
    parts: int | None,
) -> bool:
    try:
        codes.proportional(workers, tolerance, speeds, parts=parts)
    except IllConditioned:
        return False
    return True
