"""How connections between hosts begin: a door that listens, and a call to it.

A caller must prove within `PATIENCE` that it belongs to the run (`handshake`). Until
then it is a guest. At most `MOST_GUESTS` guests are kept, each of which costs a socket
and a hundred bytes: a new one takes the place of the one that has sent least for
longest. So a port scanner, or ten thousand connections, cost a run nothing but their
`accept`.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.connection import prepare
from codedgrad.engines.remote.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Dialer,
    DoorKeeper,
    NotOfThisRun,
    OtherSecret,
    Peer,
    RunKey,
)
from codedgrad.engines.remote.machine import ANY
from codedgrad.errors import EngineFailed, InvalidOptions

PATIENCE = 10.0
"""Seconds to get through the handshake."""

MOST_GUESTS = 64
"""Connections that have not proved anything yet, at a time."""

_CONNECT = 3.0  # seconds for a machine to answer at an address
_BACKLOG = 512  # connections that the kernel keeps until the root has time for them
_AT_A_TIME = 64  # accepted before others have their turn

_log = logging.getLogger("codedgrad")


class Door:
    """Listens for other processes of the run.

    Args:
        reactor: Waits for them.
        key: Of the run.
        me: This process.
        admit: Is handed the socket of a caller that belongs to the run, and its `Peer`.
        address: Of the interface to listen at; empty: at all of them.
        ports: To try in turn; none: the kernel chooses one.

    Attributes:
        refused: Guests that were sent away.

    Raises:
        EngineFailed: If none of the ports is free.
    """

    def __init__(
        self,
        reactor: Reactor,
        key: RunKey,
        me: Peer,
        admit: Callable[[socket.socket, Peer], None],
        address: str = "",
        ports: Sequence[int] = (),
    ) -> None:
        self.refused = 0
        self._reactor, self._key, self._me = reactor, key, me
        self._admit = admit
        self._guests: list[_Guest] = []
        self._listener = _listening(address, ports or (0,))
        self._has_warned = False
        reactor.watch(self._listener, self._knocked)

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more, and send all guests away; may be called twice."""
        self._reactor.forget(self._listener)
        self._listener.close()
        for guest in list(self._guests):
            guest.leave()
        self._guests.clear()

    def _knocked(self) -> None:
        for _ in range(_AT_A_TIME):
            try:
                link, _ = self._listener.accept()
            except OSError as error:
                # Whatever goes wrong with a stranger's connection is not the run's
                # problem, and the listener itself does not break.
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._guests:
                    return
                self._send_away(self._guests[0])  # no descriptor is left for another
                continue
            self._make_room()
            guest = _Guest(self, link)
            self._guests.append(guest)
            # What it has said already counts, before others come that say nothing: one
            # of the run is then known to be, and is not sent away for them.
            guest.hear()

    def _make_room(self) -> None:
        now = time.monotonic()
        for guest in [g for g in self._guests if now - g.since > PATIENCE]:
            self._send_away(guest)
        if len(self._guests) >= MOST_GUESTS:
            # Those that are known to be of the run, as far as their hello shows, last.
            self._send_away(min(self._guests, key=lambda guest: guest.is_known))

    def _send_away(self, guest: _Guest) -> None:
        self.refused += 1
        self._guests.remove(guest)
        guest.leave()


class _Guest:
    """A connection whose other end has not proved anything yet."""

    def __init__(self, door: Door, link: socket.socket) -> None:
        link.setblocking(False)
        self.since = time.monotonic()
        self.is_known = False
        self._door, self._link = door, link
        self._keeper = DoorKeeper(door._key, door._me)
        self._said = b""
        door._reactor.watch(link, self.hear)

    def leave(self) -> None:
        self._door._reactor.forget(self._link)
        self._link.close()

    def hear(self) -> None:
        wanted = PROOF_BYTES if self.is_known else HELLO_BYTES
        try:
            chunk = self._link.recv(wanted - len(self._said))
            if not chunk:
                raise ConnectionResetError
            self._said += chunk
            if len(self._said) < wanted:
                return
            said, self._said = self._said, b""
            if not self.is_known:
                self.is_known = True
                # Its 64 bytes fit into the empty buffer of any socket.
                self._link.send(self._keeper.challenge(said))
                return
            peer = self._keeper.admit(said)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, NotOfThisRun) as error:
            self._refuse(error)
            return
        self._door._guests.remove(self)
        self._door._reactor.forget(self._link)
        self._door._admit(self._link, peer)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, NotOfThisRun) and error.is_lost:
            with suppress(OSError):  # it may be gone already
                self._link.send(bytes(CHALLENGE_BYTES))
        if isinstance(error, NotOfThisRun) and not self._door._has_warned:
            self._door._has_warned = True  # once: a scanner must not fill the log
            with suppress(OSError):
                where = self._link.getpeername()[0]
                _log.warning("a connection from %s was refused: %s", where, error)
        self._door._send_away(self)


