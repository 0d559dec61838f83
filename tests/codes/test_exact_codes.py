"""Every exact code, at its tolerance and one past it."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from codedgrad.codes import (
    Code,
    Decoding,
    clustered,
    cyclic,
    decode,
    erasurehead,
    fractional,
    from_matrix,
    from_null_space,
    uncoded,
)
from codedgrad.errors import IllConditioned


def _small_codes() -> list[Code]:
    """Every exact code with at most 10 workers, one per family and numbers."""
    codes = [uncoded(n) for n in range(1, 11)]
    codes += [cyclic(n, s) for n in range(1, 11) for s in range(n)]
    codes += [
        fractional(n, s) for n in range(1, 11) for s in range(n) if n % (s + 1) == 0
    ]
    codes += [
        clustered(cyclic(size, s), clusters)
        for size in range(1, 6)
        for s in range(size)
        for clusters in range(1, 10 // size + 1)
    ]
    codes += [erasurehead(n, d) for n, d in [(6, 2), (6, 3), (9, 3), (10, 5)]]
    for n, s in [(4, 2), (7, 2), (7, 3), (9, 3), (10, 4)]:
        codes.append(cyclic(n, s, construction="circulant"))
        draw = cyclic(n, s, construction="random", accept_amplification=True)
        codes.append(draw)
        codes.append(from_matrix(draw.B, s, name="own", accept_amplification=True))
    codes.append(from_null_space([[1, 1, -2]]))
    return codes


SMALL_CODES = _small_codes()


def _all_patterns(messages: int) -> np.ndarray:
    return np.array(list(product([False, True], repeat=messages)))


def _heard(code: Code, late: tuple[int, ...]) -> list[int]:
    return [m for m, worker in enumerate(code.owner) if worker not in late]


def _sum(code: Code, decoding: Decoding, G: np.ndarray) -> np.ndarray:
    messages = code.B.toarray() @ G
    return sum(a * messages[m] for m, a in decoding.weights)


def _residuals(code: Code, heard: np.ndarray) -> np.ndarray:
    return np.square(code.decoder.weights(heard) @ code.B.toarray() - 1).sum(axis=1)


@pytest.mark.parametrize("code", SMALL_CODES, ids=str)
def test_any_tolerated_set_of_late_workers_leaves_the_sum_exact(code: Code) -> None:
    G = np.random.default_rng(0).standard_normal((code.parts, 3))
    for late in combinations(range(code.workers), code.tolerance):
        decoding = decode(code, _heard(code, late))
        assert decoding.residual <= 1e-9, late
        assert decoding.is_exact, late
        got = _sum(code, decoding, G)
        np.testing.assert_allclose(got, G.sum(axis=0), atol=1e-10, err_msg=str(late))


@pytest.mark.parametrize("code", SMALL_CODES, ids=str)
def test_fewer_late_workers_are_survived_too(code: Code) -> None:
    heard = _all_patterns(code.workers)
    few_late = heard[np.count_nonzero(~heard, axis=1) <= code.tolerance]
    assert np.all(_residuals(code, few_late) <= 1e-9)
    assert code.decoder.decodable(few_late).all()


@pytest.mark.parametrize("code", SMALL_CODES, ids=str)
def test_some_set_of_one_more_late_worker_is_too_much(code: Code) -> None:
    failing = [
        late
        for late in combinations(range(code.workers), code.tolerance + 1)
        if not code.decodable(_heard(code, late))
    ]
    assert failing
    assert decode(code, _heard(code, failing[0])).residual > 1e-9


@pytest.mark.parametrize("code", SMALL_CODES, ids=str)
def test_exact_and_inexact_sets_are_far_apart(code: Code) -> None:
    """The threshold of `is_exact` may stand anywhere in a gap of ten decades."""
    residuals = _residuals(code, _all_patterns(code.workers))
    assert not np.any((residuals > 1e-20) & (residuals < 1e-5))


@pytest.mark.parametrize("code", SMALL_CODES, ids=str)
def test_no_code_computes_more_than_its_tolerance_needs(code: Code) -> None:
    # Every part must be with tolerance + 1 workers, or all of them could be late.
    assert code.load == -(-code.parts * (code.tolerance + 1) // code.workers)
    assert code.work == code.parts * (code.tolerance + 1)
    copies = np.count_nonzero(code.B.toarray(), axis=0)
    assert copies.tolist() == [code.tolerance + 1] * code.parts


@pytest.mark.parametrize("n", range(1, 11))
def test_a_cyclic_worker_holds_its_part_and_the_next_ones(n: int) -> None:
    for s in range(n):
        expected = [tuple(sorted((i + q) % n for q in range(s + 1))) for i in range(n)]
        assert cyclic(n, s).placement == tuple(expected)
        assert cyclic(n, s).workers == n


def test_a_fractional_group_shares_its_parts() -> None:
    assert fractional(6, 2).placement == ((0, 1, 2),) * 3 + ((3, 4, 5),) * 3


def test_clusters_survive_their_tolerance_in_every_cluster_at_once() -> None:
    code = clustered(cyclic(5, 2), clusters=4)
    late = tuple(5 * cluster + i for cluster in range(4) for i in (1, 2))
    assert decode(code, _heard(code, late)).is_exact


def test_nothing_heard_is_known_to_be_nothing() -> None:
    decoding = decode(cyclic(5, 2), [])
    assert decoding.weights == ()
    assert decoding.residual == 5.0
    assert not cyclic(5, 2).decodable([])


def test_a_weight_that_is_a_rounded_zero_is_left_out() -> None:
    # In theory 1 for every other message; in floating point the rest come to 5e-17.
    weights = decode(cyclic(6, 1), [1, 2, 3, 4, 5]).weights
    assert [message for message, _ in weights] == [1, 3, 5]


def test_a_small_residual_is_not_an_exact_sum() -> None:
    code, rng = cyclic(49, 3), np.random.default_rng(0)
    heard = np.array([rng.permutation(49) >= 4 for _ in range(1000)])
    nearly = heard[_residuals(code, heard) < 1e-6]
    assert len(nearly)
    assert not code.decoder.decodable(nearly).any()
    assert not decode(code, np.flatnonzero(nearly[0])).is_exact


def test_what_counts_as_rounding() -> None:
    assert Decoding((), residual=1e-13).is_exact
    assert not Decoding((), residual=2e-13).is_exact
    assert not Decoding((), residual=float("nan")).is_exact


def test_weights_hold_no_zeros_and_repeats_change_nothing() -> None:
    code = cyclic(4, 1)
    assert decode(code, [0, 1, 3]).weights == ((1, 1.0), (3, 1.0))
    assert decode(code, [3, 1, 0, 0]) == decode(code, [0, 1, 3])


@st.composite
def _large_codes(draw: st.DrawFn) -> Code:
    n = draw(st.integers(2, 200), label="workers")
    family = draw(st.sampled_from(["fractional", "cyclic", "clustered"]))
    if family == "fractional":
        size = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        return fractional(n, size - 1)
    clusters = draw(st.sampled_from([d for d in range(1, n) if n % d == 0]))
    size = n if family == "cyclic" else n // clusters
    few = st.integers(0, min(size - 1, 12))
    many = st.integers(max(0, size - 4), size - 1)
    try:
        inner = cyclic(size, draw(few | many, label="tolerance"))
    except IllConditioned:
        assume(False)
    return inner if family == "cyclic" else clustered(inner, clusters)


@pytest.mark.long
@pytest.mark.hypothesis
@given(_large_codes(), st.integers(0, 2**32))
@example(cyclic(199, 2), 0)
@example(cyclic(70, 67), 0)
@example(cyclic(201, 199), 0)
def test_large_codes_survive_their_tolerance_and_no_more(code: Code, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, s = code.workers, code.tolerance
    G = rng.standard_normal((code.parts, 2))
    start = rng.integers(n)
    window = tuple((start + i) % n for i in range(s))
    for late in (window, tuple(rng.choice(n, s, replace=False).tolist())):
        decoding = decode(code, _heard(code, late))
        assert decoding.residual <= 1e-9
        assert code.decodable(_heard(code, late))
        got = _sum(code, decoding, G)
        np.testing.assert_allclose(got, G.sum(axis=0), atol=1e-8)
    part = rng.integers(code.parts)
    holders = tuple(w for w in range(n) if part in code.placement[w])
    assert len(holders) == s + 1
    assert decode(code, _heard(code, holders)).residual > 1e-9
    assert not code.decodable(_heard(code, holders))
