"""Workers of a few makes: persistent classes of speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import factor, settle, several
from codedgrad.delays.times import Times
from codedgrad.errors import InvalidDelays


@dataclass(frozen=True, slots=True)
class Classes:
    """Blocks of neighbouring workers, each with its own factor in every step.

    Of n workers and c factors, worker i has factor number i * c // n. One factor per
    worker is a class for each. Nothing is drawn.

    Attributes:
        factors: How many times as long a class takes, both shares of its time.

    Example:
        >>> print(Classes(factors=(1, 1, 3)))
        classes: 1, 1, 3 x the time
    """

    kind: ClassVar[str] = "classes"

    factors: Sequence[float]

    def __post_init__(self) -> None:
        given = several(self.kind, "factors", self.factors)
        settle(self, factors=tuple(factor(self.kind, "factors", f) for f in given))

    def of(self, workers: int) -> tuple[float, ...]:
        """Return the factor of each worker."""
        count = len(self.factors)
        if count > workers:
            problem = f"{count} classes do not fit on {workers} workers"
            raise InvalidDelays(self.kind, problem, f"at most {workers} factors")
        return tuple(self.factors[i * count // workers] for i in range(workers))

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Multiply every worker's times by its factor."""
        slow = np.array(self.of(times.workers))
        return times.slowed(slow)

    def __str__(self) -> str:
        if len(self.factors) > 8:
            low, high = min(self.factors), max(self.factors)
            many = f"{len(self.factors)} factors from {low:.4g} to {high:.4g}"
            return f"classes: {many} x the time"
        return f"classes: {', '.join(f'{f:.4g}' for f in self.factors)} x the time"
