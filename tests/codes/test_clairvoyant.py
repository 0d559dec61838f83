"""The least seconds of a step: closed forms, brute force, linear programmes."""

import time
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from codedgrad.codes.bounds import clairvoyant, clairvoyant_whole, ring_bound
from codedgrad.delays import Replay, Times, draw
from codedgrad.errors import InvalidCode

AMPLE = 5.0  # seconds, a guard against what hangs; it takes 0.06


def _drawn(
    steps: int, workers: int, seed: int = 0, fixed: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    slow = np.where(rng.random((steps, workers)) < 0.1, 10.0, 1.0)
    unit = slow * (0.5 + rng.exponential(0.5, (steps, workers)))
    return fixed * rng.exponential(1.0, (steps, workers)), unit


def _recorded(name: str) -> Times:
    trace = Replay.read(name)
    steps, workers = trace.seconds.shape
    return draw(trace, steps=steps, workers=workers, seed=0)


# -- fluid ---------------------------------------------------------------------------


def test_without_a_fixed_share_it_is_the_harmonic_mean() -> None:
    _, unit = _drawn(50, 7)
    harmonic = 7 / (1 / unit).sum(axis=1)
    np.testing.assert_allclose(clairvoyant(np.zeros_like(unit), unit), harmonic)


def test_at_the_fluid_bound_just_the_whole_work_is_done() -> None:
    fixed, unit = _drawn(200, 9, fixed=2.0)
    ends = clairvoyant(fixed, unit)
    done = (np.maximum(ends[:, None] - fixed, 0.0) / unit).sum(axis=1)
    np.testing.assert_allclose(done, 9.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("trace", "uncoded"), [("AR", 1.94), ("SE", 1.27)], ids=["AR", "SE"]
)
def test_how_far_waiting_for_all_is_from_the_best_on_recordings(
    trace: str, uncoded: float
) -> None:
    times = _recorded(trace)
    waiting = (times.fixed + times.unit).max(axis=1)
    ratio = waiting.sum() / clairvoyant(times.fixed, times.unit).sum()
    print(f"{trace}: uncoded / fluid = {ratio:.3f}")
    assert ratio == pytest.approx(uncoded, abs=0.005)


# -- whole parts ---------------------------------------------------------------------


def _by_search(fixed: list[float], part: list[float], parts: int) -> float:
    """Give the parts to workers in all ways there are, and take the quickest."""
    best = np.inf
    for counts in product(range(parts + 1), repeat=len(part)):
        if sum(counts) == parts:
            ends = (a + m * p for a, m, p in zip(fixed, counts, part, strict=True) if m)
            best = min(best, max(ends))
    return best


@pytest.mark.hypothesis
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5, np.inf]),
            st.sampled_from([0.0, 0.1, 0.25, 0.3, 1.0, 1e-18, 7.0, np.inf]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 7),
)
def test_no_way_to_give_out_whole_parts_is_quicker(workers, parts) -> None:
    fixed, part = [a for a, _ in workers], [p for _, p in workers]
    assert clairvoyant_whole([fixed], [part], parts).item() == _by_search(
        fixed, part, parts
    )


@pytest.mark.hypothesis
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 40))
def test_it_is_one_of_the_moments_at_which_a_part_ends(seed, workers, parts) -> None:
    fixed, part = _drawn(3, workers, seed)
    many = np.arange(1, parts + 1)
    moments = fixed[:, :, None] + many * part[:, :, None]
    kth = np.sort(moments.reshape(3, -1), axis=1)[:, parts - 1]
    assert np.array_equal(clairvoyant_whole(fixed, part, parts), kth)


def test_the_parts_of_a_simulation_are_met_to_the_last_bit() -> None:
    times = _recorded("SE")
    part = times.part(parts=3 * times.workers)
    waiting = (times.fixed + 3 * part).max(axis=1)
    ends = clairvoyant_whole(times.fixed, part, 3 * times.workers)
    assert np.all(ends <= waiting)
    moments = times.fixed[:, :, None] + np.arange(1, 100) * part[:, :, None]
    assert np.all((moments == ends[:, None, None]).any(axis=(1, 2)))


@pytest.mark.parametrize("pieces", [1, 2, 3, 8, 16])
def test_it_lies_between_the_fluid_bound_and_waiting_for_all(pieces: int) -> None:
    fixed, unit = _drawn(300, 8)
    ends = clairvoyant(fixed, unit, pieces)
    assert np.all(ends >= clairvoyant(fixed, unit) * (1 - 1e-12))
    assert np.all(ends <= (fixed + pieces * (unit / pieces)).max(axis=1))


def test_ever_smaller_parts_come_down_to_the_fluid_bound() -> None:
    fixed, unit = _drawn(100, 6)
    fluid = clairvoyant(fixed, unit)
    sizes = [1, 2, 4, 8, 64, 512, 4096]  # each divides the next: never worse
    ends = [clairvoyant(fixed, unit, pieces) for pieces in sizes]
    for coarse, fine in pairwise(ends):
        assert np.all(fine <= coarse * (1 + 1e-12))
    np.testing.assert_allclose(ends[-1], fluid, rtol=2e-3)


