"""Who is faster, by how much and how surely, in rows and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Scheme
from codedgrad.sim import Bounds, Ratio, Result, ratio
from codedgrad.view.distances import Distance, distance

Floats: TypeAlias = NDArray[np.float64]

_TOLERATED = 1e-9  # a residual above it is not exact


@dataclass(frozen=True, slots=True)
class ComparisonRow:
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
        return self.scheme.traits.rule

    @property
    def is_exact(self) -> bool:
        """Whether every sum it gave was exact."""
        done = np.isfinite(self.result.seconds)
        return bool(np.all(self.result.residual[done] <= _TOLERATED))

    def __str__(self) -> str:
        return self.scheme.name


def compared(
    results: Sequence[Result], bounds: Sequence[Bounds] | None = None
) -> list[ComparisonRow]:
    """Return a row for every result; the first is what the others are compared with.

    Args:
        results: Of `compare`.
        bounds: Of `bounds_of`, for the same schemes and delays.
    """
    first = results[0]
    limits: Sequence[Bounds | None] = bounds or [None] * len(results)
    return [
        ComparisonRow(
            result,
            result.summary(),
            load=load_of(result.scheme),
            ratio=None if result is first else ratio(result, first),
            distance=None if limit is None else distance(result, limit),
        )
        for result, limit in zip(results, limits, strict=True)
    ]


def load_of(scheme: Scheme) -> float:
    """Return the largest number of uncoded loads that a worker computes."""
    load = scheme.traits.load or max(map(len, scheme.placement))
    return load * scheme.workers / scheme.parts


def verdict(rows: Sequence[ComparisonRow]) -> str:
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


def _without_first(
    first: ComparisonRow, whole: Sequence[ComparisonRow], most: float
) -> str:
    best = min(whole, key=lambda row: (not row.is_exact, row.figures["mean_seconds"]))
    gave_up = f"{percent(first.figures['gave_up'])} of its steps"
    ended = "all of them" if most == 1 else f"{percent(most)} of them"
    seconds = f"{best.figures['mean_seconds']:.3g} s"
    exactly = "" if best.is_exact else ", not exactly"
    return (
        f"{first} gave up {gave_up}; {best} finished {ended}{exactly}, "
        f"in {seconds} on average."
    )


def _fastest(first: ComparisonRow, fair: Sequence[ComparisonRow]) -> str:
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


def _approximate(
    others: Sequence[ComparisonRow], fair: Sequence[ComparisonRow]
) -> list[str]:
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


def _times(row: ComparisonRow) -> str:
    value = _value(row)
    return f"{value:.3f} times" if value < 1.1 else f"{value:.3g} times"


def _value(row: ComparisonRow) -> float:
    return math.inf if row.ratio is None else row.ratio.value


def _is_clear(row: ComparisonRow) -> bool:
    return row.ratio is not None and row.ratio.is_clear


def _is_close(row: ComparisonRow, best: ComparisonRow) -> bool:
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
