"""How long a worker took for each part, worked out by hand."""

from collections.abc import Sequence

import pytest

from codedgrad.core import (
    Capabilities,
    Coordinator,
    Event,
    MessageArrived,
    Progressed,
    Record,
    Scheme,
    StepStarted,
    WorkerFreed,
    WorkersLost,
)
from codedgrad.learning.part_times import PartTimes, part_times
from codedgrad.schemes import fractional, two_stage

DRAINS = Capabilities(interrupts_part=False)


def records(
    scheme: Scheme, events: Sequence[Event], capabilities: Capabilities = DRAINS
) -> list[Record]:
    coordinator = Coordinator(scheme, capabilities)
    for event in events:
        coordinator.handle(event)
    return list(coordinator.history.records)


def first_step(*more: Event) -> list[Event]:
    """Worker 0 answers at 2 s; worker 1 has one part at 1.5 s and is in its second."""
    return [
        StepStarted(0, at=0.0),
        Progressed(0, 1, segment=2, done=1, closed=False, at=1.5),
        MessageArrived(0, 0, message=1, cuts=((0, 2),), at=2.0),
        *more,
    ]


def test_a_part_takes_from_the_report_before_it_to_its_own() -> None:
    [record] = records(fractional(2, tolerance=1), first_step())
    seen = part_times(record, 1, free_since=float("-inf"))
    assert seen.seconds == [1.5]
    assert (seen.began, seen.pending, seen.until) == (1.5, 1, 2.0)
    assert seen.elapsed == 0.5
    # Worker 0 reported two parts in one message: each is half of its time.
    assert part_times(record, 0, float("-inf")).seconds == [1.0, 1.0]


def test_the_part_in_hand_ends_when_the_worker_is_free() -> None:
    events = first_step(WorkerFreed(0, 1, seconds=2.75, at=90.0))  # the root was away
    [record] = records(fractional(2, tolerance=1), events)
    assert record.state.freed == {1: [(90.0, 2.75)]}
    seen = part_times(record, 1, float("-inf"))
    seen.free(2.75)
    assert seen.seconds == [1.5, 2.75]
    assert seen.pending == 0


def test_a_part_reported_after_the_end_was_one_more() -> None:
    three = fractional(3, tolerance=2)
    events = [
        StepStarted(0, at=0.0),
        MessageArrived(0, 0, message=1, cuts=((0, 3),), at=2.0),
        Progressed(0, 1, segment=2, done=1, closed=False, at=2.5),  # was on its way
        WorkerFreed(0, 1, seconds=2.5, at=5.0),
    ]
    [record] = records(three, events)
    assert record.state.unused == {1: 1}
    seen = part_times(record, 1, float("-inf"))
    seen.free(2.5, record.state.unused[1])
    assert seen.seconds == [2.5, 2.5]


def test_the_next_step_begins_when_the_worker_is_free() -> None:
    events = first_step(
        StepStarted(1, at=2.0),
        WorkerFreed(0, 1, seconds=1.5, at=3.0),
        Progressed(1, 1, segment=2, done=1, closed=False, at=4.5),
        MessageArrived(1, 0, message=1, cuts=((0, 2),), at=5.0),
    )
    _, record = records(fractional(2, tolerance=1), events)
    assert part_times(record, 1, free_since=3.0).seconds == [1.5]  # and not 2.5


def test_a_lost_worker_has_nothing_in_hand() -> None:
    start, report, answer = first_step()
    events = [start, report, WorkersLost((1,), at=1.75), answer]
    [record] = records(fractional(2, tolerance=1), events)
    seen = part_times(record, 1, float("-inf"))
    assert (seen.seconds, seen.pending, seen.lost_at) == ([1.5], 0, 1.75)


def test_a_worker_that_was_asked_nothing_has_no_parts() -> None:
    [record] = records(
        fractional(2, tolerance=1), [WorkersLost((1,), at=0.0), *first_step()[0::2]]
    )
    assert part_times(record, 1, float("-inf")) == PartTimes()


def test_segments_that_wait_behind_another_are_not_in_hand() -> None:
    """A worker with a list of segments is at the first; the others were not begun."""
    scheme = two_stage(2, pieces=4)
    events: list[Event] = [StepStarted(0, at=0.0)]
    coordinator = Coordinator(scheme, DRAINS)
    given = [c.segment for c in coordinator.handle(events[0]) if hasattr(c, "segment")]
    own = [segment for segment in given if segment.worker == 1]
    assert len(own) > 1  # or this tests nothing
    coordinator.handle(Progressed(0, 1, own[0].id, 1, True, at=1.0))
    other = next(segment for segment in given if segment.worker == 0)
    coordinator.handle(Progressed(0, 0, other.id, 1, True, at=1.5))
    coordinator.history.ended(coordinator.state, combined=False)
    seen = part_times(coordinator.history.records[-1], 1, float("-inf"))
    assert (seen.seconds, seen.began, seen.pending) == ([1.0], 1.0, 1)


@pytest.mark.parametrize("worker", [-1, 2, 99])
def test_freed_workers_that_do_not_exist_are_ignored(worker: int) -> None:
    coordinator = Coordinator(fractional(2, tolerance=1), DRAINS)
    for event in first_step():
        coordinator.handle(event)
    assert coordinator.handle(WorkerFreed(0, worker, 1.0, at=3.0)) == []
    assert coordinator.handle(WorkerFreed(7, 1, 1.0, at=3.0)) == []  # no such step
    assert coordinator.ignored["unknown"] == 2
    assert coordinator.handle(WorkerFreed(0, 1, -1.0, at=3.0)) == []
    assert coordinator.ignored["inconsistent"] == 1
