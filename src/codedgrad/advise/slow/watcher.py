"""Who is slow while it runs: a watcher that is shown every step as it ends."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from codedgrad.advise.slow.slowness import verdicts_on
from codedgrad.advise.slow.stopwatch import Stopwatch, StopwatchRow
from codedgrad.advise.slow.times import paces_of_rows
from codedgrad.advise.slow.verdicts import Kind, Verdict
from codedgrad.core import Record

_REMEMBERED = 60  # steps in full


class Watcher:
    """Says after every step who is slow now, by what the last 60 steps show.

    It has no clock: all it knows is what it is shown. Among 32 workers a step costs
    about a millisecond, and a few while somebody is slow.

    Args:
        workers: How many.

    Example:
        >>> from codedgrad.core import Coordinator, MessageArrived, StepStarted
        >>> from codedgrad.schemes import uncoded
        >>> coordinator, watcher = Coordinator(uncoded(workers=4)), Watcher(4)
        >>> for step in range(8):
        ...     _ = coordinator.handle(StepStarted(step, at=float(step)))
        ...     for worker, seconds in enumerate((0.10, 0.11, 0.12, 0.90)):
        ...         arrived = MessageArrived(step, worker, 2 * worker + 1,
        ...                                  ((2 * worker, 1),), at=step + seconds)
        ...         _ = coordinator.handle(arrived)
        ...     found = watcher.update(coordinator.history.records[-1])
        >>> [(each.worker, str(each.kind), each.lasts) for each in found]
        [(3, 'always slow', 8)]
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._stopwatch = Stopwatch(workers)
        self._rows: deque[StopwatchRow] = deque(maxlen=_REMEMBERED)
        self._first: int | None = None  # the first step seen: slow since it is always
        self._known: dict[tuple[int, str], Verdict] = {}

    def update(self, seen: Record | StopwatchRow) -> list[Verdict]:
        """Return what is wrong with whom now, the worst first.

        Args:
            seen: The step that has just ended; steps come in order. As a `Record`, such
                as the last of `history.records`, or as read from one.
        """
        row = self._stopwatch.read(seen) if isinstance(seen, Record) else seen
        self._rows.append(row)
        if self._first is None:
            self._first = row.step
        found = verdicts_on(paces_of_rows(self._rows, self._workers))
        now = [self._extended(verdict) for verdict in found if verdict.lasts]
        self._known = {(each.worker, each.cause): each for each in now}
        return sorted(now, key=lambda verdict: -verdict.weight)

    def _extended(self, verdict: Verdict) -> Verdict:
        """Return a verdict that also counts steps that are no longer remembered."""
        if verdict.kind is not Kind.ALWAYS:
            return verdict
        known = self._known.get((verdict.worker, verdict.cause))
        since, lasts = verdict.since, verdict.lasts
        if known is not None and known.since < self._rows[0].step:
            since, lasts = known.since, known.lasts + 1
        kind = Kind.ALWAYS if since == self._first else Kind.TURNED
        return replace(verdict, kind=kind, since=since, lasts=lasts)
