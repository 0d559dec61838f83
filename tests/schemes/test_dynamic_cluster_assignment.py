"""Spreading stragglers: legal, as even as it can be, and with the fractions known.

The oracles are written here and share nothing with the code under test: counts of
stragglers by column for storage by cluster, and unions of the images of all perfect
matchings, row by row, for storage by slot.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedgrad.schemes.dynamic import cluster_assignment as spreading
from codedgrad.schemes.dynamic.cluster_assignment import (
    by_rows,
    exact,
    exact_slots,
    greedy,
    tiers,
)
from codedgrad.schemes.dynamic.grid import Grid, grid

Spread = Callable[[Grid, np.ndarray], tuple[int, ...]]


def common(workers: int, clusters: int, reach: int) -> Grid:
    return grid(workers, clusters, reach, "common", 0)


def marked(workers: int, slow: Iterable[int]) -> np.ndarray:
    mask = np.zeros(workers, dtype=np.bool_)
    mask[list(slow)] = True
    return mask


def counts(layout: Grid, seats: tuple[int, ...], slow: np.ndarray) -> np.ndarray:
    """Stragglers in every cluster."""
    return slow[list(seats)].reshape(layout.clusters, layout.rows).sum(axis=1)


def rows_of(layout: Grid, slow: np.ndarray) -> tuple[int, ...]:
    return by_rows(layout, slow.astype(np.float64))


def tiers_of(layout: Grid, slow: np.ndarray) -> tuple[int, ...]:
    return tiers(layout, slow.astype(np.float64))


CLUSTER: list[Spread] = [exact, greedy, tiers_of]
SLOT: list[Spread] = [rows_of, exact_slots]


# -- whatever is asked -----------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[Grid, np.ndarray]:
    clusters, rows = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    reach = draw(st.integers(1, clusters))
    kind = draw(st.sampled_from(["common", "row"]))
    layout = grid(clusters * rows, clusters, reach, kind, draw(st.integers(0, 9)))
    n = layout.workers
    return layout, np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))


@pytest.mark.hypothesis
@settings(max_examples=25)
@given(situations())
def test_every_worker_has_one_seat_in_a_cluster_it_may_join(
    situation: tuple[Grid, np.ndarray],
) -> None:
    layout, slow = situation
    for spread in CLUSTER + SLOT:
        seats = spread(layout, slow)
        assert sorted(seats) == list(range(layout.workers)), spread
        for seat, worker in enumerate(seats):
            cluster, slot = divmod(seat, layout.rows)
            assert cluster in layout.joins[worker], spread
            assert spread in CLUSTER or slot == worker // layout.clusters, spread


@pytest.mark.hypothesis
@settings(max_examples=25)
@given(situations())
def test_the_exact_ones_are_as_even_as_any_and_slots_are_never_evener_than_clusters(
    situation: tuple[Grid, np.ndarray],
) -> None:
    layout, slow = situation

    def unevenness(seats: tuple[int, ...]) -> int:
        return int(np.sum(counts(layout, seats, slow) ** 2))

    home = unevenness(layout.home)
    of_clusters, of_slots = (unevenness(f(layout, slow)) for f in (exact, exact_slots))
    assert of_clusters <= of_slots <= unevenness(rows_of(layout, slow))
    assert of_clusters <= unevenness(greedy(layout, slow))
    assert of_slots <= home


@pytest.mark.parametrize("spread", CLUSTER + SLOT)
def test_who_may_join_only_its_home_stays_there(spread: Spread) -> None:
    layout = common(12, 4, 1)
    slow = marked(12, [0, 4, 7])
    assert spread(layout, slow) == layout.home


def test_rows_are_not_moved_for_nothing() -> None:
    layout = common(20, 5, 3)
    assert by_rows(layout, np.zeros(20)) == layout.home
    assert by_rows(layout, np.full(20, 0.7)) == layout.home


def test_graded_scores_are_spread_by_their_sums() -> None:
    # Cluster 0 is home to 1 and 0.6; if the row of the latter moves on, clusters hold
    # 1, 0.6, 0.3.
    layout = common(6, 3, 3)
    scores = np.array([1.0, 0.0, 0.0, 0.6, 0.3, 0.0])
    sums = np.sort(scores[list(by_rows(layout, scores))].reshape(3, 2).sum(axis=1))
    assert sums == pytest.approx([0.3, 0.6, 1.0])


def test_tiers_seat_one_worker_of_every_tier_of_speed_in_every_cluster() -> None:
    layout = common(20, 5, 5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = rng.exponential(size=20)
        rank = np.empty(20, dtype=int)
        rank[np.argsort(-scores)] = np.arange(20)
        tier = rank[list(tiers(layout, scores))].reshape(5, 4) // 5
        assert np.all(np.sort(tier, axis=1) == np.arange(4))


def test_tiers_do_not_care_for_the_scale_of_scores() -> None:
    layout = common(20, 5, 3)
    scores = np.random.default_rng(1).exponential(size=20)
    assert tiers(layout, scores) == tiers(layout, 1e6 * scores)


def test_who_is_gone_is_of_the_slowest_tier() -> None:
    layout = common(6, 3, 3)
    scores = np.array([np.inf, 1.0, 1.0, np.inf, 1.0, np.inf])
    clusters = {
        seat // 2 for seat, w in enumerate(tiers(layout, scores)) if w in (0, 3, 5)
    }
    assert clusters == {0, 1, 2}


def test_the_greedy_way_makes_room_for_who_is_left_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Counter[bool]()
    plain = spreading._FillingClusters._make_room

    def counted(table: object, worker: int, fixed: Iterable[int] = ()) -> bool:
        found = plain(table, worker, fixed)  # type: ignore[arg-type]
        made[found] += 1
        return found

    monkeypatch.setattr(spreading._FillingClusters, "_make_room", counted)
    layout = common(12, 4, 2)
    for slow in itertools.combinations(range(12), 5):
        assert sorted(greedy(layout, marked(12, slow))) == list(range(12))
    print(f"room made, or not without moving stragglers: {dict(made)}")
    assert made[True] > 0


# -- the fractions that can be spread --------------------------------------------------


def by_columns(layout: Grid, slow_workers: int) -> Iterator[tuple[np.ndarray, int]]:
    """Sets of stragglers, one for each way to split them over the home columns.

    With common shifts workers of a column are alike, so that one set stands for all
    with as many stragglers in each column: their number comes with it.
    """
    P, rows = layout.clusters, layout.rows
    for split in itertools.product(range(rows + 1), repeat=P):
        if sum(split) == slow_workers:
            slow = [i * P + p for p, many in enumerate(split) for i in range(many)]
            ways = math.prod(math.comb(rows, many) for many in split)
            yield marked(layout.workers, slow), ways


def fraction_of_clusters(layout: Grid, slow_workers: int, most: int) -> float:
    """Share of all sets that `exact` spreads with at most so many in a cluster."""
    good = sum(
        ways
        for slow, ways in by_columns(layout, slow_workers)
        if counts(layout, exact(layout, slow), slow).max() <= most
    )
    return good / math.comb(layout.workers, slow_workers)


@lru_cache
def images(clusters: int, reach: int) -> list[set[int]]:
    """Of every subset of a row, the sets of clusters it can be seated in, as bits."""
    found: list[set[int]] = [set() for _ in range(2**clusters)]
    for seats in itertools.permutations(range(clusters)):
        if all((c - h) % clusters < reach for h, c in enumerate(seats)):
            for subset in range(2**clusters):
                image = sum(1 << c for h, c in enumerate(seats) if subset >> h & 1)
                found[subset].add(image)
    return found


def taken_together(masks: Iterable[int], new: Iterable[int]) -> frozenset[int]:
    """Unions of a mask and a new one that have no cluster in common."""
    return frozenset(a | b for a in masks for b in new if not a & b)


def fraction_of_slots(clusters: int, rows: int, reach: int, slow: int) -> float:
    """Share of all sets that perfect matchings can spread with one in a cluster.

    Row after row: what can be taken by the stragglers so far, and by how many sets.
    """
    of_row = images(clusters, reach)
    ways: Counter[tuple[int, frozenset[int]]] = Counter({(0, frozenset({0})): 1})
    for _ in range(rows):
        after: Counter[tuple[int, frozenset[int]]] = Counter()
        for (many, masks), number in ways.items():
            for subset, new in enumerate(of_row):
                together = many + subset.bit_count()
                if together <= slow:
                    after[together, taken_together(masks, new)] += number
        ways = after
    good = sum(n for (many, masks), n in ways.items() if many == slow and masks)
    return good / math.comb(clusters * rows, slow)


def can_be_spread(layout: Grid, slow: Iterable[int]) -> bool:
    """Whether matchings of the rows leave one straggler at most in every cluster."""
    P = layout.clusters
    of_row = images(P, len(layout.shifts[0]))
    masks = frozenset({0})
    for row in range(layout.rows):
        subset = sum(1 << (k % P) for k in slow if k // P == row)
        masks = taken_together(masks, of_row[subset])
    return bool(masks)


FRACTIONS = [  # workers, clusters, stragglers, SC, then reach 2 and 3: cluster, slot
    (12, 4, 2, 0.8182, (1, 1), (1, 1)),
    (12, 4, 3, 0.4909, (0.9818, 0.9818), (1, 1)),
    (12, 4, 4, 0.1636, (0.8545, 0.6848), (1, 1)),
    (20, 5, 3, 0.5614, (0.9825, 0.9825), (1, 1)),
    (20, 5, 4, 0.2642, (0.8958, 0.8462), (0.9990, 0.9990)),
    (20, 5, 5, 0.0660, (0.6543, 0.4608), (0.9794, 0.9794)),
]


@pytest.mark.parametrize(
    ("workers", "clusters", "slow", "static", "two", "three"), FRACTIONS
)
def test_the_fraction_of_sets_that_can_be_spread_is_that_of_the_table(
    workers: int,
    clusters: int,
    slow: int,
    static: float,
    two: tuple[float, float],
    three: tuple[float, float],
) -> None:
    rows = workers // clusters
    one_each = math.comb(clusters, slow) * rows**slow / math.comb(workers, slow)
    assert round(one_each, 4) == static
    for reach, (of_clusters, of_slots) in ((1, (static,) * 2), (2, two), (3, three)):
        layout = common(workers, clusters, reach)
        assert round(fraction_of_clusters(layout, slow, most=1), 4) == of_clusters
        assert round(fraction_of_slots(clusters, rows, reach, slow), 4) == of_slots


def test_sets_that_are_alike_by_column_are_spread_alike() -> None:
    """What the counting by columns rests on, on sets as they are."""
    layout, rng = common(20, 5, 3), np.random.default_rng(0)
    alike = {
        tuple(slow.reshape(4, 5).sum(axis=0)): counts(layout, exact(layout, slow), slow)
        for slow, _ in by_columns(layout, 5)
    }
    for _ in range(300):
        slow = marked(20, rng.choice(20, 5, replace=False))
        found = counts(layout, exact(layout, slow), slow)
        split = tuple(slow.reshape(4, 5).sum(axis=0))
        assert np.sum(found**2) == np.sum(alike[split] ** 2)


@pytest.mark.parametrize(("workers", "clusters"), [(12, 4), (20, 5)])
@pytest.mark.parametrize("reach", [2, 3])
def test_the_program_for_slots_spreads_what_matchings_of_the_rows_can(
    workers: int, clusters: int, reach: int
) -> None:
    layout, rng = common(workers, clusters, reach), np.random.default_rng(reach)
    spread = 0
    for _ in range(30):
        slow = rng.choice(workers, clusters, replace=False).tolist()
        mask = marked(workers, slow)
        even = counts(layout, exact_slots(layout, mask), mask).max() <= 1
        assert even == can_be_spread(layout, slow), slow
        spread += even
    assert spread > 5


def test_the_program_for_slots_finds_the_least_sum_of_squares_there_is() -> None:
    layout, rng = common(12, 4, 3), np.random.default_rng(5)
    legal = [
        seats
        for seats in itertools.permutations(range(4))
        if all((c - h) % 4 < 3 for h, c in enumerate(seats))
    ]
    for _ in range(6):
        slow = rng.random(12) < 0.5
        loads = [  # of the clusters, by row and matching
            [np.bincount(seats, weights=row, minlength=4) for seats in legal]
            for row in slow.reshape(3, 4)
        ]
        least = min(np.sum(sum(some) ** 2) for some in itertools.product(*loads))
        found = counts(layout, exact_slots(layout, slow), slow)
        assert np.sum(found**2) == least


def fraction_found(spread: Spread, layout: Grid, sample: int | None) -> float:
    sets = list(itertools.combinations(range(layout.workers), layout.clusters))
    if sample is not None:
        drawn = np.random.default_rng(0).choice(len(sets), sample, replace=False)
        sets = [sets[number] for number in drawn]
    masks = (marked(layout.workers, slow) for slow in sets)
    return float(
        np.mean([counts(layout, spread(layout, m), m).max() <= 1 for m in masks])
    )


@pytest.mark.parametrize(
    ("spread", "known", "within"),
    [
        (greedy, ((0.810, 0.994), (0.59, 0.87)), (0.001, 0.02)),
        (rows_of, ((0.539, 0.976), (0.293, 0.801)), (0.01, 0.02)),
    ],
)
def test_quick_ways_spread_the_fractions_that_are_known(
    spread: Spread,
    known: tuple[tuple[float, float], ...],
    within: tuple[float, float],
) -> None:
    # All sets of 4 of 12; 3,000 of those of 5 of 20, whose own error is 0.009.
    sizes = ((12, 4, None), (20, 5, 3000))
    for (workers, clusters, sample), expected, off in zip(
        sizes, known, within, strict=True
    ):
        for reach, fraction in zip((2, 3), expected, strict=True):
            found = fraction_found(spread, common(workers, clusters, reach), sample)
            print(f"{spread.__name__} {workers} {reach}: {found:.4f} of {fraction}")
            assert found == pytest.approx(fraction, abs=off)


# -- when every pattern can be spread --------------------------------------------------


def by_halls_condition(clusters: int, rows: int, r: int, reach: int) -> bool:
    kappa = min(r - 1, rows - r + 1)
    return all(
        min(c * rows, clusters * kappa) <= kappa * (c + reach - 1)
        for c in range(1, clusters - reach + 1)
    )


def by_brute_force(clusters: int, rows: int, r: int, reach: int) -> bool:
    layout = common(clusters * rows, clusters, reach)
    return all(
        counts(layout, exact(layout, slow), slow).max() <= r - 1
        for slow, _ in by_columns(layout, clusters * (r - 1))
    )


def test_halls_condition_says_when_every_pattern_can_be_spread() -> None:
    cases = [
        (clusters, workers // clusters, r, reach)
        for workers in range(6, 16)
        for clusters in range(2, workers)
        if workers % clusters == 0
        for r in range(2, workers // clusters + 1)
        for reach in range(1, clusters + 1)
    ]
    verdicts = Counter[bool]()
    for case in cases:
        verdict = by_halls_condition(*case)
        assert by_brute_force(*case) == verdict, case
        verdicts[verdict] += 1
    print(f"{len(cases)} cases: {dict(verdicts)}")
    assert len(cases) >= 52
    assert min(verdicts.values()) > 10  # else the claim is empty


@pytest.mark.parametrize(
    ("clusters", "rows", "r", "least"), [(4, 3, 2, 3), (5, 4, 2, 4), (5, 4, 3, 3)]
)
def test_the_least_reach_that_spreads_every_pattern_is_the_one_known(
    clusters: int, rows: int, r: int, least: int
) -> None:
    enough = [by_brute_force(clusters, rows, r, n) for n in range(1, clusters + 1)]
    assert enough.index(True) + 1 == least
    assert all(enough[least - 1 :])


# -- the worked example ----------------------------------------------------------------


@pytest.mark.parametrize("slow", [(1, 5, 6, 10), (1, 5, 9, 3)], ids=str)
def test_the_counter_examples_cannot_be_spread_with_a_reach_of_two(
    slow: tuple[int, ...],
) -> None:
    layout = common(12, 4, 2)
    numbers = [worker - 1 for worker in slow]  # they are counted from 1
    mask = marked(12, numbers)
    assert counts(layout, exact(layout, mask), mask).max() == 2
    assert counts(layout, exact_slots(layout, mask), mask).max() == 2
    assert not can_be_spread(layout, numbers)


def test_with_a_reach_of_three_all_495_sets_of_four_can_be_spread() -> None:
    layout = common(12, 4, 3)
    sets = list(itertools.combinations(range(12), 4))
    assert len(sets) == 495
    for number, slow in enumerate(sets):
        mask = marked(12, slow)
        assert counts(layout, exact(layout, mask), mask).max() == 1, slow
        assert can_be_spread(layout, slow), slow
        if number % 33 == 0:  # some milliseconds each
            assert counts(layout, exact_slots(layout, mask), mask).max() == 1, slow
