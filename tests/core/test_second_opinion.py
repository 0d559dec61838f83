"""Is the model to blame for what is not finite, or the worker? Others are asked."""

from collections.abc import Callable, Mapping

import pytest
from msgspec import json, structs

from codedgrad import schemes
from codedgrad.core import (
    Ask,
    Assign,
    Capabilities,
    Combine,
    Command,
    Coordinator,
    Cut,
    Decision,
    Drop,
    Event,
    Fail,
    GiveUp,
    MessageArrived,
    MessageFailed,
    Orders,
    Progressed,
    Segment,
    State,
    StepStarted,
    TimerFired,
    Traits,
    Wait,
    WakeAt,
    WorkersLost,
)
from codedgrad.errors import BrokenPlan


def answer(
    worker: int, at: float, parts: int = 1, finite: bool = True
) -> MessageArrived:
    """The message of a worker, in a step in which each was given one row in turn."""
    return MessageArrived(0, worker, 2 * worker + 1, ((2 * worker, parts),), at, finite)


def started(scheme: object, capabilities: Capabilities | None = None) -> Coordinator:
    coordinator = Coordinator(scheme, capabilities)
    coordinator.handle(StepStarted(0, 0.0))
    return coordinator


class Scripted:
    """Four workers, three of which may have all four parts; notes what it is shown."""

    name, workers, parts, tolerance, exact = "scripted", 4, 4, None, False
    placement: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),) * 3 + ((2, 3),)

    def __init__(
        self,
        given: Mapping[int, tuple[int, ...]],
        judge: Callable[[State, Event], Decision] | None = None,
    ) -> None:
        self.given, self._judge = given, judge
        self.shown: list[Event] = []

    traits = Traits()

    def plan(self, step: int, history: object) -> "Scripted":
        return self

    def first(self, state: State) -> Ask | Fail:
        orders = Orders(state)
        for worker, parts in self.given.items():
            orders.assign(worker, parts, upload=True)
        return orders.ask(9.0)

    def judge(self, state: State, event: Event) -> Decision:
        self.shown.append(event)
        if self._judge is not None:
            return self._judge(state, event)
        return Wait(9.0 if state.now < 9.0 else state.now + 9.0)


def question(id_: int, worker: int, *parts: int, about: int | None = 1) -> Assign:
    segment = Segment(id_, worker, parts, (1.0,) * len(parts))
    return Assign(0, segment, id_ + 1, whole=True, about=about)


def reply(
    question: Command, at: float, finite: bool = True, done: int | None = None
) -> MessageArrived:
    assert isinstance(question, Assign)
    segment = question.segment
    done = len(segment.parts) if done is None else done
    message = segment.id + 1
    return MessageArrived(0, segment.worker, message, ((segment.id, done),), at, finite)


LONELY = {0: (0, 1)}  # worker 0 alone was asked, for parts 0 and 1
DOUBTED = MessageArrived(0, 0, 1, ((0, 2),), 1.0, finite=False)


# -- whom to ask ---------------------------------------------------------------------


def test_somebody_else_is_asked_for_the_same_sum_and_the_plan_is_not_shown() -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    assert coordinator.handle(DOUBTED) == [question(2, 1, 0, 1)]
    assert scheme.shown == []
    state = coordinator.state
    assert state is not None
    assert (state.doubted, state.heard, state.segments[0].closed) == ([1], [], True)
    assert (state.missing, state.ledger.uncovered) == (2, 4)
    assert list(state.messages) == [1]  # plans know nothing of opinions
    assert state.next_id == 4


def test_the_segments_of_a_message_are_asked_for_as_one() -> None:
    def first(state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, (0, 1), (1.0, 2.0))
        orders.assign(0, (1, 2), (0.5, 4.0))
        orders.upload(0, (0, 1))
        return orders.ask(9.0)

    scheme = Scripted({})
    scheme.first = first
    event = MessageArrived(0, 0, 2, ((0, 2), (1, 1)), 1.0, finite=False)
    assert started(scheme).handle(event) == [
        Assign(0, Segment(3, 1, (0, 1), (1.0, 2.5)), 4, whole=True, about=2)
    ]


