"""The worker's side of a step, without a process, a pipe or a gradient.

One session serves every driver: it takes orders, says which part to compute next, is
told when that part is merged, and says what to report. The races are all in here:

1. A cut closes at max(keep, merged). A part under way beyond the border is not merged,
   whenever it finishes. What was assigned as a whole is not cut.
2. A closed segment never grows, and its closing is reported once.
3. A message goes out as soon as all its segments are closed, and once.
4. An order of a newer step drops everything older; orders of older steps are ignored.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from codedgrad.core.commands import ROOT, Assign, Cut, Drop, Order, Upload


class Task(Struct, frozen=True, gc=False):
    """Compute this part and, unless it is abandoned, merge it with its coefficient."""

    step: int
    segment: int
    part: int
    coefficient: float


class Progress(Struct, frozen=True, gc=False):
    """To be reported: see `Progressed`."""

    step: int
    segment: int
    done: int
    closed: bool


class Send(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """To be sent: the sum of these segments, as it is now. See `MessageArrived`.

    With what was gathered from others, and to whom, as in `Upload`.
    """

    step: int
    message: int
    cuts: tuple[tuple[int, int], ...]
    gathered: tuple[tuple[int, float], ...] = ()
    to: int = ROOT


Report: TypeAlias = Progress | Send


class _Held:
    """A segment at its worker."""

    __slots__ = ("closed", "coefficients", "done", "id", "keep", "parts", "whole")

    def __init__(self, order: Assign) -> None:
        segment = order.segment
        self.id = segment.id
        self.parts = segment.parts
        self.coefficients = segment.coefficients
        self.done = 0
        self.keep = len(segment.parts)
        self.closed = False
        self.whole = order.whole


class _Wanted(NamedTuple):
    """A message that is to be sent."""

    segments: tuple[int, ...]
    gathered: tuple[tuple[int, float], ...]
    to: int


class Session:
    """What one worker has been asked for in the newest step it knows.

    Drivers loop: `task` is the part to compute now (None: idle); when it is computed
    and merged they call `finish`. If an order makes the part useless `task` changes at
    once; a driver that cannot interrupt calls `finish` later with the old task, which
    then changes nothing.

    Args:
        worker: Its number.
        progress: Whether every part is reported, or closings and messages only.

    Example:
        >>> from codedgrad.core.commands import Segment
        >>> session = Session(worker=3)
        >>> session.order(Assign(0, Segment(0, 3, (7, 8), (1.0, 1.0)), message=1))
        []
        >>> session.task
        Task(step=0, segment=0, part=7, coefficient=1.0)
        >>> session.finish(session.task)
        [Progress(step=0, segment=0, done=1, closed=False)]
        >>> session.order(Cut(0, 3, segment=0, keep=0))  # part 8 is under way
        [Progress(step=0, segment=0, done=1, closed=True), \
Send(step=0, message=1, cuts=((0, 1),))]
        >>> session.task is None
        True
    """

    def __init__(self, worker: int, progress: bool = True) -> None:
        self.worker = worker
        self.step = -1
        self.task: Task | None = None
        self._progress = progress
        self._held: dict[int, _Held] = {}
        self._queue: deque[_Held] = deque()
        self._uploads: dict[int, _Wanted] = {}

    def order(self, order: Order) -> list[Report]:
        """Take an order; return what there is to report at once."""
        if order.step < self.step:
            return []
        if order.step > self.step:
            self._renew(order.step)
        reports: list[Report] = []
        match order:
            case Assign(_, segment, message):
                self._queue.append(held := _Held(order))
                self._held[segment.id] = held
                if message is not None:
                    self._uploads[message] = _Wanted((segment.id,), (), order.to)
            case Cut(_, _, id_, keep):
                held_ = self._held.get(id_)
                if held_ is None or held_.closed or held_.whole:
                    return []
                held_.keep = min(held_.keep, max(keep, held_.done))
                if held_.done >= held_.keep:
                    reports += self._close(held_)
            case Upload(_, _, message, segments, gathered, to):
                if all(id_ in self._held for id_ in segments):
                    self._uploads[message] = _Wanted(segments, gathered, to)
                    reports += self._ready()
            case Drop():
                self._renew(order.step)
        self._next()
        return reports

    def finish(self, task: Task) -> list[Report]:
        """Note that a part is computed; return what there is to report.

        The driver merges the part first, if `task` is still the session's own.
        """
        if task is not self.task:
            return []  # abandoned since
        held = self._held[task.segment]
        held.done += 1
        reports: list[Report] = []
        if held.done >= held.keep:
            reports += self._close(held)
        elif self._progress:
            reports.append(Progress(self.step, held.id, held.done, closed=False))
        self.task = None
        self._next()
        return reports

    def merged(self, segment: int) -> int:
        """Return how many parts of a segment are merged."""
        return self._held[segment].done

    def _close(self, held: _Held) -> list[Report]:
        held.closed = True
        ready = self._ready()
        told = any(id_ == held.id for send in ready for id_, _ in send.cuts)
        if told and not self._progress:
            return list(ready)  # the message says so
        return [Progress(self.step, held.id, held.done, closed=True), *ready]

    def _ready(self) -> list[Send]:
        ready = []
        for message, wanted in list(self._uploads.items()):
            held = [self._held[id_] for id_ in wanted.segments]
            if all(h.closed for h in held):
                del self._uploads[message]
                cuts = tuple((h.id, h.done) for h in held)
                gathered, to = wanted.gathered, wanted.to
                ready.append(Send(self.step, message, cuts, gathered, to))
        return ready

    def _next(self) -> None:
        queue = self._queue
        while queue and queue[0].closed:
            queue.popleft()
        if not queue:
            self.task = None
            return
        held = queue[0]
        at = held.done
        if self.task is None or self.task.segment != held.id:
            self.task = Task(self.step, held.id, held.parts[at], held.coefficients[at])

    def _renew(self, step: int) -> None:
        self.step = step
        self.task = None
        self._held.clear()
        self._queue.clear()
        self._uploads.clear()
