"""When a step could end: against every assignment there is, and against max-flow."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from codedgrad.schemes.auto.earliest_end import level, level_on_ring, room, trimmed

NONE = np.zeros(0)
NOBODY = np.zeros(0, dtype=np.intp)

moments = st.integers(0, 12).map(lambda quarters: quarters / 4)
paces = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 3.0])


@st.composite
def stands(draw: st.DrawFn, most: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Draw when each worker is free, and its pace; some are not there."""
    n = draw(st.integers(1, most))
    free = draw(st.lists(moments, min_size=n, max_size=n))
    pace = draw(st.lists(paces, min_size=n, max_size=n))
    gone = draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    return (
        np.array([math.inf if w in gone else free[w] for w in range(n)]),
        np.array(pace),
    )


def subsets(count: int) -> list[tuple[int, ...]]:
    return [
        some for size in range(count + 1) for some in combinations(range(count), size)
    ]


def earliest(
    free: np.ndarray,
    pace: np.ndarray,
    waiting: int,
    under_way: list[float],
    most: float,
) -> float:
    """Try every choice of copies, and every way to share what is to be done."""
    best = math.inf
    n = len(free)
    for copied in subsets(len(under_way)):
        kept = [end for j, end in enumerate(under_way) if j not in copied]
        total = waiting + len(copied)
        for loads in product(range(min(total, int(min(most, total))) + 1), repeat=n):
            if sum(loads) != total:
                continue
            ends = [
                float(free[w] + load * pace[w]) for w, load in enumerate(loads) if load
            ]
            best = min(best, max([float(free.min()), *kept, *ends]))
    return best


# -- everybody may be asked for everything ---------------------------------------------


@pytest.mark.hypothesis
@settings(max_examples=60)
@given(
    stands(),
    st.integers(0, 4),
    st.lists(moments, max_size=2),
    st.sampled_from([1.0, 2.0, math.inf]),
)
def test_no_assignment_ends_sooner_than_the_level(
    stand: tuple[np.ndarray, np.ndarray],
    waiting: int,
    under_way: list[float],
    most: float,
) -> None:
    free, pace = stand
    found = level(free, pace, waiting, np.array(under_way), most)
    best = earliest(free, pace, waiting, under_way, most)
    if math.isinf(best):
        assert math.isinf(found.end)
        assert found.room.tolist() == [0] * len(free)
        assert not found.late.any()
        return
    assert found.end == pytest.approx(best, abs=1e-5)
    assert found.late.tolist() == [end > found.end for end in under_way]
    assert found.room.sum() >= waiting + np.count_nonzero(found.late)
    assert (found.room <= most).all()
    for worker, load in enumerate(found.room.tolist()):
        assert not load or free[worker] + load * pace[worker] <= found.end + 1e-5


def test_a_part_under_way_that_ends_late_is_done_once_more() -> None:
    """One who is free at 0 does it by 1; the one who is at it would take until 9."""
    found = level(np.array([0.0, 9.0]), np.ones(2), 0, np.array([9.0, 0.5]))
    assert found.end == pytest.approx(1.0)
    assert found.late.tolist() == [True, False]
    assert found.room.tolist() == [1, 0]


def test_a_part_under_way_that_ends_in_time_is_left_alone() -> None:
    found = level(np.array([1.0, 1.5]), np.ones(2), 0, np.array([1.5]))
    assert found.end == pytest.approx(1.5)
    assert not found.late.any()


def test_nobody_can_be_given_more_than_most() -> None:
    free, pace = np.zeros(2), np.array([1.0, 5.0])
    assert level(free, pace, 4, NONE).room.tolist() == [4, 0]
    capped = level(free, pace, 4, NONE, np.array([2.0, np.inf]))
    assert capped.end == pytest.approx(10.0)
    assert capped.room.tolist() == [2, 2]
    assert math.isinf(level(free, pace, 4, NONE, np.array([2.0, 1.0])).end)


