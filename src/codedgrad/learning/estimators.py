r"""What history says about the next step: speed, reliability, and who is slow now.

Each is a recipe (a frozen dataclass) for a tracker; `history.follow(recipe)` keeps it
up to date. All of them know censored times: a worker that was dropped after $\tau$
seconds took longer than $\tau$, and that is evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codedgrad.core.history import Observation, Record, per_part


@dataclass(frozen=True, slots=True)
class Speed:
    r"""Exponentially weighted mean of log time, per worker.

    $\log \hat x \leftarrow (1 - w) \log \hat x + w \log x$ with $x$ the seconds for the
    uncoded load. A censored step counts as the larger of its lower bound and what its
    finished parts took; if it finished none, as no less than the estimate so far.

    Attributes:
        weight: $w$ in (0, 1]; 0.3 forgets in about three steps.
        share: The share of the time in proportion to the load.
        unit: Parts in the uncoded load.
    """

    weight: float = 0.3
    share: float = 1.0
    unit: float = 1.0

    def start(self, workers: int) -> _SpeedTracker:
        """Return a tracker that knows nothing yet."""
        return _SpeedTracker(self, workers)


class _SpeedTracker:
    """Seconds for the uncoded load, by worker; None where nothing was seen."""

    def __init__(self, recipe: Speed, workers: int) -> None:
        self._recipe = recipe
        self.seconds: list[float | None] = [None] * workers

    def update(self, record: Record) -> None:
        """Learn from a step."""
        for worker, seen in enumerate(record.observations):
            if seen is not None:
                self._learn(worker, seen)

    def _learn(self, worker: int, seen: Observation) -> None:
        recipe, before = self._recipe, self.seconds[worker]
        x = 0.0
        if seen.done > 0:
            x = per_part(seen.seconds, seen.done, recipe.share, recipe.unit)
        if seen.is_censored:
            parts = seen.done + seen.pending
            least = per_part(seen.elapsed, parts, recipe.share, recipe.unit)
            x = max(x, least, before or 0.0) if seen.done == 0 else max(x, least)
        if x <= 0.0:
            return  # a step of no length says nothing about speed
        if before is None:
            self.seconds[worker] = x
        else:
            w = recipe.weight
            self.seconds[worker] = math.exp(
                (1 - w) * math.log(before) + w * math.log(x)
            )


@dataclass(frozen=True, slots=True)
class Reliability:
    r"""Beta posterior of the probability to be late, with forgetting.

    From the uniform prior, $\hat p = (m + 1) / (N + 2)$ with $m$ of $N$ steps missed;
    both counts are multiplied by `forget` at every step, so that drift is followed. A
    step is missed by a worker that was asked for a message and not heard before its end
    (counting one that came later as in time would call stragglers reliable), and by a
    worker that was not there; not by an inner worker of a tree that was never asked
    because too many below it were late. Steps that gave no sum do not count.

    Attributes:
        forget: In (0, 1]; 0.99 remembers about a hundred steps, 1 all.
    """

    forget: float = 0.99

    def start(self, workers: int) -> _ReliabilityTracker:
        """Return a tracker that knows nothing yet."""
        return _ReliabilityTracker(self.forget, workers)


class _ReliabilityTracker:
    """Counts of steps and of steps missed, by worker."""

    def __init__(self, forget: float, workers: int) -> None:
        self._forget = forget
        self._missed = [0.0] * workers
        self._seen = [0.0] * workers

    def update(self, record: Record) -> None:
        """Learn from a step."""
        if not record.combined:
            return  # it may have been called off at any moment
        heard, asked = record.heard, record.asked
        for worker, alive in enumerate(record.alive):
            if worker in asked or not alive:
                self._missed[worker] *= self._forget
                self._seen[worker] *= self._forget
                self._missed[worker] += worker not in heard
                self._seen[worker] += 1.0

    @property
    def straggle(self) -> tuple[float, ...]:
        """The mean of the posterior of being late, by worker."""
        return tuple(
            (missed + 1.0) / (seen + 2.0)
            for missed, seen in zip(self._missed, self._seen, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Law:
    r"""Seconds per part: a floor plus an exponential excess of the given mean."""

    floor: float
    mean: float

    def log_density(self, x: float) -> float:
        """Return the log density at `x` seconds per part."""
        if x < self.floor:
            return -math.inf
        return -math.log(self.mean) - (x - self.floor) / self.mean

    def log_survival(self, x: float) -> float:
        """Return the log probability to take longer than `x` seconds per part."""
        return -max(0.0, x - self.floor) / self.mean


@dataclass(frozen=True, slots=True)
class HiddenMarkov:
    r"""Two-state filter: is a worker in its slow state, given its censored times?

    A worker turns slow with probability `enter` and recovers with `leave` from one step
    to the next; in a step its time per part follows the law of its state. The
    likelihood of a step is the density of the time per part where parts were seen, and
    the survival function of the parts in hand where they took longer than those; then
    one step of the chain is taken.

    Attributes:
        enter: P(fast -> slow).
        leave: P(slow -> fast).
        fast: Law of the fast state.
        slow: Law of the slow state.
    """

    enter: float
    leave: float
    fast: Law
    slow: Law

    def start(self, workers: int) -> _MarkovTracker:
        """Return a tracker at the stationary distribution."""
        return _MarkovTracker(self, workers)


class _MarkovTracker:
    """Probability of the slow state in the coming step, by worker."""

    def __init__(self, recipe: HiddenMarkov, workers: int) -> None:
        self._recipe = recipe
        total = recipe.enter + recipe.leave
        stationary = recipe.enter / total if total > 0 else 0.5
        self.slow = [stationary] * workers

    def update(self, record: Record) -> None:
        """Learn from a step, then look one step ahead."""
        enter, leave = self._recipe.enter, self._recipe.leave
        for worker, seen in enumerate(record.observations):
            p = self.slow[worker]
            if seen is not None:
                p = self._posterior(p, seen)
            self.slow[worker] = p * (1.0 - leave) + (1.0 - p) * enter

    def _posterior(self, p: float, seen: Observation) -> float:
        fast, slow = self._recipe.fast, self._recipe.slow
        x = gain = 0.0
        if seen.done > 0:
            x = seen.seconds / seen.done
            gain = _difference(slow.log_density(x), fast.log_density(x))
        if seen.pending > 0:
            rest = (seen.elapsed - seen.seconds) / seen.pending
            if rest > x:  # it has become slower than it was
                gain += slow.log_survival(rest) - fast.log_survival(rest)
        if p in (0.0, 1.0):
            return p
        return _logistic(math.log(p) - math.log1p(-p) + gain)


def _difference(a: float, b: float) -> float:
    """Return a - b; 0 where neither law can have given the time."""
    return 0.0 if a == b == -math.inf else a - b


def _logistic(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x)) if x > -700 else 0.0


@dataclass(frozen=True, slots=True)
class Likeness:
    r"""How alike the gradients of parts are: the correlation of any two.

    Gradients of one length and one correlation $\rho$ make messages with
    $\langle m_i, m_l \rangle = c \, ((1 - \rho) \, a_i \cdot a_l + \rho \, s_i s_l)$,
    where $a_i$ are the coefficients of message $i$ and $s_i$ their sum. The two terms
    are fitted by least squares to the products that drivers report where plans ask for
    them (`Finish.compare`). Those of a step are divided by the mean square of its
    messages, the terms by what that should be, as far as is known: so neither training
    nor who was heard changes the scale. A step in which the terms are in proportion
    says nothing.

    Attributes:
        forget: In (0, 1]; what is known counts so much less with every step that
            reports something.
    """

    forget: float = 0.9

    def start(self, workers: int) -> _LikenessTracker:
        """Return a tracker that knows nothing yet."""
        return _LikenessTracker(self.forget)


class _LikenessTracker:
    r"""The sums of the fit, and `correlation`: $\rho$ from -0.5 to 0.95, or None.

    It is None until something was reported that tells the two terms apart.
    """

    def __init__(self, forget: float) -> None:
        self.correlation: float | None = None
        self._forget = forget
        self._squares = np.zeros((2, 2))
        self._sums = np.zeros(2)

    def update(self, record: Record) -> None:
        """Learn from a step; nothing from one in which nothing was compared."""
        if not record.products:
            return
        terms, own = _terms(record), [one == other for one, other, _ in record.products]
        products = np.array([product for *_, product in record.products])
        products /= np.abs(products).max() or 1.0  # any number that is finite may come
        squares, sums = terms.T @ terms, terms.T @ products
        told = np.linalg.det(squares) / (squares.diagonal().prod() or 1.0)
        length = float(products[own].sum())
        if not told > 1e-9 or not length > 0:
            return
        rho = _fit(squares, sums) if self.correlation is None else self.correlation
        expected = _expected(terms[own], 0.0 if rho is None else rho)
        self._squares = self._forget * self._squares + squares / expected**2
        self._sums = self._forget * self._sums + sums / (expected * length)
        fitted = _fit(self._squares, self._sums)
        self.correlation = self.correlation if fitted is None else fitted


def _fit(squares: NDArray[np.float64], sums: NDArray[np.float64]) -> float | None:
    """Return the correlation that fits best; None if there is no such thing."""
    apart, alike = np.linalg.solve(squares, sums).tolist()  # c (1 - rho), c rho
    total = apart + alike
    return min(max(alike / total, -0.5), 0.95) if total > 0 else None


def _expected(terms: NDArray[np.float64], rho: float) -> float:
    """Return the squares of messages, added up, where gradients are of length 1."""
    together = float((terms @ (1.0 - rho, rho)).sum())
    return together if together > 0 else float(terms[:, 0].sum())


def _terms(record: Record) -> NDArray[np.float64]:
    """Return what multiplies c (1 - rho) and c rho in every product, (products, 2)."""
    names = sorted({id_ for *pair, _ in record.products for id_ in pair})
    rows = [record.state.row(name) for name in names]
    place = {part: number for number, part in enumerate(sorted(set().union(*rows)))}
    a = np.zeros((len(names), len(place)))
    for number, row in enumerate(rows):
        a[number, [place[part] for part in row]] = list(row.values())
    total, at = a.sum(axis=1), {name: number for number, name in enumerate(names)}
    table = np.stack([a @ a.T, np.outer(total, total)], axis=2)
    return np.array([table[at[one], at[other]] for one, other, _ in record.products])
