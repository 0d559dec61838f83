r"""Find a law for recorded seconds.

Three candidates, each with a closed-form distribution: a shifted exponential for
everybody; the same with one factor per worker; a two-state chain. All of it is ours,
none of it is taken from a paper:

- *Shifted exponential.* From $m$ values with minimum $x_1$ and mean $\bar x$: mean
  excess $m (\bar x - x_1) / (m - 1)$ and floor $x_1 - (\bar x - x_1) / (m - 1)$, that
  is, maximum likelihood with its bias removed, and the floor not below 0.
- *Classes.* A worker's factor is its mean over the median worker's mean; the shifted
  exponential is then fitted to the seconds divided by the factors.
- *Chain.* The values are split in two at the threshold that leaves the least squares
  in log time (2-means, exact). Levels that overlap much are told apart badly. The
  share of slow values $\pi$ is that of all values; the memory comes from the
  transitions between steps whose numbers differ by 1, never across a gap: $p + q$ is
  the number of changes of state over the number expected without memory,
  $2 \pi (1 - \pi)$ per transition (half a change if there was none), and
  $p = \pi (p + q)$. Without any such transition no memory is assumed.

A recording at one load cannot tell what part of the time grows with the load: the
laws fitted have all of it grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codedgrad.delays.matrix import Matrix
from codedgrad.delays.models.chain import Chain
from codedgrad.delays.models.classes import Classes
from codedgrad.delays.models.markov import Markov
from codedgrad.delays.models.shifted_exponential import ShiftedExponential
from codedgrad.delays.times import GRID, Bools, Delays, Floats, on_grid

HANDICAP = 0.3
"""Over the root of the steps: how much closer a law with more parameters must be.

Ours, by measurement: on records that are shifted exponential, 20 x 4 to 400 x 16,
factors and a second state came closer by this much in 1 of 1500.
"""

Cdf = Callable[[Floats, bool], Floats]


@dataclass(frozen=True, slots=True)
class Fit:
    """A law fitted to a recording.

    Attributes:
        model: The law.
        distance: Kolmogorov-Smirnov distance between what a worker took and the law
            for that worker, the mean over the workers; from 0 (best) to 1.
        note: What it rests on.
    """

    model: Delays
    distance: float
    note: str

    def __str__(self) -> str:
        return f"distance {self.distance:.3f}: {self.model} ({self.note})"


_FEW = 5  # steps


def fit(matrix: Matrix) -> list[Fit]:
    """Fit every candidate, the best first.

    The order is that of the distance, to which `HANDICAP` / sqrt(steps) is added for
    the laws with more parameters than a shifted exponential.

    Args:
        matrix: What was recorded.

    Example:
        >>> from codedgrad.delays import read_matrix, traces
        >>> best = fit(read_matrix(traces()["AR"]))[0]
        >>> best.note
        'worker dp0 is the slowest, 2.25 x the median worker'
    """
    seconds = on_grid(matrix.seconds)
    candidates: list[Fit | None] = [_pooled(seconds)]
    if len(seconds) >= _FEW:  # a factor for every worker fits any few steps
        candidates.append(_classes(seconds, matrix.workers))
    candidates.append(_markov(seconds, matrix.follows))
    found = [candidate for candidate in candidates if candidate is not None]
    handicap = HANDICAP / np.sqrt(len(seconds))

    def score(one: Fit) -> float:
        plain = isinstance(one.model, ShiftedExponential)
        return one.distance + (0.0 if plain else float(handicap))

    return sorted(found, key=score)


def _pooled(seconds: Floats) -> Fit:
    law = _shifted(seconds)
    rows, columns = seconds.shape
    note = f"{rows} steps of {columns} workers, all alike and without memory"
    return Fit(law, _distance(seconds, _cdf(law)), note)


def _classes(seconds: Floats, workers: tuple[str, ...]) -> Fit | None:
    means = seconds.mean(axis=0)
    if len(means) == 1 or means.min() <= 0:
        return None
    factors = np.clip(means / np.median(means), 1e-6, 1e6)
    level = on_grid(seconds / factors)
    law = _shifted(level)
    slowest = int(factors.argmax())
    note = (
        f"worker {workers[slowest]} is the slowest, "
        f"{factors[slowest]:.3g} x the median worker"
    )
    model = Chain(law, Classes(tuple(factors.tolist())))
    return Fit(model, _distance(level, _cdf(law)), note)


def _markov(seconds: Floats, follows: Bools) -> Fit | None:
    slow = _split(seconds)
    if slow is None:
        return None
    fast_law, slow_law = _shifted(seconds[~slow]), _shifted(seconds[slow])
    share = float(slow.mean())
    usable = int(follows.sum()) * slow.shape[1]
    changes = int((slow[1:] != slow[:-1])[follows].sum())
    moves, note = 1.0, "no two steps recorded follow each other: no memory assumed"
    if usable:
        expected = 2 * share * (1 - share) * usable
        moves = min(max(changes, 0.5) / expected, 1 / max(share, 1 - share))
        note = f"{changes} changes of state in {usable} usable transitions"
    enter, leave = share * moves, (1 - share) * moves
    model = Markov(fast_law, slow_law, min(enter, 1.0), min(leave, 1.0))
    fast_cdf, slow_cdf = _cdf(fast_law), _cdf(slow_law)

    def mixture(x: Floats, below: bool) -> Floats:
        return (1 - share) * fast_cdf(x, below) + share * slow_cdf(x, below)

    return Fit(model, _distance(seconds, mixture), note)


def _shifted(values: Floats) -> ShiftedExponential:
    least, mean = float(values.min()), float(values.mean())
    excess = max(mean - least, 0.0)
    floor = max(least - excess / max(values.size - 1, 1), 0.0)
    return ShiftedExponential(floor, max(mean - floor, 0.0) if excess else 0.0)


def _split(seconds: Floats) -> Bools | None:
    """Say which values belong to the upper of two levels; None if all are equal."""
    logs = np.log(np.maximum(seconds, GRID))
    values = np.sort(logs, axis=None)
    ends = np.flatnonzero(np.diff(values) > 0)  # last of a lower group
    if not len(ends):
        return None
    # With the mean taken out, the squares left are least where those between are most.
    lower = np.cumsum(values - values.mean())[ends]
    between = lower**2 * (1 / (ends + 1) + 1 / (values.size - ends - 1))
    return np.asarray(logs > values[ends[between.argmax()]])


def _cdf(law: ShiftedExponential) -> Cdf:
    """Return P(T <= x), or with `below` P(T < x), at the uncoded load."""

    def cdf(x: Floats, below: bool) -> Floats:
        if law.mean == 0:
            return (x > law.floor if below else x >= law.floor).astype(np.float64)
        return -np.expm1(-np.maximum(x - law.floor, 0.0) / law.mean)

    return cdf


def _distance(seconds: Floats, cdf: Cdf) -> float:
    """Return the mean over the columns of their Kolmogorov-Smirnov distances."""
    x, rows = np.sort(seconds, axis=0), len(seconds)
    rank = np.arange(1, rows + 1)[:, None] / rows
    above, below = rank - cdf(x, False), cdf(x, True) - (rank - 1 / rows)
    return float(np.maximum(above, below).max(axis=0).mean())
