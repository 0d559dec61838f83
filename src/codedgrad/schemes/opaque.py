r"""The plan of one step whose workers give one answer a call.

```text
            lists of parts        at tau, and what is lost at once
   start ---------------------> at work ------------------------------+
                                 |   ^    what is not in is given to  |
                                 |   +--- those who are idle <--------+
                                 v
                  every part is heard: Finish
```

1. Everybody has one list of parts, perhaps the same as others, and sends one message.
   Who is asked for what, and tau, was chosen by `opaque_arms`.
2. What is late is shared out among those who are idle, by `opaque_net`; their lists may
   be late in turn, after longer and longer. If nobody is idle, the next who is helps.
   What is lost is shared out at once, but not before half of the others are in: to be
   done by one would take longer.
3. Whatever comes in counts, from whomever.
4. Where nothing is known, lists are late after 1.5 times what half of them took.
"""

from __future__ import annotations

import math

from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    TimerFired,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.core.history import per_part
from codedgrad.core.orders import Orders
from codedgrad.core.plan import Ask, Decision, Fail, Finish, Wait
from codedgrad.core.state import State
from codedgrad.schemes.opaque_arms import Arms, Choice
from codedgrad.schemes.opaque_helpers import Pace
from codedgrad.schemes.opaque_net import Net, Task

__all__ = ["OpaquePlan"]

_PULSES = 16  # looks for late messages, at least, per `scale` of the deadline
_USUAL = 1.5  # times what half of the lists took: where nothing else is known
_REST = 0.05  # of the time so far, until it is looked again


class OpaquePlan:
    """Lists, and a net under them.

    Args:
        recipe: What is the same in every step.
        choice: How this one is to begin.
    """

    def __init__(self, recipe: Arms, choice: Choice) -> None:
        self._choice = choice
        self._copies, self._workers = recipe.copies, recipe.workers
        everywhere = recipe.copies == recipe.workers
        holders = None if everywhere else recipe.holders
        self._net = Net(holders, recipe.parts, self._pace)
        self._seconds = list(choice.seconds)
        self._lists: list[Task] = []
        self._first: dict[int, int] = {}  # worker -> parts of its first list
        self._begun: set[int] = set()  # who was heard: its next call is a later one
        self._in = 0  # answers to first lists
        self._is_put_off = False  # something is lost, and it is early
        self._alarm = self._end = self._pulse = self._tau = 0.0
        self._said = 0.0  # the moment that was waited for last

    def first(self, state: State) -> Ask:
        """Give everybody a list."""
        choice, deadline = self._choice, state.deadline
        self._end = state.started + deadline.seconds
        self._pulse = deadline.scale / _PULSES
        tau = self._pulse if choice.tau is None else min(choice.tau, self._pulse)
        self._tau = self._alarm = state.started + tau
        orders = Orders(state)
        lists = choice.lists
        for parts, workers in zip(lists.parts, lists.workers, strict=True):
            self._lists.append(task := Task(parts, self._alarm))
            for worker in workers:
                self._first[worker] = len(parts)
                self._net.give(orders, worker, task)
        for worker, part in choice.probes:
            self._first[worker] = 1
            self._net.probe(orders, worker, Task((part,), math.inf))
        self._is_put_off = sum(map(len, lists.parts)) < state.parts
        self._said = self._until
        return orders.ask(self._said)

    def judge(self, state: State, event: Event) -> Decision:
        """Take note, and see whether that ends the step or leaves work for others."""
        match event:
            case MessageArrived(_, worker, message):
                self._net.hear(worker, message)
                if state.ledger.uncovered == 0:
                    return Finish(self._net.weights(state), 0.0)
                self._hear(state, worker)
                return self._help(state, worker)
            case MessageFailed(_, worker, message):
                self._net.fail(worker, message)
                self._first.pop(worker, None)
                self._is_put_off = True
                return self._help(state, worker)
            case WorkerLost(worker):
                self._net.lose(worker)
                self._first.pop(worker, None)
                self._begun.discard(worker)
                self._is_put_off = True
                return self._help(state, worker)
            case WorkerJoined(worker):
                return self._help(state, worker)
            case TimerFired():
                self._said = 0.0
                return self._timer(state)
        return self._wait(state)

    # -- how fast --------------------------------------------------------------------

    def _hear(self, state: State, worker: int) -> None:
        """Learn from a message how fast its worker is, and when others are late."""
        self._begun.add(worker)
        parts, elapsed = self._first.pop(worker, 0), state.now - state.started
        if not parts or elapsed <= 0:
            return
        costs = self._choice.costs
        self._seconds[worker] = per_part(elapsed, parts, costs.share, costs.unit)
        self._in += 1
        due = state.started + _USUAL * elapsed
        if self._choice.tau is None and 2 * self._in >= len(self._lists):
            for task in self._lists:
                task.due = min(task.due, due)
            self._tau = min(self._tau, due)
            self._alarm = min(self._alarm, due)

    def _pace(self, worker: int) -> Pace:
        costs, x = self._choice.costs, self._seconds[worker]
        fixed = costs.again if worker in self._begun else 1.0 - costs.share
        return Pace(fixed * x, costs.part * x)

    # -- what is late ----------------------------------------------------------------

    def _help(self, state: State, worker: int) -> Decision:
        """Let a worker that may be idle now take over something."""
        if state.now < self._tau and self._in < len(self._first):
            return self._wait(state)  # it is early
        if self._is_put_off:
            return self._look(state)
        orders = Orders(state)
        if self._net.is_short and state.alive[worker] and not self._net.owes(worker):
            due = self._net.help(state, orders, [worker])
            self._alarm = min(self._alarm, due)
        return self._wait(state, orders)

    def _look(self, state: State) -> Decision:
        """Give out what is late or lost."""
        self._is_put_off = False
        orders = Orders(state)
        soonest = self._net.look(state, orders)
        rest = state.now + _REST * (state.now - state.started)
        self._alarm = min(max(soonest, rest), state.now + self._pulse)
        return self._wait(state, orders)

    def _timer(self, state: State) -> Decision:
        if state.now >= self._end:
            return self._fail(state)
        return self._wait(state) if state.now < self._alarm else self._look(state)

    @property
    def _until(self) -> float:
        return min(self._alarm, self._end)

    def _wait(self, state: State, orders: Orders | None = None) -> Decision:
        """Give orders, if there are any, and wait; unless the time is up."""
        until = self._until
        if until <= state.now and until != self._said:
            return self._timer(state)  # an event has overtaken the end of the step
        self._said = until
        return orders.ask(until) if orders else Wait(until)

    def _fail(self, state: State) -> Fail:
        said = [f"not all parts were heard after {state.deadline}"]
        lost = [worker for worker, alive in enumerate(state.alive) if not alive]
        late = sorted({m.worker for m in state.messages.values() if m.pending})
        if lost:
            said.append(f"lost workers {lost}")
        if late:
            said.append(f"late workers {late}")
        if self._copies < self._workers:
            said.append(
                f"more copies than {self._copies} of every part would have helped"
            )
        return Fail("; ".join(said))