@pytest.mark.hypothesis
@settings(max_examples=40)
@given(stands(), st.integers(1, 4), st.lists(moments, max_size=2), st.booleans())
def test_an_end_that_is_too_late_is_none(
    stand: tuple[np.ndarray, np.ndarray],
    waiting: int,
    under_way: list[float],
    is_late: bool,
) -> None:
    free, pace = stand
    ends = np.array(under_way)
    whole = level(free, pace, waiting, ends)
    before = whole.end + (-0.01 if is_late else 0.01)
    found = level(free, pace, waiting, ends, before=before)
    if is_late:
        assert math.isinf(found.end)
        assert not found.room.any()
        assert not found.late.any()
    else:
        assert found.end == pytest.approx(whole.end, abs=1e-5)
        assert found.room.tolist() == whole.room.tolist()


def test_where_nobody_is_free_there_is_no_end() -> None:
    never = np.full(3, np.inf)
    for found in (
        level(never, np.ones(3), 2, np.array([1.0])),
        level_on_ring(
            never, np.ones(3), np.array([1, 0, 0]), np.array([1.0]), np.array([2]), 2
        ),
    ):
        assert math.isinf(found.end)
        assert found.room.tolist() == [0, 0, 0]
        assert found.late.tolist() == [False]


def test_what_takes_a_billion_steps_of_the_fastest_is_found() -> None:
    """The fastest is worth nothing here: it is not free before long."""
    free, pace = np.array([1e6, 0.0]), np.array([1e-6, 10.0])
    assert level(free, pace, 3, NONE).end == pytest.approx(30.0)


def test_rounding_does_not_lose_a_part() -> None:
    """Three parts of 0.1 end at 0.3, which is less than three times 0.1."""
    assert room(0.3, np.zeros(1), np.array([0.1]), np.array([np.inf])) == [3.0]
    assert room(0.299, np.zeros(1), np.array([0.1]), np.array([np.inf])) == [2.0]


# -- a ring ----------------------------------------------------------------------------


def fits(needs: np.ndarray, rooms: np.ndarray, copies: int) -> bool:
    """See whether all parts find room with those who hold them: a maximum flow."""
    n = len(needs)
    capacity = np.zeros((2 * n + 2, 2 * n + 2), dtype=np.int32)
    capacity[0, 1 : n + 1] = needs
    capacity[n + 1 : -1, -1] = rooms
    for owner in range(n):
        for back in range(copies):
            capacity[1 + owner, n + 1 + (owner - back) % n] = 1000
    flow = maximum_flow(csr_array(capacity), 0, 2 * n + 1)
    return int(flow.flow_value) == int(needs.sum())


def earliest_on_ring(
    free: np.ndarray,
    pace: np.ndarray,
    waiting: np.ndarray,
    under_way: list[float],
    owners: list[int],
    copies: int,
    most: float,
) -> float:
    """Try all moments at which anything changes, the earliest first."""
    there = np.isfinite(free)
    total = int(waiting.sum()) + len(under_way)
    ends = {float(free.min()), *under_way}
    for worker in np.flatnonzero(there):
        for load in range(1, total + 1):
            ends.add(float(free[worker] + load * pace[worker]))
    for end in sorted(ends):
        if end < free.min():
            continue
        needs = waiting.copy()
        for owner, moment in zip(owners, under_way, strict=True):
            needs[owner] += moment > end
        rooms = np.zeros(len(free))
        rooms[there] = np.maximum(np.floor((end - free[there]) / pace[there]), 0)
        if fits(needs, np.minimum(rooms, min(most, 1000)), copies):
            return end
    return math.inf


@st.composite
def rings(draw: st.DrawFn) -> tuple:
    free, pace = draw(stands(most=6))
    n = len(free)
    waiting = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    under_way = draw(st.lists(moments, max_size=3))
    owners = draw(
        st.lists(
            st.integers(0, n - 1), min_size=len(under_way), max_size=len(under_way)
        )
    )
    copies = draw(st.integers(1, n))
    most = draw(st.sampled_from([2.0, 3.0, math.inf]))
    return free, pace, np.array(waiting), under_way, owners, copies, most


@pytest.mark.hypothesis
@settings(max_examples=50)
@given(rings())
def test_no_flow_ends_sooner_than_the_level_on_a_ring(ring: tuple) -> None:
    free, pace, waiting, under_way, owners, copies, most = ring
    found = level_on_ring(
        free,
        pace,
        waiting,
        np.array(under_way),
        np.array(owners, dtype=np.intp),
        copies,
        most,
    )
    best = earliest_on_ring(free, pace, waiting, under_way, owners, copies, most)
    if math.isinf(best):
        assert found.end > 1e12  # see the next test
        return
    assert found.end == pytest.approx(best, abs=1e-5)
    assert found.late.tolist() == [end > found.end for end in under_way]
    needs = waiting + np.bincount(
        np.array(owners, dtype=np.intp)[found.late], minlength=len(free)
    )
    assert fits(needs, found.room, copies)


