"""Means and ratios, against what else computes them."""

import math

import numpy as np
import pytest

from codedgrad.delays import ShiftedExponential
from codedgrad.papers.measuring import Measured, mean, ratio
from codedgrad.schemes import fractional, uncoded
from codedgrad.sim import compare, mean_error
from codedgrad.sim import ratio as other_ratio


def test_ratio_and_error_are_those_of_a_comparison() -> None:
    schemes = [uncoded(4), fractional(4, tolerance=1)]
    one, two = compare(schemes, ShiftedExponential(1.0, 1.0), steps=20, runs=6)
    found, other = ratio(two.seconds, one.seconds), other_ratio(two, one)
    assert (found.value, found.error) == pytest.approx((other.value, other.error))
    assert mean(one.seconds).error == pytest.approx(mean_error(one))


def test_one_run_has_no_error() -> None:
    assert math.isnan(mean(np.ones((1, 5))).error)


def test_below_and_above_take_two_standard_errors() -> None:
    found = Measured(0.9, 0.049)
    assert found.is_below(1)
    assert not Measured(0.9, 0.051).is_below(1)
    assert found.is_above(0.8)
    assert not Measured(0.9, 0.051).is_above(0.8)
    assert not Measured(0.5, math.nan).is_below(1)  # of which nothing is known


def test_errors_of_a_product_add_up_in_squares() -> None:
    rng = np.random.default_rng(0)
    draws = (2 + 0.03 * rng.standard_normal(10**5)) * (
        5 + 0.1 * rng.standard_normal(10**5)
    )
    found = Measured(2.0, 0.03).times(Measured(5.0, 0.1))
    assert found.value == 10
    assert found.error == pytest.approx(draws.std(), rel=0.02)
