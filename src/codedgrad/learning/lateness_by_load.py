r"""Who is late how often, by how much it is asked for.

A worker with three parts is late more often than one with a single part, and how much
more depends on the machine. What one step says about other loads:

- in time with $\ell$ parts after $t$ of $T$ seconds: in time with any load up to
  $\ell T / t$, since time grows no faster than the load;
- late with $d$ parts done: in time with up to $d$, late with more;
- late, and the engine tells of no progress: late with $\ell$ or more, and nothing else.

So a step tells with how many parts a worker would have been in time, or that it would
have been with so many at least: a survival time, in parts, that may be censored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codedgrad.core.history import Record

_MOST = 64  # parts: loads above are taken for this one


@dataclass(frozen=True, slots=True)
class Punctuality:
    r"""Probability to be late, by worker and load, with forgetting.

    Of the $N_\ell$ steps in which a worker would have been in time with $\ell - 1$
    parts, and is known to have been in time with $\ell$ or not, it would have been late
    in $m_\ell$. Then $\hat p_\ell = 1 - \prod_{j \le \ell} (1 - h_j)$ with
    $h_1 = (m_1 + 1) / (N_1 + 2)$ and $h_j = m_j / (N_j + 2)$: more parts are thought to
    be no trouble until they are. The counts of a load are multiplied by `forget` by
    every step that says something about it.

    Attributes:
        parts: The largest load there is.
        forget: In (0, 1]; 0.99 remembers about a hundred steps, 1 all.
        budget: Seconds that steps may take; inf if answers are counted instead.
    """

    parts: int
    forget: float = 0.99
    budget: float = math.inf

    def start(self, workers: int) -> _PunctualityTracker:
        """Return a tracker that knows nothing yet."""
        return _PunctualityTracker(self, workers)


class _PunctualityTracker:
    """Counts of steps and of steps missed, by worker and load."""

    def __init__(self, recipe: Punctuality, workers: int) -> None:
        self._forget = recipe.forget
        self._budget = recipe.budget
        shape = workers, min(recipe.parts, _MOST)
        self._missed = np.zeros(shape)
        self._seen = np.zeros(shape)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was seen yet."""
        return not self._seen.any()

    def update(self, record: Record) -> None:
        """Learn from a step; nothing from one that gave no sum."""
        if not record.combined:
            return  # it may have been called off at any moment
        heard, progress = record.heard, record.state.capabilities.progress
        for worker, alive in enumerate(record.alive):
            given = record.state.given(worker)
            load = sum(len(known.segment.parts) for known in given)
            if worker in heard:
                self._could(worker, 0, self._room(record, worker, load))
            elif load and progress:
                done = sum(known.done for known in given)
                self._could(worker, 0, done)
                self._could_not(worker, done)
            elif load or not alive:
                self._could_not(worker, max(load - 1, 0))

    def _room(self, record: Record, worker: int, load: int) -> int:
        """Return how many parts there would have been time for, at least."""
        whole = self._budget if self._budget < math.inf else record.seconds
        seen, most = record.observe(worker), self._seen.shape[1]
        if seen is None or seen.seconds * most <= load * whole:
            return most
        return max(load, math.floor(load * whole / seen.seconds))

    def _could(self, worker: int, first: int, last: int) -> None:
        self._seen[worker, first:last] *= self._forget
        self._missed[worker, first:last] *= self._forget
        self._seen[worker, first:last] += 1.0

    def _could_not(self, worker: int, more_than: int) -> None:
        if more_than < self._seen.shape[1]:
            self._could(worker, more_than, more_than + 1)
            self._missed[worker, more_than] += 1.0

    def straggle(self, loads: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the probability to be late of every worker, with these loads."""
        wanted = np.clip(np.asarray(loads), 1, self._seen.shape[1]) - 1
        missed = self._missed[:, : wanted.max() + 1].copy()
        missed[:, 0] += 1.0
        risks = missed / (self._seen[:, : wanted.max() + 1] + 2.0)
        in_time = np.cumprod(1.0 - risks, axis=1)
        return np.asarray(1.0 - in_time[np.arange(len(wanted)), wanted])
