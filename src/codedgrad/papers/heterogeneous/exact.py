"""Loss against seconds, where the exact sum can be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes import heterogeneous
from codedgrad.delays import Times
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.heterogeneous.settings import (
    BUDGETS,
    drawn,
    fair,
    late,
    regular,
    steps_needed,
)
from codedgrad.papers.heterogeneous.task import Floats, LeastSquaresTask
from codedgrad.papers.heterogeneous.words import LATE, LOSS, TASK, WORKERS
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table
from codedgrad.schemes import fractional, uncoded
from codedgrad.sim import Machine, compare

_CLUSTERS = {
    "psi from 0.1 to 2, as in the paper": regular(WORKERS),
    "one slow worker (psi 0.05), nine fast (5)": np.array([0.05] + [5.0] * 9),
}
_NEAR, _LONG, _BUDGETS = 1e-4, 150, (*BUDGETS, 2.0, 3.0)
_COPIES = {1: "exact, wait for all"} | {d: f"exact, {d} copies" for d in (2, 5, 10)}


@dataclass(frozen=True, slots=True)
class _Answers:
    """An answer takes 1 + Exp(psi) seconds, whatever the load."""

    psi: tuple[float, ...]

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times."""
        excess = rng.standard_exponential((steps, workers)) / np.array(self.psi)
        return Times(1.0 + excess, np.zeros((steps, workers)))


@dataclass(frozen=True, slots=True)
class _Timed:
    """How soon a scheme is near: copies, seconds of a step, steps, its curve."""

    copies: float
    step: float
    steps: float
    curve: Curve

    @property
    def seconds(self) -> float:
        """Until it is near."""
        return self.step * self.steps

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of the table."""
        return self.step, self.steps, self.seconds


def exact(effort: Effort) -> Exhibit:
    """Return loss against seconds, at a budget and with the exact sum."""
    runs = effort.some(300, 60)
    found = [_timed(psi, runs, effort) for psi in _CLUSTERS.values()]
    columns = [Column("scheme"), Column("copies", "mean", ".2f")]
    for who in ("paper's", "one slow"):
        columns += [
            Column(f"{who}: step", "s", ".2f"),
            Column(f"{who}: needed", "steps", ".0f"),
            Column(f"{who}: time", "s", ".1f"),
        ]
    names = list(found[0])
    rows = tuple(
        (n, found[0][n].copies, *(cell for own in found for cell in own[n].cells))
        for n in names
    )
    panels = tuple(
        FigurePanel(
            heading,
            Axis("time", "s", limits=(0.0, 25.0)),
            Axis(LOSS.name, LOSS.unit, is_log=True, limits=(3e-7, 2.0)),
            tuple(each.curve for each in own.values()),
        )
        for heading, own in zip(_CLUSTERS, found, strict=True)
    )
    return Exhibit(
        "exact",
        "Where it may not pay: the exact sum can be had in time",
        f"{TASK}; 10 workers, {LATE}; exact: fractional repetition, rule decodable, "
        "late workers stop at once; every scheme at the best of 17 constant steps for "
        f"a squared distance of {_NEAR:g}, picked on other runs; {runs} runs, seed "
        f"{effort.seed}.",
        "at equal numbers of steps OSGC is near GD. In what could be read seconds are "
        "not compared, and do not depend on the load.",
        "all of it.",
        (
            _verdict("in the paper's model", found[0]),
            _verdict("with one slow worker", found[1]),
        ),
        Table(tuple(columns), rows),
        panels,
        has_curves=True,
    )


def _timed(psi: Floats, runs: int, effort: Effort) -> dict[str, _Timed]:
    found = {}
    for budget in _BUDGETS:
        p, name = late(psi, budget), f"interval, {budget:g} s"
        copies = heterogeneous(WORKERS, p).work / WORKERS
        found[name] = _near("interval", name, p, (copies, budget), runs, effort.seed)
        effort.advance(1 / 16)
    results = compare(
        [uncoded(WORKERS), *(fractional(WORKERS, d - 1) for d in (2, 5, 10))],
        _Answers(tuple(psi.tolist())),
        steps=100,
        runs=effort.some(100, 10),
        seed=effort.seed,
        machine=Machine(drain=False),
    )
    for (copies, name), result in zip(_COPIES.items(), results, strict=True):
        taken = float(copies), float(result.seconds.mean())
        found[name] = _near("GD", name, late(psi, 2.0), taken, runs, effort.seed)
        effort.advance(1 / 16)
    return found


def _near(
    scheme: str, name: str, p: Floats, taken: tuple[float, float], runs: int, seed: int
) -> _Timed:
    """Return how soon a scheme is near, with so many copies and seconds a step."""
    entry, (copies, step) = fair()[scheme], taken
    need = steps_needed(entry, p, runs=runs, near=_NEAR, most=_LONG, seed=seed + 1)
    weights = drawn(entry, p, runs, _LONG, seed)
    loss = (
        LeastSquaresTask(WORKERS)
        .losses(weights, np.array([need.size]))[:, 0]
        .mean(axis=1)
    )
    loss = np.append(1.0, loss)
    seconds, kept = step * np.arange(float(len(loss))), loss > 1e-7
    return _Timed(copies, step, need.steps, Curve(name, seconds[kept], loss[kept]))


def _verdict(where: str, own: dict[str, _Timed]) -> str:
    budgets: Sequence[str] = [name for name in own if name.startswith("interval")]
    best = min(budgets, key=lambda name: own[name].seconds)
    ours, two, five = (own[n].seconds for n in (best, _COPIES[2], _COPIES[5]))
    return (
        f"{where} OSGC {'pays' if ours < two else 'does not pay'} against the exact "
        f"sum at about its own load: {ours:.1f} s at its best budget ({best}), "
        f"{two:.1f} s with 2 exact copies, {five:.1f} s with 5, whose work costs no "
        "time in this model."
    )
