"""Where it pays: pauses that do not grow with the load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedgrad.delays import Times
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
    where,
)
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.measuring import mean
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table, listed

_TREES = {TreeShape(4, 3): (1, 2), TreeShape(12, 2): (1, 3)}
_LENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)  # t_c
_LENGTH = 100.0  # of the table
_OFTEN, _JITTER = 0.05, 0.05  # the share is t_c
_CODED: Kind = ("CR", 1)


def pauses(effort: Effort) -> Exhibit:
    """Return the mean step by how long a pause is."""
    lab = TreeLab(effort, effort.some(10_000, 1200))
    fields = [_field(lab, shape) for shape in _TREES]
    return Exhibit(
        "pauses",
        "Where it pays: pauses that do not grow with the load",
        f"{WORDS} {MODEL} t_l = 0; an uncoded share takes A = t_c and {_JITTER:.0%} of "
        f"an exponential excess; each worker pauses with probability {_OFTEN:g} a "
        f"step, whatever its load. Table: for {_LENGTH:g} t_c; {lab}.",
        "none that could be read: the authors' scripts can make flagged workers four "
        "times as slow, and flag none as released.",
        "all of it.",
        (_pays(fields), _against_gc(fields), _against_ring(fields)),
        _table(fields),
        tuple(map(_panel, fields)),
        has_curves=True,
    )


def _field(lab: TreeLab, shape: TreeShape) -> TreeSweep:
    unit = 1.0 + _JITTER * lab.excess(shape)
    hit = (lab.chances(shape) < _OFTEN).astype(np.float64)
    field = TreeSweep(shape, lambda length: Times(length * hit, unit))
    kinds = _kinds(shape).values()
    for length in _LENGTHS:
        for kind in kinds:
            field.seconds(kind, length)
        lab.effort.advance(1 / (len(_TREES) * len(_LENGTHS)))
    return field


def _kinds(shape: TreeShape) -> dict[str, Kind]:
    """Return what is drawn, by its name."""
    kinds: dict[str, Kind] = {"uncoded tree": TREE}
    kinds |= {f"CR, s = {s}": ("CR", s) for s in _TREES[shape]}
    kinds["GC, alpha of s = 1"] = ("GC", 1)
    return kinds | {"uncoded star": STAR, "ring, bandwidth only": RING}


def _table(fields: Sequence[TreeSweep]) -> Table:
    columns = [Column("tree"), Column("CR", "t_c", ".1f")]
    columns.append(Column("CR: standard error", "t_c", is_shown=False))
    for name in ("GC", "UMW", "RAR", "uncoded tree"):
        columns += [
            Column(f"{name}/CR", "ratio", ".2f"),
            Column(f"{name}/CR: standard error", "ratio", is_shown=False),
        ]
    rows = [_cells(field, s) for field in fields for s in (0, *_TREES[field.shape])]
    return Table(tuple(columns), tuple(rows))


def _cells(field: TreeSweep, s: int) -> tuple[Cell, ...]:
    tree: Kind = ("CR", s)
    others: tuple[Kind, ...] = (("GC", s), STAR, RING, TREE)
    own = mean(field.seconds(tree, _LENGTH)[:, None])
    cells: list[Cell] = [f"{field.shape} s={s}", own.value, own.error]
    for other in others:
        found = field.over(other, tree, _LENGTH)
        cells += [found.value, found.error]
    return tuple(cells)


def _panel(field: TreeSweep) -> FigurePanel:
    curves = tuple(
        Curve(name, _LENGTHS, field.means(kind, _LENGTHS))
        for name, kind in _kinds(field.shape).items()
    )
    x = Axis("length of a pause", "t_c", is_log=True, ticks=(1.0, 10.0, 100.0))
    ticks = (3.0, 10.0, 30.0, 100.0, 300.0)
    y = Axis("mean step", "t_c", is_log=True, limits=(2.0, 900.0), ticks=ticks)
    return FigurePanel(f"{field.shape}, {field.shape.workers} workers", x, y, curves)


def _pays(fields: Sequence[TreeSweep]) -> str:
    gains = [field.over(TREE, _CODED, _LENGTH) for field in fields]
    verdict = "pays" if all(g.is_above(1.0) for g in gains) else "does not always pay"
    said = listed([f"{g} for {f.shape}" for g, f in zip(gains, fields, strict=True)])
    return (
        f"with pauses of {_LENGTH:g} t_c coding {verdict}: the uncoded tree takes, of "
        f"that with s = 1, {said}; the uncoded tree is faster up to pauses of, in t_c, "
        f"{_up_to(fields, TREE)}."
    )


def _against_gc(fields: Sequence[TreeSweep]) -> str:
    found = [(f.shape, f.over(("GC", 1), _CODED, _LENGTH)) for f in fields]
    faster = all(gain.is_above(1.0) for _, gain in found)
    verdict = "is faster than" if faster else "is not always faster than"
    said = listed([f"{g} for {shape} (limit {shape.limit:.1f})" for shape, g in found])
    return f"CR with s = 1 {verdict} GC of the same fraction: GC takes, of it, {said}."


def _against_ring(fields: Sequence[TreeSweep]) -> str:
    return (
        "the ring, which waits for everybody, is faster than CR with s = 1 up to "
        f"pauses of, in t_c, {_up_to(fields, RING)}."
    )


def _up_to(fields: Sequence[TreeSweep], kind: Kind) -> str:
    """Say up to which length others are faster than the tree with s = 1."""
    places = [(f.shape, f.crossing(kind, _CODED, _LENGTHS)) for f in fields]
    return listed([f"{where(place)} for {shape}" for shape, place in places])
