r"""Parts laid out by who is reliable, and laid out anew when that changes.

A worker that is given more is late more often, and the paper's shares know nothing of
it. With them the layout chases its own effect: ten equal workers with time for one part
each end with two or three parts, and late. So a new layout is judged by the error it
would have, with the probability to be late at the load it gives to every worker:
$\sum_i \alpha_i^\top G \alpha_i \, p_i / (1 - p_i)$.
Borders move only where that is clearly less than now. Weights follow what is known of
the workers in every step, whether borders move or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes import Code
from codedgrad.codes.decoders import Floats
from codedgrad.codes.families.allocation import ALLOCATIONS, gram_aware, odds, shares
from codedgrad.codes.families.heterogeneous import heterogeneous, weighed
from codedgrad.codes.sparse import Matrix
from codedgrad.core.history import Record
from codedgrad.errors import InvalidCode
from codedgrad.learning.estimators import Likeness
from codedgrad.learning.lateness_by_load import Punctuality

Loads: TypeAlias = NDArray[np.intp]

LEARNT = "learnt"

_CHANGE = 0.1  # of a share, relative, from which other layouts are looked at
_SLOW_CHANGE = 0.03  # of the probability to be heard, for weights slow to find
_BETTER = 0.95  # of the error of the layout in use, that of another is worth moving
_TRIES = 4  # layouts looked at, each for the loads of the one before
_UNBIASED = ("fixed", "debiased")


@dataclass(frozen=True, slots=True)
class Design:
    """A recipe for a tracker that learns reliabilities and keeps a code for them.

    Attributes:
        workers: Number of workers.
        parts: Number of parts.
        straggle: Probability to be late, by worker; None: learnt.
        allocation: Who gets which share of which part.
        decoding: How weights are found.
        correlation: Of the gradients of any two parts; None: not looked at; `learnt`.
        cap: The largest share of a worker, in units of the mean share.
        forget: What is left of the evidence of lateness after a step.
        seed: Of patterns that are sampled, if any are.
        budget: Seconds that steps may take; inf if answers are counted.
    """

    workers: int
    parts: int
    straggle: tuple[float, ...] | None
    allocation: str
    decoding: str
    correlation: float | str | None
    cap: float
    forget: float
    seed: int
    budget: float = math.inf

    @property
    def learns_correlation(self) -> bool:
        """Whether inner products of messages are wanted."""
        return self.correlation == LEARNT

    @property
    def is_fixed(self) -> bool:
        """Whether there is nothing to learn."""
        return self.straggle is not None and not self.learns_correlation

    @property
    def mass(self) -> float | None:
        """The largest share of a worker, in parts; None if there is none."""
        return self.cap * self.parts / self.workers if self.cap < math.inf else None

    @property
    def load(self) -> int:
        """The most parts that a worker may be asked for."""
        if self.allocation != "interval":  # who holds what does not depend on shares
            even = np.full(self.workers, self.parts / self.workers)
            held = ALLOCATIONS[self.allocation](even, self.parts)
            return int(np.diff(held.indptr).max())
        most = self.parts if self.mass is None else math.ceil(self.mass) + 1
        return min(self.parts, most)

    def code(self, straggle: Sequence[float]) -> Code:
        """Return the code for these reliabilities, as published."""
        given = None if self.learns_correlation else self.correlation
        return heterogeneous(
            self.workers,
            straggle,
            parts=self.parts,
            allocation=self.allocation,
            decoding=self.decoding,
            correlation=None if given is None else float(given),
            cap=self.mass,
            seed=self.seed,
        )

    def start(self, workers: int) -> _Allocation:
        """Return a tracker to which everybody is alike."""
        return _Allocation(self)


class _Layout:
    """Who carries how much of what, and what that is worth.

    Attributes:
        mass: Of every worker and part, shape (workers, parts).
        loads: Parts of every worker, shape (workers,).
    """

    def __init__(self, mass: Matrix) -> None:
        self.mass = mass
        self.loads: Loads = np.diff(mass.indptr).astype(np.intp)

    def error(self, straggle: Floats, correlation: float) -> float:
        """Return the mean squared error of a step, up to a factor."""
        alone: Floats = np.asarray((self.mass * self.mass).sum(axis=1))
        together: Floats = np.asarray(self.mass.sum(axis=1)) ** 2
        mixed = (1.0 - correlation) * alone + correlation * together
        return float((mixed / odds(straggle)).sum())


class _Allocation:
    """The layout in use, and the code for what is known of the workers now.

    Attributes:
        made: How many layouts there were so far.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        recipe = Punctuality(design.parts, design.forget, design.budget)
        self._punctuality = recipe.start(design.workers)
        self._likeness = Likeness().start(design.workers)
        self._used = self._correlation()
        even = np.ones(design.workers, dtype=np.intp)
        self._shares = self._shares_at(even)
        self._layout = self._laid_out(self._shares, even)
        self._code: Code | None = None  # for `_weighed_for`; the last that could be
        self._weighed_for = self._layout, self.straggle
        self.made = 1

    @property
    def straggle(self) -> Floats:
        """Probability to be late of every worker, at the load it has."""
        return self._straggle(self._layout.loads)

    @property
    def loads(self) -> tuple[int, ...]:
        """Parts that every worker is asked for."""
        return tuple(self._layout.loads.tolist())

    @property
    def code(self) -> Code:
        """The code for the coming step."""
        if self._code is None or self._is_stale():
            self._weigh()
        assert self._code is not None  # the first one can be made, or it raises
        return self._code

    def update(self, record: Record) -> None:
        """Learn from a step; lay out anew if that is worth it."""
        self._punctuality.update(record)
        if self._design.learns_correlation:
            self._likeness.update(record)
        now, used = self._correlation(), self._used
        turned = (now is None) != (used is None) or (
            now is not None and used is not None and abs(now - used) > _CHANGE
        )
        wanted = self._shares_at(self._layout.loads)
        if turned or np.any(np.abs(wanted - self._shares) > _CHANGE * self._shares):
            self._shares, self._used = wanted, now
            self._look_at_others(must=turned)

    def _look_at_others(self, must: bool) -> None:
        alike = 1.0 if self._used is None else self._used
        judged = [
            (layout.error(self._straggle(layout.loads), alike), number, layout)
            for number, layout in enumerate(self._others())
        ]
        here = self._layout.error(self.straggle, alike)
        error, _, best = min(judged)
        if must or error < _BETTER * here:
            self._layout = best
            self.made += 1

    def _others(self) -> Iterator[_Layout]:
        """Offer layouts: for the shares at these loads, at those of that, ...; even."""
        wanted = self._shares
        for _ in range(_TRIES):
            layout = self._laid_out(wanted, self._layout.loads)
            yield layout
            wanted = 0.5 * (wanted + self._shares_at(layout.loads))
        n, k = self._design.parts, self._design.workers
        yield self._laid_out(np.full(k, n / k), self._layout.loads)

    def _laid_out(self, wanted: Floats, loads: Loads) -> _Layout:
        mass = ALLOCATIONS[self._design.allocation](wanted, self._design.parts)
        if self._used is not None:
            mass = gram_aware(mass, self._straggle(loads), self._used)
        return _Layout(mass)

    def _shares_at(self, loads: Loads) -> Floats:
        design = self._design
        return shares(self._straggle(loads), design.parts, cap=design.mass)

    def _straggle(self, loads: Loads) -> Floats:
        if self._design.straggle is not None:
            return np.array(self._design.straggle)
        return self._punctuality.straggle(loads)

    def _correlation(self) -> float | None:
        given = self._design.correlation
        if self._design.learns_correlation:
            return self._likeness.correlation
        return float(given) if given is not None else None

    def _is_stale(self) -> bool:
        """Whether the layout has changed since, or other weights are wanted for it."""
        layout, straggle = self._weighed_for
        if layout is not self._layout:
            return True
        if self._design.decoding in ("optimal", "gram"):
            return False  # theirs do not depend on who is how reliable
        heard, before = 1.0 - self.straggle, 1.0 - straggle
        most = _SLOW_CHANGE if self._design.decoding == "debiased" else 0.0
        return bool(np.any(np.abs(heard - before) > most * before))

    def _weigh(self) -> None:
        """Make the code for the layout; if that cannot be, stay with the last one."""
        design, decoding = self._design, self._design.decoding
        if design.straggle is None and self._punctuality.is_empty:
            decoding = "normalised" if decoding in _UNBIASED else decoding
        name = f"heterogeneous(workers={design.workers}, straggle=learnt)"
        mass, straggle = self._layout.mass, self.straggle
        try:
            code = weighed(name, mass, straggle, decoding, self._used, design.seed)
        except InvalidCode:  # a part that is next to never heard cannot be debiased
            if self._code is None:
                raise
            self._layout, _ = self._weighed_for
            self._weighed_for = self._layout, straggle
        else:
            self._code, self._weighed_for = code, (self._layout, straggle)
