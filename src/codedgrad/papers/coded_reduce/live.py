"""Trees on real processes: some of them pause, and the tree goes on without them.

On one machine all messages go through the same memory, so that nothing is to be had
from receiving in parallel: what is left is who is waited for, and how much is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.core import Scheme
from codedgrad.delays import Chain, Pauses, ShiftedExponential, Times, draw
from codedgrad.engines import train
from codedgrad.jobs import Floats, single_process
from codedgrad.papers.coded_reduce.digits import NAME, FoursAndNines, gisette_like
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.measuring import Measured, ratio
from codedgrad.papers.paper import Column, Effort, Exhibit, Table
from codedgrad.schemes import build

WORKERS = 12
LAW = Chain(ShiftedExponential(floor=0.02, mean=0.002), Pauses(0.05, 0.4, 0.4))
"""Seconds of sleep for the uncoded load; one worker in twenty pauses in a step."""

GOAL = 0.25  # loss on the test set
_BATCHES = 8

_SCHEMES = {
    "CR, s = 1": "coded_reduce(3, 1)",
    "uncoded tree": "coded_reduce(3, 0)",
    "GC, same alpha (S = 4)": "cyclic(4)",
    "GC, less load (S = 2)": "fractional(2)",
    "uncoded star": "uncoded",
}
_TREE, _BARE, _ALPHA, _LOAD, _STAR = _SCHEMES


@dataclass(frozen=True, slots=True, eq=False)
class _LiveRun:
    """What came of a scheme.

    Attributes:
        load: Share of the data that one worker computes, at most.
        seconds: Of every step on the clock, (steps,).
        score: Accuracy on the test set, before the first of them and after each,
            (steps + 1,).
        loss: On the test set, likewise.
        deviation: Relative distance of the parameters at the end from those of a single
            process.
    """

    load: float
    seconds: Floats
    score: Floats
    loss: Floats
    deviation: float

    @property
    def clock(self) -> Floats:
        """Seconds at the start, and at the end of every step, (steps + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.seconds)])

    @property
    def to_goal(self) -> float:
        """Seconds until the loss is at the goal; inf if it never is."""
        there = np.flatnonzero(self.loss <= GOAL)
        return float(self.clock[there[0]]) if there.size else float("inf")


def live(effort: Effort, data: FoursAndNines | None = None) -> Exhibit:
    """Return accuracy against seconds, of trees and stars with workers that pause."""
    steps = effort.some(150, 40)
    data = gisette_like(effort.seed) if data is None else data
    times = _after_one(draw(LAW, steps=steps, workers=WORKERS, seed=effort.seed))
    rate = data.rate
    runs = {
        label: _run(build(words, WORKERS), data, rate, times, effort)
        for label, words in _SCHEMES.items()
    }
    samples, features = data.train[0].shape
    return Exhibit(
        "live",
        "Accuracy against measured seconds, on real processes",
        f"{WORKERS} worker processes of one machine, {NAME} (4 against 9, {samples} to "
        f"learn from, {len(data.test[1])} to test, {features} features, half of them "
        f"noise), logistic regression, full gradient, {steps} steps of constant size, "
        f"seed {effort.seed}. Put in on purpose: {LAW}. Rule decodable. Late workers "
        "sleep to the end, into the next steps. Trees: n = 3, L = 2. One step before "
        "all others is off the clock: processes load libraries in it.",
        "up to 27.2 times as fast as GC, on EC2, with data of the size of GISETTE "
        "(abstract; the data by inference from the authors' scripts).",
        "all of it, and neither its data nor its machines: on one machine messages "
        "take no time, so that receiving in parallel gains nothing.",
        (
            _against(runs, _TREE, _BARE),
            _against(runs, _TREE, _ALPHA),
            _against(runs, _TREE, _LOAD),
            _equal_steps(list(runs.values())),
        ),
        _table(runs),
        _panels(runs),
        has_curves=True,
    )


