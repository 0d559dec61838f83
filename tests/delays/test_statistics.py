"""What is drawn against closed forms.

Every comparison is at 5 standard errors, or at the Kolmogorov-Smirnov level that
gives the same: a false alarm in about 2 million. Seeds are fixed, so an alarm that
is there is there on every machine.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedgrad.delays import (
    Jitter,
    Markov,
    Pauses,
    ShiftedExponential,
    Speeds,
    Spikes,
    Times,
)
from codedgrad.delays.models.two_state import slow_share, two_state

ALARM = 5.7e-7  # two-sided, 5 standard errors


def assert_mean(values, mean: float, deviation: float, count: float) -> None:
    assert abs(np.mean(values) - mean) < 5 * deviation / np.sqrt(count)


def assert_law(values, law) -> None:
    assert stats.kstest(np.ravel(values), law.cdf).pvalue > ALARM


def ones(steps: int, workers: int) -> Times:
    return Times(np.zeros((steps, workers)), np.ones((steps, workers)))


def test_both_shares_are_shifted_exponential() -> None:
    law = ShiftedExponential(floor=2, mean=0.5, fixed_floor=1, fixed_mean=3)
    times = law.sample(np.random.default_rng(0), 1000, 20)
    assert_law(times.unit, stats.expon(2, 0.5))
    assert_law(times.fixed, stats.expon(1, 3))
    assert_mean(times.unit, 2.5, 0.5, 20000)
    assert abs(np.corrcoef(times.unit.ravel(), times.fixed.ravel())[0, 1]) < 5 / 141
    median, top = np.quantile(times.unit, [0.5, 0.99])
    for got, q in ((median, 0.5), (top, 0.99)):
        error = 0.5 * np.sqrt(q / (1 - q) / 20000)  # of a quantile of an exponential
        assert abs(got - (2 - 0.5 * np.log(1 - q))) < 5 * error


def test_the_law_of_the_clustering_papers_is_a_shifted_exponential() -> None:
    alpha, mu, r = 0.01, 10, 3  # P(done by t) = 1 - exp(-mu (t / r - alpha))
    law = ShiftedExponential(floor=alpha, mean=1 / mu)
    t = law.sample(np.random.default_rng(1), 500, 20).unit * r
    q = np.quantile(t, 0.9)
    share = 1 - np.exp(-mu * (q / r - alpha))
    assert abs(share - 0.9) < 5 * np.sqrt(0.9 * 0.1 / 10000)


@pytest.mark.parametrize(
    ("enter", "leave"), [(0.02, 0.08), (0.05, 0.05), (0.4, 0.6), (0.9, 0.7)]
)
def test_the_chain_has_its_stationary_share_and_memory(enter, leave) -> None:
    slow = two_state(np.random.default_rng(2), enter, leave, 2000, 100)
    share, memory = enter / (enter + leave), 1 - (enter + leave)
    spread = np.sqrt(share * (1 - share) * (1 + memory) / (1 - memory))
    assert_mean(slow, share, spread, slow.size)  # correlated in time: hence (1+m)/(1-m)
    assert_mean(slow[0], share, np.sqrt(share * (1 - share)), 100)
    before, after = slow[:-1], slow[1:]
    assert_mean(after[~before], enter, np.sqrt(enter * (1 - enter)), (~before).sum())
    assert_mean(~after[before], leave, np.sqrt(leave * (1 - leave)), before.sum())
    lag1 = np.corrcoef(before.ravel(), after.ravel())[0, 1]
    assert abs(lag1 - memory) < 5 / np.sqrt(before.size * share * (1 - share))


def test_workers_are_slow_independently_of_each_other() -> None:
    slow = two_state(np.random.default_rng(3), 0.3, 0.3, 20000, 2)
    memory = 0.4
    spread = np.sqrt((1 + memory**2) / (1 - memory**2) / 20000)
    assert abs(np.corrcoef(slow.T)[0, 1]) < 5 * spread


def test_each_state_of_a_markov_law_has_its_own_law() -> None:
    fast = ShiftedExponential(1, 0.1, fixed_floor=0.5)
    law = Markov(fast, ShiftedExponential(5, 2, fixed_mean=3), 0.1, 0.3)
    slow = law.states(np.random.default_rng(4), 1000, 20)
    times = law.sample(np.random.default_rng(4), 1000, 20)
    assert_law(times.unit[~slow], stats.expon(1, 0.1))
    assert_law(times.unit[slow], stats.expon(5, 2))
    assert np.all(times.fixed[~slow] == 0.5)
    assert_law(times.fixed[slow], stats.expon(0, 3))
    assert law.share == pytest.approx(0.25)


def plain_loop(rng, enter, leave, steps, workers):
    u = rng.random((steps, workers))
    slow = np.zeros((steps, workers), dtype=bool)
    for w in range(workers):
        state = u[0, w] < (enter / (enter + leave) if enter else 0.0)
        for t in range(steps):
            if t:
                state = u[t, w] < (1 - leave if state else enter)
            slow[t, w] = state
    return slow


chances = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 0.3, 0.7]), st.floats(0, 1))


@pytest.mark.hypothesis
@given(chances, chances, st.integers(1, 40), st.integers(1, 4), st.integers(0, 99))
def test_the_chain_is_exactly_that_of_a_plain_loop(p, q, steps, workers, seed) -> None:
    got = two_state(np.random.default_rng(seed), p, q, steps, workers)
    want = plain_loop(np.random.default_rng(seed), p, q, steps, workers)
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("enter", "leave"),
    [(0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5), (0.1, 0.9), (0.8, 0.9), (0.02, 0.08)],
)
def test_the_edges_of_the_chain_are_exactly_those_of_a_plain_loop(enter, leave) -> None:
    got = two_state(np.random.default_rng(6), enter, leave, 300, 10)
    want = plain_loop(np.random.default_rng(6), enter, leave, 300, 10)
    assert np.array_equal(got, want)


def test_a_chain_that_cannot_move_is_fast_and_one_that_cannot_leave_slow() -> None:
    assert slow_share(0.0, 0.0) == 0
    assert not two_state(np.random.default_rng(0), 0.0, 0.0, 9, 9).any()
    assert two_state(np.random.default_rng(0), 0.1, 0.0, 9, 9).all()


def test_spikes_come_as_often_and_as_hard_as_they_should() -> None:
    slow = Spikes(0.1, 10, 40).change(ones(2000, 20), np.random.default_rng(7)).unit
    assert_mean(slow > 1, 0.1, 0.3, slow.size)
    assert_law(slow[slow > 1], stats.uniform(10, 30))


def test_pauses_come_as_often_and_as_long_as_they_should() -> None:
    pause = Pauses(0.2, 1, 3).change(ones(2000, 20), np.random.default_rng(8)).fixed
    assert_mean(pause > 0, 0.2, 0.4, pause.size)
    assert_law(pause[pause > 0], stats.uniform(1, 2))


def test_speeds_are_uniform() -> None:
    unit = Speeds(0.5, 2).change(ones(1, 5000), np.random.default_rng(9)).unit
    assert_law(1 / unit, stats.uniform(0.5, 1.5))


def test_jitter_strikes_every_worker_alike() -> None:
    unit = Jitter(2, workers=3).change(ones(20000, 8), np.random.default_rng(10)).unit
    share = 3 / 8
    for column in (unit == 2).T:
        assert_mean(column, share, np.sqrt(share * (1 - share)), 20000)
