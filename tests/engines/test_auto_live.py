"""Lists planned again inside the step, on real processes: what is computed, by whom.

Workers sleep for the seconds that are written here; who straggles sleeps longer than
any test. Decisions are read from the commands, so no test looks at a clock.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    MessageArrived,
    Patience,
    Progressed,
    Segment,
    StepStarted,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, Engine, FaultPlan, Here, Local, granted
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import Auto, auto
from codedgrad.trace import Entry, Trace, replay

WORKERS, PIECES = 4, 8
PART, NEVER = 0.02, 60.0  # seconds for a part
STEPS, SLOW = 5, 2  # how many, and from which one on somebody straggles
HANGS = Patience(least=30.0, first=30.0)  # seconds; only a hang takes so long


@dataclass(frozen=True)
class Went:
    """A step: its parameters, its sum, and what led there."""

    x: np.ndarray
    vector: np.ndarray
    entries: tuple[Entry, ...]

    @cached_property
    def first(self) -> dict[int, Segment]:
        """What every worker was given at the start."""
        [start] = [e for e in self.entries if isinstance(e.event, StepStarted)]
        found = [c.segment for c in start.commands if isinstance(c, Assign)]
        return {segment.worker: segment for segment in found}

    @cached_property
    def later(self) -> list[Segment]:
        """What was given after the start."""
        return [
            command.segment
            for entry in self.entries
            if not isinstance(entry.event, StepStarted)
            for command in entry.commands
            if isinstance(command, Assign)
        ]

    @cached_property
    def end(self) -> Combine:
        [end] = [c for e in self.entries for c in e.commands if isinstance(c, Combine)]
        return end

    @cached_property
    def shares(self) -> Counter[int]:
        """How many parts of the sum are whose."""
        arrived = {  # one that was sent twice counts once
            entry.event.message: entry.event
            for entry in self.entries
            if isinstance(entry.event, MessageArrived)
        }
        found = Counter[int]()
        for message, _ in self.end.weights:
            event = arrived[message]
            found[event.worker] += sum(done for _, done in event.cuts)
        return found


@dataclass(frozen=True)
class Run:
    """Steps on an engine."""

    scheme: Auto
    steps: list[Went]
    faults: FaultPlan
    trace: Trace


def drive(
    engine: Engine,
    gradient: Callable,
    unit: np.ndarray,
    fixed: np.ndarray | float = 0.0,
    faults: FaultPlan | None = None,
    scheme: Auto | None = None,
) -> Run:
    """Take a step for every row of `unit`, the seconds of an uncoded load."""
    scheme = auto(unit.shape[1], PIECES) if scheme is None else scheme
    job, log = NumpyJob(gradient, 3), list[Entry]()
    driver = Driver(
        engine, scheme, job.layout, patience=HANGS,
        watch=lambda e, c: log.append(Entry(e, tuple(c))),
    )  # fmt: skip
    faults, steps = FaultPlan() if faults is None else faults, list[Went]()
    times = Times(fixed=np.zeros_like(unit) + fixed, unit=unit)
    try:
        engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts, delays=times,
            faults=None if isinstance(engine, Here) else faults,
        )  # fmt: skip
        for x in np.random.default_rng(0).normal(size=(len(unit), 3)):
            begun = len(log)
            sum_ = driver.step(x)
            steps.append(Went(x, sum_.vector.copy(), tuple(log[begun:])))
    finally:
        engine.close()
    return Run(scheme, steps, faults, Trace(driver.header(), tuple(log)))


def seconds(factors: object = 1.0, steps: int = STEPS) -> np.ndarray:
    return np.ones((steps, WORKERS)) * PIECES * PART * np.asarray(factors)


def one_slow() -> np.ndarray:
    unit = seconds()
    unit[SLOW:, 0] = PIECES * NEVER
    return unit


def pauses() -> np.ndarray:
    fixed = np.zeros((STEPS, WORKERS))
    fixed[[2, 4], [1, 3]] = NEVER
    return fixed


@pytest.fixture(scope="module")
def runs(together: Callable, least_squares: Callable) -> dict[str, Run]:
    g = least_squares()
    corrupted = FaultPlan()
    for step, how in enumerate(("nan", "inf", "size", "step", "unknown", "repeat")):
        corrupted.corrupt(step % WORKERS, step, how)
    classes = seconds([1.0, 1.0, 4.0, 8.0], 8)
    ring = auto(WORKERS, PIECES, copies=2)
    calls = {
        "calm": lambda: drive(Local(), g, seconds()),
        "slow": lambda: drive(Local(), g, one_slow()),
        "woken": lambda: drive(Local(interrupts=True), g, one_slow()),
        "classes": lambda: drive(Local(), g, classes),
        "paused": lambda: drive(Local(interrupts=True), g, seconds(), pauses()),
        "ring": lambda: drive(Local(), g, one_slow(), scheme=ring),
        "corrupted": lambda: drive(Local(), g, seconds(0.2, 6), faults=corrupted),
        "fair": lambda: drive(granted(Local(), "fair"), g, one_slow()),
        "alone": lambda: drive(Local(), g, seconds()[:, :1]),
        "few rows": lambda: drive(Local(open_segments=2), g, one_slow()),
        "here": lambda: drive(Here(), g, 0.05 * seconds()),
    }
    return dict(zip(calls, together(calls.values(), at_once=2), strict=True))


NAMES = (
    "calm", "slow", "woken", "classes", "paused", "ring", "corrupted", "fair", "alone",
    "few rows", "here",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_sum_is_the_full_gradient(
    runs: dict[str, Run], least_squares: Callable, part_sums: Callable, name: str
) -> None:
    run = runs[name]
    for step, went in enumerate(run.steps):
        wanted = part_sums(least_squares(), went.x, step, np.ones(run.scheme.parts))
        np.testing.assert_allclose(went.vector, wanted, rtol=1e-10)
        assert went.end.residual == 0.0
        assert sum(went.shares.values()) == run.scheme.parts  # each once


@pytest.mark.parametrize("name", NAMES)
def test_a_live_run_replays_without_a_difference(
    runs: dict[str, Run], name: str
) -> None:
    assert replay(runs[name].trace, runs[name].scheme) is None


def test_everything_that_was_to_go_wrong_did(runs: dict[str, Run]) -> None:
    assert runs["corrupted"].faults.all_fired


def test_nobody_is_asked_for_more_than_its_own_at_the_start(
    runs: dict[str, Run],
) -> None:
    for name in ("calm", "slow", "paused"):
        first = runs[name].steps[0].first
        assert {worker: segment.parts for worker, segment in first.items()} == {
            worker: tuple(range(worker * PIECES, (worker + 1) * PIECES))
            for worker in range(WORKERS)
        }


STRAGGLING = ("slow", "woken", "ring", "fair", "few rows")


@pytest.mark.parametrize("name", STRAGGLING)
def test_parts_of_who_straggles_are_done_by_others(
    runs: dict[str, Run], name: str
) -> None:
    for went in runs[name].steps[SLOW:]:
        assert 0 not in went.shares


@pytest.mark.parametrize("name", STRAGGLING)
def test_who_straggles_is_found_out_in_the_first_step_in_which_it_does(
    runs: dict[str, Run], name: str
) -> None:
    went = runs[name].steps[SLOW]
    given = {part for segment in went.later for part in segment.parts}
    assert went.first[0].parts  # nobody knows yet
    assert set(went.first[0].parts) <= given


def test_on_a_ring_parts_go_to_those_who_hold_them(runs: dict[str, Run]) -> None:
    run = runs["ring"]
    for went in run.steps:
        for segment in (*went.first.values(), *went.later):
            assert set(segment.parts) <= set(run.scheme.placement[segment.worker])


def test_after_some_steps_lists_fit_those_who_have_them(runs: dict[str, Run]) -> None:
    def sizes(went: Went) -> list[int]:
        return [len(went.first[worker].parts) for worker in range(WORKERS)]

    assert any(sizes(went)[0] > sizes(went)[3] for went in runs["classes"].steps[-3:])


def test_a_worker_that_pauses_is_not_waited_for(runs: dict[str, Run]) -> None:
    for step, worker in ((2, 1), (4, 3)):
        assert worker not in runs["paused"].steps[step].shares


def test_who_wakes_up_when_its_part_is_abandoned_is_there_in_the_next_step(
    runs: dict[str, Run],
) -> None:
    """Otherwise it would sleep for longer than all steps together."""
    spoke = [
        entry.event.step
        for entry in runs["paused"].trace.entries
        if isinstance(entry.event, Progressed) and entry.event.worker == 1
    ]
    assert max(spoke) > 2


def test_one_worker_alone_does_everything(runs: dict[str, Run]) -> None:
    for went in runs["alone"].steps:
        assert went.shares == {0: PIECES}
