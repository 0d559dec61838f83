"""What would be wrong in silence, or lost, if nobody looked."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidScenario
from codedgrad.torch import Checkpoints, Job, train


class Added(nn.Module):
    """Two parameters that are added: autograd gives both the same gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.b = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.a.unsqueeze(0) + self.b.unsqueeze(0))


X = torch.arange(30, dtype=torch.float64).reshape(10, 3) / 10


def job() -> Job:
    return Job(Added(), nn.MSELoss(), (X, X**2), batch_size=5)


def coded(**options: Any) -> Any:
    return train(job, scheme="cyclic(2)", workers=5, engine="here", **options)


def test_gradients_that_share_memory_are_each_scaled_once() -> None:
    whole = Added()
    with coded() as running:
        running.backward()
        assert running.deviation() < 1e-12
        gradients = [p.grad.clone() for p in running.model.parameters()]
    x = X[running._work.parts.indices(0, 0)]
    for part in range(1, 5):
        x = torch.cat([x, X[running._work.parts.indices(part, 0)]])
    nn.functional.mse_loss(whole(x), x**2).backward()
    for gradient, parameter in zip(gradients, whole.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-12, atol=0)


def test_steps_for_every_epoch_anew_are_an_error_not_nothing() -> None:
    with coded() as running:
        for _ in running.steps(2):
            running.backward()
        with pytest.raises(InvalidScenario, match="steps: are done: 2 in all, of 2"):
            next(running.steps(2))
        assert list(running.steps(3)) == [2]


def test_a_loop_in_a_loop_is_refused() -> None:
    with coded() as running:
        outer = running.steps(3)
        next(outer)
        running.backward()
        with pytest.raises(InvalidScenario, match="is in a loop over steps"):
            next(running.steps(3))


def test_what_is_tracked_too_late_is_not_begun_anew(tmp_path: Path) -> None:
    when = Checkpoints(steps=1, seconds=None)
    for total in (2, 4):
        with coded(run_dir=tmp_path, resume="auto", checkpoints=when) as running:
            optimizer = torch.optim.Adam(running.model.parameters())
            if total == 2:
                running.track(optimizer=optimizer)
            for _ in running.steps(total):
                running.backward()
                if total == 4:
                    with pytest.raises(InvalidScenario, match="comes too late"):
                        running.track(optimizer=optimizer)
                optimizer.step()


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidScenario, match="has parameters of its own"):
        Job(Added(), nn.Linear(3, 1), (X, X))


def test_a_start_that_failed_leaves_a_folder_one_can_start_in(tmp_path: Path) -> None:
    with pytest.raises(InvalidScenario, match="delays"):
        coded(run_dir=tmp_path, delays=_times(workers=3))
    with coded(run_dir=tmp_path) as running:
        running.backward()


def _times(workers: int) -> Any:
    from codedgrad.engines.faults import no_delays

    return no_delays(workers)
