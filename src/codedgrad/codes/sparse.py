"""The one sparse format of codes: rows compressed, float64, sorted, no stored zeros.

scipy is imported where it is used, here and in the other modules of codes: workers
start from this package and never build a code, and it takes as long to import as all
the rest of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Matrix: TypeAlias = "csr_array[np.float64, tuple[int, int]]"


def entries(
    rows: NDArray[np.integer[Any]],
    columns: NDArray[np.integer[Any]],
    values: ArrayLike,
    shape: tuple[int, int],
) -> Matrix:
    """Return the matrix with `values` at (`rows`, `columns`)."""
    from scipy.sparse import csr_array

    data = np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)
    matrix: Matrix = csr_array((data, (rows, columns)), shape=shape)
    return tidy(matrix)


def combine(weights: NDArray[Any], matrix: Matrix) -> NDArray[Any]:
    """Return `weights` @ `matrix`, dense, for rows of weights."""
    return np.asarray(matrix.T @ weights.T).T


def tidy(matrix: Any) -> Matrix:
    """Return a copy of any matrix in the one format."""
    from scipy.sparse import csr_array

    result: Matrix = csr_array(matrix, dtype=np.float64, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def repeated(matrix: Matrix, times: int) -> Matrix:
    """Return the matrix with `matrix` along its diagonal, again and again."""
    from scipy.sparse import eye_array, kron

    return tidy(kron(eye_array(times), matrix))
