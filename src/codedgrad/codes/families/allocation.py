r"""Who carries how much: mass for workers that are late with different probability.

Worker $i$ is late with probability $p_i$, by itself. Let $\alpha_{ij}$ be the mean
weight it contributes to part $j$; the sum is right on average if every column of
$\alpha$ sums to 1. With the odds to be heard, $s_i = (1 - p_i) / p_i$, the squared
error is $\sum_i \alpha_i^\top G \alpha_i / s_i$ on average, $G$ the inner products of
the part gradients. Where those are all alike, only the row sums $Y_i$ matter, and
$Y_i = n s_i / \sum_l s_l$ is best (Song and Choi, arXiv 2510.22539).

Where the shares go is a choice of three. `common` and `chain` are the paper's, as its
published code has them; `interval` is ours. All hold at most parts + workers - 1
copies and are equally good for equal gradients. Only `interval` has no negative mass,
which is what costs the other two dear once gradients differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from codedgrad.codes.arguments import probabilities, whole
from codedgrad.codes.decoders import Floats
from codedgrad.codes.sparse import Matrix, entries, tidy
from codedgrad.errors import InvalidCode

_RAREST = 1e-3  # nobody is taken to be late more rarely, nor in time
_SLIVER = 1e-12  # mass, for each part there is, that is rounding
_MOST_ALIKE = 0.95


def odds(straggle: float | Sequence[float] | Floats) -> Floats:
    r"""Return the odds to be heard, $(1 - p_i) / p_i$, shape (workers,).

    Probabilities are first brought into [0.001, 0.999]: an estimate never knows more.

    Example:
        >>> odds([0.2, 0.5]).tolist()
        [4.0, 1.0]
    """
    p = np.clip(_probabilities("odds", straggle), _RAREST, 1.0 - _RAREST)
    return np.asarray((1.0 - p) / p)


def shares(
    straggle: Sequence[float] | Floats, parts: int, cap: float | None = None
) -> Floats:
    r"""Return the mass of every worker, $Y_i = n s_i / S$, shape (workers,).

    With a cap $m$ it is $\min(m, \nu s_i)$, with $\nu$ such that the sum is $n$.

    Args:
        straggle: Probability to be late of every worker, in [0, 1).
        parts: Number of parts, $n$: the sum of all mass.
        cap: The most mass one worker may carry, in parts; None for no limit.

    Example:
        >>> shares([0.1, 0.2, 0.4, 0.5], parts=4).round(6).tolist()
        [2.322581, 1.032258, 0.387097, 0.258065]
        >>> shares([0.1, 0.2, 0.4, 0.5], parts=4, cap=1.5).round(6).tolist()
        [1.5, 1.5, 0.6, 0.4]
    """
    s = odds(_probabilities("shares", straggle))
    n = whole("shares", "parts", parts, least=1)
    most = np.inf if cap is None else _cap(cap, s.size, n)
    full = np.zeros(s.size, dtype=np.bool_)
    while True:  # once for every worker at most
        rest = n - np.where(full, most, 0.0).sum()
        Y = np.where(full, most, rest * s / s[~full].sum())
        above = ~full & (most * (1.0 + _SLIVER) < Y)
        if not above.any():
            return Y
        full |= above


def interval(shares: ArrayLike, parts: int) -> Matrix:
    r"""Lay the shares end to end over the parts, in the order of the workers.

    Worker $i$ has $[Z_{i-1}, Z_i)$ with $Z_i = Y_1 + \dots + Y_i$, and of part $j$
    what of that is in $[j-1, j)$. No mass is negative.

    Returns:
        The mass of every worker and part, sparse, shape (workers, parts).

    Example:
        >>> interval([1.5, 0.5], parts=2).toarray()
        array([[1. , 0.5],
               [0. , 0.5]])
    """
    Y, n = _shares("interval", shares, parts)
    Z = np.cumsum(Y)
    Z *= n / Z[-1]
    whole_parts = np.rint(Z)
    Z = np.where(np.abs(Z - whole_parts) <= _SLIVER * n, whole_parts, Z)
    borders = np.unique(np.concatenate([[0.0], Z, np.arange(1.0, n + 1)]))
    low, high = borders[:-1], borders[1:]
    part = np.floor(low)
    mass = (high - part) - (low - part)  # within the part: columns sum to 1
    worker = np.searchsorted(Z, low, side="right")
    return entries(worker, part.astype(np.intp), mass, (Y.size, n))


def common(shares: ArrayLike, parts: int) -> Matrix:
    """Let all workers share the first part, each having others to itself (scheme I).

    Every worker but the last has one part of its own, the first one also what parts
    there are in excess of workers; the first part takes up what its share then lacks,
    which may be negative.

    Returns:
        The mass of every worker and part, sparse, shape (workers, parts).

    Example:
        >>> common([1.5, 0.5], parts=2).toarray()
        array([[0.5, 1. ],
               [0.5, 0. ]])
    """
    Y, n = _shares("common", shares, parts)
    own = _own_parts(Y.size, n)
    workers = np.concatenate([np.arange(Y.size), np.repeat(np.arange(Y.size), own)])
    columns = np.concatenate([np.zeros(Y.size, dtype=np.intp), np.arange(1, n)])
    mass = np.concatenate([_no_slivers(Y - own, n), np.ones(n - 1)])
    return entries(workers, columns, mass, (Y.size, n))


def chain(shares: ArrayLike, parts: int) -> Matrix:
    """Let every worker share its last part with the next one (scheme II).

    They have as many parts as with `common`. A worker brings its first part to 1,
    has the inner ones alone, and puts what is left of its share on its last, which may
    be negative.

    Returns:
        The mass of every worker and part, sparse, shape (workers, parts).

    Example:
        >>> chain([1.5, 0.5], parts=2).toarray()
        array([[1. , 0.5],
               [0. , 0.5]])
    """
    Y, n = _shares("chain", shares, parts)
    own = _own_parts(Y.size, n)
    last = np.cumsum(own)  # its last part; the first one is that of the worker before
    mass = np.ones(n + Y.size - 1)
    begin = np.concatenate([[0], np.cumsum(own + 1)[:-1]])
    there = np.cumsum(Y - own)  # on its last part, after this worker
    mass[begin] = 1.0 - np.concatenate([[0.0], there[:-1]])
    mass[begin + own] = np.where(own > 0, there, Y)
    workers = np.repeat(np.arange(Y.size), own + 1)
    columns = np.arange(mass.size) - begin[workers] + (last - own)[workers]
    return entries(workers, columns, _no_slivers(mass, n), (Y.size, n))


ALLOCATIONS = {"interval": interval, "common": common, "chain": chain}
"""Where shares go, by name."""


def gram_aware(
    held: Any, straggle: float | Sequence[float] | Floats, correlation: float
) -> Matrix:
    r"""Return the mass of least error for parts that are held where they are.

    Minimises $\sum_i \alpha_i^\top G \alpha_i / s_i$ with columns summing to 1, for
    $G = (1 - \rho) I + \rho \mathbf{1} \mathbf{1}^\top$: with $P_i$ the parts of worker
    $i$, $\alpha_i = s_i G_{P_i P_i}^{-1} \nu_{P_i}$, and $\nu$ from one system of
    the size of the parts. $\rho = 0$ divides every part in proportion to the odds;
    towards 1 the row sums become those of `shares`, if the parts held allow it. Row
    sums are free: where parts were laid out with a cap, they may well be above it.

    Args:
        held: Which worker holds which part, shape (workers, parts), dense or sparse.
        straggle: Probability to be late, one for all or one per worker.
        correlation: $\rho$, how alike part gradients are. Taken into the range in
            which it can be inverted: up to 0.95, and above $-0.95 / (m - 1)$ for $m$
            parts with one worker.

    Example:
        >>> gram_aware([[1, 1], [1, 0]], [0.2, 0.5], correlation=0.0).toarray()
        array([[0.8, 1. ],
               [0.2, 0. ]])
    """
    H = _ones_where(held)
    k, n = H.shape
    absent = np.setdiff1d(np.arange(n), H.indices)
    if absent.size:
        problem = f"no worker holds part {absent[0]}"
        raise InvalidCode("gram_aware", problem, "a non-zero in every column of held")
    s = odds(probabilities("gram_aware", "straggle", straggle, k))
    sizes = np.diff(H.indptr)
    rho = correlated("gram_aware", correlation, int(sizes.max()))
    off = rho / (1.0 - rho + rho * sizes)  # G^-1 is I - off 11^T, up to a factor
    rows = np.repeat(np.arange(k), sizes)
    scaled = H.copy()
    scaled.data *= (s * off)[rows]
    system = np.diag(np.asarray(H.T @ s)) - (H.T @ scaled).toarray()
    nu = np.linalg.solve(system, np.ones(n))
    mass = s[rows] * (nu[H.indices] - (off * (H @ nu))[rows])
    return entries(rows, H.indices, mass, (k, n))


def correlated(family: str, correlation: object, size: int) -> float:
    """Return the correlation nearest to this one that `size` gradients can have."""
    rho = _number(family, "correlation", correlation, "a number from -1 to 1")
    if abs(rho) > 1.0:
        problem = f"correlation = {rho:g} is none"
        raise InvalidCode(family, problem, "a number from -1 to 1")
    least = -_MOST_ALIKE / max(1, size - 1)
    return float(np.clip(rho, least, _MOST_ALIKE))


def _number(family: str, name: str, value: object, advice: str) -> float:
    number = math.nan
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        number = float(value)
    if math.isnan(number):
        raise InvalidCode(family, f"{name} = {value!r} is no number", advice)
    return number


def _ones_where(held: Any) -> Matrix:
    try:
        H = tidy(held)
    except (TypeError, ValueError):  # no numbers, or ragged
        H = tidy(np.zeros((0, 0)))
    if H.ndim != 2 or H.nnz == 0:
        problem = "held is not a matrix of who holds what"
        raise InvalidCode("gram_aware", problem, "shape (workers, parts)")
    H.data[:] = 1.0
    return H


def _probabilities(family: str, straggle: object) -> Floats:
    try:
        count = max(1, np.size(straggle))  # type: ignore[arg-type]  # of anything
    except ValueError:  # ragged
        count = 1
    return probabilities(family, "straggle", straggle, count)


def _cap(cap: object, workers: int, parts: int) -> float:
    advice = f"a cap of {parts / workers:.4g} or more"
    most = _number("shares", "cap", cap, advice)
    if most * workers < parts * (1.0 - _SLIVER):
        problem = f"{workers} workers of cap = {most:g} cannot carry {parts} parts"
        raise InvalidCode("shares", problem, advice)
    return most


def _shares(family: str, given: ArrayLike, parts: int) -> tuple[Floats, int]:
    n = whole(family, "parts", parts, least=1)
    Y = np.asarray(given, dtype=np.float64)
    if Y.ndim != 1 or not np.all(Y >= 0) or not abs(Y.sum() - n) <= 1e-9 * n:
        problem = f"shares must be mass that sums to parts = {n}"
        raise InvalidCode(family, problem, f"shares(straggle, parts={n})")
    return Y, n


def _own_parts(workers: int, parts: int) -> NDArray[np.intp]:
    """Return how many parts each has besides the one shared, shape (workers,)."""
    own = (np.arange(workers) < min(parts, workers) - 1).astype(np.intp)
    own[0] += max(0, parts - workers)
    return own


def _no_slivers(mass: Floats, parts: int) -> Floats:
    return np.where(np.abs(mass) <= _SLIVER * parts, 0.0, mass)
