"""An engine without processes: every worker's parts are computed here, in turn.

For single-process training over the same parts, and for a debugger. Nobody is slow:
workers take turns, a part each.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.core import (
    Assign,
    Capabilities,
    Drop,
    Event,
    MessageArrived,
    Order,
    Progress,
    Progressed,
    Report,
    Segment,
    Send,
    Session,
    Upload,
)
from codedgrad.delays import Times
from codedgrad.engines.engine import MakeJob
from codedgrad.engines.faults import FaultPlan, Injector, no_delays
from codedgrad.engines.host.memory_layout import (
    OPEN_SEGMENTS,
    Memory,
    MemoryShape,
    Private,
)
from codedgrad.engines.host.rows import Rows, add_rows
from codedgrad.engines.host.same_job import host_name
from codedgrad.engines.host.sum_checks import Token, is_finite, stamp
from codedgrad.engines.worker_status import WorkerStatus, WorkerTable
from codedgrad.errors import InvalidOptions, ProtocolError
from codedgrad.jobs import VectorLayout, WorkerJob

_NAP = 1.0  # seconds


class Desk:
    """Where sums are made in this process: a job, its parameters, and rows.

    Args:
        make: Makes the job.
        layout: How long its vectors should be.
        workers: How many have rows.
        open_segments: Sums that each may hold at a time.

    Attributes:
        rows: Which row holds which sum.
        parameters: Of the step, read-only.
    """

    def __init__(
        self, make: MakeJob, layout: VectorLayout, workers: int, open_segments: int
    ) -> None:
        self._job = make()
        shape = MemoryShape.of(layout, workers, open_segments)
        shape.check(self._job.layout)
        self._memory = Memory(Private(shape.size), shape)
        self.rows = Rows(self._memory)
        self._gradient = layout.gradient
        self._step = -1
        self._sums: dict[int, NDArray[Any]] = {}
        self._gathered: dict[int, tuple[int, tuple[tuple[int, float], ...]]] = {}
        self._full: set[int] = set()  # segments that hold what was gathered
        self._finite: dict[int, bool] = {}  # by segment, once it has its checks
        self._tokens: dict[int, Token] = {}  # by segment
        self._message = layout.message

    def begin(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Begin a step."""
        wanted = self._memory.versions.shape[1:]
        if parameters.shape != wanted:
            problem = f"have shape {parameters.shape}"
            raise InvalidOptions("parameters", problem, f"{wanted}")
        version = self._memory.publish(parameters, (), changed)
        self._parameters = self._memory.parameters(version)
        self._step = step
        self.rows.begin()
        self._sums.clear()
        self._gathered.clear()
        self._full.clear()
        self._finite.clear()

    def take(self, order: Order) -> None:
        """Make room for what an order asks for."""
        match order:
            case Assign(_, segment, message):
                row = self.rows.give(segment, message, order.to)
                self._sums[segment.id] = self._memory.row(row)
            case Upload(_, worker, message, segments, gathered, to):
                self.rows.expect(message, worker, segments, to)
                if gathered:
                    self._gathered[message] = segments[0], gathered
            case Drop(_, worker):
                self.rows.forget(worker)

    def add(self, segment: int, part: int, coefficient: float, first: bool) -> None:
        """Compute a part and add it to the sum of a segment."""
        out = self._sums[segment][: self._message]
        self._finite.pop(segment, None)
        if first:
            self._tokens[segment] = Token()
        self._tokens[segment].add(self._step, part, coefficient)
        self._job.part(
            self._parameters, part, self._step, coefficient, out, add=not first
        )

    def compute(self, segment: Segment, done: int) -> None:
        """Compute the sum of a segment, up to so many parts."""
        pairs = zip(segment.parts, segment.coefficients, strict=True)
        self._full.discard(segment.id)
        for number, (part, coefficient) in enumerate(list(pairs)[:done]):
            self.add(segment.id, part, coefficient, number == 0)

    def send(self, message: int, cuts: tuple[tuple[int, int], ...]) -> bool:
        """Make a message of sums; return whether all its numbers are finite."""
        sums = [id_ for id_, done in cuts if done > 0]
        for id_ in sums:
            if id_ not in self._finite:
                row, token = self._sums[id_], self._tokens[id_]
                self._finite[id_] = stamp(row, self._gradient, token)
        self._gather(message)
        return all(self._finite[id_] for id_ in sums)

    def _gather(self, message: int) -> None:
        """Add what others have sent for a message to the sum of its own parts, once."""
        segment, messages = self._gathered.get(message, (-1, ()))
        if messages and segment not in self._full:
            self._full.add(segment)
            pairs = self.rows.gathered(messages)
            row = self._sums[segment]
            add_rows([(self._memory.row(r), a) for r, a in pairs], row)
            self._finite[segment] = is_finite(row)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs."""
        return self.rows.compare(messages, self._gradient)


class Here:
    """Workers that take turns in this process.

    Args:
        open_segments: Sums that a worker may hold in a step.
    """

    name = "here"

    def __init__(self, *, open_segments: int = OPEN_SEGMENTS) -> None:
        self.capabilities = Capabilities(rows_per_worker=open_segments)
        self._begun = time.monotonic()
        self._desk: Desk | None = None
        self._sessions: list[Session] = []
        self._workers = 0
        self._pending: deque[Event] = deque()
        self._is_closed = False

    def start(
        self,
        make: MakeJob,
        layout: VectorLayout,
        workers: int,
        *,
        faults: FaultPlan | None = None,
        delays: Times | None = None,
        parts: int = 1,
        root: WorkerJob | None = None,
    ) -> None:
        """Make the job."""
        if self._desk is not None or self._is_closed:
            raise ProtocolError("an engine is started once")
        if faults is not None and faults.planned:
            problem = "has no processes to stop or to kill"
            raise InvalidOptions("the engine `here`", problem, 'engine="local"')
        times = no_delays(workers) if delays is None else delays
        if times.workers != workers:
            problem = f"has times for {times.workers} workers"
            raise InvalidOptions("delays", problem, f"times for {workers}")
        fixed, part = times.fixed, times.part(parts)
        if not np.isfinite(fixed + part).all():
            problem = "has no processes that could be away for ever"
            raise InvalidOptions("the engine `here`", problem, 'engine="local"')
        self._injectors = [
            Injector(
                number,
                (),
                fixed[:, number],
                part[:, number],
                lambda said: None,
                None if times.stretch is None else times.stretch[:, number],
            )
            for number in range(workers)
        ]
        self._desk = Desk(make, layout, workers, self.capabilities.rows_per_worker)
        self._sessions = [Session(number) for number in range(workers)]
        self._workers = workers

    def now(self) -> float:
        """Return the seconds since the engine was made."""
        return time.monotonic() - self._begun

    def publish(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Let all orders from now on be about a new step, and these parameters."""
        self._open.begin(step, parameters, changed)
        self._turn = 0

    def give(self, order: Order) -> None:
        """Take an order for a worker."""
        self._open.take(order)
        worker = order.segment.worker if isinstance(order, Assign) else order.worker
        self._say(worker, self._sessions[worker].order(order))

    def next_event(self, timeout: float) -> Event | None:
        """Return what happened next, computing until something does.

        None if nothing has after `timeout` seconds; a part under way is finished first.
        """
        deadline = self.now() + timeout
        while not self._pending:
            if (left := deadline - self.now()) <= 0:
                return None
            busy = [s for s in self._sessions if s.task is not None]
            if not busy:
                time.sleep(min(_NAP, left))
                continue
            self._turn += 1
            self._compute(busy[self._turn % len(busy)])
        stamped: Event = msgspec.structs.replace(self._pending.popleft(), at=self.now())
        return stamped

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        for session in self._sessions:
            session.order(Drop(step, session.worker))

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages, (layout.row,); valid until the next."""
        return self._open.rows.combine(weights)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs."""
        return self._open.compare(messages)

    def close(self) -> None:
        """Let go of the job."""
        self._desk, self._sessions = None, []
        self._pending.clear()
        self._is_closed = True

    @property
    def workers(self) -> WorkerTable:
        """All workers: they are this process."""
        host, pid = host_name(), None if self._is_closed else os.getpid()
        return WorkerTable(
            WorkerStatus(number, host, pid, self._state(number))
            for number in range(self._workers)
        )

    def _state(self, worker: int) -> str:
        if self._is_closed:
            return "ended"
        return "ready" if self._sessions[worker].task is None else "working"

    @property
    def _open(self) -> Desk:
        if self._desk is None:
            raise ProtocolError("the engine is not started, or closed")
        return self._desk

    def _compute(self, session: Session) -> None:
        """Compute a part; nothing can come in between, so it goes straight in."""
        task = session.task
        assert task is not None  # it is busy
        injector = self._injectors[session.worker]
        injector.before_part(task.step, 0)
        first = session.merged(task.segment) == 0
        self._open.add(task.segment, task.part, task.coefficient, first)
        injector.after_part(task.step, 1)
        self._say(session.worker, session.finish(task))

    def _say(self, worker: int, reports: list[Report]) -> None:
        for report in reports:
            match report:
                case Progress(step, segment, done, closed):
                    event: Event = Progressed(step, worker, segment, done, closed, 0.0)
                case Send(step, message, cuts):
                    finite = self._open.send(message, cuts)
                    self._open.rows.sent(worker, message, cuts)
                    event = MessageArrived(step, worker, message, cuts, 0.0, finite)
            self._pending.append(event)
