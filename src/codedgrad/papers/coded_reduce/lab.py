"""Trees, stars and rings on the same delays, and words that all exhibits share.

Seconds of the simulation are the time $t_c$ for which a message keeps a port busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from codedgrad.codes.tree import Tree
from codedgrad.delays import Times
from codedgrad.papers.measuring import Floats, Measured, ratio
from codedgrad.papers.paper import Effort
from codedgrad.schemes import CodedReduce, coded_reduce
from codedgrad.sim import Network, counted_seconds, ring_seconds, tree_seconds

OVER_GC, OVER_RING = 27.2, 7.0
"""How many times as fast as its rivals the paper's abstract says it is, at most."""

WORDS = (
    "CR: a tree of n children and L layers that does without s children of every "
    "parent, s = 0 uncoded; GC: plain gradient coding, all N workers send to the root, "
    "which does without S = s N / n; UMW: an uncoded star; RAR: a ring all-reduce."
)
MODEL = (
    "A port takes one message at a time, t_c each, in the order in which they are "
    "ready; a message takes t_l besides; late workers stop at once; rule threshold."
)

Kind: TypeAlias = tuple[str, int]
"""CR, GC or RAR, and the tolerance s; GC with s = 0 is UMW."""

TREE, STAR, RING = ("CR", 0), ("GC", 0), ("RAR", 0)
"""What has no code."""

_NEAR = 1.01  # neighbours between which a curve is straight


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree, by its children and layers.

    Attributes:
        children: $n$.
        layers: $L$.

    Example:
        >>> shape = TreeShape(4, 3)
        >>> str(shape), shape.workers, shape.late(1), shape.limit
        ('(4,3)', 84, 21, 7.0)
    """

    children: int
    layers: int

    @property
    def workers(self) -> int:
        """$N$."""
        return Tree(self.children, self.layers).workers

    @property
    def limit(self) -> float:
        """GC over CR where nobody computes and there is no latency: $N / (n L)$."""
        return self.workers / (self.children * self.layers)

    def late(self, tolerance: int) -> int:
        """Return $S$ of a star that does without the same fraction of workers."""
        return tolerance * self.workers // self.children

    def scheme(self, tolerance: int) -> CodedReduce:
        """Return the tree that counts to $n - s$ at every parent."""
        return _scheme(self, tolerance)

    def __str__(self) -> str:
        return f"({self.children},{self.layers})"


@cache
def _scheme(shape: TreeShape, tolerance: int) -> CodedReduce:
    inner = "cyclic" if tolerance else None
    N, n = shape.workers, shape.children
    return coded_reduce(N, n, tolerance, inner=inner, rule="threshold")


@dataclass(frozen=True, slots=True)
class TreeLab:
    """Draws what is random, the same for everybody.

    Attributes:
        effort: From which seed, and who is told.
        samples: Steps, each drawn by itself.
    """

    effort: Effort
    samples: int

    def excess(self, shape: TreeShape) -> Floats:
        """Return exponential numbers of mean 1, (samples, workers)."""
        return self._rng(shape).standard_exponential((self.samples, shape.workers))

    def chances(self, shape: TreeShape) -> Floats:
        """Return uniform numbers, (samples, workers), that nothing else hangs on."""
        rng = self._rng(shape).spawn(1)[0]
        return rng.random((self.samples, shape.workers))

    def _rng(self, shape: TreeShape) -> np.random.Generator:
        return np.random.default_rng((self.effort.seed, shape.children, shape.layers))

    def __str__(self) -> str:
        return f"{self.samples} steps, seed {self.effort.seed}"


def share_times(excess: Floats, share: float) -> Times:
    """Return shifted exponential times, a mu = 1.

    Args:
        excess: Exponential numbers of mean 1, (steps, workers).
        share: $A$, what an uncoded share takes without delay.
    """
    return Times(np.zeros_like(excess), share * (1.0 + excess))


def over(one: Floats, other: Floats) -> Measured:
    """Return the ratio of the means of steps that are drawn one by one, (steps,)."""
    return ratio(one[:, None], other[:, None])


class TreeSweep:
    """Everybody's steps on trees of one shape, by the one number that is changed.

    Args:
        shape: Of the tree; stars and rings have as many workers.
        drawn: Returns the times for a number; the same chance for every number, so
            that what comes of it changes smoothly.
        latency: $t_l$.
    """

    def __init__(
        self, shape: TreeShape, drawn: Callable[[float], Times], latency: float = 0.0
    ) -> None:
        self.shape = shape
        self._drawn = drawn
        self._network = Network(port=1.0, latency=latency)
        self._known: dict[tuple[Kind, float], Floats] = {}
        self._last: tuple[float, Times] | None = None

    def seconds(self, kind: Kind, x: float) -> Floats:
        """Return the time of every step, in t_c, (steps,)."""
        if (kind, x) not in self._known:
            if self._last is None or self._last[0] != x:
                self._last = x, self._drawn(x)
            self._known[kind, x] = self._run(kind, self._last[1])
        return self._known[kind, x]

    def over(self, one: Kind, other: Kind, x: float) -> Measured:
        """Return the mean step of the one over that of the other."""
        return over(self.seconds(one, x), self.seconds(other, x))

    def crossing(self, one: Kind, other: Kind, x: Sequence[float]) -> Measured | None:
        """Return up to which number the one is faster; see `crossing`."""
        return crossing(x, lambda at: self.over(one, other, at))

    def means(self, kind: Kind, x: Sequence[float]) -> list[float]:
        """Return the mean steps, in t_c."""
        return [float(self.seconds(kind, each).mean()) for each in x]

    def _run(self, kind: Kind, times: Times) -> Floats:
        name, s = kind
        if name == "CR":
            return tree_seconds(self.shape.scheme(s), times, self._network)
        if name == "GC":
            return counted_seconds(self.shape.late(s), times, self._network)
        return ring_seconds(times, self._network)


def crossing(x: Sequence[float], at: Callable[[float], Measured]) -> Measured | None:
    """Return where a ratio first reaches 1, from below.

    It is bracketed by neighbours and halved from there on: a straight line between
    neighbours may be far off where a curve bends.

    Args:
        x: Where to look, ascending and above 0.
        at: Returns the ratio, smooth in its argument.

    Returns:
        The place, with the error that follows from that of the ratio; None if the ratio
        is not below 1 at the first of them, or is to the last.

    Example:
        >>> print(crossing((1.0, 10.0, 100.0), lambda x: Measured(x / 20, 0.01)))
        20.000 ±0.200
    """
    ratios = [at(each) for each in x]
    above = [place for place, found in enumerate(ratios) if found.value >= 1.0]
    if not above or above[0] == 0:
        return None
    low, high = x[above[0] - 1], x[above[0]]
    below, beyond = ratios[above[0] - 1], ratios[above[0]]
    while high > _NEAR * low:
        middle = math.sqrt(low * high)
        found = at(middle)
        if found.value < 1.0:
            low, below = middle, found
        else:
            high, beyond = middle, found
    slope = math.log(beyond.value / below.value) / math.log(high / low)
    place = low * below.value ** (-1 / slope)
    return Measured(place, place * beyond.error / slope)


def where(place: Measured | None) -> str:
    """Return a crossing in words: a number and its error, or that there is none.

    Example:
        >>> where(None), where(Measured(12.345, 0.0678))
        ('nowhere', '12.3 ±0.07')
    """
    if place is None:
        return "nowhere"
    return f"{place.value:.3g} ±{place.error:.1g}"
