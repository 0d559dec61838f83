"""Sums that workers gather from each other: rows, workers, and engines that do it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pytest

from codedgrad.core import (
    ROOT,
    Assign,
    Command,
    Drop,
    Event,
    MessageArrived,
    Segment,
    StepStarted,
    Upload,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.engines import Driver, FaultPlan, Here, Replayed, train
from codedgrad.engines.faults import Injector
from codedgrad.engines.here import Desk
from codedgrad.engines.host.memory_layout import Memory, MemoryShape, Private
from codedgrad.engines.host.rows import _BLOCK, Rows, add_rows
from codedgrad.engines.host.wire import Give, Said, Sent, decode_gives, encode
from codedgrad.engines.host.worker import PartFailed, Worker
from codedgrad.errors import EngineFailed
from codedgrad.jobs import NumpyJob, VectorLayout, single_process
from codedgrad.schemes import CodedReduce, coded_reduce
from codedgrad.testing import Gathering
from codedgrad.trace import Entry, Header, Trace, read, replay

PATIENCE = 20.0  # seconds; only a hang takes so long


# -- adding rows to another ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [5, 7, _BLOCK // 8, _BLOCK // 4 + 3])
def test_rows_are_added_each_times_its_weight(dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    table = rng.standard_normal((4, length)).astype(dtype)
    scales = slice(-3, None, 2)  # of these the absolute weights are added up
    table[:, scales] = np.abs(table[:, scales])
    expected = table[0] + 0.5 * table[1] - 3.0 * table[3]
    expected[scales] += 6.0 * table[3, scales]
    add_rows([(table[1], 0.5), (table[3], -3.0)], table[0])
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(table[0], expected, rtol=tolerance, atol=tolerance)


def test_rows_are_added_in_the_order_given_whatever_their_length() -> None:
    for length in (7, _BLOCK // 8 + 3):
        out, big, small = np.zeros(length), np.full(length, 1e16), np.ones(length)
        add_rows([(big, 1.0), (small, 1.0), (big, -1.0)], out)
        np.testing.assert_array_equal(out[:-4], 0.0)  # any other order leaves 1


def test_nothing_gathered_changes_nothing() -> None:
    out = np.arange(5.0)
    add_rows([], out)
    np.testing.assert_array_equal(out, np.arange(5.0))


# -- which row holds what --------------------------------------------------------------


@pytest.fixture
def memory() -> Memory:
    shape = MemoryShape.of(
        VectorLayout(parameters=1, gradient=3), workers=2, open_segments=1
    )
    return Memory(Private(shape.size), shape)


def segment(id_: int, worker: int, *parts: int) -> Segment:
    return Segment(id_, worker, parts or (id_,), (1.0,) * max(1, len(parts)))


def test_what_is_to_be_gathered_are_the_rows_of_messages_and_their_weights(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    given = [rows.give(segment(n, n), message=10 + n, to=1 - n) for n in range(2)]
    for n in range(2):
        assert rows.sent(n, 10 + n, ((n, 1),))
    found = rows.gathered([(11, 0.5), (10, -2.0)])
    assert found == ((given[1], 0.5), (given[0], -2.0))


def test_of_what_was_cut_to_nothing_there_is_nothing_to_gather(memory: Memory) -> None:
    rows = Rows(memory)
    first, second = rows.give(segment(0, 0)), rows.give(segment(1, 0))
    rows.expect(10, 0, (0, 1), to=1)
    assert rows.sent(0, 10, ((0, 0), (1, 1)))
    assert first != second
    assert rows.gathered([(10, 3.0)]) == ((second, 3.0),)


def test_rows_that_another_worker_may_read_stay_where_they_are(memory: Memory) -> None:
    """A worker has two here. That of a message to the root may be copied out."""
    rows = Rows(memory)
    kept = rows.give(segment(0, 0), message=10, to=1)
    memory.row(kept)[:] = 7.0
    other = rows.give(segment(1, 0), message=11)
    memory.row(other)[:] = 5.0
    for id_ in (0, 1):
        assert rows.sent(0, 10 + id_, ((id_, 1),))
    assert rows.give(segment(2, 0)) == other
    assert rows.rescued == 1
    assert rows.gathered([(10, 1.0)]) == ((kept, 1.0),)
    memory.row(other)[:] = -99.0
    np.testing.assert_array_equal(rows.combine([(11, 1.0)]), 5.0)


def test_where_others_may_read_all_rows_there_is_no_room_for_one_more(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    for id_ in (0, 1):
        rows.give(segment(id_, 0))
        rows.expect(10 + id_, 0, (id_,), to=1)
        assert rows.sent(0, 10 + id_, ((id_, 1),))
    with pytest.raises(EngineFailed, match="no room left for a sum in this step"):
        rows.give(segment(2, 0))
    rows.begin()
    rows.give(segment(0, 0))  # of the next step


def test_what_a_lost_worker_sent_to_another_is_still_there(memory: Memory) -> None:
    rows = Rows(memory)
    row = rows.give(segment(0, 0), message=10, to=1)
    assert rows.sent(0, 10, ((0, 1),))
    rows.forget(0)
    assert rows.give(segment(1, 0)) != row
    assert rows.gathered([(10, 1.0)]) == ((row, 1.0),)


@pytest.mark.parametrize("first", [0, 1], ids=["the sender", "the receiver"])
def test_what_was_sent_by_one_who_is_lost_to_one_who_is_lost_holds_no_row(
    memory: Memory, first: int
) -> None:
    rows = Rows(memory)
    for life in range(9):  # more than there are rows
        rows.give(segment(life, 0), message=10 + life, to=1)
        assert rows.sent(0, 10 + life, ((life, 1),))
        rows.forget(first)
        rows.forget(1 - first)
    assert rows.rescued == 0


def test_who_has_sent_to_one_who_is_lost_keeps_its_sum_and_sends_it_again(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    kept = rows.give(segment(0, 0), message=10, to=1)
    assert rows.sent(0, 10, ((0, 1),))
    rows.forget(1)
    assert rows.give(segment(1, 0)) != kept
    rows.expect(11, 0, (0,), to=1)
    assert rows.sent(0, 11, ((0, 1),))
    assert rows.gathered([(11, 1.0)]) == ((kept, 1.0),)
    with pytest.raises(EngineFailed, match="no room left"):  # one is read, one filled
        rows.give(segment(2, 0))


def test_nobody_reads_the_row_of_what_was_sent_to_one_who_is_lost(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    memory.row(rows.give(segment(0, 0), message=10, to=1))[:] = 5.0
    rows.forget(1)
    rows.expect(11, 0, (0,))
    assert rows.sent(0, 11, ((0, 1),))
    for id_ in (1, 2):  # one row more than there are: what the root has is copied out
        memory.row(rows.give(segment(id_, 0)))[:] = -99.0
    assert rows.rescued == 1
    np.testing.assert_array_equal(rows.combine([(11, 1.0)]), 5.0)


def test_a_message_on_its_way_to_one_who_is_lost_is_known_and_holds_no_row(
    memory: Memory,
) -> None:
    rows = Rows(memory)
    row = rows.give(segment(0, 0), message=10, to=1)
    rows.forget(1)
    assert rows.sent(0, 10, ((0, 1),))
    rows.forget(0)
    assert rows.give(segment(1, 0)) == row


# -- on the wire -----------------------------------------------------------------------


def test_orders_arrive_with_the_rows_to_gather_and_whom_they_are_for() -> None:
    part = Segment(4, 1, (2, 3), (1.0, -0.5))
    upload = Upload(7, 1, 8, (4,), ((5, 0.25), (6, -1.0)), to=3)
    gives = [
        Give(Assign(7, part, message=5, whole=True, to=2), row=9, version=2),
        Give(upload, gathered=((11, 0.25), (14, -1.0))),
    ]
    assert decode_gives(encode(gives)) == gives


# -- a worker --------------------------------------------------------------------------


class Bench:
    """Worker 1, its job and its rows. A part is as large as its number says."""

    layout = VectorLayout(parameters=1, gradient=1)

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.whole = np.zeros((8, self.layout.row))
        self.rows = self.whole[:, : self.layout.message]
        self.said: SimpleQueue[list[Said]] = SimpleQueue()
        planned = [] if faults is None else faults.planned
        injector = Injector(1, planned, np.zeros(1), np.zeros(1), self.said.put)
        self.worker = Worker(1, self, self, self.said.put, injector)
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            self.worker.run()
        except PartFailed:
            return

    def row(self, number: int) -> np.ndarray:
        return self.whole[number]

    def parameters(self, version: int) -> np.ndarray:
        return np.zeros(1)

    def part(
        self,
        x: np.ndarray,
        part: int,
        step: int,
        factor: float,
        out: np.ndarray,
        add: bool,
    ) -> None:
        if part < 0:
            raise SystemExit
        np.copyto(out, (out if add else 0.0) + factor * part)

    def compute(self, id_: int, *parts: int, row: int, step: int = 5) -> None:
        """Let the worker compute a segment to its end."""
        given = Segment(id_, 1, parts, (1.0,) * len(parts))
        self.worker.take([Give(Assign(step, given, None, whole=True), row, 0)])
        closed = False
        while not closed:
            closed = any(getattr(s, "closed", False) for s in self.hears())

    def upload(
        self, message: int, *gathered: tuple[int, float], segment: int = 0
    ) -> list[Said]:
        """Ask for a message; return what is said. Messages are in rows of their id."""
        order = Upload(5, 1, message, (segment,), gathered)
        self.worker.take([Give(order, gathered=gathered)])
        return self.hears()

    def hears(self) -> list[Said]:
        return self.said.get(timeout=PATIENCE)

    def stop(self) -> None:
        last = Segment(0, 1, (-1,), (1.0,))
        self.worker.take([Give(Assign(99, last, None), 0, 0)])
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.stop()


def sent(message: int, segment: int = 0, finite: bool = True, parts: int = 2) -> Sent:
    return Sent(5, message, ((segment, parts),), finite, size=3)


def test_a_worker_adds_what_it_is_told_to_when_it_sends_and_not_before(
    bench: Bench,
) -> None:
    bench.rows[4], bench.rows[6] = 100.0, 1000.0
    bench.compute(0, 3, 4, row=0)
    np.testing.assert_array_equal(bench.rows[0], 7.0)
    assert bench.upload(9, (4, 0.5), (6, -1.0)) == [sent(9)]
    np.testing.assert_array_equal(bench.rows[0], 7.0 + 50.0 - 1000.0)
    np.testing.assert_array_equal(bench.rows[[4, 6], 0], [100.0, 1000.0])


def test_a_worker_that_sends_once_more_does_not_add_once_more(bench: Bench) -> None:
    bench.rows[4] = 100.0
    bench.compute(0, 3, 4, row=0)
    for message in (9, 10):
        assert bench.upload(message, (4, 0.5)) == [sent(message)]
    np.testing.assert_array_equal(bench.rows[0], 57.0)


def test_what_is_gathered_is_waited_for_by_nothing_but_its_own_sum(
    bench: Bench,
) -> None:
    """Asked before its parts are done, a worker sends when they are."""
    bench.rows[4] = 100.0
    given = Segment(0, 1, (3, 4), (1.0, 1.0))
    order = Upload(5, 1, 9, (0,), ((4, 2.0),))
    bench.worker.take(
        [
            Give(Assign(5, given, None, whole=True), 0, 0),
            Give(order, gathered=order.gathered),
        ]
    )
    said: list[Said] = []
    while sent(9) not in said:
        said += bench.hears()
    np.testing.assert_array_equal(bench.rows[0], 207.0)


def test_a_sum_made_again_gathers_again(bench: Bench) -> None:
    bench.rows[4] = 100.0
    bench.compute(0, 3, 4, row=0)
    bench.upload(9, (4, 0.5))
    bench.compute(1, 3, 4, row=1)
    assert bench.upload(10, (4, 0.5), segment=1) == [sent(10, segment=1)]
    np.testing.assert_array_equal(bench.rows[1], 57.0)


def test_a_nan_that_was_gathered_makes_the_message_not_finite(bench: Bench) -> None:
    bench.rows[4] = np.nan
    bench.compute(0, 3, 4, row=0)
    assert bench.upload(9, (4, 0.5)) == [sent(9, finite=False)]


def test_a_new_step_gathers_nothing_of_the_old(bench: Bench) -> None:
    bench.rows[4] = 100.0
    bench.compute(0, 3, 4, row=0)
    bench.upload(9, (4, 0.5))
    bench.compute(0, 5, row=0, step=6)
    bench.worker.take([Give(Upload(6, 1, 9, (0,)))])
    bench.hears()
    np.testing.assert_array_equal(bench.rows[0], 5.0)


def test_a_fault_on_purpose_spoils_the_whole_message() -> None:
    bench = Bench(FaultPlan().corrupt(1, 5, "nan"))
    bench.rows[4] = 100.0
    bench.compute(0, 3, 4, row=0)
    bench.worker.take([Give(Upload(5, 1, 9, (0,), ((4, 0.5),)), gathered=((4, 0.5),))])
    bench.hears()  # that it fires
    assert bench.hears() == [sent(9, finite=False)]
    assert np.isnan(bench.rows[0]).any()
    assert (bench.rows[0] == 57.0).any()
    bench.stop()


# -- engines without processes ---------------------------------------------------------


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return float(part), 1.0, np.array([part + 1.0, x[0] * step])


def test_at_a_desk_what_is_gathered_is_added_once_and_again_to_a_sum_made_again() -> (
    None
):
    job = NumpyJob(gradient, 2)
    desk = Desk(lambda: job, job.layout, workers=2, open_segments=2)
    desk.begin(0, np.ones(2))
    below, own = Segment(0, 1, (4,), (1.0,)), Segment(2, 0, (1,), (1.0,))
    desk.take(Assign(0, below, 1, whole=True, to=0))
    desk.take(Assign(0, own, None, whole=True))
    desk.compute(below, 1)
    desk.send(1, ((0, 1),))
    desk.rows.sent(1, 1, ((0, 1),))
    for message in (3, 4):
        desk.take(Upload(0, 0, message, (2,), ((1, 10.0),)))
    desk.compute(own, 1)
    for message in (3, 4):
        desk.send(message, ((2, 1),))
        assert desk.rows.sent(0, message, ((2, 1),))
        assert desk.rows.combine([(message, 1.0)])[0] == 2.0 + 10.0 * 5.0
    desk.compute(own, 1)
    desk.send(4, ((2, 1),))
    assert desk.rows.combine([(4, 1.0)])[0] == 2.0 + 10.0 * 5.0


@pytest.mark.parametrize(
    "scheme",
    [coded_reduce(12, 3, 1), coded_reduce(14, 2, 1), coded_reduce(4, 1, 0)],
    ids=lambda s: f"{s.workers} {s.name}",
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tree_in_one_process_is_single_process_training(
    scheme: CodedReduce, dtype: str, least_squares: Callable, tmp_path: Path
) -> None:
    start, path = np.zeros(3), tmp_path / "run.jsonl"
    given = {"steps": 12, "dtype": dtype}
    run = train(least_squares(), start, scheme, engine=Here(), trace=path, **given)
    alone = single_process(least_squares(), start, scheme.parts, steps=12)
    exact = 1e-4 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(run.parameters, alone.parameters, rtol=exact)
    again = train(least_squares(), start, scheme, engine=Replayed(path), **given)
    assert again.parameters.tobytes() == run.parameters.tobytes()
    assert replay(read(path), scheme) is None


def driven(engine: object, watch: Callable | None = None) -> np.ndarray:
    """Take a step of the scheme that tests engines; return its sum."""
    scheme, job = Gathering(), NumpyJob(gradient, 2)
    engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts)
    driver = Driver(engine, scheme, job.layout, watch=watch)
    vector = driver.step(np.ones(2)).vector.copy()
    engine.close()
    return vector


def test_a_sum_that_was_gathered_and_sent_twice_is_replayed_as_it_was() -> None:
    entries: list[Entry] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    here = driven(Here(), watch)
    np.testing.assert_allclose(here, [36.0, 0.0, 28.0, 8.0], atol=1e-12)
    engine = Here()
    header = Header(
        scheme="gathering", workers=4, parts=8, capabilities=engine.capabilities
    )
    assert driven(Replayed(Trace(header, tuple(entries)))).tobytes() == here.tobytes()


def test_a_replay_sends_once_more_what_was_lost_with_its_receiver() -> None:
    """A chain, 1 to 0: worker 0 dies with the message of 1, and hears it again."""
    scheme, job = coded_reduce(2, 1, 0), NumpyJob(gradient, 2)
    events: list[Event] = [
        StepStarted(0, 0.0),
        MessageArrived(0, 1, 2, ((1, 1),), 1.0),
        WorkersLost((0,), 2.0),
        WorkersJoined((0,), 3.0),
        MessageArrived(0, 1, 5, ((1, 1),), 4.0),
        MessageArrived(0, 0, 6, ((4, 1),), 5.0),
    ]
    header = Header(
        scheme=scheme.name, workers=2, parts=2, capabilities=Here().capabilities
    )
    engine = Replayed(Trace(header, tuple(Entry(event, ()) for event in events)))
    engine.start(lambda: job, job.layout, 2, parts=2)
    driver = Driver(engine, scheme, job.layout)
    found = driver.step(np.ones(2))
    np.testing.assert_array_equal(found.vector, [3.0, 0.0, 1.0, 2.0])


def test_an_upload_of_a_step_that_was_dropped_gathers_nothing() -> None:
    engine, job = Here(), NumpyJob(gradient, 2)
    engine.start(lambda: job, job.layout, 2, parts=2)
    engine.publish(0, np.ones(2))
    engine.give(Assign(0, Segment(0, 0, (0,), (1.0,)), None, whole=True))
    engine.give(Upload(0, 0, 1, (0,), (), ROOT))
    engine.give(Drop(0, 0))
    assert engine.next_event(0.0) is None
