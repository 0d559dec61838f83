"""How alike messages are: asked for by a plan, told by the driver, kept in the history.

And what an estimator makes of it.
"""

from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from codedgrad import schemes
from codedgrad.core import (
    Assign,
    Combine,
    Coordinator,
    Finish,
    MessageArrived,
    MessagesCompared,
    Record,
    StepCancelled,
    StepStarted,
    WakeAt,
)
from codedgrad.learning.estimators import Likeness
from codedgrad.testing import Comparing

ASKING = Comparing(schemes.fractional(4, 1))  # workers 0 and 1 are one group
PRODUCTS = ((1, 1, 2.0), (1, 5, -0.5), (5, 5, 3.0))


def answer(worker: int, at: float, step: int = 0) -> MessageArrived:
    return MessageArrived(step, worker, 2 * worker + 1, ((2 * worker, 2),), at)


def ended(scheme: object = ASKING) -> Coordinator:
    """A step that has ended with the messages 1 and 5."""
    coordinator = Coordinator(scheme)
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(answer(0, 1.0))
    coordinator.handle(answer(2, 2.0))
    return coordinator


# -- asking and being told -------------------------------------------------------------


def test_a_plan_that_asks_is_asked_for_in_the_command() -> None:
    coordinator = Coordinator(ASKING)
    started = coordinator.handle(StepStarted(0, 0.0))
    assert [type(c) for c in started] == [Assign] * 4 + [WakeAt]
    assert coordinator.handle(answer(0, 1.0)) == []
    assert coordinator.handle(answer(2, 2.0)) == [
        Combine(0, ((1, 1.0), (5, 1.0)), 0.0, compare=True)
    ]


def test_nobody_asks_unless_a_plan_does() -> None:
    assert Finish((), 1.0) == Finish((), 1.0, compare=False)
    end = Combine(0, ((1, 1.0),), 0.5)
    assert end.compared == ()
    assert b"compare" not in msgspec.json.encode(end)  # traces stay as they were
    assert repr(end) == "Combine(step=0, weights=((1, 1.0),), residual=0.5)"


def test_the_first_sixteen_messages_weighed_are_compared() -> None:
    weights = tuple((3 * number, 1.0) for number in range(20))
    end = Combine(0, weights, 0.0, compare=True)
    assert end.compared == tuple(range(0, 48, 3))
    assert Combine(0, weights[:2], 0.0, compare=True).compared == (0, 3)
    assert Combine(0, (), 4.0, compare=True).compared == ()


def test_what_is_told_is_in_the_record_and_decides_nothing() -> None:
    coordinator = ended()
    assert coordinator.history.records[-1].products == ()
    assert coordinator.handle(MessagesCompared(0, PRODUCTS, at=2.5)) == []
    assert coordinator.history.records[-1].products == PRODUCTS
    assert not coordinator.ignored


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (MessagesCompared(1, PRODUCTS, 2.5), "late"),
        (MessagesCompared(0, ((1, 3, 1.0),), 2.5), "unknown"),  # 3 was not heard
        (MessagesCompared(0, ((1, 99, 1.0),), 2.5), "unknown"),
        (MessagesCompared(0, ((5, 1, 1.0),), 2.5), "inconsistent"),
        (MessagesCompared(0, ((1, 5, 1.0), (1, 5, 1.0)), 2.5), "inconsistent"),
        (MessagesCompared(0, ((1, 1, float("nan")),), 2.5), "inconsistent"),
        (MessagesCompared(0, ((1, 1, float("inf")),), 2.5), "inconsistent"),
    ],
)
def test_what_cannot_be_is_turned_away(event: MessagesCompared, why: str) -> None:
    coordinator = ended()
    assert coordinator.handle(event) == []
    assert coordinator.ignored == {why: 1}
    assert coordinator.history.records[-1].products == ()


def test_what_is_told_twice_changes_nothing() -> None:
    coordinator = ended()
    coordinator.handle(MessagesCompared(0, PRODUCTS, at=2.5))
    other = MessagesCompared(0, ((1, 1, 9.0),), at=2.5)
    assert coordinator.handle(other) == []
    assert coordinator.ignored == {"repeated": 1}
    assert coordinator.history.records[-1].products == PRODUCTS


def test_when_the_next_step_has_started_it_is_too_late() -> None:
    coordinator = Coordinator(ASKING)
    assert coordinator.handle(MessagesCompared(0, (), at=0.0)) == []  # too early
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(answer(0, 1.0))
    assert coordinator.handle(MessagesCompared(0, ((1, 1, 1.0),), at=1.0)) == []
    coordinator.handle(answer(2, 2.0))
    coordinator.handle(StepStarted(1, 3.0))
    assert coordinator.handle(MessagesCompared(0, PRODUCTS, at=4.0)) == []
    assert coordinator.ignored == {"late": 3}
    assert coordinator.history.records[-1].products == ()


def test_a_step_that_gave_no_sum_has_nothing_to_compare() -> None:
    coordinator = Coordinator(ASKING)
    coordinator.handle(StepStarted(0, 0.0))
    coordinator.handle(answer(0, 1.0))
    coordinator.handle(StepCancelled(0, 2.0))
    assert coordinator.handle(MessagesCompared(0, ((1, 1, 1.0),), at=2.0)) == []
    assert coordinator.ignored == {"unknown": 1}


