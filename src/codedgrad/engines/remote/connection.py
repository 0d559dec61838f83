"""Frames and vectors over one authenticated TCP connection; nothing here ever waits.

Every frame has a head: its own length, and that of the body behind it. A frame is
msgpack of a known type. A body is the bytes of a vector: it is written from the memory
where the sum is and read into the memory where it is wanted, without a copy between.

What is sent arrives in order, bodies included. So orders that refer to parameters can
be sent right behind them.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from numpy.typing import NDArray

from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.handshake import Peer
from codedgrad.errors import ProtocolError

_HEAD = struct.Struct("<IQ")  # bytes of the frame, bytes of the body
_LONGEST = 1 << 28  # bytes of a frame: a peer that announces more has lost its way
_CHUNK = 1 << 16  # bytes read at a time while a frame is expected
_TURN = 1 << 22  # bytes read from one peer before others have their turn
_BUFFERS = 64  # memory views handed to one `sendmsg`; Linux takes 1024

# A link that was cut says nothing. An idle connection is probed by the kernel; one on
# which something was sent is looked at by `is_cut`. Both give up after half a minute:
# sooner, and a switch that restarts would cost a host its workers.
_IDLE, _BETWEEN, _PROBES = 10, 5, 4  # seconds, seconds, count
_SILENT = 30.0  # seconds without an acknowledgement
_RESENT = 5  # times that the kernel has sent the same bytes again
# Where the other end has no room for more, because its process is stopped, the kernel
# sends nothing but probes, and counts those that are not answered. Two may get lost.
# The pause between probes doubles up to two minutes, so it may take minutes to notice
# that a host is lost which had been stopped for long.
_UNANSWERED = 3
# The kernel's `struct tcp_info`: the fields retransmits, at byte 2, probes, at 3,
# unacked, at 24, and last_ack_recv, in milliseconds, at 56.
_TCP_INFO = struct.Struct("<2x2B20xI28xI")

Sink: TypeAlias = list[memoryview]
"""Where the bytes of a body go, one view after the other."""


class Connection:
    """One end of a connection to another host.

    Args:
        link: Connected, and through the handshake.
        peer: The process at the other end.
        reactor: Waits for it.
        frame: Takes a frame, and how many bytes its body has; returns where they go.
        gone: Is told why it has ended, after everything that came before.
        body: Called when the body of the last frame is complete.

    Attributes:
        peer: The process at the other end.
        sent: Bytes that the kernel has taken.
    """

    def __init__(
        self,
        link: socket.socket,
        peer: Peer,
        reactor: Reactor,
        frame: Callable[[Connection, bytes, int], Sink],
        gone: Callable[[Connection, str], None],
        body: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        prepare(link)
        self.peer = peer
        self._frame, self._gone, self._body = frame, gone, body
        self.sent = 0
        self._link = link
        self._reactor = reactor
        self._out: deque[tuple[memoryview, Callable[[], None] | None]] = deque()
        self._in = bytearray()
        self._sink: Sink = []
        self._has_body = False
        self._is_open = True
        self._problem = ""  # the first one that was met while sending
        reactor.watch(link, self._readable, self.flush)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._is_open

    # -- sending ---------------------------------------------------------------------

    def send(
        self,
        frame: bytes,
        body: Sequence[memoryview] = (),
        done: Callable[[], None] | None = None,
    ) -> None:
        """Put a frame, and what is behind it, on its way.

        Args:
            frame: Of a known type.
            body: Memory that must stay as it is until `done` is called.
            done: Called when the kernel has taken all of it, or never will.
        """
        if not self._is_open:
            if done is not None:
                done()
            return
        pieces = [piece.cast("B") for piece in body if piece.nbytes]
        size = sum(piece.nbytes for piece in pieces)
        head = memoryview(_HEAD.pack(len(frame), size) + frame)
        *before, last = [head, *pieces]
        self._out.extend([*((view, None) for view in before), (last, done)])
        self.flush()

    def flush(self) -> None:
        """Send as much as the kernel takes."""
        try:
            self._send_output()
        except BaseException:
            # A Ctrl-C, after which a notebook may go on with the run. If it has come
            # between the sending of bytes and the note of it, they would be sent again.
            self._problem = "sending to it was interrupted"
            with suppress(OSError):  # it has ended by itself
                self._link.shutdown(socket.SHUT_RDWR)
            self._drop_output()
            raise

    def _send_output(self) -> None:
        while self._out and self._is_open:
            count = min(len(self._out), _BUFFERS)
            try:
                sent = self._link.sendmsg([self._out[i][0] for i in range(count)])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                # What the other end has said before is still to be read, and handed on
                # before its end is. The reactor does both. Done here, they would change
                # what the caller, a callback perhaps, is in the middle of.
                self._problem = self._problem or _reason(error)
                self._drop_output()
                break
            self._note_sent(sent)
        if self._is_open:
            self._reactor.want_room(self._link, bool(self._out))

    def _note_sent(self, count: int) -> None:
        self.sent += count
        while count or (self._out and not self._out[0][0].nbytes):
            view, done = self._out.popleft()
            if count < view.nbytes:
                self._out.appendleft((view[count:], done))
                return
            count -= view.nbytes
            if done is not None:
                done()

    # -- receiving -------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            self._receive()
        except BaseException:
            # A Ctrl-C, as in `flush`: what follows could be taken for what is missing.
            self.cut("reading from it was interrupted")
            raise

    def _receive(self) -> None:
        turn = _TURN
        while self._is_open and turn > 0:
            try:
                count = self._read()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.cut(_reason(error))
                return
            if count == 0:
                self.cut(self._problem or "its process has ended")
                return
            turn -= count
            try:
                self._parse()
            except ProtocolError as error:
                self.cut(f"it says what makes no sense: {error}")

    def _read(self) -> int:
        """Read once: into the body's place, or else into the buffer for frames."""
        if self._has_body:
            count = self._link.recv_into(self._sink[0])
            self._fill(count)
            return count
        chunk = self._link.recv(_CHUNK)
        self._in += chunk
        return len(chunk)

    def _parse(self) -> None:
        """Hand on what has come, as far as it is complete."""
        while self._is_open:
            if self._has_body:
                if self._in and self._sink:
                    self._take_from_buffer()
                if self._sink:
                    return
                self._has_body = False
                self._body(self)
                continue
            if len(self._in) < _HEAD.size:
                return
            length, size = _HEAD.unpack_from(self._in)
            if length > _LONGEST:
                raise ProtocolError(f"a frame of {length} bytes is announced")
            end = _HEAD.size + length
            if len(self._in) < end:
                return
            frame = bytes(memoryview(self._in)[_HEAD.size : end])
            del self._in[:end]
            sink = self._frame(self, frame, size)
            if sum(view.nbytes for view in sink) != size:
                raise ProtocolError(f"{size} bytes come where others were expected")
            self._sink = [view.cast("B") for view in sink if view.nbytes]
            self._has_body = bool(size)

    def _take_from_buffer(self) -> None:
        """Move what came together with a frame to where its body goes."""
        while self._in and self._sink:
            count = min(len(self._in), self._sink[0].nbytes)
            self._sink[0][:count] = self._in[:count]
            del self._in[:count]
            self._fill(count)

    def _fill(self, count: int) -> None:
        while count and self._sink:
            view = self._sink[0]
            if count < view.nbytes:
                self._sink[0] = view[count:]
                return
            count -= view.nbytes
            del self._sink[0]

    # -- the end ---------------------------------------------------------------------

    def is_cut(self) -> bool:
        """Whether nothing has come through for long, though something was sent.

        A process that is stopped does not look like this: its kernel acknowledges.
        """
        if not self._is_open or not hasattr(socket, "TCP_INFO"):
            return False
        resent, probes, unacked, silent = acknowledgements(self._link)
        is_unheard = (unacked > 0 and resent >= _RESENT) or probes >= _UNANSWERED
        return is_unheard and silent > _SILENT

    def cut(self, reason: str) -> None:
        """End it, and say why."""
        if self._is_open:
            self.close()
            self._gone(self, reason)

    def close(self) -> None:
        """End it without a word."""
        if self._is_open:
            self._is_open = False
            self._reactor.forget(self._link)
            with suppress(OSError):  # the other end was faster
                self._link.shutdown(socket.SHUT_RDWR)
            self._link.close()
            self._drop_output()

    def _drop_output(self) -> None:
        out, self._out = self._out, deque()
        for _, done in out:
            if done is not None:
                done()


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the memory of an array, for a body."""
    return memoryview(array)  # type: ignore[arg-type] # arrays are buffers; stubs differ


def acknowledgements(link: socket.socket) -> tuple[int, int, int, float]:
    """Return what the kernel knows of the other end's acknowledgements.

    Returns:
        How often the oldest segment was sent again in a row, how many probes were not
        answered, how many segments are not acknowledged, and the seconds since the last
        acknowledgement.
    """
    data = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    resent, probes, unacked, silent = _TCP_INFO.unpack(data)
    return resent, probes, unacked, silent / 1000


def prepare(link: socket.socket) -> None:
    """Set what every socket between hosts needs."""
    link.setblocking(False)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE),
        ("TCP_KEEPINTVL", _BETWEEN),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, name):  # not everywhere
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "its process has ended"
    return f"the connection to it has ended ({error.strerror or error})"
