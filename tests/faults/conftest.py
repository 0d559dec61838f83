"""What several files need. Starting an engine takes half a second of computing: so
many runs are made two or three at a time, and looked at by many tests.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar

import pytest

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


@pytest.fixture
def long_steps(request: pytest.FixtureRequest) -> int:
    """How many steps a long run has: 300, and 10,000 in a soak."""
    profile = request.config.getoption("--hypothesis-profile")
    return 10_000 if profile == "soak" else 300
