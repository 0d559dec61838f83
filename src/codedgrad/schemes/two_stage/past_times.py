"""How long parts took in past steps, in both stages, with the gaps filled in.

A root sees only those whom it has asked, and a worker that was not waited for only up
to the end of the step. To replay other plans on the past, every worker needs a time in
every step:

- what was not seen in stage 2 of a worker that straggled in stage 1 is what it took
  there: those who helped had finished, and say nothing about those who had not;
- what else was not seen is one of the worker's own times, of the same stage, in turn;
  else one of its times in stage 2 for stage 1; else one of anybody's, in proportion;
- what was cut off is one of the worker's own times that are longer, in turn; else twice
  as long as was seen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.core.history import Record
from codedgrad.core.state import SegmentState

SLOW = 2.5
"""Times its own median is what is called to straggle."""


@dataclass(frozen=True, slots=True, eq=False)
class StageEvidence:
    """What a step told: seconds a part took, by worker; NaN where nothing was seen.

    Attributes:
        seconds: In stage 1 and stage 2, (2, workers).
        is_least: Where it took longer than that, (2, workers).
    """

    seconds: Floats
    is_least: Bools


def unfinished(record: Record) -> frozenset[int]:
    """Return who was at a part when a step ended, and may have gone on with it."""
    if record.state.capabilities.interrupts_part:
        return frozenset()
    return frozenset(
        known.segment.worker
        for known in record.state.segments.values()
        if known.ended == "dropped" and known.done < len(known.segment.parts)
    )


def seen_in(record: Record, busy: Collection[int] = ()) -> StageEvidence:
    """Return what a step told about the pace of everybody in both stages.

    Args:
        record: Of the step.
        busy: Who may have begun late, being at a part of the step before: their clocks
            start with their first report.
    """
    state, shape = record.state, (2, len(record.alive))
    seconds, is_least = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
    end = state.started + record.seconds
    for worker in range(shape[1]):
        given = [state.segments[id_] for id_ in state.held[worker]]
        for stage in (0, 1):
            some = [k for k in given if (k.assigned > state.started) == bool(stage)]
            if some:
                told = _pace(some, end, worker in busy and not stage)
                if told is not None:
                    seconds[stage, worker], is_least[stage, worker] = told
    return StageEvidence(seconds, is_least)


def _pace(
    segments: Sequence[SegmentState], end: float, is_late: bool
) -> tuple[float, bool] | None:
    """Return the seconds a part took, and whether that is only a lower bound."""
    since = segments[0].assigned
    done = sum(known.done for known in segments)
    load = sum(len(known.segment.parts) for known in segments)
    if is_late:
        reports = sorted(
            (at, parts) for known in segments for parts, at in known.marks[:1]
        )
        if not reports:
            return None  # nobody knows when it began
        since, first = reports[0]
        done, load = done - first, load - first
    last = max((at for known in segments for _, at in known.marks), default=since)
    found = (last - since) / done if done else 0.0
    if done == load:
        return (found, False) if found > 0 else None
    stopped = [known.ended_at for known in segments if known.done == 0]
    until = min(max([last, *stopped]), end)
    least = max(found, (until - since) / (done + 1))
    return (least, True) if least > 0 else None


def filled(seconds: Floats, is_least: Bools) -> tuple[Floats, Floats]:
    """Return times of both stages, (steps, workers), with nothing missing or cut off.

    Args:
        seconds: (2, steps, workers), NaN where nothing was seen.
        is_least: Where it took longer, of the same shape.
    """
    full = np.where(is_least, np.nan, seconds)
    typical = _typical(full, seconds)
    pools = [_pool(full[stage] / typical) for stage in (0, 1)]
    pools[1] = pools[1] if pools[1].size else pools[0]
    filled = seconds.copy()
    for stage, worker in product((0, 1), range(seconds.shape[2])):
        own = _pool(full[stage, :, worker])
        other = _pool(full[1 - stage, :, worker])
        spare = pools[stage] * typical[worker]
        source = own if own.size else other if stage == 0 and other.size else spare
        if not source.size:
            source = typical[worker : worker + 1]
        for step in range(seconds.shape[1]):
            seen = float(seconds[stage, step, worker])
            if math.isnan(seen):
                before = filled[0, step, worker]
                is_slow = stage == 1 and before > SLOW * typical[worker]
                guess = before if is_slow else source[step % len(source)]
                filled[stage, step, worker] = guess
            elif is_least[stage, step, worker]:
                longer = own[own > seen]
                guess = longer[step % len(longer)] if longer.size else 2.0 * seen
                filled[stage, step, worker] = guess
    return filled[0], filled[1]


def _typical(full: Floats, seconds: Floats) -> Floats:
    """Return the median pace of every worker; that of all where none was seen."""
    both = full.reshape(-1, full.shape[2])
    cut = seconds.reshape(-1, full.shape[2])
    own = np.full(full.shape[2], np.nan)
    for worker in range(len(own)):
        known = _pool(both[:, worker])
        known = known if known.size else _pool(cut[:, worker])
        if known.size:
            own[worker] = np.median(known)
    usual = np.median(_pool(own)) if _pool(own).size else 1.0
    return np.where(np.isnan(own), usual, own)


def _pool(values: Floats) -> Floats:
    return np.asarray(values[~np.isnan(values)])
