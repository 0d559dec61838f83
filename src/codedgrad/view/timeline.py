"""Runs on a time line, as Perfetto and chrome://tracing open them.

A run is a process, and its root and every worker a thread of it. A slice is a step, or
the parts that a worker was at; an instant is a worker lost, joined or late. Times are
microseconds since the run began, as the format has it; everything else of ours is in
seconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from codedgrad.core import (
    Combine,
    GiveUp,
    MessageFailed,
    Record,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.history import Stretch
from codedgrad.core.state import SegmentState
from codedgrad.trace import Trace, settled_steps
from codedgrad.view.reading import outcomes
from codedgrad.view.report import check_target, save_text
from codedgrad.view.subjects import Fate, Subject

Happening: TypeAlias = dict[str, Any]
"""An event of the trace-event format."""

_BEGINS = '{"traceEvents":'
_ROOT = 0  # the thread of the steps; worker w is thread w + 1


def check_timeline(file: Path) -> None:
    """See that a time line can be written to a file, which ends in .json."""
    check_target("--timeline", file, ".json", _BEGINS)


def write_timeline(subjects: Sequence[Subject], file: Path) -> None:
    """Write the time lines of some runs to one file, whole or not at all."""
    check_timeline(file)
    rows = (json.dumps(each, allow_nan=False) for each in timeline(subjects))
    text = ",\n".join(rows)
    save_text("--timeline", file, f'{_BEGINS}[\n{text}\n],"displayTimeUnit":"ms"}}\n')


def timeline(subjects: Sequence[Subject]) -> list[Happening]:
    """Return the events of all runs, each in order; no slices of a thread overlap."""
    found: list[Happening] = []
    for process, subject in enumerate(subjects, 1):
        found += _names(process, subject)
        if subject.trace is None:
            told = _recorded(subject)
        else:
            told = _happenings(subject.trace)
        placed = sorted(_placed(told, subject), key=lambda each: float(each["ts"]))
        found += [{"pid": process, **each} for each in placed]
    return found


def _names(process: int, subject: Subject) -> Iterator[Happening]:
    def named(kind: str, thread: int, **arguments: Any) -> Happening:
        return {
            "ph": "M", "pid": process, "tid": thread, "ts": 0, "name": kind,
            "args": arguments,
        }  # fmt: skip

    yield named("process_name", _ROOT, name=subject.title)
    yield named("process_sort_index", _ROOT, sort_index=process)
    for thread, name in enumerate(("root", *(f"worker {w}" for w in subject.workers))):
        yield named("thread_name", thread, name=name)
        yield named("thread_sort_index", thread, sort_index=thread)


def _placed(told: Iterator[Happening], subject: Subject) -> Iterator[Happening]:
    """Return events with their times, from 0, none of the slices in another's way.

    A worker that was late with a step has two slices that overlap; the later one then
    begins where the first one ends.
    """
    rows = sorted(told, key=lambda each: each["at"])
    zero = rows[0]["at"] if rows else 0.0
    ends = [0.0] * (len(subject.workers) + 1)
    for row in rows:
        start, thread = row["at"] - zero, row["tid"]
        shared = {"name": row["name"], "cat": row["cat"], "tid": thread}
        arguments = {"args": row["args"]} if row.get("args") else {}
        if "until" not in row:
            yield {
                "ph": "i", "s": "t", "ts": _micro(start), **shared, **arguments
            }  # fmt: skip
            continue
        start, end = max(start, ends[thread]), row["until"] - zero
        if end > start:
            ends[thread] = end
            ts = _micro(start)
            yield {
                "ph": "X", "ts": ts, "dur": round(_micro(end) - ts, 3), **shared,
                **arguments,
            }  # fmt: skip


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)


# -- what happened, in seconds of the trace's own clock --------------------------------


def _recorded(subject: Subject) -> Iterator[Happening]:
    """Return the time line of a recording, one step right after the other."""
    start = 0.0
    for report, row in zip(subject.reports, subject.answers, strict=True):
        yield _slice("step", _ROOT, f"step {report.step}", start, report.seconds)
        for worker, seconds in enumerate(row):
            name = f"step {report.step}"
            yield _slice("work", worker + 1, name, start, float(seconds))
        start += report.seconds


def _slice(
    cat: str, thread: int, name: str, at: float, seconds: float, **arguments: Any
) -> Happening:
    return {
        "cat": cat, "tid": thread, "name": name, "at": at, "until": at + seconds,
        "args": arguments,
    }  # fmt: skip


def _happenings(trace: Trace) -> Iterator[Happening]:
    for ended in settled_steps(trace):
        yield from _of_step(*ended)
    for entry in trace.entries:
        known = range(trace.header.workers)
        match entry.event:
            case WorkersLost(workers, at) | WorkersJoined(workers, at):
                what = "lost" if isinstance(entry.event, WorkersLost) else "joined"
                yield from (
                    _instant(each, what, at) for each in workers if each in known
                )
            case MessageFailed(step, worker, _, reason, at) if worker in known:
                yield _instant(worker, "failed", at, step=step, reason=reason)


def _instant(worker: int, name: str, at: float, **arguments: Any) -> Happening:
    return {
        "cat": "event", "tid": worker + 1, "name": name, "at": at, "args": arguments
    }  # fmt: skip


def _of_step(record: Record, end: Combine | GiveUp) -> Iterator[Happening]:
    state, step = record.state, record.step
    fates = [outcome.fate for outcome in outcomes(record)]
    told: dict[str, Any] = {
        fate.name.lower(): [worker for worker, own in enumerate(fates) if own is fate]
        for fate in (Fate.HEARD, Fate.LATE, Fate.LOST)
    }
    if isinstance(end, Combine):
        told["residual"] = end.residual if math.isfinite(end.residual) else None
    else:
        told["given up"] = end.reason
    name = f"step {step}" if isinstance(end, Combine) else f"step {step}, given up"
    yield _slice("step", _ROOT, name, state.started, record.seconds, **told)
    for worker in range(len(record.alive)):
        known = iter(state.given(worker))
        for stretch in record.stretches(worker):
            segment = _segment_of(stretch, known)
            yield from _at_work(step, worker, stretch, segment)
    for worker in told["late"]:
        if worker in record.late:
            yield _instant(worker, "late message", record.late[worker], step=step)
        else:
            yield _instant(worker, "late", state.started + record.seconds, step=step)


def _segment_of(stretch: Stretch, known: Iterator[SegmentState]) -> tuple[int, ...]:
    """Return the parts a worker was at; both go through its segments in order."""
    return next(
        each.segment.parts
        for each in known
        if each.ended_at == stretch.end
        and (tuple(each.marks) == stretch.marks or each.ended != stretch.ended)
    )


def _at_work(
    step: int, worker: int, stretch: Stretch, parts: tuple[int, ...]
) -> Iterator[Happening]:
    done, since = 0, stretch.start
    for count, at in stretch.marks:
        name = _named(parts[done:count])
        yield _slice("work", worker + 1, name, since, at - since, step=step)
        done, since = count, at
    if stretch.left:
        name = f"{_named(parts[done : done + stretch.left])}, {stretch.ended}"
        yield _slice("cut off", worker + 1, name, since, stretch.end - since, step=step)


def _named(parts: tuple[int, ...]) -> str:
    told = ", ".join(map(str, parts[:6])) + (", ..." if len(parts) > 6 else "")
    return f"part {told}" if len(parts) == 1 else f"parts {told}"
