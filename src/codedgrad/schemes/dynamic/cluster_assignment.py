r"""Spreading stragglers over clusters: who joins which cluster in the coming step.

All of these answer with a seat for every codeword: `seats[p * rows + i]` is the worker
that takes slot `i` of cluster `p`, and each keeps to the grid. With $s_p$ the number of
stragglers in cluster $p$, the aim is the least $\sum_p s_p^2$: as even as possible.

| function | storage | finds |
| --- | --- | --- |
| `greedy` | cluster | good ones, by turns, as the paper describes its own |
| `exact` | cluster | the least, as one assignment problem |
| `tiers` | cluster | one worker of every tier of speed in every cluster |
| `by_rows` | slot | good ones, row by row; takes graded scores too |
| `exact_slots` | slot | the least, as a mixed-integer program |

Only the aim, and that stragglers go first and clusters choose in turn, are the paper's
(Buyukates, Ozfatura, Ulukus, Gunduz, arXiv 2103.01206); the rules in detail are ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from codedgrad.codes.decoders import Bools, Floats
from codedgrad.schemes.dynamic.grid import Grid

_SWEEPS = 4  # over all rows; nearly always two are enough
_NEVER = 1e9  # the cost of what is not allowed


def exact(grid: Grid, slow: Bools) -> tuple[int, ...]:
    r"""Return the evenest seats there are, if workers may take any slot of a cluster.

    The $j$-th straggler of a cluster costs $2j + 1$, so the cost of a cluster is the
    square of its number of stragglers.

    Args:
        grid: Who may join which cluster.
        slow: Who is a straggler, (workers,).

    Example:
        >>> from codedgrad.schemes.dynamic.grid import Grid
        >>> grid = Grid(clusters=2, shifts=((0, 1),) * 2)  # 0 and 2 share a cluster
        >>> exact(grid, np.array([True, False, True, False]))
        (0, 1, 2, 3)
    """
    costs = slow[:, None] * _marginals(grid)[None, :]
    return _assign(grid, costs)


def tiers(grid: Grid, scores: Floats) -> tuple[int, ...]:
    """Return seats with one worker of every tier of speed in every cluster.

    The slowest workers, as many as there are clusters, are tier 0, the next tier 1. A
    worker in a slot that is not its tier's costs the square of the difference.

    Args:
        grid: Who may join which cluster.
        scores: Higher is slower, (workers,).
    """
    order = np.argsort(-scores, kind="stable")
    tier = np.empty(grid.workers)
    tier[order] = np.arange(grid.workers) // grid.clusters
    slot = np.tile(np.arange(grid.rows), grid.clusters)
    return _assign(grid, (tier[:, None] - slot[None, :]) ** 2)


def _assign(grid: Grid, costs: Floats) -> tuple[int, ...]:
    from scipy.optimize import linear_sum_assignment

    workers, slots = linear_sum_assignment(costs + _barred(grid))
    seats = np.empty(grid.workers, dtype=np.intp)
    seats[slots] = workers
    in_order = np.sort(seats.reshape(grid.clusters, grid.rows), axis=1)
    return tuple(in_order.ravel().tolist())


@lru_cache(maxsize=16)
def _barred(grid: Grid) -> Floats:
    table = np.where(grid.may_join, 0.0, _NEVER).repeat(grid.rows, axis=1)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=16)
def _marginals(grid: Grid) -> Floats:
    return np.tile(2.0 * np.arange(grid.rows) + 1.0, grid.clusters)


def by_rows(grid: Grid, scores: Floats) -> tuple[int, ...]:
    r"""Return even seats if a worker may only take the slot of its row.

    A row at a time, the one with the most stragglers first, is seated at the least
    $\sum_p u_p^2$, with $u_p$ the sum of the scores in cluster $p$ of the rows seated
    before; then again, with all other rows as they are, until nothing changes. It may
    end in a local minimum.

    Args:
        grid: Who may join which cluster.
        scores: 1 for a straggler and 0 for others, or anything between, (workers,).
    """
    from scipy.optimize import linear_sum_assignment

    P = grid.clusters
    u, barred = scores.reshape(grid.rows, P), _barred_rows(grid)
    at = np.tile(np.arange(P), (grid.rows, 1))  # the cluster of every worker
    here, load = np.arange(P), np.zeros(P)
    order = np.argsort(-u.sum(axis=1), kind="stable")
    for sweep in range(_SWEEPS):
        moved = False
        for row in order:
            if sweep > 0:
                load = load - np.bincount(at[row], weights=u[row], minlength=P)
            costs = 2.0 * u[row][:, None] * load[None, :] + barred[row]
            _, best = linear_sum_assignment(costs)
            if costs[here, best].sum() < costs[here, at[row]].sum() - 1e-12:
                at[row], moved = best, True
            load = load + np.bincount(at[row], weights=u[row], minlength=P)
        if sweep > 0 and not moved:  # in the first, rows do not see those after them
            break
    return _seats_of_rows(grid, at)


@lru_cache(maxsize=16)
def _barred_rows(grid: Grid) -> Floats:
    table = np.where(grid.may_join, 0.0, _NEVER)
    return table.reshape(grid.rows, grid.clusters, grid.clusters)


def _seats_of_rows(grid: Grid, at: np.ndarray) -> tuple[int, ...]:
    seats = np.empty((grid.clusters, grid.rows), dtype=np.intp)
    for row in range(grid.rows):
        seats[at[row], row] = row * grid.clusters + np.arange(grid.clusters)
    return tuple(seats.ravel().tolist())


def exact_slots(grid: Grid, slow: Bools) -> tuple[int, ...]:
    """Return the evenest seats there are, if a worker may only take its row's slot.

    Workers and slots are matched; of the stragglers of a cluster the first costs 1, the
    next 3, and so on. A mixed-integer program of workers x reach binary numbers: some
    milliseconds for 20 workers.

    Args:
        grid: Who may join which cluster.
        slow: Who is a straggler, (workers,).
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    P, n = grid.clusters, grid.workers
    workers = np.repeat(np.arange(n), [len(joins) for joins in grid.joins])
    clusters = np.concatenate(grid.joins)
    slots = clusters * grid.rows + workers // P
    pairs, marginals = len(workers), _marginals(grid)
    ones, each = np.ones(pairs), np.arange(pairs)
    matched = csr_array(
        (
            np.concatenate([ones, ones]),
            (np.concatenate([workers, n + slots]), np.concatenate([each, each])),
        ),
        shape=(2 * n, pairs + len(marginals)),
    )
    late = slow[workers]
    counted = csr_array(
        (
            np.concatenate([np.ones(late.sum()), -np.ones(len(marginals))]),
            (
                np.concatenate([clusters[late], np.repeat(np.arange(P), grid.rows)]),
                np.concatenate([each[late], pairs + np.arange(len(marginals))]),
            ),
        ),
        shape=(P, pairs + len(marginals)),
    )
    found = milp(
        np.concatenate([np.zeros(pairs), marginals]),
        integrality=np.concatenate([ones, np.zeros(len(marginals))]),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(matched, 1, 1), LinearConstraint(counted, 0, 0)],
    )
    if found.x is None:
        raise RuntimeError(f"no seats were found, though home is one: {found.message}")
    taken = found.x[:pairs] > 0.5
    seats = np.empty(n, dtype=np.intp)
    seats[slots[taken]] = workers[taken]
    return tuple(seats.tolist())


