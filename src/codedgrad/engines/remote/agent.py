r"""An agent: what serves the root on another machine, by one selector loop.

```text
  root --- a connection --- agent --- Host --- workers
                              \------ connections to and from other agents
```

It calls the root, says what the machine has, and makes a `Host` when it is told to. It
decides nothing and computes nothing, so it always has time for an order: a worker that
computes, hangs, or is killed does not delay the orders of another. If the connection is
lost, so is all that the host held: its workers end, and the agent calls again, as a new
life.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.host.cores import threads_per_worker, usable_cores
from codedgrad.engines.host.file_descriptors import enough_descriptors
from codedgrad.engines.host.host import Gives, Host
from codedgrad.engines.host.memory_layout import Memory
from codedgrad.engines.host.nursery_messages import Prepare, Signal, Spawn
from codedgrad.engines.host.process_title import set_title
from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.host.same_job import host_name
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.engines.remote.connection import Connection, Sink, bytes_of
from codedgrad.engines.remote.door import Dial, Door
from codedgrad.engines.remote.handshake import ROOT, Peer, RunKey
from codedgrad.engines.remote.machine import machine, reachable_at
from codedgrad.engines.remote.messages import (
    Broken,
    Carried,
    Carry,
    Deliver,
    End,
    Ended,
    Fetch,
    Open,
    Opened,
    Present,
    Put,
    Quit,
    Refuse,
    Refused,
    Up,
    Vector,
    Where,
    decode_down,
    decode_up,
    encode,
)
from codedgrad.errors import CodedgradError, ProtocolError

_TICK = 1.0  # seconds between looks at calls and at whether the launcher is there
_LONGEST_JOB = 1 << 33  # bytes: what is longer was not meant
_AGAIN = (0.2, 5.0)  # seconds of the first pause between two calls, and of the longest
PATIENCE = 600.0
"""Seconds to call a root whose machine does not answer: a network may be mended."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a launcher hands to its agents only, because the secret of the run is in it.

    Attributes:
        key: Of the run.
        addresses: Of the root, to be tried in turn.
        port: Of the root's door.
        interface: The name of the interface where agents listen for each other; None:
            the one by which they reach the root.
        ports: At which; none: any.
    """

    key: RunKey
    addresses: tuple[str, ...]
    port: int
    interface: str | None = None
    ports: tuple[int, ...] = ()


class RootLost(Exception):
    """The root's process has ended without a word, or cannot be reached.

    Attributes:
        is_refused: Whether its machine answers that no such process listens there.
        has_other_secret: Whether it is there, with another secret than this process.
    """

    def __init__(
        self, reason: str, is_refused: bool = False, has_other_secret: bool = False
    ) -> None:
        super().__init__(reason)
        self.is_refused = is_refused
        self.has_other_secret = has_other_secret


class Agent:
    """Serves a root until the root says that it needs no more hosts.

    Args:
        invitation: From the root.
        number: By which the launcher knows this process.
        cores: That workers here may use; None: those that this process may.
        divides_devices: Whether each worker is to see its share of the GPUs only.
        ends_with_parent: Whether it ends when the process that has started this one
            does, as is right where that is the launcher.
        patience: Seconds to call a root that does not answer.
    """

    def __init__(
        self,
        invitation: Invitation,
        number: int,
        *,
        cores: float | None = None,
        divides_devices: bool = False,
        ends_with_parent: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self.invitation = invitation
        self.number = number
        self.cores = usable_cores() if cores is None else cores
        self.divides_devices = divides_devices
        self.was_admitted = False
        self._parent = os.getppid() if ends_with_parent else None
        self._patience = patience

    @property
    def is_wanted(self) -> bool:
        """Whether the process that has started this one is there, if that matters."""
        return self._parent in (None, os.getppid())

    def serve(self) -> None:
        """Serve life after life, until the root says `Quit`.

        A root that has let a call in may take as long as it likes to answer it: its
        script has not got as far as training. One that lets none in is called for
        `patience` seconds.

        Raises:
            RootLost: If the root ends without saying so, or lets no call in.
        """
        pause, silent_since = _AGAIN[0], time.monotonic()
        while True:
            life = _Connected(self)
            try:
                reason = life.serve()
            finally:
                life.close()
            if life.may_end:
                return
            if life.is_refused or not self.is_wanted:
                raise RootLost(reason, life.is_refused, life.has_other_secret)
            now = time.monotonic()
            self.was_admitted |= life.is_admitted
            if life.is_admitted:
                pause = _AGAIN[0]
            if life.has_reached_root:
                silent_since = now
            if now - silent_since > self._patience:
                raise RootLost(reason)
            time.sleep(pause)
            pause = min(2 * pause, _AGAIN[1])


@dataclass(slots=True, eq=False)
class _Line:
    """A connection to another agent's door, or the orders that wait until there is one.

    Attributes:
        dial: The call, until it is answered.
        connection: Once it is.
        waiting: Orders to send a sum there.
        sent: Keys of sums that were sent and that the other agent has not confirmed.
    """

    dial: Dial | None = None
    connection: Connection | None = None
    waiting: list[Carry] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)


class _Connected:
    """One connection to the root, and all that depends on it."""

    def __init__(self, agent: Agent) -> None:
        self.may_end = self.is_refused = self.is_admitted = False
        invitation = agent.invitation
        self._agent, self._key = agent, invitation.key
        self._reactor = Reactor()
        self._me = Peer(agent.number, secrets.randbits(62) + 1)
        self._door: Door | None = None
        self._reason = ""  # why this life is over
        self._root: Connection | None = None
        self._host: Host | None = None
        self._memory_number = 0  # of the host that is here
        self._job: tuple[Open, NDArray[np.uint8]] | None = None
        self._lines: dict[Peer, _Line] = {}  # to other agents
        self._callers: set[Connection] = set()  # from other agents
        self._puts: dict[Connection, Put] = {}  # whose body is being read
        self._refused: set[int] = set()  # keys of sums that are not to be read
        self._to_root = Dial(
            self._reactor, self._key, self._me, ROOT, invitation.addresses,
            invitation.port, self._met, self._not_met, is_patient=True,
        )  # fmt: skip

    @property
    def has_other_secret(self) -> bool:
        """Whether the root has answered with another secret."""
        return self._to_root.has_other_secret

    @property
    def has_reached_root(self) -> bool:
        """Whether the root's machine has let a call in."""
        return self._to_root.has_connected

    # -- the loop --------------------------------------------------------------------

    def serve(self) -> str:
        """Serve until the connection is over; return why it is."""
        due = time.monotonic() + _TICK
        while not self._reason and not self.may_end:
            try:
                self._reactor.poll(max(0.0, due - time.monotonic()))
            except CodedgradError as error:  # the nursery dies again and again
                self._break(str(error))
            if time.monotonic() >= due:
                due = time.monotonic() + _TICK
                self._look()
                if not self._agent.is_wanted:
                    return "its launcher has ended"
        return self._reason

    def close(self) -> None:
        """End the host, and let go of everything."""
        self._end_host()
        for dial in self._dials():
            dial.close()
        if self._door is not None:
            self._door.close()
        if self._root is not None:
            self._root.close()
        self._reactor.close()

    def _look(self) -> None:
        for dial in self._dials():
            dial.look()
        for connection in self._connections():
            if connection.is_cut():
                connection.cut("its machine does not answer any more")

    def _dials(self) -> list[Dial]:
        lines = [x.dial for x in self._lines.values() if x.dial]
        return [self._to_root, *lines]

    def _connections(self) -> list[Connection]:
        lines = [x.connection for x in self._lines.values() if x.connection]
        return [*lines, *self._callers, *([self._root] if self._root else [])]

    def _met(self, link: Any) -> None:
        self.is_admitted = True
        self._root = Connection(
            link, ROOT, self._reactor, self.frame, self.gone, self.body
        )
        invitation, me, problem, advice = self._agent.invitation, self._me, "", ""
        address, port = str(link.getsockname()[0]), 0
        addresses: tuple[str, ...] = (address,)
        try:
            if invitation.interface is not None:
                addresses, address = reachable_at(invitation.interface)
            self._door = Door(
                self._reactor, self._key, me, self._admit, address, invitation.ports
            )
            port = self._door.port
        except CodedgradError as error:  # there is no such interface, or no port free
            problem, _, advice = str(error).partition("; try ")
        where = Where(me.host, me.life, addresses, port)
        cores = self._agent.cores
        about = machine(), host_name(), os.getpid(), cores
        self._say(Present(*about, where, problem, advice))

    def _not_met(self, problem: str, is_refused: bool) -> None:
        self.is_refused = is_refused
        self._reason = f"the root cannot be reached: {problem}"

    def _say(self, message: Up, body: Sequence[memoryview] = ()) -> None:
        if self._root is not None:
            self._root.send(encode(message), body)

    # -- what the root says ----------------------------------------------------------

    def frame(self, connection: Connection, frame: bytes, size: int) -> Sink:
        """Take a frame of the root; return where its body goes."""
        message = decode_down(frame)
        match message:
            case Spawn() | Signal() | Gives():
                if self._host is not None:  # else the root is about to hear why not
                    self._host.take(message)
            case Open():
                if size > _LONGEST_JOB:
                    raise ProtocolError(f"a job of {size} bytes is announced")
                job = np.empty(size, np.uint8)
                self._job = message, job
                return [bytes_of(job)]
            case Deliver(version, stretches):
                parameters = self._memory.versions[version]
                return [bytes_of(parameters[start:end]) for start, end in stretches]
            case Put():
                return self._begin_put(connection, message, size)
            case Fetch(key, rows):
                self._say(Vector(key), [bytes_of(self._memory.sum(rows))])
            case Carry():
                self._carry(message)
            case Refuse(key):
                self._refuse(key)
            case End():
                self._end()
            case Quit():
                self.may_end = True
        return []

    def body(self, connection: Connection) -> None:
        """Note that the body of a frame is there."""
        if self._job is not None:
            (message, job), self._job = self._job, None
            self._open(message, job.tobytes())
        else:
            self._end_put(connection)

    def gone(self, connection: Connection, reason: str) -> None:
        """Note that the root is gone."""
        self._reason = f"the root is gone: {reason}"  # or the link is: a call will tell

    def _open(self, message: Open, job: bytes) -> None:
        self._end_host()
        setup = msgspec.structs.replace(message.setup, job=job)
        known = set(sys.path)
        sys.path += [p for p in message.path if p not in known and os.path.isdir(p)]
        shape, workers = message.shape, message.workers
        threads = threads_per_worker(message.threads, self._agent.cores, len(workers))
        divides = self._agent.divides_devices
        prepare = Prepare(setup, shape, workers, threads, divides)
        try:
            with enough_descriptors(len(workers)):
                shared = Shared(shape.size, shape.least)
                self._host = Host(prepare, shared, self._reactor, self._say)
        except CodedgradError as error:
            self._break(str(error))
        except Exception:
            self._break(traceback.format_exc())
        else:
            self._memory_number = message.memory
            set_title(f"agent of host {message.number}", setup.script)
            self._say(Opened(threads))

    def _end(self) -> None:
        self._end_host()
        self._say(Ended())

    def _break(self, problem: str) -> None:
        """Tell the root that the host cannot go on, and end this life.

        A new life, with connections of its own, has nothing in common with the host
        that is broken: no sum of that is taken for one of its successor.
        """
        self._end_host()
        self._say(Broken(problem))
        self._reason = problem

    def _end_host(self) -> None:
        """End the host, and with it whatever is on its way from it or to it."""
        for line in self._lines.values():
            if line.dial is not None:
                line.dial.close()
            if line.connection is not None:
                line.connection.close()
        for caller in self._callers:
            caller.close()
        self._lines.clear()
        self._callers.clear()
        self._puts.clear()
        if self._host is not None:
            self._host.close()
            self._host = None

    @property
    def _memory(self) -> Memory:
        if self._host is None:
            raise ProtocolError("numbers come for a host that is not there")
        return self._host.memory

    # -- other agents ----------------------------------------------------------------

    def _carry(self, order: Carry) -> None:
        to = order.to
        peer = Peer(to.number, to.life)
        line = self._lines.get(peer)
        if line is not None:
            line.waiting.append(order)
            self._send_waiting(line)
            return
        # It waits before the call begins: one that fails at once ends what waits.
        line = self._lines[peer] = _Line(waiting=[order])
        line.dial = Dial(
            self._reactor, self._key, self._me, peer, to.addresses, to.port,
            partial(self._reached, peer), partial(self._not_reached, peer),
        )  # fmt: skip

    def _send_waiting(self, line: _Line) -> None:
        if line.connection is not None:
            for order in line.waiting:
                body = [bytes_of(self._memory.sum(order.rows))]
                line.sent.add(order.key)
                put = Put(order.key, order.row, order.memory)
                line.connection.send(encode(put), body)
            line.waiting.clear()

    def _reached(self, peer: Peer, link: Any) -> None:
        line = self._lines[peer]
        line.dial = None
        line.connection = Connection(
            link, peer, self._reactor, self._confirmed, self._end_line
        )
        self._send_waiting(line)

    def _not_reached(self, peer: Peer, problem: str, is_refused: bool) -> None:
        for order in self._lines.pop(peer).waiting:
            self._say(Carried(order.key, problem))

    def _confirmed(self, connection: Connection, frame: bytes, size: int) -> Sink:
        """Take a frame of an agent that was called: it has read a sum."""
        message = decode_up(frame)
        if not isinstance(message, Carried):
            raise ProtocolError("an agent that was called confirms sums, and no more")
        self._lines[connection.peer].sent.discard(message.key)
        return []

    def _end_line(self, connection: Connection, reason: str) -> None:
        """Note that a connection to another agent has ended, with sums on their way."""
        for key in self._lines.pop(connection.peer).sent:
            self._say(Carried(key, reason))

    def _admit(self, link: Any, peer: Peer) -> None:
        self._callers.add(
            Connection(
                link,
                peer,
                self._reactor,
                self._begin_sum,
                self._end_caller,
                self._end_put,
            )
        )

    def _begin_sum(self, connection: Connection, frame: bytes, size: int) -> Sink:
        """Take a frame of another agent; return where the sum behind it goes."""
        put = decode_down(frame)
        if not isinstance(put, Put):
            raise ProtocolError("an agent sends sums to others, and nothing else")
        return self._begin_put(connection, put, size)

    def _begin_put(self, connection: Connection, put: Put, size: int) -> Sink:
        """Return where a sum of `size` bytes goes that is about to be read."""
        if put.memory != self._memory_number:
            raise ProtocolError(
                "a sum comes for another host than the one that is here"
            )
        if not 0 <= put.row < len(self._memory.rows):
            raise ProtocolError(f"a sum comes for row {put.row}, which is not there")
        row = self._memory.row(put.row)
        if put.key in self._refused and size == row.nbytes:
            return [memoryview(bytearray(size))]  # sums that follow it are read
        self._puts[connection] = put
        return [bytes_of(row)]

    def _end_put(self, connection: Connection) -> None:
        """Tell the root, and the agent that has sent it, that a sum has been read."""
        put = self._puts.pop(connection, None)
        if put is not None:
            self._say(Carried(put.key))
            if connection is not self._root:
                connection.send(encode(Carried(put.key)))

    def _end_caller(self, connection: Connection, reason: str = "") -> None:
        """Note that another agent's connection to this one has ended."""
        self._callers.discard(connection)
        self._puts.pop(connection, None)

    def _refuse(self, key: int) -> None:
        self._refused.add(key)
        for caller in [one for one, put in self._puts.items() if put.key == key]:
            caller.close()  # its sender has given that sum up, or is lost to the root
            self._end_caller(caller)
        self._say(Refused(key))
