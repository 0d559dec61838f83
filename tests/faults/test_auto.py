"""Deaths and stops in every phase of a worker's step, with lists planned again.

Sums are fetched late, so a worker may die with finished parts that nobody has. Where it
was when it died is read from the events, so no test looks at a clock. Every step of
every run is compared with the sum that NumPy makes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    Command,
    MessageArrived,
    Patience,
    Progressed,
    Upload,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Local
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import Auto, auto
from codedgrad.trace import Entry, Trace, replay

PART = 0.01  # seconds of sleep
STOPPED = 1.2  # seconds; a step takes a tenth of that
HANGS = Patience(least=30.0, first=30.0)  # seconds; only a hang takes so long
PIECES = 8


@dataclass(frozen=True)
class Went:
    """A step: what it gave, what it should have given, and what led there."""

    vector: np.ndarray
    wanted: np.ndarray
    heard: tuple[int, ...]
    entries: tuple[Entry, ...]

    def until_lost(self, worker: int) -> list[Entry]:
        """Return what happened before a worker was lost."""
        kinds = [isinstance(e.event, WorkerLost) for e in self.entries]
        at = next(
            i
            for i, e in enumerate(self.entries)
            if kinds[i] and e.event.worker == worker
        )
        return list(self.entries[:at])

    @cached_property
    def senders(self) -> set[int]:
        """Whose messages the sum is made of."""
        [end] = [c for e in self.entries for c in e.commands if isinstance(c, Combine)]
        used = {message for message, _ in end.weights}
        arrived = [e.event for e in self.entries if isinstance(e.event, MessageArrived)]
        return {event.worker for event in arrived if event.message in used}


@dataclass(frozen=True)
class Run:
    """Steps on processes."""

    scheme: Auto
    steps: list[Went]
    faults: FaultPlan
    trace: Trace
    lives: tuple[int, ...]


DATA = np.random.default_rng(1).normal(size=(6 * PIECES, 3))


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return float(part), 1.0 + part % 3, np.cos(step + DATA[part]) * x + DATA[part]


def sum_of_parts(x: np.ndarray, step: int, parts: int) -> np.ndarray:
    """Return gradients, losses and samples of all parts, added up here."""
    part = np.arange(parts)
    sums = (np.cos(step + DATA[part]) * x + DATA[part]).sum(axis=0)
    return np.array([*sums, part.sum(), (1.0 + part % 3).sum()])


def live(
    workers: int,
    steps: int,
    faults: FaultPlan,
    slow: tuple[tuple[int, int], ...] = (),
) -> Run:
    """Take steps on processes; `slow` are (step, worker) ten times as slow."""
    scheme, job, log = auto(workers, PIECES), NumpyJob(gradient, 3), list[Entry]()
    unit = np.full((steps, workers), PIECES * PART)
    for step, worker in slow:
        unit[step, worker] *= 10.0
    engine, went, begun = Local(), list[Went](), 0
    driver = Driver(
        engine, scheme, job.layout, patience=HANGS,
        watch=lambda e, c: log.append(Entry(e, tuple(c))),
    )  # fmt: skip
    try:
        engine.start(
            lambda: job, job.layout, workers, parts=scheme.parts, faults=faults,
            delays=Times(fixed=np.zeros_like(unit), unit=unit),
        )  # fmt: skip
        for step, x in enumerate(np.random.default_rng(0).normal(size=(steps, 3))):
            sum_ = driver.step(x)
            wanted = sum_of_parts(x, step, scheme.parts)
            entries = tuple(log[begun:])
            went.append(Went(sum_.vector.copy(), wanted, sum_.report.heard, entries))
            begun = len(log)
        lives = engine.lives
    finally:
        engine.close()
    return Run(scheme, went, faults, Trace(driver.header(), tuple(log)), lives)


KILLED = {  # worker: step; each once, as a second death soon after makes it wait
    "before it is given anything": (1, 2),
    "with its first part unreported": (2, 4),
    "with its last part unreported": (3, 6),
    "with a sum that nobody has asked for": (4, 8),
    "with a sum that it was asked for": (5, 10),
}
AFTER = {"with its first part unreported": 1, "with its last part unreported": PIECES}
ON = {
    "with a sum that nobody has asked for": "held",
    "with a sum that it was asked for": "upload",
}


def one_by_one() -> FaultPlan:
    faults = FaultPlan()
    for phase, (worker, step) in KILLED.items():
        faults.kill(worker, step, after=AFTER.get(phase, 0), on=ON.get(phase, ""))
    return faults


def all_but_one() -> FaultPlan:
    """Two in the first step; later all but worker 0, in every phase."""
    faults = FaultPlan().kill(1, 0, on="held").kill(2, 0, on="held")
    faults.kill(1, 3).kill(2, 3, after=1).kill(3, 3, after=3)
    return faults.kill(4, 3, on="upload").kill(5, 3, on="upload")


def stopped() -> FaultPlan:
    faults = FaultPlan().stop(1, 0, STOPPED, on="held").stop(2, 2, STOPPED, on="held")
    return faults.stop(3, 4, STOPPED, on="upload").stop(4, 6, STOPPED, after=2)


LATER = 8  # steps after the last stop, for everybody to be back


@pytest.fixture(scope="module")
def runs(together: Callable) -> dict[str, Run]:
    helped = ((8, 0),)  # whoever helps holds the sum of its own list meanwhile
    calls = {
        "one by one": lambda: live(6, 13, one_by_one(), helped),
        "all but one": lambda: live(6, 6, all_but_one()),
        "stopped": lambda: live(6, 7 + LATER, stopped(), ((2, 0),)),
    }
    return dict(zip(calls, together(calls.values(), at_once=2), strict=True))


NAMES = ("one by one", "all but one", "stopped")


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_has_fired(runs: dict[str, Run], name: str) -> None:
    left = [f for f in runs[name].faults.planned if f not in runs[name].faults.fired]
    assert left == []
    assert runs[name].faults.all_fired


@pytest.mark.parametrize("name", NAMES)
def test_every_sum_is_that_of_all_parts(runs: dict[str, Run], name: str) -> None:
    for went in runs[name].steps:
        np.testing.assert_allclose(went.vector, went.wanted, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_run_replays_without_a_difference(runs: dict[str, Run], name: str) -> None:
    assert replay(runs[name].trace, runs[name].scheme) is None


@pytest.mark.parametrize("name", NAMES)
def test_in_the_end_everybody_is_back(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert run.steps[-1].heard == tuple(range(run.scheme.workers))
    killed = [fault.worker for fault in run.faults.fired if fault.kind == "kill"]
    expected = [1 + killed.count(worker) for worker in range(run.scheme.workers)]
    assert list(run.lives) == expected


# -- where they were when they died ----------------------------------------------------


def before(runs: dict[str, Run], phase: str) -> tuple[int, list[Entry]]:
    """Return who died in a phase, and what happened in that step before."""
    worker, step = KILLED[phase]
    return worker, runs["one by one"].steps[step].until_lost(worker)


def parts_done(worker: int, entries: list[Entry]) -> int:
    done: dict[int, int] = {}
    for entry in entries:
        if isinstance(entry.event, Progressed) and entry.event.worker == worker:
            done[entry.event.segment] = entry.event.done
    return sum(done.values())


def orders(entries: list[Entry]) -> list[Command]:
    return [command for entry in entries for command in entry.commands]


def asked(worker: int, entries: list[Entry]) -> set[int]:
    """Return the segments of a worker whose sums it was asked for."""
    found: set[int] = set()
    for order in orders(entries):
        if isinstance(order, Upload) and order.worker == worker:
            found.update(order.segments)
        elif isinstance(order, Assign) and order.segment.worker == worker:
            found.update([order.segment.id] if order.message is not None else [])
    return found


def closed(worker: int, entries: list[Entry]) -> set[int]:
    return {
        entry.event.segment
        for entry in entries
        if isinstance(entry.event, Progressed)
        and entry.event.worker == worker
        and entry.event.closed
    }


def has_sent(worker: int, entries: list[Entry]) -> bool:
    return any(
        isinstance(entry.event, MessageArrived) and entry.event.worker == worker
        for entry in entries
    )


@pytest.mark.parametrize(
    ("phase", "done"),
    [
        ("before it is given anything", 0),
        ("with its first part unreported", 0),
        ("with its last part unreported", PIECES - 1),
    ],
)
def test_who_dies_at_work_has_not_reported_the_part_in_hand(
    runs: dict[str, Run], phase: str, done: int
) -> None:
    worker, entries = before(runs, phase)
    assert parts_done(worker, entries) == done
    assert not has_sent(worker, entries)


def test_who_dies_with_a_sum_that_it_holds_was_not_asked_for_it(
    runs: dict[str, Run],
) -> None:
    worker, entries = before(runs, "with a sum that nobody has asked for")
    assert closed(worker, entries) - asked(worker, entries)
    assert not has_sent(worker, entries)


def test_who_dies_while_it_should_send_was_asked_and_has_closed_its_sum(
    runs: dict[str, Run],
) -> None:
    worker, entries = before(runs, "with a sum that it was asked for")
    assert closed(worker, entries) & asked(worker, entries)
    assert not has_sent(worker, entries)


@pytest.mark.parametrize("phase", KILLED)
def test_what_a_dead_worker_has_not_sent_is_done_once_more(
    runs: dict[str, Run], phase: str
) -> None:
    """By others, or by itself in its next life."""
    worker, step = KILLED[phase]
    went = runs["one by one"].steps[step]
    first, later = went.until_lost(worker), went.entries[len(before(runs, phase)[1]) :]
    had = {
        part
        for order in orders(first)
        if isinstance(order, Assign) and order.segment.worker == worker
        for part in order.segment.parts
    }
    again = {
        part
        for order in orders([*first, *later])
        if isinstance(order, Assign) and order not in orders(first)
        for part in order.segment.parts
    }
    others = {
        part
        for order in orders(first)
        if isinstance(order, Assign) and order.segment.worker != worker
        for part in order.segment.parts
    }
    assert had <= again | others


def test_two_die_in_the_first_step_with_sums_that_nobody_has_asked_for(
    runs: dict[str, Run],
) -> None:
    """Nothing is known of anybody then, so no sum is asked for ahead."""
    first = runs["all but one"].steps[0]
    for worker in (1, 2):
        entries = first.until_lost(worker)
        assert closed(worker, entries)
        assert not asked(worker, entries)


def test_a_step_in_which_all_but_one_die_loses_all_of_them(
    runs: dict[str, Run],
) -> None:
    entries = runs["all but one"].steps[3].entries
    lost = [e.event.worker for e in entries if isinstance(e.event, WorkerLost)]
    assert sorted(lost) == [1, 2, 3, 4, 5]


def test_whoever_comes_back_in_the_step_may_be_given_parts_of_it(
    runs: dict[str, Run],
) -> None:
    entries = runs["all but one"].steps[3].entries
    back = {e.event.worker: i for i, e in enumerate(entries)
            if isinstance(e.event, WorkerJoined)}  # fmt: skip
    given = [
        order.segment.worker
        for worker, at in back.items()
        for order in orders(list(entries[at:]))
        if isinstance(order, Assign) and order.segment.worker == worker
    ]
    assert given


# -- where they were when they were stopped --------------------------------------------


@pytest.mark.parametrize(("worker", "step"), [(1, 0), (2, 2), (3, 4)])
def test_what_a_stopped_worker_holds_is_done_by_others(
    runs: dict[str, Run], worker: int, step: int
) -> None:
    """It has reported parts, sends nothing, and is no loss that anybody hears of."""
    went = runs["stopped"].steps[step]
    assert parts_done(worker, list(went.entries)) >= PIECES - 1
    assert not any(isinstance(entry.event, WorkerLost) for entry in went.entries)
    assert worker not in went.senders


def test_who_is_stopped_at_work_is_not_waited_for(runs: dict[str, Run]) -> None:
    assert 4 not in runs["stopped"].steps[6].senders
