"""Getting the sums in: who is asked for what, and until when that is waited for.

A sum is asked for in three moments. A worker that will not be given more is asked
before it has closed what it is at, which saves a round trip. When every part is done by
somebody, a disjoint cover is chosen from what is there, and what of it is not on its
way is asked for. And where sending takes long, whoever runs dry is asked at once.

Whoever owes a sum past its deadline is silent: what it has is not counted on until it
speaks again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from codedgrad.core.events import MessageArrived
from codedgrad.core.orders import Orders
from codedgrad.core.plan import Finish
from codedgrad.core.state import State
from codedgrad.schemes.auto.forecast import Forecast
from codedgrad.schemes.auto.worker_lists import Hands
from codedgrad.schemes.cover import best_cover

_TRIPS, _SENDINGS, _OF_STEP = 10.0, 3.0, 0.25  # what a deadline is made of
_LEAST = 0.05  # seconds, that a busy machine may take to answer
_FIRST = 0.002  # fraction of the deadline's scale, where no step has ended yet
_LONG = 0.1  # of a step: sending takes long


class Sums:
    """The sums of a step.

    Args:
        hands: What everybody has.
        forecast: What the step is expected to be like.

    Attributes:
        is_early: Whether whoever runs dry is asked at once.
    """

    def __init__(self, hands: Hands, forecast: Forecast) -> None:
        self._hands = hands
        self._forecast = forecast
        self._due: dict[int, float] = {}  # pending message -> when it should be here
        self._borders: dict[int, int] = {}  # segment -> parts it is counted on for
        self.is_early = forecast.sending > _LONG * forecast.step > 0.0

    @property
    def until(self) -> float:
        """The first deadline; inf if there is none."""
        return min(self._due.values(), default=math.inf)

    # -- asking ----------------------------------------------------------------------

    def ask(
        self, state: State, orders: Orders, worker: int, some: Sequence[int] = ()
    ) -> None:
        """Ask a worker for a sum, as soon as it is closed: of all that is unsent.

        What has a part that another segment of the same worker has is asked for apart.
        """
        hand = self._hands[worker]
        groups: list[tuple[list[int], set[int]]] = []
        for id_ in some or hand.unsent:
            parts = self._parts(state, id_)
            if not parts:
                continue
            fits = (group for group in groups if group[1].isdisjoint(parts))
            if (group := next(fits, None)) is None:
                groups.append(group := ([], set()))
            group[0].append(id_)
            group[1].update(parts)
        for ids, _ in groups:
            hand.unsent = [id_ for id_ in hand.unsent if id_ not in ids]
            is_at_it = not set(ids).isdisjoint(hand.lists)
            until = math.inf if is_at_it else self.limit(state)
            self._due[orders.upload(worker, ids)] = until

    def _parts(self, state: State, segment: int) -> tuple[int, ...]:
        """Return the parts that a segment has, or may have once it is closed."""
        known = state.segments.get(segment)
        if known is None:
            return self._hands.given[segment]
        return known.merged if known.closed else known.segment.parts

    def limit(self, state: State) -> float:
        """Return until when an answer that takes no work is waited for."""
        forecast = self._forecast
        usual = _TRIPS * self._hands.trip + _SENDINGS * forecast.sending
        if forecast.step:
            return state.now + max(usual, _OF_STEP * forecast.step, _LEAST)
        first = _OF_STEP * (state.now - state.started)
        return state.now + max(usual, first, _FIRST * state.deadline.scale, _LEAST)

    # -- what comes of it ------------------------------------------------------------

    def hurry(self, state: State) -> None:
        """Start the deadline of every upload that its worker should have closed by now.

        Judged by the plan's own lists and not by the report of the closing: a worker
        that was stopped after its cut never sends that report.
        """
        for id_, at in self._due.items():
            message = state.messages.get(id_)  # None: asked for just now
            if math.isinf(at) and message is not None:
                lists = self._hands[message.worker].lists
                if set(lists).isdisjoint(message.segments):
                    self._due[id_] = self.limit(state)

    def arrive(self, event: MessageArrived) -> None:
        """Note a sum that has come."""
        self._due.pop(event.message, None)
        self._hands[event.worker].strikes = 0  # late, but it came

    def forget(self, state: State) -> None:
        """Note that some will never come."""
        self._due = {m: at for m, at in self._due.items() if state.messages[m].pending}

    def expire(self, state: State) -> bool:
        """Call those silent whose deadline has passed; return whether there are any."""
        over = [id_ for id_, at in self._due.items() if at <= state.now]
        for id_ in over:
            del self._due[id_]
            message = state.messages[id_]
            if message.pending:  # not here, or doubted for too long
                self._hands.hush(message.worker)
                self._hands[message.worker].strikes += 1
        return bool(over)

    def is_as_expected(self, state: State, segment: int) -> bool:
        """Whether a segment has closed where the cover counts on it to."""
        return self._borders.get(segment, -1) == state.segments[segment].done

    # -- the cover -------------------------------------------------------------------

    def finish(self, state: State) -> Finish | None:
        """Return the end of the step, if what is here makes a disjoint cover."""
        if state.ledger.uncovered:
            return None
        rows = {id_: tuple(state.row(id_)) for id_ in state.heard}
        heard = [id_ for id_, row in rows.items() if row]
        if sum(map(len, rows.values())) > state.parts:
            cover = best_cover(rows, state.parts)
            if cover.left:
                return None
            heard = list(cover.units)
        return Finish(tuple((id_, 1.0) for id_ in sorted(heard)), 0.0)

    def collect(
        self, state: State, orders: Orders, unused: set[int]
    ) -> tuple[int, ...]:
        """Choose a cover and ask for what of it is not on its way.

        Args:
            state: In which every part is done by somebody.
            orders: Where to ask.
            unused: Segments that are not to be used.

        Returns:
            Parts that have to be done once more: no cover has them.
        """
        messages, segments = self._units(state, unused)
        units = {**messages, **segments}
        chosen: Sequence[int] = list(units)
        every = [part for parts in units.values() for part in parts]
        if len(every) != state.parts or len(set(every)) != state.parts:
            cover = best_cover(units, state.parts)
            if cover.left:
                return cover.left
            chosen = cover.units
        self._borders.clear()
        wanted: dict[int, list[int]] = {}
        for id_ in chosen:
            if id_ in segments:
                wanted.setdefault(state.segments[id_].segment.worker, []).append(id_)
                self._settle(state, orders, id_)
            elif state.messages[id_].arrived is None:
                for segment in state.messages[id_].segments:
                    self._settle(state, orders, segment)
                self._due[id_] = min(self._due.get(id_, math.inf), self.limit(state))
        before = set(self._due)
        for worker, ids in wanted.items():
            self.ask(state, orders, worker, ids)
        for id_ in self._due.keys() - before:
            self._due[id_] = self.limit(state)
        return ()

    def _units(
        self, state: State, unused: set[int]
    ) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """Return the parts of messages, and of segments in no message."""
        messages: dict[int, tuple[int, ...]] = {}
        asked = set(unused)
        for id_, message in state.messages.items():
            if message.gone:
                continue
            asked.update(message.segments)
            if message.arrived is not None or not self._hands[message.worker].silent:
                merged = [state.segments[s].merged for s in message.segments]
                if any(merged):
                    messages[id_] = tuple(part for parts in merged for part in parts)
        segments = {
            id_: known.merged
            for id_, known in state.segments.items()
            if id_ not in asked and known.done and not known.gone
            if not self._hands[known.segment.worker].silent
        }
        return messages, segments

    def _settle(self, state: State, orders: Orders, segment: int) -> None:
        """Have a segment closed where it is."""
        known = state.segments[segment]
        self._borders[segment] = known.done
        if not known.closed and known.keep > known.done:
            orders.cut(known.segment.worker, segment)
            self._hands[known.segment.worker].drop(segment)
