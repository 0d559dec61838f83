"""The names of our processes, as `ps` and `top` show them.

`ps` reads `/proc/PID/cmdline`, which is a window on the memory that holds the process's
arguments: `set_title` overwrites that memory. `top` reads `/proc/PID/comm`, 15 bytes
that a process may write. A system without these files keeps the names that it has.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_SHORT = 15  # bytes of /proc/PID/comm that the kernel keeps
# Fields of /proc/PID/stat, counted from the one behind the name: see proc(5).
_ARG_START, _ARG_END = 45, 46


def script_name(argv: list[str] | None = None) -> str:
    """Return what to call the program that this process runs.

    Args:
        argv: Its arguments; None: `sys.argv`.

    Example:
        >>> script_name(["runs/train.py", "--epochs", "3"])
        'train.py'
        >>> script_name(["/usr/lib/python3/site-packages/pytest/__main__.py"])
        'pytest'
        >>> script_name(["-c"]), script_name([""])
        ('python', 'python')
    """
    first = (sys.argv if argv is None else argv)[:1]
    path = Path(first[0]) if first else Path()
    if path.name == "__main__.py":
        return path.parent.name  # python -m
    if path.name == "ipykernel_launcher.py":
        return "a notebook"
    return path.name if path.name and not path.name.startswith("-") else "python"


def set_title(role: str, script: str) -> None:
    """Name this process, such as `codedgrad worker 3 of train.py`.

    Args:
        role: What it does, such as `worker 3`.
        script: The program that the root runs.
    """
    with suppress(OSError):  # not Linux
        # No space: programs that split /proc/PID/stat at spaces find their fields.
        name = f"cg-{role}".replace(" ", "-")
        Path("/proc/self/comm").write_bytes(name.encode()[:_SHORT])
    # It is a convenience: where a sandbox forbids any of this, the name stays.
    with suppress(OSError, ValueError, IndexError):
        _overwrite_arguments(f"codedgrad {role} of {script}".encode())


def _overwrite_arguments(title: bytes) -> None:
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    room = end - start
    if room <= 1:
        return  # the kernel does not say where they are
    # The last byte stays 0. Otherwise the kernel takes the title to go on behind the
    # arguments, where the environment is.
    text = title[: room - 1].ljust(room, b"\0")
    # Written as a file and not through a pointer: a wrong address is then an error of
    # the system call, and not the end of the process.
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    try:
        os.pwrite(memory, text, start)
    finally:
        os.close(memory)
