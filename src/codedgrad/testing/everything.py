"""A scheme that uses every event and every command; for testing drivers, not for use.

Workers start on parts of their own. Whoever runs dry takes over the tail of somebody
else's list, as copies of one part each. When every part is finished somewhere, whatever
is still open is cut, a disjoint cover is chosen among the closed segments, and its
workers are asked for one message each; they are added up, and compared. A worker that
does not deliver in time is silent: its sums are ignored until it speaks again. A worker
whose message was bad is dropped for the rest of the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from codedgrad.core import (
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    History,
    MessageFailed,
    Orders,
    SegmentState,
    State,
    Traits,
    Wait,
)
from codedgrad.schemes.cover import best_cover

_MOST_ASKS = 200  # in a step


@dataclass(frozen=True)
class Everything:
    """A scheme for tests; exact, and survives any loss that leaves a holder.

    Attributes:
        workers: Number of workers.
        each: Parts for each worker to start with.
        copies: Workers that may be asked for a part, neighbours on a ring.
    """

    workers: int
    each: int = 3
    copies: int = 3
    exact = True
    traits = Traits()  # it runs on every engine

    @property
    def name(self) -> str:
        """Its name."""
        return f"everything(each={self.each}, copies={self.copies})"

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.workers * self.each

    @property
    def tolerance(self) -> int:
        """Late workers survived, whoever they are."""
        return min(self.copies, self.workers) - 1

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """Every worker holds its own parts and those of the next on the ring."""
        held: list[set[int]] = [set() for _ in range(self.workers)]
        for part in range(self.parts):
            for worker in self.holders(part):
                held[worker].add(part)
        return tuple(tuple(sorted(parts)) for parts in held)

    def holders(self, part: int) -> list[int]:
        """Return who may be asked for a part, its own worker first."""
        own = part // self.each
        count = min(self.copies, self.workers)
        return [(own - step) % self.workers for step in range(count)]

    def plan(self, step: int, history: History) -> _EverythingPlan:
        """Return the plan of a step."""
        pulse = max(history.durations, default=0.0) / 4
        return _EverythingPlan(self, pulse)


class _EverythingPlan:
    def __init__(self, scheme: Everything, pulse: float) -> None:
        self._scheme = scheme
        self._pulse = pulse
        self._end = 0.0
        self._asks = 0
        self._cover: tuple[tuple[int, ...], float] | None = None  # messages, deadline
        self._closing: float | None = None  # until when cuts must be answered
        self._silent: dict[int, float] = {}  # worker -> since when
        self._dropped: set[int] = set()

    def first(self, state: State) -> Ask:
        self._end = state.started + state.deadline.seconds
        self._pulse = self._pulse or state.deadline.scale / 40
        orders = Orders(state)
        each = self._scheme.each
        for worker, alive in enumerate(state.alive):
            if alive:
                own = range(worker * each, (worker + 1) * each)
                orders.assign(worker, own)
        return orders.ask(self._until(state))

    def judge(self, state: State, event: Event) -> Decision:
        if state.now >= self._end:
            return Fail(f"not finished after {state.deadline.seconds:.3g} s")
        orders = Orders(state)
        if isinstance(event, MessageFailed) and event.worker not in self._dropped:
            self._dropped.add(event.worker)
            self._cover = None
            orders.drop(event.worker)
            return orders.ask(self._until(state))
        for worker, since in list(self._silent.items()):
            if state.spoke[worker] > since:
                del self._silent[worker]
        decision = self._gathered(state)
        if decision is not None:
            return decision
        if self._asks < _MOST_ASKS:
            self._go_on(state, orders)
        if not orders:
            return Wait(self._until(state))
        self._asks += 1
        return orders.ask(self._until(state))

    def _until(self, state: State) -> float:
        wake = state.now + self._pulse
        if self._cover is not None:
            wake = min(wake, self._cover[1])
        if self._closing is not None:
            wake = min(wake, self._closing)
        if wake <= state.now:
            wake = state.now + self._pulse
        return min(wake, self._end)

    def _gathered(self, state: State) -> Decision | None:
        """Finish if the cover has arrived; give it up if it cannot any more."""
        if self._cover is None:
            return None
        messages, deadline = self._cover
        waiting = [m for m in messages if state.messages[m].arrived is None]
        if not waiting:
            weights = tuple((m, 1.0) for m in sorted(messages))
            return Finish(weights, 0.0, compare=True)
        if any(state.messages[m].gone for m in waiting):
            self._cover = None
        elif state.now >= deadline:
            for message in waiting:
                worker = state.messages[message].worker
                self._silent.setdefault(worker, state.now)
            self._cover = None
        else:
            return Wait(self._until(state))
        return None

    def _usable(self, worker: int, state: State) -> bool:
        there = state.alive[worker] and worker not in self._dropped
        return there and worker not in self._silent

    def _go_on(self, state: State, orders: Orders) -> None:
        live = [
            known
            for known in state.segments.values()
            if not known.gone and self._usable(known.segment.worker, state)
        ]
        heard = {("message", m): set(state.row(m)) for m in state.heard}
        finished = set().union(*heard.values(), *(known.merged for known in live))
        missing = set(range(state.parts)) - finished
        if missing:
            self._closing = None
            self._hand_out(state, orders, live, missing)
            return
        open_ = [known for known in live if not known.closed and known.done > 0]
        if open_ and self._closing is None:
            self._closing = state.now + self._pulse
            for known in live:
                if not known.closed:
                    orders.cut(known.segment.worker, known.segment.id)
            return
        if open_ and self._closing is not None:
            if state.now < self._closing:
                return
            for known in open_:  # asked to close, and did not
                self._silent.setdefault(known.segment.worker, state.now)
            self._closing = None
            return
        self._closing = None
        self._choose(state, orders, live, heard)

    def _choose(
        self,
        state: State,
        orders: Orders,
        live: Iterable[SegmentState],
        heard: dict[tuple[str, int], set[int]],
    ) -> None:
        units = dict(heard)
        for known in live:
            if known.closed and known.done > 0:
                units["segment", known.segment.id] = set(known.merged)
        cover = best_cover(units, state.parts)
        if cover.left:
            self._hand_out(state, orders, live, set(cover.left), anyway=True)
            return
        messages = [id_ for kind, id_ in cover.units if kind == "message"]
        by_worker: dict[int, list[int]] = {}
        for kind, id_ in cover.units:
            if kind == "segment":
                worker = state.segments[id_].segment.worker
                by_worker.setdefault(worker, []).append(id_)
        for worker, segments in by_worker.items():
            messages.append(orders.upload(worker, segments))
        self._cover = tuple(messages), state.now + self._pulse

    def _hand_out(
        self,
        state: State,
        orders: Orders,
        live: Iterable[SegmentState],
        missing: set[int],
        anyway: bool = False,
    ) -> None:
        """Give idle workers copies of parts that are not finished, one part each."""
        busy = {known.segment.worker for known in live if not known.closed}
        idle = {
            worker
            for worker in range(self._scheme.workers)
            if self._usable(worker, state) and worker not in busy
        }
        in_hand: dict[int, int] = {}  # part -> copies under way
        for known in live:
            if not known.closed:
                for part in known.segment.parts[known.done :]:
                    in_hand[part] = in_hand.get(part, 0) + 1
        wanted = sorted(missing, key=lambda part: (in_hand.get(part, 0), -part))
        for part in wanted:
            if in_hand.get(part, 0) >= 2 and not anyway:
                continue
            takers = [w for w in self._scheme.holders(part) if w in idle]
            if not takers:
                continue
            orders.assign(takers[0], (part,))
            idle.discard(takers[0])
            for known in live:  # its giver may stop before it, if it is not too late
                parts = known.segment.parts
                if not known.closed and part in parts[known.done + 1 :]:
                    at = parts.index(part)
                    orders.cut(known.segment.worker, known.segment.id, at)
                    break
