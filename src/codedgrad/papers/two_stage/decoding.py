"""What decoding costs, measured here: by least squares, and by what a code knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeAlias, TypeVar

import numpy as np

from codedgrad.codes import Code, cyclic, decode, fractional
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Cell, Column, Effort, Exhibit, Table
from codedgrad.papers.two_stage.lab import ABSTRACT, one_thread

T = TypeVar("T")

Costs: TypeAlias = dict[str, list[float]]
"""Seconds, by kind and in the order of the numbers of workers."""

_TOLERANCE = 1
_NUMBERS = 10_000  # in a message
_FEW, _MANY = 1 / 3, 0.9  # of the workers: helpers that are fresh, and re-used
_LEAST, _MOST, _ENOUGH = 4, 40, 0.05  # runs, and seconds for them
_ALL, _FRESH, _RE_USED = (
    "least squares, one stage, n x n",
    "least squares, stage 2, h = n / 3",
    "least squares, stage 2, h = 0.9 n",
)
_OURS, _OURS_FRESH = "ours, one stage, cyclic", "ours, stage 2, cyclic, h = n / 3"
_FRACTIONAL, _ADDING = "ours, fractional", f"adding up n x {_NUMBERS} numbers"
_SHORT = {
    _ALL: "LS, n",
    _FRESH: "LS, n/3",
    _RE_USED: "LS, 0.9n",
    _OURS: "ours, n",
    _OURS_FRESH: "ours, n/3",
    _FRACTIONAL: "fract.",
    _ADDING: "adding up",
}
"""For the heads of columns."""


def decoding(effort: Effort) -> Exhibit:
    """Return the seconds of a decoding against the number of workers."""
    last = 8 if effort.quick else 9
    workers = [2**power for power in range(3, last + 1)]
    if effort.part < 1:
        workers = workers[:3]
    with one_thread():
        costs = _costs(workers, effort)
    return Exhibit(
        "decoding",
        "Seconds to find the weights of a step",
        f"s = {_TOLERANCE}; patterns of late workers drawn anew, the "
        f"shortest of {_LEAST} to {_MOST} measured on this machine, whatever else it "
        "does: ratios tell more than seconds. h: "
        "helpers, a third of the workers if fresh, 0.9 of them where finishers are "
        "re-used; LS: least squares. Adding up: one product with n messages of "
        f"{_NUMBERS} numbers. Seed {effort.seed}.",
        "encoding and decoding of existing codes cost more with more workers; the "
        f"second stage is to be light. {ABSTRACT} By least squares is our reading.",
        "all of it: a decoder that knows the null space of its code, and one that "
        "counts, have no n x n system to solve.",
        (
            _grows(costs, workers),
            _lighter(costs),
            _structured(costs, workers),
            _matters(costs, workers),
        ),
        _table(costs, workers),
        (_panel(costs, workers),),
        has_curves=True,
    )


def _costs(workers: list[int], effort: Effort) -> Costs:
    rng = np.random.default_rng(effort.seed)
    costs: Costs = {}
    for n in workers:
        for kind, run in _kinds(n, rng).items():
            costs.setdefault(kind, []).append(run())
        effort.advance((n / workers[-1]) ** 2 / 1.34)
    return costs


def _kinds(n: int, rng: np.random.Generator) -> dict[str, Callable[[], float]]:
    """Return what measures each kind."""
    fresh, many = (cyclic(_helpers(n, share), _TOLERANCE) for share in (_FEW, _MANY))
    whole, groups = cyclic(n, _TOLERANCE), fractional(n, _TOLERANCE)
    return {
        _ALL: partial(_least_squares, whole, rng),
        _FRESH: partial(_least_squares, fresh, rng),
        _RE_USED: partial(_least_squares, many, rng),
        _OURS: partial(_ours, whole, rng),
        _OURS_FRESH: partial(_ours, fresh, rng),
        _FRACTIONAL: partial(_ours, groups, rng),
        _ADDING: partial(_adding, n, rng),
    }


def _helpers(n: int, share: float) -> int:
    return max(_TOLERANCE + 1, math.ceil(share * n))


def _heard(code: Code, rng: np.random.Generator) -> list[int]:
    """Draw who is heard where as many are late as the code tolerates, by group."""
    block = code.inner.workers if code.inner is not None else code.workers
    order = rng.random((code.workers // block, block)).argsort(axis=1)
    return np.flatnonzero(order.ravel() >= _TOLERANCE).tolist()


def _least_squares(code: Code, rng: np.random.Generator) -> float:
    B, ones = code.B.toarray(), np.ones(code.parts)
    return _seconds(
        lambda heard: np.linalg.lstsq(B[heard].T, ones, rcond=None),
        lambda: _heard(code, rng),
    )


def _ours(code: Code, rng: np.random.Generator) -> float:
    return _seconds(partial(decode, code), lambda: _heard(code, rng))


def _adding(n: int, rng: np.random.Generator) -> float:
    rows = rng.standard_normal((n, _NUMBERS))
    return _seconds(lambda weights: weights @ rows, lambda: rng.standard_normal(n))


def _seconds(run: Callable[[T], object], draw: Callable[[], T]) -> float:
    """Return the shortest of some runs: others are held up by who knows what."""
    took: list[float] = []
    while len(took) < _LEAST or (sum(took) < _ENOUGH and len(took) < _MOST):
        given = draw()
        start = perf_counter()
        run(given)
        took.append(perf_counter() - start)
    return min(took)


def _table(costs: Costs, workers: list[int]) -> Table:
    columns = [Column("workers")]
    columns += [Column(_SHORT[kind], "ms", ".2f") for kind in costs]
    columns.append(Column("LS, n / cheapest", "ratio", ".0f"))
    solved = [seconds for kind, seconds in costs.items() if kind != _ADDING]
    cheapest = [min(each) for each in zip(*solved, strict=True)]
    rows: list[tuple[Cell, ...]] = []
    for i, n in enumerate(workers):
        each = [1e3 * seconds[i] for seconds in costs.values()]
        rows.append((str(n), *each, costs[_ALL][i] / cheapest[i]))
    return Table(tuple(columns), tuple(rows))


def _panel(costs: Costs, workers: list[int]) -> FigurePanel:
    curves = tuple(
        Curve(kind, workers, [1e3 * each for each in seconds])
        for kind, seconds in costs.items()
    )
    x = Axis("workers", "n", is_log=True, ticks=tuple(map(float, workers)))
    y = Axis("time", "ms", is_log=True)
    return FigurePanel("one decoding", x, y, curves)


def _grows(costs: Costs, workers: list[int]) -> str:
    def power(kind: str) -> float:
        seconds, half = costs[kind], len(workers) // 2
        return math.log(seconds[-1] / seconds[half]) / math.log(
            workers[-1] / workers[half]
        )

    by_hand, ours = power(_ALL), power(_OURS)
    verb = "grows" if by_hand > 1 else "does not grow much"
    half = len(workers) // 2
    return (
        f"by least squares the cost of one stage {verb} with the workers, as "
        f"n^{by_hand:.1f} from n = {workers[half]} to {workers[-1]}; with a decoder "
        f"that knows its code as n^{ours:.1f}."
    )


def _lighter(costs: Costs) -> str:
    fresh, many = (costs[kind][-1] / costs[_ALL][-1] for kind in (_FRESH, _RE_USED))
    verb = "is lighter" if fresh < 0.8 else "is not lighter"
    also = "hardly lighter" if many > 0.5 else "lighter, too"
    return (
        f"by least squares stage 2 {verb} with fresh helpers, {fresh:.2g} of one stage "
        f"at the largest n; where finishers are re-used it is {also}, {many:.2g}, as "
        "nearly everybody helps."
    )


def _structured(costs: Costs, workers: list[int]) -> str:
    times = costs[_ALL][-1] / costs[_OURS][-1]
    against = costs[_OURS][-1] / costs[_OURS_FRESH][-1]
    verdict = "The argument holds" if against > 2 else "Little of the argument is left"
    pairs = zip(workers, costs[_ALL], costs[_OURS], strict=True)
    small = [n for n, plain, ours in pairs if plain < ours]
    upto = f"up to n = {max(small)}" if small else "nowhere"
    return (
        f"a structured decoder makes one stage cheap: at n = {workers[-1]} least "
        f"squares takes {times:.0f} times as long (it is the quicker one {upto}). "
        f"{verdict} then: one stage takes {against:.1f} times what the second does, "
        f"{1e3 * costs[_OURS][-1]:.2f} ms; fractional repetition, with nothing to "
        f"solve, {1e3 * costs[_FRACTIONAL][-1]:.2f} ms."
    )


def _matters(costs: Costs, workers: list[int]) -> str:
    share = costs[_OURS][-1] / costs[_ADDING][-1]
    plain = costs[_ALL][-1] / costs[_ADDING][-1]
    return (
        f"adding up {workers[-1]} messages of only {_NUMBERS} numbers takes "
        f"{1e3 * costs[_ADDING][-1]:.1f} ms; our decoding of one stage {share:.2f} of "
        f"that, least squares {plain:.1f}."
    )