class Dial:
    """A call to a door; never waits.

    Args:
        reactor: Waits for the answer.
        key: Of the run.
        me: This process.
        to: The process whose door it is.
        addresses: Of the door's machine, tried in turn.
        port: Of the door.
        done: Is handed the socket once both ends have proved that they are of the run.
        failed: Is told why it cannot be reached, and whether it makes no sense to call
            again: no process listens there, or it has another secret.
        is_patient: Whether to wait as long as it takes at an address that has let the
            call in, if no other answers: the root does when its script has got as far
            as training.

    Attributes:
        has_connected: Whether the machine has let the call in at some address.
        has_other_secret: Whether the door has answered with another secret.
    """

    def __init__(
        self,
        reactor: Reactor,
        key: RunKey,
        me: Peer,
        to: Peer,
        addresses: Sequence[str],
        port: int,
        done: Callable[[socket.socket], None],
        failed: Callable[[str, bool], None],
        *,
        is_patient: bool = False,
    ) -> None:
        self._reactor, self._key, self._me, self._to = reactor, key, me, to
        self._is_patient = is_patient
        self.has_connected = self.has_other_secret = self._is_connected = False
        self._addresses, self._port = list(addresses), port
        self._done, self._failed = done, failed
        self._open: list[str] = []  # addresses that have let the call in
        self._problems: list[str] = []
        self._is_refused = bool(addresses)
        self._link: socket.socket | None = None
        self._next()

    def look(self) -> None:
        """Go on with the next address if this one takes too long; call it at times."""
        if self._link is None:
            return
        longest = PATIENCE if self._is_connected else _CONNECT
        if time.monotonic() - self._since < longest:
            return
        if self._is_connected and self._is_patient:
            if not self._addresses or self._address in self._open:
                return
            self._open.append(self._address)
            self._addresses.append(self._address)  # waited for there, if at no other
        self._give_up("no answer")

    def close(self) -> None:
        """Call no more."""
        if self._link is not None:
            self._reactor.forget(self._link)
            self._link.close()
            self._link = None

    def _next(self) -> None:
        if not self._addresses:
            self._failed("; ".join(self._problems) or "no address", self._is_refused)
            return
        self._address = self._addresses.pop(0)
        self._since, self._is_connected = time.monotonic(), False
        self._answer, self._dialer = b"", Dialer(self._key, self._me, self._to)
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        try:
            self._link = link = socket.socket(family, socket.SOCK_STREAM)
            prepare(link)  # a machine that is lost while it is waited for is noticed
            self._reactor.watch(link, self._hear, self._connected)
            link.connect((self._address, self._port))
        except BlockingIOError:
            pass
        except OSError as error:
            self._give_up(error)
            return
        self._reactor.want_room(link, True)

    def _connected(self) -> None:
        link = self._link
        assert link is not None
        code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._give_up(OSError(code, errno.errorcode.get(code, "")))
            return
        self._reactor.want_room(link, False)
        self._since = time.monotonic()
        self.has_connected = self._is_connected = True
        try:
            link.send(self._dialer.hello)
        except OSError as error:
            self._give_up(error)

    def _hear(self) -> None:
        link = self._link
        assert link is not None
        try:
            chunk = link.recv(CHALLENGE_BYTES - len(self._answer))
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "it was refused there")
            self._answer += chunk
            if len(self._answer) < CHALLENGE_BYTES:
                return
            link.send(self._dialer.answer(self._answer))
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, NotOfThisRun) as error:
            self._give_up(error)
            return
        self._reactor.forget(link)
        self._link = None
        self._done(link)

    def _give_up(self, why: Exception | str) -> None:
        is_closed = isinstance(why, OSError) and why.errno == errno.ECONNREFUSED
        # An address of the root's machine may be one of this machine, too, as that of a
        # bridge is, and is then refused though the root is there: all must be.
        self._is_refused &= is_closed or isinstance(why, NotOfThisRun)
        self.has_other_secret |= isinstance(why, OtherSecret)
        if isinstance(why, OSError):
            why = _text(why)
        self._problems.append(f"{self._address} port {self._port}: {why}")
        self.close()
        self._next()


def _text(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _listening(address: str, ports: Sequence[int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    problem = "there is no port"
    where = address or "this machine"
    for port in ports:
        link = socket.socket(family, socket.SOCK_STREAM)
        if address == ANY:  # of both families
            link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            link.bind((address, port))
            link.listen(_BACKLOG)
        except OSError as error:
            link.close()
            problem = f"{where} port {port}: {_text(error)}"
            if error.errno == errno.EADDRNOTAVAIL:
                break  # no other port will do
            if len(ports) > 1:
                problem = f"{where}: no port from {ports[0]} to {ports[-1]} is free"
        else:
            link.setblocking(False)
            return link
    advice = "more ports, one for every process, or the interface that others can reach"
    raise EngineFailed(f"it is not possible to listen: {problem}", advice)


def parse_ports(ports: str | tuple[int, int] | None) -> tuple[int, ...]:
    """Return the ports of a range; none for None: any port.

    Args:
        ports: (first, last), or such as `40000-40100`.

    Example:
        >>> parse_ports("40000-40002"), parse_ports(None)
        ((40000, 40001, 40002), ())
        >>> parse_ports("2-1")
        Traceback (most recent call last):
        ...
        codedgrad.errors.InvalidOptions: ports: is '2-1'; try FIRST-LAST, 1 to 65535
    """
    if ports is None:
        return ()
    try:
        first, last = ports.split("-") if isinstance(ports, str) else ports
        found = tuple(range(int(first), int(last) + 1))
    except (TypeError, ValueError):
        found = ()
    if not found or found[0] < 1 or found[-1] > 65535:
        raise InvalidOptions("ports", f"is {ports!r}", "FIRST-LAST, 1 to 65535")
    return found
