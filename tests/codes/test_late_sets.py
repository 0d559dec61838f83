"""The sets of late workers a code is tried on."""

from itertools import combinations

import numpy as np
import pytest

from codedgrad.codes.late_sets import late_sets


def _sets(workers: int, late: int, turns: bool = False) -> list[tuple[int, ...]]:
    batches = list(late_sets(workers, late, turns).batches)
    return [tuple(sorted(late)) for batch in batches for late in batch.tolist()]


@pytest.mark.parametrize("workers", range(1, 8))
def test_all_sets_come_once_each(workers: int) -> None:
    for late in range(workers + 1):
        found = _sets(workers, late)
        assert late_sets(workers, late).all_of_them
        assert sorted(found) == list(combinations(range(workers), late))


def test_windows_come_first() -> None:
    first = [{start, (start + 1) % 6, (start + 2) % 6} for start in range(6)]
    assert [set(late) for late in _sets(6, 3)[:6]] == first


@pytest.mark.parametrize(("workers", "late"), [(5, 1), (6, 3), (7, 4), (8, 2)])
def test_up_to_a_turn_every_set_has_a_representative(workers: int, late: int) -> None:
    turned = {
        tuple(sorted((worker + turn) % workers for worker in found))
        for found in _sets(workers, late, turns=True)
        for turn in range(workers)
    }
    assert turned == set(combinations(range(workers), late))


def test_the_border_between_all_and_some_is_a_hundred_thousand() -> None:
    assert late_sets(85, 3).all_of_them  # 98,770
    assert not late_sets(86, 3).all_of_them  # 102,340


def test_beyond_it_every_window_and_ten_thousand_random_sets() -> None:
    found = np.concatenate(list(late_sets(86, 3).batches))
    assert found.shape == (86 + 10_000, 3)
    assert all(len(set(late)) == 3 for late in found.tolist())
    assert {tuple(late) for late in found[:86].tolist()} == {
        (i, (i + 1) % 86, (i + 2) % 86) for i in range(86)
    }


@pytest.mark.long
def test_for_very_many_workers_the_time_stays_in_bounds() -> None:
    sets = late_sets(200_001, 1)
    assert not sets.all_of_them
    assert sum(len(batch) for batch in sets.batches) == 2 * (2 * 10**8 // 200_001)
