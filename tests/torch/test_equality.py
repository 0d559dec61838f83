"""Coded training on real processes, against PyTorch alone.

What is compared with is written here, in plain PyTorch: a loop over the samples of a
step, a sum of losses, a division. Of ours it uses only which samples a part has, and
how a part is seeded, so that dropout drops the same. One run does without even that.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codedgrad.core import Scheme
from codedgrad.delays import Chain, Delays, ShiftedExponential, Sticky
from codedgrad.engines import FaultPlan
from codedgrad.schemes import Auto, TwoStage, clustered, cyclic, fractional, uncoded
from codedgrad.testing import EXAMPLES
from codedgrad.torch import Job, Report, train
from codedgrad.torch.data import Parts
from codedgrad.torch.model.determinism import seed_everything

STEPS, SEED, IGNORED = 100, 3, -100
FEATURES, CLASSES, DROPOUT = 10, 5, 0.2
CLIPPED = 0.6  # where gradients are: some are clipped
TOLERATED = {torch.float64: 1e-10, torch.float32: 1e-4}


def net(dtype: torch.dtype, dropout: float) -> nn.Module:
    """Make a model that is the same every time, whatever else is drawn meanwhile."""
    model = nn.Sequential(
        nn.Linear(FEATURES, 16),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(16, CLASSES),
    ).to(dtype)
    numbers = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=numbers) / 4)
    return model


def samples(parts: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Make data of an epoch of four steps; every fifth target is ignored."""
    numbers = torch.Generator().manual_seed(parts)
    x = torch.randn(15 * parts, FEATURES, generator=numbers, dtype=torch.float64)
    y = (x[:, :CLASSES] + 0.3 * x[:, CLASSES:]).argmax(1)
    y[::5] = IGNORED
    return x.to(dtype), y


