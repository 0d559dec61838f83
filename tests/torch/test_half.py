"""Models in float16: sums and gradients that do not fit into it come out right."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codedgrad.core import Scheme
from codedgrad.schemes import cyclic, uncoded
from codedgrad.torch import Job, mean_over_samples, train
from codedgrad.torch.losses import objective

LARGEST = torch.finfo(torch.float16).max  # 65504
SAMPLES = 4096
SCHEMES = [uncoded(2), cyclic(3, 1)]


def numbers(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator)


def net(dtype: torch.dtype = torch.float16) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)
        return nn.Sequential(*layers).to(dtype)


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean(dim=1).mean()


X = numbers(SAMPLES, 6, seed=1)
FAR = 10 * X[:, :3] + 40  # squared errors of about 1700, over 65504 in all
CLASS = torch.arange(SAMPLES) % 3
LOSSES: dict[str, tuple[Any, Callable[[Tensor, Tensor], Tensor], Tensor]] = {
    "a module": (nn.MSELoss(), F.mse_loss, FAR.half()),
    "a function": (F.mse_loss, F.mse_loss, FAR.half()),
    "a mean over samples": (mean_over_samples(mean_square), mean_square, FAR.half()),
    "class weights": (
        nn.CrossEntropyLoss(weight=torch.tensor([50.0, 1, 20]).half()),
        nn.CrossEntropyLoss(weight=torch.tensor([50.0, 1, 20])),
        CLASS,
    ),
}


def gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten().float() for p in model.parameters()])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_a_model_in_float16_trains_on_a_batch_whose_sums_are_too_large_for_it(
    name: str, scheme: Scheme
) -> None:
    loss, plain, target = LOSSES[name]
    make = lambda: Job(net(), loss, (X.half(), target))  # noqa: E731
    with train(make, scheme=scheme, engine="here") as coded:
        optimizer = torch.optim.SGD(coded.model.parameters(), lr=1e-3)
        for _ in coded.steps(3):
            wide = deepcopy(coded.model).float()
            true = target.float() if target.is_floating_point() else target
            wanted = plain(wide(X.half().float()), true)
            wanted.backward()
            report = coded.backward()
            assert report.finite
            assert report.loss == pytest.approx(wanted.item(), rel=2e-3)
            assert coded.deviation() < 1e-4
            gap = gradients(coded.model) - gradients(wide)
            assert gap.norm() < 5e-3 * gradients(wide).norm()
            assert coded.model[0].weight.grad.dtype == torch.float16
            optimizer.step()


def test_a_gradient_that_fits_as_a_mean_need_not_fit_as_a_sum() -> None:
    with train(
        lambda: Job(net(), nn.MSELoss(), (X.half(), FAR.half())),
        scheme=uncoded(2),
        engine="here",
    ) as coded:
        coded.backward()
        last = coded.model[2].bias.grad.float()
    assert last.isfinite().all()
    assert last.abs().max() * (SAMPLES / 2) * 3 > LARGEST  # of a part, before the mean


def test_sums_are_float32_at_least_and_double_stays_double() -> None:
    for dtype, wanted in (
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        for loss in (nn.MSELoss(), mean_over_samples(mean_square)):
            found = objective(loss)(net(dtype), (X.to(dtype), FAR.to(dtype)))
            assert found.total.dtype == wanted
            assert found.total.item() > LARGEST


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_a_batch_that_fits_are_those_of_pytorchs_sum_bit_for_bit(
    dtype: torch.dtype,
) -> None:
    x, y = X[:24].to(dtype), CLASS[:24]
    plain = net(dtype)
    F.cross_entropy(plain(x), y, reduction="sum").backward()
    wanted = [p.grad.float() / 24 for p in plain.parameters()]
    with train(
        lambda: Job(net(dtype), F.cross_entropy, (x, y), shuffle=False),
        scheme=uncoded(1),
        engine="here",
    ) as coded:
        coded.backward()
        found = [p.grad for p in coded.model.parameters()]
    assert all(torch.equal(a, b.to(dtype)) for a, b in zip(found, wanted, strict=True))


def test_autocast_to_float16_is_as_safe() -> None:
    """Parameters are float32, and what goes back through the layers is float16."""
    model = nn.Sequential(nn.Linear(6, 1), nn.Linear(1, 3)).float()
    make = lambda: Job(  # noqa: E731
        deepcopy(model), nn.MSELoss(), (X, 100 * FAR), autocast=torch.float16
    )
    with train(make, scheme=uncoded(1), engine="here") as coded:
        assert coded.backward().finite
        assert gradients(coded.model).isfinite().all()


def test_a_part_without_anything_that_counts_has_no_gradient_and_no_trouble() -> None:
    ignored = torch.full((8,), -100)
    with train(
        lambda: Job(net(), F.cross_entropy, (X[:8].half(), ignored)),
        scheme=uncoded(2),
        engine="here",
    ) as coded:
        coded.backward()
        assert not gradients(coded.model).any()
