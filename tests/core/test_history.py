"""What a step tells about its workers, censored where it was cut off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from codedgrad import schemes
from codedgrad.core import (
    Capabilities,
    Coordinator,
    Cut,
    Event,
    History,
    MessageArrived,
    MessageFailed,
    Observation,
    Orders,
    Progressed,
    Record,
    StepStarted,
    TimerFired,
    Traits,
    Wait,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.plan import Ask, Decision, Finish
from codedgrad.core.state import State


def seen(coordinator: Coordinator, worker: int) -> Observation:
    found = coordinator.history.records[-1].observe(worker)
    assert found is not None
    return found


def play(scheme: object, events: Sequence[Event], progress: bool = True) -> Coordinator:
    coordinator = Coordinator(scheme, Capabilities(progress=progress))
    for event in events:
        coordinator.handle(event)
    assert coordinator.state is None, "the script ends the step"
    return coordinator


ANSWERED = [
    StepStarted(0, 10.0),
    Progressed(0, 1, 2, 1, False, 10.4),
    MessageArrived(0, 0, 1, ((0, 2),), 11.0),
]


def test_who_answered_is_not_censored() -> None:
    run = play(schemes.fractional(2, 1), ANSWERED)
    assert seen(run, 0) == Observation(0, 0, 2, 2, 1.0, 0, 1.0, "answered")


def test_who_was_dropped_is_censored_at_the_end_of_the_step() -> None:
    run = play(schemes.fractional(2, 1), ANSWERED)
    found = seen(run, 1)
    assert found.done == 1
    assert found.seconds == pytest.approx(0.4)
    assert (found.pending, found.ended) == (1, "dropped")
    assert found.elapsed == pytest.approx(1.0)


def test_without_progress_all_that_was_asked_is_pending() -> None:
    events = [ANSWERED[0], ANSWERED[2]]
    run = play(schemes.fractional(2, 1), events, progress=False)
    found = seen(run, 1)
    assert (found.done, found.pending, found.elapsed) == (0, 2, 1.0)


def test_who_was_lost_is_censored_when_it_was_lost() -> None:
    events = [ANSWERED[0], WorkersLost((1,), 10.3), ANSWERED[2]]
    found = seen(play(schemes.fractional(2, 1), events), 1)
    assert found.ended == "lost"
    assert found.elapsed == pytest.approx(0.3)


def test_a_message_that_came_after_the_end_is_no_longer_censored() -> None:
    events = [*ANSWERED, MessageArrived(0, 1, 3, ((2, 2),), 14.0)]
    found = seen(play(schemes.fractional(2, 1), events), 1)
    assert found == Observation(0, 1, 2, 2, 4.0, 0, 4.0, "answered")


def test_a_late_message_that_was_heard_or_is_another_s_changes_nothing() -> None:
    before = play(schemes.fractional(2, 1), ANSWERED)
    after = play(
        schemes.fractional(2, 1),
        [
            *ANSWERED,
            MessageArrived(0, 0, 1, ((0, 2),), 14.0),  # heard already
            MessageArrived(0, 0, 3, ((2, 2),), 14.0),  # worker 1's
            MessageArrived(0, 1, 3, ((2, 1),), 14.0),  # not whole
            MessageArrived(7, 1, 3, ((2, 2),), 14.0),  # no such step
        ],
    )
    for worker in (0, 1):
        assert seen(after, worker) == seen(before, worker)


class Cutting:
    """Gives worker 0 four parts, cuts it at `keep` when worker 1 is done."""

    name, workers, parts, tolerance, exact = "cutting", 2, 5, None, False
    placement = ((0, 1, 2, 3), (4,))

    def __init__(self, keep: int) -> None:
        self.keep = keep

    traits = Traits()

    def plan(self, step: int, history: History) -> "Cutting":
        return self

    def first(self, state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, (0, 1, 2, 3))
        orders.assign(1, (4,))
        return orders.ask(99.0)

    def judge(self, state: State, event: Event) -> Decision:
        if isinstance(event, TimerFired):
            return Finish((), 5.0)
        if isinstance(event, Progressed) and event.worker == 1:
            return Ask((Cut(0, 0, 0, self.keep),), 99.0)
        return Wait(99.0)


def test_a_cut_now_is_censored_at_the_cut() -> None:
    events = [
        StepStarted(0, 0.0),
        Progressed(0, 0, 0, 1, False, 2.0),
        Progressed(0, 1, 1, 1, True, 3.0),  # the cut goes out at 3
        Progressed(0, 0, 0, 1, True, 3.1),
        TimerFired(99.0),
    ]
    found = seen(play(Cutting(keep=0), events), 0)
    assert found == Observation(0, 0, 4, 1, 2.0, 1, 3.0, "cut")


def test_a_cut_that_left_work_which_was_done_is_not_censored() -> None:
    events = [
        StepStarted(0, 0.0),
        Progressed(0, 0, 0, 1, False, 2.0),
        Progressed(0, 1, 1, 1, True, 3.0),
        Progressed(0, 0, 0, 2, True, 4.0),  # it did the second part and stopped
        TimerFired(99.0),
    ]
    found = seen(play(Cutting(keep=2), events), 0)
    assert found == Observation(0, 0, 4, 2, 4.0, 0, 4.0, "answered")


def test_a_worker_that_was_asked_nothing_is_not_observed() -> None:
    coordinator = Coordinator(schemes.fractional(2, 1))
    for event in (WorkersLost((1,), 0.0), *ANSWERED):
        coordinator.handle(event)
    assert coordinator.history.records[-1].observe(1) is None


class Scripted:
    """Answers every event of worker 1 with the next orders; worker 0 is looked at."""

    name, workers, parts, tolerance, exact = "scripted", 2, 6, None, False
    placement = (tuple(range(6)), tuple(range(6)))

    def __init__(self, *answers: Callable[[Orders], object]) -> None:
        self.answers = list(answers)

    traits = Traits()

    def plan(self, step: int, history: History) -> "Scripted":
        return self

    def first(self, state: State) -> Ask:
        orders = Orders(state)
        self.answers.pop(0)(orders)
        return orders.ask(99.0)

    def judge(self, state: State, event: Event) -> Decision:
        if isinstance(event, TimerFired):
            return Finish((), 6.0)
        orders = Orders(state)
        if isinstance(event, Progressed) and event.worker == 1:
            self.answers.pop(0)(orders)
        if isinstance(event, WorkersJoined):
            self.answers.pop(0)(orders)
        return orders.ask(99.0)


def test_who_was_lost_and_came_back_is_seen_in_its_new_life() -> None:
    scheme = Scripted(
        lambda orders: orders.assign(0, (0, 1, 2)),
        lambda orders: orders.assign(0, (3, 4)),
    )
    events = [
        StepStarted(0, 0.0),
        Progressed(0, 0, 0, 1, False, 1.0),
        WorkersLost((0,), 1.5),
        WorkersJoined((0,), 50.0),
        Progressed(0, 0, 1, 2, True, 52.0),
        TimerFired(99.0),
    ]
    found = seen(play(scheme, events), 0)
    assert found == Observation(0, 0, 2, 2, 2.0, 0, 2.0, "answered")


def test_a_tail_that_was_taken_away_before_it_was_begun_is_not_outstanding() -> None:
    def two(orders: Orders) -> None:
        orders.assign(0, (0, 1))
        orders.assign(0, (2, 3))
        orders.assign(1, (4,))

    scheme = Scripted(two, lambda orders: orders.cut(0, 1))
    events = [
        StepStarted(0, 0.0),
        Progressed(0, 1, 2, 1, True, 1.0),  # the second segment is cut at 1
        Progressed(0, 0, 1, 0, True, 1.1),
        Progressed(0, 0, 0, 2, True, 4.0),
        TimerFired(99.0),
    ]
    found = seen(play(scheme, events), 0)
    assert found == Observation(0, 0, 4, 2, 4.0, 0, 4.0, "answered")


def test_what_follows_a_cut_begins_at_the_cut() -> None:
    def two(orders: Orders) -> None:
        orders.assign(0, (0, 1))
        orders.assign(0, (2, 3))
        orders.assign(1, (4,))

    scheme = Scripted(two, lambda orders: orders.cut(0, 0))
    events = [
        StepStarted(0, 0.0),
        Progressed(0, 0, 0, 1, False, 2.0),
        Progressed(0, 1, 2, 1, True, 5.0),  # the first segment is cut at 5
        Progressed(0, 0, 0, 1, True, 5.0),
        Progressed(0, 0, 1, 2, True, 9.0),
        TimerFired(99.0),
    ]
    found = seen(play(scheme, events), 0)
    # 1 part in 2 s, one under way for 3 s, 2 parts in 4 s
    assert found == Observation(0, 0, 4, 3, 6.0, 1, 9.0, "cut")


def test_time_without_orders_is_not_work() -> None:
    def start(orders: Orders) -> None:
        orders.assign(0, (0,))
        orders.assign(1, (4,))

    scheme = Scripted(start, lambda orders: orders.assign(0, (1, 2)))
    events = [
        StepStarted(0, 0.0),
        Progressed(0, 0, 0, 1, True, 1.0),
        Progressed(0, 1, 1, 1, True, 30.0),  # asked again at 30
        Progressed(0, 0, 2, 2, True, 32.0),
        TimerFired(99.0),
    ]
    found = seen(play(scheme, events), 0)
    assert found == Observation(0, 0, 3, 3, 3.0, 0, 3.0, "answered")


def test_a_message_that_failed_says_nothing_about_speed() -> None:
    coordinator = Coordinator(schemes.fractional(2, 1), Capabilities(progress=False))
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(MessageFailed(0, 1, 3, "not finite", 2.0))
    coordinator.handle(MessageArrived(0, 0, 1, ((0, 2),), 3.0))
    found = seen(coordinator, 1)
    assert (found.done, found.pending) == (0, 2)  # the second try was dropped
    assert found.elapsed == pytest.approx(1.0)  # since 2 s


def test_a_record_keeps_who_was_there() -> None:
    coordinator = Coordinator(schemes.fractional(2, 1))
    for event in (WorkersLost((1,), 0.0), *ANSWERED):
        coordinator.handle(event)
    coordinator.handle(WorkersJoined((1,), 20.0))
    assert coordinator.history.records[-1].alive == (True, False)
    assert coordinator.history.alive == [True, True]


@dataclass(frozen=True)
class Counting:
    """An estimator that only counts."""

    def start(self, workers: int) -> "Count":
        return Count()


class Count:
    def __init__(self) -> None:
        self.steps: list[list[Observation | None]] = []

    def update(self, record: Record) -> None:
        self.steps.append(record.observations)


def test_trackers_learn_every_step_once_and_late_arrivals_with_it() -> None:
    coordinator = Coordinator(schemes.fractional(2, 1))
    tracker = coordinator.history.follow(Counting())
    for event in ANSWERED:
        coordinator.handle(event)
    assert tracker.steps == []  # a late arrival may still come
    coordinator.handle(MessageArrived(0, 1, 3, ((2, 2),), 14.0))
    coordinator.handle(StepStarted(1, 15.0))
    assert len(tracker.steps) == 1
    late = tracker.steps[0][1]
    assert late is not None
    assert late.seconds == 4.0
    coordinator.handle(StepStarted(2, 16.0))
    assert len(tracker.steps) == 2
    assert coordinator.history.follow(Counting()) is tracker  # equal recipes share one


def test_a_tracker_that_starts_late_is_told_what_is_remembered() -> None:
    coordinator = play(schemes.fractional(2, 1), ANSWERED)
    coordinator.handle(StepStarted(1, 15.0))
    assert len(coordinator.history.follow(Counting()).steps) == 1


def test_a_tracker_that_starts_between_steps_learns_the_last_one_once() -> None:
    coordinator = play(schemes.fractional(2, 1), ANSWERED)
    tracker = coordinator.history.follow(Counting())
    coordinator.handle(StepStarted(1, 15.0))
    assert len(tracker.steps) == 1


def test_history_is_bounded() -> None:
    coordinator = Coordinator(schemes.uncoded(1))
    for step in range(200):
        coordinator.handle(StepStarted(step, float(step)))
        coordinator.handle(MessageArrived(step, 0, 1, ((0, 1),), step + 0.5))
    assert len(coordinator.history.records) == 64
    assert len(coordinator.history.durations) == 20
    assert History(workers=1000).records.maxlen == 20
