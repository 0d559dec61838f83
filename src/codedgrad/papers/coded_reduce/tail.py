"""Where it does not pay: delays that grow with the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.papers.coded_reduce.lab import (
    MODEL,
    RING,
    STAR,
    TREE,
    WORDS,
    Kind,
    TreeLab,
    TreeShape,
    TreeSweep,
    share_times,
    where,
)
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.measuring import Measured
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table, listed

_TREES = {TreeShape(4, 3): (1, 2), TreeShape(12, 2): (1, 3)}
_SHARES: tuple[float, ...] = tuple(np.geomspace(0.05, 50.0, 19).tolist())  # t_c


@dataclass(frozen=True, slots=True)
class _TailRow:
    """Up to which A, in t_c, a coded tree is faster than what has no code."""

    shape: TreeShape
    s: int
    tree: Measured | None
    star: Measured | None
    ring: Measured | None
    ring_wins: int  # of the shares

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the table."""
        found = self.tree, self.star, self.ring
        pairs = [(p.value, p.error) if p else (None, None) for p in found]
        flat = [cell for pair in pairs for cell in pair]
        return (f"{self.shape} s={self.s}", *flat, self.ring_wins)


def tail(effort: Effort) -> Exhibit:
    """Return up to which share of computing a code on the tree pays."""
    lab = TreeLab(effort, effort.some(10_000, 500))
    fields = [_field(lab, shape) for shape in _TREES]
    rows = []
    for field in fields:
        for s in _TREES[field.shape]:
            rows.append(_row(field, s))
            effort.advance(0.25)
    columns = [Column("tree")]
    for name in ("uncoded tree", "uncoded star", "ring"):
        columns += [
            Column(f"faster than {name} up to A", "t_c", ".2f"),
            Column(f"{name}: standard error", "t_c", is_shown=False),
        ]
    columns.append(Column("slower than ring", f"of {len(_SHARES)} A"))
    return Exhibit(
        "tail",
        "Where it does not pay: delays that grow with the load",
        f"{WORDS} {MODEL} t_l = 0; an uncoded share takes A (1 + X), X exponential of "
        f"mean 1, k shares k times as long; {len(_SHARES)} A from {_SHARES[0]:g} to "
        f"{_SHARES[-1]:g} t_c; {lab}.",
        "none that could be read: whether it compares with an uncoded tree is not "
        "known.",
        "all of it: the comparison with the tree without a code, and where it is "
        "faster.",
        (_uncoded(rows), _star(rows), _ring(rows)),
        Table(tuple(columns), tuple(row.cells for row in rows)),
        tuple(map(_panel, fields)),
        has_curves=True,
    )


def _field(lab: TreeLab, shape: TreeShape) -> TreeSweep:
    excess = lab.excess(shape)
    return TreeSweep(shape, lambda share: share_times(excess, share))


def _row(field: TreeSweep, s: int) -> _TailRow:
    own: Kind = ("CR", s)
    places = [field.crossing(own, other, _SHARES) for other in (TREE, STAR, RING)]
    slower = [field.over(own, RING, share).value > 1.0 for share in _SHARES]
    return _TailRow(field.shape, s, places[0], places[1], places[2], sum(slower))


def _panel(field: TreeSweep) -> FigurePanel:
    kinds: dict[str, Kind] = {"uncoded tree": TREE}
    kinds |= {f"CR, s = {s}": ("CR", s) for s in _TREES[field.shape]}
    kinds |= {"uncoded star": STAR, "ring, bandwidth only": RING}
    curves = tuple(
        Curve(name, _SHARES, [field.over(kind, TREE, x).value for x in _SHARES])
        for name, kind in kinds.items()
    )
    return FigurePanel(
        f"{field.shape}, {field.shape.workers} workers",
        Axis("uncoded share A", "t_c", is_log=True, ticks=(0.1, 1.0, 10.0)),
        Axis(
            "mean step",
            "uncoded tree = 1",
            is_log=True,
            limits=(0.07, 10.0),
            ticks=(0.1, 0.3, 1.0, 3.0, 10.0),
        ),
        curves,
    )


def _said(rows: Sequence[_TailRow], places: Sequence[Measured | None]) -> str:
    return listed(
        [
            f"{where(p)} for {r.shape} s = {r.s}"
            for r, p in zip(rows, places, strict=True)
        ]
    )


def _uncoded(rows: Sequence[_TailRow]) -> str:
    places = [row.tree for row in rows]
    stops = sum(place is not None for place in places)
    verdict = (
        "stops paying" if stops == len(rows) else "does not stop paying everywhere"
    )
    return (
        f"coding the tree {verdict}: it is faster than the uncoded tree only while A "
        f"is below, in t_c, {_said(rows, places)}."
    )


def _star(rows: Sequence[_TailRow]) -> str:
    return (
        "it is faster than the uncoded star while A is below, in t_c, "
        f"{_said(rows, [row.star for row in rows])}."
    )


def _ring(rows: Sequence[_TailRow]) -> str:
    lost, all_ = sum(row.ring_wins for row in rows), len(rows) * len(_SHARES)
    verdict = "beats" if lost == all_ else "does not always beat"
    return (
        f"a ring that pays for bandwidth only {verdict} coded trees: in {lost} of "
        f"{all_} settings."
    )
