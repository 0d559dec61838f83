"""A scheme whose workers add up each other's messages, for testing engines.

```text
    root <- 2 x - 0 <- -1/2 x - 1 <- 1/4 x - 3
                  ^---- 3 x --- 2
```

Every worker computes two parts, with the coefficient that the weights on the way up
undo. Every message is asked for twice, and the second is used: it must be the same, so
what was gathered may not be added twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from codedgrad.core import (
    ROOT,
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    History,
    MessageArrived,
    MessageFailed,
    Orders,
    State,
    TimerFired,
    Traits,
    Wait,
    WorkersLost,
)

_ABOVE = (ROOT, 0, 0, 1)
_WEIGHT = (2.0, -0.5, 3.0, 0.25)
_EACH = 2  # parts


@dataclass(frozen=True)
class Gathering:
    """Four workers, two of whom gather. Exact, and gives up if anybody is lost.

    Example:
        >>> from codedgrad.core import Coordinator, StepStarted
        >>> orders = Coordinator(Gathering()).handle(StepStarted(0, at=0.0))
        >>> orders[3].segment.coefficients, orders[6]
        ((-4.0, -4.0), Upload(step=0, worker=3, message=6, segments=(3,), to=1))
    """

    name = "gathering"
    workers = len(_ABOVE)
    parts = _EACH * len(_ABOVE)
    placement = tuple((_EACH * w, _EACH * w + 1) for w in range(len(_ABOVE)))
    tolerance = 0
    exact = True
    traits = Traits()  # it runs on every engine

    def plan(self, step: int, history: History) -> _GatheringPlan:
        """Return the plan of a step."""
        return _GatheringPlan()


class _GatheringPlan:
    def __init__(self) -> None:
        self._segment: dict[int, int] = {}
        self._second: dict[int, int] = {}  # worker -> the message that counts
        self._came: set[int] = set()  # workers whose second message has
        self._end = 0.0

    def first(self, state: State) -> Ask:
        self._end = state.started + state.deadline.seconds
        orders = Orders(state)
        for worker, parts in enumerate(Gathering.placement):
            factor, at = 1.0, worker
            while at != ROOT:
                factor, at = factor / _WEIGHT[at], _ABOVE[at]
            given = orders.assign(worker, parts, (factor,) * _EACH, whole=True)
            self._segment[worker], _ = given
        self._ask(orders)
        return orders.ask(self._end)

    def judge(self, state: State, event: Event) -> Decision:
        orders = Orders(state)
        match event:
            case MessageArrived(_, worker, message):
                if message == self._second[worker]:
                    self._came.add(worker)
                    if worker == 0:
                        return Finish(((message, _WEIGHT[0]),), 0.0)
                    self._ask(orders)
            case MessageFailed() | WorkersLost():
                return Fail(f"{event}")
            case TimerFired() if state.now >= self._end:
                return Fail(f"no sum after {math.ceil(state.deadline.seconds)} s")
        return orders.ask(self._end) if orders else Wait(self._end)

    def _ask(self, orders: Orders) -> None:
        """Ask for the messages of those who have heard all they are to gather."""
        for worker, segment in self._segment.items():
            below = [w for w, above in enumerate(_ABOVE) if above == worker]
            if worker in self._second or not self._came.issuperset(below):
                continue
            gathered = [(self._second[w], _WEIGHT[w]) for w in below]
            for _ in range(2):
                message = orders.upload(worker, [segment], gathered, _ABOVE[worker])
            self._second[worker] = message
