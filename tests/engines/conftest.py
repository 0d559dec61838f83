"""What several files need. Starting an engine takes half a second of computing: so
many runs are made two or three at a time, and looked at by many tests.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from codedgrad.jobs import Gradient


@pytest.fixture(scope="session")
def least_squares() -> Callable[[int], Gradient]:
    """Make a gradient of so many numbers, with other data in every part and step."""

    def make(size: int = 3) -> Gradient:
        rng = np.random.default_rng(0)
        A, b = rng.standard_normal((20, 4, 3)), rng.standard_normal((20, 4))
        spread = np.zeros((3, size)) if size > 3 else np.eye(3)
        spread[np.arange(size) % 3, np.arange(size)] = rng.uniform(0.5, 1.5, size)
        spread /= np.linalg.norm(spread, axis=1, keepdims=True)

        def gradient(
            x: np.ndarray, part: int, step: int
        ) -> tuple[float, float, np.ndarray]:
            which = (3 * part + 7 * step) % 20
            gap = A[which] @ (spread @ x) - b[which]
            return float(gap @ gap) / 2, len(gap), (gap @ A[which]) @ spread

        return gradient

    return make


@pytest.fixture(scope="session")
def part_sums() -> Callable[[Gradient, np.ndarray, int, Sequence[float]], np.ndarray]:
    """Add up messages of all parts in this process: gradients, losses, samples."""

    def add(
        gradient: Gradient, x: np.ndarray, step: int, weights: Sequence[float]
    ) -> np.ndarray:
        total = np.zeros(len(x) + 2)
        for part, weight in enumerate(weights):
            loss, count, sums = gradient(x, part, step)
            total += weight * np.array([*sums, loss, count])
        return total

    return add
