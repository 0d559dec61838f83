"""Reading what a report is about, as the ending of its path says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Combine, GiveUp, Record, WorkerLost
from codedgrad.delays import Matrix, read_matrix
from codedgrad.errors import InvalidOption, InvalidTrace
from codedgrad.trace import (
    StepReport,
    Trace,
    Waiting,
    read,
    read_run,
    reports,
    settled_steps,
)
from codedgrad.trace.listing import checkpoints_of
from codedgrad.view.subjects import Bools, Fate, Floats, Subject, WorkerOutcome, shown

_RECORDINGS = (".csv", ".npy", ".parquet")
_MOST = 1_000_000  # workers or parts; nobody has more, but a file may say anything


def read_subjects(
    paths: Sequence[Path | str], reading: Callable[[Path], None] | None = None
) -> list[Subject]:
    """Read everything a report is to be about; no two have the same title.

    Args:
        paths: Folders of runs, traces and recordings.
        reading: Told every path before it is read.

    Raises:
        InvalidOption: If there is no path.
        InvalidTrace: If a path is none of them, or will not do.
        InvalidDelays: Likewise, of a recording.
    """
    if not paths:
        raise InvalidOption("no run was named", "the folder of a run")
    found = []
    for path in map(Path, paths):
        if reading is not None:
            reading(path)
        found.append(read_subject(path))
    return _told_apart(found)


def read_subject(path: Path | str) -> Subject:
    """Read the folder of a run, a trace, or a recording, as its ending says.

    Example:
        >>> from codedgrad.delays import traces
        >>> subject = read_subject(traces()["AR"])
        >>> subject.kind, subject.workers, subject.answers.shape[1]
        ('recording', ('dp0', 'dp1', 'dp2', 'dp3'), 4)
    """
    path = Path(path)
    if path.is_dir():
        return _of_run(path)
    if path.suffix.lower() in _RECORDINGS:
        return _of_recording(path, read_matrix(path))
    return _of_trace(path, read(path))


def _of_run(path: Path) -> Subject:
    run = read_run(path)
    manifest = run.manifest
    facts = {
        "data": f"{manifest.samples} samples",
        "batch": f"{manifest.batch_size} samples a step",
        "seed": str(manifest.seed),
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
        told = tuple(reports(trace))
        answers, is_bound, fates, has_finished = _tables(trace, len(told))
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
        reports=told,
        answers=answers,
        is_bound=is_bound,
        fates=fates,
        has_finished=has_finished,
        losses=tuple(_losses(trace, len(told))),
        trace=trace,
    )


def _of_recording(path: Path, matrix: Matrix) -> Subject:
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
            waiting=Waiting(longest, longest),
        )
        told.append(report)
    return Subject(
        path=path,
        title=shown(path.stem),
        kind="recording",
        scheme="recorded",
        source="recording",
        workers=tuple(map(shown, matrix.workers)),
        parts=workers,
        facts={},
        reports=tuple(told),
        answers=matrix.seconds,
        is_bound=np.zeros((steps, workers), dtype=np.bool_),
        fates=np.full((steps, workers), Fate.HEARD, dtype=np.int8),
        has_finished=np.ones(workers, dtype=np.bool_),
    )


# -- who answered when ---------------------------------------------------------------


def _tables(trace: Trace, steps: int) -> tuple[Floats, Bools, NDArray[np.int8], Bools]:
    workers = trace.header.workers
    answers = np.full((steps, workers), np.nan)
    is_bound = np.zeros((steps, workers), dtype=np.bool_)
    fates = np.full((steps, workers), Fate.SPARED, dtype=np.int8)
    done = np.zeros(workers, dtype=np.int64)  # in its best step
    for number, (record, _) in enumerate(settled_steps(trace)):
        for worker, outcome in enumerate(outcomes(record)):
            fates[number, worker] = outcome.fate
            answers[number, worker] = outcome.seconds
            is_bound[number, worker] = outcome.is_bound
            done[worker] = max(done[worker], outcome.done)
    return answers, is_bound, fates, done * workers >= trace.header.parts


def _losses(trace: Trace, steps: int) -> Iterator[tuple[int, int]]:
    """Return in which step, by its row, each worker was lost; or before which one."""
    row = 0
    for entry in trace.entries:
        if isinstance(entry.event, WorkerLost) and row < steps:
            worker = entry.event.worker
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
