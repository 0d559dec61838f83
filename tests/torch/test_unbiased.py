"""Sums that are right on average stay so when they are divided by a whole step."""

from dataclasses import dataclass
from itertools import count, permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codedgrad.codes import stochastic
from codedgrad.core import Ask, Event, Finish, History, Orders, Plan, State, Traits
from codedgrad.schemes import cyclic
from codedgrad.schemes.code_plan import CodePlan
from codedgrad.schemes.stop_rules import First
from codedgrad.torch import Job, train
from codedgrad.torch.data import Parts

WORKERS = PARTS = 4
SEATS = list(permutations(range(WORKERS)))
SAMPLES = 10  # of parts with 3, 3, 2 and 2
X = torch.from_numpy(np.random.default_rng(0).standard_normal((SAMPLES, 3)))
Y = X @ torch.tensor([1.0, -2.0, 3.0], dtype=X.dtype)


CODE = next(  # in which everybody takes as long as all others
    code
    for code in (stochastic(WORKERS, 2, straggle=0.5, seed=seed) for seed in count())
    if all(len(parts) == 2 for parts, _ in code.rows)
)


@dataclass(frozen=True)
class Seated:
    """Any two of four are heard: whoever is first plays other workers in every step."""

    name = "seated"
    workers, parts, tolerance, exact = WORKERS, PARTS, None, False
    placement = (tuple(range(PARTS)),) * WORKERS
    traits = Traits()

    def plan(self, step: int, history: History) -> Plan:
        return CodePlan(CODE, First(2), SEATS[step])


class Nobody(Seated):
    """Ends a step before anything is heard."""

    def plan(self, step: int, history: History) -> Plan:
        return Hasty()


class Hasty:
    def first(self, state: State) -> Ask:
        orders = Orders(state)
        orders.assign(0, (0, 1))
        return orders.ask(state.now + 60.0)

    def judge(self, state: State, event: Event) -> Finish:
        return Finish((), float(PARTS))


def half_squares(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """A loss whose count is not that of the samples."""
    x, y = batch
    gap = model(x).squeeze(1) - y
    return (gap * gap).sum(), (y > 0).sum() + len(y)


def job(loss: Any = None) -> Job:
    model = nn.Linear(3, 1).double()
    nn.init.constant_(model.weight, 0.5)
    nn.init.zeros_(model.bias)
    if loss is None:
        return Job(model, nn.MSELoss(), (X, Y[:, None]), batch_size=None)
    return Job(model, loss, (X, Y), batch_size=None)


def whole() -> Tensor:
    """The gradient of all samples, by one plain backward."""
    model = job().model
    F.mse_loss(model(X), Y[:, None]).backward()
    return model.weight.grad


def taken(unbiased: bool) -> list[Tensor]:
    """The gradient of every step; the model stays as it is."""
    found = []
    with train(job, scheme=Seated(), engine="here", unbiased=unbiased) as coded:
        for _ in coded.steps(len(SEATS)):
            coded.backward()
            found.append(coded.model.weight.grad.clone())
    return found


def test_the_mean_over_all_who_may_be_heard_is_the_gradient() -> None:
    mean = torch.stack(taken(unbiased=True)).mean(0)
    torch.testing.assert_close(mean, whole(), rtol=1e-12, atol=1e-12)


def test_divided_by_what_was_decoded_it_is_not() -> None:
    mean = torch.stack(taken(unbiased=False)).mean(0)
    assert torch.linalg.norm(mean - whole()) > 0.01 * torch.linalg.norm(whole())


def test_losses_are_means_of_what_was_heard_all_the_same() -> None:
    losses = []
    for unbiased in (True, False):
        with train(job, scheme=Seated(), engine="here", unbiased=unbiased) as coded:
            losses.append([coded.backward().loss for _ in coded.steps(5)])
    assert losses[0] == losses[1]


def test_where_counts_are_not_samples_a_sample_counts_what_those_heard_do() -> None:
    found = []
    for unbiased in (True, False):
        with train(
            lambda: job(half_squares), scheme=Seated(), engine="here", unbiased=unbiased
        ) as coded:
            report = coded.backward()
            found.append(coded.model.weight.grad.clone())
    assert report.count != report.samples
    expected = found[1] * report.samples / SAMPLES  # sum / (count x all / decoded)
    torch.testing.assert_close(found[0], expected, rtol=1e-12, atol=1e-12)


def test_when_nobody_is_heard_the_gradient_is_zero() -> None:
    with train(job, scheme=Nobody(), engine="here", unbiased=True) as coded:
        report = coded.backward()
        gradients = [p.grad for p in coded.model.parameters()]
    assert report.samples == 0
    for gradient in gradients:
        assert torch.equal(gradient, torch.zeros_like(gradient))
    with train(job, scheme=Nobody(), engine="here") as coded:
        coded.backward()
        assert [p.grad for p in coded.model.parameters()] == [None, None]


def test_an_exact_sum_stays_exact() -> None:
    with train(job, scheme=cyclic(4, 1), engine="here", unbiased=True) as coded:
        for _ in coded.steps(2):
            coded.backward()
            torch.testing.assert_close(coded.model.weight.grad, whole())
            assert coded.deviation() < 1e-12


def test_the_deviation_is_that_of_the_gradient_as_it_was_set() -> None:
    with train(job, scheme=Seated(), engine="here", unbiased=True) as coded:
        coded.backward()
        set_ = torch.cat([p.grad.flatten() for p in coded.model.parameters()])
        model = job().model
        F.mse_loss(model(X), Y[:, None]).backward()
        true = torch.cat([p.grad.flatten() for p in model.parameters()])
        gap = torch.linalg.norm(set_ - true) / torch.linalg.norm(true)
        assert coded.deviation() == pytest.approx(float(gap), rel=1e-9)


@pytest.mark.parametrize("batch_size", [None, 5, 7, 30])
def test_a_step_has_as_many_samples_as_its_parts(batch_size: int | None) -> None:
    parts = Parts(23, 4, batch_size, seed=0)
    for step in range(2 * parts.steps_per_epoch + 1):
        sizes = [len(parts.indices(part, step)) for part in range(4)]
        assert parts.total(step) == sum(sizes)
