"""How far schemes are from the best possible, and what that means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.sim import Bounds, Machine, Result

_WHAT = (
    "/fluid: step over the least possible, by whoever knows all delays beforehand and "
    "splits the work at will; /whole: the same with whole parts, as many as the scheme "
    "has"
)


@dataclass(frozen=True, slots=True)
class Distance:
    """Seconds of a scheme over the least possible, on the steps that gave a sum.

    Attributes:
        fluid: If work could be split at will; NaN if there is nothing to compare.
        whole: With whole parts, as many as the scheme has; not above `fluid`.
        is_comparable: Whether the bound holds for it: a scheme whose sums need not be
            exact may compute less, and be below 1.
    """

    fluid: float
    whole: float
    is_comparable: bool


def distance(result: Result, bounds: Bounds) -> Distance:
    """Return how far a scheme is from the best possible, over all steps and runs.

    Example:
        >>> from codedgrad.delays import ShiftedExponential, Sticky, Chain
        >>> from codedgrad.schemes import uncoded
        >>> from codedgrad.sim import bounds_of, compare
        >>> law = Chain(ShiftedExponential(1.0), Sticky(3, workers=[1], always=True))
        >>> [result] = compare([uncoded(2)], law, steps=5)
        >>> distance(result, bounds_of([uncoded(2)], law, steps=5)[0])
        Distance(fluid=2.0, whole=1.5, is_comparable=True)
    """
    done = np.isfinite(result.seconds) & np.isfinite(bounds.whole)
    seconds = float(result.seconds[done].sum())
    fluid, whole = float(bounds.fluid[done].sum()), float(bounds.whole[done].sum())
    return Distance(
        fluid=seconds / fluid if fluid > 0 else math.nan,
        whole=seconds / whole if whole > 0 else math.nan,
        is_comparable=result.scheme.exact,
    )


def about_bounds(
    distances: Sequence[Distance], machine: Machine, gave_up: bool
) -> list[str]:
    """Return the lines that two columns of a table are not understood without.

    Args:
        distances: Of all schemes.
        machine: The engine that was simulated.
        gave_up: Whether some scheme gave up some step.
    """
    lines = [f"{_WHAT}; both over steps that gave a sum" if gave_up else _WHAT]
    real = {
        "draining": machine.drain,
        "latency": machine.latency > 0,
        "network": machine.network is not None,
    }
    if any(real.values()):
        names = " or ".join(name for name, there in real.items() if there)
        lines.append(f"the bounds know of no {names}: they stop and send in no time")
    if not all(each.is_comparable for each in distances):
        lines.append("* not comparable: its sums need not be exact; may be below 1")
    return lines
