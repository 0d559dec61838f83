"""`check_scheme` finds schemes that break the rules drivers rely on."""

from dataclasses import dataclass, replace

import pytest

from codedgrad import schemes
from codedgrad.core import (
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    History,
    MessageArrived,
    Orders,
    State,
    Traits,
    Wait,
)
from codedgrad.errors import Violation
from codedgrad.schemes import CodedScheme
from codedgrad.schemes.code_plan import CodePlan
from codedgrad.testing import Everything, check_scheme


@pytest.mark.parametrize(
    "scheme",
    [
        Everything(1, each=2),
        Everything(2),
        Everything(4),
        Everything(5, each=2, copies=5),
        Everything(3, each=4, copies=2),
    ],
    ids=lambda s: f"{s.workers} {s.name}",
)
def test_the_scheme_that_uses_everything_passes(scheme: Everything) -> None:
    check_scheme(scheme, schedules=60)


class Wrapped(CodedScheme):
    """A coded scheme whose plan a test may spoil."""

    def plan(self, step: int, history: History) -> CodePlan:
        return self.spoil(super().plan(step, history), step)

    def spoil(self, plan: CodePlan, step: int) -> CodePlan:
        raise NotImplementedError


def wrapped(kind: type[Wrapped], plain: CodedScheme) -> Wrapped:
    return kind(plain.name, plain.code, plain.rule)


class TooEarly(Wrapped):
    """Finishes one message before it may, and calls it exact."""

    def spoil(self, plan: CodePlan, step: int) -> CodePlan:
        judge = plan.judge

        def hasty(state: State, event: Event) -> Decision:
            if isinstance(event, MessageArrived) and len(state.heard) == 2:
                return Finish(tuple((m, 1.0) for m in state.heard), 0.0)
            return judge(state, event)

        plan.judge = hasty
        return plan


def test_a_scheme_that_finishes_too_early_is_found() -> None:
    with pytest.raises(Violation, match="every part is in the sum exactly once"):
        check_scheme(wrapped(TooEarly, schemes.uncoded(3)))


class Patient(Wrapped):
    """Waits for everybody, although it promises not to."""

    def spoil(self, plan: CodePlan, step: int) -> CodePlan:
        judge = plan.judge

        def slow(state: State, event: Event) -> Decision:
            decision = judge(state, event)
            everybody = len(state.heard) == sum(state.alive)
            if isinstance(decision, Finish) and not everybody:
                return Wait(state.started + state.deadline.seconds)
            return decision

        plan.judge = slow
        return plan


def test_a_scheme_that_waits_for_tolerated_workers_is_found() -> None:
    with pytest.raises(Violation, match=r"survives any 1 late workers|does not wait"):
        check_scheme(wrapped(Patient, schemes.cyclic(4, 1)))


def test_a_scheme_that_is_not_the_same_again_is_found() -> None:
    class Leaky(Wrapped):
        def spoil(self, plan: CodePlan, step: int) -> CodePlan:
            seen = self.__dict__.setdefault("seen", [])
            seen.append(step)
            first = plan.first

            def other(state: State) -> Ask:
                ask = first(state)
                return replace(ask, until=ask.until + len(seen))

            plan.first = other
            return plan

    with pytest.raises(Violation, match=r"decides the same again|keeps runs apart"):
        check_scheme(wrapped(Leaky, schemes.uncoded(2)))


@dataclass(frozen=True)
class Sloppy:
    """A scheme with a bad description, or a plan that gives up."""

    workers: int = 2
    parts: int = 2
    tolerance: int | None = 0
    exact: bool = True
    placement: tuple[tuple[int, ...], ...] = ((0,), (1,))
    name: str = "sloppy"

    traits = Traits()

    def plan(self, step: int, history: History) -> "Sloppy":
        return self

    def first(self, state: State) -> Ask | Fail:
        orders = Orders(state)
        for worker, parts in enumerate(self.placement):
            if state.alive[worker]:
                orders.assign(worker, parts, upload=True)
        return orders.ask(state.now + 5)

    def judge(self, state: State, event: Event) -> Decision:
        return Fail("no patience at all")


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        (Sloppy(placement=((0, 1),)), "not one list for every worker"),
        (Sloppy(placement=((0, 1), (2,))), "parts that are none"),
        (Sloppy(placement=((0,), (0,))), "a part is placed nowhere"),
        (Sloppy(tolerance=2), "a tolerance of 2"),
        (Sloppy(tolerance=None), "promises no tolerance"),
        (Sloppy(), "gave up: no patience at all"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_description_or_a_quitter_is_found(scheme: Sloppy, why: str) -> None:
    with pytest.raises(Violation, match=why):
        check_scheme(scheme)
