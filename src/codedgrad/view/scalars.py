"""Runs as TensorBoard has them: one folder a run, one scalar a figure."""

from __future__ import annotations

import importlib
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from codedgrad.errors import InvalidOptions
from codedgrad.view.subjects import Subject

Scalar: TypeAlias = tuple[str, int, float, float]
"""Tag, step, seconds since the run began, value."""


def check_scalars(subjects: Sequence[Subject], folder: Path) -> None:
    """See that TensorBoard is there, and that the folders of the runs are not.

    Points that are written twice are drawn twice, so nothing is added to a folder.
    """
    _tensorboard()
    where = f"--tensorboard {folder}"
    near = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise InvalidOptions(where, "cannot be written", "another folder")
    for name in _folders(subjects):
        if (folder / name).exists():
            advice = "another folder, or remove that one"
            raise InvalidOptions(where, f"{name} is there already", advice)


def write_scalars(subjects: Sequence[Subject], folder: Path) -> None:
    """Write the scalars of some runs, each to a folder of its own in `folder`.

    Every folder is whole or not there at all.
    """
    check_scalars(subjects, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".codedgrad-", dir=folder))
        try:
            for subject, name in zip(subjects, _folders(subjects), strict=True):
                _write(subject, hidden / name)
                os.replace(hidden / name, folder / name)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except OSError as error:
        where = f"--tensorboard {folder}"
        problem = f"cannot be written ({error.strerror})"
        raise InvalidOptions(where, problem, "another folder") from None


def scalars(subject: Subject) -> Iterator[Scalar]:
    """Return every figure of every step, in order of the steps; only what is finite."""
    lines = {line.step: line for line in subject.lines}
    reports = {report.step: report for report in subject.reports}
    taken = dict(zip(reports, subject.seconds.tolist(), strict=True))
    began = _began(subject)
    elapsed = 0.0
    for step in sorted(lines.keys() | reports.keys()):
        report, line = reports.get(step), lines.get(step)
        seconds = taken[step] if line is None else line.seconds
        elapsed += seconds
        at = elapsed if line is None else max(line.at - began, 0.0)
        figures: dict[str, float | None] = {"step/seconds": seconds}
        if report is not None:  # else the trace has begun later, or is missing
            figures |= {
                "step/heard": len(report.heard),
                "step/late": len(report.late),
                "step/work": report.work,
                "step/messages": report.messages,
                "waiting for all/estimate": report.waiting.estimate,
                "waiting for all/low": report.waiting.low,
                "waiting for all/high": report.waiting.high,
            }
        if line is not None:
            figures["loss"] = line.loss
            figures |= {f"metrics/{name}": x for name, x in line.metrics.items()}
            figures |= {f"logged/{name}": x for name, x in line.logged.items()}
        for tag, value in figures.items():
            if value is not None and math.isfinite(value):
                yield tag, step, at, float(value)


def _began(subject: Subject) -> float:
    """Return when the first step began, on the clock of the run."""
    traced = subject.reports[0].step if subject.reports else math.inf
    if subject.lines and subject.lines[0].step < traced:
        return subject.lines[0].at - subject.lines[0].seconds
    if subject.trace is None or not subject.trace.entries:
        return 0.0
    return subject.trace.entries[0].event.at


def _created(subject: Subject) -> float:
    """Return when the run began, in seconds of the epoch; 0 if it does not say."""
    try:
        told = datetime.strptime(subject.created, "%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return 0.0
    return told.replace(tzinfo=UTC).timestamp()


def _folders(subjects: Sequence[Subject]) -> list[str]:
    """Return a folder name for every run: its title, in letters that any system has."""
    names: list[str] = []
    for subject in subjects:
        plain = re.sub(r"[^\w.=()-]+", "-", subject.title).strip("-.") or "run"
        numbers = (plain, *(f"{plain}-{n}" for n in range(2, len(subjects) + 1)))
        names.append(next(name for name in numbers if name not in names))
    return names


def _tensorboard() -> tuple[Any, Any, Any]:
    try:
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        event = importlib.import_module("tensorboard.compat.proto.event_pb2")
        return (
            writer,
            event,
            importlib.import_module("tensorboard.compat.proto.summary_pb2"),
        )
    except ImportError:
        problem = "needs tensorboard, which is not installed"
        advice = 'pip install "codedgrad[tensorboard]"'
        raise InvalidOptions("--tensorboard", problem, advice) from None


def _write(subject: Subject, folder: Path) -> None:
    module, events, summaries = _tensorboard()
    writer = module.EventFileWriter(str(folder))
    created = _created(subject)
    try:
        for tag, step, at, number in scalars(subject):
            value = summaries.Summary.Value(tag=tag, simple_value=number)
            told = summaries.Summary(value=[value])
            writer.add_event(
                events.Event(wall_time=created + at, step=step, summary=told)
            )
    finally:
        writer.close()
