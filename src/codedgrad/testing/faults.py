"""The seeded fault simulator: random schedules of trouble against any scheme.

A schedule is a value: delays from a seed, and a list of faults at (worker, step). The
same schedule always gives the same events, so a failure can be made smaller by leaving
faults out, and what is left is written down as a trace.

| fault | what happens |
| --- | --- |
| `slow` | the worker takes `size` times as long in that step |
| `lose` | it dies `when` seconds into the step, for `size` steps |
| `join` | it comes back `when` seconds into the step |
| `repeat` | everything it reports in that step comes twice |
| `delay` | everything it reports comes up to `size` seconds late, out of order |
| `stale` | everything it reported in the step before comes once more |
| `mute` | nothing it sends in that step arrives, and it is not lost |
| `fail` | its messages of that step are unusable |
| `cancel` | the step is cancelled after `when` seconds |
| `supersede` | the next step starts after `when` seconds |
| `timer` | a timer fires early, after `when` seconds |
| `tardy` | timers of that step fire `size` seconds late |

Real sums are carried along, of unit vectors: what is combined must be what the weights
and the rows say, so sessions and drivers are under test as well as decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from msgspec import Struct, json, structs

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
from codedgrad.testing.invariants import Invariants, check_state
from codedgrad.trace import Entry, Header, Recorder, Trace, replay

__all__ = ["KINDS", "Failure", "Fault", "Schedule", "attack", "draw", "run", "shrink"]

KINDS = (
    "slow", "lose", "join", "repeat", "delay", "stale", "mute", "fail", "cancel",
    "supersede", "timer", "tardy",
)  # fmt: skip

_PATIENCE = Patience(least=60.0, first=60.0)


class Fault(Struct, frozen=True):
    """Some trouble for a worker in a step; see the module's docstring."""

    kind: str
    step: int
    worker: int
    when: float = 0.0
    size: float = 1.0


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
    faults: tuple[Fault, ...]
    latency: float = 0.0
    capabilities: Capabilities = Capabilities()


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule under which a scheme broke a rule.

    Attributes:
        scheme: The scheme.
        schedule: What was done to it.
        error: What it did.
        entries: The events and commands up to there.
    """

    scheme: Scheme
    schedule: Schedule
    error: Exception
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        faults = ", ".join(
            f"{f.kind}(worker {f.worker}, step {f.step})" for f in self.schedule.faults
        )
        return (
            f"{self.scheme.name}: {self.error} [{len(self.entries)} events, seed "
            f"{self.schedule.seed}, faults: {faults or 'none'}]"
        )

    def save(self, path: Path | str) -> None:
        """Write the trace, with the schedule in the header's note."""
        header = _header(self.scheme, self.schedule)
        with Recorder(path, header) as record:
            for entry in self.entries:
                record(entry.event, entry.commands)


def draw(scheme: Scheme, rng: np.random.Generator) -> Schedule:
    """Draw a schedule: a few steps, up to a fault per worker and step."""
    steps = int(rng.integers(1, 5))
    count = int(rng.integers(0, 2 + scheme.workers))
    faults = tuple(
        Fault(
            kind=KINDS[rng.integers(len(KINDS))],
            step=int(rng.integers(steps)),
            worker=int(rng.integers(scheme.workers)),
            when=float(round(rng.exponential(1.5), 3)),
            size=float(round(rng.choice((1.0, 2.0, 5.0, 30.0)), 3)),
        )
        for _ in range(count)
    )
    return Schedule(
        seed=int(rng.integers(2**31)),
        steps=steps,
        faults=faults,
        latency=float(rng.choice((0.0, 0.0, 0.05, 0.5))),
        capabilities=Capabilities(
            progress=bool(rng.random() < 0.8),
            interrupts_part=bool(rng.random() < 0.5),
            orders_during_part=bool(rng.random() < 0.7),
        ),
    )


