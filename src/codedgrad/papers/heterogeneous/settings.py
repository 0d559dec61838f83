"""Schemes and workers of the comparison, and what comes of them.

Worker i answers after 1 + Exp(psi_i), so that it is late for
a budget with probability exp(-psi_i (budget - 1)). The schemes are here twice: as the
authors' published code runs them, and as one would want to use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad import codes
from codedgrad.codes import Code, heterogeneous, stochastic, uncoded
from codedgrad.codes.decoders import Fixed, OneStep
from codedgrad.codes.families.allocation import shares
from codedgrad.codes.sparse import combine, tidy
from codedgrad.papers.heterogeneous.task import LeastSquaresTask

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

BUDGETS = (1.1, 1.5)  # seconds; an answer takes 1 at least
STEP = 0.05  # the size of a step, as published
BIASED = ("EHD", "BGC", "OD", "IS-SGD")
"""Published schemes that are not right on average."""

GRID = np.geomspace(0.05, 12.8, 17)  # wide enough that none is best at its edge
NEAR = 1e-2


def late(psi: Floats, budget: float) -> Floats:
    """Return the probability to be late of workers with these rates."""
    return np.asarray(np.exp(-psi * (budget - 1)))


def regular(workers: int) -> Floats:
    """Return rates from 0.1 to 2, equally far apart, shape (workers,)."""
    return np.linspace(0.1, 2.0, workers)


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheme of a table.

    Attributes:
        build: Returns its code, from the probabilities to be late and a seed.
        divisor: What its step is divided by.
        is_slow: Whether it gets fewer runs.
        is_drawn: Whether every run has a code of its own.
    """

    build: Callable[[Floats, int], Code]
    divisor: float = 1.0
    is_slow: bool = False
    is_drawn: bool = False


def everything(p: Floats, _: int) -> Code:
    """Return the code of which all are heard, whatever happens: see `part_weights`."""
    return uncoded(p.size)


def ignored(p: Floats, scaled: bool) -> Code:
    """Return the code that adds the answers there are, scaled up or not."""
    B = uncoded(p.size).B
    return Code("ignore", B, None, OneStep(B, 1) if scaled else Fixed(B))


def full(p: Floats, _: int) -> Code:
    """Return the unbiased code of least error, in which everybody has everything."""
    B = tidy(np.full((p.size, p.size), 1 / p.size))
    return Code("full", B, None, Fixed(B, shares(p, p.size) / (1 - p)))


def published(workers: int) -> dict[str, Contender]:
    """Return the schemes as the authors' code runs them; sums are over copies."""
    d, ours = 2, 2 - 1 / workers
    return {
        "GD": Contender(everything),
        "OSGC I": Contender(
            lambda p, _: heterogeneous(len(p), p, allocation="common"), ours
        ),
        "interval": Contender(lambda p, _: heterogeneous(len(p), p), ours),
        "SGC": Contender(lambda p, seed: stochastic(len(p), d, p, seed=seed), d),
        "EHD": Contender(lambda p, _: codes.erasurehead(len(p), d, decoding="sum")),
        "BGC": Contender(
            lambda p, seed: codes.bernoulli(len(p), d, decoding="sum", seed=seed)
        ),
        "OD": Contender(
            lambda p, seed: codes.vertex_graph(len(p), d, seed=seed), d, is_slow=True
        ),
        "IS-SGD": Contender(lambda p, _: ignored(p, scaled=False), d),
    }


