"""Writing a trace so that a killed run leaves whole steps behind.

A step is kept in memory and written in one go when it has ended; what compares its
messages comes right after, and is written then. Whatever a kill tears is the last step
at most, and the reader leaves that out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from codedgrad.core import Command, Event
from codedgrad.errors import InvalidTrace
from codedgrad.trace.format import Entry, Header, encode
from codedgrad.trace.read import whole_length

__all__ = ["Recorder"]


class Recorder:
    """Writes a trace; call it with every event and its commands.

    Args:
        path: A file that does not exist yet, unless `append`.
        header: What kind of run this is.
        append: Go on after the last whole step of a trace with the same header. The
            coordinator that goes on must have been fed the events before, or a replay
            of the whole will differ.
        before: With `append`, keep only what came before the start of this step.

    Example:
        >>> from codedgrad.core import StepStarted
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> header = Header(scheme="uncoded", workers=1, parts=1)
        >>> with Recorder(Path(folder.name) / "run.jsonl", header) as record:
        ...     record(StepStarted(0, at=0.0), [])
        >>> folder.cleanup()
    """

    def __init__(
        self,
        path: Path | str,
        header: Header,
        append: bool = False,
        before: int | None = None,
    ) -> None:
        self.path = Path(path)
        self._waiting: list[bytes] = []
        there = self.path.exists() and self.path.stat().st_size > 0
        if there and not append:
            raise InvalidTrace(path, "is there already; append to it or take another")
        keep = whole_length(self.path, header, before) if there else 0
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise InvalidTrace(path, f"cannot be written: {error.strerror}") from None
        os.ftruncate(self._file, keep)
        os.lseek(self._file, keep, os.SEEK_SET)
        if keep == 0:
            self._write(encode(header) + b"\n")

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Note an event and the commands it led to."""
        entry = Entry(event, tuple(commands))
        self._waiting.append(encode(entry))
        is_alone = len(self._waiting) == 1  # no later step has begun
        if entry.ends_step or (entry.compares and is_alone):
            self.flush()

    def flush(self) -> None:
        """Write what is waiting, an open step too."""
        waiting, self._waiting = self._waiting, []  # an interrupt writes none twice
        if waiting:
            self._write(b"\n".join(waiting) + b"\n")

    def sync(self) -> None:
        """See what is written to the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Write everything and see it to the disk."""
        if self._file >= 0:
            self.flush()
            self.sync()
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
