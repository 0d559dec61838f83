r"""When a step could end, and how many parts each worker should do until then.

Worker $i$ is free at $E_i$ and takes $p_i$ seconds for a part. $W$ parts wait, and
parts under way end at $F_j$; one that ends after $T$ would have to be done once more,
by somebody who is free. The earliest end is

$$\min \{ T : \sum_i \lfloor (T - E_i)^+ / p_i \rfloor \ge W + |\{j : F_j > T\}| \}$$

Both sides move the right way with $T$, so it is found by halving. Where a part may be
asked of some workers only, every run of neighbouring owners on the ring must find room
among those who hold their parts: Hall's condition, which for windows of one length need
be looked at for runs only.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_HALVINGS = 26  # to 1.5e-8 of the first guess
_DOUBLINGS = 100
_SLACK = 1e-6  # of a part: what rounding may lose


class Level:
    """What a step should come to.

    Attributes:
        end: When it could end, seconds.
        room: Parts that each worker can do until then, after what it has under way.
        late: Which of the parts under way end later, and are to be done once more.
    """

    __slots__ = ("end", "late", "room")

    def __init__(self, end: float, room: Ints, late: NDArray[np.bool_]) -> None:
        self.end = end
        self.room = room
        self.late = late


def room(end: float, free: Floats, pace: Floats, most: Floats) -> Floats:
    """Return how many parts each worker can do until `end`, at most `most`."""
    found: Floats = np.floor((end - free) / pace + _SLACK)
    np.maximum(found, 0.0, out=found)
    return np.minimum(found, most, out=found)


def level(
    free: Floats,
    pace: Floats,
    waiting: int,
    under_way: Floats,
    most: Floats | float = math.inf,
    before: float = math.inf,
) -> Level:
    """Return the earliest end where everybody may be asked for everything.

    Args:
        free: When each worker is free, (workers,); inf: never.
        pace: Seconds each takes for a part, (workers,); above 0.
        waiting: Parts that nobody has begun.
        under_way: When those that were begun will be done, (some,).
        most: Parts that each can be given, (workers,).
        before: Ends from then on are of no use: the answer is inf instead.

    Example:
        >>> found = level(np.array([0.0, 0.5]), np.array([1.0, 1.0]), 4, np.zeros(0))
        >>> round(found.end, 5), found.room
        (2.5, array([2, 2]))
    """
    low = float(free.min())
    if math.isinf(low):
        return Level(
            math.inf, np.zeros(len(free), np.intp), np.zeros(len(under_way), np.bool_)
        )
    step = float(pace[np.isfinite(free)].min()) * max(1, waiting)
    every = float(waiting + len(under_way))
    limit = np.broadcast_to(np.minimum(most, every), free.shape)

    def is_enough(end: float) -> bool:
        late = int(np.count_nonzero(under_way > end))
        return float(room(end, free, pace, limit).sum()) >= waiting + late

    high = _first(is_enough, low, step, before)
    return _found(is_enough, low, high, free, pace, limit, under_way)


def level_on_ring(
    free: Floats,
    pace: Floats,
    waiting: Ints,
    under_way: Floats,
    owners: Ints,
    copies: int,
    most: Floats | float = math.inf,
    before: float = math.inf,
) -> Level:
    """Return the earliest end where a part is asked of its owner or those before it.

    Args:
        free: When each worker is free, (workers,); inf: never.
        pace: Seconds each takes for a part, (workers,).
        waiting: Parts that nobody has begun, by owner, (workers,).
        under_way: When those that were begun will be done, (some,).
        owners: Whose those are, (some,).
        copies: Workers that may be asked for a part: its owner, and so many before
            it on the ring that it makes this number.
        most: Parts that each can be given, (workers,).
        before: Ends from then on are of no use: the answer is inf instead.

    Example:
        >>> free, pace = np.zeros(4), np.ones(4)
        >>> four = np.array([4, 0, 0, 0])
        >>> found = level_on_ring(free, pace, four, np.zeros(0), np.zeros(0, int), 2)
        >>> round(found.end, 5)
        2.0
    """
    low = float(free.min())
    n = len(free)
    if math.isinf(low):
        return Level(math.inf, np.zeros(n, np.intp), np.zeros(len(under_way), np.bool_))
    step = float(pace[np.isfinite(free)].min()) * max(1, int(waiting.sum()))
    every = float(waiting.sum() + len(under_way))  # or few are lost beside many
    limit = np.broadcast_to(np.minimum(most, every), free.shape)

    def is_enough(end: float) -> bool:
        needs = waiting + np.bincount(owners[under_way > end], minlength=n)
        rooms = room(end, free, pace, limit)
        if rooms.sum() < needs.sum():
            return False
        # a run of owners u..v needs the rooms of u - copies + 1 .. v
        need = np.concatenate(([0.0], np.cumsum(np.tile(needs, 2))))
        have = np.concatenate(([0.0], np.cumsum(np.tile(rooms, 3))))
        at = np.arange(2 * n)
        begin = need[at] - have[at + n - copies + 1]
        spare = need[at + 1] - have[at + n + 1] - np.minimum.accumulate(begin)
        return bool(spare.max() <= 0.0)

    high = _first(is_enough, low, step, before)
    return _found(is_enough, low, high, free, pace, limit, under_way)


def _first(
    is_enough: Callable[[float], bool], low: float, step: float, before: float
) -> float:
    """Return an end that is enough; inf if there is none, or none of use."""
    if before < math.inf:
        return before if before > low and is_enough(before) else math.inf
    high = low
    for _ in range(_DOUBLINGS):
        if is_enough(high):
            return high
        high, step = high + step, step * 2.0
    return math.inf


def _found(
    is_enough: Callable[[float], bool],
    low: float,
    high: float,
    free: Floats,
    pace: Floats,
    most: Floats,
    under_way: Floats,
) -> Level:
    """Find the earliest end that is enough, between two; `high` is, if it is finite."""
    if math.isinf(high):
        never = np.zeros(len(free), dtype=np.intp)
        return Level(math.inf, never, np.zeros(len(under_way), dtype=np.bool_))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if is_enough(middle):
            high = middle
        else:
            low = middle
    rooms = room(high, free, pace, most)
    return Level(high, rooms.astype(np.intp), under_way > high)


def shares(free: list[float], pace: list[float], total: int) -> list[int]:
    """Return how many parts each should do so that all are done soonest.

    Whole parts, one after the other to who is through with it first; those that
    everybody has done by the time it would take with parts as small as you like are
    counted at once.

    Args:
        free: When each worker is free.
        pace: Seconds each takes for a part; above 0.
        total: Parts.

    Example:
        >>> shares([0.0, 0.5], [1.0, 1.0], 5)
        [3, 2]
    """
    fluid, speed, done = math.inf, 0.0, float(total)
    for begin, seconds in sorted(zip(free, pace, strict=True)):
        if begin >= fluid:
            break
        speed, done = speed + 1.0 / seconds, done + begin / seconds
        fluid = done / speed
    pairs = list(zip(free, pace, strict=True))
    loads = [max(0, int((fluid - begin) / seconds)) for begin, seconds in pairs]
    ends = [
        (f + (m + 1) * p, w)
        for w, ((f, p), m) in enumerate(zip(pairs, loads, strict=True))
    ]
    heapq.heapify(ends)
    for _ in range(total - sum(loads)):
        end, worker = ends[0]
        loads[worker] += 1
        heapq.heapreplace(ends, (end + pace[worker], worker))
    return loads


def trimmed(rooms: Ints, free: Floats, pace: Floats, total: int) -> Ints:
    """Return loads that add up to `total`, leaving out what would end last."""
    loads = rooms.copy()
    while (spare := int(loads.sum()) - total) > 0:
        ends = np.where(loads > 0, free + loads * pace, -np.inf)
        for worker in np.argsort(-ends, kind="stable")[:spare]:
            loads[worker] -= loads[worker] > 0
    return loads
