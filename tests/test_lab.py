"""The network lab: what its hosts can do, and that nothing of it stays."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LAB = Path(__file__).parents[1] / "benchmarks" / "lab"
PYTHON = sys.executable
SERVER = """
import socket
server = socket.create_server(("0.0.0.0", 5000))
print("up", flush=True)
while True:
    peer, _ = server.accept()
    with peer:
        while data := peer.recv(1 << 20):
            if data.endswith(b"?"):
                peer.sendall(b"!")
"""
# Prints the seconds until an answer to so many bytes is here.
CLIENT = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[3]))
peer.sendall(b"?")
peer.recv(1)
begun = time.monotonic()
peer.sendall(bytes(int(sys.argv[2])) + b"?")
peer.recv(1)
print(time.monotonic() - begun)
"""
SILENT = """
import socket, time
server = socket.create_server(("0.0.0.0", 5001))
print("up", flush=True)
peer, _ = server.accept()
time.sleep(1000)  # and reads nothing, as if it were stopped
"""
# Fills the other end's memory; then prints the seconds until its link counts as cut.
SENDER = """
import socket, sys, time
from codedgrad.engines.host.reactor import Reactor
from codedgrad.engines.remote.connection import Connection, acknowledgements
from codedgrad.engines.remote.handshake import Peer

link = socket.create_connection((sys.argv[1], 5001))
reactor = Reactor()
connection = Connection(link, Peer(0, 0), reactor, None, None)
connection.send(b"", [memoryview(bytearray(1 << 26))])
sent = -1
while sent < connection.sent or acknowledgements(link)[2]:  # all that fits has arrived
    sent = connection.sent
    reactor.poll(1.0)
print("full", flush=True)
begun = time.monotonic()
while not connection.is_cut() and time.monotonic() < begun + 300:
    reactor.poll(0.2)
print(time.monotonic() - begun)
"""
STORIES = {  # of what may become of a host, by launcher
    "mpi": (
        "host killed",
        "link cut",
        "host stopped",
        "worker killed",
        "agent killed",
        "daemon killed",
    ),
    "torchrun": (
        "link cut",
        "host stopped",
        "worker killed",
        "agent killed",
        "machine killed",
    ),
}
TRIED = [("mpi", story) for story in STORIES["mpi"]]
# Other tests have two torchruns beside each other, without a network between them.
TRIED += [("torchrun", "link cut"), ("torchrun", "machine killed")]


@pytest.fixture(scope="module")
def hosts() -> Iterator[ModuleType]:
    sys.path.insert(0, str(LAB))
    try:
        module = importlib.import_module("hosts")
        if problem := module.missing():
            pytest.skip(f"the lab needs root, iproute2 and namespaces: {problem}")
        yield module
    finally:
        sys.path.remove(str(LAB))


@pytest.fixture(scope="module")
def losses(hosts: ModuleType) -> ModuleType:
    return importlib.import_module("host_losses")


@pytest.fixture(scope="module")
def lab(hosts: ModuleType) -> Iterator[Any]:
    with hosts.Lab(hosts=3, rate="20mbit") as lab:
        serve(lab.hosts[0])
        yield lab


