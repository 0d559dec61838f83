r"""Closed forms to judge codes by.

The residual is $\lVert c - \mathbf 1 \rVert^2$ with $c_j$ the weight part $j$ ends up
with; it is the squared error of the sum, in units of the squared norm of a part
gradient, when part gradients are orthogonal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from codedgrad.codes.arguments import divisors, probabilities, whole
from codedgrad.errors import InvalidCode

__all__ = [
    "bernoulli_residual",
    "expander_residual",
    "load",
    "one_step_residual",
    "repetition_residual",
    "stochastic_residual",
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
