"""Writing a trace so that a killed run leaves whole steps behind.

A step is kept in memory and written in one go when it has ended; what compares its
messages comes right after, and is written then. Whatever a kill tears is the last step
at most, and the reader leaves that out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from codedgrad.core import Command, Event, StepStarted, WorkersJoined, WorkersLost
from codedgrad.errors import InvalidTrace
from codedgrad.trace.format import Entry, Header, encode
from codedgrad.trace.lines import Lines


class Recorder:
    """Writes a trace; call it with every event and its commands.

    Args:
        path: A file that does not exist yet.
        header: What kind of run this is.

    Example:
        >>> from codedgrad.core import StepStarted
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> header = Header(scheme="uncoded", workers=1, parts=1)
        >>> with Recorder(Path(folder.name) / "run.jsonl", header) as record:
        ...     record(StepStarted(0, at=0.0), [])
        >>> folder.cleanup()
    """

    def __init__(self, path: Path | str, header: Header) -> None:
        self.path = Path(path)
        self._steps = Steps()
        try:
            there = self.path.stat().st_size > 0
        except OSError:
            there = False
        if there:
            raise InvalidTrace(path, "is there already; take another name")
        self._lines = Lines(self.path)
        self._lines.write(encode(header) + b"\n")

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Note an event and the commands it led to."""
        if chunk := self._steps.add(event, commands):
            self._lines.write(chunk.lines)

    def flush(self) -> None:
        """Write what is waiting, an open step too."""
        if chunk := self._steps.take():
            self._lines.write(chunk.lines)

    def close(self) -> None:
        """Write everything and close the file. It may be called twice."""
        self.flush()
        self._lines.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Chunk(NamedTuple):
    """Lines of a trace that belong together: as a rule, those of one step.

    Attributes:
        step: The first step that starts in them; None if none does.
        lost: Workers that were lost before, and when.
        lines: Whole lines.
    """

    step: int | None
    lost: dict[int, float]
    lines: bytes

    @property
    def preface(self) -> bytes:
        """Lines that say who was lost before, for a trace that begins here."""
        return b"".join(
            encode(Entry(WorkersLost((worker,), at), ())) + b"\n"
            for worker, at in self.lost.items()
        )


class Steps:
    """Gathers the lines of a trace step by step."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._step: int | None = None
        self._lost: dict[int, float] = {}
        self._lost_before: dict[int, float] = {}

    def add(self, event: Event, commands: Sequence[Command]) -> Chunk | None:
        """Take an entry; return a step that it makes whole."""
        entry = Entry(event, tuple(commands))
        self._waiting.append(encode(entry))
        match event:
            case StepStarted(step) if self._step is None:
                self._step = step
            case WorkersLost(workers, at):
                for worker in workers:
                    # The first time counts: an event that repeats a loss would put
                    # the lines of a preface out of order.
                    self._lost.setdefault(worker, at)
            case WorkersJoined(workers):
                for worker in workers:
                    self._lost.pop(worker, None)
        is_alone = len(self._waiting) == 1  # no later step has begun
        if entry.ends_step or (entry.compares and is_alone):
            return self.take()
        return None

    def take(self) -> Chunk | None:
        """Return what is waiting, of an open step too."""
        waiting, self._waiting = self._waiting, []  # an interrupt takes none twice
        if not waiting:
            return None
        chunk = Chunk(self._step, self._lost_before, b"\n".join(waiting) + b"\n")
        self._step, self._lost_before = None, dict(self._lost)
        return chunk
