"""What must hold whatever happens: watched from outside, event by event.

Nothing here trusts the coordinator's own state. Rows are rebuilt from the orders given
and the messages that arrived, and weighed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from codedgrad.core import (
    ROOT,
    Assign,
    Capabilities,
    Combine,
    Command,
    Cut,
    Drop,
    Event,
    GiveUp,
    MessageArrived,
    MessagesCompared,
    Scheme,
    Segment,
    State,
    StepStarted,
    Upload,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.errors import Violation

_CLOSE = 1e-9  # per part, for sums that are called exact
_NOBODY = -2  # has a message: who had it is gone


class Invariants:
    """Call it with every event and its commands; it raises `Violation`.

    - a step ends at most once, and nothing is ordered for a step that is not open;
    - no order goes to a worker that is lost;
    - segments fit the placement, and every number is used once;
    - messages go to the root, or to a worker that is there;
    - who gathers messages has them: they went to it, came, and it lived on since;
    - the timer is set to a later moment;
    - how alike messages are decides nothing at once;
    - the weights times the rows heard give ones (exact schemes), or miss them by the
      residual that is stated (others);
    - a message that is not finite is in a sum only if somebody else has sent one too,
      or everybody who could contradict it was asked. Whoever gathers one passes it on
      and says nothing about it.

    Args:
        scheme: What is run.
        capabilities: Of the engine; not everybody can be asked by every one.

    Attributes:
        ends: How every step ended, by step.
    """

    def __init__(
        self, scheme: Scheme, capabilities: Capabilities | None = None
    ) -> None:
        self._scheme = scheme
        self._engine = capabilities or Capabilities()
        self._placement = [frozenset(parts) for parts in scheme.placement]
        self._alive = [True] * scheme.workers
        self._open: int | None = None
        self._segments: dict[int, Segment] = {}
        self._messages: dict[int, tuple[int, ...]] = {}
        self._gathered: dict[int, tuple[tuple[int, float], ...]] = {}
        self._to: dict[int, int] = {}  # message -> who hears it
        self._cuts: dict[int, tuple[tuple[int, int], ...]] = {}
        self._not_finite: dict[int, int] = {}  # message -> worker
        self.ends: dict[int, Combine | GiveUp] = {}

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Check what was decided about an event."""
        if isinstance(event, WorkersLost | WorkersJoined):
            for worker in event.workers:
                if 0 <= worker < len(self._alive):
                    self._alive[worker] = isinstance(event, WorkersJoined)
            for message in [m for m, to in self._to.items() if to in event.workers]:
                self._to[message] = _NOBODY
        elif isinstance(event, MessageArrived) and event.step == self._open:
            if not event.finite and event.message not in self._cuts:
                self._not_finite[event.message] = event.worker
            self._cuts.setdefault(event.message, event.cuts)
        elif isinstance(event, MessagesCompared) and commands:
            raise Violation("comparing decides nothing at once", f"{commands}")
        for command in commands:
            if isinstance(event, StepStarted) and command.step == event.step:
                self._begin(event.step)
            self._check(command, event)

    def _begin(self, step: int) -> None:
        if self._open != step and step not in self.ends:
            if self._open is not None:
                raise Violation("a step is closed before the next", f"{self._open}")
            self._open = step
            self._segments, self._messages = {}, {}
            self._gathered, self._to = {}, {}
            self._cuts, self._not_finite = {}, {}

    def _check(self, command: Command, event: Event) -> None:
        if command.step != self._open:
            raise Violation("only the open step is spoken of", f"{command}")
        match command:
            case Assign(_, segment, message):
                self._alive_or(segment.worker, command)
                self._number(segment.id, command)
                self._segments[segment.id] = segment
                if not self._placement[segment.worker].issuperset(segment.parts):
                    raise Violation("segments fit the placement", f"{command}")
                if message is not None:
                    self._number(message, command)
                    self._messages[message] = (segment.id,)
                    self._receive(message, command)
            case Cut(_, worker, id_):
                self._alive_or(worker, command)
                self._own(id_, worker, command)
            case Upload(_, worker, message, segments):
                self._alive_or(worker, command)
                for id_ in segments:
                    self._own(id_, worker, command)
                self._number(message, command)
                self._gather(command)
                self._messages[message] = segments
                self._receive(message, command)
            case Drop(_, worker):
                self._alive_or(worker, command)
            case WakeAt(_, at):
                if not event.at < at < math.inf:
                    raise Violation("the timer is set to a later moment", f"{command}")
            case Combine():
                self._weigh(command)
                self._doubt(command)
                self._end(command)
            case GiveUp():
                self._end(command)

    def _end(self, end: Combine | GiveUp) -> None:
        self.ends[end.step] = end
        self._open = None

    def _alive_or(self, worker: int, command: Command) -> None:
        if not self._alive[worker]:
            raise Violation("no command goes to a lost worker", f"{command}")

    def _number(self, id_: int, command: Command) -> None:
        if id_ in self._segments or id_ in self._messages:
            raise Violation("every number is used once", f"{command}")

    def _own(self, id_: int, worker: int, command: Command) -> None:
        if id_ not in self._segments or self._segments[id_].worker != worker:
            raise Violation("orders name segments of their worker", f"{command}")

    def _receive(self, message: int, order: Assign | Upload) -> None:
        if order.to != ROOT and not self._alive[order.to]:
            raise Violation("no message goes to a lost worker", f"{order}")
        self._to[message] = order.to

    def _gather(self, upload: Upload) -> None:
        for message, _ in upload.gathered:
            came_to = self._to.get(message) if message in self._cuts else None
            if came_to != upload.worker:
                raise Violation("who gathers messages has them", f"{upload}")
        self._gathered[upload.message] = upload.gathered

    def _row(self, message: int) -> Iterator[tuple[int, float]]:
        """Go through the parts and coefficients of a message, gathered ones too."""
        for id_, done in self._cuts[message]:
            segment = self._segments[id_]
            yield from zip(segment.parts[:done], segment.coefficients, strict=False)
        for other, weight in self._gathered.get(message, ()):
            for part, coefficient in self._row(other):
                yield part, weight * coefficient

    def _added(self, message: int) -> Iterator[int]:
        """Go through the messages that are gathered in one, and in those."""
        for other, _ in self._gathered.get(message, ()):
            yield other
            yield from self._added(other)

    def _weigh(self, combine: Combine) -> None:
        total = [0.0] * self._scheme.parts
        for message, weight in combine.weights:
            if message not in self._cuts or self._to.get(message) != ROOT:
                raise Violation("only heard messages are weighed", f"{combine}")
            for part, coefficient in self._row(message):
                total[part] += weight * coefficient
        gaps = [sum_ - 1.0 for sum_ in total]
        worst = max(map(abs, gaps))
        misfit = math.fsum(gap * gap for gap in gaps)
        if self._scheme.exact and worst > _CLOSE:
            part = max(range(len(gaps)), key=lambda p: abs(gaps[p]))
            raise Violation(
                "every part is in the sum exactly once",
                f"part {part} weighs {total[part]:.6g} in {combine}",
            )
        if abs(misfit - combine.residual) > _CLOSE * max(1.0, misfit) * len(gaps):
            raise Violation(
                "the residual stated is that of the weights",
                f"{misfit:.6g} in {combine}",
            )

    def _doubt(self, combine: Combine) -> None:
        alone = {
            message: worker
            for message, worker in self._not_finite.items()
            if not any(id_ in self._not_finite for id_ in self._added(message))
        }
        senders = set(alone.values())
        weighed = [message for message, _ in combine.weights]
        for message in [m for w in weighed for m in (w, *self._added(w))]:
            if message in alone and len(senders) == 1:
                parts = {part for part, _ in self._row(message)}
                for worker in range(self._scheme.workers):
                    if worker not in senders and self._unasked(worker, parts):
                        problem = f"worker {worker} was not asked, {combine}"
                        raise Violation("nobody is believed alone", problem)

    def _unasked(self, worker: int, parts: set[int]) -> bool:
        """Whether a worker could say something about these parts, and was not asked."""
        if not self._alive[worker] or not self._placement[worker].issuperset(parts):
            return False
        held = [s for s in self._segments.values() if s.worker == worker]
        if len(held) >= self._engine.rows_per_worker:
            return False
        own = {segment.id for segment in held}
        return not any(
            parts.issubset(
                part for id_ in segments for part in self._segments[id_].parts
            )
            for segments in self._messages.values()
            if own.issuperset(segments)
        )


