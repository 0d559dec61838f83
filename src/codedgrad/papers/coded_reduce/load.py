"""Load against the fraction of workers that may be late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.bounds import relay_load, tree_load
from codedgrad.codes.tree import Tree, allocate, base_size
from codedgrad.papers.coded_reduce.lab import TreeShape
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table

_SHAPES = (TreeShape(4, 3), TreeShape(5, 3), TreeShape(12, 2))


@dataclass(frozen=True, slots=True)
class _LoadRow:
    """A tree and a star that do without the same fraction; loads are shares."""

    shape: TreeShape
    s: int
    tree: float
    allocated: float  # what a worker of the tree really has, at most
    star: float
    relays: float

    @property
    def fraction(self) -> float:
        """The fraction alpha."""
        return self.s / self.shape.children

    @property
    def ratio(self) -> float:
        """How many times as much the star computes."""
        return self.star / self.tree

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the table."""
        N, S = self.shape.workers, self.shape.late(self.s)
        loads = self.tree, self.star, self.ratio, self.relays, self.tree * N
        return (f"{self.shape} {N}", self.s, self.fraction, S, *loads, self.allocated)


def _row(shape: TreeShape, s: int) -> _LoadRow:
    n, L, N = shape.children, shape.layers, shape.workers
    parts = base_size(n, L, s)
    around = [[int((j - i) % n <= s) for j in range(n)] for i in range(n)]
    return _LoadRow(
        shape,
        s,
        tree_load(n, L, s),
        allocate(Tree(n, L), around, parts).load / parts,
        (shape.late(s) + 1) / N,
        relay_load(n, L, s),
    )


def load(effort: Effort) -> Exhibit:
    """Return the load of trees and of stars that do without the same fraction."""
    rows = [_row(shape, s) for shape in _SHAPES for s in range(shape.children)]
    effort.advance(1.0)
    columns = (
        Column("(n,L) N", "workers"),
        Column("s", "late"),
        Column("alpha", "s / n"),
        Column("S", "late"),
        Column("CR", "of data", ".4f"),
        Column("GC", "of data", ".4f"),
        Column("GC/CR", "ratio", ".2f"),
        Column("relays", "of data", ".4f"),
        Column("copies of a part in CR", "mean", is_shown=False),
        Column("CR, as allocated", "of data", is_shown=False),
    )
    return Exhibit(
        "load",
        "A worker of a tree computes less than one of a star, at equal fractions",
        "every worker of the tree computes the same share; GC tolerates S = alpha N of "
        "all N workers, the tree s of the n children of every parent. Relays: only the "
        "leaves compute, with the same tree. Nothing is random.",
        "the load of the tree is r = 1 / (q + ... + q^L), q = n / (s + 1), the least "
        "for which any s children of every parent may be late (formula in the authors' "
        "scripts; the theorem from memory); that of GC is (S + 1) / N.",
        "the allocation, where every worker keeps some parts and passes on the rest, "
        "and the proof that there is none of less load.",
        (_allocated(rows), _saved(rows), _relayed(rows)),
        Table(columns, tuple(row.cells for row in rows)),
        tuple(_panel(shape, rows) for shape in _SHAPES),
    )


def _panel(shape: TreeShape, rows: Sequence[_LoadRow]) -> FigurePanel:
    own = [row for row in rows if row.shape == shape]
    x = [row.fraction for row in own]
    curves = (
        Curve("CR", x, [row.tree for row in own]),
        Curve("GC", x, [row.star for row in own]),
        Curve("tree, only leaves compute", x, [row.relays for row in own]),
    )
    return FigurePanel(
        f"{shape}, {shape.workers} workers",
        Axis("late, tolerated: alpha", "fraction", limits=(-0.03, 1.0)),
        Axis(
            "load of a worker",
            "share of the data",
            is_log=True,
            limits=(0.004, 1.3),
            ticks=(0.01, 0.03, 0.1, 0.3, 1.0),
        ),
        curves,
    )


def _allocated(rows: Sequence[_LoadRow]) -> str:
    right = sum(bool(np.isclose(row.tree, row.allocated)) for row in rows)
    verdict = "holds" if right == len(rows) else "does not hold"
    return (
        f"the formula {verdict} for what is really allocated, in {right} of "
        f"{len(rows)} trees."
    )


def _saved(rows: Sequence[_LoadRow]) -> str:
    coded = [row for row in rows if row.s]
    less = [row for row in coded if row.ratio > 1]
    low, high = (pick(coded, key=lambda row: row.ratio) for pick in (min, max))
    verb = "is" if len(less) == len(coded) else "is not always"
    return (
        f"with s of 1 or more the load of CR {verb} below that of GC, {low.ratio:.2f} "
        f"({low.shape}, s = {low.s}) to {high.ratio:.2f} times ({high.shape}, "
        f"s = {high.s}); but GC survives any S late workers, and CR only those that "
        "are spread over the parents (see failure)."
    )


def _relayed(rows: Sequence[_LoadRow]) -> str:
    gains = [row.relays / row.tree for row in rows if row.s]
    return (
        f"that inner workers compute, too, saves a factor of {min(gains):.2f} to "
        f"{max(gains):.2f}."
    )
