"""What engines with worker processes have in common: lives, orders, reports, faults.

It decides nothing about a step. It knows which life of a worker is there and what that
has in hand, hands reports on as events, brings the dead back, and carries out faults on
purpose. The workers are on hosts: the root's own machine, and others that a subclass
reaches.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from sched import scheduler
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.core import (
    Assign,
    Capabilities,
    Drop,
    Event,
    MessageArrived,
    MessageFailed,
    Order,
    Progressed,
    Upload,
    WorkerFreed,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines.clock import LOOK, Clock
from codedgrad.engines.engine import MakeJob
from codedgrad.engines.faults import FaultPlan, away, no_delays
from codedgrad.engines.fleet.lives import Lives
from codedgrad.engines.fleet.root_host import RootHost
from codedgrad.engines.fleet.worker_handle import HostHandle, WorkerHandle
from codedgrad.engines.host.cores import checked_threads, threads_per_worker
from codedgrad.engines.host.file_descriptors import enough_descriptors
from codedgrad.engines.host.host import Heard, Over
from codedgrad.engines.host.memory_layout import (
    OPEN_SEGMENTS,
    Memory,
    MemoryShape,
    Private,
)
from codedgrad.engines.host.nursery_client import packed, script_arguments
from codedgrad.engines.host.nursery_messages import Born, Died, Failed, Prepare, Setup
from codedgrad.engines.host.process_title import script_name
from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.host.rows import ROOT_HOST, Rows
from codedgrad.engines.host.same_job import SameJob
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.host.wire import (
    Crashed,
    Fired,
    Give,
    Left,
    Ready,
    Said,
    Sent,
    Told,
    decode_said,
)
from codedgrad.engines.worker_status import WorkerStatus, WorkerTable
from codedgrad.errors import (
    CodedgradError,
    InvalidOptions,
    JobFailed,
    ProtocolError,
)
from codedgrad.jobs import VectorLayout, WorkerJob

_log = logging.getLogger("codedgrad")
_SLOW_START = 10.0  # seconds until it is said what is waited for


def inlet(inbox: deque[tuple[int, Any]], host: int) -> Callable[[Any], None]:
    """Return what puts the reports of a host into an inbox.

    It does not refer to the engine: a host keeps it, and an engine that its own hosts
    referred to would not be closed when its user forgets it.
    """
    return lambda report: inbox.append((host, report))


class Held:
    """What an engine must give back, also if it is forgotten or Python ends.

    Nothing in it may lead back to the engine, which would then never be forgotten.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._owner = os.getpid()

    def close(self) -> None:
        """Give everything back, the last thing first."""
        if os.getpid() == self._owner:  # else a fork of the root: none of it is its own
            self.stack.close()


