"""What steps tell of their workers: seconds a part, seconds a message."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from codedgrad.advise import paces_of_trace, said, who_is_slow
from codedgrad.advise.slow.stopwatch import Stopwatch, StopwatchRow
from codedgrad.advise.slow.times import SecondsByStep, paces_of_rows
from codedgrad.core import (
    Capabilities,
    Coordinator,
    Event,
    MessageArrived,
    Progressed,
    Scheme,
    StepStarted,
)
from codedgrad.core.history import Stretch
from codedgrad.delays import Times
from codedgrad.schemes import build, fractional, uncoded
from codedgrad.sim import Machine, header_of, run_events
from codedgrad.trace import Entry, Header, Trace


def simulated(
    scheme: Scheme, seconds: np.ndarray, machine: Machine | None = None
) -> SecondsByStep:
    """Return the paces of steps in which the uncoded load takes these seconds."""
    machine, times = machine or Machine(), Times(np.zeros_like(seconds), seconds)
    entries: list[Entry] = []
    run_events(
        scheme,
        times,
        machine,
        watch=lambda event, commands: entries.append(Entry(event, tuple(commands))),
    )
    return paces_of_trace(Trace(header_of(scheme, times, machine), tuple(entries)))


def jittered(steps: int = 40, workers: int = 8) -> np.ndarray:
    return np.random.default_rng(3).uniform(1.0, 1.05, (steps, workers))


def read(events: Sequence[Event], scheme: Scheme, **engine: bool) -> list[StopwatchRow]:
    """Return what every step of a run told."""
    coordinator = Coordinator(scheme, Capabilities(**engine))
    stopwatch, told = Stopwatch(scheme.workers), []
    for event in events:
        before = len(coordinator.history.records)
        coordinator.handle(event)
        if len(coordinator.history.records) > before:
            told.append(stopwatch.read(coordinator.history.records[-1]))
    return told


# -- parts ---------------------------------------------------------------------------


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize(
    "scheme",
    ["uncoded", "uncoded(pieces=4)", "fractional(3)", "cyclic(2)", "two_stage"],
)
def test_seconds_of_a_share_do_not_depend_on_the_load(scheme: str, drain: bool) -> None:
    built = build(scheme, 8)
    seconds = jittered()
    told = simulated(built, seconds, Machine(drain=drain))
    [part] = [series for series in told.series if series.cause == "compute"]
    exact = np.isfinite(part.seconds) & ~part.is_bound
    ratio = part.seconds[exact] / seconds[exact]
    assert exact.mean() > 0.5
    assert np.median(ratio) == pytest.approx(1.0, abs=0.02)
    assert ratio.min() > 0.94
    assert ratio.max() < 1.06
    assert said(who_is_slow(told)) == ["nobody is slow"]


def test_loads_that_differ_make_nobody_slow() -> None:
    scheme = build("proportional(0, speeds=[1, 1, 2, 4], parts=8)", 4)
    loads = {len(parts) for parts in scheme.placement}
    assert len(loads) > 1
    told = simulated(scheme, jittered(workers=4))
    assert said(who_is_slow(told)) == ["nobody is slow"]


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize(
    "scheme", ["uncoded", "fractional(1)", "cyclic(2)", "dynamic(4, 1)", "two_stage"]
)
def test_the_slow_worker_is_found_whatever_the_scheme(scheme: str, drain: bool) -> None:
    seconds = jittered()
    seconds[:, 2] *= 1.5
    told = simulated(build(scheme, 8), seconds, Machine(drain=drain))
    [verdict] = who_is_slow(told).verdicts
    assert (verdict.worker, str(verdict.kind)) == (2, "always slow")
    assert 1.3 < verdict.factor < 1.55


@pytest.mark.parametrize("drain", [False, True])
def test_who_is_never_waited_for_is_slow_at_least(drain: bool) -> None:
    seconds = jittered()
    seconds[:, 2] *= 10
    told = simulated(fractional(8, tolerance=1), seconds, Machine(drain=drain))
    [verdict] = who_is_slow(told).verdicts
    assert (verdict.worker, verdict.is_bound) == (2, not drain)
    if drain:  # it finishes its part in hand, and says so
        assert verdict.factor == pytest.approx(10, rel=0.05)
    else:
        assert 1.9 < verdict.factor < 10


def test_a_worker_that_drains_after_a_spell_is_not_slow_for_ever() -> None:
    seconds = jittered(steps=80)
    seconds[20:30, 2] *= 10
    told = simulated(fractional(8, tolerance=1), seconds, Machine(drain=True))
    [verdict] = who_is_slow(told).verdicts
    assert (verdict.worker, str(verdict.kind)) == (2, "sometimes slow")
    assert verdict.since == 20
    assert 29 <= verdict.until <= 36


def test_who_has_nothing_to_show_is_said_to_be_unknown() -> None:
    seconds = jittered()
    seconds[:, 2] *= 10
    told = simulated(
        fractional(8, tolerance=1), seconds, Machine(drain=True, progress=False)
    )
    found = who_is_slow(told)
    assert said(found) == ["nobody is slow"]
    [doubt] = found.doubts
    assert doubt.startswith("How slow worker 2 is now cannot be told")
    assert found.remarks == (
        "Messages were not seen apart: what they took is in “compute”.",
    )


def test_a_lower_bound_is_never_above_the_truth() -> None:
    draw = np.random.default_rng(5)
    seconds = draw.uniform(1.0, 3.0, 6) * np.ones((20, 6))
    for scheme in ("fractional(1)", "fractional(2)", "cyclic(2)", "two_stage"):
        built = build(scheme, 6)
        told = simulated(built, seconds, Machine(drain=True))
        [part] = [series for series in told.series if series.cause == "compute"]
        truth = seconds
        seen = np.isfinite(part.seconds)
        assert (part.seconds[seen] <= truth[seen] * (1 + 1e-6)).all(), scheme


def test_a_part_that_was_in_hand_counts_once_by_hand() -> None:
    # Worker 1 has its first part of step 0 after 1.5 s, is dropped at 2 s with the
    # second in hand, finishes that unseen, and reports a part of step 1 at 4.5 s.
    scheme = fractional(2, tolerance=1)
    events = [
        StepStarted(0, at=0.0),
        Progressed(0, 1, segment=2, done=1, closed=False, at=1.5),
        MessageArrived(0, 0, message=1, cuts=((0, 2),), at=2.0),
        StepStarted(1, at=2.0),
        Progressed(1, 1, segment=2, done=1, closed=False, at=4.5),
        MessageArrived(1, 0, message=1, cuts=((0, 2),), at=5.0),
    ]
    first, second = read(events, scheme, interrupts_part=False)
    assert first.part.tolist() == [1.0, 1.5]
    assert not first.part_is_bound.any()
    assert second.part.tolist() == [1.5, 1.5]  # two parts from 1.5 s to 4.5 s
    first, second = read(events, scheme)  # where it was stopped at once
    assert second.part.tolist() == [1.5, 2.5]


def test_a_step_without_a_report_makes_a_bound_of_all_it_may_have_done() -> None:
    scheme = fractional(2, tolerance=1)
    events: list[Event] = []
    for step in range(3):
        events.append(StepStarted(step, at=10.0 * step))
        events.append(MessageArrived(step, 0, 1, ((0, 2),), at=10.0 * step + 2))
    rows = read(events, scheme, interrupts_part=False)
    assert [row.part[1] for row in rows] == [2.0, 2.0, 2.0]  # pauses are not in it
    assert all(row.part_is_bound[1] for row in rows)


def test_a_lost_worker_is_not_there() -> None:
    seconds = jittered(steps=30)
    seconds[12:, 5] = np.inf
    seconds[3:6, 4] = np.inf
    found = who_is_slow(simulated(fractional(8, tolerance=1), seconds))
    assert said(found) == [
        "nobody is slow",
        "worker 5 is gone since step 12",
        "worker 4 was lost in step 3 and came back",
    ]


# -- what is carried from step to step -----------------------------------------------


def told(*steps: list[Stretch]) -> list[tuple[float, bool]]:
    """Return what a stopwatch reads of one worker whose stretches are these."""
    stopwatch, found = Stopwatch(1), []
    capabilities = Capabilities(interrupts_part=False)
    for number, stretches in enumerate(steps):
        record = SimpleNamespace(
            step=number,
            alive=(True,),
            state=SimpleNamespace(capabilities=capabilities, messages={}),
            stretches=lambda worker, found=stretches: found,
        )
        row = stopwatch.read(record)  # type: ignore[arg-type]
        found.append((float(row.part[0]), bool(row.part_is_bound[0])))
    return found


REPORT = Stretch(10.0, ((1, 13.0),), 0, 13.0, "answered", True)


def test_after_a_step_without_orders_it_may_have_paused() -> None:
    late = Stretch(0.0, (), 1, 2.0, "dropped", False)
    *_, last = told([late], [], [REPORT])
    assert last == (1.5, True)  # in 3 s the part in hand, perhaps, and this one


def test_a_new_life_begins_with_nothing_in_hand() -> None:
    lost = Stretch(0.0, (), 1, 2.0, "lost", False)
    assert told([lost], [REPORT]) == [(2.0, True), (3.0, False)]


def test_a_long_pause_between_steps_leaves_a_bound() -> None:
    late = Stretch(0.0, (), 1, 2.0, "dropped", False)
    assert told([late], [REPORT]) == [(2.0, True), (2.5, True)]
    at_once = Stretch(2.0, ((1, 5.0),), 0, 5.0, "answered", True)
    assert told([late], [at_once]) == [(2.0, True), (2.5, False)]


# -- messages ------------------------------------------------------------------------


def sent(
    travel: np.ndarray, compute: np.ndarray, progress: bool = True
) -> SecondsByStep:
    """Return the paces of a run in which messages take so long after computing."""
    steps, workers = travel.shape
    scheme = uncoded(workers)
    capabilities = Capabilities(progress=progress)
    coordinator, entries, now = Coordinator(scheme, capabilities), [], 0.0
    for step in range(steps):
        events: list[Event] = [StepStarted(step, at=now)]
        for worker in range(workers):
            done = now + float(compute[step, worker])
            at, segment = done + float(travel[step, worker]), 2 * worker
            if progress:
                events.append(Progressed(step, worker, segment, 1, True, at=done))
            cuts = ((segment, 1),)
            events.append(MessageArrived(step, worker, segment + 1, cuts, at=at))
        events.sort(key=lambda event: event.at)
        now = events[-1].at
        for event in events:
            entries.append(Entry(event, tuple(coordinator.handle(event))))
    header = Header(
        scheme=scheme.name, workers=workers, parts=workers, capabilities=capabilities
    )
    return paces_of_trace(Trace(header, tuple(entries)))


def test_a_slow_connection_is_told_from_a_slow_machine() -> None:
    compute, travel = jittered(), 0.1 * jittered()
    compute[:, 1] *= 2
    travel[:, 6] *= 9
    found = who_is_slow(sent(travel, compute))
    told = {(v.worker, v.cause): round(v.factor, 1) for v in found.verdicts}
    assert told == {(1, "compute"): 2.0, (6, "network"): 1.7}
    assert found.remarks == ()


def test_messages_that_hardly_matter_make_nobody_slow() -> None:
    compute, travel = jittered(), 0.001 * jittered()
    travel[:, 6] *= 9
    assert said(who_is_slow(sent(travel, compute))) == ["nobody is slow"]


def test_who_is_served_last_is_no_outlier_among_those_served_in_turn() -> None:
    travel = np.linspace(0.1, 0.8, 8) * np.ones((40, 1))
    assert said(who_is_slow(sent(travel, jittered()))) == ["nobody is slow"]


def test_without_reports_a_message_is_part_of_computing() -> None:
    travel = 0.1 * jittered()
    travel[:, 6] *= 9
    found = who_is_slow(sent(travel, jittered(), progress=False))
    [verdict] = found.verdicts
    assert (verdict.worker, verdict.cause) == (6, "compute")
    assert "not seen apart" in found.remarks[0]


def rows_of_messages(last_work: float) -> list[StopwatchRow]:
    """Return steps of 1 s whose last one has other work and one message of 3 ms."""
    none = np.zeros(4, dtype=bool)
    rows = []
    for step in range(16):
        is_last = step == 15
        message = np.full(4, 0.001)
        message[2] = 0.003 if is_last else 0.001
        work = last_work if is_last else 1.0
        part = np.full(4, work / 8)
        rows.append(StopwatchRow(step, part, none, message, none, work, ~none))
    return rows


@pytest.mark.parametrize("last_work", [1.0, 0.001])
def test_a_message_is_not_slow_because_the_last_batch_is_small(
    last_work: float,
) -> None:
    paces = paces_of_rows(rows_of_messages(last_work), workers=4)
    assert [each.cause for each in paces.series] == ["compute", "network"]
    assert all("network" not in told for told in said(who_is_slow(paces)))
