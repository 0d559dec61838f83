"""Every fast decoder against the general one, and the general one's own promises."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse.linalg

from codedgrad.codes import (
    Code,
    bernoulli,
    clustered,
    cyclic,
    decode,
    decoders,
    fractional,
    uncoded,
    vertex_graph,
)
from codedgrad.codes.decoders import EXACT, LeastSquares, residuals
from codedgrad.codes.families.null_space import draw

FAST_CODES = [
    uncoded(5),
    fractional(8, 3),
    *(cyclic(n, s) for n in range(2, 9) for s in range(n)),
    draw(7, 3, 1, "draw(7, 3)"),
    clustered(cyclic(4, 2), 2),
    clustered(cyclic(3, 1), 3),
]


def _all_patterns(messages: int) -> np.ndarray:
    return np.array(list(product([False, True], repeat=messages)))


@pytest.mark.parametrize("code", FAST_CODES, ids=str)
def test_fast_and_general_decoders_agree_on_every_pattern(code: Code) -> None:
    heard, general = _all_patterns(code.messages), LeastSquares(code.B)
    got = residuals(code.B, code.decoder.weights(heard))
    best = residuals(code.B, general.weights(heard))
    np.testing.assert_allclose(got, best, atol=1e-9)
    exact = code.decoder.decodable(heard)
    np.testing.assert_array_equal(exact, best <= 1e-9)
    np.testing.assert_array_equal(exact, general.decodable(heard))
    np.testing.assert_array_equal(exact, got <= EXACT)


@pytest.mark.parametrize("code", FAST_CODES, ids=str)
def test_nothing_that_was_not_heard_is_used(code: Code) -> None:
    heard = _all_patterns(code.messages)
    assert not np.any(code.decoder.weights(heard)[~heard])


@pytest.mark.parametrize(("n", "s"), [(9, 2), (9, 4), (10, 3), (12, 2), (15, 5)])
def test_with_fewer_late_the_null_space_gives_the_weights_of_least_norm(
    n: int, s: int
) -> None:
    code, rng = cyclic(n, s), np.random.default_rng(0)
    heard = np.array([rng.permutation(n) >= late for late in range(s + 1)])
    general = LeastSquares(code.B).weights(heard)
    np.testing.assert_allclose(code.decoder.weights(heard), general, atol=1e-9)


def test_the_general_decoder_stays_exact_where_it_turns_to_iteration() -> None:
    code = cyclic(600, 1)  # above the size of the dense solve
    heard = np.ones((1, 600), dtype=bool)
    heard[0, [17]] = False
    general = LeastSquares(code.B)
    assert general.decodable(heard).all()
    np.testing.assert_allclose(
        general.weights(heard), code.decoder.weights(heard), atol=1e-6
    )


def test_a_large_undecodable_set_gets_its_least_residual() -> None:
    code = cyclic(600, 1)
    neighbours = [m for m in range(600) if m not in (100, 101)]
    # Part 101 is lost. The 599 others form a chain of 598 sums of two, which leave the
    # alternating vector unseen: ones have a share of 1/599 along it.
    decoding = decode(code, neighbours)
    assert decoding.residual == pytest.approx(1 + 1 / 599, rel=1e-9)
    assert not code.decodable(neighbours)


@pytest.mark.parametrize(
    ("code", "late"),
    [
        (cyclic(601, 2), [100, 101]),
        (cyclic(601, 2), [100, 101, 102]),
        (cyclic(601, 2), [5, 100, 101, 102, 300, 301]),
        (bernoulli(700, 5, decoding="optimal"), []),
        (bernoulli(700, 5, decoding="optimal"), list(range(70))),
        (vertex_graph(600, 4), list(range(0, 600, 7))),
    ],
    ids=lambda value: str(value)[:40],
)
def test_iteration_finds_what_a_dense_solve_finds(code: Code, late: list[int]) -> None:
    heard = np.ones((1, code.messages), dtype=bool)
    heard[0, late] = False
    B = code.B.toarray()[heard[0]]
    a = np.linalg.lstsq(B.T, np.ones(code.parts), rcond=None)[0]
    least = np.square(a @ B - 1).sum()
    found = residuals(code.B, LeastSquares(code.B).weights(heard))[0]
    assert found == pytest.approx(least, rel=1e-6, abs=1e-13)


def test_where_iteration_does_not_converge_the_dense_solve_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran_out = 7
    monkeypatch.setattr(
        scipy.sparse.linalg,
        "lsmr",
        lambda A, *_, **__: (np.zeros(A.shape[1]), ran_out),
    )
    heard = np.ones((1, 600), dtype=bool)
    heard[0, 17] = False
    assert LeastSquares(cyclic(600, 1).B).decodable(heard).all()
    monkeypatch.setattr(decoders, "_LARGEST_DENSE", 0)
    assert not LeastSquares(cyclic(600, 1).B).decodable(heard).any()


def test_the_cache_remembers_and_stays_small() -> None:
    code = cyclic(12, 2)
    decoder = LeastSquares(code.B, cache_bytes=0)
    rng = np.random.default_rng(0)
    patterns = rng.random((50, 12)) < 0.8
    first = decoder.weights(patterns)
    assert 0 < len(decoder._known) <= 16
    assert decoder.weights(patterns[-1:])[0] is not first[-1]
    np.testing.assert_array_equal(decoder.weights(patterns), first)


def test_what_was_solved_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = LeastSquares(cyclic(6, 2).B)
    heard = np.array([[True, True, False, True, True, False]])
    first = decoder.weights(heard)
    monkeypatch.setattr(decoder, "_solve", None)
    np.testing.assert_array_equal(decoder.weights(heard), first)


def test_a_code_gated_by_count_asks_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    code = cyclic(12, 2)
    assert code.fewest == 4  # 3 messages hold at most 9 of 12 parts
    monkeypatch.setattr(type(code.decoder), "decodable", None)
    assert not code.decodable([0, 3, 6])
