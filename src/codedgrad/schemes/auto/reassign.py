"""Who should have which parts: from how many each can do, with as few moves as can be.

Where everybody may be asked for everything, what is too much for one goes to whoever
would be through with it first. On a ring, a part goes only to those who hold it, and to
make room there they hand on parts of their own: the shortest such chain is looked for.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.codes.refined import runs
from codedgrad.schemes.auto.earliest_end import Ints, Level, level, level_on_ring


@dataclass(frozen=True)
class PartLayout:
    """Which parts each worker may be asked for.

    Every worker owns a block of parts; their sizes differ by at most one, and are 0 for
    some where there are fewer parts than workers. A part may be asked of its owner, and
    of so many workers before it on a ring that it makes `copies`.

    Attributes:
        workers: How many.
        parts: In all blocks.
        copies: Workers that may be asked for a part.
    """

    workers: int
    parts: int
    copies: int

    @property
    def pieces(self) -> float:
        """Parts in the uncoded load."""
        return self.parts / self.workers

    @property
    def everywhere(self) -> bool:
        """Whether everybody may be asked for everything."""
        return self.copies == self.workers

    @cached_property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The parts that each worker owns."""
        return tuple(map(tuple, runs(self.parts, self.workers)))

    @cached_property
    def _owner_of(self) -> tuple[int, ...]:
        return tuple(w for w, block in enumerate(self.blocks) for _ in block)

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts that each worker may be asked for."""
        n = self.workers
        if self.everywhere:
            return (tuple(range(self.parts)),) * n
        ring = self.blocks + self.blocks
        return tuple(
            tuple(sorted(p for block in ring[w : w + self.copies] for p in block))
            for w in range(n)
        )

    def owner(self, part: int) -> int:
        """Return whose block a part is in."""
        return self._owner_of[part]

    def holders(self, part: int) -> list[int]:
        """Return who may be asked for a part, its owner first."""
        owner = self.owner(part)
        return [(owner - back) % self.workers for back in range(self.copies)]

    def level(
        self,
        free: Floats,
        pace: Floats,
        waiting: Sequence[int],
        under_way: Sequence[int],
        ends: Sequence[float],
        most: Floats | float = math.inf,
        before: float = math.inf,
    ) -> Level:
        """Return when the step could end; see `earliest_end`.

        Args:
            free: When each worker is free, (workers,).
            pace: Seconds each takes for a part, (workers,).
            waiting: Parts that nobody has begun.
            under_way: Parts that somebody has.
            ends: When those should be done.
            most: Parts that each can be given, (workers,).
            before: Ends from then on are of no use: the answer is inf instead.
        """
        late = np.array(ends, dtype=np.float64)
        if self.everywhere:
            return level(free, pace, len(waiting), late, most, before)
        counts = np.bincount(self._owners(waiting), minlength=self.workers)
        owners = self._owners(under_way)
        return level_on_ring(
            free, pace, counts, late, owners, self.copies, most, before
        )

    def _owners(self, parts: Sequence[int]) -> Ints:
        return np.array([self._owner_of[part] for part in parts], dtype=np.intp)

    def relisted(
        self,
        queues: Sequence[Sequence[int]],
        orphans: Sequence[int],
        copies: Sequence[int],
        last: Sequence[int],
        rooms: Sequence[int],
        free: Floats,
        pace: Floats,
        stuck: Sequence[int],
    ) -> list[list[int]]:
        """Return new queues: as they are, but for what has to change hands.

        Args:
            queues: Parts that each has not begun, in order.
            orphans: Parts that must be given to somebody.
            copies: Parts that should be, where there is room.
            last: The same, but they can wait.
            rooms: How many each can do in time.
            free: When each is free, (workers,).
            pace: Seconds each takes for a part, (workers,).
            stuck: How many of its queue each must keep.

        Returns:
            A queue for each; what nobody can be asked for is in none.
        """
        moving = _Moving(self, queues, rooms, free.tolist(), pace.tolist(), stuck)
        if self.everywhere:
            moving.level_out(orphans, copies, last)
        else:
            moving.pass_on(orphans, (*copies, *last))
        return moving.queues


class _Moving:
    """Parts on the move."""

    def __init__(
        self,
        layout: PartLayout,
        queues: Sequence[Sequence[int]],
        rooms: Sequence[int],
        free: list[float],
        pace: list[float],
        stuck: Sequence[int],
    ) -> None:
        self._layout = layout
        self.queues = [list(queue) for queue in queues]
        self._rooms = rooms
        self._free = free
        self._pace = pace
        self._stuck = list(stuck)

    def _through(self, worker: int) -> float:
        """Return when a worker would be through with one part more than it has."""
        return self._free[worker] + (len(self.queues[worker]) + 1) * self._pace[worker]

    # -- everybody may be asked for everything ---------------------------------------

    def level_out(
        self, orphans: Sequence[int], copies: Sequence[int], last: Sequence[int]
    ) -> None:
        """Take what is too much, the last first; give it to who is through first."""
        taken: list[int] = []
        for worker, queue in enumerate(self.queues):
            least = max(self._rooms[worker], self._stuck[worker])
            taken += reversed(queue[least:])
            del queue[least:]
        there = [w for w, free in enumerate(self._free) if free < math.inf]
        heap = [(self._through(w), w) for w in there if self._has_room(w)]
        heapq.heapify(heap)
        for parts, must in (
            (copies, False), (orphans, True), (taken, True), (last, False),
        ):  # fmt: skip
            for part in parts:
                if heap:
                    _, worker = heapq.heappop(heap)
                elif must and there:
                    worker = min(there, key=self._through)
                else:
                    continue
                self.queues[worker].append(part)
                if self._has_room(worker):
                    heapq.heappush(heap, (self._through(worker), worker))

    def _has_room(self, worker: int) -> bool:
        return self._rooms[worker] > len(self.queues[worker])

    # -- a ring ----------------------------------------------------------------------

    def pass_on(self, orphans: Sequence[int], copies: Sequence[int]) -> None:
        """Find everything that is too much, or nobody has, a place."""
        for part in orphans:
            able = [w for w in self._layout.holders(part) if self._free[w] < math.inf]
            chain = self._chain([(worker, part) for worker in able], -1)
            if chain:
                self._follow(chain)
            elif able:
                self.queues[min(able, key=self._through)].append(part)
        for worker, queue in enumerate(self.queues):
            while len(queue) > max(self._rooms[worker], self._stuck[worker]):
                chain = self._chain(self._gifts(worker), worker)
                if not chain:
                    break
                queue.remove(chain[0][1])
                self._follow(chain)
        for part in copies:
            able = [w for w in self._layout.holders(part) if self._free[w] < math.inf]
            if chain := self._chain([(worker, part) for worker in able], -1):
                self._follow(chain)

    def _gifts(self, worker: int) -> list[tuple[int, int]]:
        """Return (to whom, which part) a worker could hand on, one of each owner."""
        found: list[tuple[int, int]] = []
        seen: set[int] = set()
        queue = self.queues[worker]
        for part in reversed(queue[self._stuck[worker] :]):
            owner = self._layout.owner(part)
            if owner not in seen:
                seen.add(owner)
                found += [
                    (other, part)
                    for other in self._layout.holders(part)
                    if other != worker and self._free[other] < math.inf
                ]
        return found

    def _chain(
        self, gifts: Sequence[tuple[int, int]], giver: int
    ) -> list[tuple[int, int]]:
        """Return the shortest chain of (to whom, which part) to where there is room."""
        before: dict[int, tuple[int, int] | None] = {giver: None}
        to_do: deque[int] = deque()

        def reach(gifts: Sequence[tuple[int, int]], source: int) -> int | None:
            best: int | None = None
            for other, part in gifts:
                if other in before:
                    continue
                before[other] = source, part
                to_do.append(other)
                if self._has_room(other) and (
                    best is None or self._through(other) < self._through(best)
                ):
                    best = other
            return best

        end = reach(gifts, giver)
        while end is None and to_do:
            worker = to_do.popleft()
            end = reach(self._gifts(worker), worker)
        chain: list[tuple[int, int]] = []
        while end is not None and (link := before[end]) is not None:
            chain.append((end, link[1]))
            end = link[0]
        return chain[::-1]

    def _follow(self, chain: Sequence[tuple[int, int]]) -> None:
        """Hand parts on: each gives what the next one gets."""
        for (worker, part), following in zip(chain, [*chain[1:], None], strict=True):
            self.queues[worker].append(part)
            if following is not None:
                self.queues[worker].remove(following[1])
