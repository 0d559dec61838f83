"""Many runs of several schemes on the same delays."""

import math

import numpy as np
import pytest

from codedgrad.core import Command, Event
from codedgrad.delays import Chain, Dead, ShiftedExponential, Times, draw
from codedgrad.errors import InvalidOptions, InvalidScenario
from codedgrad.schemes import (
    CodedScheme,
    clustered,
    cyclic,
    fractional,
    ignore,
    stochastic,
    uncoded,
)
from codedgrad.sim import (
    Machine,
    Result,
    compare,
    end_times,
    outcome,
    run_events,
    run_fast,
)
from codedgrad.sim import comparison as sweep_module
from codedgrad.testing import Everything

LAW = ShiftedExponential(floor=0.1, mean=1.0)
AT_ONCE = Machine(drain=False)
FIELDS = ("seconds", "residual", "messages", "work", "busy")


def times_of_run(run: int, runs: int, seed: int, steps: int, workers: int) -> Times:
    """Draw what run `run` of a comparison meets."""
    child = np.random.SeedSequence(seed).spawn(runs)[run]
    times = LAW.sample(np.random.default_rng(child), steps, workers)
    again = draw(LAW, steps=steps, workers=workers, seed=seed, run=run)
    np.testing.assert_array_equal(times.unit, again.unit)
    return times


def assert_same(one: Result, other: Result) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def test_every_run_draws_from_its_own_child_of_the_seed() -> None:
    scheme = cyclic(5, 2)
    (result,) = compare([scheme], LAW, steps=6, runs=3, seed=9, machine=AT_ONCE)
    assert result.seconds.shape == (3, 6)
    for run in range(3):
        expected = outcome(scheme, times_of_run(run, 3, 9, 6, 5))
        np.testing.assert_array_equal(result.seconds[run], expected.seconds)
    assert len(np.unique(result.seconds)) == 18


@pytest.mark.parametrize("machine", [AT_ONCE, Machine()], ids=["fast", "events"])
def test_a_result_does_not_depend_on_what_it_is_compared_with(
    machine: Machine,
) -> None:
    schemes = [uncoded(6), fractional(6, 1), Everything(6), clustered(6, 2, 1)]
    options = {"steps": 5, "runs": 2, "seed": 4, "machine": machine}
    together = compare(schemes, LAW, **options)
    backwards = compare(schemes[::-1], LAW, **options)[::-1]
    for scheme, one, other in zip(schemes, together, backwards, strict=True):
        (alone,) = compare([scheme], LAW, **options)
        assert alone.scheme is one.scheme is scheme
        assert_same(alone, one)
        assert_same(alone, other)


def test_the_fast_path_is_taken_where_it_says_the_same_and_only_there() -> None:
    schemes = [fractional(4, 1), Everything(4)]
    for machine, by_events in [
        (AT_ONCE, [False, True]),
        (Machine(), [True, True]),
        (None, [True, True]),  # workers drain by default
        (Machine(drain=False, latency=0.1), [True, True]),
        (Machine(drain=False, progress=False), [False, True]),
    ]:
        results = compare(schemes, LAW, steps=2, machine=machine)
        assert [result.by_events for result in results] == by_events


def test_both_paths_give_the_same_comparison() -> None:
    schemes = [uncoded(6), cyclic(6, 2, pieces=2), ignore(6, 4)]
    results = compare(schemes, LAW, steps=8, runs=2, seed=3, machine=AT_ONCE)
    for scheme, fast in zip(schemes, results, strict=True):
        for run in range(2):
            events = run_events(scheme, times_of_run(run, 2, 3, 8, 6), AT_ONCE)
            for name in ("seconds", "messages", "work"):
                np.testing.assert_array_equal(
                    getattr(fast, name)[run], getattr(events, name)
                )
            np.testing.assert_allclose(fast.residual[run], events.residual, atol=1e-9)
            np.testing.assert_allclose(fast.busy[run], events.busy, atol=1e-9)


def test_the_same_seed_gives_the_same_on_any_number_of_threads() -> None:
    schemes = [cyclic(8, 3), stochastic(8, 2, 0.1, budget=1.0)]
    options = {"steps": 50, "runs": 6, "machine": AT_ONCE}
    one = compare(schemes, LAW, seed=1, threads=1, **options)
    many = compare(schemes, LAW, seed=1, threads=5, **options)
    other = compare(schemes, LAW, seed=2, threads=5, **options)
    for a, b, c in zip(one, many, other, strict=True):
        assert_same(a, b)
        assert not np.array_equal(a.busy, c.busy)


def test_blocks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = clustered(6, 2, 1)
    times = LAW.sample(np.random.default_rng(0), 25, 6)
    whole = outcome(scheme, times)
    for rows in (1, 7, 24, 25, 26):
        monkeypatch.setattr(sweep_module, "_ROWS", rows)
        blocks = run_fast(scheme, times, threads=3)
        assert len(blocks) == math.ceil(25 / rows)
        for name in FIELDS:
            joined = np.concatenate([getattr(block, name) for block in blocks])
            np.testing.assert_array_equal(joined, getattr(whole, name), name)
        np.testing.assert_array_equal(end_times(scheme, times), whole.seconds)
        (result,) = compare([scheme], LAW, steps=25, runs=2, machine=AT_ONCE)
        assert result.seconds.shape == (2, 25)


