"""Sees to it that nothing of a Ray cluster of ours is left, however we end.

A cluster's guard is this file, run by itself. It waits for the end of its standard
input, which comes with that of whoever started it, by SIGKILL too. Ray's own processes
then end within a minute, but for those that are stopped; the guard gives them a moment,
ends them, and removes the folder of the cluster.

Processes of a cluster are known by its folder: they are started with it as an option,
which Ray hides later, and write files in it. Where there is no `/proc`, none are found.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

_GRACE = 1.0  # seconds to end by themselves
_LIMIT = 10.0  # seconds until those that cannot be ended are left
_OFTEN = 0.05  # seconds between looks
_LOOK = 1.0  # seconds between looks at whether whoever started us is there


class Guard:
    """Watches over the folder of a cluster that this process starts.

    Args:
        folder: With all that the cluster writes, and nothing else.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def dismiss(self) -> None:
        """Wait until nothing is left of the cluster."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait() != 0:  # somebody has ended it
            sweep(self._folder, os.getpid())


def sweep(folder: str, root: int) -> None:
    """Wait for the end of a cluster, or end it, and remove its folder.

    Args:
        folder: Of the cluster.
        root: The process that started it, which is spared.
    """
    begun = time.monotonic()
    while time.monotonic() - begun < _LIMIT and os.path.isdir(folder):
        left = members(folder, root)
        if not left:
            shutil.rmtree(folder, ignore_errors=True)
            continue  # if something of it is there again, so is somebody
        if time.monotonic() - begun > _GRACE:
            for pid in left:
                with suppress(OSError):  # it has just ended
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_OFTEN)


def members(folder: str, root: int) -> list[int]:
    """Return the processes of a cluster.

    Args:
        folder: Of the cluster.
        root: The process that started it. It has files there, which are named after
            it, and which its forks have as well; those are no members.
    """
    others = [pid for pid in _processes() if pid not in (root, os.getpid())]
    return [p for p in others if _was_told(p, folder) or _writes(p, folder, root)]


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _was_told(pid: int, folder: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:  # it has ended
        return False
    values = [word.partition(b"=")[2] for word in words if word.startswith(b"--")]
    return any(value.startswith(folder.encode()) for value in values)


def _writes(pid: int, folder: str, root: int) -> bool:
    with suppress(OSError):  # it has ended, or is none of ours
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it is not open any more
                path = os.readlink(f"/proc/{pid}/fd/{number}")
                is_inside = path.startswith(folder + "/")
                is_roots = path.endswith(f"_{root}.log")
                if is_inside and not is_roots and _to_write(pid, number):
                    return True
    return False


def _to_write(pid: int, number: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{number}") as file:
        flags = next(line for line in file if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _main(folder: str) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a scheduler's warning to all
    root = os.getppid()
    ended = False
    while not ended and os.getppid() == root:  # a fork of it may hold our input open
        ended = bool(select.select([0], [], [], _LOOK)[0])
    sweep(folder, root)


if __name__ == "__main__":
    _main(sys.argv[1])