def test_a_part_that_nobody_holds_who_is_there_has_no_end() -> None:
    free, pace = np.array([np.inf, np.inf, 0.0, 0.0]), np.full(4, 0.25)
    found = level_on_ring(free, pace, np.array([0, 1, 0, 0]), NONE, NOBODY, 1)
    assert math.isinf(found.end)


@pytest.mark.hypothesis
@settings(max_examples=30)
@given(rings())
def test_a_ring_on_which_everybody_holds_everything_is_none(ring: tuple) -> None:
    free, pace, waiting, under_way, owners, _, most = ring
    ends = np.array(under_way)
    everywhere = level(free, pace, int(waiting.sum()), ends, most)
    on_ring = level_on_ring(
        free, pace, waiting, ends, np.array(owners, dtype=np.intp), len(free), most
    )
    assert on_ring.end == pytest.approx(everywhere.end, abs=1e-5)
    assert on_ring.room.tolist() == everywhere.room.tolist()
    assert on_ring.late.tolist() == everywhere.late.tolist()


def test_help_comes_from_those_before_an_owner_and_not_from_those_after() -> None:
    """Parts of worker 2; 1 holds them too, and 3 does not."""
    free, pace = np.array([9.0, 0.0, 9.0, 0.0]), np.ones(4)
    waiting = np.array([0, 0, 2, 0])
    found = level_on_ring(free, pace, waiting, NONE, NOBODY, 2)
    assert found.end == pytest.approx(2.0)
    free[[1, 3]] = 9.0, 0.0
    assert level_on_ring(free, pace, waiting, NONE, NOBODY, 2).end == pytest.approx(
        10.0
    )


def test_two_late_owners_cannot_both_count_on_the_one_between() -> None:
    free = np.array([0.0, 0.0, 9.0, 9.0, 0.0])
    four = np.array([0, 0, 2, 2, 0])
    found = level_on_ring(free, np.ones(5), four, NONE, NOBODY, 2)
    assert found.end == pytest.approx(10.0)  # 1 does two, one each for 2 and 3
    both = level_on_ring(free, np.ones(5), four, NONE, NOBODY, 3)
    assert both.end == pytest.approx(2.0)  # 0 and 1 do two each


def test_a_ring_has_an_end_that_is_too_late_as_well() -> None:
    free, pace, waiting = np.zeros(3), np.ones(3), np.array([2, 0, 0])
    for before, end in ((0.9, math.inf), (1.1, 1.0)):
        found = level_on_ring(free, pace, waiting, NONE, NOBODY, 2, before=before)
        assert found.end == pytest.approx(end)


# -- what is too much ------------------------------------------------------------------


@pytest.mark.hypothesis
@settings(max_examples=60)
@given(stands(), st.integers(1, 5))
def test_what_is_trimmed_adds_up_and_ends_no_later(
    stand: tuple[np.ndarray, np.ndarray], total: int
) -> None:
    free, pace = stand
    found = level(free, pace, total, NONE)
    loads = trimmed(found.room, free, pace, total)
    assert loads.sum() == total
    assert (loads >= 0).all()
    assert (loads <= found.room).all()
    ends = [free[w] + load * pace[w] for w, load in enumerate(loads) if load]
    assert max(ends) <= earliest(free, pace, total, [], math.inf) + 1e-5


def test_trimming_leaves_the_rooms_as_they_were() -> None:
    rooms = np.array([2, 2, 2])
    assert trimmed(rooms, np.zeros(3), np.array([1.0, 1.0, 0.5]), 5).tolist() == [
        1,
        2,
        2,
    ]
    assert rooms.tolist() == [2, 2, 2]


def test_trimming_what_fits_changes_nothing() -> None:
    assert trimmed(np.array([3, 1]), np.zeros(2), np.ones(2), 4).tolist() == [3, 1]
    assert trimmed(np.array([3, 1]), np.zeros(2), np.ones(2), 9).tolist() == [3, 1]
