"""The root's own machine as the root sees it: a host whose memory the root shares."""

from __future__ import annotations

from codedgrad.engines.host.host import Host, Order
from codedgrad.engines.host.rows import ROOT_HOST


class RootHost:
    """Host number 0, in the root's own process.

    Args:
        host: With the workers.
        workers: Their numbers, in the order of their rows.

    Attributes:
        number: Of the host.
        workers: As given.
        is_there: Whether workers can be started there.
        published: Which version in memory has the parameters of the open step.
    """

    number = ROOT_HOST
    is_there = True

    def __init__(self, host: Host, workers: list[int]) -> None:
        self.workers = workers
        self.published = -1
        self._host = host

    @property
    def nursery(self) -> int:
        """The process id of the nursery."""
        return self._host.nursery

    def take(self, order: Order) -> None:
        """Carry out an order."""
        self._host.take(order)

    def version(self, step: int) -> int:
        """Return where workers find the parameters of the open step."""
        return self.published
