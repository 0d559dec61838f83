"""Four numbers at the end of every row, by which the sum of a step is checked.

```text
row     gradient | scalars | token | its scale | check | its scale
```

`token` is the sum over the row's parts of coefficient x `token_of(step, part)`, a
number that differs from part to part and from step to step. An exact sum has every part
once, so the root knows what its token must be: a row of another step or of other parts,
or a part that is missing or there twice, gives itself away.

`check` is the sum of all entries of the gradient. A step's sum is a weighted sum of
rows, so its check must again be the sum of its entries, up to rounding, in approximate
sums too: a row that was torn, or damaged on its way, gives itself away.

A scale says how large rounding may be: it is the sum of the absolute values of what was
added up, or a bound of it (the root of numbers x sum of squares, which is twice as fast
to compute). In a sum, scales are added with the absolute values of the weights: what
cancels has still been rounded.

A worker writes them when a message is sent, in the same pass over the row in which it
looks whether the row is finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 18  # numbers at a time: the second look at them is nearly for nothing
_TINY = 1e-20  # sum of squares below which some squares may have been rounded to 0
_ROUNDINGS = 16  # of every addition: pairwise sums of a block, and the check itself
_TOKEN, _CHECK = -4, -2  # where they are in a row; behind each is its scale


def token_of(step: int, part: int) -> float:
    """Return the token of a part at a step: between 0.5 and 1.5, with 16 bits.

    Example:
        >>> token_of(3, 0), token_of(3, 1), token_of(4, 0)
        (1.3066864013671875, 1.1609344482421875, 0.9889678955078125)
    """
    mixed = (step * 0x9E3779B1 + part * 0x85EBCA77 + 0xC2B2AE35) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    return 0.5 + (mixed >> 16) / 65536


def token_of_step(step: int, parts: int) -> float:
    """Return the token of all parts of a step together."""
    return math.fsum(token_of(step, part) for part in range(parts))


class Token:
    """The token of a sum as its parts are added."""

    __slots__ = ("absolute", "value")

    def __init__(self) -> None:
        self.value = self.absolute = 0.0

    def add(self, step: int, part: int, coefficient: float) -> None:
        """Add a part times its coefficient."""
        term = coefficient * token_of(step, part)
        self.value += term
        self.absolute += abs(term)


def stamp(row: NDArray[Any], gradient: int, token: Token) -> bool:
    """Write the four numbers behind the scalars of a row.

    Args:
        row: (layout.row,).
        gradient: Length of the gradient.
        token: Of the parts that the row is the sum of.

    Returns:
        Whether all numbers of the row are finite.
    """
    total = squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, gradient, _BLOCK):
            block = row[start : min(start + _BLOCK, gradient)]
            total += float(block.sum())
            squares += float(np.dot(block, block))
        scale = math.sqrt(gradient * squares)
        if squares < _TINY:  # numbers x the largest, which needs no memory, either
            numbers = row[:gradient]
            scale = gradient * max(float(numbers.max()), -float(numbers.min()))
        row[-4:] = token.value, token.absolute, total, scale
    is_scalar_finite = bool(np.isfinite(row[gradient:_TOKEN]).all())
    if math.isfinite(squares):
        return is_scalar_finite
    # a number that is not finite, or finite ones whose sum has overflowed
    return is_scalar_finite and bool(np.isfinite(row[:gradient]).all())


def is_finite(row: NDArray[Any]) -> bool:
    """Whether all numbers of a row are finite, but for its scales.

    Their squares are summed first, which is as fast as memory; only if that is not
    finite, which may also be an overflow, every number is looked at.
    """
    numbers = row[:_TOKEN]
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(numbers, numbers)):
            return True
    return bool(np.isfinite(numbers).all())


def add_scales(
    rows: Sequence[NDArray[Any]], weights: Sequence[float], out: NDArray[Any]
) -> tuple[float, float]:
    """Return both scales of `out` after a weighted sum of rows is added to it.

    `out` itself is not changed. Its scales may be those of an empty sum, 0.
    """
    found = float(out[_TOKEN + 1]), float(out[_CHECK + 1])
    for row, weight in zip(rows, weights, strict=True):
        size = abs(weight)
        found = (
            found[0] + size * float(row[_TOKEN + 1]),
            found[1] + size * float(row[_CHECK + 1]),
        )
    return found


def entries(sum_: NDArray[Any], gradient: int) -> float:
    """Return the sum of the entries of a row's gradient."""
    blocks = range(0, gradient, _BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):
        return sum(float(sum_[b : min(b + _BLOCK, gradient)].sum()) for b in blocks)


def is_off(sum_: NDArray[Any], which: int, wanted: float, added: int) -> bool:
    """Whether a number of a step's sum is not what it should be, but for rounding.

    Args:
        sum_: As `combine` returned it, (layout.row,).
        which: -2: the check, which should be the sum of entries; -4: the token.
        wanted: What it should be.
        added: How many numbers each entry, or the token, is the sum of: messages.
    """
    found, scale = float(sum_[which]), float(sum_[which + 1])
    if not math.isfinite(found) or not math.isfinite(scale):
        return False  # it overflowed, and says nothing
    info = np.finfo(sum_.dtype)
    rounding = (_ROUNDINGS + added) * float(info.eps) * scale
    # where numbers are as small as can be, rounding is no longer relative
    smallest = (_ROUNDINGS + added) * len(sum_) * float(info.tiny)
    return abs(found - wanted) > rounding + smallest
