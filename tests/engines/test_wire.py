"""Frames between the root and its workers, on real sockets."""

import select
import socket
import struct
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from codedgrad.core import Assign, Cut, Drop, Segment, Upload
from codedgrad.engines.host.wire import (
    Channel,
    Crashed,
    Fired,
    Give,
    Left,
    Ready,
    Said,
    Sent,
    Told,
    WorkerLine,
    decode_gives,
    decode_said,
    encode,
)
from codedgrad.errors import ProtocolError


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    """A root's end, and the bare socket at the other."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)


def test_orders_arrive_as_they_were_given() -> None:
    segment = Segment(4, 1, (2, 3), (1.0, -0.5))
    gives = [
        Give(Assign(7, segment, message=5), row=9, version=2),
        Give(Assign(7, segment, message=None), row=3, version=0),
        Give(Cut(7, 1, 4, keep=1)),
        Give(Upload(7, 1, message=8, segments=(4, 6))),
        Give(Drop(7, 1)),
    ]
    assert decode_gives(encode(gives)) == gives


def test_reports_arrive_as_they_were_said() -> None:
    said: list[Said] = [
        Ready(123),
        Told(7, 4, 2, closed=True),
        Sent(7, 5, ((4, 2), (6, 0)), finite=False, size=12),
        Left(3),
        Fired(0),
        Crashed(7, 2, "Traceback ..."),
    ]
    assert decode_said(encode(said)) == said


def test_what_is_no_report_is_not_taken_for_one() -> None:
    for frame in (b"", b"\xc1", b"hello", encode([Give(Drop(7, 1))]), encode(5)):
        with pytest.raises(ProtocolError):
            decode_said(frame)


def test_frames_come_out_whole_however_they_were_split(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    frames = [b"abc", b"", b"x" * 1000]
    received = []
    for byte in framed(*frames):
        theirs.send(bytes([byte]))
        received += channel.receive()
    assert received == frames


def test_several_frames_may_come_at_once(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.send(framed(b"abc", b"de") + framed(b"torn")[:-1])
    assert channel.receive() == [b"abc", b"de"]
    theirs.send(b"n")
    assert channel.receive() == [b"torn"]


def test_nothing_said_is_no_frame_and_no_end(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, _ = pair
    assert channel.receive() == []
    assert channel.is_open


def test_what_was_said_before_the_end_is_heard(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    theirs.send(framed(b"last", b"words") + framed(b"torn")[:-1])
    theirs.close()
    assert channel.receive() == [b"last", b"words"]
    assert not channel.is_open


def test_a_frame_too_long_to_be_meant_is_refused(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    theirs.send(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="a frame of 4294967295 bytes"):
        channel.receive()


def test_sending_does_not_wait_for_somebody_who_does_not_read(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    frame = b"x" * 1_000_000
    channel.send(frame)
    assert channel.is_full
    received = bytearray()
    while len(received) < len(framed(frame)):
        channel.flush()
        received += theirs.recv(1 << 16)
    assert not channel.is_full
    assert received == framed(frame)


def test_sending_to_somebody_who_is_gone_is_harmless(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    theirs.send(framed(b"last"))
    theirs.close()
    channel.send(b"are you there?")
    channel.send(b"hello?")
    assert not channel.is_full
    assert channel.receive() == [b"last"]
    assert not channel.is_open


class InterruptedLink:
    """A socket that is interrupted once, right after something was read."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._is_through = link, False

    def recv(self, size: int) -> bytes:
        chunk = self._link.recv(size)
        if not self._is_through:
            self._is_through = True
            raise KeyboardInterrupt
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


def test_after_a_read_that_was_interrupted_nothing_is_taken_for_a_frame(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    theirs.send(framed(b"lost"))
    channel.link = InterruptedLink(channel.link)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        channel.receive()
    readable, _, _ = select.select([channel.link], [], [], 0.0)
    assert readable  # whoever watches it comes back, though nothing more is sent
    with pytest.raises(ProtocolError, match="interrupted"):
        channel.receive()


def test_a_worker_waits_for_whole_frames() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = WorkerLine(theirs)
        heard: list[bytes | None] = []

        def listen() -> None:
            while (frame := line.receive()) is not None:
                heard.append(frame)

        listener = Thread(target=listen)
        listener.start()
        for byte in framed(b"abc", b"", b"x" * 100):
            ours.send(bytes([byte]))
        ours.shutdown(socket.SHUT_WR)
        listener.join(20)
        line._reader.close()
    assert heard == [b"abc", b"", b"x" * 100]


@pytest.mark.parametrize("torn", [b"", b"\x05", framed(b"abc")[:-1]])
def test_a_worker_takes_a_torn_frame_for_the_end(torn: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = WorkerLine(theirs)
        ours.send(torn)
        ours.close()
        assert line.receive() is None
        line._reader.close()


def test_what_a_worker_says_reaches_the_root(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    line = WorkerLine(theirs)
    line.send(b"one")
    line.send(b"")
    assert channel.receive() == [b"one", b""]
    line._reader.close()
