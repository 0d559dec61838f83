"""The second stage of a step: who helps, and with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from codedgrad.codes import Code
from codedgrad.core.orders import Orders
from codedgrad.core.state import State
from codedgrad.schemes.two_stage.block_codes import (
    Block,
    Cyclic,
    Repeated,
    cyclic_rows,
    groups,
)
from codedgrad.schemes.two_stage.first_stage import Lists, Staging
from codedgrad.schemes.two_stage.matching import even, staffed
from codedgrad.schemes.two_stage.still_to_hear import Needs

_FAILURES = 2  # messages that may fail before a worker is asked for no more


class Helpers:
    """Hands out what is left, coded over those who are free and hold it.

    Args:
        staging: What is the same in every step.
        tolerance: Late helpers survived, where there are enough.
        needs: Where what is handed out is noted.

    Attributes:
        failed: How many messages of each worker have failed.
        is_short: Whether some part waits for somebody to be free.
    """

    def __init__(self, staging: Staging, tolerance: int, needs: Needs) -> None:
        self.failed: Counter[int] = Counter()
        self.is_short = False
        self._staging = staging
        self._tolerance = tolerance
        self._needs = needs

    # -- who -------------------------------------------------------------------------

    def at_checkpoint(self, state: State, lists: Lists) -> list[int]:
        """Return who helps as planned: the fresh, then those who have finished."""
        fresh, finished = [], []
        for worker, alive in enumerate(state.alive):
            if alive and state.in_hand(worker) == 0:
                is_done = lists.is_done(state, worker)
                if is_done is None:
                    fresh.append(worker)
                elif is_done and self._staging.reuse:
                    finished.append(worker)
        return (fresh + finished)[: self._staging.helpers]

    def idle(self, state: State) -> list[int]:
        """Return who is there and owes nothing, those who were heard first."""
        owing = {m.worker for m in state.messages.values() if m.pending}
        heard = {state.messages[id_].worker for id_ in state.heard}
        able = [
            worker
            for worker, alive in enumerate(state.alive)
            if alive and worker not in owing and state.in_hand(worker) == 0
        ]
        return sorted(able, key=lambda worker: (worker not in heard, worker))

    def can_help(self, block: Block, workers: Sequence[int]) -> bool:
        """Whether one of these can be asked for some part of a block."""
        return any(self._able(part, workers) for part in block.parts)

    def _able(self, part: int, workers: Sequence[int]) -> tuple[int, ...]:
        """Return who of these can be asked for a part; those who failed if need be."""
        holders: Collection[int] = workers
        if not self._staging.everywhere:
            holders = self._staging.holders[part]
        there = [w for w in workers if w in holders and self.failed[w] < _FAILURES]
        return tuple(w for w in there if not self.failed[w]) or tuple(there)

    # -- with what -------------------------------------------------------------------

    def hand_out(
        self, state: State, orders: Orders, parts: Sequence[int], able: Sequence[int]
    ) -> int:
        """Code parts over workers; return the most that one of them has to compute."""
        room = {worker: _room(state, worker) for worker in able}
        there = [worker for worker in able if room[worker] > 0]
        tasks, nobody = self._tasks(parts, there)
        sizes = [len(task) for task in tasks.values()]
        staff = staffed(list(tasks), sizes, self._tolerance + 1, room)
        most, emptied = 0, set[int]()
        for workers, task in zip(staff, tasks.values(), strict=True):
            for worker in workers:
                if state.no_room(worker) and worker not in emptied:
                    orders.drop(worker)  # all it was asked for was heard
                    emptied.add(worker)
            if workers:
                most = max(most, self._lay(orders, task, workers))
            else:
                nobody += task
        self.is_short = bool(nobody)
        if nobody:
            self._needs.want(Repeated(nobody))
        return most

    def _tasks(
        self, parts: Sequence[int], able: Sequence[int]
    ) -> tuple[dict[tuple[int, ...], list[int]], list[int]]:
        """Return parts by who can be asked for them, and those nobody can be."""
        tasks: dict[tuple[int, ...], list[int]] = {}
        if self._staging.everywhere:
            tasks[self._able(0, able)] = list(parts)
        else:
            for part in parts:
                tasks.setdefault(self._able(part, able), []).append(part)
        nobody = tasks.pop((), [])
        return {who: task for who, task in tasks.items() if task}, nobody

    def _lay(self, orders: Orders, parts: list[int], workers: list[int]) -> int:
        """Code parts over workers who all hold them; return the largest load."""
        h = len(workers)
        s = min(self._tolerance, h - 1)
        is_cyclic = self._staging.code == "cyclic" and s > 0
        code = cyclic_rows(h, s) if is_cyclic else None
        if code is not None:
            return self._lay_cyclic(orders, parts, workers, code)
        shares = groups(parts, h, s)
        for number, share in enumerate(shares):
            if share:
                group = workers[number :: len(shares)]
                messages = [_ask(orders, worker, share) for worker in group]
                self._needs.want(Repeated(share, messages), messages)
        return len(shares[0])

    def _lay_cyclic(
        self, orders: Orders, parts: list[int], workers: list[int], code: Code
    ) -> int:
        stretches = even(parts, len(workers))
        block, most = Cyclic(stretches, code, self._staging.counts), 0
        messages = []
        for row, (columns, values) in enumerate(code.rows):
            pairs = list(zip(columns, values, strict=True))
            share = [part for column, _ in pairs for part in stretches[column]]
            if share:
                by = [value for column, value in pairs for _ in stretches[column]]
                messages.append(_ask(orders, workers[row], share, by))
                block.add(messages[-1], row)
                most = max(most, len(share))
        self._needs.want(block, messages)
        return most


def _ask(
    orders: Orders, worker: int, parts: Sequence[int], by: Sequence[float] | None = None
) -> int:
    _, message = orders.assign(worker, parts, by, upload=True, whole=True)
    assert message is not None  # asked for
    return message


def _room(state: State, worker: int) -> int:
    """Return how many more sums a worker can hold, if need be after a drop."""
    rows = state.capabilities.rows_per_worker
    kept = [known for known in state.given(worker) if not known.gone]
    if len(kept) < rows:
        return rows - len(kept)
    # An opinion that came is known, settled or not: it does not hold the room.
    owes = any(m.finite or m.id in state.messages for m in state.owed(worker))
    return 0 if owes or not all(known.closed for known in kept) else rows
