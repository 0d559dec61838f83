r"""The local engine: worker processes on this machine, numbers in shared memory.

```text
  root ------------ nursery               orders, reports    sockets, one a worker
   |  \               | fork              parameters, sums   shared memory
   |   \----- worker 0                    a death            the end of its stream
   \--------- worker 1 ...
```

Workers are forked from a process that has imported everything once, so they start, and
come back, in milliseconds. See `nursery`, `memory`, `rows` and `lanes` for the parts.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import selectors
import signal
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
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
    MessageFailed,
    Order,
    Progressed,
    Upload,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.delays import Times
from codedgrad.engines.children import Children, packed
from codedgrad.engines.faults import FaultPlan, away, no_delays
from codedgrad.engines.lanes import Lane
from codedgrad.engines.memory import OPEN_SEGMENTS, Memory, Shape
from codedgrad.engines.protocol import MakeJob
from codedgrad.engines.requests import Born, Died, Failed, Prepare
from codedgrad.engines.rows import Rows
from codedgrad.engines.shared import Shared
from codedgrad.engines.wire import (
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
from codedgrad.errors import EngineFailed, InvalidScenario, JobFailed, ProtocolError
from codedgrad.jobs import Layout

__all__ = ["Local"]

_log = logging.getLogger("codedgrad")
_OFTEN = 3  # nurseries that may die in a run
_SLOW_START = 10.0  # seconds until it is said what is waited for
_NAP = 3600.0  # seconds to wait at a time; a selector takes no more than 24 days


class Local:
    """Workers as processes of this machine.

    Args:
        open_segments: Sums that a worker may hold in a step. Memory is used by those
            that it does hold; in a `folder` there must be room for all.
        folder: A file system in memory for what is shared; None: none is needed on
            Linux, elsewhere the usual one.
        preload: Modules that workers will import anyway; imported once for all.
        interrupts: Whether `delays` end when their part is abandoned. A job that
            computes cannot be interrupted, so this is for measurements: what it would
            be like if it could.

    Attributes:
        refused: What workers said that could not be meant, counted by reason.
        lives: How many processes each worker number has had.
    """

    name = "local"

    def __init__(
        self,
        *,
        open_segments: int = OPEN_SEGMENTS,
        folder: Path | None = None,
        preload: Sequence[str] = (),
        interrupts: bool = False,
    ) -> None:
        if open_segments < 1:
            problem = f"open_segments = {open_segments}"
            raise InvalidScenario("local engine", problem, "1 or more")
        self.capabilities = Capabilities(
            interrupts_part=interrupts, rows_per_worker=open_segments
        )
        self.refused: Counter[str] = Counter()
        self._folder = folder
        self._preload = list(preload)
        self._lanes: list[Lane] = []
        self._pending: deque[Event] = deque()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._begun = time.monotonic()
        self._step = -1
        self._crashes: set[tuple[int, int]] = set()
        self._nurseries = 0
        self._started = False
        self._is_joining = False
        self._held = _Held()
        self._end = weakref.finalize(self, self._held.close)

    # -- what a driver calls ---------------------------------------------------------

    def start(
        self,
        make: MakeJob,
        layout: Layout,
        workers: int,
        *,
        faults: FaultPlan | None = None,
        delays: Times | None = None,
        parts: int = 1,
    ) -> None:
        """Start the workers and wait until they are ready."""
        if self._held.lanes or not self._end.alive:
            raise ProtocolError("an engine is started once")
        self._faults = FaultPlan() if faults is None else faults
        if delays is None:
            delays = no_delays(workers)
        elif delays.fixed.shape[1] != workers:
            problem = f"has times for {delays.fixed.shape[1]} workers"
            raise InvalidScenario("delays", problem, f"times for {workers}")
        self._faults.begin(workers)
        delays = away(self._faults, delays)
        job = packed(make)
        shape = Shape.of(layout, workers, self.capabilities.rows_per_worker)
        shared = Shared(shape.size, shape.least, self._folder)
        self._held.memory = self._memory = Memory(shared, shape)
        self._shared_fd = shared.fd
        self._rows = Rows(self._memory)
        self._gradient = layout.gradient
        self._prepare = Prepare(
            preload=self._preload,
            job=job,
            shape=shape,
            fixed=delays.fixed.T.tolist(),
            part=delays.part(parts).T.tolist(),
            interrupts=self.capabilities.interrupts_part,
        )
        self._lanes = self._held.lanes = [Lane(number) for number in range(workers)]
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise
        self._started = True

    def _start_all(self) -> None:
        self._new_nursery()
        absent = self._faults.first_absent()
        for lane in self._lanes:
            if lane.worker in absent:
                self._pending.append(WorkerLost(lane.worker, 0.0))
            else:
                self._spawn(lane)
        self._wait(lambda: all(w.is_up for w in self._lanes if w.life), "to start")

    def now(self) -> float:
        """Return the seconds since the engine was made."""
        return time.monotonic() - self._begun

    def publish(self, step: int, parameters: NDArray[Any]) -> None:
        """Let all orders from now on be about a new step, and these parameters."""
        if not self._started or not self._end.alive:
            raise ProtocolError("the engine is not started, or closed")
        parameters = np.asarray(parameters)
        versions = self._memory.versions
        if parameters.shape != versions.shape[1:]:
            problem = f"have shape {parameters.shape}"
            raise InvalidScenario("parameters", problem, f"{versions.shape[1:]}")
        in_use = {lane.version for lane in self._lanes if lane.in_hand is not None}
        self._version = next(v for v in range(len(versions)) if v not in in_use)
        np.copyto(versions[self._version], parameters)
        self._step = step
        self._crashes.clear()
        self._rows.begin()
        self._membership(step)

    def give(self, order: Order) -> None:
        """Give an order to its worker; never waits for it."""
        worker = order.segment.worker if isinstance(order, Assign) else order.worker
        lane = self._lanes[worker]
        if not lane.is_up:
            return  # its loss is about to be handed out
        if isinstance(order, Assign):
            self._strike(lane, order.step)
            row = self._rows.give(order.segment, order.message, order.to)
            give = Give(order, row, self._version)
        elif isinstance(order, Upload):
            self._rows.expect(order.message, worker, order.segments, order.to)
            give = Give(order, gathered=self._rows.gathered(order.gathered))
        else:
            give = Give(order)
        lane.give(give)
        if isinstance(order, Drop):
            self._rows.forget(worker)
        self._watch_writing(lane)

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        for lane in self._lanes:
            lane.drop(step)

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages, (message,); valid until the next."""
        return self._rows.combine(weights)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs."""
        return self._rows.compare(messages, self._gradient)

    def next_event(self, timeout: float) -> Event | None:
        """Return what happened next; None if nothing does for `timeout` seconds."""
        deadline = self.now() + timeout
        looked = False
        while not self._pending:
            left = deadline - self.now()
            if looked and left <= 0:
                return None
            self._poll(left)
            looked = True
        event = self._pending.popleft()
        if isinstance(event, WorkerLost):
            self._rows.forget(event.worker)
            self._plan_life(self._lanes[event.worker])
        stamped: Event = msgspec.structs.replace(event, at=self.now())
        return stamped

    def close(self) -> None:
        """End all processes and let go of the memory."""
        self._end()

    @property
    def lives(self) -> tuple[int, ...]:
        """How many processes each worker number has had."""
        return tuple(lane.life for lane in self._lanes)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process id of every worker; 0 for one that is not there."""
        return tuple(lane.pid for lane in self._lanes)

    @property
    def nursery(self) -> int:
        """The process id of the nursery."""
        return self._children.pid

    @property
    def shape(self) -> Shape:
        """What the shared memory has room for."""
        return self._memory.shape

    # -- what happens ----------------------------------------------------------------

    def _poll(self, timeout: float) -> None:
        """Wait for something, at most so long, and see to it."""
        timeout = min(timeout, _NAP)
        if self._agenda:
            timeout = min(timeout, self._agenda[0][0] - self.now())
        ready = self._held.selector.select(max(0.0, timeout))
        if any(key.data is None for key, _ in ready):
            self._hear_nursery()
        for key, mask in ready:
            lane = key.data
            if lane is not None:
                if mask & selectors.EVENT_WRITE and lane.channel is not None:
                    lane.channel.flush()
                    self._watch_writing(lane)
                self._hear(lane)
        while self._agenda and self._agenda[0][0] <= self.now():
            heapq.heappop(self._agenda)[2]()

    def _hear(self, lane: Lane) -> None:
        channel = lane.channel
        if channel is None:
            return
        try:
            for frame in channel.receive():
                for said in self._decoded(frame):
                    self._take(lane, said)
        except ProtocolError as error:  # no sense can be made of it any more
            self._refuse(lane, "nonsense", str(error))
            self._signal(lane, lane.life, signal.SIGKILL)  # before it has a successor
            self._lose(lane)
            return
        except BaseException:  # what else it said is lost: its next life starts clean
            self._signal(lane, lane.life, signal.SIGKILL)
            raise
        if not channel.is_open:
            self._lose(lane)

    def _decoded(self, frame: bytes) -> list[Said]:
        try:
            return decode_said(frame)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a frame that is none: {error}") from None

    def _take(self, lane: Lane, said: Said) -> None:
        worker = lane.worker
        match said:
            case Ready(pid):
                lane.pid, lane.is_up = pid, True
                if self._started:
                    self._pending.append(WorkerJoined(worker, 0.0))
            case Told(step, segment, done, closed):
                self._pending.append(
                    Progressed(step, worker, segment, done, closed, 0.0)
                )
            case Sent():
                self._sent(lane, said)
            case Left(taken):
                lane.left(taken)
                self._watch_writing(lane)
            case Fired(id_):
                fault = self._faults.note(id_)
                if fault.kind == "stop":
                    self._go_on_later(lane, fault.seconds)
                lane.is_doomed |= fault.kind == "kill"
            case Crashed(step, part, text):
                self._crashed(lane, step, part, text)

    def _sent(self, lane: Lane, sent: Sent) -> None:
        worker, length = lane.worker, self._memory.shape.message
        if sent.size != length:
            reason = f"{sent.size} numbers, {length} were expected"
            self._refuse(lane, "size", reason)
            if sent.step == self._step:
                self._rows.refuse(worker, sent.cuts)
            self._pending.append(
                MessageFailed(sent.step, worker, sent.message, reason, 0.0)
            )
            return
        if sent.step > self._step:
            self._refuse(lane, "step", f"message of step {sent.step}, not yet begun")
            return
        if sent.step == self._step and not self._rows.sent(
            worker, sent.message, sent.cuts
        ):
            self._refuse(lane, "unknown", f"message {sent.message} of unknown sums")
            return
        self._pending.append(
            MessageArrived(sent.step, worker, sent.message, sent.cuts, 0.0, sent.finite)
        )

    def _refuse(self, lane: Lane, kind: str, reason: str) -> None:
        self.refused[kind] += 1
        _log.warning("worker %d sent what is refused: %s", lane.worker, reason)

    def _crashed(self, lane: Lane, step: int, part: int, text: str) -> None:
        if step < 0:
            where = f"worker {lane.worker}, while it was set up"
            fatal = not self._started or self._is_joining
        elif part < 0:
            where, fatal = f"worker {lane.worker}, in its loop; please report it", True
        else:
            where = f"worker {lane.worker}, step {step}, part {part}"
            fatal = (step, part) in self._crashes  # twice: it is the job
            self._crashes.add((step, part))
        if fatal:
            raise JobFailed(where, text)
        _log.warning("%s: %s", where, text.strip().splitlines()[-1])

    # -- births and deaths -----------------------------------------------------------

    def _new_nursery(self) -> None:
        self._nurseries += 1
        if self._nurseries > _OFTEN:
            problem = f"the process that forks the workers has died {_OFTEN} times"
            raise EngineFailed(problem, "looking for what kills it: memory, perhaps")
        self._held.children = self._children = Children()
        self._held.selector.register(
            self._children.channel.link, selectors.EVENT_READ, None
        )
        self._children.prepare(self._prepare, self._shared_fd)

    def _hear_nursery(self) -> None:
        children = self._children
        for notice in children.notices():
            match notice:
                case Born(threads):
                    if threads > 1:
                        _log.warning(
                            "importing the job started %d threads, which workers "
                            "will not have; import such libraries inside the job",
                            threads - 1,
                        )
                case Failed(text):
                    raise JobFailed("the job, as it was unpacked", text)
                case Died(worker, life, code):
                    lane = self._lanes[worker]
                    if lane.life == life and lane.channel is not None:
                        self._hear(lane)  # what it said before
                        self._lose(lane)
                    if code:
                        _log.info("worker %d ended with code %d", worker, code)
        if not children.channel.is_open:
            self._held.selector.unregister(children.channel.link)
            children.close()
            if not self._started:
                problem = "the process that forks the workers could not start"
                raise EngineFailed(problem, "reading what it has printed")
            _log.warning(
                "the process that forks the workers has died, and they with it; "
                "all start again"
            )
            self._new_nursery()

    def _spawn(self, lane: Lane) -> None:
        if lane.channel is not None:
            return
        faults = self._faults.for_workers()
        channel = self._children.spawn(lane.worker, lane.life + 1, faults)
        lane.begin(channel, self.now())
        self._held.selector.register(channel.link, selectors.EVENT_READ, lane)

    def _lose(self, lane: Lane) -> None:
        if lane.channel is None:
            return
        self._held.selector.unregister(lane.channel.link)
        was_up = lane.is_up
        lane.end(self.now())
        if was_up and self._started:
            self._pending.append(WorkerLost(lane.worker, 0.0))
        elif self._started:
            self._plan_life(lane)
        else:
            problem = f"worker {lane.worker} died while it was set up"
            raise EngineFailed(problem, "looking for what kills it: memory, perhaps")

    def _plan_life(self, lane: Lane) -> None:
        def live() -> None:
            if not self._faults.stays_away(lane.worker, self._step):
                self._spawn(lane)

        self._plan(lane.back_off, live)

    def _strike(self, lane: Lane, step: int) -> None:
        """Stop or kill a worker, if that is planned for a step."""
        if not self._faults.planned:
            return
        for fault in self._faults.due("stop", step, lane.worker):
            self._faults.note(fault.id)
            _kill(lane.pid, signal.SIGSTOP)
            self._go_on_later(lane, fault.seconds)
        for fault in self._faults.due("kill", step, lane.worker):
            self._faults.note(fault.id)
            _kill(lane.pid, signal.SIGKILL)
            lane.is_doomed = True

    def _go_on_later(self, lane: Lane, seconds: float) -> None:
        life = lane.life
        self._plan(seconds, lambda: self._signal(lane, life, signal.SIGCONT))

    def _membership(self, step: int) -> None:
        """Let workers leave and join as planned for a step, and wait until they did."""
        for fault in self._faults.due("leave", step):
            self._leave(self._lanes[fault.worker])
            self._faults.note(fault.id)
        for fault in self._faults.due("join", step):
            self._join(self._lanes[fault.worker])
            self._faults.note(fault.id)

    def _leave(self, lane: Lane) -> None:
        self._signal(lane, lane.life, signal.SIGKILL)
        self._wait(lambda: lane.channel is None, "to leave")

    def _join(self, lane: Lane) -> None:
        if lane.is_doomed:
            self._wait(lambda: lane.channel is None, "to end")
        self._is_joining = True
        self._spawn(lane)
        self._wait(lambda: lane.is_up, "to join")
        self._is_joining = False

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        told = self.now() + _SLOW_START
        while not done():
            self._poll(1.0)
            if self.now() > told:
                told = math.inf
                _log.warning("still waiting for workers %s", what)

    def _signal(self, lane: Lane, life: int, number: signal.Signals) -> None:
        if lane.life != life or lane.channel is None:
            return
        if lane.pid:  # its nursery may have died, and we have not heard of it yet
            _kill(lane.pid, number)
        else:
            self._children.signal(lane.worker, life, number)

    def _plan(self, seconds: float, act: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._agenda, (self.now() + seconds, self._planned, act))

    def _watch_writing(self, lane: Lane) -> None:
        """Look out for room in a worker's pipe only while something waits for it."""
        if lane.channel is None:
            return
        wanted = selectors.EVENT_READ
        if lane.channel.is_full:
            wanted |= selectors.EVENT_WRITE
        key = self._held.selector.get_key(lane.channel.link)
        if key.events != wanted:
            self._held.selector.modify(lane.channel.link, wanted, lane)


def _kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # dead, and not heard of yet
        os.kill(pid, number)


class _Held:
    """What must be given back, also if the engine is forgotten or Python ends."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.children: Children | None = None
        self.lanes: list[Lane] = []
        self.memory: Memory | None = None
        self._owner = os.getpid()

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a fork of the root: none of this is its own
        for lane in self.lanes:
            if lane.channel is not None:
                lane.channel.close()
        self.selector.close()
        if self.children is not None:
            self.children.close()
        if self.memory is not None:
            self.memory.close()
