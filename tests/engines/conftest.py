"""What several files need. Starting an engine takes half a second of computing: so
many runs are made two or three at a time, and looked at by many tests.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar

import numpy as np
import pytest

from codedgrad.jobs import Gradient

T = TypeVar("T")


@pytest.fixture(scope="session")
def together() -> Callable[..., list[T]]:
    """Call functions a few at a time; return what they return, in order.

    The threads are daemons: one that hangs does not keep a test run from ending.
    """

    def call(functions: Iterable[Callable[[], T]], at_once: int = 3) -> list[T]:
        calls = [(function, Future[T]()) for function in functions]
        left = deque(calls)

        def answer(function: Callable[[], T], future: Future[T]) -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        def work() -> None:
            with suppress(IndexError):  # none is left
                while True:
                    answer(*left.popleft())

        for _ in range(at_once):
            Thread(target=work, daemon=True).start()
        return [future.result() for _, future in calls]

    return call


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
