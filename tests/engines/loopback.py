"""A transport without a network: agents in this process, each with its own worker."""

from __future__ import annotations

import selectors
import time
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stretches
from codedgrad.engines.remote.agent import Agent, Setup
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.transport import (
    Carried,
    Fetched,
    Joined,
    Lost,
    Notice,
    Spoke,
)


class Loopback:
    """Agents in this process; sums take `seconds` to come, by agent, or none."""

    name = "loopback"
    restarts = True

    def __init__(self, seconds: dict[int, float] | None = None) -> None:
        self.agents: dict[int, Agent] = {}
        self.far: set[int] = set()  # agents that share nothing, whatever they could
        self.delivered: list[tuple[int, Stretches]] = []  # by agent
        self.fetches: list[tuple[int, int]] = []  # (agent, key)
        self.alerts: list[int] = []
        self._seconds = seconds or {}
        self._notices: list[Notice] = []
        self._later: list[tuple[float, Notice]] = []
        self._selector = selectors.DefaultSelector()
        self._is_closed = False

    def open(self, setup: bytes, agents: int) -> None:
        self._setup = setup
        for number in range(agents):
            self.begin(number)

    def begin(self, number: int) -> None:
        told = msgspec.msgpack.decode(self._setup, type=Setup)
        if number in self.far:
            told = msgspec.structs.replace(told, published=None)
        agent = self.agents[number] = Agent(msgspec.msgpack.encode(told), number)
        self._selector.register(agent._selector.fileno(), selectors.EVENT_READ, number)
        self._notices.append(Joined(number, agent.near))

    def lose(self, number: int) -> None:
        """Let an agent be gone, as if its host were."""
        agent = self.agents.pop(number)
        self._selector.unregister(agent._selector.fileno())
        agent.close()
        self._later = [(at, n) for at, n in self._later if n.agent != number]
        self._notices.append(Lost(number, "on purpose"))

    def send(self, agent: int, frame: bytes) -> None:
        if agent in self.agents:
            self.agents[agent].take(frame)

    def publish(self, parameters: NDArray[Any]) -> None:
        self._parameters = parameters

    def deliver(self, agent: int, slot: int, stretches: Stretches) -> None:
        self.delivered.append((agent, stretches))
        if agent in self.agents:
            for start, end in stretches:
                parameters = self.agents[agent].parameters(slot)
                np.copyto(parameters[start:end], self._parameters[start:end])

    def alert(self, agent: int) -> None:
        self.alerts.append(agent)

    def fetch(self, agent: int, key: int, rows: tuple[int, ...]) -> None:
        self.fetches.append((agent, key))
        vector = self.agents[agent].sum(rows).copy()
        self._come(agent, Fetched(agent, key, vector))

    def carry(
        self, agent: int, key: int, rows: tuple[int, ...], to: int, row: int
    ) -> None:
        np.copyto(self.agents[to].row(row), self.agents[agent].sum(rows))
        self._come(agent, Carried(agent, key, to, True))

    def _come(self, agent: int, notice: Notice) -> None:
        at = time.monotonic() + self._seconds.get(agent, 0.0)
        self._later.append((at, notice))

    def poll(self, timeout: float) -> list[Notice]:
        now = time.monotonic()
        if self._later:
            timeout = min(timeout, min(at for at, _ in self._later) - now)
        for key, _ in self._selector.select(0 if self._notices else max(0.0, timeout)):
            if key.data in self.agents:
                frames = self.agents[key.data].poll(0.0)
                self._notices += [Spoke(key.data, frame) for frame in frames]
        now = time.monotonic()
        self._notices += [notice for at, notice in self._later if at <= now]
        self._later = [(at, notice) for at, notice in self._later if at > now]
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for agent in self.agents.values():
                agent.close()
            self._selector.close()


class Looped(Remote):
    """An engine over it; nothing is shared, unless its agents are to be near."""

    name = "loopback"

    def __init__(
        self,
        seconds: dict[int, float] | None = None,
        open_segments: int = 20,
        near: bool = False,
    ) -> None:
        self.transport = Loopback(seconds)
        super().__init__(self.transport, open_segments=open_segments, share_memory=near)
