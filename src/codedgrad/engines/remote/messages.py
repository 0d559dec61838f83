"""What the root and the agents of other hosts say to each other, as msgpack.

A frame may have a body behind it: the numbers of a vector, which are read straight into
the memory where they are wanted. Decoding a frame executes nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from codedgrad.engines.host.changed_stretches import Stretches
from codedgrad.engines.host.host import Gives, Heard, Over
from codedgrad.engines.host.memory_layout import MemoryShape
from codedgrad.engines.host.nursery_messages import (
    Born,
    Died,
    Failed,
    Setup,
    Signal,
    Spawn,
)
from codedgrad.engines.host.wire import checked


class Where(Struct, frozen=True):
    """Where the door of an agent is.

    Attributes:
        number: By which the launcher knows the agent's process.
        life: Which life of it.
        addresses: Of its machine, to be tried in turn.
        port: Of the door.
    """

    number: int
    life: int
    addresses: tuple[str, ...]
    port: int


class Present(Struct, frozen=True, tag=True):
    """An agent is there: its first word.

    Attributes:
        machine: What only processes of the same machine say.
        name: The name of the machine, for people.
        pid: Of the agent.
        cores: That its workers may use, all of them together.
        where: Its door, for other agents.
        problem: Why it has no door; empty: it has one.
        advice: What to try then.
    """

    machine: str
    name: str
    pid: int
    cores: float
    where: Where
    problem: str
    advice: str


class Open(Struct, frozen=True, tag=True):
    """Make a host. The pickled job is the body: it may be longer than a frame.

    Attributes:
        number: Of the host, from 1.
        memory: A number for the memory of this host, which no other one has.
        setup: What all hosts of the run are told, without the job.
        path: Where the root finds modules, in its order; what is here, too, is used.
        shape: Of the host's memory.
        workers: Their numbers.
        threads: That each computes with; 0: the cores here divided by the workers.
    """

    number: int
    memory: int
    setup: Setup
    path: list[str]
    shape: MemoryShape
    workers: list[int]
    threads: int


class Opened(Struct, frozen=True, tag=True):
    """A host is there, whose workers compute with so many threads each."""

    threads: int


class Broken(Struct, frozen=True, tag=True):
    """A host cannot be made, or had to be ended; the agent hangs up next."""

    reason: str


class Deliver(Struct, frozen=True, tag=True):
    """Stretches of the parameters are the body, for a version in the host's memory."""

    version: int
    stretches: Stretches


class Fetch(Struct, frozen=True, tag=True):
    """Send the sum of some rows to the root: `Vector`, with this key."""

    key: int
    rows: tuple[int, ...]


class Carry(Struct, frozen=True, tag=True):
    """Send the sum of some rows to a row in the memory of another host: `Put` there."""

    key: int
    rows: tuple[int, ...]
    to: Where
    memory: int
    row: int


class Put(Struct, frozen=True, tag=True):
    """A sum is the body; it goes to a row, and `Carried` tells the root so.

    From another agent it names the memory: it may have been on its way since before
    this host was made, for an earlier one.
    """

    key: int
    row: int
    memory: int


class Vector(Struct, frozen=True, tag=True):
    """A sum that was fetched is the body."""

    key: int


class Carried(Struct, frozen=True, tag=True):
    """A sum of another host is in its row; or its sender cannot say so, and why.

    The agent that has read the sum says so to the root and to the sender.
    """

    key: int
    problem: str = ""


class Refuse(Struct, frozen=True, tag=True):
    """Write the `Put` with this key to no memory, whenever it comes: `Refused`."""

    key: int


class Refused(Struct, frozen=True, tag=True):
    """From now on that sum is written to no memory here."""

    key: int


class End(Struct, frozen=True, tag=True):
    """End the host."""


class Ended(Struct, frozen=True, tag=True):
    """The host has ended: nothing that follows is about it."""


class Quit(Struct, frozen=True, tag=True):
    """End the process: the root needs no more hosts."""


Down: TypeAlias = (
    Open | Spawn | Signal | Gives | Deliver | Fetch | Carry | Put | Refuse | End | Quit
)
"""From the root to an agent; `Put` also between agents."""

Up: TypeAlias = (
    Present
    | Opened
    | Broken
    | Born
    | Failed
    | Died
    | Heard
    | Over
    | Vector
    | Carried
    | Refused
    | Ended
)
"""From an agent to the root."""

encode = msgspec.msgpack.Encoder().encode
decode_down = checked(msgspec.msgpack.Decoder(Down).decode)
decode_up = checked(msgspec.msgpack.Decoder(Up).decode)
