"""Deaths and stops in every phase of a worker's step, with lists planned again.

Sums are fetched late, so a worker may die with finished parts that nobody has. Where it
was when it died is read from the events. Whoever is to die is much quicker than others
in that step, so that it gets there; a machine that is busy with other things may
prevent that all the same, and then the run is made once more. Every step of every run
is compared with the sum that NumPy makes.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    MessageArrived,
    Patience,
    Progressed,
    StepStarted,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Local
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import Auto, auto
from codedgrad.trace import Entry, Trace, replay

PART, QUICK = 0.03, 0.002  # seconds of sleep
FOR_EVER = 3600.0  # seconds; who is stopped is continued when the step is over
TRIES = 5
HANGS = Patience(least=30.0, first=30.0)  # seconds; only a hang takes so long
PIECES = 8


@dataclass(frozen=True)
class Went:
    """A step: what it gave, what it should have given, and what led there."""

    vector: np.ndarray
    wanted: np.ndarray
    entries: tuple[Entry, ...]

    def until_lost(self, worker: int) -> list[Entry]:
        """Return what happened before a worker was lost."""
        lost = [e.event for e in self.entries if isinstance(e.event, WorkersLost)]
        first = next(event for event in lost if worker in event.workers)
        return list(takewhile(lambda entry: entry.event is not first, self.entries))

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


def live(workers: int, steps: int, faults: FaultPlan) -> Run:
    """Take steps on processes; those with a fault in store are quick in its step."""
    scheme, job, log = auto(workers, PIECES), NumpyJob(gradient, 3), list[Entry]()
    part = np.full((steps, workers), PART)
    for fault in faults.planned:
        part[fault.step, fault.worker] = QUICK
    engine, went = Local(), list[Went]()
    driver = Driver(
        engine, scheme, job.layout, patience=HANGS,
        watch=lambda e, c: log.append(Entry(e, tuple(c))),
    )  # fmt: skip
    try:
        engine.start(
            lambda: job, job.layout, workers, parts=scheme.parts, faults=faults,
            delays=Times(fixed=np.zeros_like(part), unit=PIECES * part),
        )  # fmt: skip
        for step, x in enumerate(np.random.default_rng(0).normal(size=(steps, 3))):
            vector = driver.step(x).vector.copy()
            wanted = sum_of_parts(x, step, scheme.parts)
            starts = [i for i, e in enumerate(log) if isinstance(e.event, StepStarted)]
            went.append(Went(vector, wanted, tuple(log[starts[-1] :])))
            go_on(engine, faults, step)
        lives = engine.lives
    finally:
        engine.close()
    return Run(scheme, went, faults, Trace(driver.header(), tuple(log)), lives)


def go_on(engine: Local, faults: FaultPlan, step: int) -> None:
    """Continue whoever was stopped in a step."""
    for fault in faults.fired:
        if (fault.kind, fault.step) == ("stop", step):
            os.kill(engine.pids[fault.worker], signal.SIGCONT)


def live_until_fired(
    workers: int, steps: int, plan: Callable[[], FaultPlan]
) -> list[Run]:
    """Return runs, the last of which had all its faults, if that is possible."""
    runs: list[Run] = []
    while len(runs) < TRIES and not (runs and runs[-1].faults.all_fired):
        runs.append(live(workers, steps, plan()))
    return runs


KILLED = {  # worker: step; each once, as a second death soon after makes it wait
    "before it is given anything": (1, 2),
    "with its first part unreported": (2, 3),
    "with its last part unreported": (3, 4),
    "with a sum that nobody has asked for": (4, 5),
    "with a sum that it was asked for": (5, 6),
}
AFTER = {"with its first part unreported": 1, "with its last part unreported": PIECES}
ON = {
    "with a sum that nobody has asked for": "held",
    "with a sum that it was asked for": "upload",
}
LATER = 6  # steps after the last fault, for everybody to be back


def one_by_one() -> FaultPlan:
    faults = FaultPlan()
    for phase, (worker, step) in KILLED.items():
        faults.kill(worker, step, after=AFTER.get(phase, 0), on=ON.get(phase, ""))
    return faults


def all_but_one() -> FaultPlan:
    """Two in the first step; later all but worker 0, in every phase."""
    faults = FaultPlan().kill(1, 0, on="held").kill(2, 0, on="held")
    faults.kill(1, 2).kill(2, 2, after=1).kill(3, 2, after=3)
    return faults.kill(4, 2, on="held").kill(5, 2, on="upload")


def stopped() -> FaultPlan:
    """With sums that nobody has asked for, with one that was, and at work."""
    faults = FaultPlan().stop(1, 0, FOR_EVER, on="held")
    faults.stop(2, 2, FOR_EVER, on="held").stop(3, 3, FOR_EVER, on="upload")
    return faults.stop(4, 4, FOR_EVER, after=2)


@pytest.fixture(scope="module")
def tries(together: Callable) -> dict[str, list[Run]]:
    calls = {
        "one by one": lambda: live_until_fired(6, 7 + LATER, one_by_one),
        "all but one": lambda: live_until_fired(6, 3 + LATER, all_but_one),
        "stopped": lambda: live_until_fired(6, 5 + LATER, stopped),
    }
    return dict(zip(calls, together(calls.values(), at_once=2), strict=True))


@pytest.fixture(scope="module")
def runs(tries: dict[str, list[Run]]) -> dict[str, Run]:
    return {name: found[-1] for name, found in tries.items()}


NAMES = ("one by one", "all but one", "stopped")


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_has_fired(runs: dict[str, Run], name: str) -> None:
    left = [f for f in runs[name].faults.planned if f not in runs[name].faults.fired]
    assert left == []
    assert runs[name].faults.all_fired


@pytest.mark.parametrize("name", NAMES)
def test_every_sum_is_that_of_all_parts(tries: dict[str, list[Run]], name: str) -> None:
    for run in tries[name]:
        for went in run.steps:
            np.testing.assert_allclose(went.vector, went.wanted, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_run_replays_without_a_difference(
    tries: dict[str, list[Run]], name: str
) -> None:
    for run in tries[name]:
        assert replay(run.trace, run.scheme) is None


@pytest.mark.parametrize("name", NAMES)
def test_in_the_end_everybody_is_back(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    senders = set().union(*(went.senders for went in run.steps[-LATER:]))
    assert senders == set(range(run.scheme.workers))
    killed = [fault.worker for fault in run.faults.fired if fault.kind == "kill"]
    expected = [1 + killed.count(worker) for worker in range(run.scheme.workers)]
    assert list(run.lives) == expected


# -- where they were when they died ----------------------------------------------------


def before(runs: dict[str, Run], phase: str) -> tuple[int, list[Entry]]:
    """Return who died in a phase, and what happened in that step before."""
    worker, step = KILLED[phase]
    return worker, runs["one by one"].steps[step].until_lost(worker)


def parts_done(worker: int, entries: Sequence[Entry]) -> int:
    done: dict[int, int] = {}
    for entry in entries:
        if isinstance(entry.event, Progressed) and entry.event.worker == worker:
            done[entry.event.segment] = entry.event.done
    return sum(done.values())


def parts_given(entries: Sequence[Entry], workers: set[int]) -> set[int]:
    return {
        part
        for entry in entries
        for order in entry.commands
        if isinstance(order, Assign) and order.segment.worker in workers
        for part in order.segment.parts
    }


def parts_sent(worker: int, entries: Sequence[Entry]) -> set[int]:
    done = sent(worker, entries)
    return {
        part
        for entry in entries
        for order in entry.commands
        if isinstance(order, Assign) and order.segment.id in done
        for part in order.segment.parts[: done[order.segment.id]]
    }


def closed(worker: int, entries: Sequence[Entry]) -> set[int]:
    return {
        entry.event.segment
        for entry in entries
        if isinstance(entry.event, Progressed)
        and entry.event.worker == worker
        and entry.event.closed
    }


def sent(worker: int, entries: Sequence[Entry]) -> dict[int, int]:
    """Return the segments that a worker has sent, with how many parts of each."""
    arrived = [e.event for e in entries if isinstance(e.event, MessageArrived)]
    return dict(cut for a in arrived if a.worker == worker for cut in a.cuts)


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
    assert not sent(worker, entries)


@pytest.mark.parametrize("phase", ON)
def test_who_dies_with_a_sum_has_closed_it_and_not_sent_it(
    runs: dict[str, Run], phase: str
) -> None:
    worker, entries = before(runs, phase)
    assert closed(worker, entries) - set(sent(worker, entries))


@pytest.mark.parametrize("phase", KILLED)
def test_what_a_dead_worker_has_not_sent_is_done_once_more(
    runs: dict[str, Run], phase: str
) -> None:
    """By others, or by itself in its next life."""
    worker, entries = before(runs, phase)
    step = runs["one by one"].steps[KILLED[phase][1]]
    had = parts_given(entries, {worker}) - parts_sent(worker, entries)
    others = parts_given(entries, set(range(6)) - {worker})
    later = parts_given(step.entries[len(entries) :], set(range(6)))
    assert had <= others | later


def test_two_die_in_the_first_step_of_all_with_sums_that_they_hold(
    runs: dict[str, Run],
) -> None:
    first = runs["all but one"].steps[0]
    for worker in (1, 2):
        entries = first.until_lost(worker)
        assert closed(worker, entries) - set(sent(worker, entries))


def test_a_step_in_which_all_but_one_die_loses_all_of_them(
    runs: dict[str, Run],
) -> None:
    entries = runs["all but one"].steps[2].entries
    events = [e.event for e in entries if isinstance(e.event, WorkersLost)]
    assert {worker for event in events for worker in event.workers} == {1, 2, 3, 4, 5}


# -- where they were when they were stopped --------------------------------------------


@pytest.mark.parametrize(("worker", "step"), [(1, 0), (2, 2), (3, 3)])
def test_what_a_stopped_worker_holds_is_done_by_others(
    runs: dict[str, Run], worker: int, step: int
) -> None:
    """It has closed a sum, sends nothing, and is no loss that anybody hears of."""
    went = runs["stopped"].steps[step]
    assert closed(worker, went.entries)
    assert not any(isinstance(entry.event, WorkersLost) for entry in went.entries)
    assert worker not in went.senders


def test_who_is_stopped_at_work_is_not_waited_for(runs: dict[str, Run]) -> None:
    assert 4 not in runs["stopped"].steps[4].senders
