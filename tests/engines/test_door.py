"""Who is let in at the root's door, and that nobody else costs a run anything."""

import importlib.util
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedgrad.engines import train
from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.door import MOST_GUESTS, Dial, Door, parse_ports
from codedgrad.engines.remote.handshake import ROOT, Dialer, Peer, RunKey
from codedgrad.engines.remote.machine import addresses, machine, reachable_at
from codedgrad.errors import EngineFailed, InvalidOptions
from codedgrad.jobs import single_process
from codedgrad.schemes import uncoded

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)
Looped = loopback.Looped

ME = Peer(3, 77)
HANG = 60.0  # seconds; only a hang takes so long


class Entrance:
    """A door with those that it has let in, and calls to it."""

    def __init__(self) -> None:
        self.key, self.reactor = RunKey.draw(), Reactor()
        self.admitted: list[tuple[socket.socket, Peer]] = []
        self.answers: list[Any] = []
        self.door = Door(self.reactor, self.key, ROOT, self._admit, "127.0.0.1")
        self.address = "127.0.0.1", self.door.port
        self._links: list[socket.socket] = []

    def _admit(self, link: socket.socket, peer: Peer) -> None:
        self.admitted.append((link, peer))

    def dial(
        self,
        key: RunKey | None = None,
        *,
        addresses: tuple[str, ...] = ("127.0.0.1",),
        port: int = 0,
        to: Peer = ROOT,
        is_patient: bool = False,
    ) -> Dial:
        return Dial(
            self.reactor, key or self.key, ME, to, addresses, port or self.door.port,
            self.answers.append, lambda *why: self.answers.append(why),
            is_patient=is_patient,
        )  # fmt: skip

    def knock(self, said: bytes = b"") -> socket.socket:
        link = socket.create_connection(self.address)
        link.sendall(said)
        self._links.append(link)
        return link

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not what():
            assert time.monotonic() < deadline
            self.reactor.poll(0.01)

    def close(self) -> None:
        for link in [*self._links, *(link for link, _ in self.admitted)]:
            link.close()
        for answer in self.answers:
            if isinstance(answer, socket.socket):
                answer.close()
        self.door.close()
        self.reactor.close()


@pytest.fixture
def entrance() -> Iterator[Entrance]:
    entrance = Entrance()
    yield entrance
    entrance.close()


def test_a_process_of_the_run_is_let_in_and_known_by_number_and_life(
    entrance: Entrance,
) -> None:
    entrance.dial()
    entrance.until(lambda: bool(entrance.admitted and entrance.answers))
    [(_, peer)], [link] = entrance.admitted, entrance.answers
    assert peer == ME
    assert isinstance(link, socket.socket)
    assert entrance.door.refused == 0


def test_a_wrong_secret_is_refused_at_both_ends_and_said_once(
    entrance: Entrance, caplog: pytest.LogCaptureFixture
) -> None:
    guess = RunKey(entrance.key.run, b"a guess" * 5)
    entrance.dial(guess)
    entrance.until(lambda: bool(entrance.answers))
    [(why, _)] = entrance.answers
    assert "the other end has another secret" in why
    entrance.until(lambda: entrance.door.refused == 1)
    for number in range(3):  # others go on without checking what the door has proved
        link = entrance.knock(Dialer(guess, ME, ROOT).hello)
        entrance.until(lambda: any(guest.is_known for guest in entrance.door._guests))
        assert len(link.recv(64)) == 64
        link.sendall(b"p" * 32)
        entrance.until(lambda number=number: entrance.door.refused == number + 2)
        assert link.recv(1) == b""
    assert entrance.admitted == []
    assert entrance.door.refused == 4
    assert caplog.text.count("was refused: the other end has another secret") == 1


def test_a_call_for_another_process_of_the_run_is_refused(
    entrance: Entrance,
) -> None:
    """An address, as that of a bridge, may be that of every machine; a port, too."""
    entrance.dial(to=Peer(5, 1))
    entrance.until(lambda: bool(entrance.answers))
    [(why, _)] = entrance.answers
    assert why.endswith("that door is of another run, or of another process")
    assert entrance.admitted == []


