r"""The net under every list: what is late or lost is given to those who are idle.

Lists given later are inside lists given before, or apart from them: no new list has
parts of two lists that may still be heard. So of the messages heard, those that are in
no other one are disjoint, and as soon as every part is heard they are the full sum.

```text
    (0 1 2 3 4 5)          a list that is late
    (0 1 2)  (3 4 5)       shared out: either the one above comes in, or both of these
             (3) (4 5)     once more
```
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codedgrad.core.cover import best_cover
from codedgrad.core.orders import Orders
from codedgrad.core.state import State

__all__ = ["Net", "Pace", "Task", "shared"]

_FAILURES = 2  # messages that may fail before a worker is asked for no more
_PATIENCE = 1.5  # times what a list should take, until it is late
_GROWTH = 2.0  # of that patience, with every time that parts are given out again
_NOTICE = 0.05  # of the time so far: the least that a list is waited for


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a worker needs to begin with, and for every part."""

    fixed: float
    part: float

    def seconds(self, parts: int) -> float:
        """Return what a list of so many parts takes."""
        return self.fixed + parts * self.part


class Task:
    """A list of parts that some workers were asked for.

    Attributes:
        parts: Of the list.
        parent: The list that it is inside of, if any.
        due: When it is late, seconds of the clock.
        depth: How often its parts were given out before.
        under_way: Messages that may still be heard.
    """

    __slots__ = ("depth", "due", "parent", "parts", "under_way")

    def __init__(self, parts: Sequence[int], parent: Task | None, due: float) -> None:
        self.parts = tuple(parts)
        self.parent = parent
        self.due = due
        self.depth = 0 if parent is None else parent.depth + 1
        self.under_way = 0


class Net:
    """All lists of a step, who owes what, and what nobody could be asked for yet.

    Args:
        holders: For every part, who may be asked for it; None: everybody.
        parts: Of the step.
    """

    def __init__(self, holders: tuple[tuple[int, ...], ...] | None, parts: int) -> None:
        self._holders = holders
        self._parts = parts
        self._task: dict[int, Task] = {}  # of every message
        self._of: list[Task | None] = [None] * parts  # the smallest list given
        self._owed: dict[int, set[int]] = {}  # worker -> messages under way
        self._failed: Counter[int] = Counter()
        self._short: list[tuple[Task | None, list[int]]] = []  # wait for helpers

    @property
    def is_short(self) -> bool:
        """Whether parts wait for somebody to be idle."""
        return bool(self._short)

    # -- what is given and heard -----------------------------------------------------

    def give(
        self, orders: Orders, worker: int, task: Task, probe: bool = False
    ) -> None:
        """Ask a worker for a list; a probe is never waited for."""
        _, message = orders.assign(worker, task.parts, upload=True, whole=True)
        assert message is not None  # asked for
        self._task[message] = task
        self._owed.setdefault(worker, set()).add(message)
        task.under_way += 1
        if not probe:
            for part in task.parts:
                self._of[part] = task

    def hear(self, worker: int, message: int) -> None:
        """Note a message that is here."""
        self._owed[worker].discard(message)

    def fail(self, worker: int, message: int) -> None:
        """Note a message that will not come."""
        self._failed[worker] += 1
        self._owed[worker].discard(message)
        self._task[message].under_way -= 1

    def lose(self, worker: int) -> None:
        """Note that nothing more comes from a worker."""
        for message in self._owed.pop(worker, ()):
            self._task[message].under_way -= 1

    def cover(self, state: State) -> tuple[tuple[int, float], ...]:
        """Return weights that add up to the full sum; all parts have been heard."""
        units = {message: self._task[message].parts for message in state.heard}
        found = best_cover(units, self._parts)
        assert not found.left  # lists are inside each other, or apart
        return tuple((message, 1.0) for message in found.units)

    # -- what is late ----------------------------------------------------------------

    def next_due(self, state: State) -> float:
        """Return when the next list that is not late will be, seconds of the clock."""
        tasks = {id(t): t for p in self._uncovered(state) if (t := self._smallest(p))}
        dues = (task.due for task in tasks.values() if task.due > state.now)
        return min(dues, default=math.inf)

    def look(self, state: State, orders: Orders, paces: Mapping[int, Pace]) -> None:
        """Give out whatever is late or lost."""
        groups: dict[int, tuple[Task | None, list[int]]] = {}
        for part in self._uncovered(state):
            task = self._smallest(part)
            if task is None or task.due <= state.now:
                groups.setdefault(id(task), (task, []))[1].append(part)
        self._short = list(groups.values())
        self.help(state, orders, paces, self.idle(state))

    def _uncovered(self, state: State) -> list[int]:
        covered = state.ledger.covered
        return [part for part in range(self._parts) if covered[part] == 0]

    def _smallest(self, part: int) -> Task | None:
        """Return the smallest list with a part that may still be heard."""
        task = self._of[part]
        while task is not None and task.under_way == 0:
            task = task.parent
        self._of[part] = task
        return task

    # -- who helps -------------------------------------------------------------------

    def idle(self, state: State) -> list[int]:
        """Return who is there and owes nothing."""
        return [w for w, alive in enumerate(state.alive) if alive and self.is_idle(w)]

    def is_idle(self, worker: int) -> bool:
        """Whether a worker owes nothing."""
        return not self._owed.get(worker)

    def help(
        self,
        state: State,
        orders: Orders,
        paces: Mapping[int, Pace],
        idle: Sequence[int],
    ) -> None:
        """Let workers take over what waits."""
        able = {w: paces[w] for w in idle if self._may_ask(state, w)}
        covered = state.ledger.covered
        groups = [(t, [p for p in some if not covered[p]]) for t, some in self._short]
        groups = [group for group in groups if group[1]]
        given = shared([parts for _, parts in groups], able, self._who(able))
        taken: set[int] = set()
        for (number, worker), parts in given.items():
            self._take(state, orders, worker, parts, groups[number][0], able[worker])
            taken.update(parts)
        left = [(task, [p for p in some if p not in taken]) for task, some in groups]
        self._short = [group for group in left if group[1]]

    def _take(
        self,
        state: State,
        orders: Orders,
        worker: int,
        parts: Sequence[int],
        parent: Task | None,
        pace: Pace,
    ) -> None:
        if state.no_room(worker):
            orders.drop(worker)  # all it was asked for was heard
        least = _NOTICE * (state.now - state.started)
        task = Task(parts, parent, math.inf)
        patience = _PATIENCE * _GROWTH ** max(0, task.depth - 1)
        task.due = state.now + patience * max(pace.seconds(len(parts)), least, 1e-9)
        self.give(orders, worker, task)

    def _who(self, able: Mapping[int, Pace]) -> tuple[tuple[int, ...], ...] | None:
        return self._holders

    def _may_ask(self, state: State, worker: int) -> bool:
        """Whether a worker that owes nothing has room, if need be after a drop."""
        if self._failed[worker] >= _FAILURES:
            return False
        if not state.no_room(worker):
            return True
        opinions = state.aside.messages.values() if state.aside is not None else ()
        owes = any(m.worker == worker and m.pending and m.finite for m in opinions)
        kept = [known for known in state.given(worker) if not known.gone]
        return not owes and all(known.closed for known in kept)


