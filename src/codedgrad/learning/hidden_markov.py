r"""Who is slow now, with nothing known beforehand: a filter that learns its own laws.

`estimators.HiddenMarkov` is told how fast and slow workers behave. On real machines
nobody knows; this one starts from the first step it sees and learns as it goes, by
online expectation maximisation: every step, the posterior of each worker's state is
computed from its censored time, and the laws and the chain are set to what the
posteriors, with forgetting, say. Where no worker is ever slow the two states are much
alike, and it reports noise; that costs nothing, since all seats are equally good then.

Slow is who is slow among the others. Batches grow, sequences lengthen, all machines are
throttled at once: times are judged in a unit that is taken from the recent steps, so
that what is common to all workers is no evidence about any.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from codedgrad.core.history import Observation, Record
from codedgrad.learning.estimators import HiddenMarkov, Law

_SLOWER = 2.0  # times the mean of the fast law, at least, is what is called slow
_PRIOR = 20.0  # transitions out of each state that are taken as seen beforehand
_ENTER, _LEAVE = 0.03, 0.1  # what those were
_MOST = 0.5  # a chain that moves more often than not tells nothing about tomorrow
_LOW = 0.25  # the quantile of a step's times that says how fast it was for all
_SCALED = 15  # steps whose median quantile is the unit
_WINDOW = 64  # steps whose shortest times make the floor
_GLITCHES = 20  # one in so many of them may be shorter
_FAR = 8.0  # times the mean of a law is all that one time adds to its evidence
_SHORTEST, _LONGEST = 1e-12, 1e6  # seconds, units: beyond, times are not told apart


@dataclass(frozen=True, slots=True)
class LearntMarkov:
    r"""Two-state filter whose laws are learnt from the censored times themselves.

    Both laws are a floor, the shortest recent time, plus an exponential excess. With
    $\gamma$ the posterior of a state, the mean excess of its law is
    $\sum \gamma (x - x_0) / \sum \gamma$, where a time that was cut off counts above
    the line only; the chain is counted likewise from pairs of steps.

    The unit of $x$ is the median over 15 steps of a low quantile of their times: when
    all change their pace at once, it is right again after 8 steps. Of the shortest
    times of 64 steps the floor leaves out the three lowest, and a long time adds no
    more than 8 means to a sum: single odd times, short or long, do no harm.

    Attributes:
        forget: What is left of the evidence after a step; 0.99 remembers a hundred.
    """

    forget: float = 0.99

    def start(self, workers: int) -> _LearningTracker:
        """Return a tracker that knows nothing yet."""
        return _LearningTracker(self.forget, workers)


class _Seen:
    """Evidence about one state, with forgetting."""

    __slots__ = ("excess", "finished")

    def __init__(self, excess: float, finished: float) -> None:
        self.excess = excess  # units per part beyond the floor
        self.finished = finished  # times that were not cut off

    @property
    def mean(self) -> float:
        return self.excess / self.finished

    def add(self, share: float, excess: float, is_whole: bool) -> None:
        """Add a time, with the probability that it is of this state."""
        self.excess += share * excess
        self.finished += share * is_whole


class _LearningTracker:
    """Probability of the slow state in the coming step, by worker.

    Attributes:
        slow: That probability; alike for all as long as nothing was seen.
    """

    def __init__(self, forget: float, workers: int) -> None:
        self._forget = forget
        self.slow = [_ENTER / (_ENTER + _LEAVE)] * workers
        self._was = list(self.slow)  # in the step before, as filtered
        self._scale = _Scale()
        self._law: HiddenMarkov | None = None  # in units, as all that follows
        self._floor = 0.0
        self._fast, self._slow = _Seen(0.0, 1.0), _Seen(0.0, 1.0)
        self._entered, self._fast_steps = _PRIOR * _ENTER, _PRIOR
        self._left, self._slow_steps = _PRIOR * _LEAVE, _PRIOR

    @property
    def law(self) -> HiddenMarkov | None:
        """What has been learnt, in seconds; None as long as nothing was seen."""
        law, unit = self._law, self._scale.unit
        if law is None:
            return None
        floor, fast, slow = law.fast.floor, law.fast.mean, law.slow.mean
        return HiddenMarkov(
            law.enter,
            law.leave,
            fast=Law(floor * unit, fast * unit),
            slow=Law(floor * unit, slow * unit),
        )

    def update(self, record: Record) -> None:
        """Learn from a step, then look one step ahead."""
        seen = [None if o is None else _Time.of(o) for o in record.observations]
        told = [time for time in seen if time is not None]
        whole = sorted(time.seconds for time in told if time.is_whole)
        if self._law is None and not whole:
            return  # nobody has finished anything: no scale to start from
        if whole:
            self._scale.update(whole, len(told))
        if self._law is None:
            self._begin(median(whole) / self._scale.unit)
        self._decay()
        self._move_floor(self._scale.floor)
        law = self._fitted()
        for worker, time in enumerate(seen):
            if time is None:
                self._was[worker] = self.slow[worker]
            else:
                self._learn(worker, time, law)
        self._law = law = self._fitted()
        self.slow = [p * (1.0 - law.leave) + (1.0 - p) * law.enter for p in self._was]

    def _begin(self, usual: float) -> None:
        """Take the first step's times for those of fast workers, more or less."""
        self._floor = self._scale.floor
        excess = max(usual - self._floor, 0.05 * usual)
        self._fast = _Seen(5.0 * excess, 5.0)
        self._slow = _Seen(5.0 * usual, 1.0)

    def _decay(self) -> None:
        w = self._forget
        for evidence in (self._fast, self._slow):
            kept = max(w, min(1.0, 1.0 / evidence.finished))  # laws need a scale
            evidence.excess *= kept
            evidence.finished *= kept
        self._entered = w * self._entered + (1 - w) * _PRIOR * _ENTER
        self._left = w * self._left + (1 - w) * _PRIOR * _LEAVE
        self._fast_steps = w * self._fast_steps + (1 - w) * _PRIOR
        self._slow_steps = w * self._slow_steps + (1 - w) * _PRIOR

    def _move_floor(self, floor: float) -> None:
        """Set the floor; what was beyond the old one is longer or shorter by that."""
        for evidence in (self._fast, self._slow):
            moved = (self._floor - floor) * evidence.finished
            evidence.excess = max(evidence.excess + moved, 0.0)
        self._floor = floor

    def _learn(self, worker: int, time: _Time, law: HiddenMarkov) -> None:
        excess = time.beyond(self._floor, self._scale.unit)
        gain = excess / law.fast.mean - excess / law.slow.mean  # for being slow
        if time.is_whole:
            gain -= math.log(law.slow.mean / law.fast.mean)
        fast, slow = math.exp(min(-gain, 0.0)), math.exp(min(gain, 0.0))
        was = self._was[worker]
        stayed_fast = (1.0 - was) * (1.0 - law.enter) * fast
        entered = (1.0 - was) * law.enter * slow
        left = was * law.leave * fast
        stayed_slow = was * (1.0 - law.leave) * slow
        total = stayed_fast + entered + left + stayed_slow
        self._entered += entered / total
        self._fast_steps += (stayed_fast + entered) / total
        self._left += left / total
        self._slow_steps += (left + stayed_slow) / total
        self._was[worker] = p = (entered + stayed_slow) / total
        self._fast.add(1.0 - p, min(excess, _FAR * law.fast.mean), time.is_whole)
        self._slow.add(p, min(excess, _FAR * law.slow.mean), time.is_whole)

    def _fitted(self) -> HiddenMarkov:
        floor = self._floor
        # A quarter of the workers need no more than the unit: however strange all
        # times have become, the fast law is one that gives such times.
        fast = max(self._fast.mean, 1.0 - floor, 0.01 * floor)
        least = _SLOWER * (floor + fast) - floor
        return HiddenMarkov(
            enter=min(self._entered / self._fast_steps, _MOST),
            leave=min(self._left / self._slow_steps, _MOST),
            fast=Law(floor, fast),
            slow=Law(floor, max(self._slow.mean, least)),
        )


