"""A few steps beside a plain loop: what is the same, what is not, and why."""

import math
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from codedgrad.errors import InvalidOptions
from codedgrad.torch import Job, PlainComparison, compare_with_plain
from codedgrad.torch.loss_divisors import known

Batch = tuple[Tensor, Tensor]


def make(
    *layers: Callable[[], nn.Module],
    loss: Callable[..., Any] = F.cross_entropy,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Callable[[], Job]:
    """Make a job of 50 samples in batches of 16, whose last one has 2."""

    def job() -> Job:
        x, y = torch.randn(50, 6, dtype=dtype), torch.randint(0, 3, (50,))
        middle = [layer() for layer in layers]
        net = nn.Sequential(nn.Linear(6, 8), *middle, nn.Tanh(), nn.Linear(8, 3))
        return Job(net.to(dtype), loss, (x, y), batch_size=16, **options)

    return job


def compared(job: Callable[[], Job], **options: Any) -> PlainComparison:
    given = {"engine": "here", "scheme": "uncoded", "workers": 4, "show": False}
    return compare_with_plain(job, **{**given, **options})


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


@pytest.mark.parametrize("engine", ["here", "local"])
@pytest.mark.parametrize("shuffle", [True, "global"])
def test_a_job_that_is_right_gives_the_same_numbers(
    engine: str, shuffle: bool | str
) -> None:
    found = compared(
        make(shuffle=shuffle),
        optimizer=adam,
        scheme="auto",
        workers=2,
        engine=engine,
        steps=6,  # over the end of an epoch
    )
    assert found.same
    assert not found.causes
    assert found.verdict.startswith("The same numbers: gradients differ by ")
    assert [each.step for each in found.steps] == list(range(6))
    for each in found.steps:
        assert each.gradient < 1e-12
        assert each.by_part < 1e-12
        assert each.parameters < 1e-9
        assert math.isclose(each.loss, each.plain_loss, rel_tol=1e-9)


def weighted(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    x, y = batch
    total = F.cross_entropy(model(x), y, ignore_index=0, reduction="sum")
    return total, (y != 0).sum()


def test_parts_of_unlike_count_are_the_same_as_the_loss_of_the_script() -> None:
    def script(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], ignore_index=0)

    assert compared(make(loss=weighted), loss=script).same
    assert compared(make(loss=nn.CrossEntropyLoss(ignore_index=0)), loss=script).same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_larger_in_narrow_types_and_still_the_same(
    dtype: torch.dtype,
) -> None:
    found = compared(make(dtype=dtype))
    assert found.same
    assert 1e-12 < max(each.gradient for each in found.steps) < found.limit


def test_one_percent_off_is_not_rounding_in_float32() -> None:
    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, float]:
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), 1.01 * len(x)

    def script(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    found = compared(make(loss=loss, dtype=torch.float32), loss=script)
    assert not found.same
    assert found.steps[0].gradient == pytest.approx(0.01, rel=0.02)
    assert "loss of the job is not the loss of the script" in found.verdict
    assert "returns (sum, count)" in found.causes[0]


def test_batch_normalisation_is_named_and_no_mistake_of_the_workers() -> None:
    found = compared(make(lambda: nn.BatchNorm1d(8)))
    assert not found.same
    assert max(each.by_part for each in found.steps) < 1e-12
    assert "of its 4 parts, one after the other" in found.verdict
    (cause,) = found.causes
    assert cause.startswith("the layer 1 normalises over the samples of a part")


def test_dropout_is_named_and_agrees_part_by_part() -> None:
    found = compared(make(nn.Dropout), engine="local", steps=2)
    assert not found.same
    assert max(each.by_part for each in found.steps) < 1e-12
    (cause,) = found.causes
    assert cause.startswith("the job draws random numbers (dropout, augmentation)")


def test_without_its_dropout_the_same_job_gives_the_same_numbers() -> None:
    assert compared(make(lambda: nn.Dropout(0.0))).same


def test_several_causes_are_all_named() -> None:
    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), 1

    job = make(nn.Dropout, lambda: nn.BatchNorm1d(8), loss=loss)
    norm, draws, count = compared(job).causes
    assert norm.startswith("the layer 2 normalises")
    assert draws.startswith("the job draws random numbers")
    assert "returns is 1 for the whole batch, and 4 for all its parts" in count


