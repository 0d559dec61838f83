"""What a process has open, for others of its host that were not handed it.

On Linux `/proc` has the descriptors of every process, and lets processes of the same
user open what is behind them. Elsewhere nothing is near to anything.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct


class Where(Struct, frozen=True):
    """Where a process has something open, for others of its host.

    Attributes:
        host: The machine since it was started, and the network that it is seen on:
            what has another network is another host.
        pid: Of the process.
        fd: Its descriptor.
        file: The numbers by which the kernel knows what is behind it: a process of that
            number that has something else there, in another container, is not taken
            for it.
        size: Bytes.
    """

    host: str
    pid: int
    fd: int
    file: tuple[int, int]
    size: int


def where_is(fd: int) -> Where | None:
    """Return where others of this host find what is open here; None: they cannot."""
    host = _host()
    if host is None:
        return None
    return Where(host, os.getpid(), fd, *_seen(fd))


def open_there(where: Where | None, flags: int) -> int | None:
    """Return a descriptor of what another process has; None if it is not to be had."""
    if where is None or where.host != _host():
        return None
    try:
        fd = os.open(f"/proc/{where.pid}/fd/{where.fd}", flags | os.O_CLOEXEC)
    except OSError:  # gone, another user's, or in another container
        return None
    if _seen(fd) != (where.file, where.size):
        os.close(fd)
        return None
    return fd


def _seen(fd: int) -> tuple[tuple[int, int], int]:
    found = os.fstat(fd)
    return (found.st_dev, found.st_ino), found.st_size


def _host() -> str | None:
    """Return what only processes of the same host say; None where that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return None
