"""Digits kept and lost, and codes refused for it."""

from itertools import combinations

import numpy as np
import pytest

import codedgrad.codes as codes
from codedgrad.codes import (
    Code,
    amplification,
    clustered,
    cyclic,
    fractional,
    from_matrix,
)
from codedgrad.codes.amplification import LIMIT
from codedgrad.codes.families import null_space
from codedgrad.codes.families.circulant import circulant
from codedgrad.codes.late_sets import heard_without
from codedgrad.errors import IllConditioned


def _brute_force(code: Code) -> float:
    """The definition, word by word, with somebody else's least squares."""
    B, worst = code.B.toarray(), 0.0
    for late in combinations(range(code.workers), code.tolerance):
        heard = [m for m in range(code.messages) if m not in late]
        a = np.linalg.lstsq(B[heard].T, np.ones(code.parts), rcond=None)[0]
        worst = max(worst, np.abs(a) @ np.abs(B[heard]).sum(axis=1) / code.parts)
    return worst


@pytest.mark.parametrize(("n", "s"), [(4, 1), (5, 2), (6, 3), (7, 3), (8, 2), (9, 4)])
def test_amplification_is_what_its_definition_says(n: int, s: int) -> None:
    code = cyclic(n, s)
    found = amplification(code)
    assert found.exact
    assert found.value == pytest.approx(_brute_force(code), rel=1e-9)


# The cyclic-MDS column of the reference table: n - s odd.
@pytest.mark.parametrize(("n", "s", "column"), [(4, 1, 1.0), (5, 2, 1.9), (10, 3, 9.5)])
def test_odd_codes_reach_the_cyclic_mds_column(n: int, s: int, column: float) -> None:
    assert amplification(cyclic(n, s)).value <= column * (1 + 1e-12)


# Its best-of-draws column: n - s even.
@pytest.mark.parametrize(
    ("n", "s", "column"), [(3, 1, 1.7), (4, 2, 2.8), (20, 2, 270), (20, 4, 6e3)]
)
def test_even_codes_beat_the_best_draw_column(n: int, s: int, column: float) -> None:
    assert amplification(cyclic(n, s)).value <= column


def test_twenty_workers_and_two_late_amplify_about_fifteen_times() -> None:
    found = amplification(cyclic(20, 2))
    assert found.exact
    assert found.value == pytest.approx(14.6, abs=0.05)
    assert str(found) == "14.59"


def test_a_draw_is_taken_only_where_it_is_better() -> None:
    for n, s in [(4, 2), (8, 6), (12, 10), (15, 13)]:
        drawn, plain = cyclic(n, s), cyclic(n, s, construction="circulant")
        assert amplification(drawn).value < amplification(plain).value
    same = cyclic(6, 2), cyclic(6, 2, construction="circulant")
    np.testing.assert_array_equal(same[0].B.toarray(), same[1].B.toarray())


def test_repetition_amplifies_nothing() -> None:
    for code in (fractional(12, 3), cyclic(7, 6), cyclic(7, 0), codes.uncoded(4)):
        assert amplification(code).value == 1.0


def test_clusters_amplify_as_their_inner_code() -> None:
    assert amplification(clustered(cyclic(10, 3), 7)) == amplification(cyclic(10, 3))


def test_beyond_a_hundred_thousand_sets_it_is_a_lower_bound() -> None:
    code = cyclic(100, 4, accept_amplification=True)
    found = amplification(code)
    assert not found.exact
    assert found.sets == 100 + 10_000
    assert str(found).startswith("at least ")
    assert amplification(code) == found  # the same sets are drawn again


def test_a_turn_of_all_workers_makes_exact_what_would_be_a_sample() -> None:
    found = amplification(cyclic(101, 4, accept_amplification=True))  # a circulant
    assert not found.exact  # 161,700 sets up to a turn
    found = amplification(cyclic(50, 3))
    assert found.exact
    assert found.sets == 49 * 48 // 2 - 2  # those with worker 0; of 3 windows, one


def test_a_matrix_that_only_holds_a_circulant_is_not_taken_for_one() -> None:
    code = from_matrix([[1, 1, 0], [1, 1, 1], [1, 1, 1]], tolerance=1)
    assert amplification(code).sets == 3


