"""What the root and its workers say to each other, and how it is framed.

Orders go out with the rows and parameters they refer to; what comes back is small, the
numbers themselves stay in shared memory. Frames are msgpack with a length in front.
Decoding a frame executes nothing.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from codedgrad.core import Assign, Cut, Drop, Upload
from codedgrad.errors import ProtocolError
from codedgrad.jobs import Fingerprint

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 28  # bytes of a frame
_CHUNK = 1 << 16


class Give(Struct, frozen=True, gc=False, array_like=True):
    """An order, with where its sum goes and which parameters it is about.

    With an upload that gathers come the (row, weight) pairs of what is to be added.
    """

    order: Assign | Cut | Upload | Drop
    row: int = -1
    version: int = -1
    gathered: tuple[tuple[int, float], ...] = ()


class Ready(Struct, frozen=True, gc=False, tag=True, array_like=True):
    """A worker has built its job and takes orders.

    Attributes:
        pid: Its process id.
        host: The name of its host.
        made: What should be the same in every worker.
    """

    pid: int
    host: str = ""
    made: Fingerprint | None = None


class Told(Struct, frozen=True, gc=False, tag=True, array_like=True):
    """See `Progressed`."""

    step: int
    segment: int
    done: int
    closed: bool


class Sent(Struct, frozen=True, gc=False, tag=True, array_like=True):
    """See `MessageArrived`; `size` is the length of the sum, for the root to check."""

    step: int
    message: int
    cuts: tuple[tuple[int, int], ...]
    finite: bool
    size: int


class Left(Struct, frozen=True, gc=False, tag=True, array_like=True):
    """A worker has nothing in hand, after so many segments in its life.

    Until it says so it may be reading the parameters and writing the rows it was
    given, whatever was dropped meanwhile. `abandoned`: the last part it computed was no
    longer asked for when it was done. `seconds`: how long that part took.
    """

    taken: int
    abandoned: bool = False
    seconds: float = 0.0


class Fired(Struct, frozen=True, gc=False, tag=True, array_like=True):
    """A planned fault is being carried out."""

    fault: int


class Crashed(Struct, frozen=True, gc=False, tag=True, array_like=True):
    """Last words: the job raised. Step -1: in its set-up; part -1: our mistake."""

    step: int
    part: int
    traceback: str


Said: TypeAlias = Ready | Told | Sent | Left | Fired | Crashed

T = TypeVar("T")


def checked(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return a decoder that raises `ProtocolError` for bytes that it cannot decode."""

    def decode_checked(frame: bytes) -> T:
        try:
            return decode(frame)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a frame that is none: {error}") from None

    return decode_checked


encode = msgspec.msgpack.Encoder().encode
decode_gives = msgspec.msgpack.Decoder(list[Give]).decode
decode_said = checked(msgspec.msgpack.Decoder(list[Said]).decode)


class Channel:
    """The root's end: it never blocks, whatever the other end does or does not do."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.link = link
        self.is_open = True
        self._is_torn = False  # bytes that were read may be missing
        self._out = bytearray()
        self._in = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether something waits until the other end has read."""
        return bool(self._out)

    def send(self, frame: bytes) -> None:
        """Put a frame on its way."""
        self._out += _LENGTH.pack(len(frame))
        self._out += frame
        self.flush()

    def flush(self) -> None:
        """Send as much as the other end takes."""
        while self._out and self.is_open:
            try:
                sent = self.link.send(self._out)
            except BlockingIOError:
                return
            except OSError:  # it is gone; what it said before is still to be read
                self._out.clear()
                return
            del self._out[:sent]

    def receive(self) -> list[bytes]:
        """Return the whole frames that are there; `is_open` is False after the last.

        Raises:
            ProtocolError: If the frames make no sense.
        """
        try:
            self._read()
        except BaseException:
            # A Ctrl-C, after which a notebook may go on with the run. What was read
            # last may be missing, and the worker must not be waited for in silence.
            self._is_torn = True
            with suppress(OSError):
                self.link.shutdown(socket.SHUT_RDWR)
            raise
        if self._is_torn:
            raise ProtocolError("reading from it was interrupted")
        return self._frames()

    def _read(self) -> None:
        while self.is_open:
            try:
                chunk = self.link.recv(_CHUNK)
            except BlockingIOError:
                break
            except ConnectionError:
                chunk = b""
            if not chunk:
                self.is_open = False
            self._in += chunk

    def _frames(self) -> list[bytes]:
        frames, start, data = [], 0, self._in
        while len(data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > _LONGEST:
                raise ProtocolError(f"a frame of {length} bytes is announced")
            end = start + _LENGTH.size + length
            if len(data) < end:
                break
            frames.append(bytes(data[start + _LENGTH.size : end]))
            start = end
        del data[:start]
        return frames

    def close(self) -> None:
        """Close it; the other end sees that, even if a fork of ours has a copy."""
        self.is_open = False
        with suppress(OSError):  # the other end was faster
            self.link.shutdown(socket.SHUT_RDWR)
        self.link.close()


class WorkerLine:
    """The worker's end: it waits."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(True)
        self._link = link
        self._reader = link.makefile("rb")
        self._sending = threading.Lock()

    def send(self, frame: bytes) -> None:
        """Send a frame; any thread may."""
        with self._sending:
            self._link.sendall(_LENGTH.pack(len(frame)) + frame)

    def receive(self) -> bytes | None:
        """Return the next frame; None when the root is gone."""
        try:
            head = self._reader.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            frame = self._reader.read(length)
        except ConnectionError:
            return None
        return frame if len(frame) == length else None
