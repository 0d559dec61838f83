r"""How long everybody is expected to take, from what past steps showed.

A worker takes $x$ seconds for the uncoded load of $c$ parts: $(1 - f) x$ before its
first part and $f x / c$ for each. Five predictors of $x$ compete: everybody alike, two
moving averages of $\log x$, the last value, and the median of five. After each step it
is counted how many parts would have had to change hands with the loads of each, as
against the best loads in hindsight; old steps count less and less. Loads are as equal
as ever until one of them is clearly better: lists change in the step anyway. Predictors
do not compete in the time of a step without re-planning: on heavy tails that favours
guesswork, because a worker that is given nothing is not waited for.

What was cut off counts as the larger of its lower bound and the value before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.core.history import Record, per_part
from codedgrad.core.state import SegmentState, State
from codedgrad.schemes.auto.earliest_end import shares

_DISCOUNT = 0.9
_BETTER, _LEAST = 0.8, 0.02  # of the loss of equal loads, and of all parts
_SLOW, _QUICK = 0.1, 0.3  # weights of the two moving averages
_RECENT = 5
_LATENCY = 0.01  # of a step, until it has been measured
_REMEMBERED = 25  # round trips
_SURPRISES = 400
_NEW = 0.2  # weight of what a step says about the share
_SLOWED = 2.0  # parts' time since the last report: its pace is not that any more
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
        surprises: How many times as long as expected uncoded loads took, ascending.
    """

    fixed: Floats
    pace: Floats
    step: float
    trip: float
    sending: float
    share: float
    uneven: bool
    cautious: bool
    surprises: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Paces:
    """A recipe for what is learnt; `pieces` parts are the uncoded load.

    Attributes:
        pieces: Parts for each worker at the uncoded load.
    """

    pieces: float

    def start(self, workers: int) -> _Tracker:
        """Return a tracker that knows nothing yet."""
        return _Tracker(self.pieces, workers)


class _Tracker:
    """Five predictors, the share, the round trip, and how it went."""

    def __init__(self, pieces: float, workers: int) -> None:
        self._pieces = pieces
        self._slow = np.zeros(workers)  # logarithms
        self._quick = np.zeros(workers)
        self._seen: deque[Floats] = deque(maxlen=_RECENT)  # seconds, the newest last
        self._losses = np.zeros(5)
        self._share: float | None = None
        self._trips: deque[float] = deque(maxlen=_REMEMBERED)
        self._sendings: deque[float] = deque(maxlen=_REMEMBERED)
        self._own: deque[tuple[float, float]] = deque(maxlen=_OWN)
        self._caution = 0
        self._surprises: deque[float] = deque(maxlen=_SURPRISES)
        self._expected: Floats | None = None

    # -- what is expected ------------------------------------------------------------

    def forecast(self) -> Forecast:
        """Return what the next step is expected to be like."""
        n, share = len(self._slow), self.share
        if not self._seen:
            nothing = np.zeros(n)
            return Forecast(nothing, nothing, 0.0, 0.0, 0.0, share, False, False, ())
        best = int(np.argmin(self._losses))
        uneven = bool(self._losses[best] < _BETTER * self._losses[0] - _LEAST)
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
        """Return what each predictor says: that all are alike, and four others."""
        stacked = np.array(self._seen)
        alike = np.full(stacked.shape[1], np.median(stacked))
        median = np.median(stacked, axis=0)
        return [alike, np.exp(self._slow), np.exp(self._quick), stacked[-1], median]

    # -- what is learnt --------------------------------------------------------------

    def update(self, record: Record) -> None:
        """Learn from a step that has ended."""
        if not record.combined:
            return
        seen = seen_in(record, self._pieces, self.share)
        if seen.shares:
            found = float(np.median(seen.shares))
            if self._share is None:  # now it is known what bounds are worth
                self._share = found
                seen = seen_in(record, self._pieces, found)
            self._share += _NEW * (found - self._share)
        self._trips += seen.trips
        self._sendings += seen.sendings
        value = seen.seconds
        if self._seen:  # whoever was cut off is no quicker than before
            value = np.where(seen.is_least, np.fmax(value, self._seen[-1]), value)
        alive = np.array(record.alive) & ~np.isnan(value)
        if not alive.any():
            return
        if self._expected is not None:
            self._surprises += (value[alive] / self._expected[alive]).tolist()
        if self._seen:
            self._compete(value, alive)
            if alive.all():  # else waiting for all would have been for ever
                self._guard(record.seconds, float(np.max(value)) + self._way())
        self._learn(value, alive)

    def _learn(self, value: Floats, alive: Bools) -> None:
        """Note what everybody took; who was not seen, as before, or as the others."""
        usual = np.full(len(value), np.median(value[alive]))
        value = np.where(alive, value, self._seen[-1] if self._seen else usual)
        log = np.log(value)
        for mean, weight in ((self._slow, _SLOW), (self._quick, _QUICK)):
            mean += (weight if self._seen else 1.0) * (log - mean)
        self._seen.append(value)

    @property
    def share(self) -> float:
        """The share of the time that grows with the load; 1 until it was seen."""
        return 1.0 if self._share is None else self._share

    def _compete(self, seen: Floats, alive: Bools) -> None:
        """Count the parts that would have had to change hands, for every predictor."""
        share = self.share
        actual, total = seen[alive], round(self._pieces * len(seen))
        best = _loads(actual, share, self._pieces, total)
        even = np.full(len(actual), total / len(actual))
        loads = [even]
        loads += [
            _loads(predicted[alive], share, self._pieces, total)
            for predicted in self._predictions()[1:]
        ]
        moved = [float(np.maximum(load - best, 0.0).sum()) / total for load in loads]
        self._losses *= _DISCOUNT
        self._losses += moved

    def _way(self) -> float:
        """Return the seconds that a sum takes besides a round trip."""
        if not self._sendings or not self._trips:
            return 0.0
        return max(0.0, float(np.median(self._sendings) - np.median(self._trips)))

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


