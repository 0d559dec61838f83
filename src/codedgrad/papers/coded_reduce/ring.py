"""A ring against the tree: bandwidth is the ring's, latency the tree's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.bounds import (
    latency_to_beat_ring,
    message_to_beat_ring,
    ring_seconds,
    tree_receive,
)
from codedgrad.papers.coded_reduce.lab import OVER_RING, TreeShape
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table, listed

_TREES = ((TreeShape(4, 3), 1), (TreeShape(12, 2), 1), (TreeShape(12, 2), 3))
_CHUNKS = 16
_LATENCY, _BANDWIDTH = 1e-4, 125e6  # seconds; bytes a second
_LINK = f"{1e3 * _LATENCY:g} ms and {8e-9 * _BANDWIDTH:g} Gbit/s"
_THEIRS, _LARGE = 5000 * 8, 10e6  # bytes


@dataclass(frozen=True, slots=True)
class _RingRow:
    """Where a tree and a ring take as long, if nobody computes.

    Latencies are in t_c, messages in bytes: below them the tree is faster.
    """

    shape: TreeShape
    s: int
    bandwidth: float  # RAR / CR without latency
    even: float
    published: float
    message: float
    in_chunks: float

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the table."""
        sizes = self.message / 1e3, self.in_chunks / 1e3
        found = self.bandwidth, self.even, self.published, *sizes
        return (f"{self.shape} s={self.s}", *found)


def _row(shape: TreeShape, s: int) -> _RingRow:
    n, L = shape.children, shape.layers
    sizes = [
        message_to_beat_ring(
            n, L, s, latency=_LATENCY, bandwidth=_BANDWIDTH, chunks=chunks
        )
        for chunks in (1, math.inf)
    ]
    alone = _ring(shape, 1.0, 0.0) / tree_receive(n, L, s, port=1.0)
    even = latency_to_beat_ring(n, L, s)
    published = latency_to_beat_ring(n, L, s, times=OVER_RING)
    return _RingRow(shape, s, alone, even, published, *sizes)


def _ring(shape: TreeShape, port: float, latency: float) -> float:
    return ring_seconds(shape.workers, share=0.0, port=port, latency=latency)


def ring(effort: Effort) -> Exhibit:
    """Return a ring over the tree by latency, and both by the size of messages."""
    rows = [_row(shape, s) for shape, s in _TREES]
    effort.advance(1.0)
    columns = (
        Column("tree"),
        Column("RAR/CR, no latency", "ratio", ".2f"),
        Column("CR faster from t_l", "t_c"),
        Column(f"{OVER_RING:.1f} times from t_l", "t_c"),
        Column("CR faster up to", "kB", ".0f"),
        Column("in endless chunks", "kB", ".0f"),
    )
    return Exhibit(
        "ring",
        "Where it does not pay: long messages and little latency",
        "CR and RAR as in times, nobody computes, nobody is late: closed forms, "
        f"nothing is random. Sizes: {_LINK} of latency and bandwidth a message. "
        "Chunks: parents send on what they have while the rest is still coming.",
        f"up to {OVER_RING:.1f} times as fast as RAR (abstract), which was the "
        "library's Allreduce (authors' scripts); a message had 5000 numbers.",
        "all of it; latency is an addition to the model, chunks are to the scheme.",
        (_bandwidth(rows), _published(rows), _size(rows)),
        Table(columns, tuple(row.cells for row in rows)),
        (_by_latency(), _by_size()),
        has_curves=True,
    )


def _by_latency() -> FigurePanel:
    x = np.geomspace(0.003, 3.0, 25)
    curves = [
        Curve(
            f"{shape}, s = {s}",
            x,
            [
                _ring(shape, 1.0, t_l)
                / tree_receive(shape.children, shape.layers, s, port=1.0, latency=t_l)
                for t_l in x.tolist()
            ],
        )
        for shape, s in _TREES
    ]
    curves.append(Curve("published, at most", (x[0], x[-1]), (OVER_RING,) * 2))
    ticks = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    return FigurePanel(
        "ring / tree, nobody computes",
        Axis("latency t_l", "t_c", is_log=True, ticks=(0.01, 0.1, 1.0)),
        Axis("time to add up", "CR = 1", is_log=True, limits=(0.07, 60), ticks=ticks),
        tuple(curves),
    )


def _by_size() -> FigurePanel:
    shape, s = _TREES[0]
    sizes = np.geomspace(1e3, 1e7, 25)
    ports = (sizes / _BANDWIDTH).tolist()

    def tree(chunks: float) -> list[float]:
        n, L = shape.children, shape.layers
        each = (
            tree_receive(n, L, s, port=p, latency=_LATENCY, chunks=chunks)
            for p in ports
        )
        return [1e3 * seconds for seconds in each]

    curves = (
        Curve(f"{shape}, s = {s}", sizes / 1e3, tree(1)),
        Curve(f"{shape}, s = {s}, {_CHUNKS} chunks", sizes / 1e3, tree(_CHUNKS)),
        Curve("ring", sizes / 1e3, [1e3 * _ring(shape, p, _LATENCY) for p in ports]),
    )
    return FigurePanel(
        f"{shape}, {shape.workers} workers, {_LINK}",
        Axis("message", "kB", is_log=True, ticks=(1.0, 10.0, 100.0, 1e3, 1e4)),
        Axis("time to add up", "ms", is_log=True, ticks=(1.0, 10.0, 100.0, 1e3)),
        curves,
    )


def _bandwidth(rows: Sequence[_RingRow]) -> str:
    faster = all(row.bandwidth < 1 for row in rows)
    verdict = "the ring is faster" if faster else "the ring is not always faster"
    said = listed([f"{row.bandwidth:.2f} for {row.shape} s = {row.s}" for row in rows])
    return f"on bandwidth alone {verdict}: RAR takes, of CR, {said}."


def _published(rows: Sequence[_RingRow]) -> str:
    low, high = (pick(row.published for row in rows) for pick in (min, max))
    if not math.isfinite(high):
        return f"no latency makes RAR {OVER_RING:.1f} times as slow in all of them."
    even = listed([f"{row.even:.3f}" for row in rows])
    return (
        f"CR is faster from a latency of {even} t_c on; {OVER_RING:.1f} times as fast "
        f"from {low:.2f} to {high:.2f} t_c."
    )


def _size(rows: Sequence[_RingRow]) -> str:
    plain = listed([f"{row.message / 1e3:.0f}" for row in rows])
    chunks = listed([f"{row.in_chunks / 1e3:.0f}" for row in rows])
    theirs = "are" if all(row.message > _THEIRS for row in rows) else "are not"
    large = "in none" if all(row.in_chunks < _LARGE for row in rows) else "in some"
    return (
        f"at {_LINK} CR is faster for messages below {plain} kB ({chunks} kB in "
        f"endless chunks): {_THEIRS / 1e3:.0f} kB, 5000 doubles, {theirs} below in all "
        f"of them, {_LARGE / 1e6:.0f} MB {large}."
    )
