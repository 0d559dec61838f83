"""Seconds by step and worker, of whatever there is: a run, a trace, a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.advise.slow.stopwatch import Bools, Floats, Stopwatch, StopwatchRow
from codedgrad.delays import Matrix, read_matrix
from codedgrad.delays.bundled import located
from codedgrad.errors import InvalidTrace
from codedgrad.trace import Trace, read, read_run, settled_steps

Ints: TypeAlias = NDArray[np.int64]

COMPUTE, NETWORK = "compute", "network"
_RECORDINGS = (".csv", ".npy", ".parquet")
_MOST = 1_000_000  # workers or parts; nobody has more, but a file may say anything
_UNSEEN = "Messages were not seen apart: what they took is in “compute”."
_WORTH = 1e-3  # of a step's work: below it no message is worth a word


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Seconds that can be compared between workers, of one cause.

    Attributes:
        cause: `compute` or `network`.
        seconds: (steps, workers); NaN where nothing was seen.
        is_bound: (steps, workers) whether it took that long at least.
    """

    cause: str
    seconds: Floats
    is_bound: Bools


@dataclass(frozen=True, slots=True, eq=False)
class SecondsByStep:
    """How fast everybody was, step by step.

    Attributes:
        names: Of the workers.
        steps: Numbers of the steps, ascending, (steps,).
        series: What can be compared: `compute`, seconds a part, and where messages
            were seen apart `network`: the seconds of a worker's message and of what is
            computed in a step, so that what hardly matters makes nobody slow.
        alive: (steps, workers) whether the worker was there.
        remarks: What one should know of where it is from, in sentences.
    """

    names: tuple[str, ...]
    steps: Ints
    series: tuple[Series, ...]
    alive: Bools
    remarks: tuple[str, ...] = ()


def read_paces(path: Path | str) -> SecondsByStep:
    """Read a run, a trace, or a recording, as the ending of its path says.

    Args:
        path: The folder of a run, a trace (.jsonl), recorded seconds (.csv, .npy,
            .parquet), or the name of a recording that comes with codedgrad.

    Raises:
        InvalidTrace: If it is none of them, or will not do.
        InvalidDelays: Likewise, of a recording.

    Example:
        >>> paces = read_paces("AR")
        >>> paces.names, paces.steps[:3], [each.cause for each in paces.series]
        (('dp0', 'dp1', 'dp2', 'dp3'), array([16, 21, 27]), ['compute'])
    """
    file = located(path)
    if file.is_dir():
        return _checked(file, read_run(file).trace)
    if file.suffix.lower() in _RECORDINGS:
        return paces_of_matrix(read_matrix(file))
    return _checked(file, read(file))


def _checked(path: Path, trace: Trace) -> SecondsByStep:
    """Return what a trace tells; name the file if it cannot be what happened."""
    header = trace.header
    if max(header.workers, header.parts) > _MOST:
        problem = f"has {header.workers} workers and {header.parts} parts"
        raise InvalidTrace(path, f"{problem}, more than {_MOST} of one kind")
    try:
        return paces_of_trace(trace)
    except InvalidTrace as error:
        raise InvalidTrace(path, error.problem) from None
    except (LookupError, ValueError, ArithmeticError, MemoryError) as error:
        problem = f"contradicts itself ({type(error).__name__}: {error})"
        raise InvalidTrace(path, problem) from None


def paces_of_trace(trace: Trace) -> SecondsByStep:
    """Return how fast everybody was in a trace, to its last whole step."""
    stopwatch = Stopwatch(trace.header.workers)
    rows = [stopwatch.read(record) for record, _ in settled_steps(trace)]
    return paces_of_rows(rows, trace.header.workers)


def paces_of_matrix(matrix: Matrix) -> SecondsByStep:
    """Return how fast everybody was in a recording; of the network it says nothing.

    Example:
        >>> paces_of_matrix(Matrix([0], [[1.0, 2.0]], ["a", "b"])).remarks
        ('These are recorded seconds of computing: of the network they say nothing.',)
    """
    nowhere = np.zeros(matrix.seconds.shape, dtype=np.bool_)
    return SecondsByStep(
        names=matrix.workers,
        steps=matrix.steps,
        series=(Series(COMPUTE, matrix.seconds, nowhere),),
        alive=~nowhere,
        remarks=(
            "These are recorded seconds of computing: of the network they say nothing.",
        ),
    )


def paces_of_rows(rows: Sequence[StopwatchRow], workers: int) -> SecondsByStep:
    """Return how fast everybody was in steps that a `Stopwatch` has read."""
    shape = len(rows), workers
    part = np.array([row.part for row in rows]).reshape(shape)
    is_bound = np.array([row.part_is_bound for row in rows], np.bool_).reshape(shape)
    series = [Series(COMPUTE, part, is_bound)]
    message = np.array([row.message for row in rows]).reshape(shape)
    is_seen = bool(np.isfinite(message).any())
    if is_seen:
        series += _network(rows, message)
    return SecondsByStep(
        names=tuple(map(str, range(workers))),
        steps=np.array([row.step for row in rows], dtype=np.int64),
        series=tuple(series),
        alive=np.array([row.alive for row in rows], np.bool_).reshape(shape),
        remarks=(_UNSEEN,) if rows and not is_seen else (),
    )


def _network(rows: Sequence[StopwatchRow], message: Floats) -> list[Series]:
    """Return the seconds of messages on top of a step's work, if they matter."""
    is_bound = np.array([row.message_is_bound for row in rows], dtype=np.bool_)
    work = np.array([row.work for row in rows]).reshape(-1, 1)
    matters = message > _WORTH * work
    return [Series(NETWORK, message + work, is_bound)] if matters.any() else []
