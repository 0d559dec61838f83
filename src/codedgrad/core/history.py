"""What was seen of past steps: times of every worker, censored where they were cut off.

A worker that was not waited for has still told something: that it had not finished by
the moment it was cut or dropped. Estimators that leave such steps out believe every
straggler to be fast.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import Protocol, TypeVar

from codedgrad.core.events import (
    MessageArrived,
    MessagesCompared,
    Progressed,
    WorkerFreed,
)
from codedgrad.core.state import SegmentState, State

_REMEMBERED = 64  # steps kept in full, fewer where they would hold too much:
_OBSERVED = 20_000  # workers times steps
_RECENT = 20  # steps whose durations make the patience


@dataclass(frozen=True, slots=True)
class Observation:
    """What one step told about one worker.

    It merged `done` parts in `seconds` of work, and `pending` more were not done after
    `elapsed` seconds of work in all (0 if nothing was outstanding). Work is the time
    from when it could begin a segment, so waiting for orders is not in it. Where an
    engine reports progress, `pending` is the part in hand.

    Attributes:
        step: The step.
        worker: The worker.
        load: Parts it was asked for.
        done: Parts known to be merged.
        seconds: Of work until the last of them was reported.
        pending: Parts known not to be merged by `elapsed`, counted after `done`.
        elapsed: Seconds of work to the cut, drop or loss that ended it.
        ended: `answered`, `cut`, `dropped`, `lost` or `failed`.
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """A worker at one segment, for as long as it is known to have been at it.

    Attributes:
        start: When it could begin: asked, and done with what came before.
        marks: (parts merged, at) of every report.
        left: Parts under way, and not done, at `end`; 0 if nothing was.
        end: When the segment was cut, dropped or lost, if so.
        ended: How it ended, as in `SegmentState`.
        closed: Whether its closing was reported.
    """

    start: float
    marks: tuple[tuple[int, float], ...]
    left: int
    end: float
    ended: str
    closed: bool