def test_trackers_are_told_with_the_step_whenever_they_were_made() -> None:
    coordinator = Coordinator(Comparing(schemes.uncoded(2)))
    early = coordinator.history.follow(Likeness())
    coordinator.handle(StepStarted(0, 0.0))
    for worker in range(2):
        cuts = ((2 * worker, 1),)
        coordinator.handle(MessageArrived(0, worker, 2 * worker + 1, cuts, 1.0))
    products = ((1, 1, 4.0), (1, 3, 1.0), (3, 3, 4.0))
    coordinator.handle(MessagesCompared(0, products, at=1.0))
    assert early.correlation is None
    coordinator.handle(StepStarted(1, 2.0))
    assert early.correlation == pytest.approx(0.25)
    later = coordinator.history.follow(Likeness(forget=0.5))
    assert later.correlation == pytest.approx(0.25)


# -- how alike gradients are -----------------------------------------------------------


def told(rows: dict[int, dict[int, float]], gram: np.ndarray) -> Record:
    """A step whose messages, with these coefficients, are of gradients like this."""
    a = {id_: np.zeros(len(gram)) for id_ in rows}
    for id_, row in rows.items():
        for part, coefficient in row.items():
            a[id_][part] = coefficient
    products = tuple(
        (one, other, float(a[one] @ gram @ a[other]))
        for one in rows
        for other in rows
        if one <= other
    )
    state = SimpleNamespace(row=rows.__getitem__)
    return cast(Record, SimpleNamespace(products=products, state=state))


def equal(rho: float, parts: int = 6, scale: float = 1.0) -> np.ndarray:
    """The inner products of gradients of one length and one correlation."""
    return scale * ((1 - rho) * np.eye(parts) + rho)


ROWS = {1: {0: 1.0, 1: 2.0}, 3: {1: -1.0, 2: 1.0, 3: 0.5}, 5: {4: 1.0}, 7: {5: 3.0}}


@pytest.mark.parametrize("rho", [-0.2, -1 / 9, 0.0, 0.3, 0.9])
def test_gradients_of_one_correlation_have_it(rho: float) -> None:
    tracker = Likeness().start(4)
    assert tracker.correlation is None
    tracker.update(told(ROWS, equal(rho)))
    assert tracker.correlation == pytest.approx(rho, abs=1e-9)


def test_neither_training_nor_the_scale_of_a_code_changes_what_is_believed() -> None:
    tracker, larger = Likeness().start(4), {}
    for id_, row in ROWS.items():
        larger[id_] = {part: 100 * coefficient for part, coefficient in row.items()}
    for step, rows in enumerate([ROWS, larger] * 3):
        tracker.update(told(rows, equal(0.4, scale=0.01**step)))
        assert tracker.correlation == pytest.approx(0.4, abs=1e-9)


def test_whoever_is_heard_the_answer_is_the_same() -> None:
    rng, tracker = np.random.default_rng(0), Likeness().start(4)
    for _ in range(30):
        heard = sorted(rng.choice(sorted(ROWS), size=3, replace=False).tolist())
        tracker.update(told({id_: ROWS[id_] for id_ in heard}, equal(0.5)))
        assert tracker.correlation == pytest.approx(0.5, abs=1e-9)


def test_what_was_is_forgotten() -> None:
    trackers = [Likeness(forget).start(4) for forget in (0.5, 1.0)]
    for tracker in trackers:
        for rho in (0.9, *[0.1] * 5):
            tracker.update(told(ROWS, equal(rho)))
    short, long = (tracker.correlation for tracker in trackers)
    assert short == pytest.approx(0.1, abs=0.02)
    assert long > short


@pytest.mark.parametrize(("rho", "believed"), [(0.99, 0.95), (-0.9, -0.5)])
def test_the_answer_stays_where_codes_can_use_it(rho: float, believed: float) -> None:
    tracker = Likeness().start(2)
    tracker.update(told({1: {0: 1.0}, 3: {1: 1.0}}, equal(rho, parts=2)))
    assert tracker.correlation == believed


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {1: {0: 1.0, 1: 1.0}},  # alone
        {1: {0: 1.0, 1: 1.0}, 3: {0: 2.0, 1: 2.0}},  # the same once more
        {1: {}, 3: {}},
    ],
    ids=["nothing", "one message", "copies", "empty messages"],
)
def test_messages_that_cannot_tell_leave_the_answer_as_it_was(
    rows: dict[int, dict[int, float]],
) -> None:
    tracker = Likeness().start(2)
    tracker.update(told(rows, equal(0.3, parts=2)))
    assert tracker.correlation is None
    tracker.update(told(ROWS, equal(0.3)))
    before = tracker.correlation
    tracker.update(told(rows, equal(-0.5, parts=2)))
    assert tracker.correlation == before


def test_gradients_of_zero_say_nothing_and_huge_ones_are_taken() -> None:
    tracker = Likeness().start(2)
    tracker.update(told(ROWS, np.zeros((6, 6))))
    assert tracker.correlation is None
    tracker.update(told({1: {0: 1.0}, 3: {1: 1.0}}, equal(0.3, parts=2, scale=1e308)))
    assert tracker.correlation == pytest.approx(0.3)


def test_what_no_correlation_can_have_made_leaves_the_answer_as_it_was() -> None:
    tracker = Likeness(forget=0.5).start(2)
    unequal = np.array([[1.0, 1.0], [1.0, 5.0]])  # gradients of very unlike lengths
    rows = {1: {0: 1.0, 1: 1.0}, 3: {0: -2.0, 1: -1.0}, 5: {0: 2.0, 1: 1.0}}
    tracker.update(told(rows, unequal))
    assert tracker.correlation is None
    for _ in range(40):
        tracker.update(told(ROWS, equal(0.2)))
    assert tracker.correlation == pytest.approx(0.2, abs=1e-9)
