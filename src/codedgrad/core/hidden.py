r"""Who is slow now, with nothing known beforehand: a filter that learns its own laws.

`estimators.HiddenMarkov` is told how fast and slow workers behave. On real machines
nobody knows; this one starts from the first step it sees and learns as it goes, by
online expectation maximisation: every step, the posterior of each worker's state is
computed from its censored time, and the laws and the chain are set to what the
posteriors, with forgetting, say. Where nobody is ever slow the two states are much
alike, and what it says is noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from codedgrad.core.estimators import HiddenMarkov, Law
from codedgrad.core.history import Observation, Record

__all__ = ["LearntMarkov"]

_SLOWER = 2.0  # times the mean of the fast law, at least, is what is called slow
_PRIOR = 20.0  # transitions out of each state that are taken as seen beforehand
_ENTER, _LEAVE = 0.03, 0.1  # what those were
_MOST = 0.5  # a chain that moves more often than not tells nothing about tomorrow


@dataclass(frozen=True, slots=True)
class LearntMarkov:
    r"""Two-state filter whose laws are learnt from the censored times themselves.

    Both laws are a floor, the shortest time seen, plus an exponential excess. With
    $\gamma$ the posterior of a state, the mean excess of its law is
    $\sum \gamma (x - x_0) / \sum \gamma$, where a time that was cut off counts above
    the line only; the chain is counted likewise from pairs of steps.

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
        self.excess = excess  # seconds per part beyond the floor
        self.finished = finished  # times that were not cut off

    @property
    def mean(self) -> float:
        return self.excess / self.finished


class _LearningTracker:
    """Probability of the slow state in the coming step, by worker.

    Attributes:
        slow: That probability; alike for all as long as nothing was seen.
        law: What has been learnt; None as long as nothing was seen.
    """

    def __init__(self, forget: float, workers: int) -> None:
        self._forget = forget
        self.slow = [_ENTER / (_ENTER + _LEAVE)] * workers
        self.law: HiddenMarkov | None = None
        self._was = list(self.slow)  # in the step before, as filtered
        self._floor = math.inf
        self._fast, self._slow = _Seen(0.0, 1.0), _Seen(0.0, 1.0)
        self._entered, self._fast_steps = _PRIOR * _ENTER, _PRIOR
        self._left, self._slow_steps = _PRIOR * _LEAVE, _PRIOR

    def update(self, record: Record) -> None:
        """Learn from a step, then look one step ahead."""
        seen = [None if o is None else _Time.of(o) for o in record.observations]
        whole = [time.seconds for time in seen if time is not None and time.is_whole]
        if self.law is None and not whole:
            return  # nobody has finished anything: no scale to start from
        if self.law is None:
            self._begin(whole)
        self._decay()
        self._lower_floor(min(whole, default=math.inf))
        law = self._fitted()
        for worker, time in enumerate(seen):
            if time is None:
                self._was[worker] = self.slow[worker]
            else:
                self._learn(worker, time, law)
        self.law = law = self._fitted()
        self.slow = [p * (1.0 - law.leave) + (1.0 - p) * law.enter for p in self._was]

    def _begin(self, seconds: list[float]) -> None:
        """Take the first step's times for those of fast workers, more or less."""
        self._floor, usual = min(seconds), median(seconds)
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

    def _lower_floor(self, least: float) -> None:
        if least < self._floor:
            for evidence in (self._fast, self._slow):  # it was longer than it seemed
                evidence.excess += (self._floor - least) * evidence.finished
            self._floor = least

    def _learn(self, worker: int, time: _Time, law: HiddenMarkov) -> None:
        fast, slow = time.log_likelihood(law.fast), time.log_likelihood(law.slow)
        most = max(fast, slow)
        fast, slow = math.exp(fast - most), math.exp(slow - most)
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
        excess = max(time.seconds - self._floor, 0.0)
        for evidence, share in ((self._fast, 1.0 - p), (self._slow, p)):
            evidence.excess += share * excess
            evidence.finished += share * time.is_whole

    def _fitted(self) -> HiddenMarkov:
        floor = self._floor
        fast = max(self._fast.mean, 0.01 * floor, 1e-12)
        least = _SLOWER * (floor + fast) - floor
        return HiddenMarkov(
            enter=min(self._entered / self._fast_steps, _MOST),
            leave=min(self._left / self._slow_steps, _MOST),
            fast=Law(floor, fast),
            slow=Law(floor, max(self._slow.mean, least)),
        )


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
            return _Time(rest, is_whole=False)
        return _Time(mean, is_whole=seen.done > 0)

    def log_likelihood(self, law: Law) -> float:
        if self.is_whole:
            return law.log_density(self.seconds)
        return law.log_survival(self.seconds)
