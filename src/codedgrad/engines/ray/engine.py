"""The Ray engine: an actor for every worker, wherever a Ray cluster has room.

Ray places the actors, starts them again where they or their hosts are lost, and moves
the vectors. An actor is no more than an agent; its worker is a process of its own, as
it is on one machine: a method that runs in an actor cannot be interrupted.

```text
  root                              actor i, four threads
  send, deliver -- take(n, items) -> control    in the order of n
  poll <--------- stream of frames - hear
  fetch -- send(rows) -> a reference that the root pulls
  carry -- send(rows) -> a reference - fill(row) at another actor
```
"""

from __future__ import annotations

import heapq
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stretches, pack
from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS
from codedgrad.engines.preemption_notices import PreemptionNotice
from codedgrad.engines.ray.actor import GROUPS, Box, Host, Item, Met
from codedgrad.engines.ray.cluster import Cluster, options
from codedgrad.engines.ray.drains import Drains
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.transport import (
    Carried,
    Fetched,
    Joined,
    Lost,
    Notice,
    Spoke,
)
from codedgrad.errors import EngineFailed

_log = logging.getLogger("codedgrad")
_SMALL = 60_000  # bytes that travel with a call; Ray's own limit is 100 kB a call
_STREAM = 10_000  # frames in a stream, of which Ray remembers each
_POLITE = 2.0  # seconds for actors to end by themselves
_SHORT = 10.0  # seconds: a life that ended sooner makes the next one wait
_FIRST, _LONGEST = 0.1, 30.0  # seconds of back-off

_Happening: TypeAlias = Callable[[], list[Notice]]


class _Seat:
    """An actor, as the root sees it.

    Attributes:
        life: The number it has given itself; 0 while it is not there.
        node: The id of the Ray node it is on.
    """

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.life = 0
        self.pid = 0
        self.node = ""
        self.sent = 0
        self.waiting: list[Item] = []  # parameters for what is sent next
        self.has_joined = False
        self.born = 0.0
        self.failures = 0

    def begin(self, met: Met) -> None:
        self.life, self.pid, self.node, _ = met
        self.sent, self.waiting = 0, []
        self.has_joined, self.born = True, time.monotonic()

    def end(self) -> float:
        """End a life; return the seconds until the next one may begin."""
        short = self.life == 0 or time.monotonic() - self.born < _SHORT
        self.life = self.pid = 0
        self.failures = self.failures + 1 if short else 1
        if self.failures < 2:
            return 0.0
        return min(_LONGEST, _FIRST * 2.0 ** (self.failures - 2))


