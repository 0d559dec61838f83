"""Who is slow: what is found, and what is not."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from codedgrad.advise import (
    Kind,
    SecondsByStep,
    Verdict,
    paces_of_matrix,
    paces_of_trace,
    read_paces,
    said,
)
from codedgrad.advise import who_is_slow as judged
from codedgrad.advise.slow.sentences import for_machines, in_short, rest, rows, sentence
from codedgrad.advise.slow.slowness import verdicts_on
from codedgrad.delays import Matrix, Times
from codedgrad.schemes import build
from codedgrad.sim import record

Noise = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

NOISES: dict[str, Noise] = {
    "folded normal": lambda draw, size: 1 + 0.02 * np.abs(draw.standard_normal(size)),
    "uniform": lambda draw, size: draw.uniform(0.95, 1.05, size),
    "exponential": lambda draw, size: 1 + draw.exponential(0.1, size),
}
PERSISTENT = {Kind.ALWAYS, Kind.TURNED, Kind.SOMETIMES}


def paces(seconds: np.ndarray) -> SecondsByStep:
    names = tuple(f"worker{number}" for number in range(seconds.shape[1]))
    return paces_of_matrix(Matrix(np.arange(len(seconds)), seconds, names))


def verdicts(seconds: np.ndarray) -> list[Verdict]:
    return verdicts_on(paces(seconds))


def five_percent(seed: int, steps: int, workers: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 0.05, (steps, workers))


# -- the recordings that come along --------------------------------------------------


def test_in_ar_worker_0_is_always_slow_and_nobody_else_is() -> None:
    found = judged(read_paces("AR"))
    [verdict] = found.verdicts
    assert (verdict.worker, verdict.kind) == (0, Kind.ALWAYS)
    assert (verdict.cause, verdict.is_bound, verdict.share) == ("compute", False, 1.0)
    assert verdict.factor == pytest.approx(2.25, abs=0.01)
    assert found.standings[0].now == pytest.approx(1 / 2.25, abs=0.01)
    assert min(standing.now for standing in found.standings[1:]) > 0.98
    assert min(standing.best for standing in found.standings) > 0.98


def test_in_se_jitter_moves_around_and_nobody_is_slow() -> None:
    found = judged(read_paces("SE"))
    assert found.verdicts == []
    assert found.doubts == ()
    assert said(found) == ["nobody is slow"]


# -- where nobody is slow ------------------------------------------------------------


@pytest.mark.parametrize("workers", [4, 8, 32])
@pytest.mark.parametrize("noise", NOISES)
def test_a_calm_regime_gives_no_alarm_in_99_of_100_runs(
    noise: str, workers: int
) -> None:
    """Runs of 20 to 200 steps; exponential noise may have one-offs, hardly ever."""
    alarms: Counter[bool] = Counter()
    for seed in range(100):
        draw, steps = np.random.default_rng(seed), 20 + 180 * seed // 99
        found = verdicts(NOISES[noise](draw, (steps, workers)))
        alarms[any(verdict.kind in PERSISTENT for verdict in found)] += bool(found)
    assert alarms[True] <= 1
    assert alarms[False] <= (2 if noise == "exponential" else 0)


def test_workers_that_differ_a_little_for_good_are_not_singled_out() -> None:
    alarms = 0
    for seed in range(50):
        draw = np.random.default_rng(seed)
        speeds = np.exp(0.08 * draw.standard_normal(32))
        alarms += bool(verdicts(speeds * draw.normal(1.0, 0.02, (60, 32))))
    assert alarms <= 1


def test_jitter_that_lasts_and_moves_is_nobodys() -> None:
    alarms = 0
    for seed in range(30):
        draw = np.random.default_rng(seed)
        drift = draw.standard_normal((100, 16))
        for step in range(1, 100):
            drift[step] = 0.9 * drift[step - 1] + 0.436 * drift[step]
        alarms += bool(verdicts(np.exp(0.1 * drift)))
    assert alarms <= 1


def test_spikes_that_all_workers_have_are_nobodys_and_are_mentioned() -> None:
    draw = np.random.default_rng(0)
    seconds = draw.normal(1.0, 0.05, (200, 8))
    seconds[draw.random(seconds.shape) < 0.03] *= 10
    found = judged(paces(seconds))
    assert found.verdicts == []
    [doubt] = found.doubts
    assert "of one worker no more often than of others" in doubt


def test_what_all_workers_share_makes_nobody_slow() -> None:
    seconds = five_percent(0, 100)
    seconds[50:] *= 5  # a larger batch
    seconds *= np.random.default_rng(1).choice([1.0, 3.0], (100, 1))
    assert verdicts(seconds) == []


# -- who is found --------------------------------------------------------------------


@pytest.mark.parametrize("workers", [4, 8, 32])
def test_a_worker_always_1_3_times_as_slow_is_found_in_20_steps(workers: int) -> None:
    right = 0
    for seed in range(100):
        seconds = five_percent(seed, 20, workers)
        seconds[:, 2] *= 1.3
        found = verdicts(seconds)
        right += [(v.worker, v.kind) for v in found] == [(2, Kind.ALWAYS)]
    assert right >= 95


@pytest.mark.parametrize(("slow", "workers"), [(1, 2), (1, 3), (2, 8), (3, 8), (9, 32)])
def test_several_slow_workers_are_all_found(slow: int, workers: int) -> None:
    for seed in range(10):
        seconds = five_percent(seed, 30, workers)
        seconds[:, :slow] *= 2
        found = verdicts(seconds)
        assert {verdict.worker for verdict in found} == set(range(slow))
        assert all(v.factor == pytest.approx(2, rel=0.1) for v in found)


def test_a_worker_that_slows_down_half_way_has_turned_slow_then() -> None:
    for seed in range(50):
        seconds = five_percent(seed, 100)
        seconds[50:, 1] *= 1.5
        [verdict] = verdicts(seconds)
        assert (verdict.worker, verdict.kind) == (1, Kind.TURNED)
        assert abs(verdict.since - 50) <= 5
        assert verdict.factor == pytest.approx(1.5, rel=0.05)
        assert verdict.lasts == pytest.approx(50, abs=5)


def test_against_its_own_best_a_worker_that_turned_slow_scores_low() -> None:
    seconds = five_percent(0, 100)
    seconds[50:, 1] *= 2
    turned = judged(paces(seconds)).standings[1]
    assert turned.now == pytest.approx(0.5, abs=0.03)
    assert turned.best == pytest.approx(0.5, abs=0.05)
    seconds[:50, 1] *= 2
    always = judged(paces(seconds)).standings[1]
    assert always.now == pytest.approx(0.5, abs=0.03)
    assert always.best > 0.93


def test_a_single_step_is_a_one_off() -> None:
    for seed in range(50):
        step = int(np.random.default_rng(seed).integers(60))
        seconds = five_percent(seed, 60)
        seconds[step, 3] *= 10
        [verdict] = verdicts(seconds)
        assert (verdict.worker, verdict.kind) == (3, Kind.ONE_OFF)
        assert verdict.steps == (step,)
        assert verdict.factor == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize(
    ("spells", "kind", "lasts"),
    [
        ([(10, 20), (40, 60)], Kind.SOMETIMES, 0),
        ([(10, 20), (40, 60), (95, 100)], Kind.SOMETIMES, 5),
        ([(80, 100)], Kind.TURNED, 20),
        ([(3, 5), (80, 100)], Kind.TURNED, 20),
        ([(0, 40)], Kind.SOMETIMES, 0),
        ([(0, 50), (51, 100)], Kind.ALWAYS, 49),
        ([(20, 21), (90, 91)], Kind.ONE_OFF, 0),
    ],
)
def test_spells_have_their_kind(
    spells: list[tuple[int, int]], kind: Kind, lasts: int
) -> None:
    seconds = five_percent(7, 100)
    for first, end in spells:
        seconds[first:end, 4] *= 10
    [verdict] = verdicts(seconds)
    assert (verdict.worker, verdict.kind, verdict.lasts) == (4, kind, lasts)
    assert verdict.share == pytest.approx(sum(b - a for a, b in spells) / 100)
    assert verdict.since == spells[0 if kind is Kind.ALWAYS else -1][0]
    assert verdict.until == spells[-1][1] - 1


def test_sticky_spells_of_two_workers_are_theirs() -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        seconds = 1 + draw.exponential(0.25, (150, 8))
        for worker in (2, 5):
            is_slow = False
            for step in range(150):
                is_slow = draw.random() < (0.8 if is_slow else 0.1)
                seconds[step, worker] *= 10 if is_slow else 1
        found = verdicts(seconds)
        assert {verdict.worker for verdict in found} == {2, 5}
        assert {v.kind for v in found} <= {Kind.SOMETIMES, Kind.TURNED}


# -- what is missing or a bound ------------------------------------------------------


def with_bounds(seconds: np.ndarray, is_bound: np.ndarray) -> SecondsByStep:
    told = paces(np.where(np.isnan(seconds), 1.0, seconds))
    [series] = told.series
    return replace(told, series=(replace(series, seconds=seconds, is_bound=is_bound),))


def test_a_bound_above_the_others_counts_and_is_called_one() -> None:
    seconds, is_bound = five_percent(0, 30), np.zeros((30, 8), bool)
    seconds[:, 1], is_bound[:, 1] = 2.0, True
    [verdict] = verdicts_on(with_bounds(seconds, is_bound))
    assert (verdict.worker, verdict.kind, verdict.is_bound) == (1, Kind.ALWAYS, True)


def test_a_bound_below_the_others_says_nothing_of_anybody() -> None:
    seconds, is_bound = five_percent(0, 30), np.zeros((30, 8), bool)
    seconds[:, :5], is_bound[:, :5] = 0.1, True  # cut off at once
    found = judged(with_bounds(seconds, is_bound))
    assert found.verdicts == []
    [doubt] = found.doubts
    assert doubt.startswith("How slow workers 0, 1, 2, 3 and 4 are now cannot be told")
    assert all(np.isnan(each.now) for each in found.standings[:5])


def test_steps_in_which_a_worker_was_not_seen_are_left_out() -> None:
    seconds = five_percent(0, 60)
    seconds[:, 2] *= 2
    seconds[10:40, 2] = np.nan
    [verdict] = verdicts_on(with_bounds(seconds, np.zeros(seconds.shape, bool)))
    assert (verdict.worker, verdict.kind, len(verdict.steps)) == (2, Kind.ALWAYS, 30)


def test_who_was_slow_when_last_seen_and_late_ever_since_has_turned_slow() -> None:
    seconds, is_bound = five_percent(0, 60), np.zeros((60, 8), bool)
    seconds[30, 2] = 5.0
    seconds[31:, 2], is_bound[31:, 2] = 1.0, True  # nobody waits for it any more
    [verdict] = verdicts_on(with_bounds(seconds, is_bound))
    assert (verdict.kind, verdict.since, verdict.lasts) == (Kind.TURNED, 30, 30)


def test_a_worker_that_never_came_back_is_gone_and_not_slow() -> None:
    seconds = five_percent(0, 40)
    seconds[25:, 6] = np.nan
    told = with_bounds(seconds, np.zeros(seconds.shape, bool))
    there = np.isfinite(seconds)
    there[5:9, 3] = False  # this one did come back
    found = judged(replace(told, alive=there))
    assert found.verdicts == []
    assert [s.gone_since for s in found.standings if not s.is_fine] == [25]
    assert said(found) == ["nobody is slow", "worker 6 is gone since step 25"]
    assert [row[:2] for row in rows(found)] == [("6", "gone")]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((0, 4), "no step has ended, and 5 steps are needed"),
        ((1, 8), "1 step has ended, and 5 steps are needed"),
        ((4, 3), "4 steps have ended, and 5 steps are needed"),
        ((5, 2), "5 steps have ended, and 6 steps are needed"),
        ((50, 1), "there is no other worker to compare with"),
    ],
)
def test_too_little_is_said_to_be_too_little(shape: tuple[int, int], why: str) -> None:
    some = paces(np.ones((max(shape[0], 1), shape[1])))
    [series] = some.series
    cut = replace(series, seconds=np.ones(shape), is_bound=np.zeros(shape, bool))
    told = replace(
        some, steps=np.arange(shape[0]), series=(cut,), alive=np.ones(shape, bool)
    )
    found = judged(told)
    assert (found.verdicts, found.doubts) == ([], ())
    assert said(found) == [f"cannot tell which worker is slow: {why}"]


@pytest.mark.parametrize(("steps", "workers"), [(4, 3), (4, 4), (4, 32), (5, 2)])
def test_one_step_more_than_too_few_is_enough_for_a_worker_10_times_as_slow(
    steps: int, workers: int
) -> None:
    seconds = five_percent(0, steps + 1, workers)
    seconds[:, 1] *= 10
    few = judged(paces(seconds[:-1]))
    assert said(few)[0].startswith("cannot tell which worker is slow")
    assert all("too few steps" in row for row in rows(few, everybody=True))
    [verdict] = judged(paces(seconds)).verdicts
    assert (verdict.worker, verdict.kind) == (1, Kind.ALWAYS)


# -- short runs ----------------------------------------------------------------------


def slow_from(first: int, steps: int, workers: int, seed: int) -> np.ndarray:
    """Seconds with 10 % of noise, in which worker 1 turns 10 times as slow."""
    draw = np.random.default_rng(seed)
    seconds = np.exp(0.1 * draw.standard_normal((steps, workers)))
    seconds[first:, 1] *= 10
    return seconds


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("steps", "first"), [(10, 1), (10, 3), (10, 5), (10, 7), (6, 3), (7, 4), (20, 2)]
)
def test_a_worker_that_turns_slow_in_a_short_run_has_turned_slow_then(
    steps: int, first: int, workers: int
) -> None:
    for seed in range(20):
        [verdict] = verdicts(slow_from(first, steps, workers, seed))
        assert (verdict.worker, verdict.kind) == (1, Kind.TURNED)
        assert (verdict.since, verdict.lasts) == (first, steps - first)
        assert verdict.factor == pytest.approx(10, rel=0.35)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("steps", [6, 10])
def test_slow_from_the_first_step_of_a_short_run_is_always(
    steps: int, workers: int
) -> None:
    for seed in range(20):
        [verdict] = verdicts(slow_from(0, steps, workers, seed))
        assert (verdict.worker, verdict.kind, verdict.since) == (1, Kind.ALWAYS, 0)


def test_always_is_since_the_first_step_also_with_a_usual_step_in_between() -> None:
    seconds = slow_from(0, 30, 4, seed=0)
    seconds[25, 1] = 1.0
    [verdict] = verdicts(seconds)
    assert (verdict.kind, verdict.since) == (Kind.ALWAYS, 0)


@pytest.mark.parametrize(("first", "which"), [(8, "steps 8 and 9"), (9, "step 9")])
def test_slow_in_the_last_one_or_two_steps_is_not_yet_told_to_last(
    first: int, which: str
) -> None:
    seconds = five_percent(0, 10, 4)
    seconds[first:, 2] *= 10
    [told] = said(judged(paces(seconds)))
    assert f"in {which}, the last: too few steps to tell whether it stays" in told


@pytest.mark.parametrize("name", ["uncoded", "uncoded(pieces=4)", "auto"])
@pytest.mark.parametrize("first", [0, 1, 3, 5, 7])
def test_the_trace_of_ten_steps_tells_since_when(name: str, first: int) -> None:
    seconds = five_percent(3, 10, 4)
    seconds[first:, 2] *= 10
    trace = record(build(name, 4), Times(np.zeros_like(seconds), seconds))
    [verdict] = judged(paces_of_trace(trace)).verdicts
    kind = Kind.TURNED if first else Kind.ALWAYS
    assert (verdict.worker, verdict.kind, verdict.since) == (2, kind, first)
    assert verdict.factor == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize("first", [0, 1, 3, 5, 7])
def test_a_code_that_does_not_wait_tells_since_when_and_a_lower_bound(
    first: int,
) -> None:
    seconds = five_percent(3, 10, 4)
    seconds[first:, 2] *= 10
    scheme = build("fractional(tolerance=1)", 4)
    trace = record(scheme, Times(np.zeros_like(seconds), seconds))
    [verdict] = judged(paces_of_trace(trace)).verdicts
    assert (verdict.worker, verdict.since, verdict.is_bound) == (2, first, True)
    assert verdict.kind is (Kind.TURNED if first else Kind.ALWAYS)


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("noise", NOISES)
def test_calm_short_runs_of_few_workers_give_no_alarm_in_99_of_100(
    noise: str, workers: int
) -> None:
    alarms = 0
    for seed in range(300):
        draw = np.random.default_rng(seed)
        found = verdicts(NOISES[noise](draw, (5 + seed % 15, workers)))
        alarms += any(verdict.kind in PERSISTENT for verdict in found)
    assert alarms <= 3


# -- words ---------------------------------------------------------------------------


def verdict(kind: Kind, **facts: object) -> Verdict:
    usual = Verdict(3, kind, "compute", 2.0, False, 0.25, 60, 84, 25, (60, 84))
    return replace(usual, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (verdict(Kind.ALWAYS), "is 2 times as slow as the others, always (compute)"),
        (
            verdict(Kind.TURNED, cause="network", is_bound=True),
            "is at least 2 times as slow as the others, since step 60 (network)",
        ),
        (
            verdict(Kind.SOMETIMES),
            "is 2 times as slow as the others in 25 % of its steps, again since step "
            "60 (compute)",
        ),
        (
            verdict(Kind.SOMETIMES, lasts=0, share=0.004),
            "is 2 times as slow as the others in 0.4 % of its steps, last in step 84 "
            "(compute)",
        ),
        (
            verdict(Kind.ONE_OFF),
            "was 2 times as slow as the others in steps 60 and 84 only (compute)",
        ),
        (
            verdict(Kind.ONE_OFF, steps=(60,), factor=1234.5),
            "was 1234 times as slow as the others in step 60 only (compute)",
        ),
    ],
)
def test_every_kind_has_its_sentence(told: Verdict, words: str) -> None:
    assert sentence(told) == f"worker 3 {words}"


def test_the_short_form_names_the_network_and_a_bound() -> None:
    told = verdict(Kind.TURNED, cause="network", is_bound=True, lasts=1)
    assert in_short(told) == "worker 3: at least 2.0x slow for 1 step, network"


def test_for_machines_there_are_all_workers_and_no_nan() -> None:
    seconds = five_percent(0, 4, 3)
    told = for_machines(judged(paces(seconds)))
    assert [each["worker"] for each in told["workers"]] == [0, 1, 2]
    assert [each["best"] for each in told["workers"]] == [None] * 3
    assert [each["slow"] for each in told["workers"]] == [[], [], []]


def test_the_rest_is_one_line() -> None:
    seconds = five_percent(0, 20)
    assert rest(judged(paces(seconds))).startswith("all 8 workers: nothing wrong")
    seconds[:, 0] *= 3
    found = judged(paces(seconds))
    assert rest(found).startswith("the other 7: nothing wrong, now 0.9")
    assert [len(rows(found)), len(rows(found, everybody=True))] == [1, 8]
