"""Codes that promise a small residual, against their closed forms."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from codedgrad.codes import (
    Code,
    bernoulli,
    decode,
    edge_graph,
    erasurehead,
    fractional,
    stochastic,
    vertex_graph,
)
from codedgrad.codes.decoders import OneStep, residuals
from codedgrad.codes.sparse import tidy


def _patterns(messages: int, heard: int) -> np.ndarray:
    sets = list(combinations(range(messages), heard))
    patterns = np.zeros((len(sets), messages), dtype=bool)
    np.put_along_axis(patterns, np.array(sets), True, axis=1)
    return patterns


def _mean_residual(code: Code, heard: int) -> float:
    weights = code.decoder.weights(_patterns(code.messages, heard))
    return float(np.mean(residuals(code.B, weights)))


@pytest.mark.parametrize(
    ("n", "copies", "heard"),
    [(2, 1, 1), (2, 1, 2), (3, 1, 2), (3, 2, 1), (3, 2, 2), (3, 2, 3), (3, 3, 2)],
)
def test_bernoulli_residual_over_all_matrices(n: int, copies: int, heard: int) -> None:
    p, pattern = copies / n, np.arange(n)[None] < heard
    mean = 0.0
    for bits in product([0, 1], repeat=n * n):
        B = tidy(np.array(bits, dtype=float).reshape(n, n))
        probability = p ** sum(bits) * (1 - p) ** (n * n - sum(bits))
        weights = OneStep(B, copies).weights(pattern)
        mean += probability * residuals(B, weights)[0]
    assert mean == pytest.approx(n * (n - copies) / (heard * copies))


def test_bernoulli_codes_are_drawn_from_that_law() -> None:
    heard, draws = range(9), 2000
    sample = [
        decode(bernoulli(12, 3, seed=seed), heard).residual for seed in range(draws)
    ]
    error = np.std(sample) / np.sqrt(draws)
    expected = 12 * (12 - 3) / (9 * 3)
    assert abs(np.mean(sample) - expected) < 4 * error  # false alarm: 6e-5, seeds fixed


def test_bernoulli_optimal_decoding_is_never_worse_than_one_step() -> None:
    for seed in range(5):
        one, best = (
            bernoulli(8, 2, decoding=d, seed=seed) for d in ("one-step", "optimal")
        )
        np.testing.assert_array_equal(one.B.toarray(), best.B.toarray())
        for heard in (range(5), range(8)):
            B = best.B.toarray()[list(heard)]
            a = np.linalg.lstsq(B.T, np.ones(8), rcond=None)[0]
            least = np.square(a @ B - 1).sum()
            assert decode(best, heard).residual == pytest.approx(least)
            assert decode(one, heard).residual > least


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("heard", [1, 5, 8, 11, 12])
def test_repetition_that_stops_early(copies: int, heard: int) -> None:
    # A part is missing if none of the members of its group is among those heard.
    expected = 12 * comb(12 - copies, heard) / comb(12, heard)
    assert _mean_residual(erasurehead(12, copies), heard) == pytest.approx(expected)


def test_erasurehead_is_fractional_repetition() -> None:
    early, exact = erasurehead(12, 3), fractional(12, 2)
    np.testing.assert_array_equal(early.B.toarray(), exact.B.toarray())
    assert early.tolerance == 2


@pytest.mark.parametrize("heard", [1, 3, 6, 8])
def test_one_step_decoding_depends_on_the_copies_alone(heard: int) -> None:
    expected = 8 * (8 - 4) * (8 - heard) / (heard * 4 * (8 - 1))
    repeated = tidy(fractional(8, 3).B)
    for B in (repeated, vertex_graph(8, 4).B, vertex_graph(8, 4, seed=5).B):
        code = Code("one-step", tidy(B), None, OneStep(B, 4))
        assert _mean_residual(code, heard) == pytest.approx(expected)
    own = vertex_graph(8, 4, decoding="one-step")
    assert _mean_residual(own, heard) == pytest.approx(expected)


def _law_of_heard(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All patterns of who is heard, and their probabilities."""
    heard = np.array(list(product([False, True], repeat=p.size)))
    return heard, np.prod(np.where(heard, 1 - p, p), axis=1)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_stochastic_codes_are_right_on_average_and_as_far_off_as_stated(
    copies: int,
) -> None:
    p = np.array([0.1, 0.4, 0.25, 0.6, 0.05])
    heard, law = _law_of_heard(p)
    code = stochastic(5, copies, p, seed=2)
    weights = code.decoder.weights(heard)
    part_weights = weights @ code.B.toarray()
    np.testing.assert_allclose(law @ part_weights, 1)  # unbiased, part by part
    odds = p / (1 - p)
    held = np.array([len(parts) for parts in code.placement])
    of_this_placement = held @ odds / copies**2
    assert law @ residuals(code.B, weights) == pytest.approx(of_this_placement)


