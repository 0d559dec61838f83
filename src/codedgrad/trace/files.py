"""Writing a file whole or not at all, on disks that fill up, fail or know no fsync."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)

_BURST = 1 << 24
"""Bytes that are written between two syncs. Without them the disk gets hundreds of MB
at once, and the next small fsync of another file, such as the trace's, waits for them:
95 ms at worst instead of 30 ms beside 400 MB, for no gain in throughput."""

# What a file system says that has no fsync at all, and what some network disks say to
# an fsync of a folder. EIO, ENOSPC and EDQUOT are not among them: they mean that the
# data is lost.
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_UNSUPPORTED_OF_FOLDERS = _UNSUPPORTED | {
    errno.EACCES,
    errno.EBADF,
    errno.EISDIR,
    errno.EPERM,
}


def nothing() -> None:
    """Do nothing: the default of hooks."""


def folder_advice(error: OSError) -> str:
    """Return what to try where a folder cannot be written.

    Example:
        >>> folder_advice(OSError(errno.ENOSPC, "No space left on device"))
        'to make space, or another folder'
    """
    space = "to make space, or " if error.errno in FULL else ""
    return f"{space}another folder"


def write_whole(
    path: Path, *pieces: bytes | memoryview, before: Callable[[], None] = nothing
) -> None:
    """Write a file so that a kill, or a full disk, leaves the old one or the new one.

    It is written beside, seen to the disk, and renamed.

    Args:
        path: The file; its folder must be there.
        pieces: Its content, one after the other.
        before: Called when the content is on the disk, right before the file gets its
            name. If it raises, the old file stays.

    Raises:
        OSError: If the disk does not take it.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fill(beside, pieces)
        before()
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):  # the first error says what is wrong with the disk
            beside.unlink()
        raise
    sync_folder(path.parent)


def fill(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a new file and see it to the disk.

    Writing and syncing release the GIL, so other threads go on.

    Raises:
        OSError: If the disk does not take all of it.
    """
    size = unsynced = 0
    with path.open("xb", buffering=0) as file:
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            while rest:
                wrote = file.write(rest[: _BURST - unsynced])
                rest, size, unsynced = rest[wrote:], size + wrote, unsynced + wrote
                if unsynced == _BURST:
                    sync(file.fileno())
                    unsynced = 0
        sync(file.fileno())
    there = path.stat().st_size
    if there != size:  # a disk that says yes and does not keep it
        problem = f"the disk kept {there} bytes of {size}"
        raise OSError(errno.EIO, problem, str(path))


def sync(file: int) -> None:
    """See an open file to the disk.

    Raises:
        OSError: If that fails; not if the file system has no fsync.
    """
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def sync_folder(path: Path) -> None:
    """See the names in a folder to the disk.

    Raises:
        OSError: If that fails; not if the file system has no fsync of folders.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno not in _UNSUPPORTED_OF_FOLDERS:
            raise