@pytest.mark.parametrize("pieces", [None, 1, 8])
def test_seconds_in_another_unit_are_as_many_times_as_many(pieces: int | None) -> None:
    fixed, unit = _drawn(50, 5)
    once = clairvoyant(fixed, unit, pieces)
    for scale in (2.0**-40, 3.0, 2.0**60):
        scaled = clairvoyant(scale * fixed, scale * unit, pieces)
        np.testing.assert_allclose(scaled, scale * once, rtol=1e-12)


@pytest.mark.parametrize("pieces", [None, 1, 3])
def test_the_dead_are_as_good_as_not_there(pieces: int | None) -> None:
    fixed, unit = _drawn(20, 4)
    alone = fixed[:, :3], unit[:, :3]
    if pieces is None:
        left = clairvoyant(alone[0], alone[1] * 4 / 3)  # 4 loads for 3 workers
    else:
        left = clairvoyant_whole(alone[0], alone[1] / pieces, 4 * pieces)
    for a, b in ((np.inf, np.inf), (0.0, np.inf), (np.inf, 0.0), (np.inf, 1.0)):
        fixed[:, 3], unit[:, 3] = a, b
        np.testing.assert_allclose(clairvoyant(fixed, unit, pieces), left, rtol=1e-12)
    assert clairvoyant([[np.inf] * 2], [[np.inf] * 2], pieces).tolist() == [np.inf]


@pytest.mark.parametrize("pieces", [None, 1, 8])
def test_who_takes_no_time_does_it_all_once_it_has_begun(pieces: int | None) -> None:
    fixed = [[0.25, 0.0], [9.0, 0.0], [0.0, 0.0]]
    unit = [[0.0, 1.0], [0.0, 1.0], [5e-324, 1e300]]
    assert clairvoyant(fixed, unit, pieces).tolist() == [0.25, 2.0, 0.0]


def test_parts_next_to_nothing_beside_what_is_fixed_are_still_counted() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        workers, parts = rng.integers(1, 6), int(rng.integers(1, 60))
        fixed = rng.choice([0.0, 1.0, 1.0, 3.0, 1e6], (1, workers))
        part = 10.0 ** rng.uniform(-19, -9, (1, workers))
        moments = fixed[0, :, None] + np.arange(1, parts + 1) * part[0, :, None]
        kth = np.sort(moments.ravel())[parts - 1]
        assert clairvoyant_whole(fixed, part, parts).item() == kth


def test_two_thousand_steps_of_32_workers_take_no_time() -> None:
    fixed, unit = _drawn(2000, 32)
    began = time.perf_counter()
    ends = clairvoyant(fixed, unit, pieces=16)
    assert time.perf_counter() - began < AMPLE
    done = np.floor((ends[:, None] * (1 + 1e-12) - fixed) / (unit / 16))
    assert np.all(np.maximum(done, 0).sum(axis=1) >= 16 * 32)


def test_no_steps_have_no_bounds() -> None:
    none = np.empty((0, 3))
    assert clairvoyant(none, none).shape == (0,)
    assert clairvoyant(none, none, pieces=2).shape == (0,)
    assert ring_bound(none, copies=2).shape == (0,)


# -- rings ---------------------------------------------------------------------------


def _by_programme(left: np.ndarray, unit: np.ndarray, copies: int) -> float:
    """Split what is left among its holders; one column more is the end."""
    n = len(unit)
    pairs = [(g, (g - back) % n) for g in range(n) for back in range(copies)]
    pairs = [(g, w) for g, w in pairs if np.isfinite(unit[w])]
    given_out, busy = np.zeros((n, len(pairs) + 1)), np.zeros((n, len(pairs) + 1))
    for column, (g, w) in enumerate(pairs):
        given_out[g, column], busy[w, column] = 1.0, unit[w]
    busy[:, -1] = -1.0
    price = np.zeros(len(pairs) + 1)
    price[-1] = 1.0
    found = linprog(price, A_ub=busy, b_ub=np.zeros(n), A_eq=given_out, b_eq=left)
    return found.fun if found.success else np.inf


@pytest.mark.parametrize("copies", [1, 2, 3, 5, 8])
def test_no_split_on_a_ring_is_quicker(copies: int) -> None:
    _, unit = _drawn(6, 8, seed=copies)
    unit[3, [2, 3]] = np.inf
    wanted = [_by_programme(np.ones(8), row, copies) for row in unit]
    np.testing.assert_allclose(ring_bound(unit, copies), wanted, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 1.0])
@pytest.mark.parametrize("copies", [2, 3])
def test_nor_one_of_what_is_left_at_the_moment_of_a_plan(
    copies: int, share: float
) -> None:
    _, unit = _drawn(6, 9, seed=copies)
    wanted = []
    for row in unit:
        begun = share * np.median(row)
        left = np.maximum(1.0 - begun / row, 0.0)
        wanted.append(begun + _by_programme(left, row, copies))
    np.testing.assert_allclose(ring_bound(unit, copies, share), wanted, rtol=1e-6)


