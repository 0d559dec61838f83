"""What is on the lines of a trace: a header, then one line for every event.

A trace is the list of events with the commands they led to, as JSON lines. It is the
record every driver writes, the input of every report, and a bug report.
"""

from __future__ import annotations

from msgspec import Struct, field, json

from codedgrad.core import (
    Capabilities,
    Command,
    Event,
    MessagesCompared,
    Patience,
    StepStarted,
)

VERSION = 2  # 1: the loss and the return of workers were events of one worker each
_KIND = "codedgrad trace"


class Header(Struct, frozen=True, kw_only=True):
    """What one must know to read the rest.

    Attributes:
        scheme: Its name, with its options.
        workers: How many.
        parts: How many.
        driver: What wrote it, such as `simulator`.
        seed: Of whatever was random, if anything.
        capabilities: Of the engine; a replay needs them.
        patience: Of the coordinator; a replay needs it.
        note: Anything else, for people.
        cores: That all workers share; 0: not known, or there are several hosts.
        kind: Says that this is a trace.
        version: Of the format.
    """

    scheme: str
    workers: int
    parts: int
    driver: str = ""
    seed: int | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    patience: Patience = field(default_factory=Patience)
    note: str = ""
    cores: int = 0
    kind: str = _KIND
    version: int = VERSION


class Entry(Struct, frozen=True, omit_defaults=True):
    """An event and the commands it led to.

    Attributes:
        event: What happened.
        commands: What was decided.
    """

    event: Event
    commands: tuple[Command, ...]

    def starts_from(self, step: int) -> bool:
        """Whether this step, or a later one, starts here."""
        return isinstance(self.event, StepStarted) and self.event.step >= step

    @property
    def ends_step(self) -> bool:
        """Whether a step ended here."""
        return any(type(c).__name__ in ("Combine", "GiveUp") for c in self.commands)

    @property
    def compares(self) -> bool:
        """Whether this belongs to a step that has ended, if it follows right after."""
        return isinstance(self.event, MessagesCompared) and not self.commands


_headers = json.Decoder(Header)
_entries = json.Decoder(Entry)
encode = json.Encoder().encode


def decode_header(line: bytes) -> Header:
    """Return the header on a line, of any version; msgspec's errors if it is none."""
    header = _headers.decode(line)
    if header.kind != _KIND:
        raise ValueError(f"says it is a {header.kind!r}")
    if header.workers < 1 or header.parts < 1:
        raise ValueError(f"has {header.workers} workers and {header.parts} parts")
    return header


def other_version(header: Header) -> str:
    """Return how the version of a trace differs from this one; empty: it does not."""
    if header.version == VERSION:
        return ""
    other = "a newer" if header.version > VERSION else "an older"
    return (
        f"has version {header.version} of the trace format, and this codedgrad reads "
        f"version {VERSION}; read it with {other} codedgrad"
    )


def decode_entry(line: bytes) -> Entry:
    """Return the entry on a line; msgspec's errors if it is none."""
    return _entries.decode(line)
