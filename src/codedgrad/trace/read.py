"""Reading a trace back, to its last whole step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from codedgrad.errors import InvalidTrace
from codedgrad.trace.format import Entry, Header, decode_entry, decode_header

__all__ = ["Trace", "read", "whole_length"]


@dataclass(frozen=True, slots=True)
class Trace:
    """A run, event by event.

    Attributes:
        header: What kind of run.
        entries: Events and commands up to the end of the last whole step, and what
            compares the messages of that step, if it follows.
        tail: Those after it, of a step that was open when the writing stopped.
    """

    header: Header
    entries: tuple[Entry, ...]
    tail: tuple[Entry, ...] = ()

    def before(self, step: int) -> tuple[Entry, ...]:
        """Return what came before the start of a step, or of a later one.

        Where none has started: all whole steps.
        """
        everything = (*self.entries, *self.tail)
        for number, entry in enumerate(everything):
            if entry.starts_from(step):
                return everything[:number]
        return self.entries


def read(path: Path | str) -> Trace:
    """Read a trace.

    A last line that is torn, as a killed run leaves it, is left out. Anything else
    that is not a trace is refused; nothing in a file is ever executed.
    """
    header: Header | None = None
    entries: list[Entry] = []
    whole = 0
    for line in _lines(Path(path)):
        if header is None:
            header = line.header()
        elif (entry := line.entry()) is not None:
            entries.append(entry)
            if entry.ends_step or (entry.compares and whole == len(entries) - 1):
                whole = len(entries)
    if header is None:
        raise InvalidTrace(path, "is empty")
    return Trace(header, tuple(entries[:whole]), tuple(entries[whole:]))


def whole_length(path: Path, header: Header, before: int | None = None) -> int:
    """Return the bytes up to the last whole step, of a trace with this header.

    Or up to the start of step `before`. 0 if even the line of the header is torn.
    """
    length = 0
    for line in _lines(path):
        if line.number == 1:
            found = line.header()
            if found != header:
                problem = "is the trace of another run; what differs is"
                raise InvalidTrace(path, f"{problem}: {_unlike(found, header)}")
            length = line.end if line.data.endswith(b"\n") else 0
        elif (entry := line.entry()) is not None:
            if before is not None and entry.starts_from(before):
                return line.start
            if entry.ends_step or (entry.compares and length == line.start):
                length = line.end
    return length


def _unlike(one: Header, other: Header) -> str:
    names = msgspec.structs.asdict(one)
    return ", ".join(n for n in names if getattr(one, n) != getattr(other, n))


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a trace, not decoded yet."""

    path: Path
    number: int
    data: bytes
    start: int
    end: int
    is_last: bool

    def header(self) -> Header:
        try:
            return decode_header(self.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidTrace(self.path, f"is not a trace: {error}") from None

    def entry(self) -> Entry | None:
        """Return the entry, or None if this is the torn end of a file."""
        if self.is_last and not self.data.endswith(b"\n"):
            return None
        try:
            return decode_entry(self.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problem = f"line {self.number} is not an event: {error}"
            raise InvalidTrace(self.path, problem) from None


def _lines(path: Path) -> Iterator[_Line]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidTrace(path, f"cannot be read: {error.strerror}") from None
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        number += 1
        yield _Line(path, number, data[start:end], start, end, end == len(data))
        start = end
