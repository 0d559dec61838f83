"""A host: the workers of one machine, their nursery, and the memory that they share.

```text
            take(Spawn, Signal, Gives)           frames             fork
  agent  -----------------------------> Host --- a socket ---> worker  <--- nursery
         <-----------------------------          a worker
            Heard, Over, Died, ...
```

It decides nothing and knows nothing of steps: it starts the lives of workers that it is
told to start, hands frames on, and says how lives end. The root's process has a host
for its own machine; on every other machine an agent has one (`remote/agent.py`). So
there is one code for workers, wherever they are.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from codedgrad.engines.host.file_descriptors import enough_descriptors
from codedgrad.engines.host.memory_layout import Memory
from codedgrad.engines.host.nursery_client import Children, Restarts
from codedgrad.engines.host.nursery_messages import (
    Born,
    Died,
    Failed,
    Prepare,
    Signal,
    Spawn,
)
from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.host.wire import Channel
from codedgrad.errors import EngineFailed, ProtocolError

NURSERY_DIED = "the process that forks the workers has died"
"""Why all workers of a host have ended at once."""


class Gives(Struct, frozen=True, tag=True):
    """Orders for a life of a worker: one frame of `wire`."""

    worker: int
    life: int
    frame: bytes


class Heard(Struct, frozen=True, tag=True):
    """What a life of a worker has said: one frame of `wire`."""

    worker: int
    life: int
    frame: bytes


class Over(Struct, frozen=True, tag=True):
    """Lives of workers have said their last; several at once if one cause ended them.

    Attributes:
        lives: (worker, life) pairs.
        cause: Why, if it is known already; otherwise `Died` says it.
        garbled: Whether the worker was ended for a frame that made no sense.
    """

    lives: tuple[tuple[int, int], ...]
    cause: str = ""
    garbled: bool = False


Order: TypeAlias = Spawn | Signal | Gives
"""What a host is told to do."""

Report: TypeAlias = Born | Failed | Died | Heard | Over
"""What a host says."""

_Life: TypeAlias = tuple[int, int]  # (worker, life)


class Host:
    """The workers of this machine.

    Args:
        prepare: What the nursery is to get ready.
        shared: Memory of the shape that `prepare` says.
        reactor: Watches the sockets of workers and nursery.
        say: Is told what happens, in order. It must not lead back to whatever closes
            this host when it is forgotten.

    Attributes:
        memory: What the workers share with this process.
    """

    def __init__(
        self,
        prepare: Prepare,
        shared: Shared,
        reactor: Reactor,
        say: Callable[[Report], object],
    ) -> None:
        self.memory = Memory(shared, prepare.shape)
        self._prepare, self._fd = prepare, shared.fd
        self._reactor = reactor
        self._say = say
        # A nursery that is started again must not see what the script sets meanwhile.
        self._environment = dict(os.environ)
        self._lives: dict[_Life, Channel] = {}
        self._restarts = Restarts()
        self._owner = os.getpid()
        self._is_closed = self._has_nursery = False
        try:
            self._new_nursery()
        except BaseException:
            self.memory.close()  # or every attempt would cost a descriptor
            raise

    @property
    def nursery(self) -> int:
        """The process id of the nursery."""
        return self._children.pid

    def take(self, order: Order) -> None:
        """Carry out an order; never waits for a worker."""
        match order:
            case Spawn(worker, life, faults):
                with enough_descriptors(len(self._prepare.workers)):
                    channel = self._children.spawn(worker, life, faults)
                one = worker, life
                self._lives[one] = channel
                read, write = partial(self._hear, one), partial(self._flush, one)
                self._reactor.watch(channel.link, read, write)
            case Signal(worker, life, number, pid):
                if not pid:
                    self._children.signal(worker, life, signal.Signals(number))
                elif (worker, life) in self._lives:
                    # Not by way of the nursery: an order that follows would be faster.
                    with suppress(ProcessLookupError):  # its end is about to be heard
                        os.kill(pid, number)
            case Gives(worker, life, frame):
                channel_ = self._lives.get((worker, life))
                if channel_ is not None:
                    channel_.send(frame)
                    self._reactor.want_room(channel_.link, channel_.is_full)

    def close(self) -> None:
        """End all workers and let go of the memory; may be called twice."""
        if self._is_closed or os.getpid() != self._owner:
            return  # in a fork of the owner: none of this is its own
        self._is_closed = True
        for one in list(self._lives):
            self._forget(one)
        self._reactor.forget(self._children.channel.link)
        self._children.close()
        self.memory.close()

    # -- workers ---------------------------------------------------------------------

    def _flush(self, one: _Life) -> None:
        channel = self._lives[one]
        channel.flush()
        self._reactor.want_room(channel.link, channel.is_full)

    def _hear(self, one: _Life) -> None:
        channel = self._lives[one]
        try:
            for frame in channel.receive():
                self._say(Heard(*one, frame))
        except ProtocolError as error:
            # No later frame can be told from this one's rubbish. The process is killed
            # before it has a successor, which would share its rows.
            self._children.signal(*one, signal.SIGKILL)
            self._end([one], str(error), garbled=True)
            return
        if not channel.is_open:
            self._end([one])

    def _end(self, lives: list[_Life], cause: str = "", garbled: bool = False) -> None:
        for one in lives:
            self._forget(one)
        if lives:
            self._say(Over(tuple(lives), cause, garbled))

    def _forget(self, one: _Life) -> None:
        channel = self._lives.pop(one)
        self._reactor.forget(channel.link)
        channel.close()

    # -- the nursery -----------------------------------------------------------------

    def _new_nursery(self) -> None:
        self._restarts.begin(time.monotonic())
        with enough_descriptors(len(self._prepare.workers)):
            self._children = Children(self._environment)
        self._reactor.watch(self._children.channel.link, self._hear_nursery)
        self._children.prepare(self._prepare, self._fd)

    def _hear_nursery(self) -> None:
        children = self._children
        try:
            notices = children.notices()
        except ProtocolError:  # reading from it was interrupted: a death may be missing
            notices, children.channel.is_open = [], False
        for notice in notices:
            if isinstance(notice, Died):
                one = notice.worker, notice.life
                if one in self._lives:
                    self._drain(one)
            self._has_nursery |= isinstance(notice, Born)
            self._say(notice)
        if not children.channel.is_open:
            self._reactor.forget(children.channel.link)
            # Ends its workers as well: without a nursery their deaths are not reported,
            # and stopped ones would outlive the root.
            children.close()
            if not self._has_nursery:
                problem = "the process that forks the workers could not start"
                raise EngineFailed(problem, "reading what it has printed")
            for one in list(self._lives):
                self._take_last_words(one)
            self._end(list(self._lives), NURSERY_DIED)
            self._new_nursery()

    def _drain(self, one: _Life) -> None:
        """End the life of a process that has ended.

        Its socket may still be open: what a worker has started has a copy of it.
        """
        self._take_last_words(one)
        self._end([one])

    def _take_last_words(self, one: _Life) -> None:
        with suppress(ProtocolError):  # it was killed in the middle of a frame
            for frame in self._lives[one].receive():
                self._say(Heard(*one, frame))
