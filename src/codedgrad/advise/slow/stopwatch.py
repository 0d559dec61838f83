r"""What a step tells of its workers: seconds a part, and seconds a message.

Work is counted per part, so that who was asked for more does not look slower. Who was
cut off has told a lower bound: $D$ parts done and $P$ in hand after $x$ seconds of work
are at least $x / (D + P)$ each.

A late worker may finish the part in hand before it takes up the next step, and nobody
is told when. So what it is seen to take from then on, up to its first report, is shared
among all the parts it can have been at: exact if that is one and the reported ones, a
lower bound if steps have passed without a report. What may have been a pause between
two steps is not counted.

A message takes from when it could leave, asked for and its sums closed, until it is
heard. Where closings are not reported nothing is known of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Record
from codedgrad.core.history import Stretch
from codedgrad.learning.message_times import message_times

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

_PAUSE = 0.05  # of what it had been at a part: a pause that does not matter


@dataclass(frozen=True, slots=True, eq=False)
class StopwatchRow:
    """What one step told of all workers; every array is (workers,).

    Attributes:
        step: Its number.
        part: Seconds a part; NaN where nothing was seen.
        part_is_bound: Whether it took that long at least.
        message: Seconds a message, the longest of each worker; NaN likewise.
        message_is_bound: Whether it took that long at least.
        work: Seconds of work of a worker in the step, the median of all; NaN if nobody
            finished anything.
        alive: Whether the worker was there when the step ended.
    """

    step: int
    part: Floats
    part_is_bound: Bools
    message: Floats
    message_is_bound: Bools
    work: float
    alive: Bools


@dataclass(slots=True)
class _Carried:
    """What a worker may still have in hand when a step begins.

    Attributes:
        seconds: Of work since it was last known to begin a part.
        parts: That it can have been at in them, the one in hand included.
        end: When that was, on the clock.
        is_one: Whether it is the one part in hand, which is finished without a pause.
    """

    seconds: float
    parts: int
    end: float
    is_one: bool


@dataclass(slots=True)
class _Tally:
    """What the stretches of a worker in a step add up to."""

    done: int = 0  # parts whose begin and end were seen
    seconds: float = 0.0  # for those
    left: int = 0  # parts in hand at the end
    tail: float = 0.0  # seconds for those
    least: float = 0.0  # seconds a part, at least, of what was not seen to begin

    def verdict(self) -> tuple[float, bool]:
        """Return seconds a part, and whether that is a lower bound; NaN if nothing."""
        told = self.seconds / self.done if self.done else 0.0
        parts = self.done + self.left
        least = (self.seconds + self.tail) / parts if self.left else 0.0
        if not self.done:
            least = max(least, self.least)
        best = max(told, least)
        return (best, least > told) if best > 0 else (math.nan, False)


class Stopwatch:
    """Reads what every step tells; to be shown the steps of a run in order.

    Args:
        workers: How many.

    Example:
        >>> from codedgrad.core import Coordinator, MessageArrived, StepStarted
        >>> from codedgrad.schemes import uncoded
        >>> coordinator, stopwatch = Coordinator(uncoded(workers=2)), Stopwatch(2)
        >>> _ = coordinator.handle(StepStarted(0, at=1.0))
        >>> _ = coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=1.5))
        >>> _ = coordinator.handle(MessageArrived(0, 1, 3, ((2, 1),), at=5.0))
        >>> stopwatch.read(coordinator.history.records[-1]).part
        array([0.5, 4. ])
    """

    def __init__(self, workers: int) -> None:
        self._carried: list[_Carried | None] = [None] * workers

    def read(self, record: Record) -> StopwatchRow:
        """Return what a step told, once it has ended."""
        workers = len(self._carried)
        part, message = np.full((2, workers), np.nan)
        part_is_bound, message_is_bound = np.zeros((2, workers), dtype=np.bool_)
        works = []
        for worker in range(workers):
            tally = self._tally(record, worker)
            part[worker], part_is_bound[worker] = tally.verdict()
            if tally.done and not tally.left:
                works.append(tally.seconds)
        for worker, (seconds, is_bound) in message_times(record).items():
            message[worker], message_is_bound[worker] = seconds, is_bound
        return StopwatchRow(
            step=record.step,
            part=part,
            part_is_bound=part_is_bound,
            message=message,
            message_is_bound=message_is_bound,
            work=float(np.median(works)) if works else math.nan,
            alive=np.array(record.alive, dtype=np.bool_),
        )

    def _tally(self, record: Record, worker: int) -> _Tally:
        engine = record.state.capabilities
        is_prompt = engine.interrupts_part and engine.orders_during_part
        carried, tally = self._carried[worker], _Tally()
        stretches = record.stretches(worker)
        if not stretches and carried is not None:
            carried = _Carried(0.0, carried.parts, math.inf, False)  # may have paused
        for stretch in stretches:
            carried = _add(tally, stretch, carried)
        if carried is not None and engine.interrupts_part:
            carried.is_one = False
        gone = is_prompt or not record.alive[worker]
        self._carried[worker] = None if gone else carried
        return tally


def _add(tally: _Tally, stretch: Stretch, carried: _Carried | None) -> _Carried | None:
    """Add a stretch; return what is carried on from it."""
    if carried is not None:
        pause = max(0.0, stretch.start - carried.end)
        carried.is_one &= pause <= _PAUSE * carried.seconds
        if not stretch.marks:
            return _add_silent(tally, stretch, carried)
    start, before = stretch.start, 0
    if carried is not None:
        before, first = stretch.marks[0]
        carried.seconds += first - start
        start = first
        if carried.is_one:
            tally.done += 1 + before
            tally.seconds += carried.seconds
        else:
            least = carried.seconds / (carried.parts + before)
            tally.least = max(tally.least, least)
    if stretch.marks:
        done, last = stretch.marks[-1]
        tally.done += done - before
        tally.seconds += last - start
        start = last
    if not stretch.left:
        return None
    seconds = max(0.0, stretch.end - start)
    tally.left += stretch.left
    tally.tail += seconds
    if stretch.ended == "lost":
        return None
    return _Carried(seconds, stretch.left, stretch.end, stretch.left == 1)


def _add_silent(tally: _Tally, stretch: Stretch, carried: _Carried) -> _Carried | None:
    """Add a stretch without a report, of a worker that had something in hand."""
    if stretch.left:
        carried.seconds += max(0.0, stretch.end - stretch.start)
        carried.parts += stretch.left
        carried.end, carried.is_one = stretch.end, False
        tally.least = max(tally.least, carried.seconds / carried.parts)
    return None if stretch.ended == "lost" else carried