def test_who_has_the_least_in_hand_is_asked_and_of_equals_the_first() -> None:
    coordinator = started(Scripted({0: (0, 1), 1: (2, 3), 2: (2,)}))
    assert coordinator.handle(DOUBTED) == [question(6, 2, 0, 1)]
    coordinator = started(Scripted({0: (0, 1), 1: (2, 3), 2: (2,)}))
    coordinator.handle(Progressed(0, 1, 2, 1, False, 0.5))
    assert coordinator.handle(DOUBTED) == [question(6, 1, 0, 1)]


def test_who_is_doubted_too_is_asked_only_if_nobody_else_can_be() -> None:
    coordinator = started(Scripted({0: (0, 1), 1: (2, 3), 2: (3, 2, 1)}))
    other = MessageArrived(0, 1, 3, ((2, 2),), 0.5, finite=False)
    assert coordinator.handle(other) == []  # worker 2 will tell
    assert coordinator.handle(DOUBTED) == [question(6, 2, 0, 1)]
    coordinator = started(Scripted({0: (0, 1), 1: (2, 3), 2: (3, 2, 1)}))
    coordinator.handle(other)
    coordinator.handle(WorkersLost((2,), 0.75))
    (asked,) = coordinator.handle(DOUBTED)
    assert asked == question(8, 1, 0, 1)


def test_who_will_send_all_the_parts_anyway_is_not_asked() -> None:
    coordinator = started(schemes.fractional(2, 1))
    assert coordinator.handle(answer(0, 1.0, 2, finite=False)) == []
    assert coordinator.handle(answer(1, 2.0, 2)) == [Combine(0, ((3, 1.0),), 0.0)]
    assert coordinator.history.contradicted == {0: 1}


def test_a_second_try_that_the_plan_asked_for_tells_as_well() -> None:
    coordinator = started(schemes.fractional(3, 2))
    coordinator.handle(answer(0, 1.0, 3, finite=False))  # 1 and 2 will tell
    retry = question(6, 1, 0, 1, 2, about=None)
    assert coordinator.handle(MessageFailed(0, 1, 3, "torn", 2.0)) == [retry]
    assert coordinator.handle(WorkersLost((2,), 2.5)) == []
    assert coordinator.handle(reply(retry, 3.0)) == [Combine(0, ((7, 1.0),), 0.0)]
    assert coordinator.history.contradicted == {0: 1}


def test_a_message_that_will_be_cut_short_does_not_tell() -> None:
    def judge(state: State, event: Event) -> Decision:
        return Ask((Cut(0, 1, 2, 1),), 9.0)

    coordinator = started(Scripted({0: (0, 1), 1: (0, 1)}, judge))
    coordinator.handle(Progressed(0, 1, 2, 1, False, 0.5))
    assert coordinator.handle(DOUBTED) == [question(4, 1, 0, 1)]


@pytest.mark.parametrize(
    ("engine", "who"),
    [
        (Capabilities(rows_per_worker=2), [1]),
        (Capabilities(rows_per_worker=1), []),  # not even the sender
    ],
)
def test_nobody_is_asked_for_more_than_the_engine_can(
    engine: Capabilities, who: list[int]
) -> None:
    coordinator = started(Scripted({0: (0, 1), 1: (2,), 2: (2,)}), engine)
    commands = coordinator.handle(DOUBTED)
    assert [c.segment.worker for c in commands if isinstance(c, Assign)] == who


def test_an_opinion_takes_room() -> None:
    def judge(state: State, event: Event) -> Decision:
        orders = Orders(state)
        orders.assign(1, (2,))
        return orders.ask(9.0)

    coordinator = started(Scripted(LONELY, judge), Capabilities(rows_per_worker=1))
    assert coordinator.handle(DOUBTED) == [question(2, 1, 0, 1)]
    state = coordinator.state
    assert state is not None
    assert "one more than 1" in state.no_room(1)
    with pytest.raises(BrokenPlan, match="one more than 1"):
        coordinator.handle(WorkersLost((3,), 2.0))


# -- contradicted --------------------------------------------------------------------


@pytest.mark.parametrize("finite", [True, False])
def test_for_the_plan_a_worker_speaks_when_its_doubted_message_is_settled(
    finite: bool,
) -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    (asked,) = coordinator.handle(DOUBTED)
    state = coordinator.state
    assert state is not None
    assert state.spoke[0] == 1.0
    coordinator.handle(reply(asked, 2.0, finite))
    assert [event.worker for event in scheme.shown] == [0]
    assert state.spoke[0] == 2.0


