"""Trees of real processes: leaves and inner workers killed, stopped and corrupted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    ROOT,
    Assign,
    Combine,
    MessageArrived,
    MessageFailed,
    Upload,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import FaultPlan, Local, Replayed, train
from codedgrad.engines.faults import CORRUPTIONS
from codedgrad.jobs import Gradient, Training, single_process
from codedgrad.schemes import CodedReduce, coded_reduce
from codedgrad.trace import Entry, StepReport, Trace, ended_steps, read, replay

LONG = 70_003  # numbers in a model: several blocks of a sum, the last one short


def model(size: int) -> Gradient:
    """Make a gradient of so many numbers, with other data in every part and step."""
    slopes = np.random.default_rng(0).uniform(0.5, 1.5, (7, size))

    def gradient(
        x: np.ndarray, part: int, step: int
    ) -> tuple[float, float, np.ndarray]:
        gap = slopes[(part + 3 * step) % 7] * x - slopes[part % 7]
        return float(np.square(gap).sum()) / 2, 1.0 + part % 2, gap

    return gradient


def corrupt_all(faults: FaultPlan, worker: int, first: int) -> FaultPlan:
    for step, how in enumerate(CORRUPTIONS, first):
        faults.corrupt(worker, step, how)
    return faults


@dataclass(frozen=True)
class Case:
    """A tree, and what is done to its workers."""

    scheme: CodedReduce
    faults: Callable[[FaultPlan], FaultPlan]
    late: dict[int, float] = field(default_factory=dict)  # worker: seconds a step
    size: int = 3
    steps: int = 14
    lives: dict[int, int] = field(default_factory=dict)  # worker: more than one


CASES = {
    # In step 8 the root does not wait for worker 2, which is stopped when it is to
    # gather; in step 10 it must, and worker 2 wakes up to orders that are too old.
    "killed and stopped": Case(
        coded_reduce(12, 3, 1),
        lambda f: (
            f.kill(5, 2).join(5, 4).kill(1, 4).join(1, 6).stop(9, 6, 0.2)
            .slow(1, 8, 0.2).stop(2, 8, 2.0, after=4)
            .kill(0, 10).join(0, 12).kill(3, 12).join(3, 13)
        ),
        lives={0: 2, 1: 2, 3: 2, 5: 2},
    ),
    # Worker 1 and a leaf below each of the others are late: all others are needed.
    "not finite": Case(
        coded_reduce(12, 3, 1),
        lambda f: f.corrupt(3, 1, "nan").corrupt(0, 3, "inf").corrupt(10, 5, "nan"),
        late={1: 0.3, 5: 0.3, 11: 0.3},
        steps=7,
    ),
    # Everybody is needed, so whoever dies is waited for. Workers 0 and 2 die in the end
    # of their part, when all below them have sent.
    "gathered in vain": Case(
        coded_reduce(14, 2, 0),
        lambda f: (
            f.slow(0, 2, 0.4).kill(0, 2, after=1).slow(2, 4, 0.3).kill(2, 4, after=1)
            .kill(13, 6).kill(1, 7)
        ),
        steps=9,
        lives={0: 2, 1: 2, 2: 2, 13: 2},
    ),
    "corrupted": Case(
        coded_reduce(6, 2, 0),
        lambda f: corrupt_all(corrupt_all(f, 0, 1), 4, 8),
        steps=15,
        size=LONG,
    ),
}  # fmt: skip
NAMES = pytest.mark.parametrize("name", CASES)


@dataclass(frozen=True)
class Run:
    training: Training[StepReport]
    faults: FaultPlan
    engine: Local
    path: Path
    trace: Trace


@pytest.fixture(scope="module")
def runs(
    together: Callable, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("traces")

    def run(case: Case, path: Path) -> Run:
        scheme, faults, engine = case.scheme, case.faults(FaultPlan()), Local()
        fixed = np.zeros((1, scheme.workers))
        for worker, seconds in case.late.items():
            fixed[0, worker] = seconds
        training = train(
            model(case.size),
            np.zeros(case.size),
            scheme,
            steps=case.steps,
            engine=engine,
            delays=Times(fixed=fixed, unit=np.zeros_like(fixed)),
            faults=faults,
            trace=path,
        )
        return Run(training, faults, engine, path, read(path))

    calls = [
        lambda number=number, case=case: run(case, folder / f"{number}.jsonl")
        for number, case in enumerate(CASES.values())
    ]
    return dict(zip(CASES, together(calls, at_once=2), strict=True))


@NAMES
def test_every_fault_happens(runs: dict[str, Run], name: str) -> None:
    faults = runs[name].faults
    assert faults.all_fired, (faults.planned, faults.fired)


@NAMES
def test_no_step_is_lost_and_the_parameters_are_those_of_a_single_process(
    runs: dict[str, Run], name: str
) -> None:
    case, found = CASES[name], runs[name].training
    assert [(step.step, step.combined) for step in found.steps] == [
        (step, True) for step in range(case.steps)
    ]
    start = np.zeros(case.size)
    parts, steps = case.scheme.parts, case.steps
    alone = single_process(model(case.size), start, parts, steps=steps)
    np.testing.assert_allclose(found.parameters, alone.parameters, rtol=1e-10)
    np.testing.assert_allclose(found.loss, alone.loss, rtol=1e-10)


@NAMES
def test_the_trace_replays_to_the_same_commands(
    runs: dict[str, Run], name: str
) -> None:
    assert replay(runs[name].trace, CASES[name].scheme) is None


@NAMES
def test_the_run_happens_once_more_to_the_last_bit(
    runs: dict[str, Run], name: str
) -> None:
    case, run = CASES[name], runs[name]
    again = train(
        model(case.size),
        np.zeros(case.size),
        case.scheme,
        steps=case.steps,
        engine=Replayed(run.path),
    )
    assert again.parameters.tobytes() == run.training.parameters.tobytes()


@NAMES
def test_nobody_dies_who_was_not_killed_and_who_was_comes_back(
    runs: dict[str, Run], name: str
) -> None:
    case = CASES[name]
    expected = [case.lives.get(worker, 1) for worker in range(case.scheme.workers)]
    assert list(runs[name].engine.lives) == expected


@NAMES
def test_the_root_adds_up_the_messages_of_the_first_layer_and_no_others(
    runs: dict[str, Run], name: str
) -> None:
    """Everybody else's were added by the worker above them."""
    tree = CASES[name].scheme.tree
    for record, end in ended_steps(runs[name].trace):
        assert isinstance(end, Combine)
        weighed = [record.state.messages[message] for message, _ in end.weights]
        assert all(tree.parent(m.worker) == ROOT for m in weighed)
        added = {tuple(m.gathered) for m in weighed}
        assert () not in added  # each has gathered something
        for gathered in added:
            senders = {record.state.messages[id_].worker for id_, _ in gathered}
            assert len({tree.parent(worker) for worker in senders}) == 1


