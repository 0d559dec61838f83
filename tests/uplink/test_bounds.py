"""What an uplink can reach at best, against a general optimiser."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.batteries import Battery
from codedgrad.uplink.bounds import gap_bound, jain, static_optimum, utility

RATES = (1.0, 2.0, 4.0, 8.0)


def test_the_worked_example_is_exact() -> None:
    assert static_optimum(RATES, most=4.0) == (0.0, 0.25, 1.5, 4.0)
    assert utility((0.0, 0.25, 1.5, 4.0)) == pytest.approx(2.748872, abs=5e-7)


@pytest.mark.parametrize("beta", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_general_optimiser_finds_the_same_optimum(seed: int, beta: float) -> None:
    rates, most = np.random.default_rng(seed).uniform(0.5, 8.0, (2, 5))
    found = minimize(
        lambda x: -np.log1p(beta * x).sum(),
        np.full(5, 0.1 * rates.min()),
        jac=lambda x: -beta / (1.0 + beta * x),
        bounds=[(0.0, top) for top in most],
        constraints={
            "type": "ineq",
            "fun": lambda x: 1.0 - (x / rates).sum(),
            "jac": lambda x: -1.0 / rates,
        },
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    ours = static_optimum(rates.tolist(), most.tolist(), beta)
    assert utility(ours, beta) == pytest.approx(-found.fun, abs=1e-7)
    np.testing.assert_allclose(ours, found.x, atol=1e-3)


@pytest.mark.hypothesis
@given(
    workers=st.lists(
        st.tuples(st.floats(0.01, 100), st.floats(0, 100)), min_size=1, max_size=6
    ),
    beta=st.floats(0.01, 100),
)
def test_the_optimum_uses_all_the_time_there_is_and_meets_its_conditions(
    workers: list[tuple[float, float]], beta: float
) -> None:
    rates, most = zip(*workers, strict=True)
    x = static_optimum(rates, most, beta)
    used = sum(got / rate for got, rate in zip(x, rates, strict=True))
    most = [min(pair) for pair in workers]  # who has all the time sends its rate
    full = [got >= top - 1e-9 for got, top in zip(x, most, strict=True)]
    assert used == pytest.approx(1.0) or (used < 1.0 and all(full))
    # No exchange of time between two workers gains anything.
    gains = [rate * beta / (1 + beta * got) for got, rate in zip(x, rates, strict=True)]
    takers = [g for g, f in zip(gains, full, strict=True) if not f]
    givers = [g for g, got in zip(gains, x, strict=True) if got > 1e-9]
    if takers and givers:
        assert max(takers) <= min(givers) * (1 + 1e-6)


def test_the_edges_of_the_optimum() -> None:
    assert static_optimum([4.0, 8.0], most=1.0) == (1.0, 1.0)  # there is time for all
    assert static_optimum([0.0, 2.0], most=4.0) == (0.0, 2.0)  # one can never send
    assert static_optimum([3.0], most=math.inf) == (3.0,)
    assert static_optimum([0.0], most=1.0) == (0.0,)
    proportional = static_optimum(RATES, math.inf, beta=1e9)
    np.testing.assert_allclose(proportional, (0.25, 0.5, 1.0, 2.0), rtol=1e-6)


def test_jain_is_1_for_equals_and_one_nth_for_a_winner() -> None:
    assert jain([0.0, 0.0, 0.0]) == jain([2.0, 2.0, 2.0]) == 1.0
    assert jain([0.0, 0.0, 1e-200, 0.0]) == 0.25
    assert jain([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)


def test_the_bound_of_the_gap_counts_batteries_too() -> None:
    assert gap_bound(20.0, 4.0, RATES) == 4.8
    assert gap_bound(1.0, 4.0, RATES, Battery(1.0, 0.3)) == 96.0 + 2.0
    assert gap_bound(1.0, 4.0, RATES, Battery([1, 2, 1, 1], 3.0)) == 96.0 + 18.0


def test_numbers_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidOptions, match="values is empty"):
        jain([])
    with pytest.raises(InvalidOptions, match="rates of worker 1 is -1"):
        static_optimum([1.0, -1.0], 1.0)
    with pytest.raises(InvalidOptions, match="most has 1 numbers for 2 workers"):
        static_optimum([1.0, 1.0], [1.0])
    with pytest.raises(InvalidOptions, match="beta is 0"):
        static_optimum([1.0], 1.0, beta=0)
    with pytest.raises(InvalidOptions, match="V is 0"):
        gap_bound(0, 1.0, [1.0])
