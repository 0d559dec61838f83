"""The trace of a run: files of bounded size, so that a million steps fit on a disk.

```text
trace/
  0001-00000000.jsonl.gz   life 1 of the run, from step 0 on; full, so compressed
  0001-00002480.jsonl      where life 1 was killed
  0002-00002400.jsonl      life 2, from the checkpoint of step 2400 on
```

Every root that takes up a run writes files of its own, so nothing that an earlier one
wrote is cut or changed. Readers leave out what an earlier life did after the checkpoint
that a later one began with. Each file is a trace by itself: its header says what kind
of life it is of, and its first lines who was lost before.

Files of earlier lives are compressed when a life begins its first, and full ones when
the next is begun; the oldest go when all together are too long.

The trace is telemetry. Training goes on without what the disk does not take; the
recorder keeps a few MB of that in memory and tries again with every step.
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from codedgrad.core import Command, Event
from codedgrad.errors import InvalidTrace, LockLost
from codedgrad.trace.files import nothing
from codedgrad.trace.format import (
    Entry,
    Header,
    decode_header,
    encode,
    other_version,
)
from codedgrad.trace.lines import Lines
from codedgrad.trace.read import Trace, read
from codedgrad.trace.recent import Recent
from codedgrad.trace.write import Chunk, Steps

_log = logging.getLogger("codedgrad")
_SIZE = 16 << 20  # bytes of a file before the next is begun
_KEPT = 8  # times that, in all; about 30 MB on disk, as all but one are compressed
_LONGEST = 1 << 20  # bytes of a header
_NAME = re.compile(r"([0-9]{4,})-([0-9]{8,})\.jsonl(\.gz)?")


class RunRecorder:
    """Writes the trace of one life of a run; call it with every event.

    Args:
        folder: Of the traces; made with the first file.
        header: What kind of life it is.
        life: Its number, at least; above those that have left files here.
        check: Called before anything is written; raises if this root may not.
        size: Bytes of a file before the next one is begun.
        kept: How many times `size` all files have together, before compression; the
            oldest are removed.
        past: Steps that the life before kept, the newest ones.

    Attributes:
        recent: The last steps, for a checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        life: int = 1,
        check: Callable[[], None] = nothing,
        size: int = _SIZE,
        kept: int = _KEPT,
        past: Iterable[Entry] = (),
    ) -> None:
        self.recent = Recent(header, past)
        self._folder = folder
        self._header = header
        self._life = max([life, *(each.life + 1 for each in _segments(folder))])
        self._check = check
        self._size = size
        self._kept = kept
        self._steps = Steps()
        self._lines: Lines | None = None
        self._tidying: threading.Thread | None = None
        self._has_warned = False

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Note an event and the commands it led to."""
        if chunk := self._steps.add(event, commands):
            self.recent.add(chunk)
            self._write(chunk)

    def close(self) -> None:
        """Write an open step as well, and close the file. It may be called twice."""
        try:
            chunk = self._steps.take()
            if chunk or (self._lines is not None and self._lines.is_waiting):
                self._write(chunk or Chunk(None, {}, b""))
        finally:
            self._shut()
            if self._tidying is not None:
                self._tidying.join()

    def _write(self, chunk: Chunk) -> None:
        self._check()
        try:
            if chunk.step is not None and self._is_full(len(chunk.lines)):
                self._shut()
            if self._lines is not None:
                self._lines.write(chunk.lines)
            elif chunk.step is not None:  # else they are of a step that is missing
                self._lines = self._begin(chunk, chunk.step)
        except InvalidTrace as error:
            if self._lines is not None and not self._lines.is_waiting:
                self._shut()  # steps are missing: the next file says who was lost
            if not self._has_warned:
                self._has_warned = True
                _log.warning("%s; training goes on, and tries again", error)

    def _is_full(self, more: int) -> bool:
        """Whether the file has no room for more bytes.

        A file whose lines are waiting is not: closing it would lose them.
        """
        lines = self._lines
        return (
            lines is not None
            and not lines.is_waiting
            and lines.size + more > self._size
        )

    def _begin(self, chunk: Chunk, step: int) -> Lines:
        """Return a new file that has this chunk."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be made: {error.strerror}"
            raise InvalidTrace(self._folder, problem) from None
        path = self._folder / f"{self._life:04d}-{step:08d}.jsonl"
        file = Lines(path, fresh=True)
        try:
            file.write(encode(self._header) + b"\n" + chunk.preface + chunk.lines)
        except InvalidTrace:
            file.close()
            with suppress(OSError):
                path.unlink()
            raise
        self._tidy(path)
        return file

    def _shut(self) -> None:
        """End the file; the next lines begin another."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def _tidy(self, newest: Path) -> None:
        """Compress the files before the newest one, in a thread; the oldest go."""
        if self._tidying is not None:
            self._tidying.join()
        # The files are listed here and not by the thread: when it gets to run, this
        # recorder may have begun another file, which must not be compressed while open.
        files = _segments(self._folder)
        most = self._size * (self._kept - 1)  # the newest may fill up, too
        self._tidying = threading.Thread(
            target=_tidy,
            args=(files, newest, most, self._check),
            name="codedgrad trace",
        )
        self._tidying.daemon = True
        self._tidying.start()


def _tidy(
    files: Sequence[_Segment], newest: Path, most: int, check: Callable[[], None]
) -> None:
    """Compress, and remove what is too old or was left half done.

    Args:
        files: Those in the folder when the recorder began the newest one.
        newest: The file that the recorder writes; it stays as it is.
        most: Bytes that the other files may have together, before compression.
        check: Called before anything is removed or renamed; raises if this root may
            not. The next write then raises that as well.
    """
    folder = newest.parent
    try:
        twins = {each.path.with_suffix("") for each in files if _is_packed(each.path)}
        useless = [*folder.glob(".*.jsonl.gz"), *filter(Path.exists, twins)]
        total = 0
        for each in reversed(files):
            total += 0 if each.path == newest else _length(each.path)
            if total > most:
                useless.append(each.path)
        check()
        for path in useless:
            path.unlink()
        for each in files:
            if each.path not in (newest, *useless) and not _is_packed(each.path):
                _compress(each.path, check)
    except (OSError, LockLost) as error:
        _log.info("%s is not tidied up: %s", folder, error)


def _is_packed(path: Path) -> bool:
    return path.suffix == ".gz"


def _length(path: Path) -> int:
    """Return the bytes of a file before it was compressed."""
    if not _is_packed(path):
        return path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4))  # a damaged file may have fewer
        return int.from_bytes(file.read(4), "little")  # as gzip notes it at the end


def _compress(path: Path, check: Callable[[], None]) -> None:
    """Replace a file by a compressed one; one of them is whole at any moment."""
    beside = path.with_name(f".{path.name}.gz")
    try:
        with path.open("rb") as plain, gzip.open(beside, "wb", 1) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        check()
        os.replace(beside, f"{path}.gz")
        check()
        path.unlink()
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


@dataclass(frozen=True, slots=True, order=True)
class _Segment:
    life: int
    step: int
    path: Path


def _segments(folder: Path) -> list[_Segment]:
    """Return the files of a run's trace, in order."""
    try:
        names = os.listdir(folder)
    except OSError:  # it is not there, or cannot be read
        return []
    found: dict[tuple[int, int], Path] = {}
    for name in sorted(names):  # where a kill left both, the compressed one comes last
        if match := _NAME.fullmatch(name):
            found[int(match[1]), int(match[2])] = folder / name
    return sorted(_Segment(*key, path) for key, path in found.items())


