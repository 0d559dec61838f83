"""What real workers are made to take longer: a law, or a change of their own times.

A law says how many seconds a worker sleeps on top of what it computes, and changes of a
law multiply those seconds. A change without a law multiplies what the worker really
takes: `Slow(worker=2, factor=10)` makes worker 2 ten times slow, whatever the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import repr as brief
from typing import TypeAlias

import numpy as np

from codedgrad.delays.times import Change, Delays, Floats, Times, draw
from codedgrad.errors import InvalidDelays

Rehearsed: TypeAlias = Delays | Change | Sequence[Change] | Times
"""What `train(delays=...)` takes."""


def rehearse(delays: Rehearsed, *, steps: int, workers: int, seed: int) -> Times:
    """Return the times of a rehearsal on real workers.

    Args:
        delays: A law; a change, or several in a list, of what workers really take; or
            times, which are returned as they are.
        steps: How many to draw.
        workers: How many.
        seed: Of what is drawn.

    Example:
        >>> from codedgrad.delays import Slow
        >>> times = rehearse(Slow(worker=2, factor=10), steps=1, workers=3, seed=0)
        >>> times.unit, times.stretch
        (array([[0., 0., 0.]]), array([[ 1.,  1., 10.]]))
    """
    given: object = delays  # whatever the types say
    if isinstance(given, Times):
        return given
    if isinstance(given, Delays):
        return draw(given, steps=steps, workers=workers, seed=seed)
    changes = given if isinstance(given, tuple | list) else (given,)
    if not changes or not all(isinstance(change, Change) for change in changes):
        problem = f"{brief(given)} is neither a law nor changes of one"
        advice = "Slow(worker=2, factor=10), or a law such as ShiftedExponential()"
        raise InvalidDelays("delays", problem, advice)
    return draw(_OwnTime(changes), steps=steps, workers=workers, seed=seed)


class _OwnTime:
    """Changes of what a worker really takes; the unit of time is that time."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Change a time of 1 for every worker, and read the result as factors."""
        shape = steps, workers
        times = Times(fixed=np.zeros(shape), unit=np.ones(shape))
        for change in self._changes:
            times = change.change(times, rng)
        gone = np.isinf(times.unit)
        factors = np.where(gone, 1.0, times.unit)
        return Times(
            fixed=times.fixed,
            unit=np.where(gone, np.inf, 0.0),
            stretch=_from_one(factors),
        )


def _from_one(factors: Floats) -> Floats:
    """Keep the ratios, and let the smallest factor be 1.

    A worker can be made slower, not faster: where a change makes some workers faster,
    as `Speeds` does, those keep their pace and all others are slowed down.
    """
    lowest: float = min(1.0, float(factors.min()))
    slower: Floats = factors / lowest
    return slower
