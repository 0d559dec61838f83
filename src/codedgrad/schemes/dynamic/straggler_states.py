"""Who will be slow in the coming step: what GC-DC forms its clusters from.

| name | knows |
| --- | --- |
| `hidden` | the censored times of past steps, through a filter that learns its laws |
| `late` | who was late in the step before, and nothing else |
| `speed` | the mean speed of every worker so far |
| `oracle` | who is slow in this very step; simulations only |
| `oracle-previous` | who was slow in the step before; simulations only |

Whoever is gone counts as the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.core.history import Estimator, History, Record
from codedgrad.errors import InvalidScheme
from codedgrad.learning.estimators import Speed
from codedgrad.learning.hidden_markov import LearntMarkov

_LIKELY = 0.5  # from here on a worker is said to be slow
_FAR = 2.0  # times the median is what is called slow where only speeds are known
_LEARNT, _STEADY = LearntMarkov(), Speed(weight=0.1)


@dataclass(frozen=True, slots=True, eq=False)
class StateForecast:
    """What is expected of the workers in a step.

    Attributes:
        slow: Who will be slow, (workers,).
        scores: Higher is slower, on any scale, inf for who is gone, (workers,).
    """

    slow: Bools
    scores: Floats

    def without(self, alive: Bools | list[bool]) -> StateForecast:
        """Return the same with those who are gone as the slowest."""
        if all(alive):
            return self
        gone = ~np.array(alive)
        return StateForecast(self.slow | gone, np.where(gone, np.inf, self.scores))


@runtime_checkable
class States(Protocol):
    """A source of forecasts; holds nothing, so that runs are kept apart."""

    def forecast(self, step: int, history: History) -> StateForecast:
        """Return what is expected in a step."""
        ...


class _Slow(Protocol):
    """A tracker of the probability of a slow state."""

    slow: list[float]

    def update(self, record: Record) -> None: ...


@dataclass(frozen=True, slots=True)
class Hidden:
    """A two-state filter of censored times.

    Attributes:
        recipe: Whose `slow` is the probability of the slow state, by worker.
    """

    recipe: Estimator[_Slow] = _LEARNT

    def forecast(self, step: int, history: History) -> StateForecast:
        """Return the probabilities of the slow state."""
        scores = np.array(history.follow(self.recipe).slow)
        return StateForecast(scores >= _LIKELY, scores)


@dataclass(frozen=True, slots=True)
class Late:
    """Slow is who was late in the step before."""

    def forecast(self, step: int, history: History) -> StateForecast:
        """Return who was asked in the last step, and not heard when it ended."""
        slow = np.zeros(history.workers, dtype=np.bool_)
        if history.records:
            last = history.records[-1]
            heard, held = last.heard, last.state.held
            slow[:] = [bool(held[w]) and w not in heard for w in range(len(held))]
        return StateForecast(slow, slow.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Mean:
    """Slow is who has been slow so far: for workers of unequal speed.

    Attributes:
        recipe: Of the running mean.
    """

    recipe: Speed = _STEADY

    def forecast(self, step: int, history: History) -> StateForecast:
        """Return the seconds per part, in units of their median."""
        seconds = history.follow(self.recipe).seconds
        known = [s for s in seconds if s is not None]
        usual = float(np.median(known)) if known else 1.0
        scores = np.array([1.0 if s is None else s / usual for s in seconds])
        return StateForecast(scores >= _FAR, scores)


@dataclass(frozen=True, slots=True, eq=False)
class Oracle:
    """The truth, which no root can know: what could be gained at best.

    Attributes:
        lag: 0 for that of the step itself, 1 for that of the step before.
        slow: Who is slow, (steps, workers); None until a simulation has told it.
        typical: Mean seconds given the state, (steps, workers).
    """

    lag: int = 0
    slow: Bools | None = None
    typical: Floats | None = None

    def forecast(self, step: int, history: History) -> StateForecast:
        """Return the truth of the step, or of the one before."""
        if self.slow is None or self.typical is None:
            raise InvalidScheme(
                "dynamic: an oracle knows what only a simulation can tell it",
                "state=hidden, which learns from the times of past steps",
            )
        if step < self.lag:
            calm = np.zeros(history.workers, dtype=np.bool_)
            return StateForecast(calm, np.ones(history.workers))
        return StateForecast(self.slow[step - self.lag], self.typical[step - self.lag])


STATES: dict[str, States] = {
    "hidden": Hidden(),
    "late": Late(),
    "speed": Mean(),
    "oracle": Oracle(),
    "oracle-previous": Oracle(lag=1),
}
"""Every source by its name."""
