"""Finding a Ray cluster, or starting one of this machine, and letting go of it.

A cluster of our own listens on this machine's loopback alone, has its files in a folder
that no other user may enter, and ends with us. One that was there before is joined and
left as it was; a connection that the user has made is used and not closed. Signals stay
with the handlers they had: Ray takes SIGTERM for itself, and ends the process where it
is.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from codedgrad.engines.ask_process import ask
from codedgrad.engines.optional_libraries import extra
from codedgrad.engines.ray.address import JOIN, is_refused, knock, to_try
from codedgrad.errors import EngineFailed

_log = logging.getLogger("codedgrad")
_LOOPBACK = "127.0.0.1"
_SYSTEM = {"worker_niceness": 0, "agent_register_timeout_ms": 60_000}
_ANSWER = 20.0  # seconds for a cluster to answer, most of it to import Ray
_LONGEST = 22  # characters of a folder's name that leave room for Ray's sockets
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Cluster:
    """A connection to Ray.

    Args:
        address: Of a cluster; "local": one of our own; None: `RAY_ADDRESS`, or else
            "local".
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
        self._folder = ""  # of a cluster of our own
        environment = dict(runtime_env) if runtime_env else None
        where = address or os.environ.get("RAY_ADDRESS") or "local"
        if ray.util.client.ray.is_connected() or where.startswith("ray://"):
            problem = "workers cannot be reached over a Ray client (ray://)"
            advice = 'running the script on a host of the cluster with address="auto"'
            raise EngineFailed(problem, advice)
        if self.is_users:
            self._compare(address)
            return
        try:
            if where == "local":
                self._start(cpus, environment)
            else:
                self._join(where, environment)
        except BaseException:
            self.close()
            raise

    def _compare(self, address: str | None) -> None:
        """Say so if the user's connection is to another cluster than is asked for."""
        there = self.ray.get_runtime_context().gcs_address
        if address not in (None, "auto", there):
            _log.warning(
                "the script is connected to the Ray cluster at %s, which is used; "
                "address=%r is not",
                there,
                address,
            )

    def _start(self, cpus: float, runtime_env: dict[str, Any] | None) -> None:
        # For us alone: Ray opens its own folder to everybody. Its sockets are in there,
        # and their paths must be short.
        usual = tempfile.gettempdir()
        parent = usual if len(usual) <= _LONGEST else "/tmp"
        self._folder = tempfile.mkdtemp(prefix="codedgrad-", dir=parent)
        with _of_this_machine(), _quietly():
            self._init(
                "a Ray cluster of this machine cannot be started",
                "a machine less busy, or `ray start --head`, which says more",
                address="local",
                num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
                include_dashboard=False,
                logging_level=logging.ERROR,
                runtime_env=runtime_env,
                _node_ip_address=_LOOPBACK,
                _temp_dir=f"{self._folder}/r",
                _system_config=_SYSTEM,
            )

    def _join(self, address: str, runtime_env: dict[str, Any] | None) -> None:
        advice = "`ray status` on the cluster's head, or `ray start --head` to start it"
        problem = f"there is no Ray cluster at {address}"
        silence = knock(address)
        if silence:
            raise EngineFailed(f"{problem}: {silence}", advice)
        # Ray waits for minutes, and ends the process that does: so ask in another one
        # -P: or a ray.py of the working directory would be run for Ray
        answer = ask([sys.executable, "-P", "-c", JOIN, address], _ANSWER)
        advice = to_try(advice, answer)
        if is_refused(answer):
            problem = f"the Ray cluster at {address} wants a token"
            problem += ", and got none or another"
            raise EngineFailed(problem, advice)
        if answer.code != 0:
            silence = f"no answer within {_ANSWER:g} s"
            said = silence if answer.code is None else answer.last
            raise EngineFailed(f"{problem}: {said}", advice)
        with _quietly():
            self._init(
                problem,
                advice,
                address=address,
                logging_level=logging.ERROR,
                runtime_env=runtime_env,
            )

    def _init(self, problem: str, advice: str, **how: Any) -> None:
        try:
            with _signals_as_they_are():
                self.ray.init(**how)
        except Exception as error:  # whatever Ray raises: of many kinds
            text = " ".join(str(error).split())
            raise EngineFailed(f"{problem}: {text}", advice) from None

    def check_room(self, workers: int, resources: Mapping[str, float]) -> None:
        """Raise unless so many workers with so much each fit into the cluster."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        room = sum(self.capacities(resources))
        if room < workers:
            each = ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
            has = json.dumps({k: self._total(k, nodes) for k in resources})
            problem = (
                f"{workers} workers with {each} each are wanted, the cluster has "
                f"room for {room:g} (hosts: {len(nodes)}, all in all {has})"
            )
            raise EngineFailed(problem, "fewer workers, or less resources_per_worker")

    def capacities(self, resources: Mapping[str, float]) -> list[float]:
        """Return how many workers with so much each fit on each node."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        return [_fitting(node["Resources"], resources) for node in nodes]

    def _total(self, name: str, nodes: list[dict[str, Any]]) -> float:
        return float(sum(node["Resources"].get(name, 0.0) for node in nodes))

    def close(self) -> None:
        """End what was started and leave what was joined."""
        if self.is_users:
            return
        with _quietly():
            self.ray.shutdown()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _fitting(has: Mapping[str, float], needs: Mapping[str, float]) -> float:
    """Return how many workers fit on a host."""
    wanted = {name: amount for name, amount in needs.items() if amount}
    if not wanted:  # then by cores: the workers will use some
        return max(1.0, has.get("CPU", 0.0))
    return min(has.get(name, 0.0) // amount for name, amount in wanted.items())


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
def _signals_as_they_are() -> Iterator[None]:
    """Restore the signal handlers, which Ray replaces if this is the main thread.

    In between they are Ray's: it ends what it has begun to start.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _SIGNALS if is_main}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # else not of Python's making: it cannot be set
                signal.signal(number, handler)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep to ourselves what Ray warns its own developers of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
