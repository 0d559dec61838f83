"""Schemes that learn: a worker is killed, and then the root, on the way.

What they have learnt comes back from the last steps that a checkpoint holds, or a run
that goes on would ask for other parts than a replay of its trace does.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import codedgrad as cg
from codedgrad.core import Assign, Combine, StepStarted, WorkersLost
from codedgrad.delays import Times
from codedgrad.engines import Engine, FaultPlan, Here, Local, Replayed
from codedgrad.errors import InvalidScheme
from codedgrad.schemes import build
from codedgrad.torch import Checkpoints, Job
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.trace import Trace, read_run, replay

TOTAL, KILLED, EVERY = 14, 10, 4  # steps; the root is killed in step 10


@dataclass(frozen=True)
class Case:
    """A scheme that learns, and the seconds that some workers are always late by."""

    scheme: str
    workers: int
    late: dict[int, float]
    unbiased: bool = False

    def delays(self) -> Times:
        fixed = np.zeros((1, self.workers))
        for worker, seconds in self.late.items():
            fixed[0, worker] = seconds
        return Times(fixed=fixed, unit=np.zeros_like(fixed))


CASES = [
    # Both are at home in cluster 0, which survives one.
    Case("dynamic(clusters=2, tolerance=1)", 6, late={0: 0.06, 4: 0.05}),
    Case("heterogeneous(budget=0.1, pieces=2)", 4, late={2: 0.2}, unbiased=True),
]


def job() -> Job:
    data = np.random.default_rng(0).standard_normal((48, 4))
    x = torch.from_numpy(data).float()
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3))
    y = x.argmax(dim=1).clamp(max=2)
    return Job(model, F.cross_entropy, (x, y), batch_size=24)


def train(
    case: Case,
    engine: Engine,
    look: Callable[[int], None] = lambda step: None,
    **options: Any,
) -> dict[str, bytes]:
    """Train to the end; return the model, bit by bit."""
    with cg.torch.train(
        job, scheme=case.scheme, workers=case.workers, engine=engine,
        unbiased=case.unbiased, **options,
    ) as coded:  # fmt: skip
        optimizer = torch.optim.Adam(coded.model.parameters(), lr=0.05)
        coded.track(optimizer=optimizer)
        for step in coded.steps(TOTAL):
            coded.backward()
            optimizer.step()
            look(step)
        return bits(coded.model.state_dict())


def bits(state: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


def asked(trace: Trace) -> list[tuple[tuple[int, tuple[int, ...]], ...]]:
    """Return which parts every worker was asked for at the start of every step."""
    return [
        tuple(
            (command.segment.worker, command.segment.parts)
            for command in entry.commands
            if isinstance(command, Assign)
        )
        for entry in trace.entries
        if isinstance(entry.event, StepStarted)
    ]


class Killed(Exception):
    pass


class Double(Here):
    """Stands in for processes in a second life: it takes seconds to start them."""

    name = Local.name

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = Local().capabilities


@pytest.mark.quick("dynamic(*")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.scheme)
def test_a_run_that_learns_goes_on_and_replays_to_the_last_bit(
    case: Case, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    when = Checkpoints(seconds=None, steps=EVERY)
    faults = FaultPlan().kill(1, 3)

    def die(step: int) -> None:
        if step == KILLED:
            shutil.copytree(first, second)  # what a kill leaves is what is there now
            raise Killed

    with pytest.raises(Killed):
        train(
            case, Local(), die, run_dir=first, checkpoints=when, faults=faults,
            delays=case.delays(),
        )  # fmt: skip
    assert faults.all_fired
    model = train(case, Double(), run_dir=second, checkpoints=when, resume="auto")

    run = read_run(second)
    events = [entry.event for entry in run.trace.entries]
    commands = [c for entry in run.trace.entries for c in entry.commands]
    started = [event.step for event in events if isinstance(event, StepStarted)]
    ended = [command.step for command in commands if isinstance(command, Combine)]
    assert started == ended == [line.step for line in run.steps] == [*range(TOTAL)]
    lost = [event.workers for event in events if isinstance(event, WorkersLost)]
    assert (1,) in lost
    before = read_run(first).trace.before(KILLED // EVERY * EVERY)
    assert run.trace.entries[: len(before)] == tuple(before)
    assert replay(run.trace, build(case.scheme, case.workers)) is None
    assert len(set(asked(run.trace))) > 1  # it has learnt something

    newest = Shelf(second / "checkpoints").newest()
    assert newest is not None
    assert bits(newest[1]["model"]) == model
    assert train(case, Replayed(second)) == model


class Unstarted(Local):
    """Processes that nobody may start."""

    def start(self, *given: object, **options: object) -> None:
        raise AssertionError("the engine was started")


def test_an_oracle_is_refused_before_anything_starts(tmp_path: Path) -> None:
    said = "an oracle knows what only a simulation can tell it; try state=hidden"
    made = []

    def made_job() -> Job:
        made.append(job())
        return made[-1]

    with pytest.raises(InvalidScheme, match=said):
        cg.torch.train(
            made_job, scheme="dynamic(2, 1, state=oracle)", workers=4,
            engine=Unstarted(), run_dir=tmp_path / "run",
        )  # fmt: skip
    assert made == []
    assert not (tmp_path / "run").exists()
