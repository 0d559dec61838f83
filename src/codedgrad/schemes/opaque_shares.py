r"""What of a call's time grows with its load, and what a later call pays again.

A first call with $\ell$ times the uncoded load takes $x \, ((1 - f) + f \ell)$ seconds,
a later one of the same step $x \, (g + f \ell)$: $x$ belongs to worker and step, the
share $f$ and what is paid again, $0 \le g \le 1 - f$, to the engine and the model. One
load says nothing about them. Loads differ

- between steps in which everybody had the same: their median times are compared;
- between two steps in a row of a worker whose list became longer or shorter;
- between the first and later calls of a worker in a step, by least squares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from codedgrad.core.history import Record, per_part

__all__ = ["Call", "Shares", "calls"]

_FADE = 0.95  # of what is known, a step
_LEAST = 0.02  # share that is believed
_TELLING = 0.02  # variance of the load that medians must have
_APART = 0.2  # of the uncoded load, by which two steps in a row must differ
_FEWEST = 3  # workers whose loads do
_ASSUMED = 4.0  # such workers is what the share assumed counts for
_SURE = 100.0  # that any estimate counts for at most
_PRIOR = 0.005  # weight of all that beside later calls, in squares of the load
_LONGEST = 2.0  # times x, for what is believed of a later call


@dataclass(frozen=True, slots=True)
class Call:
    """One list at one worker.

    Attributes:
        worker: Whose.
        is_first: Of that worker in its step.
        done: Parts known to be done.
        seconds: Until then.
        pending: Parts that were not, after `elapsed`; 0 if it was answered.
        elapsed: Seconds until it was dropped or lost.
    """

    worker: int
    is_first: bool
    done: int
    seconds: float
    pending: int
    elapsed: float

    @property
    def is_answered(self) -> bool:
        """Whether its time is known."""
        return not self.pending and self.done > 0 and self.seconds > 0


def calls(record: Record) -> Iterator[Call]:
    """Go through the calls of a step, worker by worker."""
    for worker, held in enumerate(record.state.held):
        if not held:
            continue  # opinions only, if anything
        for number, stretch in enumerate(record.stretches(worker)):
            done, at = stretch.marks[-1] if stretch.marks else (0, stretch.start)
            yield Call(
                worker=worker,
                is_first=number == 0,
                done=done,
                seconds=at - stretch.start,
                pending=stretch.left,
                elapsed=stretch.end - stretch.start if stretch.left else 0.0,
            )


class Shares:
    """The two shares, as far as they are known.

    Args:
        assumed: The share that grows with the load, until something is known.
        unit: Parts in the uncoded load.

    Attributes:
        share: That grows with the load, $f$.
        again: That a later call pays again, $g$.
    """

    def __init__(self, assumed: float, unit: float) -> None:
        self.share = _within(assumed)
        self.again = 1.0 - self.share
        self._unit = unit
        self._assumed = self.share
        self._weight = _ASSUMED
        self._medians = np.zeros(5)  # sums of 1, load, its square, y, load y
        self._later = np.zeros(5)  # the same over later calls
        self._before: dict[int, tuple[float, float]] = {}  # worker -> load, seconds

    def learn(self, found: list[Call]) -> None:
        """Learn from the calls of a step."""
        first = [call for call in found if call.is_first]
        answered = {call.worker: call for call in first if call.is_answered}
        self._medians *= _FADE
        self._later *= _FADE
        if not self._learn_median(first):
            self._learn_changes(answered)
        self._before = {
            worker: (call.done / self._unit, call.seconds)
            for worker, call in answered.items()
        }
        for call in found:
            if call.worker in answered and not call.is_first and call.is_answered:
                self._learn_later(answered[call.worker], call)
        self.share, self.again = _line(self._later.tolist(), self._assumed)

    def _learn_median(self, first: list[Call]) -> bool:
        """Learn from equal loads; return whether they are."""
        loads = [call.done + call.pending for call in first]
        if len(first) < 2 or max(loads) - min(loads) > 0.1 * max(loads):
            return False
        times = sorted(math.inf if c.pending else c.seconds for c in first)
        median = times[(len(times) - 1) // 2]
        load = sum(loads) / len(loads) / self._unit
        if 0.0 < median < math.inf:
            self._medians += (1.0, load, load * load, median, load * median)
        w, x, xx, y, xy = self._medians.tolist()
        if w > 0 and (spread := xx / w - (x / w) ** 2) > _TELLING:
            slope = (xy / w - x * y / w**2) / spread
            usual = y / w + slope * (1.0 - x / w)  # at the uncoded load
            if usual > 0:
                self._assumed, self._weight = _within(slope / usual), _SURE
        return True

    def _learn_changes(self, answered: dict[int, Call]) -> None:
        """Learn from lists that are longer or shorter than in the step before."""
        told = []
        for worker, call in answered.items():
            before, seconds = self._before.get(worker, (math.nan, math.nan))
            load, ratio = call.done / self._unit, call.seconds / seconds
            rest = (1.0 - load) - ratio * (1.0 - before)
            if abs(load - before) > _APART and rest != 0.0:
                told.append(_within((1.0 - ratio) / rest))
        if len(told) >= _FEWEST:
            together = self._weight + len(told)
            self._assumed += (float(np.median(told)) - self._assumed) * (
                len(told) / together
            )
            self._weight = min(together, _SURE)

    def _learn_later(self, first: Call, call: Call) -> None:
        x = per_part(first.seconds, first.done, self.share, self._unit)
        y, load = min(call.seconds / x, _LONGEST), call.done / self._unit
        self._later += (1.0, load, load * load, y, load * y)


def _within(share: float) -> float:
    return min(max(share, _LEAST), 1.0)


def _line(sums: list[float], prior: float) -> tuple[float, float]:
    """Return slope and intercept by least squares, both within what they can be.

    Example:
        >>> sums = [2.0, 0.75, 0.3125, 1.375, 0.53125]  # (0.25, 0.625), (0.5, 0.75)
        >>> [round(value, 3) for value in _line(sums, prior=0.5)]
        [0.5, 0.5]
    """
    w, x, xx, y, xy = sums
    if w < 1e-6:
        return prior, 1.0 - prior
    slope = (xy - x * y / w + _PRIOR * prior) / (xx - x * x / w + _PRIOR)
    rest = (y - slope * x) / w
    if rest < 0.0:
        slope, rest = (xy + _PRIOR * prior) / (xx + _PRIOR), 0.0
    elif rest + slope > 1.0:  # then y - 1 = slope (x - 1)
        squares, product = xx - 2.0 * x + w, xy - x - y + w
        slope = (product + _PRIOR * prior) / (squares + _PRIOR)
        rest = 1.0 - slope
    slope = _within(slope)
    return slope, min(max(rest, 0.0), 1.0 - slope)
