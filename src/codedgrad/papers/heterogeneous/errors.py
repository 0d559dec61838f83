"""The mean error of a step: negative coefficients, and workers that are equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedgrad.codes import Code, expected, heterogeneous
from codedgrad.codes.families.allocation import odds
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.heterogeneous.settings import BUDGETS, fair, late, regular
from codedgrad.papers.heterogeneous.task import Floats
from codedgrad.papers.heterogeneous.words import LATE, WORKERS
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table

_SHOWN = {
    "SGC": "SGC, 2 copies",
    "OSGC I": "OSGC I (common)",
    "OSGC II": "OSGC II (chain)",
    "interval": "interval",
    "interval, normalised": "interval, normalised",
    "all parts at all workers": "everything everywhere",
}


def negatives(code: Code) -> int:
    """Return how many coefficients are negative, after decoding with fixed weights.

    Weights of one worker may be negative, too: what counts is what a part gets.
    """
    heard = np.ones((1, code.messages), dtype=np.bool_)
    carried = code.decoder.weights(heard)[0][:, None] * code.B.toarray()
    return int((carried < -1e-12).sum())


def negative(effort: Effort) -> Exhibit:
    """Return the mean error of a step, with and without negative coefficients."""
    regimes = {
        "mild": np.linspace(0.05, 0.5, WORKERS),
        "1.5 s": late(regular(WORKERS), BUDGETS[1]),
    }
    alike = np.linspace(0.0, 1.0, 21)
    columns, panels = [Column("code")], []
    rows: dict[str, list[Cell]] = {label: [label] for label in _SHOWN.values()}
    for name, p in regimes.items():
        curves = []
        for code_name, label in _SHOWN.items():
            code = fair()[code_name].build(p, 0)
            found = expected(code, p)
            rows[label] += [negatives(code), found.aligned, found.orthogonal]
            curves.append(Curve(label, alike, [found.error(x) for x in alike.tolist()]))
        columns += [
            Column(f"{name}: negative", "count"),
            Column(f"{name}: alike", "error", ".4f"),
            Column(f"{name}: unlike", "error", ".4f"),
        ]
        heading = f"{name}: late with probability {p[0]:.2f} to {p[-1]:.2f}"
        panels.append(_against_correlation(heading, tuple(curves)))
        effort.advance(1 / len(regimes))
    cells = tuple(tuple(row) for row in rows.values())
    return Exhibit(
        "negative",
        "Schemes I and II carry negative coefficients, and pay when gradients differ",
        "10 workers, 10 parts, each worker late by itself; exact means over all 1024 "
        "sets of late workers, nothing is random. Errors are squared and relative: 1 "
        "is as good as no gradient. Gradients are alike when training begins, and have "
        "little in common at its end.",
        "schemes I and II minimise the error of an unbiased sum, for a bound that is "
        "reached where part gradients are alike.",
        "that it is no bound with negative coefficients; the allocation interval, "
        "which has none; normalised decoding.",
        (_carried(cells), _paid(cells)),
        Table(tuple(columns), cells),
        tuple(panels),
        has_curves=True,
    )


def _against_correlation(heading: str, curves: tuple[Curve, ...]) -> FigurePanel:
    x = Axis("correlation of the gradients of two parts", "1 = alike")
    y = Axis("mean squared error", "none = 1", is_log=True)
    return FigurePanel(heading, x, y, curves)


def _numbers(cells: Sequence[tuple[Cell, ...]], name: str, *places: int) -> list[float]:
    row = next(row for row in cells if row[0] == _SHOWN[name])
    return [float(cell) for place in places if (cell := row[place]) is not None]


def _carried(cells: Sequence[tuple[Cell, ...]]) -> str:
    one, two, own = (
        _numbers(cells, name, 1, 4) for name in ("OSGC I", "OSGC II", "interval")
    )
    verb = "carry" if min(one + two) > 0 else "do not always carry"
    return (
        f"schemes I and II {verb} negative coefficients, in the two regimes "
        f"{one[0]:.0f} and {one[1]:.0f} (I), {two[0]:.0f} and {two[1]:.0f} (II); "
        f"interval {own[0]:.0f} and {own[1]:.0f}."
    )


def _paid(cells: Sequence[tuple[Cell, ...]]) -> str:
    own = _numbers(cells, "interval", 2, 5, 3, 6)
    said, even = [], True
    for name in ("OSGC I", "OSGC II"):
        other = _numbers(cells, name, 2, 5, 3, 6)
        even &= bool(np.allclose(other[:2], own[:2]))
        times = [other[i] / own[i] for i in (2, 3)]
        said.append(f"{name} errs {times[0]:.1f} and {times[1]:.1f} times as much")
    alike = "all three err alike" if even else "they do not err alike"
    return (
        f"where gradients are alike {alike}; where they have nothing in common "
        f"{' and '.join(said)} as interval, at the same load."
    )


# -- the counter-setting ---------------------------------------------------------------


def equal(effort: Effort) -> Exhibit:
    """Return the error against SGC by how unequal workers are."""
    middle, budget, widths = 1.05, BUDGETS[1], np.linspace(0.0, 0.95, 20)
    rows: list[tuple[float, ...]] = []
    for width in widths.tolist():
        psi = np.linspace(middle * (1 - width), middle * (1 + width), WORKERS)
        rows.append((width, *_against_sgc(late(psi, budget))))
        effort.advance(1 / widths.size)
    names = ("alike", "correlation 0.5", "unlike")
    panel = FigurePanel(
        "above 1, SGC with two copies errs less",
        Axis("spread of psi, (most - least) / (most + least)", "0 = equal workers"),
        Axis("error of interval", "SGC = 1", limits=(0.0, 2.1)),
        tuple(
            Curve(f"gradients: {name}", widths, [row[2 + i] for row in rows])
            for i, name in enumerate(names)
        ),
    )
    columns = (
        Column("spread of psi", "0 = equal", ".2f"),
        Column("copies of interval", "mean", ".2f"),
        *(Column(name, "SGC = 1") for name in names),
        Column("alike, closed form", "SGC = 1"),
    )
    return Exhibit(
        "equal",
        "Where it does not pay: workers that are equally reliable",
        f"10 workers, 10 parts, {LATE}, psi around {middle:g}, budget {budget:g} s; "
        "SGC with 2 copies, cyclic; exact means over all sets of late workers.",
        "it is about workers that differ; of equal ones nothing could be read.",
        "the closed form: where gradients are alike OSGC errs 1 / (mean(d) mean(1/d)) "
        "of SGC, d the odds to be late.",
        tuple(_equal(rows)),
        Table(columns, tuple(rows[::3])),
        (panel,),
        has_curves=True,
    )


def _against_sgc(p: Floats) -> tuple[float, ...]:
    code = heterogeneous(p.size, p)
    ours, sgc = expected(code, p), expected(fair()["SGC"].build(p, 0), p)
    return (
        code.work / p.size,
        ours.aligned / sgc.aligned,
        ours.error(0.5) / sgc.error(0.5),
        ours.orthogonal / sgc.orthogonal,
        float(1 / (np.mean(1 / odds(p)) * np.mean(odds(p)))),
    )


def _equal(rows: Sequence[tuple[float, ...]]) -> list[str]:
    (_, copies, alike, _, unlike, _), last = rows[0], rows[-1]
    gain = "no gain" if alike > 1 - 1e-9 else "a gain"
    loss = "and a loss" if unlike > 1 else "and no loss"
    better = [row[0] for row in rows if row[3] < 1]
    where = f"at {len(better)} of {len(rows)} spreads, the least {min(better):.2f}"
    return [
        f"with equal workers there is {gain} where gradients are alike ({alike:.2f} of "
        f"SGC), {loss} where they are not ({unlike:.2f}): every part has {copies:.2g} "
        "copy then, and there is no mass to move.",
        f"at a correlation of 0.5 interval errs less "
        f"{where if better else 'nowhere'}; at a spread of {last[0]:.2f} it errs "
        f"{last[2]:.2f} (alike) to {last[4]:.2f} (unlike) of SGC.",
    ]