def test_who_is_contradicted_has_failed_and_is_marked() -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    (asked,) = coordinator.handle(DOUBTED)
    assert coordinator.handle(reply(asked, 2.0)) == []
    reason = "not finite, which worker 1 contradicts"
    assert scheme.shown == [MessageFailed(0, 0, 1, reason, 2.0)]
    state = coordinator.state
    assert state is not None
    assert (state.contradicted, state.diverged) == ([0], False)
    assert (state.missing, state.messages[1].gone) == (4, True)  # not finished at all
    coordinator.handle(StepStarted(1, 3.0))
    assert coordinator.history.contradicted == {0: 1}
    assert coordinator.history.records[-1].contradicted == (0,)


def test_what_was_heard_contradicts_at_once() -> None:
    scheme = Scripted({0: (0, 1), 1: (1, 2), 2: (0, 3)})
    coordinator = started(scheme)
    coordinator.handle(MessageArrived(0, 1, 3, ((2, 2),), 0.5))
    coordinator.handle(MessageArrived(0, 2, 5, ((4, 2),), 0.5))
    assert coordinator.handle(DOUBTED) == []
    reason = "not finite, which workers [1, 2] contradict"
    assert scheme.shown[-1] == MessageFailed(0, 0, 1, reason, 1.0)


def test_what_was_heard_of_all_parts_but_one_does_not() -> None:
    scheme = Scripted({0: (0, 1), 1: (1, 2)})
    coordinator = started(scheme)
    coordinator.handle(MessageArrived(0, 1, 3, ((2, 2),), 0.5))
    assert coordinator.handle(DOUBTED) == [question(4, 1, 0, 1)]


def test_what_is_heard_later_contradicts_before_the_opinion_is_there() -> None:
    scheme = Scripted({0: (0, 1), 1: (1, 2), 2: (0, 3)})
    coordinator = started(scheme)
    coordinator.handle(DOUBTED)
    coordinator.handle(MessageArrived(0, 1, 3, ((2, 2),), 2.0))
    coordinator.handle(MessageArrived(0, 2, 5, ((4, 2),), 3.0))
    kinds = [(type(event), event.message) for event in scheme.shown]
    assert kinds == [(MessageArrived, 3), (MessageArrived, 5), (MessageFailed, 1)]


def test_a_sum_of_nothing_is_finite() -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    assert coordinator.handle(structs.replace(DOUBTED, cuts=((0, 0),))) == []
    reason = "not finite, though it holds no part"
    assert scheme.shown == [MessageFailed(0, 0, 1, reason, 1.0)]


def test_a_code_that_shares_no_list_is_told_by_several_together() -> None:
    coordinator = started(schemes.cyclic(5, 2))
    assert coordinator.handle(answer(0, 1.0, 3, finite=False)) == []
    coordinator.handle(answer(1, 2.0, 3))
    coordinator.handle(answer(2, 2.0, 3))
    (end,) = coordinator.handle(answer(3, 3.0, 3))
    assert isinstance(end, Combine)
    assert coordinator.history.contradicted == {0: 1}


def test_without_them_several_are_asked_for_a_piece_each() -> None:
    coordinator = started(schemes.cyclic(4, 1))  # parts 0 1, 1 2, 2 3, 3 0
    coordinator.handle(answer(1, 0.5, 2))
    coordinator.handle(WorkersLost((3,), 0.5))
    commands = coordinator.handle(answer(2, 1.0, 2, finite=False))
    assert [type(c) for c in commands] == [Assign]  # part 3 is with 2 and 3 only
    assert commands[0].segment.worker == 2
    coordinator = started(schemes.cyclic(4, 2))  # parts 0 1 2, 1 2 3, 2 3 0, 3 0 1
    for lost in (1, 3):
        coordinator.handle(WorkersLost((lost,), 0.5))
    coordinator.handle(answer(2, 0.75, 3))
    (piece,) = coordinator.handle(answer(0, 1.0, 3, finite=False))
    assert isinstance(piece, Assign)
    assert (piece.segment.worker, piece.segment.parts) == (0, (0, 1, 2))


