r"""Closed forms to judge codes by.

The residual is $\lVert c - \mathbf 1 \rVert^2$ with $c_j$ the weight part $j$ ends up
with; it is the squared error of the sum, in units of the squared norm of a part
gradient, when part gradients are orthogonal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from codedgrad.codes.families.allocation import odds
from codedgrad.errors import InvalidCode


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


def _positive(family: str, name: str, value: object) -> float:
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not real or not 0.0 < value < math.inf:  # type: ignore[operator]  # if real
        raise InvalidCode(family, f"{name} = {value!r}", "a number above 0")
    return float(value)  # type: ignore[arg-type]  # it is real
