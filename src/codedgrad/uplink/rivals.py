"""What the fair uplink is compared with: four policies that admit everything.

They have no admission control, so with more on offer than the link can carry their
queues grow without limit. None of them gives the link to a worker without data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.fair import Uplink
from codedgrad.uplink.slots import DataQueues, Policy, Queued, Slot

Weigh = Callable[[float, float, int], float]
"""(bits in the queue, rate, place in the turn) -> weight; the largest is served."""


class Rival(Queued):
    """Gives the link to the largest weight, and admits everything.

    Args:
        weigh: The weight of a worker that has data; equals are served by number.
        workers: How many share the link.
        most: Bits that a worker may offer in a slot.
        peaks: The highest rate of every worker, in bits per slot.
        shared: Whether what the first leaves of a slot is handed on.

    Example:
        >>> rival = POLICIES["max_rate"](2, V=1.0, beta=1.0, most=4.0, peaks=[1, 8])
        >>> for _ in range(3):
        ...     slot = rival.slot(offered=[4.0, 4.0], rates=[1.0, 8.0])
        >>> slot.scheduled, slot.sent, rival.queues
        ((1, 0), (0.5, 4.0), (11.0, 4.0))
    """

    def __init__(
        self,
        weigh: Weigh,
        workers: int,
        *,
        most: float,
        peaks: Sequence[float],
        shared: bool = True,
    ) -> None:
        self._data = DataQueues(workers, most, peaks, shared)
        self._weigh = weigh
        self._turn = 0

    def slot(
        self,
        offered: Sequence[float],
        rates: Sequence[float],
        harvest: Sequence[float] | None = None,
    ) -> Slot:
        """Decide the next slot, and let it pass; see `Policy.slot`."""
        if harvest is not None:
            problem = "harvest is given, and only the fair policy knows batteries"
            raise InvalidOptions("uplink", problem, "harvest=None")
        self._data.check(offered, rates)
        line = self._line(rates)
        if line:
            self._turn = (line[0] + 1) % self.workers
        return self._data.serve(line, rates, None, tuple(map(float, offered)))

    def _line(self, rates: Sequence[float]) -> list[int]:
        bits, workers = self._data.bits, self.workers
        weights = {
            i: self._weigh(bits[i], rates[i], (i - self._turn) % workers)
            for i in self._data.waiting(rates)
        }
        return sorted(weights, key=weights.__getitem__, reverse=True)


class Maker(Protocol):
    """Builds a policy; rivals take `V` and `beta` too, and have no use for them."""

    def __call__(
        self,
        workers: int,
        *,
        V: float,
        beta: float,
        most: float,
        peaks: Sequence[float],
        shared: bool = True,
    ) -> Policy:
        """Return the policy in its first state."""
        ...


def _rival(weigh: Weigh) -> Maker:
    def make(
        workers: int,
        *,
        V: float,
        beta: float,
        most: float,
        peaks: Sequence[float],
        shared: bool = True,
    ) -> Policy:
        return Rival(weigh, workers, most=most, peaks=peaks, shared=shared)

    return make


POLICIES: dict[str, Maker] = {
    "fair": Uplink,
    "max_rate": _rival(lambda bits, rate, place: rate),
    "round_robin": _rival(lambda bits, rate, place: -place),
    "longest_queue": _rival(lambda bits, rate, place: bits),
    "max_weight": _rival(lambda bits, rate, place: bits * rate),
}
"""By name: the fair one, and those that admit everything."""