class Record:
    """A step that has ended.

    Attributes:
        state: All that was known when it ended.
        alive: For every worker, whether it was there when it ended.
        seconds: From its start to its end.
        combined: Whether it gave a sum.
        late: When messages came after the end, by worker; seconds of the clock.
        contradicted: The worker of every message that was not finite and should be.
        diverged: Whether a message that is not finite was heard: nobody contradicts.
        products: (message, message, inner product of their gradients), if the plan
            asked and the driver had them; else empty.
    """

    def __init__(self, state: State, combined: bool) -> None:
        self.state = state
        self.alive = tuple(state.alive)
        self.seconds = state.now - state.started
        self.combined = combined
        self.late: dict[int, float] = {}
        self.contradicted = tuple(state.contradicted)
        self.diverged = state.diverged
        self.products: tuple[tuple[int, int, float], ...] = ()

    @property
    def step(self) -> int:
        """Its number."""
        return self.state.step

    @property
    def heard(self) -> frozenset[int]:
        """The workers that were heard before it ended."""
        messages = self.state.messages
        return frozenset(messages[id_].worker for id_ in self.state.heard)

    @property
    def asked(self) -> frozenset[int]:
        """The workers that were asked for a message."""
        return frozenset(known.worker for known in self.state.messages.values())

    @property
    def observations(self) -> list[Observation | None]:
        """What it told about every worker; None for one that was asked nothing."""
        return [self.observe(worker) for worker in range(len(self.alive))]

    def observe(self, worker: int) -> Observation | None:
        """Return what the step told about a worker; None if it was asked nothing.

        Opinions count as work; somebody asked only for one was not in the plan.
        """
        if not self.state.held[worker]:
            return None
        load = sum(len(known.segment.parts) for known in self.state.given(worker))
        done = pending = 0
        seconds = elapsed = 0.0
        ended = "answered"
        for stretch in self.stretches(worker):
            until = stretch.start
            if stretch.marks:
                parts, until = stretch.marks[-1]
                done += parts
                seconds += until - stretch.start
            elapsed += until - stretch.start
            if stretch.left:
                pending += stretch.left
                elapsed += stretch.end - until
                ended = stretch.ended
            elif stretch.ended == "failed":
                ended = "failed"
        return Observation(
            self.step, worker, load, done, seconds, pending, elapsed, ended
        )

    def stretches(self, worker: int) -> list[Stretch]:
        """Return what a worker was at, one segment after the other.

        A segment that ended before the worker could begin it is left out, and so is
        the time in which it had nothing to do.
        """
        found: list[Stretch] = []
        held, free = self.state.given(worker), -math.inf
        for known in held:
            start, left = max(known.assigned, free), self._outstanding(known)
            marks, ended = tuple(known.marks), known.ended
            if worker in self.late and len(held) == 1:
                whole = len(known.segment.parts)
                marks, left, ended = ((whole, self.late[worker]),), 0, "answered"
            if left and known.ended_at < start:
                left = 0  # taken away before it was begun: that says nothing of speed
            if not marks and not left and ended != "failed":
                continue
            found.append(
                Stretch(start, marks, left, known.ended_at, ended, known.closed)
            )
            free = max([free, *(at for _, at in marks[-1:])])
            if left:
                free = max(free, known.ended_at)
        return found

    def _outstanding(self, known: SegmentState) -> int:
        """Return how many parts were under way, and not done, when a segment ended."""
        if known.ended in ("answered", "failed"):
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

    def update(self, record: Record) -> None:
        """Learn from a step that has ended."""
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
        alive: For every worker, whether it is there now.
        given_up: Seconds after which the last step was given up; 0 if it was not.
        records: The recent steps, oldest first.
        durations: Seconds of the recent steps that gave a sum.
        contradicted: How many messages of each worker were not finite and should have
            been, in all steps that have ended.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.alive = [True] * workers
        self.given_up = 0.0
        affordable = max(8, _OBSERVED // workers)
        self.records: deque[Record] = deque(maxlen=min(_REMEMBERED, affordable))
        self.durations: deque[float] = deque(maxlen=_RECENT)
        self.contradicted: Counter[int] = Counter()
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
                    started.update(record)
            self._trackers[estimator] = started
            return started
        return tracker  # type: ignore[return-value]  # the one made by this recipe

    def ended(self, state: State, combined: bool, failed: bool = False) -> None:
        """Note the end of a step; `failed` if its own plan gave it up."""
        state.finish()
        record = Record(state, combined)
        self.records.append(record)
        self._fresh = record
        self.contradicted.update(record.contradicted)
        self.given_up = record.seconds if failed else 0.0
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
                came = message.arrived is not None or not message.finite
                if set(event.cuts) == whole and not came:
                    record.late.setdefault(event.worker, event.at)
                return

    def freed(self, event: WorkerFreed) -> str:
        """Note when a worker was free of a step that has ended; return why not."""
        for record in reversed(self.records):
            if record.step == event.step:
                return record.state.note_freed(event)
            if record.step < event.step:
                return "unknown"  # that step was never taken
        return "late"  # the step is no longer remembered

    def progressed_late(self, event: Progressed) -> None:
        """Note a part of a step that has ended, after which the worker began another.

        Its last part is told by `WorkerFreed`.
        """
        record = next((r for r in self.records if r.step == event.step), None)
        known = None if record is None else record.state.segments.get(event.segment)
        if record is None or known is None or known.segment.worker != event.worker:
            return
        if not event.closed and event.done > known.done:
            record.state.unused[event.worker] += 1

    def compared(self, event: MessagesCompared) -> str:
        """Note how alike messages of the last step are; return why not, in a word."""
        record = self._fresh
        if record is None or event.step != record.step:
            return "late"
        if record.products:
            return "repeated"
        pairs = [(one, other) for one, other, _ in event.products]
        heard = set(record.state.heard) if record.combined else set()
        if not heard.issuperset(message for pair in pairs for message in pair):
            return "unknown"
        finite = all(math.isfinite(product) for _, _, product in event.products)
        ordered = len(set(pairs)) == len(pairs) and all(a <= b for a, b in pairs)
        if not finite or not ordered:
            return "inconsistent"
        record.products = event.products
        return ""

    def settle(self) -> None:
        """Teach the trackers the last step, late arrivals until now included."""
        # When the next step starts, not when this one ends: until then a late message
        # turns a censored time into an observed one.
        if self._fresh is not None:
            for tracker in self._trackers.values():
                tracker.update(self._fresh)
        self._fresh = None


def per_part(seconds: float, parts: int, share: float, unit: float) -> float:
    r"""Return the time for the uncoded load that `parts` in `seconds` amount to.

    With a share $f$ of the time in proportion to the load and `unit` parts in the
    uncoded load, $T = x \, ((1 - f) + f \, \text{parts} / \text{unit})$; solved for
    $x$.
    """
    scale = (1.0 - share) + share * parts / unit
    return seconds / scale if scale > 0 else math.inf
