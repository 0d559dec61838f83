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

1. Everybody has a list of parts. It is looked at who has what when a worker is about to
   run dry, so that more reaches it before it has nothing to do and a round trip costs
   nothing: `worker_lists` and `outstanding` say how things stand, `earliest_end` when
   the step could end, `reassign` which worker should have which parts then, and
   `change_orders` gives the orders, if that is clearly sooner.
2. On a ring, where help takes detours, it is also looked before anybody runs dry.
3. A worker that was given nothing computes one part that the plan does not count on, to
   show its pace.
4. A worker that will not be given more is asked for its sum ahead (`uploads`), so a
   calm step takes as long as an uncoded one.
"""

from __future__ import annotations

import math

from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    Progressed,
    TimerFired,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.orders import Orders
from codedgrad.core.plan import Ask, Decision, Fail, Wait
from codedgrad.core.state import State
from codedgrad.schemes.auto.change_orders import Changes
from codedgrad.schemes.auto.forecast import Forecast
from codedgrad.schemes.auto.outstanding import Counted, Limbo, Stand, stand_of
from codedgrad.schemes.auto.reassign import PartLayout
from codedgrad.schemes.auto.uploads import Sums
from codedgrad.schemes.auto.worker_lists import Hands, Sight

_GAIN = 0.002  # of a step, by which it should end sooner for lists to change
_CAUTIOUS = 0.15  # the same, after re-planning has not paid
_CHECK = 0.05  # of the time so far, until the next look once somebody has run dry
_MOST = 100  # looks in a step, besides those that must be
_EARLY = (0.25, 0.5, 0.75)  # of a step: looks on a ring
_QUIET = 1.3  # of a step: a look, whatever was heard
_FIRST = 0.01  # the same in a first step, as a fraction of the deadline's scale
# Minimum gap between looks: fraction of a step; in a first one, of the scale.
_BREATH = 1e-3, 1e-5
_SOON = 1e-9  # of the time so far: after what else happens at this moment


class LivePlan:
    """A step on workers that report progress and take more while they work.

    Args:
        layout: Which parts each worker may be asked for.
        forecast: What the step is expected to be like.
        early: Whether a ring is looked at before anybody runs dry.
    """

    def __init__(
        self, layout: PartLayout, forecast: Forecast, early: bool = True
    ) -> None:
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
        self._limbo = Limbo()
        self._counted = Counted(self._hands)
        self._changes = Changes(
            layout, self._hands, self._sums, self._counted, self._limbo
        )

    # -- the start -------------------------------------------------------------------

    def first(self, state: State) -> Ask | Fail:
        """Give everybody a list."""
        step = self._forecast.step
        self._end = state.started + state.deadline.seconds
        self._quiet = state.started + (_QUIET * step or _FIRST * state.deadline.scale)
        self._early = [state.started + seconds for seconds in self._early if seconds]
        orders = Orders(state)
        for worker, parts in enumerate(self._opening(state)):
            if parts:
                self._changes.give(state, orders, worker, parts)
            elif state.alive[worker]:
                self._changes.probe(state, orders, worker)
        self._said = max(self._until(state), math.nextafter(state.now, math.inf))
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
        return layout.relisted(lists, orphans, (), (), rooms, free, pace, stuck)

    # -- events ----------------------------------------------------------------------

    def judge(self, state: State, event: Event) -> Decision:
        """Take note, and look whether lists should change or the step can end."""
        self._hands.pass_time(state)
        match event:
            case Progressed():
                return self._progress(state, event)
            case MessageArrived():
                return self._arrive(state, event)
            case MessageFailed(_, worker):
                self._forget(state, worker, is_lost=False)
                return self._soon(state)
            case WorkersLost(workers):
                for worker in workers:
                    self._forget(state, worker, is_lost=True)
                return self._soon(state)
            case WorkersJoined(workers):
                for worker in workers:
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
        if self._counted.missing(state) == 0:
            return self._collect(state)
        if event.closed and self._limbo.settle(id_):
            return self._soon(state)
        if parts and self._hands.is_nearly_dry(state, worker):
            return self._run_dry(state, worker)
        return self._wait(state)

    def _run_dry(self, state: State, worker: int) -> Decision:
        """See whether a worker gets more, unless the last look has said so."""
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
        step = self._forecast.step
        least = _BREATH[0] * step or _BREATH[1] * state.deadline.scale
        so_far = state.now - state.started
        return state.now + max(self._hands.trip, _CHECK * so_far, least)

    def _note(self, state: State, segment: int, parts: int) -> None:
        """Note parts that are new in a segment."""
        both = self._changes.copied.intersection(
            self._counted.note(state, segment, parts)
        )
        if both:
            self._changes.copied -= both
            self._tick = state.now  # somebody else should stop

    def _close(self, state: State, worker: int, segment: int) -> None:
        """Note a closed segment; see that what is in it will be sent."""
        hand, known = self._hands[worker], state.segments[segment]
        self._sums.hurry(state)
        if (
            known.done
            and segment not in self._counted.probes
            and segment not in hand.unsent
        ):
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
        if self._counted.missing(state) == 0:
            return self._collect(state)
        return self._soon(state) if self._changes.is_short else self._wait(state)

    def _forget(self, state: State, worker: int, is_lost: bool) -> None:
        """Note that what a worker had, or some of it, is gone."""
        if is_lost:
            self._hands.renew(worker)
        else:
            self._hands.speak(worker)
            self._hands[worker].strikes += 1
        for id_ in (*self._hands[worker].lists, *self._hands[worker].unsent):
            if state.segments[id_].gone:
                self._hands[worker].drop(id_)
        self._limbo.forget(state)
        self._counted.forget(state)
        self._sums.forget(state)
        self._is_collecting = False

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
        stand = stand_of(state, self._hands, self._counted, self._limbo)
        self._replan(state, orders, stand)
        is_idle = self._arm(state, orders, stand.sight)
        self._sums.hurry(state)
        self._tick = self._pause(state) if is_idle else math.inf
        self._quiet = max(self._quiet, self._pause(state))
        return self._wait(state, orders)

    def _replan(self, state: State, orders: Orders, stand: Stand) -> None:
        """Change lists where that ends the step clearly sooner."""
        gain = _CAUTIOUS if self._forecast.cautious else _GAIN
        gain *= self._forecast.step or state.now - state.started
        must, before = bool(stand.orphans) or stand.is_stale, stand.end
        found = self._layout.level(
            stand.sight.free,
            stand.sight.pace,
            stand.waiting,
            list(stand.under_way),
            list(stand.under_way.values()),
            self._changes.most(state, orders, stand),
            math.inf if must else before - gain,
        )
        if math.isinf(found.end):  # nobody has room: all keep what they have
            found.room[:] = [len(queue) for queue in stand.live]
        self._goal = min(before, found.end)
        if must or found.end < math.inf:
            self._changes.make(state, orders, stand, found)

    # -- sums ------------------------------------------------------------------------

    def _arm(self, state: State, orders: Orders, sight: Sight) -> bool:
        """Ask those for their sums who will not be given more; say if anybody idles."""
        is_idle = False
        for worker, hand in enumerate(self._hands):
            if not state.alive[worker] or hand.silent:
                continue
            is_idle |= not hand.lists
            if not hand.unsent or not hand.count or not self._forecast.step:
                # Nothing yet; or the first step of a run, in which sums are asked for
                # only once they are there: that measures a round trip.
                continue
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
        self._counted.again = set()
        if self._counted.missing(state):  # somebody is silent
            self._is_collecting = False
            return self._look(state, must=True)
        left = self._sums.collect(state, orders, self._counted.probes)
        self._is_collecting = not left
        if left:
            self._counted.again = set(left)
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
        if self._counted.missing(state) == 0:
            return self._collect(state)
        must = min(self._tick, self._quiet) <= now
        while self._early and self._early[0] <= now:
            self._early.pop(0)
        if self._quiet <= now:
            self._quiet = self._pause(state)
        return self._look(state, must)

    def _fail(self, state: State) -> Fail:
        said = [f"not all parts were heard after {state.deadline}"]
        lost = [worker for worker, alive in enumerate(state.alive) if not alive]
        late = [w for w, hand in enumerate(self._hands) if hand.lists or hand.silent]
        if lost:
            said.append(f"lost workers {lost}")
        if late:
            said.append(f"late workers {late}")
        if self._is_held_by_none(state, {*lost, *late}):
            copies = self._layout.copies
            said.append(f"more copies than {copies} of every part would have helped")
        return Fail("; ".join(said))

    def _is_held_by_none(self, state: State, absent: set[int]) -> bool:
        """Whether a part that is missing is with nobody else."""
        is_done, holders = self._counted.is_done(state), self._layout.holders
        missing = (part for part in range(state.parts) if not is_done(part))
        return len(absent) < len(state.alive) and any(
            absent.issuperset(holders(part)) for part in missing
        )
