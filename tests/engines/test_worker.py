"""The worker's loop, in two threads of this process: its races, one by one."""

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pytest
from msgspec import structs

from codedgrad.core import Assign, Cut, Drop, Order, Segment, Task, Upload
from codedgrad.engines import FaultPlan
from codedgrad.engines.faults import Injector
from codedgrad.engines.host.wire import Fired, Give, Left, Said, Sent, Told
from codedgrad.engines.host.worker import PartFailed, Worker, is_finite
from codedgrad.jobs import VectorLayout

PATIENCE = 20.0  # seconds; only a hang takes so long


class Bench:
    """A worker, its job, its rows and its root: a test lets one part end at a time."""

    layout = VectorLayout(parameters=1, gradient=1)

    def __init__(
        self,
        faults: FaultPlan | None = None,
        delay: float = 0.0,
        interrupts: bool = False,
    ) -> None:
        self.whole = np.full((8, self.layout.row), np.nan)
        self.rows = self.whole[:, : self.layout.message]  # what the job writes
        self.versions = np.arange(8.0)[:, None]
        self.began: SimpleQueue[tuple[int, int, float]] = SimpleQueue()
        self.ended: SimpleQueue[float | BaseException] = SimpleQueue()
        self.said: SimpleQueue[list[Said]] = SimpleQueue()
        self.failed: PartFailed | None = None
        planned = [] if faults is None else faults.planned
        injector = Injector(1, planned, np.zeros(1), np.full(1, delay), self.said.put)
        self.worker = Worker(1, self, self, self.said.put, injector, interrupts)
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            self.worker.run()
        except PartFailed as failed:
            self.failed = failed

    def row(self, number: int) -> np.ndarray:
        return self.whole[number]

    def parameters(self, version: int) -> np.ndarray:
        return self.versions[version]

    def part(
        self,
        x: np.ndarray,
        part: int,
        step: int,
        factor: float,
        out: np.ndarray,
        add: bool,
    ) -> None:
        before = out.copy() if add else 0.0
        out[:] = np.nan  # half-way
        self.began.put((step, part, float(x[0])))
        value = self.ended.get()
        if isinstance(value, BaseException):
            raise value
        out[:] = before + factor * value

    def give(self, *orders: Order, row: int = 0, version: int = 0) -> None:
        self.worker.take([Give(order, row, version) for order in orders])

    def at(self) -> tuple[int, int, float]:
        """Wait for a part to begin; return its step, its number and the parameters."""
        return self.began.get(timeout=PATIENCE)

    def end(self, value: float | BaseException) -> None:
        """Let the part under way end."""
        self.ended.put(value)

    def hears(self) -> list[Said]:
        """Wait for the worker to say something; how long a part took is left out."""
        said = self.said.get(timeout=PATIENCE)
        for each in said:
            assert not isinstance(each, Left) or 0 <= each.seconds < PATIENCE
        return [
            structs.replace(each, seconds=0.0) if isinstance(each, Left) else each
            for each in said
        ]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    stop(bench)


def stop(bench: Bench) -> None:
    bench.give(Assign(99, Segment(0, 1, (0,), (1.0,)), None))
    bench.end(SystemExit())
    bench.end(SystemExit())
    bench.thread.join(PATIENCE)
    assert not bench.thread.is_alive()


def segment(id_: int, *parts: int) -> Segment:
    return Segment(id_, 1, parts, tuple(2.0 for _ in parts))


def test_parts_are_added_up_reported_and_sent(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7, 8, 9), message=1), row=3, version=4)
    for done, value in enumerate((1.0, 10.0), 1):
        assert bench.at() == (5, 6 + done, 4.0)
        bench.end(value)
        assert bench.hears() == [Told(5, 0, done, closed=False)]
    bench.at()
    bench.end(100.0)
    assert bench.hears() == [
        Told(5, 0, 3, closed=True),
        Sent(5, 1, ((0, 3),), finite=True, size=3),
        Left(1),
    ]
    np.testing.assert_array_equal(bench.rows[3], 2.0 * 111.0)


def test_parts_of_what_is_never_cut_are_added_where_the_sum_is(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7, 8), message=1, whole=True), row=3)
    bench.at()
    bench.end(1.0)
    bench.hears()
    bench.at()
    assert np.isnan(bench.rows[3]).all()  # the job is at work in the row itself
    bench.end(10.0)
    bench.hears()
    np.testing.assert_array_equal(bench.rows[3], 2.0 * 11.0)


def test_a_cut_during_a_part_leaves_the_sum_as_it_was(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7, 8, 9), message=1), row=3)
    bench.at()
    bench.end(1.0)
    bench.hears()
    bench.at()
    bench.give(Cut(5, 1, 0, keep=0))
    assert bench.hears() == [
        Told(5, 0, 1, closed=True),
        Sent(5, 1, ((0, 1),), finite=True, size=3),
    ]
    np.testing.assert_array_equal(bench.rows[3], 2.0)
    bench.end(10.0)
    assert bench.hears() == [
        Left(1, abandoned=True)
    ]  # only now does it touch nothing any more
    np.testing.assert_array_equal(bench.rows[3], 2.0)


def test_a_cut_during_the_first_part_sends_a_sum_of_nothing(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7, 8), message=1), row=3)
    bench.at()
    bench.give(Cut(5, 1, 0, keep=0))
    assert bench.hears() == [
        Told(5, 0, 0, closed=True),
        Sent(5, 1, ((0, 0),), finite=True, size=3),
    ]
    bench.end(1.0)
    assert bench.hears() == [Left(1, abandoned=True)]


