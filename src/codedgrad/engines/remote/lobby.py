"""Where the agents of other hosts are met: the root's door, and those that have come.

A launcher has a lobby as long as its agents may call: that of Ray ends with the engine,
those of MPI and torchrun serve one engine after the other.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.agent import Invitation
from codedgrad.engines.remote.connection import Connection, Sink, bytes_of
from codedgrad.engines.remote.door import Door, parse_ports
from codedgrad.engines.remote.handshake import ROOT, Peer, RunKey
from codedgrad.engines.remote.machine import reachable_at
from codedgrad.engines.remote.messages import (
    Down,
    Present,
    Up,
    Vector,
    decode_up,
    encode,
)
from codedgrad.errors import ProtocolError


class Gone(Struct, frozen=True):
    """The connection to an agent has ended, with its host; and why."""

    reason: str


class Lobby:
    """The root's side of all connections to agents.

    Args:
        key: Of the run.
        interface: Where the root and the agents listen: the name of an interface or an
            address; None: at all interfaces.
        ports: At which: `"FIRST-LAST"` or (first, last); None: any.

    Attributes:
        reactor: Waits for the agents.
        links: To those that are present, by the numbers that their launcher knows.
        present: Called with every link to an agent that has come.
    """

    def __init__(
        self,
        key: RunKey,
        interface: str | None = None,
        ports: str | tuple[int, int] | None = None,
    ) -> None:
        self.reactor = Reactor()
        self.links: dict[int, AgentLink] = {}
        self.present: Callable[[AgentLink], object] | None = None
        addresses, address = reachable_at(interface)
        numbers = parse_ports(ports)
        try:
            self._door = Door(self.reactor, key, ROOT, self._admit, address, numbers)
        except BaseException:
            self.reactor.close()
            raise
        name = None if interface in addresses else interface
        self.invitation = Invitation(key, addresses, self._door.port, name, numbers)

    def close(self) -> None:
        """End all connections; may be called twice."""
        self._door.close()
        for link in list(self.links.values()):
            link.connection.close()
        self.links.clear()
        self.reactor.close()

    def _admit(self, link: socket.socket, peer: Peer) -> None:
        AgentLink(self, link, peer)

    def _come(self, link: AgentLink) -> None:
        before = self.links.get(link.number)
        if before is not None:  # its end has not been heard of: a link was cut
            before.connection.cut("its agent has called again")
        self.links[link.number] = link
        if self.present is not None:
            self.present(link)

    def _go(self, link: AgentLink) -> None:
        if self.links.get(link.number) is link:
            del self.links[link.number]


class AgentLink:
    """A connection to an agent.

    Attributes:
        number: By which the launcher knows the agent.
        connection: To it.
        said: What it has said of itself.
        hear: Called with every message of the agent; None: no engine uses it now.
    """

    said: Present

    def __init__(self, lobby: Lobby, link: socket.socket, peer: Peer) -> None:
        self.number = peer.host
        self.hear: Callable[[Any], object] | None = None
        self._lobby = lobby
        self._sinks: dict[int, NDArray[Any]] = {}  # by key, where sums are wanted
        self._is_present = False
        self._vector: Vector | None = None  # whose body is coming
        self.connection = Connection(
            link, peer, lobby.reactor, self.frame, self.gone, self.body
        )

    def send(
        self,
        message: Down,
        body: Sequence[memoryview] = (),
        done: Callable[[], None] | None = None,
    ) -> None:
        """Put a message on its way; see `Connection.send`."""
        self.connection.send(encode(message), body, done)

    def expect(self, key: int, sink: NDArray[Any]) -> None:
        """Let the sum with this key be written to some memory when it comes."""
        self._sinks[key] = sink

    # -- what the agent says ---------------------------------------------------------

    def frame(self, connection: Connection, frame: bytes, size: int) -> Sink:
        """Take a frame of the agent; return where its body goes."""
        message: Up = decode_up(frame)
        if isinstance(message, Present):
            if not self._is_present:
                self._is_present, self.said = True, message
                self._lobby._come(self)
        elif not self._is_present:
            raise ProtocolError("it does not say who it is")
        elif isinstance(message, Vector):
            if message.key not in self._sinks:
                raise ProtocolError("a sum comes that was not asked for")
            self._vector = message
            return [bytes_of(self._sinks[message.key])]
        else:
            self._tell(message)
        return []

    def body(self, connection: Connection) -> None:
        """Note that a sum is there."""
        vector, self._vector = self._vector, None
        assert vector is not None  # only sums have bodies
        del self._sinks[vector.key]
        self._tell(vector)

    def gone(self, connection: Connection, reason: str) -> None:
        """Note that the agent is gone."""
        self._lobby._go(self)
        self._tell(Gone(reason))

    def _tell(self, message: Any) -> None:
        if self.hear is not None:
            self.hear(message)


class Pool:
    """Memory for vectors, used again once no reference to the vector is left.

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
