r"""The net under all lists: what is late or lost is given to those who are idle.

No list that is given later has parts of two lists that may still be heard. So any two
lists are apart, or one is inside the other; and as soon as every part is heard, the
messages that are inside no other one add up to the full sum.

```text
    (0 1 2 3 4 5)          a list that is late
    (0 1 2)  (3 4 5)       shared out: either the one above comes in, or both of these
             (3) (4 5)     once more
```

Single parts may be asked for at any time; they are inside whatever holds them.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from codedgrad.core.orders import Orders
from codedgrad.core.state import State
from codedgrad.schemes.opaque_helpers import Pace, shared

__all__ = ["Net", "Task"]

_FAILURES = 2  # messages that may fail before a worker is asked for no more
_PATIENCE = 1.5  # times what a list should take, until it is late
_GROWTH = 2.0  # of that, whenever its parts were given out before
_NOTICE = 0.05  # of the time so far: what a list should take at least


class Task:
    """A list of parts that some workers were asked for.

    Attributes:
        parts: Of the list.
        parent: The list that it is inside of, if that may still be heard.
        due: When it is late, seconds of the clock.
        depth: How many lists it is inside of.
        under_way: Messages that may still be heard.
    """

    __slots__ = ("depth", "due", "parent", "parts", "under_way")

    def __init__(
        self, parts: Sequence[int], due: float, parent: Task | None = None
    ) -> None:
        self.parts = tuple(parts)
        self.due = due
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.under_way = 0


_Group: TypeAlias = tuple[Task | None, list[int]]
"""Parts that are late or lost, and the smallest list with them that may be heard."""


class Net:
    """All lists of a step, who owes what, and what nobody could be asked for yet.

    Args:
        holders: For every part, who may be asked for it; None: everybody.
        parts: Of the step.
        pace: How long a worker should take if it is asked now.
    """

    def __init__(
        self,
        holders: Sequence[Sequence[int]] | None,
        parts: int,
        pace: Callable[[int], Pace],
    ) -> None:
        self._holders = holders
        self._pace = pace
        self._task: dict[int, Task] = {}  # of every message
        self._of: list[Task | None] = [None] * parts  # the smallest list with a part
        self._owed: dict[int, set[int]] = {}  # worker -> messages under way
        self._failed: Counter[int] = Counter()
        self._short: deque[_Group] = deque()

    @property
    def is_short(self) -> bool:
        """Whether parts wait for somebody to be idle."""
        return bool(self._short)

    # -- what is asked for, and what comes of it ---------------------------------------

    def give(self, orders: Orders, worker: int, task: Task) -> None:
        """Ask a worker for a list."""
        self.probe(orders, worker, task)
        for part in task.parts:
            self._of[part] = task

    def probe(self, orders: Orders, worker: int, task: Task) -> None:
        """Ask a worker for a part of another list, not to be waited for."""
        _, message = orders.assign(worker, task.parts, upload=True, whole=True)
        assert message is not None  # asked for
        self._task[message] = task
        self._owed.setdefault(worker, set()).add(message)
        task.under_way += 1

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

    def owes(self, worker: int) -> bool:
        """Whether a message of a worker is under way."""
        return bool(self._owed.get(worker))

    def weights(self, state: State) -> tuple[tuple[int, float], ...]:
        """Return messages that add up to the full sum; every part has been heard.

        They are those of a disjoint cover, which is there as lists are apart or inside
        each other: the longest first, and none of which a part is taken.
        """
        size = {message: len(self._task[message].parts) for message in state.heard}
        taken = [False] * len(self._of)
        chosen: list[int] = []
        for message in sorted(state.heard, key=lambda id_: -size[id_]):
            parts = self._task[message].parts
            if not taken[parts[0]]:  # else all are: it is inside a longer list
                chosen.append(message)
                for part in parts:
                    taken[part] = True
        assert sum(size[message] for message in chosen) == len(taken)
        return tuple((message, 1.0) for message in sorted(chosen))

    # -- what is late ------------------------------------------------------------------

    def look(self, state: State, orders: Orders) -> float:
        """Give out whatever is late or lost; return when the next list will be late."""
        groups: dict[Task | None, list[int]] = {None: []}  # the lost first
        soonest = math.inf
        for part, heard in enumerate(state.ledger.covered):
            if not heard:
                task = self._smallest(part)
                if task is None or task.due <= state.now:
                    groups.setdefault(task, []).append(part)
                else:
                    soonest = min(soonest, task.due)
        self._short = deque((task, some) for task, some in groups.items() if some)
        idle = [w for w, alive in enumerate(state.alive) if alive and not self.owes(w)]
        return min(soonest, self.help(state, orders, idle))

    def _smallest(self, part: int) -> Task | None:
        """Return the smallest list with a part that may still be heard."""
        task = self._of[part]
        while task is not None and not task.under_way:
            task = task.parent
        self._of[part] = task
        return task

    # -- who helps ---------------------------------------------------------------------

    def help(self, state: State, orders: Orders, idle: Sequence[int]) -> float:
        """Let idle workers take over what waits; return when that will be late.

        Those who failed before are asked for what nobody else can take.
        """
        due = math.inf
        for failures in range(_FAILURES):
            able = {
                worker: self._pace(worker)
                for worker in idle
                if self._failed[worker] == failures and _has_room(state, worker)
            }
            if able and self._short:
                due = min(due, self._hand_out(state, orders, able))
        return due

    def _hand_out(self, state: State, orders: Orders, able: dict[int, Pace]) -> float:
        groups, kept = self._for(state, able)
        due = math.inf
        given = shared([parts for _, parts in groups], able, self._holders)
        for (number, worker), parts in given.items():
            if state.no_room(worker):
                orders.drop(worker)  # all it was asked for was heard
            task = Task(parts, math.inf, groups[number][0])
            task.due = state.now + self._patience(state, task, able[worker])
            self.give(orders, worker, task)
            due = min(due, task.due)
        taken = {part for parts in given.values() for part in parts}
        for task_, parts in reversed(groups):
            if left := [part for part in parts if part not in taken]:
                kept.append((task_, left))
        self._short.extendleft(kept)
        return due

    def _for(
        self, state: State, able: dict[int, Pace]
    ) -> tuple[list[_Group], list[_Group]]:
        """Take out what these can help with, one group each; return the others, too."""
        groups, others = list[_Group](), list[_Group]()
        while self._short and len(groups) < len(able):
            task, parts = self._short.popleft()
            parts = [part for part in parts if not state.ledger.covered[part]]
            holders = self._holders
            if holders is None or any(w in able for p in parts for w in holders[p]):
                if parts:
                    groups.append((task, parts))
            elif parts:
                others.append((task, parts))
        return groups, others[::-1]

    def _patience(self, state: State, task: Task, pace: Pace) -> float:
        least = max(_NOTICE * (state.now - state.started), 1e-9)
        times = _PATIENCE * _GROWTH ** max(0, task.depth - 1)
        return times * max(pace.seconds(len(task.parts)), least)


def _has_room(state: State, worker: int) -> bool:
    """Whether a worker who owes the plan nothing has room, if need be after a drop."""
    if not state.no_room(worker):
        return True
    opinions = state.aside.messages.values() if state.aside is not None else ()
    owes = any(m.worker == worker and m.pending and m.finite for m in opinions)
    kept = [known for known in state.given(worker) if not known.gone]
    return not owes and all(known.closed for known in kept)
