"""How long workers take, and the two interfaces that say so.

A base law (`Delays`) draws times; a change (`Change`) alters times already drawn.
All times are whole multiples of `GRID`, so that the simulator's sums of them are
exact and do not depend on the order in which they are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from codedgrad.delays.arguments import settle, whole
from codedgrad.errors import InvalidDelays

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

GRID = 2.0**-30
"""Seconds. Sums of its multiples are exact in float64 up to 2^23 s, 97 days."""


def on_grid(seconds: Floats) -> Floats:
    """Round to whole multiples of `GRID`; inf stays inf.

    Example:
        >>> a, b, c = on_grid(np.array([0.1, 0.2, 0.3]))
        >>> bool((a + b) + c == a + (b + c)), (0.1 + 0.2) + 0.3 == 0.1 + (0.2 + 0.3)
        (True, False)
    """
    return np.rint(seconds / GRID) * GRID


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What a law knows and no root can see: the state behind the times it drew.

    Only schemes that say `oracle` are told, and only in simulations.

    Attributes:
        slow: Who is in a slow spell, (steps, workers).
        typical: Mean seconds for the uncoded load given that state, (steps, workers).
    """

    slow: Bools
    typical: Floats

    def slowed(self, by: Floats, slow: Bools | None = None) -> Truth:
        """Return the truth of times that are `by` times as long for a lasting reason.

        Args:
            by: Factors that (steps, workers) can be multiplied with.
            slow: Who is in a slow spell because of it, (steps, workers).
        """
        spells = self.slow if slow is None else self.slow | slow
        return Truth(spells, self.typical * by)

    def between(self, first: int, last: int) -> Truth:
        """Return steps `first` to `last` - 1, without copying."""
        return Truth(self.slow[first:last], self.typical[first:last])


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    r"""How long each worker takes in each step, in seconds.

    The uncoded load is parts / workers parts. For $\ell$ times that load a worker
    needs fixed + $\ell$ * unit. Both arrays are put on the grid and made read-only.

    Attributes:
        fixed: Paid once a step before the first part, (steps, workers).
        unit: For the uncoded load, in proportion to the load; inf: dead.
        truth: The state behind them, if whoever drew them knows.
        again: What workers take for orders given later than the start of a step, if
            that is not the same; finite for whoever is there.
        stretch: How many times as long a real worker takes to compute a part, 1 or
            more, (steps, workers); None: 1. Simulations have no such time, and pass
            it over.
    """

    fixed: Floats
    unit: Floats
    truth: Truth | None = None
    again: Times | None = None
    stretch: Floats | None = None

    def __post_init__(self) -> None:
        fixed, unit = _frozen("fixed", self.fixed), _frozen("unit", self.unit)
        if fixed.ndim != 2 or fixed.shape != unit.shape:
            problem = f"fixed has shape {fixed.shape}, unit {unit.shape}"
            raise InvalidDelays("times", problem, "(steps, workers) for both")
        settle(self, fixed=fixed, unit=unit)
        if self.stretch is not None:
            settle(self, stretch=_factors(self.stretch, unit.shape))
        if self.again is not None:
            self._check(self.again)

    def _check(self, again: Times) -> None:
        """Refuse times for later orders that do not fit these."""
        if again.unit.shape != self.unit.shape:
            problem = f"again has shape {again.unit.shape}, the times {self.unit.shape}"
            raise InvalidDelays("times", problem, "one shape for both")
        if again.again is not None:
            problem = "again has times for later orders of its own"
            raise InvalidDelays("times", problem, "one Times inside the other")
        there = np.isfinite(self.fixed + self.unit)
        if not np.all(np.isfinite(again.fixed + again.unit) | ~there):
            problem = "again is infinite for a worker that is there"
            raise InvalidDelays("times", problem, "finite seconds, or inf in both")

    @property
    def steps(self) -> int:
        """How many steps."""
        return len(self.unit)

    @property
    def workers(self) -> int:
        """How many workers."""
        return int(self.unit.shape[1])

    def part(self, parts: int) -> Floats:
        """Return the seconds for one part, (steps, workers), of `parts` in all.

        Example:
            >>> times = Times(fixed=np.zeros((1, 2)), unit=np.array([[1.0, 3.0]]))
            >>> times.part(parts=4)  # the uncoded load is 4 / 2 parts
            array([[0.5, 1.5]])
        """
        k = whole("times", "parts", parts, least=1)
        if k == self.workers:
            return self.unit  # on the grid already
        return on_grid(self.unit * self.workers / k)

    def between(self, first: int, last: int) -> Times:
        """Return steps `first` to `last` - 1, without copying."""
        some = object.__new__(Times)
        truth = None if self.truth is None else self.truth.between(first, last)
        again = None if self.again is None else self.again.between(first, last)
        settle(
            some,
            fixed=self.fixed[first:last],
            unit=self.unit[first:last],
            truth=truth,
            again=again,
            stretch=None if self.stretch is None else self.stretch[first:last],
        )
        return some

    def slowed(self, by: Floats, slow: Bools | None = None) -> Times:
        """Return times that are `by` times as long for a lasting reason.

        Args:
            by: Factors that (steps, workers) can be multiplied with.
            slow: Who is in a slow spell because of it, (steps, workers).
        """
        truth = None if self.truth is None else self.truth.slowed(by, slow)
        again = None if self.again is None else self.again.slowed(by, slow)
        return Times(self.fixed * by, self.unit * by, truth, again)

    def seated(self, seats: NDArray[np.intp]) -> Times:
        """Return the times of the workers in these seats, (steps, seats)."""
        some = object.__new__(Times)
        settle(
            some,
            fixed=np.take_along_axis(self.fixed, seats, axis=1),
            unit=np.take_along_axis(self.unit, seats, axis=1),
            truth=None,
            again=None if self.again is None else self.again.seated(seats),
            stretch=None,  # of real workers, which are not seated
        )
        return some


@runtime_checkable
class Delays(Protocol):
    """What draws the times of a run."""

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times; the same state of `rng` gives the same times."""
        ...


@runtime_checkable
class Change(Protocol):
    """What alters times already drawn."""

    def change(self, times: Times, rng: np.random.Generator) -> Times:
        """Return altered times of the same shape."""
        ...


def _frozen(name: str, seconds: Floats) -> Floats:
    array = np.ascontiguousarray(on_grid(np.asarray(seconds, dtype=np.float64)))
    if not np.all(array >= 0):  # also refuses NaN
        raise InvalidDelays("times", f"{name} is negative or NaN", "seconds, 0 or more")
    array.setflags(write=False)
    return array


def _factors(given: Floats, shape: tuple[int, ...]) -> Floats:
    array = np.array(given, dtype=np.float64)
    if array.shape != shape or not np.all((array >= 1) & (array < np.inf)):
        problem = f"stretch has shape {array.shape}, or numbers below 1"
        raise InvalidDelays("times", problem, f"factors from 1 on, {shape}")
    array.setflags(write=False)
    return array


def draw(delays: Delays, *, steps: int, workers: int, seed: int, run: int = 0) -> Times:
    """Draw the times of a run: the same for every scheme, simulated or rehearsed."""
    law: object = delays  # whatever the types say
    if not isinstance(law, Delays):
        problem = f"{type(law).__name__} is not a law"
        if isinstance(law, Change):
            problem = f"{law} is a change, and there is no law that it could change"
        advice = "Chain(ShiftedExponential(floor=1, mean=0.1), the change)"
        raise InvalidDelays("delays", problem, advice)
    child = np.random.SeedSequence(seed, spawn_key=(run,))
    return delays.sample(np.random.default_rng(child), steps, workers)
