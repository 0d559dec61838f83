"""Codes of your own: from any matrix, once it has shown that it decodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from codedgrad.codes.amplification import LIMIT, factors
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import EXACT, Floats, LeastSquares, residuals
from codedgrad.codes.families.cyclic import better_choices
from codedgrad.codes.families.null_space import null_space_code
from codedgrad.codes.late_sets import heard_without, late_sets
from codedgrad.codes.sparse import Matrix, tidy
from codedgrad.errors import IllConditioned, InvalidCode


def from_matrix(
    B: ArrayLike | Matrix,
    tolerance: int | None,
    *,
    owner: Iterable[int] = (),
    name: str = "from_matrix",
    accept_amplification: bool = False,
) -> Code:
    """Build a code from its coefficients, and check what it promises.

    All sets of `tolerance` late workers are tried, or, beyond 100,000 sets, every
    window of neighbours and 10,000 random ones. It may well survive more than that.

    Args:
        B: Coefficients, shape (messages, parts), real, dense or sparse; copied.
        tolerance: Late workers it survives; None for no such promise.
        owner: The worker of each message; by default message = worker.
        name: What the code is to be called.
        accept_amplification: Build the code even if it loses digits.

    Example:
        >>> from codedgrad.codes import decode
        >>> B = [[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]]
        >>> code = from_matrix(B, tolerance=1)
        >>> [(m, round(a, 9)) for m, a in decode(code, heard=[0, 1]).weights]
        [(0, 2.0), (1, -1.0)]
        >>> from_matrix(B, tolerance=2)
        Traceback (most recent call last):
        codedgrad.errors.InvalidCode: from_matrix: cannot decode without workers \
[0, 1]; try a smaller tolerance or another matrix
    """
    matrix = tidy(_real(B, name, "B"))
    try:
        owner = tuple(owner)
    except TypeError:
        problem = f"owner must be the workers of the messages, got {owner!r}"
        raise InvalidCode(name, problem, "a tuple of workers") from None
    code = Code(name, matrix, tolerance, LeastSquares(matrix, cache_bytes=0), owner)
    _check(code, accept_amplification)
    return replace(code, decoder=LeastSquares(matrix))


def from_null_space(
    H: ArrayLike, *, name: str = "from_null_space", accept_amplification: bool = False
) -> Code:
    """Build the cyclic code whose rows are orthogonal to those of `H`, and check it.

    Args:
        H: Shape (tolerance, workers), real, dense or sparse; rows must sum to 0.
        name: What the code is to be called.
        accept_amplification: Build the code even if it loses digits.

    Example:
        >>> from_null_space([[1, 1, -2]]).B.toarray()
        array([[ 1. , -1. ,  0. ],
               [ 0. ,  1. ,  0.5],
               [ 2. ,  0. ,  1. ]])
    """
    null: Floats = tidy(_real(H, name, "H")).toarray()
    if not 0 < null.shape[0] < null.shape[1] or not np.all(np.isfinite(null)):
        problem = f"H must be a finite matrix, got shape {null.shape}"
        raise InvalidCode(name, problem, "shape (tolerance, workers)")
    if not np.allclose(null.sum(axis=1), 0, atol=1e-9 * np.abs(null).max()):
        advice = "H - H.mean(axis=1, keepdims=True)"
        raise InvalidCode(name, "the rows of H do not sum to 0", advice)
    code = null_space_code(null, name)
    _check(code, accept_amplification)
    return code


def _real(given: Any, name: str, called: str) -> Any:
    """Return a real matrix, dense or sparse, or say that it is none."""
    from scipy.sparse import issparse

    try:
        array: Any = given if issparse(given) else np.asarray(given)
    except ValueError:  # ragged
        array = np.empty(0)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        problem = f"{called} is not a matrix of real numbers"
        raise InvalidCode(name, problem, "a 2-d array")
    return array.astype(np.float64)


def _check(code: Code, accept_amplification: bool) -> None:
    """Raise unless the code keeps its promise, in one pass over the late sets."""
    if code.tolerance is None:
        return
    worst = 0.0
    for late in late_sets(code.workers, code.tolerance).batches:
        weights = code.decoder.weights(heard_without(late, code.owner))
        fails = ~(residuals(code.B, weights) <= EXACT)
        if fails.any():
            missed = sorted(late[np.argmax(fails)].tolist())
            problem = f"cannot decode without workers {missed}"
            advice = "a smaller tolerance or another matrix"
            raise InvalidCode(code.name, problem, advice)
        worst = max(worst, float(np.max(factors(code, weights))))
    if worst > LIMIT and not accept_amplification:
        square = code.parts == code.workers and code.tolerance > 0
        choices = better_choices(code.workers, code.tolerance) if square else []
        raise IllConditioned(code.name, worst, LIMIT, choices)
