"""Trees, watched from outside: what is gathered, by whom, and who is believed."""

from collections.abc import Sequence

import pytest

from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Event,
    MessageArrived,
    Segment,
    StepStarted,
    TimerFired,
    Upload,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.patience import Deadline
from codedgrad.core.state import State
from codedgrad.errors import Violation
from codedgrad.schemes import CodedReduce, coded_reduce
from codedgrad.testing import Gathering, Invariants, check_scheme
from codedgrad.testing.invariants import check_state


class Three:
    """Worker 1 sends to worker 0, who gathers it; worker 2 may have any part."""

    name, workers, parts, tolerance, exact = "three", 3, 2, 0, True
    placement = ((0,), (1,), (0, 1))


START = (
    StepStarted(0, 0.0),
    [
        Assign(0, Segment(0, 0, (0,), (2.0,)), None, whole=True),
        Assign(0, Segment(1, 1, (1,), (4.0,)), 2, whole=True, to=0),
    ],
)
HEARD = (MessageArrived(0, 1, 2, ((1, 1),), 1.0), [])
UPLOAD = Upload(0, 0, 3, (0,), ((2, 0.5),))
ASKED = (TimerFired(2.0), [UPLOAD])
LOST = (WorkersLost((0,), 1.1), [])
BACK = (WorkersJoined((0,), 1.2), [])
SENT = (MessageArrived(0, 0, 3, ((0, 1),), 3.0), [])
END = Combine(0, ((3, 0.5),), 0.0)

Script = Sequence[tuple[Event, list[Command]]]


def watch(script: Script, scheme: object = Three) -> Invariants:
    invariants = Invariants(scheme, Capabilities())
    for event, commands in script:
        invariants(event, commands)
    return invariants


def test_a_sum_of_what_was_gathered_is_weighed_through_and_through() -> None:
    watch([START, HEARD, ASKED, SENT, (TimerFired(4.0), [END])])


@pytest.mark.parametrize(
    "gathered",
    [(), ((2, 0.25),), ((2, -0.5),)],
    ids=["not at all", "half of it", "with the wrong sign"],
)
def test_a_sum_that_gathers_wrongly_is_found(
    gathered: tuple[tuple[int, float], ...],
) -> None:
    asked = (TimerFired(2.0), [Upload(0, 0, 3, (0,), gathered)])
    with pytest.raises(Violation, match="part 1 weighs"):
        watch([START, HEARD, asked, SENT, (TimerFired(4.0), [END])])


@pytest.mark.parametrize(
    "script",
    [
        [START, ASKED],
        [START, (TimerFired(1.0), [Upload(0, 0, 3, (0,), ((9, 1.0),))])],
        [START, (MessageArrived(0, 1, 9, ((1, 1),), 1.0), []),
         (TimerFired(1.0), [Upload(0, 0, 3, (0,), ((9, 1.0),))])],
        [START, HEARD, LOST, BACK, ASKED],
        [START, HEARD, BACK, ASKED],
        [(START[0], [START[1][0], Assign(0, START[1][1].segment, 2)]), HEARD, ASKED],
    ],
    ids=[
        "not yet there", "of nobody", "not asked for", "of a former life",
        "of a former life that nobody saw end", "sent to the root",
    ],
)  # fmt: skip
def test_whoever_gathers_what_it_has_not_is_found(script: Script) -> None:
    with pytest.raises(Violation, match="who gathers messages has them"):
        watch(script)


@pytest.mark.parametrize(
    "order",
    [
        Assign(0, Segment(3, 1, (1,), (1.0,)), 4, to=0),
        Upload(0, 1, 3, (1,), (), 0),
    ],
    ids=["when it is done", "at once"],
)
def test_a_message_to_a_worker_that_is_lost_is_found(order: Command) -> None:
    with pytest.raises(Violation, match="no message goes to a lost worker"):
        watch([START, (WorkersLost((0,), 1.0), []), (TimerFired(2.0), [order])])


def test_a_root_that_weighs_what_was_sent_to_a_worker_is_found() -> None:
    end = Combine(0, ((2, 0.25),), 0.0)
    with pytest.raises(Violation, match="only heard messages are weighed"):
        watch([START, HEARD, (TimerFired(4.0), [end])])


