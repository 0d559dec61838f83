"""Frames with bodies between two sockets, however they are cut on their way."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.connection import Connection, Sink, bytes_of
from codedgrad.engines.remote.handshake import Peer
from codedgrad.errors import ProtocolError

PEER = Peer(1, 1)
HANG = 60.0  # seconds


class Kept:
    """Keeps what comes: frames, and their bodies in memory of their own."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.bodies: list[bytearray] = []
        self.done: list[bytes] = []
        self.ends: list[str] = []

    def frame(self, connection: Connection, frame: bytes, size: int) -> Sink:
        self.frames.append(frame)
        if frame == b"refused":
            raise ProtocolError("no such frame")
        if frame == b"interrupted":
            raise KeyboardInterrupt
        if frame == b"short":
            return [memoryview(bytearray(size - 1))]
        if not size:
            return []
        self.bodies.append(body := bytearray(size))
        middle = size // 2
        return [memoryview(body)[:middle], memoryview(body)[middle:]]

    def body(self, connection: Connection) -> None:
        self.done.append(bytes(self.bodies[-1]))

    def gone(self, connection: Connection, reason: str) -> None:
        self.ends.append(reason)


class Pair:
    """A connection, and the bare socket at its other end."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.other = socket.create_connection(server.getsockname())
            link, _ = server.accept()
        self.reactor, self.kept = Reactor(), Kept()
        self.connection = Connection(
            link, PEER, self.reactor, self.kept.frame, self.kept.gone, self.kept.body
        )

    def poll(self) -> None:
        for _ in range(3):
            self.reactor.poll(0.01)

    def close(self) -> None:
        self.connection.close()
        self.other.close()
        self.reactor.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def wire(frame: bytes, body: bytes = b"") -> bytes:
    head = len(frame).to_bytes(4, "little") + len(body).to_bytes(8, "little")
    return head + frame + body


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=60)), max_size=6),
    st.lists(st.integers(1, 40), max_size=30),
)
def test_frames_and_bodies_come_whole_and_in_order_wherever_they_are_cut(
    messages: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    messages = [(b"f" + frame, body) for frame, body in messages]
    data = b"".join(wire(*message) for message in messages)
    pair = Pair()
    try:
        for cut in [*cuts, len(data)]:
            pair.other.sendall(data[:cut])
            pair.reactor.poll(0.0 if not data else 0.05)
            data = data[cut:]
        pair.reactor.poll(0.0)
        assert pair.kept.frames == [frame for frame, _ in messages]
        assert pair.kept.done == [body for _, body in messages if body]
    finally:
        pair.close()


def test_more_than_the_kernel_takes_waits_and_is_sent_without_a_copy(
    pair: Pair,
) -> None:
    vector = np.arange(3_000_000, dtype=np.float32)
    done: list[str] = []
    pair.connection.send(b"one", [bytes_of(vector)], lambda: done.append("one"))
    pair.connection.send(b"two", [], lambda: done.append("two"))
    assert done == []
    pair.other.setblocking(False)
    came = bytearray()
    expected = wire(b"one", vector.tobytes()) + wire(b"two")
    while len(came) < len(expected):
        pair.reactor.poll(0.01)
        with suppress(BlockingIOError):
            came += pair.other.recv(1 << 20)
    assert came == expected
    assert done == ["one", "two"]
    assert pair.connection.sent == len(expected)


def test_an_end_is_told_once_and_after_everything_that_came_before(pair: Pair) -> None:
    pair.other.sendall(wire(b"last", b"words"))
    pair.other.close()
    pair.poll()
    assert (pair.kept.frames, pair.kept.done) == ([b"last"], [b"words"])
    assert pair.kept.ends == ["its process has ended"]
    done: list[Any] = []
    pair.connection.send(b"to nobody", [], lambda: done.append(True))
    assert done == [True]  # what was to be sent may be used again


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\xff" * 40, "a frame of 4294967295 bytes is announced"),
        (wire(b"refused"), "no such frame"),
        (wire(b"short", b"x" * 9), "9 bytes come where others were expected"),
    ],
    ids=["garbage", "unknown", "length"],
)
def test_a_peer_that_makes_no_sense_is_given_up(
    pair: Pair, said: bytes, why: str
) -> None:
    pair.other.sendall(said)
    pair.poll()
    assert pair.kept.ends == [f"it says what makes no sense: {why}"]
    assert not pair.connection.is_open


def test_a_connection_that_waits_for_nothing_is_not_cut(pair: Pair) -> None:
    assert not pair.connection.is_cut()
    pair.connection.send(b"hello")
    pair.poll()
    assert not pair.connection.is_cut()
    pair.connection.close()
    assert not pair.connection.is_cut()


def test_a_read_that_is_interrupted_ends_the_connection(pair: Pair) -> None:
    """What follows could be taken for what is missing."""
    pair.other.sendall(wire(b"interrupted", b"body") + wire(b"next"))
    with pytest.raises(KeyboardInterrupt):
        pair.poll()
    pair.poll()
    assert pair.kept.frames == [b"interrupted"]
    assert pair.kept.ends == ["reading from it was interrupted"]


def test_sending_that_is_interrupted_ends_the_connection(pair: Pair) -> None:
    """It is told by the reactor, after everything that came before."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    pair.other.sendall(wire(b"before"))
    with pytest.raises(KeyboardInterrupt):
        pair.connection.send(b"one", [], interrupt)
    assert pair.kept.ends == []
    done: list[Any] = []
    pair.connection.send(b"two", [], lambda: done.append(True))
    assert done == [True]
    pair.poll()
    assert pair.kept.frames == [b"before"]
    assert pair.kept.ends == ["sending to it was interrupted"]


FORKED = """
import os, signal, socket, sys
from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.connection import Connection
from codedgrad.engines.remote.handshake import Peer

link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
reactor = Reactor()
connection = Connection(link, Peer(1, 1), reactor, None, None)
fork = os.fork()
if fork == 0:
    connection.close()  # as a finalizer in the fork might
    reactor.close()
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
os.waitpid(fork, 0)
"""


def test_a_fork_of_a_process_does_not_keep_its_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", FORKED, str(server.getsockname()[1])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        link, _ = server.accept()
        assert process.stdout is not None
        fork = int(process.stdout.readline())
    try:
        link.setblocking(False)
        with pytest.raises(BlockingIOError):
            link.recv(1)  # what the fork has done to its copy does not end it
        process.kill()
        process.wait()
        link.settimeout(HANG)
        assert link.recv(1) == b""
    finally:
        os.kill(fork, signal.SIGKILL)
        process.stdout.close()
        link.close()