def test_pieces_are_asked_of_those_who_have_them() -> None:
    class Split(Scripted):
        placement = ((0, 1, 2, 3), (0, 1), (2,), (2, 3))

    scheme = Split({0: (0, 1, 2, 3)})
    coordinator = started(scheme)
    event = MessageArrived(0, 0, 1, ((0, 4),), 1.0, finite=False)
    pieces = [question(2, 1, 0, 1), question(4, 3, 2, 3)]
    assert coordinator.handle(event) == pieces
    assert coordinator.handle(reply(pieces[0], 2.0)) == []
    assert scheme.shown == []
    coordinator.handle(reply(pieces[1], 3.0))
    reason = "not finite, which workers [1, 3] contradict"
    assert scheme.shown == [MessageFailed(0, 0, 1, reason, 3.0)]


def test_a_failed_row_is_asked_for_again_where_there_is_room() -> None:
    coordinator = started(schemes.uncoded(2))
    (asked,) = coordinator.handle(answer(0, 1.0, finite=False))
    assert asked == question(4, 0, 0)  # nobody else may have part 0
    again = question(6, 0, 0, about=None)  # by the plan
    assert coordinator.handle(reply(asked, 2.0)) == [again]
    coordinator.handle(answer(1, 2.0))
    (end,) = coordinator.handle(MessageArrived(0, 0, 7, ((6, 1),), 3.0))
    assert end == Combine(0, ((3, 1.0), (7, 1.0)), 0.0)
    assert coordinator.history.contradicted == {0: 1}


def test_the_sender_may_contradict_itself() -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    for worker in (1, 2, 3):
        coordinator.handle(WorkersLost((worker,), 0.5))
    (asked,) = coordinator.handle(DOUBTED)
    assert asked == question(2, 0, 0, 1)
    coordinator.handle(reply(asked, 2.0))
    reason = "not finite, which it contradicts itself"
    assert scheme.shown[-1] == MessageFailed(0, 0, 1, reason, 2.0)
    assert coordinator.state is not None
    assert coordinator.state.contradicted == [0]


# -- agreed upon, or not contradicted ------------------------------------------------


def test_what_two_agree_upon_is_handed_over_and_everything_doubted_with_it() -> None:
    scheme = Scripted({0: (0, 1), 1: (2, 3)})
    coordinator = started(scheme)
    (asked,) = coordinator.handle(DOUBTED)
    other = MessageArrived(0, 1, 3, ((2, 2),), 1.5, finite=False)
    coordinator.handle(other)
    assert scheme.shown == []
    coordinator.handle(reply(asked, 2.0, finite=False))
    assert scheme.shown == [
        structs.replace(DOUBTED, at=2.0), structs.replace(other, at=2.0)
    ]  # fmt: skip
    state = coordinator.state
    assert state is not None
    assert (state.heard, state.doubted) == ([1, 3], [])
    assert (state.diverged, state.contradicted) == (True, [])
    assert state.ledger.uncovered == 0


def test_after_an_agreement_nobody_is_asked() -> None:
    coordinator = started(schemes.fractional(4, 1))
    assert coordinator.handle(answer(0, 1.0, 2, finite=False)) == []
    assert coordinator.handle(answer(1, 2.0, 2, finite=False)) == []
    assert coordinator.handle(answer(2, 3.0, 2, finite=False)) == [
        Combine(0, ((1, 1.0), (5, 1.0)), 0.0)
    ]
    record = coordinator.history.records[-1]
    assert (record.diverged, record.contradicted) == (True, ())


def test_the_step_may_end_with_the_first_that_is_handed_over() -> None:
    coordinator = started(schemes.fractional(2, 1))
    coordinator.handle(answer(0, 1.0, 2, finite=False))
    assert coordinator.handle(answer(1, 2.0, 2, finite=False)) == [
        Combine(0, ((1, 1.0),), 0.0)
    ]


def test_agreeing_with_oneself_settles_only_ones_own() -> None:
    coordinator = started(schemes.uncoded(2))
    asked = coordinator.handle(answer(0, 1.0, finite=False))
    asked += coordinator.handle(answer(1, 1.0, finite=False))
    assert asked == [question(4, 0, 0), question(6, 1, 1, about=3)]
    assert coordinator.handle(reply(asked[0], 2.0, finite=False)) == []
    assert coordinator.state is not None
    assert coordinator.state.doubted == [3]
    assert coordinator.handle(reply(asked[1], 3.0, finite=False)) == [
        Combine(0, ((1, 1.0), (3, 1.0)), 0.0)
    ]
    assert coordinator.history.records[-1].diverged


