"""What starts the agents of other hosts, and starts them again: Ray, MPI or torchrun.

A launcher has processes on other machines, hands each of them the invitation of its
lobby, and lets it be an `Agent`. Everything else goes over the connections that agents
then make: a launcher moves nothing, and hears of a loss no sooner than its lobby does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

from codedgrad.engines.preemption_notices import PreemptionNotice
from codedgrad.engines.remote.lobby import Lobby


class Share(Struct, frozen=True):
    """The workers of one host.

    Attributes:
        agent: The number of the agent; None: the root's own process is the agent.
        workers: How many.
        cores: That they share, if the launcher says so; None: those of the machine.
    """

    agent: int | None
    workers: int
    cores: float | None = None


class Launcher(ABC):
    """Starts agents.

    Attributes:
        lobby: Where its agents are met; there once it is open.
        starts_again: Whether it starts an agent again whose process has ended.
    """

    lobby: Lobby
    starts_again: bool = True

    @abstractmethod
    def open(self, workers: int) -> list[Share]:
        """Share workers out among hosts, and see to it that their agents come.

        Raises:
            EngineFailed: If there is no cluster, no room, no extra installed...
        """

    @abstractmethod
    def machines(self) -> int:
        """Return on how many machines workers can be.

        Raises:
            EngineFailed: As `open`.
        """

    def check(self) -> None:  # noqa: B027 - a connection may say all there is to say
        """Raise `EngineFailed` if an agent that has not come yet never will."""

    def notices(self) -> list[PreemptionNotice]:
        """Return which hosts will be taken away, as far as it was told since."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Let go of all agents; may be called twice, and before `open`."""


def shared_out(workers: int, capacities: list[float]) -> list[int]:
    """Share workers out in proportion to what hosts can take, one at least to each.

    Each worker goes to a host that has none, and if all have one to the host that is
    then filled least; of equal ones to the first.

    Example:
        >>> shared_out(8, [8, 4, 4]), shared_out(2, [8, 1, 1]), shared_out(3, [4, 0])
        ([4, 2, 2], [1, 1, 0], [3, 0])
    """
    counts = [0] * len(capacities)
    able = [host for host, capacity in enumerate(capacities) if capacity > 0]

    def filled(host: int) -> tuple[bool, float]:
        return counts[host] > 0, (counts[host] + 1) / capacities[host]

    for _ in range(workers if able else 0):
        counts[min(able, key=filled)] += 1
    return counts


def round_robin(counts: list[int]) -> list[list[int]]:
    """Return the numbers of each host's workers.

    Neighbours in a repetition group or in a cyclic code are then on different hosts.

    Example:
        >>> round_robin([3, 1, 2])
        [[0, 3, 5], [1], [2, 4]]
    """
    numbers: list[list[int]] = [[] for _ in counts]
    for worker in range(sum(counts)):
        rest = [len(given) for given in numbers]
        able = [host for host, count in enumerate(counts) if rest[host] < count]
        numbers[min(able, key=rest.__getitem__)].append(worker)
    return numbers
