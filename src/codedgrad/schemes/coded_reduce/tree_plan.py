"""A step on a tree: every parent decodes what its children send, and sends it on.

The coordinator hears of every message, whoever it went to, and the judgement at a
parent rests on nothing but what has come to that parent. So a decision is the same
wherever it is taken, and the trace of the root holds all of them.

1. Leaves are given their parts, with the worker above them to send the sum to. Inner
   workers are given theirs without a message.
2. When a parent has heard enough children, it is asked for one message: its own sum and
   what it has heard, with the weights that decode it. The root ends the step instead.
3. A lost inner worker makes all below it late: their messages went to it. When it is
   back they are asked to send what they have once more.
4. A message that failed is asked for once more; then its worker is late.
5. Nobody is given parts whose sum would not be heard: where the parent has enough, has
   been heard itself, or takes no part, or where the worker has no room for a sum. But
   an inner worker that has heard enough sends its sum, even if its parent has enough by
   then.
6. The step is given up when no message is to come and nobody is away who could bring
   one, and otherwise at its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from codedgrad.codes import Code, Decoding, decode
from codedgrad.codes.tree import Allocation, Tree
from codedgrad.core import (
    ROOT,
    Ask,
    Decision,
    Event,
    Fail,
    Finish,
    MessageArrived,
    MessageFailed,
    Orders,
    State,
    TimerFired,
    Wait,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.plan import Rule, Tally

_MOST_KNOWN = 4096  # sets of children whose weights are kept


@dataclass(frozen=True, eq=False)
class TreeLayout:
    """What is the same in every step of a tree.

    Attributes:
        tree: Who is above whom; places are numbered as its workers.
        code: The one at every parent, a message for each child.
        rule: When a parent has heard enough.
        allocation: The parts and weights of every place.
    """

    tree: Tree
    code: Code
    rule: Rule
    allocation: Allocation
    own: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...] = field(init=False)
    _known: dict[frozenset[int], Decoding] = field(
        init=False, default_factory=dict, repr=False
    )

    def __post_init__(self) -> None:
        plain = tuple(
            (parts, tuple(float(weight) for weight in weights))
            for parts, weights in self.allocation.own
        )
        object.__setattr__(self, "own", plain)

    def decode(self, heard: Iterable[int]) -> Decoding:
        """Return the weights of the children heard: all parents meet the same sets."""
        children = frozenset(heard)
        found = self._known.get(children)
        if found is None:
            found = decode(self.code, sorted(children))
            if len(self._known) < _MOST_KNOWN:
                self._known[children] = found
        return found


class _Parent:
    """What a parent has heard, and what came of it."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.heard: dict[int, int] = {}  # child, 0 to n - 1 -> message
        self.gathered: tuple[tuple[int, float], ...] | None = None


