r"""How two schemes compare on the same delays, and how sure that is.

All schemes met the same workers, so they are compared pair by pair. With $A_j$ and
$B_j$ the seconds that a scheme and the first one spent in block $j$, on the steps in
which both gave a sum, the ratio is $r = \sum A_j / \sum B_j$ and its standard error
$\sqrt{\frac{J}{J - 1} \sum (A_j - r B_j)^2} / \sum B_j$. The blocks are the runs; of a
single run they are ten stretches of steps. A ratio is called clear if it differs from 1
by more than chance would in 19 of 20 comparisons (Student's t, about two standard
errors).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.sim.comparison import Result

_BLOCKS = 10  # of a single run


@dataclass(frozen=True, slots=True)
class Ratio:
    """Mean step time over that of another scheme; below 1 is faster.

    Attributes:
        value: NaN if there is no step in which both gave a sum.
        error: Its standard error; NaN if there is a single block.
        blocks: From how many blocks.
        over_runs: Whether they are runs, or stretches of a single one.
    """

    value: float
    error: float
    blocks: int
    over_runs: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether it differs from 1 by more than chance explains."""
        if not self.blocks > 1 or math.isnan(self.value):
            return False
        from scipy.special import stdtrit

        limit = float(stdtrit(self.blocks - 1, 0.975)) * self.error
        return abs(self.value - 1) > limit

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        if math.isnan(self.error):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ±{self.error:.3f}"


def ratio(result: Result, other: Result) -> Ratio:
    """Return how long a step takes, over how long it takes with another scheme.

    Example:
        >>> from codedgrad.delays import ShiftedExponential
        >>> from codedgrad.schemes import fractional, uncoded
        >>> from codedgrad.sim import compare
        >>> one, two = compare([uncoded(4), fractional(4, tolerance=1)],
        ...                    ShiftedExponential(floor=1.0), steps=20)
        >>> print(ratio(two, one))
        2.000 ±0.000
    """
    pairs = (
        (a[both], b[both])
        for a, b in _blocks(result.seconds, other.seconds)
        if (both := np.isfinite(a) & np.isfinite(b)).any()
    )
    blocks = [(a.sum(), b.sum()) for a, b in pairs]
    if not blocks or sum(b for _, b in blocks) == 0:
        return Ratio(math.nan, math.nan, 0)
    A, B = np.array(blocks).T
    value = float(A.sum() / B.sum())
    error = _error(A - value * B) / float(B.sum())
    over_runs = _runs_differ(result.seconds, other.seconds)
    return Ratio(value, error, len(blocks), over_runs)


def mean_error(result: Result) -> float:
    """Return the standard error of the mean step time, over the same blocks."""
    blocks = [block[np.isfinite(block)] for (block,) in _blocks(result.seconds)]
    some = [block for block in blocks if block.size]
    count = sum(block.size for block in some)
    if not count:
        return math.nan
    mean = sum(float(block.sum()) for block in some) / count
    return _error(np.array([(block - mean).sum() for block in some])) / count


def _error(misfits: Floats) -> float:
    J = len(misfits)
    return math.sqrt(J / (J - 1) * float(misfits @ misfits)) if J > 1 else math.nan


def _blocks(*seconds: Floats) -> Iterator[tuple[Floats, ...]]:
    """Return what is as good as independent: runs, or stretches of a single run.

    Runs in which nothing was random are one run.
    """
    steps = seconds[0].shape[1]
    if _runs_differ(*seconds):
        yield from zip(*seconds, strict=True)
    else:
        split = (np.array_split(each[0], min(_BLOCKS, steps)) for each in seconds)
        yield from zip(*split, strict=True)


def _runs_differ(*seconds: Floats) -> bool:
    return any((each != each[0]).any() for each in seconds)
