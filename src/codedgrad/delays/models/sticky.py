"""A worker that is slow for a long stretch, or for good: what cloud VMs show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import (
    factor,
    present,
    probability,
    settle,
    several,
    truth,
    whole,
)
from codedgrad.delays.models.two_state import two_state
from codedgrad.delays.times import Bools, Times
from codedgrad.errors import InvalidDelays


@dataclass(frozen=True, slots=True)
class Sticky:
    """Workers become slow, stay slow for many steps, and recover.

    The spells are those of `Markov`: stationary from the first step, on average
    1 / `leave` steps long. Uniform numbers are drawn for all workers, also where only
    some can be slow, and none at all with `always`.

    Attributes:
        factor: How many times as long a slow worker takes, both shares of its time.
        enter: Probability to turn slow in the next step.
        leave: Probability to recover in the next step.
        workers: Numbers of those that can be slow; None: all of them.
        always: They are slow in every step, and `enter` and `leave` are not given.

    Example:
        >>> print(Sticky(factor=10, workers=(0,), always=True))
        sticky: 10 x slow, always, workers [0]
        >>> print(Sticky(factor=10, enter=0.01, leave=0.1))
        sticky: 10 x slow, entered with 0.01 and left with 0.1 per step
    """

    kind: ClassVar[str] = "sticky"

    factor: float
    enter: float = 0.0
    leave: float = 0.0
    workers: Sequence[int] | None = None
    always: bool = False

    def __post_init__(self) -> None:
        enter = probability(self.kind, "enter", self.enter)
        leave = probability(self.kind, "leave", self.leave)
        if truth(self.kind, "always", self.always) and (enter or leave):
            problem = f"always leaves nothing to enter = {enter:g}, leave = {leave:g}"
            raise InvalidDelays(self.kind, problem, "one or the other")
        if not self.always and not (enter and leave):
            problem = f"enter = {enter:g} and leave = {leave:g}, and it is not always"
            raise InvalidDelays(self.kind, problem, "enter = 0.01, leave = 0.1")
        slow = factor(self.kind, "factor", self.factor)
        settle(self, factor=slow, enter=enter, leave=leave)
        if self.workers is not None:
            numbers = several(self.kind, "workers", self.workers)
            checked = tuple(whole(self.kind, "workers", w, least=0) for w in numbers)
            settle(self, workers=checked)

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Draw the spells and slow them down."""
        slow = self._slow(times, rng)
        return times.slowed(np.where(slow, self.factor, 1.0), slow)

    def _slow(self, times: Times, rng: np.random.Generator) -> Bools:
        for worker in self.workers or ():
            present(self.kind, worker, times.workers)
        if self.always:
            slow = np.ones(times.unit.shape, dtype=np.bool_)
        else:
            slow = two_state(rng, self.enter, self.leave, *times.unit.shape)
        if self.workers is None:
            return slow
        return slow & np.isin(np.arange(times.workers), self.workers)

    def __str__(self) -> str:
        spells = f"entered with {self.enter:g} and left with {self.leave:g} per step"
        text = f"sticky: {self.factor:g} x slow, {'always' if self.always else spells}"
        return text if self.workers is None else f"{text}, workers {[*self.workers]}"