def test_the_root_may_take_its_time_to_answer(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script may load data for minutes before it trains."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        dial = entrance.dial(port=port, is_patient=True)
        entrance.until(lambda: dial._is_connected)
        monkeypatch.setattr("codedgrad.engines.remote.door.PATIENCE", -1.0)
        dial.look()
        assert entrance.answers == []
        dial.close()


def test_a_root_that_is_slow_to_answer_is_waited_for_at_the_address_that_is_its_own(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other address, as that of a bridge, may be one of this machine, too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        addresses = "127.0.0.1", "127.0.0.2"
        dial = entrance.dial(addresses=addresses, port=port, is_patient=True)
        entrance.until(lambda: dial._is_connected)
        monkeypatch.setattr("codedgrad.engines.remote.door.PATIENCE", -1.0)
        dial.look()
        assert dial._address == "127.0.0.2"
        entrance.until(lambda: dial._address == "127.0.0.1")  # it is refused there
        entrance.until(lambda: dial._is_connected)
        for _ in range(3):
            dial.look()
        assert (dial._address, entrance.answers) == ("127.0.0.1", [])
        dial.close()


def test_a_process_without_a_descriptor_for_a_call_is_told_so(
    entrance: Entrance,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)  # the first that is free
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        entrance.dial()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    [(why, is_refused)] = entrance.answers
    assert why.endswith(": Too many open files")
    assert not is_refused


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: anybody\r\n\r\n" * 9,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(100),
        os.urandom(500),
    ],
    ids=["HTTP", "TLS", "random"],
)
def test_what_is_no_hello_of_this_run_is_refused(
    entrance: Entrance, said: bytes
) -> None:
    link = entrance.knock(said)
    entrance.until(lambda: entrance.door.refused == 1)
    link.settimeout(HANG)
    with suppress(ConnectionResetError):  # if there was more than it has read
        assert link.recv(100) == b""  # not a byte of an answer
    assert entrance.admitted == []


def test_a_process_of_another_run_is_told_that_it_need_not_call_again(
    entrance: Entrance,
) -> None:
    entrance.dial(RunKey(b"another run 16 b", entrance.key.secret))
    entrance.until(lambda: bool(entrance.answers))
    [(why, is_refused)] = entrance.answers
    assert "that door is of another run" in why
    assert is_refused
    assert entrance.admitted == []


def test_a_proof_that_was_heard_before_lets_nobody_in(entrance: Entrance) -> None:
    dialer = Dialer(entrance.key, ME, ROOT)
    first = entrance.knock(dialer.hello)
    entrance.until(lambda: all(guest.is_known for guest in entrance.door._guests) and (
        bool(entrance.door._guests)
    ))  # fmt: skip
    proof = dialer.answer(first.recv(64))
    second = entrance.knock(dialer.hello)  # the same words once more
    entrance.until(lambda: sum(g.is_known for g in entrance.door._guests) == 2)
    assert len(second.recv(64)) == 64
    second.sendall(proof)
    entrance.until(lambda: entrance.door.refused == 1)
    assert entrance.admitted == []
    first.sendall(proof)
    entrance.until(lambda: len(entrance.admitted) == 1)


def test_peers_that_stop_in_the_handshake_cost_a_few_sockets_and_keep_nobody_out(
    entrance: Entrance,
) -> None:
    hello = Dialer(entrance.key, ME, ROOT).hello
    for number in range(3 * MOST_GUESTS):
        entrance.knock(hello if number % 3 == 0 else hello[: number % 60])
        entrance.reactor.poll(0.0)
        assert len(entrance.door._guests) <= MOST_GUESTS
    entrance.dial()
    entrance.until(lambda: len(entrance.admitted) == 1)


