"""`coded.samples` names what workers really get; `deviation` knows when it is late."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import codedgrad as cg
from codedgrad.errors import InvalidCall, InvalidOptions
from codedgrad.torch import Coded, Job, train

SHUFFLES = (True, False, "global")


class Numbers(Dataset[int]):
    """Sample i is i."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, number: int) -> int:
        return number


def numbers_job(
    samples: int, batch_size: int | None, shuffle: bool | str, log: Path | None = None
) -> Callable[[], Job]:
    """Make a job whose gradient says which samples there were, as powers of two."""

    def loss(model: nn.Module, batch: Tensor, step: int) -> tuple[Tensor, int]:
        if log is not None:
            with (log / str(step)).open("a") as file:
                file.write(" ".join(map(str, batch.tolist())) + "\n")
        weight: Tensor = model.weight  # type: ignore[assignment]
        return weight[0, batch].sum(), 1

    def job() -> Job:
        model = nn.Linear(samples, 1, bias=False, dtype=torch.float64)
        data = Numbers(samples)
        return Job(model, loss, data, batch_size, shuffle=shuffle)

    return job


@pytest.fixture
def coded() -> Iterator[Callable[..., Coded]]:
    running: list[Coded] = []

    def start(job: Callable[[], Job], **options: Any) -> Coded:
        given = {"workers": 2, "engine": "here", "progress": False, **options}
        running.append(train(job, **given))
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.mark.hypothesis
@given(
    samples=st.integers(1, 40),
    batch_size=st.integers(1, 45),
    parts=st.integers(1, 6),
    shuffle=st.sampled_from(SHUFFLES),
    seed=st.integers(0, 3),
)
def test_samples_are_those_whose_gradients_come_back(
    samples: int, batch_size: int, parts: int, shuffle: bool | str, seed: int
) -> None:
    job = numbers_job(samples, batch_size, shuffle)
    scheme = cg.schemes.uncoded(parts)
    with train(job, scheme=scheme, engine="here", seed=seed, progress=False) as coded:
        ahead = [coded.samples(step) for step in range(5)]
        for step in coded.steps(5):
            coded.backward()
            gradient = coded.model.weight.grad
            assert gradient is not None
            used = torch.nonzero(gradient[0]).flatten().tolist()
            assert used == sorted(coded.samples()) == sorted(ahead[step])
            by_part = [coded.samples(step, part=part) for part in range(parts)]
            assert list(chain.from_iterable(by_part)) == ahead[step]
        per_epoch = coded.steps_per_epoch
        epoch = [n for step in range(per_epoch) for n in coded.samples(step)]
        assert sorted(epoch) == list(range(samples))
        assert [coded.samples(step) for step in range(5)] == ahead  # past steps too


@pytest.mark.parametrize(
    "shuffle", [True, *(pytest.param(x, marks=pytest.mark.long) for x in SHUFFLES[1:])]
)
def test_real_workers_get_every_part_in_the_order_of_samples(
    coded: Callable[..., Coded], tmp_path: Path, shuffle: bool | str
) -> None:
    job = numbers_job(23, 10, shuffle, tmp_path)
    run = coded(job, scheme="uncoded", workers=3, engine="local")
    for step in run.steps(4):
        run.backward()
        got = (tmp_path / str(step)).read_text().splitlines()
        parts = [run.samples(step, part=part) for part in range(3)]
        wanted = [" ".join(map(str, part)) for part in parts if part]
        assert sorted(got) == sorted(wanted)


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_resumed_run_has_the_samples_of_one_that_was_not_interrupted(
    coded: Callable[..., Coded], tmp_path: Path, shuffle: bool | str
) -> None:
    job = numbers_job(23, 10, shuffle)
    first = coded(job, run_dir=tmp_path / "run", workers=2, seed=4)
    for _ in first.steps(3):
        first.backward()
    wanted = [first.samples(step) for step in range(8)]
    first.close()
    again = coded(job, run_dir=tmp_path / "run", resume=True, workers=3, seed=4)
    assert again.step == 3
    assert again.samples() == wanted[3]
    assert [again.samples(step) for step in range(8)] == wanted


