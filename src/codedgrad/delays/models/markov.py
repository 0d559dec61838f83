"""Fast and slow spells: a two-state chain per worker (Gilbert-Elliott)."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as brief
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import probability, settle, shape
from codedgrad.delays.models.shifted_exponential import ShiftedExponential
from codedgrad.delays.models.two_state import slow_share, two_state
from codedgrad.delays.times import Bools, Times, Truth
from codedgrad.errors import InvalidDelays


@dataclass(frozen=True, slots=True)
class Markov:
    r"""Every worker is fast or slow for a while, on its own.

    The state is constant in a step, $p$ = P(fast to slow) and $q$ = P(slow to fast)
    between steps, and the first step is stationary: slow with probability
    $p / (p + q)$ (with $p = q = 0$ always fast).

    The states are drawn first, as `states` does; then one exponential matrix for
    whichever law applies; then one for the fixed share, if either law has one.

    Attributes:
        fast: The law of a fast worker.
        slow: The law of a slow worker.
        enter: $p$.
        leave: $q$.

    Example:
        >>> law = Markov(ShiftedExponential(1), ShiftedExponential(5), 0.1, 0.3)
        >>> law.sample(np.random.default_rng(4), steps=8, workers=1).unit.ravel()
        array([1., 1., 1., 5., 5., 5., 1., 1.])
        >>> law.states(np.random.default_rng(4), steps=8, workers=1).sum()
        np.int64(3)
    """

    kind: ClassVar[str] = "markov"

    fast: ShiftedExponential
    slow: ShiftedExponential
    enter: float
    leave: float

    def __post_init__(self) -> None:
        for name in ("fast", "slow"):
            if not isinstance(law := getattr(self, name), ShiftedExponential):
                problem = f"{name} must be a shifted exponential, got {brief(law)}"
                raise InvalidDelays(self.kind, problem, "ShiftedExponential(floor=1)")
        for name in ("enter", "leave"):
            settle(self, **{name: probability(self.kind, name, getattr(self, name))})

    @property
    def share(self) -> float:
        """The share of steps in which a worker is slow, in the long run."""
        return slow_share(self.enter, self.leave)

    def states(self, rng: np.random.Generator, steps: int, workers: int) -> Bools:
        """Draw who is slow, (steps, workers): as `sample` does with the same `rng`."""
        size = shape(self.kind, steps, workers)
        return two_state(rng, self.enter, self.leave, *size)

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times."""
        slow, f, s = self.states(rng, steps, workers), self.fast, self.slow
        unit = np.where(slow, s.mean, f.mean) * rng.standard_exponential(slow.shape)
        unit += np.where(slow, s.floor, f.floor)
        fixed = np.where(slow, s.fixed_floor, f.fixed_floor)
        if f.fixed_mean > 0 or s.fixed_mean > 0:
            excess = rng.standard_exponential(slow.shape)
            fixed = fixed + np.where(slow, s.fixed_mean, f.fixed_mean) * excess
        return Times(fixed, unit, Truth(slow, np.where(slow, s.typical, f.typical)))

    def __str__(self) -> str:
        return (
            f"markov: fast ({self.fast.terms}), slow ({self.slow.terms}), "
            f"fast to slow {self.enter:g} and slow to fast {self.leave:g} per step"
        )
