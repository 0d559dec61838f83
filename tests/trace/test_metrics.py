"""What a trace says about its steps, against examples worked out by hand."""

from collections.abc import Sequence

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
    WorkerJoined,
    WorkerLost,
)
from codedgrad.delays import Chain, Pauses, ShiftedExponential, Times
from codedgrad.schemes import (
    CodedScheme,
    clustered,
    cyclic,
    fractional,
    ignore,
    uncoded,
)
from codedgrad.schemes.stop_rules import Decodable, Within
from codedgrad.sim import Machine, Simulator
from codedgrad.testing import Everything
from codedgrad.trace import (
    Entry,
    Header,
    Reporter,
    StepReport,
    Trace,
    Waiting,
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


# -- by hand ---------------------------------------------------------------------------


def test_an_uncoded_step_by_hand() -> None:
    (report,) = reports(simulated(uncoded(3), [[1.0, 2.0, 4.0]]))
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
        waiting=Waiting(at_least=4.0, estimate=4.0),  # this is waiting for all
    )


def test_a_replicated_step_with_stragglers_by_hand() -> None:
    # Everybody holds all three parts; the uncoded load is one. Worker 0 has them at
    # 3; worker 1 has one at 2 and was in its second; worker 2 was in its first.
    (report,) = reports(simulated(fractional(3, 2), [[1.0, 2.0, 5.0]]))
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
        waiting=Waiting(at_least=3.0, estimate=3.0),  # worker 2: more than 3 for one
    )


def test_without_progress_less_is_known() -> None:
    (report,) = reports(
        simulated(fractional(3, 2), [[1.0, 2.0, 5.0]], capabilities=SILENT)
    )
    assert (report.work, report.wasted, report.busy) == (3, 0, 1.0)
    # Nobody is known to need more than a third of the 3 s for a third of the parts.
    assert report.waiting == Waiting(at_least=1.0, estimate=1.0)


def test_a_fixed_share_is_not_scaled_down() -> None:
    # Worker 1 pays 4 s and then 1 s a part; at 5.5 it is in its second.
    trace = simulated(fractional(2, 1), [[2.75, 1.0]], fixed=[[0.0, 4.0]])
    (report,) = reports(trace)
    assert report.seconds == 5.5
    assert report.waiting.at_least == 5.0  # what one part took it; 5.5 / 2 is less


def test_the_estimate_takes_late_workers_as_their_past_suggests() -> None:
    # Step 0: worker 2 shows 2 s a part. Step 1: it has shown nothing after 1.5 s.
    trace = simulated(fractional(3, 2), [[1.0, 1.5, 2.0], [0.5, 1.0, 5.0]])
    first, second = reports(trace)
    assert first.waiting == Waiting(at_least=2.0, estimate=2.0)
    assert second.waiting.at_least == 1.5
    assert second.waiting.estimate == pytest.approx(2.0)


def test_an_estimate_is_never_of_the_step_itself() -> None:
    # One step only: there is no past, so there is nothing to add to what was seen.
    (report,) = reports(simulated(fractional(3, 2, pieces=2), [[1.0, 2.5, 5.9]]))
    assert report.waiting.estimate == report.waiting.at_least


def test_who_answered_is_not_guessed_at() -> None:
    # A slow past does not count for a worker that has answered.
    trace = simulated(uncoded(2), [[9.0, 9.0], [1.0, 2.0]])
    assert reports(trace)[1].waiting == Waiting(2.0, 2.0)


def test_copies_and_weights_of_a_code_are_counted_by_part() -> None:
    # cyclic(3, 1): rows of two parts; workers 0 and 1 answer, worker 2 has done one.
    (report,) = reports(simulated(cyclic(3, 1), [[1.0, 1.25, 2.0]]))
    assert (report.seconds, report.heard, report.late) == (2.5, (0, 1), (2,))
    assert (report.work, report.wasted, report.messages) == (5, 2, 2)


def test_an_inexact_step_states_its_residual() -> None:
    (report,) = reports(simulated(ignore(3, 2), [[1.0, 2.0, 9.0]]))
    assert report.combined
    assert report.residual == pytest.approx(2 * 0.5**2 + 1.0)
    assert (report.late, report.work, report.wasted) == ((2,), 2, 0)


