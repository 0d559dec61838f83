r"""How soon a step could end for whoever knows all times beforehand.

Worker $i$ takes $a_i$ seconds to begin with and $b_i$ for the uncoded load. A
clairvoyant knows both, splits the work at will, sends in no time and stops everybody at
once. No exact scheme is faster, codes included, with the same times: all parts must be
computed by somebody who answers, so what all have finished by the end of a step is no
less than the whole. That holds step by step, so no memory of earlier ones helps.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from codedgrad.codes.arguments import whole
from codedgrad.codes.decoders import Bools, Floats
from codedgrad.errors import InvalidCode

Ints: TypeAlias = NDArray[np.intp]

_NOTHING = 1e-300  # seconds; less is no time at all, its inverse would overflow


def clairvoyant(fixed: ArrayLike, unit: ArrayLike, pieces: int | None = None) -> Floats:
    r"""Return the least seconds that steps can take, (steps,).

    Work that can be split at will (fluid) needs the least $T$ with
    $\sum_i \max(0, T - a_i) / b_i \ge n$; where nothing is fixed that is the harmonic
    mean of $b$. With $c$ whole parts for each worker it is the least $T$ with
    $\sum_i \lfloor c \max(0, T - a_i) / b_i \rfloor \ge c n$, which is not less.

    Args:
        fixed: $a$, seconds paid once a step, (steps, workers); inf: dead.
        unit: $b$, seconds for the uncoded load, of the same shape; inf: dead.
        pieces: $c$; None: fluid.

    Returns:
        Seconds; inf where all are dead.

    Example:
        >>> clairvoyant([[0.0, 0.0]], [[1.0, 3.0]])
        array([1.5])
        >>> clairvoyant([[0.0, 0.0]], [[1.0, 3.0]], pieces=1)
        array([2.])
    """
    a, b = _seconds("clairvoyant", fixed, unit)
    n = a.shape[1]
    if pieces is not None:
        c = whole("clairvoyant", "pieces", pieces, least=1)
        return clairvoyant_whole(a, b / c, c * n)
    begin, each, at_once = _apart(a, b, n)
    with np.errstate(over="ignore"):  # longer than any number is for ever
        return np.asarray(np.minimum(_fluid(begin, each, n), at_once))


def clairvoyant_whole(fixed: ArrayLike, part: ArrayLike, parts: int) -> Floats:
    r"""Return the least seconds for so many whole parts, (steps,).

    It is the $k$-th of all moments $a_i + m p_i$, $m = 1, 2, \dots$, as floating-point
    numbers have them: no rounding separates it from a simulation that adds up the same
    seconds. So `part` is what that simulation takes, `Times.part(parts)`.

    Args:
        fixed: $a$, seconds paid once a step, (steps, workers); inf: dead.
        part: $p$, seconds for one part, of the same shape; inf: dead.
        parts: $k$, in all; any number, not only a multiple of the workers.

    Example:
        >>> clairvoyant_whole([[0.0, 0.5]], [[1.0, 1.0]], parts=3)
        array([2.])
    """
    a, p = _seconds("clairvoyant_whole", fixed, part)
    k = whole("clairvoyant_whole", "parts", parts, least=1)
    begin, each, at_once = _apart(a, p, k)
    ends = np.full(len(a), np.inf)
    some = np.isfinite(each).any(axis=1)
    with np.errstate(over="ignore"):
        ends[some] = _kth_moment(begin[some], each[some], k)
    return np.asarray(np.minimum(ends, at_once))


def _seconds(family: str, fixed: ArrayLike, each: ArrayLike) -> tuple[Floats, Floats]:
    """Return both as arrays, or say what they should be."""
    try:
        a, b = (np.asarray(x, dtype=np.float64) for x in (fixed, each))
    except (TypeError, ValueError):
        problem = "the seconds are not numbers"
        raise InvalidCode(family, problem, "arrays of (steps, workers)") from None
    if a.ndim != 2 or a.shape != b.shape or a.shape[1] == 0:
        problem = f"the seconds have shapes {a.shape} and {b.shape}"
        raise InvalidCode(family, problem, "(steps, workers) for both")
    if not (np.all(a >= 0) and np.all(b >= 0)):  # also refuses NaN
        raise InvalidCode(family, "seconds are negative or NaN", "0 or more")
    return a, b


def _apart(a: Floats, p: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Return `a` and `p` of those who take their time, and when others can do it all.

    Whoever is not among the first has 0 and inf. Others take so little for all parts
    that it is lost beside what they begin with.
    """
    alive = np.isfinite(a) & np.isfinite(p)
    with np.errstate(over="ignore"):
        no_time = alive & ((p < _NOTHING) | (a + k * p == a))
    at_once = np.where(no_time, a, np.inf).min(axis=1)
    slow = alive & ~no_time
    return np.where(slow, a, 0.0), np.where(slow, p, np.inf), at_once


