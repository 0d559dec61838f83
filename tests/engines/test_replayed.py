"""A recorded run once more: the same numbers to the last bit, without its workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from codedgrad.core import (
    Command,
    Event,
    MessageArrived,
    MessageFailed,
    Patience,
    Scheme,
    StepCancelled,
    StepStarted,
    TimerFired,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Here, Local, Replayed, train
from codedgrad.engines.faults import CORRUPTIONS
from codedgrad.errors import (
    CodedgradError,
    InvalidJob,
    InvalidOptions,
    InvalidTrace,
    ProtocolError,
    StepGivenUp,
)
from codedgrad.jobs import Gradient, NumpyJob, Training
from codedgrad.schemes import cyclic, fractional, uncoded
from codedgrad.schemes.stop_rules import Within
from codedgrad.testing import EXAMPLES, Everything
from codedgrad.trace import Entry, StepReport, Trace, read

STEPS = 8
SIZE = 1003  # numbers in a model: no multiple of what a processor adds at once
LONG = 70_003  # several blocks of a sum


# -- with workers in trouble -----------------------------------------------------------


def in_trouble(faults: FaultPlan) -> FaultPlan:
    return faults.kill(1, 2).stop(0, 4, 0.03).kill(3, 5)


def corrupt_all(faults: FaultPlan) -> FaultPlan:
    for step, how in enumerate(CORRUPTIONS, 2):
        faults.corrupt(0, step, how)
    return faults


@dataclass(frozen=True)
class Case:
    """A scheme, and what is done to its workers."""

    scheme: Scheme
    faults: Callable[[FaultPlan], FaultPlan] = in_trouble
    late: dict[int, float] = field(default_factory=lambda: {2: 0.004})
    size: int = SIZE

    def __str__(self) -> str:
        long = ", long" if self.size == LONG else ""
        wrong = ", corrupted" if self.faults is corrupt_all else ""
        return f"{self.scheme.workers} {self.scheme.name}{long}{wrong}"


def hurried(scheme: Scheme) -> Scheme:
    if isinstance(rule := getattr(scheme, "rule", None), Within):
        return replace(scheme, rule=Within(0.03, rule.rule))
    return scheme


CASES = [
    *(Case(hurried(scheme)) for scheme in EXAMPLES),
    Case(cyclic(9, 3), size=LONG),  # runs of neighbours, with weights
    Case(Everything(5, each=3)),
    Case(uncoded(4), corrupt_all),
    Case(fractional(4, 1), corrupt_all, late={1: 0.02}),
    Case(cyclic(5, 2), corrupt_all, late={3: 0.02, 4: 0.02}),
]
NUMBERED = pytest.mark.parametrize("number", range(len(CASES)), ids=map(str, CASES))
QUICK = pytest.mark.quick(
    "4 uncoded",
    "5 cyclic(tolerance=2)",
    "6 clustered(clusters=2, tolerance=1)",
    "6 heterogeneous*",
    "6 coded_reduce(children=2, tolerance=1)",
    "6 two_stage",
    "5 auto(pieces=3)",
    "9 cyclic*, long",
    "4 fractional*, corrupted",
)


def model(size: int) -> Gradient:
    """Make a gradient of so many numbers, with other data in every part and step."""
    slopes = np.random.default_rng(0).uniform(0.5, 1.5, (7, size))

    def gradient(
        x: np.ndarray, part: int, step: int
    ) -> tuple[float, float, np.ndarray]:
        gap = slopes[(part + 3 * step) % 7] * x - slopes[part % 7]
        return float(np.sum(gap * gap)) / 2, 1.0 + part % 2, gap  # not by BLAS threads

    return gradient


@dataclass(frozen=True)
class Run:
    training: Training[StepReport]
    faults: FaultPlan
    trace: Path


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    """Run a case, once."""
    folder = tmp_path_factory.mktemp("traces")

    @cache
    def run(number: int) -> Run:
        case = CASES[number]
        faults, path = case.faults(FaultPlan()), folder / f"{number}.jsonl"
        fixed = np.zeros((1, case.scheme.workers))
        for worker, seconds in case.late.items():
            fixed[0, worker] = seconds
        training = train(
            model(case.size),
            np.zeros(case.size),
            case.scheme,
            steps=STEPS,
            engine=Local(open_segments=20),
            delays=Times(fixed=fixed, unit=np.zeros_like(fixed)),
            faults=faults,
            trace=path,
        )
        return Run(training, faults, path)

    return run


@QUICK
@NUMBERED
def test_a_replay_gives_the_same_numbers_to_the_last_bit(
    run_of: Callable[[int], Run], number: int, tmp_path: Path
) -> None:
    case, run, again = CASES[number], run_of(number), tmp_path / "again.jsonl"
    assert run.faults.all_fired, (run.faults.planned, run.faults.fired)
    training = train(
        model(case.size),
        np.zeros(case.size),
        case.scheme,
        steps=STEPS,
        engine=Replayed(run.trace),
        trace=again,
    )
    assert training.parameters.tobytes() == run.training.parameters.tobytes()
    assert training.loss.tobytes() == run.training.loss.tobytes()
    assert training.steps == run.training.steps
    assert read(again).entries == read(run.trace).entries


def test_what_is_replayed_is_not_what_would_happen_here_by_itself(
    run_of: Callable[[int], Run],
) -> None:
    """So that being equal to the last bit means something."""
    [number] = (n for n, case in enumerate(CASES) if case.size == LONG)
    case, run = CASES[number], run_of(number)
    by_itself = train(
        model(LONG), np.zeros(LONG), case.scheme, steps=STEPS, engine=Here()
    )
    np.testing.assert_allclose(by_itself.parameters, run.training.parameters, rtol=1e-9)
    assert by_itself.parameters.tobytes() != run.training.parameters.tobytes()


@pytest.mark.long
def test_all_kinds_of_events_are_replayed(run_of: Callable[[int], Run]) -> None:
    traces = [read(run_of(number).trace) for number in range(len(CASES))]
    kinds = {type(e.event).__name__ for trace in traces for e in trace.entries}
    assert kinds == {
        "StepStarted", "Progressed", "MessageArrived", "MessageFailed", "WorkersLost",
        "WorkersJoined", "WorkerFreed", "TimerFired", "MessagesCompared",
    }  # fmt: skip


# -- a run that went wrong -------------------------------------------------------------


class Oops(Exception):
    pass


@dataclass
class Recorded:
    """Steps of a run, and all that happened."""

    sums: list[bytes]
    trace: Trace


def drive(
    scheme: Scheme,
    engine: Here | Local | Replayed,
    steps: Sequence[int] = range(STEPS),
    fail: Callable[[Event], bool] = lambda event: False,
    patience: Patience | None = None,
    faults: FaultPlan | None = None,
) -> Recorded:
    """Take steps at parameters that follow from the sums; go on where one fails."""
    job, log, sums = NumpyJob(model(5), 5), list[Entry](), list[bytes]()

    def watch(event: Event, commands: list[Command]) -> None:
        log.append(Entry(event, tuple(commands)))
        if fail(event):
            raise Oops

    driver = Driver(engine, scheme, job.layout, patience=patience, watch=watch)
    engine.start(
        lambda: job, job.layout, scheme.workers, parts=scheme.parts, faults=faults
    )
    x = np.zeros(5)
    try:
        for step in steps:
            try:
                sum_ = driver.step(x, step)
            except (Oops, StepGivenUp) as error:
                sums.append(str(error).encode())
                continue
            sums.append(sum_.vector.tobytes())
            x = x - 0.1 * sum_.gradient
    finally:
        engine.close()
    return Recorded(sums, Trace(driver.header(), tuple(log)))


def test_a_step_that_an_exception_has_cut_short_is_given_up_in_the_replay() -> None:
    def fail(event: Event) -> bool:
        return isinstance(event, MessageArrived) and event.step == 3

    recorded = drive(cyclic(5, 2), Here(), fail=fail)
    events = [entry.event for entry in recorded.trace.entries]
    assert sum(isinstance(event, StepCancelled) for event in events) == 1
    again = drive(cyclic(5, 2), Replayed(recorded.trace))
    assert again.sums[3] == b"step 3 was given up: cancelled"
    del again.sums[3], recorded.sums[3]
    assert again.sums == recorded.sums  # up to there, and after it
    assert again.trace.entries == recorded.trace.entries


def test_a_run_that_was_left_in_the_middle_of_a_step_replays_up_to_there() -> None:
    def fail(event: Event) -> bool:
        return isinstance(event, MessageArrived) and event.step == 3

    recorded = drive(cyclic(5, 2), Here(), range(4), fail)
    again = drive(cyclic(5, 2), Replayed(recorded.trace), range(3))
    assert again.sums == recorded.sums[:3]
    with pytest.raises(InvalidTrace, match="ends here; the run went no further"):
        drive(cyclic(5, 2), Replayed(recorded.trace), range(4))


def test_a_step_that_was_given_up_is_given_up_once_more() -> None:
    faults = FaultPlan().leave(0, 2).leave(1, 2).join(0, 3).join(1, 3)
    patience = Patience(least=0.2, first=0.2)
    recorded = drive(uncoded(2), Local(), range(5), patience=patience, faults=faults)
    assert faults.all_fired
    assert recorded.sums[2].startswith(b"step 2 was given up: ")
    again = drive(uncoded(2), Replayed(recorded.trace), range(5), patience=patience)
    assert again.sums == recorded.sums
    assert again.trace.entries == recorded.trace.entries


def test_a_value_that_only_a_worker_got_wrong_is_said_to_be_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody has room for a second opinion, so what worker 0 sent is handed over."""
    faults = FaultPlan().corrupt(0, 2, "nan")
    recorded = drive(uncoded(2), Local(open_segments=1), range(4), faults=faults)
    assert faults.all_fired
    caplog.clear()
    again = drive(uncoded(2), Replayed(recorded.trace), range(4))
    assert again.sums[:2] == recorded.sums[:2]
    assert np.isnan(np.frombuffer(recorded.sums[2])).sum() == 1
    assert np.isfinite(np.frombuffer(again.sums[2])).all()
    [record] = caplog.records
    said = "step 2: a sum was not finite in the run, and is here; a worker was at fault"
    assert record.getMessage().startswith(said)


