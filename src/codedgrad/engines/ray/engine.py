"""The Ray engine: one actor a node, as the agent of a host.

Ray sets resources aside, starts the actors, and starts them again where they or their
nodes are lost. Everything else goes over the connections that the actors make to the
root (`remote`). An actor is no more than an agent: its workers are processes of their
own, as they are on one machine, because a method that runs in an actor cannot be
interrupted.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS
from codedgrad.engines.preemption_notices import PreemptionNotice
from codedgrad.engines.ray.actor import HostActor
from codedgrad.engines.ray.cluster import Cluster
from codedgrad.engines.ray.drains import Drains
from codedgrad.engines.remote.door import parse_ports
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.handshake import RunKey
from codedgrad.engines.remote.launcher import Launcher, Share, shared_out
from codedgrad.engines.remote.lobby import Lobby
from codedgrad.engines.remote.machine import reachable_at
from codedgrad.errors import EngineFailed, InvalidOptions

_NOTHING = {"CPU": 0.001}  # Ray sets no bundle aside that asks for nothing
_ROOM = 60.0  # seconds for Ray to set resources aside
_CALL = 120.0  # seconds for an actor to reach the root


class RayLauncher(Launcher):
    """Starts an actor on every node that has workers; see `Ray` for the arguments."""

    def __init__(
        self,
        address: str | None,
        resources: Mapping[str, float] | None,
        runtime_env: Mapping[str, Any] | None,
        workers_per_host: int | None,
        root_is_agent: bool,
        interface: str | None,
        ports: str | tuple[int, int] | None,
    ) -> None:
        self._address = address
        self._resources = {"CPU": 1.0} if resources is None else dict(resources)
        for name, amount in self._resources.items():
            if not amount >= 0:
                problem = f"{name} is {amount!r}"
                raise InvalidOptions("resources_per_worker", problem, "0 or more")
        if workers_per_host is not None and workers_per_host < 1:
            problem = f"is {workers_per_host!r}"
            raise InvalidOptions("workers_per_host", problem, "1 or more")
        self._runtime_env = runtime_env
        self._workers_per_host = workers_per_host
        # Only Ray can show a process its GPUs, or prepare its environment.
        own = runtime_env is None and not self._resources.get("GPU")
        self._root_is_agent = root_is_agent and own
        parse_ports(ports)  # a mistake is to be said at once
        self._interface, self._ports = interface, ports
        self._owner = os.getpid()
        self._cluster: Cluster | None = None
        self._drains: Drains | None = None
        self._group: Any = None
        self._actors: dict[int, Any] = {}
        self._starting: dict[Any, int] = {}  # by reference, actors not there yet
        self._since: dict[int, float] = {}  # when each actor was there

    def open(self, workers: int) -> list[Share]:
        """Reach a cluster and ask it for actors."""
        if self._interface is not None:
            reachable_at(self._interface)  # now: to start Ray takes seconds
        cluster = self._reach(workers)
        self._ray = ray = cluster.ray
        cluster.check_room(workers, self._resources)
        counts = self._counts(workers)
        nodes = self._set_aside(counts)
        here = ray.get_runtime_context().get_node_id()
        self.lobby = Lobby(
            RunKey.draw(), self._interface or self._usual_interface(nodes), self._ports
        )
        shares: list[Share] = []
        # The root's node first: Ray may put the bundles on other nodes in the next run,
        # and the root's host should have the same workers in both.
        bundles = range(len(nodes))
        for bundle in sorted(bundles, key=lambda bundle: nodes[bundle] != here):
            count = counts[bundle]
            cores = count * self._resources.get("CPU", 0.0) or 1.0
            if nodes[bundle] == here and self._root_is_agent and not shares:
                shares.append(Share(None, count, cores))
            else:
                number = len(self._actors) + 1  # as hosts are numbered in the log
                self._start(number, bundle, count, cores)
                shares.append(Share(number, count, cores))
        self._drains = Drains(ray, self._nodes)
        return shares

    def machines(self) -> int:
        """Return how many nodes have room for a worker."""
        capacities = self._reach(1).capacities(self._resources)
        return sum(capacity >= 1 for capacity in capacities)

    def _reach(self, workers: int) -> Cluster:
        if self._cluster is None:
            cpus = workers * self._resources.get("CPU", 0.0)
            self._cluster = Cluster(self._address, cpus, self._runtime_env)
        return self._cluster

    def check(self) -> None:
        """Raise if Ray could not start an actor, or one does not reach the root."""
        for ref, number in list(self._starting.items()):
            ready, _ = self._ray.wait([ref], timeout=0)
            if not ready:
                continue
            del self._starting[ref]
            self._since[number] = time.monotonic()
            try:
                self._ray.get(ref)
            except Exception as error:  # of many kinds
                problem = (
                    f"the actor of host {number} cannot be started: {_line(error)}"
                )
                advice = (
                    "looking at Ray's logs; codedgrad must be installed on all nodes"
                )
                raise EngineFailed(problem, advice) from None
        now = time.monotonic()
        for number, since in self._since.items():
            if now - since > _CALL and number not in self.lobby.links:
                door = self.lobby.invitation
                problem = (
                    f"host {number} is there, and has not reached the root at "
                    f"{' or '.join(door.addresses)} port {door.port} for {_CALL:g} s"
                )
                advice = "interface=, for an address that it can reach, or a firewall"
                raise EngineFailed(problem, advice)

    def notices(self) -> list[PreemptionNotice]:
        """Return which nodes of the run Ray has begun to drain since the last call."""
        return [] if self._drains is None else self._drains.notices()

    def close(self) -> None:
        """End all actors, and the cluster if it is ours."""
        if self._cluster is None or os.getpid() != self._owner:
            return  # not open; or a fork of the root, which has none of this
        cluster, self._cluster = self._cluster, None
        if self._drains is not None:
            self._drains.close()
        if hasattr(self, "lobby"):
            self.lobby.close()
        if cluster.ray.is_initialized():
            for actor in self._actors.values():
                cluster.ray.kill(actor)
            if self._group is not None:
                cluster.ray.util.remove_placement_group(self._group)
        cluster.close()

    def _counts(self, workers: int) -> list[int]:
        """Return how many workers each host has."""
        each = self._workers_per_host
        if each is not None:
            hosts = math.ceil(workers / each)
            return [min(each, workers - number * each) for number in range(hosts)]
        assert self._cluster is not None  # it is open
        capacities = self._cluster.capacities(self._resources)
        return [count for count in shared_out(workers, capacities) if count]

    def _set_aside(self, counts: list[int]) -> list[str]:
        """Let Ray set resources aside; return on which nodes, by host."""
        util = self._ray.util
        bundles = [
            {name: count * each for name, each in self._resources.items() if each}
            or _NOTHING
            for count in counts
        ]
        self._group = util.placement_group(bundles, strategy="SPREAD")
        if not self._group.wait(_ROOM):
            problem = f"Ray has not set {bundles} aside within {_ROOM:g} s"
            raise EngineFailed(problem, "`ray status`: others may be using the cluster")
        return self._nodes()

    def _nodes(self) -> list[str]:
        """Return the node of every host, as Ray has placed them now."""
        table = self._ray.util.placement_group_table(self._group)
        nodes = table["bundles_to_node_id"]
        return [nodes[index] for index in sorted(nodes)]

    def _usual_interface(self, nodes: list[str]) -> str | None:
        """Return the address that Ray uses for this node; the loopback on one node."""
        here = self._ray.get_runtime_context().get_node_id()
        if all(node == here for node in nodes):
            return "127.0.0.1"
        return str(self._ray.util.get_node_ip_address())

    def _start(self, number: int, bundle: int, count: int, cores: float) -> None:
        strategies = self._ray.util.scheduling_strategies
        how: dict[str, Any] = dict(
            num_cpus=0,
            num_gpus=count * self._resources.get("GPU", 0.0),
            max_restarts=-1,
            max_task_retries=-1,
            enable_task_events=False,
            scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=bundle
            ),
        )
        if self._runtime_env and self._cluster is not None and self._cluster.is_users:
            how["runtime_env"] = dict(self._runtime_env)
        divides = bool(self._resources.get("GPU"))
        actor = self._ray.remote(**how)(HostActor).remote(
            self.lobby.invitation, number, cores, divides
        )
        self._actors[number] = actor
        self._starting[actor.pid.remote()] = number


class Ray(Remote):
    """Workers on a Ray cluster.

    Ray itself is trusted: a process that may send it tasks may run anything. Its
    clusters want a token since version 2.59; keep it on, and their ports inside.

    Args:
        address: `HOST:PORT` of a cluster, `auto` for the one this machine belongs to;
            `local`: a cluster of this machine alone, that ends with the engine; None:
            what `RAY_ADDRESS` says, or else `local`. If the script has called
            `ray.init`, that connection is used, and kept, whatever is said here.
        resources_per_worker: What Ray is to set aside for each, one `CPU` by default.
            With a `GPU` every worker sees its own alone; that is not tested.
        workers_per_host: Workers of every host; None: they are shared out by what the
            nodes have of these resources.
        root_is_agent: Whether the root's process is the agent of its node, whose
            workers it then shares memory with; False: an actor, as on other nodes. So
            it is with GPUs and with a `runtime_env`, too.
        runtime_env: What Ray is to prepare for workers, as `ray.init` takes it.
        interface: Where root and agents listen: the name of an interface, or an address
            of this machine; None: the address that Ray has for it.
        ports: At which: `"FIRST-LAST"` or (first, last); None: any.
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway.
        threads: That every worker computes with; `"auto"`: as many as it has of `CPU`.

    Example:
        >>> Ray(address="head:6379", resources_per_worker={"CPU": 2}).name
        'ray'
    """

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        *,
        resources_per_worker: Mapping[str, float] | None = None,
        workers_per_host: int | None = None,
        root_is_agent: bool = True,
        runtime_env: Mapping[str, Any] | None = None,
        interface: str | None = None,
        ports: str | tuple[int, int] | None = None,
        open_segments: int = OPEN_SEGMENTS,
        preload: tuple[str, ...] = (),
        threads: int | str = "auto",
    ) -> None:
        launcher = RayLauncher(
            address,
            resources_per_worker,
            runtime_env,
            workers_per_host,
            root_is_agent,
            interface,
            ports,
        )
        super().__init__(
            launcher, open_segments=open_segments, preload=preload, threads=threads
        )


def _line(error: BaseException) -> str:
    """Return what an exception says, in one line without Ray's many hints."""
    cause: BaseException = getattr(error, "cause", None) or error  # in an actor
    text = str(cause).strip() or type(cause).__name__
    return text.splitlines()[0]