def run(schedule: Schedule, scheme: Scheme) -> Failure | None:
    """Run a scheme under a schedule; return what went wrong, if anything did.

    Checked are the invariants, that every step ends, and that a replay of the events
    in a fresh coordinator gives the same commands.
    """
    entries: list[Entry] = []
    invariants = Invariants(scheme)

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))
        invariants(event, commands)

    try:
        simulator = _Troubled(schedule, scheme, watch)
        for step in range(schedule.steps):
            ended = simulator.next_step()
            if step not in invariants.ends:
                raise Violation("every step ends", f"step {step} has not")
            if not ended.combined and _must_combine(schedule, scheme, step):
                rule = "a step with tolerated faults gives a sum"
                raise Violation(rule, f"step {step}: {ended.reason}")
        trace = Trace(_header(scheme, schedule), tuple(entries))
        difference = replay(trace, scheme)
        if difference is not None:
            raise Violation("a replay decides the same", str(difference))
    except Exception as error:  # whatever it is, it is a failure to be shrunk
        return Failure(scheme, schedule, error, tuple(entries))
    return None


def _must_combine(schedule: Schedule, scheme: Scheme, step: int) -> bool:
    """Whether no more workers are in trouble than the scheme survives."""
    if scheme.tolerance is None:
        return False
    harmless = {"join", "repeat", "stale", "timer"}
    hurt = set()
    for fault in schedule.faults:
        if fault.kind == "lose" and fault.step <= step:
            hurt.add(fault.worker)  # its moment may come in a later step
        elif fault.kind in ("slow", "delay") and fault.step <= step:
            return False  # it may last into this one, and take very long
        elif fault.step != step:
            continue
        elif fault.kind in ("mute", "fail"):
            hurt.add(fault.worker)
        elif fault.kind not in harmless:
            return False  # ended by others, or made to take very long
    return len(hurt) <= scheme.tolerance


def attack(
    schemes: Sequence[Scheme],
    schedules: int,
    seed: int = 0,
    advanced: Callable[[int], None] | None = None,
) -> Failure | None:
    """Run so many random schedules over the schemes in turn; shrink what fails."""
    rng = np.random.default_rng(seed)
    for number in range(schedules):
        scheme = schemes[number % len(schemes)]
        failure = run(draw(scheme, rng), scheme)
        if failure is not None:
            return shrink(failure)
        if advanced is not None:
            advanced(1)
    return None


def shrink(failure: Failure) -> Failure:
    """Return a failure of the same kind from a schedule as small as can be found."""
    best = failure
    while True:
        for smaller in _smaller(best.schedule):
            found = run(smaller, best.scheme)
            if found is not None and type(found.error) is type(failure.error):
                best = found
                break
        else:
            return best


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Go through schedules that are simpler by one thing, boldest first."""
    faults = schedule.faults
    size = len(faults)
    while size > 0:
        for low in range(0, len(faults), size):
            kept = faults[:low] + faults[low + size :]
            yield structs.replace(schedule, faults=kept)
        size //= 2
    last = max((fault.step for fault in faults), default=0)
    for steps in {1, last + 1, schedule.steps - 1}:
        if 1 <= steps < schedule.steps:
            yield structs.replace(schedule, steps=steps)
    if schedule.latency:
        yield structs.replace(schedule, latency=0.0)
    if schedule.capabilities != Capabilities():
        yield structs.replace(schedule, capabilities=Capabilities())


def _header(scheme: Scheme, schedule: Schedule) -> Header:
    return Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        driver="fault simulator",
        seed=schedule.seed,
        capabilities=schedule.capabilities,
        patience=_PATIENCE,
        note=json.encode(schedule).decode(),
    )


@dataclass
class _Trouble:
    """The faults of one step, by kind."""

    faults: dict[str, list[Fault]] = field(default_factory=dict)

    def of(self, kind: str, worker: int) -> Fault | None:
        for fault in self.faults.get(kind, ()):
            if fault.worker == worker:
                return fault
        return None


class _UnitVectors:
    """Carries the gradient of part p as the p-th unit vector, and checks the sum."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._sums: dict[tuple[int, int, int], list[float]] = {}
        self._sent: dict[tuple[int, int], list[float]] = {}

    def merge(self, worker: int, task: Task) -> None:
        key = task.step, worker, task.segment
        sum_ = self._sums.setdefault(key, [0.0] * self._scheme.parts)
        sum_[task.part] += task.coefficient

    def send(self, worker: int, send: Send) -> None:
        total = [0.0] * self._scheme.parts
        for segment, _ in send.cuts:
            part = self._sums.get((send.step, worker, segment), total[:0])
            total = [a + b for a, b in zip(total, part, strict=True)] if part else total
        self._sent[send.step, send.message] = total

    def drop(self, worker: int) -> None:
        for key in [key for key in self._sums if key[1] == worker]:
            del self._sums[key]

    def combine(self, combine: Combine) -> None:
        gaps = [-1.0] * self._scheme.parts
        for message, weight in combine.weights:
            for part, value in enumerate(self._sent[combine.step, message]):
                gaps[part] += weight * value
        misfit = sum(gap * gap for gap in gaps)
        if abs(misfit - combine.residual) > 1e-9 * max(1.0, misfit) * len(gaps):
            detail = f"{misfit:.6g} in {combine}"
            raise Violation("what is combined is what was promised", detail)


