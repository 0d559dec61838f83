"""The seeded fault simulator: random schedules of trouble against any scheme.

A schedule is a value: delays from a seed, and a list of faults at (worker, step). The
same schedule always gives the same events, so a failure can be made smaller by leaving
faults out, and what is left is written down as a trace.

What can go wrong is listed in `testing.troubled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import json, structs

from codedgrad.core import Capabilities, Command, Event, Scheme
from codedgrad.errors import Violation
from codedgrad.testing.faulty_simulator import (
    KINDS,
    PATIENCE,
    Schedule,
    SimulatedFault,
    Troubled,
)
from codedgrad.testing.invariants import Invariants
from codedgrad.trace import Entry, Header, Recorder, Trace, replay


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
            f"{f.kind}({_named(f.befallen(self.scheme.workers))}, step {f.step})"
            for f in self.schedule.faults
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


def _named(workers: Sequence[int]) -> str:
    word = "worker" if len(workers) == 1 else "workers"
    return f"{word} {' '.join(map(str, workers))}"


def draw(scheme: Scheme, rng: np.random.Generator) -> Schedule:
    """Draw a schedule: a few steps, up to a fault per worker and step.

    Half of the losses and joins are of a whole host. A schedule has fewer hosts than
    workers; where it has one, all workers are lost together.
    """
    steps = int(rng.integers(1, 5))
    count = int(rng.integers(0, 2 + scheme.workers))
    faults = tuple(
        SimulatedFault(
            kind=KINDS[rng.integers(len(KINDS))],
            step=int(rng.integers(steps)),
            worker=int(rng.integers(scheme.workers)),
            when=float(round(rng.exponential(1.5), 3)),
            size=float(round(rng.choice((1.0, 2.0, 5.0, 30.0)), 3)),
        )
        for _ in range(count)
    )
    seed = int(rng.integers(2**31))
    return Schedule(
        seed=seed,
        steps=steps,
        faults=_on_hosts(faults, scheme.workers, seed),
        latency=float(rng.choice((0.0, 0.0, 0.05, 0.5))),
        capabilities=Capabilities(
            progress=bool(rng.random() < 0.8) or scheme.traits.needs_progress,
            interrupts_part=bool(rng.random() < 0.5),
            orders_during_part=bool(rng.random() < 0.7),
        ),
    )


def _on_hosts(
    faults: Sequence[SimulatedFault], workers: int, seed: int
) -> tuple[SimulatedFault, ...]:
    """Let half of the losses and joins be of a host, the same hosts for all of them."""
    # A generator of its own: taken from that of `draw`, these numbers would shift all
    # later ones, and the seeds that tests name would stand for other schedules.
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(1, max(workers, 2)))
    return tuple(
        structs.replace(fault, hosts=hosts)
        if fault.kind in ("lose", "join") and rng.random() < 0.5
        else fault
        for fault in faults
    )


def run(schedule: Schedule, scheme: Scheme) -> Failure | None:
    """Run a scheme under a schedule; return what went wrong, if anything did.

    Checked are the invariants, that every step ends, and that a replay of the events
    in a fresh coordinator gives the same commands.
    """
    entries: list[Entry] = []
    invariants = Invariants(scheme, schedule.capabilities)

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))
        invariants(event, commands)

    try:
        simulator = Troubled(schedule, scheme, watch)
        for step in range(schedule.steps):
            ended = simulator.next_step()
            if step not in invariants.ends:
                raise Violation("every step ends", f"step {step} has not")
            if not ended.combined and _must_combine(schedule, scheme, step):
                rule = "a step with tolerated faults gives a sum"
                raise Violation(rule, f"step {step}: {ended.reason}")
            known = simulator.coordinator.history.records[-1].state.messages
            bad = [m for m, _ in ended.weights if not known[m].finite]
            if bad and _must_be_finite(schedule, scheme, step):
                rule = "one bad worker does not get into a sum"
                raise Violation(rule, f"step {step}: messages {bad}")
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
    harmless = {"join", "repeat", "stale", "timer", "diverge"}
    hurt = set[int]()
    here = {fault.kind for fault in schedule.faults if fault.step == step}
    if "diverge" in here and not here.isdisjoint(("mute", "hang")):
        return False  # the one who could say so may be the one who does not
    for fault in schedule.faults:
        if fault.kind == "lose" and fault.step <= step:
            # Its moment may come in a later step.
            hurt.update(fault.befallen(scheme.workers))
        elif fault.kind in ("slow", "delay") and fault.step <= step:
            return False  # it may last into this one, and take very long
        elif fault.step != step:
            continue
        elif fault.kind in ("mute", "hang", "fail", "nan"):
            hurt.add(fault.worker)
        elif fault.kind not in harmless:
            return False  # ended by others, or made to take very long
    return len(hurt) <= scheme.tolerance


def _must_be_finite(schedule: Schedule, scheme: Scheme, step: int) -> bool:
    """Whether one worker is bad, and nothing keeps the others from saying so."""
    here = [fault for fault in schedule.faults if fault.step == step]
    bad = {fault.worker for fault in here if fault.kind == "nan"}
    if len(bad) != 1 or schedule.capabilities.rows_per_worker < 1000:
        return False
    if any(fault.kind in ("diverge", "mute", "hang", "fail") for fault in here):
        return False
    if any(fault.kind == "lose" and fault.step <= step for fault in schedule.faults):
        return False
    placed = enumerate(scheme.placement)
    others = {part for worker, parts in placed if worker not in bad for part in parts}
    return len(others) == scheme.parts


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
    for number, fault in enumerate(faults):
        if fault.hosts:
            alone = structs.replace(fault, hosts=0)
            kept = (*faults[:number], alone, *faults[number + 1 :])
            yield structs.replace(schedule, faults=kept)
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
        patience=PATIENCE,
        note=json.encode(schedule).decode(),
    )
