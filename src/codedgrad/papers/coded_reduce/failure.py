"""The price: how probably more are late than a tree survives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from codedgrad.codes.bounds import star_failure, tree_failure, tree_load
from codedgrad.codes.tree import Tree, delivers_each
from codedgrad.papers.coded_reduce.lab import TreeShape
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table, listed

_TREES = ((TreeShape(4, 3), 1), (TreeShape(12, 2), 1), (TreeShape(12, 2), 3))
_CHANCES = (0.01, 0.02, 0.05, 0.1)
_JUDGED = {
    (TreeShape(4, 3), 1): 0.05,
    (TreeShape(12, 2), 1): 0.02,
    (TreeShape(12, 2), 3): 0.05,
}


@dataclass(frozen=True, slots=True)
class _FailureRow:
    """How probably a step cannot end without the late."""

    shape: TreeShape
    s: int
    chance: float
    tree: float
    equal_fraction: float
    equal_load: float
    uncoded: float

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the table."""
        found = self.tree, self.equal_fraction, self.equal_load, self.uncoded
        return (f"{self.shape} s={self.s}", self.chance, *found)


def _same_load(shape: TreeShape, s: int) -> int:
    """Return the most late workers of a star of no more load than the tree."""
    load = tree_load(shape.children, shape.layers, s) * shape.workers
    return max(0, math.floor(load + 1e-9) - 1)


def _row(shape: TreeShape, s: int, f: float) -> _FailureRow:
    N = shape.workers
    return _FailureRow(
        shape,
        s,
        f,
        tree_failure(shape.children, shape.layers, s, f),
        star_failure(N, shape.late(s), f),
        star_failure(N, _same_load(shape, s), f),
        star_failure(N, 0, f),
    )


def failure(effort: Effort) -> Exhibit:
    """Return the probability that a step fails, of trees and stars."""
    rows = [_row(shape, s, f) for shape, s in _TREES for f in _CHANCES]
    judged = [_row(shape, s, f) for (shape, s), f in _JUDGED.items()]
    effort.advance(1.0)
    columns = (
        Column("tree"),
        Column("late", "chance", "g"),
        Column("CR", "fails", ".1e"),
        Column("GC, same alpha", "fails", ".1e"),
        Column("GC, same load", "fails", ".1e"),
        Column("uncoded", "fails", ".1e"),
    )
    stars = listed(
        [f"{_same_load(shape, s)} for {shape} s = {s}" for shape, s in _TREES]
    )
    return Exhibit(
        "failure",
        "The price: at equal fractions a tree fails far more often than a star",
        "every worker is late by itself, with the same probability; a step fails if it "
        "cannot end without the late. Same alpha: S = s N / n; same load: the largest "
        f"S of no more load than the tree, {stars}. Closed forms, nothing is random.",
        "the tree tolerates a fraction alpha = s / n of late workers, as GC does at "
        "more load (abstract and, from memory, a table).",
        "the probabilities; that alpha holds only for late workers that are spread, at "
        "most s below every parent; and the comparison at equal load.",
        (_dearer(judged), _at_equal_load(rows), _pairs()),
        Table(columns, tuple(row.cells for row in rows)),
        tuple(_panel(shape, s) for shape, s in _TREES),
        has_curves=True,
    )


def _panel(shape: TreeShape, s: int) -> FigurePanel:
    x = np.geomspace(0.003, 0.3, 25)
    rows = [_row(shape, s, f) for f in x.tolist()]
    curves = (
        Curve("CR", x, [row.tree for row in rows]),
        Curve("GC, same alpha", x, [row.equal_fraction for row in rows]),
        Curve("GC, same load", x, [row.equal_load for row in rows]),
        Curve("uncoded", x, [row.uncoded for row in rows]),
    )
    return FigurePanel(
        f"{shape}, s = {s}, {shape.workers} workers",
        Axis("a worker is late", "probability", is_log=True, ticks=(0.01, 0.03, 0.1)),
        Axis("a step fails", "probability", is_log=True, limits=(1e-12, 2.0)),
        curves,
    )


def _dearer(judged: Sequence[_FailureRow]) -> str:
    weaker = all(row.tree > row.equal_fraction for row in judged)
    verdict = "far weaker" if weaker else "not always weaker"
    said = listed(
        [
            f"{row.tree:.1e} against {row.equal_fraction:.1e} ({row.shape}, "
            f"s = {row.s}, {row.chance:.0%} late)"
            for row in judged
        ]
    )
    return f"at equal alpha CR is {verdict} than GC: it fails with {said}."


def _at_equal_load(rows: Sequence[_FailureRow]) -> str:
    weaker = [row for row in rows if row.tree >= row.equal_load]
    said = listed([f"{row.shape} s = {row.s} at {row.chance:.0%}" for row in weaker])
    but = f"; not for {said}: fewer late workers favour GC" if weaker else ""
    return (
        "at equal load CR fails less often than GC in "
        f"{len(rows) - len(weaker)} of the {len(rows)} rows of the table{but}."
    )


def _pairs() -> str:
    """Say which two late workers are too many for the smallest tree."""
    tree = Tree(3, 2)
    pairs = list(combinations(range(tree.workers), 2))
    alive = np.ones((len(pairs), tree.workers), dtype=np.bool_)
    for row, pair in enumerate(pairs):
        alive[row, list(pair)] = False
    fine = delivers_each(tree, 1, alive)
    bad = [pair for pair, works in zip(pairs, fine.tolist(), strict=True) if not works]
    top = set(tree.of_layer(1))
    who = "all of them" if all(set(pair) <= top for pair in bad) else "not all of them"
    return (
        f"whoever is late, it survives s and no more: in the tree (3,2) with s = 1, "
        f"{len(bad)} of {len(pairs)} pairs of late workers are too many, {who} pairs "
        "right below the root; so reliable workers belong there."
    )
