"""A host that is elsewhere, as the root sees it: parameters go there once a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from numpy.typing import NDArray

from codedgrad.engines.fleet.worker_handle import BackOff, WorkerHandle
from codedgrad.engines.host.changed_stretches import Stale
from codedgrad.engines.host.memory_layout import Memory, MemoryShape
from codedgrad.engines.remote.connection import bytes_of
from codedgrad.engines.remote.lobby import AgentLink
from codedgrad.engines.remote.messages import Carry, Deliver, Down, Fetch, Put


class Published:
    """The parameters of the open step in the root's memory, and how far they have got.

    What is being sent is read from there, and must stay as it is, also when its step is
    over.

    Args:
        memory: Of the root.

    Attributes:
        version: Which version in memory has them.
        delivered: Deliveries that were sent, of all steps.
    """

    def __init__(self, memory: Memory) -> None:
        self.version = -1
        self.delivered = 0
        self._memory = memory
        self._flying: Counter[int] = Counter()  # by version, to how many hosts

    @property
    def in_flight(self) -> Collection[int]:
        """Versions that are being sent."""
        return [version for version, hosts in self._flying.items() if hosts]

    def deliver(
        self, link: AgentLink, version: int, stretches: tuple[tuple[int, int], ...]
    ) -> None:
        """Send stretches of the parameters to a host, for a version in its memory."""
        flying, here = self._flying, self.version
        parameters = self._memory.parameters(here)
        body = [bytes_of(parameters[start:end]) for start, end in stretches]
        flying[here] += 1
        self.delivered += 1

        def done() -> None:
            flying[here] -= 1

        link.send(Deliver(version, stretches), body, done)


class FarHost:
    """A host behind a connection.

    Args:
        number: Of the host, from 1.
        agent: The number by which the launcher knows its agent.
        workers: Their numbers, in the order of their rows.
        shape: Of its memory.
        published: The parameters.

    Attributes:
        handles: Of the workers; set when there are any.
        link: To its agent; None while there is none.
        is_there: Whether workers can be started there.
        memory: The number of its memory, which is a new one whenever it is set up.
        problem: Why it cannot go on, if its agent has said so; empty: it can.
        back_off: How long to wait before it is used again.
    """

    def __init__(
        self,
        number: int,
        agent: int,
        workers: list[int],
        shape: MemoryShape,
        published: Published,
    ) -> None:
        self.number, self.agent, self.workers = number, agent, workers
        self.shape = shape
        self.handles: list[WorkerHandle] = []
        self.link: AgentLink | None = None
        self.is_there = False
        self.memory = 0
        self.problem = ""
        self.back_off = BackOff()
        self._published = published
        self._stale = Stale(shape.parameters)  # by version in the host's memory
        self._step = self._version = -1

    @property
    def name(self) -> str:
        """The host, for people."""
        where = f" ({self.link.said.name})" if self.link is not None else ""
        return f"host {self.number}{where}"

    def set_up(self, memory: int, at: float) -> None:
        """Note that the host is being set up, and the number of its new memory."""
        self.memory, self.problem = memory, ""
        self.back_off.begin(at)

    def begin(self) -> None:
        """Note that the host can start workers; its memory holds nothing yet."""
        self.is_there = True
        self._step = -1
        self._stale = Stale(self.shape.parameters)

    def end(self, at: float) -> None:
        """Note that no worker can be started there any more."""
        self.back_off.end(at)
        self.is_there = False

    def take(self, message: Down, body: Sequence[memoryview] = ()) -> None:
        """Put a message on its way, unless the host is gone."""
        if self.link is not None:
            self.link.send(message, body)

    def changed(self, stretches: Sequence[tuple[int, int]] | None) -> None:
        """Note which stretches of the parameters a new step has changed."""
        self._stale.change(stretches)

    def version(self, step: int) -> int:
        """Return where workers find the parameters of the open step.

        The first of them that has time for the step lets them be sent, once for all.
        """
        if step != self._step and self.link is not None:
            held = {each.version for each in self.handles if each.in_hand is not None}
            free = (v for v in range(self.shape.versions) if v not in held)
            self._step, self._version = step, next(free)
            stretches = self._stale.take(self._version)
            self._published.deliver(self.link, self._version, stretches)
        return self._version

    # -- sums ------------------------------------------------------------------------

    def fetch(self, key: int, rows: tuple[int, ...], sink: NDArray[Any]) -> None:
        """Let the sum of some rows be brought to memory of the root."""
        if self.link is not None:
            self.link.expect(key, sink)
            self.take(Fetch(key, rows))

    def carry(self, key: int, rows: tuple[int, ...], to: FarHost, row: int) -> None:
        """Let the sum of some rows be brought to a row of another host."""
        if to.link is not None:
            self.take(Carry(key, rows, to.link.said.where, to.memory, row))

    def put(self, key: int, row: int, vector: NDArray[Any]) -> None:
        """Send a sum of the root's own host to a row of this one."""
        self.take(Put(key, row, self.memory), [bytes_of(vector)])
