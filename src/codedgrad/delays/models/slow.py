"""One worker that is slow from some step on: the usual rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import factor, present, settle, whole
from codedgrad.delays.times import Times


@dataclass(frozen=True, slots=True)
class Slow:
    """One worker takes `factor` times as long from some step on. Nothing is drawn.

    Attributes:
        worker: Its number.
        factor: How many times as long it takes, both shares of its time.
        step: The first step in which it is slow.

    Example:
        >>> print(Slow(worker=2, factor=10))
        slow: worker 2, 10 x from step 0 on
    """

    kind: ClassVar[str] = "slow"

    worker: int
    factor: float = 10.0
    step: int = 0

    def __post_init__(self) -> None:
        settle(
            self,
            worker=whole(self.kind, "worker", self.worker, least=0),
            factor=factor(self.kind, "factor", self.factor),
            step=whole(self.kind, "step", self.step, least=0),
        )

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Multiply the worker's times from that step on."""
        present(self.kind, self.worker, times.workers)
        slow = np.zeros(times.unit.shape, dtype=np.bool_)
        slow[self.step :, self.worker] = True
        return times.slowed(np.where(slow, self.factor, 1.0), slow)

    def __str__(self) -> str:
        return f"slow: worker {self.worker}, {self.factor:g} x from step {self.step} on"
