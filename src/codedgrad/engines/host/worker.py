"""The worker's loop: two threads around one session.

One thread computes. The other takes orders, also during a part, so that a cut or a
drop is known at once; a part under way is finished, and merged only if it is still
wanted. Every worker process runs this loop, whatever its engine.

1. The first part of a segment is written straight into its row, and where the segment
   is never cut all others are added to it there: if one is abandoned the row counts for
   nothing. Elsewhere later parts go through one scratch row, so that a cut during a
   part leaves the sum as it was.
2. What is said is said under the lock, so that the root hears it in order.
3. What others have sent to a worker is added to its own sum just before that is sent;
   its row then holds both, and no other message may be made of it.
4. `Left` is said when there is nothing in hand: from then on the worker touches neither
   parameters nor rows until it is given something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Assign, Progress, Report, Send, Session, Task, Upload
from codedgrad.engines.faults import Injector, mangle, spoil
from codedgrad.engines.host.memory_layout import WorkerMemory
from codedgrad.engines.host.rows import add_rows
from codedgrad.engines.host.sum_checks import Token, is_finite, stamp
from codedgrad.engines.host.wire import Give, Left, Said, Sent, Told
from codedgrad.jobs import WorkerJob


class PartFailed(Exception):
    """The job raised; the cause is its own exception."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class _Sum:
    """A segment's running sum, to which what was gathered is added when it is sent."""

    __slots__ = ("finite", "gathered", "merged", "out", "row", "token", "whole")

    def __init__(self, row: NDArray[Any], message: int, whole: bool) -> None:
        self.row = row
        self.out = row[:message]  # what the job writes; behind it are the checks
        self.whole = whole
        self.merged = 0
        self.token = Token()
        self.gathered: tuple[tuple[int, float], ...] = ()
        self.finite: bool | None = None  # None: it has no checks yet


class Worker:
    """Computes what it is given, in the thread that calls `run`.

    Args:
        number: Of the worker.
        job: What to compute.
        store: Where rows and parameters are.
        say: Tells the root.
        injector: Faults and delays on purpose.
        interrupts: Whether a delay ends when its part is abandoned.
    """

    def __init__(
        self,
        number: int,
        job: WorkerJob,
        store: WorkerMemory,
        say: Callable[[list[Said]], None],
        injector: Injector,
        interrupts: bool = False,
    ) -> None:
        self._job = job
        self._store = store
        self._say = say
        self._injector = injector
        self._interrupts = interrupts
        self._session = Session(number)
        self._changed = threading.Condition()
        self._sums: dict[int, _Sum] = {}
        self._gathered: dict[int, tuple[tuple[int, float], ...]] = {}  # by message
        self._asked: set[int] = set()  # segments whose sums are to be sent
        self._gradient = job.layout.gradient
        self._scratch = np.empty(job.layout.message, dtype=job.layout.dtype)
        self._version = -1
        self._computed = 0  # parts of this step
        self._taken = 0  # segments, ever
        self._left = 0  # how many of them were there when last idle
        self._busy = False
        self._has_abandoned = False  # the last part that was computed
        self._part_seconds = 0.0  # that it took

    def take(self, gives: list[Give]) -> None:
        """Take orders; the other thread goes on with its part."""
        with self._changed:
            said: list[Said] = []
            for give in gives:
                self._note(give)
                said += self._said(self._session.order(give.order))
            self._tell(said)
            self._changed.notify()

    def run(self) -> None:
        """Compute for ever.

        Raises:
            PartFailed: If the job does.
        """
        while True:
            with self._changed:
                while (task := self._session.task) is None:
                    self._changed.wait()
                self._busy = True
                sum_ = self._sums[task.segment]
                parameters = self._store.parameters(self._version)
                computed = self._computed
            add = sum_.merged > 0 and sum_.whole
            out = self._scratch if sum_.merged and not sum_.whole else sum_.out
            begun = time.monotonic()
            sleep = partial(self._nap, task) if self._interrupts else time.sleep
            self._injector.before_part(task.step, computed, sleep)
            try:
                self._job.part(
                    parameters, task.part, task.step, task.coefficient, out, add
                )
            except BaseException as error:  # sys.exit() too
                raise PartFailed(task) from error
            self._injector.after_part(task.step, computed + 1, sleep)
            with self._changed:
                self._part_seconds = time.monotonic() - begun
                self._merge(task, sum_)

    def _nap(self, task: Task, seconds: float) -> None:
        """Sleep, until a part is abandoned at the latest."""
        with self._changed:
            self._changed.wait_for(lambda: task is not self._session.task, seconds)

    def _merge(self, task: Task, sum_: _Sum) -> None:
        self._busy = False
        self._has_abandoned = task is not self._session.task
        if not self._has_abandoned:
            if sum_.merged and not sum_.whole:
                np.add(sum_.out, self._scratch, out=sum_.out)
            sum_.merged += 1
            sum_.token.add(task.step, task.part, task.coefficient)
            self._computed += 1
        self._tell(self._said(self._session.finish(task)))

    def _note(self, give: Give) -> None:
        order = give.order
        if order.step > self._session.step:
            self._sums.clear()
            self._gathered.clear()
            self._asked.clear()
            self._computed = 0
        if isinstance(order, Assign):
            self._taken += 1
            self._version = give.version
            row, length = self._store.row(give.row), len(self._scratch)
            self._sums[order.segment.id] = _Sum(row, length, order.whole)
            if order.message is not None:
                self._asked.add(order.segment.id)
        elif isinstance(order, Upload):
            self._asked.update(order.segments)
            if give.gathered:
                self._gathered[order.message] = give.gathered

    def _said(self, reports: list[Report]) -> list[Said]:
        said: list[Said] = []
        for report in reports:
            match report:
                case Progress(step, segment, done, closed):
                    said.append(Told(step, segment, done, closed))
                case Send():
                    self._injector.before_message(report.step, self._computed, said)
                    said += self._send(report)
        return said

    def _send(self, send: Send) -> list[Said]:
        sums = [self._sums[id_] for id_, done in send.cuts if done > 0]
        how = self._injector.corruption(send.step)
        if how:
            spoil([sum_.out for sum_ in sums], how)
        for sum_ in sums:
            if sum_.finite is None or how:
                sum_.finite = stamp(sum_.row, self._gradient, sum_.token)
        self._gather(send)
        finite = all(sum_.finite for sum_ in sums)
        size = len(self._scratch)
        sent = Sent(send.step, send.message, send.cuts, finite, size)
        return mangle(sent, how) if how else [sent]

    def _gather(self, send: Send) -> None:
        """Add what others have sent here to the sum, once."""
        gathered = self._gathered.get(send.message, ())
        first, _ = send.cuts[0]
        sum_ = self._sums[first]
        if gathered and not sum_.gathered:
            sum_.gathered = gathered
            rows = [(self._store.row(row), weight) for row, weight in gathered]
            add_rows(rows, sum_.row)
            sum_.finite = is_finite(sum_.row)

    def _tell(self, said: list[Said]) -> None:
        idle = not self._busy and self._session.task is None
        if idle and self._left != self._taken:
            self._left = self._taken
            said.append(Left(self._taken, self._has_abandoned, self._part_seconds))
            self._has_abandoned = False
        if said:
            self._say(said)
            self._injector.after_saying(said, self._asked, self._computed)
