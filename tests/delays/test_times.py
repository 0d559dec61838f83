"""The grid, the two shares of a worker's time, and who may be slow for how long."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.delays import (
    GRID,
    MODELS,
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
    Slow,
    Speeds,
    Spikes,
    Sticky,
    Times,
    on_grid,
)
from codedgrad.errors import InvalidDelays

LAWS = [
    ShiftedExponential(floor=0.1, mean=0.3, fixed_floor=0.01, fixed_mean=0.2),
    Markov(ShiftedExponential(0.1, 0.1), ShiftedExponential(1, 0, 0, 1), 0.1, 0.3),
    Replay(np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), 0.3, "shuffled"),
]
CHANGES = [
    Spikes(0.2, 10, 40),
    Sticky(10, 0.1, 0.2, workers=(0, 2)),
    Classes((1, 1 / 3)),
    Speeds(0.5, 2),
    Jitter(1.3, workers=2, every=4),
    Pauses(0.3, 0.1, 0.7),
    Slow(2, 10, step=3),
    Dead(1, step=7),
]
seconds = st.floats(0, 1000)


@pytest.mark.hypothesis
@given(st.lists(seconds, min_size=1, max_size=50), st.randoms())
def test_sums_on_the_grid_do_not_depend_on_their_order(values, random) -> None:
    times = on_grid(np.array(values)).tolist()
    exact = sum(int(t / GRID) for t in times) * GRID
    random.shuffle(times)
    assert sum(times) == exact


@pytest.mark.hypothesis
@given(seconds)
def test_rounding_moves_by_half_a_grid_step_at_most(value) -> None:
    rounded = on_grid(np.array([value]))
    assert abs(rounded[0] - value) <= GRID / 2
    assert on_grid(rounded)[0] == rounded[0]


def test_for_ever_stays_for_ever_on_the_grid() -> None:
    assert on_grid(np.array([np.inf]))[0] == np.inf


def test_the_list_has_every_model_under_its_own_name() -> None:
    assert all(model.kind == name for name, model in MODELS.items())
    assert {*map(type, LAWS), *map(type, CHANGES)} == set(MODELS.values())


@pytest.mark.parametrize("model", [*LAWS, *CHANGES], ids=lambda m: m.kind)
def test_a_model_draws_the_same_from_the_same_seed_on_the_grid(model) -> None:
    law = model if isinstance(model, Delays) else Chain(LAWS[0], model)
    one, two = (law.sample(np.random.default_rng(5), 30, 3) for _ in range(2))
    for a, b in ((one.fixed, two.fixed), (one.unit, two.unit)):
        assert np.array_equal(a, b)
        assert np.array_equal(a, on_grid(a))
        assert a.dtype == np.float64
        assert a.flags.c_contiguous
        assert a.shape == (30, 3)


@pytest.mark.parametrize("model", [*LAWS, *CHANGES], ids=lambda m: m.kind)
def test_a_model_leaves_the_global_stream_alone(model) -> None:
    before = np.random.get_state()[2]  # noqa: NPY002  # read, not used
    law = model if isinstance(model, Delays) else Chain(LAWS[0], model)
    law.sample(np.random.default_rng(5), 10, 3)
    assert np.random.get_state()[2] == before  # noqa: NPY002


@pytest.mark.parametrize("model", [*LAWS, *CHANGES], ids=lambda m: m.kind)
def test_a_model_survives_pickling_and_reads_as_one_line(model) -> None:
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert str(again) == str(model)
    assert "\n" not in str(model)
    assert str(model).startswith(model.kind.replace("-", " ") + ": ")
    assert len(str(model)) <= 160


def test_each_model_is_either_a_law_or_a_change() -> None:
    assert all(isinstance(m, Delays) and not isinstance(m, Change) for m in LAWS)
    assert all(isinstance(m, Change) and not isinstance(m, Delays) for m in CHANGES)


def test_a_part_takes_its_share_of_the_uncoded_load() -> None:
    times = Times(np.zeros((1, 3)), np.array([[0.1, 1.0, np.inf]]))
    assert times.part(3)[0].tolist() == times.unit[0].tolist()
    part = times.part(7)
    assert part[0, 1] == on_grid(np.array(3 / 7))
    assert part[0, 2] == np.inf
    assert np.array_equal(part, on_grid(part))


def test_times_are_read_only_copies() -> None:
    unit = np.asfortranarray(np.ones((2, 3)))
    times = Times(np.zeros((2, 3)), unit)
    unit[0, 0] = 7
    assert times.unit[0, 0] == 1
    assert times.unit.flags.c_contiguous
    assert (times.steps, times.workers) == (2, 3)
    with pytest.raises(ValueError, match="read-only"):
        times.unit[0, 0] = 2


@pytest.mark.parametrize(
    ("fixed", "unit", "text"),
    [
        ([[0.0]], [[-1.0]], "times: unit is negative or NaN; try seconds, 0 or more"),
        (
            [[np.nan]],
            [[1.0]],
            "times: fixed is negative or NaN; try seconds, 0 or more",
        ),
        (
            [[0.0]],
            [[1.0, 2.0]],
            "times: fixed has shape (1, 1), unit (1, 2); try (steps, workers) for both",
        ),
        (
            [0.0],
            [1.0],
            "times: fixed has shape (1,), unit (1,); try (steps, workers) for both",
        ),
    ],
)
def test_what_cannot_be_times_is_refused(fixed, unit, text) -> None:
    with pytest.raises(InvalidDelays) as caught:
        Times(fixed, unit)
    assert str(caught.value) == text


def ones(steps: int, workers: int) -> Times:
    return Times(np.full((steps, workers), 0.5), np.ones((steps, workers)))


def test_spikes_multiply_both_shares_by_one_factor() -> None:
    times = Spikes(0.5, 10, 40).change(ones(50, 4), np.random.default_rng(0))
    slow = times.unit
    np.testing.assert_allclose(times.fixed, slow / 2, atol=GRID)
    hit = slow[slow != 1]
    assert 0 < len(hit) < 200
    assert hit.min() >= 10
    assert hit.max() <= 40


def test_pauses_add_to_the_fixed_share_alone() -> None:
    times = Pauses(0.5, 1, 2).change(ones(50, 4), np.random.default_rng(0))
    assert np.all(times.unit == 1)
    added = times.fixed[times.fixed != 0.5] - 0.5
    assert added.min() >= 1
    assert added.max() <= 2


def test_the_same_draws_serve_every_probability() -> None:
    few, many = (
        Spikes(p, 10, 40).change(ones(50, 4), np.random.default_rng(0)).unit
        for p in (0.1, 0.6)
    )
    assert np.array_equal(few[few > 1], many[few > 1])


def test_one_worker_is_always_ten_times_slow() -> None:
    model = Sticky(factor=10, workers=(1,), always=True)
    times = model.change(ones(3, 3), np.random.default_rng(0))
    assert times.unit.tolist() == [[1, 10, 1]] * 3
    assert times.fixed.tolist() == [[0.5, 5, 0.5]] * 3


def test_sticky_workers_have_the_spells_of_a_markov_law() -> None:
    law = Markov(ShiftedExponential(1), ShiftedExponential(9), 0.1, 0.3)
    slow = law.states(np.random.default_rng(3), 40, 5)
    times = Sticky(9, 0.1, 0.3).change(ones(40, 5), np.random.default_rng(3))
    assert np.array_equal(times.unit == 9, slow)
    some = Sticky(9, 0.1, 0.3, workers=[2]).change(
        ones(40, 5), np.random.default_rng(3)
    )
    assert np.array_equal(some.unit[:, 2] == 9, slow[:, 2])
    assert np.all(some.unit[:, [0, 1, 3, 4]] == 1)


@pytest.mark.parametrize(
    ("factors", "workers", "want"),
    [
        ((1, 3), 5, (1, 1, 1, 3, 3)),
        ((1, 2, 3), 3, (1, 2, 3)),
        ((2,), 2, (2, 2)),
        ((1, 2, 3), 4, (1, 1, 2, 3)),
    ],
)
def test_classes_are_blocks_of_neighbours(factors, workers, want) -> None:
    times = Classes(factors).change(ones(2, workers), np.random.default_rng(0))
    assert times.unit.tolist() == [[*map(float, want)]] * 2
    assert np.array_equal(times.fixed, times.unit / 2)


def test_many_classes_still_read_as_a_short_line() -> None:
    assert str(Classes([1] * 31 + [2])) == "classes: 32 factors from 1 to 2 x the time"


def test_a_speed_is_for_the_whole_run_and_divides_both_shares() -> None:
    times = Speeds(0.5, 2).change(ones(6, 40), np.random.default_rng(0))
    assert np.all(times.unit == times.unit[0])
    assert len(np.unique(times.unit[0])) == 40
    np.testing.assert_allclose(times.fixed, times.unit / 2, atol=GRID)
    assert times.unit.min() >= 0.5
    assert times.unit.max() <= 2


def test_jitter_has_its_number_of_slow_workers_in_every_period() -> None:
    times = Jitter(1.5, workers=2, every=3).change(ones(8, 6), np.random.default_rng(0))
    assert np.all((times.unit == 1.5).sum(axis=1) == 2)
    for start in (0, 3, 6):
        assert np.all(times.unit[start : start + 3] == times.unit[start])
    assert not np.array_equal(times.unit[0], times.unit[3])
    assert np.array_equal(times.fixed, times.unit / 2)


def test_the_dead_stay_dead_from_their_step_on() -> None:
    model = Chain(LAWS[0], Dead(1, step=2), *CHANGES[:-1])
    times = model.sample(np.random.default_rng(0), 4, 3)
    want = np.zeros((4, 3), dtype=bool)
    want[2:, 1] = True
    assert np.array_equal(np.isinf(times.unit), want)
    assert np.array_equal(np.isinf(times.fixed), want)
    assert np.all(np.isfinite(Dead(0, step=9).change(ones(4, 3), None).unit))


def test_a_slow_worker_is_slow_from_its_step_on_and_no_other_is() -> None:
    times = Slow(1, 10, step=2).change(ones(4, 3), np.random.default_rng(0))
    assert times.unit.tolist() == [[1, 1, 1], [1, 1, 1], [1, 10, 1], [1, 10, 1]]
    assert np.array_equal(times.fixed, times.unit / 2)


def test_changes_are_made_in_the_order_given() -> None:
    pause, slow = Pauses(1, 1, 1), Sticky(10, always=True)
    rng = np.random.default_rng
    first = Chain(ShiftedExponential(1), pause, slow).sample(rng(0), 1, 1)
    second = Chain(ShiftedExponential(1), slow, pause).sample(rng(0), 1, 1)
    assert (first.fixed.item(), second.fixed.item()) == (10, 1)


def test_a_law_with_a_fixed_share_draws_the_same_unit_share() -> None:
    plain = ShiftedExponential(1, 2).sample(np.random.default_rng(1), 9, 2)
    both = ShiftedExponential(1, 2, 3, 4).sample(np.random.default_rng(1), 9, 2)
    assert np.array_equal(plain.unit, both.unit)
    assert np.all(plain.fixed == 0)
    assert both.fixed.min() > 3


@pytest.mark.parametrize(
    ("law", "text"),
    [
        (ShiftedExponential(), "shifted exponential: floor 1 s"),
        (
            ShiftedExponential(1, 0.2, 0.5, 0.1),
            "shifted exponential: floor 1 s, mean excess 0.2 s, "
            "whatever the load 0.5 s and mean excess 0.1 s",
        ),
        (
            Markov(ShiftedExponential(1), ShiftedExponential(5), 0.1, 0.3),
            "markov: fast (floor 1 s), slow (floor 5 s), "
            "fast to slow 0.1 and slow to fast 0.3 per step",
        ),
        (Jitter(), "jitter: 1.3 x slow, 1 random worker, drawn every step"),
    ],
)
def test_a_model_says_what_it_is_with_units(law, text) -> None:
    assert str(law) == text