# -- what will not do ------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace() -> Trace:
    return drive(cyclic(4, 1), Here()).trace


def test_a_trace_may_be_given_as_it_was_read_or_by_its_file(
    run_of: Callable[[int], Run], trace: Trace
) -> None:
    path, scheme = run_of(0).trace, CASES[0].scheme
    for given in (path, str(path), read(path)):
        engine = Replayed(given)
        assert engine.name == "replayed"
        assert engine.capabilities == read(path).header.capabilities
        train(model(SIZE), np.zeros(SIZE), scheme, steps=1, engine=engine)
    assert drive(cyclic(4, 1), Replayed(trace)).trace.entries == trace.entries


def test_a_file_that_is_no_trace_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="cannot be read: No such file"):
        Replayed(tmp_path / "missing.jsonl")


def test_a_trace_that_is_too_short_says_so_when_it_ends(trace: Trace) -> None:
    with pytest.raises(InvalidTrace, match="the trace: ends here"):
        drive(cyclic(4, 1), Replayed(trace), range(STEPS + 1))


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (uncoded(3), "is of 4 workers and 4 parts, not of 3 and 3"),
        (uncoded(4, pieces=2), "is of 4 workers and 4 parts, not of 4 and 8"),
    ],
)
def test_a_trace_of_other_workers_or_parts_is_refused(
    trace: Trace, scheme: Scheme, said: str
) -> None:
    with pytest.raises(InvalidTrace, match=said):
        drive(scheme, Replayed(trace))