def trouble_with(folder: Path) -> str:
    """Return what is wrong with the trace of an earlier life, in words; often nothing.

    It looks at both ends of the newest file, because resuming must not take longer the
    longer a run is.
    """
    files = _segments(folder)
    if not files:
        return f"{folder} has no trace of earlier steps"
    newest = files[-1].path
    try:
        with gzip.open(newest) if _is_packed(newest) else newest.open("rb") as file:
            header = decode_header(file.readline(_LONGEST))
            if problem := other_version(header):
                return f"{newest} {problem}"
            if not _is_packed(newest):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    return f"{newest} is torn at its end"
    except (EOFError, OSError, ValueError, msgspec.MsgspecError, zlib.error) as error:
        return f"{newest} is not a trace: {error}"
    return ""


def read_segments(folder: Path) -> Trace | None:
    """Return the trace of a run, to its last whole step; None if there is nothing.

    It goes back as far as the run had the workers, the parts, the scheme and the kind
    of engine that it has now. What cannot be read is left out, with a warning.
    """
    found: Trace | None = None
    problems: list[InvalidTrace] = []
    for segment in _segments(folder):
        try:
            trace = read(segment.path, problems)
        except InvalidTrace as error:
            problems.append(error)
            continue
        if found is None or not _is_like(found.header, trace.header):
            if found is None or trace.entries:  # else a life that took no step
                found = trace
        else:  # a later life takes steps again that an earlier one had taken
            kept = found.before(segment.step)
            found = Trace(found.header, kept + trace.entries, trace.tail)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        _log.warning("%s%s; what cannot be read is left out", problems[0], more)
    return found


def _is_like(one: Header, other: Header) -> bool:
    return (one.scheme, one.workers, one.parts, one.capabilities) == (
        other.scheme, other.workers, other.parts, other.capabilities,
    )  # fmt: skip
