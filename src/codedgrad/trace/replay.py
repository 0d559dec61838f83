"""Replay: the same events in a fresh coordinator must give the same commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codedgrad.core import Command, Coordinator, Event, Scheme
from codedgrad.errors import InvalidTrace
from codedgrad.trace.read import Trace


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event after which a replay decided otherwise.

    Attributes:
        number: Of the entry, from 0.
        event: What happened.
        recorded: The commands in the trace.
        replayed: The commands now.
    """

    number: int
    event: Event
    recorded: tuple[Command, ...]
    replayed: tuple[Command, ...]

    def __str__(self) -> str:
        return (
            f"entry {self.number}, {self.event}: "
            f"recorded {_short(self.recorded)}, replayed {_short(self.replayed)}"
        )


def replay(trace: Trace, scheme: Scheme) -> Difference | None:
    """Return the first difference, or None if every decision is the same.

    Weights are compared bit by bit: a trace replays on the machine, and with the
    versions of numpy and scipy, that wrote it.

    Args:
        trace: As read; the tail of an open step is replayed too.
        scheme: Built as the one of the run was; `trace.header.scheme` names it.
    """
    header = trace.header
    if (scheme.workers, scheme.parts) != (header.workers, header.parts):
        problem = (
            f"was recorded with {header.workers} workers and {header.parts} parts, "
            f"the scheme has {scheme.workers} and {scheme.parts}"
        )
        raise InvalidTrace("the trace", problem)
    coordinator = Coordinator(scheme, header.capabilities, header.patience)
    for number, entry in enumerate((*trace.entries, *trace.tail)):
        replayed = tuple(coordinator.handle(entry.event))
        if replayed != entry.commands:
            return Difference(number, entry.event, entry.commands, replayed)
    return None


def _short(commands: Sequence[Command]) -> str:
    text = ", ".join(map(str, commands)) or "nothing"
    return text if len(text) <= 300 else text[:297] + "..."
