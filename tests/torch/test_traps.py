"""What would be wrong in silence, or lost, if nobody looked."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from codedgrad.delays import Slow
from codedgrad.errors import InvalidCall, InvalidJob, InvalidOptions
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
        with pytest.raises(InvalidCall, match="steps: are done: 2 in all, of 2"):
            next(running.steps(2))
        assert list(running.steps(3)) == [2]


def test_a_loop_in_a_loop_is_refused() -> None:
    with coded() as running:
        outer = running.steps(3)
        next(outer)
        running.backward()
        with pytest.raises(InvalidCall, match="is in a loop over steps"):
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
                    with pytest.raises(InvalidCall, match="comes too late"):
                        running.track(optimizer=optimizer)
                optimizer.step()


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidJob, match="has parameters of its own"):
        Job(Added(), nn.Linear(3, 1), (X, X))


class Maker:
    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def __call__(self) -> Job:
        return Job(Added(), nn.MSELoss(), (X, X**2), batch_size=self.batch_size)


@pytest.mark.parametrize(
    "make", [Maker(5), Maker(5).__call__, lambda size=5: Maker(size)()]
)
def test_whatever_returns_a_job_without_arguments_will_do(make: Any) -> None:
    with train(make, workers=2, engine="here") as running:
        assert running.steps_per_epoch == 2


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (job(), "is Job, and every worker must make its own"),
        (Added(), "is Added, and every worker must make its own"),
        (None, "is NoneType, and every worker must make its own"),
        (Added, "made Added"),
        (Maker, "is called without arguments: missing a required argument: 'batch_siz"),
    ],
)
def test_what_does_not_make_a_job_is_refused_in_a_sentence(
    make: Any, problem: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        train(make, workers=2, engine="here")
    said = str(caught.value)
    assert said.startswith(f"the job: {problem}")
    assert said.endswith(
        "; try a function that returns a Job, such as `def job(): return Job(...)`"
    )


@pytest.mark.parametrize("engine", ["here", "local"])
def test_a_run_that_is_closed_has_no_more_steps(engine: str) -> None:
    with train(job, workers=2, engine=engine) as running:
        running.backward()
    said = "was called after the run was closed.*; try to call it inside of `with"
    with pytest.raises(InvalidCall, match=f"backward: {said}"):
        running.backward()
    with pytest.raises(InvalidCall, match=f"steps: {said}"):
        next(running.steps(5))
    assert running.step == 1


def test_the_first_gradient_that_is_not_finite_is_warned_of_until_one_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with coded() as running:
        for step in running.steps(6):
            with torch.no_grad():
                running.model.a.fill_(float("nan") if step in (1, 2, 4) else 1.0)
            assert running.backward().finite == (step not in (1, 2, 4))
    said = "the gradient is not finite: the model has diverged, or a value overflowed"
    assert [m for m in caplog.messages if "not finite" in m] == [
        f"step 1: {said}",
        f"step 4: {said}",
    ]


def test_a_step_without_backward_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with coded() as running:
        for step in running.steps(4):
            if step == 0:
                running.backward()
    [told] = [m for m in caplog.messages if "coded.backward()" in m]
    assert told.startswith("step 1 has ended without coded.backward()")


@pytest.mark.parametrize("total", ["5", 5.0, -1, None])
def test_steps_are_a_whole_number(total: Any) -> None:
    with coded() as running, pytest.raises(InvalidOptions, match="steps: is "):
        next(running.steps(total))


def test_a_slow_worker_is_no_fault() -> None:
    with pytest.raises(InvalidOptions, match="slow goes into delays="):
        coded(faults=Slow(worker=1, factor=3))


def test_a_start_that_failed_leaves_a_folder_one_can_start_in(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="delays"):
        coded(run_dir=tmp_path, delays=_times(workers=3))
    with coded(run_dir=tmp_path) as running:
        running.backward()


def _times(workers: int) -> Any:
    from codedgrad.engines.faults import no_delays

    return no_delays(workers)
