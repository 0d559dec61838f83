"""The driver: hand-computed timelines of a few workers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from codedgrad import codes
from codedgrad.core import (
    Ask,
    Capabilities,
    Command,
    Cut,
    Decision,
    Event,
    Finish,
    History,
    MessageArrived,
    Orders,
    Patience,
    Progressed,
    Scheme,
    State,
    StepStarted,
    TimerFired,
    Traits,
    Wait,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Chain, Dead, Pauses, ShiftedExponential, Times
from codedgrad.errors import ProtocolError, StuckStep
from codedgrad.schemes import (
    CodedScheme,
    cyclic,
    fractional,
    heterogeneous,
    ignore,
    stochastic,
    uncoded,
)
from codedgrad.schemes.stop_rules import Within
from codedgrad.sim import Machine, Simulator, Step
from codedgrad.testing import Everything

DRAINS = Capabilities(interrupts_part=False)
BETWEEN_PARTS = Capabilities(orders_during_part=False)


class Watched:
    """A simulator and everything its coordinator was told."""

    def __init__(self, scheme: Scheme, **options: object) -> None:
        self.events: list[Event] = []
        self.commands: list[Command] = []
        self.simulator = Simulator(scheme, watch=self._watch, **options)

    def _watch(self, event: Event, commands: list[Command]) -> None:
        self.events.append(event)
        self.commands += commands

    def step(self, part: list[float], fixed: list[float] | None = None) -> Step:
        return self.simulator.step(fixed or [0.0] * len(part), part)

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


# -- time ------------------------------------------------------------------------------


def test_a_step_ends_when_the_rule_has_enough_and_is_accounted_for() -> None:
    # Both hold both parts. Worker 0 has them at 2.0; worker 1 one of them, at 1.5.
    watched = Watched(fractional(2, 1))
    step = watched.step([1.0, 1.5])
    assert step == Step(
        step=0,
        seconds=2.0,
        combined=True,
        residual=0.0,
        weights=((1, 1.0),),
        heard=(0,),
        work=3,
        busy=4.0,
        reason="",
    )
    assert [event.at for event in watched.events] == [0.0, 1.0, 1.5, 2.0, 2.0]
    assert watched.simulator.now == 2.0


def test_idle_workers_are_not_busy() -> None:
    step = Watched(uncoded(3)).step([1.0, 3.0, 2.0], fixed=[0.0, 0.5, 0.0])
    assert (step.seconds, step.busy, step.work) == (3.5, 6.5, 3)
    assert step.heard == (0, 2, 1)


def test_the_fixed_seconds_are_paid_once_a_step() -> None:
    watched = Watched(uncoded(1, pieces=3))
    for started in (0.0, 5.0):
        assert watched.step([1.0], fixed=[2.0]).seconds == 5.0
        marks = [e.at - started for e in watched.of(Progressed) if e.at > started]
        assert marks == [3.0, 4.0, 5.0]


def test_without_progress_only_what_ends_is_reported() -> None:
    watched = Watched(uncoded(1, pieces=3), capabilities=Capabilities(progress=False))
    assert watched.step([1.0]).work == 3
    assert watched.events == [
        StepStarted(0, 0.0),
        MessageArrived(0, 0, 1, ((0, 3),), 3.0),
    ]


def test_orders_and_reports_take_the_latency_each_way() -> None:
    watched = Watched(uncoded(2), latency=0.25)
    assert watched.step([1.0, 2.0]).seconds == 2.5
    assert watched.step([1.0, 0.5]).seconds == 1.5
    arrived = [(e.worker, e.at) for e in watched.of(MessageArrived)]
    assert arrived == [(0, 1.5), (1, 2.5), (1, 3.5), (0, 4.0)]


def test_with_latency_a_late_worker_goes_on_until_it_is_told() -> None:
    # Step 0: worker 0 works from 0.5 to 2.5 and is heard at 3.0. Worker 1 works from
    # 0.5 on and is told at 3.5; its time up to 3.0 is of step 0, the rest of step 1.
    watched = Watched(fractional(2, 1), latency=0.5)
    first = watched.step([1.0, 4.0])
    second = watched.step([5.0, 1.0])
    assert (first.seconds, first.heard, first.work, first.busy) == (3.0, (0,), 2, 4.5)
    # Step 1: worker 1 from 3.5 to 5.5, heard at 6.0; worker 0 from 3.5 on.
    assert (second.seconds, second.heard) == (3.0, (1,))
    assert (second.work, second.busy) == (2, 0.5 + 2.0 + 2.5)


def test_a_message_on_its_way_when_the_step_ends_is_late_and_recorded() -> None:
    watched = Watched(fractional(2, 1), latency=0.5)
    step = watched.step([1.0, 1.125])  # heard at 3.0; the other would be at 3.25
    assert step.heard == (0,)
    watched.step([1.0, 1.0])
    (record, _) = watched.simulator.coordinator.history.records
    assert record.late == {1: 3.25}
    late = [e for e in watched.of(MessageArrived) if e.step == 0 and e.worker == 1]
    assert late == [MessageArrived(0, 1, 3, ((2, 2),), 3.25)]


# -- a late worker ---------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [DRAINS, BETWEEN_PARTS], ids=str)
def test_a_late_worker_that_drains_finishes_its_part_first(
    capabilities: Capabilities,
) -> None:
    # Step 0, 0 to 2: worker 0 answers; worker 1 is in its first part until 3.
    # Step 1, from 2: worker 1 begins at 3 and has both parts at 5; worker 0 has
    # none before 6.
    watched = Watched(fractional(2, 1), capabilities=capabilities)
    first, second = watched.step([1.0, 3.0]), watched.step([4.0, 1.0])
    assert (first.seconds, first.heard, first.work, first.busy) == (2.0, (0,), 2, 4.0)
    assert (second.seconds, second.heard) == (3.0, (1,))
    assert (second.work, second.busy) == (3, 6.0)  # the part left over counts here


def test_a_late_worker_that_can_be_interrupted_begins_at_once() -> None:
    watched = Watched(fractional(2, 1))
    first, second = watched.step([1.0, 3.0]), watched.step([4.0, 1.0])
    assert (first.seconds, first.work, first.busy) == (2.0, 2, 4.0)
    assert (second.seconds, second.work, second.busy) == (2.0, 2, 4.0)


def test_a_part_may_outlast_several_steps() -> None:
    watched = Watched(fractional(2, 1), capabilities=DRAINS)
    steps = [watched.step([1.0, part]) for part in (7.0, 0.125, 0.125, 0.125)]
    assert [step.heard for step in steps] == [(0,), (0,), (0,), (1,)]
    # Worker 1 is free at 7, one second into step 3, and needs a quarter of a second.
    assert [step.seconds for step in steps] == [2.0, 2.0, 2.0, 1.25]
    assert [step.busy for step in steps] == [4.0, 4.0, 4.0, 2.5]
    assert [step.work for step in steps] == [2, 2, 2, 1 + 2 + 1]


def test_draining_pays_the_fixed_seconds_of_the_new_step_after_the_old_part() -> None:
    watched = Watched(fractional(2, 1), capabilities=DRAINS)
    watched.step([1.0, 3.0])
    # From 3: half a second, then two parts.
    assert watched.step([4.0, 1.0], fixed=[0.0, 0.5]).seconds == 3.5


def test_nobody_is_busy_for_longer_than_the_step() -> None:
    law = ShiftedExponential(floor=0.1, mean=1.0)
    times = law.sample(np.random.default_rng(0), 40, 6)
    for machine in (Machine(), Machine(latency=0.3), Machine(drain=False)):
        simulator = Simulator(
            cyclic(6, 2, pieces=2),
            capabilities=machine.capabilities,
            latency=machine.latency,
        )
        for step in simulator.run(times):
            assert 0.0 < step.busy <= 6 * step.seconds + 1e-9


# -- orders inside a step --------------------------------------------------------------

Judge = Callable[[State, Event], Decision]


@dataclass(frozen=True)
class Script:
    """A scheme of one step: these first orders, then this judge."""

    workers: int
    parts: int
    start: Callable[[State], Ask]
    answer: Judge
    name: str = "script"
    tolerance: int = 0

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(self.parts)),) * self.workers

    traits = Traits()

    def plan(self, step: int, history: History) -> "Script":
        return self

    def first(self, state: State) -> Ask:
        return self.start(state)

    def judge(self, state: State, event: Event) -> Decision:
        return self.answer(state, event)


def cut_when_the_other_answers() -> Script:
    """Worker 0 has three parts; it is cut as soon as worker 1 has its one."""

    def start(state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, (0, 1, 2))
        orders.assign(1, (3,))
        return orders.ask(100.0)

    def answer(state: State, event: Event) -> Decision:
        orders = Orders(state)
        if isinstance(event, Progressed) and event.worker == 1:
            orders.cut(0, 0)
            orders.assign(0, (0,), upload=True)
            return orders.ask(100.0)
        if isinstance(event, MessageArrived):
            return Finish(((event.message, 1.0),), 3.0)
        return Wait(100.0)

    return Script(2, 4, start, answer)


@pytest.mark.parametrize(
    ("capabilities", "closed", "ends"),
    [
        (Capabilities(), (0, 0.5), 1.5),  # stopped half-way, begins the next at once
        (DRAINS, (0, 0.5), 2.0),  # not merged, but finished first
        (BETWEEN_PARTS, (1, 1.0), 2.0),  # the cut is read when the part is merged
    ],
    ids=["interrupts", "drains", "reads between parts"],
)
def test_a_cut_reaches_a_worker_in_the_middle_of_a_part(
    capabilities: Capabilities, closed: tuple[int, float], ends: float
) -> None:
    watched = Watched(cut_when_the_other_answers(), capabilities=capabilities)
    step = watched.step([1.0, 0.5])
    assert watched.commands.count(Cut(0, 0, 0, 0)) == 1
    (closing,) = [e for e in watched.of(Progressed) if e.segment == 0 and e.closed]
    assert (closing.done, closing.at) == closed
    assert step.seconds == ends


def test_later_segments_of_a_step_do_not_pay_the_fixed_seconds_again() -> None:
    def start(state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, (0,))
        return orders.ask(100.0)

    def answer(state: State, event: Event) -> Decision:
        if isinstance(event, MessageArrived):
            return Finish(((event.message, 1.0),), 1.0)
        orders = Orders(state)
        if len(state.segments) == 1:
            orders.assign(0, (1,), upload=True)
        return orders.ask(100.0)

    watched = Watched(Script(1, 2, start, answer))
    assert watched.step([1.0], fixed=[2.0]).seconds == 4.0


# -- ties ------------------------------------------------------------------------------


def test_at_equal_times_reports_come_before_timers() -> None:
    scheme = CodedScheme("within", codes.uncoded(3), Within(1.0))
    watched = Watched(scheme)
    step = watched.step([1.0, 1.0 + 2**-20, 1.0])
    assert (step.seconds, step.heard, step.residual) == (1.0, (0, 2), 1.0)
    assert isinstance(watched.events[-1], TimerFired)
    step = watched.step([0.5, 1.0, 1.0])  # all in, at the budget
    assert (step.seconds, step.heard, step.residual) == (1.0, (0, 1, 2), 0.0)
    assert isinstance(watched.events[-1], MessageArrived)


def test_at_equal_times_what_was_scheduled_first_comes_first() -> None:
    assert Watched(ignore(3, 2)).step([1.0, 1.0, 1.0]).heard == (0, 1)
    # Two parts each, all at 2: the last part of worker 1 was begun at 1, of 0 at 1.5.
    step = Watched(ignore(2, 1, pieces=2)).step([0.5, 1.0], fixed=[1.0, 0.0])
    assert (step.seconds, step.heard) == (2.0, (1,))
    assert step.work == 4  # a part that ends with the step was computed to its end


def test_a_timer_of_an_earlier_step_does_not_end_a_later_one() -> None:
    patience = Patience(least=3.0, factor=1.0, first=3.0)
    watched = Watched(uncoded(2), patience=patience)
    steps = [watched.step([2.0, 1.0]) for _ in range(5)]  # stale timers at 3, 5, 7...
    assert all(step.combined and step.seconds == 2.0 for step in steps)
    assert watched.of(TimerFired) == []


def test_patience_ends_a_step_at_its_edge_and_not_before() -> None:
    patience = Patience(least=3.0, factor=1.0, first=3.0)
    watched = Watched(uncoded(2), patience=patience)
    assert watched.step([1.0, 3.0]).combined  # the report comes before the timer
    step = watched.step([1.0, 3.0 + 2**-20])
    assert (step.combined, step.seconds, step.residual) == (False, 3.0, 2.0)
    assert step.weights == ()
    assert "late workers [1]" in step.reason


# -- death -----------------------------------------------------------------------------


def test_a_dead_worker_is_lost_before_the_step_and_joins_when_it_is_back() -> None:
    watched = Watched(fractional(2, 1))
    inf = float("inf")
    for part, fixed in (([inf, 1.0], [0.0, 0.0]), ([1.0, inf], [0.0, inf])):
        watched.step(part, fixed)
    third = watched.step([1.0, 0.5])
    membership = [e for e in watched.events if not isinstance(e, Progressed)]
    assert membership == [
        WorkersLost((0,), 0.0),
        StepStarted(0, 0.0),
        MessageArrived(0, 1, 1, ((0, 2),), 2.0),
        WorkersJoined((0,), 2.0),
        WorkersLost((1,), 2.0),
        StepStarted(1, 2.0),
        MessageArrived(1, 0, 1, ((0, 2),), 4.0),
        WorkersJoined((1,), 4.0),
        StepStarted(2, 4.0),
        MessageArrived(2, 1, 3, ((2, 2),), 5.0),
    ]
    assert third.heard == (1,)


def test_a_worker_that_stays_dead_is_lost_once() -> None:
    watched = Watched(fractional(2, 1))
    for _ in range(3):
        assert watched.step([1.0, float("inf")]).combined
    assert watched.of(WorkersLost) == [WorkersLost((1,), 0.0)]


def test_a_worker_that_dies_takes_its_part_and_its_messages_with_it() -> None:
    watched = Watched(fractional(2, 1), latency=0.5)
    simulator = watched.simulator
    simulator.schedule(2.75, lambda: simulator.lose(0))  # its message is due at 3
    step = watched.step([1.0, 2.0])
    assert (step.seconds, step.heard) == (5.0, (1,))
    assert watched.of(WorkersLost) == [WorkersLost((0,), 2.75)]
    assert [e.worker for e in watched.of(MessageArrived)] == [1]  # not even shown


def test_a_worker_that_comes_back_within_a_step_begins_anew() -> None:
    watched = Watched(uncoded(2, pieces=2), capabilities=DRAINS)
    simulator = watched.simulator
    simulator.schedule(1.5, lambda: simulator.lose(0))
    simulator.schedule(1.5, lambda: simulator.lose(0))  # once is enough
    simulator.schedule(4.0, lambda: simulator.join(0))
    simulator.schedule(4.0, lambda: simulator.join(0))
    step = watched.step([1.0, 1.0], fixed=[0.25, 0.0])
    assert (step.seconds, step.heard) == (6.25, (1, 0))
    assert step.work == 1 + 2 + 2
    assert step.busy == 1.5 + 2.0 + 2.25
    assert len(watched.of(WorkersLost)) == len(watched.of(WorkersJoined)) == 1


def test_workers_that_die_together_or_come_back_together_are_one_event() -> None:
    watched = Watched(uncoded(3, pieces=2), capabilities=DRAINS)
    simulator = watched.simulator
    simulator.schedule(0.5, lambda: simulator.lose(1))
    simulator.schedule(1.5, lambda: simulator.lose(0, 1, 2))  # 1 is gone already
    simulator.schedule(4.0, lambda: simulator.join(2, 1))
    simulator.schedule(5.0, lambda: simulator.join(0, 1, 2))
    step = watched.step([1.0, 1.0, 1.0])
    assert watched.of(WorkersLost) == [WorkersLost((1,), 0.5), WorkersLost((0, 2), 1.5)]
    assert watched.of(WorkersJoined) == [
        WorkersJoined((2, 1), 4.0), WorkersJoined((0,), 5.0),
    ]  # fmt: skip
    assert (step.seconds, set(step.heard)) == (7.0, {0, 1, 2})


def test_more_dead_than_tolerated_are_waited_for_and_then_given_up() -> None:
    watched = Watched(uncoded(2), patience=Patience(least=7.0, first=7.0))
    step = watched.step([1.0, float("inf")])
    assert (step.combined, step.seconds, step.heard) == (False, 7.0, (0,))
    assert "lost workers [1]" in step.reason
    assert watched.step([1.0, 1.0]).combined


# -- what must not happen --------------------------------------------------------------


def test_a_step_of_too_many_events_is_called_stuck_at_its_edge() -> None:
    assert Watched(uncoded(3), most_events=3).step([1.0, 2.0, 3.0]).combined
    with pytest.raises(StuckStep, match="step 0: more than 2 events") as caught:
        Watched(uncoded(3), most_events=2).step([1.0, 2.0, 3.0])
    assert caught.value.step == 0


def test_a_plan_that_never_stops_asking_is_called_stuck() -> None:
    def nudge(state: State, event: Event | None = None) -> Ask:
        return Orders(state).ask(state.now + 1.0)

    watched = Watched(Script(1, 1, nudge, nudge), most_events=50)
    with pytest.raises(StuckStep, match="more than 50 events"):
        watched.step([1.0])


def test_a_step_in_which_nothing_can_happen_is_called_stuck() -> None:
    class Forgetful(Simulator):
        def schedule(self, *args: object, **options: object) -> None:
            pass

        def wake_at(self, at: float) -> None:
            pass

    with pytest.raises(StuckStep, match="nothing can happen, and it is open") as caught:
        Forgetful(uncoded(2)).step([0.0, 0.0], [1.0, 1.0])
    assert isinstance(caught.value, ProtocolError)


# -- runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [cyclic(5, 2, pieces=2), Everything(5)], ids=str)
@pytest.mark.parametrize(
    "machine",
    [Machine(), Machine(drain=False, progress=False), Machine(latency=0.05)],
    ids=str,
)
def test_the_same_seed_gives_the_same_steps(scheme: Scheme, machine: Machine) -> None:
    law = Chain(
        ShiftedExponential(floor=0.1, mean=1.0),
        Pauses(probability=0.2, low=1.0, high=2.0),
        Dead(worker=1, step=5),
    )

    def run(seed: int) -> list[Step]:
        times = law.sample(np.random.default_rng(seed), 8, 5)
        simulator = Simulator(
            scheme,
            capabilities=machine.capabilities,
            patience=machine.patience(times, scheme),
            latency=machine.latency,
        )
        return list(simulator.run(times))

    first = run(3)
    assert first == run(3)
    assert first != run(4)
    assert all(step.combined for step in first)
    assert [step.step for step in first] == list(range(8))


def test_a_run_takes_a_row_of_times_a_step_at_the_load_of_the_scheme() -> None:
    times = Times(fixed=np.array([[0.5, 0.0]]), unit=np.array([[2.0, 3.0]]))
    (step,) = Simulator(uncoded(2, pieces=4)).run(times)
    assert step.seconds == 3.0  # four parts of 0.75 s
    (step,) = Simulator(fractional(2, 1, pieces=4)).run(times)
    assert step.seconds == 4.5  # 0.5 s and eight parts of 0.5 s


def test_the_patience_of_a_machine_outlasts_everybody_alive() -> None:
    times = Times(fixed=np.zeros((1, 2)), unit=np.array([[10.0, np.inf]]))
    patience = Patience(least=200.0, first=200.0, scale=200.0)
    assert Machine().patience(times, uncoded(2)) == patience
    slow = Machine(latency=5.0).patience(times, fractional(2, 1))
    assert slow.least == 20 * (20.0 + 10.0)
    quick = Times(fixed=np.zeros((1, 2)), unit=np.full((1, 2), np.inf))
    assert Machine().patience(quick, uncoded(2)).least == 60.0


@pytest.mark.parametrize(
    "scheme",
    [
        stochastic(2, 1, 0.1, budget=50.0),
        heterogeneous(2, budget=50.0, straggle=0.1),
        heterogeneous(2, budget=50.0),  # learns, and so has no code of its own
    ],
    ids=str,
)
def test_the_patience_of_a_machine_outlasts_a_budget(scheme: Scheme) -> None:
    quick = Times(fixed=np.zeros((1, 2)), unit=np.full((1, 2), 0.1))
    assert Machine().patience(quick, scheme).least == 20 * 50.0


def test_a_scheme_without_a_rule_has_no_budget_to_outlast() -> None:
    quick = Times(fixed=np.zeros((1, 5)), unit=np.full((1, 5), 0.1))
    assert Machine().patience(quick, Everything(5)).least == 60.0
