"""Which part a worker computes, and which part kills the workers that compute it.

A worker that dies by a signal says nothing. The root derives the part from what it has
given to the worker and what the worker has reported since (`InHand`), because a note in
shared memory for every part would cost every part. It counts deaths by part (`Deaths`):
a part that kills every worker it is given to would otherwise be given out for ever.

| signal | deaths of workers in the same part of a step that end the run |
| --- | --- |
| SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT | two |
| SIGKILL | three, on two workers or more |

SIGKILL is what the kernel sends when memory runs out, but anybody else may as well.
Other signals, and faults on purpose, are not counted.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from codedgrad.core import Assign, Drop, Order, Segment

PartOfStep: TypeAlias = tuple[int, int]
"""(step, part)."""

_FAULTS = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}
)
_FAULT_LIMIT = 2  # deaths by one of them: the program itself is at fault
_KILL_LIMIT = 3  # deaths by SIGKILL: the first ones may be anybody's doing
_KILL_WORKERS = 2  # on so many workers: one host may simply be short of memory
_STEPS = 16  # a death may be heard of a few steps after the step it happened in
_LIVES = 4  # of a worker, whose ends may be known and not yet their causes


class InHand:
    """What a life of a worker has been given and has not reported as done."""

    __slots__ = ("_abandoned", "_done", "_segments", "_step")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Note that the worker has nothing in hand."""
        self._step = -1
        self._segments: dict[int, Segment] = {}  # not closed, in the order given
        self._done: dict[int, int] = {}  # parts merged, by segment
        self._abandoned: PartOfStep | None = None

    def give(self, order: Order) -> None:
        """Note an order that was sent to the worker."""
        if isinstance(order, Assign):
            if order.step != self._step:
                self.clear()
                self._step = order.step
            self._segments[order.segment.id] = order.segment
        elif isinstance(order, Drop):
            # a part is not interrupted: the worker computes it to its end
            self._abandoned = self.part
            self._segments.clear()
            self._done.clear()

    def told(self, step: int, segment: int, done: int, closed: bool) -> None:
        """Note what the worker has reported of a segment."""
        held = self._segments.get(segment)
        if step != self._step or held is None:
            return
        if done > self._done.get(segment, 0):
            self._abandoned = None  # a part was merged: it is at the next one
        elif closed and self._abandoned is None and self._is_first(segment):
            self._abandoned = self.part  # cut in the midst of it
        self._done[segment] = done
        if closed:
            del self._segments[segment]

    def _is_first(self, segment: int) -> bool:
        return next(iter(self._segments), None) == segment

    @property
    def part(self) -> PartOfStep | None:
        """The part that the worker computes; None: none, or it is not known which.

        A worker does not report the end of a part that was cut off: whether it is still
        at that part or at the first of its next segment the root cannot tell.
        """
        if self._abandoned is not None:
            return None if self._segments else self._abandoned
        for id_, segment in self._segments.items():
            done = self._done.get(id_, 0)
            if done < len(segment.parts):
                return self._step, segment.parts[done]
        return None


@dataclass(slots=True)
class Death:
    """The end of a life, of which exit code and loss are heard in any order.

    Attributes:
        worker: The worker.
        life: Which life of it.
        code: Its exit code, or minus the signal that ended it; None: not known yet.
        is_lost: Whether the end of its stream was heard.
        part: That it computed; None: none.
        is_intended: Whether the root killed it on purpose.
        killed: If the part is to blame, the (worker, signal) of every death in it.
    """

    worker: int
    life: int
    code: int | None = None
    is_lost: bool = False
    part: PartOfStep | None = None
    is_intended: bool = False
    killed: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Deaths:
    """Counts deaths by part of a step.

    The end of a worker's stream and its exit code come from two places, in any order;
    a death is judged when both are known.
    """

    _ends: dict[int, deque[Death]] = field(default_factory=dict)  # by worker
    _killed: dict[tuple[PartOfStep, bool], list[tuple[int, int]]] = field(
        default_factory=dict
    )  # by part, and whether by a fault of the program: (worker, signal)

    def forget_before(self, step: int) -> None:
        """Forget the deaths of steps that are long over."""
        if self._killed:
            self._killed = {
                key: deaths
                for key, deaths in self._killed.items()
                if key[0][0] >= step - _STEPS
            }

    def lost(
        self, worker: int, life: int, part: PartOfStep | None, is_intended: bool
    ) -> Death | None:
        """Note that a life of a worker is over, and the part it was at.

        Args:
            worker: The worker.
            life: Which life of it.
            part: In hand at the end.
            is_intended: Whether it was killed on purpose.
        """
        end = self._end(worker, life)
        end.is_lost, end.part, end.is_intended = True, part, is_intended
        return self._judge(end)

    def died(self, worker: int, life: int, code: int) -> Death | None:
        """Note the exit code of a life of a worker, or minus its signal."""
        end = self._end(worker, life)
        end.code = code
        return self._judge(end)

    def _end(self, worker: int, life: int) -> Death:
        ends = self._ends.setdefault(worker, deque(maxlen=_LIVES))
        for end in ends:
            if end.life == life:
                return end
        ends.append(end := Death(worker, life))
        return end

    def _judge(self, end: Death) -> Death | None:
        if end.code is None or not end.is_lost:
            return None
        self._ends[end.worker].remove(end)
        number = -end.code
        is_counted = number in {*_FAULTS, signal.SIGKILL} and not end.is_intended
        if end.part is None or not is_counted:
            return end
        is_fault = number in _FAULTS
        killed = self._killed.setdefault((end.part, is_fault), [])
        killed.append((end.worker, number))
        workers = {worker for worker, _ in killed}
        is_to_blame = len(killed) >= (_FAULT_LIMIT if is_fault else _KILL_LIMIT) and (
            is_fault or len(workers) >= _KILL_WORKERS
        )
        end.killed = tuple(killed) if is_to_blame else ()
        return end


def signal_name(number: int) -> str:
    """Return the name of a signal.

    Example:
        >>> signal_name(11)
        'SIGSEGV'
        >>> signal_name(4000)
        'signal 4000'
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
