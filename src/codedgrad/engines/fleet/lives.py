"""The lives of an engine's workers: how they begin, end, and are told of.

A worker that is lost comes back: at once, or after a back-off if its lives are short.
Workers that were lost together, with their host or its nursery, are one event, and come
back as one. Deaths that a part of the data causes end the run (`deaths`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from functools import partial
from sched import scheduler

from codedgrad.core import Event, WorkersJoined, WorkersLost
from codedgrad.engines.faults import FaultPlan
from codedgrad.engines.fleet.deaths import Death, Deaths, signal_name
from codedgrad.engines.fleet.lost_workers import (
    LONGEST_WAIT,
    UNKNOWN,
    LostWorker,
    LostWorkerLog,
)
from codedgrad.engines.fleet.worker_handle import WorkerHandle
from codedgrad.errors import EngineFailed, JobFailed
from codedgrad.jobs import DescribesParts


class Lives:
    """Begins and ends lives of workers.

    Args:
        agenda: For what is to happen later.
        now: Returns seconds, on the engine's clock.
        tell: Takes the events of losses and returns.

    Attributes:
        faults: Which workers are to stay away.
        root: The root's own job, which may describe its parts.
        has_begun: Whether the engine is started: until then a death is an error.
        step: The step that was published last; -1: none.
        is_step_open: Whether that step has not ended.
    """

    faults: FaultPlan

    def __init__(
        self,
        agenda: scheduler,
        now: Callable[[], float],
        tell: Callable[[Event], object],
    ) -> None:
        self._agenda, self._now, self._tell = agenda, now, tell
        self.root: object = None
        self.has_begun = self.is_step_open = False
        self.step = -1
        self._deaths = Deaths()
        self._losses = LostWorkerLog()
        self._crashes: dict[int, tuple[int, int, str]] = {}  # reported, by worker
        self._returning: dict[int, set[int]] = {}  # by host, lost together
        self._ready: dict[int, list[WorkerHandle]] = {}  # by host, of those

    def begin_step(self, step: int) -> None:
        """Note that a step has begun."""
        self.step, self.is_step_open = step, True
        self._deaths.forget_before(step)

    def crashed(self, worker: int, step: int, part: int, why: str) -> None:
        """Note the last words of a worker, which say more than its exit code."""
        self._crashes[worker] = step, part, why

    def died(self, worker: int, life: int, code: int) -> None:
        """Note the exit code of a life of a worker, or minus its signal."""
        self._judge(self._deaths.died(worker, life, code))

    def come_back(self, handles: Collection[WorkerHandle]) -> None:
        """Begin the next lives of workers whose loss the coordinator has heard of."""
        if len(handles) > 1:  # they were lost together, so they come together
            for handle in handles:
                host = self._returning.setdefault(handle.where.number, set())
                host.add(handle.worker)
        for handle in handles:
            self.plan(handle)

    def spawn(self, handle: WorkerHandle) -> None:
        """Begin a life of a worker, unless it has one or its host is not there."""
        if not handle.is_there and handle.where.is_there:
            handle.begin(self.faults.for_workers(), self._now())

    def ready(self, handle: WorkerHandle) -> None:
        """Let a worker take part, once all that were lost together with it are ready.

        Whatever holds one of them up holds up the others for `LONGEST_WAIT` at most.
        """
        if not self.has_begun:
            handle.is_up = True
            return
        host = handle.where.number
        if handle.worker not in self._returning.get(host, ()):
            self._join_in(host, [handle])
            return
        ready = self._ready.setdefault(host, [])
        ready.append(handle)
        if len(ready) == len(self._returning[host]):
            self._join_together(host)
        elif len(ready) == 1:
            self._agenda.enter(LONGEST_WAIT, 0, partial(self._join_together, host))

    def _join_together(self, host: int) -> None:
        ready = [handle for handle in self._ready.pop(host, ()) if handle.is_there]
        if ready:
            self._returning.pop(host, None)
            self._join_in(host, ready)

    def _join_in(self, host: int, handles: Sequence[WorkerHandle]) -> None:
        for handle in handles:
            handle.is_up = True
        workers = tuple(sorted(handle.worker for handle in handles))
        first = handles[0]
        self._losses.back(workers, first.pid, first.host, self._now())
        self._tell(WorkersJoined(workers, 0.0, host))

    def lose(
        self, handles: Sequence[WorkerHandle], cause: str = "", outlook: str = ""
    ) -> None:
        """End lives of workers, which is one event however many they are.

        Args:
            handles: Of the workers.
            cause: Of all these ends, where it is known; otherwise the exit codes say.
            outlook: What follows, where there is a cause.
        """
        lost, verdicts, lives = [], [], []
        for handle in handles:
            if not handle.is_there:
                continue
            worker, life, was_up = handle.worker, handle.life, handle.is_up
            lives.append((worker, life))
            verdicts.append(self._end_life(handle))
            if not self.has_begun:
                problem = f"worker {worker} died while it was set up"
                problem += f": {cause}" if cause else ""
                raise EngineFailed(
                    problem, "looking for what kills it: memory, perhaps"
                )
            if was_up:
                lost.append(worker)
            else:
                self.plan(handle)
            if not cause:
                tell = partial(self._losses.explain, worker, life, UNKNOWN)
                self._agenda.enter(LONGEST_WAIT, 0, tell)
        if cause:
            self._losses.explain_together(lives, cause, outlook)
        if lost:
            self._tell(WorkersLost(tuple(lost), 0.0))
        for verdict in verdicts:
            self._judge(verdict)

    def _end_life(self, handle: WorkerHandle) -> Death | None:
        """Note that a life is over; return what its death was, if that is known."""
        pid, part = handle.pid, handle.hand.part
        worker, life = handle.worker, handle.life
        at_step, at_part, crash = self._crashes.pop(worker, (-1, -1, ""))
        moment = self._moment(handle, (at_step, at_part) if at_part >= 0 else part)
        verdict = self._deaths.lost(worker, life, part, handle.is_doomed)
        for ready in self._ready.values():  # it is not, any more
            if handle in ready:
                ready.remove(handle)
        handle.end(self._now())
        if self.has_begun:
            crash = crash and f"the job raised {crash}"
            outlook = self._outlook(handle)
            lost = LostWorker(
                worker, pid, handle.host, moment, outlook, self._now(), crash
            )
            self._losses.lost(life, lost)
        return verdict

    def _moment(self, handle: WorkerHandle, part: tuple[int, int] | None) -> str:
        """Say when a worker was lost, and the part that it computed if it is known."""
        if not handle.is_up:
            return "while it was set up"
        if part is not None:
            step, number = part
            return f"in step {step}, part {number}{self._samples(step, number)}"
        if self.step < 0:
            return "before the first step"
        return f"{'in' if self.is_step_open else 'after'} step {self.step}"

    def _outlook(self, handle: WorkerHandle) -> str:
        """Say what follows the loss of a worker."""
        if self.faults.stays_away(handle.worker, self.step):
            return "the fault plan keeps it away"
        seconds = handle.back_off
        return "a new process is started" + (f" in {seconds:.2g} s" if seconds else "")

    def _judge(self, verdict: Death | None) -> None:
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
        if not isinstance(self.root, DescribesParts):
            return ""
        return f" ({self.root.describe(part, step)})"

    def kill(self, handle: WorkerHandle) -> None:
        """Kill a worker on purpose: no part is to blame."""
        if handle.is_there:  # or its next life would count as killed
            handle.signal(signal.SIGKILL)
            handle.is_doomed = True

    def plan(self, handle: WorkerHandle) -> None:
        """Begin the next life of a worker when its back-off is over."""

        def live() -> None:
            if not self.faults.stays_away(handle.worker, self.step):
                self.spawn(handle)
            else:  # others that were lost with it need not wait for it
                self._returning.get(handle.where.number, set()).discard(handle.worker)

        self._agenda.enter(handle.back_off, 0, live)


def _cause(verdict: Death) -> str:
    """Say what ended a worker."""
    assert verdict.code is not None  # or it would not be judged
    if verdict.code >= 0:
        return f"it ended with exit code {verdict.code}"
    said = f"ended by {signal_name(-verdict.code)}"
    return f"{said}, on purpose" if verdict.is_intended else said + _memory(verdict)


def _memory(verdict: Death) -> str:
    """Return who may have sent a SIGKILL; nothing for any other death."""
    if verdict.code != -signal.SIGKILL:
        return ""
    return ": by kill -9, or by the kernel because memory ran out"