def test_a_ring_of_one_copy_waits_for_all_and_one_of_all_for_nobody() -> None:
    _, unit = _drawn(30, 7)
    np.testing.assert_allclose(ring_bound(unit, 1), unit.max(axis=1))
    fluid = clairvoyant(np.zeros_like(unit), unit)
    np.testing.assert_allclose(ring_bound(unit, 7), fluid)
    by_copies = [ring_bound(unit, copies) for copies in range(1, 8)]
    for fewer, more in pairwise(by_copies):
        assert np.all(more <= fewer * (1 + 1e-12))


def test_a_later_plan_is_never_better() -> None:
    _, unit = _drawn(30, 12)
    for copies in (2, 3):
        known = ring_bound(unit, copies)
        ends = [ring_bound(unit, copies, share) for share in (0.0, 0.3, 0.6, 1.0)]
        np.testing.assert_array_equal(ends[0], known)
        for early, late in pairwise(ends):
            assert np.all(early <= late * (1 + 1e-12))
        assert np.all(ends[-1] <= np.maximum(unit.max(axis=1), known) * (1 + 1e-12))


def test_equal_workers_end_together_whenever_the_plan_is_made() -> None:
    unit = np.full((1, 5), 2.0)
    for share in (None, 0.5, 1.0):
        assert ring_bound(unit, 2, share).item() == pytest.approx(2.0, rel=1e-12)


def test_dead_neighbours_end_a_ring_if_they_hold_all_of_some_load() -> None:
    unit = np.ones((1, 6))
    unit[0, [1, 2]] = np.inf
    assert ring_bound(unit, 2).item() == np.inf  # the load of 2 is with 2 and 1
    assert ring_bound(unit, 3).item() < np.inf
    assert ring_bound(unit, 3, 0.5).item() < np.inf
    assert ring_bound(np.full((1, 6), np.inf), 3, 0.5).item() == np.inf


def test_who_takes_no_time_helps_its_neighbours_at_once() -> None:
    unit = np.array([[0.0, 1.0, 4.0, 1.0]])  # loads 2 and 3 are not with worker 0
    assert ring_bound(unit, 2).item() == pytest.approx(2 / (1 + 1 / 4 + 1))
    assert _by_programme(np.ones(4), unit[0], 2) == pytest.approx(2 / 2.25)
    assert ring_bound([[0.0, 0.0]], 1, 0.5).item() == 0.0


EXP = [(2, None, 1.19), (3, None, 1.03), (4, None, 1.01), (3, 0.25, 1.06),
       (3, 0.5, 1.13), (3, 0.75, 1.23), (2, 0.25, 1.26), (2, 0.5, 1.36),
       (2, 0.75, 1.48)]  # fmt: skip


@pytest.mark.parametrize(("copies", "share", "figure"), EXP)
def test_the_potentials_of_rings_of_32_workers_with_a_long_tail(
    copies: int, share: float | None, figure: float
) -> None:
    # The figures are of 12 steps, whose standard error is 0.05 for 2 copies and 0.02
    # for more.
    rng = np.random.default_rng(0)
    unit = 0.5 + rng.exponential(0.5, (1000, 32))
    fluid = clairvoyant(np.zeros_like(unit), unit).sum()
    ratio = ring_bound(unit, copies, share).sum() / fluid
    assert ratio == pytest.approx(figure, abs=0.1 if copies == 2 else 0.04)


# -- bad input -----------------------------------------------------------------------

ONE = [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (lambda: clairvoyant(ONE, [[1.0]]), r"shapes \(1, 2\) and \(1, 1\); try"),
        (lambda: clairvoyant([1.0], [1.0]), r"try \(steps, workers\) for both"),
        (lambda: clairvoyant([[]], [[]]), r"try \(steps, workers\) for both"),
        (lambda: clairvoyant(ONE, [[-1.0, 1.0]]), "negative or NaN; try 0 or more"),
        (lambda: clairvoyant([[np.nan, 0.0]], ONE), "negative or NaN"),
        (lambda: clairvoyant("x", ONE), "not numbers; try arrays"),
        (lambda: clairvoyant(ONE, ONE, pieces=0), "pieces = 0 is out of range"),
        (lambda: clairvoyant_whole(ONE, ONE, 1.5), "parts must be a whole number"),
        (lambda: ring_bound([1.0], 1), r"shape \(1,\); try \(steps, workers\)"),
        (lambda: ring_bound("x", 1), "not numbers"),
        (lambda: ring_bound([[np.nan]], 1), "negative or NaN"),
        (lambda: ring_bound(ONE, 3), "copies = 3 is out of range; try .* from 1 to 2"),
        (lambda: ring_bound(ONE, 1, 1.5), "replanned = 1.5; try a share from 0 to 1"),
        (lambda: ring_bound(ONE, 1, "half"), "replanned = 'half'; try a share"),
    ],
)
def test_what_cannot_be_bounded_is_refused_with_advice(asked, sentence) -> None:
    with pytest.raises(InvalidCode, match=sentence):
        asked()
