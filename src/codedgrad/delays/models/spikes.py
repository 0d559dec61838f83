"""Rare, heavy, and without memory: what serverless workers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import factor, ordered, probability, settle
from codedgrad.delays.times import Times


@dataclass(frozen=True, slots=True)
class Spikes:
    """Now and then a step takes a worker many times as long.

    Each (step, worker) on its own, with `probability`; then both shares of its time
    are multiplied by one number, uniform from `low` to `high`.

    Attributes:
        probability: Of a spike, per step and worker.
        low: The smallest factor.
        high: The largest factor.

    Example:
        >>> print(Spikes(probability=0.01, low=10, high=40))
        spikes: with probability 0.01, 10 to 40 x slow for one step
    """

    kind: ClassVar[str] = "spikes"

    probability: float
    low: float
    high: float

    def __post_init__(self) -> None:
        low = factor(self.kind, "low", self.low)
        high = factor(self.kind, "high", self.high)
        ordered(self.kind, low, high)
        chance = probability(self.kind, "probability", self.probability)
        settle(self, probability=chance, low=low, high=high)

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Draw who is hit, then how hard (also for those not hit)."""
        hit = rng.random(times.unit.shape) < self.probability
        slow = np.where(hit, rng.uniform(self.low, self.high, hit.shape), 1.0)
        again = None if times.again is None else times.again.slowed(slow)
        return Times(times.fixed * slow, times.unit * slow, times.truth, again)

    def __str__(self) -> str:
        return (
            f"spikes: with probability {self.probability:g}, "
            f"{self.low:g} to {self.high:g} x slow for one step"
        )
