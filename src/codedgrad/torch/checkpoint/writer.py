"""Writing checkpoints while the loop goes on.

1. `start` copies the state, at the speed of memory, and a thread writes the copy. The
   copy keeps its memory for the next one: new memory makes copying five times slower.
2. One checkpoint is written at a time. While it is, `start` does nothing.
3. A disk that fails costs a checkpoint, not the run: `start` warns, once for each kind
   of error until a checkpoint is written again, and the older ones stay. Only `write`,
   for the last one, raises. Whatever else goes wrong in the thread, such as a lock that
   the root has lost, is raised by the next call.
4. The thread is a daemon and never calls torch. A process that ends without `finish`
   does not wait for the disk: what was half written is left as by a kill, and the next
   write removes it. In a fork of the process there is no such thread, and nothing is
   written.
5. The thread takes no lock that the loop may hold, so it does not log: the handler of
   SIGUSR1 waits for the thread, and may have interrupted the loop in the middle of a
   log line, with the lock of logging held. The loop logs what the thread has to say.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.errors import InvalidCheckpoint
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.packed import Packed, pack
from codedgrad.trace.files import nothing

_log = logging.getLogger("codedgrad")


class _Write:
    """A checkpoint to be written, by the thread or the loop: the first to claim it.

    The loop claims it only if the thread could not be started, or Ctrl-C came before.
    """

    def __init__(self, step: int, packed: Packed) -> None:
        self.step = step
        self.packed = packed
        self.has_thread = False
        self.claim = threading.Lock()  # taken once, and never given back
        self.is_done = threading.Event()


class _KeptBack(logging.Filter):
    """Keeps the log records of the thread that makes it, while it is a filter."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.records: deque[logging.LogRecord] = deque()

    def filter(self, record: logging.LogRecord) -> bool:
        is_kept = threading.get_ident() == self._thread
        if is_kept:
            self.records.append(record)
        return not is_kept


class Saver:
    """Writes the checkpoints of a shelf in the background. Used from one thread.

    It holds as much memory as the tensors of a state have, until it is closed.

    Args:
        shelf: Where they go.
        before: Called by the writer before a file gets its name, and before it removes
            anything; to raise if the root has lost its lock: then neither happens, and
            the next call raises it. An `OSError` of its own counts as the disk's.

    Attributes:
        wrote: The newest step on disk; None without any.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saver = Saver(Shelf(folder))
        ...     weights = torch.zeros(3)
        ...     started = saver.start(1, {"weights": weights})
        ...     weights += 1  # not in the checkpoint
        ...     saver.close()
        ...     step, state = Shelf(folder).newest()
        >>> started, saver.wrote, state["weights"]
        (True, 1, tensor([0., 0., 0.]))
    """

    def __init__(self, shelf: Shelf, *, before: Callable[[], None] = nothing) -> None:
        self._shelf = shelf
        self._before = before
        self._process = os.getpid()
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._under_way: _Write | None = None
        self._error: BaseException | None = None  # of the thread, not raised yet
        self._records: deque[logging.LogRecord] = deque()  # of the thread, not logged
        self._warned: set[object] = set()  # kinds of errors since the last success
        self.wrote: int | None = max(shelf.steps(), default=None)

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        write = self._under_way
        return self._is_ours and write is not None and not write.is_done.is_set()

    def start(self, step: int, state: Mapping[str, Any]) -> bool:
        """Copy a state, and begin to write it as the checkpoint of a step.

        Returns:
            False, and nothing is done, while another is being written.

        Raises:
            InvalidCheckpoint: If there is something in the state that cannot be in a
                checkpoint.
        """
        if self.busy or not self._is_ours:
            return False
        self.tell()
        self._raise()
        packed = pack(self._shelf.path(step), state)
        try:
            if packed.size > self._memory.size:
                self._memory = np.empty(0, np.uint8)  # let go of the old before the new
                self._memory = np.empty(packed.size, np.uint8)
        except MemoryError:  # without a copy the loop has to wait for the disk
            self._under_way = _Write(step, packed)
            self._wait()
            return True
        # Known before the thread begins, so that Ctrl-C in between loses neither.
        self._under_way = write = _Write(step, packed.copied(self._memory))
        thread = threading.Thread(target=self._run, args=(write,), daemon=True)
        try:
            thread.start()
            write.has_thread = True
        except RuntimeError:  # no more threads
            self._wait()
        return True

    def finish(self) -> None:
        """Wait until the checkpoint under way is written, or has failed.

        Raises:
            Exception: What the writer raised, if it is not an error of the disk.
        """
        self._wait()
        self._raise()

    def write(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the last checkpoint, in this thread, after the one under way.

        Raises:
            InvalidCheckpoint: If it cannot be written; the earlier ones stay.
        """
        if not self._is_ours:
            problem = f"is of process {self._process}, and this is a fork of it"
            raise InvalidCheckpoint(self._shelf.folder, f"{problem}; write it there")
        packed = pack(self._shelf.path(step), state)
        self._wait()
        path = self._shelf.put(step, packed, self._before)
        self._note(step)
        self._raise()  # only now, for the state is worth more than the error
        return path

    def close(self) -> None:
        """Wait as `finish` does, and let go of the memory. It may be called twice."""
        self._wait()
        self._under_way, self._memory = None, np.empty(0, np.uint8)
        self._raise()

    def tell(self) -> None:
        """Log what the thread had to say since the last call."""
        while self._records and self._is_ours:
            _log.handle(self._records.popleft())

    @property
    def _is_ours(self) -> bool:
        return os.getpid() == self._process

    def _wait(self) -> None:
        write = self._under_way
        if write is None or not self._is_ours:
            return
        if not write.has_thread and write.claim.acquire(blocking=False):
            try:
                self._put(write)
            finally:
                write.is_done.set()
        write.is_done.wait()
        self.tell()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None and self._is_ours:
            raise error

    def _run(self, write: _Write) -> None:
        """Write a checkpoint; what the thread does."""
        if not write.claim.acquire(blocking=False):
            return
        kept = _KeptBack()
        _log.addFilter(kept)
        try:
            self._put(write)
        except BaseException as error:
            self._error = error
        finally:
            _log.removeFilter(kept)
            self._records.extend(kept.records)
            write.is_done.set()

    def _put(self, write: _Write) -> None:
        """Write a checkpoint that the run can do without."""
        try:
            self._shelf.put(write.step, write.packed, self._before)
        except InvalidCheckpoint as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self._warn(error, error.__cause__.errno)
        else:
            self._note(write.step)

    def _note(self, step: int) -> None:
        self.wrote = step
        self._warned.clear()

    def _warn(self, error: InvalidCheckpoint, kind: object) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            kept = "there is none yet"
            if self.wrote is not None:
                kept = f"the newest is that of step {self.wrote}"
            _log.warning("%s; training goes on, %s", error, kept)
