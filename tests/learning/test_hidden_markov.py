"""The filter that learns its laws: what it learns, and what must not break it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedgrad.core import Observation, Record
from codedgrad.delays import Chain, Dead, Markov, ShiftedExponential, draw
from codedgrad.learning.estimators import HiddenMarkov, Law
from codedgrad.learning.hidden_markov import LearntMarkov
from codedgrad.schemes import build, dynamic
from codedgrad.schemes.dynamic.straggler_states import Hidden
from codedgrad.sim import Machine, Simulator, record
from codedgrad.trace import replay

ENTER, LEAVE, FLOOR, FAST, SLOW = 0.02, 0.08, 0.01, 0.1, 1.0
WORKERS, LOAD = 20, 2


def answered(seconds: float, parts: int = LOAD) -> Observation:
    return Observation(0, 0, parts, parts, seconds, 0, seconds, "answered")


def censored(elapsed: float, pending: int = LOAD) -> Observation:
    return Observation(0, 0, pending, 0, 0.0, pending, elapsed, "dropped")


def told(observations: Sequence[Observation | None]) -> Record:
    """A step that told this about its workers."""
    return cast(Record, SimpleNamespace(observations=observations))


def seen(seconds: np.ndarray, heard: int) -> list[Observation]:
    """What a step tells that ends with its `heard`-th answer."""
    end = float(np.sort(seconds)[heard - 1])
    return [censored(end) if x > end else answered(float(x)) for x in seconds]


def chain(steps: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Who is slow, and seconds for the load, (steps, workers)."""
    law = Markov(
        ShiftedExponential(FLOOR, FAST), ShiftedExponential(FLOOR, SLOW), ENTER, LEAVE
    )
    times = law.sample(np.random.default_rng(seed), steps, WORKERS)
    assert times.truth is not None
    return times.truth.slow, scale * LOAD * times.unit


def followed(seconds: np.ndarray, heard: int = 15) -> np.ndarray:
    """The probabilities before every step, (steps, workers)."""
    tracker, found = LearntMarkov().start(seconds.shape[1]), []
    for row in seconds:
        found.append(tracker.slow)
        tracker.update(told(seen(row, heard)))
    return np.array(found)


# -- what it learns --------------------------------------------------------------------


def test_it_learns_the_laws_of_a_chain_from_censored_times() -> None:
    # In the mean of 4 runs of 600 steps, over their second halves. Evidence fades, so
    # that a run knows about a hundred steps: some 40 spells of 20 workers.
    laws = []
    for seed in range(4):
        _, seconds = chain(600, seed)
        tracker = LearntMarkov().start(WORKERS)
        for step, row in enumerate(seconds):
            tracker.update(told(seen(row, heard=15)))
            if step >= 300 and step % 20 == 0:
                assert tracker.law is not None
                laws.append(tracker.law)

    def mean(of: Callable[[HiddenMarkov], float]) -> float:
        return float(np.mean([of(law) for law in laws]))

    found = {
        "enter": (mean(lambda law: law.enter), 0.012, 0.045),
        "leave": (mean(lambda law: law.leave), 0.05, 0.12),
        "floor": (mean(lambda law: law.fast.floor), 0.9 * FLOOR, 1.1 * FLOOR),
        "fast": (mean(lambda law: law.fast.mean), 0.085, 0.115),
        "slow": (mean(lambda law: law.slow.mean), 0.6, 1.3),
    }
    print({name: round(value, 4) for name, (value, *_) in found.items()})
    for name, (value, least, most) in found.items():
        assert least <= value <= most, name


def test_what_it_says_is_nearly_as_good_as_if_the_laws_were_known() -> None:
    """Squared errors of the probabilities, beside those who know more or less."""
    known = HiddenMarkov(ENTER, LEAVE, Law(FLOOR, FAST), Law(FLOOR, SLOW))
    errors = {"learnt": 0.0, "known": 0.0, "late": 0.0, "nothing": 0.0}
    for seed in range(3):
        slow, seconds = chain(400, seed)
        tracker, late = known.start(WORKERS), np.zeros(WORKERS)
        learnt = followed(seconds)
        for step in range(400):
            if step >= 50:
                truth = slow[step].astype(float)
                for name, said in (
                    ("learnt", learnt[step]), ("known", np.array(tracker.slow)),
                    ("late", late), ("nothing", np.full(WORKERS, 0.2)),
                ):  # fmt: skip
                    errors[name] += float(np.mean((said - truth) ** 2)) / 1050
            observations = seen(seconds[step], heard=15)
            tracker.update(told(observations))
            late = np.array([float(o.is_censored) for o in observations])
    print({name: round(error, 4) for name, error in errors.items()})
    assert errors["known"] <= errors["learnt"] < 1.35 * errors["known"]
    assert errors["learnt"] < 0.6 * errors["late"]
    assert errors["learnt"] < 0.6 * errors["nothing"]


