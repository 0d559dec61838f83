"""What the root and the other processes of MPI say to each other, as msgpack."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from codedgrad.engines.host.changed_stretches import Stretches
from codedgrad.engines.host.nearby import Where
from codedgrad.engines.remote.agent import Near


class Open(Struct, frozen=True, tag=True):
    """Make an agent; its set-up, of so many bytes, comes next.

    Whoever can reach the bell of the root is to ring it.
    """

    number: int
    size: int
    bell: Where | None


class Tell(Struct, frozen=True, tag=True):
    """A frame for `Agent.take`."""

    frame: bytes


class Deliver(Struct, frozen=True, tag=True):
    """Stretches of the parameters come next, one after the other."""

    slot: int
    stretches: Stretches


class Alert(Struct, frozen=True, tag=True):
    """A sum will soon be asked for: look often."""


class Fetch(Struct, frozen=True, tag=True):
    """Send a sum to the root."""

    rows: tuple[int, ...]


class Carry(Struct, frozen=True, tag=True):
    """Send a sum to another process, which is told to take it."""

    rows: tuple[int, ...]
    to: int


class Take(Struct, frozen=True, tag=True):
    """Take a sum from another process, which is told to send it."""

    key: int
    source: int
    row: int


class End(Struct, frozen=True, tag=True):
    """End the agent, when all that was asked for is sent and taken."""


class Quit(Struct, frozen=True, tag=True):
    """End the process; tidily, or without a word because others are missing."""

    tidily: bool


class Opened(Struct, frozen=True, tag=True):
    """An agent is there, and shares or offers to share something.

    If the root's bell was in reach, here is its own.
    """

    near: Near
    bell: Where | None


class Broken(Struct, frozen=True, tag=True):
    """An agent could not be made."""

    reason: str


class Said(Struct, frozen=True, tag=True):
    """A frame of `Agent.poll`."""

    frame: bytes


class Took(Struct, frozen=True, tag=True):
    """A sum of another process is there; or it never will be."""

    key: int
    arrived: bool


class Ended(Struct, frozen=True, tag=True):
    """An agent has ended: its last word."""


Down: TypeAlias = Open | Tell | Deliver | Alert | Fetch | Carry | Take | End | Quit
Up: TypeAlias = Opened | Broken | Said | Took | Ended

encode = msgspec.msgpack.Encoder().encode
decode_down = msgspec.msgpack.Decoder(Down).decode
decode_up = msgspec.msgpack.Decoder(Up).decode
