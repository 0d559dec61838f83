"""The state behind the times: what laws know, and what changes make of it."""

import numpy as np
import pytest

from codedgrad.delays import (
    Chain,
    Change,
    Classes,
    Dead,
    Delays,
    Jitter,
    Markov,
    Pauses,
    Replay,
    ShiftedExponential,
    Speeds,
    Spikes,
    Sticky,
    Times,
    Truth,
)

FAST = ShiftedExponential(floor=0.5, mean=0.25)
SLOW = ShiftedExponential(floor=1.0, mean=2.0, fixed_floor=0.5, fixed_mean=0.5)
LAW = Markov(fast=FAST, slow=SLOW, enter=0.1, leave=0.3)
STEPS, WORKERS = 40, 6


def drawn(law: Delays, seed: int = 3) -> Times:
    return law.sample(np.random.default_rng(seed), STEPS, WORKERS)


def truth_of(law: Delays, seed: int = 3) -> Truth:
    truth = drawn(law, seed).truth
    assert truth is not None
    assert truth.slow.shape == truth.typical.shape == (STEPS, WORKERS)
    return truth


def with_change(change: Change) -> tuple[Times, Times]:
    """The times of the law, and the same times changed."""
    return drawn(LAW), drawn(Chain(LAW, change))


def test_the_truth_of_spells_is_the_states_of_the_same_seed() -> None:
    for seed in range(5):
        states = LAW.states(np.random.default_rng(seed), STEPS, WORKERS)
        assert 0 < states.sum() < states.size
        np.testing.assert_array_equal(truth_of(LAW, seed).slow, states)


def test_typical_is_the_mean_of_the_law_that_applies() -> None:
    truth = truth_of(LAW)
    assert (FAST.typical, SLOW.typical) == (0.75, 4.0)
    np.testing.assert_array_equal(truth.typical, np.where(truth.slow, 4.0, 0.75))


def test_times_are_typical_in_the_mean() -> None:
    # 12,000 times of mean 4 and deviation about 2: 4 standard errors are 0.08.
    law = Markov(fast=FAST, slow=SLOW, enter=0.5, leave=0.5)
    times = law.sample(np.random.default_rng(0), 2000, 12)
    assert times.truth is not None
    for state, mean in ((True, 4.0), (False, 0.75)):
        took = (times.fixed + times.unit)[times.truth.slow == state]
        assert took.mean() == pytest.approx(mean, abs=0.08)


def test_a_law_without_spells_says_that_nobody_is_slow() -> None:
    truth = truth_of(SLOW)
    assert not truth.slow.any()
    assert np.all(truth.typical == 4.0)


@pytest.mark.parametrize(
    "change",
    [
        Classes(factors=(1, 2, 5)),
        Speeds(low=0.5, high=2.0),
        Sticky(factor=8.0, enter=0.1, leave=0.2),
        Sticky(factor=8.0, workers=(1, 4), always=True),
        Jitter(factor=1.5, workers=2, every=5),
    ],
    ids=lambda change: change.kind,
)
def test_what_lasts_scales_typical_as_it_scales_the_times(change: Change) -> None:
    before, after = with_change(change)
    assert before.truth is not None
    assert after.truth is not None
    factors = after.unit / before.unit
    np.testing.assert_allclose(after.truth.typical / before.truth.typical, factors)
    assert np.ptp(factors) > 0


def test_sticky_and_jittery_workers_are_in_a_slow_spell_and_slow_makes_are_not() -> (
    None
):
    for change, spells in (
        (Sticky(factor=8.0, enter=0.1, leave=0.2), True),
        (Jitter(factor=1.5, workers=2, every=5), True),
        (Classes(factors=(1, 2, 5)), False),
        (Speeds(low=0.5, high=2.0), False),
    ):
        before, after = with_change(change)
        assert before.truth is not None
        assert after.truth is not None
        slower = after.unit > 1.2 * before.unit
        expected = before.truth.slow | (slower if spells else False)
        np.testing.assert_array_equal(after.truth.slow, expected)


@pytest.mark.parametrize(
    "change",
    [Pauses(probability=0.3, low=1.0, high=2.0), Spikes(0.2, low=3.0, high=9.0)],
    ids=lambda change: change.kind,
)
def test_what_passes_at_once_leaves_the_truth_as_it_is(change: Change) -> None:
    before, after = with_change(change)
    assert before.truth is not None
    assert after.truth is not None
    np.testing.assert_array_equal(after.truth.slow, before.truth.slow)
    np.testing.assert_array_equal(after.truth.typical, before.truth.typical)
    assert np.any(after.fixed + after.unit > before.fixed + before.unit)


def test_the_dead_are_slow_for_ever_and_the_law_itself_is_not_changed() -> None:
    before, after = with_change(Dead(worker=2, step=7))
    assert before.truth is not None
    assert after.truth is not None
    assert after.truth.slow[7:, 2].all()
    assert np.all(after.truth.typical[7:, 2] == np.inf)
    others = np.ones((STEPS, WORKERS), dtype=np.bool_)
    others[7:, 2] = False
    for name in ("slow", "typical"):
        one, other = getattr(after.truth, name), getattr(before.truth, name)
        np.testing.assert_array_equal(one[others], other[others])
    assert np.all(np.isfinite(before.truth.typical))


def test_changes_add_up() -> None:
    law = Chain(
        LAW, Classes(factors=(1, 3)), Sticky(factor=2, workers=(0,), always=True)
    )
    truth, plain = truth_of(law), truth_of(LAW)
    factors = np.array([2, 1, 1, 3, 3, 3])
    np.testing.assert_allclose(truth.typical, plain.typical * factors)
    assert truth.slow[:, 0].all()
    np.testing.assert_array_equal(truth.slow[:, 1:], plain.slow[:, 1:])


def test_a_recording_does_not_know_and_no_change_makes_it_know() -> None:
    law = Replay.read("AR")
    changes = (
        Classes(factors=(1, 2)), Speeds(0.5, 2.0), Sticky(3.0, 0.1, 0.1), Jitter(1.5),
        Pauses(0.5, 1.0, 2.0), Spikes(0.5, 2.0, 3.0), Dead(worker=1),
    )  # fmt: skip
    for chain in (law, *(Chain(law, change) for change in changes)):
        times = chain.sample(np.random.default_rng(0), 5, 4)
        assert times.truth is None
        assert times.between(1, 3).truth is None


def test_steps_between_two_have_their_own_truth() -> None:
    times = drawn(LAW)
    some = times.between(5, 12)
    assert times.truth is not None
    assert some.truth is not None
    np.testing.assert_array_equal(some.truth.slow, times.truth.slow[5:12])
    np.testing.assert_array_equal(some.truth.typical, times.truth.typical[5:12])
    assert some.truth.slow.base is not None  # not copied


def test_workers_in_other_seats_have_their_own_times() -> None:
    times = drawn(LAW)
    seats = np.argsort(np.random.default_rng(0).random((STEPS, WORKERS)), axis=1)
    seated = times.seated(seats)
    for step in range(STEPS):
        assert seated.unit[step].tolist() == times.unit[step, seats[step]].tolist()
        assert seated.fixed[step].tolist() == times.fixed[step, seats[step]].tolist()
