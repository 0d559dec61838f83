r"""What waiting for all workers would have taken, from what every worker showed.

A slow worker is not waited for, so its time for the uncoded load of $q = k / n$ parts
is not seen. It is estimated from the parts that the worker finished:

$$x = \sum_{j \le D} t_j + (q - D) \, t_{\text{rest}}$$

with $t_1 \dots t_D$ the seconds of its parts (the sum stops at $q$ if $D > q$), plus
what its message takes. A step that waits for all takes the largest $x$ of its workers.

A worker that shows one slow part leaves one question open: would its other parts have
been slow as well (a slow machine), or not (a pause)? Two things answer it:

- the worker's own parts before and after, in other steps: as slow, or normal;
- all workers that finished another part of the same step after a slow one. Of the time
  that the slow part took too long, the next took a share $r$ too long: 1 for machines
  that stay slow, 0 for pauses. The mean of these shares is used for all workers. A step
  in which several workers pause tells nothing: the whole machine stood still.

`EstimatedLoad.at` weighs the two. So the estimate of a step changes a little after its
end, and `WaitingForAll.means` has the newest figures.

The range is from two more observations that say 0, and none of the worker's own parts
before and after, to two more that say 1. It includes the scatter of the parts, and that
a worker which was given nothing may have become as quick as the others. It is no
confidence interval, but `benchmarks/waiting.py --simulated` counts how often it holds.

A worker that is lost in a step counts with the time until then and a whole load. One
that is away from the start is not counted: waiting for it might never have ended.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, median_low, pstdev
from typing import TypeAlias

from codedgrad.core.history import Record
from codedgrad.core.state import State
from codedgrad.learning.load_estimates import (
    TELLING,
    EstimatedLoad,
    EstimatedStep,
    SlowPartObserver,
)
from codedgrad.learning.message_times import message_times
from codedgrad.learning.part_times import PartTimes, part_times
from codedgrad.learning.savings import Savings, Waiting, WorkerLoad

# The constants here and in `load_estimates` were chosen on the regimes and seeds of
# `benchmarks/waiting.py`; its `--simulated` tries others.
_REMEMBERED = 5  # steps of a worker whose median is its usual time; a guess
_SLOW = 1.5  # times the usual: such a part may have been a pause, or a slow machine
# Steps whose estimate may still change. Older ones keep the estimate they have, so that
# neither memory nor the time of `means` grows with the run.
_CHANGING = 512
_LOADS = 20_000  # and of these, workers times steps at most
_UNSETTLED = 64  # loads of a worker that await its next part, as a history keeps
# Share by which inferred seconds may be off either way: in the steadiest regimes of
# `benchmarks/waiting.py` they are off by up to that.
_INFERRED = 0.02
SLOWER = 1.15  # times the others: less is not worth a word
_CROWD = 16  # workers
_IN_A_ROW = 3  # steps with short parts: then those are the usual ones
_SHORT = 0.5  # of the usual seconds of a part: the batch was a smaller one
_MOSTLY = 0.1  # of the steps: if more are bounds, the mean is called one, too

_Typical: TypeAlias = tuple[float, float]  # seconds: a first part, a later one


@dataclass(slots=True)
class _OpenLoad:
    """A load that the worker's next part settles.

    Attributes:
        step: Its step.
        load: The load.
        excess: Seconds that the slow part took more than usual.
        only: Seconds of the slow part, if it was the only part of its step, and of one
            after a pause; else None: the others are remembered already.
    """

    step: EstimatedStep
    load: EstimatedLoad
    excess: float
    only: tuple[float, float] | None = None


@dataclass(slots=True)
class _BusyWorker:
    """A worker that was at a part when a step ended, and has not let go of it.

    Attributes:
        step: The step.
        record: Of it, which will say when the worker let go.
        seen: What the worker showed in it.
        others: Typical seconds of all workers in it: a first part, a later one.
    """

    step: EstimatedStep
    record: Record
    seen: PartTimes
    others: _Typical


def _recent() -> deque[float]:
    return deque(maxlen=_REMEMBERED)


@dataclass(slots=True)
class _RememberedWorker:
    """What is remembered of a worker.

    Attributes:
        first: Seconds of the first part of recent steps; the way of an order is in it.
        later: Seconds of a further part in recent steps.
        message: Seconds of recent messages.
        busy: The step in which it has a part in hand still.
        tail: Seconds that its last part took more than usual; 0 if it was not slow.
        open: What its next part settles.
    """

    first: deque[float] = field(default_factory=_recent)
    later: deque[float] = field(default_factory=_recent)
    message: deque[float] = field(default_factory=_recent)
    busy: _BusyWorker | None = None
    tail: float = 0.0
    open: deque[_OpenLoad] = field(default_factory=lambda: deque(maxlen=_UNSETTLED))

    def usual(self, others: _Typical) -> _Typical:
        """Return its usual seconds for a first part, and for a later one."""
        first = median(self.first) if self.first else others[0]
        return first, median(self.later) if self.later else others[1]


class WaitingForAll:
    """Estimates what waiting for all would have taken; is shown the steps in order.

    Args:
        workers: How many.
        load: Parts for each worker at the uncoded load, $q$.
        keep_all: Whether `loads` and `estimates` are wanted of every step.
        cores: That the workers share; 0: not known.

    Example:
        >>> from codedgrad.core import Coordinator, MessageArrived, StepStarted
        >>> from codedgrad.schemes import uncoded
        >>> coordinator = Coordinator(uncoded(workers=2))
        >>> waiting = WaitingForAll(workers=2, load=1.0)
        >>> _ = coordinator.handle(StepStarted(0, at=1.0))
        >>> _ = coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=1.5))
        >>> _ = coordinator.handle(MessageArrived(0, 1, 3, ((2, 1),), at=5.0))
        >>> waiting.add(coordinator.history.records[-1]).estimate
        4.0
    """

    def __init__(
        self, workers: int, load: float, keep_all: bool = False, cores: int = 0
    ) -> None:
        self._load = load
        self._cores = cores
        self._workers = [_RememberedWorker() for _ in range(workers)]
        self._observed = SlowPartObserver(load)
        self._changing = max(8, min(_CHANGING, _LOADS // workers))
        self._keep_all = keep_all
        self._kept: deque[EstimatedStep] = deque()
        self._states: deque[State] = deque(maxlen=_UNSETTLED)
        self._recent: deque[EstimatedStep] = deque(
            maxlen=_REMEMBERED
        )  # with or without a sum
        self._sums = [0.0] * 4  # over the steps that are not kept
        self._seconds = 0.0
        self._steps = self._gone = 0

    def add(self, record: Record) -> Waiting:
        """Take a step that has ended; return the estimate as far as is known by now.

        Args:
            record: Of the step, before the next one starts. It is looked at again when
                its late workers have let go.
        """
        step = EstimatedStep(record.step, record.seconds, [])
        seen = [self._read(record, number) for number in range(len(self._workers))]
        others = _typical(seen)
        step.is_short = self._is_short(others)
        messages = message_times(record)
        drains = not record.state.capabilities.interrupts_part
        for number, shown in enumerate(seen):
            worker, load = self._workers[number], None
            if record.alive[number] or shown.was_asked:
                load = self._judge(worker, shown, others, record, step)
                load.message = _message(worker, messages.get(number))
            step.loads.append(load)
            if shown.pending and record.alive[number] and drains:
                worker.busy = _BusyWorker(step, record, shown, others)
            elif shown.pending and shown.seconds and not step.is_short:
                usual = worker.usual(others)
                self._learn(worker, shown.seconds, usual, _way(others), step)
        self._recent.append(step)
        self._states.append(record.state)
        if record.combined:
            self._keep(step)
        return step.waiting(self._observed.evidence)

    def means(self) -> Savings:
        """Return the means over all steps that gave a sum, as known by now."""
        if not self._steps:
            return Savings(0, 0.0, Waiting(0.0, 0.0, 0.0))
        self._look_for_freed()
        sums = list(self._sums)
        for step in self._kept:
            _add(sums, step.waiting(self._observed.evidence))
        estimate, low, high, bounds = (total / self._steps for total in sums)
        means = Waiting(estimate, low, high, bounds > _MOSTLY)
        return Savings(
            steps=self._steps,
            seconds=self._seconds / self._steps,
            waiting=means,
            gone=self._gone,
            workers=len(self._workers),
            cores=self._cores,
        )

    def estimates(self) -> dict[int, Waiting]:
        """Return the estimates of the steps kept, by number, as far as known by now."""
        self._look_for_freed()
        return {
            step.number: step.waiting(self._observed.evidence) for step in self._kept
        }

    def loads(self) -> Iterator[tuple[int, list[WorkerLoad | None]]]:
        """Return for the steps kept what the uncoded load would have taken each worker.

        None stands for a worker that was away.
        """
        self._look_for_freed()
        for step in self._kept:
            shown = step.evidence or self._observed.evidence
            loads = [None if x is None else x.told(shown) for x in step.loads]
            yield step.number, loads

    @property
    def part_seconds(self) -> float:
        """Seconds that a part takes as a rule; 0 until that was seen."""
        known = [median(worker.later) for worker in self._workers if worker.later]
        return median_low(known) if known else 0.0  # as `_typical`, to be compared

    def _is_short(self, others: _Typical) -> bool:
        """Whether parts were far shorter than usual, as in the last batch of an epoch.

        Some of its parts may even be empty, and workers that have the others are not
        slow for that: such a step tells nothing of the workers. Several in a row are a
        job that has become quicker.
        """
        before = list(self._recent)[-_IN_A_ROW:]
        if len(before) < _IN_A_ROW:
            return False
        if all(step.is_short for step in before):
            for worker in self._workers:
                worker.first.clear()
                worker.later.clear()
            return False
        return 0 < others[1] < _SHORT * self.part_seconds

    def slow(self, steps: int = _REMEMBERED) -> list[tuple[int, float]]:
        """Return the workers that are slower than the others, the slowest first.

        Args:
            steps: How many of the last ones to look at.

        Returns:
            (worker, factor): how many times as long as the median of the other workers
            it takes, the median over the steps, where that is more than 15 %.
        """
        factors: dict[int, list[float]] = {}
        for step in list(self._recent)[-steps:]:
            if step.is_short:
                continue
            loads = [
                None if x is None else x.at(self._observed.evidence) for x in step.loads
            ]
            for worker, factor in _against_others(loads):
                factors.setdefault(worker, []).append(factor)
        found = [(worker, median(each)) for worker, each in factors.items()]
        found = [(worker, factor) for worker, factor in found if factor > SLOWER]
        return sorted(found, key=lambda pair: -pair[1])

    # -- what a step showed ----------------------------------------------------------

    def _look_for_freed(self) -> None:
        for number in range(len(self._workers)):
            self._free(number)

    def _free(self, number: int, now: float = -math.inf) -> float:
        """Return since when a worker is free: -inf for long, inf if it is not.

        If it has let go of a step since it was last looked at, its load in that step is
        estimated anew.
        """
        worker = self._workers[number]
        busy = worker.busy
        if busy is None:
            return -math.inf
        state = busy.record.state
        # Of any step: the worker may have begun a part just as that step ended, and the
        # root then knows of a later one only.
        freed = min(
            (
                each
                for known in self._states
                for each in known.freed.get(number, ())
                if each[0] >= state.now
            ),
            default=None,
        )
        if freed is not None:
            worker.busy = None
            busy.seen.free(freed[1], state.unused[number])
        elif now > busy.seen.until:  # it has taken that long at least
            busy.seen.until = now
        else:
            return math.inf
        before = busy.step.loads[number]
        load = self._judge(worker, busy.seen, busy.others, busy.record, busy.step)
        load.message = 0.0 if before is None else before.message
        busy.step.loads[number], busy.step.made = load, None
        return math.inf if freed is None else freed[0]

    def _read(self, record: Record, number: int) -> PartTimes:
        """Return what a worker showed in a step."""
        free_since = self._free(number, record.state.now)
        if free_since == math.inf:
            seen = part_times(record, number, -math.inf)
            if not seen.seconds and record.alive[number]:
                return PartTimes(was_asked=seen.was_asked)  # it is at the older step
            # It was lost and came back: it will never let go of the older step.
            self._workers[number].busy = None
            return seen
        return part_times(record, number, free_since)

    def _judge(
        self,
        worker: _RememberedWorker,
        seen: PartTimes,
        others: _Typical,
        record: Record,
        step: EstimatedStep,
    ) -> EstimatedLoad:
        """Return what the uncoded load would have taken a worker; learn from it."""
        if step.is_short:
            return _of_short_step(seen, others, self._load)
        self._settle(worker, seen, others, step.number)
        first, later = worker.usual(others)
        way = _way(others)
        usual = first + (self._load - 1) * later
        if not math.isnan(seen.lost_at):
            return EstimatedLoad(seen.lost_at - record.state.started + usual)
        if seen.pending:
            # The part in hand counts from where on it takes longer than usual.
            is_slow = seen.elapsed > (later if seen.seconds else first)
            parts = [*seen.seconds, seen.elapsed] if is_slow else seen.seconds
            if parts:
                load = self._estimate(worker, parts, (first, later), way, None)
                load.is_bound = is_slow and len(parts) < self._load + 1
                return load
            return EstimatedLoad(usual, is_bound=True)
        if not seen.seconds:
            as_others = others[0] + (self._load - 1) * others[1]
            return self._unseen(worker, usual, as_others, first, step)
        load = self._estimate(worker, seen.seconds, (first, later), way, step)
        self._learn(worker, seen.seconds, (first, later), way, step)
        return load

    def _estimate(
        self,
        worker: _RememberedWorker,
        parts: Sequence[float],
        usual: _Typical,
        way: float,
        step: EstimatedStep | None,
    ) -> EstimatedLoad:
        """Return the load of a worker that took so long for its parts.

        Args:
            worker: The worker.
            parts: Seconds of each.
            usual: What it takes as a rule.
            way: What a first part takes longer than others: an order is on its way.
            step: The step if this is all that will be known of it; None: the last part
                is not over, or another is in hand.
        """
        q, done, (first, later) = self._load, len(parts), usual
        if done >= q:
            whole = int(q)
            part = parts[min(whole, done - 1)]
            return EstimatedLoad(sum(parts[:whole]) + (q - whole) * part)
        last, rest = parts[-1], q - done
        base = median(parts[1:-1]) if done > 2 else later
        should = first if done == 1 else base  # what the last part takes as a rule
        if last <= _SLOW * should:
            pace = fmean(parts[1:]) if done > 1 else max(0.0, last - way)
            scatter = pstdev(parts[1:]) / math.sqrt(done - 1) if done > 2 else 0.0
            if done == 1 and len(worker.first) > 1:
                scatter = pstdev(worker.first)
            either_way = rest * (scatter + _INFERRED * pace)
            return EstimatedLoad(
                sum(parts) + rest * pace, below=either_way, above=either_way
            )
        excess = last - should
        load = EstimatedLoad(sum(parts) + rest * base, rest * excess)
        if done > 1:
            ahead = parts[-2] - (first if done == 2 else base)
            load.floor = _clipped(ahead / excess)
        load.before = _clipped(worker.tail / excess)
        if step is not None:
            only = (last, base) if done == 1 else None
            worker.open.append(_OpenLoad(step, load, excess, only))
        return load

    def _unseen(
        self,
        worker: _RememberedWorker,
        usual: float,
        as_others: float,
        first: float,
        step: EstimatedStep,
    ) -> EstimatedLoad:
        """Return the load of a worker that was given nothing, or did not begin it.

        It is taken to be as slow as it was when it last showed its pace. It may have
        recovered since, so the range begins with what other workers take.
        """
        off = _INFERRED * usual
        load = EstimatedLoad(usual, is_begun=False, is_seen=False)
        load.below, load.above = max(off, usual - as_others), off
        if worker.busy is not None:
            load.is_bound = True
            excess = max(0.0, worker.busy.seen.elapsed - first)
            load.more = self._load * excess
            load.before = _clipped(worker.tail / excess) if excess else 0.0
            worker.open.append(_OpenLoad(step, load, excess))
        return load

    def _settle(
        self, worker: _RememberedWorker, seen: PartTimes, others: _Typical, step: int
    ) -> None:
        """Let the first part of a step say whether the slow ones before were a pause.

        And let it say how slow the steps were that the worker did not begin because it
        was at this very part.
        """
        if not seen.seconds:
            return
        part, (first, _) = seen.seconds[0], worker.usual(others)
        for each in [each for each in worker.open if each.step.number < step]:
            worker.open.remove(each)
            each.step.made = None
            if each.excess > 0:
                each.load.after = _clipped((part - first) / each.excess)
                each.load.is_settled, each.load.is_bound = True, False
                stays = max(each.load.before, each.load.after)
                if each.only is not None and stays > 0.5:  # a pause is not usual
                    slow, normal = each.only
                    worker.first.append(slow)
                    worker.later.append(normal + each.excess)
        if not seen.pending:
            for each in worker.open:  # steps after this one, that it did not begin
                each.step.made = None
                each.excess = max(0.0, seen.seconds[-1] - first)
                each.load.more = self._load * each.excess

    def _learn(
        self,
        worker: _RememberedWorker,
        parts: Sequence[float],
        usual: _Typical,
        way: float,
        step: EstimatedStep,
    ) -> None:
        """Remember how long parts took, and what followed a slow one."""
        first, later = usual
        should = [first] + [later] * (len(parts) - 1)
        is_slow = [part > _SLOW * s for part, s in zip(parts, should, strict=True)]
        for number in range(len(parts) - 1):
            excess = parts[number] - should[number]
            if excess > TELLING * later:
                stays = _clipped((parts[number + 1] - later) / excess)
                size = excess / (later or excess)
                self._observed.add(step.number, stays, size)
                break
        worker.tail = parts[-1] - should[-1] if is_slow[-1] else 0.0
        if len(parts) > 1:
            worker.first.append(parts[0])
            worker.later.append(fmean(parts[1:]))
        elif not is_slow[0]:
            worker.first.append(parts[0])
            worker.later.append(max(0.0, parts[0] - way))

    # -- over all steps --------------------------------------------------------------

    def _keep(self, step: EstimatedStep) -> None:
        self._steps += 1
        self._seconds += step.seconds
        self._gone += None in step.loads
        self._kept.append(step)
        if len(self._kept) > self._changing:
            if self._keep_all:
                older = self._kept[-1 - self._changing]
                older.evidence = self._observed.evidence
            else:
                _add(self._sums, self._kept.popleft().waiting(self._observed.evidence))


def _typical(seen: Sequence[PartTimes]) -> _Typical:
    """Return typical seconds of a step: of a first part, and of a later one.

    What a first part takes longer is taken from each worker's own parts. Between two
    workers it would be a difference of speed, where the slow one shows one part only.
    """
    several = [each.seconds for each in seen if len(each.seconds) > 1]
    if not several:
        first = [each.seconds[0] for each in seen if each.seconds]
        typical = median_low(first) if first else 0.0
        return typical, typical
    means = [fmean(parts[1:]) for parts in several]
    later = median_low(means)
    longer = [parts[0] - mean for parts, mean in zip(several, means, strict=True)]
    return later + max(0.0, median_low(longer)), later


def _way(others: _Typical) -> float:
    """Return what a first part takes longer than others: an order is on its way.

    As a difference, because it is paid once a step, however slow the worker computes.
    """
    first, later = others
    return max(0.0, first - later)


def _of_short_step(seen: PartTimes, others: _Typical, load: float) -> EstimatedLoad:
    """Return what a worker's share of a step with few samples would have taken."""
    parts = seen.seconds[: math.ceil(load)]
    rest = max(0.0, load - len(parts)) * others[1]
    return EstimatedLoad(sum(parts) + rest, is_seen=False)


def _message(worker: _RememberedWorker, shown: tuple[float, bool] | None) -> float:
    """Return the seconds of a worker's message; its usual ones where none was heard."""
    if shown is not None and not shown[1]:
        worker.message.append(shown[0])
        return shown[0]
    return median(worker.message) if worker.message else 0.0


def _against_others(loads: Sequence[float | None]) -> Iterator[tuple[int, float]]:
    """Return (worker, its load over the median of the others')."""
    known = {worker: x for worker, x in enumerate(loads) if x is not None and x > 0}
    # Among many workers one does not change the median of all, which is quicker.
    crowd = median(known.values()) if len(known) > _CROWD else 0.0
    for worker, own in known.items():
        others = crowd or _median_without(known, worker)
        if others > 0:
            yield worker, own / others


def _median_without(known: dict[int, float], worker: int) -> float:
    others = [x for each, x in known.items() if each != worker]
    return median(others) if others else 0.0


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))


def _add(sums: list[float], waiting: Waiting) -> None:
    told = waiting.estimate, waiting.low, waiting.high, float(waiting.is_bound)
    for place, figure in enumerate(told):
        sums[place] += figure
