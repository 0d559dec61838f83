"""What engines with worker processes have in common: lives, orders, reports, faults.

It decides nothing about a step. It knows which life of a worker is there and what that
has in hand, hands reports on as events, brings the dead back, and carries out faults on
purpose. Where workers are, and how frames and numbers get there, its subclasses know.
"""

from __future__ import annotations

import heapq
import logging
import math
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
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
    WorkerJoined,
    WorkerLost,
)
from codedgrad.delays import Times
from codedgrad.engines.clock import LOOK, Clock
from codedgrad.engines.engine import MakeJob
from codedgrad.engines.faults import FaultPlan, away, no_delays
from codedgrad.engines.host.deaths import Deaths, DeathVerdict, signal_name
from codedgrad.engines.host.file_descriptors import enough_descriptors
from codedgrad.engines.host.lost_workers import (
    LONGEST_WAIT,
    UNKNOWN,
    LostWorker,
    LostWorkerLog,
)
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS
from codedgrad.engines.host.rows import Rows
from codedgrad.engines.host.same_job import SameJob
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
from codedgrad.engines.host.worker_handle import WorkerHandle
from codedgrad.engines.worker_status import WorkerStatus, WorkerTable
from codedgrad.errors import (
    CodedgradError,
    EngineFailed,
    InvalidOptions,
    JobFailed,
    ProtocolError,
)
from codedgrad.jobs import DescribesParts, VectorLayout, WorkerJob

_log = logging.getLogger("codedgrad")
_SLOW_START = 10.0  # seconds until it is said what is waited for


