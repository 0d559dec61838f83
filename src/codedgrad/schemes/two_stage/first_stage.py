"""The first stage of a step: who starts with which list, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codedgrad.core.orders import Orders
from codedgrad.core.plan import Rule
from codedgrad.core.state import SegmentState, State
from codedgrad.schemes.stop_rules import Threshold, Within
from codedgrad.schemes.two_stage.block_codes import Repeated
from codedgrad.schemes.two_stage.matching import even, shared_out
from codedgrad.schemes.two_stage.still_to_hear import Needs


@dataclass(frozen=True, slots=True)
class Staging:
    """What is the same in every step.

    Attributes:
        holders: For every part, who may be asked for it, its own worker first.
        everywhere: Whether everybody may be asked for everything.
        reuse: Whether those who have finished help.
        code: `fractional` or `cyclic`, of stage 2.
        rest: How late workers deliver what they still do: `parts` or `whole`.
        checkpoints: How often what is left is coded as planned.
        helpers: The most that help; None: all that are free.
        rule: What ends a step.
    """

    holders: tuple[tuple[int, ...], ...]
    everywhere: bool
    reuse: bool
    code: str
    rest: str
    checkpoints: int
    helpers: int | None
    rule: Rule

    @property
    def counts(self) -> bool:
        """Whether a cyclic code waits for a number of answers."""
        inner = self.rule.rule if isinstance(self.rule, Within) else self.rule
        return isinstance(inner, Threshold)


@dataclass(frozen=True, slots=True)
class Opening:
    """How one step is to begin.

    Attributes:
        starters: Who is started.
        window: Seconds until the checkpoint; None: by how long half of them take.
        tolerance: Late helpers survived in stage 2.
        pace: Seconds that a part takes at most, usually; None if that is not known.
        probed: Who is given one part to see how fast it is.
    """

    starters: tuple[int, ...]
    window: float | None
    tolerance: int
    pace: float | None = None
    probed: tuple[int, ...] = ()


class _List:
    """What a worker was given."""

    __slots__ = ("block", "message", "parts", "segments")

    def __init__(
        self, parts: tuple[int, ...], segments: list[int], message: int
    ) -> None:
        self.parts = parts
        self.segments = segments
        self.message = message
        self.block = Repeated(parts, (message,))

    def known(self, state: State) -> list[SegmentState]:
        return [state.segments[id_] for id_ in self.segments]


class Lists:
    """The lists of a step, each with one message for all of it.

    Args:
        staging: What is the same in every step.
        opening: How this one is to begin.
        needs: Where lists are blocks, until they are late.

    Attributes:
        running: Workers whose lists may still come in.
        whole: How many lists came in whole.
        pace: The longest seconds a part that a list which came in took.
        is_mixed: Whether late workers send several parts in one message.
    """

    def __init__(self, staging: Staging, opening: Opening, needs: Needs) -> None:
        self.running: set[int] = set()
        self.whole = 0
        self.pace = 0.0
        self.is_mixed = False
        self._staging = staging
        self._opening = opening
        self._needs = needs
        self._lists: dict[int, _List] = {}  # by worker
        self._owner: dict[int, int] = {}  # message -> worker
        self._shared = 0  # parts that are in some list

    # -- the start -------------------------------------------------------------------

    def begin(self, state: State, orders: Orders) -> None:
        """Give out the lists, and single parts to those who are probed."""
        given = self._shares(state)
        for worker, parts in sorted(given.items()):
            self._give(orders, worker, tuple(parts), state)
        shared = {part for parts in given.values() for part in parts}
        self._shared = len(shared)
        orphans = [part for part in range(state.parts) if part not in shared]
        if orphans:
            self._needs.want(Repeated(orphans))
        for worker in self._opening.probed:
            if state.alive[worker] and worker not in given:
                orders.assign(worker, (min(state.placement[worker]),), whole=True)

    def _shares(self, state: State) -> dict[int, list[int]]:
        """Return the lists; a part that nobody who starts holds goes to any holder."""
        alive = sorted(w for w in self._opening.starters if state.alive[w])
        if self._staging.everywhere:
            lists = even(range(state.parts), len(alive)) if alive else []
            pairs = zip(alive, lists, strict=True)
            return {worker: list(parts) for worker, parts in pairs if parts}
        starters, able = set(alive), dict[int, list[int]]()
        for part, holders in enumerate(self._staging.holders):
            there = [worker for worker in holders if state.alive[worker]]
            able[part] = [worker for worker in there if worker in starters] or there
        return shared_out(able)

    def _give(
        self, orders: Orders, worker: int, parts: tuple[int, ...], state: State
    ) -> None:
        """Give a worker its list, in as many segments as it has room for but one."""
        room = max(1, state.capabilities.rows_per_worker - 1)
        pieces = even(parts, min(room, len(parts)))
        message: int | None
        if len(pieces) == 1:
            alone = len(parts) == 1
            id_, message = orders.assign(worker, parts, upload=True, whole=alone)
            segments = [id_]
        else:
            segments = [
                orders.assign(worker, piece, whole=len(piece) == 1)[0]
                for piece in pieces
            ]
            message = orders.upload(worker, segments)
        assert message is not None  # asked for
        given = self._lists[worker] = _List(parts, segments, message)
        self._owner[message] = worker
        self.running.add(worker)
        self._needs.want(given.block, (message,))

    # -- what comes of them ----------------------------------------------------------

    def hear(self, state: State, message: int, is_first: bool) -> bool:
        """Note a message, in the first stage or later; return whether it is a list's.

        One that was cut counts from the checkpoint on, when it is known to be.
        """
        worker = self._owner.get(message)
        if worker is None:
            return False
        self.running.discard(worker)
        size = len(self._lists[worker].parts)
        is_whole = len(state.row(message)) == size
        self.whole += is_whole
        if is_whole and is_first:
            self.pace = max(self.pace, (state.now - state.started) / size)
        if is_whole or not is_first:
            self._needs.hear(message)
        return True

    def lose(self, worker: int) -> None:
        """Note that a worker is gone."""
        self.running.discard(worker)

    def fail(self, message: int) -> None:
        """Note that a message will not come."""
        self.running.discard(self._owner.get(message, -1))

    def weights(self, state: State) -> dict[int, float] | None:
        """Return weights that add up all lists, if all came in and are all parts."""
        if self.whole < len(self._lists) or self._shared < state.parts:
            return None
        return {given.message: 1.0 for given in self._lists.values()}

    def is_done(self, state: State, worker: int) -> bool | None:
        """Whether a worker has done its list; None if it has none any more."""
        given = self._lists.get(worker)
        if given is None or state.messages[given.message].gone:
            return None
        done = sum(known.done for known in given.known(state) if known.closed)
        return done == len(given.parts)

    # -- the checkpoint --------------------------------------------------------------

    def cuts(self, state: State) -> list[SegmentState]:
        """Return the segments of several parts that may hold some that are done."""
        told = state.capabilities.progress
        return [
            known
            for worker in sorted(self.running)
            for known in self._lists[worker].known(state)
            if not known.closed and not known.whole and (known.done > 0 or not told)
        ]

    def take_stock(self, state: State, orders: Orders) -> list[int]:
        """Ask late workers for what they have; return the parts nobody has closed."""
        left: list[int] = []
        for worker, given in self._lists.items():
            message, known = state.messages[given.message], given.known(state)
            if message.gone:
                continue  # nothing under way can solve it
            done = [part for k in known if k.closed for part in k.merged]
            if len(done) == len(given.parts):
                continue  # heard, or on its way
            messages = [given.message]
            if not all(k.closed for k in known):
                messages = self._ask_late(orders, worker, given, known)
            self._needs.withdraw(given.block)
            if done:
                self._needs.want(Repeated(done, messages), messages)
            if message.arrived is not None:
                self._needs.hear(given.message)
            left += [part for part in given.parts if part not in set(done)]
        for block in self._needs.hopeless(state):
            left += self._needs.withdraw(block)
        return sorted(left)

    def _ask_late(
        self, orders: Orders, worker: int, given: _List, known: Sequence[SegmentState]
    ) -> list[int]:
        """Ask a late worker for what is closed, and for the rest as it comes."""
        closed = [k.segment.id for k in known if k.closed and k.done > 0]
        messages = [orders.upload(worker, closed)] if closed else []
        for segment in (k.segment for k in known if not k.closed):
            message, apart = given.message, self._staging.rest == "parts"
            if apart and len(known) > 1:
                message = orders.upload(worker, (segment.id,))
            if apart and len(segment.parts) == 1:
                self._needs.expect_alone(segment.parts[0], message)
                self._owner.pop(message, None)
            else:
                self.is_mixed |= apart
        return messages