def test_where_nobody_can_be_asked_it_is_handed_over() -> None:
    coordinator = started(schemes.uncoded(1), Capabilities(rows_per_worker=1))
    assert coordinator.handle(answer(0, 1.0, finite=False)) == [
        Combine(0, ((1, 1.0),), 0.0)
    ]
    assert coordinator.history.records[-1].diverged


def test_who_was_contradicted_has_no_say() -> None:
    scheme = Scripted({1: (0, 1), 0: (0, 1, 2)})
    coordinator = started(scheme)
    coordinator.handle(MessageArrived(0, 1, 1, ((0, 0),), 1.0, finite=False))
    assert coordinator.state is not None
    assert coordinator.state.contradicted == [1]
    for worker in (2, 3):
        coordinator.handle(WorkersLost((worker,), 1.0))
    event = MessageArrived(0, 0, 3, ((2, 3),), 2.0, finite=False)
    (asked,) = coordinator.handle(event)
    assert asked == question(4, 1, 0, 1, 2, about=3)
    (again,) = coordinator.handle(reply(asked, 3.0, finite=False))
    assert again == question(6, 0, 0, 1, 2, about=3)


# -- when something comes in between -------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        WorkersLost((1,), 2.0),
        MessageFailed(0, 1, 3, "torn", 2.0),
        MessageArrived(0, 1, 3, ((2, 1),), 2.0),  # of one part only
    ],
    ids=["lost", "failed", "short"],
)
def test_if_no_opinion_comes_of_it_another_is_asked_each_once(trouble: Event) -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    coordinator.handle(DOUBTED)
    assert coordinator.handle(trouble) == [question(4, 2, 0, 1)]
    assert coordinator.handle(MessageFailed(0, 2, 5, "torn", 3.0)) == [
        question(6, 0, 0, 1)
    ]
    assert coordinator.handle(MessageFailed(0, 0, 7, "torn", 4.0)) == []
    assert scheme.shown[-1] == structs.replace(DOUBTED, at=4.0)  # nobody is left
    assert [type(event) for event in scheme.shown[:-1]] in ([], [WorkersLost])


def test_a_doubt_is_dropped_with_the_worker_that_is_lost() -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)
    (asked,) = coordinator.handle(DOUBTED)
    assert coordinator.handle(WorkersLost((0,), 2.0)) == []
    assert coordinator.handle(reply(asked, 3.0)) == []
    assert scheme.shown == [WorkersLost((0,), 2.0)]
    assert coordinator.state is not None
    assert (coordinator.state.doubted, coordinator.state.contradicted) == ([], [])


def test_a_plan_that_drops_the_sender_hears_no_more_of_it() -> None:
    def judge(state: State, event: Event) -> Decision:
        orders = Orders(state)
        orders.drop(0)
        return orders.ask(9.0)

    scheme = Scripted({0: (0, 1), 1: (0, 1)}, judge)
    coordinator = started(scheme)
    coordinator.handle(DOUBTED)
    coordinator.handle(MessageArrived(0, 1, 3, ((2, 2),), 2.0))
    assert scheme.shown == [MessageArrived(0, 1, 3, ((2, 2),), 2.0)]
    assert coordinator.state is not None
    assert coordinator.state.contradicted == [0]  # marked all the same


def test_a_plan_that_drops_who_was_asked_makes_it_another() -> None:
    def judge(state: State, event: Event) -> Decision:
        orders = Orders(state)
        orders.drop(1)
        return orders.ask(9.0)

    coordinator = started(Scripted(LONELY, judge))
    coordinator.handle(DOUBTED)
    commands = coordinator.handle(WorkersLost((3,), 2.0))
    assert commands == [Drop(0, 1), question(4, 2, 0, 1)]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (structs.replace(DOUBTED, at=2.0), "repeated"),
        (structs.replace(DOUBTED, at=2.0, finite=True), "repeated"),
        (MessageFailed(0, 0, 1, "torn", 2.0), "repeated"),
        (MessageArrived(0, 2, 3, ((2, 2),), 2.0), "unknown"),  # it was worker 1
        (MessageArrived(0, 1, 3, ((2, 3),), 2.0), "inconsistent"),
        (Progressed(0, 1, 2, 0, False, 2.0), "repeated"),
    ],
)
def test_what_cannot_be_is_turned_away(event: Event, why: str) -> None:
    coordinator = started(Scripted(LONELY))
    coordinator.handle(DOUBTED)
    assert coordinator.handle(event) == []
    assert coordinator.ignored == {why: 1}


