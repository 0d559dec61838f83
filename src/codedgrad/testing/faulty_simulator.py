"""The simulator, with faults.

| fault | what happens |
| --- | --- |
| `slow` | the worker takes `size` times as long in that step |
| `lose` | it dies `when` seconds into the step, for `size` steps |
| `join` | it comes back `when` seconds into the step |
| `repeat` | everything it reports in that step comes twice |
| `delay` | everything it reports comes up to `size` seconds late, out of order |
| `stale` | everything it reported in the step before comes once more |
| `mute` | nothing it sends in that step arrives, and it is not lost |
| `hang` | the same from `when` seconds into the step on; never drawn |
| `fail` | its messages of that step are unusable |
| `nan` | its messages of that step are not finite, and those of others are |
| `diverge` | nobody's messages of that step are finite |
| `cancel` | the step is cancelled after `when` seconds |
| `supersede` | the next step starts after `when` seconds |
| `timer` | a timer fires early, after `when` seconds |
| `tardy` | timers of that step fire `size` seconds late |

`lose` and `join` may befall a whole host: with `hosts`, they are of every worker on the
worker's host, in one event.

Real sums are carried along, of unit vectors: what is combined must be what the weights
and the rows say, so sessions and drivers are under test as well as decisions. Where a
message is not finite, its parts are NaN, and the others must be right all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from msgspec import Struct, structs

from codedgrad.core import (
    Capabilities,
    Combine,
    Command,
    Event,
    MessageArrived,
    MessageFailed,
    Patience,
    Progressed,
    Report,
    Scheme,
    Send,
    StepCancelled,
    StepStarted,
    Task,
    TimerFired,
)
from codedgrad.delays import Times
from codedgrad.errors import Violation
from codedgrad.sim import Simulator, Step
from codedgrad.testing.invariants import check_state

KINDS = (
    "slow", "lose", "join", "repeat", "delay", "stale", "mute", "fail", "nan",
    "diverge", "cancel", "supersede", "timer", "tardy",
)  # fmt: skip

PATIENCE = Patience(least=60.0, first=60.0)


class SimulatedFault(Struct, frozen=True):
    """Some trouble for a worker in a step; see the module's docstring.

    Attributes:
        kind: What happens.
        step: In which step.
        worker: To which worker.
        when: Seconds into the step.
        size: How much of it; the unit depends on the kind.
        hosts: A loss or a join is of the worker's host, where this many hosts have the
            workers in turn: worker 5 of 3 hosts is on host 2. 0: of the worker alone.
    """

    kind: str
    step: int
    worker: int
    when: float = 0.0
    size: float = 1.0
    hosts: int = 0

    def befallen(self, workers: int) -> tuple[int, ...]:
        """Return which of so many workers it happens to."""
        if self.hosts:
            return tuple(range(self.worker % self.hosts, workers, self.hosts))
        return (self.worker,)


class Schedule(Struct, frozen=True):
    """All that a run depends on, besides the scheme.

    Attributes:
        seed: Of the delays.
        steps: How many.
        faults: What goes wrong.
        latency: Seconds of orders and reports.
        capabilities: Of the engine that is played.
    """

    seed: int
    steps: int
    faults: tuple[SimulatedFault, ...]
    latency: float = 0.0
    capabilities: Capabilities = Capabilities()


@dataclass
class _Trouble:
    """The faults of one step, by kind."""

    faults: dict[str, list[SimulatedFault]] = field(default_factory=dict)

    def of(self, kind: str, worker: int) -> SimulatedFault | None:
        for fault in self.faults.get(kind, ()):
            if fault.worker == worker:
                return fault
        return None


class _UnitVectors:
    """Carries the gradient of part p as the p-th unit vector, and checks the sum."""

    def __init__(self, scheme: Scheme, finite: Callable[[int, int], bool]) -> None:
        self._scheme = scheme
        self._finite = finite  # of a step and a worker
        self._sums: dict[tuple[int, int, int], list[float]] = {}
        self._sent: dict[tuple[int, int], list[float]] = {}
        self._step = -1  # the one combined last

    def merge(self, worker: int, task: Task) -> None:
        key = task.step, worker, task.segment
        sum_ = self._sums.setdefault(key, [0.0] * self._scheme.parts)
        sum_[task.part] += task.coefficient

    def send(self, worker: int, send: Send) -> None:
        total = [0.0] * self._scheme.parts
        for segment, _ in send.cuts:
            part = self._sums.get((send.step, worker, segment), total[:0])
            total = [a + b for a, b in zip(total, part, strict=True)] if part else total
        for message, weight in send.gathered:
            row = self._sent[send.step, message]
            total = [a + weight * b for a, b in zip(total, row, strict=True)]
        if not self._finite(send.step, worker):
            total = [math.nan if value else 0.0 for value in total]
        self._sent[send.step, send.message] = total

    def is_finite(self, send: Send) -> bool:
        return not any(map(math.isnan, self._sent[send.step, send.message]))

    def drop(self, worker: int) -> None:
        for key in [key for key in self._sums if key[1] == worker]:
            del self._sums[key]

    def combine(self, combine: Combine) -> None:
        gaps = [-1.0] * self._scheme.parts
        for message, weight in combine.weights:
            for part, value in enumerate(self._sent[combine.step, message]):
                gaps[part] += weight * value
        numbers = [gap for gap in gaps if not math.isnan(gap)]
        misfit = sum(gap * gap for gap in numbers)
        excess = misfit - combine.residual
        if len(numbers) == len(gaps):
            excess = abs(excess)
        if excess > 1e-9 * max(1.0, misfit) * len(gaps):
            detail = f"{misfit:.6g} in {combine}"
            raise Violation("what is combined is what was promised", detail)
        self._step = combine.step

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        rows = {id_: np.array(self._sent[self._step, id_]) for id_ in sorted(messages)}
        return tuple(
            (one, other, float(rows[one] @ rows[other]))
            for one in rows
            for other in rows
            if one <= other
        )


class Troubled(Simulator):
    """The simulator, with faults."""

    def __init__(
        self,
        schedule: Schedule,
        scheme: Scheme,
        watch: Callable[[Event, list[Command]], None],
    ) -> None:
        self._vectors = _UnitVectors(scheme, self._is_finite)
        super().__init__(
            scheme,
            capabilities=schedule.capabilities,
            patience=PATIENCE,
            latency=schedule.latency,
            watch=watch,
            payload=self._vectors,
            most_events=20_000,
        )
        rng = np.random.default_rng(schedule.seed)
        shape = schedule.steps, scheme.workers
        unit = 0.2 + rng.exponential(1.0, shape)
        fixed = rng.exponential(0.1, shape)
        self._trouble = [_Trouble() for _ in range(schedule.steps)]
        for fault in schedule.faults:
            if fault.step < schedule.steps:
                kinds = self._trouble[fault.step].faults
                kinds.setdefault(fault.kind, []).append(fault)
                if fault.kind == "slow":
                    unit[fault.step, fault.worker] *= fault.size
                if fault.kind == "lose":
                    gone = slice(fault.step + 1, fault.step + int(fault.size))
                    unit[gone, fault.befallen(scheme.workers)] = np.inf
        times = Times(fixed=fixed, unit=unit)
        self._rows = zip(
            times.fixed.tolist(), times.part(scheme.parts).tolist(), strict=True
        )
        self._begun: dict[int, float] = {}  # when steps began, unless superseding one
        self._said: list[
            tuple[int, Progressed | MessageArrived]
        ] = []  # reports of the step before, and this

    def feed(self, event: Event) -> None:
        """Show the coordinator an event, then recount what it has counted."""
        super().feed(event)
        if self.coordinator.state is not None:
            check_state(self.coordinator.state)

    def wake_at(self, at: float) -> None:
        """Set the timer, or a later one."""
        tardy = self._trouble[self._step].faults.get("tardy", ())
        super().wake_at(at + sum(fault.size for fault in tardy))

    def next_step(self) -> Step:
        """Run the next step of the schedule."""
        fixed, part = next(self._rows)
        number = self._step + 1
        trouble = self._trouble[number].faults
        start = self._begun[number] = self.now

        def later(fault: SimulatedFault, happen: Callable[[], None]) -> None:
            self.schedule(start + fault.when, happen)

        for fault in trouble.get("lose", ()):
            later(fault, partial(self.lose, *fault.befallen(len(self._workers))))
        for fault in trouble.get("join", ()):
            later(fault, partial(self.join, *fault.befallen(len(self._workers))))
        for fault in trouble.get("cancel", ()):
            later(fault, lambda: self.feed(StepCancelled(number, self.now)))
        for fault in trouble.get("supersede", ()):
            if number + 1 < len(self._trouble):
                later(fault, lambda: self.feed(StepStarted(number + 1, self.now)))
        for fault in trouble.get("timer", ()):
            later(fault, lambda: self.feed(TimerFired(self.now)))
        for fault in trouble.get("stale", ()):
            for step, event in self._said:
                if step == number - 1 and event.worker == fault.worker:
                    later(fault, partial(self._once_more, event))
        self._said = [(s, e) for s, e in self._said if s >= number - 1]
        return self.step(fixed, part)

    def _trouble_of(self, step: int) -> _Trouble:
        return self._trouble[min(max(step, 0), len(self._trouble) - 1)]

    def _is_finite(self, step: int, worker: int) -> bool:
        trouble = self._trouble_of(step)
        return not trouble.faults.get("diverge") and not trouble.of("nan", worker)

    def _once_more(self, event: Progressed | MessageArrived) -> None:
        self.feed(structs.replace(event, at=self.now))

    def report(self, number: int, report: Report) -> None:
        """Bring a report to the coordinator: as it is, late, twice or not at all."""
        trouble = self._trouble_of(report.step)
        hung = trouble.of("hang", number)
        begun = self._begun.get(report.step, math.inf)
        is_hung = hung is not None and self.now >= begun + hung.when
        if trouble.of("mute", number) or is_hung:
            return
        if isinstance(report, Send) and trouble.of("fail", number):
            reason = "torn"
            self.feed(
                MessageFailed(report.step, number, report.message, reason, self.now)
            )
            return
        self._said.append((report.step, self._event(number, report)))
        if fault := trouble.of("delay", number):
            incarnation = self._workers[number].session
            some = (0.618 * len(self._said)) % 1  # out of order, and the same again
            self.schedule(
                self.now + fault.size * some,
                lambda: self._if_same(number, incarnation, report),
            )
            return
        self.feed(self._event(number, report))
        if trouble.of("repeat", number):
            self.feed(self._event(number, report))

    def _if_same(self, number: int, incarnation: object, report: Report) -> None:
        if self._workers[number].session is incarnation:
            self.feed(self._event(number, report))

    def _event(self, number: int, report: Report) -> Progressed | MessageArrived:
        if isinstance(report, Send):
            return MessageArrived(
                report.step, number, report.message, report.cuts, self.now,
                finite=self._vectors.is_finite(report),
            )  # fmt: skip
        return Progressed(
            report.step, number, report.segment, report.done, report.closed, self.now
        )
