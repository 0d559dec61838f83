"""Who may join which cluster: the worked table, counts, symmetry, and bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.errors import CodedgradError
from codedgrad.schemes.dynamic.grid import Grid, grid

TABLE = [  # the worked example: columns are clusters, and all is counted from 1
    [1, 2, 3, 4],
    [5, 6, 7, 8],
    [9, 10, 11, 12],
    [4, 1, 2, 3],
    [8, 5, 6, 7],
    [12, 9, 10, 11],
]


def test_the_candidates_of_every_cluster_are_those_of_the_worked_example() -> None:
    layout = grid(12, 4, reach=2, shifts="common", seed=0)
    for cluster, candidates in enumerate(np.array(TABLE).T - 1):
        able = [worker for worker in range(12) if cluster in layout.joins[worker]]
        assert able == sorted(candidates.tolist())
        home = [w for w in able if layout.joins[w][0] == cluster]
        assert home == candidates[:3].tolist()
    assert layout.home == tuple((np.array(TABLE[:3]).T - 1).ravel().tolist())


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    clusters, rows = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    reach = draw(st.integers(1, clusters))
    shifts = draw(st.sampled_from(["common", "row"]))
    return grid(clusters * rows, clusters, reach, shifts, draw(st.integers(0, 99)))


@given(grids())
def test_every_worker_joins_as_many_clusters_and_every_cluster_as_many_of_a_row(
    layout: Grid,
) -> None:
    table = layout.may_join.reshape(layout.rows, layout.clusters, layout.clusters)
    reach = len(layout.shifts[0])
    assert np.all(table.sum(axis=2) == reach)  # clusters of a worker
    assert np.all(table.sum(axis=1) == reach)  # workers of a row, by cluster
    assert np.all(table.diagonal(axis1=1, axis2=2))  # home is always one of them
    for worker, clusters in enumerate(layout.joins):
        assert clusters[0] == worker % layout.clusters
        assert len(set(clusters)) == reach
        assert layout.may_join[worker].nonzero()[0].tolist() == sorted(clusters)


@given(grids())
def test_at_home_every_worker_has_one_seat_in_its_own_cluster_and_row(
    layout: Grid,
) -> None:
    assert sorted(layout.home) == list(range(layout.workers))
    for seat, worker in enumerate(layout.home):
        cluster, row = divmod(seat, layout.rows)
        assert (worker % layout.clusters, worker // layout.clusters) == (cluster, row)


def test_common_shifts_are_the_first_and_row_shifts_are_drawn_for_each_row() -> None:
    assert grid(20, 5, 3, "common", 7).shifts == ((0, 1, 2),) * 4
    drawn = grid(20, 5, 3, "row", 7).shifts
    assert len(set(drawn)) > 1
    assert all(row[0] == 0 and 0 < row[1] < row[2] < 5 for row in drawn)
    assert grid(20, 5, 3, "row", 7).shifts == drawn
    assert grid(20, 5, 3, "row", 8).shifts != drawn


def test_who_reaches_all_clusters_reaches_them_with_either_kind_of_shift() -> None:
    assert grid(12, 4, 4, "row", 1).shifts == grid(12, 4, 4, "common", 0).shifts


def test_the_table_of_who_may_join_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        grid(4, 2, 2, "common", 0).may_join[0, 0] = False


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((12, 5, 2, "common", 0), "clusters = 5 must divide workers = 12; try .*6"),
        ((12, 0, 1, "common", 0), "clusters = 0 is out of range"),
        ((12, 13, 1, "common", 0), "clusters = 13 is out of range"),
        ((12, "four", 1, "common", 0), "clusters must be a whole number"),
        ((12, 4, 0, "common", 0), "reach = 0 is out of range"),
        ((12, 4, 5, "common", 0), "reach = 5 is out of range"),
        ((12, 4, 2, "some", 0), "shifts"),
        ((12, 4, 2, "row", -1), "seed = -1 is out of range"),
    ],
)
def test_a_grid_that_cannot_be_says_why(asked: tuple[object, ...], why: str) -> None:
    with pytest.raises(CodedgradError, match=why):
        grid(*asked)  # type: ignore[arg-type]
