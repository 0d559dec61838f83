"""Stalls that do not care how much work there is: collections, input, preemption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import ordered, probability, seconds, settle
from codedgrad.delays.times import Times


@dataclass(frozen=True, slots=True)
class Pauses:
    """Now and then a worker stalls for some seconds before its first part.

    Each (step, worker) on its own, with `probability`; the pause is uniform from
    `low` to `high`, and the same whatever the load.

    Attributes:
        probability: Of a pause, per step and worker.
        low: The shortest pause in seconds.
        high: The longest pause in seconds.

    Example:
        >>> print(Pauses(probability=0.05, low=0.5, high=2))
        pauses: with probability 0.05, 0.5 to 2 s whatever the load
    """

    kind: ClassVar[str] = "pauses"

    probability: float
    low: float
    high: float

    def __post_init__(self) -> None:
        low = seconds(self.kind, "low", self.low)
        high = seconds(self.kind, "high", self.high)
        ordered(self.kind, low, high)
        chance = probability(self.kind, "probability", self.probability)
        settle(self, probability=chance, low=low, high=high)

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Draw who pauses, then how long (also for those who do not)."""
        hit = rng.random(times.unit.shape) < self.probability
        pause = np.where(hit, rng.uniform(self.low, self.high, hit.shape), 0.0)
        return Times(times.fixed + pause, times.unit, times.truth, times.again)

    def __str__(self) -> str:
        return (
            f"pauses: with probability {self.probability:g}, "
            f"{self.low:g} to {self.high:g} s whatever the load"
        )
