"""Who of those who are idle takes over what."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Pace", "shared"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a worker takes.

    Attributes:
        fixed: Seconds to begin with.
        part: Seconds for every part.
    """

    fixed: float
    part: float

    def seconds(self, parts: int) -> float:
        """Return what a list of so many parts takes."""
        return self.fixed + parts * self.part


def shared(
    groups: Sequence[Sequence[int]],
    able: Mapping[int, Pace],
    holders: Sequence[Sequence[int]] | None = None,
) -> dict[tuple[int, int], list[int]]:
    """Give every part to whoever would be done with it first.

    Nobody gets parts of two groups. Groups take turns, in proportion to their sizes, so
    that each has a helper before any has two.

    Args:
        groups: Parts that are to be done.
        able: Who can help, and how long that takes.
        holders: For every part, who may be asked for it; None: everybody.

    Returns:
        Parts by (number of the group, worker). What nobody could take is in none.

    Example:
        >>> fast, slow = Pace(0.0, 1.0), Pace(0.0, 1.9)
        >>> shared([[0, 1, 2]], {7: fast, 8: slow})
        {(0, 7): [0, 2], (0, 8): [1]}
        >>> shared([[0, 1], [2, 3]], {7: fast, 8: slow})
        {(0, 7): [0, 1], (1, 8): [2, 3]}
    """
    turns = sorted(
        (place / len(parts), -len(parts), number, part)
        for number, parts in enumerate(groups)
        for place, part in enumerate(parts)
    )
    choose = _Everybody(able) if holders is None else _Holders(able, holders)
    given: dict[tuple[int, int], list[int]] = {}
    for _, _, number, part in turns:
        worker = choose.worker(number, part)
        if worker is not None:
            given.setdefault((number, worker), []).append(part)
    return given


class _Chooser(Protocol):
    def worker(self, group: int, part: int) -> int | None: ...


class _Everybody:
    """Those who are free, and those of every group, by when they would be done."""

    def __init__(self, able: Mapping[int, Pace]) -> None:
        self._able = able
        self._loads = dict.fromkeys(able, 0)
        self._free = [(pace.seconds(1), worker) for worker, pace in able.items()]
        heapq.heapify(self._free)
        self._own: dict[int, list[tuple[float, int]]] = {}

    def worker(self, group: int, part: int) -> int | None:
        """Return who takes a part of a group; None if there is nobody."""
        own, free = self._own.setdefault(group, []), self._free
        heap = own if own and (not free or own[0] <= free[0]) else free
        if not heap:
            return None
        _, worker = heapq.heappop(heap)
        self._loads[worker] += 1
        ends = self._able[worker].seconds(self._loads[worker] + 1)
        heapq.heappush(own, (ends, worker))
        return worker


class _Holders:
    """The same, where a part may be asked of some only."""

    def __init__(
        self, able: Mapping[int, Pace], holders: Sequence[Sequence[int]]
    ) -> None:
        self._able = able
        self._holders = holders
        self._loads = dict.fromkeys(able, 0)
        self._group: dict[int, int] = {}

    def worker(self, group: int, part: int) -> int | None:
        """Return who takes a part of a group; None if there is nobody."""
        some = [
            (self._able[worker].seconds(self._loads[worker] + 1), worker)
            for worker in self._holders[part]
            if worker in self._able and self._group.get(worker, group) == group
        ]
        if not some:
            return None
        _, worker = min(some)
        self._loads[worker] += 1
        self._group[worker] = group
        return worker
