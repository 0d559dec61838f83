"""A code of your own: any matrix, once it has shown that it decodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from codedgrad.codes.amplification import refuse_above_limit
from codedgrad.codes.arguments import whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import LeastSquares
from codedgrad.codes.late_sets import heard_without, late_sets
from codedgrad.codes.sparse import tidy
from codedgrad.errors import InvalidCode


def from_matrix(
    B: ArrayLike,
    tolerance: int | None,
    *,
    owner: Iterable[int] = (),
    name: str = "from_matrix",
    accept_amplification: bool = False,
) -> Code:
    """Build a code from its coefficients, and check what it promises.

    All sets of `tolerance` late workers are tried, or, beyond 100,000 sets, every
    window of neighbours and 10,000 random ones.

    Args:
        B: Coefficients, shape (messages, parts), dense or sparse; copied.
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
    try:
        matrix = tidy(B if issparse(B) else np.atleast_2d(np.asarray(B, float)))
    except (TypeError, ValueError):
        raise InvalidCode(name, "B is not a matrix of numbers", "a 2-d array") from None
    if tolerance is not None:
        tolerance = whole(name, "tolerance", tolerance, least=0)
    code = Code(name, matrix, tolerance, LeastSquares(matrix), tuple(owner))
    if tolerance is None:
        return code
    for late in late_sets(code.workers, tolerance).batches:
        decodes = code.decoder.decodable(heard_without(late, code.owner))
        if not decodes.all():
            worst = sorted(late[np.argmin(decodes)].tolist())
            problem = f"cannot decode without workers {worst}"
            raise InvalidCode(name, problem, "a smaller tolerance or another matrix")
    if accept_amplification:
        return code
    return refuse_above_limit(code, lambda: ["cyclic or fractional"])
