r"""Means and ratios of means, with their standard errors; runs are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """A number and its standard error.

    Attributes:
        value: The number.
        error: Its standard error; 0 if nothing was random, NaN if it is not known.
    """

    value: float
    error: float = 0.0

    def is_below(self, other: float) -> bool:
        """Whether it is smaller by more than two standard errors."""
        return self.value + 2 * self.error < other

    def is_above(self, other: float) -> bool:
        """Whether it is larger by more than two standard errors."""
        return self.value - 2 * self.error > other

    def times(self, other: Measured) -> Measured:
        """Return the product of two that were measured apart.

        Example:
            >>> print(Measured(0.5, 0.003).times(Measured(2.0, 0.016)))
            1.000 ±0.010
        """
        parts = self.error * other.value, self.value * other.error
        return Measured(self.value * other.value, math.hypot(*parts))

    def __str__(self) -> str:
        return f"{self.value:.3f} ±{self.error:.3f}"


def mean(seconds: Floats) -> Measured:
    """Return the mean of values of shape (runs, steps).

    Example:
        >>> print(mean(np.array([[1.0, 3.0], [2.0, 4.0]])))
        2.500 ±0.500
    """
    runs = seconds.mean(axis=1)
    return Measured(float(runs.mean()), _error(runs))


def ratio(one: Floats, other: Floats) -> Measured:
    """Return the ratio of the means of values of shape (runs, steps), run by run.

    Example:
        >>> print(ratio(np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])))
        0.500 ±0.000
    """
    x, y = one.mean(axis=1), other.mean(axis=1)
    found = float(x.mean() / y.mean())
    return Measured(found, _error(x - found * y) / float(y.mean()))


def _error(runs: Floats) -> float:
    if len(runs) < 2:
        return math.nan
    return float(runs.std(ddof=1)) / math.sqrt(len(runs))
