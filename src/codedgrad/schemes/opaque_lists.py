r"""Lists of parts for workers that give one answer a call: even, uneven, repeated.

Part $j$ belongs to worker $g$, in whose block of $c$ parts it is, and may be asked of
$g, g - 1, \dots, g - r + 1$ on the ring; of everybody if $r = n$.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.decoders import Floats
from codedgrad.codes.refined import runs
from codedgrad.schemes.levelling import level, level_on_ring, trimmed
from codedgrad.schemes.staging_shares import even

__all__ = ["Lists", "Places", "ring"]


def ring(workers: int, parts: int, copies: int) -> tuple[tuple[int, ...], ...]:
    """Return who may be asked for every part, its owner first if not everybody.

    Example:
        >>> ring(workers=3, parts=6, copies=2)
        ((0, 2), (0, 2), (1, 0), (1, 0), (2, 1), (2, 1))
    """
    if copies == workers:
        return (tuple(range(workers)),) * parts
    owners = [worker for worker, run in enumerate(runs(parts, workers)) for _ in run]
    return tuple(tuple((g - j) % workers for j in range(copies)) for g in owners)


@dataclass(frozen=True, slots=True)
class Lists:
    """Who is asked for what: disjoint lists, each of one worker or of several.

    Attributes:
        parts: Of every list.
        workers: Who is asked for it.
    """

    parts: tuple[tuple[int, ...], ...]
    workers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Who may be asked for which part.

    Attributes:
        workers: $n$.
        parts: $k$.
        copies: $r$.
        holders: Who may be asked for a part, by part.

    Example:
        >>> places = Places(3, 6, 3, ((0, 1, 2),) * 6)
        >>> places.even([0, 2]).parts
        ((0, 1, 2), (3, 4, 5))
        >>> places.uneven([0, 1, 2], np.zeros(3), np.array([1.0, 1.0, 4.0])).parts
        ((0, 1, 2), (3, 4, 5))
    """

    workers: int
    parts: int
    copies: int
    holders: tuple[tuple[int, ...], ...] = field(compare=False, repr=False)

    @property
    def unit(self) -> float:
        """Parts in the uncoded load, $c = k / n$."""
        return self.parts / self.workers

    @property
    def everywhere(self) -> bool:
        """Whether everybody may be asked for everything."""
        return self.copies == self.workers

    def block(self, worker: int) -> range:
        """Return the parts that belong to a worker."""
        n, k = self.workers, self.parts  # as `runs` does
        return range(worker * k // n, (worker + 1) * k // n)

    # -- one worker a list -----------------------------------------------------------

    def even(self, there: Sequence[int]) -> Lists:
        """Return lists of one length, as far as that can be."""
        if self.everywhere:
            cut = even(range(self.parts), len(there))
            return _lists(dict(zip(there, cut, strict=True)))
        if len(there) == self.workers:
            return _lists({worker: tuple(self.block(worker)) for worker in there})
        return self.uneven(there, np.zeros(len(there)), np.ones(len(there)))

    def uneven(self, there: Sequence[int], fixed: Floats, pace: Floats) -> Lists:
        """Return lists that are done as soon as can be.

        Args:
            there: Who can be asked; whoever would be too slow has no list.
            fixed: Seconds until each begins, (there,).
            pace: Seconds each takes for a part, (there,); above 0.
        """
        if not self.everywhere:
            return self._on_ring(list(there), fixed, pace)
        found = level(fixed, pace, self.parts, np.zeros(0))
        loads = trimmed(found.room, fixed, pace, self.parts).tolist()
        borders = pairwise(accumulate(loads, initial=0))
        cut = [tuple(range(low, high)) for low, high in borders]
        return _lists(dict(zip(there, cut, strict=True)))

    def _on_ring(self, there: list[int], fixed: Floats, pace: Floats) -> Lists:
        n = self.workers
        free, speed = np.full(n, np.inf), np.ones(n)
        free[there], speed[there] = fixed, pace
        waiting = np.zeros(n, dtype=np.intp)
        for owner, block in enumerate(runs(self.parts, n)):
            if block and np.isfinite(free[list(self.holders[block[0]])]).any():
                waiting[owner] = len(block)
        none = np.zeros(0), np.zeros(0, dtype=np.intp)
        found = level_on_ring(free, speed, waiting, *none, self.copies)
        return _lists(self._handed(waiting, found.room))

    def _handed(
        self, waiting: NDArray[np.intp], room: NDArray[np.intp]
    ) -> dict[int, tuple[int, ...]]:
        """Return everybody's parts.

        A worker can help those behind it on the ring, as far as these need it. So it is
        counted from those who need the most help back to those before them, and then
        handed out the other way, to everybody its own first.
        """
        n = self.workers
        start = int(np.argmax(np.cumsum(waiting - room))) + 1
        order = [(start + place) % n for place in range(n)]
        loads, ahead = [0] * n, 0
        for worker in reversed(order):
            ahead += int(waiting[worker])
            loads[worker] = min(ahead, int(room[worker]))
            ahead -= loads[worker]
        left = [list(self.block(worker)) for worker in range(n)]
        taken: list[list[int]] = [[] for _ in range(n)]
        for worker in order:
            for block in range(worker, worker + self.copies):
                cut = left[block % n][: loads[worker] - len(taken[worker])]
                taken[worker] += cut
                del left[block % n][: len(cut)]
        return {worker: tuple(sorted(parts)) for worker, parts in enumerate(taken)}

    # -- several workers a list ------------------------------------------------------

    def can_repeat(self, tolerance: int) -> bool:
        """Whether groups of `tolerance` + 1 may be asked for the same.

        On a ring s + 1 neighbours have r - s blocks in common, and need s + 1.
        """
        size = tolerance + 1
        if self.everywhere:
            return 2 * size <= self.workers
        return self.workers % size == 0 and self.copies >= 2 * tolerance + 1

    def repeated(self, there: Sequence[int], x: Floats, tolerance: int) -> Lists:
        """Return one list for every group, slow workers with fast ones.

        Args:
            there: Who can be asked.
            x: Seconds each should take for the uncoded load, (there,).
            tolerance: One less than the workers of a group.
        """
        size = tolerance + 1
        if not self.everywhere:
            return self._neighbours(dict(zip(there, x.tolist(), strict=True)), size)
        count = max(1, len(there) // size)
        groups: list[list[int]] = [[] for _ in range(count)]
        for place, index in enumerate(np.argsort(x, kind="stable").tolist()):
            turn, number = divmod(place, count)
            groups[number if turn % 2 == 0 else count - 1 - number].append(there[index])
        cut = even(range(self.parts), count)
        some = [(p, tuple(sorted(g))) for p, g in zip(cut, groups, strict=True) if p]
        return Lists(tuple(p for p, _ in some), tuple(g for _, g in some))

    def _neighbours(self, x: Mapping[int, float], size: int) -> Lists:
        """Return neighbours on the ring, begun where the last group is the earliest."""
        n = self.workers

        def groups(first: int) -> list[tuple[int, ...]]:
            firsts = range(first, n + first, size)
            return [tuple(w % n for w in range(g, g + size)) for g in firsts]

        def last(first: int) -> float:
            return max(min(x.get(w, np.inf) for w in group) for group in groups(first))

        lists, workers = [], []
        for group in groups(min(range(size), key=last)):
            if there := tuple(worker for worker in group if worker in x):
                blocks = [(group[-1] + ahead) % n for ahead in range(size)]
                parts = tuple(part for b in blocks for part in self.block(b))
                lists += [parts] if parts else []
                workers += [there] if parts else []
        return Lists(tuple(lists), tuple(workers))


def _lists(parts: Mapping[int, tuple[int, ...]]) -> Lists:
    some = {worker: cut for worker, cut in parts.items() if cut}
    return Lists(tuple(some.values()), tuple((worker,) for worker in some))
