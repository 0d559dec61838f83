"""Estimators against brute force and closed forms."""

import math
from itertools import product
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.core import Observation, Record
from codedgrad.learning.estimators import HiddenMarkov, Law, Reliability, Speed

ANSWER = "answered"


def answered(seconds: float, parts: int = 1) -> Observation:
    return Observation(0, 0, parts, parts, seconds, 0, seconds, ANSWER)


def censored(elapsed: float, pending: int = 1, done: int = 0) -> Observation:
    seconds = 0.5 * elapsed if done else 0.0
    return Observation(0, 0, done + pending, done, seconds, pending, elapsed, "dropped")


def told(*observations: Observation | None) -> Record:
    """A step that told this about its workers."""
    answers = {w for w, o in enumerate(observations) if o and o.ended == ANSWER}
    asked = {w for w, o in enumerate(observations) if o is not None}
    known = SimpleNamespace(
        observations=observations,
        heard=frozenset(answers),
        asked=frozenset(asked),
        alive=tuple(True for _ in observations),
        combined=True,
    )
    return cast(Record, known)


# -- speed ---------------------------------------------------------------------------


def test_the_first_time_is_believed_and_the_next_ones_are_averaged_in_logs() -> None:
    tracker = Speed(weight=0.5).start(1)
    tracker.update(told(answered(4.0, parts=2)))
    assert tracker.seconds == [2.0]
    tracker.update(told(answered(8.0)))
    assert tracker.seconds == [pytest.approx(4.0)]  # the geometric mean


def test_a_censored_step_may_raise_an_estimate_and_never_lowers_it() -> None:
    tracker = Speed(weight=1.0).start(1)
    tracker.update(told(answered(2.0)))
    tracker.update(told(censored(1.0)))
    assert tracker.seconds == [pytest.approx(2.0)]
    tracker.update(told(censored(9.0)))
    assert tracker.seconds == [pytest.approx(9.0)]


def test_a_censored_step_with_parts_done_counts_the_part_in_hand() -> None:
    tracker = Speed(weight=1.0).start(1)
    tracker.update(told(censored(elapsed=6.0, pending=1, done=2)))  # 2 parts in 3 s
    assert tracker.seconds == [pytest.approx(2.0)]  # 6 s for at most 3


def test_who_was_not_asked_stays_as_it_was() -> None:
    tracker = Speed().start(2)
    tracker.update(told(None, answered(1.0)))
    assert tracker.seconds == [None, 1.0]


def test_the_share_that_does_not_depend_on_the_load_is_taken_out() -> None:
    tracker = Speed(share=0.5, unit=4.0).start(1)
    tracker.update(told(answered(3.0, parts=8)))  # 3 = x (1/2 + 1/2 * 8/4)
    assert tracker.seconds == [pytest.approx(2.0)]


def test_a_step_of_no_length_says_nothing() -> None:
    tracker = Speed().start(1)
    tracker.update(told(answered(0.0)))
    assert tracker.seconds == [None]


# -- reliability -----------------------------------------------------------------------


def test_nothing_seen_is_the_uniform_prior() -> None:
    assert Reliability().start(2).straggle == (0.5, 0.5)


@given(st.lists(st.booleans(), max_size=30), st.floats(0.5, 1.0))
def test_the_posterior_is_that_of_discounted_counts(
    missed: list[bool], forget: float
) -> None:
    tracker = Reliability(forget).start(1)
    for miss in missed:
        tracker.update(told(censored(1.0) if miss else answered(1.0)))
    ages = range(len(missed) - 1, -1, -1)
    m = sum(forget**age for age, miss in zip(ages, missed, strict=True) if miss)
    total = sum(forget**age for age in ages)
    assert tracker.straggle[0] == pytest.approx((m + 1) / (total + 2))


def test_who_is_gone_misses_the_step_and_who_is_not_asked_does_not() -> None:
    tracker, record = Reliability(1.0).start(3), told(answered(1.0), None, None)
    vars(record)["alive"] = (True, False, True)
    tracker.update(record)
    assert tracker.straggle == (1 / 3, 2 / 3, 1 / 2)


def test_a_step_without_a_sum_says_nothing_about_who_was_late() -> None:
    tracker, record = Reliability().start(1), told(censored(1.0))
    vars(record)["combined"] = False
    tracker.update(record)
    assert tracker.straggle == (0.5,)


def test_drift_is_followed_if_one_forgets() -> None:
    forgets, remembers = Reliability(0.9).start(1), Reliability(1.0).start(1)
    for tracker in (forgets, remembers):
        for step in range(400):
            tracker.update(told(censored(1.0) if step >= 300 else answered(1.0)))
    assert forgets.straggle[0] > 0.9
    assert remembers.straggle[0] < 0.3


