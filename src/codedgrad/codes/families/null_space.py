r"""Cyclic codes from a chosen null space, as in Tandon et al. (ICML 2017).

For $H$ ($s \times n$) with $H \mathbf 1 = 0$, row $i$ of $B$ is the vector with
support $i, \dots, i+s$ (mod $n$), first entry 1, and $H B_i = 0$. Any $n - s$ rows
span the null space of $H$, which holds the ones vector, if any $s$ columns of $H$ are
independent. Those of a Gaussian $H$ are, with probability 1, but it amplifies rounding
badly.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from codedgrad.codes.amplification import amplification
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Floats, NullSpace
from codedgrad.codes.sparse import entries
from codedgrad.errors import InvalidCode

_DRAWS = 200


def null_space_code(H: Floats, name: str) -> Code:
    """Build the cyclic code whose rows are orthogonal to those of `H`, unchecked."""
    s, n = H.shape
    column = (np.arange(n)[:, None] + np.arange(s + 1)) % n
    blocks = H.T[column[:, 1:]].swapaxes(1, 2)  # (n, s, s): H on the rest of a support
    try:
        rest = -np.linalg.solve(blocks, H.T[..., None])[..., 0]
    except np.linalg.LinAlgError:
        problem = f"{s} neighbouring columns of H are linearly dependent"
        raise InvalidCode(name, problem, "another H") from None
    values = np.hstack([np.ones((n, 1)), rest])
    rows = np.repeat(np.arange(n), s + 1)
    B = entries(rows, column.ravel(), values.ravel(), (n, n))
    U, sizes, Vt = np.linalg.svd(B.toarray())
    kept = n - s
    a0 = U[:, :kept] @ (Vt[:kept].sum(axis=1) / sizes[:kept])
    return Code(name, B, s, NullSpace(B, U[:, kept:], a0))


def draw(workers: int, tolerance: int, seed: int | tuple[int, int], name: str) -> Code:
    """Return the papers' code: a Gaussian null space, whatever comes out."""
    H = np.random.default_rng(seed).standard_normal((tolerance, workers))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    return null_space_code(H, name)


def best_draw(
    workers: int, tolerance: int, seed: int, name: str, below: float = np.inf
) -> Code | None:
    """Return the draw that amplifies least of 200, if it is below `below`.

    Only draws all of whose straggler sets were looked at compete: their worst set
    may be any, so that a sample of sets would flatter them.
    """
    winner = _winner(workers, tolerance, seed, below)
    return None if winner is None else draw(workers, tolerance, (seed, winner), name)


@lru_cache(maxsize=1024)
def _winner(workers: int, tolerance: int, seed: int, below: float) -> int | None:
    winner = None
    for number in range(_DRAWS):
        code = draw(workers, tolerance, (seed, number), "draw")
        found = amplification(code, stop_above=below)
        if found.exact and found.value < below:
            winner, below = number, found.value
    return winner
