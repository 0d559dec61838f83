"""Every worker with a speed of its own: mixed hardware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import factor, ordered, settle
from codedgrad.delays.times import Times


@dataclass(frozen=True, slots=True)
class Speeds:
    """One speed per worker for the whole run; times are divided by it.

    Attributes:
        low: The lowest speed.
        high: The highest speed; speeds are uniform between the two.

    Example:
        >>> print(Speeds(low=0.5, high=2))
        speeds: one per worker, uniform from 0.5 to 2
    """

    kind: ClassVar[str] = "speeds"

    low: float
    high: float

    def __post_init__(self) -> None:
        low = factor(self.kind, "low", self.low)
        high = factor(self.kind, "high", self.high)
        ordered(self.kind, low, high)
        settle(self, low=low, high=high)

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Draw one speed per worker."""
        speed = rng.uniform(self.low, self.high, times.workers)
        truth = None if times.truth is None else times.truth.slowed(1.0 / speed)
        again = None if times.again is None else times.again.slowed(1.0 / speed)
        return Times(times.fixed / speed, times.unit / speed, truth, again)

    def __str__(self) -> str:
        return f"speeds: one per worker, uniform from {self.low:g} to {self.high:g}"