class _Troubled(Simulator):
    """The simulator, with faults."""

    def __init__(
        self,
        schedule: Schedule,
        scheme: Scheme,
        watch: Callable[[Event, list[Command]], None],
    ) -> None:
        super().__init__(
            scheme,
            capabilities=schedule.capabilities,
            patience=_PATIENCE,
            latency=schedule.latency,
            watch=watch,
            payload=_UnitVectors(scheme),
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
                    unit[gone, fault.worker] = np.inf
        times = Times(fixed=fixed, unit=unit)
        self._rows = zip(
            times.fixed.tolist(), times.part(scheme.parts).tolist(), strict=True
        )
        self._said: list[tuple[int, Event]] = []  # reports of the step before, and this

    def feed(self, event: Event) -> None:
        super().feed(event)
        if self.coordinator.state is not None:
            check_state(self.coordinator.state)

    def wake_at(self, at: float) -> None:
        tardy = self._trouble[self._step].faults.get("tardy", ())
        super().wake_at(at + sum(fault.size for fault in tardy))

    def next_step(self) -> Step:
        fixed, part = next(self._rows)
        number = self._step + 1
        trouble = self._trouble[number].faults
        start = self.now

        def later(fault: Fault, happen: Callable[[], None]) -> None:
            self.schedule(start + fault.when, happen)

        for fault in trouble.get("lose", ()):
            later(fault, lambda w=fault.worker: self.lose(w))  # type: ignore[misc]
        for fault in trouble.get("join", ()):
            later(fault, lambda w=fault.worker: self.join(w))  # type: ignore[misc]
        for fault in trouble.get("cancel", ()):
            later(fault, lambda: self.feed(StepCancelled(number, self.now)))
        for fault in trouble.get("supersede", ()):
            if number + 1 < len(self._trouble):
                later(fault, lambda: self.feed(StepStarted(number + 1, self.now)))
        for fault in trouble.get("timer", ()):
            later(fault, lambda: self.feed(TimerFired(self.now)))
        for fault in trouble.get("stale", ()):
            for step, event in self._said:
                if step == number - 1 and event.worker == fault.worker:  # type: ignore[union-attr]
                    later(fault, lambda e=event: self._again(e))  # type: ignore[misc]
        self._said = [(s, e) for s, e in self._said if s >= number - 1]
        return self.step(fixed, part)

    def _again(self, event: Progressed | MessageArrived) -> None:
        kind = type(event)
        fields = structs.asdict(event)
        self.feed(kind(**{**fields, "at": self.now}))

    def report(self, number: int, report: Report) -> None:
        step = min(max(report.step, 0), len(self._trouble) - 1)
        trouble = self._trouble[step]
        if trouble.of("mute", number):
            return
        if isinstance(report, Send) and trouble.of("fail", number):
            reason = "not finite"
            self.feed(
                MessageFailed(report.step, number, report.message, reason, self.now)
            )
            return
        self._note(number, report)
        if fault := trouble.of("delay", number):
            incarnation = self._workers[number].session
            some = (0.618 * len(self._said)) % 1  # out of order, and the same again
            self.schedule(
                self.now + fault.size * some,
                lambda: self._if_same(number, incarnation, report),
            )
            return
        super().report(number, report)
        if trouble.of("repeat", number):
            super().report(number, report)

    def _if_same(self, number: int, incarnation: object, report: Report) -> None:
        if self._workers[number].session is incarnation:
            super().report(number, report)

    def _note(self, number: int, report: Report) -> None:
        event: Event
        if isinstance(report, Send):
            event = MessageArrived(
                report.step, number, report.message, report.cuts, self.now
            )
        else:
            event = Progressed(
                report.step, number, report.segment, report.done, report.closed,
                self.now,
            )  # fmt: skip
        self._said.append((report.step, event))
