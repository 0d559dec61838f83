"""Finding a Ray cluster, or starting one of this machine, and letting go of it.

A cluster of our own listens on this machine's loopback alone, has its files in a folder
of its own, and ends with us. One that was there before is joined and left as it was; a
connection that the user has made is used and not closed.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from codedgrad.engines.asking import ask
from codedgrad.engines.extras import extra
from codedgrad.errors import EngineFailed, InvalidScenario

__all__ = ["Cluster", "options"]

_log = logging.getLogger("codedgrad")
_LOOPBACK = "127.0.0.1"
_SYSTEM = {"worker_niceness": 0, "agent_register_timeout_ms": 60_000}
_ANSWER = 20.0  # seconds for a cluster to answer, most of it to import Ray
_KNOCK = 5.0  # seconds for its host to answer
_GONE = 3.0  # seconds for a cluster of ours to end by itself
_ADDRESS = re.compile(r"(?P<host>[^\s:/]+|\[.+\]):(?P<port>\d{1,5})")
_LONGEST = 30  # characters of a folder's name that leave room for Ray's sockets
_JOIN = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
"""


def options(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return what a worker is given, as Ray's options say it.

    Example:
        >>> options({"CPU": 2, "disk": 1})
        {'num_cpus': 2, 'resources': {'disk': 1}}
    """
    names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    told: dict[str, Any] = {}
    for name, amount in resources.items():
        if not amount >= 0:
            problem = f"{name} is {amount!r}"
            raise InvalidScenario("resources_per_worker", problem, "0 or more")
        if name in names:
            told[names[name]] = amount
        else:
            told.setdefault("resources", {})[name] = amount
    return {"num_cpus": 0, **told} if "CPU" not in resources else told


class Cluster:
    """A connection to Ray.

    Args:
        address: Of a cluster; None: one of our own.
        cpus: How many one of our own is to offer at least.
        runtime_env: What Ray is to prepare for the workers.

    Attributes:
        is_users: Whether the user has made the connection.
    """

    def __init__(
        self, address: str | None, cpus: float, runtime_env: Mapping[str, Any] | None
    ) -> None:
        self.ray = ray = extra("ray")
        self.is_users = bool(ray.is_initialized())
        self._folder: Path | None = None
        self._processes: dict[int, str] = {}
        environment = dict(runtime_env) if runtime_env else None
        if ray.util.client.ray.is_connected() or (address or "").startswith("ray://"):
            problem = "workers cannot be reached over a Ray client (ray://)"
            advice = 'running the script on a host of the cluster with address="auto"'
            raise EngineFailed(problem, advice)
        if self.is_users:
            return
        try:
            if address in (None, "local"):
                self._start(cpus, environment)
            else:
                assert address is not None
                self._join(address, environment)
        except BaseException:
            self.close()
            raise

    def _start(self, cpus: float, runtime_env: dict[str, Any] | None) -> None:
        usual = tempfile.gettempdir()
        parent = usual if len(usual) <= _LONGEST else "/tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="codedgrad-", dir=parent))
        with _of_this_machine(), _quietly():
            self._init(
                "a Ray cluster of this machine cannot be started",
                f"reading the logs in {self._folder}, or a machine less busy",
                address="local",
                num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
                include_dashboard=False,
                logging_level=logging.ERROR,
                runtime_env=runtime_env,
                _node_ip_address=_LOOPBACK,
                _temp_dir=str(self._folder),
                _system_config=_SYSTEM,
            )

    def _join(self, address: str, runtime_env: dict[str, Any] | None) -> None:
        advice = "`ray status` on the cluster's head, or `ray start --head` to start it"
        problem = f"there is no Ray cluster at {address}"
        silence = _knock(address)
        if silence:
            raise EngineFailed(f"{problem}: {silence}", advice)
        # Ray waits for minutes, and ends the process that does: so ask in another one
        answer = ask([sys.executable, "-c", _JOIN, address], _ANSWER)
        if answer.code != 0:
            silence = f"no answer within {_ANSWER:g} s"
            said = silence if answer.code is None else answer.last
            raise EngineFailed(f"{problem}: {said}", advice)
        with _quietly():
            self._init(problem, advice, address=address, runtime_env=runtime_env)

    def _init(self, problem: str, advice: str, **how: Any) -> None:
        try:
            self.ray.init(**how)
        except Exception as error:  # whatever Ray raises: of many kinds
            text = " ".join(str(error).split())
            raise EngineFailed(f"{problem}: {text}", advice) from None

    def check_room(self, workers: int, resources: Mapping[str, float]) -> None:
        """Raise unless so many workers with so much each fit into the cluster."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        room = sum(_fitting(node["Resources"], resources) for node in nodes)
        if room < workers:
            each = ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
            has = json.dumps({k: self._total(k, nodes) for k in resources})
            problem = (
                f"{workers} workers with {each} each are wanted, the cluster of "
                f"{len(nodes)} hosts has room for {room:g} ({has})"
            )
            raise EngineFailed(problem, "fewer workers, or less resources_per_worker")

    def _total(self, name: str, nodes: list[dict[str, Any]]) -> float:
        return float(sum(node["Resources"].get(name, 0.0) for node in nodes))

    def close(self) -> None:
        """End what was started and leave what was joined."""
        if self.is_users:
            return
        if self._folder is not None:
            self._processes = descendants(os.getpid(), str(self._folder))
        with _quietly():
            self.ray.shutdown()
        _see_gone(self._processes)
        if self._folder is not None:
            shutil.rmtree(
                self._folder, ignore_errors=True
            )  # a log may be being written


def _knock(address: str) -> str:
    """Return why nobody can be at an address; empty if there may be somebody."""
    if address == "auto":
        return ""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return "an address is HOST:PORT, auto or local"
    where = parts["host"].strip("[]"), int(parts["port"])
    try:
        socket.create_connection(where, _KNOCK).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _fitting(has: Mapping[str, float], needs: Mapping[str, float]) -> float:
    """Return how many workers fit on a host."""
    return min(
        (has.get(k, 0.0) // amount for k, amount in needs.items() if amount),
        default=math.inf,
    )


@contextmanager
def _of_this_machine() -> Iterator[None]:
    """Let Ray take the loopback's address as it is, and send nothing home.

    On Linux it otherwise replaces it with the one that others can reach.
    """
    constants = extra("ray")._private.ray_constants
    variables = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    before = {name: os.environ.get(name) for name in variables}
    clusters = constants.ENABLE_RAY_CLUSTER
    os.environ.update(variables)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = clusters
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep to ourselves what Ray warns its own developers of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- processes -------------------------------------------------------------------------


def descendants(pid: int, named: str) -> dict[int, str]:
    """Return the children of a process whose command names something, and all theirs.

    With each comes when it was started, by which it is known from a later one of the
    same number. Empty where the system has no `/proc`.
    """
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found: dict[int, str] = {}
    todo = [child for child in children.get(pid, []) if named in _command(child)]
    while todo:
        one = todo.pop()
        found[one] = _started(one)
        todo += children.get(one, [])
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process was started; empty if it is no more than a name."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _see_gone(processes: Mapping[int, str]) -> None:
    """Wait for the end of processes, and end those that do not."""
    deadline = time.monotonic() + _GONE
    left = {pid: at for pid, at in processes.items() if at and _started(pid) == at}
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = {pid: at for pid, at in left.items() if _started(pid) == at}
    for pid in left:
        _log.info("process %d of Ray's did not end by itself", pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
