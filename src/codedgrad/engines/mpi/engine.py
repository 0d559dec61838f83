"""The MPI engine: `mpirun -n 9 python -m codedgrad.engines.mpi train.py`.

```text
  mpirun -+- process 0: train.py, the root
          +- process 1: agent 0 -- nursery -- worker 0     on whichever host
          +- process 2: agent 1 -- nursery -- worker 1     mpirun has put it
```

The script runs in the first process only. Workers are processes of their own beside
the others: one that dies is forked again without MPI noticing. What MPI does when one
of its own processes dies is up to MPI: it ends the job, unless it was told otherwise
(`--with-ft ulfm`, Open MPI 5).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stretches, pack
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS
from codedgrad.engines.host.nearby import Where
from codedgrad.engines.mpi.link import BODY, FETCHED, MpiLink
from codedgrad.engines.mpi.messages import (
    Alert,
    Broken,
    Carry,
    Deliver,
    End,
    Ended,
    Fetch,
    Open,
    Opened,
    Said,
    Take,
    Tell,
    Took,
    decode_up,
)
from codedgrad.engines.mpi.world import World, the_world
from codedgrad.engines.remote.agent import Setup
from codedgrad.engines.remote.bell import Bell, Rope
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.transport import (
    Carried,
    Fetched,
    Joined,
    Lost,
    Notice,
    Spoke,
)
from codedgrad.errors import ProtocolError

_LONGEST = 1e-3  # seconds between looks: a step ends as late as the root looks
_PATIENCE = 30.0  # seconds without any news until agents are not waited for any more


class Mpi(Remote):
    """Workers beside the processes that mpirun has started.

    Args:
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway; imported once for all.
        share_memory: Whether workers on the root's own host share its memory, so that
            nothing need be sent between them; False: all is sent, as between hosts.
    """

    name = "mpi"

    def __init__(
        self,
        *,
        open_segments: int = OPEN_SEGMENTS,
        preload: Sequence[str] = (),
        share_memory: bool = True,
    ) -> None:
        super().__init__(
            MpiTransport(share_memory),
            open_segments=open_segments,
            preload=preload,
            share_memory=share_memory,
        )


class MpiTransport:
    """Reaches agents in the other processes of the job; see `transport`.

    Args:
        rings: Whether those on this host are to be woken by bells, and wake the root.
    """

    name = "mpi"
    restarts = False

    def __init__(self, rings: bool = True) -> None:
        self._rings = rings
        self._bell = Bell()
        self._far: set[int] = set()  # agents that cannot ring
        self._owner = os.getpid()
        self._world: World | None = None
        self._ranks: list[int] = []  # by agent
        self._here: set[int] = set()  # agents that are not lost
        self._serving: set[int] = set()  # those whose process is to be told of the end
        self._notices: list[Notice] = []
        self._carries: dict[int, tuple[int, int]] = {}  # key -> (agent, to)
        self._pool = _Pool()
        self._published: NDArray[Any] | None = None
        self._packed: dict[Stretches, NDArray[Any]] = {}

    def open(self, setup: bytes, agents: int) -> None:
        """Begin with agents, in as many processes."""
        world = the_world(agents)
        self._shape = msgspec.msgpack.decode(setup, type=Setup).prepare.shape
        self._link = MpiLink(world.comm, self._lost, _LONGEST)
        self._ranks = world.enter(self, agents)
        self._world = world
        self._here, self._serving = set(range(agents)), set(range(agents))
        self._far = set(range(agents))
        bell = self._bell.where if self._rings else None
        body = np.frombuffer(setup, np.uint8)
        for agent, rank in enumerate(self._ranks):
            self._listen(agent)
            self._link.send(rank, Open(agent, len(setup), bell))
            self._link.give(rank, BODY, body)

    # -- what is sent ----------------------------------------------------------------

    def send(self, agent: int, frame: bytes) -> None:
        """Let an agent `take` a frame."""
        self._link.send(self._ranks[agent], Tell(frame))

    def publish(self, parameters: NDArray[Any]) -> None:
        """Note the parameters of a new step."""
        self._published = parameters
        self._packed.clear()

    def deliver(self, agent: int, slot: int, stretches: Stretches) -> None:
        """Copy stretches of what was published to `parameters(slot)` of an agent."""
        if self._published is None:
            raise ProtocolError("nothing was published that could be delivered")
        if stretches not in self._packed:
            size = sum(end - start for start, end in stretches)
            packed = self._pool.vector(size, self._shape.parameters_dtype)
            pack(self._published, stretches, packed)
            self._packed[stretches] = packed
        rank, at = self._ranks[agent], 0
        self._link.send(rank, Deliver(slot, stretches))
        for start, end in stretches:
            piece = self._packed[stretches][at : at + end - start]
            self._link.give(rank, BODY, piece)
            at += end - start

    def alert(self, agent: int) -> None:
        """Let an agent know that a sum of its will soon be asked for."""
        self._link.send(self._ranks[agent], Alert())

    def fetch(self, agent: int, key: int, rows: tuple[int, ...]) -> None:
        """Bring `sum(rows)` of an agent to the root."""
        vector = self._pool.vector(self._shape.row, self._shape.dtype)

        def done() -> None:
            self._say(Fetched(agent, key, vector))

        self._link.take(self._ranks[agent], FETCHED, vector, done)
        self._link.send(self._ranks[agent], Fetch(rows))

    def carry(
        self, agent: int, key: int, rows: tuple[int, ...], to: int, row: int
    ) -> None:
        """Bring `sum(rows)` of an agent to `row(row)` of another."""
        self._carries[key] = agent, to
        self._link.send(self._ranks[to], Take(key, self._ranks[agent], row))
        self._link.send(self._ranks[agent], Carry(rows, self._ranks[to]))
        if not {agent, to} <= self._here:
            self._carried(key, arrived=False)

    # -- what is heard ---------------------------------------------------------------

    def poll(self, timeout: float) -> list[Notice]:
        """Return what has happened; waits up to `timeout` seconds for something."""
        deadline = time.monotonic() + timeout
        while True:
            self._progress()
            left = deadline - time.monotonic()
            if self._notices or left <= 0:
                notices, self._notices = self._notices, []
                return notices
            self._bell.wait(min(left, self._link.pause()))

    def _progress(self) -> None:
        if self._bell.was_rung():
            self._link.was_rung()
        self._link.progress()

    def _listen(self, agent: int) -> None:
        self._link.listen(self._ranks[agent], partial(self._heard, agent))

    def _heard(self, agent: int, frame: bytes) -> None:
        match decode_up(frame):
            case Opened(near, bell):
                self._met(agent, bell)
                self._say(Joined(agent, near))
            case Broken(reason):
                self._lose(agent, reason)
            case Said(said):
                self._say(Spoke(agent, said))
            case Took(key, arrived):
                self._carried(key, arrived)
            case Ended():
                self._serving.discard(agent)
                return  # there is nothing more to hear
        self._listen(agent)

    def _met(self, agent: int, bell: Where | None) -> None:
        rope = Rope.reach(bell)
        self._link.tie(self._ranks[agent], rope)
        if rope is not None:
            self._far.discard(agent)
            self._link.is_rung_for = not self._far

    def _carried(self, key: int, arrived: bool) -> None:
        if key in self._carries:
            agent, to = self._carries.pop(key)
            self._say(Carried(agent, key, to, arrived))

    def _lost(self, rank: int, reason: str) -> None:
        if rank in self._ranks:
            agent = self._ranks.index(rank)
            self._serving.discard(agent)
            self._lose(agent, f"MPI says: {reason}")

    def _lose(self, agent: int, reason: str) -> None:
        for key, ends in list(self._carries.items()):
            if agent in ends:
                self._carried(key, arrived=False)
        self._say(Lost(agent, reason))
        self._here.discard(agent)

    def _say(self, notice: Notice) -> None:
        if notice.agent in self._here:
            self._notices.append(notice)

    # -- the end ---------------------------------------------------------------------

    def close(self) -> None:
        """End all agents, when what is on its way to and from them has arrived."""
        if os.getpid() != self._owner:
            return  # a fork of the root
        world, self._world = self._world, None
        try:
            if world is not None and not world.is_over:
                self._end(world)
        finally:
            self._bell.close()

    def _end(self, world: World) -> None:
        try:
            for agent in sorted(self._serving):
                self._link.send(self._ranks[agent], End())
            while self._serving and not world.is_ending:
                self._progress()
                if self._link.quiet > _PATIENCE:
                    world.stuck |= {self._ranks[agent] for agent in self._serving}
                    break
                self._bell.wait(self._link.pause())
        finally:
            self._link.untie()
            world.leave(self)


class _Pool:
    """Memory for vectors, used again when nobody has a vector in it any more.

    New memory of this size comes from the system page by page, which takes longer than
    to fill it.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[NDArray[np.uint8]]] = {}

    def vector(self, length: int, dtype: str) -> NDArray[Any]:
        """Return a vector; what it holds is left over from another."""
        size = length * np.dtype(dtype).itemsize
        free = self._free.setdefault(size, [])
        memory = free.pop() if free else np.empty(size, np.uint8)
        # What is cut from the vector keeps the vector: its base is not an array.
        vector: NDArray[Any] = np.frombuffer(memory.data, dtype)
        weakref.finalize(vector, free.append, memory)
        return vector