def batch_size(parts: int) -> int:
    """Let one half of the parts be done with an epoch in three steps, by 5 samples.

    The others take 4 at a time: in the fourth step they have 3, and those have none.
    """
    return 5 * (parts // 2) + 4 * (parts - parts // 2)


@dataclass(frozen=True)
class Case:
    scheme: Scheme
    dtype: torch.dtype = torch.float64
    in_trouble: bool = False  # instead of sticky delays
    engine: str = "local"

    def __str__(self) -> str:
        said = f"{self.scheme.workers} {self.scheme.name} {str(self.dtype)[6:]}"
        return said + " in trouble" * self.in_trouble


@dataclass(frozen=True)
class Trained:
    parameters: Tensor
    losses: list[float]
    reports: list[Report] = field(default_factory=list)
    faults: FaultPlan | None = None
    clipped: int = 0


class Loop:
    """What users do around a gradient: the same here and there."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        parameters = model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.05)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=6e-3, total_steps=STEPS
        )
        self.clipped = 0

    def update(self) -> None:
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), CLIPPED)
        self.clipped += bool(norm > CLIPPED)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()

    @property
    def parameters(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()


# -- ours ------------------------------------------------------------------------------


def coded(case: Case, dropout: float = DROPOUT, size: int | None = -1) -> Trained:
    parts, faults, delays = case.scheme.parts, FaultPlan(), slow_now_and_then()
    model, data = net(case.dtype, dropout), samples(parts, case.dtype)
    size = batch_size(parts) if size == -1 else size
    if case.in_trouble:
        faults.kill(3, step=7).slow(1, step=20, seconds=0.05).stop(2, 30, seconds=0.05)
    if case.in_trouble or case.engine == "here":
        delays = None
    with train(
        lambda: Job(deepcopy(model), F.cross_entropy, data, size),  # all they need
        scheme=case.scheme,
        engine=case.engine,
        seed=SEED,
        delays=delays,
        faults=faults,
    ) as run:
        loop, reports = Loop(run.model), []
        for _ in run.steps(STEPS):
            reports.append(run.backward())
            loop.update()
    losses = [report.loss for report in reports]
    return Trained(loop.parameters, losses, reports, faults)


def slow_now_and_then() -> Delays | None:
    """Some worker of six is ten milliseconds late in two of three steps."""
    usual = ShiftedExponential(floor=0.0003, mean=0.0002)  # seconds
    return Chain(usual, Sticky(factor=20, enter=0.05, leave=0.3))


# -- PyTorch's -------------------------------------------------------------------------


def alone(model: nn.Module, gradient: Callable[[nn.Module, int], float]) -> Trained:
    loop, losses = Loop(model), []
    for step in range(STEPS):
        losses.append(gradient(model, step))
        loop.update()
    return Trained(loop.parameters, losses, clipped=loop.clipped)


@cache
def over_parts(parts: int, dtype: torch.dtype) -> Trained:
    """Train part after part: a sum of losses, divided by what was counted."""
    x, y = samples(parts, dtype)
    which = Parts(len(x), parts, batch_size(parts), SEED)

    def gradient(model: nn.Module, step: int) -> float:
        total, count = 0.0, 0
        for part in range(parts):
            rows = torch.from_numpy(which.indices(part, step))
            if len(rows):
                seed_everything(SEED, step, part)
                loss = F.cross_entropy(model(x[rows]), y[rows], reduction="sum")
                loss.backward()
                total += loss.item()
                count += int((y[rows] != IGNORED).sum())
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= count
        return total / count

    return alone(net(dtype, DROPOUT), gradient)


def at_once(parts: int) -> Trained:
    """Train on the mean over all samples; there are no parts in it."""
    x, y = samples(parts, torch.float64)

    def gradient(model: nn.Module, step: int) -> float:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    return alone(net(torch.float64, dropout=0.0), gradient)


# -- both ------------------------------------------------------------------------------

EXACT = [*(s for s in EXAMPLES[1:] if s.exact), cyclic(8, 2), fractional(8, 1)]
CASES = [
    *(Case(scheme) for scheme in EXACT),
    Case(fractional(6, 1), torch.float32),
    Case(cyclic(5, 2), torch.float32),
    Case(clustered(6, 2, 1), torch.float32),
    Case(uncoded(4), in_trouble=True),
    Case(fractional(8, 1), in_trouble=True),
]


QUICK = pytest.mark.quick(
    "5 cyclic(tolerance=2) float64",
    "5 auto(pieces=3) float64",
    "6 clustered(clusters=2, tolerance=1) float32",
    "8 fractional(tolerance=1) float64",
    "* in trouble",
)


class Runs(dict[str, Trained]):
    """Trains a case when the first test asks for it."""

    def __missing__(self, name: str) -> Trained:
        [case] = (case for case in CASES if str(case) == name)
        self[name] = coded(case)
        return self[name]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


def off(found: Trained, wanted: Trained) -> float:
    """Return how far parameters or losses are off, relative to their size."""
    gap = (found.parameters - wanted.parameters).norm() / wanted.parameters.norm()
    losses = np.array(found.losses), np.array(wanted.losses)
    return float(np.max([gap, *np.abs(losses[0] / losses[1] - 1)]))  # NaN if any is


def test_all_exact_examples_are_trained() -> None:
    trained = {(case.scheme.workers, case.scheme.name) for case in CASES}
    assert {(s.workers, s.name) for s in EXAMPLES if s.exact} <= trained


@QUICK
@pytest.mark.parametrize("case", CASES, ids=str)
def test_training_equals_a_loop_over_the_same_parts(runs: Runs, case: Case) -> None:
    single = over_parts(case.scheme.parts, case.dtype)
    assert single.losses[-2] < single.losses[2]  # it learns something
    assert 0 < single.clipped < STEPS
    assert off(runs[str(case)], single) <= TOLERATED[case.dtype]


def test_without_dropout_it_equals_one_backward_over_all_samples() -> None:
    found = coded(Case(cyclic(5, 2), engine="here"), dropout=0.0, size=None)
    assert off(found, at_once(parts=5)) <= 1e-10


@QUICK
@pytest.mark.parametrize("case", CASES, ids=str)
def test_coded_runs_had_late_workers_and_the_others_none(
    runs: Runs, case: Case
) -> None:
    reports = runs[str(case)].reports
    if not isinstance(case.scheme, Auto | TwoStage):  # the late are heard, for a part
        assert any(report.late for report in reports) == bool(case.scheme.tolerance)
    assert all(report.residual < 1e-18 and report.finite for report in reports)


@QUICK
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_last_step_of_an_epoch_was_short_and_targets_were_ignored(
    runs: Runs, case: Case
) -> None:
    parts, reports = case.scheme.parts, runs[str(case)].reports
    full, short = batch_size(parts), 3 * (parts - parts // 2)  # the others were empty
    assert [round(r.samples) for r in reports] == [full, full, full, short] * 25
    assert sum(r.count for r in reports) == pytest.approx(0.8 * 15 * parts * 25)


@pytest.mark.parametrize("scheme", [uncoded(4), fractional(8, 1)], ids=str)
def test_the_same_to_the_last_bit_in_trouble_and_without_any_processes(
    runs: Runs, scheme: Scheme
) -> None:
    run = runs[str(Case(scheme, in_trouble=True))]
    calm = coded(Case(scheme, engine="here"))
    assert run.faults is not None
    assert "kill" in {fault.kind for fault in run.faults.fired}
    assert torch.equal(run.parameters, calm.parameters)
    assert run.losses == calm.losses


def test_the_same_to_the_last_bit_whoever_is_late_or_killed(
    runs: Runs,
) -> None:
    one, other = (
        runs[str(Case(fractional(8, 1), in_trouble=trouble))]
        for trouble in (False, True)
    )
    assert [r.heard for r in one.reports] != [r.heard for r in other.reports]
    assert torch.equal(one.parameters, other.parameters)
    assert one.losses == other.losses
