"""Any scheme, with the messages of its sums compared; for testing drivers."""

from __future__ import annotations

from dataclasses import replace

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


class Comparing:
    """Does what another scheme does, and asks how alike the messages of a sum are.

    Args:
        scheme: The other one.

    Example:
        >>> from codedgrad.core import Coordinator, MessageArrived, StepStarted
        >>> from codedgrad.schemes import uncoded
        >>> coordinator = Coordinator(Comparing(uncoded(workers=1)))
        >>> _ = coordinator.handle(StepStarted(0, at=0.0))
        >>> coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=2.5))
        [Combine(step=0, weights=((1, 1.0),), residual=0.0, compare=True)]
    """

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.name = f"comparing {scheme.name}"
        self.workers, self.parts = scheme.workers, scheme.parts
        self.placement = scheme.placement
        self.tolerance, self.exact = scheme.tolerance, scheme.exact
        # Comparing has no effect on arrays, so its steps are known by events only.
        self.traits = replace(scheme.traits, steps=None)

    def plan(self, step: int, history: History) -> _ComparingPlan:
        """Return the plan of a step."""
        return _ComparingPlan(self.scheme.plan(step, history))


class _ComparingPlan:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def first(self, state: State) -> Ask | Fail:
        return self._plan.first(state)

    def judge(self, state: State, event: Event) -> Decision:
        decision = self._plan.judge(state, event)
        if isinstance(decision, Finish):
            return replace(decision, compare=True)
        return decision
