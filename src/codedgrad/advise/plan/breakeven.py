r"""When a code pays: how much of a worker's time may grow with its load.

A code that tolerates $s$ late workers has everybody do $s + 1$ times the work. If a
share $f$ of a worker's time grows with its load, that takes $1 + f s$ times as long,
and the step ends with answer $n - s$ in place of the last. With $A(s)$ the total time
of that answer, the code pays if

$$f < f^* = \frac{A(0) / A(s) - 1}{s}.$$

A code of groups may end sooner than with answer $n - s$, so it may pay a little beyond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedgrad.delays import Times

_MOST = 4


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Up to which share a code pays against waiting for all.

    Attributes:
        tolerance: $s$.
        share: $f^*$; above 1 it always pays, inf if waiting for all never ends.
    """

    tolerance: int
    share: float

    def __str__(self) -> str:
        if self.share == np.inf:
            return "coding pays: waiting for all never ends, as a worker is dead"
        if self.share <= 0:
            return "coding never pays here: no worker is later than the others"
        if self.share > 1:
            return (
                "coding pays even if all of a step's time grows with the load (the "
                f"limit is {percent(self.share)})"
            )
        return (
            f"coding pays if less than {percent(self.share)} of a step's time grows "
            "with the load"
        )

    def speedup(self, share: float) -> float:
        """Return the time of waiting for all over that of the code, at a share."""
        if self.share == np.inf:
            return np.inf
        return (1 + self.share * self.tolerance) / (1 + share * self.tolerance)


def percent(share: float) -> str:
    """Return a share as a percentage; a small one with a decimal.

    Example:
        >>> percent(1.2531), percent(0.0676), percent(0.0412)
        ('125 %', '7 %', '4.1 %')
    """
    x = 100 * share
    return f"{x:.0f} %" if x >= 5 or x == 0 else f"{x:.1f} %"


def growing_share(times: Times) -> float:
    """Return the share of all time that grows with the load; 1 if there is no time.

    Example:
        >>> growing_share(Times(np.full((1, 2), 0.5), np.full((1, 2), 1.5)))
        0.75
    """
    alive = np.isfinite(times.fixed + times.unit)
    unit, fixed = times.unit[alive].sum(), times.fixed[alive].sum()
    return float(unit / (unit + fixed)) if unit + fixed > 0 else 1.0


def break_even(times: Times, most: int = _MOST) -> tuple[BreakEven, ...]:
    """Return the break-even share for every tolerance.

    Args:
        times: At the uncoded load.
        most: The largest tolerance.

    Example:
        >>> one_slow = Times(np.zeros((1, 3)), np.array([[3.0, 1.0, 1.0]]))
        >>> [(one.tolerance, one.share) for one in break_even(one_slow)]
        [(1, 2.0), (2, 1.0)]
    """
    arrivals = np.sort(times.fixed + times.unit, axis=1).sum(axis=0)
    last = float(arrivals[-1])
    found = []
    for s in range(1, min(most, times.workers - 1) + 1):
        total = float(arrivals[-1 - s])
        if not 0 < total < np.inf:
            continue
        found.append(BreakEven(s, (last / total - 1) / s))
    return tuple(found)
