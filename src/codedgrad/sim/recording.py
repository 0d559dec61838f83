"""Simulated runs as traces, in memory or in a file."""

from __future__ import annotations

from codedgrad.core import Command, Event, Scheme
from codedgrad.delays import Times
from codedgrad.sim.events import run_events
from codedgrad.sim.machine import Machine
from codedgrad.trace import Entry, Header, Trace


def header_of(
    scheme: Scheme,
    times: Times,
    machine: Machine,
    seed: int | None = None,
    note: str = "",
) -> Header:
    """Return the header of a simulated run; with it a replay decides the same."""
    return Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        driver="simulator",
        seed=seed,
        capabilities=machine.capabilities,
        patience=machine.patience(times, scheme),
        note=note,
    )


def record(scheme: Scheme, times: Times, machine: Machine | None = None) -> Trace:
    """Run a scheme on the event-driven simulator; return all its events.

    Example:
        >>> from codedgrad.delays import Replay
        >>> from codedgrad.schemes import uncoded
        >>> from codedgrad.delays import draw
        >>> from codedgrad.trace import reports
        >>> times = draw(Replay.read("AR"), steps=1, workers=4, seed=0)
        >>> [step] = reports(record(uncoded(4), times)).steps
        >>> round(step.seconds, 1), step.late
        (44.8, ())
    """
    machine = machine or Machine()
    entries: list[Entry] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    run_events(scheme, times, machine, watch=watch)
    last = max((i for i, e in enumerate(entries, 1) if e.ends_step), default=0)
    header = header_of(scheme, times, machine)
    return Trace(header, tuple(entries[:last]), tuple(entries[last:]))
