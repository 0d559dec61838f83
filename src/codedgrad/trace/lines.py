"""A file of lines that stays whole on a disk that fills up or fails.

A write that fails is undone, so that the file holds whole lines only. The lines wait in
memory and go first with the next write: a checkpoint that does not fit fills the disk
for a moment only, until its writer removes it.
"""

from __future__ import annotations

import os
from pathlib import Path

from codedgrad.errors import InvalidTrace

_WAITING = 4 << 20
"""Most bytes of lines that wait for the disk. More memory bridges a longer time without
space. 4 MB is a guess: a disk that stays full costs checkpoints, which matter more."""


class Lines:
    """Appends to a file, each time all of the lines given or none of them.

    Args:
        path: The file; made if it is not there.
        fresh: Whether a file of this name is emptied first.

    Attributes:
        size: Bytes in the file.

    Raises:
        InvalidTrace: If the file cannot be opened.
    """

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
        try:
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise InvalidTrace(path, f"cannot be written: {error.strerror}") from None
        self.size = os.lseek(self._file, 0, os.SEEK_END)
        self._waiting = b""

    @property
    def is_waiting(self) -> bool:
        """Whether lines wait for the next write."""
        return bool(self._waiting)

    def write(self, data: bytes = b"") -> None:
        """Write whole lines, after those that are waiting.

        Raises:
            InvalidTrace: If the disk does not take all of them. Then none of them is in
                the file; they wait, unless they are too many: then all are dropped.
        """
        data = self._waiting + data
        self._waiting = data if len(data) <= _WAITING else b""
        size = self.size + len(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
            # In one go, without a call: Python raises what a signal's handler raises at
            # calls, and lines would wait that are in the file.
            self.size, self._waiting = size, b""
        except OSError as error:
            self._undo()
            problem = f"cannot be written: {error.strerror}"
            raise InvalidTrace(self.path, problem) from None
        except BaseException:
            self._undo()  # after an interrupt, too: the next line must begin a line
            raise

    def _undo(self) -> None:
        """Remove what a failed write has left at the end of the file."""
        try:
            os.ftruncate(self._file, self.size)
        except OSError:
            # The end of the file is torn, and readers leave that line out. The lines do
            # not wait: some of them are in the file already.
            self._waiting = b""
            self.size = os.lseek(self._file, 0, os.SEEK_END)

    def close(self) -> None:
        """Close the file; lines that are waiting are lost. It may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