# -- hidden states ---------------------------------------------------------------------

FAST, SLOW = Law(0.01, 0.1), Law(0.01, 1.0)
RECIPE = HiddenMarkov(enter=0.05, leave=0.2, fast=FAST, slow=SLOW)


def likelihood(law: Law, seen: Observation) -> float:
    if seen.done:
        x = seen.seconds / seen.done
        return math.exp(-(x - law.floor) / law.mean) / law.mean if x >= law.floor else 0
    x = (seen.elapsed - seen.seconds) / seen.pending
    return math.exp(-max(0.0, x - law.floor) / law.mean)


def by_enumeration(steps: list[Observation | None]) -> float:
    """P(slow in the next step), summed over all sequences of states."""
    start = {True: 0.05 / 0.25, False: 0.2 / 0.25}
    move = {(False, True): 0.05, (False, False): 0.95, (True, False): 0.2,
            (True, True): 0.8}  # fmt: skip
    weight = {True: 0.0, False: 0.0}
    for states in product((True, False), repeat=len(steps) + 1):
        p = start[states[0]]
        for now, after, seen in zip(states, states[1:], steps, strict=False):
            if seen is not None:
                p *= likelihood(SLOW if now else FAST, seen)
            p *= move[now, after]
        weight[states[-1]] += p
    return weight[True] / (weight[True] + weight[False])


observations = st.one_of(
    st.none(),
    st.builds(answered, st.floats(0.02, 3.0), st.integers(1, 2)),
    st.builds(censored, st.floats(0.0, 3.0), st.integers(1, 3)),
)


@pytest.mark.hypothesis
@given(st.lists(observations, max_size=6))
def test_the_filter_is_bayes_rule_over_all_sequences_of_states(
    steps: list[Observation | None],
) -> None:
    steps = [s for s in steps if s is None or s.done == 0 or s.seconds / s.done >= 0.01]
    tracker = RECIPE.start(1)
    for seen in steps:
        tracker.update(told(seen))
    assert tracker.slow[0] == pytest.approx(by_enumeration(steps), abs=1e-9)


def test_a_hang_after_the_first_part_is_noticed() -> None:
    hangs = Observation(0, 0, 3, 1, 0.12, 1, 500.0, "dropped")
    goes_on = Observation(0, 0, 3, 1, 0.12, 1, 0.2, "dropped")
    one_part = answered(0.12)
    after = []
    for seen in (hangs, goes_on, one_part):
        tracker = RECIPE.start(1)
        tracker.update(told(seen))
        after.append(tracker.slow[0])
    assert after[0] > 0.79
    assert after[1] == after[2] < 0.2  # not longer than the part before: no news


def test_a_time_below_both_floors_says_nothing() -> None:
    tracker = RECIPE.start(1)
    before = tracker.slow[0]
    tracker.update(told(answered(0.001)))
    assert tracker.slow[0] == pytest.approx(before)


def test_extreme_times_do_not_overflow() -> None:
    tracker = RECIPE.start(2)
    tracker.update(told(answered(1e6), censored(1e6)))
    assert tracker.slow == pytest.approx([0.8, 0.8])
    far = HiddenMarkov(0.05, 0.2, fast=Law(0.0, 1.0), slow=Law(1000.0, 1.0)).start(1)
    far.update(told(answered(1.0)))
    assert far.slow == pytest.approx([0.05])


def test_a_chain_that_never_moves_starts_undecided() -> None:
    tracker = HiddenMarkov(0.0, 0.0, FAST, SLOW).start(1)
    assert tracker.slow == [0.5]


def test_the_filter_finds_who_is_slow_from_censored_times() -> None:
    """The hidden states of a simulated chain: fewer errors than 'late = slow'."""
    rng = np.random.default_rng(3)
    workers, steps, r, wait = 20, 400, 2, 0.6
    slow = rng.random(workers) < 0.2
    tracker = HiddenMarkov(0.02, 0.08, FAST, SLOW).start(workers)
    wrong = naive_wrong = 0
    late = np.zeros(workers, dtype=bool)
    for _ in range(steps):
        wrong += int(np.sum((np.array(tracker.slow) > 0.5) != slow))
        naive_wrong += int(np.sum(late != slow))
        times = r * (0.01 + rng.exponential(np.where(slow, 1.0, 0.1)))
        late = times > wait
        seen = [censored(wait, r) if t > wait else answered(t, r) for t in times]
        tracker.update(told(*seen))
        u = rng.random(workers)
        slow = np.where(slow, u >= 0.08, u < 0.02)
    assert wrong < 0.8 * naive_wrong
