"""Shares and where they go: worked examples, and solvers that know nothing of them."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from codedgrad.codes.families.allocation import (
    ALLOCATIONS,
    chain,
    common,
    gram_aware,
    interval,
    odds,
    shares,
)
from codedgrad.errors import InvalidCode

P = np.array([0.1, 0.2, 0.4, 0.5])  # of the worked example
SIZES = [(1, 1), (1, 4), (2, 2), (4, 4), (4, 9), (9, 4), (7, 1), (30, 31), (100, 100)]


def _error(mass: np.ndarray, p: np.ndarray, G: np.ndarray) -> float:
    """The mean squared error of fixed unbiased weights."""
    return float(np.einsum("i,ij,jl,il->", p / (1 - p), mass, G, mass))


def _random(workers: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.02, 0.95, workers)


def test_the_shares_of_the_worked_example() -> None:
    np.testing.assert_allclose(1 / odds(P), [1 / 9, 0.25, 2 / 3, 1])
    assert odds(P).sum() == pytest.approx(15.5)
    expected = [2.322581, 1.032258, 0.387097, 0.258065]
    np.testing.assert_allclose(shares(P, 4), expected, atol=5e-7)


@pytest.mark.parametrize(
    ("allocate", "expected", "orthogonal"),
    [
        (
            common,
            [
                [1.322581, 1, 0, 0],
                [0.032258, 0, 1, 0],
                [-0.612903, 0, 0, 1],
                [0.258065, 0, 0, 0],
            ],
            1.539427,
        ),
        (
            chain,
            [
                [1, 1.322581, 0, 0],
                [0, -0.322581, 1.354839, 0],
                [0, 0, -0.354839, 0.741935],
                [0, 0, 0, 0.258065],
            ],
            1.307897,
        ),
        (
            interval,
            [
                [1, 1, 0.322581, 0],
                [0, 0, 0.677419, 0.354839],
                [0, 0, 0, 0.387097],
                [0, 0, 0, 0.258065],
            ],
            0.546479,
        ),
    ],
)
def test_the_allocations_of_the_worked_example(
    allocate: Callable, expected: list, orthogonal: float
) -> None:
    mass = allocate(shares(P, 4), 4)
    np.testing.assert_allclose(mass.toarray(), expected, atol=5e-7)
    assert mass.nnz == 7
    assert _error(mass.toarray(), P, np.ones((4, 4))) == pytest.approx(16 / 15.5)
    found = _error(mass.toarray(), P, np.eye(4))
    assert found == pytest.approx(orthogonal, abs=5e-7)


def test_a_solver_finds_no_better_shares() -> None:
    """Every mass is free here: sparse or not, negative or not."""
    unbiased = {"type": "eq", "fun": lambda x: x.reshape(4, 4).sum(axis=0) - 1}
    found = minimize(
        lambda x: _error(x.reshape(4, 4), P, np.ones((4, 4))),
        np.random.default_rng(0).standard_normal(16),
        constraints=[unbiased],
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert found.success
    assert found.fun == pytest.approx(16 / 15.5, rel=1e-6)
    np.testing.assert_allclose(
        found.x.reshape(4, 4).sum(axis=1), shares(P, 4), atol=1e-3
    )


@pytest.mark.parametrize("name", ALLOCATIONS)
@pytest.mark.parametrize(("workers", "parts"), SIZES)
def test_columns_sum_to_1_rows_to_the_shares_and_copies_are_few(
    name: str, workers: int, parts: int
) -> None:
    Y = shares(_random(workers), parts)
    mass = ALLOCATIONS[name](Y, parts)
    np.testing.assert_allclose(mass.sum(axis=0), 1, rtol=0, atol=1e-15 * workers)
    np.testing.assert_allclose(mass.sum(axis=1), Y, rtol=0, atol=1e-13 * parts)
    assert mass.nnz <= parts + workers - 1


@pytest.mark.parametrize(("workers", "parts"), SIZES)
def test_an_interval_has_no_negative_mass_and_parts_that_are_neighbours(
    workers: int, parts: int
) -> None:
    mass = interval(shares(_random(workers), parts), parts).toarray()
    assert np.all(mass >= 0)
    for row in mass:
        held = np.flatnonzero(row)
        assert held.size > 0
        assert np.ptp(held) + 1 == held.size
    np.testing.assert_allclose(mass.sum(axis=0), 1, rtol=0, atol=4e-16 * workers)


@pytest.mark.parametrize("workers", [3, 7, 10, 49, 100, 333])
def test_rounding_leaves_no_slivers(workers: int) -> None:
    """Shares of 1 added up are not whole numbers; borders between parts are."""
    for Y in (np.full(workers, 1.0), np.tile([0.1, 0.7, 1.3, 1.9], workers)):
        Y = Y * (1 + 1e-16 * np.random.default_rng(0).standard_normal(Y.size))
        parts = round(Y.sum())
        mass = interval(Y, parts)
        assert mass.data.min() > 1e-3
        assert np.abs(mass.sum(axis=0) - 1).max() <= 1e-15


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_equal_workers_have_a_part_each_and_no_copies(name: str) -> None:
    mass = ALLOCATIONS[name](shares(np.full(9, 0.3), 9), 9)
    assert mass.nnz == 9
    np.testing.assert_allclose(mass.toarray().max(axis=1), 1)


def test_who_is_never_or_always_late_is_not_believed() -> None:
    np.testing.assert_allclose(odds([0.0, 0.9999]), [999, 1 / 999])
    assert np.all(shares([0.0, 0.999999, 0.5], 3) > 0)


@pytest.mark.parametrize("cap", [1.0, 1.01, 1.2, 1.5, 2.0, 3.0, 10.0])
def test_no_share_is_above_the_cap_and_a_solver_finds_none_better(cap: float) -> None:
    p = _random(6, seed=3)
    Y = shares(p, 6, cap)
    assert Y.max() <= cap * (1 + 1e-12)
    assert Y.sum() == pytest.approx(6)
    found = minimize(
        lambda y: np.sum(y**2 / odds(p)),
        np.ones(6),
        jac=lambda y: 2 * y / odds(p),
        bounds=[(0, cap)] * 6,
        constraints=[{"type": "eq", "fun": lambda y: y.sum() - 6}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert np.sum(Y**2 / odds(p)) <= found.fun * (1 + 1e-9)
    np.testing.assert_allclose(Y, found.x, atol=1e-4)


def test_a_cap_that_nobody_reaches_changes_nothing() -> None:
    np.testing.assert_array_equal(shares(P, 4, cap=2.4), shares(P, 4))
    np.testing.assert_array_equal(shares(P, 4, cap=np.inf), shares(P, 4))


def _oracle(held: np.ndarray, p: np.ndarray, G: np.ndarray) -> float:
    """The least error on a support: constrained least squares, all mass at once."""
    worker, part = np.nonzero(held)
    same = worker[:, None] == worker
    Q = same * (p / (1 - p))[worker] * G[part[:, None], part]
    A = (part == np.arange(held.shape[1])[:, None]).astype(float)
    saddle = np.block([[Q, A.T], [A, np.zeros((len(A), len(A)))]])
    wanted = np.concatenate([np.zeros(part.size), np.ones(len(A))])
    x = np.linalg.lstsq(saddle, wanted, rcond=None)[0][: part.size]
    return float(x @ Q @ x)


@pytest.mark.parametrize("rho", [-0.2, 0.0, 0.3, 0.8, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_gram_aware_mass_is_the_best_on_its_support(rho: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, held = _random(6, seed), rng.random((6, 5)) < 0.5
    held[np.argmin(held.sum(axis=1))] = True
    G = (1 - rho) * np.eye(5) + rho
    mass = gram_aware(held, p, rho).toarray()
    np.testing.assert_allclose(mass.sum(axis=0), 1, atol=1e-12)
    assert not np.any(mass[~held])
    assert _error(mass, p, G) == pytest.approx(_oracle(held, p, G), rel=1e-9)


def test_without_correlation_parts_are_divided_by_the_odds() -> None:
    held = interval(shares(P, 4), 4)
    mass = gram_aware(held, P, 0.0).toarray()
    s = odds(P)[:, None] * (held.toarray() > 0)
    np.testing.assert_allclose(mass, s / s.sum(axis=0), atol=1e-12)


def test_for_gradients_all_alike_row_sums_become_the_shares() -> None:
    p = np.linspace(0.05, 0.5, 10)
    held = interval(shares(p, 10), 10)
    rows = gram_aware(held, p, 0.95).toarray().sum(axis=1)
    np.testing.assert_allclose(rows, shares(p, 10), rtol=0.05)


def test_gram_aware_mass_is_never_worse_than_the_one_it_starts_from() -> None:
    p = np.exp(-0.5 * np.linspace(0.1, 2, 10))
    start = interval(shares(p, 10), 10)
    for rho in (0.0, 0.5, 0.9):
        G = (1 - rho) * np.eye(10) + rho
        found = _error(gram_aware(start, p, rho).toarray(), p, G)
        assert found < _error(start.toarray(), p, G)


@pytest.mark.parametrize("rho", [-1.0, -0.5, 1.0])
def test_a_correlation_nobody_can_have_is_brought_into_range(rho: float) -> None:
    mass = gram_aware(np.ones((3, 4)), 0.3, rho).toarray()
    np.testing.assert_allclose(mass.sum(axis=0), 1, atol=1e-9)
    assert np.abs(mass).max() < 2


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: shares([0.1, 0.2], 4, cap=1.5),
            "shares: 2 workers of cap = 1.5 cannot carry 4 parts; "
            "try a cap of 2 or more",
        ),
        (
            lambda: shares([0.1, 0.2], 4, cap="much"),
            "shares: cap = 'much' is no number; try a cap of 2 or more",
        ),
        (
            lambda: shares([0.1, 1.0], 4),
            "shares: straggle = [0.1, 1.0] is not in [0, 1); "
            "try a number in [0, 1), or 2 of them",
        ),
        (
            lambda: shares([0.1, [0.2]], 4),
            "shares: straggle must be numbers, got [0.1, [0.2]]; "
            "try a number in [0, 1)",
        ),
        (
            lambda: interval([1.0, 2.0], 4),
            "interval: shares must be mass that sums to parts = 4; "
            "try shares(straggle, parts=4)",
        ),
        (
            lambda: chain([[1.0]], 1),
            "chain: shares must be mass that sums to parts = 1; "
            "try shares(straggle, parts=1)",
        ),
        (
            lambda: gram_aware([[1, 0], [1, 0]], 0.1, 0.5),
            "gram_aware: no worker holds part 1; "
            "try a non-zero in every column of held",
        ),
        (
            lambda: gram_aware("all", 0.1, 0.5),
            "gram_aware: held is not a matrix of who holds what; "
            "try shape (workers, parts)",
        ),
        (
            lambda: gram_aware([[1]], 0.1, 1.5),
            "gram_aware: correlation = 1.5 is none; try a number from -1 to 1",
        ),
        (
            lambda: gram_aware([[1]], 0.1, float("nan")),
            "gram_aware: correlation = nan is no number; try a number from -1 to 1",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text