def test_a_draw_whose_sets_were_only_sampled_does_not_compete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(null_space, "_DRAWS", 2)
    assert null_space.best_draw(60, 4, seed=0, name="") is None  # 487,635 sets
    assert null_space.best_draw(9, 4, seed=0, name="") is not None


@pytest.mark.parametrize(("n", "s"), [(9, 2), (10, 2), (12, 5), (13, 5), (30, 3)])
def test_the_quick_look_at_one_window_is_right(n: int, s: int) -> None:
    numbers = circulant(n, s)
    code = numbers.code("circulant")
    window = np.arange(n - s, n)[None]
    a = code.decoder.weights(heard_without(window, code.owner))[0]
    direct = np.abs(a) @ np.abs(code.B.toarray()).sum(axis=1) / n
    assert numbers.window_amplification() == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "s"), [(24, 12), (30, 7), (30, 9), (40, 9), (41, 8), (200, 100), (9990, 5000)]
)
def test_a_code_that_loses_digits_is_refused_with_advice_that_works(
    n: int, s: int
) -> None:
    with pytest.raises(IllConditioned) as refused:
        cyclic(n, s)
    assert refused.value.amplification > LIMIT
    assert refused.value.choices
    for choice in refused.value.choices:
        better = eval(choice, vars(codes))
        assert better.workers == n
        assert amplification(better).value <= LIMIT


def test_advice_names_clusters_repetition_and_a_smaller_tolerance() -> None:
    with pytest.raises(IllConditioned, match=r"try fractional\(workers=40, tol"):
        cyclic(40, 9)
    with pytest.raises(IllConditioned, match=r"clustered\(cyclic\(workers=15, tol"):
        cyclic(30, 7)
    with pytest.raises(IllConditioned, match=r"try cyclic\(workers=41, tolerance=3\)"):
        cyclic(41, 8)
    with pytest.raises(IllConditioned, match=r"try cyclic\(workers=30, tolerance=2\)"):
        cyclic(30, 2, construction="random")


def test_the_limit_can_be_overridden() -> None:
    code = cyclic(24, 12, accept_amplification=True)
    assert amplification(code).value > LIMIT


def test_the_limit_refuses_just_above_it_and_no_earlier() -> None:
    assert amplification(cyclic(16, 8)).value == pytest.approx(497.7, abs=0.1)
    with pytest.raises(IllConditioned) as refused:
        cyclic(202, 200)
    assert 500 < refused.value.amplification < 502


def test_looking_stops_where_it_is_told_to() -> None:
    code = cyclic(100, 4, accept_amplification=True)
    found = amplification(code, stop_above=500)
    assert found.value > 500
    assert found.sets == 100  # the windows were enough
    assert not found.exact


def _worst_float32_error(code: Code, rng: np.random.Generator) -> float:
    """Worst relative error of the sum from float32 messages, over many late sets."""
    n, s = code.workers, code.tolerance
    late = [(np.arange(s) + start) % n for start in range(n)]
    late += [rng.choice(n, s, replace=False) for _ in range(200)]
    a = code.decoder.weights(heard_without(np.array(late), code.owner))
    G = rng.standard_normal((n, 64)).astype(np.float32)
    messages = code.B.toarray().astype(np.float32) @ G
    total = G.astype(np.float64).sum(axis=0)
    gap = a.astype(np.float32) @ messages - total
    return float(np.max(np.linalg.norm(gap, axis=1)) / np.linalg.norm(total))


@pytest.mark.long
def test_float32_messages_suffice_for_every_code_agreed_to_and_not_for_draws() -> None:
    rng = np.random.default_rng(0)
    agreed, worst, draws_failing = 0, 0.0, 0
    for n in range(2, 51):
        for s in range(1, min(n, 11)):
            try:
                code = cyclic(n, s)
            except IllConditioned:
                continue
            agreed += 1
            worst = max(worst, _worst_float32_error(code, rng))
            if n % (s + 1) == 0:
                worst = max(worst, _worst_float32_error(fractional(n, s), rng))
            if s in (2, 3) and n >= 20:
                draw = cyclic(n, s, construction="random", accept_amplification=True)
                draws_failing += _worst_float32_error(draw, rng) > 1e-4
    assert worst <= 1e-4
    assert agreed > 200
    assert draws_failing > 31  # most of 62
