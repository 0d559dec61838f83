"""Two numbers at the end of every row, by which the sum of a step is checked.

```text
row     gradient | scalars | check | scale
```

`check` is the sum of all entries of the gradient. A step's sum is a weighted sum of
rows, so its `check` must again be the sum of the entries of its gradient, up to
rounding: a row that was overwritten, mixed up with another step's or damaged on its way
gives itself away. `scale` says how large rounding may be: the square root of (entries x
sum of their squares), which bounds the sum of absolute values. In a sum, scales are
added with the absolute values of the weights: what cancels has still been rounded.

A worker makes both numbers when a message is sent, in the same pass over the row in
which it looks whether the row is finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["entries", "is_finite", "is_wrong", "scale_of", "stamp"]

_BLOCK = 1 << 16  # numbers at a time: they stay in the cache for the second look
_ROUNDINGS = 16  # of every addition: pairwise sums of a block, and the check itself


def stamp(row: NDArray[Any], gradient: int) -> bool:
    """Write both numbers behind the scalars of a row.

    Args:
        row: (layout.row,).
        gradient: Length of the gradient.

    Returns:
        Whether all numbers of the row are finite.
    """
    total = squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, gradient, _BLOCK):
            block = row[start : min(start + _BLOCK, gradient)]
            total += float(block.sum())
            squares += float(np.dot(block, block))
        row[-2], row[-1] = total, math.sqrt(gradient * squares)
    scalars = bool(np.isfinite(row[gradient:-2]).all())
    if math.isfinite(squares):
        return scalars
    return scalars and bool(np.isfinite(row[:gradient]).all())  # or it overflowed


def is_finite(row: NDArray[Any]) -> bool:
    """Whether all numbers of a row are finite, but for its scale.

    Their squares are summed first, which is as fast as memory; only if that is not
    finite, which may also be an overflow, every number is looked at.
    """
    numbers = row[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(numbers, numbers)):
            return True
    return bool(np.isfinite(numbers).all())


def scale_of(rows: Sequence[NDArray[Any]], weights: Sequence[float]) -> float:
    """Return the scale of a weighted sum of rows."""
    pairs = zip(rows, weights, strict=True)
    return sum(abs(weight) * float(row[-1]) for row, weight in pairs)


def entries(sum_: NDArray[Any], gradient: int) -> float:
    """Return the sum of the entries of a row's gradient."""
    blocks = range(0, gradient, _BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):
        return sum(float(sum_[b : min(b + _BLOCK, gradient)].sum()) for b in blocks)


def is_wrong(sum_: NDArray[Any], total: float, messages: int) -> bool:
    """Whether a step's sum is not the sum of its messages.

    Args:
        sum_: As `combine` returned it, (layout.row,).
        total: Of its entries, which are finite.
        messages: How many were added up.
    """
    check, scale = float(sum_[-2]), float(sum_[-1])
    if not math.isfinite(check) or not math.isfinite(scale):
        return False  # it overflowed, and says nothing
    rounding = (_ROUNDINGS + messages) * float(np.finfo(sum_.dtype).eps)
    return abs(total - check) > rounding * scale
