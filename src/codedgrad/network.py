r"""How messages travel in a simulation: latency, and ports that take one at a time.

A message is under way for the latency, during which it occupies nothing. Then it waits
at the port of whom it goes to, which takes messages one after the other in the order
in which they came, each for as long as one vector takes through its bandwidth. So the
time at which `K` messages that were ready at $y_1 \le \dots \le y_K$ are received is
$\max_j (y_j + t_l + (K - j + 1) t_c)$ (Reisizadeh and others, arXiv 1902.01981, as
reconstructed; the latency is ours).

Parameters go down the same way messages come up: every node sends one copy after the
other to those below it. Orders do not go through a network: a parent of a tree sends on
as if it had decided itself, which on an engine costs a round trip of a few bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from codedgrad.core import ROOT
from codedgrad.delays import GRID
from codedgrad.delays.arguments import LONGEST
from codedgrad.errors import InvalidOptions, InvalidScenario
from codedgrad.uplink import Credits, Link

_SHORTEST = 1e-6  # seconds of a slot
_MOST_SLOTS = 10_000  # that a message may take: each of them is an event


@dataclass(frozen=True, slots=True)
class Network:
    """What every message of a simulation goes through.

    Attributes:
        port: Seconds for which one message keeps its receiver's port busy, its length
            divided by the bandwidth. One number for all, or the root's and then every
            worker's.
        latency: Seconds before a message reaches the port; does not occupy it.
        down: Seconds for which a sender is busy with one copy of the parameters; None:
            everybody has them at once.
        link: Shared out in slots among all workers: what messages to the root go
            through instead of its port, after the latency.
        chunks: Into which a message is cut, to be sent on while the rest of it is still
            coming. Only `sim.arrays.trees` can say what that gives.

    Example:
        >>> Network.of(size=4e6, bandwidth=128e6, latency=0.125)
        Network(port=0.03125, latency=0.125, down=None, chunks=1, link=None)
    """

    port: float | tuple[float, ...] = 0.0
    latency: float = 0.0
    down: float | None = None
    chunks: int = 1
    link: Link | None = None

    def __post_init__(self) -> None:
        ports = _each(self.port)
        if not ports:
            raise InvalidScenario("network port", "is for nobody", "port=SECONDS")
        for name, seconds in (
            *(("port", one) for one in ports),
            ("latency", self.latency),
            ("down", 0.0 if self.down is None else self.down),
        ):
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not number or not 0 <= seconds <= LONGEST:
                advice = f"seconds from 0 to {LONGEST:.7g}"
                raise InvalidScenario(f"network {name}", f"is {seconds!r}", advice)
        if not isinstance(self.chunks, int) or self.chunks < 1 or self.chunks is True:
            problem = f"are {self.chunks!r}"
            raise InvalidScenario("network chunks", problem, "a whole number from 1")
        if self.link is not None:
            _check_slots(self.link)
        exact = tuple(_on_grid(one) for one in ports)
        settled = exact if isinstance(self.port, tuple) else exact[0]
        object.__setattr__(self, "port", settled)
        object.__setattr__(self, "latency", _on_grid(self.latency))
        if self.down is not None:
            object.__setattr__(self, "down", _on_grid(self.down))

    @classmethod
    def of(
        cls,
        size: float,
        bandwidth: float,
        latency: float = 0.0,
        *,
        down: bool = False,
        chunks: int = 1,
    ) -> Network:
        """Return the network of links that carry so many bytes a second.

        Args:
            size: Of a message, bytes.
            bandwidth: Bytes a second.
            latency: Seconds.
            down: Whether the parameters take their time, too.
            chunks: As in `Network`.
        """
        if not size >= 0 or not bandwidth > 0:
            problem = f"carries {size} bytes at {bandwidth} bytes a second"
            raise InvalidScenario("network", problem, "numbers above 0")
        port = size / bandwidth
        return cls(port, latency, port if down else None, chunks)

    def __str__(self) -> str:
        ports, said = _each(self.port), []
        if self.link is not None:
            said.append(f"slots of {self.link.slot:.3g} s, {self.link.policy}")
            ports = ports[1:] or ports  # the root's is not used
        if self.link is None or any(ports):
            least, most = f"{min(ports):.3g}", f"{max(ports):.3g}"
            port = least if least == most else f"{least} to {most}"
            whose = "a" if self.link is None else "any other"
            said.append(f"a message keeps {whose} port busy for {port} s")
        if self.latency:
            said.append(f"latency {self.latency:.3g} s")
        if self.down is not None:
            said.append(f"a copy of the parameters {self.down:.3g} s")
        return ", ".join(said)

    def seconds(self, node: int) -> float:
        """Return for how long a message keeps a node's port busy.

        Args:
            node: A worker, or the root.
        """
        if isinstance(self.port, float):
            return self.port
        return self.port[node + 1]

    def check(self, workers: int) -> None:
        """Refuse ports that are not one for the root and one for every worker."""
        if isinstance(self.port, tuple) and len(self.port) != workers + 1:
            problem = f"has {len(self.port)} ports"
            raise InvalidScenario("network", problem, f"{workers + 1}, the root first")
        if self.link is not None:
            try:
                self.link.rates(workers)
            except InvalidOptions as error:  # here a link is a part of the scenario
                where = f"network {error.where}"
                raise InvalidScenario(where, error.problem, error.advice) from None

    def longest(self, messages: int) -> float:
        """Return what so many messages, one after the other, can take at most."""
        ports = _each(self.port)
        each = max(ports) + self.latency + (self.down or 0.0)
        if self.link is not None:
            each += 2 * self.link.slot + 100 * max(_each(self.link.seconds))
        return 2 * messages * each


class PortClock(Protocol):
    """What ports need of a simulator."""

    now: float

    def schedule(self, at: float, happen: Callable[[], None]) -> None:
        """Let something happen at a later moment."""
        ...


class Ports:
    """The ports of all nodes, in virtual time.

    Args:
        network: What they are like.
        workers: How many there are.
        clock: Of the simulation.
        drains: Whether a message that is being received when its step ends is received
            to its end. What waits or is under way then is not received at all.
    """

    def __init__(
        self, network: Network, workers: int, clock: PortClock, drains: bool
    ) -> None:
        self._network = network
        self._slots: Slots | None = None
        if network.link is not None:
            self._slots = Slots(network.link, workers, clock)
        self._clock = clock
        self._drains = drains
        self._queue: dict[int, deque[Callable[[], None]]] = {}
        self._busy: dict[int, int] = {}  # node -> which service it is at
        self._services = 0
        self._epoch = 0

    def send(self, worker: int, to: int, arrive: Callable[[], None]) -> None:
        """Put a message of a worker on its way to a node."""
        epoch = self._epoch

        def reach() -> None:
            if epoch != self._epoch:
                return
            if to == ROOT and self._slots is not None:
                self._slots.send(worker, arrive)
            else:
                self._queue.setdefault(to, deque()).append(arrive)
                self._serve(to)

        if self._network.latency:
            self._clock.schedule(self._clock.now + self._network.latency, reach)
        else:
            reach()

    def end(self) -> None:
        """Note that the step is over."""
        self._epoch += 1
        self._queue.clear()
        if self._slots is not None:
            self._slots.end()
        if not self._drains:
            self._busy.clear()

    def _serve(self, to: int) -> None:
        queue = self._queue.get(to)
        if not queue or to in self._busy:
            return
        arrive = queue.popleft()
        self._services += 1
        service = self._busy[to] = self._services

        def received() -> None:
            if self._busy.get(to) != service:
                return  # cancelled
            del self._busy[to]
            arrive()
            self._serve(to)

        self._clock.schedule(self._clock.now + self._network.seconds(to), received)


class Slots:
    """The link to the root, in virtual time.

    Args:
        link: How it is shared.
        workers: How many share it.
        clock: Of the simulation.
    """

    def __init__(self, link: Link, workers: int, clock: PortClock) -> None:
        self._credits: Credits[int] = link.credits(workers)
        self._rates = link.rates(workers)
        self._slot = _on_grid(link.slot)
        self._clock = clock
        self._arrive: dict[int, Callable[[], None]] = {}
        self._offered = 0
        self._ticks = False

    def send(self, worker: int, arrive: Callable[[], None]) -> None:
        """Offer a message; the slot that begins next may carry some of it."""
        self._offered += 1
        self._credits.offer(worker, self._offered, size=1.0)
        self._arrive[self._offered] = arrive
        if not self._ticks:
            self._ticks = True
            self._clock.schedule(self._clock.now + self._slot, self._tick)

    def end(self) -> None:
        """Note that the step is over: nobody needs what waits."""
        for key in self._arrive:
            self._credits.withdraw(key)
        self._arrive.clear()

    def _tick(self) -> None:
        for key in self._credits.advance(self._rates):
            arrive = self._arrive.pop(key, None)
            if arrive is not None:  # or the step has ended in this slot
                arrive()
        self._ticks = not self._credits.is_idle
        if self._ticks:
            self._clock.schedule(self._clock.now + self._slot, self._tick)


class Downlink:
    """When the parameters of a step are where, as orders show who is below whom."""

    def __init__(self, network: Network, started: float) -> None:
        self._copy = network.down or 0.0
        self._latency = network.latency
        self._there = {ROOT: started}
        self._free: dict[int, float] = {}  # when a node can send the next copy

    def reach(self, worker: int, above: int, now: float) -> None:
        """Send a worker its copy, unless it has one."""
        if worker not in self._there:
            has = max(now, self._there.get(above, now), self._free.get(above, now))
            self._free[above] = has + self._copy
            self._there[worker] = self._free[above] + self._latency

    def lose(self, worker: int) -> None:
        """Note that a worker is gone: its next life needs another copy."""
        self._there.pop(worker, None)
        self._free.pop(worker, None)

    def there(self, worker: int) -> float:
        """Return when a worker has the parameters."""
        return self._there.get(worker, 0.0)


def _check_slots(link: object) -> None:
    """Refuse a link that has no slots, or more than can be gone through."""
    if not isinstance(link, Link):
        advice = "a Link with slots, such as Link('fair', slot=0.01, seconds=0.1)"
        raise InvalidScenario("network link", f"is {link!r}", advice)
    if link.slot <= 0:
        raise InvalidScenario("network link", "has no slots", "slot=SECONDS above 0")
    least = max(_SHORTEST, min(_each(link.seconds)) / _MOST_SLOTS)
    if link.slot < least:
        problem = f"has slots of {link.slot:.3g} s, too short to go through"
        raise InvalidScenario("network link", problem, f"{least:.3g} or more")


def _each(seconds: float | tuple[float, ...]) -> tuple[float, ...]:
    return seconds if isinstance(seconds, tuple) else (seconds,)


def _on_grid(seconds: float) -> float:
    return round(seconds / GRID) * GRID