def test_a_step_that_hears_nobody_wastes_all_and_knows_little() -> None:
    scheme = CodedScheme("within", codes.uncoded(2), Within(0.5))
    (report,) = reports(simulated(scheme, [[1.0, 2.0]]))
    assert (report.combined, report.residual, report.heard) == (True, 2.0, ())
    assert report.waiting == Waiting(0.5, 0.5)


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
    superseded, cancelled, whole = reports(trace)
    assert (superseded.step, cancelled.step, whole.step) == (0, 1, 2)
    assert (superseded.seconds, cancelled.seconds, whole.seconds) == (3.0, 1.5, 2.0)
    assert not superseded.combined
    assert not cancelled.combined
    assert whole.combined
    assert superseded.residual == cancelled.residual == 2.0
    assert (superseded.heard, superseded.late) == ((0,), (1,))
    assert (superseded.work, superseded.wasted) == (1, 1)
    assert superseded.waiting.at_least == 3.0
    assert (cancelled.work, cancelled.late) == (0, (0, 1))
    reasons = [getattr(end, "reason", "") for _, end in ended_steps(trace)]
    assert reasons == ["superseded", "cancelled", ""]


def test_a_step_superseded_by_one_that_is_open_still_counts_once() -> None:
    trace = decided(uncoded(1), [StepStarted(0, 0.0), StepStarted(5, 1.0)])
    (report,) = reports(trace)
    assert report.step == 0


def test_a_worker_that_is_lost_is_late_and_its_time_ends_there() -> None:
    trace = decided(
        fractional(2, 1),
        [
            StepStarted(0, 0.0),
            Progressed(0, 0, 0, 1, False, 1.0),
            WorkerLost(0, 1.5),
            WorkerLost(0, 1.6),
            WorkerLost(9, 1.7),
            MessageArrived(0, 1, 3, ((2, 2),), 4.0),
            WorkerJoined(0, 4.5),
        ],
    )
    (report,) = reports(trace)
    assert (report.heard, report.late) == ((1,), (0,))
    assert report.busy == pytest.approx((1.5 + 4.0) / 8.0)
    assert report.waiting.at_least == 2.0  # worker 1: two parts in 4 s
    lost = next(row for row in arrivals(trace) if row.worker == 0)
    assert (lost.ended, lost.elapsed, lost.done) == ("lost", 1.5, 1)


def test_a_worker_not_asked_is_neither_heard_nor_late() -> None:
    inf = float("inf")
    (report,) = reports(simulated(fractional(2, 1), [[1.0, inf]]))
    assert (report.heard, report.late, report.busy) == ((0,), (), 0.5)


def test_what_arrives_after_the_end_is_late_but_known() -> None:
    # 0.5 s each way: worker 1 is done at 2.75, its message is there at 3.25, and the
    # step was over at 3.
    trace = simulated(fractional(2, 1), [[1.0, 1.125], [1.0, 1.0]], latency=0.5)
    first, _ = reports(trace)
    assert (first.seconds, first.heard, first.late) == (3.0, (0,), (1,))
    row = next(row for row in arrivals(trace) if (row.step, row.worker) == (0, 1))
    assert (row.ended, row.done, row.heard) == ("answered", 2, False)
    assert row.seconds == row.elapsed == 3.25
    (record, _), _ = ended_steps(trace)
    assert record.late == {1: 3.25}


def test_a_trace_without_whole_steps_has_no_reports() -> None:
    assert reports(Trace(header_of(uncoded(2)), ())) == []


# -- what is not finite ----------------------------------------------------------------


def test_who_was_contradicted_is_late_and_its_work_wasted() -> None:
    events = [
        StepStarted(0, 0.0),
        MessageArrived(0, 0, 1, ((0, 2),), 1.0, finite=False),
        MessageArrived(0, 1, 3, ((2, 2),), 2.0),
    ]
    trace = decided(fractional(2, 1), events)
    (report,) = reports(trace)
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
    (report,) = reports(trace)
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
    (report,) = reports(trace)
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
    (report,) = reports(trace)
    assert (report.heard, report.late, report.wasted) == ((0, 1), (), 0)
    ((record, _),) = ended_steps(trace)
    assert record.diverged


