r"""The plan of one step that is planned again while it runs.

```text
            lists of parts                 somebody is about to run dry, a tick, a loss
   start ------------------> at work ----------------------------------------+
                              |   ^                                          |
                              |   +---- parts change hands, or stay <--------+
                              v
               every part is done by somebody: what is not on its way is asked for
                              |
                              v
                  all of a disjoint cover is here: Finish
```

1. Everybody has a list of parts, in segments. What is taken from a list is cut off at
   its end; what is added is a segment of its own.
2. Lists are looked at when a worker is about to run dry, so that more reaches it before
   it has nothing to do. `levelling` says when the step could end at the earliest; where
   that is clearly sooner, lists change.
3. A part under way that would end later is also given to somebody else, as a segment of
   one part with a message of its own: whichever is done first counts, and the other one
   is stopped. Where its worker has done other parts before in the same segment, and is
   certain to be late, it is taken away, and the sum of those asked for.
4. Of somebody who has not reported yet, nobody knows how far it is. If parts are so short
   that it may have done some before an order reaches it, its segment is closed, one part
   given again, and the others only when the closing has come: the border is confirmed.
5. Whoever was given nothing does one part that nobody counts on, to show its pace.
6. A worker that will not be given more is asked for its sum ahead: see `collecting`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    Progressed,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.core.orders import Orders
from codedgrad.core.plan import Ask, Decision, Fail, Wait
from codedgrad.core.state import State
from codedgrad.schemes.collecting import Sums
from codedgrad.schemes.handing import Layout
from codedgrad.schemes.hands import Hands, Sight
from codedgrad.schemes.levelling import Level
from codedgrad.schemes.pacing import Forecast

__all__ = ["LivePlan"]

_GAIN = 0.004  # of a step, by which it should end sooner for lists to change
_CAUTIOUS = 0.15  # the same, after re-planning has not paid
_CHECK = 0.05  # of the time so far, until the next look once somebody has run dry
_MOST = 100  # looks in a step, besides those that must be
_SURE = 0.5  # of a part, by which somebody must be late for its part to be taken away
_COPIES = 2  # of a part under way, besides the first
_EARLY = (0.25, 0.5, 0.75)  # of a step: looks on a ring, where help takes detours
_QUIET = 1.3  # of a step: a look, whatever was heard
_PLENTY = 1000  # sums a worker can hold, from which they need not be counted
_SOON = 1e-9  # of the time so far: after what else happens at this moment


@dataclass(frozen=True, slots=True, eq=False)
class _Stand:
    """What is left to do.

    Attributes:
        sight: How things stand.
        live: Queues without what is done elsewhere.
        under_way: Parts that somebody is at, and when they should be done.
        owner: Who is at it, the first to be done.
        copies: How many are.
        orphans: Parts that nobody has.
        halted: Who is at a part that is done elsewhere.
    """

    sight: Sight
    live: list[list[int]]
    under_way: dict[int, float]
    owner: dict[int, int]
    copies: dict[int, int]
    orphans: list[int]
    halted: list[int]

    @property
    def is_stale(self) -> bool:
        """Whether somebody would do what is done."""
        return bool(self.halted) or any(
            len(live) < len(queue)
            for live, queue in zip(self.live, self.sight.queues, strict=True)
        )

    def end(self) -> float:
        """Return when the step would end if nothing changed."""
        if self.orphans:
            return math.inf
        sight, ends = self.sight, list(self.under_way.values())
        for worker, queue in enumerate(sight.queues):
            if self.live[worker]:
                ends.append(float(sight.free[worker] + len(queue) * sight.pace[worker]))
        return max(ends, default=-math.inf)


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
                hands.strike(state.segments[id_].segment.worker)


class LivePlan:
    """A step on workers that report progress and take more while they work.

    Args:
        layout: Which parts each worker may be asked for.
        forecast: What the step is expected to be like.
        early: Whether a ring is looked at before anybody runs dry.
    """

    def __init__(self, layout: Layout, forecast: Forecast, early: bool = True) -> None:
        self._layout = layout
        self._forecast = forecast
        self._hands = Hands(forecast, layout.pieces)
        self._sums = Sums(self._hands, forecast)
        self._looks = 0
        self._looked = -math.inf
        self._goal = math.inf  # when the step should end, as of the last look
        self._tick = self._quiet = self._end = self._said = math.inf
        self._early: list[float] = []
        if early and not layout.everywhere:
            self._early = [share * forecast.step for share in _EARLY]
        self._is_collecting = False
        self._is_short = False  # somebody has no room for what it should do
        self._limbo = Limbo()
        self._copied: set[int] = set()  # parts that several are at
        self._twins: dict[int, int] = {}  # part -> segment of who may not be there
        self._probes: set[int] = set()  # segments that nobody counts on
        self._probed: set[int] = set()  # parts that were done in them
        self._again: set[int] = set()  # parts that are done, and in no cover

    # -- the start -------------------------------------------------------------------

    def first(self, state: State) -> Ask | Fail:
        """Give everybody a list."""
        step = self._forecast.step
        self._end = state.started + state.deadline.seconds
        self._quiet = state.started + (_QUIET * step or state.deadline.seconds)
        self._early = [state.started + seconds for seconds in self._early if seconds]
        orders = Orders(state)
        for worker, parts in enumerate(self._opening(state)):
            if parts:
                self._give(state, orders, worker, parts)
            elif state.alive[worker]:
                self._probe(state, orders, worker)
        self._said = self._until(state)
        return orders.ask(self._said)

    def _opening(self, state: State) -> list[list[int]]:
        """Return the first lists: everybody's own, or as forecast."""
        layout, forecast, alive = self._layout, self._forecast, state.alive
        lists = [list(b) if alive[w] else [] for w, b in enumerate(layout.blocks)]
        orphans = [
            part
            for w, block in enumerate(layout.blocks)
            if not alive[w]
            for part in block
        ]
        if not forecast.uneven and not orphans:
            return lists
        pace = forecast.pace if forecast.step else forecast.pace + 1.0
        free = forecast.fixed.copy()
        free[[w for w, there in enumerate(alive) if not there]] = math.inf
        waiting = [part for parts in (*lists, orphans) for part in parts]
        found = layout.level(free, pace, waiting, (), ())
        rooms, stuck = found.room.tolist(), [0] * len(alive)
        return layout.relisted(lists, orphans, (), rooms, free, pace, stuck)

    def _give(
        self,
        state: State,
        orders: Orders,
        worker: int,
        parts: Sequence[int],
        upload: bool = False,
    ) -> int:
        id_, _ = orders.assign(worker, parts, upload=upload)
        self._hands.give(state, worker, id_, parts)
        if not upload:
            self._hands[worker].unsent.append(id_)
        return id_

    def _probe(self, state: State, orders: Orders, worker: int) -> None:
        """Let a worker show its pace with a part that others do anyway."""
        part = self._layout.blocks[worker][-1:]
        id_, _ = orders.assign(worker, part)
        self._hands.give(state, worker, id_, part)
        self._hands[worker].lists.clear()
        self._probes.add(id_)

    # -- events ----------------------------------------------------------------------

    def judge(self, state: State, event: Event) -> Decision:
        """Take note, and look whether lists should change or the step can end."""
        self._hands.pass_time(state)
        match event:
            case Progressed():
                return self._progress(state, event)
            case MessageArrived():
                return self._arrive(state, event)
            case MessageFailed(_, worker) | WorkerLost(worker):
                self._forget(state, worker, isinstance(event, WorkerLost))
                return self._soon(state)
            case WorkerJoined(worker):
                self._hands.renew(worker)
                return self._soon(state)
            case TimerFired():
                self._said = math.inf
                return self._timer(state)
        return self._wait(state)

    def _progress(self, state: State, event: Progressed) -> Decision:
        worker, id_ = event.worker, event.segment
        parts = self._hands.report(state, worker, id_)
        if parts:
            self._note(state, id_, parts)
        if event.closed:
            self._close(state, worker, id_)
        if self._is_collecting:
            strays = event.closed and not self._sums.is_as_expected(state, id_)
            return self._collect(state) if strays else self._wait(state)
        if self._missing(state) == 0:
            return self._collect(state)
        if event.closed and self._limbo.settle(id_):
            return self._soon(state)
        if parts and self._hands.is_nearly_dry(state, worker):
            return self._run_dry(state, worker)
        return self._wait(state)

    def _run_dry(self, state: State, worker: int) -> Decision:
        """See whether a worker gets more; not if the last look says that it will not."""
        hand, left = self._hands[worker], self._hands.left(state, worker)
        is_early = hand.since + (left + 1) * hand.pace <= self._goal
        if is_early or any(other.lists and not other.is_paced for other in self._hands):
            return self._look(state)
        orders = Orders(state)
        if self._forecast.step:
            self._sums.ask(state, orders, worker)
        if not left:
            self._tick = min(self._tick, self._pause(state))
        return self._wait(state, orders)

    def _pause(self, state: State) -> float:
        """Return when to look again while somebody has nothing to do."""
        return state.now + max(self._hands.trip, _CHECK * (state.now - state.started))

    def _note(self, state: State, segment: int, parts: int) -> None:
        """Note parts that are new in a segment."""
        known = state.segments[segment]
        new = known.merged[-parts:]
        if segment in self._probes:
            self._probed.update(new)
        else:
            self._again.difference_update(new)
            for part in self._twins.keys() & set(new):
                self._outdo(state, part, segment)
        if not self._copied.isdisjoint(new):
            self._copied.difference_update(new)
            self._tick = state.now  # somebody else should stop

    def _outdo(self, state: State, part: int, segment: int) -> None:
        """Note that a part is done for which somebody else was not counted on.

        Whoever has it too shows its pace with it, and no more.
        """
        twin = self._twins[part]
        hand = self._hands[state.segments[twin].segment.worker]
        is_asked = twin not in hand.unsent and not hand.lists
        if twin == segment or state.segments[twin].gone or is_asked:
            return
        del self._twins[part]
        hand.drop(twin)
        self._probes.add(twin)
        if state.segments[twin].done:
            self._probed.add(part)

    def _close(self, state: State, worker: int, segment: int) -> None:
        """Note a closed segment; see that what is in it will be sent."""
        hand, known = self._hands[worker], state.segments[segment]
        self._sums.close(state, worker)
        if known.done and segment not in self._probes and segment not in hand.unsent:
            asked = any(
                segment in message.segments and not message.gone
                for message in state.messages.values()
                if message.worker == worker
            )
            if not asked:
                hand.unsent.append(segment)

    def _arrive(self, state: State, event: MessageArrived) -> Decision:
        self._sums.arrive(event)
        strays = False
        for id_, _ in event.cuts:
            if parts := self._hands.report(state, event.worker, id_):
                self._note(state, id_, parts)
            strays |= not self._sums.is_as_expected(state, id_)
        if (end := self._sums.finish(state)) is not None:
            return end
        if self._is_collecting:
            return self._collect(state) if strays else self._wait(state)
        if self._missing(state) == 0:
            return self._collect(state)
        return self._soon(state) if self._is_short else self._wait(state)

    def _forget(self, state: State, worker: int, is_lost: bool) -> None:
        """Note that what a worker had, or some of it, is gone."""
        if is_lost:
            self._hands.renew(worker)
        else:
            self._hands[worker].strikes += 1
        for id_ in (*self._hands[worker].lists, *self._hands[worker].unsent):
            if state.segments[id_].gone:
                self._hands[worker].drop(id_)
        self._limbo.forget(state)
        gone = {id_ for id_ in self._probes if state.segments[id_].gone}
        self._probes -= gone
        self._probed -= {state.segments[id_].segment.parts[0] for id_ in gone}
        self._sums.forget(state)
        self._is_collecting = False

    # -- what is done ----------------------------------------------------------------

    def _missing(self, state: State) -> int:
        """Return how many parts nobody has done, as far as anybody is counted on."""
        if self._again or not self._hands.are_trusted:
            done = self._is_done(state)
            return sum(not done(part) for part in range(state.parts))
        return state.missing + sum(_copies(state, part) == 1 for part in self._probed)

    def _is_done(self, state: State) -> Callable[[int], bool]:
        """Return what says of a part whether somebody who is counted on has done it."""
        if not self._again and self._hands.are_trusted:
            if not self._probed:
                return state.ledger.is_finished
            probed = self._probed
            return lambda part: _copies(state, part) > (part in probed)
        done: set[int] = set()
        for id_ in state.heard:
            done.update(state.row(id_))
        for id_, known in state.segments.items():
            is_silent = self._hands[known.segment.worker].silent
            if not known.gone and not is_silent and id_ not in self._probes:
                done.update(known.merged)
        return (done - self._again).__contains__

    # -- looking ---------------------------------------------------------------------

    def _soon(self, state: State) -> Decision:
        """Look after whatever else happens at this moment."""
        self._tick = state.now
        return self._wait(state)

    def _look(self, state: State, must: bool = False) -> Decision:
        """See whether parts should change hands, at most once in a round trip."""
        now = state.now
        if not must and now < self._looked + self._hands.trip:
            self._tick = min(self._tick, self._looked + self._hands.trip)
            return self._wait(state)
        if not must and self._looks >= _MOST:
            return self._wait(state)
        self._looks += not must
        self._looked = now
        orders = Orders(state)
        stand = self._stand(state)
        self._replan(state, orders, stand)
        is_idle = self._arm(state, orders, stand.sight)
        self._tick = self._pause(state) if is_idle else math.inf
        self._quiet = max(self._quiet, self._pause(state))
        return self._wait(state, orders)

    def _stand(self, state: State) -> _Stand:
        sight, is_done = self._hands.sight(state), self._is_done(state)
        placed = set(self._limbo.parts)
        live: list[list[int]] = []
        for queue in sight.queues:
            live.append([p for p in queue if p not in placed and not is_done(p)])
            placed.update(live[-1])
        stand = _Stand(sight, live, {}, {}, {}, [], [])
        for part, worker, end in sight.under_way:
            if is_done(part):
                stand.halted.append(worker)
            elif part not in placed:
                stand.copies[part] = stand.copies.get(part, 0) + 1
                if end < stand.under_way.get(part, math.inf):
                    stand.under_way[part], stand.owner[part] = end, worker
        if self._missing(state) > len(placed) + len(stand.under_way):
            stand.orphans.extend(
                part
                for part in range(state.parts)
                if not is_done(part)
                and part not in placed
                and part not in stand.under_way
            )
        return stand

    def _replan(self, state: State, orders: Orders, stand: _Stand) -> None:
        """Change lists where that ends the step clearly sooner."""
        sight = stand.sight
        for worker in stand.halted:
            sight.free[worker] = self._hands.ready(state, worker, sight.pace[worker])
            sight.stuck[worker] = 0
        names, ends = list(stand.under_way), list(stand.under_way.values())
        waiting = [part for queue in stand.live for part in queue] + stand.orphans
        waiting += self._limbo.parts
        gain = _CAUTIOUS if self._forecast.cautious else _GAIN
        gain *= self._forecast.step or state.now - state.started
        before = stand.end()
        must = bool(stand.orphans) or stand.is_stale
        most = self._most(state, stand)
        found = self._layout.level(
            sight.free,
            sight.pace,
            waiting,
            names,
            ends,
            most,
            math.inf if must else before - gain,
        )
        self._goal = min(before, found.end)
        if must or found.end < math.inf:
            late = [
                part
                for part, is_late in zip(names, found.late.tolist(), strict=True)
                if is_late and stand.copies[part] <= _COPIES
            ]
            self._hand_over(state, orders, stand, found, late)

    def _most(self, state: State, stand: _Stand) -> Floats | float:
        """Return how many parts each can be given.

        No more for somebody who has not shown that it is there, as long as others
        have; nor for who is at work and has no room. Who is not at work can make room.
        """
        hands = self._hands
        is_shown = any(hand.count for hand in hands)
        is_tight = state.capabilities.rows_per_worker < _PLENTY
        can_have_more = [
            (hand.count > 0 or not (is_shown and hand.started))
            and not (is_tight and hand.lists and _rooms(state, worker) <= 0)
            for worker, hand in enumerate(hands)
        ]
        return np.where(can_have_more, math.inf, list(map(len, stand.live)))

    def _hand_over(
        self,
        state: State,
        orders: Orders,
        stand: _Stand,
        found: Level,
        late: list[int],
    ) -> None:
        """Give orders for lists that fit; parts under way in `late` are copied."""
        sight = stand.sight
        for part in late:
            worker = stand.owner[part]
            is_hidden = not self._hands[worker].count and sight.stuck[worker]
            if is_hidden and _rooms(state, worker) > 0:
                self._confirm(state, orders, stand, worker, part)
                found.room[worker] = 0
        for worker in stand.halted:
            for id_ in list(self._hands[worker].lists):
                orders.cut(worker, id_)
                self._hands[worker].lists.remove(id_)
            sight.queues[worker].clear()
        hidden = [part for part in late if self._is_hidden(stand, found, part)]
        copied = set(late).difference(hidden)
        lists = self._layout.relisted(
            stand.live,
            [*(part for part in late if part in copied), *stand.orphans],
            hidden,
            found.room.tolist(),
            sight.free,
            sight.pace,
            sight.stuck,
        )
        for part in hidden:
            self._twins[part] = self._hands[stand.owner[part]].lists[0]
        self._is_short = False
        for worker, (old, new) in enumerate(zip(sight.queues, lists, strict=True)):
            same = 0
            while same < min(len(old), len(new)) and old[same] == new[same]:
                same += 1
            if same < len(old):
                self._cut(state, orders, worker, len(old) - same)
            more, rooms = new[same:], _rooms(state, worker)
            for part in [part for part in more if part in copied]:
                if rooms > 1 or (rooms and more == [part]):
                    self._copy(state, orders, stand, found.end, worker, part)
                    more.remove(part)
                    rooms -= 1
            if more and rooms > 0:
                self._give(state, orders, worker, more)
            elif more:
                self._make_room(state, orders, worker, more)

    def _is_hidden(self, stand: _Stand, found: Level, part: int) -> bool:
        """Whether a part is all that somebody keeps who has not shown that it is there."""
        worker = stand.owner[part]
        hand, stuck = self._hands[worker], stand.sight.stuck[worker]
        keeps = min(len(stand.live[worker]), max(int(found.room[worker]), stuck))
        return not hand.count and len(hand.lists) == 1 and not keeps

    def _make_room(
        self, state: State, orders: Orders, worker: int, parts: Sequence[int]
    ) -> None:
        """Have a worker forget its sums, once they are here, to give it more."""
        hand = self._hands[worker]
        self._is_short = True
        if hand.lists or any(
            message.pending and message.worker == worker
            for message in state.messages.values()
        ):
            return  # when it is through
        if hand.unsent:
            self._sums.ask(state, orders, worker)
            return
        orders.drop(worker)
        self._hands.renew(worker)
        self._give(state, orders, worker, parts)

    def _confirm(
        self, state: State, orders: Orders, stand: _Stand, worker: int, part: int
    ) -> None:
        """Take everything from somebody who may have begun, but for one part."""
        hand, live, stuck = self._hands[worker], stand.live[worker], stand.sight.stuck
        for id_ in list(hand.lists):
            orders.cut(worker, id_)
            hand.drop(id_)
        self._limbo.put(id_, live[: stuck[worker]], self._sums.limit(state))
        stand.orphans.extend(reversed(live[stuck[worker] :]))
        live.clear()
        stand.sight.queues[worker].clear()
        stuck[worker] = 0
        self._give(state, orders, worker, (part,))

    def _cut(self, state: State, orders: Orders, worker: int, count: int) -> None:
        """Take the last parts off a worker's list, but for what it is at."""
        hand = self._hands[worker]
        for id_ in reversed(hand.lists.copy()):
            known = state.segments[id_]
            is_first = id_ == hand.lists[0]
            taken = min(known.keep - known.done - is_first, count)
            if taken <= 0:
                return
            count -= taken
            orders.cut(worker, id_, known.keep - taken)
            if known.keep - taken == known.done:
                hand.lists.remove(id_)
                if not known.done:
                    hand.drop(id_)

    def _copy(
        self,
        state: State,
        orders: Orders,
        stand: _Stand,
        end: float,
        worker: int,
        part: int,
    ) -> None:
        """Let somebody else do a part that is under way; or take it away."""
        owner = stand.owner[part]
        hand = self._hands[owner]
        known = state.segments.get(hand.lists[0])  # None: just given again
        lateness = stand.under_way[part] - end
        if (
            known is not None
            and known.done
            and hand.is_paced
            and lateness > _SURE * hand.pace
        ):
            self._give(state, orders, worker, (part,))
            orders.cut(owner, known.segment.id)
            hand.lists.remove(known.segment.id)
            self._sums.ask(state, orders, owner)
            return
        self._copied.add(part)
        self._give(state, orders, worker, (part,), upload=True)

    # -- sums ------------------------------------------------------------------------

    def _arm(self, state: State, orders: Orders, sight: Sight) -> bool:
        """Ask those for their sums who will not be given more; say if anybody idles."""
        is_idle = False
        for worker, hand in enumerate(self._hands):
            if not state.alive[worker] or hand.silent:
                continue
            is_idle |= not hand.lists
            if not hand.unsent or not hand.count or not self._forecast.step:
                continue  # nothing yet; or the first step, which shows a round trip
            pace, left = sight.pace[worker], self._hands.left(state, worker)
            if (left - 1) * pace > self._hands.trip:
                continue
            through = sight.free[worker] + max(left, 1) * pace
            if through > self._goal or (self._sums.is_early and not left):
                self._sums.ask(state, orders, worker)
        return is_idle

    def _collect(self, state: State) -> Decision:
        """Every part is done by somebody: get what is not on its way."""
        orders = Orders(state)
        self._again = set()
        if self._missing(state):  # somebody is silent
            self._is_collecting = False
            return self._look(state, must=True)
        left = self._sums.collect(state, orders, self._probes)
        self._is_collecting = not left
        if left:
            self._again = set(left)
            return self._look(state, must=True)
        self._tick = math.inf
        return self._wait(state, orders)

    # -- time ------------------------------------------------------------------------

    def _until(self, state: State) -> float:
        until = min(self._sums.until, self._end)
        if not self._is_collecting:
            until = min(until, self._tick, self._quiet, self._limbo.until)
            until = min([until, *self._early[:1]])
        return until

    def _wait(self, state: State, orders: Orders | None = None) -> Decision:
        """Give orders, if there are any, and wait; unless the time is up."""
        until, now = self._until(state), state.now
        if until <= now and until != self._said:
            if self._end <= now:
                return self._timer(state)
            until = max(
                now + _SOON * (now - state.started), math.nextafter(now, math.inf)
            )
        self._said = until
        return orders.ask(until) if orders else Wait(until)

    def _timer(self, state: State) -> Decision:
        now = state.now
        if now >= self._end:
            return self._fail(state)
        self._limbo.expire(state, self._hands)
        if self._sums.expire(state):
            return self._collect(state)
        if self._is_collecting:
            return self._wait(state)
        if self._missing(state) == 0:
            return self._collect(state)
        must = self._tick <= now
        while self._early and self._early[0] <= now:
            self._early.pop(0)
        if self._quiet <= now:
            self._quiet = now + _CHECK * (now - state.started)
        return self._look(state, must)

    def _fail(self, state: State) -> Fail:
        deadline = state.deadline
        said = [
            f"not all parts were heard after {deadline.seconds:.3g} s "
            f"({deadline.reason})"
        ]
        lost = [worker for worker, alive in enumerate(state.alive) if not alive]
        late = [w for w, hand in enumerate(self._hands) if hand.lists or hand.silent]
        if lost:
            said.append(f"lost workers {lost}")
        if late:
            said.append(f"late workers {late}")
        if not self._layout.everywhere:
            copies = self._layout.copies
            said.append(f"more copies than {copies} of every part would have helped")
        return Fail("; ".join(said))


def _rooms(state: State, worker: int) -> int:
    """Return how many more segments a worker can be given."""
    kept = sum(not known.gone for known in state.given(worker))
    return state.capabilities.rows_per_worker - kept


def _copies(state: State, part: int) -> int:
    """Return how many finished copies of a part there are."""
    ledger = state.ledger
    return ledger.open[part] + ledger.closed[part] + ledger.covered[part]
