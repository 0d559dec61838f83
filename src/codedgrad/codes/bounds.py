r"""Closed forms to judge codes by.

The residual is $\lVert c - \mathbf 1 \rVert^2$ with $c_j$ the weight part $j$ ends up
with; it is the squared error of the sum, in units of the squared norm of a part
gradient, when part gradients are orthogonal. What is known of trees is worked out in
`tree_bounds` and `tree_times`; how soon any step could end, in `clairvoyant` and
`ring_bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from codedgrad.codes.allocation import odds
from codedgrad.codes.arguments import divisors, probabilities, whole
from codedgrad.codes.clairvoyant import clairvoyant, clairvoyant_whole
from codedgrad.codes.ring_bounds import ring_bound
from codedgrad.codes.tree_bounds import (
    relay_load,
    star_failure,
    tree_failure,
    tree_load,
    tree_most_parts,
)
from codedgrad.codes.tree_times import (
    latency_to_beat_ring,
    message_to_beat_ring,
    ring_seconds,
    star_compute,
    star_receive,
    star_seconds,
    tree_compute,
    tree_receive,
    tree_seconds,
)
from codedgrad.errors import InvalidCode

__all__ = [
    "bernoulli_residual",
    "clairvoyant",
    "clairvoyant_whole",
    "convergence",
    "expander_residual",
    "latency_to_beat_ring",
    "load",
    "message_to_beat_ring",
    "one_step_residual",
    "relay_load",
    "repetition_residual",
    "ring_bound",
    "ring_seconds",
    "shrink",
    "star_compute",
    "star_failure",
    "star_receive",
    "star_seconds",
    "stationarity",
    "stochastic_residual",
    "tree_compute",
    "tree_failure",
    "tree_load",
    "tree_most_parts",
    "tree_receive",
    "tree_seconds",
    "unbiased_error",
    "unbiased_residual",
]


def load(workers: int, parts: int, tolerance: int) -> int:
    r"""Return the least load of an exact code: $\lceil k (s+1) / n \rceil$.

    Every part must be with $s + 1$ workers, or its holders could all be late.

    Example:
        >>> load(workers=20, parts=20, tolerance=2)
        3
    """
    n = whole("load", "workers", workers, least=1)
    k = whole("load", "parts", parts, least=1)
    s = whole("load", "tolerance", tolerance, least=0, most=n - 1)
    return -(-k * (s + 1) // n)


def one_step_residual(workers: int, parts: int, copies: int, heard: int) -> float:
    r"""Return the mean residual of one-step decoding: $k (n-d)(n-r) / (r d (n-1))$.

    The mean is over all sets of $r$ of $n$ messages, for any code of unit
    coefficients in which each of the $k$ parts is with exactly $d$ workers.

    Example:
        >>> round(one_step_residual(workers=10, parts=10, copies=2, heard=8), 6)
        1.111111
    """
    n, k, d, r = _counts("one_step_residual", workers, parts, copies, heard)
    return 0.0 if n == 1 else k * (n - d) * (n - r) / (r * d * (n - 1))


def bernoulli_residual(workers: int, parts: int, copies: int, heard: int) -> float:
    r"""Return the mean residual of a Bernoulli code, one-step: $k (n-d) / (r d)$.

    The mean is over the draw of the code; any $r$ messages are as good as others.

    Example:
        >>> bernoulli_residual(workers=10, parts=10, copies=2, heard=8)
        5.0
    """
    n, k, d, r = _counts("bernoulli_residual", workers, parts, copies, heard)
    return k * (n - d) / (r * d)


def repetition_residual(workers: int, copies: int, heard: int) -> float:
    r"""Return the mean residual of fractional repetition: $n\binom{n-d}{r}/\binom nr$.

    A part is missing if none of the $d$ members of its group is among the $r$ heard.

    Example:
        >>> round(repetition_residual(workers=10, copies=2, heard=8), 6)
        0.222222
    """
    n, _, d, r = _counts("repetition_residual", workers, workers, copies, heard)
    if n % d:
        problem = f"copies = {d} must divide workers = {n}"
        advice = f"copies in {divisors(n)}"
        raise InvalidCode("repetition_residual", problem, advice)
    return n * math.comb(n - d, r) / math.comb(n, r)


def stochastic_residual(
    workers: int, copies: int, straggle: float | Sequence[float]
) -> float:
    r"""Return the mean residual of SGC: $\frac1d \sum_i p_i / (1 - p_i)$.

    The mean is over who is late, each worker by itself with probability $p_i$, and
    over the random placement; for a placement of equal loads it holds as it is.

    Example:
        >>> stochastic_residual(workers=10, copies=2, straggle=0.5)
        5.0
    """
    n = whole("stochastic_residual", "workers", workers, least=1)
    d = whole("stochastic_residual", "copies", copies, least=1, most=n)
    p = probabilities("stochastic_residual", "straggle", straggle, n)
    return float(np.sum(p / (1 - p)) / d)


def unbiased_residual(copies: int, straggle: float, *, fixed: bool) -> float:
    r"""Return the least mean residual per part of any unbiased code.

    With weights that do not depend on who else was heard (`fixed`) it is
    $p / (d (1-p))$; with any weights, $p^d / (1 - p^d)$, for $d$ copies of a part and
    workers late with probability $p$ (Glasgow and Wootters).

    Example:
        >>> unbiased_residual(copies=2, straggle=0.5, fixed=True)
        0.5
        >>> round(unbiased_residual(copies=2, straggle=0.5, fixed=False), 6)
        0.333333
    """
    d = whole("unbiased_residual", "copies", copies, least=1)
    p = float(probabilities("unbiased_residual", "straggle", straggle, 1)[0])
    return p / (d * (1 - p)) if fixed else p**d / (1 - p**d)


def expander_residual(
    workers: int, degree: int, second_eigenvalue: float, late: int
) -> float:
    r"""Bound the residual of a graph code, one-step: $(\lambda/d)^2 n s / (n - s)$.

    Holds for every set of $s$ late workers when workers and parts are the vertices
    of a $d$-regular graph whose other eigenvalues are at most $\lambda$ in magnitude
    (Raviv et al., arXiv 1707.03858).

    Example:
        >>> expander_residual(workers=4, degree=3, second_eigenvalue=1.0, late=2)
        0.4444444444444444
    """
    n = whole("expander_residual", "workers", workers, least=2)
    d = whole("expander_residual", "degree", degree, least=1, most=n - 1)
    s = whole("expander_residual", "late", late, least=0, most=n - 1)
    real = isinstance(second_eigenvalue, int | float | np.number)
    if not real or not 0 <= second_eigenvalue <= d:
        problem = f"second_eigenvalue = {second_eigenvalue} is not a magnitude"
        raise InvalidCode("expander_residual", problem, f"a number from 0 to {d}")
    return (second_eigenvalue / d) ** 2 * n * s / (n - s)


def unbiased_error(straggle: Sequence[float]) -> float:
    r"""Return the least relative error of any unbiased code of fixed weights: $1/S$.

    $S = \sum_i (1 - p_i) / p_i$. It is the mean squared error of the sum, relative to
    its squared norm, and holds for all gradients. Codes in which all workers hold all
    parts reach it; with fewer copies it is reached where gradients are alike. Both need
    shares in proportion to the odds, uncapped; `expected(code, straggle).aligned` is
    the error of any code where gradients are alike.

    Example:
        >>> round(unbiased_error([0.1, 0.2, 0.4, 0.5]), 6)
        0.064516
    """
    return float(1.0 / odds(straggle).sum())


def shrink(straggle: Sequence[float], strength: float = 1.0) -> float:
    r"""Return by how much to shrink an unbiased sum: $\kappa = l S / (1 + l S)$.

    With strength $l = 1$ it is the linear estimate of least squared error, and that
    is $1 / (1 + S)$, below the $1/S$ of the unbiased one. Song and Choi feed the second
    moment of Adam with it ("two-track decoding"). It is for shares that are uncapped;
    any other unbiased code has $l / (l + e)$, $e$ its error as `expected` has it.

    Example:
        >>> round(shrink([0.1, 0.2, 0.4, 0.5]), 6)
        0.939394
    """
    weight = _positive("shrink", "strength", strength) * odds(straggle).sum()
    return float(weight / (1.0 + weight))


def convergence(
    steps: int,
    parts: int,
    straggle: Sequence[float] | None = None,
    *,
    convexity: float,
    largest: float,
    error: float | None = None,
) -> float:
    r"""Bound the mean squared distance to the optimum: $4 M / (\lambda^2 T)$.

    For $\lambda$-strongly convex losses after $T$ steps of size $1 / (\lambda t)$, with
    $M = C n^2 (1 + e)$ no less than the mean squared norm of the estimate: fixed
    weights, right on average, no negative mass (the allocation `interval`), and no part
    gradient ever of a squared norm above $C$. The error $e$ is $1/S$ if shares are
    uncapped, and more for all other codes: those need an `error`. The form is that of
    Song and Choi; the constants are ours.

    Args:
        steps: $T$.
        parts: $n$.
        straggle: Probability to be late of every worker; or else give an error.
        convexity: $\lambda$, of the sum over all parts.
        largest: $C$.
        error: $e$, of one step where gradients are alike, relative: of a code with a
            cap, or any other, it is `expected(code, straggle).aligned`.

    Example:
        >>> convergence(100, 2, [0.5, 0.5], convexity=1.0, largest=1.0)
        0.24
        >>> convergence(100, 2, error=0.5, convexity=1.0, largest=1.0)
        0.24
    """
    T = whole("convergence", "steps", steps, least=1)
    n = whole("convergence", "parts", parts, least=1)
    strength = _positive("convergence", "convexity", convexity)
    squared = _positive("convergence", "largest", largest) * n**2
    M = squared * (1.0 + _error("convergence", straggle, error))
    return float(4.0 * M / (strength**2 * T))


def stationarity(
    steps: int,
    parts: int,
    straggle: Sequence[float] | None = None,
    *,
    smoothness: float,
    largest: float,
    size: float,
    gap: float,
    error: float | None = None,
) -> float:
    r"""Bound the mean squared gradient over the first steps of a constant size.

    It is at most $2 (L_0 - L^*) / (\gamma T) + \mu \gamma C n^2 e$ for $T$ steps of
    size $\gamma \le 1/\mu$ and any $\mu$-smooth loss, with codes and $e$ as for
    `convergence`: $1/S$ for shares that are uncapped. The constants are ours.

    Args:
        steps: $T$.
        parts: $n$.
        straggle: Probability to be late of every worker; or else give an error.
        smoothness: $\mu$, of the sum over all parts.
        largest: $C$, no less than the squared norm of any part gradient.
        size: $\gamma$.
        gap: $L_0 - L^*$, the loss at the start above the least one.
        error: $e$, as for `convergence`.

    Example:
        >>> options = {"smoothness": 1.0, "largest": 1.0, "size": 0.1, "gap": 5.0}
        >>> stationarity(1000, 2, [0.5, 0.5], **options)
        0.30000000000000004
    """
    T = whole("stationarity", "steps", steps, least=1)
    n = whole("stationarity", "parts", parts, least=1)
    mu = _positive("stationarity", "smoothness", smoothness)
    step = _positive("stationarity", "size", size)
    if step > 1.0 / mu:
        problem = f"size = {step:g} is more than 1 / smoothness"
        raise InvalidCode("stationarity", problem, f"a size up to {1.0 / mu:g}")
    noise = _positive("stationarity", "largest", largest) * n**2
    noise *= _error("stationarity", straggle, error)
    start = 2.0 * _positive("stationarity", "gap", gap) / (step * T)
    return float(start + mu * step * noise)


def _error(family: str, straggle: Sequence[float] | None, error: float | None) -> float:
    """Return the relative error of a step where gradients are alike."""
    if (straggle is None) == (error is None):
        problem = "the noise of a step must be given, and once"
        raise InvalidCode(family, problem, "either straggle or error")
    if straggle is not None:
        return unbiased_error(straggle)
    return 0.0 if error == 0 else _positive(family, "error", error)


def _positive(family: str, name: str, value: object) -> float:
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not real or not 0.0 < value < math.inf:  # type: ignore[operator]  # if real
        raise InvalidCode(family, f"{name} = {value!r}", "a number above 0")
    return float(value)  # type: ignore[arg-type]  # it is real


def _counts(
    family: str, workers: int, parts: int, copies: int, heard: int
) -> tuple[int, int, int, int]:
    n = whole(family, "workers", workers, least=1)
    return (
        n,
        whole(family, "parts", parts, least=1),
        whole(family, "copies", copies, least=1, most=n),
        whole(family, "heard", heard, least=1, most=n),
    )
