"""A file of lines that stays whole on a disk that fills up or fails.

A write that fails is undone, so that what is in the file are whole lines.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from codedgrad.errors import InvalidTrace

__all__ = ["Lines"]


class Lines:
    """Appends to a file, each time all of the lines given or none of them.

    Args:
        path: The file; made if it is not there.
        fresh: Whether a file of this name is emptied first.

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

    def write(self, data: bytes) -> None:
        """Write whole lines.

        Raises:
            InvalidTrace: If the disk does not take all of them; then none is there.
        """
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._undo()
            problem = f"cannot be written: {error.strerror}"
            raise InvalidTrace(self.path, problem) from None
        except BaseException:
            self._undo()  # after an interrupt, too: the next line must begin a line
            raise
        self.size += len(data)

    def _undo(self) -> None:
        with suppress(OSError):  # readers leave out a last line that is torn
            os.ftruncate(self._file, self.size)

    def close(self) -> None:
        """Close the file. It may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
