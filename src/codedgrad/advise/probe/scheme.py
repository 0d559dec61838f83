"""A scheme for measuring: everybody is waited for, and sends when all is quiet.

Every worker computes the uncoded load in one step and twice that in the next. When all
have finished they are asked for their sums one after the other: what that takes is the
way there and back, and the message. The sums are exact, as those of any other scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from codedgrad.core import (
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    History,
    MessageFailed,
    Orders,
    State,
    TimerFired,
    Traits,
    Wait,
    WorkersLost,
)


@dataclass(frozen=True)
class Measuring:
    """Alternates between loads, and waits for all.

    Attributes:
        workers: How many.
        pieces: Parts in the uncoded load.
        loads: Uncoded loads of a worker, step by step and round again; each 1 or 2.
    """

    workers: int
    pieces: int = 1
    loads: tuple[int, ...] = (1,)
    tolerance = 0  # no worker may be late
    exact = True
    traits = Traits()  # it runs on every engine

    @property
    def name(self) -> str:
        """Its name."""
        return f"measuring(pieces={self.pieces}, loads={list(self.loads)})"

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.workers * self.pieces

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """A worker's own parts and, for twice the load, those of the next one."""
        most = max(self.loads)
        return tuple(self.list_of(worker, most) for worker in range(self.workers))

    def list_of(self, worker: int, load: int) -> tuple[int, ...]:
        """Return the parts that a worker computes at a load."""
        owners = [(worker + more) % self.workers for more in range(load)]
        c = self.pieces
        return tuple(o * c + place for o in owners for place in range(c))

    def load(self, step: int) -> int:
        """Return the load of a step."""
        return self.loads[step % len(self.loads)]

    def plan(self, step: int, history: History) -> _ProbePlan:
        """Return the plan of a step."""
        return _ProbePlan(self, self.load(step))


class _ProbePlan:
    def __init__(self, scheme: Measuring, load: int) -> None:
        self._scheme = scheme
        self._load = load
        self._end = 0.0
        self._segments: list[int] = []
        self._messages: list[int] = []

    def first(self, state: State) -> Ask | Fail:
        """Give everybody its list, and no message to send."""
        self._end = state.started + state.deadline.seconds
        lost = [worker for worker, alive in enumerate(state.alive) if not alive]
        if lost:
            return _lost(lost)
        orders = Orders(state)
        for worker in range(self._scheme.workers):
            parts = self._scheme.list_of(worker, self._load)
            self._segments.append(orders.assign(worker, parts)[0])
        return orders.ask(self._end)

    def judge(self, state: State, event: Event) -> Decision:
        """Ask for one message after the other once everybody has finished."""
        match event:
            case WorkersLost(workers):
                return _lost(list(workers))
            case MessageFailed(_, worker, _, reason):
                return Fail(f"the message of worker {worker} failed: {reason}")
            case TimerFired() if state.now >= self._end:
                return Fail(f"not measured after {state.deadline.seconds:.6g} s")
        if not all(state.segments[id_].closed for id_ in self._segments):
            return Wait(self._end)
        if self._messages and state.messages[self._messages[-1]].arrived is None:
            return Wait(self._end)
        if len(self._messages) < len(self._segments):
            worker = len(self._messages)
            orders = Orders(state)
            self._messages.append(orders.upload(worker, [self._segments[worker]]))
            return orders.ask(self._end)
        weight = 1.0 / self._load
        return Finish(tuple((id_, weight) for id_ in self._messages), 0.0)


def _lost(workers: list[int]) -> Fail:
    return Fail(f"lost workers {workers}: there is nothing to measure without them")
