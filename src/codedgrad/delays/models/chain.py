"""A base law and the changes made to it, in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedgrad.delays.arguments import settle
from codedgrad.delays.times import Change, Delays, Times
from codedgrad.errors import InvalidDelays


@dataclass(frozen=True, slots=True, init=False)
class Chain:
    """Times of `base`, altered by each of `changes` in turn; a law itself.

    Attributes:
        base: Draws the times.
        changes: Alter them, from the same generator, in this order.

    Example:
        >>> from codedgrad.delays import Dead, ShiftedExponential, Sticky
        >>> slow = Sticky(factor=10, workers=(0,), always=True)
        >>> law = Chain(ShiftedExponential(floor=1), slow, Dead(worker=2, step=1))
        >>> law.sample(np.random.default_rng(0), steps=2, workers=3).unit
        array([[10.,  1.,  1.],
               [10.,  1., inf]])
        >>> print(law)
        shifted exponential: floor 1 s; sticky: 10 x slow, always, workers [0]; dead: \
worker 2 from step 1 on
    """

    base: Delays
    changes: tuple[Change, ...]

    def __init__(self, base: Delays, *changes: Change) -> None:
        given: tuple[object, ...] = changes  # whatever the types say
        law: object = base
        if not isinstance(law, Delays):
            problem = f"the base must have a method sample, got {type(law).__name__}"
            raise InvalidDelays("chain", problem, "a law such as ShiftedExponential()")
        for change in given:
            if not isinstance(change, Change):
                problem = (
                    f"a change must have a method change, got {type(change).__name__}"
                )
                raise InvalidDelays("chain", problem, "one such as Jitter()")
        settle(self, base=base, changes=changes)

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times and alter them."""
        times = self.base.sample(rng, steps, workers)
        for change in self.changes:
            times = change.change(times, rng)
        return times

    def __str__(self) -> str:
        return "; ".join(str(model) for model in (self.base, *self.changes))
