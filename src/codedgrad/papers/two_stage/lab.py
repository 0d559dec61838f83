"""The law of delays, the schemes that are compared, and words that exhibits share.

Seconds are those that a part takes an average worker without delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.papers.measuring import Floats, Measured, ratio
from codedgrad.schemes import TwoStage, build, two_stage
from codedgrad.sim import Machine
from codedgrad.sim.arrays.two_stage import Straggling, redrawn

WORKERS, PARTS = 12, 24
OFTEN = 0.1  # how often a worker straggles
AT_ONCE = Machine(drain=False)
"""Late workers stop at once, as papers have it."""

_LOW, _HIGH = 0.8, 1.2  # floors, in seconds a part
_FACTOR = 1.25  # times what the slowest floor takes for its list: the window

ABSTRACT = "Only its abstracts could be read."
LAW = (
    f"{WORKERS} workers, {PARTS} parts; a part takes worker i a_i (1 + Exp(0.2)) s, "
    f"a_i from {_LOW:g} to {_HIGH:g}, 8 times that with probability p in a step"
)


@dataclass(frozen=True, slots=True)
class StragglingLaw:
    """Workers that straggle now and then.

    Attributes:
        straggling: How long a part takes.
        lasts: Whether who straggles does so to the end of the step; else it is drawn
            anew for the second stage.
    """

    straggling: Straggling
    lasts: bool = False

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times."""
        first = self.straggling.draw(rng, steps)
        second = None if self.lasts else self.straggling.draw(rng, steps)
        return redrawn(first, second, PARTS)


def law(probability: float = OFTEN, *, lasts: bool = False) -> StragglingLaw:
    """Return the usual law, with another probability to straggle."""
    return StragglingLaw(Straggling.between(_LOW, _HIGH, WORKERS, probability), lasts)


def window(first: int, excess: float = 0.0) -> float:
    """Return the seconds until the checkpoint, by one rule for everybody.

    Args:
        first: How many are started.
        excess: What they are slower by than their floor, all of them.

    Example:
        >>> window(12), window(8)
        (3.0, 4.5)
    """
    return round(_FACTOR * (PARTS / first) * _HIGH * (1.0 + excess), 9)


def staged(first: int, s: int, code: str = "fractional", *, reuse: bool) -> TwoStage:
    """Return two stages as the model has them: given numbers, data everywhere."""
    return two_stage(
        WORKERS,
        first,
        window(first),
        s,
        reuse=reuse,
        code=code,
        copies="all",
        rest="whole",
        start="numbered",
        rule="threshold",
    )


UNCODED, FRESH = "uncoded", "two stages, fresh"
RE_USED, PLANNED = "two stages, re-use", "two stages, planned"
ONE_STAGE = ("cyclic, s = 1", "fractional, s = 1")
SCHEMES = {
    UNCODED: "uncoded",
    ONE_STAGE[0]: "cyclic(1)",
    ONE_STAGE[1]: "fractional(1)",
    FRESH: f"two_stage(8, {window(8)}, 1, reuse=False, copies=all)",
    RE_USED: f"two_stage(12, {window(12)}, 1, copies=all)",
    PLANNED: "two_stage(copies=all)",
}
"""What runs by events, in words, by its label."""

HELD = "Two stages: every worker holds all data."
FEW = "re-use, 3 copies"
FEW_COPIES = f"two_stage(12, {window(12)}, 1, copies=3)"
"""Where a worker holds three times its share, and helps only with that."""


def schemes(*labels: str) -> dict[str, Scheme]:
    """Return the schemes of these labels, or all."""
    return {each: build(SCHEMES[each], WORKERS) for each in labels or SCHEMES}


def over(one: Floats, other: Floats) -> Measured:
    """Return the ratio of the means of steps that are drawn one by one, any shape."""
    return ratio(one.reshape(-1, 1), other.reshape(-1, 1))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let linear algebra keep to one thread: small systems gain nothing by two.

    On a machine that does other things they lose a lot: one waits for the other.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
