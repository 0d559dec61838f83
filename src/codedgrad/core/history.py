"""What was seen of past steps: times of every worker, censored where they were cut off.

A worker that was not waited for has still told something: that it had not finished by
the moment it was cut or dropped. Estimators that leave such steps out believe every
straggler to be fast.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from codedgrad.core.events import MessageArrived
from codedgrad.core.state import SegmentState, State

__all__ = ["Estimator", "History", "Observation", "Record", "Tracker"]

_REMEMBERED = 64  # steps kept in full, fewer where they would hold too much:
_OBSERVED = 20_000  # workers times steps
_RECENT = 20  # steps whose durations make the patience


@dataclass(frozen=True, slots=True)
class Observation:
    """What one step told about one worker.

    It merged `done` parts, the last of them `seconds` after it was first asked;
    `pending` more were not done `elapsed` seconds after that moment (0 if nothing was
    outstanding). Where an engine reports progress, `pending` is the one part in hand.

    Attributes:
        step: The step.
        worker: The worker.
        load: Parts it was asked for.
        done: Parts known to be merged.
        seconds: Until the last of them was reported.
        pending: Parts known not to be merged by `elapsed`, counted after `done`.
        elapsed: Seconds to the cut, drop or loss that ended it.
        ended: `answered`, `cut`, `dropped` or `lost`.
    """

    step: int
    worker: int
    load: int
    done: int
    seconds: float
    pending: int
    elapsed: float
    ended: str

    @property
    def is_censored(self) -> bool:
        """Whether something was outstanding when it ended."""
        return self.pending > 0


class Record:
    """A step that has ended.

    Attributes:
        state: All that was known when it ended.
        seconds: From its start to its end.
        combined: Whether it gave a sum.
        late: When messages came after the end, by worker; seconds of the clock.
    """

    def __init__(self, state: State, combined: bool) -> None:
        self.state = state
        self.seconds = state.now - state.started
        self.combined = combined
        self.late: dict[int, float] = {}

    @property
    def step(self) -> int:
        """Its number."""
        return self.state.step

    def observe(self, worker: int) -> Observation | None:
        """Return what the step told about a worker; None if it was asked nothing."""
        state = self.state
        segments = [state.segments[id_] for id_ in state.held[worker]]
        if not segments:
            return None
        asked = min(known.assigned for known in segments)
        load = sum(len(known.segment.parts) for known in segments)
        if worker in self.late:
            seconds = self.late[worker] - asked
            return Observation(
                self.step, worker, load, load, seconds, 0, seconds, "answered"
            )
        done = sum(known.done for known in segments)
        marks = [known.marks[-1][1] for known in segments if known.marks]
        seconds = max(marks) - asked if marks else 0.0
        pending, elapsed, ended = 0, seconds, "answered"
        for known in segments:
            if (left := self.outstanding(known)) > 0:
                pending, elapsed, ended = left, known.ended_at - asked, known.ended
                break
        return Observation(
            self.step, worker, load, done, seconds, pending, elapsed, ended
        )

    def outstanding(self, known: SegmentState) -> int:
        """Return how many parts were under way, and not done, when a segment ended."""
        if known.ended == "answered":
            return 0
        if known.ended == "cut" and known.closed and known.done > 0:
            went_on = known.marks[-1][1] > known.ended_at
            if went_on and known.done >= known.keep:
                return 0  # it finished what it was left with
        if self.state.capabilities.progress:
            return 1
        return len(known.segment.parts) - known.done


class Tracker(Protocol):
    """Something that learns from steps, one after the other."""

    def update(self, observations: Sequence[Observation | None]) -> None:
        """Learn from a step; None for a worker that was asked nothing."""
        ...


_T = TypeVar("_T", bound=Tracker, covariant=True)


class Estimator(Protocol[_T]):
    """A recipe for a tracker; equal recipes share one. Must be hashable."""

    def start(self, workers: int) -> _T:
        """Return a tracker that knows nothing yet."""
        ...


class History:
    """Past steps of a run, the recent ones in full.

    Attributes:
        workers: How many there are.
        records: The recent steps, oldest first.
        durations: Seconds of the recent steps that gave a sum.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        affordable = max(8, _OBSERVED // workers)
        self.records: deque[Record] = deque(maxlen=min(_REMEMBERED, affordable))
        self.durations: deque[float] = deque(maxlen=_RECENT)
        self._trackers: dict[object, Tracker] = {}
        self._fresh: Record | None = None  # ended, not yet told to the trackers

    def follow(self, estimator: Estimator[_T]) -> _T:
        """Return a tracker that has learnt from the steps remembered, and will go on.

        Schemes stay free of state: what they have learnt is in here.
        """
        tracker = self._trackers.get(estimator)
        if tracker is None:
            started = estimator.start(self.workers)
            for record in self.records:
                if record is not self._fresh:  # that one is told when it is settled
                    started.update(self._observations(record))
            self._trackers[estimator] = started
            return started
        return tracker  # type: ignore[return-value]  # the one made by this recipe

    def ended(self, state: State, combined: bool) -> None:
        """Note the end of a step."""
        state.finish()
        record = Record(state, combined)
        self.records.append(record)
        self._fresh = record
        if combined:
            self.durations.append(record.seconds)

    def arrived_late(self, event: MessageArrived) -> None:
        """Note a message of a step that has ended: its time is no longer censored."""
        for record in reversed(self.records):
            if record.step == event.step:
                message = record.state.messages.get(event.message)
                if message is None or message.worker != event.worker:
                    return
                held = record.state.held[event.worker]
                whole = {
                    (id_, len(record.state.segments[id_].segment.parts)) for id_ in held
                }
                if set(event.cuts) == whole and message.arrived is None:
                    record.late.setdefault(event.worker, event.at)
                return

    def settle(self) -> None:
        """Teach the trackers the last step, late arrivals until now included."""
        if self._fresh is not None and self._trackers:
            observations = self._observations(self._fresh)
            for tracker in self._trackers.values():
                tracker.update(observations)
        self._fresh = None

    def _observations(self, record: Record) -> list[Observation | None]:
        return [record.observe(worker) for worker in range(self.workers)]


def per_part(seconds: float, parts: int, share: float, unit: float) -> float:
    r"""Return the time for the uncoded load that `parts` in `seconds` amount to.

    With a share $f$ of the time in proportion to the load and `unit` parts in the
    uncoded load, $T = x \, ((1 - f) + f \, \text{parts} / \text{unit})$; solved for
    $x$.
    """
    scale = (1.0 - share) + share * parts / unit
    return seconds / scale if scale > 0 else math.inf
