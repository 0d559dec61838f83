r"""Who is faster, by how much, and how sure that is.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from codedgrad.core import Scheme
from codedgrad.sim import Bounds, Result
from codedgrad.view.distances import Distance, distance

__all__ = ["Ratio", "Row", "compared", "mean_error", "ratio", "verdict"]

Floats: TypeAlias = NDArray[np.float64]

_BLOCKS = 10  # of a single run
_TOLERATED = 1e-9  # a residual above it is not exact


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
        limit = float(stdtrit(self.blocks - 1, 0.975)) * self.error
        return abs(self.value - 1) > limit

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        if math.isnan(self.error):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ±{self.error:.3f}"


@dataclass(frozen=True, slots=True)
class Row:
    """A scheme in a comparison.

    Attributes:
        result: What it did.
        figures: `Result.summary()`.
        load: Largest number of uncoded loads that a worker computes.
        ratio: To the first scheme; None for the first itself.
        distance: To the best possible, if that was asked for.
    """

    result: Result
    figures: dict[str, float]
    load: float
    ratio: Ratio | None
    distance: Distance | None = None

    @property
    def scheme(self) -> Scheme:
        """The scheme."""
        return self.result.scheme

    @property
    def rule(self) -> str:
        """Its stop rule, in words."""
        return str(getattr(self.scheme, "rule", "its own"))

    @property
    def is_exact(self) -> bool:
        """Whether every sum it gave was exact."""
        done = np.isfinite(self.result.seconds)
        return bool(np.all(self.result.residual[done] <= _TOLERATED))

    def __str__(self) -> str:
        return self.scheme.name


def compared(
    results: Sequence[Result], bounds: Sequence[Bounds] | None = None
) -> list[Row]:
    """Return a row for every result; the first is what the others are compared with.

    Args:
        results: Of `compare`.
        bounds: Of `bounds_of`, for the same schemes and delays.
    """
    first = results[0]
    limits: Sequence[Bounds | None] = bounds or [None] * len(results)
    return [
        Row(
            result,
            result.summary(),
            load=load_of(result.scheme),
            ratio=None if result is first else ratio(result, first),
            distance=None if limit is None else distance(result, limit),
        )
        for result, limit in zip(results, limits, strict=True)
    ]


def load_of(scheme: Scheme) -> float:
    """Return the largest number of uncoded loads that a worker computes.

    Where a worker stores more than it computes in a step, its scheme has a `load`.
    """
    stored = max(map(len, scheme.placement))
    return float(getattr(scheme, "load", stored)) * scheme.workers / scheme.parts


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


def verdict(rows: Sequence[Row]) -> str:
    """Say in plain words which scheme to take, or that there is nothing to gain."""
    first, *others = rows
    if not others:
        return "Only one scheme: there is nothing to compare it with."
    most = max(1 - row.figures["gave_up"] for row in rows)
    if most == 0:
        return "No scheme finished a single step."
    whole = [row for row in rows if 1 - row.figures["gave_up"] == most]
    if first not in whole:
        return _without_first(first, whole, most)
    fair = [
        row for row in others if row in whole and (row.is_exact or not first.is_exact)
    ]
    return " ".join([_fastest(first, fair), *_approximate(others, fair)])


def _without_first(first: Row, whole: Sequence[Row], most: float) -> str:
    best = min(whole, key=lambda row: (not row.is_exact, row.figures["mean_seconds"]))
    gave_up = f"{percent(first.figures['gave_up'])} of its steps"
    ended = "all of them" if most == 1 else f"{percent(most)} of them"
    seconds = f"{best.figures['mean_seconds']:.3g} s"
    exactly = "" if best.is_exact else ", not exactly"
    return (
        f"{first} gave up {gave_up}; {best} finished {ended}{exactly}, "
        f"in {seconds} on average."
    )


def _fastest(first: Row, fair: Sequence[Row]) -> str:
    if not fair:
        return f"No other scheme did as much as {first}."
    faster = [row for row in fair if _value(row) < 1 and _is_clear(row)]
    if faster:
        best = min(faster, key=_value)
        equal = [row for row in faster if row is not best and _is_close(row, best)]
        saved = percent(1 - _value(best))
        text = f"Fastest: {best}, {saved} less time a step than {first}."
        names = " and ".join(map(str, equal))
        return f"{text} No clear difference to {names}." if equal else text
    best = min(fair, key=_value)
    if not _is_clear(best):
        return (
            f"No clear difference between {first} and the best of the others, {best} "
            f"({best.ratio}); longer runs may show one."
        )
    others = f"the best of the others, {best}, takes {_times(best)} as long"
    if str(first).startswith("uncoded"):
        return f"Nothing to gain: {first} is fastest; {others}."
    waiting = [r for r in fair if r is not best and str(r).startswith("uncoded")]
    more = f", {waiting[0]} {_times(waiting[0])}" if waiting else ""
    return f"Fastest: {first}; {others}{more}."


def _approximate(others: Sequence[Row], fair: Sequence[Row]) -> list[str]:
    least = min((_value(row) for row in fair), default=1.0)
    return [
        f"{row} is faster ({row.ratio}) but not exact: "
        f"{percent(row.figures['exact'])} of its steps are, its mean residual is "
        f"{percent(row.figures['residual'])} of the parts."
        for row in others
        if row not in fair
        and not row.is_exact
        and _is_clear(row)
        and _value(row) < min(least, 1.0)
    ]


def _times(row: Row) -> str:
    value = _value(row)
    return f"{value:.3f} times" if value < 1.1 else f"{value:.3g} times"


def _value(row: Row) -> float:
    return math.inf if row.ratio is None else row.ratio.value


def _is_clear(row: Row) -> bool:
    return row.ratio is not None and row.ratio.is_clear


def _is_close(row: Row, best: Row) -> bool:
    return not ratio(row.result, best.result).is_clear


def percent(share: float) -> str:
    """Return a share as a percentage that does not round to all or nothing.

    Example:
        >>> percent(0.4711), percent(0.9999), percent(1.0), percent(0.0001)
        ('47 %', '99.9 %', '100 %', '0.1 %')
    """
    x = 100 * share
    if x in (0.0, 100.0) or 1 <= x <= 99:
        return f"{x:.0f} %"
    return f"{min(max(x, 0.1), 99.9):.1f} %"