def test_a_root_that_weighs_what_nobody_was_asked_for_is_found() -> None:
    stray = (MessageArrived(0, 1, 9, ((1, 1),), 1.0), [])
    with pytest.raises(Violation, match="only heard messages are weighed"):
        watch([START, stray, (TimerFired(4.0), [Combine(0, ((9, 1.0),), 0.0)])])


# -- not finite ------------------------------------------------------------------------

BAD = (MessageArrived(0, 1, 2, ((1, 1),), 1.0, finite=False), [])
BAD_SENT = (MessageArrived(0, 0, 3, ((0, 1),), 3.0, finite=False), [])


def test_who_passes_a_nan_on_is_no_second_witness() -> None:
    with pytest.raises(Violation, match="nobody is believed alone: worker 2 was not"):
        watch([START, BAD, ASKED, BAD_SENT, (TimerFired(4.0), [END])])


def test_a_nan_is_believed_when_everybody_else_was_asked() -> None:
    question = Assign(0, Segment(4, 2, (1,), (4.0,)), 5, whole=True)
    asked = (TimerFired(3.5), [question])
    watch([START, BAD, ASKED, BAD_SENT, asked, (TimerFired(4.0), [END])])


def test_a_nan_of_its_own_makes_an_inner_worker_a_witness_of_its_own_parts() -> None:
    with pytest.raises(Violation, match="nobody is believed alone: worker 2 was not"):
        watch([START, HEARD, ASKED, BAD_SENT, (TimerFired(4.0), [END])])


# -- the ledger ------------------------------------------------------------------------


def state_of_three() -> State:
    placed = tuple(map(frozenset, Three.placement))
    deadline = Deadline(60.0, "a test")
    state = State(0, 0.0, placed, 2, [True] * 3, deadline, Capabilities())
    for order in START[1]:
        state.obey(order)
    state.accept(HEARD[0])
    state.obey(UPLOAD)
    return state


def test_a_recount_counts_what_was_gathered() -> None:
    state = state_of_three()
    check_state(state)
    state.accept(SENT[0])
    check_state(state)
    assert state.ledger.covered == [1, 1]
    state.ledger.covered[1] = 0
    with pytest.raises(Violation, match="the ledger is right: covered"):
        check_state(state)


def test_waiting_for_a_message_to_somebody_who_is_lost_is_found() -> None:
    state = state_of_three()
    state.obey(Upload(0, 1, 4, (1,), (), 0))
    state.alive[0] = False
    state.forget(0, "lost")
    check_state(state)
    state.messages[4].gone = False
    with pytest.raises(Violation, match="what is lost is not waited for: message 4"):
        check_state(state)


# -- whole schemes ---------------------------------------------------------------------


def test_the_scheme_that_tests_engines_is_one() -> None:
    scheme = Gathering()
    assert [len(parts) for parts in scheme.placement] == [2] * scheme.workers
    assert scheme.parts == 8


def spoilt(**changes: object) -> CodedReduce:
    """A tree whose layout is not what it should be."""
    scheme = coded_reduce(12, 3, 1)
    for name, value in changes.items():
        object.__setattr__(scheme.layout, name, value)
    return scheme


def test_a_tree_whose_weights_are_not_inherited_is_found() -> None:
    """The easiest mistake to make: leaves that know only the last entry of B."""
    right = coded_reduce(12, 3, 1)
    flat = [
        (parts, tuple(0.5 * weight for weight in weights))
        if right.tree.is_leaf(worker) and worker % 3 == 0
        else (parts, weights)
        for worker, (parts, weights) in enumerate(right.layout.own)
    ]
    with pytest.raises(Violation, match="every part is in the sum exactly once"):
        check_scheme(spoilt(own=tuple(flat)), schedules=5)


def test_a_tree_that_forgets_a_part_is_found() -> None:
    right = coded_reduce(12, 3, 1)
    short = [(parts[:-1], weights[:-1]) for parts, weights in right.layout.own]
    with pytest.raises(Violation, match=r"exactly once|a part is placed nowhere"):
        check_scheme(spoilt(own=tuple(short)), schedules=5)
