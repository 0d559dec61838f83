"""Where it does not pay: nobody straggles, or hardly anybody."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from codedgrad.delays import draw
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.measuring import Floats, Measured
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table
from codedgrad.papers.two_stage.lab import (
    LAW,
    PARTS,
    WORKERS,
    StragglingLaw,
    law,
    over,
    window,
)
from codedgrad.schemes.two_stage.model import one_stage, staged

_CHANCES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
_EXCESSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_PAYS = 0.95  # of the uncoded step: less is a gain worth a name
_ONE, _FRESH = "one stage, fractional, s = 1", "two, fresh, M1 = 8, s = 1"
_CODED, _BARE = "two, re-use, M1 = 12, s = 1", "two, re-use, M1 = 12, s = 0"
_STAGED = {_FRESH: (8, 1, False), _CODED: (12, 1, True), _BARE: (12, 0, True)}
"""Workers started, tolerance, whether finishers help."""

_SHORT = ("one stage", "fresh", "re-use", "re-use s=0")
"""For the heads of columns."""

Point: TypeAlias = tuple[float, dict[str, Measured], dict[str, float]]
"""Mean step without a code [s]; mean steps over it; parts asked for over its own."""


def quiet(effort: Effort) -> Exhibit:
    """Return mean steps over those without a code, by how often workers straggle."""
    steps = effort.some(30_000, 4000)
    rare = {p: _point(law(p), 0.0, steps, effort) for p in _CHANCES}
    excess = {v: _point(_even(v), v, steps, effort) for v in _EXCESSES}
    errors = [each.error for _, of, _ in rare.values() for each in of.values()]
    return Exhibit(
        "quiet",
        "Where it does not pay: workers that hardly straggle",
        f"{LAW}, drawn anew for stage 2. Left: by p. Right: p = 0, and the mean v of "
        "the exponential excess changes; T1 is the same multiple of what the slowest "
        f"take, {window(12):g} (1 + v) s with M1 = 12 (left: v = 0). Table: s = 1, and "
        "ratios to uncoded. Work: parts asked for; a step of two stages is never "
        "longer than its first would have been alone; messages take no time. "
        f"{steps} steps a point, seed {effort.seed}; standard errors up to "
        f"{max(errors):.3f} (left).",
        "none that could be read: it is about workers that straggle.",
        "all of it.",
        (_held_back(rare), _harmless(rare), _one_stage(rare), _excess(excess)),
        _table(rare, excess),
        (
            _panel("by how often workers straggle", rare, _CHANCE),
            _panel("nobody straggles (p = 0)", excess, _EXCESS),
        ),
        has_curves=True,
    )


_CHANCE = Axis("probability to straggle, p", "a step")
_EXCESS = Axis("mean excess, v", "of the floor", is_log=True, ticks=_EXCESSES)


def _even(v: float) -> StragglingLaw:
    usual = law(0.0)
    return replace(usual, straggling=replace(usual.straggling, excess=v))


def _point(delays: StragglingLaw, v: float, steps: int, effort: Effort) -> Point:
    times = draw(delays, steps=steps, workers=WORKERS, seed=effort.seed)
    assert times.again is not None  # it is drawn anew
    first, second = times.part(PARTS), times.again.part(PARTS)
    base = one_stage(first, PARTS, 0, "cyclic")
    seconds: dict[str, Floats] = {_ONE: one_stage(first, PARTS, 1, "fractional")}
    work = {_ONE: 2.0}
    for name, (count, s, reuse) in _STAGED.items():
        went = staged(
            first, second, PARTS, range(count), window(count, v), s, reuse=reuse
        )
        seconds[name], work[name] = went.seconds, float(went.work.mean()) / PARTS
    effort.advance(1 / (len(_CHANCES) + len(_EXCESSES)))
    ratios = {name: over(each, base) for name, each in seconds.items()}
    return float(base.mean()), ratios, work


def _table(rare: dict[float, Point], excess: dict[float, Point]) -> Table:
    columns = [Column("setting"), Column("uncoded", "s", ".2f")]
    columns += [Column(name, "ratio", ".2f") for name in _SHORT]
    columns.append(Column("work of re-use", "ratio", ".2f"))
    columns += [
        Column(f"{name}: standard error", "ratio", is_shown=False) for name in _SHORT
    ]
    named = [(f"p = {p:g}", point) for p, point in rare.items()]
    named += [(f"p = 0, v = {v:g}", point) for v, point in excess.items()]
    rows: list[tuple[Cell, ...]] = []
    for name, (base, of, work) in named:
        values = [each.value for each in of.values()]
        errors = [each.error for each in of.values()]
        rows.append((name, base, *values, work[_CODED], *errors))
    return Table(tuple(columns), tuple(rows))


def _panel(heading: str, points: dict[float, Point], x: Axis) -> FigurePanel:
    curves = [
        Curve(name, tuple(points), [of[name].value for _, of, _ in points.values()])
        for name in (_ONE, *_STAGED)
    ]
    y = Axis("mean step", "uncoded = 1", limits=(0.0, 2.05))
    return FigurePanel(heading, x, y, tuple(curves))


def _pays_from(points: dict[float, Point], name: str) -> str:
    """Say from which number on a scheme gains more than a little, to the last."""
    worse = [x for x, (_, of, _) in points.items() if not of[name].is_below(_PAYS)]
    better = [x for x in points if not worse or x > max(worse)]
    return f"from p = {better[0]:g} on" if better else "nowhere"


def _held_back(rare: dict[float, Point]) -> str:
    none = rare[0.0][1][_FRESH]
    verb = "costs time" if none.is_above(1.0) else "costs no time"
    return (
        f"holding 4 of {WORKERS} workers back {verb} where nobody straggles, {none} of "
        f"the uncoded step; of the p that were tried it gains 5 % or more "
        f"{_pays_from(rare, _FRESH)}."
    )


def _harmless(rare: dict[float, Point]) -> str:
    _, of, work = rare[0.0]
    gain = 1 - of[_CODED].value
    verdict = "gains next to nothing" if gain < 0.05 else "gains"
    return (
        f"starting everybody {verdict} there, {of[_CODED]} of the uncoded step for "
        f"{work[_CODED]:.2f} of its work with s = 1, {of[_BARE]} for "
        f"{work[_BARE]:.2f} with s = 0; 5 % or more {_pays_from(rare, _CODED)}."
    )


def _one_stage(rare: dict[float, Point]) -> str:
    none = rare[0.0][1][_ONE]
    return (
        f"a code of one stage is worse off: {none} of the uncoded step where nobody "
        f"straggles; it gains 5 % or more {_pays_from(rare, _ONE)}."
        if none.value > rare[0.0][1][_CODED].value
        else f"a code of one stage is no worse off: {none} of the uncoded step."
    )


def _excess(excess: dict[float, Point]) -> str:
    low, high = excess[_EXCESSES[0]], excess[_EXCESSES[-1]]
    gains = high[1][_CODED].is_below(_PAYS)
    verdict = "an exponential excess alone is enough for stage 2 to gain"
    if not gains:
        verdict = "an exponential excess alone gives stage 2 nothing to gain"
    return (
        f"without stragglers, {verdict}: it takes {low[1][_CODED]} of the uncoded step "
        f"at v = {_EXCESSES[0]:g}, {high[1][_CODED]} at v = {_EXCESSES[-1]:g}, for "
        f"{high[2][_CODED]:.2f} of its work."
    )