class Fleet(ABC):
    """An engine whose workers are processes.

    Args:
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway; imported once for all.
        interrupts: Whether `delays` end when their part is abandoned.

    Attributes:
        refused: What workers said that could not be meant, counted by reason.
    """

    name: ClassVar[str]
    _rows: Rows

    def __init__(
        self,
        *,
        open_segments: int = OPEN_SEGMENTS,
        preload: Sequence[str] = (),
        interrupts: bool = False,
    ) -> None:
        if open_segments < 1:
            problem = f"open_segments = {open_segments}"
            raise InvalidOptions(f"{self.name} engine", problem, "1 or more")
        self.capabilities = Capabilities(
            interrupts_part=interrupts, rows_per_worker=open_segments
        )
        self.refused: Counter[str] = Counter()
        self._preload = list(preload)
        self._handles: list[WorkerHandle] = []
        self._pending: deque[Event] = deque()
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._planned = 0
        self._clock = Clock()
        self._step = self._finished = -1  # published last, and ended last
        self._is_step_open = False
        self._crashes: set[tuple[int, int]] = set()
        self._reports: dict[int, tuple[int, int, str]] = {}  # of crashes, by worker
        self._deaths = Deaths()
        self._losses = LostWorkerLog()
        self._failure: CodedgradError | None = None  # met between two steps
        self._thread = threading.get_ident()
        self._same = SameJob()
        self._root: object = None
        self._started = False
        self._is_joining = False

    # -- what differs ----------------------------------------------------------------

    @abstractmethod
    def _prepare_all(
        self, make: MakeJob, workers: int, delays: Times, parts: int
    ) -> None:
        """Get everything ready for workers; make `_handles` and `_rows`."""

    @abstractmethod
    def _spawn(self, handle: WorkerHandle) -> None:
        """Begin a life of a worker, unless it has one."""

    @abstractmethod
    def _signal(self, handle: WorkerHandle, life: int, number: signal.Signals) -> None:
        """Send a signal to a worker, unless that life of it is over."""

    @abstractmethod
    def _keep(
        self, parameters: NDArray[Any], changed: Sequence[tuple[int, int]] | None
    ) -> None:
        """Note the parameters of a new step, (parameters,).

        They may change when the step is finished. Of those of the step before only the
        stretches that have `changed` may differ; None: all.
        """

    @abstractmethod
    def _place(self, handle: WorkerHandle, row: int, step: int) -> tuple[int, int]:
        """Return a row's number at its worker, and where a step's parameters are."""

    @abstractmethod
    def _arrive(self, handle: WorkerHandle, sent: Sent) -> None:
        """See to it that a message of the open step is handed out when it is there."""

    @abstractmethod
    def _wait_for_something(self, timeout: float) -> None:
        """Wait so long at most, and take what workers have said."""

    @abstractmethod
    def close(self) -> None:
        """End all processes."""

    @property
    @abstractmethod
    def _is_open(self) -> bool:
        """Whether it is not closed."""

    @abstractmethod
    def _has_sent(self, handle: WorkerHandle) -> None:
        """Note that something was sent to a worker."""

    @abstractmethod
    def _forget_channel(self, handle: WorkerHandle) -> None:
        """Note that a life of a worker is over."""

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
        self._root = root
        try:
            with enough_descriptors(workers):
                self._prepare_all(make, workers, delays, parts)
                self._start_all()
        except BaseException:
            self.close()
            raise
        self._started = True

    def _start_all(self) -> None:
        absent = self._faults.first_absent()
        for handle in self._handles:
            if handle.worker in absent:
                self._pending.append(WorkerLost(handle.worker, 0.0))
            else:
                self._spawn(handle)
        self._same.root(self._root)  # now: workers take longer than this to be ready
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
        if not self._started or not self._is_open:
            raise ProtocolError("the engine is not started, or closed")
        parameters = np.asarray(parameters)
        if parameters.shape != (self._layout.parameters,):
            problem = f"have shape {parameters.shape}"
            raise InvalidOptions("parameters", problem, f"({self._layout.parameters},)")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._keep(parameters, changed)
        self._step = step
        self._is_step_open = True
        self._crashes.clear()
        self._deaths.forget_before(step)
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
            row = self._rows.give(order.segment, order.message, order.to)
            give = Give(order, *self._place(handle, row, order.step))
        elif isinstance(order, Upload):
            self._rows.expect(order.message, worker, order.segments, order.to)
            give = Give(order, gathered=self._rows.gathered(order.gathered))
        else:
            give = Give(order)
        handle.give(give)
        if isinstance(order, Drop):
            self._rows.forget(worker)
        self._has_sent(handle)

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        self._finished = step
        for handle in self._handles:
            handle.drop(step)
        self._is_step_open = False
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
        if isinstance(event, WorkerLost):
            # The next life is planned only now, when the coordinator hears of the loss:
            # an order that it has given to this life can then not reach the next one.
            self._rows.forget(event.worker)
            self._plan_life(self._handles[event.worker])
        stamped: Event = msgspec.structs.replace(event, at=at)
        return stamped

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
        if handle.channel is None:
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
        if self._is_step_open or not (is_ours and self._started and self._is_open):
            return
        try:
            self._poll(0.0)
        except CodedgradError as error:
            self._failure = error

    # -- what happens ----------------------------------------------------------------

    def _poll(self, timeout: float) -> None:
        """Wait for something, at most so long, and see to it."""
        if self._agenda:
            timeout = min(timeout, self._agenda[0][0] - self.now())
        timeout = min(max(0.0, timeout), LOOK)
        self._clock.wait(timeout)
        with enough_descriptors(len(self._handles)):  # workers and nurseries start here
            self._wait_for_something(timeout)
            while self._agenda and self._agenda[0][0] <= self.now():
                heapq.heappop(self._agenda)[2]()

    def _hear(self, handle: WorkerHandle) -> None:
        channel = handle.channel
        if channel is None:
            return
        try:
            for frame in channel.receive():
                for said in self._decoded(frame):
                    self._take(handle, said)
        except ProtocolError as error:  # no sense can be made of it any more
            self._refuse(handle, "nonsense", str(error))
            self._kill(handle)  # before it has a successor
            self._lose(handle)
            return
        except BaseException:  # what else it said is lost: its next life starts clean
            self._kill(handle)
            raise
        if not channel.is_open:
            self._lose(handle)

    def _decoded(self, frame: bytes) -> list[Said]:
        try:
            return decode_said(frame)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a frame that is none: {error}") from None

    def _take(self, handle: WorkerHandle, said: Said) -> None:
        worker = handle.worker
        match said:
            case Ready(pid, host, made):
                if made is not None:
                    self._same.check(worker, host, made)
                handle.pid, handle.host, handle.is_up = pid, host, True
                if self._started:
                    self._losses.back(worker, pid, host, self.now())
                    self._pending.append(WorkerJoined(worker, 0.0))
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
                self._has_sent(handle)
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

    def _hand_out(self, handle: WorkerHandle, sent: Sent) -> None:
        self._pending.append(
            MessageArrived(
                sent.step, handle.worker, sent.message, sent.cuts, 0.0, sent.finite
            )
        )

    def _unknown(self, handle: WorkerHandle, sent: Sent) -> None:
        self._refuse(handle, "unknown", f"message {sent.message} of unknown sums")

    def _refuse(self, handle: WorkerHandle, kind: str, reason: str) -> None:
        self.refused[kind] += 1
        _log.warning("worker %d sent what is refused: %s", handle.worker, reason)

    def _crashed(self, handle: WorkerHandle, step: int, part: int, text: str) -> None:
        if step < 0:
            where = f"worker {handle.worker}, while it was set up"
            fatal = not self._started or self._is_joining
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
        self._reports[handle.worker] = step, part, last_line  # told with the loss

    # -- births and deaths -----------------------------------------------------------

    def _lose(self, handle: WorkerHandle) -> None:
        if handle.channel is None:
            return
        self._forget_channel(handle)
        was_up, pid = handle.is_up, handle.pid
        worker, life, part = handle.worker, handle.life, handle.hand.part
        at_step, at_part, crash = self._reports.pop(worker, (-1, -1, ""))
        moment = self._moment(handle, (at_step, at_part) if at_part >= 0 else part)
        verdict = self._deaths.lost(worker, life, part, handle.is_doomed)
        handle.end(self.now())
        if self._started:
            outlook = self._outlook(handle)
            crash = crash and f"the job raised {crash}"
            loss = LostWorker(
                worker, pid, handle.host, moment, outlook, self.now(), crash
            )
            self._losses.lost(life, loss)
            tell = partial(self._losses.explain, worker, life, UNKNOWN)
            self._plan(LONGEST_WAIT, tell)
        if was_up and self._started:
            self._pending.append(WorkerLost(handle.worker, 0.0))
        elif self._started:
            self._plan_life(handle)
        else:
            problem = f"worker {handle.worker} died while it was set up"
            raise EngineFailed(problem, "looking for what kills it: memory, perhaps")
        self._judge(verdict)

    def _died(self, worker: int, life: int, code: int) -> None:
        """Take note of the exit code of a worker, or minus the signal that ended it."""
        self._judge(self._deaths.died(worker, life, code))

    def _moment(self, handle: WorkerHandle, part: tuple[int, int] | None) -> str:
        """Say when a worker was lost, and the part that it computed if it is known."""
        if not handle.is_up:
            return "while it was set up"
        if part is not None:
            step, number = part
            return f"in step {step}, part {number}{self._samples(step, number)}"
        if self._step < 0:
            return "before the first step"
        return f"{'in' if self._is_step_open else 'after'} step {self._step}"

    def _outlook(self, handle: WorkerHandle) -> str:
        """Say what follows the loss of a worker."""
        if self._faults.stays_away(handle.worker, self._step):
            return "the fault plan keeps it away"
        seconds = handle.back_off
        return "a new process is started" + (f" in {seconds:.2g} s" if seconds else "")

    def _judge(self, verdict: DeathVerdict | None) -> None:
        """Log what has ended a worker; raise if a part is to blame.

        Raises:
            JobFailed: If the part has ended as many workers as `deaths` says.
        """
        if verdict is None:
            return
        if verdict.part is None or not verdict.killed:
            self._losses.explain(verdict.worker, verdict.life, _cause(verdict))
            return
        self._losses.discard(verdict.worker, verdict.life)
        where, memory = f"worker {verdict.worker}", _memory(verdict)
        step, part = verdict.part
        samples = self._samples(step, part)
        deaths = ", ".join(
            f"worker {worker} by {signal_name(number)}"
            for worker, number in verdict.killed
        )
        advice = 'run it with engine="here" and `python -X faulthandler` to see where'
        if memory:
            advice = "give workers more memory, or make parts smaller"
        raise JobFailed(
            f"{where}, step {step}, part {part}{samples}",
            f"the part ends the workers that compute it ({deaths}){memory}; {advice}",
        )

    def _samples(self, step: int, part: int) -> str:
        """Return the samples of a part, in brackets; nothing if they are not known."""
        if not isinstance(self._root, DescribesParts):
            return ""
        return f" ({self._root.describe(part, step)})"

    def _kill(self, handle: WorkerHandle) -> None:
        """Kill a worker on purpose: no part is to blame."""
        if handle.channel is not None:  # or its next life would count as killed
            self._signal(handle, handle.life, signal.SIGKILL)
            handle.is_doomed = True

    def _plan_life(self, handle: WorkerHandle) -> None:
        def live() -> None:
            if not self._faults.stays_away(handle.worker, self._step):
                self._spawn(handle)

        self._plan(handle.back_off, live)

    def _strike(self, handle: WorkerHandle, step: int) -> None:
        """Stop or kill a worker, if that is planned for a step."""
        if not self._faults.planned:
            return
        for fault in self._faults.due("stop", step, handle.worker):
            self._faults.note(fault.id)
            self._signal(handle, handle.life, signal.SIGSTOP)
            self._go_on_later(handle, fault.seconds)
        for fault in self._faults.due("kill", step, handle.worker):
            self._faults.note(fault.id)
            self._kill(handle)

    def _go_on_later(self, handle: WorkerHandle, seconds: float) -> None:
        life = handle.life
        self._plan(seconds, lambda: self._signal(handle, life, signal.SIGCONT))

    def _membership(self, step: int) -> None:
        """Let workers leave and join as planned for a step, and wait until they did."""
        for fault in self._faults.due("leave", step):
            self._leave(self._handles[fault.worker])
            self._faults.note(fault.id)
        for fault in self._faults.due("join", step):
            self._join(self._handles[fault.worker])
            self._faults.note(fault.id)

    def _leave(self, handle: WorkerHandle) -> None:
        self._kill(handle)
        self._wait(lambda: handle.channel is None, "to leave")

    def _join(self, handle: WorkerHandle) -> None:
        if handle.is_doomed:
            self._wait(lambda: handle.channel is None, "to end")
        self._is_joining = True
        self._spawn(handle)
        self._wait(lambda: handle.is_up, "to join")
        self._is_joining = False

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        told = self.now() + _SLOW_START
        while not done():
            self._poll(1.0)
            if self.now() > told:
                told = math.inf
                _log.warning("still waiting for workers %s", what)

    def _plan(self, seconds: float, act: Callable[[], object]) -> None:
        self._planned += 1
        heapq.heappush(self._agenda, (self.now() + seconds, self._planned, act))


def _cause(verdict: DeathVerdict) -> str:
    """Say what ended a worker."""
    if verdict.code >= 0:
        return f"it ended with exit code {verdict.code}"
    said = f"ended by {signal_name(-verdict.code)}"
    return f"{said}, on purpose" if verdict.is_intended else said + _memory(verdict)


def _memory(verdict: DeathVerdict) -> str:
    """Return who may have sent a SIGKILL; nothing for any other death."""
    if verdict.code != -signal.SIGKILL:
        return ""
    return ": by kill -9, or by the kernel because memory ran out"