def _loads(x: Floats, share: float, pieces: float, total: int) -> Floats:
    """Return parts for each worker whose uncoded load takes `x` seconds."""
    pace = np.maximum(share * x / pieces, 1e-12)
    found = shares(((1.0 - share) * x).tolist(), pace.tolist(), total)
    return np.array(found, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class StepEvidence:
    """What a step told.

    Attributes:
        seconds: That each would have taken for the uncoded load, (workers,); NaN where
            nothing was seen.
        is_least: Where it would have taken longer, (workers,).
        shares: That grow with the load, of whoever showed it.
        trips: Seconds of round trips: from an order to an idle worker to what it led
            to, without the work.
        sendings: Seconds from asking for a sum that was there to having it.
    """

    seconds: Floats
    is_least: Bools
    shares: list[float]
    trips: list[float]
    sendings: list[float]


def seen_in(record: Record, pieces: float, share: float) -> StepEvidence:
    """Return what a step told.

    Args:
        record: Of the step.
        pieces: Parts in the uncoded load.
        share: That grows with the load, of workers that did not show it.
    """
    state, n = record.state, len(record.alive)
    nothing = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
    seen = StepEvidence(*nothing, [], [], _sendings(state))
    for worker, held in enumerate(state.held):
        if held:
            known = [state.segments[id_] for id_ in held]
            seconds, is_least = _seconds(seen, known, state.now, pieces, share)
            if seconds > 0:
                seen.seconds[worker], seen.is_least[worker] = seconds, is_least
    return seen


def _seconds(
    seen: StepEvidence,
    known: Sequence[SegmentState],
    end: float,
    pieces: float,
    share: float,
) -> tuple[float, bool]:
    """Return what the uncoded load would have taken, and whether that is a bound."""
    marks, begun = _marks(known), min(k.assigned for k in known)
    if not marks:
        until = max(min(k.ended_at, end) for k in known)
        return per_part(until - begun, 1, share, pieces), True
    first, parts, _ = marks[0]
    gaps = [gap for *_, gap in marks if gap > 0]
    if not gaps:
        return per_part(first - begun, parts, share, pieces), False
    pace = sum(gaps) / len(gaps)
    fixed = max(0.0, first - begun - pace * parts)
    seconds = fixed + pieces * pace
    seen.shares.append(pieces * pace / seconds)
    seen.trips.extend(_trips(known, pace))
    late = end - marks[-1][0]
    if late > _SLOWED * pace and known[-1].ended == "dropped":
        return max(seconds, fixed + pieces * late), True
    return seconds, False


def _marks(known: Sequence[SegmentState]) -> list[tuple[float, int, float]]:
    """Return (at, parts, seconds a part, or 0 if it may have idled) of every report."""
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
