"""Hosts on one machine: network namespaces around a bridge, with limited links.

    with Lab(hosts=3, rate="100mbit", latency=0.01) as lab:
        lab.hosts[1].run(["python", "-c", "print('from another host')"])

Every host has one interface, `eth0`, with an address in 10.84.0.0/16 and a host name,
`h0`, `h1` and so on. The bridge is in a namespace of its own, so that nothing of the
lab is in the machine's own network. Links carry `rate` in each direction, by tbf at
both ends. Latency, where asked for, is put between the two by `relay.py`.

    host's eth0 --tbf--> port of the bridge --(relay)--> port --tbf--> host's eth0

It needs root and iproute2. Everything is removed at the end; what a killed lab has
left is removed when the next one starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from kernel import (
    CPU,
    FOLDERS,
    HOSTS_FILES,
    PREFIX,
    LabFailed,
    bits,
    ip,
    kill_in,
    missing,
    pids_in,
    remove,
    run,
    shaped,
    sweep,
    tc,
    uninterrupted,
)

__all__ = ["Host", "Lab", "LabFailed", "bits", "kill_in", "missing", "sweep"]

RELAY = Path(__file__).with_name("relay.py")
PERIOD = 100_000  # microseconds in which a CPU quota is given out

# Runs in a host: its name, its folder of temporary files, its CPU quota if any.
ENTER = """#!/bin/sh
# usage: enter HOST COMMAND [ARGUMENT ...]
host=$1; shift
export TMPDIR={folder}/$host LAB_HOST=$host
quota={cpu}/{name}-$host/cgroup.procs
[ -e "$quota" ] && echo $$ > "$quota"
exec ip netns exec {name}-$host unshare --uts \\
    sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
