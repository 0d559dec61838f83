"""What is between a transport and a worker: a nursery, a worker, shared memory.

An agent hands on what the root tells its worker, and the other way round. The worker is
a process of its own, so that one that computes, hangs, or is killed keeps nobody from
hearing orders, and its memory outlives it.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from codedgrad.engines.host.file_descriptors import enough_descriptors
from codedgrad.engines.host.memory_layout import Memory
from codedgrad.engines.host.nearby import Where
from codedgrad.engines.host.nursery_client import Children, Restarts
from codedgrad.engines.host.nursery_messages import (
    Born,
    Died,
    Failed,
    Prepare,
    Signal,
    Spawn,
)
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.host.wire import Channel

_ELSEWHERE = -1  # no life has this number


class Setup(Struct, frozen=True):
    """What an agent is made with.

    Attributes:
        prepare: For its nursery.
        path: Where the root finds modules, in its order; what is here, too, is used.
        published: Where the root has the parameters, of the shape that `prepare` says,
            for those who are on its host; None: nothing is shared.
    """

    prepare: Prepare
    path: list[str]
    published: Where | None = None


class Near(Struct, frozen=True):
    """What an agent and the root can share, if they are on one host.

    Attributes:
        rows: Where the agent has its rows; None: they are not offered.
        has_parameters: Whether it has reached those of the root.
    """

    rows: Where | None = None
    has_parameters: bool = False


class Gives(Struct, frozen=True, tag=True):
    """Orders for a life of the worker: a frame as the local engine would send it."""

    life: int
    frame: bytes


class Heard(Struct, frozen=True, tag=True):
    """What a life of the worker has said: a frame."""

    life: int
    frame: bytes


class Over(Struct, frozen=True, tag=True):
    """A life of the worker has said its last."""

    life: int


Down: TypeAlias = Spawn | Signal | Gives
Up: TypeAlias = Born | Failed | Died | Heard | Over

encode_down = msgspec.msgpack.Encoder().encode
decode_up = msgspec.msgpack.Decoder(list[Up]).decode
_decode_down = msgspec.msgpack.Decoder(Down).decode
_encode_up = msgspec.msgpack.Encoder().encode


class Agent:
    """A worker and what it needs, for a root that is elsewhere.

    `take` and `poll` may be called from two threads, each always from the same.

    Args:
        setup: A `Setup`, as msgpack.
        number: Of the worker.

    Attributes:
        near: What it shares with the root, or offers to.
        script: The program that the root runs.
    """

    def __init__(self, setup: bytes, number: int) -> None:
        self.number = number
        with enough_descriptors(1):
            self._set_up(setup)

    def _set_up(self, setup: bytes) -> None:
        told = msgspec.msgpack.decode(setup, type=Setup)
        known = set(sys.path)
        sys.path += [p for p in told.path if p not in known and os.path.isdir(p)]
        shape = told.prepare.shape
        shared = Shared(shape.size, shape.least)
        published = Shared.reach(told.published)
        self.script = told.prepare.script
        self._prepare = told.prepare
        if published is None:
            self._prepare = msgspec.structs.replace(told.prepare, published=None)
        self._memory = Memory(shared, shape)
        self._shared = [shared] if published is None else [shared, published]
        rows = None if told.published is None else shared.where
        self.near = Near(rows, published is not None)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._lives: dict[int, Channel] = {}
        self._restarts = Restarts()
        self._is_closed = False
        self._new_nursery()

    # -- vectors ---------------------------------------------------------------------

    def parameters(self, slot: int) -> NDArray[Any]:
        """Return where the parameters of a step go, (parameters,)."""
        parameters: NDArray[Any] = self._memory.versions[slot]
        return parameters

    def row(self, number: int) -> NDArray[Any]:
        """Return a row, (message,)."""
        return self._memory.row(number)

    def sum(self, rows: tuple[int, ...]) -> NDArray[Any]:
        """Return the sum of some rows, (message,); of one, that row itself."""
        total = self._memory.row(rows[0])
        for number in rows[1:]:
            total = np.add(total, self._memory.row(number))
        return total

    # -- frames ----------------------------------------------------------------------

    def take(self, frame: bytes) -> None:
        """Take a frame from the root; never waits."""
        with self._lock:
            if self._is_closed:
                return
            match _decode_down(frame):
                case Spawn(worker, life, faults):
                    channel = self._children.spawn(worker, life, faults)
                    self._lives[life] = channel
                    self._selector.register(channel.link, selectors.EVENT_READ, life)
                case Signal(worker, life, number, pid):
                    if pid and life in self._lives:
                        with suppress(ProcessLookupError):  # its end is on its way
                            os.kill(pid, number)
                    else:
                        self._children.signal(worker, life, signal.Signals(number))
                case Gives(life, orders):
                    if life in self._lives:
                        self._lives[life].send(orders)
                        self._watch_writing(life)
            self._nudge()

    def poll(self, timeout: float) -> list[bytes]:
        """Return frames for the root; waits up to `timeout` seconds for one."""
        ready = self._selector.select(timeout)
        ups: list[Up] = []
        with self._lock:
            if self._is_closed:
                return []
            for key, mask in ready:
                if key.fd == self._wake:
                    with suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif key.data is None:
                    ups += self._hear_nursery()
                elif key.data in self._lives:
                    if mask & selectors.EVENT_WRITE:
                        self._lives[key.data].flush()
                        self._watch_writing(key.data)
                    ups += self._hear(key.data)
        return [_encode_up(ups)] if ups else []

    def wait_also_at(self, fd: int) -> None:
        """Let `poll` return, too, when there is something to read elsewhere."""
        self._selector.register(fd, selectors.EVENT_READ, _ELSEWHERE)

    def close(self) -> None:
        """End the worker and let go of the memory."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for channel in self._lives.values():
                channel.close()
            self._children.close()
            self._selector.close()
            os.close(self._wake)
            os.close(self._woken)
            self._memory.close()
            for shared in self._shared:
                shared.close()

    def _nudge(self) -> None:
        """Let a `poll` that waits look again at what it waits for."""
        with suppress(BlockingIOError):
            os.write(self._woken, b"x")

    def _hear(self, life: int) -> list[Up]:
        channel = self._lives[life]
        ups: list[Up] = [Heard(life, frame) for frame in channel.receive()]
        if not channel.is_open:
            self._selector.unregister(channel.link)
            channel.close()
            del self._lives[life]
            ups.append(Over(life))
        return ups

    def _hear_nursery(self) -> list[Up]:
        children = self._children
        ups: list[Up] = list(children.notices())
        if not children.channel.is_open:
            self._selector.unregister(children.channel.link)
            children.close()
            for life in list(self._lives):
                ups += self._hear(life)  # its process is gone
            self._new_nursery()
        return ups

    def _new_nursery(self) -> None:
        self._restarts.begin(time.monotonic())
        self._children = Children()
        self._selector.register(self._children.channel.link, selectors.EVENT_READ)
        descriptors = [shared.fd for shared in self._shared]
        self._children.prepare(self._prepare, *descriptors)

    def _watch_writing(self, life: int) -> None:
        channel = self._lives[life]
        wanted = selectors.EVENT_READ
        if channel.is_full:
            wanted |= selectors.EVENT_WRITE
        if self._selector.get_key(channel.link).events != wanted:
            self._selector.modify(channel.link, wanted, life)