def test_a_trace_of_other_steps_is_refused(trace: Trace) -> None:
    with pytest.raises(InvalidTrace, match="goes on with step 0, the run with 5"):
        drive(cyclic(4, 1), Replayed(trace), range(5, 8))
    with pytest.raises(InvalidTrace, match="goes on with step 1, the run with 2"):
        drive(cyclic(4, 1), Replayed(trace), [0, 2])


def test_a_trace_of_another_scheme_is_refused_when_it_asks_for_something_else(
    trace: Trace,
) -> None:
    said = "goes on with step 1, the run with 0; is it of the same script?"
    with pytest.raises(InvalidTrace, match=said):
        drive(uncoded(4), Replayed(trace))


def test_a_job_of_another_size_is_refused(trace: Trace) -> None:
    engine, job = Replayed(trace), NumpyJob(model(5), 5)
    with pytest.raises(InvalidJob, match="the job's layout: its parameters is 5"):
        engine.start(lambda: job, NumpyJob(model(6), 6).layout, 4, parts=4)
    engine = Replayed(trace)
    engine.start(lambda: job, job.layout, 4, parts=4)
    with pytest.raises(InvalidOptions, match="parameters: have shape"):
        engine.publish(0, np.zeros(6))


def test_a_replay_is_started_once(trace: Trace) -> None:
    engine, job = Replayed(trace), NumpyJob(model(5), 5)

    def start() -> None:
        engine.start(lambda: job, job.layout, 4, parts=4)

    with pytest.raises(ProtocolError, match="not started"):
        engine.publish(0, np.zeros(5))
    start()
    with pytest.raises(ProtocolError, match="started once"):
        start()
    engine.close()
    engine.close()
    with pytest.raises(ProtocolError, match="closed"):
        engine.publish(0, np.zeros(5))
    with pytest.raises(ProtocolError, match="started once"):
        start()


def variants(entries: tuple[Entry, ...]) -> list[tuple[Entry, ...]]:
    """Return traces that no run has left: an event is missing, or twice, or other."""
    found = []
    for n, entry in enumerate(entries):
        before, after, event = entries[:n], entries[n + 1 :], entry.event
        others: list[Event] = [
            WorkersLost((99,), event.at),
            WorkersLost((0,), event.at),
            TimerFired(event.at),
            StepStarted(99, event.at),
            MessageArrived(0, 99, 99, ((99, 99),), event.at),
            MessageFailed(0, 1, 3, "lost", event.at),
        ]
        if isinstance(event, MessageArrived):
            for cuts in ((), ((99, 1),), ((event.cuts[0][0], -1),)):
                others.append(msgspec.structs.replace(event, cuts=cuts))
        found.append((*before, *after))
        found.append((*before, entry, entry, *after))
        found += [(*before, Entry(other, ()), *after) for other in others]
    return found


def test_whatever_is_in_a_trace_a_replay_ends_with_a_sum_or_one_of_our_errors() -> None:
    recorded = drive(fractional(2, 1), Here(), range(2))
    same, errors = 0, list[str]()
    for entries in variants(recorded.trace.entries):
        engine = Replayed(Trace(recorded.trace.header, entries))
        try:
            again = drive(fractional(2, 1), engine, range(2))
        except CodedgradError as error:
            errors.append(str(error))
        else:
            same += again.sums == recorded.sums
    assert same
    assert errors
    assert not any("\n" in error for error in errors)