class TreePlan:
    """One step of a tree.

    Args:
        layout: Of the tree.
        seat: The worker at each place.
    """

    def __init__(self, layout: TreeLayout, seat: tuple[int, ...]) -> None:
        self._layout = layout
        self._tree = layout.tree
        self._seat = seat
        self._place = {worker: place for place, worker in enumerate(seat)}
        self._parents: dict[int, _Parent] = {}
        self._segment: dict[int, int] = {}  # place -> the sum that it has or makes
        self._message: dict[int, int] = {}  # place -> the message that is to come
        self._retried: set[int] = set()
        self._end = 0.0

    def first(self, state: State) -> Ask:
        """Give everybody their parts, those above before those below."""
        self._end = state.started + state.deadline.seconds
        orders = Orders(state)
        for child in self._tree.below(ROOT):
            self._begin(child, state, orders)
        return orders.ask(self._end)

    def judge(self, state: State, event: Event) -> Decision:
        """Let parents decode, replace what was lost, mind the time."""
        orders = Orders(state)
        match event:
            case MessageArrived(_, worker, message):
                finish = self._hear(self._place[worker], message, state, orders)
                if finish is not None:
                    return finish
            case MessageFailed(_, worker, message):
                self._fail(self._place[worker], message, state, orders)
            case WorkersLost(workers):
                for worker in workers:
                    self._forget(self._place[worker])
            case WorkersJoined(workers):
                for worker in workers:
                    self._begin(self._place[worker], state, orders)
            case TimerFired() if state.now >= self._end:
                return self._give_up(state)
        if orders:
            return orders.ask(self._end)
        if not self._can_go_on(state):
            return self._give_up(state, "no more can come")
        return Wait(self._end)

    # -- orders ----------------------------------------------------------------------

    def _above(self, place: int) -> int:
        """Return the worker that hears a place, or the root."""
        parent = self._tree.parent(place)
        return ROOT if parent == ROOT else self._seat[parent]

    def _has_receiver(self, place: int, state: State) -> bool:
        above = self._above(place)
        return above == ROOT or state.alive[above]

    def _is_heard(self, place: int) -> bool:
        return self._child(place) in self._parent(self._tree.parent(place)).heard

    def _is_wanted(self, place: int) -> bool:
        """Whether a message of this place would be of use to the one above it."""
        parent = self._tree.parent(place)
        if self._is_heard(place) or self._parent(parent).gathered is not None:
            return False
        return parent == ROOT or parent in self._segment

    def _child(self, place: int) -> int:
        return place % self._tree.children

    def _parent(self, place: int) -> _Parent:
        if place not in self._parents:
            layout = self._layout
            self._parents[place] = _Parent(layout.rule.start(layout.code))
        return self._parents[place]

    def _begin(self, place: int, state: State, orders: Orders) -> None:
        """Ask a place, and all below it, for what is missing of them."""
        above, worker = self._above(place), self._seat[place]
        if not state.alive[worker] or not self._is_wanted(place):
            return
        if place not in self._segment:
            if state.no_room(worker):
                return  # an opinion was faster
            self._assign(place, above, orders)
        elif place not in self._message:
            self._send(place, above, orders)
        for child in self._tree.below(place):
            self._begin(child, state, orders)

    def _assign(self, place: int, above: int, orders: Orders) -> None:
        parts, weights = self._layout.own[place]
        leaf = self._tree.is_leaf(place)
        segment, message = orders.assign(
            self._seat[place], parts, weights, upload=leaf, whole=True, to=above
        )
        self._segment[place] = segment
        if message is not None:
            self._message[place] = message
        elif self._parent(place).gathered is not None:
            self._send(place, above, orders)

    def _send(self, place: int, above: int, orders: Orders) -> None:
        """Ask for the sum of a place, if there is one."""
        gathered: tuple[tuple[int, float], ...] | None = ()
        if not self._tree.is_leaf(place):
            gathered = self._parent(place).gathered
        if gathered is not None:
            self._message[place] = orders.upload(
                self._seat[place], [self._segment[place]], gathered, above
            )

    # -- events ----------------------------------------------------------------------

    def _hear(
        self, place: int, message: int, state: State, orders: Orders
    ) -> Finish | None:
        assert self._message[place] == message  # others are not pending
        del self._message[place]
        above = self._tree.parent(place)
        parent = self._parent(above)
        parent.heard[self._child(place)] = message
        enough = parent.tally.hear(self._child(place))
        if not enough or parent.gathered is not None:
            return None
        decoding = self._layout.decode(parent.heard)
        weights = tuple(sorted((parent.heard[c], a) for c, a in decoding.weights))
        if above == ROOT:
            return Finish(weights, decoding.residual)
        parent.gathered = weights
        if self._has_receiver(above, state):
            self._send(above, self._above(above), orders)
        return None

    def _fail(self, place: int, message: int, state: State, orders: Orders) -> None:
        assert self._message[place] == message  # others are not pending
        del self._message[place], self._segment[place]
        if place in self._retried or state.no_room(self._seat[place]):
            return
        if self._is_wanted(place):
            self._retried.add(place)
            self._assign(place, self._above(place), orders)

    def _forget(self, place: int) -> None:
        """Note that a worker is lost, and what had come to it."""
        self._segment.pop(place, None)
        self._message.pop(place, None)
        self._parents.pop(place, None)
        for child in self._tree.below(place):
            self._message.pop(child, None)

    # -- the end ---------------------------------------------------------------------

    def _can_go_on(self, state: State) -> bool:
        """Whether a message is to come, or could if somebody came back."""
        if self._message:
            return True
        return not all(state.alive[self._seat[place]] for place in self._missing())

    def _missing(self) -> Iterator[int]:
        """Go through the places whose messages the root's sum still needs."""
        waiting = list(self._tree.below(ROOT))
        while waiting:
            place = waiting.pop()
            if not self._is_heard(place):
                yield place
                if self._parent(place).gathered is None:
                    waiting += self._tree.below(place)

    def _give_up(self, state: State, why: str = "") -> Fail:
        if not why:
            why = f"not decodable after {state.deadline}"
        missing = sorted(self._seat[place] for place in self._missing())
        said = [why]
        for word, there in (("lost", False), ("late", True)):
            who = [worker for worker in missing if state.alive[worker] == there]
            if who:
                said.append(f"{word} workers {who}")
        root = self._tree.children - len(self._parent(ROOT).heard)
        if 0 < root < self._tree.children:
            said.append(f"a tolerance of {root} would have survived at the root")
        return Fail("; ".join(said))


def matrix_of(code: Code) -> list[list[float]]:
    """Return the matrix of a code as rows of numbers."""
    rows: list[list[float]] = np.asarray(code.B.toarray()).tolist()
    return rows
