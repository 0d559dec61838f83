"""The plan of a step whose workers give one answer a call."""

from __future__ import annotations

from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    Progressed,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.core.history import per_part
from codedgrad.core.orders import Orders
from codedgrad.core.plan import Ask, Decision, Fail, Finish, Wait
from codedgrad.core.state import State
from codedgrad.schemes.opaque_arms import Arms, Choice
from codedgrad.schemes.opaque_net import Net, Pace, Task

__all__ = ["OpaquePlan"]

_PULSES = 16
_USUAL = 1.5


class OpaquePlan:
    def __init__(self, recipe: Arms, choice: Choice) -> None:
        self._recipe = recipe
        self._choice = choice
        everywhere = recipe.copies == recipe.workers
        self._net = Net(None if everywhere else recipe.holders, recipe.parts)
        self._first: list[Task] = []
        self._in = 0
        self._seconds = list(choice.seconds)
        self._asked = [0] * recipe.workers
        self._begun: set[int] = set()
        self._alarm = self._end = self._pulse = self._said = 0.0

    def first(self, state: State) -> Ask:
        choice = self._choice
        self._end = state.started + state.deadline.seconds
        self._pulse = state.deadline.seconds / _PULSES
        wait = min(self._pulse, self._pulse if choice.tau is None else choice.tau)
        due = state.started + wait
        orders = Orders(state)
        for parts, workers in zip(
            choice.lists.parts, choice.lists.workers, strict=True
        ):
            task = Task(parts, None, due)
            self._first.append(task)
            for worker in workers:
                self._asked[worker] = len(parts)
                self._net.give(orders, worker, task)
        for worker, part in choice.probes:
            self._asked[worker] = 1
            self._net.give(orders, worker, Task((part,), None, due), probe=True)
        self._alarm = due
        if sum(len(p) for p in choice.lists.parts) < state.parts:
            self._net.look(state, orders, self._paces())
        self._said = self._until
        return orders.ask(self._said)

    def judge(self, state: State, event: Event) -> Decision:
        match event:
            case Progressed():
                return self._wait(state)
            case MessageArrived(_, worker, message):
                self._net.hear(worker, message)
                if state.ledger.uncovered == 0:
                    return Finish(self._net.cover(state), 0.0)
                self._hear(state, worker)
                if self._net.is_short and self._net.is_idle(worker):
                    return self._help(state, worker)
                return self._wait(state)
            case MessageFailed(_, worker, message):
                self._net.fail(worker, message)
                return self._look(state)
            case WorkerLost(worker):
                self._net.lose(worker)
                self._begun.discard(worker)
                return self._look(state)
            case WorkerJoined(worker):
                return (
                    self._help(state, worker)
                    if self._net.is_short
                    else self._wait(state)
                )
            case TimerFired():
                self._said = 0.0
                return self._timer(state)
        return self._wait(state)

    def _hear(self, state: State, worker: int) -> None:
        elapsed = state.now - state.started
        if worker not in self._begun and self._asked[worker]:
            self._begun.add(worker)
            c = self._choice.costs
            self._seconds[worker] = per_part(
                elapsed, self._asked[worker], c.share, c.unit
            )
        self._in += 1
        if (
            self._choice.tau is None
            and 2 * self._in >= len(self._first)
            and elapsed > 0
        ):
            due = state.started + min(_USUAL * elapsed, self._pulse)
            if (
                due < self._alarm
                and self._first
                and self._first[0].due > due
                and due > state.now
            ):
                for task in self._first:
                    task.due = due
                self._alarm = due

    def _paces(self) -> dict[int, Pace]:
        c = self._choice.costs
        return {
            w: Pace(
                (c.again if w in self._begun else 1 - c.share) * x, c.share * x / c.unit
            )
            for w, x in enumerate(self._seconds)
        }

    def _help(self, state: State, worker: int) -> Decision:
        orders = Orders(state)
        self._net.help(state, orders, self._paces(), [worker])
        if orders:
            self._alarm = min(self._alarm, self._net.next_due(state))
        return self._wait(state, orders)

    def _look(self, state: State) -> Decision:
        orders = Orders(state)
        self._net.look(state, orders, self._paces())
        self._alarm = min(self._net.next_due(state), state.now + self._pulse)
        return self._wait(state, orders)

    @property
    def _until(self) -> float:
        return min(self._alarm, self._end)

    def _wait(self, state: State, orders: Orders | None = None) -> Decision:
        until = self._until
        if until <= state.now and until != self._said:
            return self._timer(state)
        self._said = until
        return orders.ask(until) if orders else Wait(until)

    def _timer(self, state: State) -> Decision:
        if state.now >= self._end:
            return self._fail(state)
        if state.now < self._alarm:
            return self._wait(state)
        return self._look(state)

    def _fail(self, state: State) -> Fail:
        deadline = state.deadline
        said = [
            f"not all parts were heard after {deadline.seconds:.3g} s ({deadline.reason})"
        ]
        return Fail("; ".join(said))
