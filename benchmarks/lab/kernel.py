"""What the lab asks of the kernel, and how all of it is taken back.

Everything that belongs to a lab carries its name: namespaces, folders, CPU groups. A
lab holds a lock for as long as its process lives, so that the next one knows what is
left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codedgrad.errors import CodedgradError

FOLDERS = Path("/tmp")  # short, for the paths of sockets below it
NAMESPACES = Path("/run/netns")
HOSTS_FILES = Path("/etc/netns")  # `ip netns exec` shows these as /etc
CPU = Path("/sys/fs/cgroup/cpu")
PREFIX = "cglab"


class LabFailed(CodedgradError, RuntimeError):
    """The lab cannot be built, or something in it went wrong.

    Attributes:
        problem: What happened.
        advice: What to do.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"lab: {self.problem}; {self.advice}"


def missing() -> str:
    """Return what the lab needs and this machine does not have; empty: nothing."""
    if os.geteuid() != 0:
        return "not run by root"
    absent = [
        tool for tool in ("ip", "tc", "bridge", "unshare") if not shutil.which(tool)
    ]
    if absent:
        return f"no {' and no '.join(absent)} (of iproute2 and util-linux)"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "ip", "link", "add", "x", "type", "bridge"],
        capture_output=True,
        text=True,
    )
    return tried.stderr.strip()


def shaped(device: str, rate: str, queue: int) -> str:
    """Return the words for tc that limit what a device sends."""
    burst = max(20_000, round(bits(rate) / 8 * 0.001))  # a millisecond's worth
    return f"qdisc add dev {device} root tbf rate {rate} burst {burst} limit {queue}"


def bits(rate: str) -> float:
    """Return the bits a second of a rate in the words of tc.

    Example:
        >>> bits("100mbit")
        100000000.0
    """
    for unit, factor in (("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)):
        if rate.endswith(unit) and rate[: -len(unit)].replace(".", "", 1).isdigit():
            return float(rate[: -len(unit)]) * factor
    raise LabFailed(f"{rate!r} is no rate", "write it like 100mbit or 1gbit")


def ip(lines: str, namespace: str | None = None) -> None:
    where = [] if namespace is None else ["-n", namespace]
    run(["ip", *where, "-batch", "-"], lines)


def tc(lines: str, namespace: str) -> None:
    run(["tc", "-n", namespace, "-batch", "-"], lines)


def run(argv: Sequence[str], lines: str) -> str:
    done = subprocess.run(argv, input=lines + "\n", capture_output=True, text=True)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise LabFailed(f"{' '.join(argv)} says {said}", "see whether the kernel can")
    return done.stdout


# -- what goes away again --------------------------------------------------------------


def sweep() -> None:
    """Remove what labs have left whose process is gone."""
    for folder in FOLDERS.glob(f"{PREFIX}*.*"):
        if is_left(folder / "lock"):
            remove(folder.name)


def is_left(lock: Path) -> bool:
    """Return whether nobody holds the lock of a lab any more."""
    try:
        handle = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False  # being built, or being removed
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def remove(name: str) -> None:
    """Remove the processes, namespaces and files of a lab, as far as there are any."""
    spaces = [path.name for path in NAMESPACES.glob(f"{name}-*")]
    kill_in(spaces)
    if spaces:
        ip("\n".join(f"netns del {space}" for space in spaces))
    for group in CPU.glob(f"{name}-*"):
        group.rmdir()
    for etc in HOSTS_FILES.glob(f"{name}-*"):
        shutil.rmtree(etc)
    shutil.rmtree(FOLDERS / name, ignore_errors=True)


def kill_in(spaces: Iterable[str], patience: float = 20.0) -> None:
    """End every process in some namespaces by SIGKILL; wait until they are gone."""
    spaces, until = list(spaces), time.monotonic() + patience
    while pids := pids_in(spaces):
        if time.monotonic() > until:
            raise LabFailed(f"processes {pids} do not end", "see what they wait for")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def pids_in(spaces: Iterable[str]) -> list[int]:
    """Return the processes in some namespaces, without those that have ended."""
    inodes = {(NAMESPACES / space).stat().st_ino for space in spaces}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is a zombie
            if (path / "ns/net").stat().st_ino in inodes:
                found.append(int(path.name))
    return found


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a second Ctrl-C wait until the block is through."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, which gets none of them
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