"""

_labs = count()


class Host:
    """One host of the lab; made by `Lab`.

    Attributes:
        number: From 0.
        name: `h` and the number; resolves in every host.
        address: In 10.84.0.0/16.
        folder: For its temporary files; processes in it have it as `TMPDIR`.
    """

    def __init__(self, lab: Lab, number: int) -> None:
        self._lab = lab
        self.number = number
        self.name = f"h{number}"
        self.address = f"10.84.{number // 250}.{number % 250 + 1}"
        self.mac = f"02:84:00:00:{number // 256:02x}:{number % 256:02x}"
        self.namespace = f"{lab.name}-{self.name}"
        self.port = f"p{number}"  # on the bridge
        self.folder = lab.folder / self.name
        self._started: list[subprocess.Popen[Any]] = []

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process in this host; the options are those of `Popen`."""
        process = subprocess.Popen([*self.enter, *map(str, argv)], **options)
        self._started.append(process)
        return process

    def run(
        self, argv: Sequence[str], **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a process in this host to its end; the options are those of `run`."""
        given = {"capture_output": True, "text": True, **options}
        return subprocess.run([*self.enter, *map(str, argv)], **given)

    @property
    def enter(self) -> list[str]:
        """The words that, put before a command, run it in this host."""
        return [str(self._lab.enter), self.name]

    def pids(self) -> list[int]:
        """Return all processes that are in this host now."""
        return pids_in([self.namespace])

    def kill_all(self) -> None:
        """End every process in this host by SIGKILL, and wait until they are gone."""
        self.end_started()
        kill_in([self.namespace])

    def end_started(self) -> None:
        """End what was started here, also what is still on its way into the host."""
        while self._started:
            process = self._started.pop()
            process.kill()
            process.wait()

    def cut(self) -> None:
        """Take the link down: nothing comes through, and nobody is told."""
        ip(f"link set {self.port} down", self._lab.bridge)

    def mend(self) -> None:
        """Take the link up again."""
        ip(f"link set {self.port} up", self._lab.bridge)

    def set_rate(self, rate: str | None) -> None:
        """Limit both directions to another rate, such as `10mbit`; None: no limit."""
        for device, space in self._ends():
            with contextlib.suppress(LabFailed):  # it has none yet
                tc(f"qdisc del dev {device} root", space)
            if rate is not None:
                tc(shaped(device, rate, self._lab.queue), space)

    def cpu(self, percent: float) -> None:
        """Give all processes in this host, together, a share of one core."""
        if not CPU.is_dir():
            raise LabFailed(f"no {CPU}", "mount the cpu controller of cgroup v1")
        group = CPU / self.namespace
        group.mkdir(exist_ok=True)
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(int(percent / 100 * PERIOD)))
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))

    def received_bytes(self) -> int:
        """Return the bytes that have come to this host, by the kernel's count."""
        return self._count("tx_bytes")  # of the other end: what it sends, we receive

    def sent_bytes(self) -> int:
        """Return the bytes that have left this host, by the kernel's count."""
        return self._count("rx_bytes")

    def _count(self, counter: str) -> int:
        path = f"/sys/class/net/{self.port}/statistics/{counter}"
        command = ["ip", "netns", "exec", self._lab.bridge, "cat", path]
        return int(run(command, ""))

    def _ends(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (("eth0", self.namespace), (self.port, self._lab.bridge))


class Lab:
    """So many hosts, for as long as the `with` block lasts.

    Args:
        hosts: How many.
        rate: Of every link, in each direction, in the words of tc; None: no limit.
        latency: Seconds from any host to any other, one way, on top of the links'.
        queue: Bytes that wait at a link before further ones are lost.
        mtu: Bytes of the largest packet.
        congestion: How TCP in the hosts reacts to losses, such as `reno`; of those in
            /proc/sys/net/ipv4/tcp_allowed_congestion_control. None: as outside.
    """

    def __init__(
        self,
        hosts: int = 85,
        rate: str | None = "100mbit",
        latency: float = 0.0,
        *,
        queue: int = 1_000_000,
        mtu: int = 9000,
        congestion: str | None = None,
    ) -> None:
        self.name = f"{PREFIX}{os.getpid()}.{next(_labs)}"
        self.folder = FOLDERS / self.name
        self.bridge = f"{self.name}-net"
        self.enter = self.folder / "enter"
        self.rate, self.latency, self.queue, self.mtu = rate, latency, queue, mtu
        self.congestion = congestion
        self.hosts = [Host(self, number) for number in range(hosts)]
        self._relay: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    def __enter__(self) -> Lab:
        problem = missing()
        if problem:
            raise LabFailed(problem, "run it as root on Linux, with iproute2 installed")
        sweep()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything, also what was only half built."""
        with uninterrupted():
            for host in self.hosts:
                host.end_started()
            remove(self.name)
            if self._relay is not None:
                assert self._relay.stdout is not None
                self._relay.stdout.close()
                self._relay.wait()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def __getitem__(self, name: str) -> Host:
        """Return the host of that name."""
        return next(host for host in self.hosts if host.name == name)

    def _build(self) -> None:
        self.folder.mkdir(mode=0o700)
        self._lock = os.open(self.folder / "new", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.folder / "new").rename(self.folder / "lock")  # never seen unlocked
        self.enter.write_text(ENTER.format(folder=self.folder, name=self.name, cpu=CPU))
        self.enter.chmod(0o700)
        spaces = [self.bridge, *(host.namespace for host in self.hosts)]
        ip("\n".join(f"netns add {space}" for space in spaces))
        self._make_bridge()
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            self._make_host(host, "127.0.0.1 localhost\n" + names)
        if self.rate is not None:
            lines = [shaped(host.port, self.rate, self.queue) for host in self.hosts]
            tc("\n".join(lines), self.bridge)
        if self.latency:
            self._start_relay()

    def _make_bridge(self) -> None:
        lines = ["link set lo up", "link add br0 type bridge mcast_snooping 0"]
        lines += [f"link set br0 mtu {self.mtu} addrgenmode none", "link set br0 up"]
        for host in self.hosts:
            peer = f"peer name eth0 address {host.mac} netns {host.namespace}"
            lines.append(f"link add {host.port} mtu {self.mtu} type veth {peer}")
            plain = "addrgenmode none master br0"
            lines.append(f"link set {host.port} {plain}")
            lines.append(f"link set {host.port} up type bridge_slave learning off")
        ip("\n".join(lines), self.bridge)
        # Nothing has to be learnt, so nothing is ever sent to all.
        known = [f"fdb add {h.mac} dev {h.port} master static" for h in self.hosts]
        run(["bridge", "-n", self.bridge, "-batch", "-"], "\n".join(known))

    def _make_host(self, host: Host, names: str) -> None:
        host.folder.mkdir()
        etc = HOSTS_FILES / host.namespace
        etc.mkdir(parents=True)
        (etc / "hosts").write_text(names)
        lines = ["link set lo up", f"link set eth0 mtu {self.mtu} addrgenmode none"]
        lines += [f"addr add {host.address}/16 dev eth0", "link set eth0 up"]
        for other in self.hosts:
            if other is not host:
                lines.append(
                    f"neigh add {other.address} lladdr {other.mac} dev eth0 "
                    "nud permanent"
                )
        ip("\n".join(lines), host.namespace)
        if self.congestion is not None:
            setting = "/proc/sys/net/ipv4/tcp_congestion_control"
            write = ["ip", "netns", "exec", host.namespace, "tee", setting]
            run(write, self.congestion)
        if self.rate is not None:
            tc(shaped("eth0", self.rate, self.queue), host.namespace)

    def _start_relay(self) -> None:
        """Send all that comes from a host through the relay, and then to the bridge."""
        command = ["ip", "netns", "exec", self.bridge, sys.executable, str(RELAY)]
        self._relay = subprocess.Popen(
            [*command, "relay0", str(self.latency)], stdout=subprocess.PIPE
        )
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != b"ready\n":
            raise LabFailed("the relay did not start", "see what it says above")
        ip(
            f"link set relay0 mtu {self.mtu} addrgenmode none master br0\n"
            "link set relay0 type bridge_slave learning off flood off\n"
            "link set relay0 up",
            self.bridge,
        )
        for host in self.hosts:
            tc(
                f"qdisc add dev {host.port} ingress\n"
                f"filter add dev {host.port} parent ffff: protocol all u32 "
                "match u32 0 0 action mirred egress redirect dev relay0",
                self.bridge,
            )
