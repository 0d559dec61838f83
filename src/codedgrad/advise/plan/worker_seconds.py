r"""What a trace says about its workers: seconds for the uncoded load, and the share.

A worker takes $x \, ((1 - f) + f \ell)$ seconds for $\ell$ times the uncoded load. One
load cannot tell $f$. Two can: what was done by each report of a worker in a step, or
the loads it had in several steps. The $f$ taken is that for which the logarithms of
$x$, within such a group, are nearest to their median, in absolute terms.

The seconds of every worker and step are those of `codedgrad.learning.waiting`, so that
simulating `uncoded` on them gives what waiting for all is said to take elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Record
from codedgrad.core.history import Stretch
from codedgrad.delays import Matrix
from codedgrad.errors import InvalidTrace
from codedgrad.learning.savings import Savings
from codedgrad.trace import Trace, ended_steps, waiting_of

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
        filled: Of the seconds, the share that was not seen: a worker was gone, or asked
            nothing. Its usual time stands there.
        savings: What steps took, and what waiting for all would have taken.
    """

    matrix: Matrix
    share: float | None
    pieces: float
    bounds: float
    filled: float
    savings: Savings


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
    waiting, groups = waiting_of(header), _Groups(workers)
    for record, _ in ended_steps(trace):
        waiting.add(record)
        groups.add(record, pieces)
    rows = list(waiting.loads())
    if not rows:
        raise InvalidTrace("the trace", "has no step that gave a sum")
    loads = [row for _, row in rows]
    seconds = np.array([[np.nan if x is None else x.seconds for x in r] for r in loads])
    seconds[seconds < _SHORTEST] = np.nan
    bound = np.array([[x is not None and x.is_bound for x in row] for row in loads])
    seen = np.array([[x is not None and x.is_seen for x in row] for row in loads])
    never = np.flatnonzero(~seen.any(axis=0) | np.isnan(seconds).all(axis=0))
    if never.size:
        problem = f"worker {never[0]} never computed anything in it"
        raise InvalidTrace("the trace", f"{problem}; plan from a longer one")
    _fill(seconds, bound)
    steps = np.array([step for step, _ in rows])
    return TraceEvidence(
        Matrix(steps, seconds, numbered(workers)),
        best_share(groups.found()) if share is None else share,
        pieces,
        float(bound.mean()),
        float((~seen).mean()),
        waiting.means(),
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


class _Groups:
    """Gathers (uncoded loads, seconds) of what should be equally fast."""

    def __init__(self, workers: int) -> None:
        self._within: list[Group] = []  # of a worker in a step
        self._across: list[Group] = [[] for _ in range(workers)]  # of its whole steps
        self._busy = [False] * workers

    def add(self, record: Record, pieces: float) -> None:
        """Take a step; of a worker that was at an older part it tells nothing."""
        for worker, was_busy in enumerate(self._busy):
            seen = record.observe(worker)
            self._busy[worker] = seen is not None and seen.is_censored
            if was_busy:
                continue  # it may have begun late
            group, is_whole = _at_a_stretch(record.stretches(worker), pieces)
            if len(group) > 1:
                self._within.append(group)
            if is_whole:
                self._across[worker] += group[-1:]

    def found(self) -> list[Group]:
        """Return groups within steps if there are enough, else within workers."""
        within = self._within
        return within if len(within) >= _FEW else _in_tens(self._across)


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


def _fill(seconds: Floats, bound: NDArray[np.bool_]) -> None:
    """Put medians where a worker was away, and where a lower bound is below them."""
    for worker, column in enumerate(seconds.T):
        sure = column[~np.isnan(column) & ~bound[:, worker]]
        median = float(np.median(sure if sure.size else column[~np.isnan(column)]))
        column[np.isnan(column) | (bound[:, worker] & (column < median))] = median