def check_state(state: State) -> None:
    """Raise `Violation` unless the counters of an open step are those of a recount."""
    parts = range(state.parts)
    live = [known for known in state.segments.values() if not known.gone]
    in_hand, open_, closed = ([0] * state.parts for _ in range(3))
    for known in live:
        for part in known.merged:
            (closed if known.closed else open_)[part] += 1
        for part in () if known.closed else known.segment.parts[known.done :]:
            in_hand[part] += 1
    covered = [0] * state.parts
    for id_ in (m for m in state.heard if state.messages[m].to == ROOT):
        for part in _held(state, id_):
            covered[part] += 1
    found = [open_[p] + closed[p] + covered[p] for p in parts]
    counted = {
        "in_hand": in_hand,
        "open": open_,
        "closed": closed,
        "covered": covered,
        "missing": sum(found[p] == 0 for p in parts),
        "uncovered": sum(covered[p] == 0 for p in parts),
    }
    for name, value in counted.items():
        if getattr(state.ledger, name) != value:
            raise Violation("the ledger is right", f"{name} is not {value}")
    for id_ in state.doubted:
        if state.messages[id_].finite or not state.messages[id_].pending:
            raise Violation("only what is not settled is doubted", f"message {id_}")
    for message in state.messages.values():
        lost = not state.alive[message.worker]
        lost = lost or (message.to != ROOT and not state.alive[message.to])
        lost = lost or any(state.segments[i].gone for i in message.segments)
        if message.pending and lost:
            raise Violation("what is lost is not waited for", f"message {message.id}")


def _held(state: State, message: int) -> Iterator[int]:
    """Go through the parts of a message heard, copies counted."""
    for segment, done in state.messages[message].cuts:
        yield from state.segments[segment].segment.parts[:done]
    for other, _ in state.messages[message].gathered:
        yield from _held(state, other)
