"""Memory that the root and its workers share, and that ends with them.

On Linux it has no name at all: it is a file of the kernel's own (`memfd_create`), whose
descriptor is handed to the workers, and it is gone with the last process that has it.
It is not bounded by `/dev/shm`, which has 64 MB in a default container.

Elsewhere, or where a folder is asked for, it is a file that is unlinked as soon as it
is open. Its space is reserved first, because a shared page for which there is no room
kills its process with SIGBUS. What a root that was killed between those two calls has
left is removed by the next one.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from codedgrad.errors import EngineFailed

_NAME = re.compile(r"codedgrad-(\d+)-[0-9a-f]{16}")


class Shared:
    """A stretch of shared memory, as file descriptor and mapping.

    Args:
        size: Bytes.
        least: Of those, the bytes that are sure to be used; all by default.
        folder: A file system in memory to put it into; None: nowhere, if the system
            can do that, or else the usual folder.

    Example:
        >>> memory = Shared(1 << 20)
        >>> memory.array("float64", (10,))[:] = 3.0
        >>> Shared.attach(os.dup(memory.fd), memory.size).array("float64", (10,))[9]
        np.float64(3.0)
        >>> memory.close()
    """

    def __init__(
        self, size: int, least: int | None = None, folder: Path | None = None
    ) -> None:
        self.size = size
        fd = None
        if folder is None:
            fd = nameless(size, size if least is None else least)
        self.fd = _unlinked(size, folder or _usual_folder()) if fd is None else fd
        self._map: mmap.mmap | None = mmap.mmap(self.fd, size)

    @classmethod
    def attach(
        cls, fd: int, size: int, *, read_only: bool = False, offset: int = 0
    ) -> Shared:
        """Return the memory behind a descriptor that another process made.

        Args:
            fd: The descriptor.
            size: Bytes.
            read_only: Whether it can only be read.
            offset: Bytes before them, whole pages.
        """
        self = cls.__new__(cls)
        access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        self.size, self.fd = size, fd
        self._map = mmap.mmap(fd, size, access=access, offset=offset)
        return self

    def array(
        self, dtype: DTypeLike, shape: tuple[int, ...], offset: int = 0
    ) -> NDArray[np.generic]:
        """Return a view of it. Its bytes are 0 until a process writes them."""
        assert self._map is not None  # not closed
        count = int(np.prod(shape))
        return np.frombuffer(self._map, dtype, count, offset).reshape(shape)

    def close(self) -> None:
        """Let go of it; views that are still held keep the mapping alive."""
        if self._map is None:
            return
        os.close(self.fd)
        with suppress(BufferError):  # a view is about; the last one takes it along
            self._map.close()
        self._map = None


def nameless(size: int, least: int) -> int | None:
    """Return a descriptor of memory without a name; None where there is no such thing.

    Args:
        size: Bytes.
        least: Of those, the bytes that are sure to be used.
    """
    room = available_memory()
    if least > room:
        raise EngineFailed(
            f"the workers need {_megabytes(least)} of shared memory, "
            f"this machine has {_megabytes(room)} left",
            "fewer workers, a smaller model, or float32 messages",
        )
    try:
        fd = os.memfd_create("codedgrad", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or not allowed
        return None
    os.ftruncate(fd, size)
    return fd


def _unlinked(size: int, folder: Path) -> int:
    sweep(folder)
    name = folder / f"codedgrad-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem = f"shared memory cannot be made in {folder}: {error.strerror}"
        raise EngineFailed(problem, "another folder") from None
    os.unlink(name)
    try:
        os.ftruncate(fd, size)
        _reserve(fd, size)
    except OSError as error:
        os.close(fd)
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EINVAL, errno.ENOMEM):
            raise
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        raise EngineFailed(
            f"the workers need {_megabytes(size)} of shared memory, "
            f"{folder} has {_megabytes(free)} left",
            "a larger one (docker run --shm-size=...), fewer workers or open_segments, "
            "or a smaller model",
        ) from None
    return fd


def _reserve(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)


def _usual_folder() -> Path:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def sweep(folder: Path) -> int:
    """Remove what killed roots have left in a folder; return how many files."""
    removed = 0
    for path in folder.glob("codedgrad-*"):
        match = _NAME.fullmatch(path.name)
        if match and not _is_alive(int(match[1])):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, and alive
    return True


def available_memory() -> int:
    """Return the bytes that this process could still use, as far as one can tell."""
    bounds = [_meminfo(), *_cgroups()]
    return min((bound for bound in bounds if bound is not None), default=1 << 62)


def _meminfo() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _cgroups() -> list[int]:
    """Return what the container leaves, for both versions of control groups."""
    found = []
    for folder, limit, usage in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            most, used, stat = (
                Path(folder, name).read_text().strip()
                for name in (limit, usage, "memory.stat")
            )
        except OSError:
            continue
        if most.isdigit():
            files = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)
            spare = int(files[1]) if files else 0  # a cache, given back when asked for
            found.append(max(0, int(most) - int(used) + spare))
    return found


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
