r"""Trees of workers with a small code at every parent: who holds which part.

CodedReduce (Reisizadeh et al., arXiv 1902.01981). Every parent has $n$ children and an
$n \times n$ matrix $B$, the same everywhere: it needs any $n - s$ of their messages.
The parts are cut as a code would cut them, but every worker keeps some of what its
subtree has and passes on only the rest. With $q = n / (s + 1)$ and $h$ layers below a
worker it keeps the share $1 / (1 + q + \dots + q^h)$: then all workers are equally
loaded. The coefficient of a part is the product of the entries of $B$ on the way down.

A worker's message is $\sum_{x \in D} w(x) g_x + \sum_c a_c m_c$: its own parts, and its
children's messages with the weights $a$, $a^\top B = \mathbf 1^\top$, that decode them.
So it is the same row of parts whoever is late below, and the root has the plain sum.
The paper's text is not at hand: the recursion is worked out anew, and what happens
where numbers do not divide is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias, cast

import numpy as np

from codedgrad.codes.arguments import whole
from codedgrad.codes.tree.shape import Tree
from codedgrad.errors import InvalidCode

Number: TypeAlias = int | float | Fraction
Row: TypeAlias = tuple[tuple[int, ...], tuple[Number, ...]]
"""Parts, ascending, and the weight of each."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who holds which parts of a tree, and with which weights.

    Attributes:
        parts: Number of parts.
        own: What each worker computes itself.
        row: What each worker's message adds up: `own`, and what is below it.
    """

    parts: int
    own: tuple[Row, ...]
    row: tuple[Row, ...]

    @property
    def load(self) -> int:
        """The most parts that one worker computes in a step."""
        return max(len(parts) for parts, _ in self.own)

    @property
    def work(self) -> int:
        """The parts computed by all workers together in a step."""
        return sum(len(parts) for parts, _ in self.own)


def allocate(tree: Tree, matrix: Sequence[Sequence[Number]], parts: int) -> Allocation:
    r"""Say which parts each worker computes, and with which weights.

    A worker with $m$ parts keeps the first $\lceil m / (1 + q + \dots + q^h) \rceil$.
    The others are cut into $n$ runs whose sizes differ by at most one; the larger ones
    begin at a different run in each of $n$ siblings. Child $c$ gets the runs in which
    row $c$ of the matrix is not zero, their weights multiplied by its entries. No part
    is ever left out; `base_size` says when nothing is rounded. Here $q = n / b$ with
    $b$ the most non-zeros in a row, $s + 1$ for the usual codes.

    Args:
        tree: The tree.
        matrix: $B$, of `children` rows and columns, of any kind of number: weights are
            products of its entries and of nothing else. That they can be decoded is
            not checked here.
        parts: Number of parts.

    Raises:
        InvalidCode: If the matrix does not fit, or a worker would have no part.

    Example:
        >>> half = Fraction(1, 2)
        >>> B = [[half, 1, 0], [0, 1, -1], [half, 0, 1]]
        >>> found = allocate(Tree(children=3, layers=2), B, parts=15)
        >>> found.load, found.own[0][0]
        (4, (0, 1, 2, 3))
        >>> found.own[3][0], [str(weight) for weight in found.own[3][1]]
        ((4, 5, 6, 7), ['1/4', '1/2', '1', '1'])
    """
    d = whole("allocate", "parts", parts, least=1)
    code = _Code.of(tree, matrix)
    rows: list[Row] = []
    own: list[Row] = []
    everything: Row = (tuple(range(d)), (1,) * d)
    rows.extend(code.passed(everything, 0))
    for worker in range(tree.workers):
        ids, weights = rows[worker]
        if not ids:
            problem = f"parts = {d} leave worker {worker} without any"
            raise InvalidCode(
                "allocate", problem, f"parts = {code.fewest(tree.layers)} or more"
            )
        height = tree.layers - tree.layer(worker)
        kept = code.kept(len(ids), height)
        own.append((ids[:kept], weights[:kept]))
        if height:
            rows.extend(code.passed((ids[kept:], weights[kept:]), worker))
    return Allocation(d, tuple(own), tuple(rows))


def fewest_parts(tree: Tree, matrix: Sequence[Sequence[Number]]) -> int:
    """Return the fewest parts with which every worker has one, as with any more.

    Example:
        >>> fewest_parts(Tree(children=3, layers=2), [[1, 1, 0], [0, 1, 1], [1, 0, 1]])
        6
    """
    return _Code.of(tree, matrix).fewest(tree.layers)


def base_size(children: int, layers: int, tolerance: int) -> int:
    r"""Return the fewest parts for which nothing is rounded; so it is for multiples.

    With $d$ parts a subtree of layer $l$ has $x_l = r d (1 + q + \dots + q^{L-l})$, a
    run below the root has $d / n$ and one below it $(x_l - r d) / n$. All of these, and
    $r d$, must be whole.

    Example:
        >>> base_size(children=3, layers=2, tolerance=1)
        15
    """
    n = whole("base_size", "children", children, least=1)
    L = whole("base_size", "layers", layers, least=1)
    s = whole("base_size", "tolerance", tolerance, least=0, most=n - 1)
    totals = _totals(Fraction(n, s + 1), L)
    r = 1 / (totals[L] - 1)
    sizes = [r, Fraction(1, n), *((total - 1) * r / n for total in totals[1:L])]
    return math.lcm(*(size.denominator for size in sizes))


@dataclass(frozen=True, slots=True)
class _Code:
    """The matrix at every parent, and how much is kept above how many layers."""

    rows: tuple[tuple[tuple[int, Number], ...], ...]
    totals: tuple[Fraction, ...]

    @classmethod
    def of(cls, tree: Tree, matrix: Sequence[Sequence[Number]]) -> _Code:
        """Return it, having checked that the matrix fits the tree."""
        n = tree.children
        B = _numbers(matrix)
        if len(B) != n or any(len(row) != n for row in B):
            problem = f"the matrix must be {n} rows of {n} finite numbers"
            raise InvalidCode("allocate", problem, f"a code of workers = {n}")
        rows = tuple(tuple((j, b) for j, b in enumerate(row) if b != 0) for row in B)
        empty = [f"row {c}" for c, row in enumerate(rows) if not row]
        empty += [f"column {j}" for j in range(n) if all(row[j] == 0 for row in B)]
        if empty:
            problem = f"{empty[0]} of the matrix is all zeros"
            raise InvalidCode("allocate", problem, "a non-zero in every row and column")
        q = Fraction(n, max(map(len, rows)))
        return cls(rows, tuple(_totals(q, tree.layers)))

    def kept(self, held: int, height: int) -> int:
        """Return how many of its parts a worker keeps, above so many layers."""
        return math.ceil(held / self.totals[height])

    def passed(self, rest: Row, worker: int) -> list[Row]:
        """Return what each child gets of the parts a worker passes on."""
        ids, weights = rest
        borders = [0, *accumulate(self._runs(len(ids), worker))]
        return [
            (
                tuple(x for j, _ in row for x in ids[borders[j] : borders[j + 1]]),
                tuple(
                    weight * b
                    for j, b in row
                    for weight in weights[borders[j] : borders[j + 1]]
                ),
            )
            for row in self.rows
        ]

    def fewest(self, layers: int) -> int:
        """Return the fewest parts that reach every worker: sizes grow with parts."""
        low, high = 0, 1
        while not self._reaches_all(high, layers):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            reached = self._reaches_all(middle, layers)
            low, high = (low, middle) if reached else (middle, high)
        return high

    def _reaches_all(self, parts: int, layers: int) -> bool:
        sizes = {(parts, 0)}  # of subtrees of a layer, with the number of the child
        for height in range(layers - 1, -1, -1):
            below = set()
            for rest, number in sizes:
                runs = self._runs(rest, number)
                for c, row in enumerate(self.rows):
                    held = sum(runs[j] for j, _ in row)
                    if not held:
                        return False
                    below.add((held - self.kept(held, height), c))
            sizes = below
        return True

    def _runs(self, rest: int, worker: int) -> list[int]:
        """Return the sizes of the runs the rest is cut into."""
        n = len(self.rows)
        size, larger = divmod(rest, n)
        return [size + ((j - worker) % n < larger) for j in range(n)]


def _totals(q: Fraction, layers: int) -> list[Fraction]:
    """Return 1, 1 + q, ..., up to the power `layers`."""
    return list(accumulate(q**power for power in range(layers + 1)))


def _numbers(matrix: Sequence[Sequence[Number]]) -> list[list[Number]]:
    """Return the rows of a matrix, or none if there is anything else in it."""
    try:
        B = [[_plain(entry) for entry in row] for row in matrix]
        finite = all(entry - entry == 0 for row in B for entry in row)
    except TypeError:  # no rows, or no numbers
        return []
    return B if finite else []


def _plain(entry: Number) -> Number:
    """Return numbers of NumPy as those of Python."""
    return cast(Number, entry.item()) if isinstance(entry, np.generic) else entry
