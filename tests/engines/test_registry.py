"""An engine by its name, and an address that only Ray has."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from codedgrad.engines import Here, Ray, train
from codedgrad.engines.registry import NAMES, engine_of
from codedgrad.errors import InvalidOptions
from codedgrad.schemes import uncoded
from codedgrad.torch.job import Job
from codedgrad.torch.train import train as train_model


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return 0.0, 1.0, x - part


def job() -> Job:
    x = torch.ones(4, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, x), batch_size=4)


def train_numpy(**where: object) -> None:
    train(gradient, np.zeros(1), uncoded(2), steps=1, **where)


def train_torch(**where: object) -> None:
    train_model(job, workers=2, **where)


def test_an_engine_that_is_made_is_taken_as_it_is() -> None:
    engine = Here()
    assert engine_of(engine) is engine


@pytest.mark.parametrize("trains", [train_numpy, train_torch])
def test_the_class_of_an_engine_is_no_engine(trains) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidOptions, match=r"is the class Here; try Here\(\)"):
        trains(engine=Here)


def test_where_ray_is_to_listen_is_looked_at_before_ray_is_started() -> None:
    with pytest.raises(InvalidOptions, match="ports: is 'abc'; try FIRST-LAST"):
        Ray(ports="abc")
    with pytest.raises(InvalidOptions, match="interface: is 'eth99'; try one of"):
        train_numpy(engine=Ray(interface="eth99"))
    if "ray" in sys.modules:  # of another test
        assert not sys.modules["ray"].is_initialized()


@pytest.mark.parametrize("trains", [train_numpy, train_torch])
@pytest.mark.parametrize(
    ("engine", "problem"),
    [(name, f"but engine='{name}' has none") for name in NAMES if name != "ray"]
    + [(Here(), "but the engine is made already")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_address_where_there_can_be_none_is_refused_by_both_trainings(
    trains, engine: object, problem: str
) -> None:
    with pytest.raises(InvalidOptions, match=f"address: is 'auto', {problem}"):
        trains(engine=engine, address="auto")


@pytest.mark.parametrize("trains", [train_numpy, train_torch])
def test_both_trainings_give_an_address_to_ray(
    trains, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Exception):
        pass

    def asked(address: str | None, threads: int | str) -> None:
        raise Asked(address)

    monkeypatch.setattr("codedgrad.engines.ray.engine.Ray", asked)
    with pytest.raises(Asked, match="head:6379"):
        trains(engine="ray", address="head:6379")
