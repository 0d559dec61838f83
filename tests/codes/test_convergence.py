"""Training with codes that are right on average, against what is promised of it."""

from collections.abc import Callable

import numpy as np
import pytest

from codedgrad.codes import Code, bounds, expected, heterogeneous
from codedgrad.codes.sparse import combine
from codedgrad.errors import InvalidCode

N, DIMENSION, CURVATURE = 10, 5, 2.0
T15 = np.exp(-0.5 * np.linspace(0.1, 2, N))
CENTRES = np.random.default_rng(0).standard_normal((N, DIMENSION))
OPTIMUM = CENTRES.mean(axis=0)
RADIUS = 4.0  # nothing ever leaves a ball of this radius around the optimum


def _weights(code: Code, steps: int, runs: int) -> np.ndarray:
    """Of the parts, shape (steps, runs, parts)."""
    heard = np.random.default_rng(1).random((steps * runs, N)) >= T15
    found = combine(code.decoder.weights(heard), code.B)
    return found.reshape(steps, runs, N)


def _gradient(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Of part j: curvature / parts x (x - its centre); weighted and summed."""
    return CURVATURE / N * (c.sum(axis=1, keepdims=True) * x - c @ CENTRES)


def _kept(x: np.ndarray) -> np.ndarray:
    far = np.linalg.norm(x - OPTIMUM, axis=1, keepdims=True)
    return OPTIMUM + (x - OPTIMUM) * np.minimum(1, RADIUS / far)


def _largest() -> float:
    """The largest squared norm that a part gradient has anywhere in the ball."""
    far = np.linalg.norm(CENTRES - OPTIMUM, axis=1).max() + RADIUS
    return float((CURVATURE / N * far) ** 2)


def _distances(code: Code, steps: int, runs: int) -> np.ndarray:
    """Mean squared distance after each step of size 1 / (curvature x step)."""
    x = np.tile(OPTIMUM + RADIUS / np.sqrt(DIMENSION), (runs, 1))
    found = []
    for step, c in enumerate(_weights(code, steps, runs), start=1):
        x = _kept(x - _gradient(x, c) / (CURVATURE * step))
        found.append(np.square(x - OPTIMUM).sum(axis=1).mean())
    return np.array(found)


def test_the_distance_falls_as_one_over_the_steps_and_stays_below_its_bound() -> None:
    found = _distances(heterogeneous(N, T15), steps=2000, runs=300)
    # 4 M / (lambda^2 T): the form is that of Song and Choi, the constants are ours.
    M = _largest() * N**2 * (1 + bounds.unbiased_error(T15))
    assert np.all(found <= 4 * M / (CURVATURE**2 * np.arange(1, 2001)))
    times = np.arange(100, 2001)
    slope = np.polyfit(np.log(times), np.log(found[99:]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.1)


def test_negative_mass_costs_distance_where_gradients_differ() -> None:
    plain, chain = (
        _distances(heterogeneous(N, T15, allocation=kind), steps=600, runs=300)
        for kind in ("interval", "chain")
    )
    assert chain[-1] > 3 * plain[-1]


def test_the_mean_squared_gradient_stays_below_its_bound() -> None:
    code, steps, size = heterogeneous(N, T15), 500, 0.05 / CURVATURE
    x = np.tile(OPTIMUM + RADIUS / np.sqrt(DIMENSION), (200, 1))
    gap = CURVATURE / 2 * RADIUS**2
    squared, largest = [], 0.0
    for c in _weights(code, steps, 200):
        squared.append(np.square(CURVATURE * (x - OPTIMUM)).sum(axis=1).mean())
        far = np.linalg.norm(x[:, None] - CENTRES, axis=2).max()
        largest = max(largest, (CURVATURE / N * far) ** 2)
        x = x - size * _gradient(x, c)
    for T in (50, 500):
        noise = largest * N**2 * bounds.unbiased_error(T15)
        assert np.mean(squared[:T]) <= 2 * gap / (size * T) + CURVATURE * size * noise


def test_the_bound_of_the_squared_norm_holds_for_codes_without_negative_mass() -> None:
    """E||ghat||^2 <= C n^2 (1 + 1/S): what bounds of convergence rest on."""
    heard = (np.arange(2**N)[:, None] >> np.arange(N)) & 1 == 1
    law = np.prod(np.where(heard, 1 - T15, T15), axis=1)
    code = heterogeneous(N, T15)
    c = combine(code.decoder.weights(heard), code.B)
    most = N**2 * (1 + bounds.unbiased_error(T15))
    rng = np.random.default_rng(0)
    for _ in range(20):
        G = rng.standard_normal((N, 3)) + rng.uniform(0, 3)
        G /= np.linalg.norm(G, axis=1, keepdims=True)  # C = 1
        assert law @ np.square(c @ G).sum(axis=1) <= most
    alike = law @ np.square(c @ np.ones((N, 1)))
    assert alike == pytest.approx(most)


def test_under_a_cap_the_squared_norm_is_bounded_by_the_error_of_the_code_itself() -> (
    None
):
    p = np.array([0.01] + [0.9] * 9)  # the odds of one are 891 times those of others
    code = heterogeneous(N, p, cap=2)
    error = expected(code, p).aligned
    assert error == pytest.approx(0.64, abs=0.001)
    assert bounds.unbiased_error(p) == pytest.approx(0.01)
    heard = (np.arange(2**N)[:, None] >> np.arange(N)) & 1 == 1
    law = np.prod(np.where(heard, 1 - p, p), axis=1)
    c = combine(code.decoder.weights(heard), code.B)
    alike = law @ np.square(c.sum(axis=1))  # for gradients all alike, C = 1
    found = N**2 * (1 + error)
    assert alike == pytest.approx(found)
    assert alike > 1.6 * N**2 * (1 + bounds.unbiased_error(p))
    rng = np.random.default_rng(0)
    for _ in range(20):
        G = rng.standard_normal((N, 3)) + rng.uniform(0, 3)
        G /= np.linalg.norm(G, axis=1, keepdims=True)
        assert law @ np.square(c @ G).sum(axis=1) <= found
    for by in (0.95, 1.05):  # what `shrink` says of other codes than its own
        best, other = 1 / (1 + error), by / (1 + error)
        errors = [law @ np.square(k * c.sum(axis=1) / N - 1) for k in (best, other)]
        assert errors[0] < errors[1]


def test_the_least_error_is_one_over_the_odds() -> None:
    S = np.sum((1 - T15) / T15)
    assert bounds.unbiased_error(T15) == pytest.approx(1 / S)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: bounds.shrink([0.1], strength=-1),
            "shrink: strength = -1; try a number above 0",
        ),
        (
            lambda: bounds.unbiased_error([0.1, 2.0]),
            "odds: straggle = [0.1, 2.0] is not in [0, 1); "
            "try a number in [0, 1), or 2 of them",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text