# -- by turns --------------------------------------------------------------------------


def greedy(grid: Grid, slow: Bools) -> tuple[int, ...]:
    """Return even seats by turns, if workers may take any slot of a cluster.

    Stragglers are placed first, then the others. In a round, clusters choose in turn,
    the one that fewest of those left may join first; each takes the one that has the
    fewest clusters left. Whoever is left over in the end makes others move.

    Args:
        grid: Who may join which cluster.
        slow: Who is a straggler, (workers,).
    """
    table = _FillingClusters(grid, frozenset(np.flatnonzero(slow).tolist()))
    table.place(np.flatnonzero(slow).tolist())
    table.place(np.flatnonzero(~slow).tolist())
    return tuple(worker for members in table.members for worker in sorted(members))


class _FillingClusters:
    """Clusters that fill up."""

    def __init__(self, grid: Grid, slow: frozenset[int]) -> None:
        self._grid, self._slow = grid, slow
        self.members: list[set[int]] = [set() for _ in range(grid.clusters)]

    def place(self, workers: Sequence[int]) -> None:
        """Seat these workers, by turns and then by making room."""
        pool = set(workers)
        while pool and self._round(pool):
            pass
        for worker in sorted(pool):
            if not self._make_room(worker, self._slow) and not self._make_room(worker):
                raise RuntimeError(f"worker {worker} has no seat, though home is one")

    def _round(self, pool: set[int]) -> bool:
        joins, before = self._grid.joins, len(pool)
        order = sorted(
            range(self._grid.clusters),
            key=lambda c: (sum(c in joins[k] for k in pool), len(self.members[c]), c),
        )
        for cluster in order:
            able = [k for k in pool if cluster in joins[k]]
            if able and not self._is_full(cluster):
                chosen = min(able, key=lambda k: (self._choices(k), k))
                self.members[cluster].add(chosen)
                pool.discard(chosen)
        return len(pool) < before

    def _choices(self, worker: int) -> int:
        return sum(not self._is_full(c) for c in self._grid.joins[worker])

    def _is_full(self, cluster: int) -> bool:
        return len(self.members[cluster]) == self._grid.rows

    def _make_room(self, worker: int, fixed: Iterable[int] = ()) -> bool:
        """Seat a worker by moving others, along the shortest way; those fixed stay."""
        came: dict[
            int, tuple[int, int | None]
        ] = {}  # cluster: who moves in, from where
        queue: deque[tuple[int, int | None]] = deque([(worker, None)])
        while queue:
            mover, origin = queue.popleft()
            for cluster in self._grid.joins[mover]:
                if cluster in came:
                    continue
                came[cluster] = mover, origin
                if not self._is_full(cluster):
                    self._move(cluster, came)
                    return True
                movable = sorted(self.members[cluster].difference(fixed))
                queue.extend((member, cluster) for member in movable)
        return False

    def _move(self, cluster: int, came: dict[int, tuple[int, int | None]]) -> None:
        place: int | None = cluster
        while place is not None:
            mover, origin = came[place]
            if origin is not None:
                self.members[origin].discard(mover)
            self.members[place].add(mover)
            place = origin
