"""What an equal share of the parts would have taken: an estimate that may change.

`codedgrad.learning.waiting` says what is estimated, and makes these.
"""

from __future__ import annotations

from dataclasses import dataclass

from codedgrad.learning.savings import Waiting, WorkerLoad

TELLING = 2.0  # usual parts too long: what follows such a part tells; hiccups do not
_DOUBT = 2.0  # observations that the range adds at either end; a guess
_NEIGHBOUR = 2.0  # observations that a worker's own slow part before or after is worth


@dataclass(frozen=True, slots=True)
class SlowPartEvidence:
    """What workers did after a slow part: the r seen, weighed by how slow it was.

    The weights are the squares of what the parts took too long, in usual parts: small
    hiccups, which are pauses as a rule, are many, and must not outvote a slow machine.

    Attributes:
        total: The weighted sum of the r seen.
        weight: The sum of the weights.
        count: How many there are.
    """

    total: float = 0.0
    weight: float = 0.0
    count: int = 0

    def plus(self, stays: float, weight: float) -> SlowPartEvidence:
        """Return the evidence with one more observation."""
        total = self.total + weight * stays
        return SlowPartEvidence(total, self.weight + weight, self.count + 1)

    def minus(self, stays: float, weight: float) -> SlowPartEvidence:
        """Return the evidence without an observation that was added."""
        total = self.total - weight * stays
        return SlowPartEvidence(total, self.weight - weight, self.count - 1)

    def mean(self, stays: float = 0.0, times: float = 0.0) -> float:
        """Return the mean r, with some more observations of the usual weight.

        Args:
            stays: The r of each of these.
            times: How many.
        """
        more = times * (self.weight / self.count if self.count else 1.0)
        weight = self.weight + more
        return (self.total + more * stays) / weight if weight else 0.0


class SlowPartObserver:
    """Collects what workers did after a slow part.

    Args:
        load: Parts for each worker at the uncoded load.

    Attributes:
        evidence: All observations so far.

    Example:
        >>> observed = SlowPartObserver(load=8.0)
        >>> observed.add(step=0, stays=1.0, size=3.0)  # a slow machine
        >>> observed.add(step=1, stays=0.0, size=3.0)  # a pause
        >>> observed.evidence.mean()
        0.5
        >>> observed.add(step=1, stays=0.0, size=3.0)  # of another worker as well
        >>> observed.evidence.mean()
        1.0
    """

    def __init__(self, load: float) -> None:
        self.evidence = SlowPartEvidence()
        self._load = load
        # The last step with a pause, and (r, weight) of it while that is counted.
        self._pause: tuple[int, tuple[float, float] | None] = (-1, None)

    def add(self, step: int, stays: float, size: float) -> None:
        """Take what followed a slow part as evidence.

        Args:
            step: The number of the step.
            stays: The r seen; below 0.5 the part was a pause.
            size: What the part took too long, in usual parts.
        """
        if stays >= 0.5:
            self.evidence = self.evidence.plus(stays, size * size)
            return
        # A machine that is very slow does not finish two parts in a step, but a pause
        # is always seen to be over: long pauses would outvote slow machines.
        size = size if size <= self._load / 2 else TELLING
        paused, counted = self._pause
        if paused == step:
            # Several workers paused at once: the whole machine did, which says nothing
            # of single workers. Counted for each, one such moment outvotes the rest.
            if counted is not None:
                self.evidence = self.evidence.minus(*counted)
            self._pause = step, None
            return
        self._pause = step, (stays, size * size)
        self.evidence = self.evidence.plus(stays, size * size)


@dataclass(slots=True)
class EstimatedLoad:
    """What the uncoded load would have taken a worker: `seconds` + r `more`.

    Attributes:
        seconds: If its slow part was a pause.
        more: What it would have taken more if its other parts had been as slow.
        before: How slow its last part before this step was, as a share of this one.
        after: The same of its next part; 0 until that is seen.
        floor: r, as other parts of the same step have shown.
        is_begun: Whether it began in this step. If not, it was at a part of an earlier
            step all the time, and only `after` says whether it would have been slow;
            until that is seen, `before`.
        is_settled: Whether its next part was seen.
        below: Seconds that it may have taken less, apart from the doubt about r.
        above: Seconds that it may have taken more, likewise.
        message: Seconds of its message.
        is_bound: Whether it was not seen to finish the part in hand.
        is_seen: Whether it finished a part in this step, or had one in hand.
    """

    seconds: float
    more: float = 0.0
    before: float = 0.0
    after: float = 0.0
    floor: float = 0.0
    is_begun: bool = True
    is_settled: bool = False
    below: float = 0.0
    above: float = 0.0
    message: float = 0.0
    is_bound: bool = False
    is_seen: bool = True

    def at(self, evidence: SlowPartEvidence, doubt: float | None = None) -> float:
        """Return the seconds, given what workers in general do after a slow part.

        A neighbouring part of this worker that was slow too counts as two observations;
        two such neighbours decide. A neighbour that was normal says little: slowness
        often begins and ends with a step. At the low end of the range slow neighbours
        count for nothing: they may have been pauses of their own.

        Args:
            evidence: What workers showed.
            doubt: What two more observations say, at an end of the range; or None.
        """
        if not self.more:
            return self.seconds + self.message
        is_low_end = doubt == 0.0
        if not self.is_begun:
            near = self.after if self.is_settled else self.before
        else:
            near = 0.0 if is_low_end else max(self.before, self.after)
        said, times = _NEIGHBOUR * near * near, _NEIGHBOUR * near
        if doubt is not None:
            said, times = said + _DOUBT * doubt, times + _DOUBT
        stays = evidence.mean(said / times, times) if times else evidence.mean()
        if self.is_begun:
            decided = 0.0 if is_low_end else min(self.before, self.after)
            stays = max(stays, self.floor, decided)
        else:
            stays *= near
        return self.seconds + stays * self.more + self.message

    def told(self, evidence: SlowPartEvidence) -> WorkerLoad:
        """Return the load as it is shown to others."""
        seconds = self.at(evidence)
        return WorkerLoad(seconds, self.message, self.is_bound, self.is_seen)


@dataclass(slots=True)
class EstimatedStep:
    """A step that gave a sum: the load of every worker; None for one that was away."""

    number: int
    seconds: float
    loads: list[EstimatedLoad | None]
    is_short: bool = False  # its parts were far smaller than usual
    evidence: SlowPartEvidence | None = None  # once its estimate changes no more
    made: tuple[SlowPartEvidence, Waiting] | None = None  # until a load changes

    def waiting(self, evidence: SlowPartEvidence) -> Waiting:
        """Return what waiting for all would have taken in this step."""
        shown = self.evidence or evidence
        if self.made is None or self.made[0] is not shown:
            self.made = shown, self._make(shown)
        return self.made[1]

    def _make(self, shown: SlowPartEvidence) -> Waiting:
        loads = [load for load in self.loads if load is not None]
        if not loads:  # every worker was away
            return Waiting(self.seconds, self.seconds, self.seconds)
        slowest = max(loads, key=lambda load: load.at(shown))
        return Waiting(
            slowest.at(shown),
            max(load.at(shown, doubt=0.0) - load.below for load in loads),
            max(load.at(shown, doubt=1.0) + load.above for load in loads),
            slowest.is_bound,
        )
