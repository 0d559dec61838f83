r"""What a trace says about its workers: seconds for the uncoded load, and the share.

A worker takes $x \, ((1 - f) + f \ell)$ seconds for $\ell$ times the uncoded load. One
load cannot tell $f$. Two can: what was done by each report of a worker in a step, or
the loads it had in several steps. The $f$ taken is that for which the logarithms of
$x$, within such a group, are nearest to their median, in absolute terms.

Who was not waited for has told a lower bound, and that is what is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.advise.slow.stopwatch import Stopwatch, StopwatchRow
from codedgrad.core import Record
from codedgrad.core.history import Stretch, per_part
from codedgrad.delays import Matrix
from codedgrad.errors import InvalidTrace
from codedgrad.trace import Trace, ended_steps

Floats: TypeAlias = NDArray[np.float64]
Group: TypeAlias = list[tuple[float, float]]  # (uncoded loads, seconds)

_FEW = 10  # groups, below which there is no telling
_SHARES = np.linspace(0.0, 1.0, 201)
_SHORTEST = 1e-9  # seconds
_MOST = 1_000_000  # workers or parts; nobody has more, but a file may say anything


@dataclass(frozen=True, slots=True, eq=False)
class TraceEvidence:
    """What a trace tells.

    Attributes:
        matrix: Seconds for the uncoded load.
        share: What grows with the load, if loads differed; else None.
        pieces: Parts in the uncoded load.
        bounds: Of the seconds, the share that are lower bounds.
        filled: Of the seconds, the share that nobody saw: a worker was gone, or asked
            nothing. Its median stands there.
    """

    matrix: Matrix
    share: float | None
    pieces: float
    bounds: float
    filled: float


def seen_in(trace: Trace, share: float | None = None) -> TraceEvidence:
    """Return what a trace tells.

    Args:
        trace: Of any scheme.
        share: What grows with the load, if it is known.
    """
    header = trace.header
    if max(header.workers, header.parts) > _MOST:
        problem = f"has {header.workers} workers and {header.parts} parts"
        raise InvalidTrace("the trace", f"{problem}, more than {_MOST} of one kind")
    workers, pieces = header.workers, header.parts / header.workers
    records = [record for record, _ in list(ended_steps(trace))]
    if not records:
        raise InvalidTrace("the trace", "has no step that has ended")
    found = best_share(_groups(records, workers, pieces)) if share is None else share
    grows = 1.0 if found is None else found
    seconds = np.full((len(records), workers), np.nan)
    bound = np.zeros(seconds.shape, dtype=np.bool_)
    stopwatch, before = Stopwatch(workers), None
    for place, record in enumerate(records):
        row = stopwatch.read(record)
        for worker in range(workers):
            drains = before is not None and _is_busy(before, worker)
            told = _drained if drains else _uncoded
            seconds[place, worker], bound[place, worker] = told(
                record, row, worker, grows, pieces
            )
        before = record
    missing = np.isnan(seconds)
    _fill(seconds, bound)
    steps = np.array([record.step for record in records])
    matrix = Matrix(steps, seconds, numbered(workers))
    return TraceEvidence(
        matrix, found, pieces, float(bound.mean()), float(missing.mean())
    )


def best_share(groups: Sequence[Group]) -> float | None:
    """Return the share that explains times at differing loads; None if few differ.

    Args:
        groups: (uncoded loads, seconds) of what should be equally fast.

    Example:
        >>> best_share([[(0.5, 1.75), (1.0, 2.0), (2.0, 2.5)]] * 10)
        0.25
    """
    useful = [g for g in groups if len({load for load, _ in g}) > 1]
    if len(useful) < _FEW:
        return None
    total = np.zeros(_SHARES.size)
    for group in useful:
        load, seconds = np.array(group).T
        x = np.log(seconds) - np.log(1 - _SHARES[:, None] * (1 - load))
        total += np.abs(x - np.median(x, axis=1, keepdims=True)).sum(axis=1)
    return float(_SHARES[total.argmin()])


def numbered(workers: int) -> tuple[str, ...]:
    """Return names for workers that have none, such as `worker0`."""
    return tuple(f"worker{number}" for number in range(workers))


def _groups(records: Sequence[Record], workers: int, pieces: float) -> list[Group]:
    """Return groups within steps if there are enough, else within workers."""
    within: list[Group] = []
    across: list[Group] = [[] for _ in range(workers)]
    for before, record in zip([None, *records], records, strict=False):
        for worker in range(workers):
            if before is not None and _is_busy(before, worker):
                continue  # it may have begun late
            group, is_whole = _at_a_stretch(record.stretches(worker), pieces)
            within.append(group)
            if is_whole:
                across[worker] += group[-1:]
    several = [group for group in within if len(group) > 1]
    return several if len(several) >= _FEW else _in_tens(across)


def _at_a_stretch(stretches: Sequence[Stretch], pieces: float) -> tuple[Group, bool]:
    """Return what a worker did without a pause, and whether that was all."""
    group: Group = []
    done, end = 0, -np.inf
    for stretch in stretches:
        is_next = not group or stretch.start <= end + _SHORTEST
        if not stretch.marks or not is_next:
            return group, False
        begun = stretches[0].start
        marks = [(done + parts, at - begun) for parts, at in stretch.marks]
        group += [(parts / pieces, at) for parts, at in marks if at > 0]
        done, end = marks[-1][0], stretch.marks[-1][1]
        if stretch.left:
            return group, False
    return group, bool(group)


def _in_tens(across: Sequence[Group]) -> list[Group]:
    """Cut the past of every worker into stretches, in which its speed changes less."""
    size = max(4, max(map(len, across), default=0) // _FEW)
    return [
        group[first : first + size]
        for group in across
        for first in range(0, len(group), size)
    ]


def _is_busy(record: Record, worker: int) -> bool:
    """Whether a worker had something in hand when a step ended."""
    seen = record.observe(worker)
    return seen is not None and seen.is_censored


def _uncoded(
    record: Record, row: StopwatchRow, worker: int, share: float, pieces: float
) -> tuple[float, bool]:
    """Return seconds for the uncoded load, and whether it may have been more."""
    seen = record.observe(worker)
    if seen is None:
        return np.nan, False
    x = least = 0.0
    if seen.done:
        x = per_part(seen.seconds, seen.done, share, pieces)
    if seen.is_censored:
        least = per_part(seen.elapsed, seen.done + seen.pending, share, pieces)
    most = max(x, least)
    return (most, least > x) if _SHORTEST < most < np.inf else (np.nan, False)


def _drained(
    record: Record, row: StopwatchRow, worker: int, share: float, pieces: float
) -> tuple[float, bool]:
    """Return the same for a worker that had a part in hand when the step began."""
    each, seen = float(row.part[worker]), record.observe(worker)
    if seen is None or not each > 0:
        return np.nan, False
    parts = max(1, seen.done + seen.pending)
    x = per_part(each * parts, parts, share, pieces)
    is_told = _SHORTEST < x < np.inf
    return (x, bool(row.part_is_bound[worker])) if is_told else (np.nan, False)


def _fill(seconds: Floats, bound: NDArray[np.bool_]) -> None:
    """Put medians where nothing was seen, and where a lower bound is below them."""
    for worker, column in enumerate(seconds.T):
        sure = column[~np.isnan(column) & ~bound[:, worker]]
        known = sure if sure.size else column[~np.isnan(column)]
        if not known.size:
            problem = f"worker {worker} never computed anything in it"
            raise InvalidTrace("the trace", f"{problem}; plan from a longer one")
        median = float(np.median(known))
        column[np.isnan(column)] = median
        low = bound[:, worker] & (column < median)
        column[low] = median