def alternating(seed: int) -> np.ndarray:
    """160 steps of 8 alike workers, but in the first 80 worker 3 is 20 times slow."""
    rng = np.random.default_rng(seed)
    seconds = LOAD * (FLOOR + FAST * rng.exponential(size=(160, 8)))
    seconds[:80, 3] *= 20.0
    return np.asarray(seconds)


def test_a_worker_that_is_always_slow_stands_out_and_is_believed_if_it_recovers() -> (
    None
):
    # It is always cut off, so that nobody knows how slow: now and then what is learnt
    # is that some of the fast ones are slow too. It comes first all the same.
    first, others, after = [], [], []
    for seed in range(10):
        found = followed(alternating(seed), heard=7)
        first.append(found[30:80].argmax(axis=1) == 3)
        others.append(np.delete(found[30:80], 3, axis=1).mean())
        after.append(found[95:, 3].mean())
        assert found[30:80, 3].min() > 0.7
    print(f"others {np.round(others, 2)}, after it recovered {np.round(after, 2)}")
    assert np.mean(first) > 0.98
    assert np.median(others) < 0.15
    assert np.median(after) < 0.15


def test_where_nobody_is_slow_nobody_is_singled_out_for_long() -> None:
    rng = np.random.default_rng(3)
    found = followed(LOAD * (FLOOR + FAST * rng.exponential(size=(300, WORKERS))))
    assert np.ptp(found[50:].mean(axis=0)) < 0.2  # of workers; one step is noise


# -- what is common to all workers -----------------------------------------------------

CALM, JITTERY = (1.0, 0.05, 3.0, 0.3), (FLOOR, FAST, FLOOR, SLOW)
CHANGED = 150  # the step from which on things are different
SETTLED = CHANGED + 10  # 8 steps are the majority of those that make the unit


