r"""The batteries of workers that send on harvested energy.

$E_i \leftarrow E_i - P_i \tau_i + \text{harvest}_i$, with $P_i$ the energy of a whole
slot and $\tau_i$ the share of it that worker $i$ sends for. A battery takes all the
energy on offer while $E_i < \theta_i$, then nothing; so it never holds more than
$\theta_i$ and the harvest of a slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.slots import Slot, each, positive, within


@dataclass(frozen=True, slots=True)
class Battery:
    r"""What sending costs, and how much energy may be had; one number serves all.

    Attributes:
        power: $P_i$, the energy of sending for a whole slot.
        harvest_most: The most energy on offer to a worker in a slot.
        perturbation: $\theta_i$, the level a battery is filled to. None is the least
            that is safe, $P_i + (V \beta + 2 A_{\max}) r_{\max, i} / P_i$: a worker
            with less than $P_i$ then has a negative weight and is not scheduled.
    """

    power: float | Sequence[float]
    harvest_most: float
    perturbation: float | Sequence[float] | None = None


class Batteries:
    """The energy of all workers, none at first.

    Args:
        battery: What it costs to send.
        peaks: The highest rate of every worker, in bits per slot.
        most_queue: Bits that no queue exceeds.
    """

    def __init__(
        self, battery: Battery, peaks: tuple[float, ...], most_queue: float
    ) -> None:
        workers = len(peaks)
        self.levels = [0.0] * workers
        self._power = each("power", _spread(battery.power, workers), workers)
        self._most = (positive("harvest_most", battery.harvest_most),) * workers
        if battery.perturbation is None:
            pairs = zip(self._power, peaks, strict=True)
            self.theta = tuple(p + most_queue * peak / p for p, peak in pairs)
        else:
            theta = _spread(battery.perturbation, workers)
            within("perturbation", theta, (math.inf,) * workers)
            self.theta = tuple(map(float, theta))

    def harvest(self, on_offer: Sequence[float]) -> tuple[float, ...]:
        """Return the energy that each battery takes."""
        triples = zip(on_offer, self.levels, self.theta, strict=True)
        return tuple(e if level < theta else 0.0 for e, level, theta in triples)

    def check(self, on_offer: Sequence[float] | None) -> Sequence[float]:
        """Return the energy on offer, if it is what was promised."""
        if on_offer is None:
            problem, advice = "harvest is missing", "the energy on offer, by worker"
            raise InvalidOptions("uplink", problem, advice)
        within("harvest", on_offer, self._most)
        return on_offer

    def weight(self, worker: int) -> float:
        r"""Return $(E_i - \theta_i) P_i$, what is added to the weight of a worker."""
        return (self.levels[worker] - self.theta[worker]) * self._power[worker]

    def limits(self) -> list[float]:
        """Return the share of a slot that each battery lasts for."""
        pairs = zip(self.levels, self._power, strict=True)
        return [level / power for level, power in pairs]

    def update(self, slot: Slot) -> None:
        """Spend what was sent for, and take what was harvested."""
        for worker in slot.scheduled:
            spent = self._power[worker] * slot.shares[worker]
            self.levels[worker] = max(self.levels[worker] - spent, 0.0)
        pairs = zip(self.levels, slot.harvested, strict=True)
        self.levels = [level + taken for level, taken in pairs]


def _spread(value: float | Sequence[float], workers: int) -> Sequence[float]:
    return (value,) * workers if isinstance(value, int | float) else value
