"""Read what a report is about: runs, traces, recordings and probes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codedgrad.advise.evidence import open_evidence
from codedgrad.advise.probe.probe import Probe
from codedgrad.core import Combine, GiveUp, Record, WorkersLost
from codedgrad.delays import Matrix
from codedgrad.errors import InvalidOptions, InvalidTrace
from codedgrad.learning.savings import Savings, Waiting
from codedgrad.trace import (
    Run,
    StepReport,
    StepReports,
    Trace,
    reports,
    settled_steps,
)
from codedgrad.trace.listing import checkpoints_of
from codedgrad.view.subjects import Bools, Fate, Floats, Subject, WorkerOutcome, shown

_MOST = 1_000_000  # workers or parts; nobody has more, but a file may say anything


def read_subjects(
    paths: Sequence[Path | str], reading: Callable[[Path], None] | None = None
) -> list[Subject]:
    """Read everything a report is to be about; no two have the same title.

    Args:
        paths: Each as `open_evidence` takes it.
        reading: Told every path before it is read.

    Raises:
        InvalidOptions: If no path is given; else as `read_subject` raises.
    """
    if not paths:
        raise InvalidOptions("a report", "no run was named", "the folder of a run")
    found = []
    for path in map(Path, paths):
        if reading is not None:
            reading(path)
        found.append(read_subject(path))
    return _told_apart(found)


def read_subject(path: Path | str) -> Subject:
    """Read a run, a trace, a recording or a probe.

    Args:
        path: As `open_evidence` takes it.

    Raises:
        InvalidTrace: If a trace contradicts itself; else as `open_evidence` raises.

    Example:
        >>> subject = read_subject("AR")
        >>> subject.kind, subject.workers, subject.answers.shape[1]
        ('recording', ('dp0', 'dp1', 'dp2', 'dp3'), 4)
    """
    evidence = open_evidence(path)
    if evidence.run is not None:
        return _of_run(evidence.path, evidence.run)
    if evidence.trace is not None:
        return _of_trace(evidence.path, evidence.trace)
    assert evidence.matrix is not None  # evidence has a trace or a matrix
    subject = _of_recording(evidence.path, evidence.name, evidence.matrix)
    return subject if evidence.probe is None else _of_probe(subject, evidence.probe)


def _threads(by_worker: Sequence[int]) -> str:
    """Return how many threads each worker computes with, for people."""
    if not by_worker:
        return ""
    least, most = min(by_worker), max(by_worker)
    return f"{least} a worker" if least == most else f"{least} to {most} a worker"


def _of_run(path: Path, run: Run) -> Subject:
    manifest = run.manifest
    facts = {
        "data": f"{manifest.samples} samples",
        "batch": f"{manifest.batch_size} samples a step",
        "seed": str(manifest.seed),
        "threads": _threads(manifest.threads),
        "begun": manifest.created,
        "checkpoints": _checkpoints(path),
        "versions": ", ".join(f"{k} {v}" for k, v in manifest.versions.items()),
        "note": manifest.note,
    }
    return replace(
        _of_trace(path, run.trace),
        title=shown(manifest.title),
        kind="run",
        scheme=shown(manifest.scheme),
        source=shown(manifest.engine),
        facts={name: shown(text, 400) for name, text in facts.items() if text},
        lines=run.steps,
        created=manifest.created,
    )


def _checkpoints(path: Path) -> str:
    """Return the checkpoints of a run, in words."""
    found = checkpoints_of(path)
    if not found:
        return "none"
    steps = ", ".join(f"{step} ({size / 1e6:.3g} MB)" for step, size in found[-3:])
    return f"before step {steps}"


def _of_trace(path: Path, trace: Trace) -> Subject:
    header = trace.header
    if max(header.workers, header.parts) > _MOST:
        problem = f"has {header.workers} workers and {header.parts} parts"
        raise InvalidTrace(path, f"{problem}, more than {_MOST} of one kind")
    try:
        found = reports(trace)
        answers, is_bound, fates = _tables(trace, found)
    except InvalidTrace as error:
        raise InvalidTrace(path, error.problem) from None
    except (LookupError, ValueError, ArithmeticError, MemoryError) as error:
        problem = f"contradicts itself ({type(error).__name__}: {error})"
        raise InvalidTrace(path, problem) from None
    facts = {"seed": "" if header.seed is None else str(header.seed)}
    facts["note"] = shown(header.note, 400)
    return Subject(
        path=path,
        title=shown(header.scheme),
        kind="trace",
        scheme=shown(header.scheme),
        source=shown(header.driver),
        workers=tuple(map(str, range(header.workers))),
        parts=header.parts,
        facts={name: text for name, text in facts.items() if text},
        reports=found.steps,
        savings=found.savings,
        answers=answers,
        is_bound=is_bound,
        fates=fates,
        losses=tuple(_losses(trace, len(found.steps))),
        trace=trace,
    )


def _of_probe(subject: Subject, probe: Probe) -> Subject:
    facts = {
        "job": probe.job,
        "messages": "not in the seconds",
        "grows with the load": f"{100 * probe.share:.0f} % of a worker's time",
    }
    return replace(
        subject,
        scheme="probed",
        source=shown(f"probe ({probe.engine})"),
        facts={name: shown(text) for name, text in facts.items() if text},
    )


def _of_recording(path: Path, name: str, matrix: Matrix) -> Subject:
    steps, workers = matrix.seconds.shape
    everybody = tuple(range(workers))
    told = []
    for step, row in zip(matrix.steps.tolist(), matrix.seconds, strict=True):
        longest = float(row.max())
        report = StepReport(
            step=step,
            seconds=longest,
            combined=True,
            residual=0.0,
            heard=everybody,
            late=(),
            messages=workers,
            work=workers,
            wasted=0,
            busy=float(row.mean()) / longest,
            waiting=Waiting(longest, longest, longest),
        )
        told.append(report)
    return Subject(
        path=path,
        title=shown(Path(name).stem),
        kind="recording",
        scheme="recorded",
        source="recording",
        workers=tuple(map(shown, matrix.workers)),
        parts=workers,
        facts={},
        reports=tuple(told),
        savings=_of_slowest(matrix.seconds.max(axis=1)),
        answers=matrix.seconds,
        is_bound=np.zeros((steps, workers), dtype=np.bool_),
        fates=np.full((steps, workers), Fate.HEARD, dtype=np.int8),
    )


# -- who answered when ---------------------------------------------------------------


def _of_slowest(seconds: Floats) -> Savings:
    """Return what a recording saves: nothing, for its steps do wait for all."""
    mean = float(seconds.mean())
    return Savings(len(seconds), mean, Waiting(mean, mean, mean))


def _tables(trace: Trace, found: StepReports) -> tuple[Floats, Bools, NDArray[np.int8]]:
    """Return when workers answered, where that is a bound, and their fates.

    A worker that is late because other workers did its parts is shown with the seconds
    that an equal share would have taken it.
    """
    shape = len(found.steps), trace.header.workers
    answers = np.full(shape, np.nan)
    is_bound = np.zeros(shape, dtype=np.bool_)
    fates = np.full(shape, Fate.SPARED, dtype=np.int8)
    for number, (record, _) in enumerate(settled_steps(trace)):
        for worker, outcome in enumerate(outcomes(record)):
            fates[number, worker] = outcome.fate
            answers[number, worker] = outcome.seconds
            is_bound[number, worker] = outcome.is_bound
        loads = found.loads[number]
        for worker in found.steps[number].late:
            load = loads[worker] if loads else None
            if fates[number, worker] in (Fate.HEARD, Fate.SPARED) and load is not None:
                fates[number, worker] = Fate.LATE
                answers[number, worker] = load.seconds
                is_bound[number, worker] = load.is_bound
    return answers, is_bound, fates


def _losses(trace: Trace, steps: int) -> Iterator[tuple[int, int]]:
    """Return in which step, by its row, each worker was lost; or before which one."""
    row = 0
    for entry in trace.entries:
        if isinstance(entry.event, WorkersLost) and row < steps:
            for worker in entry.event.workers:
                if 0 <= worker < trace.header.workers:
                    yield row, worker
        row += sum(isinstance(c, Combine | GiveUp) for c in entry.commands)


def outcomes(record: Record) -> Iterator[WorkerOutcome]:
    """Return what became of every worker in a step."""
    arrived: dict[int, float] = {}
    owing = set()
    for message in record.state.messages.values():
        if message.arrived is None:
            owing.add(message.worker)
        else:
            at = max(arrived.get(message.worker, -math.inf), message.arrived)
            arrived[message.worker] = at
    for worker in range(len(record.alive)):
        at = arrived.get(worker, math.nan)
        fate, until, is_bound = _ending(record, worker, at, worker in owing)
        done = sum(known.done for known in record.state.given(worker))
        yield WorkerOutcome(fate, until - record.state.started, is_bound, done)


def _ending(
    record: Record, worker: int, arrived: float, is_owing: bool
) -> tuple[Fate, float, bool]:
    """Return a worker's fate, when that was, and whether it was cut off then."""
    given = record.state.given(worker)
    ends = {known.ended for known in given}
    last = max((known.ended_at for known in given), default=math.nan)
    if not math.isnan(arrived):
        return Fate.HEARD, arrived, False
    if "lost" in ends or not record.alive[worker]:
        return Fate.LOST, last, "lost" in ends
    if "failed" in ends:
        return Fate.FAILED, last, False
    if worker in record.late:
        return Fate.LATE, record.late[worker], False
    if is_owing:
        return Fate.LATE, last, True
    marks = [at for known in given for _, at in known.marks]
    return Fate.SPARED, max(marks, default=math.nan), False


# -- names ---------------------------------------------------------------------------


def _told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    titles = [subject.title or subject.kind for subject in subjects]
    twice = {title for title in titles if titles.count(title) > 1}
    apart: list[Subject] = []
    for subject, title in zip(subjects, titles, strict=True):
        name = f"{title}, {shown(subject.path.name)}" if title in twice else title
        taken = {other.title for other in apart}
        numbers = (name, *(f"{name} ({n})" for n in range(2, len(subjects) + 1)))
        free = next(each for each in numbers if each not in taken)
        apart.append(replace(subject, title=free))
    return apart
