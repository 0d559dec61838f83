"""Turn a target assignment into Cut, Assign and Upload orders.

1. What is taken from a list is cut off at its end; what is added is a new segment. The
   giver keeps no spare copy: it would take a row, and delay the next step where a part
   cannot be interrupted. If the receiver is lost, its parts are given out again within
   a round trip.
2. A part under way that would be late is also given to another, as a segment of one
   part with a message of its own: whichever is done first counts, and the other one is
   stopped. Where its worker has done parts before it in the same segment, and is
   certain to be late, it is taken away, and the sum of those is asked for.
3. Of somebody who has not reported yet nobody knows how far it is. What it is at is
   given to another as well, and it is not counted on any more when that one is through.
   If parts are so short that it may have done some before an order reaches it, its
   segment is closed, one part given again, and the others only when the closing has
   come: the border is confirmed.
4. A worker without room for another sum is asked for those it has, and then forgets
   them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.core.orders import Orders
from codedgrad.core.state import State
from codedgrad.schemes.auto.earliest_end import Level
from codedgrad.schemes.auto.outstanding import Counted, Limbo, Stand
from codedgrad.schemes.auto.reassign import PartLayout
from codedgrad.schemes.auto.uploads import Sums
from codedgrad.schemes.auto.worker_lists import Hands

_SURE = 0.5  # of a part, by which somebody must be late for its part to be taken away
# Copies of a part under way besides the first, and one more for every step's time that
# the step lasts longer: a fixed limit could leave a part with silent workers only.
_COPIES = 2
_PLENTY = 1000  # sums a worker can hold, from which they need not be counted


class Changes:
    """Gives out parts, and takes them away.

    Args:
        layout: Which parts each worker may be asked for.
        hands: What everybody has.
        sums: Where sums are asked for.
        counted: What counts.
        limbo: What is nobody's.

    Attributes:
        copied: Parts that two are at who are both counted on.
        is_short: Whether somebody has no room for what it should do.
    """

    def __init__(
        self,
        layout: PartLayout,
        hands: Hands,
        sums: Sums,
        counted: Counted,
        limbo: Limbo,
    ) -> None:
        self._layout = layout
        self._hands = hands
        self._sums = sums
        self._counted = counted
        self._limbo = limbo
        self.copied: set[int] = set()
        self.is_short = False

    def give(
        self,
        state: State,
        orders: Orders,
        worker: int,
        parts: Sequence[int],
        upload: bool = False,
    ) -> None:
        """Add a segment to a worker's list; with a message of its own, or not."""
        id_, _ = orders.assign(worker, parts, upload=upload)
        self._hands.give(state, worker, id_, parts)
        if not upload:
            self._hands[worker].unsent.append(id_)

    def probe(self, state: State, orders: Orders, worker: int) -> None:
        """Let a worker show its pace with a part that others do anyway."""
        own, held = self._layout.blocks[worker], self._layout.placement[worker]
        part = (own or held)[-1:]
        if not part:
            return  # fewer parts than workers, and no part that it may be asked for
        id_, _ = orders.assign(worker, part)
        self._hands.give(state, worker, id_, part)
        self._hands[worker].lists.clear()
        self._counted.probes.add(id_)

    def most(self, state: State, orders: Orders, stand: Stand) -> Floats:
        """Return how many parts each can be given, (workers,).

        No more for a worker that was given something and has not reported yet, as long
        as others have; nor for a worker without room, unless it has nothing to do or to
        send, and so can make room.
        """
        is_shown = any(hand.count for hand in self._hands)
        is_tight = state.capabilities.rows_per_worker < _PLENTY
        can_have_more = [
            (hand.count > 0 or not (is_shown and hand.started))
            and not (
                is_tight
                and _rooms(state, orders, worker) <= 0
                and (hand.lists or state.owed(worker))
            )
            for worker, hand in enumerate(self._hands)
        ]
        return np.where(can_have_more, math.inf, list(map(len, stand.live)))

    def make(self, state: State, orders: Orders, stand: Stand, found: Level) -> None:
        """Give orders for lists that end the step when it could."""
        sight, late = stand.sight, self._late(state, stand, found)
        for part in late:
            worker = stand.owner[part]
            is_hidden = not self._hands[worker].count and sight.stuck[worker]
            if is_hidden and _rooms(state, orders, worker) > 0:
                self._confirm(state, orders, stand, worker, part)
                found.room[worker] = 0
        for worker in stand.halted:
            for id_ in list(self._hands[worker].lists):
                orders.cut(worker, id_)
                self._hands[worker].lists.remove(id_)
            sight.queues[worker].clear()
        taken: set[int] = set()
        hidden = [part for part in late if self._is_hidden(stand, found, part)]
        known = [part for part in late if part not in hidden]
        lists = self._layout.relisted(
            stand.live,
            stand.orphans,
            known,
            hidden,
            found.room.tolist(),
            sight.free,
            sight.pace,
            sight.stuck,
        )
        for part in hidden:
            self._counted.twin(part, self._hands[stand.owner[part]].lists[0])
        keeping = {worker for worker, parts in enumerate(lists) if parts}
        for part in known:
            if self._is_sure(state, stand, found, part, keeping):
                self._take(state, orders, stand.owner[part])
                sight.queues[stand.owner[part]].clear()
                taken.add(part)
        self.is_short = False
        for worker, (old, new) in enumerate(zip(sight.queues, lists, strict=True)):
            same = _same(old, new)
            if same < len(old):
                self._cut(state, orders, worker, len(old) - same)
            if same < len(new):
                copies = [p for p in new[same:] if p in known and p not in taken]
                self._add(state, orders, worker, new[same:], copies)

    def _late(self, state: State, stand: Stand, found: Level) -> list[int]:
        """Return the parts under way that another should do as well."""
        most = max(_COPIES, _COPIES + int(self._hands.steps_so_far(state)) - 1)
        return [
            part
            for part, is_late in zip(stand.under_way, found.late.tolist(), strict=True)
            if is_late and stand.copies[part] <= most
        ]

    def _is_hidden(self, stand: Stand, found: Level, part: int) -> bool:
        """Whether a part is all that is left with who has not shown up."""
        worker = stand.owner[part]
        hand, stuck = self._hands[worker], stand.sight.stuck[worker]
        keeps = min(len(stand.live[worker]), max(int(found.room[worker]), stuck))
        return not hand.count and len(hand.lists) == 1 and not keeps

    def _add(
        self,
        state: State,
        orders: Orders,
        worker: int,
        more: list[int],
        copies: Sequence[int],
    ) -> None:
        """Give a worker more; copies of what is under way as segments of their own."""
        rooms = _rooms(state, orders, worker)
        for part in copies:
            if rooms > 1 or (rooms and more == [part]):
                self.copied.add(part)
                self.give(state, orders, worker, (part,), upload=True)
                more.remove(part)
                rooms -= 1
        if more and rooms > 0:
            self.give(state, orders, worker, more)
        elif more:
            self._make_room(state, orders, worker, more)

    def _is_sure(
        self, state: State, stand: Stand, found: Level, part: int, keeping: set[int]
    ) -> bool:
        """Whether a part is better taken away than copied.

        Its worker has done others in the same segment, is left with nothing else, and
        is certain to be late.
        """
        hand = self._hands[stand.owner[part]]
        lateness = stand.under_way[part] - found.end
        return (
            state.segments[hand.lists[0]].done > 0
            and hand.is_paced
            and lateness > _SURE * hand.pace
            and stand.owner[part] not in keeping
        )

    def _take(self, state: State, orders: Orders, worker: int) -> None:
        """Take away all that a worker is left with, and ask for what it has done."""
        hand = self._hands[worker]
        for id_ in list(hand.lists):
            orders.cut(worker, id_)
            hand.lists.remove(id_)
            if not state.segments[id_].done:
                hand.drop(id_)
        self._sums.ask(state, orders, worker)

    def _confirm(
        self, state: State, orders: Orders, stand: Stand, worker: int, part: int
    ) -> None:
        """Take everything from somebody who may have begun, but for one part."""
        hand, live, stuck = self._hands[worker], stand.live[worker], stand.sight.stuck
        last = hand.lists[-1]
        for id_ in list(hand.lists):
            orders.cut(worker, id_)
            hand.drop(id_)
        self._limbo.put(last, live[: stuck[worker]], self._sums.limit(state))
        stand.orphans.extend(reversed(live[stuck[worker] :]))
        live.clear()
        stand.sight.queues[worker].clear()
        stuck[worker] = 0
        self.give(state, orders, worker, (part,))

    def _cut(self, state: State, orders: Orders, worker: int, count: int) -> None:
        """Take the last parts off a worker's list, but for what it is at.

        `stuck` keeps the border beyond any part that the worker may begin before the
        cut reaches it, so the border needs no confirmation. See `_confirm` otherwise.
        """
        hand = self._hands[worker]
        for id_ in reversed(hand.lists.copy()):
            known = state.segments[id_]
            taken = min(known.keep - known.done - (id_ == hand.lists[0]), count)
            if taken <= 0:
                return
            count -= taken
            orders.cut(worker, id_, known.keep - taken)
            if known.keep - taken == known.done:
                hand.lists.remove(id_)
                if not known.done:
                    hand.drop(id_)

    def _make_room(
        self, state: State, orders: Orders, worker: int, parts: Sequence[int]
    ) -> None:
        """Have a worker forget its sums, once they are here, to give it more."""
        hand = self._hands[worker]
        self.is_short = True
        if hand.lists or state.owed(worker):
            return  # when it is through
        if hand.unsent:
            self._sums.ask(state, orders, worker)
            return
        orders.drop(worker)
        self._hands.renew(worker)
        self.give(state, orders, worker, parts)


def _same(old: Sequence[int], new: Sequence[int]) -> int:
    """Return how many parts two lists begin with that are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    different = (at for at, (one, other) in pairs if one != other)
    return next(different, min(len(old), len(new)))


def _rooms(state: State, orders: Orders, worker: int) -> int:
    """Return how many more segments a worker can be given."""
    kept = sum(not known.gone for known in state.given(worker))
    return state.capabilities.rows_per_worker - kept - orders.given(worker)
