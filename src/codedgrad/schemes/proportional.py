"""Heterogeneity-aware gradient coding: parts in proportion to speed, exact."""

from collections.abc import Sequence

from codedgrad import codes
from codedgrad.errors import IllConditioned, InvalidScheme
from codedgrad.schemes.coded import Coded, exact, title


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
        parts: Parts there are; by default 1 to 4 for each worker, as loads need them to
            be in proportion.
        rule: `decodable`, or `threshold` (count, as the papers do).
        pieces: Parts that each of them is cut into.
    """
    try:
        code = codes.proportional(workers, tolerance, speeds, parts=parts)
    except IllConditioned as error:
        better = next(
            fewer
            for fewer in range(tolerance - 1, -1, -1)
            if _is_fine(workers, fewer, speeds, parts)
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
        pieces=pieces,
    )
    return exact(name, code, rule, pieces)


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
