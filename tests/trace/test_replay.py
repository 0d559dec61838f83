"""The same events in a fresh coordinator give the same commands."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Event,
    GiveUp,
    Scheme,
    StepStarted,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Chain, Dead, ShiftedExponential
from codedgrad.errors import InvalidTrace
from codedgrad.schemes import (
    SCHEMES,
    cyclic,
    fractional,
    uncoded,
)
from codedgrad.sim import Machine, run_events
from codedgrad.testing import EXAMPLES, Everything, Schedule, SimulatedFault
from codedgrad.testing.faulty_simulator import PATIENCE, Troubled
from codedgrad.trace import Difference, Entry, Header, Recorder, Trace, read, replay

LAW = Chain(ShiftedExponential(floor=0.1, mean=1.0), Dead(worker=1, step=4))
EVERY = [*EXAMPLES, Everything(6), Everything(6, each=1)]


def simulated(
    scheme: Scheme, machine: Machine | None = None, steps: int = 6, seed: int = 0
) -> Trace:
    machine = machine or Machine()
    times = LAW.sample(np.random.default_rng(seed), steps, scheme.workers)
    entries: list[Entry] = []

    def watch(event: object, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    run_events(scheme, times, machine, watch=watch)
    header = Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        capabilities=machine.capabilities,
        patience=machine.patience(times, scheme),
    )
    return Trace(header, tuple(entries))


def test_the_list_misses_no_family() -> None:
    assert {s.name.partition("(")[0] for s in EVERY} == {*SCHEMES, "everything"}


@pytest.mark.parametrize("scheme", EVERY, ids=lambda s: s.name)
def test_a_simulated_run_replays_without_a_difference(scheme: Scheme) -> None:
    silent = Machine(drain=False, progress=scheme.traits.needs_progress)
    for machine in (Machine(), silent, Machine(latency=0.1)):
        trace = simulated(scheme, machine)
        assert any(isinstance(entry.event, WorkersLost) for entry in trace.entries)
        assert replay(trace, scheme) is None


@pytest.mark.parametrize("scheme", EVERY, ids=lambda s: s.name)
def test_a_run_that_lost_a_host_is_replayed_from_its_file(
    scheme: Scheme, tmp_path: Path
) -> None:
    """In step 0 a host is lost and comes back, in step 1 it is away at the end."""
    faults = (
        SimulatedFault("lose", step=0, worker=1, when=0.3, hosts=2),
        SimulatedFault("join", step=0, worker=1, when=0.6, hosts=2),
        SimulatedFault("lose", step=1, worker=0, when=0.2, hosts=2, size=2.0),
    )
    engine = Capabilities(progress=True)
    header = Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        capabilities=engine,
        patience=PATIENCE,
    )
    events: list[Event] = []
    with Recorder(tmp_path / "lost.jsonl", header) as record:

        def watch(event: Event, commands: list[Command]) -> None:
            events.append(event)
            record(event, commands)

        simulator = Troubled(Schedule(7, 4, faults, 0.05, engine), scheme, watch)
        for _ in range(4):
            simulator.next_step()
    for kind in (WorkersLost, WorkersJoined):
        assert max(len(e.workers) for e in events if isinstance(e, kind)) > 1
    trace = read(tmp_path / "lost.jsonl")
    assert [entry.event for entry in (*trace.entries, *trace.tail)] == events
    assert replay(trace, scheme) is None


def tampered(trace: Trace, number: int, commands: tuple[Command, ...]) -> Trace:
    entries = list(trace.entries)
    entries[number] = msgspec.structs.replace(entries[number], commands=commands)
    return replace(trace, entries=tuple(entries))


@pytest.mark.parametrize("scheme", EVERY, ids=lambda s: s.name)
def test_a_command_tampered_with_is_found_and_numbered(scheme: Scheme) -> None:
    trace = simulated(scheme)
    speaking = [i for i, entry in enumerate(trace.entries) if entry.commands]
    for number in {speaking[0], speaking[len(speaking) // 2], speaking[-1]}:
        entry = trace.entries[number]
        for commands in ((), entry.commands[:-1], (*entry.commands, WakeAt(0, 1e9))):
            assert replay(tampered(trace, number, commands), scheme) == Difference(
                number, entry.event, commands, entry.commands
            )


def test_one_bit_of_a_weight_is_a_difference() -> None:
    scheme = cyclic(5, 2)
    trace = simulated(scheme)
    number = next(i for i, entry in enumerate(trace.entries) if entry.ends_step)
    (end,) = trace.entries[number].commands
    assert isinstance(end, Combine)
    (message, weight), *rest = end.weights
    nudged = ((message, float(np.nextafter(weight, 9.0))), *rest)
    end = msgspec.structs.replace(end, weights=nudged)
    found = replay(tampered(trace, number, (end,)), scheme)
    assert found is not None
    assert found.number == number


def test_the_first_of_several_differences_is_reported() -> None:
    scheme = fractional(4, 1)
    trace = simulated(scheme)
    broken = tampered(tampered(trace, 9, (GiveUp(0, "?"),)), 3, (GiveUp(0, "?"),))
    found = replay(broken, scheme)
    assert found is not None
    assert found.number == 3


def test_events_left_out_show_up() -> None:
    scheme = uncoded(4)
    trace = simulated(scheme, steps=2)
    for number in range(len(trace.entries) - 1):
        fewer = trace.entries[:number] + trace.entries[number + 1 :]
        if (
            trace.entries[number].commands
            or "Message" in type(trace.entries[number].event).__name__
        ):
            assert replay(replace(trace, entries=fewer), scheme) is not None, number


def test_another_scheme_is_a_difference() -> None:
    trace = simulated(cyclic(6, 2))
    for other in (fractional(6, 2), cyclic(6, 1), uncoded(6)):
        found = replay(trace, other)
        assert found is not None
        assert found.recorded != found.replayed
    found = replay(simulated(cyclic(4, 1)), cyclic(4, 1, rule="threshold"))
    assert found is not None
    assert found.number > 0  # they begin alike


def test_the_tail_of_an_open_step_is_replayed_too() -> None:
    scheme = fractional(4, 1)
    trace = simulated(scheme, steps=3)
    whole = next(i for i, entry in enumerate(trace.entries) if entry.ends_step) + 1
    parts = trace.entries[:whole], trace.entries[whole : whole + 3]
    assert replay(Trace(trace.header, *parts), scheme) is None
    wrong = msgspec.structs.replace(parts[1][-1], commands=(GiveUp(1, "?"),))
    found = replay(Trace(trace.header, parts[0], (*parts[1][:-1], wrong)), scheme)
    assert found is not None
    assert found.number == whole + 2


def test_patience_and_capabilities_come_from_the_header() -> None:
    scheme = uncoded(6)
    trace = simulated(scheme)
    other = msgspec.structs.replace(
        trace.header, patience=replace(trace.header.patience, first=1.0, least=1.0)
    )
    found = replay(replace(trace, header=other), scheme)
    assert found is not None
    assert isinstance(found.event, StepStarted)
    needy = Everything(6)
    silent = simulated(needy, Machine(progress=False))
    assert replay(silent, needy) is None


@pytest.mark.parametrize("other", [uncoded(5), uncoded(6, pieces=2), uncoded(7)])
def test_a_scheme_of_another_size_is_refused(other: Scheme) -> None:
    trace = simulated(uncoded(6), steps=1)
    with pytest.raises(InvalidTrace, match="was recorded with 6 workers and 6 parts"):
        replay(trace, other)


def test_a_difference_says_where_and_what_and_is_not_too_long() -> None:
    scheme = uncoded(6)
    trace = simulated(scheme, steps=1)
    found = replay(tampered(trace, 0, ()), scheme)
    text = str(found)
    assert text.startswith("entry 0, StepStarted(step=0, at=0.0): recorded nothing")
    assert "replayed Assign(" in text
    assert text.endswith("...")
    assert len(text) < 500
    assert found is not None
    assert isinstance(found.replayed[0], Assign)
