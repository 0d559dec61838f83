"""Adam with two tracks."""

from __future__ import annotations

import numpy as np

from codedgrad.codes import bounds, heterogeneous
from codedgrad.codes.families.allocation import odds
from codedgrad.codes.sparse import combine
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.heterogeneous.settings import (
    BUDGETS,
    drawn,
    fair,
    late,
    part_weights,
    regular,
)
from codedgrad.papers.heterogeneous.task import EPSILON, Floats, LeastSquaresTask
from codedgrad.papers.heterogeneous.words import APART, LATE, LOSS, TASK, WORKERS
from codedgrad.papers.paper import Column, Effort, Exhibit, Table

_STEPS, _RATE = 200, 0.02
_RATES = np.geomspace(0.01, 0.64, 13)
_ONE, _TWO = "interval, one track", "interval, two tracks"


def tracks(p: Floats, runs: int, steps: int, seed: int) -> tuple[Floats, Floats]:
    """Return the weights of the parts by both decodings, (steps, runs, parts) each.

    The second has the weights of least mean squared error, as the authors' code has
    them: parts / (p_i (1 + S)), where the coefficients of a worker sum to 1.
    """
    code = heterogeneous(p.size, p)
    heard = np.random.default_rng(seed).random((runs * steps, p.size)) >= p
    least = p.size / (p * (1 + odds(p).sum()))
    both = part_weights(code, heard), np.asarray(combine(heard * least, code.B))
    first, second = (each.reshape(runs, steps, -1).swapaxes(0, 1) for each in both)
    return first, second


def adam(effort: Effort) -> Exhibit:
    """Return Adam with one track and with two."""
    budget, runs = BUDGETS[0], effort.some(400, 60)
    p = late(regular(WORKERS), budget)
    first, second = tracks(p, runs, _STEPS, effort.seed)
    sgc = drawn(fair()["SGC"], p, runs, _STEPS, effort.seed)
    task, sure = LeastSquaresTask(WORKERS), np.ones((_STEPS, 1, WORKERS))
    pairs = {"GD": (sure, sure), "SGC": (sgc, sgc)}
    pairs |= {_ONE: (first, first), _TWO: (first, second)}
    losses = {}
    for name, pair in pairs.items():
        losses[name] = task.adam(*pair, np.append(_RATES, _RATE)).mean(axis=2)
        effort.advance(0.22)
    kappa = bounds.shrink(p.tolist())
    rate = np.array([_RATE / kappa])
    faster = task.adam(first, first, rate, EPSILON / kappa).mean(axis=2)[:, 0]
    off = float(np.max(np.abs(losses[_TWO][:, -1] / faster - 1)))
    effort.advance(0.12)
    ends = {name: loss[-1] for name, loss in losses.items()}
    best = {name: int(np.argmin(end[:-1])) for name, end in ends.items()}
    columns = (
        Column("scheme"),
        Column(f"rate {_RATE:g}", "start = 1", ".2g"),
        Column("best rate tried", "start = 1", ".2g"),
        Column("that rate", "size", ".2g"),
    )
    rows = tuple(
        (n, float(end[-1]), float(end[best[n]]), float(_RATES[best[n]]))
        for n, end in ends.items()
    )
    return Exhibit(
        "adam",
        "Adam with two tracks",
        f"{TASK}; 10 workers, {LATE}, {APART}, budget {budget:g} s; Adam (0.9, 0.999), "
        f"loss after {_STEPS} steps, {runs} runs, seed {effort.seed}.",
        "two decodings of the same messages, an unbiased one for the first moment and "
        "a shrunk one for the second, let Adam train with OSGC.",
        "the task; that for every code of theirs the second decoding is a multiple, "
        "kappa, of the first, so that it is a larger rate (and epsilon).",
        (_at_rate(ends, kappa), _same(off, kappa), _at_best(rows)),
        Table(columns, rows),
        _panels(losses),
        has_curves=True,
    )


def _panels(losses: dict[str, Floats]) -> tuple[FigurePanel, FigurePanel]:
    at, ticks = np.arange(1.0, _STEPS + 1), (0.01, 0.04, 0.16, 0.64)
    return (
        FigurePanel(
            f"rate {_RATE:g}",
            Axis("steps taken", "steps"),
            LOSS,
            tuple(Curve(name, at, loss[:, -1]) for name, loss in losses.items()),
        ),
        FigurePanel(
            f"after {_STEPS} steps, by rate",
            Axis("rate of Adam", "step size", is_log=True, ticks=ticks),
            LOSS,
            tuple(Curve(n, _RATES, loss[-1, :-1]) for n, loss in losses.items()),
        ),
    )


def _at_rate(ends: dict[str, Floats], kappa: float) -> str:
    one, two = float(ends[_ONE][-1]), float(ends[_TWO][-1])
    verb = "less" if two < one else "no less"
    return (
        f"at a rate of {_RATE:g} two tracks end with {verb} loss than one ({two:.2g} "
        f"and {one:.2g}); they make all steps {1 / kappa:.2f} times as long."
    )


def _same(off: float, kappa: float) -> str:
    same = "the same" if off < 1e-6 else "not the same"
    return (
        f"one track with rate and epsilon times {1 / kappa:.2f} is {same} (relative "
        f"difference up to {off:.0e})."
    )


def _at_best(rows: tuple[tuple[str, float, float, float], ...]) -> str:
    best = {name: (loss, rate) for name, _, loss, rate in rows}
    (one, at), (two, other) = best[_ONE], best[_TWO]
    gain = "no gain is left" if two > 0.95 * one else "a gain is left"
    return (
        f"each at its best rate, {gain}: {one:.2g} with one track (rate {at:.2g}), "
        f"{two:.2g} with two ({other:.2g}); GD {best['GD'][0]:.1g}."
    )
