"""How long a step takes, and how much is computed for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from codedgrad.delays import Times, draw
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.measuring import Floats, mean
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table, listed
from codedgrad.papers.two_stage.lab import (
    ABSTRACT,
    HELD,
    LAW,
    OFTEN,
    PARTS,
    WORKERS,
    law,
    over,
    staged,
    window,
)
from codedgrad.schemes.two_stage.model import one_stage
from codedgrad.sim.arrays.two_stage import two_stage_model

_OTHERS = (0.05, 0.2)  # probabilities besides the usual one
_ONE = ("cyclic", "fractional")
_ANEW, _LASTS = "anew", "lasts"
_STEPS = (1, 2, 3)  # tolerances of one stage
_CASES: dict[str, tuple[int, str, bool]] = {
    "fresh, M1 = 8": (8, "fractional", False),
    "fresh, M1 = 8, cyclic": (8, "cyclic", False),
    "re-use, M1 = 8": (8, "fractional", True),
    "re-use, M1 = 12": (12, "fractional", True),
}
"""Workers started, code of the second stage, whether finishers help."""

_FRESH, _FRESH_CYCLIC, _, _ALL = _CASES
_DRAWN = {  # curve -> the family, and whether slowness lasts
    "one stage, cyclic": ("cyclic", _ANEW),
    "one stage, fractional": ("fractional", _ANEW),
    "two, fresh, M1 = 8, drawn anew": (_FRESH, _ANEW),
    "two, re-use, M1 = 12, drawn anew": (_ALL, _ANEW),
    "two, re-use, M1 = 12, lasts": (_ALL, _LASTS),
}


@dataclass(frozen=True, slots=True, eq=False)
class _SchemeRun:
    """What came of a scheme.

    Attributes:
        seconds: Of every step, (steps,).
        work: Parts asked for in a step, on average.
    """

    seconds: Floats
    work: float

    def quantile(self, share: float) -> float:
        """Return the seconds that so many steps do not exceed."""
        return float(np.quantile(self.seconds, share))


Key: TypeAlias = tuple[str, str, int]
"""Family, whether slowness is drawn anew or lasts, tolerance; 0 is no code."""

Runs: TypeAlias = dict[Key, _SchemeRun]


def times(effort: Effort) -> Exhibit:
    """Return time and work of a step, of codes with one stage and with two."""
    steps = effort.some(30_000, 6000)
    chances = (OFTEN,) if effort.quick else (OFTEN, *_OTHERS)
    found = {}
    for p in chances:
        found[p] = _runs(p, steps, effort.seed)
        effort.advance(1 / len(chances))
    usual = found[OFTEN]
    also = f"; figure and file also for p = {listed([f'{p:g}' for p in _OTHERS])}"
    return Exhibit(
        "times",
        "Time of a step against the work that it costs",
        f"{LAW}; p = {OFTEN:g}{'' if effort.quick else also}. Lasts: to the end of the "
        "step; anew: drawn again for stage 2. M1 workers start. Checkpoint T1 = 1.25 "
        f"times the list of the slowest floor ({window(12):g} s, {window(8):g} s with "
        "M1 = 8), not tuned. One stage counts to n - s answers (cyclic) or takes the "
        "first of each group; late workers stop at once, and messages take no time. "
        f"{HELD} Work: parts asked for, less those handed over. {steps} steps, seed "
        f"{effort.seed}; standard errors of means up to {_largest(usual):.2f} s.",
        "existing codes carry too much redundancy; a first stage without a code and "
        f"a second one for what is not done is lighter. {ABSTRACT}",
        "the law, all numbers, the code of stage 2, and starting everybody and "
        "re-using finishers; the abstracts hold some workers back (fresh).",
        (_bought(usual), _held_back(usual), _suffices(usual), _codes(usual)),
        _table(found),
        _panels(found),
        has_curves=True,
    )


def _runs(p: float, steps: int, seed: int) -> Runs:
    same, again = (
        draw(law(p, lasts=lasts), steps=steps, workers=WORKERS, seed=seed)
        for lasts in (True, False)
    )
    pace = again.part(PARTS)
    runs: Runs = {
        (code, _ANEW, s): _SchemeRun(one_stage(pace, PARTS, s, code), PARTS * (s + 1.0))
        for code in _ONE
        for s in (0, *_STEPS)
    }
    for name in _CASES:
        for lasting, drawn in ((_ANEW, again), (_LASTS, same)):
            for s in (0, 1, 2):
                runs[name, lasting, s] = _two(name, s, drawn)
    return runs


def _two(name: str, s: int, drawn: Times) -> _SchemeRun:
    first, code, reuse = _CASES[name]
    went = two_stage_model(staged(first, s, code, reuse=reuse), drawn)
    return _SchemeRun(went.seconds, float(went.work.mean()))


def _largest(runs: Runs) -> float:
    return max(mean(run.seconds[:, None]).error for run in runs.values())


# -- table and figure ------------------------------------------------------------------


def _shown() -> dict[str, Key]:
    """Return the rows of the table, by what they are called."""
    rows: dict[str, Key] = {"uncoded": ("cyclic", _ANEW, 0)}
    rows |= {f"{code}, s = {s}": (code, _ANEW, s) for code in _ONE for s in _STEPS}
    for name in _CASES:
        for lasting in (_ANEW, _LASTS):
            for s in (0, 1):
                if s or name != _FRESH_CYCLIC:
                    rows[f"{name}, s = {s}, {lasting}"] = (name, lasting, s)
    return rows


def _table(found: dict[float, Runs]) -> Table:
    columns = [Column("scheme")]
    for p in found:
        usual = p == OFTEN
        of = "" if usual else f"p = {p:g}: "
        columns += [
            Column(f"{of}mean step", "s", ".2f", is_shown=usual),
            Column(f"{of}p95", "s", ".1f", is_shown=usual),
            Column(f"{of}p99", "s", ".1f", is_shown=usual),
            Column(f"{of}work", "parts", ".1f", is_shown=usual),
        ]
    rows = []
    for label, key in _shown().items():
        cells: list[Cell] = [label]
        for runs in found.values():
            run = runs[key]
            quantiles = run.quantile(0.95), run.quantile(0.99)
            cells += [float(run.seconds.mean()), *quantiles, run.work]
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def _panels(found: dict[float, Runs]) -> tuple[FigurePanel, ...]:
    usual = found[OFTEN]
    panels = [_panel(f"mean, p = {p:g}", found[p]) for p in sorted(found)]
    return (*panels, _panel(f"99th percentile, p = {OFTEN:g}", usual, 0.99))


def _panel(heading: str, runs: Runs, quantile: float | None = None) -> FigurePanel:
    curves = []
    for name, (family, lasting) in _DRAWN.items():
        of = [r for (n, lasts, _), r in runs.items() if (n, lasts) == (family, lasting)]
        y = [r.quantile(quantile) if quantile else float(r.seconds.mean()) for r in of]
        curves.append(Curve(name, [run.work for run in of], y))
    ticks = 24.0, 30.0, 36.0, 48.0, 72.0, 96.0
    x = Axis(
        "work; s = 0, 1, 2, ... from left to right", "parts a step", True, ticks=ticks
    )
    seconds = (3.0, 5.0, 10.0, 20.0, 40.0, 60.0)
    y_axis = Axis("time of a step", "s", True, limits=(3.0, 72.0), ticks=seconds)
    return FigurePanel(heading, x, y_axis, tuple(curves))


# -- what was found --------------------------------------------------------------------


def _quickest(runs: Runs) -> tuple[str, _SchemeRun]:
    """Return the code of one stage with the least mean step."""
    one = {key: run for key, run in runs.items() if key[0] in _ONE and key[2]}
    code, _, s = min(one, key=lambda key: float(one[key].seconds.mean()))
    return f"{code}, s = {s}", one[code, _ANEW, s]


def _bought(runs: Runs) -> str:
    label, best = _quickest(runs)
    said = []
    for name in (_FRESH, _ALL):
        run = runs[name, _ANEW, 1]
        time, work = over(run.seconds, best.seconds), run.work / best.work
        where = _where(time.value, work)
        said.append(f"{name} {where}, {time} of the time and {work:.2f} of the work")
    return (
        f"against the quickest one-stage code ({label}), two stages with s = 1, drawn "
        f"anew, gain as follows: {'; '.join(said)}."
    )


def _where(time: float, work: float) -> str:
    """Say where a gain is, from two ratios."""
    if time >= 1.0:
        return "only in work" if work < 1.0 else "nowhere"
    if work >= 1.0:
        return "only in time"
    share = math.log(work) / (math.log(work) + math.log(time))
    if 0.4 <= share <= 0.6:
        return "in time and work alike"
    return "mostly in work" if share > 0.5 else "mostly in time"


def _held_back(runs: Runs) -> str:
    pairs = [
        (runs[_ALL, lasting, s], runs[_FRESH, lasting, s])
        for lasting in (_ANEW, _LASTS)
        for s in (0, 1, 2)
    ]
    ratios = [over(one.seconds, other.seconds) for one, other in pairs]
    wins = sum(each.is_below(1.0) for each in ratios)
    verb = "beats" if wins == len(pairs) else "does not always beat"
    span = sorted(each.value for each in ratios)
    return (
        f"starting everybody and re-using finishers {verb} holding 4 of {WORKERS} "
        f"back: in {wins} of {len(pairs)} cases, {span[0]:.2f} to {span[-1]:.2f} of "
        "its mean step."
    )


def _suffices(runs: Runs) -> str:
    said = []
    for lasting, when in ((_LASTS, "lasts"), (_ANEW, "is drawn anew")):
        none, one = (runs[_ALL, lasting, s] for s in (0, 1))
        gain = over(none.seconds, one.seconds)
        enough = not gain.is_above(1.0) and none.quantile(0.99) <= one.quantile(0.99)
        verb = "suffices" if enough else "does not suffice"
        tails = f"p99 {none.quantile(0.99):.1f} s and {one.quantile(0.99):.1f} s"
        said.append(f"where slowness {when} s = 0 {verb} ({gain} of s = 1; {tails})")
    return f"with finishers re-used, {'; '.join(said)}."


def _codes(runs: Runs) -> str:
    pairs: Sequence[tuple[Key, Key]] = (
        (("fractional", _ANEW, 1), ("cyclic", _ANEW, 1)),
        ((_FRESH, _ANEW, 1), (_FRESH_CYCLIC, _ANEW, 1)),
    )
    ratios = [over(runs[one].seconds, runs[other].seconds) for one, other in pairs]
    better = all(each.is_below(1.0) for each in ratios)
    verb = "takes less time than" if better else "does not always take less time than"
    return (
        f"at s = 1 fractional repetition {verb} a cyclic code, which is for stragglers "
        f"chosen by an enemy: {ratios[0]} of it in one stage, {ratios[1]} in stage 2 "
        "with fresh helpers."
    )