def world(laws: tuple[float, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Who is slow, and seconds for the load; floor and tail of fast and of slow."""
    fast, slow = ShiftedExponential(*laws[:2]), ShiftedExponential(*laws[2:])
    law = Markov(fast, slow, ENTER, LEAVE)
    times = law.sample(np.random.default_rng(seed), 260, WORKERS)
    assert times.truth is not None
    return times.truth.slow, LOAD * times.unit


def ranked(found: np.ndarray, slow: np.ndarray) -> float:
    """How often, in the mean of steps, a slow worker is above a fast one."""
    shares = []
    for p, is_slow in zip(found, slow, strict=True):
        if is_slow.any() and not is_slow.all():
            gaps = p[is_slow][:, None] - p[~is_slow]
            shares.append(np.mean(gaps > 0) + 0.5 * np.mean(gaps == 0))
    return float(np.mean(shares))


@dataclass(frozen=True, slots=True)
class Judged:
    """How well slow workers are ranked, and shares that are called what they are not.

    Attributes:
        rank: How often a slow worker is above a fast one.
        wrong: The share of fast ones that are called slow.
        missed: The share of slow ones that are not.
    """

    rank: float
    wrong: float
    missed: float

    def is_as_good_as(self, other: Judged, up_to: float) -> bool:
        print(self, other)
        return (
            self.rank > other.rank - up_to
            and self.wrong < other.wrong + 2 * up_to
            and self.missed < other.missed + 5 * up_to
        )


def judged(
    laws: tuple[float, ...], change: Callable[[np.ndarray], np.ndarray]
) -> Judged:
    """Judge three runs from step `SETTLED` on, with a change to all seconds of each."""
    found = []
    for seed in range(3):
        slow, seconds = world(laws, seed)
        said, slow = followed(change(seconds.copy()))[SETTLED:], slow[SETTLED:]
        called = said >= 0.5
        found.append(
            (ranked(said, slow), called[~slow].mean(), 1 - called[slow].mean())
        )
    return Judged(*(float(x) for x in np.mean(found, axis=0)))


def scaled(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(seconds: np.ndarray) -> np.ndarray:
        seconds[CHANGED:] *= factor
        return seconds

    return change


def drifting(rate: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda seconds: seconds * (1 + rate) ** np.arange(len(seconds))[:, None]


def odd(factor: float, step: int = CHANGED) -> Callable[[np.ndarray], np.ndarray]:
    def change(seconds: np.ndarray) -> np.ndarray:
        who = int(seconds[step].argmin())  # a fast one, so that it is heard
        seconds[step, who] *= factor
        return seconds

    return change


Usual = tuple[tuple[float, ...], Judged]


@pytest.fixture(scope="module", params=[CALM, JITTERY], ids=["calm", "jittery"])
def usual(request: pytest.FixtureRequest) -> Usual:
    """Laws, and what is to be said if nothing changes."""
    plain = judged(request.param, lambda seconds: seconds)
    assert plain.rank > 0.9
    assert plain.wrong < 0.1
    return request.param, plain


@pytest.mark.parametrize("factor", [3.0, 1.3, 0.1])
def test_ten_steps_after_all_have_changed_their_pace_it_is_as_good_as_before(
    usual: Usual, factor: float
) -> None:
    laws, plain = usual
    assert judged(laws, scaled(factor)).is_as_good_as(plain, up_to=0.01)


@pytest.mark.parametrize("rate", [0.003, -0.003])
def test_a_pace_that_drifts_slowly_does_not_matter(usual: Usual, rate: float) -> None:
    laws, plain = usual
    assert judged(laws, drifting(rate)).is_as_good_as(plain, up_to=0.01)


@pytest.mark.parametrize("rate", [0.01, -0.01])
def test_a_pace_that_drifts_fast_costs_a_little(usual: Usual, rate: float) -> None:
    # The unit is 7 steps behind: by 7 %, where calm workers differ by 5 %.
    laws, plain = usual
    assert judged(laws, drifting(rate)).is_as_good_as(plain, up_to=0.02)


@pytest.mark.parametrize("factor", [0.0, 1e9])
def test_a_single_odd_time_does_not_matter_ten_steps_later(
    usual: Usual, factor: float
) -> None:
    laws, plain = usual
    assert judged(laws, odd(factor)).is_as_good_as(plain, up_to=0.005)


@pytest.mark.parametrize("factor", [0.0, 1e9])
def test_an_odd_time_in_the_very_first_step_is_got_over(
    usual: Usual, factor: float
) -> None:
    laws, plain = usual
    assert judged(laws, odd(factor, step=0)).is_as_good_as(plain, up_to=0.01)


def test_a_long_time_that_is_waited_for_does_not_spoil_the_law_of_the_slow() -> None:
    slow, seconds = world(JITTERY, seed=1)
    plain = followed(seconds, heard=WORKERS)[SETTLED:]
    seconds[CHANGED, 4] = 1e6
    found = followed(seconds, heard=WORKERS)[SETTLED:]
    assert ranked(found, slow[SETTLED:]) > ranked(plain, slow[SETTLED:]) - 0.01
    assert np.mean(np.abs(found - plain)) < 0.02


def test_the_law_is_in_seconds_whatever_the_unit_has_become() -> None:
    _, seconds = world(CALM, seed=0)
    tracker, floors = LearntMarkov().start(WORKERS), []
    for row in scaled(3.0)(seconds):
        tracker.update(told(seen(row, heard=15)))
        assert tracker.law is not None
        floors.append(tracker.law.fast.floor)
        assert tracker.law.slow.floor == floors[-1]
    assert floors[CHANGED - 1] == pytest.approx(1.0, rel=0.02)
    assert floors[SETTLED] == pytest.approx(3.0, rel=0.02)


def test_jitter_that_grows_for_all_is_learnt() -> None:
    """The floor is what it was, the tail of all is eight times as long."""
    rng = np.random.default_rng(5)
    tail = np.where(np.arange(260) < 100, 0.05, 0.4)[:, None]
    found = followed(1.0 + tail * rng.exponential(size=(260, WORKERS)), WORKERS)
    print(f"called slow {np.mean(found[160:] >= 0.5):.3f}")
    assert np.mean(found[160:] >= 0.5) < 0.15


# -- what must not break it ------------------------------------------------------------


def test_before_anybody_has_finished_anything_it_says_nothing() -> None:
    tracker = LearntMarkov().start(3)
    before = list(tracker.slow)
    for _ in range(5):
        tracker.update(told([censored(4.0), None, censored(2.0)]))
        assert tracker.slow == before
        assert tracker.law is None
    tracker.update(told([answered(1.0), None, censored(2.0)]))  # now it begins
    assert tracker.law is not None
    assert len(set(before)) == 1


def test_times_that_are_all_equal_leave_all_workers_alike() -> None:
    for seconds in (1e-9, 1.0, 1e6):
        tracker = LearntMarkov().start(4)
        for _ in range(200):
            tracker.update(told([answered(seconds)] * 4))
            assert len(set(tracker.slow)) == 1
            assert 0.0 < tracker.slow[0] < 0.5


def test_a_single_worker_can_be_followed() -> None:
    tracker = LearntMarkov().start(1)
    for _ in range(50):
        tracker.update(told([answered(1.0)]))
    calm = tracker.slow[0]
    for _ in range(5):
        tracker.update(told([censored(30.0)]))
    assert calm < 0.2 < 0.8 < tracker.slow[0] < 1.0


def test_it_does_not_matter_in_which_unit_times_are() -> None:
    _, seconds = chain(150, seed=4)
    plain = followed(seconds)
    for scale in (1000.0, 1e-6):
        np.testing.assert_allclose(followed(scale * seconds), plain, 0, 1e-9)


def test_who_was_not_asked_drifts_to_what_is_usual() -> None:
    tracker = LearntMarkov().start(3)
    for _ in range(20):
        tracker.update(told([answered(1.0), answered(1.2), censored(40.0)]))
    assert tracker.slow[2] > 0.8
    held = []
    for _ in range(60):
        tracker.update(told([answered(1.0), answered(1.2), None]))
        held.append(tracker.slow[2])
    assert all(after < before for before, after in itertools.pairwise(held))
    assert held[-1] < 0.4


ANY_TIME = st.one_of(
    st.just(0.0), st.floats(0.0, 1e6), st.floats(1e-12, 1e-6), st.just(1.0)
)
ANY_OBSERVATION = st.one_of(
    st.none(),
    st.builds(answered, ANY_TIME, st.integers(1, 4)),
    st.builds(censored, ANY_TIME, st.integers(1, 4)),
    st.builds(
        lambda done, seconds, more: Observation(
            0, 0, 3, done, seconds, 3 - done, seconds + more, "dropped"
        ),
        st.integers(1, 2), ANY_TIME, ANY_TIME,
    ),
)  # fmt: skip


@pytest.mark.hypothesis
@settings(max_examples=100)
@given(
    st.lists(st.tuples(*[ANY_OBSERVATION] * 3), max_size=30),
    st.sampled_from([0.5, 0.99, 1.0]),
)
def test_whatever_is_seen_probabilities_stay_probabilities(
    steps: list[tuple[Observation | None, ...]], forget: float
) -> None:
    tracker = LearntMarkov(forget).start(3)
    for observations in steps:
        tracker.update(told(observations))
        assert all(0.0 < p < 1.0 for p in tracker.slow)
        if tracker.law is not None:
            law = tracker.law
            assert 0.0 < law.enter <= 0.5
            assert 0.0 < law.leave <= 0.5
            assert 0.0 < law.fast.mean < law.slow.mean < math.inf


def test_hundreds_of_steps_in_which_nobody_finishes_do_not_use_up_the_evidence() -> (
    None
):
    tracker = LearntMarkov().start(2)
    tracker.update(told([answered(1.0), answered(1.5)]))
    for _ in range(3000):
        tracker.update(told([censored(2.0), censored(3.0)]))
    assert tracker.law is not None
    assert math.isfinite(tracker.law.slow.mean)
    assert all(0.0 < p < 1.0 for p in tracker.slow)


# -- in a run --------------------------------------------------------------------------


def law_of(*changes: Dead) -> Chain:
    fast, slow = ShiftedExponential(FLOOR, FAST), ShiftedExponential(FLOOR, 3.0)
    return Chain(Markov(fast, slow, enter=0.03, leave=0.05), *changes)


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("drain", [True, False])
def test_it_finds_who_is_slow_whether_or_not_the_engine_reports_progress(
    progress: bool, drain: bool
) -> None:
    machine = Machine(drain=drain, progress=progress)
    times = draw(law_of(), steps=100, workers=8, seed=5)
    scheme = dynamic(8, 2, 1, pieces=2)
    simulator = Simulator(scheme, capabilities=machine.capabilities)
    right, steps = 0.0, 0
    assert times.truth is not None
    for step in simulator.run(times):
        if step.step >= 20:
            history = simulator.coordinator.history
            found = scheme.states.forecast(step.step, history)  # of this step
            right += float(np.mean(found.slow == times.truth.slow[step.step]))
            steps += 1
    print(f"progress {progress}, drain {drain}: {right / steps:.3f} right")
    assert right / steps > 0.8


def test_a_lost_worker_is_no_obstacle_and_others_are_still_followed() -> None:
    times = draw(law_of(Dead(worker=2, step=10)), steps=60, workers=8, seed=5)
    scheme = dynamic(8, 2, 1)
    simulator = Simulator(scheme)
    assert all(step.combined for step in simulator.run(times))
    history = simulator.coordinator.history
    found = Hidden().forecast(60, history).without(history.alive)
    assert history.alive.count(False) == 1
    assert found.slow[2]
    assert found.scores.argmax() == 2
    assert np.all(np.isfinite(np.delete(found.scores, 2)))


@pytest.mark.parametrize("progress", [True, False])
def test_a_replay_decides_the_same(progress: bool) -> None:
    times = draw(law_of(Dead(worker=2, step=20)), steps=40, workers=8, seed=6)
    scheme = dynamic(8, 4, 1, reach=2)
    trace = record(scheme, times, Machine(progress=progress))
    assert replay(trace, build(scheme.name, 8)) is None
