"""Settings for clusters that are formed anew: ours, those of the paper are not known.

Workers slow down for a while, by themselves: fast ones turn slow with probability
`enter` from step to step, slow ones fast with `leave`. A part takes `FLOOR` and an
exponential excess of `FAST`, or `SLOW`, seconds on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.delays import (
    Delays,
    Markov,
    ShiftedExponential,
    Times,
    Truth,
    draw,
)
from codedgrad.delays.models.two_state import two_state
from codedgrad.learning.estimators import HiddenMarkov, Law
from codedgrad.schemes.dynamic.straggler_states import Hidden
from codedgrad.sim import Machine

Floats: TypeAlias = NDArray[np.float64]

WORKERS, CLUSTERS, REACH = 20, 5, 3
FLOOR, FAST, SLOW = 0.01, 0.1, 1.0  # seconds a part
AT_ONCE = Machine(drain=False)
"""Late workers stop at once, as papers have it."""

PERFECT, IMPERFECT = "oracle", "oracle-previous"
"""Who is slow in this step is known, or who was in the step before."""


def spells(enter: float, leave: float) -> Markov:
    """Return the law of workers that turn slow and recover."""
    fast, slow = ShiftedExponential(FLOOR, FAST), ShiftedExponential(FLOOR, SLOW)
    return Markov(fast, slow, enter, leave)


@dataclass(frozen=True, slots=True)
class Spells:
    """Spells of slowness, and the load that is to survive them.

    Attributes:
        name: Short.
        r: Parts that a worker computes in a step; late workers survived, and one.
        enter: Probability to turn slow in the next step.
        leave: Probability to recover in the next step.
    """

    name: str
    r: int
    enter: float
    leave: float

    @property
    def delays(self) -> Markov:
        """The law."""
        return spells(self.enter, self.leave)

    @property
    def given(self) -> Hidden:
        """A filter that is told the law."""
        laws = Law(FLOOR, FAST), Law(FLOOR, SLOW)
        return Hidden(HiddenMarkov(self.enter, self.leave, *laws))

    def __str__(self) -> str:
        return self.name


A, B = Spells("A", 2, 0.02, 0.08), Spells("B", 3, 0.05, 0.05)


@dataclass(frozen=True, slots=True)
class Unequal:
    """Rates uniform from 1 to 20, one a worker and run; slow ones have a tenth.

    Attributes:
        enter: Probability to turn slow in the next step.
        leave: Probability to recover in the next step.
    """

    enter: float = 0.0
    leave: float = 1.0

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times."""
        rate = rng.uniform(1.0, 20.0, workers)
        slow = two_state(rng, self.enter, self.leave, steps, workers)
        mean = np.where(slow, 10.0, 1.0) / rate
        return _excess(rng, slow, mean)


@dataclass(frozen=True, slots=True)
class Exactly:
    """So many workers are slow in every step, drawn anew.

    Attributes:
        slow: How many.
    """

    slow: int

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times."""
        slow = rng.random((steps, workers)).argsort(axis=1) < self.slow
        return _excess(rng, slow, np.where(slow, SLOW, FAST))


def _excess(rng: np.random.Generator, slow: NDArray[np.bool_], mean: Floats) -> Times:
    unit = FLOOR + mean * rng.standard_exponential(slow.shape)
    return Times(np.zeros(slow.shape), unit, Truth(slow, FLOOR + mean))


def waits(
    delays: Delays, r: int, count: int, *, workers: int, steps: int, runs: int,
    seed: int,
) -> Floats:  # fmt: skip
    """Return when the first `count` workers are done with `r` parts, (runs, steps).

    With all but as many as clusters can spare, it is the lower bound of clusters that
    count: as if whoever turns out slow had been spread perfectly.
    """

    def of(run: int) -> Floats:
        times = draw(delays, steps=steps, workers=workers, seed=seed, run=run)
        return np.sort(r * times.unit, axis=1)[:, count - 1]

    return np.array([of(run) for run in range(runs)])