def test_an_inconsistent_message_is_not_doubted() -> None:
    coordinator = started(Scripted(LONELY))
    assert coordinator.handle(structs.replace(DOUBTED, cuts=((0, 3),))) == []
    assert coordinator.ignored == {"inconsistent": 1}
    assert coordinator.state is not None
    assert coordinator.state.doubted == []


def test_what_the_plan_does_not_see_brings_an_overtaken_timer_along() -> None:
    scheme = Scripted(LONELY)
    coordinator = started(scheme)  # the timer is at 9
    commands = coordinator.handle(structs.replace(DOUBTED, at=9.5))
    assert commands == [question(2, 1, 0, 1), WakeAt(0, 18.5)]
    assert coordinator.handle(Progressed(0, 1, 2, 1, False, 19.0)) == [WakeAt(0, 28.0)]
    assert scheme.shown == [TimerFired(9.5), TimerFired(19.0)]


def test_an_opinion_that_does_not_come_lets_the_step_end_without() -> None:
    coordinator = started(schemes.fractional(2, 1))
    coordinator.handle(answer(0, 1.0, 2, finite=False))
    (end,) = coordinator.handle(TimerFired(1800.0))
    assert isinstance(end, GiveUp)
    record = coordinator.history.records[-1]
    assert (record.diverged, record.contradicted) == (False, ())


def test_plans_count_on_after_a_question() -> None:
    def judge(state: State, event: Event) -> Decision:
        orders = Orders(state)
        orders.assign(2, (3,))
        return orders.ask(9.0)

    coordinator = started(Scripted(LONELY, judge))
    coordinator.handle(DOUBTED)
    commands = coordinator.handle(WorkersLost((1,), 2.0))
    assert commands == [
        question(4, 2, 0, 1),
        Assign(0, Segment(6, 2, (3,), (1.0,)), None),
    ]


# -- what is remembered --------------------------------------------------------------


def test_a_doubted_message_that_comes_again_after_the_end_is_not_late() -> None:
    coordinator = started(schemes.fractional(2, 1))
    coordinator.handle(answer(0, 1.0, 2, finite=False))
    coordinator.handle(answer(1, 2.0, 2))
    coordinator.handle(answer(0, 5.0, 2, finite=False))
    record = coordinator.history.records[-1]
    seen = record.observe(0)
    assert record.late == {}
    assert seen is not None
    assert (seen.done, seen.seconds, seen.ended) == (2, 1.0, "answered")


def test_who_gave_an_opinion_has_done_more() -> None:
    coordinator = started(Scripted({0: (0, 1), 1: (2,)}))
    coordinator.handle(DOUBTED)  # worker 2 is idle, and is asked
    coordinator.handle(WorkersLost((2,), 1.5))  # then 1 is
    coordinator.handle(MessageArrived(0, 1, 3, ((2, 1),), 2.0))
    coordinator.handle(MessageArrived(0, 1, 7, ((6, 2),), 5.0))
    coordinator.handle(StepStarted(1, 6.0))
    record = next(r for r in coordinator.history.records if r.step == 0)
    seen = record.observe(1)
    assert seen is not None
    assert (seen.load, seen.done, seen.seconds, seen.ended) == (3, 3, 5.0, "answered")
    assert record.observe(2) is None  # it was asked for nothing else


def test_a_message_without_the_field_is_finite_and_a_finite_one_is_written_so() -> None:
    line = (
        b'{"type":"MessageArrived","step":0,"worker":0,"message":1,'
        b'"cuts":[[0,2]],"at":1.0}'
    )
    event = json.decode(line, type=MessageArrived)
    assert event.finite
    assert json.encode(event) == line
    assert json.decode(json.encode(DOUBTED), type=MessageArrived) == DOUBTED


def test_a_replay_asks_the_same() -> None:
    events: list[Event] = [
        StepStarted(0, 0.0), DOUBTED, WorkersLost((1,), 2.0),
        MessageArrived(0, 2, 5, ((4, 2),), 3.0),
    ]  # fmt: skip
    runs: list[list[list[Command]]] = []
    for _ in range(2):
        coordinator = Coordinator(Scripted(LONELY))
        runs.append([coordinator.handle(event) for event in events])
    assert runs[0] == runs[1]