class RayTransport:
    """Reaches agents that are Ray actors; see `Ray` for the arguments."""

    name = "ray"
    restarts = True

    def __init__(
        self,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        self._address = address
        self._resources = {"CPU": 1.0} if resources is None else dict(resources)
        self._options = options(self._resources)
        self._runtime_env = runtime_env
        self._cluster: Cluster | None = None
        self._drains: Drains | None = None
        self._seats: list[_Seat] = []
        self._listeners: list[threading.Thread] = []
        self._happened: queue.SimpleQueue[_Happening] = queue.SimpleQueue()
        self._agenda: list[tuple[float, int]] = []  # (when, agent) to meet again
        self._owner = os.getpid()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process id of every actor; 0 for one that is not there."""
        return tuple(seat.pid for seat in self._seats)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The id of the Ray node of every actor; empty for one that is not there."""
        return tuple(seat.node if seat.life else "" for seat in self._seats)

    # -- what `Remote` calls ---------------------------------------------------------

    def open(self, setup: bytes, agents: int) -> None:
        """Reach a cluster and ask it for actors."""
        cpus = agents * self._resources.get("CPU", 0.0)
        self._cluster = Cluster(self._address, cpus, self._runtime_env)
        try:
            self._cluster.check_room(agents, self._resources)
            self._ray = ray = self._cluster.ray
            self._setup: Box = [ray.put(np.frombuffer(setup, dtype=np.uint8))]
            how = dict(
                self._options,
                max_restarts=-1,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                concurrency_groups=GROUPS,
                enable_task_events=False,
            )
            if self._runtime_env and self._cluster.is_users:
                how["runtime_env"] = dict(self._runtime_env)
            actors = ray.remote(**how)(Host)
            self._seats = [_Seat(actors.remote(number)) for number in range(agents)]
            for number in range(agents):
                self._meet(number)
            self._drains = Drains(ray, lambda: self.nodes)
        except BaseException:
            self.close()
            raise

    def notices(self) -> list[PreemptionNotice]:
        """Return which hosts of the run Ray has begun to drain since the last call."""
        return [] if self._drains is None else self._drains.notices()

    def send(self, agent: int, frame: bytes) -> None:
        """Let an agent `take` a frame."""
        seat = self._seats[agent]
        if not seat.life:
            return  # its loss was handed out, or is about to be
        items, seat.waiting = [*seat.waiting, frame], []
        take = seat.actor.take.options(concurrency_group="control", num_returns=0)
        take.remote(seat.life, seat.sent, items)
        seat.sent += 1

    def publish(self, parameters: NDArray[Any]) -> None:
        """Note the parameters of a new step."""
        self._parameters = parameters
        self._boxes: dict[Stretches, Box] = {}

    def deliver(self, agent: int, slot: int, stretches: Stretches) -> None:
        """Copy stretches of what was published to an agent, with the next frame.

        Agents mostly lack the same stretches, so those are put once for all of them.
        """
        if stretches not in self._boxes:
            self._boxes[stretches] = self._boxed(stretches)
        self._seats[agent].waiting.append((slot, stretches, self._boxes[stretches]))

    def _boxed(self, stretches: Stretches) -> Box:
        if stretches == ((0, len(self._parameters)),):
            packed = self._parameters
        else:
            size = sum(end - start for start, end in stretches)
            packed = np.empty(size, self._parameters.dtype)
            pack(self._parameters, stretches, packed)
        is_small = packed.nbytes <= _SMALL
        return packed.copy() if is_small else [self._ray.put(packed)]

    def alert(self, agent: int) -> None:
        """Do nothing: an actor hears at once."""

    def fetch(self, agent: int, key: int, rows: tuple[int, ...]) -> None:
        """Bring `sum(rows)` of an agent to the root: `Fetched`, with this key."""
        life = self._seats[agent].life
        came = partial(self._came, agent, life, key)
        self._when_done(self._sum(agent, rows), came)

    def carry(
        self, agent: int, key: int, rows: tuple[int, ...], to: int, row: int
    ) -> None:
        """Bring `sum(rows)` of an agent to a row of another: `Carried`."""
        seat, other = self._seats[agent], self._seats[to]
        box = [self._sum(agent, rows)]
        fill = other.actor.fill.options(concurrency_group="fill")
        moved = partial(self._moved, (agent, seat.life), (to, other.life), key)
        self._when_done(fill.remote(other.life, row, box), moved)

    def poll(self, timeout: float) -> list[Notice]:
        """Return what has happened; waits up to `timeout` seconds for something.

        Ends with the end or the beginning of a life, so that what is sent in answer
        to an earlier notice is not sent to a later life.
        """
        if self._agenda:
            timeout = min(timeout, self._agenda[0][0] - time.monotonic())
        notices: list[Notice] = []
        try:
            # Actors report by one stream each. Polling the references of all sums by
            # `ray.wait` would look at n of them for every event.
            notices += self._happened.get(timeout=max(0.0, timeout))()
            while not (notices and isinstance(notices[-1], Joined | Lost)):
                notices += self._happened.get_nowait()()
        except queue.Empty:
            pass
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            self._meet(heapq.heappop(self._agenda)[1])
        return notices

    def close(self) -> None:
        """End all actors, and the cluster if it is ours."""
        if self._cluster is None or os.getpid() != self._owner:
            return  # not open; or a fork of the root, which has none of this
        cluster, self._cluster = self._cluster, None
        if self._drains is not None:
            self._drains.close()
        if cluster.ray.is_initialized():
            self._end_actors(cluster.ray)
        self._seats.clear()
        cluster.close()

    def _end_actors(self, ray: Any) -> None:
        leaving = [
            seat.actor.leave.options(concurrency_group="control").remote()
            for seat in self._seats
            if seat.life
        ]
        if leaving:
            ray.wait(leaving, num_returns=len(leaving), timeout=_POLITE)
        for seat in self._seats:
            ray.kill(seat.actor)
        for listener in self._listeners:
            listener.join(_POLITE)

    # -- calls -----------------------------------------------------------------------

    def _sum(self, agent: int, rows: tuple[int, ...]) -> Any:
        seat = self._seats[agent]
        send = seat.actor.send.options(concurrency_group="send")
        return send.remote(seat.life, rows)

    def _when_done(self, ref: Any, then: Callable[[Any], list[Notice]]) -> None:
        """Let `poll` hear of a call's result, or of the exception it ended with."""
        happened = self._happened

        def done(value: Any) -> None:
            nonlocal ref  # Ray ends the process if nobody has it until now
            ref = None
            happened.put(partial(then, value))

        ref._on_completed(done)

    def _meet(self, agent: int) -> None:
        """Ask an actor to begin a life, as soon as there is one."""
        meet = self._seats[agent].actor.meet
        again = meet.options(concurrency_group="control", max_task_retries=-1)
        self._when_done(again.remote(self._setup), partial(self._met, agent))

    def _listen(self, agent: int, life: int) -> None:
        """Hand on what an actor says until the end of its life."""
        hear = self._seats[agent].actor.hear.options(
            concurrency_group="hear", num_returns="streaming"
        )
        get, happened = self._ray.get, self._happened
        reason = "it has ended"
        try:
            is_over = False
            while not is_over:
                is_over = True
                for number, ref in enumerate(hear.remote(life, _STREAM), 1):
                    happened.put(partial(self._spoke, agent, life, get(ref)))
                    is_over = number < _STREAM  # else only the stream is
        except Exception as error:  # of many kinds: whatever it is, it is not heard
            reason = _first_line(error)
        happened.put(partial(self._lost, agent, life, reason))

    # -- what happens, in the root's own thread --------------------------------------

    def _met(self, agent: int, met: Met | Exception) -> list[Notice]:
        seat = self._seats[agent]
        if isinstance(met, Exception):
            self._not_met(agent, seat, met)
            return []
        seat.begin(met)
        listener = threading.Thread(
            target=self._listen, args=(agent, seat.life), daemon=True
        )
        listener.start()
        self._listeners = [one for one in self._listeners if one.is_alive()]
        self._listeners.append(listener)
        return [Joined(agent, met[-1])]

    def _not_met(self, agent: int, seat: _Seat, error: Exception) -> None:
        errors = self._ray.exceptions
        is_over = isinstance(error, errors.ActorDiedError)
        why = _first_line(error)
        if is_over or not seat.has_joined:
            problem = f"worker {agent} cannot be set up: {why}"
            advice = "looking at Ray's logs; codedgrad must be installed on all hosts"
            raise EngineFailed(problem, advice)
        _log.warning("worker %d cannot be set up again yet: %s", agent, why)
        self._meet_later(agent)

    def _meet_later(self, agent: int) -> None:
        when = time.monotonic() + self._seats[agent].end()
        heapq.heappush(self._agenda, (when, agent))

    def _lost(self, agent: int, life: int, reason: str) -> list[Notice]:
        if self._seats[agent].life != life:
            return []
        self._meet_later(agent)
        return [Lost(agent, reason)]

    def _spoke(self, agent: int, life: int, frame: bytes) -> list[Notice]:
        return [Spoke(agent, frame)] if self._seats[agent].life == life else []

    def _came(self, agent: int, life: int, key: int, value: Any) -> list[Notice]:
        if self._seats[agent].life != life:
            return []
        if isinstance(value, Exception):
            return [Fetched(agent, key, None)]
        return [Fetched(agent, key, value)]

    def _moved(
        self, source: tuple[int, int], target: tuple[int, int], key: int, value: Any
    ) -> list[Notice]:
        for agent, life in (source, target):
            if self._seats[agent].life != life:
                return []
        return [Carried(source[0], key, target[0], value is True)]


class Ray(Remote):
    """Workers on a Ray cluster.

    Ray itself is trusted: whoever may send it tasks may run anything. Its clusters want
    a token since version 2.59; keep it on, and their ports inside.

    Args:
        address: `HOST:PORT` of a cluster, `auto` for the one this machine belongs to;
            `local`: a cluster of this machine alone, that ends with the engine; None:
            what `RAY_ADDRESS` says, or else `local`. If the script has called
            `ray.init`, that connection is used, and kept, whatever is said here.
        resources_per_worker: What Ray is to set aside for each, one `CPU` by default.
            With a `GPU` Ray shows a worker its own alone; that is not tested.
        runtime_env: What Ray is to prepare for workers, as `ray.init` takes it.
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway.
        share_memory: Whether workers on the root's own host share its memory, so that
            nothing need be sent between them; False: all is sent, as between hosts.

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
        runtime_env: Mapping[str, Any] | None = None,
        open_segments: int = OPEN_SEGMENTS,
        preload: tuple[str, ...] = (),
        share_memory: bool = True,
    ) -> None:
        self._reach = RayTransport(address, resources_per_worker, runtime_env)
        super().__init__(
            self._reach,
            open_segments=open_segments,
            preload=preload,
            share_memory=share_memory,
        )

    @property
    def agent_pids(self) -> tuple[int, ...]:
        """The process id of every worker's actor; 0 for one that is not there."""
        return self._reach.pids

    @property
    def agent_nodes(self) -> tuple[str, ...]:
        """The id of the Ray node of every actor; empty for one that is not there."""
        return self._reach.nodes

    def notices(self) -> list[PreemptionNotice]:
        """Return which hosts of the run Ray has begun to drain since the last call."""
        return self._reach.notices()


def _first_line(error: BaseException) -> str:
    """Return what an exception says, in one line without Ray's many hints."""
    cause: BaseException = getattr(error, "cause", None) or error  # in an actor
    text = str(cause).strip() or type(cause).__name__
    return text.splitlines()[0]