@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float32, 1e-6), (torch.float64, 1e-10)]
)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_plain_loop_over_the_same_samples_gives_the_same_parameters(
    coded: Callable[..., Coded], dtype: torch.dtype, limit: float, shuffle: bool | str
) -> None:
    x = torch.randn(53, 4, dtype=dtype)
    y = x.square().sum(1, keepdim=True)

    def model() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        return net.to(dtype)

    def job() -> Job:
        return Job(model(), nn.MSELoss(), (x, y), batch_size=20, shuffle=shuffle)

    has_processes = shuffle is True and dtype is torch.float64
    run, steps = coded(job, engine="local" if has_processes else "here"), 8
    plain = model()
    plain.load_state_dict(run.model.state_dict())
    ours = torch.optim.SGD(run.model.parameters(), lr=0.05, momentum=0.9)
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    for _ in run.steps(steps):
        run.backward()
        ours.step()
    data = list(zip(x, y, strict=True))
    loader = DataLoader(data, batch_sampler=[run.samples(s) for s in range(steps)])  # type: ignore[arg-type]
    for inputs, targets in loader:
        theirs.zero_grad()
        nn.functional.mse_loss(plain(inputs), targets).backward()
        theirs.step()
    for one, other in zip(run.model.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=0, atol=limit)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"step": -1}, "step: is -1; try a whole number, 0 or more"),
        ({"step": 1.5}, "step: is 1.5"),
        ({"step": True}, "step: is True"),
        ({"part": 2}, "part: is 2; try a number from 0 to 1"),
        ({"part": -1}, "part: is -1"),
    ],
)
def test_a_step_or_part_that_there_is_not_is_refused(
    coded: Callable[..., Coded], given: dict[str, Any], problem: str
) -> None:
    run = coded(numbers_job(4, 2, True), scheme="uncoded")
    assert run.samples(np.int64(10**6), part=1)
    with pytest.raises(InvalidOptions, match=problem):
        run.samples(**given)


def deviating_job(dtype: torch.dtype = torch.float64, frozen: bool = False) -> Job:
    x = torch.linspace(-1, 1, 24, dtype=dtype).reshape(24, 1)
    model = nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 1)).to(dtype)
    if frozen:
        model[0].requires_grad_(False)
    return Job(model, nn.MSELoss(), (x, x**2), batch_size=12)


def by_optimizer(model: nn.Module) -> None:
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def through_numpy(model: nn.Module) -> None:
    next(model.parameters()).detach().numpy()[0, 0] += 1e-9


def through_data(model: nn.Module) -> None:
    list(model.parameters())[-1].data.mul_(1.5)


def by_other_memory(model: nn.Module) -> None:
    last = list(model.parameters())[-1]
    last.data = last.data + 1.0


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize(
    "change", [by_optimizer, through_numpy, through_data, by_other_memory]
)
def test_deviation_after_the_parameters_changed_says_so(
    coded: Callable[..., Coded], change: Callable[[nn.Module], None], frozen: bool
) -> None:
    run = coded(lambda: deviating_job(frozen=frozen))
    for _ in run.steps(2):
        run.backward()
        assert run.deviation() < 1e-12
        change(run.model)
        message = (
            "deviation: the parameters have changed since backward(); try to call it "
            "between backward() and optimizer.step()"
        )
        with pytest.raises(InvalidCall) as error:
            run.deviation()
        assert str(error.value) == message


def test_deviation_of_parameters_that_are_set_back_is_a_number_again(
    coded: Callable[..., Coded],
) -> None:
    run = coded(deviating_job)
    run.backward()
    weight = next(run.model.parameters())
    before = weight.detach().clone()
    with torch.no_grad():
        weight += 1
        with pytest.raises(InvalidCall):
            run.deviation()
        weight.copy_(before)
    assert run.deviation() < 1e-12


def test_deviation_sees_changes_of_parameters_that_live_elsewhere(
    coded: Callable[..., Coded],
) -> None:
    run = coded(lambda: deviating_job(torch.bfloat16))  # published as float32
    run.backward()
    assert run.deviation() < 1e-2
    by_optimizer(run.model)
    with pytest.raises(InvalidCall, match="the parameters have changed"):
        run.deviation()


def test_gradients_and_buffers_may_change_before_a_deviation(
    coded: Callable[..., Coded],
) -> None:
    def job() -> Job:
        x = torch.linspace(-1, 1, 24).reshape(24, 1)
        net = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        return Job(net, nn.MSELoss(), (x, x**2), batch_size=12)

    run = coded(job, scheme="uncoded")
    for _ in run.steps(2):
        run.backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 1e-3)
        assert run.deviation() < 1e-5


def test_deviation_without_a_gradient_is_refused(coded: Callable[..., Coded]) -> None:
    with pytest.raises(InvalidCall, match="has no gradient to look at"):
        coded(deviating_job).deviation()
