"""Only what has changed of the parameters is moved, and all of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codedgrad.engines import Driver, Here, Local
from codedgrad.engines.host.changed_stretches import Stale, pack, unpack
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
            packed = np.empty(sum(end - start for start, end in lacks))
            pack(vector, lacks, packed)
            unpack(packed, lacks, copies[reader])
            assert np.array_equal(copies[reader], vector)
            assert stale.take(reader) == ()


def test_the_successor_of_a_copy_lacks_everything() -> None:
    stale = Stale(LENGTH)
    stale.take("agent")
    assert stale.take("agent") == ()
    stale.forget("agent")
    assert stale.take("agent") == ((0, LENGTH),)


class Seen:
    """A job that returns the parameters it sees."""

    layout = VectorLayout(parameters=LENGTH, gradient=LENGTH)

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


def far() -> Looped:
    return Looped()


def near() -> Looped:
    return Looped(near=True)


@pytest.mark.parametrize("make", [Here, Local, far, near])
def test_workers_see_what_was_published_though_only_changes_are_moved(
    make: Any,
) -> None:
    engine = make()
    rng = np.random.default_rng(0)
    scheme = fractional(4, tolerance=1)
    engine.start(Seen, Seen.layout, 4)
    driver = Driver(engine, scheme, Seen.layout)
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


def test_what_has_not_changed_is_not_sent_to_agents() -> None:
    engine = Looped()
    engine.start(Seen, Seen.layout, 2)
    driver = Driver(engine, uncoded(2), Seen.layout)
    try:
        for step in range(6):
            vector = np.full(LENGTH, 1.0)
            vector[:4] = step
            driver.step(vector, changed=[(0, 4)] if step else None)
    finally:
        engine.close()
    delivered = engine.transport.delivered
    sizes = [sum(end - start for start, end in s) for _, s in delivered]
    assert len(delivered) == 12
    assert sizes == [LENGTH] * 4 + [4] * 8  # two slots for each of two agents


def test_an_agent_that_is_new_is_sent_everything() -> None:
    engine = Looped()
    engine.start(Seen, Seen.layout, 2)
    driver = Driver(engine, uncoded(2), Seen.layout)  # waits until it is back
    vector = np.arange(LENGTH, dtype=float)
    try:
        for step in range(4):
            driver.step(vector, changed=[(0, 1)] if step else None)
        engine.transport.delivered.clear()
        engine.transport.lose(1)
        engine.transport.begin(1)
        sum_ = driver.step(vector, changed=[])
        np.testing.assert_allclose(sum_.gradient, vector, rtol=1e-12)
    finally:
        engine.close()
    assert (1, ((0, LENGTH),)) in engine.transport.delivered
