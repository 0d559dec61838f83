"""Any scheme, with the messages of its sums compared; for testing drivers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codedgrad.core import (
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    History,
    Plan,
    Scheme,
    State,
)

__all__ = ["Comparing"]


@dataclass(frozen=True)
class Comparing:
    """Does what another scheme does, and asks how alike the messages of a sum are.

    Attributes:
        scheme: The other one.

    Example:
        >>> from codedgrad.core import Coordinator, MessageArrived, StepStarted
        >>> from codedgrad.schemes import uncoded
        >>> coordinator = Coordinator(Comparing(uncoded(workers=1)))
        >>> _ = coordinator.handle(StepStarted(0, at=0.0))
        >>> coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=2.5))
        [Combine(step=0, weights=((1, 1.0),), residual=0.0, compare=True)]
    """

    scheme: Scheme

    @property
    def name(self) -> str:
        """That of the other one, and what is added."""
        return f"comparing {self.scheme.name}"

    @property
    def workers(self) -> int:
        """How many workers it needs."""
        return self.scheme.workers

    @property
    def parts(self) -> int:
        """How many parts a step has."""
        return self.scheme.parts

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker may be asked for."""
        return self.scheme.placement

    @property
    def tolerance(self) -> int | None:
        """Late workers survived exactly, or None."""
        return self.scheme.tolerance

    @property
    def exact(self) -> bool:
        """Whether it never gives a sum with a residual."""
        return self.scheme.exact

    def plan(self, step: int, history: History) -> _Plan:
        """Return the plan of a step."""
        return _Plan(self.scheme.plan(step, history))


class _Plan:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def first(self, state: State) -> Ask | Fail:
        return self._plan.first(state)

    def judge(self, state: State, event: Event) -> Decision:
        decision = self._plan.judge(state, event)
        if isinstance(decision, Finish):
            return replace(decision, compare=True)
        return decision
