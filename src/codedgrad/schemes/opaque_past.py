r"""How long workers that give one answer a call took, whether or not that was seen.

The seconds $x$ of a worker for the uncoded load are seen when its call is answered. Of
who was dropped only a lower bound is. Then times of recent steps that are longer say
what it may have been, each as often as such times have been (the estimate of Kaplan and
Meier, which knows that these are cut off, too); half as much again, where nothing
longer was seen. The last step in which all were waited for is among them, however old.
That a worker was slower still in the steps before is forgotten slowly.

For replays it is one of those times, in turn, since the longest counts there. What is
expected of the next step is guessed, in four ways, from their median: no worker is
thought to be slow for the time that it happened to be given.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.core.history import Record, per_part
from codedgrad.schemes.opaque_shares import Call, Shares, calls

__all__ = ["GUESSES", "Guesses", "Past", "Tail"]

GUESSES = ("slow", "quick", "last", "median")
"""Two moving averages, the last time, the median of five."""

_STEPS = 20  # whose times make the tail
_SAMPLES = 4096  # of them at most
_BEYOND = 1.5  # times a lower bound: where nothing longer was ever seen
_CUT = 0.1  # of the times of a step, that may be lower bounds where all were waited for
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_SLOW, _QUICK = 0.1, 0.3  # weights of the newest step
_RECENT = 5


class Tail:
    """Times of recent steps, some of them lower bounds, and what lies beyond.

    Args:
        workers: How many times a step has.

    Example:
        >>> tail = Tail(workers=4)
        >>> seen = np.array([1.0, 1.0, 2.0, 9.0]), np.array([False, False, True, False])
        >>> tail.add(*seen)
        >>> tail.beyond(0.5), tail.beyond(1.5), tail.beyond(9.5)
        (1.0, 9.0, 14.25)
    """

    def __init__(self, workers: int) -> None:
        affordable = max(3, _SAMPLES // workers)
        self._steps: deque[tuple[Floats, Bools]] = deque(maxlen=min(_STEPS, affordable))
        self._values = np.zeros(0)  # that were seen, ascending
        self._survive = np.zeros(0)  # how many take longer than each
        self._whole: tuple[Floats, Bools] | None = None  # all were waited for

    def add(self, times: Floats, is_least: Bools) -> None:
        """Add the times of a step."""
        self._steps.append((times, is_least))
        if np.mean(is_least) <= _CUT:
            self._whole = self._steps[-1]
        known = [*self._steps]
        if self._whole is not None and not any(s is self._whole for s in known):
            known.append(self._whole)
        values = np.concatenate([times for times, _ in known])
        cut = np.concatenate([cut for _, cut in known])
        order = np.lexsort((cut, values))  # at equal times, those seen come first
        values, cut = values[order], cut[order]
        at_risk = np.arange(len(values), 0, -1)
        survive = np.cumprod(np.where(cut, 1.0, 1.0 - 1.0 / at_risk))
        self._values, self._survive = values[~cut], survive[~cut]

    def beyond(self, least: float, longer: float = 0.5) -> float:
        """Return a time above `least` that a share of those above exceeds."""
        first = int(np.searchsorted(self._values, least, side="right"))
        left = float(self._survive[first - 1]) if first else 1.0
        place = int(np.searchsorted(-self._survive, -longer * left, side="left"))
        place = max(place, first)
        if place < len(self._values):
            return float(self._values[place])
        return _BEYOND * least


class Past:
    """Seconds that everybody took for the uncoded load.

    Args:
        workers: How many there are.
        unit: Parts in the uncoded load.
        share: That grows with the load, until that is known.

    Attributes:
        shares: What grows with the load and what is paid again.
    """

    def __init__(self, workers: int, unit: float, share: float) -> None:
        self.shares = Shares(share, unit)
        self._unit = unit
        self._tail = Tail(workers)
        self._before = np.full(workers, np.nan)
        self._drawn = 0

    def learn(self, record: Record) -> tuple[Floats, Floats]:
        """Return what everybody took in a step, (workers,); NaN: nothing was seen.

        Returns:
            Seconds for replays, and such as to guess from.
        """
        found = list(calls(record))
        self.shares.learn(found)
        x, is_least = self._seen(found)
        seen = ~np.isnan(x)
        if not seen.any():
            return x, x
        usual = float(np.median(x[seen]))
        self._tail.add(x[seen] / usual, is_least[seen])
        likely = x.copy()
        for worker in np.flatnonzero(is_least).tolist():
            least, before = float(x[worker]) / usual, float(self._before[worker])
            self._drawn += 1
            longer = 1.0 - (_GOLDEN * self._drawn) % 1.0
            x[worker] = _after(before, usual * self._tail.beyond(least, longer))
            likely[worker] = _after(before, usual * self._tail.beyond(least))
        self._before = np.where(seen, likely, self._before)
        return x, likely

    def _seen(self, found: list[Call]) -> tuple[Floats, Bools]:
        """Return the seconds of first calls, and where they are lower bounds."""
        n, share, unit = len(self._before), self.shares.share, self._unit
        x, is_least = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
        for call in found:
            if not call.is_first:
                continue
            least = per_part(call.seconds, call.done, share, unit) if call.done else 0.0
            if call.pending:
                parts = call.done + call.pending
                least = max(least, per_part(call.elapsed, parts, share, unit))
            if 0.0 < least < math.inf:
                x[call.worker], is_least[call.worker] = least, call.pending > 0
        return x, is_least


def _after(before: float, guess: float) -> float:
    """Return a guess, drawn towards what was before if that was longer; NaN was not."""
    return before ** (1.0 - _QUICK) * guess**_QUICK if before > guess else guess


class Guesses:
    """Four guesses at what everybody will take for the uncoded load.

    Args:
        workers: How many there are.
    """

    def __init__(self, workers: int) -> None:
        self._means = {name: np.full(workers, np.nan) for name in ("slow", "quick")}
        self._recent: deque[Floats] = deque(maxlen=_RECENT)

    def learn(self, x: Floats) -> None:
        """Learn from a step; NaN where nothing was seen of a worker."""
        self._recent.append(x)
        log = np.log(x)
        for name, weight in (("slow", _SLOW), ("quick", _QUICK)):
            mean = self._means[name]
            moved = np.where(np.isnan(mean), log, (1.0 - weight) * mean + weight * log)
            self._means[name] = np.where(np.isnan(log), mean, moved)

    def all(self) -> dict[str, Floats]:
        """Return seconds, (workers,), of every guess; the unknown are as others."""
        n = len(self._means["slow"])
        if not self._recent:
            return dict.fromkeys(GUESSES, np.ones(n))
        steps = np.stack(self._recent)
        is_known = ~np.isnan(steps).all(axis=0)
        median, last = np.full(n, np.nan), np.full(n, np.nan)
        median[is_known] = np.nanmedian(steps[:, is_known], axis=0)
        for x in self._recent:
            last = np.where(np.isnan(x), last, x)
        means = {name: np.exp(mean) for name, mean in self._means.items()}
        alike = float(np.nanmedian(steps))
        found = {**means, "last": last, "median": median}
        return {name: np.where(np.isnan(x), alike, x) for name, x in found.items()}