def _fluid(a: Floats, p: Floats, amount: int) -> Floats:
    r"""Return the least $T$ with $\sum \max(0, T - a) / p \ge$ amount, (steps,).

    The first $m$ to begin would need $(k + \sum a/p) / \sum 1/p$. Those who begin later
    than that count as negative there, so it is never too little, and right for one $m$.
    """
    order = np.argsort(a, axis=1)
    rate = 1.0 / np.take_along_axis(p, order, axis=1)
    missed = np.take_along_axis(a, order, axis=1) * rate
    rates, late = np.cumsum(rate, axis=1), np.cumsum(missed, axis=1)
    ends = np.full(a.shape, np.inf)
    np.divide(amount + late, rates, out=ends, where=rates > 0)
    return np.asarray(ends.min(axis=1))


def _kth_moment(a: Floats, p: Floats, k: int) -> Floats:
    """Return the k-th of all moments a + m p, (steps,).

    By the fluid end of k parts, k - n of them are there at least; by that of k + n, k
    are. What lies between, and one more on either side, is sorted.
    """
    n = a.shape[1]
    low, high = (_fluid(a, p, amount)[:, None] for amount in (k, k + n))
    first = np.clip(np.floor((low - a) / p) - 1, 0, k)
    last = np.clip(np.floor((high - a) / p) + 1, first, k)
    last[np.isinf(p)] = 0
    ends, sure = _select(a, p, k, first, last)
    for row in np.flatnonzero(~sure):  # parts next to nothing beside what is fixed
        one = slice(row, row + 1)
        most = np.where(np.isfinite(p[one]), float(k), 0.0)
        ends[one], _ = _select(a[one], p[one], k, np.zeros((1, n)), most)
    return ends


def _select(
    a: Floats, p: Floats, k: int, first: Floats, last: Floats
) -> tuple[Floats, Bools]:
    """Return the k-th moment if only m from first + 1 to last matter; do they?"""
    rank = (k - first.sum(axis=1)).astype(np.intp)
    width = (last - first).astype(np.intp)
    count = width.sum(axis=1)
    moments, start = _moments(a, p, first, width), np.cumsum(count) - count
    known = (rank >= 1) & (rank <= count)
    ends = np.full(len(a), np.inf)
    ends[known] = moments[(start + rank - 1)[known]]
    end = ends[:, None]
    left_out = np.zeros_like(a)
    np.multiply(first, p, out=left_out, where=first > 0)
    before = (first == 0) | (a + left_out <= end)
    after = (last >= k) | (a + (last + 1) * p >= end)
    return ends, known & (before & after).all(axis=1)


def _moments(a: Floats, p: Floats, first: Floats, width: Ints) -> Floats:
    """Return moments first + 1 to first + width of all, by step and then ascending."""
    size = width.ravel()
    cell = np.repeat(np.arange(size.size), size)
    place = np.arange(cell.size) - np.repeat(np.cumsum(size) - size, size) + 1
    moments = a.ravel()[cell] + (first.ravel()[cell] + place) * p.ravel()[cell]
    step = cell // a.shape[1]
    return np.asarray(moments[np.lexsort((moments, step))])
