r"""How much decoding multiplies rounding errors, and the limit to it.

A message of magnitude $\lVert B_i \rVert_1$ carries a rounding error in proportion,
and the weight $a_i$ multiplies it. Summed and set against the $k$ parts,

$$\max_H \sum_{i \in H} |a_i| \, \lVert B_i \rVert_1 / k,$$

is 1 at best for an exact code. Float32 has seven digits: a code that amplifies
$10^5$ times, as random cyclic codes of many workers do, leaves two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Floats
from codedgrad.codes.late_sets import heard_without, late_sets
from codedgrad.errors import IllConditioned

LIMIT = 500.0
"""The largest amplification of a code that is built without being asked twice."""


@dataclass(frozen=True, slots=True)
class Amplification:
    """The amplification of a code, and how sure it is.

    Attributes:
        value: The largest factor found.
        exact: Whether all sets of late workers were looked at; otherwise `value` is
            a lower bound.
        sets: How many sets were looked at.
    """

    value: float
    exact: bool
    sets: int

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.exact else f"at least {self.value:.4g}"


def amplification(code: Code, stop_above: float = math.inf) -> Amplification:
    """Find the worst factor over all sets of `code.tolerance` late workers.

    Exact up to 100,000 such sets (where shifting all workers by one changes nothing,
    sets are counted up to a shift); beyond, a lower bound from all windows of
    neighbouring workers and 10,000 random sets, drawn with a fixed seed, or fewer of
    both where there are more than 14,000 workers. For clusters it covers that many
    late workers in every cluster at once. A code without a tolerance is judged with
    nobody late.

    Args:
        code: The code to judge.
        stop_above: Stop looking once this is exceeded; the result is a lower bound.

    Example:
        >>> from codedgrad.codes import cyclic
        >>> print(amplification(cyclic(workers=10, tolerance=3)))
        9.472
    """
    block = code
    while block.inner is not None:
        block = block.inner
    is_even = code.parts % (code.messages // block.messages * block.parts) == 0
    norms, parts = _by_block(code, block, is_even)
    # Where blocks differ, a shift of the workers changes who has more parts.
    turns = is_even and _is_circulant(block)
    sets = late_sets(block.workers, block.tolerance or 0, turns)
    worst, seen = 0.0, 0
    for late in sets.batches:
        weights = block.decoder.weights(heard_without(late, block.owner))
        worst = max(worst, float(np.max(np.abs(weights) @ norms.T / parts)))
        seen += len(late)
        if worst > stop_above:
            return Amplification(worst, False, seen)
    return Amplification(worst, sets.all_of_them, seen)


def factors(code: Code, weights: Floats) -> Floats:
    """Return the factor of every row of weights, shape (patterns,)."""
    return np.asarray(np.abs(weights) @ code.row_norms / code.parts)


def _by_block(code: Code, block: Code, is_even: bool) -> tuple[Floats, Floats]:
    """Return the norms of messages, (blocks, messages), and the parts, (blocks,).

    One of the blocks stands for all if they are alike; those without parts are left
    out.
    """
    if is_even:
        return block.row_norms[None], np.array([float(block.parts)])
    norms = code.row_norms.reshape(-1, block.messages)
    borders = range(0, code.messages + 1, block.messages)
    held = [np.unique(code.B[low:high].indices).size for low, high in pairwise(borders)]
    parts = np.array(held, dtype=np.float64)
    return norms[parts > 0], parts[parts > 0]


def refuse_above_limit(code: Code, choices: Callable[[], list[str]]) -> Code:
    """Return `code` if it is well conditioned, else raise with better choices."""
    found = amplification(code, stop_above=LIMIT)
    if found.value > LIMIT:
        raise IllConditioned(code.name, found.value, LIMIT, choices())
    return code


def _is_circulant(code: Code) -> bool:
    """Whether row i is row 0 turned by i places, with message i sent by worker i."""
    n = code.workers
    if code.B.shape != (n, n) or code.owner != tuple(range(n)):
        return False
    first = code.B[[0]]
    turned = (first.indices + np.arange(n)[:, None]) % n
    rows = np.repeat(np.arange(n), first.nnz)
    values = np.tile(first.data, n)
    return code.B.nnz == values.size and bool(
        np.array_equal(code.B[rows, turned.ravel()], values)
    )
