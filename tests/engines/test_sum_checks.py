"""Sums that are not what their messages add up to are found out."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codedgrad.engines import Driver, Here, Local
from codedgrad.engines.host.rows import Rows, add_rows
from codedgrad.engines.host.sum_checks import (
    Token,
    add_scales,
    entries,
    is_off,
    stamp,
    token_of,
    token_of_step,
)
from codedgrad.errors import WrongSum
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import Scheme, cyclic, fractional, uncoded

SIZE = 1000


def row_of(numbers: Any, scalars: int = 2, dtype: str = "float64") -> NDArray[Any]:
    row = np.zeros(len(numbers) + scalars + 4, dtype)
    row[: len(numbers)] = numbers
    return row


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_stamp_is_the_sum_of_the_entries_and_a_bound_of_their_absolute_ones(
    dtype: str,
) -> None:
    numbers = np.random.default_rng(0).standard_normal(200_000)
    row = row_of(numbers, dtype=dtype)
    assert stamp(row, len(numbers), Token())
    eps = float(np.finfo(dtype).eps)
    wide = row[: len(numbers)].astype(np.float64)
    exact = math.fsum(wide)
    assert abs(float(row[-2]) - exact) <= 4 * eps * np.abs(wide).sum()
    assert np.abs(wide).sum() <= float(row[-1]) <= 2 * np.abs(wide).sum()
    assert not is_off(row, -2, entries(row, len(numbers)), 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 9, 10, 11])
def test_a_stamp_tells_what_is_not_finite(bad: float, at: int) -> None:
    row = row_of(np.ones(10))
    assert stamp(row, 10, Token())
    row[at] = bad
    assert not stamp(row, 10, Token())


@pytest.mark.parametrize("size", [1e-24, 1e-38, 1e-44])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_as_small_as_can_be_are_added_up_like_others(
    size: float, dtype: str
) -> None:
    """Squares of them are 0, and rounding is not relative any more."""
    rng = np.random.default_rng(0)
    rows = [row_of(rng.standard_normal(300) * size, 2, dtype) for _ in range(4)]
    for row in rows:
        assert stamp(row, 300, Token())
    sum_ = rows[0] + rows[1] + rows[2] + rows[3]
    assert not is_off(sum_, -2, entries(sum_, 300), 4)


def test_tokens_tell_parts_and_steps_apart() -> None:
    tokens = {token_of(step, part) for step in range(50) for part in range(64)}
    assert len(tokens) > 3000  # of 3200, with 65536 to choose from
    assert all(0.5 <= token < 1.5 for token in tokens)
    sums = {round(token_of_step(step, 64), 4) for step in range(200)}
    assert len(sums) > 190


def test_sums_that_overflow_are_finite_numbers_all_the_same() -> None:
    row = row_of(np.full(10, 1e30), dtype="float32")
    assert stamp(row, 10, Token())
    assert not is_off(row, -2, entries(row, 10), 1)


@given(
    st.integers(1, 8),
    st.integers(1, 3000),
    st.sampled_from(["float32", "float64"]),
    st.floats(-6, 6),
    st.integers(0, 2**32 - 1),
)
def test_rounding_is_never_taken_for_damage(
    messages: int, size: int, dtype: str, decades: float, seed: int
) -> None:
    """Whatever cancels: of messages that add up to nothing, too."""
    rng = np.random.default_rng(seed)
    rows = [
        row_of(
            rng.standard_normal(size) * 10.0 ** rng.uniform(-6, decades + 6), 2, dtype
        )
        for _ in range(messages)
    ]
    weights = [float(w) for w in rng.standard_normal(messages) * 10]
    rows.append(rows[0].copy())
    weights.append(-weights[0])
    for row in rows:
        stamp(row, size, Token())
    sum_ = sum(
        (np.dtype(dtype).type(w) * row for w, row in zip(weights, rows, strict=True)),
        np.zeros_like(rows[0]),
    )
    sum_[-3::2] = 0.0
    sum_[-3::2] = add_scales(rows, weights, sum_)
    assert not is_off(sum_, -2, entries(sum_, size), messages + 1)


def test_rows_that_are_gathered_are_stamped_like_one() -> None:
    rng = np.random.default_rng(1)
    own, one, other = (row_of(rng.standard_normal(50)) for _ in range(3))
    for row in (own, one, other):
        stamp(row, 50, Token())
    scales = float(own[-1]), float(one[-1]), float(other[-1])
    add_rows([(one, -2.0), (other, 0.5)], own)
    assert own[-1] == pytest.approx(scales[0] + 2 * scales[1] + 0.5 * scales[2])
    assert not is_off(own, -2, entries(own, 50), 3)


# -- on engines ------------------------------------------------------------------------


class Ramp:
    """A job whose gradients are known: numbers that depend on part and step."""

    layout = VectorLayout(parameters=1, gradient=SIZE)

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        sums = np.concatenate([np.sin(np.arange(SIZE) * (part + 1)) + step, [1.0, 2.0]])
        out[:] = coefficient * sums + (out if add else 0.0)


SCHEMES = [uncoded(4), fractional(4, tolerance=1), cyclic(4, tolerance=1)]


def run(engine: Any, scheme: Scheme, samples: float | None = None) -> None:
    engine.start(Ramp, Ramp.layout, scheme.workers)
    driver = Driver(engine, scheme, Ramp.layout)
    try:
        for _ in range(3):
            driver.step(np.zeros(1), samples=samples)
    finally:
        engine.close()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_right_sums_pass(scheme: Scheme) -> None:
    run(Here(), scheme, samples=8.0)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_sum_that_counts_other_samples_than_the_step_has_is_an_error(
    scheme: Scheme,
) -> None:
    said = r"step 0: the sum of messages \d+ of worker \d.* it counts 8 samples, the "
    with pytest.raises(WrongSum, match=said + "step has 9"):
        run(Here(), scheme, samples=9.0)


def swap(rows: Rows, weights: Any) -> None:
    """Let a message be that of another worker: as if rows had been mixed up."""
    first, second = (rows._sent[message] for message, _ in list(weights)[:2])
    one, other = rows._row[first[0][0]], rows._row[second[0][0]]
    rows._memory.rows[one][: SIZE // 2] = rows._memory.rows[other][: SIZE // 2]


def older(rows: Rows, weights: Any) -> None:
    """Let a row be a whole one of the step before, checks and all."""
    message, _ = next(iter(weights))
    [(segment, _)] = rows._sent[message]
    row, given = rows._memory.rows[rows._row[segment]], rows._segments[segment]
    token = Token()
    for part, coefficient in zip(given.parts, given.coefficients, strict=True):
        token.add(0, part, coefficient)
    row[:SIZE] -= sum(given.coefficients)  # as of step 0
    stamp(row, SIZE, token)


def twice(rows: Rows, weights: Any) -> None:
    """Let two messages be the same one: a part is there twice, another is not."""
    first, second = (rows._sent[message] for message, _ in list(weights)[:2])
    one, other = rows._row[first[0][0]], rows._row[second[0][0]]
    rows._memory.rows[one] = rows._memory.rows[other]


def flip(rows: Rows, weights: Any) -> None:
    """Flip the lowest bit of an exponent."""
    message, _ = next(iter(weights))
    row = rows._memory.rows[rows._row[rows._sent[message][0][0]]]
    row[:SIZE].view(np.int64)[17] ^= 1 << 52


@pytest.mark.parametrize("damage", [swap, flip, older, twice])
@pytest.mark.parametrize("scheme", [uncoded(4), cyclic(4, tolerance=1)], ids=str)
@pytest.mark.parametrize("engine", [Here, Local])
def test_a_row_that_was_damaged_after_it_was_sent_is_found_out(
    engine: Any, scheme: Scheme, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    combine, calls = Rows.combine, []

    def damaged(self: Rows, weights: Any) -> NDArray[Any]:
        calls.append(weights)
        if len(calls) == 2:
            damage(self, weights)
        return combine(self, weights)

    monkeypatch.setattr(Rows, "combine", damaged)
    with pytest.raises(WrongSum, match="step 1: the sum of messages") as caught:
        run(engine(), scheme)
    assert caught.value.step == 1
    assert [message for message, _ in caught.value.messages] == [
        message for message, _ in calls[1]
    ]
    assert {worker for _, worker in caught.value.messages} <= set(range(4))
    assert "\n" not in str(caught.value)