def test_what_is_dropped_during_a_part_is_let_go_of_when_the_part_ends(
    bench: Bench,
) -> None:
    bench.give(Assign(5, segment(0, 7, 8), message=1), row=3)
    bench.at()
    bench.give(Drop(5, 1))
    assert bench.said.empty()
    bench.end(1.0)
    assert bench.hears() == [Left(1, abandoned=True)]


def test_letting_go_counts_what_was_taken_meanwhile(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7), message=1), row=0)
    bench.at()
    bench.give(Assign(5, segment(2, 8), message=3), row=1)
    bench.end(1.0)
    assert Left(1) not in bench.hears()
    bench.at()
    bench.end(10.0)
    assert bench.hears()[-1] == Left(2)
    np.testing.assert_array_equal(bench.rows[:2, 0], [2.0, 20.0])


def test_one_message_may_hold_several_sums_once_all_are_closed(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7), None), row=0)
    bench.at()
    bench.end(1.0)
    bench.hears()
    bench.give(Assign(5, segment(1, 8, 9), None), row=1)
    bench.at()
    bench.end(1.0)
    assert bench.hears() == [Told(5, 1, 1, closed=False)]
    bench.at()
    bench.give(Upload(5, 1, 2, (0, 1)))
    assert bench.said.empty()
    bench.give(Cut(5, 1, 1, keep=1))
    assert bench.hears() == [
        Told(5, 1, 1, closed=True),
        Sent(5, 2, ((0, 1), (1, 1)), finite=True, size=3),
    ]


def test_a_newer_step_is_taken_up_with_its_own_parameters(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7, 8), message=1), row=0, version=2)
    bench.at()
    bench.give(Drop(5, 1))
    bench.end(1.0)
    assert bench.hears() == [Left(1, abandoned=True)]
    bench.give(Assign(9, segment(0, 6), message=1), row=1, version=3)
    assert bench.at() == (9, 6, 3.0)
    bench.end(5.0)
    assert bench.hears()[-1] == Left(2)
    np.testing.assert_array_equal(bench.rows[1], 10.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sum_that_is_not_finite_is_sent_as_such(bench: Bench, value: float) -> None:
    bench.give(Assign(5, segment(0, 7), message=1))
    bench.at()
    bench.end(value)
    assert Sent(5, 1, ((0, 1),), finite=False, size=3) in bench.hears()


def test_an_exception_of_the_job_ends_the_loop_and_names_the_part(bench: Bench) -> None:
    bench.give(Assign(5, segment(0, 7), message=1))
    bench.at()
    bench.end(ZeroDivisionError("of all things"))
    bench.thread.join(PATIENCE)
    assert bench.failed is not None
    assert bench.failed.task == Task(5, 0, 7, 2.0)
    assert repr(bench.failed.__cause__) == "ZeroDivisionError('of all things')"


def test_a_fault_on_purpose_spoils_what_is_sent_and_not_what_is_reported() -> None:
    bench = Bench(FaultPlan().corrupt(1, 5, "nan").corrupt(1, 5, "size"))
    for id_, wrong in (
        (0, {"finite": False, "size": 3}),
        (2, {"finite": True, "size": 4}),
    ):
        bench.give(Assign(5, segment(id_, 7), message=id_ + 1))
        bench.at()
        bench.end(1.0)
        bench.hears()  # that it fires
        told, sent, *_ = bench.hears()
        assert told == Told(5, id_, 1, closed=True)
        assert sent == Sent(5, id_ + 1, ((id_, 1),), **wrong)
    stop(bench)


def test_a_fault_on_purpose_strikes_a_sum_that_is_held_or_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signal.pthread_kill", lambda thread, number: None)
    bench = Bench(FaultPlan().kill(1, 5, on="held").kill(1, 5, on="upload"))
    bench.give(Assign(5, segment(0, 7), None))
    bench.at()
    bench.end(1.0)
    assert bench.hears() == [Told(5, 0, 1, closed=True), Left(1)]
    assert bench.hears() == [Fired(0)]
    bench.give(Assign(5, segment(1, 8), message=2))  # asked for from the start
    bench.at()
    bench.end(1.0)
    assert bench.hears() == [Told(5, 1, 1, closed=True)]
    assert bench.hears() == [Fired(1)]
    assert bench.hears() == [Sent(5, 2, ((1, 1),), finite=True, size=3), Left(2)]
    stop(bench)


def test_a_delay_ends_when_its_part_is_abandoned_if_that_is_wanted() -> None:
    bench = Bench(delay=3600.0, interrupts=True)
    nap, naps = bench.worker._nap, SimpleQueue[float]()

    def told_nap(task: Task, seconds: float) -> None:
        naps.put(seconds)
        nap(task, seconds)

    bench.worker._nap = told_nap
    bench.give(Assign(5, segment(0, 7, 8), message=1))
    assert naps.get(timeout=PATIENCE) == 3600.0
    bench.give(Drop(5, 1))
    bench.at()
    bench.end(1.0)  # it is computed all the same, and not merged
    assert bench.hears() == [Left(1, abandoned=True)]
    bench.worker._nap = lambda task, seconds: None
    stop(bench)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_finite_is_what_has_no_nan_and_no_infinity_however_large(dtype: str) -> None:
    huge = np.finfo(dtype).max
    checks = [np.nan] * 4  # which are not looked at
    assert is_finite(np.array([0.0, 1.0, -2.0, *checks], dtype))
    assert is_finite(np.array([huge, -huge, huge, *checks], dtype))  # squares overflow
    for bad in (np.nan, np.inf, -np.inf):
        assert not is_finite(np.array([huge, bad, 1.0, *checks], dtype))