def test_guests_that_say_nothing_for_long_are_sent_away_by_the_next(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    entrance.knock()
    entrance.until(lambda: len(entrance.door._guests) == 1)
    monkeypatch.setattr("codedgrad.engines.remote.door.PATIENCE", -1.0)
    entrance.knock()
    entrance.until(lambda: entrance.door.refused == 1)


def test_a_port_that_nobody_listens_at_is_refused_and_known_to_be(
    entrance: Entrance,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    entrance.dial(port=port)
    entrance.until(lambda: bool(entrance.answers))
    assert entrance.answers == [(f"127.0.0.1 port {port}: Connection refused", True)]


def test_a_root_that_is_refused_at_one_address_only_may_still_be_there(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        dial = Dial(
            entrance.reactor, entrance.key, ME, ROOT, ["127.0.0.2", "127.0.0.1"], port,
            entrance.answers.append, lambda *why: entrance.answers.append(why),
        )  # fmt: skip
        entrance.until(lambda: dial._is_connected)
        monkeypatch.setattr("codedgrad.engines.remote.door.PATIENCE", -1.0)
        dial.look()
    [(why, is_refused)] = entrance.answers
    assert "127.0.0.2" in why
    assert "Connection refused; 127.0.0.1" in why
    assert not is_refused


def test_a_door_that_does_not_answer_is_given_up_after_a_while(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dial = entrance.dial(port=silent.getsockname()[1])
        entrance.until(lambda: dial._is_connected)
        dial.look()
        assert entrance.answers == []
        monkeypatch.setattr("codedgrad.engines.remote.door.PATIENCE", -1.0)
        dial.look()
    [(why, is_refused)] = entrance.answers
    assert why.endswith(": no answer")
    assert not is_refused


def test_ports_are_tried_in_turn_and_it_is_said_when_none_is_free() -> None:
    reactor, key = Reactor(), RunKey.draw()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        door = Door(reactor, key, ROOT, print, "127.0.0.1", [port, 0])
        assert door.port != port
        with pytest.raises(EngineFailed, match=f"127.0.0.1 port {port}: Address alr"):
            Door(reactor, key, ROOT, print, "127.0.0.1", [port])
    with pytest.raises(EngineFailed, match=r"192.0.2.99 port 0: Cannot assign"):
        Door(reactor, key, ROOT, print, "192.0.2.99")
    door.close()
    door.close()
    reactor.close()


@pytest.mark.parametrize("text", ["", "80", "b-c", "9-8", "0-5", "1-70000", (1,)])
def test_ports_that_are_no_range_are_refused(text: Any) -> None:
    with pytest.raises(InvalidOptions, match="try FIRST-LAST"):
        parse_ports(text)


# -- machines --------------------------------------------------------------------------


def test_an_interface_is_named_or_given_by_its_address() -> None:
    assert reachable_at("lo") == reachable_at("127.0.0.1")
    assert reachable_at("lo") == (("127.0.0.1",), "127.0.0.1")
    assert reachable_at("127.0.0.2") == (("127.0.0.2",), "127.0.0.2")  # its second
    for other in ("192.0.2.1", "0.0.0.0", "::", "localhost"):
        with pytest.raises(InvalidOptions, match="interface: is"):
            reachable_at(other)
    with pytest.raises(InvalidOptions, match=r"interface: is 'eth99'; try one of .*lo"):
        reachable_at("eth99")
    assert [*addresses().values()][-1] == "127.0.0.1"


def test_without_an_interface_it_listens_where_others_can_reach_it() -> None:
    told, listens = reachable_at(None)
    outer = [a for a in addresses().values() if not a.startswith("127.")]
    assert list(told) == (outer or ["127.0.0.1"])
    assert listens == ("" if outer else "127.0.0.1")


def test_processes_count_as_machines_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = machine()
    assert together == machine()
    monkeypatch.setenv("CODEDGRAD_HOSTS", "processes")
    assert machine() == f"{together} {os.getpid()}"
    monkeypatch.setenv("CODEDGRAD_HOSTS", "cores")
    with pytest.raises(InvalidOptions, match="CODEDGRAD_HOSTS: is 'cores'; try mach"):
        machine()


# -- a run that is attacked ------------------------------------------------------------


def gradient(x, part, step):  # type: ignore[no-untyped-def]
    return float(((x - part) ** 2).sum() / 2), 1.0, x - part


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_strangers_however_many_harm_no_run(count: int) -> None:
    """They connect, say rubbish or a part of a hello, and stay, while it trains."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = min(count, 200, most // 4)  # by this process, which is the root's as well
    engine, is_over = Looped(hosts=2), threading.Event()
    made: list[int] = []

    def attack() -> None:
        links: list[socket.socket] = []
        while not hasattr(engine.launcher, "lobby") and not is_over.is_set():
            time.sleep(0.01)
        port = engine.launcher.lobby.invitation.port
        while len(made) < count and not is_over.is_set():
            try:
                link = socket.create_connection(("127.0.0.1", port), HANG)
                link.send(os.urandom(len(made) % 90))
            except OSError:
                continue
            made.append(1)
            links.append(link)
            if len(links) > held:
                links.pop(0).close()
        for link in links:
            link.close()
        is_over.set()

    attacker = threading.Thread(target=attack)
    attacker.start()
    steps = 0

    def watch(event: Any, commands: Any) -> None:
        nonlocal steps
        assert len(engine.launcher.lobby._door._guests) <= MOST_GUESTS

    try:
        run = train(
            gradient, np.zeros(50), uncoded(4), steps=400, engine=engine, watch=watch
        )
    finally:
        is_over.set()
        attacker.join()
    expected = single_process(gradient, np.zeros(50), 4, steps=400).parameters
    np.testing.assert_array_equal(run.parameters, expected)
    assert engine.lives == (1, 1, 1, 1)
    assert len(run.steps) == 400