def serve(host: Any) -> None:
    process = host.popen([PYTHON, "-c", SERVER], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.stdout.close()


def ask(host: Any, size: int = 0, patience: float = 20.0) -> float:
    """Return the seconds that h0 takes to answer; infinite if it does not."""
    done = host.run([PYTHON, "-c", CLIENT, "h0", str(size), str(patience)])
    return float(done.stdout) if done.returncode == 0 else float("inf")


def left(name: str) -> list[str]:
    assert name
    places = ("/run/netns", "/etc/netns", "/sys/fs/cgroup/cpu", "/tmp")
    return [str(path) for place in places for path in Path(place).glob(f"{name}*")]


def test_hosts_have_names_and_reach_each_other(lab: Any) -> None:
    said = lab.hosts[2].run(["hostname"]).stdout
    assert said == "h2\n"
    assert ask(lab.hosts[2]) < 20


def test_a_link_carries_no_more_than_its_rate(lab: Any) -> None:
    host, size = lab.hosts[1], 1_000_000
    limited = ask(host, size)
    host.set_rate(None)
    lab.hosts[0].set_rate(None)
    unlimited = ask(host, size)
    host.set_rate("20mbit")
    lab.hosts[0].set_rate("20mbit")
    assert limited > 0.9 * size * 8 / 20e6
    assert limited > 3 * unlimited


def test_one_host_can_be_slower_than_the_others(lab: Any) -> None:
    host, size = lab.hosts[1], 200_000
    host.set_rate("2mbit")
    slow = ask(host, size)
    host.set_rate("20mbit")
    assert slow > 0.8 * size * 8 / 2e6


def test_the_kernel_counts_what_comes_and_goes(lab: Any) -> None:
    root, host, size = lab.hosts[0], lab.hosts[1], 300_000
    before = root.received_bytes(), host.sent_bytes(), host.received_bytes()
    ask(host, size)
    after = root.received_bytes(), host.sent_bytes(), host.received_bytes()
    came, went, back = (b - a for a, b in zip(before, after, strict=True))
    assert size < came < 1.5 * size
    assert size < went < 1.5 * size
    assert 0 < back < 0.5 * size


def test_a_cut_link_is_silent_until_it_is_mended(lab: Any) -> None:
    host = lab.hosts[1]
    host.cut()
    assert ask(host, patience=0.3) == float("inf")
    assert ask(lab.hosts[2]) < 20
    host.mend()
    assert ask(host) < 20


def test_killing_a_host_ends_its_processes_and_theirs(lab: Any) -> None:
    host = lab.hosts[2]
    process = host.popen(
        ["sh", "-c", "sleep 100 & echo up; sleep 100"], stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"up\n"
    while len(host.pids()) < 3:  # the second sleep begins after the word
        time.sleep(0.01)
    assert len(host.pids()) == 3
    host.kill_all()
    assert process.wait(timeout=20) == -signal.SIGKILL
    process.stdout.close()
    assert host.pids() == []
    assert lab.hosts[0].pids() != []


def test_a_quota_holds_for_old_and_new_processes(hosts: ModuleType, lab: Any) -> None:
    if not hosts.CPU.is_dir():
        pytest.skip(f"CPU quotas need cgroup v1: no {hosts.CPU}")
    host = lab.hosts[2]
    process = host.popen(["sleep", "100"])
    while not any(b"sleep" in command(pid) for pid in host.pids()):
        time.sleep(0.01)
    host.cpu(20)
    group = hosts.CPU / host.namespace
    assert (group / "cgroup.procs").read_text().split() == [str(process.pid)]
    said = host.run(["cat", "/proc/self/cgroup"]).stdout
    assert f"cpu:/{host.namespace}\n" in said
    assert (group / "cpu.cfs_quota_us").read_text() == "20000\n"
    host.kill_all()
    process.wait()


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]


def test_the_relay_adds_its_latency(hosts: ModuleType) -> None:
    with hosts.Lab(hosts=2, rate=None, latency=0.05) as lab:
        serve(lab.hosts[0])
        assert 0.1 <= ask(lab.hosts[1]) < 20


def test_nothing_is_left_of_a_lab_that_failed(hosts: ModuleType) -> None:
    lab = hosts.Lab(hosts=2, latency=0.01)

    def fail() -> None:
        with lab:
            lab.hosts[1].popen(["sleep", "100"])
            if hosts.CPU.is_dir():
                lab.hosts[1].cpu(50)
            assert left(lab.name) != []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left(lab.name) == []
    assert lab._relay.poll() is not None


def test_a_rate_that_is_none_is_refused_and_leaves_nothing(hosts: ModuleType) -> None:
    lab = hosts.Lab(hosts=2, rate="fast")
    with pytest.raises(hosts.LabFailed, match="write it like 100mbit"):
        lab.__enter__()
    assert left(lab.name) == []


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from hosts import Lab
with Lab(hosts=2) as lab:
    lab.hosts[0].popen(["sleep", "100"])
    print(lab.name, flush=True)
    time.sleep(100)
"""


def test_what_a_killed_lab_leaves_is_swept_and_no_other(
    hosts: ModuleType, lab: Any
) -> None:
    owner = subprocess.Popen(
        [PYTHON, "-c", KILLED, str(LAB)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    hosts.sweep()
    assert f"/run/netns/{name}-h0" in left(name)  # its owner is there
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    hosts.sweep()
    assert left(name) == []
    assert ask(lab.hosts[1]) < 20
    owner.stdout.close()


def test_ctrl_c_removes_the_lab(hosts: ModuleType) -> None:
    owner = subprocess.Popen(
        [PYTHON, "-c", KILLED, str(LAB)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    os.kill(owner.pid, signal.SIGINT)
    owner.wait(timeout=20)
    owner.stdout.close()
    assert left(name) == []


@pytest.mark.long
def test_a_host_that_is_stopped_and_then_lost_is_noticed(
    hosts: ModuleType, losses: ModuleType
) -> None:
    """Nothing is under way to it: it has no room for more, and cannot acknowledge."""
    with hosts.Lab(hosts=2, rate=None) as lab:
        silent = lab.hosts[0].popen([PYTHON, "-c", SILENT], stdout=subprocess.PIPE)
        assert silent.stdout.readline() == b"up\n"
        command = [PYTHON, "-c", SENDER, "h0"]
        sender = lab.hosts[1].popen(command, stdout=subprocess.PIPE)
        assert sender.stdout.readline() == b"full\n"
        lab.hosts[0].cut()
        least, most = losses.CUT
        assert least < float(sender.stdout.readline()) < most
        for process in (silent, sender):
            process.stdout.close()


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "story"), TRIED)
def test_no_step_is_lost_when_a_host_is(
    hosts: ModuleType, losses: ModuleType, launcher: str, story: str
) -> None:
    setting = losses.QUICK
    with hosts.Lab(losses.HOSTS, losses.RATE) as lab:
        run = losses.measure(lab, launcher, story, setting.schemes[0], setting)
    assert list(losses.judged(run)) == []


def test_every_story_of_a_lost_host_is_told(losses: ModuleType) -> None:
    told = {name: tuple(stories) for name, stories in losses.STORIES.items()}
    assert told == STORIES
