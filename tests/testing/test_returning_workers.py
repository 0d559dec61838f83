"""`check_scheme` finds schemes that do not use workers which come back."""

from dataclasses import dataclass, field

import pytest

from codedgrad.core import (
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    History,
    Orders,
    Record,
    State,
    Traits,
    Wait,
    WorkersLost,
)
from codedgrad.errors import Violation
from codedgrad.schemes import bernoulli, two_stage
from codedgrad.testing import Everything, attack, check_scheme
from codedgrad.testing.returning_workers import check_returning_workers


@dataclass(frozen=True)
class LastLost:
    """Keeps the last step at whose start each worker was lost."""

    steps: dict[int, int] = field(default_factory=dict, compare=False)

    def start(self, workers: int) -> "LastLost":
        return LastLost()

    def update(self, record: Record) -> None:
        pass


@dataclass(frozen=True)
class Shunning:
    """Idle workers repeat missing parts; workers seen lost may be shunned.

    Attributes:
        workers: How many.
        pause: Steps for which a worker is shunned that was lost at the start of one.
        within: Whether it is shunned in the step in which it was lost.
        spare: Workers that are never used.
        tolerance: As promised; None: the step ends after three seconds.
    """

    workers: int
    pause: int = 0
    within: bool = False
    spare: int = 0
    tolerance: int | None = 0
    traits = Traits()
    name = "shunning"

    @property
    def exact(self) -> bool:
        return self.tolerance is not None

    @property
    def parts(self) -> int:
        return self.workers

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(self.parts)),) * self.workers

    def plan(self, step: int, history: History) -> "ShunningPlan":
        shunned = set(range(self.workers - self.spare, self.workers))
        lost = history.follow(LastLost()).steps
        lost |= {w: step for w, alive in enumerate(history.alive) if not alive}
        shunned |= {w for w, last in lost.items() if step - last <= self.pause}
        return ShunningPlan(self, shunned)


class ShunningPlan:
    """The plan of one step."""

    def __init__(self, scheme: Shunning, shunned: set[int]) -> None:
        self.scheme = scheme
        self.shunned = shunned

    def first(self, state: State) -> Ask | Fail:
        self.end = state.started + state.deadline.seconds
        if self.scheme.tolerance is None:
            self.end = state.started + 3.0
        return self.orders(state).ask(self.end)

    def judge(self, state: State, event: Event) -> Decision:
        if isinstance(event, WorkersLost) and self.scheme.within:
            self.shunned.update(event.workers)
        have = {part: m for m in reversed(state.heard) for part in state.row(m)}
        missing = state.parts - len(have)
        if not missing or (state.now >= self.end and self.scheme.tolerance is None):
            weights = tuple((m, 1.0) for m in sorted(have.values()))
            return Finish(weights, residual=float(missing))
        if state.now >= self.end:
            return Fail("too many workers are lost")
        orders = self.orders(state)
        return orders.ask(self.end) if orders else Wait(self.end)

    def orders(self, state: State) -> Orders:
        orders = Orders(state)
        heard = {part for m in state.heard for part in state.row(m)}
        in_hand = state.ledger.in_hand
        missing = sorted(set(range(state.parts)) - heard, key=in_hand.__getitem__)
        busy = {m.worker for m in state.messages.values() if m.pending}
        usable = {w for w, alive in enumerate(state.alive) if alive} - self.shunned
        for worker, part in zip(sorted(usable - busy), missing, strict=False):
            orders.assign(worker, [part], upload=True)
        return orders


@pytest.mark.parametrize(
    "scheme",
    [
        Shunning(4),
        Shunning(4, tolerance=3),
        Shunning(4, tolerance=None),
        Shunning(4, spare=1),
        Shunning(4, spare=1, tolerance=2, pause=1),
    ],
    ids=str,
)
def test_a_scheme_that_uses_workers_which_come_back_passes(scheme: Shunning) -> None:
    check_scheme(scheme, schedules=20)


def test_a_scheme_that_never_uses_a_worker_again_is_found() -> None:
    scheme = Shunning(4, pause=1000, tolerance=2)
    assert attack([scheme], schedules=50) is None  # random faults do not show it
    with pytest.raises(Violation) as found:
        check_scheme(scheme)
    assert str(found.value) == (
        "shunning uses workers that were lost and came back: worker 0 was away in "
        "steps 4 to 5, and was assigned no part in the 10 steps after that; when it is "
        "never away, it is assigned some there"
    )


@pytest.mark.parametrize(("pause", "passes"), [(9, True), (10, False)])
def test_a_worker_is_used_again_within_ten_steps(pause: int, passes: bool) -> None:
    scheme = Shunning(4, pause=pause, tolerance=2)
    if passes:
        check_returning_workers(scheme)
    else:
        with pytest.raises(Violation, match="no part in the 10 steps after that"):
            check_returning_workers(scheme)


def test_with_more_workers_it_may_take_as_many_steps() -> None:
    check_returning_workers(Shunning(12, pause=11, tolerance=10))
    with pytest.raises(Violation, match="no part in the 12 steps after that"):
        check_returning_workers(Shunning(12, pause=12, tolerance=10))


def test_a_scheme_that_does_not_ask_it_in_the_step_that_needs_it_is_found() -> None:
    scheme = Shunning(4, within=True, tolerance=3)
    assert attack([scheme], schedules=50) is None
    with pytest.raises(Violation) as found:
        check_scheme(scheme)
    assert str(found.value) == (
        "shunning asks workers that come back in a step that needs them: workers "
        "[0, 1, 2, 3] were lost, workers [0] came back after 0.1 s (assigned no part "
        "since: [0]), and the step was given up: too many workers are lost"
    )


def test_a_scheme_that_survives_more_than_it_promises_is_found_out_too() -> None:
    """Two workers do the work of the other two, so the step needs none of these."""
    with pytest.raises(
        Violation, match=r"workers \[0, 1, 2, 3\] were lost, workers \[0, 1, 2\]"
    ):
        check_scheme(Shunning(4, within=True, tolerance=1))


def test_a_scheme_that_promises_nothing_must_ask_one_of_them() -> None:
    scheme = Shunning(3, within=True, tolerance=None)
    assert attack([scheme], schedules=50) is None
    with pytest.raises(Violation, match="none was assigned a part in that step"):
        check_scheme(scheme)


@pytest.mark.parametrize(
    "scheme",
    [
        bernoulli(6, 2, budget=2.0),  # no part is with worker 4
        two_stage(12, 6),  # half of the workers are spare ones
        Everything(1, each=2),
    ],
    ids=lambda scheme: scheme.name,
)
def test_workers_that_are_idle_by_design_may_stay_so(scheme: Everything) -> None:
    check_returning_workers(scheme)
