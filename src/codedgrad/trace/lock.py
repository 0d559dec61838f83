"""One root at a time in a run's folder.

```text
lock.json       which root holds the folder: a `Holder`; replaced by the next root
status.json     its heartbeat: a `Status`, replaced about once a second
.lock.guard     under a kernel lock while `lock.json` is judged and replaced
.lock.life-3    under a kernel lock (flock) as long as the third root lives
```

The rules:

1. `lock.json` alone says who the root is. A root reads it before it writes anything
   else (`check`), so a root that was paused for any time finds out that it has lost the
   folder. While `lock.json` cannot be read, nothing is written. A root that is paused
   between that and its write finds that its successor has removed what it would rename;
   what it appends goes to files of its own life, or to a file without a name.
2. A root is taken for dead by a heartbeat that does not move for `stale` seconds while
   another process watches it. Clocks are never compared, and time in which the watcher
   itself was paused, or waited for the disk, does not count.
3. One proof of death needs no watching: on the same boot of the same host, the kernel
   lock of a root's life can be had only when the root, and all that inherited its
   descriptor, are gone. Where a disk has no such locks there is no such proof.
4. Of several processes that take a folder at once one gets it: judging and replacing
   happens under the guard, and only if `lock.json` is still the one that was judged.
   Without kernel locks each writes its own and waits for two beats; the last one stays.
   Where kernel locks do not reach from host to host (some mounts of NFS, FUSE), two may
   begin, and the one whose `lock.json` was replaced stops at its first `check`.
   No two roots have the same life: each creates the file of its own.
5. A heartbeat that cannot be written, on a full disk, touches `lock.json` instead: that
   needs no space, and a watcher sees it as well.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypedDict, Unpack
from weakref import WeakSet

import msgspec
from msgspec.structs import replace

from codedgrad.errors import FolderInUse, InvalidFolder, InvalidOptions, LockLost
from codedgrad.trace.files import folder_advice, write_whole
from codedgrad.trace.status import (
    LOCK,
    STATUS,
    Holder,
    Look,
    Status,
    look,
    read_patiently,
)

_GUARD = ".lock.guard"
_LIFE = ".lock.life-"
# Their half-written files are removed so that an earlier root which is paused right
# before it renames one, and woken later, fails instead of replacing a file.
_OF_EARLIER_ROOTS = re.compile(
    r"\.lock\.life-\d+|\.(lock|status|run)\.json\.\w+|\.steps\.jsonl\.\w+"
)
_log = logging.getLogger("codedgrad")
_encode = msgspec.json.Encoder().encode
_locks: WeakSet[Lock] = WeakSet()


class Figures(TypedDict, total=False):
    """What a root says of itself in its heartbeat; see `Status`."""

    state: str
    step: int
    steps: int | None
    seconds: float | None
    workers: int
    alive: int
    late: tuple[int, ...]
    loss: float | None


class Lock:
    """Holds a run's folder for this process, with a heartbeat from a thread of its own.

    A child that is forked does not hold it: there, `check` raises and `close` does
    nothing.

    Args:
        folder: Of the run; made if it is not there.
        take_over: Take it from a root that is alive, too. That root stops at its next
            `check`. Of several such takers the last one keeps it.
        stale: After how many seconds without a heartbeat the root that holds it is
            taken for dead. Also for how long `check` tries to read `lock.json`.
        every: Seconds between two heartbeats; several must fit into `stale`.

    Attributes:
        folder: Of the run.
        life: 1 for the first root of the folder, one more for each later root; names
            the files that only this root writes.

    Raises:
        FolderInUse: If another root holds it and is alive.
        InvalidFolder: If the folder cannot be read or written.

    Example:
        >>> import tempfile
        >>> place = tempfile.TemporaryDirectory()
        >>> with Lock(Path(place.name)) as lock:
        ...     lock.check()  # before anything is written
        ...     lock.update(step=1, loss=0.5)
        >>> with Lock(Path(place.name)) as lock:
        ...     lock.life
        2
        >>> place.cleanup()
    """

    def __init__(
        self,
        folder: Path,
        *,
        take_over: bool = False,
        stale: float = 30.0,
        every: float = 1.0,
    ) -> None:
        if not 0 < every < stale:
            problem = f"is {stale:g} s with a heartbeat every {every:g} s"
            raise InvalidOptions("stale", problem, "several heartbeats")
        self.folder = folder
        self._stale = stale
        self._every = every
        self._flocked = -1  # descriptor of the file of this life
        self._lost = ""  # why this root does not hold the folder any more
        self._warned: set[str] = set()
        self._beats = 0
        self._done = threading.Event()
        self._writing = threading.Lock()  # `close` and the thread both write the status
        _locks.add(self)
        try:
            self._holder = self._acquire(take_over)
        except BaseException as error:
            self._let_go()  # else this process would keep its own next root waiting
            if not isinstance(error, OSError):
                raise
            problem = f"cannot be read or written: {error}"
            where = f"run_dir {folder}"
            raise InvalidFolder(where, problem, folder_advice(error)) from None
        self._data = _encode(self._holder)
        self.life = self._holder.life
        shared = ("life", "token", "host", "pid", "boot", "started")
        self._figures = Status(**{key: getattr(self._holder, key) for key in shared})
        self._beat()  # readers find this root from now on
        self._thread = threading.Thread(
            target=self._keep_beating, name="codedgrad heartbeat", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:  # no more threads, or an interrupt
            self._release()
            self._let_go()
            raise

    def update(self, **figures: Unpack[Figures]) -> None:
        """Say what the next heartbeat writes; costs microseconds."""
        changed = replace(self._figures, **figures)
        _encode(changed)  # what JSON cannot hold fails here, not in the thread
        self._figures = changed

    def check(self) -> None:
        """See that this root still holds the folder; call it before writing there.

        It reads a file of 250 bytes. While that fails because of the disk it is tried
        again for `stale` seconds, with a warning; after that another root may rightly
        have taken this one for dead, so the folder counts as lost.

        Raises:
            LockLost: If it does not, now and at every later call.
        """
        try:
            self._verify(0.2)
        except OSError as error:
            self._warn("cannot be read", error, "nothing is written before it can")
            try:
                self._verify(self._stale)
            except OSError as still:
                self._lose(
                    f"{LOCK} could not be read for {self._stale:g} s ({still}), so "
                    f"another root may have taken over; start again when the disk is "
                    f"back"
                )

    def close(self, state: str = "ended") -> None:
        """Stop the heartbeat, write the last status and release the folder.

        Nothing is written if another root has taken over. Training has ended by now, so
        a disk that fails is warned of, and the next root finds out by the kernel's lock
        or by watching.
        """
        if not self._lost:
            self.update(state=state)
            self._beat()
        self._done.set()
        self._thread.join()
        if not self._lost:
            self._release()
        self._lost = self._lost or "this root has released it"
        self._let_go()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close("ended" if error is None else "stopped")

    def _acquire(self, take_over: bool) -> Holder:
        """Wait until the folder may be taken, and take it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pause = min(0.25, self._every)
        last = look(self.folder, self._stale)
        seen_at, quiet = time.monotonic(), 0.0
        has_told = False
        while True:
            is_certain = take_over or last.is_free or is_gone(self.folder, last.holder)
            if is_certain or quiet >= self._stale:
                taken = self._take(last, is_certain)
                if taken is not None:
                    return taken
            elif not has_told and quiet > 2 * self._every:  # a live one has moved
                has_told = True
                _log.warning(
                    "%s: waiting up to %g s to see whether its root (%s) is alive",
                    self.folder,
                    self._stale,
                    last.holder or f"{LOCK} {last.problem}",
                )
            time.sleep(pause)
            now = look(self.folder, self._stale)
            if not _is_same(now, last):  # another root, or the end of this one
                quiet = 0.0
            elif now.pulse != last.pulse and not take_over:
                raise self._refusal(now)
            else:
                # If this process was paused, or the disk did not answer, the other
                # root may have been held up by the same: that time does not count.
                quiet += min(time.monotonic() - seen_at, 2 * pause)
            last, seen_at = now, time.monotonic()

    def _take(self, judged: Look, is_certain: bool) -> Holder | None:
        """Become the root; None if another process was faster, or the root moved."""
        with _guarded(self.folder, self._stale) as is_guarded:
            now = look(self.folder, self._stale)
            if not _is_same(now, judged):
                return None
            if now.pulse != judged.pulse and not is_certain:
                return None
            names = os.listdir(self.folder)
            lives = [int(name[len(_LIFE) :]) for name in names if _is_life(name)]
            life = 1 + max([now.lives, *lives])
            try:
                self._begin_life(self.folder / f"{_LIFE}{life}")
            except FileExistsError:  # another process was faster, on a disk that has no
                return None  # locks; or the listing was an old one, over NFS
            holder = Holder(
                life=life,
                token=secrets.token_hex(16),
                host=os.uname().nodename,
                pid=os.getpid(),
                boot=_boot(),
                started=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
                flocked=self._flocked >= 0,
            )
            write_whole(self.folder / LOCK, _encode(holder))
            if is_guarded:
                names = os.listdir(self.folder)  # the other root has not stood still
                names.remove(f"{_LIFE}{life}")
                for name in filter(_OF_EARLIER_ROOTS.fullmatch, names):
                    with suppress(OSError):  # the next root tries again
                        (self.folder / name).unlink()
                return holder
        # Another process may have judged the same lock, and replace this one's: it does
        # so within the time that it needs from its look to its write.
        time.sleep(2 * self._every)
        after = look(self.folder, self._stale)
        if after.holder == holder:
            return holder
        self._let_go()
        return None

    def _release(self) -> None:
        """Say in `lock.json` that the next root need not wait."""
        try:
            with _guarded(self.folder, 1.0):
                self._verify(1.0)
                released = _encode(replace(self._holder, released=True))
                write_whole(self.folder / LOCK, released)
        except LockLost:
            pass  # another root has the folder, and everything in it, now
        except (OSError, FolderInUse) as error:
            self._warn("cannot be released", error, "the next root may have to wait")

    def _begin_life(self, path: Path) -> None:
        """Create the file of this life, and lock it for as long as the process lives.

        Raises:
            FileExistsError: If another process has begun this life.
        """
        self._flocked = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        if not _flock(self._flocked, fcntl.LOCK_EX):
            self._let_go()

    def _let_go(self) -> None:
        """Give the kernel's lock back."""
        descriptor, self._flocked = self._flocked, -1
        if descriptor >= 0:
            # Closing is not enough: children may have inherited the descriptor.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _verify(self, patience: float) -> None:
        """Raise if another root has taken over; OSError if that cannot be told."""
        if self._lost:
            raise LockLost(self.folder, self._lost)
        found = read_patiently(self.folder / LOCK, patience)
        if found is not None and found.data == self._data:
            return
        if found is None:
            self._lose(f"{LOCK} was removed, or the folder was")
        holder = look(self.folder, patience).holder
        if holder is None:
            self._lose(f"{LOCK} is not what this root wrote")
        self._lose(f"another root has taken over: {holder}")

    def _lose(self, why: str) -> NoReturn:
        self._lost = f"{why}; this root writes nothing more"
        raise LockLost(self.folder, self._lost)

    def _refusal(self, now: Look) -> FolderInUse:
        where = f"run_dir {self.folder}"
        holder = now.holder
        if holder is None:
            problem = f"is in use, although its {LOCK} {now.problem}"
            return FolderInUse(where, problem, "again when that process has ended")
        step = "" if now.status is None else f", at step {now.status.step}"
        problem = f"has a root that is alive: {holder}{step}"
        end = f"to end it (kill {holder.pid} on {holder.host})"
        if (holder.host, holder.pid) == (os.uname().nodename, os.getpid()):
            end = "to close() that one first, for it is in this process"
        return FolderInUse(where, problem, f"{end}, or take_over=True")

    def _keep_beating(self) -> None:
        while not self._done.wait(self._every) and not self._lost:
            self._beat()

    def _beat(self) -> None:
        """Write the status if this root holds the folder; training goes on if not."""
        with self._writing:
            if self._done.is_set():
                return  # `close` has written the last one
            try:
                self._verify(0.0)
            except LockLost as lost:
                _log.warning("%s", lost)
                return
            except OSError as error:  # nothing is written while it cannot be told
                self._warn("cannot be read", error, "no heartbeat is written")
                return
            try:
                self._write_status()
            except OSError as error:
                # A successor removes the half-written status of an earlier root: that
                # is no fault of the disk, and `lock.json` is not this root's to touch.
                with suppress(OSError, LockLost):
                    self._verify(0.0)
                    self._warn("cannot be written", error, "training goes on")
                    os.utime(self.folder / LOCK)  # else there is no way to be seen

    def _write_status(self) -> None:
        """Replace the status; a heartbeat is not worth a sync of the disk."""
        self._beats += 1
        data = _encode(replace(self._figures, beat=self._beats)) + b"\n"
        beside = self.folder / f".{STATUS}.{self.life}"
        try:
            beside.write_bytes(data)
            # The thread verifies again because the disk may have kept it waiting. A
            # process that is paused between these two lines writes one heartbeat too
            # many, which `look` tells from its successor's by the token.
            self._verify(0.0)
            os.replace(beside, self.folder / STATUS)
        except (LockLost, OSError) as error:
            beside.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise

    def _warn(self, problem: str, error: Exception, then: str) -> None:
        """Log a problem with the files of the lock, the first time that it occurs."""
        if problem not in self._warned:
            self._warned.add(problem)
            name = STATUS if problem == "cannot be written" else LOCK
            _log.warning("%s %s: %s; %s", self.folder / name, problem, error, then)

    def _leave_to_parent(self) -> None:
        """Give this lock up in a forked child, without releasing the parent's."""
        self._lost = "this process was forked from the root, and is not the root"
        if self._flocked >= 0:
            os.close(self._flocked)  # without unlocking: the lock is the parent's
            self._flocked = -1