def _after_one(times: Times) -> Times:
    """Return times with one step before them in which nobody is slow."""
    first = np.zeros((1, times.workers))
    fixed, unit = (np.vstack([first, rest]) for rest in (times.fixed, times.unit))
    return Times(fixed, unit)


def _run(
    scheme: Scheme, data: FoursAndNines, rate: float, times: Times, effort: Effort
) -> _LiveRun:
    judged: list[tuple[float, float]] = []

    def evaluate(x: Floats) -> float:
        judged.append(data.judge(x))
        effort.advance(1 / (times.steps * len(_SCHEMES)))
        return judged[-1][0]

    gradient, begin = data.gradient(scheme.parts), np.zeros(data.train[0].shape[1])
    steps = times.steps
    run = train(
        gradient, begin, scheme, steps=steps, rate=rate, evaluate=evaluate, delays=times
    )
    alone = single_process(gradient, begin, scheme.parts, steps=steps, rate=rate)
    off = np.linalg.norm(run.parameters - alone.parameters)
    score, loss = np.array(judged).T
    return _LiveRun(
        max(map(len, scheme.placement)) / scheme.parts,
        np.array([step.seconds for step in run.steps[1:]]),
        score,
        loss,
        float(off / np.linalg.norm(alone.parameters)),
    )


def _table(runs: dict[str, _LiveRun]) -> Table:
    columns = (
        Column("scheme"),
        Column("load", "of data", ".2f"),
        Column("mean step", "s"),
        Column("p95 step", "s"),
        Column("at the end", "%", ".1f"),
        Column(f"time to loss {GOAL:g}", "s", ".2f"),
        Column("off a single process", "relative", ".0e", is_shown=False),
    )
    rows = tuple(
        (
            label,
            run.load,
            float(run.seconds.mean()),
            float(np.quantile(run.seconds, 0.95)),
            100 * float(run.score[-1]),
            run.to_goal,
            run.deviation,
        )
        for label, run in runs.items()
    )
    return Table(columns, rows)


def _panels(runs: dict[str, _LiveRun]) -> tuple[FigurePanel, ...]:
    x = Axis("time in steps", "s")
    scores = tuple(Curve(n, run.clock, 100 * run.score) for n, run in runs.items())
    losses = tuple(Curve(name, run.clock, run.loss) for name, run in runs.items())
    accuracy = Axis("accuracy on the test set", "%")
    loss = Axis("loss on the test set", "nats", limits=(0.0, 0.7))
    return FigurePanel("accuracy", x, accuracy, scores), FigurePanel(
        "loss", x, loss, losses
    )


def _against(runs: dict[str, _LiveRun], one: str, other: str) -> str:
    """Say who is faster, or that it cannot be told; delays are the same for both."""
    found = _over(runs[one].seconds, runs[other].seconds)
    verb = "takes as long as, as far as can be told,"
    if found.is_below(1.0):
        verb = "is faster than"
    elif found.is_above(1.0):
        verb = "is not faster than"
    return f"{one} {verb} {other}: {found} of its mean step."


def _over(one: Floats, other: Floats) -> Measured:
    """Return the ratio of mean steps; a pause lasts for some steps, so by batches."""
    size = max(1, len(one) // _BATCHES)
    count = len(one) // size
    return ratio(*(each[: count * size].reshape(count, size) for each in (one, other)))


def _equal_steps(runs: Sequence[_LiveRun]) -> str:
    first, *others = runs
    gap = max(float(np.abs(each.score - first.score).max()) for each in others)
    off = max(run.deviation for run in runs)
    return (
        f"after equal steps accuracies differ by {100 * gap:.1f} points at most, and "
        f"parameters are off those of a single process by {off:.0e}: seconds are all "
        f"that differs. It is an easy set: {100 * first.score[0]:.0f} % are right "
        f"after one step and {100 * first.score[1]:.0f} % after two."
    )
