"""Driver 1: the real coordinator and the real sessions on a virtual clock.

Nothing here decides. Parts take the seconds that a delay model drew, orders and reports
take the latency, and what happens next is the head of a heap. At equal times reports
come before timers, and otherwise what was scheduled first.

A worker pays its fixed seconds before its first part of a step. A part that nobody
needs any more is abandoned at once where the engine can interrupt; otherwise its worker
finishes it first, into the next step if need be. A worker whose times are infinite is
lost, as a dead process is noticed; when they are finite again it joins. Where there are
times for later orders (`Times.again`), what is assigned after the first moment of a
step takes those.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Coordinator,
    Drop,
    Event,
    GiveUp,
    MessageArrived,
    MessagesCompared,
    Order,
    Patience,
    Progress,
    Progressed,
    Report,
    Scheme,
    Send,
    Session,
    StepStarted,
    Task,
    TimerFired,
    WakeAt,
    WorkerFreed,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.errors import InvalidScenario, StuckStep
from codedgrad.network import Downlink, Network, Ports

_MOST_EVENTS = 1_000_000  # a step


Watch: TypeAlias = Callable[[Event, list[Command]], None]
"""Is told every event and the commands it led to, in order."""


class Payload(Protocol):
    """What a driver carries besides time: gradients, or nothing."""

    def merge(self, worker: int, task: Task) -> None:
        """Add a part to its segment's sum."""
        ...

    def send(self, worker: int, send: Send) -> None:
        """Take the sum of a message as it is now, with what was gathered for it."""
        ...

    def drop(self, worker: int) -> None:
        """Forget the sums of a worker."""
        ...

    def combine(self, combine: Combine) -> None:
        """Add up the messages of a step that has ended."""
        ...

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs.

        One <= other; asked for after `combine`, of messages that it added up.
        """
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """How a simulated step went; what the simulator knows, not what a root would.

    Attributes:
        step: Its number.
        seconds: From its start to its end.
        combined: Whether it gave a sum.
        residual: Of the sum; the number of parts where there is none.
        weights: (message, weight) pairs of the sum.
        heard: The worker of every message heard, in order of arrival.
        work: Parts computed to their end within the step, by anybody.
        busy: Seconds workers spent on parts, together, within the step.
        reason: Why it was given up, if so.
    """

    step: int
    seconds: float
    combined: bool
    residual: float
    weights: tuple[tuple[int, float], ...]
    heard: tuple[int, ...]
    work: int
    busy: float
    reason: str


class _Worker:
    """A worker in virtual time."""

    __slots__ = (
        "alive", "base", "begun", "count", "end", "ready", "run", "seconds",
        "session", "since", "step", "task", "waiting",
    )  # fmt: skip

    def __init__(self, number: int, progress: bool) -> None:
        self.session = Session(number, progress)
        self.alive = True
        self.step = -1  # for which the fixed seconds are paid
        self.ready = 0.0  # when they are
        self.base = 0.0  # parts of a run end at base + count x seconds
        self.count = 0
        self.seconds = 0.0
        self.task: Task | None = None  # under way, perhaps abandoned
        self.begun = 0.0  # of what is under way, in this step
        self.since = 0.0  # of what is under way
        self.end = math.inf
        self.run = 0  # numbers what is under way, so that stale ends are known
        self.waiting: list[Order] = []


class Simulator:
    """Runs a scheme step by step on times that were drawn before.

    Args:
        scheme: What to run.
        capabilities: Of the engine that is played.
        patience: When to give a step up.
        latency: Seconds an order takes to its worker, and a report back.
        watch: Told every event and the commands it led to.
        payload: What is carried besides time.
        most_events: In one step, before it is called stuck.
        network: What messages go through instead of `latency`; None: nothing.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        capabilities: Capabilities | None = None,
        patience: Patience | None = None,
        latency: float = 0.0,
        watch: Watch | None = None,
        payload: Payload | None = None,
        most_events: int = _MOST_EVENTS,
        network: Network | None = None,
    ) -> None:
        self.capabilities = capabilities or Capabilities()
        self.coordinator = Coordinator(scheme, self.capabilities, patience)
        self.now = 0.0
        self._scheme = scheme
        self._latency = latency
        self._watch = watch
        self._payload = payload
        self._most_events = most_events
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._workers = [
            _Worker(number, self.capabilities.progress)
            for number in range(scheme.workers)
        ]
        self._ports: Ports | None = None
        self._network = network
        if network is not None:
            network.check(scheme.workers)
            if network.chunks > 1:
                problem = "cuts messages into chunks, which events cannot say"
                advice = "sim.tree_seconds, or chunks=1"
                raise InvalidScenario("network", problem, advice)
            drains = not self.capabilities.interrupts_part
            self._ports = Ports(network, scheme.workers, self, drains)
        self._down: Downlink | None = None
        self._until = math.inf
        self._step = -1
        self._end: Combine | GiveUp | None = None
        self._fixed: list[float] = []
        self._part: list[float] = []
        self._again: tuple[list[float], list[float]] | None = None
        self._later: set[tuple[int, int]] = set()  # (step, segment) that take those
        self._started = 0.0
        self._work = 0
        self._busy = 0.0

    def run(self, times: Times) -> Iterator[Step]:
        """Simulate a step for every row of `times`, one after the other."""
        rows = _rows(times, self._scheme.parts)
        later = times.again
        again = None if later is None else _rows(later, self._scheme.parts)
        for number, (fixed, part) in enumerate(rows):
            yield self.step(fixed, part, None if again is None else again[number])

    def step(
        self,
        fixed: list[float],
        part: list[float],
        again: tuple[list[float], list[float]] | None = None,
    ) -> Step:
        """Simulate the next step.

        Args:
            fixed: Seconds every worker pays before its first part.
            part: Seconds every worker takes for a part.
            again: The same two for what is assigned after the step's first moment.
        """
        self._fixed, self._part = fixed, part
        self._again, self._started = again, self.now
        self._later.clear()
        self._step += 1
        self._end, self._work, self._busy = None, 0, 0.0
        for number, worker in enumerate(self._workers):
            there = math.isfinite(fixed[number] + part[number])
            if worker.alive and not there:
                self.lose(number)
            elif there and not worker.alive:
                self.join(number)
        started = self.now
        if self._network is not None and self._network.down is not None:
            self._down = Downlink(self._network, self.now)
        self.feed(StepStarted(self._step, self.now))
        end = self._until_end()
        self._drop_all()
        if self._ports is not None:
            self._ports.end()
        for worker in self._workers:
            if worker.task is not None:  # it goes on into the next step
                self._busy += self.now - worker.begun
                worker.begun = self.now
        known = self.coordinator.history.records[-1].state
        sum_ = end if isinstance(end, Combine) else None
        if sum_ is not None:
            self._compare(sum_)
        return Step(
            step=self._step,
            seconds=self.now - started,
            combined=sum_ is not None,
            residual=float(self._scheme.parts) if sum_ is None else sum_.residual,
            weights=() if sum_ is None else sum_.weights,
            heard=tuple(known.messages[id_].worker for id_ in known.heard),
            work=self._work,
            busy=self._busy,
            reason=end.reason if isinstance(end, GiveUp) else "",
        )

    def _until_end(self) -> Combine | GiveUp:
        heap, left = self._heap, self._most_events
        while self._end is None:
            if left == 0:
                problem = f"more than {self._most_events} events, and it is open"
                raise StuckStep(self._step, problem)
            left -= 1
            if heap and heap[0][0] <= self._until:  # reports before timers
                self.now, _, happen = heapq.heappop(heap)
                happen()
            elif self._until < math.inf:
                self.now, self._until = self._until, math.inf
                self.feed(TimerFired(self.now))
            else:
                raise StuckStep(self._step, "nothing can happen, and it is open")
        return self._end

    def _compare(self, end: Combine) -> None:
        """Report how alike the messages of the sum are, if the plan has asked."""
        if self._payload is None or not end.compared:
            return
        products = self._payload.compare(end.compared)
        if products and all(math.isfinite(product) for *_, product in products):
            self.feed(MessagesCompared(end.step, products, self.now))

    # -- events in -------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Show the coordinator an event and carry out what it says."""
        try:
            commands = self.coordinator.handle(event)
        except Exception:
            if self._watch is not None:
                self._watch(event, [])  # so that a record shows what broke it
            raise
        if self._watch is not None:
            self._watch(event, commands)
        for command in commands:
            self._carry_out(command)

    def lose(self, *numbers: int) -> None:
        """Let workers die now, in one event; those that are gone are passed over."""
        lost = tuple(number for number in numbers if self._workers[number].alive)
        for number in lost:
            worker = self._workers[number]
            worker.alive = False
            self._stop(worker)
            worker.waiting.clear()
            worker.session = Session(number, self.capabilities.progress)
            if self._payload is not None:
                self._payload.drop(number)
            if self._down is not None:
                self._down.lose(number)
        if lost:
            self.feed(WorkersLost(lost, self.now))

    def join(self, *numbers: int) -> None:
        """Let workers that died come back now, in one event, knowing nothing."""
        back = tuple(number for number in numbers if not self._workers[number].alive)
        for number in back:
            worker = self._workers[number]
            worker.alive = True
            worker.step = -1
        if back:
            self.feed(WorkersJoined(back, self.now))

    def report(self, number: int, report: Report) -> None:
        """Bring a worker's report to the coordinator now."""
        match report:
            case Progress(step, segment, done, closed):
                self.feed(Progressed(step, number, segment, done, closed, self.now))
            case Send(step, message, cuts):
                self.feed(MessageArrived(step, number, message, cuts, self.now))

    def schedule(self, at: float, happen: Callable[[], None]) -> None:
        """Let something happen at a later moment, or at this one but after the rest."""
        heapq.heappush(self._heap, (at, self._scheduled, happen))
        self._scheduled += 1

    def wake_at(self, at: float) -> None:
        """Set the one timer there is."""
        self._until = at

    def transmit(self, number: int, report: Report) -> None:
        """Put a report on its way."""
        if isinstance(report, Send) and self._payload is not None:
            self._payload.send(number, report)
        incarnation = self._workers[number].session

        def arrive() -> None:
            if self._workers[number].session is incarnation:
                self.report(number, report)

        if isinstance(report, Send) and self._ports is not None:
            self._ports.send(number, report.to, arrive)
        else:
            self.schedule(self.now + self._latency, arrive)

    # -- commands out ----------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        match command:
            case WakeAt(_, at):
                self.wake_at(at)
            case Combine() | GiveUp():
                self._until = math.inf
                if command.step == self._step:
                    self._end = command
                    if self._payload is not None and isinstance(command, Combine):
                        self._payload.combine(command)
            case Assign(step, segment):
                if self._again is not None and self.now > self._started:
                    self._later.add((step, segment.id))
                if self._down is not None:
                    self._down.reach(segment.worker, command.to, self.now)
                self._send_order(segment.worker, command)
            case _:
                self._send_order(command.worker, command)

    def _send_order(self, number: int, order: Order) -> None:
        if self._latency == 0.0:
            self._take(number, order)
        else:
            incarnation = self._workers[number].session

            def arrive() -> None:
                if self._workers[number].session is incarnation:
                    self._take(number, order)

            self.schedule(self.now + self._latency, arrive)

    def _take(self, number: int, order: Order) -> None:
        worker = self._workers[number]
        # Behind orders that wait already: a session ignores an Upload that overtakes
        # the Assign of its segment, and the message would never come.
        is_busy = worker.task is not None or bool(worker.waiting)
        if is_busy and not self.capabilities.orders_during_part:
            worker.waiting.append(order)
        else:
            for report in worker.session.order(order):
                self.transmit(number, report)
            self._go_on(number)

    # -- workers ---------------------------------------------------------------------

    def _go_on(self, number: int) -> None:
        """See to it that a worker does what its session says."""
        worker = self._workers[number]
        task = worker.session.task
        if worker.task is not None and worker.task is not task:
            if not self.capabilities.interrupts_part:
                return  # it finishes first
            self._stop(worker)
        if task is not None and worker.task is None:
            self._begin(number, worker, task)

    def _begin(self, number: int, worker: _Worker, task: Task) -> None:
        fixed, part = self._fixed, self._part
        if self._later and (task.step, task.segment) in self._later:
            assert self._again is not None  # or nothing is later
            fixed, part = self._again
        if worker.step != task.step:
            worker.step = task.step
            there = self.now
            if self._down is not None:
                there = max(there, self._down.there(number))
            worker.ready = there + fixed[number]
            worker.count = 0
        same = worker.end == self.now and worker.seconds == part[number]
        if worker.count == 0 or not same:  # a run begins
            worker.base = max(self.now, worker.ready)
            worker.count = 0
            worker.seconds = part[number]
        worker.count += 1
        worker.task, worker.begun, worker.since = task, self.now, self.now
        worker.end = worker.base + worker.count * worker.seconds
        worker.run += 1
        run = worker.run
        self.schedule(worker.end, lambda: self._part_done(number, run))

    def _part_done(self, number: int, run: int) -> None:
        worker = self._workers[number]
        if run != worker.run or worker.task is None:
            return  # stopped since
        task = worker.task
        self._account(worker)
        worker.task = None
        wanted = task is worker.session.task
        if wanted and self._payload is not None:
            self._payload.merge(number, task)
        reports, next_ = worker.session.finish(task), worker.session.task
        if next_ is None or next_.step > task.step:
            # Before its reports, which may end the step: only a step that was over
            # before makes a part unwanted.
            self._tell_freed(number, task, self.now - worker.since, wanted)
        for report in reports:
            sends = isinstance(report, Send)
            through = sends and self._ports is not None
            if self._latency == 0.0 and self._end is None and not through:
                if isinstance(report, Send) and self._payload is not None:
                    self._payload.send(number, report)
                self.report(number, report)
            else:
                self.transmit(number, report)
        orders, worker.waiting = worker.waiting, []
        for order in orders:
            for report in worker.session.order(order):
                self.transmit(number, report)
        self._go_on(number)

    def _tell_freed(
        self, number: int, task: Task, seconds: float, wanted: bool
    ) -> None:
        """Let the coordinator hear that a worker is done with an unwanted part.

        Also with a wanted one, if the step is over when the coordinator hears of it.
        """
        if wanted and self._latency == 0.0 and not self._is_over(task.step):
            return
        incarnation = self._workers[number].session

        def arrive() -> None:
            is_unwanted = not wanted or self._is_over(task.step)
            if is_unwanted and self._workers[number].session is incarnation:
                self.feed(WorkerFreed(task.step, number, seconds, self.now))

        self.schedule(self.now + self._latency, arrive)

    def _is_over(self, step: int) -> bool:
        return step < self._step or self._end is not None

    def _stop(self, worker: _Worker) -> None:
        """Abandon what is under way."""
        if worker.task is not None:
            self._account(worker)
            worker.task = None
            worker.run += 1
            worker.count = 0

    def _account(self, worker: _Worker) -> None:
        self._work += worker.end == self.now  # also if abandoned at that very moment
        self._busy += self.now - worker.begun

    def _drop_all(self) -> None:
        """End the step at the workers, as `Combine` and `GiveUp` imply."""
        for number in range(len(self._workers)):
            self._send_order(number, Drop(self._step, number))
            if self._payload is not None:
                self._payload.drop(number)


def _rows(times: Times, parts: int) -> list[tuple[list[float], list[float]]]:
    """Return the fixed seconds and those for a part, of every step."""
    part = times.part(parts).tolist()
    return list(zip(times.fixed.tolist(), part, strict=True))