def test_a_mean_in_the_place_of_the_sum_is_found() -> None:
    def wrong(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        x, y = batch
        return F.cross_entropy(model(x), y), len(x)

    found = compared(make(loss=wrong))
    assert not found.same
    (cause,) = found.causes
    assert "and 4 times that, " in cause
    assert cause.endswith(
        'is a mean; return the sum over the samples (reduction="sum")'
    )


def test_a_regulariser_that_counts_once_a_part_is_found() -> None:
    def penalty(model: nn.Module) -> Tensor:
        return torch.stack([p.square().sum() for p in model.parameters()]).sum()

    def wrong(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        x, y = batch
        total = F.cross_entropy(model(x), y, reduction="sum")
        return total + penalty(model), len(x)

    def right(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        x, y = batch
        total = F.cross_entropy(model(x), y, reduction="sum")
        return total + len(x) * penalty(model), len(x)

    found = compared(make(loss=wrong))
    assert not found.same
    (cause,) = found.causes
    assert cause.startswith("the sum that the loss returns is ")
    assert "a regulariser, which is to be added times the count" in cause
    assert compared(make(loss=right)).same


def test_a_generator_of_its_own_is_found() -> None:
    def job() -> Job:
        own = torch.Generator()
        own.manual_seed(0)

        def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
            x, y = batch
            noise = torch.randn(x.shape, generator=own, dtype=x.dtype)
            return F.cross_entropy(model(x + noise), y, reduction="sum"), len(x)

        return make(loss=loss)()

    found = compared(job, steps=1)
    assert not found.same
    assert found.steps[0].by_part > 1e-3
    assert "in this process. The workers compute something else" in found.verdict
    assert "when it is computed again, in this process too" in found.causes[0]


def test_data_that_differs_from_process_to_process_is_found() -> None:
    root = os.getpid()

    class Unlike(Dataset[Batch]):
        def __len__(self) -> int:
            return 32

        def __getitem__(self, number: int) -> Batch:
            shift = 0.0 if os.getpid() == root else 1.0
            return torch.full((6,), number / 32 + shift), torch.tensor(number % 3)

    def job() -> Job:
        net = nn.Linear(6, 3)
        return Job(net, F.cross_entropy, Unlike(), batch_size=16, verify_data=False)

    found = compared(job, engine="local", workers=2, steps=1)
    assert not found.same
    assert "data that differs from process to process" in found.causes[0]


def test_an_approximate_scheme_is_named() -> None:
    found = compared(make(), scheme="ignore(1)", steps=2)
    assert not found.same
    assert "ends a step before the sum is exact" in found.causes[0]


def test_clipping_and_knobs_are_those_of_both_loops() -> None:
    def loss(
        model: nn.Module, batch: Batch, knobs: dict[str, float]
    ) -> tuple[Tensor, int]:
        x, y = batch
        total = F.cross_entropy(model(x), y, reduction="sum")
        return knobs["scale"] * total, len(x)

    def update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()

    job = make(loss=loss)
    found = compared(job, knobs={"scale": 3.0}, update=update, optimizer=adam)
    assert found.same
    assert found.steps[-1].parameters < 1e-9
    free = compared(job, knobs={"scale": 3.0}, optimizer=adam)
    assert free.steps[-1].loss != found.steps[-1].loss


def test_a_gradient_that_is_not_finite_is_not_the_same() -> None:
    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        x, y = batch
        total = F.cross_entropy(model(x), y, reduction="sum")
        return total * math.nan, len(x)

    found = compared(make(loss=loss), steps=1)
    assert not found.same
    assert found.steps[0].gradient == math.inf


def test_the_table_fits_and_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(make(nn.Dropout), steps=2, show=True)
    printed = capsys.readouterr().out
    assert printed == f"{found}\n"
    assert max(map(len, printed.splitlines())) <= 80
    assert len(printed.splitlines()[2:4]) == 2
    compared(make(), steps=1, show=False)
    assert capsys.readouterr().out == ""


def test_a_model_that_the_job_does_not_make_anew_is_left_to_the_root() -> None:
    net = nn.Linear(6, 3)
    x, y = torch.randn(20, 6), torch.randint(0, 3, (20,))
    assert compared(lambda: Job(net, F.cross_entropy, (x, y), batch_size=8)).same


def test_the_loss_of_torch_is_called_as_a_script_calls_it() -> None:
    loss = nn.CrossEntropyLoss()
    assert known(loss) is not None
    calls: list[str] = []
    loss.register_forward_hook(lambda *_: calls.append("called"))
    compared(make(loss=loss), steps=2)
    assert len(calls) >= 4  # twice a step: once for the table, once for the loop


@pytest.mark.parametrize("steps", [0, -1, 1.5])
def test_a_number_of_steps_is_one_or_more(steps: Any) -> None:
    with pytest.raises(InvalidOptions, match=r"steps: is .*; try a whole number, 1 or"):
        compared(make(), steps=steps)
    assert len(compared(make(), steps=1).steps) == 1


def test_a_loss_of_the_script_that_returns_no_number_is_refused() -> None:
    with pytest.raises(InvalidOptions, match=r"loss: returned .*that returns the mean"):
        compared(make(), loss=lambda model, batch: model(batch[0]))
