"""Only what has changed of the parameters is moved, and all of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codedgrad.engines import Driver, Here, Local
from codedgrad.engines.host.changed_stretches import Stale
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import fractional, uncoded

from .loopback import Looped

LENGTH = 40

stretch = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(
    lambda pair: (min(pair), max(pair))
)
changes = st.none() | st.lists(stretch, max_size=4).map(sorted)


@given(st.lists(st.tuples(changes, st.sets(st.integers(0, 3))), max_size=20))
def test_a_copy_that_takes_what_it_lacks_is_what_the_vector_is(
    steps: list[tuple[Any, set[int]]],
) -> None:
    vector, stale = np.zeros(LENGTH), Stale(LENGTH)
    copies = np.full((4, LENGTH), np.nan)
    for number, (changed, readers) in enumerate(steps):
        for start, end in [(0, LENGTH)] if changed is None else changed:
            vector[start:end] = number
        stale.change(changed)
        for reader in readers:
            lacks = stale.take(reader)
            for start, end in lacks:
                copies[reader, start:end] = vector[start:end]
            assert np.array_equal(copies[reader], vector)
            assert stale.take(reader) == ()


SMALL = VectorLayout(parameters=LENGTH, gradient=LENGTH)
LARGE = VectorLayout(parameters=50_000, gradient=50_000)


class Seen:
    """A job that returns the parameters it sees."""

    def __init__(self, layout: VectorLayout) -> None:
        self.layout = layout

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        sums = coefficient * np.concatenate([parameters, [0.0, 1.0]])
        out[:] = out + sums if add else sums


def apart() -> Looped:
    return Looped()


def together() -> Looped:
    return Looped(hosts=1)


def mixed() -> Looped:
    return Looped(hosts=2, at_root=True)


@pytest.mark.parametrize("make", [Here, Local, apart, together, mixed])
def test_workers_see_what_was_published_though_only_changes_are_moved(
    make: Any,
) -> None:
    engine = make()
    rng = np.random.default_rng(0)
    scheme = fractional(4, tolerance=1)
    engine.start(lambda: Seen(SMALL), SMALL, 4)
    driver = Driver(engine, scheme, SMALL)
    vector = rng.standard_normal(LENGTH)
    try:
        for step in range(12):
            changed = None
            if step:
                start = int(rng.integers(LENGTH))
                changed = [(start, min(LENGTH, start + 3))]
                vector[start : start + 3] = step
            sum_ = driver.step(vector, changed=changed)
            np.testing.assert_allclose(sum_.gradient, vector, rtol=1e-12)
    finally:
        engine.close()


def sent(engine: Looped, host: int) -> int:
    """Return the bytes that the root has sent to a host."""
    link = engine._far[host].link
    assert link is not None
    return link.connection.sent


def test_what_has_not_changed_is_not_sent_and_the_rest_once_for_all_of_a_host() -> None:
    engine, sizes = Looped(hosts=1), []
    engine.start(lambda: Seen(LARGE), LARGE, 3)
    driver = Driver(engine, uncoded(3), LARGE)
    try:
        for step in range(8):
            vector = np.full(LARGE.parameters, 1.0)
            vector[:4] = step
            before = sent(engine, 1)
            driver.step(vector, changed=[(0, 4)] if step else None)
            sizes.append(sent(engine, 1) - before)
    finally:
        engine.close()
    assert engine.delivered == 8
    whole, orders = 8 * LARGE.parameters, 4000
    versions = sum(size >= whole for size in sizes)
    assert 1 <= versions <= 5  # those in the host's memory, each the first time
    assert all(size < orders for size in sizes if size < whole)
    assert max(sizes) < whole + orders  # once, not once for each of three workers


def test_a_host_that_is_back_is_sent_everything() -> None:
    engine = Looped()
    engine.start(lambda: Seen(LARGE), LARGE, 2)
    driver = Driver(engine, uncoded(2), LARGE)  # waits until it is back
    vector = np.arange(LARGE.parameters, dtype=float)
    try:
        for step in range(6):
            driver.step(vector, changed=[(0, 1)] if step else None)
        engine.launcher.lose(1)
        engine.launcher.begin(1)
        sum_ = driver.step(vector, changed=[])
        np.testing.assert_allclose(sum_.gradient, vector, rtol=1e-12)
        assert sent(engine, 2) > 8 * LARGE.parameters  # over its new connection
    finally:
        engine.close()