def shared(
    groups: Sequence[Sequence[int]],
    able: Mapping[int, Pace],
    holders: Sequence[Sequence[int]] | None,
) -> dict[tuple[int, int], list[int]]:
    """Give parts to those who would be done first, each to help with one group only.

    Groups take turns, in proportion to their size.

    Args:
        groups: Parts that are to be done; no worker gets parts of two.
        able: Who can help, and how fast.
        holders: For every part, who may be asked for it; None: everybody.

    Returns:
        Parts by (number of the group, worker); what nobody could take is missing.

    Example:
        >>> fast, slow = Pace(0.0, 1.0), Pace(0.0, 2.0)
        >>> shared([[0, 1, 2]], {7: fast, 8: slow}, None)
        {(0, 7): [0, 2], (0, 8): [1]}
    """
    turns = sorted(
        (place / len(parts), -len(parts), number, part)
        for number, parts in enumerate(groups)
        for place, part in enumerate(parts)
    )
    given: dict[tuple[int, int], list[int]] = {}
    busy: dict[int, int] = {}  # worker -> its group
    free = [(pace.seconds(1), worker) for worker, pace in able.items()]
    heapq.heapify(free)
    own: list[list[tuple[float, int]]] = [[] for _ in groups]
    for _, _, number, part in turns:
        if holders is None:
            mine = own[number]
            heap = mine if mine and (not free or mine[0] <= free[0]) else free
            if not heap:
                continue
            _, worker = heapq.heappop(heap)
        else:
            some = [
                (able[w].seconds(len(given.get((number, w), ())) + 1), w)
                for w in holders[part]
                if w in able and busy.get(w, number) == number
            ]
            if not some:
                continue
            _, worker = min(some)
        busy[worker] = number
        parts = given.setdefault((number, worker), [])
        parts.append(part)
        if holders is None:
            heapq.heappush(own[number], (able[worker].seconds(len(parts) + 1), worker))
    return given
