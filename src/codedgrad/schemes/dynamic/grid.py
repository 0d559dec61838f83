"""Which clusters a worker may join: the grid of GC-DC, and what must be stored for it.

Of `P` clusters, worker `k` is at home in cluster `k % P`, and stands in row `k // P`.
A row may be shifted: with the shifts `D` of its row, a worker may join the clusters
`(home + d) % P` for `d` in `D`. So every worker may join as many clusters as there are
shifts, and every cluster may be joined by as many workers of every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedgrad.codes.arguments import divisors, one_of, whole
from codedgrad.codes.decoders import Bools
from codedgrad.errors import InvalidScheme


@dataclass(frozen=True)
class Grid:
    """Who may join which cluster.

    Attributes:
        clusters: How many.
        shifts: Of every row, 0 first.

    Example:
        >>> Grid(clusters=4, shifts=((0, 1),) * 3).joins[6]  # at home in cluster 2
        (2, 3)
    """

    clusters: int
    shifts: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> int:
        """How many rows, and workers in a cluster."""
        return len(self.shifts)

    @property
    def workers(self) -> int:
        """How many workers."""
        return self.clusters * self.rows

    @cached_property
    def joins(self) -> tuple[tuple[int, ...], ...]:
        """The clusters each worker may join, its home first."""
        return tuple(
            tuple((k + d) % self.clusters for d in self.shifts[k // self.clusters])
            for k in range(self.workers)
        )

    @cached_property
    def may_join(self) -> Bools:
        """The same as a table, (workers, clusters)."""
        table = np.zeros((self.workers, self.clusters), dtype=np.bool_)
        for worker, clusters in enumerate(self.joins):
            table[worker, list(clusters)] = True
        table.setflags(write=False)
        return table

    @cached_property
    def home(self) -> tuple[int, ...]:
        """The worker of every slot if everybody stays at home, cluster by cluster."""
        return tuple(
            row * self.clusters + cluster
            for cluster in range(self.clusters)
            for row in range(self.rows)
        )


def grid(workers: int, clusters: int, reach: int, shifts: str, seed: int) -> Grid:
    """Return the grid in which every worker may join `reach` clusters.

    Args:
        workers: Number of workers.
        clusters: How many clusters; must divide `workers`.
        reach: How many of them a worker may join.
        shifts: `common`, 0 to `reach` - 1 in all rows, or `row`, at random in each.
        seed: Of those.
    """
    clusters = whole("dynamic", "clusters", clusters, least=1, most=workers)
    if workers % clusters:
        raise InvalidScheme(
            f"dynamic: clusters = {clusters} must divide workers = {workers}",
            f"clusters in {divisors(workers)}",
        )
    reach = whole("dynamic", "reach", reach, least=1, most=clusters)
    seed = whole("dynamic", "seed", seed, least=0)
    rows = workers // clusters
    if one_of("dynamic", "shifts", shifts, ("common", "row")) == "common":
        return Grid(clusters, (tuple(range(reach)),) * rows)
    rng = np.random.default_rng(seed)
    drawn = (rng.permutation(np.arange(1, clusters))[: reach - 1] for _ in range(rows))
    return Grid(clusters, tuple((0, *sorted(row.tolist())) for row in drawn))
