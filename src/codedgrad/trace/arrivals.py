"""The arrival matrix: who was asked when, for how much, and when it answered.

The one table that plots, detectors and planners read. Times are seconds from the start
of the step; what was cut off says so, and when.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from codedgrad.core import Record
from codedgrad.delays import Matrix
from codedgrad.errors import InvalidTrace
from codedgrad.trace.metrics import ended_steps
from codedgrad.trace.read import Trace


@dataclass(frozen=True, slots=True)
class Arrival:
    """One worker in one step.

    Attributes:
        step: The step.
        worker: The worker.
        load: Parts it was asked for.
        done: Parts known to be merged.
        asked: When it was first asked, seconds from the start of the step.
        seconds: From then until the last part known to be done was reported.
        elapsed: From then until it answered, or was cut, dropped or lost.
        ended: `answered`, `cut`, `dropped` or `lost`.
        heard: Whether a message of it was heard in time.
    """

    step: int
    worker: int
    load: int
    done: int
    asked: float
    seconds: float
    elapsed: float
    ended: str
    heard: bool


def arrivals(trace: Trace) -> Iterator[Arrival]:
    """Return a row for every worker that was asked something, step by step."""
    for record, _ in list(ended_steps(trace)):  # late arrivals are in by then
        yield from _of_step(record)


def _of_step(record: Record) -> Iterator[Arrival]:
    state = record.state
    heard = {state.messages[id_].worker for id_ in state.heard}
    for worker, held in enumerate(state.held):
        seen = record.observe(worker)
        if seen is None:
            continue
        asked = min(state.segments[id_].assigned for id_ in held) - state.started
        yield Arrival(
            step=record.step,
            worker=worker,
            load=seen.load,
            done=seen.done,
            asked=asked,
            seconds=seen.seconds,
            elapsed=seen.elapsed,
            ended=seen.ended,
            heard=worker in heard,
        )


def export(trace: Trace, path: Path | str) -> None:
    """Write the arrival matrix to a `.csv` or `.parquet` file, whole or not at all."""
    path = Path(path)
    rows = [asdict(row) for row in arrivals(trace)]
    names = [field.name for field in fields(Arrival)]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix.lower() == ".csv":
            with temporary.open("w", newline="") as file:
                writer = csv.DictWriter(file, names, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        elif path.suffix.lower() == ".parquet":
            _write_parquet(temporary, names, rows)
        else:
            raise InvalidTrace(path, "must end in .csv or .parquet")
        os.replace(temporary, path)
    except OSError as error:
        raise InvalidTrace(path, f"cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_parquet(path: Path, names: list[str], rows: list[dict[str, Any]]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        problem = 'needs pyarrow: pip install "codedgrad[parquet]"'
        raise InvalidTrace(path, problem) from None
    columns = {name: [row[name] for row in rows] for name in names}
    parquet.write_table(pyarrow.table(columns), path)


def matrix(trace: Trace) -> Matrix:
    """Return seconds by step and worker, for a delay model to replay or to be fitted.

    Only a run in which everybody answered at the uncoded load has them all.
    """
    rows, workers = list(arrivals(trace)), trace.header.workers
    for row in rows:
        is_uncoded = row.load * workers == trace.header.parts
        if row.ended != "answered" or not is_uncoded:
            problem = (
                f"worker {row.worker} has no full time at the uncoded load in step "
                f"{row.step} ({row.ended}, {row.done} of {row.load} parts); "
                "export the arrivals"
            )
            raise InvalidTrace("the trace", problem)
    steps = sorted({row.step for row in rows})
    if len(rows) < max(1, len(steps)) * workers:
        problem = "has no step, or one in which not every worker was asked"
        raise InvalidTrace("the trace", problem)
    place = {step: number for number, step in enumerate(steps)}
    seconds = np.empty((len(steps), workers))
    for row in rows:
        seconds[place[row.step], row.worker] = row.asked + row.seconds
    names = tuple(f"worker{number}" for number in range(workers))
    return Matrix(steps=np.array(steps), seconds=seconds, workers=names)
