"""Least squares: small enough for every scheme and many runs at once.

2000 samples, 20 unknowns, from one fixed draw. A step adds up part gradients with the
weights that a code gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

DIMENSION, SAMPLES = 20, 2000
EPSILON = 1e-8  # of Adam
_FAR = 1e6  # where what diverges stops


class LeastSquaresTask:
    """Least squares in as many parts as wanted, from the same data.

    Args:
        parts: How many; must divide 2000.
    """

    def __init__(self, parts: int) -> None:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((SAMPLES, DIMENSION))
        y = X @ rng.standard_normal(DIMENSION) + rng.standard_normal(SAMPLES)
        X, y = X.reshape(parts, -1, DIMENSION), y.reshape(parts, -1)
        self.parts = parts
        self.H = np.einsum("jsd,jse->jde", X, X) / SAMPLES
        self.h = np.einsum("jsd,js->jd", X, y) / SAMPLES
        self.curvature: Floats = self.H.sum(axis=0)
        self.optimum = np.linalg.solve(self.curvature, self.h.sum(axis=0))

    def distances(self, weights: Floats, steps: Floats) -> Floats:
        """Train all runs at once.

        Args:
            weights: Of the parts, shape (steps, runs, parts).
            steps: Sizes to try, shape (sizes,).

        Returns:
            Squared distances, 1 at the start, shape (steps, sizes, runs).
        """
        found = [np.square(gap).sum(axis=-1) for gap in self._descend(weights, steps)]
        return np.asarray(np.array(found) / np.square(self.optimum).sum())

    def losses(self, weights: Floats, steps: Floats) -> Floats:
        """Train all runs at once; return what loss is above the least.

        As `distances`, with the loss: 1 at the start.
        """
        found = [self._excess(gap) for gap in self._descend(weights, steps)]
        return np.array(found) / self._excess(self.optimum)

    def adam(
        self, weights: Floats, second: Floats, rates: Floats, epsilon: float = EPSILON
    ) -> Floats:
        """Train all runs at once by Adam, with a second decoding for its scale.

        Args:
            weights: Of the parts, for the first moment, shape (steps, runs, parts).
            second: For the second moment, of the same shape.
            rates: Sizes of steps to try, shape (rates,).
            epsilon: As in Adam.

        Returns:
            Losses above the least, 1 at the start, shape (steps, rates, runs).
        """
        x = np.zeros((len(rates), weights.shape[1], DIMENSION))
        m, v, found = np.zeros_like(x), np.zeros_like(x), []
        for t, (c, other) in enumerate(zip(weights, second, strict=True), start=1):
            m += 0.1 * (self._gradient(c, x) - m)
            v += 0.001 * (np.square(self._gradient(other, x)) - v)
            scale = np.sqrt(v / (1 - 0.999**t)) + epsilon
            x = x - rates[:, None, None] * (m / (1 - 0.9**t)) / scale
            found.append(self._excess(x - self.optimum))
        return np.array(found) / self._excess(self.optimum)

    def _descend(self, weights: Floats, steps: Floats) -> Iterator[Floats]:
        """Yield how far off the optimum all runs are, (sizes, runs, unknowns)."""
        x = np.zeros((len(steps), weights.shape[1], DIMENSION))
        for c in weights:
            x = x - steps[:, None, None] * self._gradient(c, x)
            x = np.clip(x, -_FAR, _FAR)
            yield x - self.optimum

    def _gradient(self, c: Floats, x: Floats) -> Floats:
        """Return the sum of the parts with these weights, (runs, parts), at x."""
        flat = self.H.reshape(self.parts, -1)
        H = (c @ flat).reshape(len(c), DIMENSION, DIMENSION)
        return np.asarray(np.einsum("rde,gre->grd", H, x) - c @ self.h)

    def _excess(self, gap: Floats) -> Floats:
        return np.asarray(np.einsum("...d,de,...e->...", gap, self.curvature, gap) / 2)
