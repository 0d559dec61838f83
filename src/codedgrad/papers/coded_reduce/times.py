"""How long a step takes, against plain gradient coding, a star and a ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codedgrad.codes.bounds import latency_to_beat_ring
from codedgrad.papers.coded_reduce.lab import (
    MODEL,
    OVER_GC,
    OVER_RING,
    RING,
    STAR,
    WORDS,
    Kind,
    TreeLab,
    TreeShape,
    TreeSweep,
    share_times,
)
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.measuring import Floats, Measured, mean
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table

_SHAPES = (TreeShape(4, 3), TreeShape(12, 2))
_TOLERANCES = (0, 1, 3)
_SHARES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # t_c
_SHOWN = (0.1, 1.0, 10.0)
_LATENCIES = (0.0, 0.5)  # t_c
_RIVALS = ("GC", "UMW", "RAR")
_LIMITS = {"GC": (0.8, 40.0), "UMW": (0.1, 40.0), "RAR": (0.07, 40.0)}


@dataclass(frozen=True, slots=True)
class _Point:
    """A setting: the tree's mean step, in t_c, and rivals' means over it."""

    shape: TreeShape
    s: int
    share: float
    latency: float
    tree: Measured
    rivals: dict[str, Measured]

    def __str__(self) -> str:
        return f"{self.shape}, s = {self.s}, A = {self.share:g} t_c"


def times(effort: Effort) -> Exhibit:
    """Return ratios of mean steps by how long an uncoded share takes."""
    lab = TreeLab(effort, effort.some(10_000, 600))
    points: list[_Point] = []
    for shape in _SHAPES:
        excess = lab.excess(shape)
        for share in _SHARES:
            points += _points(shape, excess, share)
            effort.advance(1 / (len(_SHAPES) * len(_SHARES)))
    worst = max(m.error / m.value for p in points for m in p.rivals.values())
    return Exhibit(
        "times",
        "Mean step of rivals over that of CR, by how much there is to compute",
        f"{WORDS} {MODEL} An uncoded share takes A (1 + X), X exponential of mean 1, k "
        f"shares k times as long; t_l is 0 or 0.5 t_c; {lab}; standard errors up to "
        f"{100 * worst:.1f} % of a ratio.",
        f"up to {OVER_GC:.1f} times as fast as GC and up to {OVER_RING:.1f} times as "
        "fast as RAR, on EC2 (abstract); at which tree, s and S is not known.",
        "all of it: the run-time model is from memory of the paper, latency is an "
        "addition, the numbers are simulated. No published table is compared with.",
        (_over_gc(points), *_over_ring(points), _over_star(points)),
        _table(points),
        tuple(_panel(shape, rival, points) for rival in _RIVALS for shape in _SHAPES),
        has_curves=True,
    )


def _points(shape: TreeShape, excess: Floats, share: float) -> list[_Point]:
    found = []
    for latency in _LATENCIES:
        field = TreeSweep(shape, lambda A: share_times(excess, A), latency)
        for s in _TOLERANCES:
            tree: Kind = ("CR", s)
            rivals: tuple[Kind, ...] = (("GC", s), STAR, RING)
            ratios = [field.over(rival, tree, share) for rival in rivals]
            own = mean(field.seconds(tree, share)[:, None])
            named = dict(zip(_RIVALS, ratios, strict=True))
            found.append(_Point(shape, s, share, latency, own, named))
    return found


def _curve(latency: float, s: int) -> str:
    return f"s = {s}, t_l = {latency:g}" + (" t_c" if latency else "")


def _panel(shape: TreeShape, rival: str, points: Sequence[_Point]) -> FigurePanel:
    curves = [
        Curve(
            _curve(latency, s),
            _SHARES,
            [
                point.rivals[rival].value
                for point in points
                if (point.shape, point.s, point.latency) == (shape, s, latency)
            ],
        )
        for latency in _LATENCIES
        for s in _TOLERANCES
    ]
    ends = _SHARES[0], _SHARES[-1]
    if rival == "GC":
        curves.append(Curve("limit N / (n L)", ends, (shape.limit,) * 2))
    if rival != "UMW":
        most = OVER_GC if rival == "GC" else OVER_RING
        curves.append(Curve("published, at most", ends, (most,) * 2))
    each = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    ticks = tuple(tick for tick in each if tick >= _LIMITS[rival][0])
    return FigurePanel(
        f"{rival} / CR, {shape}, {shape.workers} workers",
        Axis("uncoded share A", "t_c", is_log=True, ticks=(0.1, 1.0, 10.0, 100.0)),
        Axis("mean step", "CR = 1", is_log=True, limits=_LIMITS[rival], ticks=ticks),
        tuple(curves),
    )


def _table(points: Sequence[_Point]) -> Table:
    columns = [Column("tree"), Column("A", "t_c", "g"), Column("CR", "t_c", ".1f")]
    for latency in _LATENCIES:
        late = f", t_l={latency:g}" if latency else ""
        for name in _RIVALS:
            full = f"{name}/CR{late}"
            columns += [
                Column(full, "ratio", ".2f"),
                Column(f"{full}: standard error", "ratio", is_shown=False),
            ]
    plain = [p for p in points if not p.latency and p.share in _SHOWN]
    delayed = {(p.shape, p.s, p.share): p for p in points if p.latency}
    rows: list[tuple[Cell, ...]] = []
    for point in sorted(plain, key=lambda p: (p.shape.children, p.s, p.share)):
        both = point, delayed[point.shape, point.s, point.share]
        ratios = [each.rivals[name] for each in both for name in _RIVALS]
        cells = [cell for one in ratios for cell in (one.value, one.error)]
        label = f"{point.shape} s={point.s}"
        rows.append((label, point.share, point.tree.value, *cells))
    return Table(tuple(columns), tuple(rows))


def _over_gc(points: Sequence[_Point]) -> str:
    best = max(points, key=lambda p: p.rivals["GC"].value)
    beyond = [p for p in points if p.rivals["GC"].is_above(p.shape.limit)]
    held = "never exceeded" if not beyond else f"exceeded in {len(beyond)} settings"
    top = max(shape.limit for shape in _SHAPES)
    limits = " and ".join(f"{s.limit:.1f} for {s}" for s in _SHAPES)
    outside = top < OVER_GC and not best.rivals["GC"].is_above(OVER_GC)
    verdict = (
        f"is not reproduced: it lies beyond what ports of constant speed can give "
        f"at equal alpha on these trees, by a factor of {OVER_GC / top:.1f} or more"
        if outside
        else "is within what ports of constant speed can give"
    )
    return (
        f"GC takes up to {best.rivals['GC'].value:.2f} times as long as CR ({best}); "
        f"the limit N / (n L), {limits}, is {held}. The published "
        f"{OVER_GC:.1f} {verdict}."
    )


def _over_ring(points: Sequence[_Point]) -> list[str]:
    plain, delayed = (
        [p for p in points if p.latency == latency and p.s] for latency in _LATENCIES
    )
    wins = [p for p in plain if p.rivals["RAR"].is_above(1.0)]
    best = max(plain, key=lambda p: p.rivals["RAR"].value)
    reached = [p for p in delayed if p.rivals["RAR"].value >= OVER_RING]
    at_most = max(delayed, key=lambda p: p.rivals["RAR"].value)
    needed = [
        f"{latency_to_beat_ring(n, L, s, times=OVER_RING):.2f} for ({n},{L}), s = {s}"
        for n, L, s in ((4, 3, 1), (12, 2, 1), (12, 2, 3))
    ]
    ways = "needs more than bandwidth" if not wins else "could come from bandwidth"
    return [
        f"without latency coded trees beat the ring in {len(wins)} of {len(plain)} "
        f"settings: RAR takes {best.rivals['RAR'].value:.2f} of CR at most ({best}). "
        f"The published {OVER_RING:.1f} {ways}.",
        f"with t_l = {_LATENCIES[1]:g} t_c RAR takes {OVER_RING:.1f} times as long or "
        f"more in {len(reached)} of {len(delayed)} settings, "
        f"{at_most.rivals['RAR'].value:.1f} at most ({at_most}). Where nobody computes "
        f"{OVER_RING:.1f} takes a t_l / t_c of {'; '.join(needed)}: latency can "
        "explain it, which is not to say that it did.",
    ]


def _over_star(points: Sequence[_Point]) -> str:
    coded = [p for p in points if p.s and not p.latency]
    lost = [p for p in coded if p.rivals["UMW"].is_below(1.0)]
    if not lost:
        return "coded trees are nowhere slower than the uncoded star."
    least = min(p.share for p in lost)
    worst = min(lost, key=lambda p: p.rivals["UMW"].value)
    return (
        f"coded trees are slower than the uncoded star in {len(lost)} of {len(coded)} "
        f"settings without latency, from A = {least:g} t_c on; it takes "
        f"{worst.rivals['UMW'].value:.2f} of CR at {worst}."
    )
