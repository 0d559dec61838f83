"""What is known of an open step. Plans read it; only the coordinator writes it.

Two doors lead in: `obey` takes a plan's orders, and raises `BrokenPlan` if one cannot
be meant; `accept` takes what workers report, and turns away whatever is repeated,
unknown or contradicts what was final. A message that is not finite is noted as doubted,
and neither heard nor failed until `second_opinion` has settled what it is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from codedgrad.core.commands import ROOT, Assign, Cut, Drop, Order, Segment, Upload
from codedgrad.core.events import MessageArrived, MessageFailed, Progressed, WorkerFreed
from codedgrad.core.ledger import Ledger
from codedgrad.core.patience import Deadline
from codedgrad.core.plan import Capabilities
from codedgrad.errors import BrokenPlan


@dataclass(slots=True, eq=False)
class SegmentState:
    """A segment as far as the coordinator knows.

    Attributes:
        segment: What was ordered.
        assigned: When, seconds.
        done: Parts known to be merged; final once closed.
        closed: No part will be added.
        gone: Its sum no longer exists: lost, dropped, or found to be bad.
        marks: (done, at) of every report, in order.
        ended: `open`, `answered` (all parts), `cut`, `dropped`, `lost` or `failed`.
        ended_at: When that was decided; observations are censored there.
        keep: The border that a cut proposed.
        whole: It is never cut.
    """

    segment: Segment
    assigned: float
    whole: bool = False
    done: int = 0
    closed: bool = False
    gone: bool = False
    marks: list[tuple[int, float]] = field(default_factory=list)
    ended: str = "open"
    ended_at: float = math.inf
    keep: int = field(init=False)

    def __post_init__(self) -> None:
        self.keep = len(self.segment.parts)

    @property
    def merged(self) -> tuple[int, ...]:
        """The parts known to be in the sum."""
        return self.segment.parts[: self.done]


@dataclass(slots=True, eq=False)
class MessageState:
    """A message as far as the coordinator knows.

    Attributes:
        id: Its number.
        worker: Who is to send it.
        segments: Whose sums it adds up.
        asked: When it was ordered, seconds.
        arrived: When it was heard; None if it was not.
        gone: It will never be, or is no more: its worker was lost or dropped, or whom
            it went to, or it failed.
        cuts: (segment, parts merged) of what was heard, or is doubted.
        finite: False if it came with values that are not finite.
        gathered: (message, weight) of others' messages that are added to it.
        to: Who hears it: a worker, or the root.
    """

    id: int
    worker: int
    segments: tuple[int, ...]
    asked: float
    gathered: tuple[tuple[int, float], ...] = ()
    to: int = ROOT
    arrived: float | None = None
    gone: bool = False
    cuts: tuple[tuple[int, int], ...] = ()
    finite: bool = True

    @property
    def pending(self) -> bool:
        """Whether it may still be heard: it is to come, or it is doubted."""
        return self.arrived is None and not self.gone


class State:
    """An open step.

    Attributes:
        step: Its number.
        started: When, seconds.
        now: Of the latest event, seconds.
        alive: For every worker, whether it is there. Shared with the coordinator.
        spoke: When each worker was last heard of in this step; -inf if never. A doubted
            message counts from its verdict on, which is when the plan sees it.
        segments: All of this step, by id.
        messages: All of this step, by id.
        heard: Ids of the messages heard, in the order in which they were.
        doubted: Ids of the messages that came and are not finite, in order of arrival,
            while it is not settled whether they are heard or have failed.
        contradicted: The worker of every message that was not finite and should be.
        diverged: Whether a message that is not finite was heard: nobody contradicts.
        aside: What `second_opinion` ordered and not the plan, if it ordered anything.
        freed: (when, seconds of the part) of each worker that was done with a part it
            was no longer asked for, in order; also after the end of the step.
        unused: Parts that each worker reported after the end of the step.
        held: Ids of the segments of each worker, in the order they were given.
        ledger: Where every part stands.
        next_id: The number of the next segment or message.
        deadline: How long a plan may wait at most, and why; and the time scale on which
            it looks again where it knows nothing better.
        capabilities: What the engine can do.
    """

    def __init__(
        self,
        step: int,
        at: float,
        placement: tuple[frozenset[int], ...],
        parts: int,
        alive: list[bool],
        deadline: Deadline,
        capabilities: Capabilities,
    ) -> None:
        self.step = step
        self.started = at
        self.now = at
        self.alive = alive
        self.parts = parts
        self.placement = placement
        self.deadline = deadline
        self.capabilities = capabilities
        self.segments: dict[int, SegmentState] = {}
        self.messages: dict[int, MessageState] = {}
        self.heard: list[int] = []
        self.doubted: list[int] = []
        self.contradicted: list[int] = []
        self.diverged = False
        self.aside: State | None = None
        self.held: list[list[int]] = [[] for _ in alive]
        self.freed: dict[int, list[tuple[float, float]]] = {}
        self.unused: Counter[int] = Counter()
        self.spoke = [-math.inf] * len(alive)
        self.ledger = Ledger(parts)
        self.next_id = 0
        self._asked: dict[int, list[int]] = {}  # worker -> its message ids
        self._addressed: dict[int, list[int]] = {}  # worker -> messages sent to it
        self._reborn: set[int] = set()  # workers lost in this step

    @property
    def missing(self) -> int:
        """How many parts nobody has finished."""
        return self.ledger.missing

    def row(self, message: int) -> dict[int, float]:
        """Return the coefficients, by part, of a message that has come."""
        row: dict[int, float] = {}
        for id_, done in self.messages[message].cuts:
            segment = self.segments[id_].segment
            for part, coefficient in zip(
                segment.parts[:done], segment.coefficients, strict=False
            ):
                row[part] = row.get(part, 0.0) + coefficient
        for other, weight in self.messages[message].gathered:
            for part, coefficient in self.row(other).items():
                row[part] = row.get(part, 0.0) + weight * coefficient
        return row

    def note_freed(self, event: WorkerFreed) -> str:
        """Note when a worker was free; return why not, in a word."""
        if not 0 <= event.worker < len(self.held):
            return "unknown"
        if not 0.0 <= event.seconds < math.inf:
            return "inconsistent"
        self.freed.setdefault(event.worker, []).append((event.at, event.seconds))
        return ""

    def to_come(self, message: MessageState) -> set[int]:
        """Return the parts that a message under way will hold at least."""
        found: set[int] = set()
        for id_ in message.segments:
            known = self.segments[id_]
            size = known.done if known.closed else max(known.keep, known.done)
            found.update(known.segment.parts[:size])
        for other, _ in message.gathered:
            found.update(self.row(other))
        return found

    def in_hand(self, worker: int) -> int:
        """Return how many parts a worker has still to compute."""
        return sum(
            max(known.keep - known.done, 0)
            for known in self.given(worker)
            if not known.gone and not known.closed
        )

    def given(self, worker: int) -> list[SegmentState]:
        """Return all segments of a worker, in the order they were given."""
        held = [self.segments[id_] for id_ in self.held[worker]]
        if self.aside is not None and self.aside.held[worker]:
            held += self.aside.given(worker)
            held.sort(key=lambda known: known.segment.id)
        return held

    def owed(self, worker: int) -> list[MessageState]:
        """Return the messages that a worker has still to send, opinions among them.

        A message that came and is doubted counts until it is settled.
        """
        owed = [self.messages[id_] for id_ in self._asked.get(worker, ())]
        owed = [message for message in owed if message.pending]
        return owed if self.aside is None else owed + self.aside.owed(worker)

    def no_room(self, worker: int) -> str:
        """Return why a worker cannot take another segment now; empty if it can.

        A plan that counts its own should ask here: an opinion takes room, too.
        """
        engine = self.capabilities
        kept = [known for known in self.given(worker) if not known.gone]
        if len(kept) >= engine.rows_per_worker:
            return f"is one more than {engine.rows_per_worker} sums"
        return ""

    # -- a plan's orders -------------------------------------------------------------

    def obey(self, order: Order) -> None:
        """Note an order that is about to be given."""
        match order:
            case Assign(step, segment, message, whole, to):
                self._check(step, segment.worker, order)
                self._check_receiver(to, segment.worker, order)
                self._check_segment(segment, order)
                self._number(segment.id, order)
                if segment.worker in self._reborn:  # what came before was another's
                    self.held[segment.worker] = []
                    self._reborn.remove(segment.worker)
                if problem := self.no_room(segment.worker):
                    raise BrokenPlan(order, problem)
                self.segments[segment.id] = SegmentState(segment, self.now, whole)
                self.held[segment.worker].append(segment.id)
                self.ledger.assign(segment.parts)
                if message is not None:
                    self._number(message, order)
                    self._expect(message, segment.worker, (segment.id,), (), to)
            case Cut(step, worker, id_, keep):
                self._check(step, worker, order)
                known = self._own(id_, worker, order)
                if keep < 0:
                    raise BrokenPlan(order, "keeps less than nothing")
                if known.whole:
                    raise BrokenPlan(order, "cuts what was given as a whole")
                if keep < len(known.segment.parts) and not known.closed:
                    known.ended, known.ended_at = "cut", self.now
                    known.keep = min(known.keep, keep)
            case Upload(step, worker, message, segments, gathered, to):
                self._check(step, worker, order)
                self._check_receiver(to, worker, order)
                if not segments or len(set(segments)) < len(segments):
                    raise BrokenPlan(order, "names no segment, or one twice")
                for id_ in segments:
                    self._own(id_, worker, order)
                self._check_gathered(gathered, worker, order)
                self._check_sums(order)
                self._number(message, order)
                self._expect(message, worker, segments, gathered, to)
            case Drop(step, worker):
                self._check(step, worker, order)
                self.forget(worker, "dropped")

    def _check(self, step: int, worker: int, order: Order) -> None:
        if step != self.step:
            raise BrokenPlan(order, f"is not of the open step {self.step}")
        if not 0 <= worker < len(self.alive) or not self.alive[worker]:
            raise BrokenPlan(order, "goes to a worker that is not there")

    def _check_segment(self, segment: Segment, order: Order) -> None:
        parts, coefficients = segment.parts, segment.coefficients
        if not parts or len(coefficients) != len(parts):
            raise BrokenPlan(order, "needs parts, and a coefficient for each")
        if len(set(parts)) < len(parts):
            raise BrokenPlan(order, "has a part twice")
        if not self.placement[segment.worker].issuperset(parts):
            raise BrokenPlan(order, "has a part that is not placed with its worker")
        if not all(map(math.isfinite, coefficients)):
            raise BrokenPlan(order, "has a coefficient that is not finite")

    def _own(self, id_: int, worker: int, order: Order) -> SegmentState:
        known = self.segments.get(id_)
        if known is None or known.segment.worker != worker or known.gone:
            raise BrokenPlan(order, f"names segment {id_}, which that worker has not")
        return known

    def _number(self, id_: int, order: Order) -> None:
        # The plan numbers its own orders, because an Upload names segments of the same
        # answer. A number out of turn means that the plan kept an `Orders` from an
        # earlier event: two segments would share an id, and their sums be mixed up.
        if id_ != self.next_id:
            raise BrokenPlan(order, f"is numbered {id_}, the next is {self.next_id}")
        self.next_id += 1

    def _check_receiver(self, to: int, worker: int, order: Order) -> None:
        if to == ROOT:
            return
        if not 0 <= to < len(self.alive) or to == worker or not self.alive[to]:
            raise BrokenPlan(order, "sends to a worker that is not there")

    def _check_gathered(
        self, gathered: tuple[tuple[int, float], ...], worker: int, order: Order
    ) -> None:
        if len({id_ for id_, _ in gathered}) < len(gathered):
            raise BrokenPlan(order, "adds a message twice")
        for id_, weight in gathered:
            known = self.messages.get(id_)
            if known is None or known.arrived is None or known.gone:
                raise BrokenPlan(order, f"adds message {id_}, which is not there")
            if known.to != worker:
                raise BrokenPlan(order, f"adds message {id_}, which went elsewhere")
            if not math.isfinite(weight):
                raise BrokenPlan(order, "has a weight that is not finite")

    def _check_sums(self, order: Upload) -> None:
        """Refuse what engines that gather into the sum itself could not send.

        A worker adds the gathered messages to its own sum, in that sum's row, just
        before it sends it: no other message can be made of the row afterwards.
        """
        if order.gathered and not all(self.segments[i].whole for i in order.segments):
            raise BrokenPlan(order, "gathers into a sum that may be cut")
        own = order.segments, order.gathered
        for id_ in self._asked.get(order.worker, ()):
            other = self.messages[id_]
            apart = set(order.segments).isdisjoint(other.segments)
            if apart or own == (other.segments, other.gathered):
                continue
            if order.gathered or other.gathered:
                problem = f"shares a sum with message {id_}, which gathers otherwise"
                raise BrokenPlan(order, problem)

    def _expect(
        self,
        id_: int,
        worker: int,
        segments: tuple[int, ...],
        gathered: tuple[tuple[int, float], ...],
        to: int,
    ) -> None:
        message = MessageState(id_, worker, segments, self.now, gathered, to)
        self.messages[id_] = message
        self._asked.setdefault(worker, []).append(id_)
        if to != ROOT:
            self._addressed.setdefault(to, []).append(id_)

    # -- what workers report ---------------------------------------------------------

    def accept(self, event: Progressed | MessageArrived | MessageFailed) -> str:
        """Note a report; return why not, in a word, if it is turned away."""
        if not 0 <= event.worker < len(self.alive):
            return "unknown"
        if not self.alive[event.worker]:
            return "lost"
        match event:
            case Progressed():
                refused = self._progress(event)
            case MessageArrived():
                refused = self._arrive(event)
            case MessageFailed():
                refused = self._fail(event)
        if not refused:
            self.spoke[event.worker] = self.now
        return refused

    def _progress(self, event: Progressed) -> str:
        known = self.segments.get(event.segment)
        if known is None or known.segment.worker != event.worker:
            return "unknown"
        if known.gone or known.closed or event.done < known.done:
            return "repeated"
        if event.done == known.done and not event.closed:
            return "repeated"
        if event.done > len(known.segment.parts):
            return "inconsistent"
        self._advance(known, event.done, event.closed)
        return ""

    def _arrive(self, event: MessageArrived) -> str:
        message = self.messages.get(event.message)
        if message is None or message.worker != event.worker:
            return "unknown"
        if not message.pending or not message.finite:
            return "repeated"
        if tuple(sorted(id_ for id_, _ in event.cuts)) != tuple(
            sorted(message.segments)
        ):
            return "inconsistent"
        for id_, done in event.cuts:
            known = self.segments[id_]
            if known.gone or not known.done <= done <= len(known.segment.parts):
                return "inconsistent"
            if known.closed and done != known.done:
                return "inconsistent"
        for id_, done in event.cuts:
            known = self.segments[id_]
            if not known.closed:
                self._advance(known, done, closed=True)
        message.cuts = event.cuts
        if event.finite:
            self._hear(message)
        else:
            message.finite = False
            self.doubted.append(message.id)
        return ""

    def _fail(self, event: MessageFailed) -> str:
        message = self.messages.get(event.message)
        if message is None or message.worker != event.worker:
            return "unknown"
        if not message.pending or not message.finite:
            return "repeated"
        self._discard(message)
        return ""

    def _hear(self, message: MessageState) -> None:
        if message.to == ROOT:  # elsewhere it is lost with the worker that has it
            self._cover(message)
        message.arrived = self.now
        self.heard.append(message.id)

    def _cover(self, message: MessageState) -> None:
        """Note the parts of a message that has come to the root."""
        for id_, _ in message.cuts:
            self.ledger.cover(self.segments[id_].merged)
        for id_, _ in message.gathered:
            self._cover(self.messages[id_])

    def _discard(self, message: MessageState) -> None:
        for id_ in message.segments:
            self._lose(self.segments[id_], "failed")
        lost = set(message.segments)
        for id_ in self._asked[message.worker]:  # itself, and what holds the same
            other = self.messages[id_]
            if other.pending and not lost.isdisjoint(other.segments):
                self._give_up(other)

    def _give_up(self, message: MessageState) -> None:
        message.gone = True
        if not message.finite and message.id in self.doubted:
            self.doubted.remove(message.id)

    def _advance(self, known: SegmentState, done: int, closed: bool) -> None:
        parts = known.segment.parts
        for part in parts[known.done : done]:
            self.ledger.finish(part)
        if done > known.done:
            known.marks.append((done, self.now))
        known.done = done
        if done == len(parts):
            known.ended, known.ended_at = "answered", self.now
        if closed or done == len(parts):
            known.closed = True
            self.ledger.close(parts[:done], parts[done:])

    # -- what opinions settle --------------------------------------------------------

    def hand_over(self, id_: int) -> None:
        """Note that a doubted message is heard after all: nobody contradicts it."""
        message = self.messages[id_]
        self.doubted.remove(id_)
        self.diverged = True
        self._hear(message)
        # The plan sees the message only now. A plan that called the worker silent while
        # the message was doubted would otherwise wait for a word that never comes.
        self.spoke[message.worker] = self.now

    def contradict(self, id_: int) -> None:
        """Note that a doubted message has failed, and that its worker is to blame."""
        message = self.messages[id_]
        self.contradicted.append(message.worker)
        self._discard(message)
        self.spoke[message.worker] = self.now  # as for any other failed message

    # -- what is lost ----------------------------------------------------------------

    def forget(self, worker: int, why: str) -> None:
        """Note that whatever a worker has not sent is gone."""
        if self.aside is not None:
            self.aside.now = self.now
            self.aside.forget(worker, why)
        if why == "lost":
            self._reborn.add(worker)
        for id_ in self.held[worker]:
            self._lose(self.segments[id_], why)
        for id_ in self._asked.get(worker, ()):
            message = self.messages[id_]
            if message.pending:
                self._give_up(message)
        for id_ in self._addressed.pop(worker, ()):  # nobody has it, or will
            self._give_up(self.messages[id_])

    def finish(self) -> None:
        """Note that the step is over: whatever was still under way is dropped."""
        if self.aside is not None:
            self.aside.now = self.now
            self.aside.finish()
        for known in self.segments.values():
            if known.ended == "open":
                known.ended, known.ended_at = "dropped", self.now

    def _lose(self, known: SegmentState, why: str) -> None:
        if known.gone:
            return
        known.gone = True
        if known.ended == "open":
            known.ended, known.ended_at = why, self.now
        parts = known.segment.parts
        self.ledger.lose(parts[: known.done], parts[known.done :], known.closed)
