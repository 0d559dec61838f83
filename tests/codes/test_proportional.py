"""Codes for workers of different speed: loads, exactness, digits."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from codedgrad.codes import amplification, cyclic, decode, proportional
from codedgrad.codes.families.proportional import loads
from codedgrad.errors import CodedgradError, IllConditioned, InvalidCode, InvalidScheme
from codedgrad.schemes import proportional as scheme
from codedgrad.testing import check_code, check_scheme


def _speeds(workers: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(1, 4, workers)


@pytest.mark.parametrize(
    ("workers", "tolerance"),
    [(1, 0), (2, 0), (2, 1), (3, 1), (4, 2), (5, 1), (5, 4), (6, 2), (7, 3), (8, 1),
     (9, 4), (12, 2), (20, 2)],
)  # fmt: skip
def test_a_code_passes_the_conformance_suite(workers: int, tolerance: int) -> None:
    code = proportional(workers, tolerance, _speeds(workers))
    assert code.tolerance == tolerance
    assert code.work == code.parts * (tolerance + 1)
    check_code(code)


@pytest.mark.parametrize("parts", [1, 2, 5, 7, 30])
def test_any_number_of_parts_will_do(parts: int) -> None:
    code = proportional(5, 2, [1, 2, 3, 4, 5], parts=parts)
    assert code.parts == parts
    check_code(code)


@pytest.mark.parametrize("seed", range(5))
def test_every_part_has_its_owners_and_loads_follow_speeds(seed: int) -> None:
    v = _speeds(8, seed)
    code = proportional(8, 2, v)
    held = code.B.toarray() != 0
    assert set(held.sum(axis=0)) == {3}
    found, ideal = held.sum(axis=1), 3 * code.parts * v / v.sum()
    assert np.all(np.abs(found - ideal) < 1)
    assert code.parts in (8, 16, 24, 32)


@pytest.mark.parametrize(
    ("speeds", "tolerance", "parts"),
    [
        ([1, 1, 2, 4], 1, 4),  # as it is
        ([1, 2, 3], 0, 6),  # 1, 2, 3 of 6
        ([1, 1, 2], 1, 6),  # 3, 3, 6 of 6: twice all parts
        ([3, 4, 4, 5], 0, 16),  # 3, 4, 4, 5 of 16
        ([10, 10, 11], 0, 3),  # 11 is done 3.3 % earlier, and that is all
        ([1, 1.5, 1.5], 0, 12),  # nothing up to 12 is exact; 3, 5, 4 comes nearest
    ],
)
def test_there_are_as_many_parts_as_it_takes_to_be_in_proportion(
    speeds: list, tolerance: int, parts: int
) -> None:
    assert proportional(len(speeds), tolerance, speeds).parts == parts


@pytest.mark.parametrize(
    ("speeds", "parts", "tolerance", "expected"),
    [
        ([1, 1, 1, 1], 4, 1, [2, 2, 2, 2]),
        ([1, 2, 9], 6, 1, [2, 4, 6]),  # nobody holds a part twice
        ([1, 100, 100], 6, 1, [0, 6, 6]),
        ([1, 1, 1], 4, 0, [2, 1, 1]),
        ([5], 3, 0, [3]),
        ([1, 1, 1], 5, 2, [5, 5, 5]),
    ],
)
def test_loads_are_in_proportion_up_to_all_parts(
    speeds: list, parts: int, tolerance: int, expected: list
) -> None:
    found = loads(np.array(speeds, dtype=float), parts, tolerance)
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("speeds", "likewise"),
    [
        ([1e308] * 8, [1] * 8),  # their sum is more than any number
        ([1e308, 5e307, 5e307, 1e308], [2, 1, 1, 2]),
        ([5e-324] * 5, [1] * 5),  # the least there is
        ([1e-323, 5e-324, 5e-324], [2, 1, 1]),
        ([1e308, 5e-324, 1e308], [1, 1e-300, 1]),
        ([1e300, 1e-300, 1e-300], [1, 1e-300, 1e-300]),
        ([1.0, 1e-10, 1e-12], [1e12, 100, 1]),
    ],
)
@pytest.mark.parametrize("tolerance", [0, 1, 2])
def test_speeds_may_be_as_far_off_or_apart_as_numbers_can_be(
    speeds: list, likewise: list, tolerance: int
) -> None:
    k = len(speeds)
    code, same = (proportional(k, tolerance, v) for v in (speeds, likewise))
    np.testing.assert_array_equal(code.B.toarray(), same.B.toarray())
    check_code(code)
    found = loads(np.array(speeds), code.parts, tolerance)
    assert [len(parts) for parts in code.placement] == found.tolist()


def test_who_is_as_good_as_standing_still_gets_what_nobody_else_can_take() -> None:
    alone = np.array([1e308, 1e-308, 1e-308])
    assert loads(alone, parts=6, tolerance=0).tolist() == [6, 0, 0]
    assert loads(alone, parts=6, tolerance=1).tolist() == [6, 3, 3]


def test_a_worker_too_slow_to_hold_a_part_may_be_there_or_not() -> None:
    code = proportional(4, 1, [0.001, 1, 1, 1], parts=3)
    assert code.placement[0] == ()
    check_code(code)
    for late in combinations(range(4), 1):
        assert decode(code, set(range(4)) - set(late)).is_exact


def test_one_point_of_the_circle_stands_for_the_sum() -> None:
    """The matrix C of the papers, with C B = 1: its rows differ by the null space."""
    code = proportional(7, 2, _speeds(7))
    B = code.B.toarray()
    N = np.linalg.svd(B)[0][:, np.linalg.matrix_rank(B) :]
    assert N.shape[1] >= 2
    a = np.linalg.lstsq(B.T, np.ones(code.parts), rcond=None)[0]
    C = np.vstack([a, a + N[:, 0], a + N[:, 1]])
    np.testing.assert_allclose(C @ B, 1, atol=1e-9)
    for late in combinations(range(7), 2):
        system = np.vstack([C[:, late].T, np.ones(3)])
        weights = np.linalg.solve(system, [0, 0, 1]) @ C
        np.testing.assert_allclose(weights @ B, 1, atol=1e-8)
        np.testing.assert_allclose(weights[list(late)], 0, atol=1e-8)


@pytest.mark.parametrize(("workers", "tolerance"), [(5, 1), (8, 2), (10, 3), (12, 2)])
def test_digits_are_kept_about_as_well_as_by_cyclic_codes(
    workers: int, tolerance: int
) -> None:
    ours = amplification(proportional(workers, tolerance, _speeds(workers))).value
    best = amplification(cyclic(workers, tolerance)).value
    assert ours <= 4 * best


def test_the_factor_it_is_judged_by_is_the_one_its_decoder_has() -> None:
    from codedgrad.codes.families.proportional import _best

    v = _speeds(8)
    code = proportional(8, 2, v)
    B, found = _best(loads(v, code.parts, 2), code.parts, 2)
    assert (B != code.B).nnz == 0
    assert amplification(code).value == pytest.approx(found, rel=1e-6)


def test_a_code_that_would_lose_digits_is_refused_with_one_that_would_not() -> None:
    v = _speeds(30)
    with pytest.raises(IllConditioned) as refused:
        proportional(30, 6, v)
    assert refused.value.amplification > 500
    better = "proportional(workers=30, tolerance=4, speeds=speeds)"
    assert refused.value.choices == (better,)
    assert proportional(workers=30, tolerance=4, speeds=v).tolerance == 4
    assert proportional(30, 6, v, accept_amplification=True).tolerance == 6


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: proportional(3, 3, [1, 2, 3]),
            "proportional: tolerance = 3 is out of range; "
            "try a whole number from 0 to 2",
        ),
        (
            lambda: proportional(3, 1, [1, 2]),
            "proportional: speeds = [1, 2] are not the speeds of 3 workers; "
            "try a number above 0 for each of 3 workers",
        ),
        (
            lambda: proportional(2, 1, [1, [2]]),
            "proportional: speeds = [1, [2]] are not the speeds of 2 workers; "
            "try a number above 0 for each of 2 workers",
        ),
        (
            lambda: proportional(2, 1, [1, 0]),
            "proportional: speeds = [1, 0]; try a number above 0 for each of 2 workers",
        ),
        (
            lambda: proportional(2, 1, [1, 2], parts=0),
            "proportional: parts = 0 is out of range; try a whole number, 1 or more",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text


def test_one_speed_for_all_is_as_good_as_a_list() -> None:
    one, many = proportional(5, 1, 2.0), proportional(5, 1, [1, 1, 1, 1, 1])
    np.testing.assert_array_equal(one.B.toarray(), many.B.toarray())


@pytest.mark.parametrize(
    "one",
    [
        scheme(6, 2, [1, 1, 2, 2, 3, 3]),
        scheme(5, 1, [1, 2, 3, 4, 5], parts=10, rule="threshold", pieces=2),
    ],
    ids=str,
)
def test_a_scheme_passes_the_conformance_suite(one: object) -> None:
    check_scheme(one, schedules=10)


def test_a_scheme_says_what_it_was_asked_for() -> None:
    one = scheme(5, 1, [1, 2, 3, 4, 5.5], parts=10, rule="threshold")
    assert one.name == (
        "proportional(tolerance=1, speeds=[1, 2, 3, 4, 5.5], parts=10, rule=threshold)"
    )
    assert one.tolerance == 1


def test_a_scheme_that_would_lose_digits_is_refused() -> None:
    with pytest.raises(InvalidScheme, match=r"for 30 workers.*try tolerance=") as it:
        scheme(30, 6, _speeds(30).tolist())
    assert isinstance(it.value, CodedgradError)
    fewer = int(str(it.value).rpartition("=")[2])
    assert scheme(30, fewer, _speeds(30).tolist()).tolerance == fewer
