"""What every worker has in hand in an open step, and when it should be through.

All times are as reports reach the root, so what a report takes is in them. A worker
that has reported two parts in a row shows its pace; before that it is expected to be as
forecast, and once it is later than that, as late as others were who were as late.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.core.state import State
from codedgrad.schemes.auto.forecast import Forecast

_OVERDUE = 1.02  # times what was expected, from which it is not believed any more
_VERY = 1.1
_LATER, _MUCH = 1.2, 3.0  # times as late as now: a little overdue, and very
_SLOWED = 1.25  # the same, for a worker whose pace is known
_STALLED = 1.5  # parts' time in one part: the others will take as long
# How long a worker is put off for each sum that failed, in multiples of the step's time
# so far. Without it the plan would ask the same broken worker again and again.
_STRIKE = 1.0
_FIRST = 0.05  # of the time so far: a round trip, before one was measured
_GUESSED = 0.01  # fraction of the deadline's scale: what a first step may take
_LIKE = 4  # others who were as late, to go by them
# Quantile of the lateness of workers that were as late before. With the median a step
# waits for the last of many workers, each of which was expected in time.
_SURELY = 0.8


class Hand:
    """What a worker has in hand.

    Attributes:
        lists: Segments that it is to do, in order, until they are closed.
        unsent: Segments whose sums are to be asked for.
        count: Parts that it has merged in this step.
        since: When it began what it is at, as far as is known.
        pace: Seconds a part; 0 before it has shown any.
        is_paced: Whether it has shown that by two parts in a row.
        started: Whether it was given anything in this step.
        silent: Whether it owes a sum, and is not believed to send it.
        strikes: How many sums of it did not come, or could not be used.
    """

    __slots__ = (
        "_gap", "_gaps", "_last", "count", "lists", "pace", "silent", "since",
        "started", "strikes", "unsent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lists: list[int] = []
        self.unsent: list[int] = []
        self.count = 0
        self.since = 0.0
        self.pace = 0.0
        self.started = False
        self.silent = False
        self.strikes = 0
        self._last = math.nan
        self._gap = 0.0
        self._gaps = 0

    @property
    def is_paced(self) -> bool:
        """Whether it has shown its pace by two parts in a row."""
        return self._gaps > 0

    def report(self, parts: int, at: float) -> None:
        """Note parts that were merged."""
        if self.since == self._last:  # it went straight on
            self._gap += at - self._last
            self._gaps += parts
            self.pace = self._gap / self._gaps
        self.count += parts
        self.since = self._last = at

    def drop(self, segment: int) -> None:
        """Take a segment out, whatever becomes of it."""
        for ids in (self.lists, self.unsent):
            if segment in ids:
                ids.remove(segment)


@dataclass(slots=True, eq=False)
class Sight:
    """How things stand at a moment; changed while orders are made.

    Attributes:
        free: When each could begin another part, (workers,); inf: not there.
        pace: Seconds that each takes for a part, (workers,).
        queues: Parts that each has not begun, in order.
        under_way: (part, worker, when it should be done).
        stuck: How many of its queue each may have begun before an order reaches it.
    """

    free: Floats
    pace: Floats
    queues: list[list[int]]
    under_way: list[tuple[int, int, float]]
    stuck: list[int]


class Hands:
    """All hands of a step.

    Args:
        forecast: What the step is expected to be like.
        pieces: Parts in the uncoded load.

    Attributes:
        trip: Seconds of a round trip.
        given: The parts of every segment that was given, or is about to be.
    """

    def __init__(self, forecast: Forecast, pieces: float) -> None:
        self._forecast = forecast
        self._pieces = pieces
        self._fixed: list[float] = forecast.fixed.tolist()
        self._pace: list[float] = forecast.pace.tolist()
        self._hands = [Hand() for _ in self._pace]
        self._silent: set[int] = set()
        self._merged: dict[int, int] = {}  # segment -> parts known to be merged
        self.given: dict[int, tuple[int, ...]] = {}
        self.trip = forecast.trip

    def __getitem__(self, worker: int) -> Hand:
        return self._hands[worker]

    def __iter__(self) -> Iterator[Hand]:
        return iter(self._hands)

    @property
    def are_trusted(self) -> bool:
        """Whether nobody is silent."""
        return not self._silent

    # -- what happens ----------------------------------------------------------------

    def pass_time(self, state: State) -> None:
        """Note the time; in a first step a round trip is taken to be a share of it."""
        if not self._forecast.step:
            self.trip = _FIRST * (state.now - state.started)

    def give(
        self, state: State, worker: int, segment: int, parts: Sequence[int]
    ) -> None:
        """Note a segment that is about to be given."""
        hand = self._hands[worker]
        if not hand.started:
            hand.since = state.now
        elif not hand.lists and hand.count:
            hand.since = state.now + self.trip
        hand.started = True
        hand.lists.append(segment)
        self.given[segment] = tuple(parts)

    def report(self, state: State, worker: int, segment: int) -> int:
        """Note a report; return how many parts are new in it."""
        hand, known = self._hands[worker], state.segments[segment]
        self.speak(worker)
        parts = known.done - self._merged.get(segment, 0)
        if parts > 0:
            self._merged[segment] = known.done
            hand.report(parts, state.now)
            if not hand.is_paced:
                share = self._forecast.share
                scale = (1.0 - share) + share * hand.count / self._pieces
                took = state.now - state.started
                hand.pace = took * share / self._pieces / scale
        if known.closed and not known.done:
            hand.drop(segment)
            if not hand.lists and not hand.count:
                hand.started = False  # it is there, and has nothing
        elif known.done >= known.keep and segment in hand.lists:
            hand.lists.remove(segment)  # closed, or about to be
        return max(parts, 0)

    def renew(self, worker: int) -> None:
        """Note that somebody else is there now, or nobody."""
        self._hands[worker] = Hand()
        self._silent.discard(worker)

    def speak(self, worker: int) -> None:
        """Note that a worker has answered: it is not silent any more."""
        self._hands[worker].silent = False
        self._silent.discard(worker)

    def hush(self, worker: int) -> None:
        """Note that a worker has not answered in time: it is silent until it speaks."""
        self._hands[worker].silent = True
        self._silent.add(worker)

    def left(self, state: State, worker: int) -> int:
        """Return how many parts a worker still has to do."""
        left = 0
        for id_ in self._hands[worker].lists:
            known = state.segments.get(id_)
            if known is None:  # just given
                left += len(self.given[id_])
            else:
                left += known.keep - known.done
        return left

    def is_nearly_dry(self, state: State, worker: int) -> bool:
        """Whether more should be on its way, or a worker will have nothing to do."""
        hand = self._hands[worker]
        return (self.left(state, worker) - 1) * hand.pace <= self.trip

    # -- what is to be expected ------------------------------------------------------

    def sight(self, state: State) -> Sight:
        """Return how things stand now."""
        n, now = len(self._hands), state.now
        sight = Sight(
            np.full(n, np.inf), np.ones(n), [[] for _ in range(n)], [], [0] * n
        )
        guess = self._guess(state)
        for worker, hand in enumerate(self._hands):
            if not state.alive[worker] or hand.silent:
                continue
            pace = hand.pace or self._pace[worker] or guess
            took = now - hand.since
            is_stalled = hand.count > 0 and took > _STALLED * pace + self.trip
            sight.pace[worker] = took if is_stalled and hand.lists else pace
            parts: list[int] = []
            for id_ in hand.lists:
                known = state.segments[id_]
                parts += known.segment.parts[known.done : known.keep]
            strikes = _STRIKE * hand.strikes * (now - state.started)
            if not parts:
                sight.free[worker] = self.ready(state, worker, pace) + strikes
                continue
            end = self._expected(state, worker, pace) + strikes
            sight.free[worker] = end if len(parts) > 1 else max(end, now + self.trip)
            sight.under_way.append((parts[0], worker, end))
            sight.queues[worker] = parts[1:]
            soon = now + self.trip - end
            begun = 1 + int(soon / pace) if soon > 0 else 0
            if not hand.count:  # nobody knows when it begins
                begun = max(begun, math.ceil(self.trip / pace) - 1)
            sight.stuck[worker] = min(len(parts) - 1, begun)
        return sight

    def steps_so_far(self, state: State) -> float:
        """Return for how many steps a step has lasted; in the first one, a guess."""
        usual = self._forecast.step or _GUESSED * state.deadline.scale
        return (state.now - state.started) / usual

    def ready(self, state: State, worker: int, pace: float) -> float:
        """Return when a worker without parts could begin one."""
        hand, soon = self._hands[worker], state.now + self.trip
        if hand.count:
            return soon
        if not hand.started:
            return soon + self._fixed[worker]
        return max(soon, self._expected(state, worker, pace) - pace)

    def _guess(self, state: State) -> float:
        """Return a pace for somebody of whom nothing is known."""
        known = sorted(hand.pace for hand in self._hands if hand.pace > 0)
        return known[len(known) // 2] if known else max(state.now - state.started, 1e-9)

    def _expected(self, state: State, worker: int, pace: float) -> float:
        """Return when a worker should be done with what it is at."""
        hand, now = self._hands[worker], state.now
        took = now - hand.since
        if hand.count:
            if took <= _OVERDUE * pace:
                return max(hand.since + pace, now)
            return hand.since + _SLOWED * took
        usual = self._fixed[worker] + pace
        before = self._forecast.surprises
        at = bisect_right(before, took / usual)
        if len(before) - at >= _LIKE:
            later = before[at + int(_SURELY * (len(before) - at))]
            return max(hand.since + usual * max(later, 1.0), now)
        if took <= _OVERDUE * usual:
            return max(hand.since + usual, now)
        return hand.since + (_MUCH if took > _VERY * usual else _LATER) * took
