"""Disjoint covers against brute force, and the general decoder."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.schemes.cover import best_cover, decode_rows

PARTS = 6
units = st.lists(
    st.sets(st.integers(0, PARTS - 1), max_size=4).map(lambda s: tuple(sorted(s))),
    max_size=8,
)


def fewest_left(held: list[tuple[int, ...]]) -> int:
    """Try every subset of units."""
    best = PARTS
    for chosen in chain.from_iterable(
        combinations(held, size) for size in range(len(held) + 1)
    ):
        parts = [part for unit in chosen for part in unit]
        if len(parts) == len(set(parts)):
            best = min(best, PARTS - len(parts))
    return best


@pytest.mark.hypothesis
@given(units)
def test_an_exact_cover_is_found_whenever_there_is_one(
    held: list[tuple[int, ...]],
) -> None:
    cover = best_cover(dict(enumerate(held)), PARTS)
    used = [part for key in cover.units for part in held[key]]
    assert len(used) == len(set(used))
    assert sorted((*used, *cover.left)) == list(range(PARTS))
    assert (cover.left == ()) == (fewest_left(held) == 0)


def test_nothing_covers_nothing() -> None:
    assert best_cover({}, 2).left == (0, 1)
    assert best_cover({"empty": ()}, 1).units == ()


def test_one_part_copies_always_leave_a_cover_whichever_side_closes_first() -> None:
    for border in range(5):  # the giver closed here; the taker copied parts 2, 3, 4
        units = {"giver": tuple(range(border))} | {
            f"copy {part}": (part,) for part in (2, 3, 4)
        }
        cover = best_cover(units, 5)
        assert cover.left == tuple(part for part in (0, 1) if part >= border)


def test_a_search_that_would_take_for_ever_settles_for_what_it_has() -> None:
    parts = 40
    pairs = {(a, b): (a, b) for a, b in combinations(range(parts - 1), 2)}
    cover = best_cover(pairs, parts)  # odd number of the rest, and part 39 is nowhere
    assert parts - 1 in cover.left
    assert len(cover.left) < parts // 2


def test_covers_of_a_thousand_workers_are_found_without_deep_recursion() -> None:
    n = 1000
    units: dict[object, tuple[int, ...]] = {}
    for worker in range(n):  # every third tail was copied, and its giver closed late
        units[worker] = tuple(range(8 * worker, 8 * worker + 8 - 2 * (worker % 3 == 0)))
        if worker % 3 == 0:
            for part in (6, 7):
                units[worker, part] = (8 * worker + part,)
        if worker % 5 == 0:
            units[worker, "copy"] = (8 * worker + 1,)  # in vain
    cover = best_cover(units, 8 * n)
    assert cover.left == ()
    assert not any(isinstance(key, tuple) and key[1] == "copy" for key in cover.units)


@given(st.integers(0, 2**31))
def test_rows_of_any_kind_decode_as_least_squares_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = rng.integers(-1, 2, (4, 3)).astype(float)
    rows = [{p: float(v) for p, v in enumerate(row) if v} for row in B]
    weights, residual = decode_rows(rows, 3)
    best = np.linalg.lstsq(B.T, np.ones(3), rcond=None)[0]
    misfit = float(np.sum((best @ B - 1) ** 2))
    assert residual == pytest.approx(misfit, abs=1e-12)
    assert float(np.sum((np.array(weights) @ B - 1) ** 2)) == pytest.approx(
        misfit, abs=1e-12
    )


def test_no_rows_know_nothing() -> None:
    assert decode_rows([], 4) == ((), 4.0)
