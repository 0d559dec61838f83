"""Rows of shared memory: who fills which one, and adding them up."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import codedgrad.engines.host.rows
from codedgrad.codes import from_matrix
from codedgrad.core import ROOT, Coordinator, Segment, StepStarted
from codedgrad.engines import Here, Local
from codedgrad.engines.host.memory_layout import Memory, MemoryShape, Private
from codedgrad.engines.host.rows import _BLOCK, Rows, weighted_sum
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.errors import BrokenPlan, EngineFailed, InvalidOptions
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import CodedScheme
from codedgrad.schemes.stop_rules import Decodable

WORKERS, OPEN = 2, 2
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    shape = MemoryShape.of(VectorLayout(parameters=1, gradient=3), WORKERS, OPEN)
    memory = Memory(Shared(shape.size), shape)
    yield memory
    memory.close()


def segment(id_: int, worker: int, *parts: int) -> Segment:
    return Segment(id_, worker, parts or (id_,), (1.0,) * max(1, len(parts)))


def fill(memory: Memory, row: int, value: float) -> None:
    memory.row(row)[:] = value


def send(rows: Rows, worker: int, message: int, *cuts: tuple[int, int]) -> None:
    rows.expect(message, worker, tuple(id_ for id_, _ in cuts))
    assert rows.sent(worker, message, cuts)


def test_a_worker_has_twice_as_many_rows_as_sums_it_may_hold() -> None:
    shape = MemoryShape.of(VectorLayout(parameters=1, gradient=3), 5, open_segments=3)
    assert shape.rows == 5 * 3 * 2


def test_a_worker_may_hold_eight_sums_unless_told_otherwise() -> None:
    assert Local().capabilities.rows_per_worker == 8
    assert Here().capabilities.rows_per_worker == 8
    assert Local(open_segments=7).capabilities.rows_per_worker == 7


def test_an_engine_without_room_for_a_sum_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="open_segments = 0; try 1 or more"):
        Local(open_segments=0)


def test_a_plan_that_holds_as_many_sums_as_there_is_room_for_is_carried_out() -> None:
    three_each = from_matrix(np.eye(6), 0, owner=(0, 0, 0, 1, 1, 1))
    scheme = CodedScheme("three sums each", three_each, Decodable())
    engine = Local(open_segments=3)
    orders = Coordinator(scheme, engine.capabilities).handle(StepStarted(0, 0.0))
    assert len(orders) == 6 + 1  # and a timer


def test_a_plan_that_holds_one_more_sum_is_broken() -> None:
    four_each = from_matrix(np.eye(8), 0, owner=(0, 0, 0, 0, 1, 1, 1, 1))
    scheme = CodedScheme("four sums each", four_each, Decodable())
    coordinator = Coordinator(scheme, Local(open_segments=3).capabilities)
    with pytest.raises(BrokenPlan, match="is one more than 3 sums"):
        coordinator.handle(StepStarted(0, 0.0))


def test_rows_of_a_worker_are_its_own(memory: Memory) -> None:
    rows = Rows(memory)
    given = [(i % 2, rows.give(segment(i, i % 2))) for i in range(2 * WORKERS * OPEN)]
    assert len({row for _, row in given}) == memory.shape.rows
    assert all(row // (2 * OPEN) == worker for worker, row in given)


def test_what_a_lost_worker_sent_stays_while_its_successor_fills_other_rows(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    for id_, value in ((0, 1.0), (1, 2.0)):
        fill(memory, rows.give(segment(id_, 0)), value)
    send(rows, 0, 10, (0, 1), (1, 1))
    rows.forget(0)
    for id_ in (2, 3):
        fill(memory, rows.give(segment(id_, 0)), -99.0)
    np.testing.assert_array_equal(rows.combine([(10, 1.0)])[:5], np.full(5, 3.0))
    assert rows.rescued == 0


def test_where_no_row_is_free_what_was_sent_is_copied_out(memory: Memory) -> None:
    rows = Rows(memory)
    for life in range(3):
        for id_ in (2 * life, 2 * life + 1):
            fill(memory, rows.give(segment(id_, 0)), 10.0**life)
        send(rows, 0, 10 + life, (2 * life, 1), (2 * life + 1, 1))
        rows.forget(0)
    total = rows.combine([(10, 1.0), (11, 1.0), (12, 1.0)])
    np.testing.assert_array_equal(total[:5], np.full(5, 222.0))
    assert rows.rescued == 2 * OPEN


def test_what_was_not_sent_by_a_lost_worker_is_free_again(memory: Memory) -> None:
    rows = Rows(memory)
    first = [rows.give(segment(id_, 0)) for id_ in range(OPEN)]
    rows.forget(0)
    assert [rows.give(segment(9 + id_, 0)) for id_ in range(OPEN)] == first


def test_a_message_that_was_refused_holds_no_row(memory: Memory) -> None:
    rows = Rows(memory)
    given = []
    for id_ in range(9):  # asked again and again
        given.append(rows.give(segment(id_, 0)))
        rows.refuse(0, ((id_, 1),))
    assert len(set(given)) == 1


def test_a_message_that_was_refused_takes_no_row_from_one_that_was_not(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    fill(memory, rows.give(segment(0, 0)), 5.0)
    send(rows, 0, 10, (0, 1))
    rows.refuse(0, ((0, 1),))
    fill(memory, rows.give(segment(1, 0)), -99.0)
    np.testing.assert_array_equal(rows.combine([(10, 1.0)])[:5], np.full(5, 5.0))


@pytest.mark.parametrize(
    ("worker", "message", "cuts"),
    [
        (0, 10, ((7, 1),)),
        (0, 10, ((0, 1), (7, 1))),
        (0, 10, ((2, 1),)),
        (0, 10, ()),
        (0, 11, ((0, 1),)),
        (0, 99, ((0, 1),)),
        (1, 10, ((0, 1),)),
    ],
)
def test_a_message_that_its_worker_was_not_asked_for_is_refused(
    memory: Memory, worker: int, message: int, cuts: tuple[tuple[int, int], ...]
) -> None:
    rows = Rows(memory)
    rows.give(segment(0, worker=0), message=10)
    rows.give(segment(1, worker=1), message=11)
    rows.give(segment(2, worker=0), message=12)
    assert not rows.sent(worker, message, cuts)
    assert rows.sent(0, message=10, cuts=((0, 1),))


def test_what_is_sent_again_does_not_change_what_was_sent(memory: Memory) -> None:
    rows = Rows(memory)
    fill(memory, rows.give(segment(0, 0, 5, 6), message=10), 3.0)
    rows.sent(0, message=10, cuts=((0, 2),))
    rows.sent(0, message=10, cuts=((0, 0),))
    np.testing.assert_array_equal(rows.combine([(10, 1.0)])[:5], np.full(5, 3.0))


def test_a_segment_that_was_cut_to_nothing_adds_nothing(memory: Memory) -> None:
    rows = Rows(memory)
    fill(memory, rows.give(segment(0, 0)), np.nan)  # begun, and abandoned
    fill(memory, rows.give(segment(1, 0)), 4.0)
    send(rows, 0, 10, (0, 0), (1, 1))
    np.testing.assert_array_equal(rows.combine([(10, 2.0)])[:5], np.full(5, 8.0))


def test_nothing_heard_adds_up_to_nothing(memory: Memory) -> None:
    rows = Rows(memory)
    fill(memory, 0, np.nan)
    np.testing.assert_array_equal(rows.combine([])[:5], np.zeros(5))


def test_messages_are_added_in_the_order_of_their_lowest_part(memory: Memory) -> None:
    values = {0: 1e16, 1: 1.0, 2: -1e16}  # by lowest part; any other order: 1 or 2
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)):
        rows = Rows(memory)
        for id_, part in enumerate(order):
            worker = id_ % 2
            row = rows.give(segment(id_, worker, part + 3, part))
            fill(memory, row, values[part])
            send(rows, worker, 10 + id_, (id_, 2))
        total = rows.combine([(10 + id_, 1.0) for id_ in range(3)])
        np.testing.assert_array_equal(total[:5], np.zeros(5), err_msg=str(order))


# -- any sequence at all ---------------------------------------------------------------


@dataclass
class Model:
    """What the rows should be, told by somebody who never reuses anything."""

    memory: Memory
    rows: Rows = field(init=False)
    held: list[list[int]] = field(init=False)  # worker -> segments, as plans count
    unsent: list[list[int]] = field(init=False)
    row: dict[int, int] = field(init=False)
    next_id: int = 0

    def __post_init__(self) -> None:
        self.rows = Rows(self.memory)
        self.begin()

    def begin(self) -> None:
        self.rows.begin()
        self.held = [[] for _ in range(WORKERS)]
        self.unsent = [[] for _ in range(WORKERS)]
        self.row = {}
        self.sums: dict[int, float] = {}  # message -> value
        self.value: dict[int, float] = {}  # segment -> value

    def give(self, worker: int) -> None:
        if len(self.held[worker]) == OPEN:
            return  # a plan that did would be broken
        id_, self.next_id = self.next_id, self.next_id + 1
        row = self.rows.give(segment(id_, worker))
        busy = [self.row[i] for ids in self.unsent for i in ids]
        assert row not in busy
        self.held[worker].append(id_)
        self.unsent[worker].append(id_)
        self.row[id_], self.value[id_] = row, float(id_ + 1)
        fill(self.memory, row, self.value[id_])

    def send(self, worker: int, count: int) -> None:
        ids = self.unsent[worker][:count]
        if ids:
            del self.unsent[worker][:count]
            message, self.next_id = self.next_id, self.next_id + 1
            send(self.rows, worker, message, *((id_, 1) for id_ in ids))
            self.sums[message] = sum(self.value[i] for i in ids)

    def lose(self, worker: int) -> None:
        self.rows.forget(worker)
        self.held[worker], self.unsent[worker] = [], []

    def check(self) -> None:
        weights = [(message, 1.0 + message % 3) for message in self.sums]
        expected = sum(a * self.sums[message] for message, a in weights)
        np.testing.assert_array_equal(
            self.rows.combine(weights)[:5], np.full(5, expected)
        )


WORKER = st.integers(0, WORKERS - 1)
ACTS = st.one_of(
    st.tuples(st.just("give"), WORKER),
    st.tuples(st.just("give"), WORKER),
    st.tuples(st.just("send"), WORKER, st.integers(1, OPEN)),
    st.tuples(st.just("lose"), WORKER),
    st.tuples(st.just("begin")),
)


@given(st.lists(ACTS, max_size=60))
def test_whoever_sends_and_dies_no_row_in_use_is_given_out_and_no_sum_is_lost(
    memory: Memory, acts: list[tuple[object, ...]]
) -> None:
    model = Model(memory)
    for name, *arguments in acts:
        getattr(model, str(name))(*arguments)
        model.check()


# -- adding up -------------------------------------------------------------------------

WIDTH = _BLOCK // 8  # numbers in a block
LENGTH = 2 * WIDTH + 5001  # three blocks, the last one short
SOME = [0, 1, WIDTH - 1, WIDTH, 2 * WIDTH - 1, 2 * WIDTH, LENGTH - 1]
TABLE = np.random.default_rng(0).standard_normal((9, LENGTH))


def added(rows: list[int | Floats], weights: list[float]) -> Floats:
    """Add up in plain Python, number by number."""
    arrays = [TABLE[row] if isinstance(row, int) else row for row in rows]
    pairs = list(zip(weights, arrays, strict=True))
    return np.array([sum(w * float(array[i]) for w, array in pairs) for i in SOME])


@pytest.mark.parametrize(
    ("rows", "weights"),
    [
        ([], []),
        ([3], [1.0]),
        ([3], [-2.5]),
        ([0, 1, 2, 3], [1.0] * 4),
        ([8, 2, 5], [1.0] * 3),
        ([0, 1, 2, 3], [0.5, -1.0, 2.0, 1.0]),
        ([1, 2, 3, 7, 8], [0.1, 0.2, 0.3, 0.4, 0.5]),
        ([8, 2, 5], [0.1, 0.2, 0.3]),
        ([4, 3, 2], [0.1, 0.2, 0.3]),
        ([2, TABLE[7].copy(), 3, 4], [1.0, 1.0, 1.0, 1.0]),
        ([2, TABLE[7].copy(), 3, 4], [0.5, 2.0, -1.0, 3.0]),
        ([TABLE[7].copy()], [2.0]),
    ],
    ids=[
        "nothing", "one", "one weighed", "a run of ones", "ones", "a run", "two runs",
        "singles", "backwards", "a copy and ones", "a copy and runs", "a copy",
    ],
)  # fmt: skip
def test_rows_are_added_up_as_by_hand(
    rows: list[int | Floats], weights: list[float]
) -> None:
    out = np.full(LENGTH, np.nan)
    weighted_sum(TABLE, rows, weights, out)
    np.testing.assert_allclose(out[SOME], added(rows, weights), rtol=1e-13, atol=1e-13)
    full = np.zeros(LENGTH)
    for row, weight in zip(rows, weights, strict=True):
        full += weight * (TABLE[row] if isinstance(row, int) else row)
    np.testing.assert_allclose(out, full, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_however_many_threads_add_up_the_bits_are_the_same(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()
    plain = codedgrad.engines.host.rows._add_plain

    def watched(rows: list[Floats], out: Floats) -> None:
        threads.add(threading.get_ident())
        plain(rows, out)

    rows: list[int | Floats] = [*range(9)]
    wanted, out = np.empty(LENGTH), np.full(LENGTH, np.nan)
    weighted_sum(TABLE, rows, [1.0] * 9, wanted)
    monkeypatch.setattr("codedgrad.engines.host.rows._add_plain", watched)
    monkeypatch.setattr("codedgrad.engines.host.rows._WORTHWHILE", TABLE.nbytes // 3)
    monkeypatch.setattr("codedgrad.engines.host.rows._BLOCK", 8000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    weighted_sum(TABLE, rows, [1.0] * 9, out)
    assert out.tobytes() == wanted.tobytes()
    assert len(threads) <= min(3, cores)  # a third of it is worth a thread
    assert (len(threads) > 1) == (cores > 1)


def test_what_goes_wrong_in_another_thread_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("codedgrad.engines.host.rows._WORTHWHILE", TABLE.nbytes // 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    table = TABLE.copy()
    table[:, WIDTH + 1] = 1e308  # in the second block
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        weighted_sum(table, [*range(9)], [1.0] * 9, np.empty(LENGTH))


def test_ones_give_the_same_bits_wherever_the_rows_lie() -> None:
    values = np.random.default_rng(1).standard_normal((4, LENGTH))
    sums = []
    for places in ([0, 1, 2, 3], [8, 2, 5, 0], [1, 2, 7, 8], [3, None, 4, None]):
        table, rows = np.full((9, LENGTH), np.nan), list[int | Floats]()
        for value, place in zip(values, places, strict=True):
            if place is None:
                rows.append(value.copy())
            else:
                table[place] = value
                rows.append(place)
        sums.append(np.empty(LENGTH))
        weighted_sum(table, rows, [1.0] * 4, sums[-1])
    assert all(sum_.tobytes() == sums[0].tobytes() for sum_ in sums)


def test_a_row_that_is_not_asked_for_spoils_nothing() -> None:
    table = TABLE.copy()
    table[3] = np.nan
    out = np.empty(LENGTH)
    weighted_sum(table, [2, 4, 5], [0.5, 0.25, 2.0], out)
    assert np.isfinite(out).all()


def test_single_precision_stays_single() -> None:
    table = TABLE.astype(np.float32)
    out = np.empty(LENGTH, np.float32)
    weighted_sum(table, [0, 1, 4], [0.5, 0.25, 2.0], out)
    expected = 0.5 * table[0] + 0.25 * table[1] + 2.0 * table[4]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


# -- sums of other hosts ---------------------------------------------------------------


def elsewhere(places: int = 1, inbox: int = 0) -> Rows:
    """Return the book of a root without workers: 0 and 2 on host 1, 1 on host 2."""
    layout = VectorLayout(parameters=1, gradient=3)
    shape = MemoryShape.of(layout, 0, 1)
    shape = msgspec.structs.replace(shape, places=places)
    memory = Memory(Private(shape.size), shape)
    return Rows(memory, [(1, 0), (2, 0), (1, 1)], inbox)


def test_rows_are_numbered_by_the_place_of_their_worker_on_its_host() -> None:
    rows = elsewhere(places=2)
    given = [rows.give(Segment(i, i % 3, (i,), (1.0,))) for i in range(6)]
    assert given == [0, 0, 2, 1, 1, 3]
    assert [rows.host_of(worker) for worker in (0, 1, 2, ROOT)] == [1, 2, 1, 0]


def test_the_row_of_a_sum_that_has_come_is_given_out_again_when_none_is_free() -> None:
    rows = elsewhere()
    rows.give(Segment(0, 1, (0,), (1.0,)), message=0)
    assert rows.leave(1, ((0, 1),)) == (0,)
    rows.arrived(0, (np.arange(9.0),))
    rows.sent(1, 0, ((0, 1),))
    with pytest.raises(EngineFailed, match="has no room left for a sum in this step"):
        rows.give(Segment(1, 1, (1,), (1.0,)))  # the row is still being read
    rows.left(1, (0,))
    assert rows.give(Segment(1, 1, (1,), (1.0,))) == 0
    assert rows.rescued == 1
    np.testing.assert_array_equal(rows.combine([(0, 2.0)])[:5], 2.0 * np.arange(5.0))


def test_a_row_that_another_message_will_have_is_not_given_out_again() -> None:
    rows = elsewhere()
    rows.give(Segment(0, 0, (0,), (1.0,)), message=0)
    rows.expect(7, 0, (0,))
    rows.arrived(0, (np.arange(5.0),))
    rows.sent(0, 0, ((0, 1),))
    with pytest.raises(EngineFailed, match="has no room left for a sum in this step"):
        rows.give(Segment(1, 0, (1,), (1.0,)))


def test_a_row_that_is_being_sent_is_taken_whatever_becomes_of_its_step() -> None:
    rows = elsewhere(places=2)
    rows.give(Segment(0, 0, (0,), (1.0,)), message=0)
    rows.leave(0, ((0, 1),))
    rows.begin()
    assert rows.give(Segment(0, 0, (0,), (1.0,))) == 1
    rows.left(0, (0,))
    assert rows.give(Segment(1, 0, (1,), (1.0,))) == 0


def test_a_worker_gathers_from_the_inbox_of_its_host_and_from_rows_there() -> None:
    """Worker 2 reads from worker 0 where it is, and from worker 1 what was sent."""
    rows = elsewhere(places=2, inbox=2)
    for worker in (0, 1):
        segment = Segment(worker, worker, (worker,), (1.0,))
        rows.give(segment, message=10 + worker, to=2)
    rows.sent(0, 10, ((0, 1),))
    room = rows.room(2)
    assert room == 4  # behind the rows of both workers
    assert rows.room(2) == 5
    with pytest.raises(EngineFailed, match="no room left for what it is sent"):
        rows.room(2)
    rows.filled(2, 5)
    rows.delivered(11, 2, room)
    rows.filled(2, room)
    rows.sent(1, 11, ((1, 1),))
    assert rows.gathered([(10, 0.5), (11, 2.0)]) == ((0, 0.5), (4, 2.0))
    assert rows.room(2) == 5  # what was delivered stays
    rows.forget(2)  # it is lost, and what it was sent with it
    assert (rows.reader(10), rows.reader(11)) == (None, None)
    assert rows.room(2) == 4


def test_sums_of_all_hosts_are_added_in_the_order_of_their_lowest_parts() -> None:
    layout = VectorLayout(parameters=1, gradient=3)
    shape = MemoryShape.of(layout, 1, 1, elsewhere=1)
    memory = Memory(Private(shape.size), shape)
    rows = Rows(memory, [(0, 0), (1, 0)])
    row = rows.give(Segment(0, 0, (1,), (1.0,)), message=0)
    rows.give(Segment(1, 1, (0,), (1.0,)), message=1)
    memory.row(row)[:] = 1e16
    rows.sent(0, 0, ((0, 1),))
    rows.arrived(1, (np.full(9, 1.0),))
    rows.sent(1, 1, ((1, 1),))
    expected = np.full(3, 1.0) * -3.0 + 1e16  # the far one has the lower part
    np.testing.assert_array_equal(rows.combine([(0, 1.0), (1, -3.0)])[:3], expected)
    assert rows.compare([1, 0], 3) == ((0, 0, 3e32), (0, 1, 3e16), (1, 1, 3.0))
