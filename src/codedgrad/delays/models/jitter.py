"""Mild slowness that moves from worker to worker: what large GPU jobs show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import factor, settle, whole
from codedgrad.delays.times import Times
from codedgrad.errors import InvalidDelays


@dataclass(frozen=True, slots=True)
class Jitter:
    """In every period some workers, drawn anew, are a little slow.

    Attributes:
        factor: How many times as long they take, both shares of their time.
        workers: How many are slow at a time.
        every: Steps in a period; the first begins at the first step.

    Example:
        >>> print(Jitter(factor=1.3, workers=2, every=5))
        jitter: 1.3 x slow, 2 random workers, drawn every 5 steps
    """

    kind: ClassVar[str] = "jitter"

    factor: float = 1.3
    workers: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        settle(
            self,
            factor=factor(self.kind, "factor", self.factor),
            workers=whole(self.kind, "workers", self.workers, least=1),
            every=whole(self.kind, "every", self.every, least=1),
        )

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Draw a number per period and worker; the lowest ones are slow."""
        if self.workers > times.workers:
            problem = f"workers = {self.workers} cannot be slow among {times.workers}"
            raise InvalidDelays(self.kind, problem, f"workers up to {times.workers}")
        periods = -(-times.steps // self.every)
        order = rng.random((periods, times.workers)).argsort(axis=1)
        slow = np.ones(order.shape)
        np.put_along_axis(slow, order[:, : self.workers], self.factor, axis=1)
        slow = np.repeat(slow, self.every, axis=0)[: times.steps]
        return times.slowed(slow, slow > 1.0)

    def __str__(self) -> str:
        who = (
            "1 random worker" if self.workers == 1 else f"{self.workers} random workers"
        )
        when = "step" if self.every == 1 else f"{self.every} steps"
        return f"jitter: {self.factor:g} x slow, {who}, drawn every {when}"