class Fleet(ABC):
    """An engine whose workers are processes, on one host or on several.

    `Local`, which is this with the root's own host alone, documents the arguments.

    Attributes:
        refused: What workers said that could not be meant, counted by reason.
    """

    name: ClassVar[str]
    _reactor: Reactor  # watches the sockets of workers, and of other hosts

    def __init__(
        self,
        *,
        open_segments: int = OPEN_SEGMENTS,
        folder: Path | None = None,
        preload: Sequence[str] = (),
        interrupts: bool = False,
        threads: int | str = "auto",
    ) -> None:
        if open_segments < 1:
            problem = f"open_segments = {open_segments}"
            raise InvalidOptions(f"{self.name} engine", problem, "1 or more")
        self.capabilities = Capabilities(
            interrupts_part=interrupts, rows_per_worker=open_segments
        )
        self.refused: Counter[str] = Counter()
        self._threads = checked_threads(threads)
        self._folder = folder
        self._preload = list(preload)
        self._handles: list[WorkerHandle] = []
        self._hosts: list[HostHandle] = []
        self._root_host: RootHost | None = None
        self._threads_of: dict[int, int] = {}  # by host, of each worker there
        self._inbox: deque[tuple[int, Any]] = deque()  # (host, what it has said)
        self._pending: deque[Event] = deque()
        self._clock = Clock()
        self._agenda = scheduler(self.now, delayfunc=lambda seconds: None)
        self._lives = Lives(self._agenda, self.now, self._pending.append)
        self._finished = -1  # the step that has ended last
        self._crashes: set[tuple[int, int]] = set()
        self._failure: CodedgradError | None = None  # met between two steps
        self._thread = threading.get_ident()
        self._same = SameJob()
        self._is_joining = False
        self._held = Held()
        self._end = weakref.finalize(self, self._held.close)

    # -- what differs ----------------------------------------------------------------

    @abstractmethod
    def _open(self, setup: Setup, workers: int) -> None:
        """Get a reactor, and hosts for workers, by `_begin_at_root` among others."""

    def _hear_host(self, host: int, message: Any) -> None:
        """Take what only other hosts say."""
        raise ProtocolError(f"host {host} says {message!r}")

    def _bring(self, handle: WorkerHandle, sent: Sent, reader: int) -> None:
        """Let a sum travel to where it is wanted; hand its message out when it has."""
        raise ProtocolError("on one host no sum travels")

    def _in_flight(self) -> Collection[int]:
        """Return the versions of the parameters that are being sent."""
        return ()

    def _publish_elsewhere(  # noqa: B027 - on one host there is nowhere else
        self, version: int, changed: Sequence[tuple[int, int]] | None
    ) -> None:
        """Note where in memory the new parameters are, and what of them has changed."""

    # -- what a driver calls ---------------------------------------------------------

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
        """Start the workers and wait until they are ready."""
        if self._handles or not self._is_open:
            raise ProtocolError("an engine is started once")
        self._thread = threading.get_ident()
        self._faults = FaultPlan() if faults is None else faults
        if delays is None:
            delays = no_delays(workers)
        elif delays.fixed.shape[1] != workers:
            problem = f"has times for {delays.fixed.shape[1]} workers"
            raise InvalidOptions("delays", problem, f"times for {workers}")
        self._faults.begin(workers)
        delays = away(self._faults, delays)
        self._layout = layout
        self._lives.faults, self._lives.root = self._faults, root
        setup = Setup(
            script=script_name(),
            preload=self._preload,
            job=packed(make),
            fixed=delays.fixed.T.tolist(),
            part=delays.part(parts).T.tolist(),
            interrupts=self.capabilities.interrupts_part,
            stretch=[] if delays.stretch is None else delays.stretch.T.tolist(),
            argv=script_arguments(),
        )
        try:
            with enough_descriptors(workers):
                self._open(setup, workers)
                self._start_all()
        except BaseException:
            self.close()
            raise
        self._lives.has_begun = True

    def close(self) -> None:
        """End all processes and let go of the memory."""
        self._end()

    @property
    def _is_open(self) -> bool:
        return self._end.alive

    @property
    def _step(self) -> int:
        return self._lives.step

    @property
    def _is_step_open(self) -> bool:
        return self._lives.is_step_open

    def _begin_at_root(
        self, setup: Setup, numbers: list[int], others: int, cores: float, inbox: int
    ) -> None:
        """Make the root's memory, and its own host if it has workers.

        Args:
            setup: For the host.
            numbers: Of the workers there.
            others: Workers on other hosts.
            cores: That the workers there share.
            inbox: Rows for what other hosts send.
        """
        shape = MemoryShape.of(
            self._layout,
            len(numbers),
            self.capabilities.rows_per_worker,
            elsewhere=others,
            inbox=inbox if numbers else 0,
        )
        if not numbers:
            self._memory = Memory(Private(shape.size), shape)
            return
        threads = threads_per_worker(self._threads, cores, len(numbers))
        self._threads_of[ROOT_HOST] = threads
        shared = Shared(shape.size, shape.least, self._folder)
        prepare = Prepare(setup, shape, numbers, threads)
        say = inlet(self._inbox, ROOT_HOST)
        self._root_host = host = RootHost(prepare, shared, self._reactor, say)
        self._held.stack.callback(host.close)
        self._memory = host.memory
        self._hosts.append(host)

    def _seat_workers(self, workers: int, inbox: int = 0) -> None:
        """Give every worker its place, once all hosts are known."""
        hosts = {worker: host for host in self._hosts for worker in host.workers}
        self._handles = [WorkerHandle(w, hosts[w]) for w in range(workers)]
        seats = [
            (handle.where.number, handle.where.workers.index(handle.worker))
            for handle in self._handles
        ]
        self._rows = Rows(self._memory, seats, inbox)

    def _start_all(self) -> None:
        absent = self._faults.first_absent()
        for handle in self._handles:
            if handle.worker in absent:
                self._pending.append(WorkersLost((handle.worker,), 0.0))
            else:
                self._lives.spawn(handle)
        self._same.root(
            self._lives.root
        )  # now: workers take longer than this to be ready
        self._wait(lambda: all(w.is_up for w in self._handles if w.life), "to start")

    def now(self) -> float:
        """Return the seconds since the engine was made, without the root's absences."""
        return self._clock.now()

    def publish(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Let all orders from now on be about a new step, and these parameters."""
        if not self._lives.has_begun or not self._is_open:
            raise ProtocolError("the engine is not started, or closed")
        parameters = np.asarray(parameters)
        if parameters.shape != (self._layout.parameters,):
            problem = f"have shape {parameters.shape}"
            raise InvalidOptions("parameters", problem, f"({self._layout.parameters},)")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._keep(parameters, changed)
        self._lives.begin_step(step)
        self._crashes.clear()
        self._rows.begin()
        self._membership(step)
        self._clock.watch()

    def give(self, order: Order) -> None:
        """Give an order to its worker; never waits for it."""
        worker = order.segment.worker if isinstance(order, Assign) else order.worker
        handle = self._handles[worker]
        if not handle.is_up:
            return  # its loss is about to be handed out
        if isinstance(order, Assign):
            self._strike(handle, order.step)
            give = Give(order, self._rows.give(order.segment, order.message, order.to))
        elif isinstance(order, Upload):
            self._rows.expect(order.message, worker, order.segments, order.to)
            give = Give(order, gathered=self._rows.gathered(order.gathered))
        else:
            give = Give(order)
        handle.give(give)
        if isinstance(order, Drop):
            self._rows.forget(worker)

    def _keep(
        self, parameters: NDArray[Any], changed: Sequence[tuple[int, int]] | None
    ) -> None:
        """Note the parameters of a new step, (parameters,).

        They may change when the step is finished. Of those of the step before only the
        stretches that have `changed` may differ; None: all.
        """
        near = [] if self._root_host is None else self._root_host.workers
        handles = [self._handles[worker] for worker in near]
        in_hand = {handle.version for handle in handles if handle.in_hand is not None}
        version = self._memory.publish(
            parameters, in_hand.union(self._in_flight()), changed
        )
        if self._root_host is not None:
            self._root_host.published = version
        self._publish_elsewhere(version, changed)

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        self._finished = step
        for handle in self._handles:
            handle.drop(step)
        self._lives.is_step_open = False
        self._clock.unwatch()

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages, (layout.row,); valid until the next."""
        return self._rows.combine(weights)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs."""
        return self._rows.compare(messages, self._layout.gradient)

    def next_event(self, timeout: float) -> Event | None:
        """Return what happened next; None if nothing does for `timeout` seconds.

        What is noticed only after that is kept for the next call: the driver may have a
        timer that is due before it.
        """
        deadline = self.now() + timeout
        looked = False
        while not self._pending:
            left = deadline - self.now()
            if looked and left <= 0:
                return None
            self._poll(left)
            looked = True
        at = self.now()
        if looked and timeout > 0 and at > deadline:
            return None
        event = self._pending.popleft()
        if isinstance(event, WorkersLost):
            # The next life is planned only now, when the coordinator hears of the loss:
            # an order that it has given to this life can then not reach the next one.
            for worker in event.workers:
                self._rows.forget(worker)
            self._lives.come_back([self._handles[worker] for worker in event.workers])
        stamped: Event = msgspec.structs.replace(event, at=at)
        return stamped

    @property
    def threads(self) -> tuple[int, ...]:
        """How many threads each worker computes with."""
        return tuple(self._threads_of[each.where.number] for each in self._handles)

    @property
    def lives(self) -> tuple[int, ...]:
        """How many processes each worker number has had."""
        return tuple(handle.life for handle in self._handles)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process id of every worker; 0 for one that is not there."""
        return tuple(handle.pid for handle in self._handles)

    @property
    def workers(self) -> WorkerTable:
        """Where the workers are, and what they do; looking never waits."""
        self._look()
        return WorkerTable(map(self._status, self._handles))

    def _status(self, handle: WorkerHandle) -> WorkerStatus:
        state = self._state(handle)
        pid = None if state == "ended" else handle.pid or None
        return WorkerStatus(handle.worker, handle.host, pid, state)

    def _state(self, handle: WorkerHandle) -> str:
        if not self._is_open:
            return "ended"
        if not handle.is_there:
            return "lost"
        if not handle.is_up:
            return "starting"
        if handle.in_hand is None:
            return "ready"
        is_awaited = self._is_step_open and handle.in_hand == self._step
        return "working" if is_awaited else "late"

    def _look(self) -> None:
        """Take in what workers have said since the last step ended.

        While a step is open its driver does that. What was found fatal is raised by
        the next step, where a caller expects it.
        """
        is_ours = threading.get_ident() == self._thread
        if self._is_step_open or not (
            is_ours and self._lives.has_begun and self._is_open
        ):
            return
        try:
            self._poll(0.0)
        except CodedgradError as error:
            self._failure = error

    # -- what happens ----------------------------------------------------------------

    def _poll(self, timeout: float) -> None:
        """Wait for something, at most so long, and see to it."""
        due = min((each.time for each in self._agenda.queue), default=math.inf)
        timeout = min(timeout, due - self.now(), LOOK)
        timeout = max(0.0, timeout)
        self._clock.wait(timeout)
        with enough_descriptors(len(self._handles)):  # workers and nurseries start here
            self._reactor.poll(0.0 if self._inbox else timeout)
            while self._inbox:
                self._note(*self._inbox.popleft())
            self._agenda.run(blocking=False)

    def _note(self, host: int, report: Any) -> None:
        """Take what a host has said."""
        match report:
            case Heard(worker, life, frame):
                handle = self._handles[worker]
                if handle.is_there and handle.life == life:
                    self._hear(handle, frame)
            case Over(lives, cause, garbled):
                handles = [
                    self._handles[worker]
                    for worker, life in lives
                    if self._handles[worker].life == life
                ]
                if garbled:
                    for handle in handles:
                        self._refuse(handle, "nonsense", cause)
                        handle.is_doomed = True
                    cause = ""
                self._lives.lose(handles, cause, "new processes are started")
            case Died(worker, life, code):
                self._lives.died(worker, life, code)
            case Born(threads):
                if threads > 1:
                    _log.warning(
                        "importing the job started %d threads, which workers will not "
                        "have; import such libraries inside the job",
                        threads - 1,
                    )
            case Failed(text):
                where = "it was unpacked"
                if host != ROOT_HOST:
                    where = f"host {host} unpacked it"
                raise JobFailed(f"the job, as {where}", text)
            case _:
                self._hear_host(host, report)

    def _hear(self, handle: WorkerHandle, frame: bytes) -> None:
        try:
            for said in decode_said(frame):
                self._take(handle, said)
        except ProtocolError as error:  # no sense can be made of it any more
            self._refuse(handle, "nonsense", str(error))
            self._lives.kill(handle)  # before it has a successor
            self._lives.lose([handle])
        except BaseException:  # what else it said is lost: its next life starts clean
            self._lives.kill(handle)
            raise

    def _take(self, handle: WorkerHandle, said: Said) -> None:
        worker = handle.worker
        match said:
            case Ready(pid, host, made):
                if made is not None:
                    self._same.check(worker, host, made)
                handle.pid, handle.host = pid, host
                self._lives.ready(handle)
            case Told(step, segment, done, closed):
                handle.hand.told(step, segment, done, closed)
                self._pending.append(
                    Progressed(step, worker, segment, done, closed, 0.0)
                )
            case Sent():
                self._sent(handle, said)
            case Left(taken, abandoned, seconds):
                held = handle.in_hand
                handle.left(taken)
                # Also where the worker's last report was on its way as the step ended:
                # the record then shows a part in hand, whose end would never be known.
                if held is not None and (abandoned or held <= self._finished):
                    self._pending.append(WorkerFreed(held, worker, seconds, 0.0))
            case Fired(id_):
                fault = self._faults.note(id_)
                if fault.kind == "stop":
                    self._go_on_later(handle, fault.seconds)
                handle.is_doomed |= fault.kind == "kill"
            case Crashed(step, part, text):
                self._crashed(handle, step, part, text)

    def _sent(self, handle: WorkerHandle, sent: Sent) -> None:
        worker, length = handle.worker, self._layout.message
        if sent.size != length:
            reason = f"{sent.size} numbers, {length} were expected"
            self._refuse(handle, "size", reason)
            if sent.step == self._step:
                self._rows.refuse(worker, sent.cuts)
            self._pending.append(
                MessageFailed(sent.step, worker, sent.message, reason, 0.0)
            )
            return
        if sent.step > self._step:
            self._refuse(handle, "step", f"message of step {sent.step}, not yet begun")
            return
        if sent.step == self._step:
            self._arrive(handle, sent)
        else:
            self._hand_out(handle, sent)  # late, and noted as such

    def _arrive(self, handle: WorkerHandle, sent: Sent) -> None:
        """Hand a message of the last step out when its sum is where it is wanted."""
        rows, worker = self._rows, handle.worker
        if not rows.is_asked(worker, sent.message, sent.cuts):
            self._refuse(handle, "unknown", f"message {sent.message} of unknown sums")
            return
        is_late = not self._is_step_open or rows.is_dropped(sent.cuts)
        if is_late or rows.is_heard(sent.message):
            self._hand_out(handle, sent)
            return
        reader = rows.reader(sent.message)
        if reader is None:
            return  # it is gone; the coordinator knows, or soon will
        if self._is_where_wanted(handle, reader):
            rows.sent(worker, sent.message, sent.cuts)
            self._hand_out(handle, sent)
        else:
            self._bring(handle, sent, reader)

    def _is_where_wanted(self, handle: WorkerHandle, reader: int) -> bool:
        return handle.where.number == self._rows.host_of(reader)

    def _hand_out(self, handle: WorkerHandle, sent: Sent) -> None:
        self._pending.append(
            MessageArrived(
                sent.step, handle.worker, sent.message, sent.cuts, 0.0, sent.finite
            )
        )

    def _refuse(self, handle: WorkerHandle, kind: str, reason: str) -> None:
        self.refused[kind] += 1
        _log.warning("worker %d sent what is refused: %s", handle.worker, reason)

    def _crashed(self, handle: WorkerHandle, step: int, part: int, text: str) -> None:
        if step < 0:
            where = f"worker {handle.worker}, while it was set up"
            fatal = not self._lives.has_begun or self._is_joining
        elif part < 0:
            where = f"worker {handle.worker}, in its loop; please report it"
            fatal = True
        else:
            # One crash may be the host's fault: it is a loss, and plans replace lost
            # workers. A second one at the same part of a step is the job's fault.
            where = f"worker {handle.worker}, step {step}, part {part}"
            fatal = (step, part) in self._crashes
            self._crashes.add((step, part))
        if fatal:
            raise JobFailed(where, text)
        last_line = text.strip().splitlines()[-1]
        self._lives.crashed(handle.worker, step, part, last_line)  # told with the loss

    # -- faults on purpose -----------------------------------------------------------

    def _strike(self, handle: WorkerHandle, step: int) -> None:
        """Stop or kill a worker, if that is planned for a step."""
        if not self._faults.planned:
            return
        for fault in self._faults.due("stop", step, handle.worker):
            self._faults.note(fault.id)
            handle.signal(signal.SIGSTOP)
            self._go_on_later(handle, fault.seconds)
        for fault in self._faults.due("kill", step, handle.worker):
            self._faults.note(fault.id)
            self._lives.kill(handle)

    def _go_on_later(self, handle: WorkerHandle, seconds: float) -> None:
        life = handle.life

        def go_on() -> None:
            if handle.life == life:
                handle.signal(signal.SIGCONT)

        self._agenda.enter(seconds, 0, go_on)

    def _membership(self, step: int) -> None:
        """Let workers leave and join as planned for a step, and wait until they did."""
        for fault in self._faults.due("leave", step):
            self._leave(self._handles[fault.worker])
            self._faults.note(fault.id)
        for fault in self._faults.due("join", step):
            self._join(self._handles[fault.worker])
            self._faults.note(fault.id)

    def _leave(self, handle: WorkerHandle) -> None:
        self._lives.kill(handle)
        self._wait(lambda: not handle.is_there, "to leave")

    def _join(self, handle: WorkerHandle) -> None:
        if handle.is_doomed:
            self._wait(lambda: not handle.is_there, "to end")
        self._is_joining = True
        self._lives.spawn(handle)
        self._wait(lambda: handle.is_up, "to join")
        self._is_joining = False

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        told = self.now() + _SLOW_START
        while not done():
            self._poll(1.0)
            if self.now() > told:
                told = math.inf
                _log.warning("still waiting for workers %s", what)
