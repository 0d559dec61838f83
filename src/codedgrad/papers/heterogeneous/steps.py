"""Loss against steps, at the four points of the paper's grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.heterogeneous.settings import (
    BIASED,
    BUDGETS,
    STEP,
    published_weights,
)
from codedgrad.papers.heterogeneous.task import Floats, LeastSquaresTask
from codedgrad.papers.heterogeneous.words import LATE, LOSS, TASK
from codedgrad.papers.measuring import ratio
from codedgrad.papers.paper import Column, Effort, Exhibit, Table, listed

_STEPS = 100


def steps(effort: Effort) -> Exhibit:
    """Return loss against steps at the four points of the paper's grid."""
    runs = {10: effort.some(400, 100), 100: effort.some(100, 20)}
    slow = effort.some(20, 4)
    points = [(workers, budget) for workers in runs for budget in BUDGETS]
    found: list[dict[str, Floats]] = []
    for workers, budget in points:
        weights = published_weights(
            workers,
            budget,
            runs=runs[workers],
            slow_runs=slow,
            seed=effort.seed,
            steps=_STEPS,
        )
        task, size = LeastSquaresTask(workers), np.array([STEP])
        found.append({n: task.losses(w, size)[:, 0] for n, w in weights.items()})
        effort.advance(1 / len(points))
    names = [f"k={workers}, {budget:g} s" for workers, budget in points]
    headings = [f"{workers} workers, budget {budget:g} s" for workers, budget in points]
    return Exhibit(
        "steps",
        "Loss against steps, compared as the authors' code compares",
        f"k workers; {TASK}; {LATE}, psi uniform from 0.1 to 2; a step ends at its "
        f"budget; its size is {STEP:g} divided by each scheme's copies; mean of "
        f"{runs[10]} runs with 10 workers and {runs[100]} with 100 (OD: {slow}), seed "
        f"{effort.seed}.",
        "OSGC comes closest to GD and is ahead of all baselines, at 10 and 100 workers "
        "and budgets of 1.1 and 1.5; unbiasedness alone (SGC) is not enough.",
        "the task (theirs is object detection); the allocation interval. The divisors, "
        "and baselines that are not scaled up, are as in the authors' code.",
        (_order(found), _ahead(names, found), _divided()),
        Table(
            (
                Column(f"after {_STEPS} steps"),
                *(Column(name, "start = 1", ".2g") for name in names),
            ),
            tuple(
                (name, *(float(each[name][-1].mean()) for each in found))
                for name in found[0]
            ),
        ),
        tuple(_panel(head, each) for head, each in zip(headings, found, strict=True)),
        has_curves=True,
    )


def _panel(heading: str, losses: dict[str, Floats]) -> FigurePanel:
    at = np.arange(1.0, _STEPS + 1)
    curves = tuple(Curve(n, at, loss.mean(axis=1)) for n, loss in losses.items())
    return FigurePanel(heading, Axis("steps taken", "steps"), LOSS, curves)


def _order(found: Sequence[dict[str, Floats]]) -> str:
    ends = [{n: float(loss[-1].mean()) for n, loss in each.items()} for each in found]
    right = all(
        end["GD"] < min(end["OSGC I"], end["SGC"])
        and max(end["OSGC I"], end["SGC"]) < min(end[name] for name in BIASED)
        for end in ends
    )
    holds = "holds at all four" if right else "does not hold at all four"
    return f"GD, then the unbiased codes, then the biased ones: {holds}."


def _ahead(names: Sequence[str], found: Sequence[dict[str, Floats]]) -> str:
    gaps = [
        ratio(each["OSGC I"][-1][:, None], each["SGC"][-1][:, None]) for each in found
    ]
    shown = ", ".join(f"{gap.value:.2f} ±{gap.error:.2f}" for gap in gaps)
    clear = [n for n, gap in zip(names, gaps, strict=True) if gap.is_below(1)]
    where = "at all four" if len(clear) == len(names) else f"at {len(clear)} of four"
    return (
        f"OSGC I ends at {shown} of the loss of SGC; clearly below (by 2 standard "
        f"errors) {where if clear else 'nowhere'}."
    )


def _divided() -> str:
    """Say what the loss of OSGC would be of that of SGC, were both exact."""
    ratios = []
    for workers in (10, 100):
        sizes = STEP / np.array([2 - 1 / workers, 2.0])
        ours, theirs = LeastSquaresTask(workers).losses(
            np.ones((_STEPS, 1, workers)), sizes
        )[-1]
        ratios.append(f"{float(ours[0] / theirs[0]):.2f}")
    return (
        "their steps are divided by different copies, and that alone, with the exact "
        f"gradient, would give {listed(ratios)} at 10 and 100 workers; the steps of "
        "biased codes shrink with every answer that is missing."
    )
