"""What several files need. Starting an engine takes most of a second, computing: so
many runs are made two or three at a time, and looked at by many tests.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

T = TypeVar("T")


@pytest.fixture(scope="session")
def together() -> Callable[[Iterable[Callable[[], T]], int], list[T]]:
    """Call functions a few at a time; return what they return, in order."""

    def call(functions: Iterable[Callable[[], T]], at_once: int = 3) -> list[T]:
        with ThreadPoolExecutor(at_once) as pool:
            return [future.result() for future in [*map(pool.submit, functions)]]

    return call


@pytest.fixture
def long_steps(request: pytest.FixtureRequest) -> int:
    """How many steps a long run has: 300, and 10,000 in a soak."""
    profile = request.config.getoption("--hypothesis-profile")
    return 10_000 if profile == "soak" else 300
