r"""How long everybody is expected to take, from what past steps showed.

A worker takes $x$ seconds for the uncoded load of $c$ parts: $(1 - f) x$ before its
first part and $f x / c$ for each. Five predictors of $x$ compete: everybody alike, two
moving averages of $\log x$, the last value, and the median of five. After each step the
loads that each of them would have led to are replayed on what was seen, with losses
discounted; one is followed when it beats equal loads by 2 %.

What was cut off counts as the larger of its lower bound and the value before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.core.history import Record
from codedgrad.core.state import SegmentState, State
from codedgrad.schemes.levelling import level, trimmed

__all__ = ["Forecast", "Paces"]

_DISCOUNT = 0.9
_MARGIN = 0.98  # of the loss of equal loads
_SLOW, _QUICK = 0.1, 0.3  # weights of the two moving averages
_RECENT = 5
_LATENCY = 0.01  # of a step, until it has been measured
_REMEMBERED = 25  # round trips
_OWN = 20  # steps over which what was taken is compared with waiting for all
_WORSE = 1.01
_REST = 50  # steps of caution after that


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What a step is expected to be like. Seconds from its start; arrays (workers,).

    Attributes:
        fixed: Until each begins its first part.
        pace: That each takes for a part.
        step: That a step typically takes; 0 if none was seen.
        trip: Of a round trip: from an order to what it leads to, without the work.
        sending: From asking for a sum that is there to having it.
        share: That grows with the load.
        uneven: Whether loads follow what is expected of each worker.
        cautious: Whether to re-plan only for what is clearly overdue.
    """

    fixed: Floats
    pace: Floats
    step: float
    trip: float
    sending: float
    share: float
    uneven: bool
    cautious: bool
    surprises: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Paces:
    """A recipe for what is learnt; `pieces` parts are the uncoded load.

    Attributes:
        pieces: Parts for each worker at the uncoded load.
    """

    pieces: int

    def start(self, workers: int) -> _Tracker:
        """Return a tracker that knows nothing yet."""
        return _Tracker(self.pieces, workers)


class _Tracker:
    """Five predictors, the share, the round trip, and how it went."""

    def __init__(self, pieces: int, workers: int) -> None:
        self._pieces = pieces
        self._slow = np.full(workers, np.nan)  # logarithms
        self._quick = np.full(workers, np.nan)
        self._seen: deque[Floats] = deque(maxlen=_RECENT)  # seconds, the newest last
        self._losses = np.zeros(5)
        self._share: float | None = None
        self._trips: deque[float] = deque(maxlen=_REMEMBERED)
        self._sendings: deque[float] = deque(maxlen=_REMEMBERED)
        self._own: deque[tuple[float, float]] = deque(maxlen=_OWN)
        self._caution = 0
        self._surprises: deque[float] = deque(maxlen=400)
        self._expected: Floats | None = None

    # -- what is expected ------------------------------------------------------------

    def forecast(self) -> Forecast:
        """Return what the next step is expected to be like."""
        n, share = len(self._slow), 1.0 if self._share is None else self._share
        if not self._seen:
            nothing = np.zeros(n)
            return Forecast(nothing, nothing, 0.0, 0.0, 0.0, share, False, False)
        best = int(np.argmin(self._losses))
        uneven = bool(self._losses[best] < 0.8 * self._losses[0] - 0.02)
        uneven = uneven and self._caution == 0
        seconds = self._predictions()[best if uneven else 0]
        typical = float(np.median(seconds))
        trip = float(np.median(self._trips)) if self._trips else _LATENCY * typical
        sending = float(np.median(self._sendings)) if self._sendings else trip
        self._expected = seconds
        fixed, pace = (1.0 - share) * seconds, share * seconds / self._pieces
        pace = np.maximum(pace, 1e-9 * typical)
        return Forecast(
            fixed,
            pace,
            typical,
            trip,
            sending,
            share,
            uneven,
            self._caution > 0,
            tuple(sorted(self._surprises)),
        )

    def _predictions(self) -> list[Floats]:
        last = self._seen[-1]
        alike = np.full(len(last), np.nanmedian(np.stack(self._seen)))
        stacked = np.stack(self._seen)
        known = ~np.isnan(stacked).all(axis=0)
        median = np.full(len(last), np.nan)
        median[known] = np.nanmedian(stacked[:, known], axis=0)
        found = [alike, np.exp(self._slow), np.exp(self._quick), last, median]
        return [np.where(np.isnan(x), alike, x) for x in found]

    # -- what is learnt --------------------------------------------------------------

    def update(self, record: Record) -> None:
        """Learn from a step that has ended."""
        if not record.combined:
            return
        seen, shares, trips, sendings = observed(record, self._pieces, self._share)
        self._trips += trips
        self._sendings += sendings
        if shares:
            found = float(np.median(shares))
            before = found if self._share is None else self._share
            self._share = 0.8 * before + 0.2 * found
        if self._seen:
            before_ = self._seen[-1]
            cut = seen < 0  # lower bounds
            value = np.where(cut, np.fmax(-seen, before_), seen)
        else:
            value = np.abs(seen)
        if np.isnan(value).all():
            return
        alive = np.array(record.alive) & ~np.isnan(value)
        if self._expected is not None and alive.any():
            self._surprises += (value[alive] / self._expected[alive]).tolist()
        if self._seen and alive.any():
            self._compete(value, alive, record.seconds)
        value = np.where(np.isnan(value), self._before(), value)
        self._seen.append(value)
        for mean, weight in ((self._slow, _SLOW), (self._quick, _QUICK)):
            log = np.log(value)
            mean[:] = np.where(np.isnan(mean), log, (1 - weight) * mean + weight * log)

    def _before(self) -> Floats:
        if self._seen:
            return self._seen[-1]
        return np.full(len(self._slow), np.nan)

    def _compete(self, seen: Floats, alive: np.ndarray, seconds: float) -> None:
        """Replay the loads of every predictor on what was seen."""
        share = 1.0 if self._share is None else self._share
        actual, total = seen[alive], self._pieces * len(seen)
        best = _loads(actual, share, self._pieces, total, even=False)
        for number, predicted in enumerate(self._predictions()):
            x = predicted[alive]
            loads = _loads(x, share, self._pieces, total, even=number == 0)
            self._losses[number] *= _DISCOUNT
            self._losses[number] += float(np.maximum(loads - best, 0.0).sum()) / total
        self._guard(seconds, float(np.max(actual)))

    def _guard(self, seconds: float, waiting: float) -> None:
        """Be cautious for a while if waiting for all would have been quicker."""
        if self._caution:
            self._caution -= 1
            return
        self._own.append((seconds, waiting))
        if len(self._own) == _OWN:
            own, other = map(sum, zip(*self._own, strict=True))
            if own > _WORSE * other:
                self._caution = _REST
                self._own.clear()