class _Scale:
    """How fast steps are for all: the unit of times, in seconds per part.

    Attributes:
        unit: The median over recent steps of a low quantile of their times.
        floor: The shortest time, in units, but for a few.
    """

    __slots__ = ("_fresh", "_least", "_low", "floor", "unit")

    def __init__(self) -> None:
        self.unit = self.floor = 1.0
        self._low: deque[float] = deque(maxlen=_SCALED)  # seconds
        self._fresh: deque[float] = deque(maxlen=_SCALED // 2)  # shortest, seconds
        self._least: deque[float] = deque(maxlen=_WINDOW)  # shortest, units

    def update(self, whole: list[float], told: int) -> None:
        """Learn from the times of a step that were not cut off, in order."""
        self._low.append(whole[min(int(_LOW * told), len(whole) - 1)])
        self.unit = median(self._low)
        if len(self._fresh) == _SCALED // 2:  # the unit is now that of those days
            self._least.append(self._fresh[0] / self.unit)
        self._fresh.append(whole[0])
        least = sorted(self._least or [x / self.unit for x in self._fresh])
        self.floor = min(least[len(least) // _GLITCHES], 1.0)


@dataclass(frozen=True, slots=True)
class _Time:
    """What a step told: seconds per part, at least that if it was cut off."""

    seconds: float
    is_whole: bool

    @staticmethod
    def of(seen: Observation) -> _Time:
        mean = seen.seconds / seen.done if seen.done else 0.0
        rest = (seen.elapsed - seen.seconds) / seen.pending if seen.pending else 0.0
        if rest > mean:  # it has become slower than it was, or has finished nothing
            return _Time(max(rest, _SHORTEST), is_whole=False)
        return _Time(max(mean, _SHORTEST), is_whole=seen.done > 0)

    def beyond(self, floor: float, unit: float) -> float:
        """Return by how many units it is beyond the floor; 0 if it is below."""
        return max(0.0, min(self.seconds / unit, _LONGEST) - floor)
