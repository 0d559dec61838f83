"""Second opinions: is the model to blame for what is not finite, or the worker?

Infinities and NaNs come from a model that has diverged, whoever computes, or from one
worker with bad memory. So a message that is not finite is doubted, and others are asked
before anybody believes it:

1. A sum of no parts is zero. Not finite, it is contradicted.
2. If two workers have sent what is not finite, and the parts of one message are all in
   the other's, they agree: the model has diverged. All that is or will be doubted in
   the step is handed over. Who was contradicted in the step has no say in this.
3. If every part of it is in a finite message that was heard, it is contradicted.
4. If a message under way, of another worker, will hold all its parts, that is awaited.
5. Otherwise somebody else who may have all its parts is asked for the same sum, each
   once: the one with the least in hand, and better one who sent only what is finite.
6. If there is nobody, the messages of others under way may contradict it together. They
   are awaited, unless somebody else's message is doubted that shares a part with it:
   then, or if they do not hold all its parts, several are asked for a piece each.
7. If nobody else can be asked, the sender is, to do it again. It may contradict itself;
   agreeing with itself it settles nothing but its own message.
8. If there is nobody left to ask, it is handed over: nobody contradicts it.
9. What gathers a message that was handed over is handed over, too. It is not finite
   whoever sends it, and no opinion about anything.

To be handed over is to be heard; to be contradicted is to fail, and marks the worker.
A doubt that nobody answers ends with its step. A sum that overflows although its parts
do not may be taken for contradicted, by rule 3.

Plans know nothing of opinions. They are numbered like other segments and messages, take
room at their workers and are in the history, but in a state of their own, `aside`: a
ledger that counted them would tell the plan that parts are covered which it has not
heard. Verdicts are not in a trace. They follow from the events and from the message
that each question is `about`, so a reader of the trace comes to the same ones; except
where one answer of a plan drops workers both before and after a verdict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Set
from typing import TypeAlias, TypeGuard

from codedgrad.core.commands import Assign, Order, Segment
from codedgrad.core.events import Event, MessageArrived, MessageFailed, Progressed
from codedgrad.core.state import MessageState, State

Verdict: TypeAlias = MessageArrived | MessageFailed
"""A doubt that is settled, as the event that a plan is shown."""


def is_question(order: Order) -> TypeGuard[Assign]:
    """Whether an order asks for a second opinion."""
    return isinstance(order, Assign) and order.about is not None


class Opinions:
    """What is doubted in an open step, and who was asked about it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._aside = state.aside = State(
            state.step, state.started, state.placement, state.parts, state.alive,
            state.deadline, state.capabilities,
        )  # fmt: skip
        self._numbers: set[int] = set()  # of segments and messages asked for here
        self._parts: dict[int, frozenset[int]] = {}  # of all that was ever doubted
        self._asked: dict[int, list[Assign]] = {}  # doubted message -> questions
        self._telling: dict[int, MessageState] = {}  # doubted message -> what will
        self._agreed = False
        self._fine: set[int] = set()  # parts known to be finite
        self._counted = [0, 0]  # messages heard that are in there, here and aside

    def concern(self, event: Event) -> bool:
        """Whether an event is about an opinion, and not for the plan."""
        match event:
            case Progressed(segment=id_) | MessageFailed(message=id_):
                return id_ in self._numbers
            case MessageArrived(message=id_):
                return id_ in self._numbers
        return False

    def accept(self, event: Progressed | MessageArrived | MessageFailed) -> str:
        """Note a report that concerns an opinion, as `State.accept` does."""
        self._aside.now = self._state.now
        refused = self._aside.accept(event)
        if not refused:
            self._state.spoke[event.worker] = self._state.now
        return refused

    def review(
        self, recorded: deque[Order] | None = None
    ) -> tuple[list[Assign], list[Verdict]]:
        """Settle what can be settled and ask about the rest.

        Args:
            recorded: When a step is rebuilt: the orders that were given next. The
                questions among the first of them are taken away.
        """
        verdicts, questions = self._settle(), list[Assign]()
        for id_ in list(self._state.doubted):
            message = self._state.messages[id_]
            if self._is_awaited(message):
                continue
            if recorded is None:
                asked = self._questions(message)
            else:
                asked = self._recalled(id_, recorded)
            for question in asked:
                self._numbers |= {question.segment.id, question.segment.id + 1}
                self._asked.setdefault(id_, []).append(question)
            questions += asked
            if not asked and not self._may_yet_be_told(message):
                verdicts.append(self._hand_over(message))
        return questions, verdicts

    def _settle(self) -> list[Verdict]:
        """Settle what is known by now to be agreed upon or contradicted."""
        state, aside, verdicts = self._state, self._aside, list[Verdict]()
        for id_ in list(state.doubted):
            if self._passes_on(state.messages[id_]):
                verdicts.append(self._hand_over(state.messages[id_]))
        if not state.doubted:
            return verdicts
        self._count()
        for id_ in (*state.doubted, *aside.doubted):
            self._learn(self._message(id_))
        for id_ in list(aside.doubted):
            if self._is_refuted(id_):
                aside.contradict(id_)
                state.contradicted.append(aside.messages[id_].worker)
        for id_ in list(state.doubted):
            if id_ in state.doubted and self._is_refuted(id_):
                verdicts.append(self._contradict(state.messages[id_]))
        if self._agreed:
            verdicts += [self._hand_over(state.messages[i]) for i in [*state.doubted]]
        return verdicts

    # -- what is known ---------------------------------------------------------------

    def _message(self, id_: int) -> MessageState:
        return self._state.messages.get(id_) or self._aside.messages[id_]

    def _row(self, id_: int) -> dict[int, float]:
        return (self._aside if id_ in self._numbers else self._state).row(id_)

    def _passes_on(self, message: MessageState) -> bool:
        """Whether it is not finite because of what was gathered for it."""
        return not all(self._message(id_).finite for id_, _ in message.gathered)

    def _count(self) -> None:
        """Note the parts of finite messages heard since the last time."""
        for where, state in enumerate((self._state, self._aside)):
            for id_ in state.heard[self._counted[where] :]:
                if state.messages[id_].finite:
                    self._fine.update(state.row(id_))
            self._counted[where] = len(state.heard)

    def _learn(self, message: MessageState) -> None:
        """Note what a message that is not finite says about others of its kind."""
        if message.id in self._parts:
            return
        parts = self._parts[message.id] = frozenset(self._row(message.id))
        bad = parts <= self._fine or message.worker in self._state.contradicted
        if not bad and any(
            parts <= theirs or theirs <= parts
            for theirs in self._doubted_by_others(message)
        ):
            self._agreed = True

    def _is_refuted(self, id_: int) -> bool:
        parts = self._parts[id_]
        return not parts or (parts <= self._fine and not self._agreed)

    def _doubted_by_others(self, message: MessageState) -> Iterator[frozenset[int]]:
        """Go through what others sent that is not finite, and was not contradicted."""
        for id_, parts in self._parts.items():
            other = self._message(id_)
            if other.worker == message.worker or parts <= self._fine:
                continue
            if not other.gone and other.worker not in self._state.contradicted:
                yield parts

    # -- whom to wait for ------------------------------------------------------------

    def _under_way(self) -> Iterator[MessageState]:
        for message in (*self._state.messages.values(), *self._aside.messages.values()):
            if message.pending and message.finite:
                yield message

    def _is_awaited(self, message: MessageState) -> bool:
        """Whether what was asked for, or what another sends anyway, is under way."""
        for question in self._asked.get(message.id, ()):
            answer = self._aside.messages.get(question.segment.id + 1)
            if answer is None or (answer.pending and answer.finite):
                return True
        before = self._telling.get(message.id)
        if before is not None and self._tells(before, message):
            return True
        return self._is_told(message, own=False)

    def _is_told(self, message: MessageState, own: bool) -> bool:
        for other in self._under_way():
            is_own = other.worker == message.worker
            if is_own == own and self._tells(other, message):
                self._telling[message.id] = other
                return True
        return False

    def _tells(self, other: MessageState, message: MessageState) -> bool:
        again = not set(other.segments).isdisjoint(message.segments)
        if again or not other.pending or not other.finite:
            return False
        return self._parts[message.id] <= self._to_come(other)

    def _to_come(self, message: MessageState) -> set[int]:
        aside = message.id in self._numbers
        return (self._aside if aside else self._state).to_come(message)

    def _may_yet_be_told(self, message: MessageState) -> bool:
        """Whether others together, or the sender, may contradict it without asking."""
        return self._together(message) or self._is_told(message, own=True)

    def _together(self, message: MessageState) -> bool:
        parts, together = self._parts[message.id], set(self._fine)
        if any(not parts.isdisjoint(p) for p in self._doubted_by_others(message)):
            return False
        for other in self._under_way():
            if other.worker != message.worker:
                together |= self._to_come(other)
        return parts <= together

    # -- whom to ask -----------------------------------------------------------------

    def _questions(self, message: MessageState) -> list[Assign]:
        state, parts, sender = self._state, self._parts[message.id], message.worker
        asked = self._who_was_asked(message)
        able = [
            worker
            for worker, placed in enumerate(state.placement)
            if worker not in asked and state.alive[worker]
            if not parts.isdisjoint(placed) and not state.no_room(worker)
        ]
        others = [worker for worker in able if worker != sender]
        whole = [worker for worker in others if parts <= state.placement[worker]]
        if whole:
            return [self._question(message, self._best(whole), parts)]
        if self._together(message):
            return []
        if pieces := self._pieces(message, others):
            return [self._question(message, *piece) for piece in pieces]
        if sender in able and not self._is_told(message, own=True):
            own = parts & state.placement[sender]  # not what it has gathered
            return [self._question(message, sender, own)]
        return []

    def _who_was_asked(self, message: MessageState) -> set[int]:
        return {question.segment.worker for question in self._asked.get(message.id, ())}

    def _best(self, workers: Iterable[int], left: Set[int] = frozenset()) -> int:
        state, placed = self._state, self._state.placement
        suspects = {self._message(id_).worker for id_ in self._parts}
        return min(
            workers,
            key=lambda w: (w in suspects, -len(left & placed[w]), state.in_hand(w), w),
        )

    def _pieces(
        self, message: MessageState, workers: Iterable[int]
    ) -> list[tuple[int, frozenset[int]]]:
        """Share out the parts that are not known to be finite; nothing if some stay."""
        left, pieces = self._parts[message.id] - self._fine, []
        free = set(workers)
        while left and free:
            worker = self._best(free, left)
            if piece := left & self._state.placement[worker]:
                pieces.append((worker, piece))
            left -= piece
            free.remove(worker)
        return [] if left else pieces

    def _question(self, message: MessageState, worker: int, parts: Set[int]) -> Assign:
        id_, row = self._state.next_id, self._row(message.id)
        order = tuple(part for part in row if part in parts)
        segment = Segment(id_, worker, order, tuple(row[part] for part in order))
        question = Assign(
            self._state.step, segment, id_ + 1, whole=True, about=message.id
        )
        self._ask(question)
        return question

    def _recalled(self, id_: int, recorded: deque[Order]) -> list[Assign]:
        """Ask once more what was asked about a message."""
        asked = list[Assign]()
        while recorded and is_question(recorded[0]) and recorded[0].about == id_:
            asked.append(recorded[0])
            self._ask(recorded[0])
            recorded.popleft()
        return asked

    def _ask(self, question: Assign) -> None:
        """Note a question that is about to be asked."""
        self._aside.now, self._aside.next_id = self._state.now, self._state.next_id
        self._aside.obey(question)
        self._state.next_id = self._aside.next_id

    # -- what comes of it ------------------------------------------------------------

    def _hand_over(self, message: MessageState) -> Verdict:
        state = self._state
        state.hand_over(message.id)
        return MessageArrived(
            state.step, message.worker, message.id, message.cuts, state.now, False
        )

    def _contradict(self, message: MessageState) -> Verdict:
        state, reason = self._state, f"not finite, {self._by_whom(message)}"
        state.contradict(message.id)
        return MessageFailed(state.step, message.worker, message.id, reason, state.now)

    def _by_whom(self, message: MessageState) -> str:
        left, who = set(self._parts[message.id]), set[int]()
        if not left:
            return "though it holds no part"
        for id_ in (*reversed(self._aside.heard), *reversed(self._state.heard)):
            other = self._message(id_)
            if other.finite and not left.isdisjoint(row := self._row(id_)):
                left.difference_update(row)
                who.add(other.worker)
        if who == {message.worker}:
            return "which it contradicts itself"
        if len(who) == 1:
            return f"which worker {who.pop()} contradicts"
        return f"which workers {sorted(who)} contradict"
