"""The user is warned, at the first step, of what no checkpoint will have."""

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim import optimizer as hooks
from torch.optim.lr_scheduler import StepLR

import codedgrad as cg
from codedgrad.torch import Coded, Job


def job() -> Job:
    x = torch.randn(24, 3)
    return Job(nn.Linear(3, 1), nn.MSELoss(), (x, x.sum(1, keepdim=True)), 8)


def train(folder: Path | None) -> Coded:
    more: dict[str, Any] = {} if folder is None else {"resume": "auto"}
    return cg.torch.train(
        job, scheme="uncoded", workers=2, engine="here", run_dir=folder, **more
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [r for r in caplog.records if r.levelno == logging.WARNING]
    return [record.getMessage() for record in records]


def untracked(name: str) -> str:
    return (
        f"{name} trains the model and is not tracked: a run that goes on begins it "
        "anew; write coded.track(optimizer=optimizer) before the first step"
    )


# -- optimizers ------------------------------------------------------------------------


def test_an_optimizer_that_is_not_tracked_is_named_at_its_first_step_and_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with train(tmp_path) as coded:
        weight, bias = coded.model.parameters()
        first, second = SGD([weight]), Adam([bias])
        assert warnings(caplog) == []
        for step in coded.steps(3):
            coded.backward()
            first.step()
            assert warnings(caplog)[:1] == [untracked("SGD")], step
            second.step()
    assert warnings(caplog) == [untracked("SGD"), untracked("Adam")]


class Wrapper:
    """An optimizer of somebody's own, around another."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.inner = optimizer

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


@pytest.mark.parametrize("wrapper", [lambda optimizer: optimizer, Wrapper])
def test_an_optimizer_that_is_tracked_or_whose_wrapper_is_goes_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrapper: Any
) -> None:
    with train(tmp_path) as coded:
        optimizer = SGD(coded.model.parameters())
        coded.track(optimizer=wrapper(optimizer))
        for _ in coded.steps(2):
            coded.backward()
            optimizer.step()
    assert warnings(caplog) == []


def test_a_scheduler_does_not_answer_for_its_optimizer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with train(tmp_path) as coded:
        optimizer = SGD(coded.model.parameters())
        coded.track(schedule=StepLR(optimizer, 1))
        for _ in coded.steps(2):
            coded.backward()
            optimizer.step()
    assert warnings(caplog) == [untracked("SGD")]


def test_only_optimizers_of_the_model_and_runs_with_a_folder_matter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = SGD([nn.Parameter(torch.ones(1))])
    with train(tmp_path / "a") as first, train(tmp_path / "b") as second:
        optimizers = [SGD(coded.model.parameters()) for coded in (first, second)]
        first.track(optimizer=optimizers[0])
        second.track(optimizer=optimizers[1])
        for _ in zip(first.steps(2), second.steps(2), strict=True):
            for coded, optimizer in zip((first, second), optimizers, strict=True):
                coded.backward()
                optimizer.step()
            other.step()
    with train(None) as coded:
        optimizer = SGD(coded.model.parameters())
        for _ in coded.steps(2):
            coded.backward()
            optimizer.step()
    assert warnings(caplog) == []


def test_nothing_is_left_of_it_and_nothing_is_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(hooks._global_optimizer_post_hooks)
    with train(tmp_path) as coded:
        optimizer = SGD(coded.model.parameters())
        assert len(hooks._global_optimizer_post_hooks) == before + 1
    assert len(hooks._global_optimizer_post_hooks) == before
    optimizer.step()
    assert warnings(caplog) == []
    with train(tmp_path) as coded:
        optimizer = SGD(coded.model.parameters())
        coded.backward()
        optimizer.step()
        gone = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert gone() is None


# -- states that nobody tracks ---------------------------------------------------------


def test_a_loop_of_ones_own_is_warned_of_a_state_that_is_not_tracked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with train(tmp_path) as coded:
        optimizer = SGD(coded.model.parameters(), momentum=0.9)
        coded.track(first=optimizer, second=StepLR(optimizer, 1))
        for _ in coded.steps(2):
            coded.backward()
    with train(tmp_path) as coded:
        optimizer = SGD(coded.model.parameters(), momentum=0.9)
        coded.track(first=optimizer)
        assert warnings(caplog) == []
        for _ in range(3):
            coded.backward()
            optimizer.step()
        assert warnings(caplog) == ["the checkpoint has 'second', which is not tracked"]
        coded.track(second=StepLR(optimizer, 1))  # takes up its state all the same
        for _ in coded.steps(6):
            coded.backward()
    assert len(warnings(caplog)) == 1