def test_the_placement_of_a_stochastic_code_is_that_of_its_seed() -> None:
    placements = {stochastic(8, 3, 0.2, seed=seed).placement for seed in range(9)}
    assert len(placements) == 9
    again = stochastic(8, 3, 0.2, seed=4)
    assert again.placement == stochastic(8, 3, 0.2, seed=4).placement


def test_equal_stragglers_make_the_stochastic_residual_hold_as_it_is() -> None:
    heard, law = _law_of_heard(np.full(6, 0.3))
    code = stochastic(6, 2, 0.3)
    mean = law @ residuals(code.B, code.decoder.weights(heard))
    assert mean == pytest.approx(6 * 0.3 / (2 * (1 - 0.3)))  # the sum of odds, over d


def test_with_nobody_ever_late_the_stochastic_sum_is_exact() -> None:
    assert decode(stochastic(7, 3, 0.0), range(7)).is_exact


@pytest.mark.parametrize(("n", "degree"), [(6, 2), (6, 3), (7, 4), (8, 5), (8, 7)])
def test_graphs_are_simple_regular_and_of_their_seed(n: int, degree: int) -> None:
    for seed in range(5):
        A = vertex_graph(n, degree, seed=seed).B.toarray()
        np.testing.assert_array_equal(A, A.T)
        assert not A.diagonal().any()
        assert set(A.ravel()) <= {0.0, 1.0}
        assert A.sum(axis=0).tolist() == [degree] * n
        again = vertex_graph(n, degree, seed=seed).B.toarray()
        np.testing.assert_array_equal(A, again)


def test_graphs_of_different_seeds_differ() -> None:
    drawn = {vertex_graph(12, 3, seed=seed).B.toarray().tobytes() for seed in range(20)}
    assert len(drawn) == 20


def test_an_edge_holds_its_two_ends() -> None:
    code = edge_graph(parts=8, degree=3)
    assert code.workers == 12
    assert {len(parts) for parts in code.placement} == {2}
    assert len(set(code.placement)) == 12
    copies = np.count_nonzero(code.B.toarray(), axis=0)
    assert copies.tolist() == [3] * 8


@pytest.mark.parametrize("seed", range(3))
def test_expanders_keep_their_worst_case_bound(seed: int) -> None:
    n, degree = 9, 4
    code = vertex_graph(n, degree, decoding="one-step", seed=seed)
    best = vertex_graph(n, degree, seed=seed)
    spectrum = np.sort(np.abs(np.linalg.eigvalsh(code.B.toarray())))
    for late in range(n):
        patterns = _patterns(n, n - late)
        got = residuals(code.B, code.decoder.weights(patterns))
        bound = (spectrum[-2] / degree) ** 2 * n * late / (n - late)  # Raviv et al.
        assert got.max() <= bound + 1e-12
        optimal = residuals(best.B, best.decoder.weights(patterns))
        assert np.all(optimal <= got + 1e-12)


def test_graph_codes_are_exact_with_everybody_heard() -> None:
    for decoding in ("optimal", "one-step"):
        assert vertex_graph(8, 3, decoding=decoding).decodable(range(8))
        assert edge_graph(8, 3, decoding=decoding).decodable(range(12))
