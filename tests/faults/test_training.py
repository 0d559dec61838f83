"""Real faults at (worker, step), and training that is none the worse for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Combine, Scheme, State, WorkersJoined, WorkersLost
from codedgrad.delays import Times
from codedgrad.engines import FaultPlan, Local, train
from codedgrad.engines.faults import CORRUPTIONS
from codedgrad.jobs import Gradient, Training, single_process
from codedgrad.schemes import clustered, cyclic, fractional, uncoded
from codedgrad.testing import Everything
from codedgrad.trace import StepReport, Trace, ended_steps, read, replay

STEPS = 12
LONG = 150_003  # numbers in a model: several blocks of a sum, the last one short


def model(size: int) -> Gradient:
    """Make a gradient of so many numbers, with other data in every part and step."""
    slopes = np.random.default_rng(0).uniform(0.5, 1.5, (7, size))

    def gradient(
        x: np.ndarray, part: int, step: int
    ) -> tuple[float, float, np.ndarray]:
        gap = slopes[(part + 3 * step) % 7] * x - slopes[part % 7]
        return float(gap @ gap) / 2, 1.0 + part % 2, gap

    return gradient


@dataclass(frozen=True)
class Case:
    """A scheme, and what is done to its workers.

    Faults that a worker does to itself need it to take part in the step. It does where
    everybody is waited for, or where the others of its kind are slower.
    """

    name: str
    scheme: Scheme
    faults: Callable[[FaultPlan], FaultPlan] = lambda plan: plan
    size: int = 3
    late: dict[int, float] = field(default_factory=dict)  # worker: seconds a step
    lives: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"{self.scheme.name.partition('(')[0]} {self.name}"


def kill_all(workers: int, *steps: int) -> Callable[[FaultPlan], FaultPlan]:
    def plan(faults: FaultPlan) -> FaultPlan:
        for step in steps:
            for worker in range(workers):
                faults.kill(worker, step)
        return faults

    return plan


def corrupt_all(worker: int) -> Callable[[FaultPlan], FaultPlan]:
    def plan(faults: FaultPlan) -> FaultPlan:
        for step, how in enumerate(CORRUPTIONS, 2):
            faults.corrupt(worker, step, how)
        return faults

    return plan


CASES = [
    Case(
        "in trouble at work",
        uncoded(4, pieces=2),
        lambda f: (
            f.kill(2, 2, after=1)
            .kill(0, 3, after=2)
            .stop(0, 4, 0.1)
            .stop(1, 5, 0.1, after=1)
            .slow(2, 6, 0.05)
            .slow(3, 7, 0.05, after=1)
        ),
        lives=(2, 1, 2, 1),
    ),
    Case("corrupted", uncoded(4), corrupt_all(2), lives=(1, 1, 1, 1)),
    Case(
        "killed, and all of them twice",
        uncoded(4),
        lambda f: kill_all(4, 3, 6)(f.kill(1, 1)),
        lives=(3, 4, 3, 3),
    ),
    Case(
        "of a long model",
        uncoded(4),
        lambda f: f.kill(3, 2).slow(0, 4, 0.05).stop(1, 6, 0.05).corrupt(2, 8),
        size=LONG,
    ),
    Case("one slow", fractional(6, 2), size=LONG, late={0: 0.02, 3: 0.02}),
    Case("others slow", fractional(6, 2), size=LONG, late={1: 0.02, 5: 0.02, 4: 0.01}),
    Case(
        "killed, of a long model",
        fractional(6, 2),
        lambda f: (
            f.kill(0, 2).kill(1, 2).kill(2, 4, after=3).kill(5, 6).stop(3, 7, 0.1)
        ),
        size=LONG,
        late={0: 0.02, 1: 0.02},  # so that worker 2 takes part
    ),
    Case(
        "killed and back later",
        fractional(6, 2),
        lambda f: f.kill(1, 3).join(1, 6).kill(1, 8).join(1, 9),
        lives=(1, 3, 1, 1, 1, 1),
    ),
    Case(
        "joined late",
        fractional(6, 2),
        lambda f: f.join(2, 4).join(5, 6),
        lives=(1,) * 6,
    ),
    Case(
        "more killed than tolerated",
        fractional(4, 1),
        lambda f: f.kill(0, 3).kill(1, 3),
        lives=(2, 2, 1, 1),
    ),
    Case("corrupted", fractional(4, 1), corrupt_all(0), late={1: 0.02}),
    Case("all killed", fractional(6, 2), kill_all(6, 3), lives=(2,) * 6),
    Case(
        "left and back",
        cyclic(5, 2),
        lambda f: f.leave(0, 2).join(0, 5).leave(3, 4),
        lives=(2, 1, 1, 1, 1),
    ),
    Case("corrupted", cyclic(5, 2), corrupt_all(0), late={3: 0.02, 4: 0.02}),
    Case("all killed", cyclic(5, 2), kill_all(5, 3, 5), lives=(3,) * 5),
    Case(
        "in all kinds of trouble",
        clustered(6, 2, 1),
        lambda f: f.kill(0, 2).kill(1, 2).stop(3, 3, 0.1).join(5, 4).slow(4, 8, 0.1),
        late={3: 0.02, 5: 0.02},
    ),
    Case(
        "in trouble",
        Everything(4, each=3),
        lambda f: f.kill(0, 2).stop(1, 3, 0.1).kill(2, 5).kill(3, 5).join(3, 7),
    ),
]
NUMBERS = pytest.mark.parametrize("number", range(len(CASES)), ids=map(str, CASES))


@dataclass(frozen=True)
class Run:
    training: Training[StepReport]
    faults: FaultPlan
    engine: Local
    trace: Trace


@pytest.fixture(scope="module")
def runs(together: Callable, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("traces")
    return together(
        [
            lambda number=number, case=case: run(case, folder / f"{number}.jsonl")
            for number, case in enumerate(CASES)
        ]
    )


def run(case: Case, path: Path) -> Run:
    scheme, faults = case.scheme, case.faults(FaultPlan())
    engine = Local(open_segments=20)
    fixed = np.zeros((1, scheme.workers))
    for worker, seconds in case.late.items():
        fixed[0, worker] = seconds
    training = train(
        model(case.size),
        np.zeros(case.size),
        scheme,
        steps=STEPS,
        engine=engine,
        delays=Times(fixed=fixed, unit=np.zeros_like(fixed)),
        faults=faults,
        trace=path,
    )
    return Run(training, faults, engine, read(path))


@pytest.fixture(scope="module")
def undisturbed(together: Callable) -> dict[tuple[str, int, int], np.ndarray]:
    """Parameters that every scheme and size should lead to, by itself."""
    wanted = {
        (case.scheme.name, case.scheme.workers, case.size): case
        for case in CASES
        if is_to_the_bit(case.scheme)
    }

    def alone(case: Case) -> np.ndarray:
        start = np.zeros(case.size)
        return train(model(case.size), start, case.scheme, steps=STEPS).parameters

    found = together([lambda case=case: alone(case) for case in wanted.values()])
    return dict(zip(wanted, found, strict=True))


def is_to_the_bit(scheme: Scheme) -> bool:
    return scheme.name.startswith(("uncoded", "fractional"))


@NUMBERS
def test_every_fault_happens(runs: list[Run], number: int) -> None:
    faults = runs[number].faults
    assert faults.all_fired, (faults.planned, faults.fired)


@NUMBERS
def test_no_step_is_lost(runs: list[Run], number: int) -> None:
    steps = runs[number].training.steps
    assert [(step.step, step.combined) for step in steps] == [
        (step, True) for step in range(STEPS)
    ]


@pytest.mark.parametrize(
    "number",
    [i for i, case in enumerate(CASES) if is_to_the_bit(case.scheme)],
    ids=[str(case) for case in CASES if is_to_the_bit(case.scheme)],
)
def test_uncoded_and_fractional_runs_are_the_same_to_the_last_bit(
    runs: list[Run], undisturbed: dict, number: int
) -> None:
    case = CASES[number]
    found = runs[number].training.parameters
    wanted = undisturbed[case.scheme.name, case.scheme.workers, case.size]
    assert found.tobytes() == wanted.tobytes()


@NUMBERS
def test_the_parameters_are_those_of_a_single_process(
    runs: list[Run], number: int
) -> None:
    case = CASES[number]
    start = np.zeros(case.size)
    alone = single_process(model(case.size), start, case.scheme.parts, steps=STEPS)
    found = runs[number].training
    np.testing.assert_allclose(found.parameters, alone.parameters, rtol=1e-10)
    np.testing.assert_allclose(found.loss, alone.loss, rtol=1e-10)


@NUMBERS
def test_the_trace_replays_without_a_difference(runs: list[Run], number: int) -> None:
    assert replay(runs[number].trace, CASES[number].scheme) is None


@NUMBERS
def test_losses_and_joins_come_in_turn(runs: list[Run], number: int) -> None:
    case = CASES[number]
    there = [True] * case.scheme.workers
    for entry in runs[number].trace.entries:
        if isinstance(entry.event, WorkersLost | WorkersJoined):
            joined = isinstance(entry.event, WorkersJoined)
            for worker in entry.event.workers:
                assert there[worker] != joined, entry
                there[worker] = joined


@pytest.mark.parametrize(
    "number",
    [i for i, case in enumerate(CASES) if case.lives],
    ids=[str(case) for case in CASES if case.lives],
)
def test_nobody_dies_who_was_not_killed_and_who_was_comes_back(
    runs: list[Run], number: int
) -> None:
    assert runs[number].engine.lives == CASES[number].lives


def named(runs: list[Run], name: str) -> Run:
    return next(r for r, case in zip(runs, CASES, strict=True) if str(case) == name)


def test_who_joins_late_is_not_heard_before(runs: list[Run]) -> None:
    steps = named(runs, "fractional joined late").training.steps
    heard = [step.step for step in steps if 2 in step.heard]
    assert all(step >= 4 for step in heard)
    assert not any(5 in step.heard for step in steps[:6])


def test_who_leaves_is_not_heard_until_it_is_back(runs: list[Run]) -> None:
    steps = named(runs, "cyclic left and back").training.steps
    assert not any(0 in step.heard for step in steps[2:5])
    assert not any(3 in step.heard for step in steps[4:])  # for good


def test_the_same_sums_were_made_by_different_workers(runs: list[Run]) -> None:
    """So that being equal to the last bit means something."""
    used = [
        [who_was_weighed(record.state, end) for record, end in ended_steps(run.trace)]
        for run in (named(runs, f"fractional {who} slow") for who in ("one", "others"))
    ]
    assert used[0] != used[1]


def who_was_weighed(state: State, end: object) -> list[int]:
    assert isinstance(end, Combine)
    return [state.messages[message].worker for message, _ in end.weights]


def test_what_cannot_be_meant_is_refused_and_counted(runs: list[Run]) -> None:
    for name in ("uncoded", "fractional", "cyclic"):
        refused = named(runs, f"{name} corrupted").engine.refused
        assert refused == {"size": 1, "step": 1, "unknown": 1}, name
