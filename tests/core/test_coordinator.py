"""Events in, commands out: lists compared with ==."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad import schemes
from codedgrad.core import (
    Ask,
    Assign,
    Capabilities,
    Combine,
    Coordinator,
    Cut,
    Decision,
    Drop,
    Event,
    Fail,
    Finish,
    GiveUp,
    MessageArrived,
    MessageFailed,
    Orders,
    Patience,
    Progressed,
    Segment,
    State,
    StepCancelled,
    StepStarted,
    TimerFired,
    Traits,
    Upload,
    Wait,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.errors import BrokenPlan, InvalidOptions, ProtocolError
from codedgrad.testing import Everything, Invariants

from ..event_streams import streams


def started(scheme: object, at: float = 0.0) -> Coordinator:
    coordinator = Coordinator(scheme)
    coordinator.handle(StepStarted(0, at))
    return coordinator


def answer(worker: int, at: float, step: int = 0, parts: int = 1) -> MessageArrived:
    """The message of a worker, in a step in which each was given one row in turn."""
    return MessageArrived(step, worker, 2 * worker + 1, ((2 * worker, parts),), at)


# -- steps ---------------------------------------------------------------------------


def test_a_step_gives_every_worker_its_row_and_sets_a_timer() -> None:
    commands = Coordinator(schemes.uncoded(2)).handle(StepStarted(7, at=3.0))
    assert commands == [
        Assign(7, Segment(0, 0, (0,), (1.0,)), 1, whole=True),
        Assign(7, Segment(2, 1, (1,), (1.0,)), 3, whole=True),
        WakeAt(7, 1803.0),
    ]


def test_the_last_message_needed_ends_the_step() -> None:
    coordinator = started(schemes.uncoded(2))
    assert coordinator.handle(answer(1, at=1.0)) == []
    assert coordinator.handle(answer(0, at=2.0)) == [
        Combine(0, ((1, 1.0), (3, 1.0)), 0.0)
    ]
    assert coordinator.state is None


def test_an_earlier_or_repeated_step_is_ignored() -> None:
    coordinator = started(schemes.uncoded(2))
    assert coordinator.handle(StepStarted(0, at=1.0)) == []
    coordinator.handle(StepStarted(5, at=2.0))
    assert coordinator.handle(StepStarted(4, at=3.0)) == []
    assert coordinator.ignored["late"] == 2


def test_a_later_step_supersedes_an_open_one_first() -> None:
    coordinator = started(schemes.uncoded(1))
    commands = coordinator.handle(StepStarted(1, at=1.0))
    assert commands[0] == GiveUp(0, "superseded")
    assert commands[1] == Assign(1, Segment(0, 0, (0,), (1.0,)), 1, whole=True)


def test_a_cancelled_step_is_given_up_and_only_if_it_is_open() -> None:
    coordinator = started(schemes.uncoded(2))
    assert coordinator.handle(StepCancelled(1, at=1.0)) == []
    assert coordinator.handle(StepCancelled(0, at=1.0)) == [GiveUp(0, "cancelled")]
    assert coordinator.handle(StepCancelled(0, at=1.0)) == []


def test_messages_of_a_step_that_has_ended_change_nothing_and_are_recorded() -> None:
    coordinator = started(schemes.fractional(2, 1))
    coordinator.handle(answer(0, at=1.0, parts=2))
    assert coordinator.handle(answer(1, at=5.0, parts=2)) == []
    assert coordinator.ignored["late"] == 1
    seen = coordinator.history.records[-1].observe(1)
    assert seen is not None
    assert (seen.done, seen.seconds, seen.is_censored) == (2, 5.0, False)


def test_repeated_messages_change_nothing() -> None:
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(answer(0, at=1.0))
    assert coordinator.handle(answer(0, at=1.5)) == []
    assert coordinator.ignored["repeated"] == 1


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (MessageArrived(0, 0, 9, ((0, 1),), 1.0), "unknown"),  # no such message
        (MessageArrived(0, 1, 1, ((0, 1),), 1.0), "unknown"),  # another's message
        (MessageArrived(0, 5, 1, ((0, 1),), 1.0), "unknown"),  # no such worker
        (MessageArrived(0, -1, 1, ((0, 1),), 1.0), "unknown"),
        (MessageArrived(0, 0, 1, ((0, 3),), 1.0), "inconsistent"),  # too many parts
        (MessageArrived(0, 0, 1, ((2, 1),), 1.0), "inconsistent"),  # other segments
        (MessageArrived(0, 0, 1, (), 1.0), "inconsistent"),
        (MessageArrived(0, 0, 1, ((0, 2), (0, 2)), 1.0), "inconsistent"),
        (Progressed(0, 0, 9, 1, False, 1.0), "unknown"),
        (Progressed(0, 1, 0, 1, False, 1.0), "unknown"),
        (Progressed(0, 0, 0, 3, True, 1.0), "inconsistent"),
        (Progressed(0, 0, 0, 0, False, 1.0), "repeated"),
        (MessageFailed(0, 0, 9, "nan", 1.0), "unknown"),
        (MessageFailed(0, 1, 1, "nan", 1.0), "unknown"),
    ],
)
def test_what_cannot_be_is_turned_away(event: Event, why: str) -> None:
    coordinator = started(schemes.fractional(2, 1))
    assert coordinator.handle(event) == []
    assert coordinator.ignored == {why: 1}


def test_a_message_that_contradicts_a_closing_is_turned_away() -> None:
    coordinator = started(schemes.fractional(2, 1))
    coordinator.handle(Progressed(0, 0, 0, 1, True, at=1.0))
    assert coordinator.handle(MessageArrived(0, 0, 1, ((0, 2),), at=2.0)) == []
    assert coordinator.ignored == {"inconsistent": 1}


def test_time_may_stand_still_and_never_run_backwards() -> None:
    coordinator = started(schemes.uncoded(2), at=5.0)
    coordinator.handle(answer(0, at=5.0))
    with pytest.raises(ProtocolError, match="comes before 5"):
        coordinator.handle(answer(1, at=4.9))
    with pytest.raises(ProtocolError):
        coordinator.handle(answer(1, at=float("nan")))


# -- timers --------------------------------------------------------------------------


def test_an_early_timer_is_ignored_and_a_due_one_ends_a_hopeless_step() -> None:
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(answer(0, at=1.0))
    assert coordinator.handle(TimerFired(at=1799.9)) == []
    (end,) = coordinator.handle(TimerFired(at=1800.0))
    assert isinstance(end, GiveUp)
    assert "late workers [1]" in end.reason
    assert "a tolerance of 1 would have survived" in end.reason
    assert "no step has ended yet" in end.reason  # why 1800 s
    assert coordinator.handle(TimerFired(at=1801.0)) == []


def test_a_budget_ends_a_step_with_what_was_heard() -> None:
    coordinator = started(schemes.erasurehead(4, 2, budget=2.0), at=5.0)
    coordinator.handle(answer(0, at=5.5, parts=2))
    assert coordinator.handle(TimerFired(at=7.0)) == [Combine(0, ((1, 1.0),), 2.0)]


def test_a_budget_in_which_nobody_answers_gives_nothing_with_the_full_residual() -> (
    None
):
    coordinator = started(schemes.stochastic(4, 2, 0.5, budget=2.0))
    assert coordinator.handle(TimerFired(at=2.0)) == [Combine(0, (), 4.0)]


def test_an_event_that_overtakes_a_due_timer_brings_it_along() -> None:
    coordinator = started(schemes.erasurehead(4, 2, budget=2.0))
    assert coordinator.handle(answer(0, at=2.5, parts=2)) == [
        Combine(0, ((1, 1.0),), 2.0)
    ]
    coordinator = started(schemes.uncoded(2))
    (end,) = coordinator.handle(WorkersLost((0,), at=1801.0))
    assert isinstance(end, GiveUp)


def test_an_overtaken_timer_is_shown_even_if_the_plan_sets_a_new_one() -> None:
    shown: list[Event] = []

    def judge(state: State, event: Event) -> Decision:
        shown.append(event)
        return Wait(state.now + 8)

    coordinator = started(Scripted(begin, judge))  # the timer is at 9
    commands = coordinator.handle(Progressed(0, 0, 0, 1, False, at=12.0))
    assert [type(event) for event in shown] == [Progressed, TimerFired]
    assert commands == [WakeAt(0, 20.0), WakeAt(0, 20.0)]


def test_at_equal_times_messages_come_before_the_timer() -> None:
    coordinator = started(schemes.erasurehead(4, 2, budget=2.0))
    assert coordinator.handle(answer(0, at=2.0, parts=2)) == []
    (end,) = coordinator.handle(answer(2, at=2.0, parts=2))
    assert end == Combine(0, ((1, 1.0), (5, 1.0)), 0.0)


# -- losses, joins, failures -----------------------------------------------------------


def test_a_lost_worker_within_the_tolerance_is_not_missed() -> None:
    coordinator = started(schemes.fractional(2, 1))
    assert coordinator.handle(WorkersLost((0,), at=1.0)) == []
    assert coordinator.handle(answer(0, at=1.1, parts=2)) == []  # it is gone
    assert coordinator.ignored == {"lost": 1}
    assert coordinator.handle(answer(1, at=2.0, parts=2)) == [
        Combine(0, ((3, 1.0),), 0.0)
    ]


def test_what_was_heard_of_a_lost_worker_stays() -> None:
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(answer(0, at=1.0))
    coordinator.handle(WorkersLost((0,), at=1.5))
    assert coordinator.handle(answer(1, at=2.0)) == [
        Combine(0, ((1, 1.0), (3, 1.0)), 0.0)
    ]


def test_when_too_many_are_lost_a_rejoin_is_waited_for_and_given_the_rows_again() -> (
    None
):
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(answer(0, at=1.0))
    assert coordinator.handle(WorkersLost((1,), at=2.0)) == []
    assert coordinator.handle(WorkersJoined((1,), at=3.0)) == [
        Assign(0, Segment(4, 1, (1,), (1.0,)), 5, whole=True)
    ]
    assert coordinator.handle(answer(1, at=3.5)) == []  # of its former life
    assert coordinator.handle(MessageArrived(0, 1, 5, ((4, 1),), at=4.0)) == [
        Combine(0, ((1, 1.0), (5, 1.0)), 0.0)
    ]


def test_who_rejoins_is_not_asked_again_for_what_was_heard() -> None:
    coordinator = started(schemes.uncoded(3))
    coordinator.handle(answer(0, at=1.0))
    coordinator.handle(WorkersLost((0,), at=1.5))
    assert coordinator.handle(WorkersJoined((0,), at=2.0)) == []


def test_a_worker_that_was_back_does_not_keep_open_what_cannot_decode_any_more() -> (
    None
):
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(WorkersLost((1,), at=1.0))
    coordinator.handle(WorkersJoined((1,), at=2.0))  # it is asked for message 5
    coordinator.handle(MessageFailed(0, 0, 1, "not finite", at=3.0))  # 7 is asked for
    assert coordinator.handle(MessageFailed(0, 0, 7, "not finite", at=4.0)) == []
    (end,) = coordinator.handle(MessageArrived(0, 1, 5, ((4, 1),), at=5.0))
    assert isinstance(end, GiveUp)  # and not at the deadline
    assert "do not decode" in end.reason


def test_a_step_that_starts_without_a_worker_asks_it_when_it_joins() -> None:
    coordinator = Coordinator(schemes.uncoded(2))
    assert coordinator.handle(WorkersLost((1,), at=0.0)) == []
    first = coordinator.handle(StepStarted(0, at=1.0))
    assert [type(c) for c in first] == [Assign, WakeAt]
    assert coordinator.handle(WorkersJoined((1,), at=2.0)) == [
        Assign(0, Segment(2, 1, (1,), (1.0,)), 3, whole=True)
    ]
    assert coordinator.alive == (True, True)


def test_a_loss_or_a_join_told_twice_changes_nothing() -> None:
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(WorkersLost((0,), at=1.0))
    assert coordinator.handle(WorkersLost((0,), at=1.0)) == []
    assert coordinator.handle(WorkersJoined((1,), at=1.0)) == []
    assert coordinator.handle(WorkersLost((7,), at=1.0)) == []
    assert coordinator.ignored == {"repeated": 2, "unknown": 1}


class Shown:
    """A scheme of four workers whose plan notes what it is shown, and when."""

    name, workers, parts, tolerance, exact = "shown", 4, 4, 0, True
    placement = ((0, 1, 2, 3),) * 4
    traits = Traits()

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.alive: list[tuple[bool, ...]] = []
        self.gone: list[list[int]] = []

    def plan(self, step: int, history: object) -> "Shown":
        return self

    def first(self, state: State) -> Ask:
        orders = Orders(state)
        for worker in range(4):
            orders.assign(worker, (worker,), upload=True)
        return orders.ask(99.0)

    def judge(self, state: State, event: Event) -> Decision:
        self.events.append(event)
        self.alive.append(tuple(state.alive))
        segments = state.segments.values()
        self.gone.append([known.segment.worker for known in segments if known.gone])
        return Wait(99.0)


def test_workers_that_are_lost_together_are_all_gone_before_the_plan_is_asked() -> None:
    scheme = Shown()
    coordinator = started(scheme)
    coordinator.handle(WorkersLost((2, 1), at=1.0))
    assert scheme.events == [WorkersLost((2, 1), at=1.0)]
    assert scheme.alive == [(True, False, False, True)]
    assert scheme.gone == [[1, 2]]
    assert coordinator.alive == (True, False, False, True)
    state = coordinator.state
    assert state is not None
    assert [m.worker for m in state.messages.values() if m.pending] == [0, 3]


def test_after_each_of_two_losses_the_plan_is_asked_before_the_next() -> None:
    scheme = Shown()
    coordinator = started(scheme)
    for worker in (2, 1):
        coordinator.handle(WorkersLost((worker,), at=1.0))
    assert scheme.alive == [(True, True, False, True), (True, False, False, True)]
    assert scheme.gone == [[2], [1, 2]]


def test_workers_that_join_together_are_all_there_before_the_plan_is_asked() -> None:
    scheme = Shown()
    coordinator = started(scheme)
    coordinator.handle(WorkersLost((0, 1, 3), at=1.0))
    coordinator.handle(WorkersJoined((3, 0), at=2.0, host=5))
    assert scheme.events[1:] == [WorkersJoined((3, 0), at=2.0, host=5)]
    assert scheme.alive[1:] == [(True, False, True, True)]
    assert scheme.gone[1:] == [[0, 1, 3]]  # what they had done stays lost


def test_the_plan_is_shown_only_the_workers_that_changed_each_once() -> None:
    scheme = Shown()
    coordinator = started(scheme)
    coordinator.handle(WorkersLost((1,), at=1.0))
    coordinator.handle(WorkersLost((3, 1, 7, 3, -1, 0), at=2.0))
    coordinator.handle(WorkersJoined((4, 2, 3, 3, 1), at=3.0, host=1))
    assert scheme.events == [
        WorkersLost((1,), at=1.0),
        WorkersLost((3, 0), at=2.0),
        WorkersJoined((3, 1), at=3.0, host=1),
    ]
    assert coordinator.alive == (False, True, True, True)
    assert not coordinator.ignored


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (WorkersLost((), at=2.0), "unknown"),
        (WorkersLost((4, -1), at=2.0), "unknown"),
        (WorkersLost((1, 2), at=2.0), "repeated"),
        (WorkersLost((4, 2, 2), at=2.0), "repeated"),
        (WorkersJoined((), at=2.0), "unknown"),
        (WorkersJoined((0, 3), at=2.0), "repeated"),
    ],
)
def test_an_event_in_which_no_worker_changed_is_ignored(event: Event, why: str) -> None:
    scheme = Shown()
    coordinator = started(scheme)
    coordinator.handle(WorkersLost((1, 2), at=1.0))
    shown = len(scheme.events)
    assert coordinator.handle(event) == []
    assert coordinator.ignored == {why: 1}
    assert len(scheme.events) == shown
    assert coordinator.alive == (True, False, False, True)


def test_all_workers_of_a_fixed_code_that_join_together_are_asked_in_one_answer() -> (
    None
):
    coordinator = started(schemes.uncoded(4))
    coordinator.handle(answer(2, at=1.0))
    assert coordinator.handle(WorkersLost((0, 2, 3), at=2.0)) == []
    assert coordinator.handle(WorkersJoined((3, 2, 0), at=3.0)) == [
        Assign(0, Segment(8, 3, (3,), (1.0,)), 9, whole=True),  # 2 was heard
        Assign(0, Segment(10, 0, (0,), (1.0,)), 11, whole=True),
    ]
    coordinator.handle(answer(1, at=4.0))
    coordinator.handle(MessageArrived(0, 3, 9, ((8, 1),), at=5.0))
    assert coordinator.handle(MessageArrived(0, 0, 11, ((10, 1),), at=6.0)) == [
        Combine(0, ((3, 1.0), (5, 1.0), (9, 1.0), (11, 1.0)), 0.0)
    ]


def test_a_failed_message_is_asked_for_once_more_and_then_given_up() -> None:
    coordinator = started(schemes.uncoded(2))
    coordinator.handle(answer(1, at=1.0))
    assert coordinator.handle(MessageFailed(0, 0, 1, "not finite", at=2.0)) == [
        Assign(0, Segment(4, 0, (0,), (1.0,)), 5, whole=True)
    ]
    (end,) = coordinator.handle(MessageFailed(0, 0, 5, "not finite", at=3.0))
    assert isinstance(end, GiveUp)
    assert "do not decode" in end.reason


def test_everything_in_before_the_budget_ends_an_approximate_step() -> None:
    coordinator = started(schemes.stochastic(2, 1, 0.5, budget=9.0))
    rows = {m.worker: m for m in coordinator.state.messages.values()}
    commands: list[object] = []
    for at, (worker, message) in enumerate(sorted(rows.items()), 1):
        segment = coordinator.state.segments[message.segments[0]].segment
        cuts = ((segment.id, len(segment.parts)),)
        commands += coordinator.handle(
            MessageArrived(0, worker, message.id, cuts, float(at))
        )
    assert [type(c) for c in commands] == [Combine]


def test_who_died_after_it_answered_is_not_waited_for() -> None:
    coordinator = started(schemes.stochastic(2, 2, 0.25, budget=9.0))
    coordinator.handle(answer(0, at=1.0, parts=2))
    assert coordinator.handle(WorkersLost((0,), at=1.5)) == []
    (end,) = coordinator.handle(answer(1, at=2.0, parts=2))
    assert isinstance(end, Combine)


def test_a_budget_longer_than_the_patience_still_ends_with_what_there_is() -> None:
    coordinator = Coordinator(schemes.erasurehead(4, 2, budget=2000.0))
    coordinator.handle(StepStarted(0, 0.0))
    for worker in (0, 2):
        coordinator.handle(answer(worker, at=1.0, parts=2))
    commands = coordinator.handle(StepStarted(1, 2.0))
    assert commands[-1] == WakeAt(1, 1802.0)  # the patience is less than the budget
    assert coordinator.handle(TimerFired(1802.0)) == [Combine(1, (), 4.0)]


def test_patience_grows_after_a_step_was_given_up_and_not_for_ever() -> None:
    coordinator = Coordinator(schemes.uncoded(1))
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(answer(0, 1.0))
    waits, at = [], 1.0
    for step in range(1, 8):
        *_, wake = coordinator.handle(StepStarted(step, at))
        assert isinstance(wake, WakeAt)
        waits.append(wake.at - at)
        at = wake.at
        (end,) = coordinator.handle(TimerFired(at))
        assert isinstance(end, GiveUp)
    assert waits == [1800.0 * times for times in (1, 2, 4, 8, 10, 10, 10)]
    coordinator.handle(StepStarted(9, at))
    assert "twice the step before" in coordinator.state.deadline.reason


def test_a_step_that_was_superseded_says_nothing_about_patience() -> None:
    coordinator = Coordinator(schemes.uncoded(1))
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(answer(0, 1.0))
    coordinator.handle(StepStarted(1, 2.0))
    assert coordinator.handle(StepStarted(2, 52.0))[-1] == WakeAt(2, 1852.0)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["least", "factor", "first"])
def test_patience_is_a_time_that_ends(name: str, value: float) -> None:
    with pytest.raises(InvalidOptions, match=name):
        Patience(**{name: value})


def test_patience_follows_the_longest_recent_step() -> None:
    coordinator = Coordinator(schemes.uncoded(1), patience=Patience(least=10.0))
    for step, seconds in enumerate((3.0, 0.5)):
        at = 100.0 * step
        coordinator.handle(StepStarted(step, at))
        coordinator.handle(answer(0, at + seconds, step))
    commands = coordinator.handle(StepStarted(2, 200.0))
    assert commands[-1] == WakeAt(2, 230.0)  # 10 x 3 s


def test_patience_is_never_less_than_its_least() -> None:
    coordinator = Coordinator(schemes.uncoded(1))
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(answer(0, 0.5))
    assert coordinator.handle(StepStarted(1, 1.0))[-1] == WakeAt(1, 1801.0)


# -- plans that cannot be meant ------------------------------------------------------


class Scripted:
    """A scheme whose plan answers what a test tells it to."""

    name, workers, parts, tolerance, exact = "scripted", 2, 2, 0, True
    placement = ((0, 1), (1,))

    def __init__(
        self,
        first: Callable[[State], Ask | Fail],
        judge: Callable[[State, Event], Decision] = lambda s, e: Wait(s.now + 1),
    ) -> None:
        self.first, self.judge = first, judge

    traits = Traits()

    def plan(self, step: int, history: object) -> "Scripted":
        return self


def one(worker: int, *parts: int, coefficients: tuple[float, ...] | None = None) -> Ask:
    given = (1.0,) * len(parts) if coefficients is None else coefficients
    return Ask((Assign(0, Segment(0, worker, parts, given), None),), 9.0)


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (one(0), "needs parts"),
        (one(0, 0, coefficients=(1.0, 2.0)), "a coefficient for each"),
        (one(0, 0, 0), "a part twice"),
        (one(1, 0), "not placed with its worker"),
        (one(0, 0, coefficients=(float("nan"),)), "not finite"),
        (one(2, 0), "not there"),
        (one(-1, 0), "not there"),
        (Ask((Assign(0, Segment(1, 0, (0,), (1.0,)), None),), 9.0), "next is 0"),
        (Ask((Assign(0, Segment(0, 0, (0,), (1.0,)), 0),), 9.0), "next is 1"),
        (Ask((Assign(1, Segment(0, 0, (0,), (1.0,)), None),), 9.0), "not of the open"),
        (Ask((Cut(0, 0, 0, 0),), 9.0), "names segment 0"),
        (Ask((Upload(0, 0, 0, (0,)),), 9.0), "names segment 0"),
        (Ask((Upload(0, 0, 0, ()),), 9.0), "names no segment"),
        (Ask((), 0.0), "not after"),
        (Ask((), float("inf")), "or never"),
        (Ask((), float("nan")), "not after"),
    ],
)
def test_a_first_answer_that_cannot_be_meant_is_refused(ask: Ask, why: str) -> None:
    with pytest.raises(BrokenPlan, match=why):
        Coordinator(Scripted(lambda state: ask)).handle(StepStarted(0, 0.0))


def begin(state: State) -> Ask:
    orders = Orders(state)
    orders.assign(0, (0, 1), upload=True)
    orders.assign(1, (1,))
    return orders.ask(9.0)


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (Finish(((1, 1.0),), 0.0), "not here"),
        (Finish(((7, 1.0),), 0.0), "not here"),
        (Finish((), float("nan")), "residual that cannot be"),
        (Finish((), float("inf")), "residual that cannot be"),
        (Finish((), -1.0), "residual that cannot be"),
        (Finish(((1, 1.0), (1, 1.0)), 0.0), "weighs a message twice"),
        (Wait(1.0), "not after"),
        (Ask((Cut(0, 0, 0, -1),), 9.0), "less than nothing"),
        (Ask((Cut(0, 1, 0, 1),), 9.0), "names segment 0"),  # another's
        (Ask((Upload(0, 1, 3, (2, 2)),), 9.0), "one twice"),
    ],
)
def test_a_later_answer_that_cannot_be_meant_is_refused(
    decision: Decision, why: str
) -> None:
    scheme = Scripted(begin, lambda state, event: decision)
    coordinator = started(scheme)
    with pytest.raises(BrokenPlan, match=why):
        coordinator.handle(Progressed(0, 0, 0, 1, False, at=1.0))


def test_a_weight_that_is_not_finite_is_refused() -> None:
    coordinator = started(
        Scripted(begin, lambda s, e: Finish(((1, float("nan")),), 0.0))
    )
    with pytest.raises(BrokenPlan, match="weight that is not finite"):
        coordinator.handle(MessageArrived(0, 0, 1, ((0, 2),), at=1.0))


def test_a_dropped_worker_has_nothing_left_and_may_be_asked_again() -> None:
    def judge(state: State, event: Event) -> Decision:
        orders = Orders(state)
        orders.drop(0)
        orders.assign(0, (0,))
        return orders.ask(state.now + 1)

    coordinator = started(Scripted(begin, judge))
    commands = coordinator.handle(Progressed(0, 0, 0, 2, True, at=1.0))
    assert commands[:2] == [Drop(0, 0), Assign(0, Segment(3, 0, (0,), (1.0,)), None)]
    state = coordinator.state
    assert state is not None
    assert state.segments[0].gone
    assert state.messages[1].gone
    assert state.missing == 2


def test_a_failed_message_takes_its_sisters_with_it() -> None:
    def two(state: State) -> Ask:
        orders = Orders(state)
        segment, _ = orders.assign(0, (0, 1), upload=True)
        orders.upload(0, (segment,))
        return orders.ask(9.0)

    coordinator = started(Scripted(two))
    coordinator.handle(MessageFailed(0, 0, 1, "not finite", at=1.0))
    state = coordinator.state
    assert state is not None
    assert [m.pending for m in state.messages.values()] == [False, False]


def test_what_was_given_as_a_whole_is_not_cut() -> None:
    def first(state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, (0,), whole=True)
        orders.cut(0, 0)
        return orders.ask(9.0)

    with pytest.raises(BrokenPlan, match="given as a whole"):
        Coordinator(Scripted(first)).handle(StepStarted(0, 0.0))


def test_what_an_engine_cannot_do_is_not_ordered() -> None:
    def judge(state: State, event: Event) -> Decision:
        orders = Orders(state)
        orders.assign(0, (0,))
        return orders.ask(state.now + 1)

    coordinator = Coordinator(Scripted(begin, judge), Capabilities(rows_per_worker=1))
    coordinator.handle(StepStarted(0, 0.0))
    with pytest.raises(BrokenPlan, match="one more than 1 sums"):
        coordinator.handle(Progressed(0, 0, 0, 1, False, at=1.0))


def test_after_a_broken_plan_the_next_step_starts_afresh() -> None:
    coordinator = started(Scripted(begin, lambda state, event: Wait(0.5)))
    with pytest.raises(BrokenPlan):
        coordinator.handle(Progressed(0, 0, 0, 1, False, at=1.0))
    assert coordinator.state is None
    assert coordinator.handle(TimerFired(at=9.0)) == []
    with pytest.raises(BrokenPlan):  # its orders are of step 0
        coordinator.handle(StepStarted(1, at=9.0))


def test_an_unchanged_timer_is_not_set_again() -> None:
    coordinator = started(Scripted(begin, lambda state, event: Wait(9.0)))
    assert coordinator.handle(Progressed(0, 0, 0, 1, False, at=1.0)) == []


def test_a_prefix_is_a_shorter_row() -> None:
    def judge(state: State, event: Event) -> Decision:
        if isinstance(event, MessageArrived):
            return Finish(((1, 1.0),), 1.0)
        return Ask((Cut(0, 0, 0, 1),), 9.0)

    coordinator = started(Scripted(begin, judge))
    assert coordinator.handle(Progressed(0, 0, 0, 1, False, at=1.0)) == [
        Cut(0, 0, 0, 1)
    ]
    state = coordinator.state
    assert state is not None
    coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=2.0))
    assert state.row(1) == {0: 1.0}
    assert state.segments[0].ended == "cut"


# -- any stream of events -----------------------------------------------------------

SCHEMES = [
    schemes.uncoded(3),
    schemes.ignore(3, 2),
    schemes.fractional(4, 1),
    schemes.cyclic(4, 2),
    schemes.clustered(4, 2, 1, rule="threshold"),
    schemes.bernoulli(4, 2, budget=3.0),
    schemes.erasurehead(4, 2, count=2),
    Everything(3, each=2),
]


@pytest.mark.quick("uncoded", "cyclic*", "clustered*", "everything*")
@pytest.mark.hypothesis
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.name)
@given(data=st.data())
def test_whatever_arrives_no_rule_is_broken(
    scheme: object, data: st.DataObject
) -> None:
    stream = data.draw(streams(workers=4, steps=3, ids=12))
    coordinators = [Coordinator(scheme) for _ in range(2)]
    invariants = Invariants(scheme)
    for event in [StepStarted(0, 0.0), *stream]:
        first, again = (c.handle(event) for c in coordinators)
        assert first == again
        invariants(event, first)