def test_a_step_reported_when_it_ends_is_reported_alike_from_its_trace() -> None:
    scheme, live = cyclic(5, 2), list[StepReport]()
    part = np.random.default_rng(0).exponential(1.0, (8, 5)).tolist()
    trace = simulated(scheme, part, latency=0.125)
    coordinator, report = Coordinator(scheme), Reporter(5, 5)
    for entry in trace.entries:
        for command in coordinator.handle(entry.event):
            if isinstance(command, Combine | GiveUp):
                history = coordinator.history
                live.append(report(history.records[-1], command, history))
    assert live == reports(trace)
    assert len(live) == len(part)


# -- the bound is one ------------------------------------------------------------------


def test_a_worker_still_at_its_old_part_is_not_thought_slow() -> None:
    # Worker 1 is in a part of step 0 until 9; in step 1 it would need half a second.
    # That it has not answered after 2 s of step 1 says nothing about step 1.
    part = [[1.0, 9.0], [1.0, 0.5]]
    drained = reports(simulated(fractional(2, 1), part, capabilities=DRAINS))[1]
    assert drained.late == (1,)
    assert drained.waiting.at_least == 1.0  # worker 0, one part
    prompt = reports(simulated(fractional(2, 1), part))[1]
    assert prompt.heard == (1,)


TWICE = codes.from_matrix(
    [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]], tolerance=1, owner=(0, 0, 1, 1)
)
EXACT = [
    uncoded(5), uncoded(5, pieces=3), fractional(6, 2), fractional(4, 1, pieces=3),
    cyclic(5, 2), cyclic(6, 3, pieces=2), cyclic(5, 1, rule="threshold"),
    clustered(8, 2, 1, pieces=2), Everything(5), Everything(5, each=1),
    Everything(6, each=4, copies=2),
    CodedScheme("two messages each", TWICE, Decodable()),
]  # fmt: skip
LAWS = [
    ShiftedExponential(floor=0.1, mean=1.0),
    Chain(
        ShiftedExponential(floor=0.5, mean=0.5, fixed_mean=0.5),
        Pauses(probability=0.2, low=1.0, high=4.0),
    ),
]


@pytest.mark.quick("*-progress-fixed share", "*-silent-no fixed share")
@pytest.mark.parametrize("law", LAWS, ids=["no fixed share", "fixed share"])
@pytest.mark.parametrize("progress", [True, False], ids=["progress", "silent"])
@pytest.mark.parametrize("scheme", EXACT, ids=lambda s: s.name)
def test_what_was_seen_never_says_more_than_waiting_for_all_would_take(
    scheme: Scheme, progress: bool, law: ShiftedExponential
) -> None:
    load, bounds, truths = scheme.parts // scheme.workers, list[float](), list[float]()
    for machine in (
        Machine(drain=False, progress=progress),
        Machine(drain=True, progress=progress),
        Machine(drain=True, progress=progress, latency=0.125),
        Machine(drain=False, progress=progress, latency=0.125),
    ):
        for seed in range(2):
            times: Times = law.sample(np.random.default_rng(seed), 12, scheme.workers)
            part = times.part(scheme.parts)
            trace = simulated(
                scheme,
                part.tolist(),
                times.fixed.tolist(),
                machine.capabilities,
                machine.latency,
            )
            alone = times.fixed + load * part + 2 * machine.latency
            for report, truth in zip(reports(trace), alone.max(axis=1), strict=True):
                waiting = report.waiting
                assert waiting.at_least <= truth + 1e-9, (machine, seed, report)
                assert waiting.at_least <= waiting.estimate
                bounds.append(waiting.at_least)
                truths.append(truth)
    share = sum(bounds) / sum(truths)
    print(f"{scheme.name}: the bound is {share:.0%} of the truth on average")
    assert share > (0.3 if progress else 0.15)  # a bound of 0 would be one, too
