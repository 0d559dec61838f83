"""How far a step is: which parts are done, who has the others, and when it would end.

What is done counts only where somebody is counted on for it. Not counted are parts that
were given to see how fast somebody is (*probes*), parts that two were given and the
other one has done (*twins*), what silent workers have, and what no disjoint cover has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from codedgrad.core.state import State
from codedgrad.schemes.auto.worker_lists import Hands, Sight


class Counted:
    """Which finished parts count.

    Args:
        hands: What everybody has.

    Attributes:
        probes: Segments that do not.
        again: Parts that have to be done once more: no cover has them.
    """

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._probed: set[int] = set()  # parts that were done in probes
        self._twins: dict[int, int] = {}  # part -> segment of who may not be there
        self.probes: set[int] = set()
        self.again: set[int] = set()

    def missing(self, state: State) -> int:
        """Return how many parts nobody has done who is counted on."""
        if self.again or not self._hands.are_trusted:
            is_done = self.is_done(state)
            return sum(not is_done(part) for part in range(state.parts))
        return state.missing + sum(_copies(state, part) == 1 for part in self._probed)

    def is_done(self, state: State) -> Callable[[int], bool]:
        """Return what says of a part whether somebody has done it who is counted on."""
        if not self.again and self._hands.are_trusted:
            if not self._probed:
                return state.ledger.is_finished
            probed = self._probed
            return lambda part: _copies(state, part) > (part in probed)
        done: set[int] = set()
        for id_ in state.heard:
            done.update(state.row(id_))
        for id_, known in state.segments.items():
            is_silent = self._hands[known.segment.worker].silent
            if not known.gone and not is_silent and id_ not in self.probes:
                done.update(known.merged)
        return (done - self.again).__contains__

    def twin(self, part: int, segment: int) -> None:
        """Note that a part is given to another, who is counted on for it."""
        self._twins[part] = segment

    def note(self, state: State, segment: int, parts: int) -> tuple[int, ...]:
        """Note that so many parts are new in a segment; return which."""
        new = state.segments[segment].merged[-parts:]
        if segment in self.probes:
            self._probed.update(new)
            return new
        self.again.difference_update(new)
        for part in self._twins.keys() & set(new):
            if self._twins[part] != segment:
                self._outdo(state, part)
        return new

    def _outdo(self, state: State, part: int) -> None:
        """Demote the silent worker's copy to a probe: another worker did the part.

        It is not cut. Its worker still shows its pace, and sends no part twice.
        """
        twin = self._twins[part]
        hand = self._hands[state.segments[twin].segment.worker]
        if state.segments[twin].gone or not (hand.lists or twin in hand.unsent):
            return  # it is on its way
        del self._twins[part]
        hand.drop(twin)
        self.probes.add(twin)
        self._probed.update(state.segments[twin].merged)

    def forget(self, state: State) -> None:
        """Note that some segments are gone."""
        gone = {id_ for id_ in self.probes if state.segments[id_].gone}
        self.probes -= gone
        for id_ in gone:
            self._probed.difference_update(state.segments[id_].segment.parts)


class Limbo:
    """Parts that were taken from somebody, and are nobody's until that is confirmed."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[list[int], float]] = {}  # segment -> parts, until

    @property
    def parts(self) -> list[int]:
        """All of them."""
        return [part for parts, _ in self._held.values() for part in parts]

    @property
    def until(self) -> float:
        """When it is no longer waited for; inf if nothing is."""
        return min((until for _, until in self._held.values()), default=math.inf)

    def put(self, segment: int, parts: list[int], until: float) -> None:
        """Note parts of a segment that is being closed."""
        self._held[segment] = parts, until

    def settle(self, segment: int) -> bool:
        """Note that a segment has closed; return whether there were parts of it."""
        return self._held.pop(segment, None) is not None

    def forget(self, state: State) -> None:
        """Note that some segments are gone."""
        for id_ in [id_ for id_ in self._held if state.segments[id_].gone]:
            del self._held[id_]

    def expire(self, state: State, hands: Hands) -> None:
        """Wait no longer for what should have closed."""
        for id_, (_, until) in list(self._held.items()):
            if until <= state.now:
                del self._held[id_]
                hands.hush(state.segments[id_].segment.worker)


@dataclass(slots=True, eq=False)
class Stand:
    """What is left to do; changed while orders are made for it.

    Attributes:
        sight: How things stand.
        live: Queues without what is done elsewhere, or in another queue.
        under_way: Parts that somebody is at, and when they should be done.
        owner: Who is at it, the first to be done.
        copies: How many are.
        orphans: Parts that nobody has.
        limbo: Parts that are being taken from somebody.
        halted: Who is at a part that is done elsewhere.
    """

    sight: Sight
    live: list[list[int]]
    under_way: dict[int, float]
    owner: dict[int, int]
    copies: dict[int, int]
    orphans: list[int]
    limbo: list[int]
    halted: list[int]

    @property
    def waiting(self) -> list[int]:
        """Parts that nobody is at."""
        queued = [part for queue in self.live for part in queue]
        return queued + self.orphans + self.limbo

    @property
    def is_stale(self) -> bool:
        """Whether somebody would do what is done."""
        return bool(self.halted) or any(
            len(live) < len(queue)
            for live, queue in zip(self.live, self.sight.queues, strict=True)
        )

    @property
    def end(self) -> float:
        """When the step would end if nothing changed."""
        if self.orphans:
            return math.inf
        sight, ends = self.sight, list(self.under_way.values())
        for worker, queue in enumerate(sight.queues):
            if self.live[worker]:
                ends.append(float(sight.free[worker] + len(queue) * sight.pace[worker]))
        return max(ends, default=-math.inf)


def stand_of(state: State, hands: Hands, counted: Counted, limbo: Limbo) -> Stand:
    """Return what is left to do."""
    sight, is_done = hands.sight(state), counted.is_done(state)
    stand = Stand(sight, [], {}, {}, {}, [], limbo.parts, [])
    placed = set(stand.limbo)
    for queue in sight.queues:
        live = [part for part in queue if part not in placed and not is_done(part)]
        stand.live.append(live)
        placed.update(live)
    for part, worker, end in sight.under_way:
        if is_done(part):
            stand.halted.append(worker)
            sight.free[worker] = hands.ready(state, worker, sight.pace[worker])
            sight.stuck[worker] = 0
        elif part not in placed:
            stand.copies[part] = stand.copies.get(part, 0) + 1
            if end < stand.under_way.get(part, math.inf):
                stand.under_way[part], stand.owner[part] = end, worker
    placed.update(stand.under_way)
    if counted.missing(state) > len(placed):
        every = range(state.parts)
        stand.orphans.extend(p for p in every if p not in placed and not is_done(p))
    return stand


def _copies(state: State, part: int) -> int:
    """Return how many finished copies of a part there are."""
    ledger = state.ledger
    return ledger.open[part] + ledger.closed[part] + ledger.covered[part]
