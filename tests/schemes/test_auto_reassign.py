"""Which parts change hands: none is lost, few move, and only to who holds them."""

import math
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedgrad.schemes.auto.reassign import PartLayout

EVERYWHERE = PartLayout(workers=3, parts=12, copies=3)
RING = PartLayout(workers=4, parts=8, copies=2)


def relisted(
    layout: PartLayout,
    queues: list[list[int]],
    rooms: list[int],
    *,
    orphans: tuple[int, ...] = (),
    copies: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
    free: tuple[float, ...] | None = None,
    pace: tuple[float, ...] | None = None,
    stuck: tuple[int, ...] | None = None,
) -> list[list[int]]:
    n = layout.workers
    return layout.relisted(
        queues,
        orphans,
        copies,
        last,
        rooms,
        np.array(free or (0.0,) * n),
        np.array(pace or (1.0,) * n),
        stuck or (0,) * n,
    )


# -- who holds what --------------------------------------------------------------------


def test_everybody_owns_a_block_and_may_be_asked_for_everything() -> None:
    assert EVERYWHERE.blocks == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    assert EVERYWHERE.placement == (tuple(range(12)),) * 3
    assert EVERYWHERE.everywhere


def test_on_a_ring_those_before_an_owner_hold_its_parts() -> None:
    assert not RING.everywhere
    assert RING.placement == ((0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7), (0, 1, 6, 7))
    assert [RING.holders(part) for part in (0, 1, 2, 7)] == [
        [0, 3],
        [0, 3],
        [1, 0],
        [3, 2],
    ]
    assert [RING.owner(part) for part in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("copies", range(1, 6))
def test_holders_are_those_with_whom_a_part_is_placed(copies: int) -> None:
    layout = PartLayout(workers=5, parts=15, copies=copies)
    for part in range(15):
        holders = layout.holders(part)
        assert holders[0] == layout.owner(part)
        assert len(set(holders)) == copies
        placed = {w for w, parts in enumerate(layout.placement) if part in parts}
        assert set(holders) == placed


def test_the_level_of_a_layout_knows_who_holds_what() -> None:
    free, pace = np.array([9.0, 9.0, 9.0, 0.0]), np.ones(4)
    waiting, under_way, ends = [0, 1], [6, 2], [8.0, 0.5]
    found = RING.level(free, pace, waiting, under_way, ends)  # 3 holds 0, 1, 6, 7
    assert found.end == pytest.approx(3.0)
    assert found.late.tolist() == [True, False]
    same = PartLayout(4, 8, 4).level(free, pace, waiting, under_way, ends)
    assert same.end == pytest.approx(3.0)
    of_another = RING.level(free, pace, [2, 3], under_way, ends)
    assert of_another.end == pytest.approx(10.0)  # 0 and 1 hold them
    most = np.array([math.inf, math.inf, math.inf, 1.0])
    capped = RING.level(free, pace, waiting, under_way, ends, most)
    assert capped.end == pytest.approx(10.0)
    assert math.isinf(RING.level(free, pace, waiting, under_way, ends, before=2.9).end)


# -- what always holds -----------------------------------------------------------------


@st.composite
def lists(draw: st.DrawFn) -> tuple:
    """Draw queues as they may be, what nobody has, and who is there."""
    n = draw(st.integers(1, 5))
    layout = PartLayout(n, draw(st.integers(1, 3 * n)), draw(st.integers(1, n)))
    gone = draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    queues: list[list[int]] = [[] for _ in range(n)]
    out: tuple[list[int], ...] = ([], [], [])  # orphans, copies, last
    for part in draw(st.permutations(range(layout.parts))):
        where = draw(st.sampled_from([*layout.holders(part), -1, -2, -3, -4]))
        if where >= 0 and where not in gone:
            queues[where].append(part)
        elif where > -4:  # else it is done
            out[max(0, -1 - where)].append(part)
    stuck = [draw(st.integers(0, len(queue))) for queue in queues]
    free = [math.inf if w in gone else draw(st.integers(0, 8)) / 2 for w in range(n)]
    pace = [draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in range(n)]
    return layout, queues, out, np.array(free), np.array(pace), stuck


@pytest.mark.hypothesis
@settings(max_examples=60)
@given(lists(), st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_no_part_is_lost_or_doubled_and_only_holders_get_parts(
    case: tuple, rooms: list[int]
) -> None:
    layout, queues, (orphans, *others), free, pace, stuck = case
    before = [list(queue) for queue in queues]
    found = layout.relisted(queues, orphans, *others, rooms, free, pace, stuck)
    assert queues == before
    now = Counter(chain(*found))
    assert max(now.values(), default=1) == 1
    must = {
        part
        for part in orphans
        if any(free[w] < math.inf for w in layout.holders(part))
    }
    assert must.union(*queues) <= now.keys()  # copies only where there is room
    assert now.keys() <= must.union(*queues, *others)
    for worker, queue in enumerate(found):
        assert set(queue) <= set(layout.placement[worker])
        assert queue[: stuck[worker]] == queues[worker][: stuck[worker]]
        assert free[worker] < math.inf or not queue


@pytest.mark.hypothesis
@settings(max_examples=60)
@given(lists())
def test_where_the_level_finds_room_everybody_keeps_to_its_own(case: tuple) -> None:
    layout, queues, out, free, pace, _ = case
    waiting = [*chain(*queues), *chain(*out)]
    level = layout.level(free, pace, waiting, [], [])
    if level.end > 1e12:
        assert any(all(free[w] == math.inf for w in layout.holders(p)) for p in waiting)
        return
    stuck = [0] * layout.workers
    rooms = level.room.tolist()
    found = layout.relisted(queues, *out, rooms, free, pace, stuck)
    assert sorted(chain(*found)) == sorted(waiting)
    assert all(len(queue) <= rooms[w] for w, queue in enumerate(found))


@pytest.mark.hypothesis
@settings(max_examples=40)
@given(lists())
def test_lists_that_fit_stay_as_they_are(case: tuple) -> None:
    layout, queues, _, free, pace, stuck = case
    rooms = [len(queue) for queue in queues]
    assert layout.relisted(queues, (), (), (), rooms, free, pace, stuck) == queues


# -- where everybody may be asked for everything ---------------------------------------


def test_what_is_too_much_is_taken_from_the_end_and_added_at_the_end() -> None:
    queues = [[0, 1], [4, 5, 6, 7], [8, 9]]
    assert relisted(EVERYWHERE, queues, [4, 2, 2]) == [[0, 1, 7, 6], [4, 5], [8, 9]]


def test_parts_go_to_who_would_be_through_first() -> None:
    queues = [[], [4, 5, 6, 7], []]
    found = relisted(EVERYWHERE, queues, [3, 1, 3], free=(0.0, 0.0, 1.5))
    assert found == [[7, 6], [4], [5]]  # through at 1, 2, and 2.5 before 3
    quick = relisted(EVERYWHERE, queues, [3, 1, 3], pace=(1.0, 1.0, 0.4))
    assert quick == [[5], [4], [7, 6]]  # at 0.4 and 0.8, and 1 before 1.2


def test_a_part_that_several_would_be_through_with_goes_to_the_first_of_them() -> None:
    assert relisted(EVERYWHERE, [[], [], []], [1, 1, 1], orphans=(9,)) == [[9], [], []]


def test_copies_go_first_and_what_can_wait_goes_last() -> None:
    """Between them what nobody has, and then what others have too much."""
    queues = [[], [4, 5, 6], []]
    found = relisted(
        EVERYWHERE, queues, [5, 1, 0], orphans=(0,), copies=(9,), last=(8,)
    )
    assert found == [[9, 0, 6, 5, 8], [4], []]


def test_copies_and_what_can_wait_are_left_out_where_there_is_no_room() -> None:
    queues = [[], [4], []]
    found = relisted(EVERYWHERE, queues, [0, 1, 0], copies=(9,), last=(8,))
    assert found == queues
    found = relisted(RING, [[], [], [], []], [0, 0, 0, 0], copies=(4,), last=(2,))
    assert found == [[], [], [], []]


def test_stuck_parts_stay_though_there_is_no_room() -> None:
    queues = [[], [4, 5, 6, 7], []]
    found = relisted(EVERYWHERE, queues, [9, 0, 0], stuck=(0, 3, 0))
    assert found == [[7], [4, 5, 6], []]


def test_where_there_is_no_room_left_somebody_gets_more_than_that() -> None:
    """Whoever would be through first; nobody who is not there."""
    free = (math.inf, 2.0, 1.0)
    found = relisted(EVERYWHERE, [[], [], []], [0, 0, 1], orphans=(0, 1, 2), free=free)
    assert found == [[], [1], [0, 2]]  # room for one; then at 3 and at 3
    nobody = (math.inf,) * 3
    assert (
        relisted(EVERYWHERE, [[]] * 3, [1] * 3, orphans=(0,), free=nobody) == [[]] * 3
    )


# -- a ring ----------------------------------------------------------------------------


def test_a_part_goes_straight_to_who_holds_it_and_has_room() -> None:
    queues = [[], [2, 3], [4], [6]]
    assert relisted(RING, queues, [1, 1, 1, 1]) == [[3], [2], [4], [6]]


def test_parts_are_handed_on_where_those_who_hold_them_have_no_room() -> None:
    """2 has too much; 1 takes one of it and hands one of its own on to 0."""
    queues = [[], [2, 3], [4, 5], [6, 7]]
    assert relisted(RING, queues, [1, 2, 1, 2]) == [[3], [2, 5], [4], [6, 7]]


def test_a_chain_may_go_all_the_way_round() -> None:
    """What 3 has too much goes to 2, and so on until 0 has room."""
    queues = [[0], [2, 3], [4, 5], [6, 7]]
    assert relisted(RING, queues, [2, 2, 2, 1]) == [[0, 3], [2, 5], [4, 7], [6]]


def test_the_shortest_chain_is_taken() -> None:
    """Both 0, far away, and 1, next to it, have room for what 2 has too much."""
    queues = [[], [2], [4, 5], [6, 7]]
    assert relisted(RING, queues, [2, 2, 1, 2]) == [[], [2, 5], [4], [6, 7]]


def test_of_several_with_room_the_first_to_be_through_gets_a_part() -> None:
    three = PartLayout(workers=4, parts=8, copies=3)
    queues = [[], [], [4, 5], []]
    assert relisted(three, queues, [1, 1, 1, 1], free=(0.0, 0.5, 0.0, 0.0)) == [
        [5],
        [],
        [4],
        [],
    ]


def test_what_nobody_had_moves_others_aside() -> None:
    """Part 5 may be asked of 2, which has no room, and of 1, which hands one on."""
    queues = [[], [2, 3], [4], []]
    found = relisted(RING, queues, [1, 2, 1, 0], orphans=(5,))
    assert found == [[3], [2, 5], [4], []]


def test_what_can_wait_goes_last_on_a_ring_too() -> None:
    queues: list[list[int]] = [[], [], [], []]
    found = relisted(RING, queues, [0, 3, 0, 0], orphans=(4,), copies=(3,), last=(2,))
    assert found == [[], [4, 3, 2], [], []]


def test_stuck_parts_are_not_handed_on_along_a_ring() -> None:
    queues = [[], [2, 3], [4, 5], []]
    stuck = (0, 2, 0, 0)
    # 1 cannot hand anything on, so 2 keeps what it has too much
    assert relisted(RING, queues, [1, 2, 1, 0], stuck=stuck) == queues
    stuck = (0, 1, 0, 0)
    assert relisted(RING, queues, [1, 2, 1, 0], stuck=stuck) == [[3], [2, 5], [4], []]


def test_nothing_is_handed_to_who_is_not_there() -> None:
    queues = [[], [], [4, 5], []]
    free = (0.0, math.inf, 0.0, 0.0)
    assert relisted(RING, queues, [2, 2, 1, 2], free=free) == queues


def test_a_part_of_which_all_holders_are_gone_is_in_no_list() -> None:
    free = (0.0, math.inf, math.inf, 0.0)
    assert (
        relisted(RING, [[], [], [], []], [4] * 4, orphans=(4,), free=free) == [[]] * 4
    )


def test_where_there_is_no_room_a_holder_gets_a_part_all_the_same() -> None:
    """The one who would be through first."""
    queues = [[], [2], [4], []]
    assert relisted(RING, queues, [0] * 4, orphans=(5,), pace=(1.0, 1.0, 0.5, 1.0)) == [
        [],
        [2],
        [4, 5],
        [],
    ]


def test_what_can_wait_goes_after_what_others_have_too_much_on_a_ring() -> None:
    queues = [[], [], [4, 5], []]
    assert relisted(RING, queues, [0, 3, 1, 0], last=(2,)) == [[], [5, 2], [4], []]


def test_a_copy_does_not_go_to_who_has_too_much_already() -> None:
    """Worker 3, which may well be the one that is late with part 6."""
    queues = [[], [], [], [1]]
    assert relisted(RING, queues, [1, 0, 0, 0], copies=(6,)) == [[1], [], [], []]