def fair() -> dict[str, Contender]:
    """Return the schemes as one would want to use them."""

    def ours(decoding: str, allocation: str = "interval") -> Contender:
        return Contender(
            lambda p, _: heterogeneous(
                len(p), p, decoding=decoding, allocation=allocation
            )
        )

    def cyclic(weights: str) -> Contender:
        return Contender(
            lambda p, _: stochastic(len(p), 2, p, placement="cyclic", weights=weights)
        )

    return {
        "GD": Contender(everything),
        "all parts at all workers": Contender(full),
        "interval, normalised": ours("normalised"),
        "interval, gram": ours("gram"),
        "interval": ours("fixed"),
        "interval, debiased": ours("debiased"),
        "interval, least squares": ours("optimal"),
        "OSGC I": ours("fixed", "common"),
        "OSGC II": ours("fixed", "chain"),
        "SGC": cyclic("equal"),
        "SGC, inverse odds": cyclic("inverse-odds"),
        "ErasureHead, one of a group": Contender(
            lambda p, _: codes.erasurehead(len(p), 2)
        ),
        "OD": Contender(lambda p, seed: codes.vertex_graph(len(p), 2, seed=seed)),
        "BGC, one-step": Contender(
            lambda p, seed: codes.bernoulli(len(p), 2, seed=seed), is_drawn=True
        ),
        "IS-SGD, scaled": Contender(lambda p, _: ignored(p, scaled=True)),
        "IS-SGD": Contender(lambda p, _: ignored(p, scaled=False)),
    }


def part_weights(code: Code, heard: Bools) -> Floats:
    """Return the weights that parts end up with, (patterns, parts)."""
    if code.name.startswith("uncoded"):
        return np.ones((len(heard), code.parts))
    return np.asarray(combine(code.decoder.weights(heard), code.B))


def published_weights(
    workers: int,
    budget: float,
    *,
    runs: int,
    slow_runs: int,
    seed: int = 1,
    steps: int = 100,
) -> dict[str, Floats]:
    """Return the weights of the parts of every published scheme, by its divisor.

    All schemes meet the same workers, drawn anew in every run.

    Returns:
        By name, shape (steps, runs, parts); fewer runs of those that are slow.
    """
    rng = np.random.default_rng(seed)
    weights: dict[str, list[Floats]] = {}
    for run in range(runs):
        p = late(rng.uniform(0.1, 2, workers), budget)
        heard = rng.random((steps, workers)) >= p  # the same for all schemes
        for name, entry in published(workers).items():
            if run < slow_runs or not entry.is_slow:
                c = part_weights(entry.build(p, run), heard) / entry.divisor
                weights.setdefault(name, []).append(c)
    return {name: np.stack(each, axis=1) for name, each in weights.items()}


def drawn(entry: Contender, p: Floats, runs: int, steps: int, seed: int) -> Floats:
    """Return weights of the parts, shape (steps, runs, parts)."""
    rng = np.random.default_rng(seed)
    heard = rng.random((runs, steps, p.size)) >= p
    if entry.is_drawn:
        each = [part_weights(entry.build(p, run), heard[run]) for run in range(runs)]
        return np.stack(each, axis=1)
    flat = part_weights(entry.build(p, 0), heard.reshape(-1, p.size))
    return flat.reshape(runs, steps, -1).swapaxes(0, 1)


@dataclass(frozen=True, slots=True)
class Needed:
    """What a scheme needs, at the best of its constant steps.

    Attributes:
        steps: Until the mean is near; inf if it never is.
        size: Of a step.
    """

    steps: float
    size: float


def steps_needed(
    entry: Contender,
    p: Floats,
    *,
    runs: int,
    near: float = NEAR,
    most: int = 100,
    seed: int = 2,
    sizes: Floats = GRID,
) -> Needed:
    """Return how many steps bring the mean squared distance below `near`.

    The best size is picked on other runs than those it is judged by.
    """

    def first(seed: int, sizes: Floats) -> Floats:
        weights = drawn(entry, p, runs, most, seed)
        found = LeastSquaresTask(weights.shape[2]).distances(weights, sizes)
        is_near = found.mean(axis=2) <= near
        return np.where(is_near.any(axis=0), is_near.argmax(axis=0) + 1.0, np.inf)

    size = sizes[int(np.argmin(first(seed, sizes)))]
    return Needed(float(first(seed + 1, np.array([size]))[0]), float(size))
