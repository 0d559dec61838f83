r"""When a worker was slow: its steps cut into usual ones and slow ones.

Two levels explain the log ratios of a worker: 0, as the others, and one that is given.
The cut is the one with the least total distance $\sum |r_t - \mu_t|$, in units of the
usual noise, plus a price for every change of level, which grows with the number of
steps: so a single odd step changes nothing unless it stands far out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedgrad.advise.slow.stopwatch import Bools, Floats

_NOISE = 1e-3  # at least: clocks are not exact


@dataclass(frozen=True, slots=True)
class Spell:
    """Slow steps in a row.

    Attributes:
        first: Its first step, counted among those of the worker.
        end: The one after its last.
    """

    first: int
    end: int

    @property
    def length(self) -> int:
        """How many steps."""
        return self.end - self.first


def slow_steps(values: Floats, level: float, noise: float) -> tuple[Bools, float]:
    """Cut steps into usual and slow ones.

    Args:
        values: Log ratios, (steps,).
        level: The log ratio of slow steps, above 0.
        noise: The usual distance from either level.

    Returns:
        Whether each step is slow, and how much better that explains the values than if
        none were.

    Example:
        >>> cut, _ = slow_steps(np.array([0.0, 0.1, 1.1, 0.9, 1.0, 0.0]), 1.0, 0.1)
        >>> cut.astype(int)
        array([0, 0, 1, 1, 1, 0])
    """
    unit = max(noise, _NOISE)
    usual = np.minimum(np.abs(values), level) / unit
    slow = np.minimum(np.abs(values - level), level) / unit
    price = 2.0 + 0.5 * math.log(len(values))
    cut = _cheapest(usual.tolist(), slow.tolist(), price)
    changes = np.count_nonzero(np.diff(cut))
    return cut, float((usual - slow)[cut].sum() - price * changes)


def _cheapest(usual: list[float], slow: list[float], price: float) -> Bools:
    """Return the cheapest way through two rows of costs, True where it is `slow`."""
    low = high = 0.0
    came: list[tuple[bool, bool]] = []  # whether the other level was left for it
    for a, b in zip(usual, slow, strict=True):
        falls, rises = high + price < low, low + price < high
        low, high = (
            (high + price if falls else low) + a,
            (low + price if rises else high) + b,
        )
        came.append((falls, rises))
    is_slow, back = high < low, []
    for falls, rises in reversed(came):
        back.append(is_slow)
        if rises if is_slow else falls:
            is_slow = not is_slow
    return np.array(back[::-1], dtype=np.bool_)


def spells(cut: Bools) -> list[Spell]:
    """Return the slow steps of a cut, those in a row together.

    Example:
        >>> spells(np.array([True, False, True, True]))
        [Spell(first=0, end=1), Spell(first=2, end=4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([False], cut, [False]))))
    return [Spell(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
