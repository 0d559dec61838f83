"""Who is the root of a run's folder, and how far it is: `lock.json`, `status.json`.

Both are small JSON files that other tools may read; `docs/runs.md` explains their
fields. `lock` writes them. Reading them takes no lock and changes nothing.

Times in them are for people. Hosts have clocks that differ, so no time in a file, and
no time of a file, is ever compared with a clock: a root is known to be alive only by a
heartbeat that moves between two looks.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from codedgrad.errors import InvalidTrace

VERSION = 1
LOCK, STATUS = "lock.json", "status.json"
_LOCK_KIND, _STATUS_KIND = "codedgrad lock", "codedgrad status"


class Holder(Struct, frozen=True, kw_only=True):
    """The root that holds a folder, or held it last: what `lock.json` says.

    Attributes:
        life: 1 for the first root of the folder, one more for each later root.
        token: Random; differs for every root, on every host.
        host: The name of its host.
        pid: Its process, as its host numbers it.
        boot: Identifies the boot of its host; empty if the host does not tell.
        started: When it took the folder, such as `2026-11-16 04:36:36 UTC`.
        flocked: Whether it holds a kernel lock on the file of its life.
        released: Whether it has ended and let go of the folder.
        kind: Says that this is a lock.
        version: Of the format.
    """

    life: int
    token: str
    host: str
    pid: int
    boot: str = ""
    started: str = ""
    flocked: bool = False
    released: bool = False
    kind: str = _LOCK_KIND
    version: int = VERSION

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started}"


class Status(Struct, frozen=True, kw_only=True):
    """How far a root is: what `status.json` says, replaced about once a second.

    Attributes:
        life: Of the root that wrote it; see `Holder`.
        token: Of that root.
        host: Of that root.
        pid: Of that root.
        boot: Of that root.
        started: When that root took the folder.
        beat: Goes up by one with every heartbeat.
        state: `running`; or how it ended: `ended`, `stopped`, or the caller's word.
        step: The step it is at.
        steps: How many it will take; None: not known.
        seconds: What the last step took; None before the first.
        workers: How many there should be.
        alive: How many of them are there.
        late: Which were late in the last step.
        loss: Of the last step; None if not finite, or before the first.
        kind: Says that this is a status.
        version: Of the format.
    """

    life: int
    token: str
    host: str
    pid: int
    boot: str = ""
    started: str = ""
    beat: int = 0
    state: str = "running"
    step: int = 0
    steps: int | None = None
    seconds: float | None = None
    workers: int = 0
    alive: int = 0
    late: tuple[int, ...] = ()
    loss: float | None = None
    kind: str = _STATUS_KIND
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Look:
    """What a folder says of its root at one moment.

    Attributes:
        holder: The root in `lock.json`; None if there is none, or a `problem`.
        status: Its last heartbeat; None before the first. One that an earlier root
            wrote is left out.
        problem: What is wrong with `lock.json`; empty if nothing.
        status_problem: What is wrong with `status.json`; empty if nothing.
        pulse: Differs from that of an earlier look if the root did anything since.
        lives: The most roots that the folder is known to have had.
    """

    holder: Holder | None
    status: Status | None
    problem: str
    status_problem: str
    pulse: tuple[object, ...]
    lives: int

    @property
    def is_free(self) -> bool:
        """Whether no root holds the folder, by its own word."""
        return not self.problem and (self.holder is None or self.holder.released)


def look(folder: Path, patience: float = 1.0) -> Look:
    """Read who holds a folder.

    Args:
        folder: Of a run; it need not exist.
        patience: For how many seconds a file that cannot be read is tried again.

    Raises:
        OSError: If a file still cannot be read then.
    """
    lock = read_patiently(folder / LOCK, patience)
    beat = read_patiently(folder / STATUS, patience)
    holder, problem = _decoded(_holders, _LOCK_KIND, lock)
    status, status_problem = _decoded(_statuses, _STATUS_KIND, beat)
    lives = max(status.life if status else 0, holder.life if holder else 0)
    if holder is not None and status is not None and status.token != holder.token:
        # A root that was stopped in the middle of a heartbeat, lost the folder and was
        # woken may write over its successor's: that says nothing of the successor.
        status, beat = None, None
    return Look(holder, status, problem, status_problem, (lock, beat), lives)


def read_status(folder: Path | str) -> Status | None:
    """Return the last heartbeat of a folder's root; None if there was none.

    It may be old: whether the root is alive shows only in a second one that differs.

    Raises:
        InvalidTrace: If `status.json`, or `lock.json`, is damaged or cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(read_status(folder))
        None
    """
    folder = Path(folder)
    try:
        seen = look(folder)
    except OSError as error:
        raise InvalidTrace(folder, f"cannot be read: {error}") from None
    for name, problem in ((LOCK, seen.problem), (STATUS, seen.status_problem)):
        if problem:
            raise InvalidTrace(folder / name, problem)
    return seen.status


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was read: equal to another if nothing was written in between.

    Attributes:
        data: What is in it.
        modified: When it was written, by the clock of its disk, in nanoseconds. It is
            compared with that of an earlier look only, never with a clock.
        inode: Another file under the same name has another.
    """

    data: bytes
    modified: int
    inode: int


def read_patiently(path: Path, seconds: float) -> Content | None:
    """Return a file, None if it is not there; other errors are tried again.

    The file is opened anew every time: over NFS an open asks the server, whereas what
    `stat` says may be cached.

    Raises:
        OSError: If it could not be read for that many seconds.
    """
    since, pause = time.monotonic(), 0.05
    while True:
        try:
            with path.open("rb") as file:
                facts = os.fstat(file.fileno())
                return Content(file.read(), facts.st_mtime_ns, facts.st_ino)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # such as ESTALE and EIO, of a network's disk
            if time.monotonic() - since + pause > seconds:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


_T = TypeVar("_T", Holder, Status)
_holders = msgspec.json.Decoder(Holder)
_statuses = msgspec.json.Decoder(Status)


def _decoded(
    decoder: msgspec.json.Decoder[_T], kind: str, content: Content | None
) -> tuple[_T | None, str]:
    """Return what a file says, and what is wrong with the file if it says nothing."""
    if content is None:
        return None, ""
    try:
        value = decoder.decode(content.data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return None, f"is damaged: {error}"
    if value.kind != kind:
        return None, f"says it is a {value.kind!r}"
    if value.version > VERSION:
        return None, f"has version {value.version}, newer than {VERSION}"
    return value, ""
