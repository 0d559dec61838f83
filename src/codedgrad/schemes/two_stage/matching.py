"""Who computes what, where not everybody holds everything: small matchings.

Everything here is deterministic: ties go to what comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise


def even(items: Sequence[int], groups: int) -> list[tuple[int, ...]]:
    """Cut a list into stretches whose lengths differ by at most one, longer ones first.

    Example:
        >>> even(range(5), 3)
        [(0, 1), (2, 3), (4,)]
    """
    size, more = divmod(len(items), groups)
    borders = [group * size + min(group, more) for group in range(groups + 1)]
    return [tuple(items[low:high]) for low, high in pairwise(borders)]


def shared_out(
    holders: Mapping[int, Sequence[int]], most: Mapping[int, int] | None = None
) -> dict[int, list[int]]:
    """Give every part to one of its holders, so that nobody has many more than others.

    By augmenting paths, with a limit for everybody that is raised by one as long as
    parts are left.

    Args:
        holders: For every part, who may take it, better ones first; may be nobody.
        most: The most that a worker may take; by default anything.

    Returns:
        The parts of every worker that has some, in the order of `holders`. What nobody
        may take is in none of them.

    Example:
        >>> shared_out({0: [7], 1: [7, 8], 2: [7, 8], 3: []})
        {7: [0, 1], 8: [2]}
    """
    workers = sorted({worker for able in holders.values() for worker in able})
    owner: dict[int, int] = {}
    taken: dict[int, list[int]] = {worker: [] for worker in workers}
    left = [part for part, able in holders.items() if able]
    limit = -(-len(left) // max(1, len(workers)))
    while left:
        bound = {
            worker: limit if most is None else min(limit, most.get(worker, 0))
            for worker in workers
        }
        left = [p for p in left if not _augment(p, holders, owner, taken, bound)]
        if left and most is not None and all(most.get(w, 0) <= limit for w in workers):
            break
        limit += 1
    place = {part: number for number, part in enumerate(holders)}
    return {
        worker: sorted(parts, key=place.__getitem__)
        for worker, parts in taken.items()
        if parts
    }


def _augment(
    part: int,
    holders: Mapping[int, Sequence[int]],
    owner: dict[int, int],
    taken: dict[int, list[int]],
    bound: Mapping[int, int],
) -> bool:
    """Find room for one more part, moving others if need be; breadth first."""
    came: dict[int, int] = {}  # worker -> the part that would go there
    to_do = deque([part])
    while to_do:
        moved = to_do.popleft()
        for worker in holders[moved]:
            if worker in came:
                continue
            came[worker] = moved
            if len(taken[worker]) < bound[worker]:
                _move(part, worker, came, owner, taken)
                return True
            to_do.extend(taken[worker])
    return False


def _move(
    part: int,
    worker: int,
    came: Mapping[int, int],
    owner: dict[int, int],
    taken: dict[int, list[int]],
) -> None:
    while True:
        moved = came[worker]
        before = owner.get(moved)
        if before is not None:
            taken[before].remove(moved)
        taken[worker].append(moved)
        owner[moved] = worker
        if moved == part or before is None:
            return
        worker = before


def staffed(
    able: Sequence[Sequence[int]],
    sizes: Sequence[int],
    wanted: int,
    room: Mapping[int, int],
) -> list[list[int]]:
    """Choose who helps with which of several tasks.

    Every task gets one helper before any gets a second, up to `wanted`, and nobody
    helps with two tasks where that can be avoided. Whoever is free after that joins the
    task with the most parts for each of its helpers.

    Args:
        able: For every task, who could help with it, better ones first.
        sizes: Parts of every task.
        wanted: Helpers that a task should have.
        room: With how many tasks a worker can help.

    Example:
        >>> staffed([[1, 2], [2, 3, 4]], [2, 2], 1, {1: 1, 2: 1, 3: 1, 4: 1})
        [[1], [2, 3, 4]]
    """
    if len(able) == 1:
        return [[worker for worker in able[0] if room.get(worker, 0) > 0]]
    slots: dict[int, Sequence[int]] = {}
    for turn in range(wanted):
        for task, workers in enumerate(able):
            if turn < len(workers):
                slots[turn * len(able) + task] = workers
    chosen: list[list[int]] = [[] for _ in able]
    for worker, filled in shared_out(slots, room).items():
        for slot in filled:
            if worker not in chosen[slot % len(able)]:  # once is enough
                chosen[slot % len(able)].append(worker)
    _join(able, sizes, chosen, room)
    for task, workers in enumerate(able):
        chosen[task].sort(key=list(workers).index)
    return chosen


def _join(
    able: Sequence[Sequence[int]],
    sizes: Sequence[int],
    chosen: list[list[int]],
    room: Mapping[int, int],
) -> None:
    """Let whoever has nothing to do yet help where most is to be done."""
    busy = {worker for workers in chosen for worker in workers}
    for worker in _in_order(able):
        if worker in busy or room.get(worker, 0) < 1:
            continue
        tasks = [task for task, workers in enumerate(able) if worker in workers]
        best = max(tasks, key=lambda task: sizes[task] / max(1, len(chosen[task])))
        chosen[best].append(worker)


def _in_order(able: Iterable[Sequence[int]]) -> list[int]:
    return list(dict.fromkeys(worker for workers in able for worker in workers))
