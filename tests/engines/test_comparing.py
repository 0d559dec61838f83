"""Messages compared on engines: right, once, and again in replays and after kills."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    Command,
    Event,
    MessageArrived,
    MessagesCompared,
    Patience,
    Scheme,
    Segment,
    StepStarted,
)
from codedgrad.engines import Driver, Engine, Here, Local, Replayed
from codedgrad.engines.driver import header_of
from codedgrad.engines.host.memory_layout import Memory, MemoryShape, Private
from codedgrad.engines.host.rows import Rows, inner_products
from codedgrad.jobs import NumpyJob, VectorLayout
from codedgrad.learning.estimators import Likeness
from codedgrad.schemes import bernoulli, cyclic, uncoded
from codedgrad.testing import Comparing, Everything
from codedgrad.trace import Entry, Recorder, read, replay
from codedgrad.trace.metrics import rebuilt

SIZE = 7
STEPS = 4
ASKING = Comparing(cyclic(5, 2))


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    slope = np.sin(np.arange(len(x)) * (part + 1) + step) + 0.1 * x
    return float(slope @ slope), 1.0 + part, slope


@dataclass
class Ran:
    """A run: its events, the parameters of every step, and what it came to."""

    entries: list[Entry]
    parameters: list[np.ndarray]
    driver: Driver

    @property
    def compared(self) -> list[MessagesCompared]:
        events = [entry.event for entry in self.entries]
        return [event for event in events if isinstance(event, MessagesCompared)]


def drive(
    scheme: Scheme,
    engine: Engine,
    trace: Path | None = None,
    steps: Sequence[int] = range(STEPS),
    past: Sequence[Entry] = (),
    x: np.ndarray | None = None,
    dtype: str = "float64",
) -> Ran:
    """Take steps at parameters that follow from the sums."""
    job, entries = NumpyJob(gradient, SIZE, dtype), list[Entry]()
    recorders: list[Recorder] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))
        for recorder in recorders:
            recorder(event, commands)

    header = header_of(engine, scheme, Patience())
    history = rebuilt(header, past, scheme, header.patience)
    earlier = past[-1].event.at if past else 0.0
    driver = Driver(
        engine, scheme, job.layout, watch=watch, history=history, earlier=earlier
    )
    if trace is not None:
        trace.unlink(missing_ok=True)
        recorders.append(Recorder(trace, header))
        for entry in past:
            recorders[0](entry.event, entry.commands)
    ran = Ran(entries, [], driver)
    x = np.zeros(SIZE, dtype) if x is None else x
    try:
        engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts)
        for step in steps:
            ran.parameters.append(x)
            x = x - 0.1 * driver.step(x, step).gradient
        ran.parameters.append(x)
    finally:
        engine.close()
        for recorder in recorders:
            recorder.close()
    return ran


def wanted(ran: Ran) -> Iterator[tuple[tuple[int, int, float], ...]]:
    """Compute the inner products from the orders that were given, and the gradients."""
    segments: dict[int, Segment] = {}
    cuts: dict[int, tuple[tuple[int, int], ...]] = {}
    for entry in ran.entries:
        event = entry.event
        if isinstance(event, StepStarted):
            segments, cuts, x = {}, {}, ran.parameters[event.step]
        elif isinstance(event, MessageArrived):
            cuts[event.message] = event.cuts
        for command in entry.commands:
            if isinstance(command, Assign):
                segments[command.segment.id] = command.segment
            elif isinstance(command, Combine):
                sums = {}
                for message in sorted(command.compared):
                    sums[message] = np.zeros(SIZE)
                    for id_, done in cuts[message]:
                        segment = segments[id_]
                        for part, a in list(
                            zip(segment.parts, segment.coefficients, strict=True)
                        )[:done]:
                            slope = gradient(x, part, command.step)[2]
                            sums[message] += a * slope
                yield tuple(
                    (i, j, float(sums[i] @ sums[j]))
                    for i in sums
                    for j in sums
                    if i <= j
                )


def check(ran: Ran, rtol: float = 1e-10) -> None:
    told = [event.products for event in ran.compared]
    expected = list(wanted(ran))
    assert [[p[:2] for p in one] for one in told] == [
        [p[:2] for p in one] for one in expected
    ]
    for one, other in zip(told, expected, strict=True):
        products = [[p[2] for p in each] for each in (one, other)]
        np.testing.assert_allclose(*products, rtol=rtol, atol=rtol)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


# -- real processes --------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    path = tmp_path_factory.mktemp("live") / "trace.jsonl"
    return drive(ASKING, Local(), path), path


def test_products_are_those_of_the_gradients(live: tuple[Ran, Path]) -> None:
    ran, _ = live
    assert [event.step for event in ran.compared] == list(range(STEPS))
    check(ran)
    for record, event in zip(ran.driver.coordinator.history.records, ran.compared,
                             strict=True):  # fmt: skip
        assert record.products == event.products
    assert not ran.driver.coordinator.ignored["repeated"]


def test_they_are_told_right_after_the_end_of_their_step(
    live: tuple[Ran, Path],
) -> None:
    entries = live[0].entries
    for number, entry in enumerate(entries):
        if isinstance(entry.event, MessagesCompared):
            assert entries[number - 1].ends_step
            assert entry.commands == ()


def test_a_live_run_is_written_as_it_was_and_replays(live: tuple[Ran, Path]) -> None:
    ran, path = live
    trace = read(path)
    assert list(trace.entries) == ran.entries[: len(trace.entries)]
    assert trace.entries[-1] == next(e for e in ran.entries[::-1] if e.compares)
    assert replay(trace, ASKING) is None


def test_a_replayed_run_tells_every_comparison_once_to_the_last_bit(
    live: tuple[Ran, Path],
) -> None:
    ran, path = live
    again = drive(ASKING, Replayed(path))
    whole = len(read(path).entries)
    assert again.entries == ran.entries[:whole]
    for one, other in zip(ran.parameters, again.parameters, strict=True):
        assert one.tobytes() == other.tobytes()


# -- going on --------------------------------------------------------------------------


def test_a_run_that_goes_on_has_learnt_what_the_one_before_had(path: Path) -> None:
    ran, first = drive(ASKING, Here(), path), STEPS - 1
    past = read(path).before(first)
    again = drive(
        ASKING, Here(), path, range(first, STEPS + 2), past, ran.parameters[first]
    )
    history = again.driver.coordinator.history
    assert [record.step for record in history.records] == [*range(STEPS + 2)]
    assert all(len(record.products) >= 6 for record in history.records)
    before = ran.driver.coordinator.history.records
    for number in range(first):
        assert history.records[number].products == before[number].products
    assert history.follow(Likeness()).correlation is not None
    whole = read(path)
    assert sum(entry.compares for entry in whole.entries) == STEPS + 2
    assert replay(whole, ASKING) is None


def test_a_run_that_was_killed_before_it_could_tell_goes_on_without(
    path: Path,
) -> None:
    ran = drive(ASKING, Here(), path)
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b"MessagesCompared" in line)
    path.write_bytes(b"".join(lines[:last]))
    trace = read(path)
    assert trace.entries[-1].ends_step
    past = trace.before(STEPS)
    again = drive(ASKING, Here(), path, [STEPS], past, ran.parameters[STEPS])
    told = [bool(r.products) for r in again.driver.coordinator.history.records]
    assert told == [True] * (STEPS - 1) + [False, True]
    assert replay(read(path), ASKING) is None
    once_more = drive(ASKING, Replayed(path), steps=range(STEPS + 1))
    assert once_more.compared == ran.compared[:-1] + again.compared


# -- in this process -------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme",
    [Comparing(uncoded(3)), Comparing(bernoulli(6, 2, count=4)), Everything(4)],
    ids=lambda scheme: scheme.name,
)
def test_every_scheme_that_asks_is_told(scheme: Scheme) -> None:
    ran = drive(scheme, Here(open_segments=30))
    assert len(ran.compared) == STEPS
    check(ran)


def test_single_precision_will_do() -> None:
    ran = drive(ASKING, Here(), dtype="float32")
    assert len(ran.compared) == STEPS
    check(ran, rtol=1e-4)


def test_of_many_messages_the_first_sixteen_are_compared() -> None:
    ran = drive(Comparing(uncoded(20)), Here())
    (first, *_) = ran.compared
    assert len(first.products) == 16 * 17 // 2
    assert {id_ for *pair, _ in first.products for id_ in pair} == {*range(1, 32, 2)}
    check(ran)


def test_who_does_not_ask_is_not_told() -> None:
    assert drive(cyclic(5, 2), Here()).compared == []


def test_the_sum_stays_as_it_was() -> None:
    asked, plain = (drive(scheme, Here()) for scheme in (ASKING, cyclic(5, 2)))
    for one, other in zip(asked.parameters, plain.parameters, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e200])
def test_what_is_not_finite_is_not_told(value: float) -> None:
    """The model has diverged, or the squares overflow."""
    job, events = NumpyJob(lambda x, p, s: (0.0, 1.0, np.full(2, value)), 2), []
    engine, scheme = Here(), Comparing(uncoded(2))
    driver = Driver(engine, scheme, job.layout, watch=lambda e, c: events.append(e))
    engine.start(lambda: job, job.layout, 2, parts=2)
    sum_ = driver.step(np.zeros(2))
    assert sum_.finite == np.isfinite(value)
    assert not any(isinstance(event, MessagesCompared) for event in events)
    engine.close()


# -- rows ------------------------------------------------------------------------------


def rows(count: int = 2, open_segments: int = 1) -> tuple[Rows, Memory]:
    shape = MemoryShape.of(VectorLayout(parameters=3, gradient=3), count, open_segments)
    memory = Memory(Private(shape.size), shape)
    return Rows(memory), memory


def test_a_message_of_several_sums_is_one_vector_and_scalars_do_not_count() -> None:
    table, memory = rows(open_segments=3)
    for id_, worker, values in (
        (0, 0, [1.0, 0, 0, 9, 9]), (1, 0, [0.0, 2, 0, 9, 9]),
        (2, 1, [3.0, 1, 0, 9, 9]), (3, 1, [np.nan] * 5),
    ):  # fmt: skip
        row = table.give(Segment(id_, worker, (id_,), (1.0,)))
        memory.row(row)[:5] = values
    for message, worker, cuts in (
        (12, 0, ((0, 1), (1, 1))), (11, 1, ((2, 1), (3, 0))), (10, 1, ((3, 0),)),
    ):  # fmt: skip
        table.expect(message, worker, tuple(id_ for id_, _ in cuts))
        assert table.sent(worker, message, cuts)
    assert table.compare([12, 11], 3) == ((11, 11, 10.0), (11, 12, 5.0), (12, 12, 5.0))
    assert table.compare([10, 12], 3) == ((10, 10, 0.0), (10, 12, 0.0), (12, 12, 5.0))
    assert table.compare([], 3) == ()


def test_sums_that_had_to_be_copied_out_are_compared_too() -> None:
    table, memory = rows()
    for id_ in range(4):  # two rows for worker 0: the first two are copied out
        memory.row(table.give(Segment(id_, 0, (id_,), (1.0,)), 10 + id_))[:] = id_ + 1.0
        table.sent(0, 10 + id_, ((id_, 1),))
    assert table.rescued == 2
    products = {pair[:2]: pair[2] for pair in table.compare(range(10, 14), 3)}
    assert products[10, 13] == 3 * 1 * 4
    assert products[11, 12] == 3 * 2 * 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_vectors_are_compared_block_by_block(dtype: str) -> None:
    table = np.random.default_rng(0).standard_normal((5, 123_457)).astype(dtype)
    exact = table.astype(np.float64) @ table.astype(np.float64).T
    found = inner_products([[row] for row in table], table.shape[1])
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6 * np.abs(exact).max())
    halves = [[0.5 * row, 0.5 * row] for row in table]
    again = inner_products(halves, table.shape[1])
    np.testing.assert_allclose(again, exact, rtol=0, atol=1e-6 * np.abs(exact).max())
