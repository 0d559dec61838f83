"""Adam with a second moment of its own, against both tracks written out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import codedgrad as cg
from codedgrad.errors import InvalidCall, InvalidJob, InvalidOptions
from codedgrad.torch import Checkpoints, Job, two_track

STEPS = 7
BETAS = 0.8, 0.95
SHRINK = 0.6


def slopes(x: Tensor, step: int) -> Tensor:
    """A gradient that depends on where one is, and on the step."""
    noise = np.random.default_rng(step).standard_normal(len(x))
    return 2 * x.detach() + torch.from_numpy(noise)


def written_out(
    x: Tensor,
    kappa: float,
    lr: float,
    eps: float,
    decay: float,
    decoupled: bool,
    amsgrad: bool,
) -> Tensor:
    """Two gradients, one for each moment; nothing is rearranged."""
    first, second, most = (torch.zeros_like(x) for _ in range(3))
    for step in range(1, STEPS + 1):
        gradient = slopes(x, step)
        if decoupled:
            x = x - lr * decay * x
        else:
            gradient = gradient + decay * x
        shrunk = kappa * gradient
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * shrunk**2
        most = torch.maximum(most, second)
        used = most if amsgrad else second
        root = (used / (1 - BETAS[1] ** step)).sqrt()
        x = x - lr * first / (1 - BETAS[0] ** step) / (root + eps)
    return x


@pytest.mark.parametrize("amsgrad", [False, True], ids=["", "amsgrad"])
@pytest.mark.parametrize("eps", [1e-8, 0.3])
@pytest.mark.parametrize(
    ("kind", "decay"),
    [(torch.optim.Adam, 0.0), (torch.optim.Adam, 0.2), (torch.optim.AdamW, 0.2)],
    ids=["Adam", "Adam decays", "AdamW"],
)
def test_it_is_adam_with_the_second_moment_of_a_shrunk_gradient(
    kind: type[torch.optim.Adam], decay: float, eps: float, amsgrad: bool
) -> None:
    start = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)
    x = start.clone().requires_grad_()
    plain = kind([x], lr=0.1, betas=BETAS, eps=eps, weight_decay=decay, amsgrad=amsgrad)
    optimizer = two_track(plain, SHRINK)
    assert optimizer is plain
    for step in range(1, STEPS + 1):
        x.grad = slopes(x, step)
        optimizer.step()
    is_decoupled = kind is torch.optim.AdamW
    expected = written_out(start, SHRINK, 0.1, eps, decay, is_decoupled, amsgrad)
    torch.testing.assert_close(x.detach(), expected, rtol=1e-12, atol=1e-12)
    unchanged = written_out(start, 1.0, 0.1, eps, decay, is_decoupled, amsgrad)
    assert not torch.allclose(expected, unchanged, rtol=1e-3)


def test_every_group_is_changed_by_its_own_numbers() -> None:
    parameters = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    groups = [
        {"params": parameters[:1], "lr": 0.1, "eps": 1.0, "weight_decay": 0.4},
        {"params": parameters[1:], "lr": torch.tensor(0.2), "eps": 0.0},
    ]
    first, second = two_track(torch.optim.AdamW(groups), 0.5).param_groups
    assert (first["lr"], first["eps"], first["weight_decay"]) == (0.2, 2.0, 0.2)
    assert (float(second["lr"]), second["eps"]) == (pytest.approx(0.4), 0.0)
    assert second["weight_decay"] == 0.005  # of the default, 0.01


def test_a_shrink_of_one_changes_nothing() -> None:
    x = torch.zeros(2, requires_grad=True)
    before, after = (torch.optim.AdamW([x]).param_groups[0] for _ in range(2))
    changed = two_track(torch.optim.AdamW([x]), 1.0).param_groups[0]
    assert {k: v for k, v in changed.items() if k != "two_track"} == before == after


def test_a_schedule_made_after_it_goes_on_from_the_new_rate() -> None:
    optimizer = two_track(torch.optim.Adam([torch.zeros(1)], lr=0.1), 0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2 * 0.9)


# -- what is refused -------------------------------------------------------------------


class Own(torch.optim.Adam):
    """Somebody's own, of which nothing is known."""


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.NAdam, torch.optim.RMSprop, Own]
)
def test_other_optimizers_are_refused(kind: Callable[..., torch.optim.Adam]) -> None:
    said = f"two_track: takes Adam or AdamW, not {kind.__name__}; try torch.optim.AdamW"
    with pytest.raises(InvalidJob, match=said):
        two_track(kind([torch.zeros(1)], lr=0.1), 0.5)


@pytest.mark.parametrize("shrink", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_shrink_that_is_none_is_refused(shrink: float) -> None:
    with pytest.raises(InvalidOptions, match=r"shrink: is .*; try above 0, and up to"):
        two_track(torch.optim.Adam([torch.zeros(1)]), shrink)


def test_it_is_not_done_twice_nor_after_a_scheduler() -> None:
    optimizer = two_track(torch.optim.Adam([torch.zeros(1)]), 0.5)
    with pytest.raises(InvalidCall, match=r"called before, with shrink = 0\.5"):
        two_track(optimizer, 0.5)
    optimizer = torch.optim.Adam([torch.zeros(1)], lr=0.1)
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    before = dict(optimizer.param_groups[0])
    with pytest.raises(InvalidCall, match="to make the scheduler later"):
        two_track(optimizer, 0.5)
    assert optimizer.param_groups[0] == before


# -- checkpoints -----------------------------------------------------------------------


def job() -> Job:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((24, 3)))
    model = nn.Linear(3, 1).double()
    return Job(model, nn.MSELoss(), (x, x.sum(1, keepdim=True)), batch_size=12)


def train(total: int, folder: Path | None) -> tuple[nn.Module, dict[str, Any]]:
    when: dict[str, Any] = {}
    if folder is not None:
        steps = Checkpoints(seconds=None, steps=2)
        when = {"run_dir": folder, "resume": "auto", "checkpoints": steps}
    with cg.torch.train(
        job, scheme="uncoded", workers=2, engine="here", **when
    ) as coded:
        parameters = coded.model.parameters()
        optimizer = two_track(torch.optim.AdamW(parameters, lr=0.05), SHRINK)
        coded.track(optimizer=optimizer)
        for _ in coded.steps(total):
            coded.backward()
            optimizer.step()
    return coded.model, optimizer.param_groups[0]


def test_a_run_that_goes_on_keeps_it_and_does_not_do_it_twice(tmp_path: Path) -> None:
    whole, group = train(6, None)
    for total in (3, 6):
        model, again = train(total, tmp_path / "run")
    for name in ("lr", "eps", "weight_decay", "two_track"):
        assert again[name] == group[name]
    for one, other in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
