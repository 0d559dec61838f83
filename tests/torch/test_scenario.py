"""Training takes what a plan has written."""

from pathlib import Path

import pytest
import torch
from torch import nn

from codedgrad.advise import Asked, advice_on, plan
from codedgrad.advise.plan.scenario import write_scenario
from codedgrad.advise.plan.sources import source_from
from codedgrad.errors import InvalidOptions, InvalidScenario
from codedgrad.torch import Job, train


def job() -> Job:
    x = torch.arange(64.0).reshape(64, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=32)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    planned = plan(source_from("AR"), Asked(steps=8))
    write_scenario(tmp_path / "plan.toml", planned, advice_on(planned))
    return str(tmp_path / "plan.toml")


def test_a_plan_is_trained_with_the_scheme_that_it_advises(scenario: str) -> None:
    with train(job, scheme=scenario, engine="here") as coded:
        assert (coded.scheme.name, coded.scheme.workers) == ("auto", 4)
        coded.backward()


def test_other_workers_than_those_planned_for_are_refused(scenario: str) -> None:
    with pytest.raises(InvalidOptions, match="are 5, the scheme has 4"):
        train(job, scheme=scenario, workers=5, engine="here")


def test_a_plan_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidScenario, match=r"none\.toml"):
        train(job, scheme=str(tmp_path / "none.toml"), engine="here")