def entries_of(run: Run, step: int) -> Iterator[Entry]:
    """Go through what happened while a step was open."""
    is_open = False
    for entry in run.trace.entries:
        is_open |= getattr(entry.event, "step", None) == step
        if is_open:
            yield entry
        if any(isinstance(c, Combine) and c.step == step for c in entry.commands):
            return


def orders_of(run: Run, step: int) -> set[int]:
    """The workers that were given parts in the first moment of a step."""
    first = next(iter(entries_of(run, step)))
    return {c.segment.worker for c in first.commands if isinstance(c, Assign)}


def test_a_lost_inner_worker_is_done_without_and_when_it_is_back_all_is_whole_again(
    runs: dict[str, Run],
) -> None:
    run = runs["killed and stopped"]
    weighed = {
        record.step: {
            record.state.messages[message].worker for message, _ in end.weights
        }
        for record, end in ended_steps(run.trace)
    }
    assert weighed[4] == weighed[5] == {0, 2}
    assert weighed[8] == {0, 1}
    assert weighed[10] == weighed[11] == {1, 2}
    assert orders_of(run, 4) == set(range(12))
    assert orders_of(run, 6) == set(range(12))


def test_a_sum_of_a_step_that_is_over_comes_too_late_and_changes_nothing(
    runs: dict[str, Run],
) -> None:
    """By then other sums are in the rows that it was to gather."""
    late = [
        (entry.event.step, entry.event.worker)
        for number in (9, 10)
        for entry in entries_of(runs["killed and stopped"], number)
        if isinstance(entry.event, MessageArrived) and entry.event.step < number
    ]
    assert (8, 2) in late


def test_those_below_who_is_back_are_asked_to_send_once_more(
    runs: dict[str, Run],
) -> None:
    """Workers 2 and 3 had gathered, and sent, when worker 0 died with it."""
    entries = list(entries_of(runs["gathered in vain"], 2))
    kinds = [type(entry.event) for entry in entries]
    died, back = kinds.index(WorkersLost), kinds.index(WorkersJoined)
    first = [
        command
        for entry in entries[:died]
        for command in entry.commands
        if isinstance(command, Upload) and command.to == 0
    ]
    again = [c for c in entries[back].commands if isinstance(c, Upload)]
    assert sorted(order.worker for order in first) == [2, 3]
    assert [(o.worker, o.segments, o.gathered) for o in again] == sorted(
        (o.worker, o.segments, o.gathered) for o in first
    )
    assert all(len(order.gathered) == 2 for order in again)


def test_what_was_sent_to_a_former_life_is_not_gathered_by_the_next(
    runs: dict[str, Run],
) -> None:
    entries = list(entries_of(runs["gathered in vain"], 2))
    kinds = [type(entry.event) for entry in entries]
    died = kinds.index(WorkersLost)
    before = {
        entry.event.message
        for entry in entries[:died]
        if isinstance(entry.event, MessageArrived) and entry.event.worker in (2, 3)
    }
    assert len(before) == 2
    uploads = [c for e in entries for c in e.commands if isinstance(c, Upload)]
    (last,) = [u for u in uploads if u.worker == 0 and u.to == ROOT][-1:]
    assert not before.intersection(message for message, _ in last.gathered)


def test_one_who_sends_what_is_not_finite_is_contradicted_and_nobody_else(
    runs: dict[str, Run],
) -> None:
    blamed = {
        record.step: record.contradicted
        for record, _ in ended_steps(runs["not finite"].trace)
        if record.contradicted
    }
    assert blamed == {1: (3,), 3: (0,), 5: (10,)}
    blamed = {
        record.step: record.contradicted
        for record, _ in ended_steps(runs["corrupted"].trace)
        if record.contradicted
    }
    assert blamed == {1: (0,), 2: (0,), 8: (4,), 9: (4,)}


def test_a_sum_of_the_wrong_length_is_made_again_with_what_was_gathered_for_it(
    runs: dict[str, Run],
) -> None:
    run = runs["corrupted"]
    assert run.engine.refused == {"size": 2, "step": 2, "unknown": 2}
    failed = [e for e in entries_of(run, 3) if isinstance(e.event, MessageFailed)]
    (entry,) = failed
    assert entry.event.worker == 0
    assert [type(command) for command in entry.commands] == [Assign, Upload]
    assert len(entry.commands[1].gathered) == 2
