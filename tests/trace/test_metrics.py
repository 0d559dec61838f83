"""What a trace says about its steps, against examples worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from codedgrad import codes
from codedgrad.core import (
    Capabilities,
    Combine,
    Coordinator,
    Event,
    GiveUp,
    MessageArrived,
    Progressed,
    Scheme,
    StepCancelled,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.learning.savings import Waiting
from codedgrad.schemes import (
    CodedScheme,
    cyclic,
    fractional,
    ignore,
    uncoded,
)
from codedgrad.schemes.stop_rules import Within
from codedgrad.sim import Simulator
from codedgrad.trace import (
    Entry,
    Header,
    Reporter,
    StepReport,
    Trace,
    arrivals,
    ended_steps,
    reports,
)

DRAINS = Capabilities(interrupts_part=False)
SILENT = Capabilities(progress=False)


def simulated(
    scheme: Scheme,
    part: Sequence[Sequence[float]],
    fixed: Sequence[Sequence[float]] | None = None,
    capabilities: Capabilities | None = None,
    latency: float = 0.0,
) -> Trace:
    """Run steps in which parts take these seconds."""
    capabilities, entries = capabilities or Capabilities(), list[Entry]()
    simulator = Simulator(
        scheme,
        capabilities=capabilities,
        latency=latency,
        watch=lambda event, commands: entries.append(Entry(event, tuple(commands))),
    )
    for number, row in enumerate(part):
        simulator.step(list(fixed[number]) if fixed else [0.0] * len(row), list(row))
    return Trace(header_of(scheme, capabilities), tuple(entries))


def header_of(scheme: Scheme, capabilities: Capabilities | None = None) -> Header:
    return Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        capabilities=capabilities or Capabilities(),
    )


def decided(
    scheme: Scheme, events: Sequence[Event], capabilities: Capabilities | None = None
) -> Trace:
    """Let a coordinator decide about these events."""
    coordinator = Coordinator(scheme, capabilities)
    entries = [Entry(event, tuple(coordinator.handle(event))) for event in events]
    return Trace(header_of(scheme, capabilities or Capabilities()), tuple(entries))


def steps_of(trace: Trace) -> list[StepReport]:
    return list(reports(trace).steps)


# -- by hand ---------------------------------------------------------------------------


def test_an_uncoded_step_by_hand() -> None:
    (report,) = steps_of(simulated(uncoded(3), [[1.0, 2.0, 4.0]]))
    assert report == StepReport(
        step=0,
        seconds=4.0,
        combined=True,
        residual=0.0,
        heard=(0, 1, 2),
        late=(),
        messages=3,
        work=3,
        wasted=0,
        busy=pytest.approx(7.0 / 12.0),
        waiting=Waiting(4.0, 4.0, 4.0),  # this is waiting for all
    )


def test_a_replicated_step_with_stragglers_by_hand() -> None:
    # Everybody holds all three parts; the uncoded load is one. Worker 0 has them at
    # 3; worker 1 has one at 2 and was in its second; worker 2 was in its first.
    (report,) = steps_of(simulated(fractional(3, 2), [[1.0, 2.0, 5.0]]))
    assert report == StepReport(
        step=0,
        seconds=3.0,
        combined=True,
        residual=0.0,
        heard=(0,),
        late=(1, 2),
        messages=1,
        work=4,
        wasted=1,
        busy=1.0,
        waiting=Waiting(3.0, 3.0, 3.0, is_bound=True),  # worker 2: more for one
    )


def test_without_progress_less_is_known() -> None:
    trace = simulated(fractional(3, 2), [[1.0, 2.0, 5.0]], capabilities=SILENT)
    (report,) = steps_of(trace)
    assert (report.work, report.wasted, report.busy) == (3, 0, 1.0)


def test_copies_and_weights_of_a_code_are_counted_by_part() -> None:
    # cyclic(3, 1): rows of two parts; workers 0 and 1 answer, worker 2 has done one.
    (report,) = steps_of(simulated(cyclic(3, 1), [[1.0, 1.25, 2.0]]))
    assert (report.seconds, report.heard, report.late) == (2.5, (0, 1), (2,))
    assert (report.work, report.wasted, report.messages) == (5, 2, 2)


def test_an_inexact_step_states_its_residual() -> None:
    (report,) = steps_of(simulated(ignore(3, 2), [[1.0, 2.0, 9.0]]))
    assert report.combined
    assert report.residual == pytest.approx(2 * 0.5**2 + 1.0)
    assert (report.late, report.work, report.wasted) == ((2,), 2, 0)


def test_a_step_that_hears_nobody_wastes_all_and_knows_little() -> None:
    scheme = CodedScheme("within", codes.uncoded(2), Within(0.5))
    (report,) = steps_of(simulated(scheme, [[1.0, 2.0]]))
    assert (report.combined, report.residual, report.heard) == (True, 2.0, ())


# -- ends of other kinds ---------------------------------------------------------------


def answer(worker: int, at: float, step: int = 0) -> MessageArrived:
    """The answer of a worker to an uncoded step."""
    return MessageArrived(step, worker, 2 * worker + 1, ((2 * worker, 1),), at)


def test_superseded_and_cancelled_steps_are_reported_as_given_up() -> None:
    trace = decided(
        uncoded(2),
        [
            StepStarted(0, 0.0),
            answer(0, 1.0),
            StepStarted(1, 3.0),  # supersedes step 0
            StepCancelled(1, 4.5),
            StepCancelled(1, 4.6),  # too late
            StepStarted(1, 4.7),  # not again
            StepStarted(2, 5.0),
            answer(1, 6.0, step=2),
            answer(0, 7.0, step=2),
        ],
    )
    superseded, cancelled, whole = steps_of(trace)
    assert (superseded.step, cancelled.step, whole.step) == (0, 1, 2)
    assert (superseded.seconds, cancelled.seconds, whole.seconds) == (3.0, 1.5, 2.0)
    assert not superseded.combined
    assert not cancelled.combined
    assert whole.combined
    assert superseded.residual == cancelled.residual == 2.0
    assert (superseded.heard, superseded.late) == ((0,), (1,))
    assert (superseded.work, superseded.wasted) == (1, 1)
    assert (cancelled.work, cancelled.late) == (0, (0, 1))
    reasons = [getattr(end, "reason", "") for _, end in ended_steps(trace)]
    assert reasons == ["superseded", "cancelled", ""]


def test_a_step_superseded_by_one_that_is_open_still_counts_once() -> None:
    trace = decided(uncoded(1), [StepStarted(0, 0.0), StepStarted(5, 1.0)])
    (report,) = steps_of(trace)
    assert report.step == 0


def test_a_worker_that_is_lost_is_late_and_its_time_ends_there() -> None:
    trace = decided(
        fractional(2, 1),
        [
            StepStarted(0, 0.0),
            Progressed(0, 0, 0, 1, False, 1.0),
            WorkersLost((0,), 1.5),
            WorkersLost((0,), 1.6),
            WorkersLost((9,), 1.7),
            MessageArrived(0, 1, 3, ((2, 2),), 4.0),
            WorkersJoined((0,), 4.5),
        ],
    )
    (report,) = steps_of(trace)
    assert (report.heard, report.late) == ((1,), (0,))
    assert report.busy == pytest.approx((1.5 + 4.0) / 8.0)
    lost = next(row for row in arrivals(trace) if row.worker == 0)
    assert (lost.ended, lost.elapsed, lost.done) == ("lost", 1.5, 1)


def test_workers_that_are_lost_together_are_late_and_their_time_ends_there() -> None:
    trace = decided(
        fractional(4, 3),
        [
            StepStarted(0, 0.0),
            Progressed(0, 0, 0, 1, False, 1.0),
            WorkersLost((2, 9, 0, 2), 1.5),
            MessageArrived(0, 1, 3, ((2, 4),), 4.0),
            WorkersJoined((0, 2), 4.5),
            StepStarted(1, 5.0),
            MessageArrived(1, 2, 5, ((4, 4),), 6.0),
        ],
    )
    first, second = steps_of(trace)
    assert (first.heard, first.late) == ((1,), (0, 2, 3))
    assert (second.heard, second.late) == ((2,), (0, 1, 3))
    lost = [row for row in arrivals(trace) if row.ended == "lost"]
    assert [(r.step, r.worker, r.elapsed, r.done) for r in lost] == [
        (0, 0, 1.5, 1), (0, 2, 1.5, 0),
    ]  # fmt: skip


def test_a_worker_not_asked_is_neither_heard_nor_late() -> None:
    inf = float("inf")
    (report,) = steps_of(simulated(fractional(2, 1), [[1.0, inf]]))
    assert (report.heard, report.late, report.busy) == ((0,), (), 0.5)


def test_what_arrives_after_the_end_is_late_but_known() -> None:
    # 0.5 s each way: worker 1 is done at 2.75, its message is there at 3.25, and the
    # step was over at 3.
    trace = simulated(fractional(2, 1), [[1.0, 1.125], [1.0, 1.0]], latency=0.5)
    first, _ = steps_of(trace)
    assert (first.seconds, first.heard, first.late) == (3.0, (0,), (1,))
    row = next(row for row in arrivals(trace) if (row.step, row.worker) == (0, 1))
    assert (row.ended, row.done, row.heard) == ("answered", 2, False)
    assert row.seconds == row.elapsed == 3.25
    (record, _), _ = ended_steps(trace)
    assert record.late == {1: 3.25}


def test_a_trace_without_whole_steps_has_no_reports() -> None:
    found = reports(Trace(header_of(uncoded(2)), ()))
    assert (found.steps, found.savings.steps) == ((), 0)
    assert str(found.savings) == "no step has ended yet"


# -- what is not finite ----------------------------------------------------------------


def test_who_was_contradicted_is_late_and_its_work_wasted() -> None:
    events = [
        StepStarted(0, 0.0),
        MessageArrived(0, 0, 1, ((0, 2),), 1.0, finite=False),
        MessageArrived(0, 1, 3, ((2, 2),), 2.0),
    ]
    trace = decided(fractional(2, 1), events)
    (report,) = steps_of(trace)
    assert (report.heard, report.late, report.messages) == ((1,), (0,), 1)
    assert (report.work, report.wasted) == (4, 2)
    ((record, _),) = ended_steps(trace)
    assert (record.contradicted, record.diverged) == ((0,), False)


def test_who_was_agreed_with_is_heard() -> None:
    events = [
        StepStarted(0, 0.0),
        MessageArrived(0, 0, 1, ((0, 2),), 1.0, finite=False),
        MessageArrived(0, 1, 3, ((2, 2),), 2.0, finite=False),
    ]
    trace = decided(fractional(2, 1), events)
    (report,) = steps_of(trace)
    assert (report.heard, report.late, report.messages) == ((0, 1), (), 2)
    assert (report.work, report.wasted) == (4, 2)
    ((record, _),) = ended_steps(trace)
    assert (record.contradicted, record.diverged) == ((), True)


def test_an_opinion_is_work_and_no_message_of_the_plan() -> None:
    events = [
        StepStarted(0, 0.0),
        MessageArrived(0, 0, 1, ((0, 1),), 1.0, finite=False),
        MessageArrived(0, 0, 5, ((4, 1),), 2.0),  # finite, done again
        MessageArrived(0, 1, 3, ((2, 1),), 2.0),
        MessageArrived(0, 0, 7, ((6, 1),), 3.0),  # asked for again by the plan
    ]
    trace = decided(uncoded(2), events, Capabilities(rows_per_worker=2))
    (report,) = steps_of(trace)
    assert (report.heard, report.late, report.messages) == ((0, 1), (), 2)
    assert (report.work, report.wasted) == (4, 2)
    ((record, _),) = ended_steps(trace)
    assert record.contradicted == (0,)


def test_where_nobody_could_be_asked_it_is_heard_at_once() -> None:
    events = [
        StepStarted(0, 0.0),
        MessageArrived(0, 0, 1, ((0, 1),), 1.0, finite=False),
        MessageArrived(0, 1, 3, ((2, 1),), 2.0),
    ]
    trace = decided(uncoded(2), events, Capabilities(rows_per_worker=1))
    (report,) = steps_of(trace)
    assert (report.heard, report.late, report.wasted) == ((0, 1), (), 0)
    ((record, _),) = ended_steps(trace)
    assert record.diverged


def test_a_step_reported_when_it_ends_is_reported_alike_from_its_trace() -> None:
    scheme, live = cyclic(5, 2), list[StepReport]()
    part = np.random.default_rng(0).exponential(1.0, (8, 5)).tolist()
    trace = simulated(scheme, part, latency=0.125, capabilities=DRAINS)
    coordinator, report = Coordinator(scheme, DRAINS), Reporter(5, 5)
    for entry in trace.entries:
        for command in coordinator.handle(entry.event):
            if isinstance(command, Combine | GiveUp):
                live.append(report(coordinator.history.records[-1], command))
    told = reports(trace)
    assert [replace(each, waiting=None) for each in live] == [
        replace(each, waiting=None) for each in told.steps
    ]
    assert report.waiting.means() == told.savings
    assert len(live) == len(part)
