"""The root's side of the nursery: start it, ask it for workers, hear of deaths."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from codedgrad.engines.faults import Fault
from codedgrad.engines.host import unpacking
from codedgrad.engines.host.cores import THREAD_VARIABLES
from codedgrad.engines.host.nursery_messages import (
    Born,
    Died,
    Failed,
    Prepare,
    Signal,
    Spawn,
)
from codedgrad.engines.host.wire import Channel
from codedgrad.errors import EngineFailed

LARGEST_JOB = 2**32 - 1
"""Bytes of a pickled job: the longest stretch of bytes that msgpack can hold."""

_HEAD = struct.Struct("<Q")
_PATIENCE = 3.0  # seconds for the nursery to end
_SHORT_LIFE = 60.0  # seconds: a nursery that dies sooner may die of what it does
_SHORT_LIVES = 3  # in a row, after which no other one is started

_decode = msgspec.msgpack.Decoder(Born | Failed | Died).decode


def packed(make: Callable[[], Any]) -> bytes:
    """Return a function as bytes; `__main__` and local functions go by value."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(make)
    except Exception as error:  # whatever its parts raise when they are pickled
        problem = f"the job cannot be sent to the workers: {error}"
        advice = "opening files, locks and connections inside the job itself"
        raise EngineFailed(problem, advice) from None
    if len(data) > LARGEST_JOB:
        problem = (
            f"the job is {len(data) / 2**30:.3g} GiB long once it is pickled, "
            f"and {LARGEST_JOB / 2**30:.3g} GiB is the most"
        )
        advice = "reading large data inside the job instead of taking it along"
        raise EngineFailed(problem, advice)
    return data


def script_arguments() -> list[bytes]:
    """Return `sys.argv` for `Prepare`."""
    return [os.fsencode(str(argument)) for argument in sys.argv]


class Restarts:
    """Decides whether a nursery that has died may be started again.

    Deaths that are far apart are accidents; several short lives in a row have a cause
    that the next life would die of, too.
    """

    def __init__(self) -> None:
        self._born: float | None = None
        self._short_lives = 0

    def begin(self, at: float) -> None:
        """Begin a life.

        Args:
            at: Seconds on a clock that never goes back.

        Raises:
            EngineFailed: If the lives before were too short.
        """
        if self._born is not None:
            is_short = at - self._born < _SHORT_LIFE
            self._short_lives = self._short_lives + 1 if is_short else 0
        if self._short_lives >= _SHORT_LIVES:
            problem = (
                f"the process that forks the workers has died {_SHORT_LIVES} times, "
                f"each within {_SHORT_LIFE:g} s of its start"
            )
            raise EngineFailed(problem, "looking for what kills it: memory, perhaps")
        self._born = at


class Children:
    """A nursery process and the workers it has forked.

    Args:
        environment: Variables for it and its workers; None: those of this process.

    Attributes:
        channel: What it says; frames for `notices`.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if unpacking.is_going_on:
            problem = "training was started by a module that the workers import"
            advice = 'calling train under `if __name__ == "__main__":` there'
            raise EngineFailed(problem, advice)
        ours, theirs = socket.socketpair()
        with theirs:
            # The nursery inherits the mask: while it imports, SIGUSR1 would end it.
            warned = {signal.SIGUSR1}
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, warned)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _program(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={
                        **(os.environ if environment is None else environment),
                        **dict.fromkeys(THREAD_VARIABLES, "1"),
                    },
                    start_new_session=True,  # Ctrl-C reaches the root alone
                )
            except BaseException:
                ours.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._link = ours
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        """The nursery's process id."""
        return self._process.pid

    def prepare(self, prepare: Prepare, memory: int) -> None:
        """Hand over the job, and the shared memory as a descriptor."""
        self._send(prepare, memory)

    def spawn(self, worker: int, life: int, faults: Sequence[Fault]) -> Channel:
        """Ask for a worker; return our end of its socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._send(Spawn(worker, life, list(faults)), theirs.fileno())
        return Channel(ours)

    def signal(self, worker: int, life: int, number: signal.Signals) -> None:
        """Send a signal to a worker, unless that life of it is over."""
        self._send(Signal(worker, life, number))

    def notices(self) -> list[Born | Failed | Died]:
        """Return what the nursery has said since."""
        return [_decode(frame) for frame in self.channel.receive()]

    def _send(self, message: Prepare | Spawn | Signal, *descriptors: int) -> None:
        frame = msgspec.msgpack.encode(message)
        self._link.setblocking(True)
        try:
            head = _HEAD.pack(len(frame))
            socket.send_fds(self._link, [head], list(descriptors))
            self._link.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is gone, which `channel` says too
        finally:
            self._link.setblocking(False)

    def close(self) -> None:
        """End the nursery, all workers, and whatever those have started."""
        self.channel.close()
        if self._process.returncode is not None:
            return
        deadline = time.monotonic() + _PATIENCE
        while not self._has_ended() and time.monotonic() < deadline:
            time.sleep(0.001)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads their group
        self._process.wait()

    def _has_ended(self) -> bool:
        """Whether it has, without letting its number go: the group still bears it."""
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, how) is not None


def _program(fd: int) -> str:
    """Return what the nursery runs: with the root's modules, wherever they are.

    Not `python -m`: that puts the current folder first in `sys.path`, and workers would
    import other modules than the root.
    """
    path = [os.path.abspath(entry) for entry in sys.path]
    return (
        f"import sys; sys.path[:] = {path!r}; "
        f"from codedgrad.engines.host.nursery import main; main({fd})"
    )
