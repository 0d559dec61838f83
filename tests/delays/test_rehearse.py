"""Delays for real workers: laws in seconds, and changes of what workers really take."""

import numpy as np
import pytest

from codedgrad.delays import (
    MODELS,
    Classes,
    Dead,
    Jitter,
    Pauses,
    ShiftedExponential,
    Slow,
    Speeds,
    Spikes,
    Sticky,
    Times,
    draw,
    rehearse,
)
from codedgrad.delays.rehearse import Rehearsed
from codedgrad.errors import InvalidDelays
from codedgrad.schemes import uncoded
from codedgrad.sim import compare

CHANGES = [
    Spikes(0.2, 10, 40),
    Sticky(10, 0.1, 0.2, workers=(0, 2)),
    Classes((1, 1 / 3)),
    Speeds(0.5, 2),
    Jitter(1.3, workers=2, every=4),
    Pauses(0.3, 0.1, 0.7),
    Dead(1, step=7),
    Slow(2, 10, step=3),
]


def times_of(delays: Rehearsed, steps: int = 12) -> Times:
    return rehearse(delays, steps=steps, workers=3, seed=0)


def test_the_list_has_every_change() -> None:
    changes = {model for model in MODELS.values() if hasattr(model, "change")}
    assert {*map(type, CHANGES)} == changes


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.kind)
def test_every_change_alone_can_be_rehearsed(change) -> None:
    times = times_of(change)
    assert times.stretch is not None
    assert times.stretch.shape == times.unit.shape == (12, 3)
    assert times.stretch.min() == 1
    is_there = np.isfinite(times.unit)
    assert np.all(times.unit[is_there] == 0)  # no seconds but pauses


def test_a_slow_worker_takes_its_factor_and_no_seconds() -> None:
    times = times_of(Slow(worker=2, factor=10, step=1), steps=2)
    assert times.stretch is not None
    assert times.stretch.tolist() == [[1, 1, 1], [1, 1, 10]]
    assert not times.fixed.any()


def test_a_dead_worker_is_gone_and_a_pause_is_in_seconds() -> None:
    times = times_of([Dead(worker=1, step=1), Pauses(1, 2, 2)], steps=2)
    assert np.isinf(times.unit).tolist() == [[False] * 3, [False, True, False]]
    assert times.fixed[0].tolist() == [2, 2, 2]


def test_several_changes_multiply() -> None:
    times = times_of((Slow(0, 4), Sticky(5, always=True)), steps=1)
    assert times.stretch is not None
    assert times.stretch.tolist() == [[20, 5, 5]]


@pytest.mark.parametrize("change", [Speeds(0.5, 2), Classes((0.25, 1, 2))], ids=str)
def test_workers_that_cannot_be_made_faster_keep_their_pace(change) -> None:
    shape = (4, 3)
    wanted = change.change(
        Times(np.zeros(shape), np.ones(shape)),
        np.random.default_rng(np.random.SeedSequence(0, spawn_key=(0,))),
    ).unit
    stretch = times_of(change, steps=4).stretch
    assert stretch is not None
    np.testing.assert_allclose(stretch / stretch[0, 0], wanted / wanted[0, 0])
    assert stretch.min() == 1


def test_a_law_is_drawn_as_for_a_simulation_and_times_are_taken_as_they_are() -> None:
    law = ShiftedExponential(floor=1, mean=0.1)
    times, drawn = times_of(law), draw(law, steps=12, workers=3, seed=0)
    assert np.array_equal(times.unit, drawn.unit)
    assert times.stretch is None
    assert times_of(times) is times


@pytest.mark.parametrize("given", ["slow", 10, [], [Slow(1), 3]], ids=str)
def test_what_is_neither_a_law_nor_a_change_is_refused(given) -> None:
    with pytest.raises(InvalidDelays, match=r"neither a law nor changes.*try Slow\("):
        times_of(given)


def test_a_worker_that_is_not_there_is_refused() -> None:
    assert times_of(Slow(worker=2)).stretch is not None
    with pytest.raises(InvalidDelays, match="no worker 3 among 3; try a worker from 0"):
        times_of(Slow(worker=3))


def test_a_simulation_of_a_change_alone_says_that_a_law_is_missing() -> None:
    problem = r"slow: worker 1, 10 x from step 0 on is a change, and there is no law"
    with pytest.raises(InvalidDelays, match=problem):
        compare([uncoded(3)], Slow(1), steps=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [0.999, np.inf, np.nan])
def test_a_stretch_is_1_or_more(factor: float) -> None:
    Times(np.zeros((1, 1)), np.zeros((1, 1)), stretch=np.ones((1, 1)))
    with pytest.raises(InvalidDelays, match="factors from 1 on"):
        Times(np.zeros((1, 1)), np.zeros((1, 1)), stretch=np.full((1, 1), factor))


def test_a_stretch_fits_the_times() -> None:
    with pytest.raises(InvalidDelays, match=r"stretch has shape \(2, 1\)"):
        Times(np.zeros((1, 1)), np.zeros((1, 1)), stretch=np.ones((2, 1)))