@pytest.mark.parametrize("machine", [AT_ONCE, Machine()], ids=["fast", "events"])
def test_a_scheme_may_be_named_twice(machine: Machine) -> None:
    scheme = fractional(4, 1)
    first, second = compare([scheme, scheme], LAW, steps=5, runs=3, machine=machine)
    assert first.seconds.shape == (3, 5)
    assert_same(first, second)


@pytest.mark.parametrize("machine", [AT_ONCE, Machine()], ids=["fast", "events"])
def test_progress_adds_up_to_every_step_of_every_scheme(machine: Machine) -> None:
    done: list[int] = []
    schemes = [uncoded(3), Everything(3)]
    compare(schemes, LAW, steps=7, runs=4, machine=machine, advanced=done.append)
    assert sum(done) == 2 * 7 * 4
    assert all(amount > 0 for amount in done)


def test_comparisons_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidOptions, match=r"schemes: are for \[3, 4\] workers"):
        compare([uncoded(4), uncoded(3)], LAW, steps=1)
    with pytest.raises(InvalidOptions, match="one number of workers"):
        compare([], LAW, steps=1)
    for steps, runs in [(0, 1), (1, 0), (-1, 1)]:
        with pytest.raises(InvalidOptions, match="1 or more"):
            compare([uncoded(4)], LAW, steps=steps, runs=runs)


@pytest.mark.parametrize("latency", [-0.1, math.inf, math.nan])
def test_a_latency_that_is_no_time_is_refused(latency: float) -> None:
    with pytest.raises(InvalidScenario, match="latency: is"):
        Machine(latency=latency)


def test_events_can_be_watched() -> None:
    seen: list[tuple[Event, list[Command]]] = []
    times = LAW.sample(np.random.default_rng(0), 2, 3)
    run_events(uncoded(3), times, AT_ONCE, watch=lambda e, c: seen.append((e, c)))
    assert len(seen) == 2 * (1 + 2 * 3)


# -- the figures of a table ------------------------------------------------------------


def result(**arrays: list[float]) -> Result:
    filled = {name: np.array([arrays[name]]) for name in FIELDS}
    return Result(scheme=uncoded(2, pieces=2), by_events=False, **filled)


def test_the_summary_is_what_one_gets_by_hand() -> None:
    # Two workers, four parts; the third step gave no sum.
    summary = result(
        seconds=[1.0, 3.0, math.inf, 2.0],
        residual=[0.0, 1.0, 4.0, 0.0],
        messages=[2.0, 1.0, 0.0, 2.0],
        work=[4.0, 2.0, 9.0, 6.0],
        busy=[2.0, 3.0, 9.0, 4.0],
    ).summary()
    assert summary == pytest.approx({
        "mean_seconds": 2.0,
        "median_seconds": 2.0,
        "p95_seconds": 3.0,
        "p99_seconds": 3.0,
        "work": 1.0,  # of the data set
        "busy": 9.0 / (2 * 6.0),
        "messages": 5.0 / 3.0,
        "residual": 1.0 / 12.0,
        "exact": 0.5,
        "gave_up": 0.25,
    })  # fmt: skip


def test_a_scheme_that_always_gives_up_has_no_times() -> None:
    law = Chain(LAW, Dead(worker=0))
    for machine in (AT_ONCE, Machine()):
        (scheme_result,) = compare([uncoded(3)], law, steps=2, machine=machine)
        summary = scheme_result.summary()
        assert summary["gave_up"] == 1.0
        assert summary["exact"] == 0.0
        rest = {k: v for k, v in summary.items() if k not in ("gave_up", "exact")}
        assert all(map(math.isnan, rest.values())), rest


def test_steps_of_no_length_have_no_busy_share() -> None:
    nothing = [0.0]
    summary = result(
        seconds=nothing, residual=nothing, messages=nothing, work=nothing, busy=nothing
    ).summary()
    assert math.isnan(summary["busy"])
    assert summary["mean_seconds"] == 0.0


def test_draining_costs_time_on_the_same_delays() -> None:
    schemes: list[CodedScheme] = [uncoded(8), fractional(8, 1), cyclic(8, 3)]
    options = {"steps": 100, "runs": 1, "seed": 0}
    ideal = compare(schemes, LAW, machine=AT_ONCE, **options)
    drained = compare(schemes, LAW, machine=Machine(), **options)
    np.testing.assert_array_equal(ideal[0].seconds, drained[0].seconds)  # nobody late
    for before, after in zip(ideal[1:], drained[1:], strict=True):
        assert after.seconds.mean() > before.seconds.mean()
