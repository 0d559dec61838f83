"""The root's side of the nursery: start it, ask it for workers, hear of deaths."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import codedgrad
from codedgrad.engines.faults import Fault
from codedgrad.engines.requests import Born, Died, Failed, Prepare, Signal, Spawn
from codedgrad.engines.wire import Channel
from codedgrad.errors import EngineFailed

__all__ = ["Children", "packed"]

_HEAD = struct.Struct("<Q")
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_PATIENCE = 10.0  # seconds for the nursery to end

_decode = msgspec.msgpack.Decoder(Born | Failed | Died).decode


def packed(make: Callable[[], Any]) -> bytes:
    """Return a function as bytes; `__main__` and local functions go by value."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(make)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        problem = f"the job cannot be sent to the workers: {error}"
        advice = "opening files, locks and connections inside the job itself"
        raise EngineFailed(problem, advice) from None
    return data


class Children:
    """A nursery process and the workers it has forked.

    Attributes:
        channel: What it says; frames for `notices`.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            nursery = [sys.executable, "-m", "codedgrad.engines.nursery"]
            self._process = subprocess.Popen(
                [*nursery, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C reaches the root alone
            )
        self._link = ours
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        """The nursery's process id."""
        return self._process.pid

    def prepare(self, prepare: Prepare, memory: int) -> None:
        """Hand over the job and the shared memory."""
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

    def close(self) -> bool:
        """End the nursery, and with it all workers; harmless if repeated.

        Returns:
            Whether it ended by itself. One that was killed has left its workers, and
            those that are stopped or busy do not see our end close.
        """
        self.channel.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # stopped, say
            self._process.kill()
            self._process.wait()
        return self._process.returncode == 0


def _environment() -> dict[str, str]:
    """Return the nursery's: one thread a process, and this very codedgrad."""
    here = str(Path(codedgrad.__file__).parents[1])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": path}
