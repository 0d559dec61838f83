from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from fnmatch import fnmatchcase
from threading import Thread
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

# Derandomised: a failure in CI fails on every machine. `make soak` draws anew.
settings.register_profile("codedgrad", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile("codedgrad")


@pytest.hookimpl(tryfirst=True)  # before `-m "not long"` takes tests out
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark as long every parameter that a test's `quick(...)` does not name."""
    unused: dict[tuple[str, str], bool] = {}
    for item in items:
        for marker in item.iter_markers("quick"):
            name = item.callspec.id  # type: ignore[attr-defined]  # it has parameters
            matches = {pattern: fnmatchcase(name, pattern) for pattern in marker.args}
            if not any(matches.values()):
                item.add_marker("long")
            test = item.nodeid.partition("[")[0]
            for pattern, matched in matches.items():
                unused[test, pattern] = (
                    unused.get((test, pattern), True) and not matched
                )
    wrong = sorted(key for key, is_unused in unused.items() if is_unused)
    if wrong and not any("::" in word for word in config.args):  # all were collected
        raise pytest.UsageError(
            f"quick(...) names parameters that do not exist: {wrong}"
        )


@pytest.fixture(params=[400, pytest.param(2000, marks=pytest.mark.long)])
def schedules(request: pytest.FixtureRequest) -> int:
    """How many schedules of faults: 400, 2,000 if long, and 100,000 in a soak."""
    profile = request.config.getoption("--hypothesis-profile")
    is_many = profile == "soak" and request.param == 2000
    return 100_000 if is_many else request.param


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
