"""Seconds by step and worker, of a run, a trace, a recording or a probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.advise.evidence import open_evidence
from codedgrad.advise.slow.stopwatch import Bools, Floats, Stopwatch, StopwatchRow
from codedgrad.core import StepStarted, WorkersLost
from codedgrad.delays import Matrix
from codedgrad.errors import InvalidTrace
from codedgrad.learning.savings import Savings, WorkerLoad
from codedgrad.trace import Trace, ended_steps, waiting_of

Ints: TypeAlias = NDArray[np.int64]

COMPUTE, NETWORK = "compute", "network"
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
        savings: What steps took, and what waiting for all would have taken; None where
            that is not known.
        losses: (step, worker) whenever a worker's process was lost.
    """

    names: tuple[str, ...]
    steps: Ints
    series: tuple[Series, ...]
    alive: Bools
    remarks: tuple[str, ...] = ()
    savings: Savings | None = None
    losses: tuple[tuple[int, int], ...] = ()


def read_paces(path: Path | str) -> SecondsByStep:
    """Read a run, a trace, a recording or a probe.

    Args:
        path: As `open_evidence` takes it.

    Raises:
        InvalidTrace: If a trace contradicts itself; else as `open_evidence` raises.

    Example:
        >>> paces = read_paces("AR")
        >>> paces.names, paces.steps[:3], [each.cause for each in paces.series]
        (('dp0', 'dp1', 'dp2', 'dp3'), array([16, 21, 27]), ['compute'])
    """
    evidence = open_evidence(path)
    if evidence.trace is not None:
        return _checked(evidence.path, evidence.trace)
    assert evidence.matrix is not None  # evidence has one or the other
    return paces_of_matrix(evidence.matrix)


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
    """Return how fast every worker was in a trace, to its last whole step.

    Where workers report every part, the seconds are those that an equal share of the
    parts would have taken each of them, by `codedgrad.learning.waiting`.
    """
    workers, waiting = trace.header.workers, waiting_of(trace.header)
    stopwatch, rows = Stopwatch(workers), []
    for record, _ in ended_steps(trace):
        waiting.add(record)
        rows.append(stopwatch.read(record))
    paces = replace(
        paces_of_rows(rows, workers), savings=waiting.means(), losses=_losses(trace)
    )
    if not trace.header.capabilities.progress:
        return paces
    loads = dict(waiting.loads())
    shares = [loads.get(row.step, [None] * workers) for row in rows]
    compute = _shares(shares, workers)
    return replace(paces, series=(compute, *paces.series[1:]))


def _losses(trace: Trace) -> tuple[tuple[int, int], ...]:
    """Return in which step, or before which, each worker was lost."""
    workers = trace.header.workers
    found, step = [], 0  # the step that is open, or else the next one
    for entry in trace.entries:
        event = entry.event
        if isinstance(event, StepStarted):
            step = event.step
        if isinstance(event, WorkersLost):
            found += [(step, each) for each in event.workers if each in range(workers)]
        if entry.ends_step:
            step += 1
    return tuple(found)


def _shares(rows: Sequence[Sequence[WorkerLoad | None]], workers: int) -> Series:
    """Return what an equal share would have taken; NaN where nothing was seen of it."""
    shape = len(rows), workers
    seconds = np.full(shape, np.nan)
    is_bound = np.zeros(shape, dtype=np.bool_)
    for place, row in enumerate(rows):
        for worker, load in enumerate(row):
            if load is not None and (load.is_seen or load.is_bound):
                seconds[place, worker] = load.seconds - load.message
                is_bound[place, worker] = load.is_bound
    return Series(COMPUTE, seconds, is_bound)


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
    # The last batch of an epoch may be a few samples, beside which any message is long.
    known = work[np.isfinite(work)]
    if known.size:
        work = np.maximum(work, np.median(known))
    matters = message > _WORTH * work
    return [Series(NETWORK, message + work, is_bound)] if matters.any() else []
