"""Reading a trace back, to its last whole step."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from codedgrad.errors import InvalidTrace
from codedgrad.trace.format import (
    Entry,
    Header,
    decode_entry,
    decode_header,
    other_version,
)

_LARGEST = 1 << 30  # bytes of a decompressed file: some unpack to far more than memory


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
        """Return the whole steps before this one, without what came after the last.

        A root that goes on with this step knows its checkpoint. The root before may
        have heard more after that checkpoint and before it started the step, such as
        the loss of a worker; kept, that would make a replay decide otherwise.
        """
        everything = (*self.entries, *self.tail)
        starts = (n for n, e in enumerate(everything) if e.starts_from(step))
        return everything[: _whole(everything[: next(starts, None)])]


def _whole(entries: Sequence[Entry]) -> int:
    """Return how many entries there are to the end of the last whole step."""
    whole = 0
    for number, entry in enumerate(entries):
        if entry.ends_step or (entry.compares and whole == number):
            whole = number + 1
    return whole


def read(path: Path | str, problems: list[InvalidTrace] | None = None) -> Trace:
    """Read a trace, compressed if its name ends in `.gz`.

    A last line that is torn, as a killed run leaves it, is left out. Anything else
    that is not a trace is refused; nothing in a file is ever executed.

    Args:
        path: The file.
        problems: If given, a line that will not do ends the trace, and is noted here
            instead of being refused.
    """
    header: Header | None = None
    entries: list[Entry] = []
    try:
        for line in _lines(Path(path)):
            if header is None:
                header = line.header()
            elif (entry := line.entry()) is not None:
                entries.append(entry)
    except InvalidTrace as error:
        if header is None or problems is None:
            raise
        problems.append(error)
    if header is None:
        raise InvalidTrace(path, "is empty")
    whole = _whole(entries)
    return Trace(header, tuple(entries[:whole]), tuple(entries[whole:]))


@dataclass(frozen=True, slots=True)
class _TraceLine:
    """A line of a trace, not decoded yet."""

    path: Path
    number: int
    data: bytes
    is_last: bool

    def header(self) -> Header:
        try:
            header = decode_header(self.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidTrace(self.path, f"is not a trace: {error}") from None
        if problem := other_version(header):
            raise InvalidTrace(self.path, problem)
        return header

    def entry(self) -> Entry | None:
        """Return the entry, or None if this is the torn end of a file."""
        if self.is_last and not self.data.endswith(b"\n"):
            return None
        try:
            return decode_entry(self.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problem = f"line {self.number} is not an event: {error}"
            raise InvalidTrace(self.path, problem) from None


def _lines(path: Path) -> Iterator[_TraceLine]:
    data = _data(path)
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        number += 1
        yield _TraceLine(path, number, data[start:end], end == len(data))
        start = end


def _data(path: Path) -> bytes:
    """Return what is in a file, compressed or not."""
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            data = file.read(_LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidTrace(path, f"cannot be decompressed: {error}") from None
    except OSError as error:
        raise InvalidTrace(path, f"cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise InvalidTrace(path, f"holds more than {_LARGEST >> 20} MB")
    return data