def _loads(x: Floats, share: float, pieces: int, total: int, even: bool) -> Floats:
    """Return parts for each worker whose uncoded load takes `x` seconds."""
    if even:
        return np.full(len(x), total / len(x))
    free, pace = (1.0 - share) * x, np.maximum(share * x / pieces, 1e-12)
    found = level(free, pace, total, np.zeros(0))
    return trimmed(found.room, free, pace, total).astype(np.float64)


def observed(
    record: Record, pieces: int, share: float | None
) -> tuple[Floats, list[float], list[float], list[float]]:
    """Return what a step told.

    Returns:
        Seconds each would have taken for the uncoded load, (workers,): negative where
        that is a lower bound, NaN where nothing was seen. Then shares that grow with
        the load, round trips, and seconds of sending, of whoever showed them.
    """
    state = record.state
    seen = np.full(len(record.alive), np.nan)
    shares: list[float] = []
    trips: list[float] = []
    for worker, held in enumerate(state.held):
        if not held:
            continue
        known = [state.segments[id_] for id_ in held]
        marks = _marks(known)
        begun = min(k.assigned for k in known)
        if not marks:
            until = max(min(k.ended_at, state.now) for k in known)
            least = _scaled(until - begun, 1, pieces, share)
            if least > 0:
                seen[worker] = -least
            continue
        gaps = [gap for _, _, gap in marks if gap > 0]
        first, parts = marks[0][0] - begun, marks[0][1]
        if gaps:
            pace = sum(gaps) / len(gaps)
            fixed = max(0.0, first - pace * parts)
            seen[worker] = fixed + pieces * pace
            shares.append(pieces * pace / seen[worker])
            trips += _trips(known, pace)
        elif first > 0:
            seen[worker] = _scaled(first, parts, pieces, share)
        late = state.now - marks[-1][0]
        if gaps and late > 2.0 * pace and known[-1].ended == "dropped":
            seen[worker] = max(seen[worker], fixed + pieces * late)
    return seen, shares, trips, _sendings(state)


def _scaled(seconds: float, parts: int, pieces: int, share: float | None) -> float:
    f = 1.0 if share is None else share
    scale = (1.0 - f) + f * parts / pieces
    return seconds / scale if scale > 0 else 0.0


def _marks(known: Sequence[SegmentState]) -> list[tuple[float, int, float]]:
    """Return (at, parts, seconds a part) of reports in order; 0 if it may have idled."""
    found: list[tuple[float, int, float]] = []
    last = -math.inf
    for segment in known:
        before = 0
        for done, at in segment.marks:
            gap = (at - last) / (done - before) if segment.assigned <= last else 0.0
            found.append((at, done - before, gap))
            before, last = done, at
    return found


def _trips(known: Sequence[SegmentState], pace: float) -> list[float]:
    """Return how long it took to get an idle worker going."""
    found, last = [], math.inf
    for segment in known:
        if segment.marks:
            done, at = segment.marks[0]
            if segment.assigned > last:
                found.append(max(0.0, at - segment.assigned - done * pace))
            last = segment.marks[-1][1]
    return found


def _sendings(state: State) -> list[float]:
    """Return the seconds from asking for a sum that was there to having it."""
    found = []
    for id_ in state.heard:
        message = state.messages[id_]
        known = [state.segments[s] for s in message.segments]
        there = max((k.marks[-1][1] for k in known if k.marks), default=math.inf)
        if message.arrived is not None and there < message.asked:
            found.append(message.arrived - message.asked)
    return found
