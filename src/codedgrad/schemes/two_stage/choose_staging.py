r"""Who starts, when to look, and what to tolerate: the past, replayed.

Of every worker the seconds a part took are kept, in stage 1 and in stage 2, over the
last 60 steps. Every 30 steps each plan of a grid is played on them (`model`):
$M_1$ from half of the workers to all, $T_1 = f \, (K / M_1) \, c_{\max}$ for $f$ = 1,
1.25, 1.6 with the slowest usual pace $c_{\max}$, $s$ = 0, 1, 2.

The plan with the least mean time, plus the price of its work, is followed; where
workers finish the part in hand before the next step, what that takes counts as time. Of
plans within 1 % of the best, the one is taken that computes and hands over the least.
Workers are held back, where finishers help, only if that gains 10 %: how fast fresh
helpers are is known less well. Two steps in a row
that take longer than 99 % of those replayed, and than the first ones of the plan did,
are a change: then it is planned at once.

What was not seen is filled in: see `past_times`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.core.history import Record
from codedgrad.schemes.two_stage.first_stage import Opening
from codedgrad.schemes.two_stage.model import staged
from codedgrad.schemes.two_stage.past_times import (
    SLOW,
    StageEvidence,
    filled,
    seen_in,
    unfinished,
)

_REMEMBERED = 60  # steps
_EVERY = 30  # steps a plan is followed
_FEWEST = 10  # steps seen before the first plan
_WEIGHT = 0.1  # of the newest step in the mean
_ALIKE = 0.1  # of the mean pace, within which workers take turns
_UNSEEN = 20  # steps without a sign of a worker, until it is probed
_WINDOWS = (1.0, 1.25, 1.6)  # times what the slowest usual worker needs
_TOLERANCES = (0, 1, 2)
_COUNTS = 8  # numbers of starters that are tried at most
_USUAL_TOLERANCE = 1
_SETTLING = 3  # steps of a plan that show what it takes beside computing
_ALMOST = 0.01  # of the least cost: within it, the plan of the least work is taken
_CAUTION = 0.1  # of its cost: what a plan must gain that holds workers back


@dataclass(frozen=True, slots=True)
class Planner:
    """A recipe for a tracker that plans steps; None is what it is to find.

    Attributes:
        workers: Number of workers.
        parts: Number of parts.
        first: How many start.
        window: Seconds until the checkpoint.
        tolerance: Late helpers survived.
        most: The largest tolerance to be planned.
        reuse: Whether those who have finished help.
        code: Of stage 2.
        price: Seconds that a part of work is worth.
        by_number: Start those of the lowest numbers, not the fastest.
    """

    workers: int
    parts: int
    first: int | None
    window: float | None
    tolerance: int | None
    most: int
    reuse: bool
    code: str
    price: float
    by_number: bool

    @property
    def is_fixed(self) -> bool:
        """Whether there is nothing to plan."""
        return None not in (self.first, self.window, self.tolerance)

    def start(self, workers: int) -> _Planned:
        """Return a tracker that knows nothing yet."""
        return _Planned(self)


class _Planned:
    """The plan that is followed, and the past that it was made from.

    Attributes:
        made: How often a plan was made.
        plan: (first, window, tolerance) as followed; None: as for a first step.
    """

    def __init__(self, recipe: Planner) -> None:
        self._recipe = recipe
        self._past: deque[StageEvidence] = deque(maxlen=_REMEMBERED)
        self._mean: list[float | None] = [None] * recipe.workers
        self._unseen = [0] * recipe.workers
        self._age = 0  # steps since the plan was made
        self._usual = math.inf  # seconds that 99 % of the steps replayed take
        self._over = 0  # steps in a row that took longer
        self._drains = False  # whether helpers finish the part in hand
        self._busy: frozenset[int] = frozenset()  # who may begin the next step late
        self._took: list[float] = []  # seconds of the steps of this plan
        self.plan: tuple[int, float | None, int] | None = None
        self.made = 0

    @property
    def straggle(self) -> tuple[float, ...]:
        """How often each worker takes more than 2.5 times its own median."""
        found = []
        for times in self._seconds().transpose(2, 0, 1).reshape(len(self._mean), -1):
            own = times[~np.isnan(times)]
            slow = np.count_nonzero(own > SLOW * np.median(own)) if own.size else 0
            found.append((slow + 1.0) / (own.size + 2.0))
        return tuple(found)

    def update(self, record: Record) -> None:
        """Learn from a step; plan if it is time, or if things have changed."""
        if not record.combined:
            self._busy = unfinished(record)
            return  # it may have been called off at any moment
        seen = seen_in(record, self._busy)
        self._busy = unfinished(record)
        self._past.append(seen)
        self._drains = not record.state.capabilities.interrupts_part
        for worker in range(len(self._mean)):
            self._learn(worker, seen)
        self._age += 1
        is_due = self._age >= (_EVERY if self.made else _FEWEST)
        if (is_due or self._is_changed(record.seconds)) and not self._recipe.is_fixed:
            self._make(record.alive)

    def _is_changed(self, seconds: float) -> bool:
        """Whether two steps in a row took longer than any step of the plan should.

        Messages take time that is not replayed, so what the first steps of the plan
        took counts, too.
        """
        usual = max([self._usual, *self._took[:_SETTLING]])
        self._took.append(seconds)
        is_over = seconds > usual and len(self._took) > _SETTLING
        self._over = self._over + 1 if is_over else 0
        return self._over >= 2

    def _learn(self, worker: int, seen: StageEvidence) -> None:
        before, told = self._mean[worker], ~np.isnan(seen.seconds[:, worker])
        self._unseen[worker] = 0 if told.any() else self._unseen[worker] + 1
        if not told.any():
            return
        stage = int(np.argmax(told))
        now = float(seen.seconds[stage, worker])
        if before is None:
            self._mean[worker] = now
        elif not seen.is_least[stage, worker] or now > before:
            self._mean[worker] = (1 - _WEIGHT) * before + _WEIGHT * now

    # -- how a step begins -----------------------------------------------------------

    def opening(self, step: int, alive: Sequence[bool]) -> Opening:
        """Return how the next step is to begin."""
        recipe = self._recipe
        first, window, tolerance = self.plan or (
            recipe.first or recipe.workers,
            recipe.window,
            _USUAL_TOLERANCE if recipe.tolerance is None else recipe.tolerance,
        )
        there = [worker for worker, is_there in enumerate(alive) if is_there]
        starters = self._starters(step, there, first)
        known = [m for w in there if (m := self._mean[w]) is not None]
        probed = [w for w in there if w not in starters and self._unseen[w] >= _UNSEEN]
        return Opening(
            starters=starters,
            window=window,
            tolerance=min(tolerance, recipe.most),
            pace=_usual_most(known) if known else None,
            probed=tuple(probed),
        )

    def _starters(self, step: int, there: list[int], first: int) -> tuple[int, ...]:
        """Return the fastest; those about as fast as the last of them take turns."""
        if self._recipe.by_number or first >= len(there):
            return tuple(there[:first])
        mean = {w: self._mean[w] for w in there}
        usual = float(np.median([m for m in mean.values() if m is not None] or [1.0]))
        pace = {w: usual if m is None else m for w, m in mean.items()}
        last = sorted(pace.values())[first - 1]
        sure = [w for w in there if pace[w] < (1 - _ALIKE) * last]
        alike = [
            w for w in there if (1 - _ALIKE) * last <= pace[w] <= (1 + _ALIKE) * last
        ]
        turn = step % len(alike)
        chosen = (alike[turn:] + alike[:turn])[: first - len(sure)]
        return tuple(sorted(sure + chosen))

    # -- planning --------------------------------------------------------------------

    def _make(self, alive: Sequence[bool]) -> None:
        """Take the plan that would have been the best."""
        there = [w for w, is_there in enumerate(alive) if is_there]
        self._age = self._over = 0
        if not there or len(self._past) < min(_FEWEST, _REMEMBERED):
            return
        one, two = filled(self._seconds()[:, :, there], self._least()[:, :, there])
        usual = np.median(one, axis=0)
        order = np.argsort(np.mean(one, axis=0), kind="stable")
        if self._recipe.by_number:
            order = np.arange(len(there))
        tried: list[tuple[float, float, int, float, int, float]] = []
        for first, window, tolerance in self._grid(usual, order):
            went = staged(
                one, two, self._recipe.parts, sorted(order[:first].tolist()),
                window, tolerance, reuse=self._recipe.reuse, code=self._recipe.code,
            )  # fmt: skip
            seconds = went.seconds + went.drained if self._drains else went.seconds
            work = float(np.mean(went.work))
            cost = float(np.mean(seconds)) + self._recipe.price * work
            if self._recipe.reuse and first < len(there):
                cost *= 1.0 + _CAUTION
            late = float(np.quantile(went.seconds, 0.99))
            trouble = work + float(np.mean(went.left))
            tried.append((cost, trouble, first, window, tolerance, late))
        enough = (1.0 + _ALMOST) * min(cost for cost, *_ in tried)
        best = min((t for t in tried if t[0] <= enough), key=lambda t: (t[1], t[0]))
        _, _, first, window, tolerance, self._usual = best
        self.plan = first, window, tolerance
        self._took.clear()
        self.made += 1

    def _grid(
        self, usual: Floats, order: NDArray[np.intp]
    ) -> Iterator[tuple[int, float, int]]:
        recipe, n = self._recipe, len(usual)
        counts = [min(recipe.first, n)] if recipe.first else _counts(n)
        spares: Sequence[int] = [s for s in _TOLERANCES if s <= recipe.most]
        if recipe.tolerance is not None:
            spares = [recipe.tolerance]
        for first in counts:
            pace = _usual_most(usual[order[:first]].tolist())
            load = -(-recipe.parts // first)
            windows = [f * load * pace for f in _WINDOWS]
            if recipe.window is not None:
                windows = [recipe.window]
            for window, spare in product(windows, spares):
                yield first, window, spare

    def _seconds(self) -> Floats:
        if not self._past:
            return np.empty((2, 0, len(self._mean)))
        return np.stack([seen.seconds for seen in self._past], axis=1)

    def _least(self) -> Bools:
        return np.stack([seen.is_least for seen in self._past], axis=1)


def _counts(workers: int) -> list[int]:
    """Return how many may start: from half of the workers to all."""
    least = max(1, workers // 2)
    return sorted({round(x) for x in np.linspace(least, workers, _COUNTS)})


def _usual_most(paces: Sequence[float]) -> float:
    """Return the slowest pace that is not far off the others."""
    far = SLOW * float(np.median(paces))
    return max(pace for pace in paces if pace <= far)