def is_gone(folder: Path, holder: Holder | None) -> bool:
    """Whether the kernel proves that a root has ended; False proves nothing."""
    if holder is None or not holder.flocked or not holder.boot:
        return False
    if (holder.host, holder.boot) != (os.uname().nodename, _boot()):
        return False
    try:
        descriptor = os.open(folder / f"{_LIFE}{holder.life}", os.O_RDONLY)
    except OSError:
        return False
    try:  # shared, so that two processes that ask at once do not see each other
        return _flock(descriptor, fcntl.LOCK_SH)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


@contextmanager
def _guarded(folder: Path, patience: float) -> Iterator[bool]:
    """Keep other processes from judging meanwhile; False if the disk has no locks."""
    descriptor = os.open(folder / _GUARD, os.O_RDWR | os.O_CREAT, 0o644)
    since = time.monotonic()
    is_guarded = False
    try:
        while not is_guarded:
            try:
                is_guarded = _flock(descriptor, fcntl.LOCK_EX)
                break
            except BlockingIOError:
                if time.monotonic() - since > patience:
                    problem = f"is being taken by another process for {patience:g} s"
                    advice = "again when that process has ended"
                    raise FolderInUse(f"run_dir {folder}", problem, advice) from None
            time.sleep(0.01)
        yield is_guarded
    finally:
        if is_guarded:  # closing is not enough: a child may have inherited it
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _flock(descriptor: int, how: int) -> bool:
    """Lock a file in the kernel without waiting; False if its disk has no such locks.

    Raises:
        BlockingIOError: If another descriptor has it locked.
    """
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL, by the kind of disk
        return False
    return True


def _is_same(one: Look, other: Look) -> bool:
    """Whether two looks found the same root, neither having ended in between."""
    return (one.holder, one.problem) == (other.holder, other.problem)


def _is_life(name: str) -> bool:
    return name.startswith(_LIFE) and name[len(_LIFE) :].isdecimal()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def _forked() -> None:
    for lock in list(_locks):
        lock._leave_to_parent()


os.register_at_fork(after_in_child=_forked)
