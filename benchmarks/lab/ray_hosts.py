"""A Ray cluster across the hosts of a lab: a head in the first, a node in each other.

    with Lab(hosts=9) as lab, ray_cluster(lab) as cluster:
        cluster.run(["driver.py"])      # in h0; finds the cluster by RAY_ADDRESS
        lab.hosts[3].kill_all()         # a host is gone
        cluster.start(lab.hosts[3])     # and back
        lab.hosts[4].cut()              # silence

Every host sees a folder of its own as /tmp/ray: nodes that share one get in each
other's way. All have one token, which is made here and is of no use elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hosts import Host, Lab, LabFailed, kill_in

__all__ = ["Cluster", "ray_cluster"]

RAY = Path(sys.executable).with_name("ray")
SESSIONS = Path("/tmp/ray")  # where Ray keeps the files of a node
PORT = 6379
STORE = 100_000_000  # bytes of objects that a node holds
AT_A_TIME = 2  # nodes that start: more of them run into Ray's own time limits

# Runs in a host, before anything of Ray's: a mount that only this process tree sees.
INSIDE = f'mkdir -p "$TMPDIR/ray" && mount --bind "$TMPDIR/ray" {SESSIONS} && exec "$@"'


class Cluster:
    """The nodes of Ray in a lab; made by `ray_cluster`.

    Attributes:
        address: Of the head, for `ray.init`.
        environment: Of every process that has to do with it.
    """

    def __init__(
        self, lab: Lab, hosts: Sequence[Host], cpus: int, head_cpus: int
    ) -> None:
        self.lab, self.hosts = lab, list(hosts)
        self._cpus, self._head_cpus = cpus, head_cpus
        self.address = f"{hosts[0].address}:{PORT}"
        token = lab.folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self.environment = os.environ | {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, host: Host, tries: int = 3) -> None:
        """Start a node in a host, also in one whose processes have been killed.

        Ray gives a node a fixed time to come up, which is short on a busy machine.
        """
        said = host.folder / "ray-start.txt"
        for _ in range(tries):
            host.kill_all()
            shutil.rmtree(host.folder / "ray", ignore_errors=True)
            if self._try_start(host, said):
                return
        last = " ".join(said.read_text().split()[-40:])
        raise LabFailed(f"no node of Ray in {host.name}: {last}", "try once more")

    def _try_start(self, host: Host, said: Path, patience: float = 120.0) -> bool:
        words = [str(RAY), "start", f"--node-ip-address={host.address}"]
        cpus = self._head_cpus if host is self.hosts[0] else self._cpus
        words += [f"--num-cpus={cpus}", f"--object-store-memory={STORE}"]
        words.append(f'--resources={{"{host.name}": 1}}')  # to be placed by name
        words.append("--disable-usage-stats")
        if host is self.hosts[0]:
            words += ["--head", f"--port={PORT}", "--include-dashboard=false"]
        else:
            words.append(f"--address={self.address}")
        with said.open("w") as file:  # not a pipe: the node would keep it open
            process = self.popen(words, host, stdout=file, stderr=file)
        try:
            return process.wait(patience) == 0
        except subprocess.TimeoutExpired:
            return False

    def popen(
        self, argv: Sequence[str], host: Host | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a process that can use Ray in a host, `h0` if none is given."""
        inside = ["sh", "-c", INSIDE, "ray", *map(str, argv)]
        given = {"env": self.environment, "stdin": subprocess.DEVNULL, **options}
        return (host or self.hosts[0]).popen(inside, **given)

    def run(self, argv: Sequence[str], patience: float = 300.0) -> str:
        """Run a Python program in `h0` to its end, and return what it printed."""
        words = [sys.executable, *argv]
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = self.popen(words, **pipe)
        try:
            said, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired as error:
            process.kill()
            problem = f"{argv[0]} was not done after {patience:g} s"
            raise LabFailed(problem, "give it more patience") from error
        if process.returncode:
            raise LabFailed(f"{argv[0]} failed: {said[-2000:]}", "see what it says")
        return str(said)

    def wait_for(self, nodes: int, patience: float = 120.0) -> float:
        """Return the seconds until the head counts so many nodes alive."""
        begun = time.monotonic()
        said = self.run([__file__, str(nodes), str(patience)], patience + 60)
        if "all there" not in said:
            raise LabFailed(f"not {nodes} nodes: {said[-500:]}", "see their logs")
        return time.monotonic() - begun


@contextlib.contextmanager
def ray_cluster(
    lab: Lab,
    hosts: Sequence[Host] | None = None,
    cpus: int = 1,
    head_cpus: int | None = None,
) -> Iterator[Cluster]:
    """Start Ray in hosts of a lab, and end all of it afterwards.

    Args:
        lab: Where the hosts are.
        hosts: The first is the head; all of the lab if none are given.
        cpus: Of every host, as Ray is told.
        head_cpus: Of the head, if it is to have others; 0: nothing is placed there.
    """
    hosts = lab.hosts if hosts is None else hosts
    SESSIONS.mkdir(exist_ok=True)  # to mount over
    cluster = Cluster(lab, hosts, cpus, cpus if head_cpus is None else head_cpus)
    try:
        cluster.start(hosts[0])
        with ThreadPoolExecutor(AT_A_TIME) as starters:
            list(starters.map(cluster.start, hosts[1:]))
        yield cluster
    finally:
        kill_in(host.namespace for host in hosts)


def count_nodes(wanted: int, patience: float) -> None:
    """Be a driver that waits until so many nodes are alive, and no more."""
    import ray

    ray.init(log_to_driver=False, logging_level="ERROR")
    until = time.monotonic() + patience
    while (alive := sum(node["Alive"] for node in ray.nodes())) != wanted:
        if time.monotonic() > until:
            raise SystemExit(f"{alive} nodes are alive")
        time.sleep(0.2)
    print("all there")


if __name__ == "__main__":
    count_nodes(int(sys.argv[1]), float(sys.argv[2]))
