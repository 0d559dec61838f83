"""A worker that goes away and does not come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import present, settle, whole
from codedgrad.delays.times import Times, Truth


@dataclass(frozen=True, slots=True)
class Dead:
    """One worker takes for ever from some step on.

    Attributes:
        worker: Its number.
        step: The first step without it; a shorter run never sees it die.

    Example:
        >>> print(Dead(worker=3, step=100))
        dead: worker 3 from step 100 on
    """

    kind: ClassVar[str] = "dead"

    worker: int
    step: int = 0

    def __post_init__(self) -> None:
        settle(
            self,
            worker=whole(self.kind, "worker", self.worker, least=0),
            step=whole(self.kind, "step", self.step, least=0),
        )

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Set both shares of its time to inf."""
        present(self.kind, self.worker, times.workers)
        fixed, unit = times.fixed.copy(), times.unit.copy()
        fixed[self.step :, self.worker] = unit[self.step :, self.worker] = np.inf
        again = None if times.again is None else self.change(times.again, rng)
        if times.truth is None:
            return Times(fixed, unit, again=again)
        slow, typical = times.truth.slow.copy(), times.truth.typical.copy()
        slow[self.step :, self.worker] = True
        typical[self.step :, self.worker] = np.inf
        return Times(fixed, unit, Truth(slow, typical), again)

    def __str__(self) -> str:
        return f"dead: worker {self.worker} from step {self.step} on"
