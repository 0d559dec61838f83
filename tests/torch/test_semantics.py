"""What `p.grad` is after `backward`, whatever the model, the loss and the loop are.

Nearly all runs are without processes, and compared with one plain backward.
"""

import logging
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset

from codedgrad.core import Scheme
from codedgrad.errors import (
    InvalidCall,
    InvalidData,
    InvalidJob,
    InvalidOptions,
    JobFailed,
)
from codedgrad.schemes import cyclic, fractional, ignore, uncoded
from codedgrad.torch import Coded, Job, Report, correct, train
from codedgrad.torch.data import Parts
from codedgrad.torch.model.determinism import seed_everything

SAMPLES, FEATURES, CLASSES = 30, 6, 3
CODED, PLAIN = cyclic(5, 2), uncoded(5)  # the same parts, once with coefficients

Make = Callable[[], Job]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


X, Y = numbers(SAMPLES, FEATURES), torch.arange(SAMPLES) % CLASSES
TOKENS = torch.arange(SAMPLES * 4).reshape(SAMPLES, 4) % 7
IMAGES = numbers(SAMPLES, 2, 5, 5)


def job(model: nn.Module, loss: Any = F.cross_entropy, **options: Any) -> Make:
    """Return what makes a job of a model, the same every time."""
    options.setdefault("data", (X, Y))
    return lambda: Job(deepcopy(model), loss, **options)


def seeded(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return make().to(dtype)


def mlp(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    return seeded(
        lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)),
        dtype,
    )


@contextmanager
def running(make: Make, scheme: Scheme = CODED, **options: Any) -> Iterator[Coded]:
    options.setdefault("engine", "here")
    with train(make, scheme=scheme, **options) as coded:
        yield coded


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: p.grad.clone()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def one_step(make: Make, scheme: Scheme = CODED, **options: Any) -> dict[str, Tensor]:
    with running(make, scheme, **options) as coded:
        coded.backward()
        return gradients(coded.model)


def off(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Return how far gradients are off, relative to the largest number of each."""
    gaps = [
        (a.double() - b.double()).abs().max() / b.double().abs().max()
        for a, b in zip(found.values(), wanted.values(), strict=True)
    ]
    return torch.stack(gaps).max().item()  # NaN if any is


def descend(model: nn.Module, rate: float = 0.1) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad


# -- models ----------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5, padding_idx=0)
        self.rnn = nn.LSTM(5, 4, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.last = nn.Linear(4, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.rnn(self.embedding(tokens))
        return self.last(self.norm(states[:, -1]))


class Mixed(nn.Module):
    """Parameters of two types, and a buffer of a third."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8).double()
        self.second = nn.Linear(8, CLASSES).float()
        self.register_buffer("scale", torch.tensor([0.5, 2.0, 1.25]).half())

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x.double())).float()
        return self.second(hidden) * self.scale.float()


class Odd(nn.Module):
    """Parameters that are turned, or a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.Parameter(numbers(CLASSES, FEATURES).t())
        self.number = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.number * (x @ self.turned)


def frozen() -> nn.Module:
    model = mlp()
    model[0].weight.requires_grad_(False)
    return model


def pictures() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, CLASSES)
    )


WEIGHT = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
MODELS: dict[str, tuple[nn.Module, Any, tuple[Tensor, Tensor]]] = {
    "frozen parameters": (frozen(), F.cross_entropy, (X, Y)),
    "tied parameters": (seeded(Tied), F.cross_entropy, (X, Y)),
    "embedding, LSTM, layer norm": (seeded(Text), F.cross_entropy, (TOKENS, Y)),
    "convolution, group norm": (seeded(pictures), F.cross_entropy, (IMAGES, Y)),
    "odd parameters": (seeded(Odd), F.cross_entropy, (X, Y)),
    "weights of classes": (mlp(), nn.CrossEntropyLoss(weight=WEIGHT), (X, Y)),
    "squared error": (mlp(), nn.MSELoss(), (X, numbers(SAMPLES, CLASSES, seed=1))),
    "spectral norm in eval": (
        seeded(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))).eval(),
        F.cross_entropy,
        (X, Y),
    ),
    "weight norm": (
        seeded(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))),
        F.cross_entropy,
        (X, Y),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_the_mean_over_all_samples(name: str) -> None:
    model, loss, data = MODELS[name]
    plain = deepcopy(model)
    loss(plain(data[0]), data[1]).backward()
    found = one_step(job(model, loss, data=data))
    assert off(found, gradients(plain)) <= 1e-12


def test_tied_parameters_stay_tied_at_the_root() -> None:
    with running(job(seeded(Tied))) as coded:
        coded.backward()
        descend(coded.model)
        assert coded.model.first.weight is coded.model.second.weight
        assert len(list(coded.model.parameters())) == 5


def test_parameters_of_two_types_and_a_buffer_of_a_third() -> None:
    plain = seeded(Mixed, torch.float64)
    model = Mixed()
    model.load_state_dict(plain.state_dict())
    plain = deepcopy(model)
    F.cross_entropy(plain(X), Y).backward()
    found = one_step(job(model))
    assert {g.dtype for g in found.values()} == {torch.float64, torch.float32}
    assert off(found, gradients(plain)) <= 1e-5


class Spare(nn.Module):
    """Uses a layer never, and another for some samples only."""

    def __init__(self) -> None:
        super().__init__()
        self.used = mlp()
        self.spare = nn.Linear(2, 2).double()
        self.rare = nn.Linear(FEATURES, CLASSES).double()

    def forward(self, x: Tensor) -> Tensor:
        is_first = (x == X[0]).all(1)
        scores = self.used(x)
        return scores + is_first[:, None] * self.rare(x) if is_first.any() else scores


@pytest.mark.parametrize("scheme", [PLAIN, CODED], ids=str)
def test_what_no_part_uses_has_no_gradient_and_what_one_uses_has(
    scheme: Scheme,
) -> None:
    plain = seeded(Spare)
    F.cross_entropy(plain(X), Y).backward()
    found = one_step(job(seeded(Spare)), scheme)
    assert found.keys() == gradients(plain).keys()
    assert {name.partition(".")[0] for name in found} == {"used", "rare"}
    assert off(found, gradients(plain)) <= 1e-12


# -- buffers ---------------------------------------------------------------------------


class Average(nn.Module):
    """Changes buffers: one in place, one by another in its place, one that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.utils.parametrizations.spectral_norm(nn.Linear(FEATURES, 3))
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mask", torch.ones(FEATURES).expand(3, -1))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.calls += 1
        return self.last((x - self.mean) * self.mask[0])


def test_every_part_starts_from_the_root_s_buffers() -> None:
    found = []
    for scheme in (PLAIN, CODED):
        make = job(seeded(Average), batch_size=15, buffers={"mean": "mean"})
        with running(make, scheme) as coded:
            for _ in coded.steps(3):
                coded.backward()
                assert coded.deviation() < 1e-12
                descend(coded.model)
            found.append(gradients(coded.model))
    assert off(*found) <= 1e-11


def test_the_root_s_buffers_take_the_mean_change_over_the_parts() -> None:
    """Parts are of 3 and 2 samples, which are their weights."""
    model = seeded(Average)
    parts = Parts(SAMPLES, 5, 13, seed=0)
    mean = model.mean.clone()
    with running(job(model, batch_size=13, buffers={"mean": "mean"})) as coded:
        for step in coded.steps(2):
            coded.backward()
            rows = np.concatenate([parts.indices(part, step) for part in range(5)])
            mean = 0.9 * mean + 0.1 * X[torch.from_numpy(rows)].mean(0)
        torch.testing.assert_close(coded.model.mean, mean)
        assert coded.model.calls == 2
        assert coded.model.mask.equal(model.mask)


def test_a_loss_may_leave_the_model_in_another_mode() -> None:
    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        x, y = batch
        total = F.cross_entropy(model(x), y, reduction="sum")
        model.eval()
        return total, len(y)

    make = job(nn.Sequential(mlp(), nn.Dropout(0.5)), loss)
    assert off(one_step(make, CODED), one_step(make, PLAIN)) <= 1e-12


# -- narrow numbers --------------------------------------------------------------------


def bfloat16_sums(model: nn.Module, parts: int) -> dict[str, Tensor]:
    """Add gradients of parts in float32, each made by PyTorch in bfloat16."""
    which = Parts(SAMPLES, parts, None, seed=0)
    total = {name: torch.zeros(p.shape) for name, p in model.named_parameters()}
    for part in range(parts):
        rows = torch.from_numpy(which.indices(part, 0))
        model.zero_grad()
        scores = model(X[rows].bfloat16())
        F.cross_entropy(scores, Y[rows], reduction="sum").backward()
        for name, gradient in gradients(model).items():
            total[name] += gradient.float()
    return {name: gradient / SAMPLES for name, gradient in total.items()}


def test_bfloat16_gradients_are_added_in_float32() -> None:
    model = mlp(torch.bfloat16)
    data = X.bfloat16(), Y
    with running(job(model, data=data)) as coded:
        coded.backward()
        found = gradients(coded.model)
        assert coded.deviation() < 1e-5  # and not 2 ** -8
    wanted = bfloat16_sums(model, CODED.parts)
    rounded = {name: gradient.bfloat16() for name, gradient in wanted.items()}
    assert {g.dtype for g in found.values()} == {torch.bfloat16}
    assert off(found, rounded) <= 2**-8
    same = [(found[name] == rounded[name]).float().mean() for name in rounded]
    assert min(same) > 0.9


class Inside(nn.Module):
    """Casts on its own, where nobody sees it from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.body(x)


def in_the_loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)


def by_a_part_of_the_model(model: Any, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model.body(x), y, reduction="sum"), len(y)


@pytest.mark.parametrize(
    ("model", "loss", "options"),
    [
        (mlp(torch.float32), F.cross_entropy, {"autocast": torch.bfloat16}),
        (mlp(torch.float32), in_the_loss, {}),
        (Inside(), F.cross_entropy, {}),
        (Inside(), by_a_part_of_the_model, {}),
    ],
    ids=["by the job", "in the loss", "in the model", "around a part of the model"],
)
def test_autocast_does_not_round_the_coefficients(
    model: nn.Module, loss: Any, options: dict[str, Any]
) -> None:
    data = X.float(), Y
    plain, coded = (
        one_step(job(model, loss, data=data, **options), scheme)
        for scheme in (PLAIN, CODED)
    )
    assert off(coded, plain) <= 1e-6
    wide = one_step(job(getattr(model, "body", model), data=data))
    assert off(plain, wide) >= 1e-3  # it really was narrow


# -- hooks and other liberties ---------------------------------------------------------


def test_a_hook_that_is_not_linear_sees_the_gradient_of_its_part() -> None:
    def make() -> Job:
        model = mlp()
        model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
        return Job(model, F.cross_entropy, (X, Y))

    assert off(one_step(make, CODED), one_step(make, PLAIN)) <= 1e-12


def test_a_loss_may_clear_gradients_and_take_some_of_its_own() -> None:
    def penalised(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        x, y = batch
        model.zero_grad()
        total = F.cross_entropy(model(x), y, reduction="sum")
        slopes = torch.autograd.grad(total, model[0].weight, create_graph=True)[0]
        return total + slopes.pow(2).sum(), len(y)

    found, wanted = (one_step(job(mlp(), penalised), s) for s in (CODED, PLAIN))
    assert off(found, wanted) <= 1e-12


def test_one_model_for_all_is_fine() -> None:
    """A job may return the very model of the script; without processes they share."""
    model = mlp()
    plain = deepcopy(model)
    F.cross_entropy(plain(X), Y).backward()
    with running(lambda: Job(model, F.cross_entropy, (X, Y))) as coded:
        for _ in coded.steps(2):
            coded.backward()
            assert coded.deviation() < 1e-12
            assert off(gradients(model), gradients(plain)) <= 1e-12
            descend(model)
            descend(plain)
            plain.zero_grad()
            F.cross_entropy(plain(X), Y).backward()


def test_a_model_can_be_copied_and_keeps_nothing_of_ours() -> None:
    with running(job(mlp())) as coded:
        coded.backward()
        copied = deepcopy(coded.model)
        F.cross_entropy(copied(X), Y).backward()
        assert off(gradients(copied), gradients(coded.model)) <= 1e-12


# -- batch normalisation ---------------------------------------------------------------


def normalised(momentum: float | None = 0.1) -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Linear(FEATURES, 8, bias=False),  # which would have no gradient
            nn.BatchNorm1d(8, momentum=momentum),
            nn.Tanh(),
            nn.Linear(8, CLASSES),
        )
    )


def normalise_by_hand(model: Any, parts: Parts, step: int) -> None:
    """Take a step as plain layers would, each part from where the step began."""
    models, sizes = [], []
    for part in range(parts.parts):
        rows = torch.from_numpy(parts.indices(part, step))
        if len(rows):
            models.append(deepcopy(model))
            sizes.append(len(rows))
            F.cross_entropy(models[-1](X[rows]), Y[rows], reduction="sum").backward()
    for parameter, *each in zip(
        model.parameters(), *(m.parameters() for m in models), strict=True
    ):
        parameter.grad = sum(p.grad for p in each) / sum(sizes)
    for name in ("running_mean", "running_var"):
        found = [
            size * getattr(m[1], name) for m, size in zip(models, sizes, strict=True)
        ]
        getattr(model[1], name).copy_(sum(found) / sum(sizes))
    model[1].num_batches_tracked += 1


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("scheme", [PLAIN, CODED], ids=str)
def test_running_statistics_are_those_of_the_parts_on_average(
    scheme: Scheme, momentum: float | None
) -> None:
    by_hand: Any = normalised(momentum)
    parts = Parts(SAMPLES, scheme.parts, 20, seed=0)
    with running(job(normalised(momentum), batch_size=20), scheme) as coded:
        for step in coded.steps(4):
            coded.backward()
            normalise_by_hand(by_hand, parts, step)
            assert off(gradients(coded.model), gradients(by_hand)) <= 1e-10
            descend(coded.model)
            descend(by_hand)
            by_hand.zero_grad()
        norm = coded.model[1]
        torch.testing.assert_close(norm.running_mean, by_hand[1].running_mean)
        torch.testing.assert_close(norm.running_var, by_hand[1].running_var)
        assert norm.num_batches_tracked == 4


def test_one_warning_says_that_parts_are_normalised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(job(normalised(), batch_size=20)) as coded:
        for _ in coded.steps(3):
            coded.backward()
    [warning] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "normalises over batches" in warning.message
    assert "(4 samples, in the last step of an epoch down to 2; " in warning.message
    assert "not over all 20 of a step" in warning.message


def test_normalisation_never_sees_a_part_that_is_too_small_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PyTorch refuses to normalise one sample; 6 in 5 parts would leave 4 with one."""
    with running(job(normalised(), data=(X[:26], Y[:26]), batch_size=20)) as coded:
        found = [round(coded.backward().samples) for _ in coded.steps(4)]
    assert found == [20, 6, 20, 6]
    assert "in the last step of an epoch down to 2; " in caplog.records[-1].message


def test_a_batch_too_small_for_normalisation_is_left_to_the_layer() -> None:
    """Pictures have a variance of their own: a part of one sample is fine."""
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, CLASSES)
    model = nn.Sequential(*layers).double()
    with running(job(model, data=(IMAGES, Y), batch_size=9)) as coded:
        found = [round(coded.backward().samples) for _ in coded.steps(4)]
    assert found == [9, 9, 9, 3]


def test_the_parts_are_the_same_while_the_model_is_being_evaluated() -> None:
    model: Any = normalised()
    make = lambda: Job(model, F.cross_entropy, (X[:26], Y[:26]), 20)  # noqa: E731
    with running(make) as coded:
        coded.backward()
        coded.backward()  # the last of an epoch
        assert round(coded.report.samples) == 6
        model.eval()
        reference = coded._make()  # of the model as it is now
        model.train()
        assert reference.parts.least_samples == coded._work.parts.least_samples == 2


def test_a_layer_in_eval_mode_keeps_its_statistics_and_nobody_is_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model: Any = normalised()
    model(X)  # so that they are something
    model[1].eval()
    before = deepcopy(model[1])
    with running(job(model)) as coded:
        for _ in coded.steps(3):
            coded.backward()
            assert coded.deviation() < 1e-12
            descend(coded.model)
        norm = coded.model[1]
    assert torch.equal(norm.running_mean, before.running_mean)
    assert torch.equal(norm.running_var, before.running_var)
    assert norm.num_batches_tracked == before.num_batches_tracked
    assert not torch.equal(norm.weight, before.weight)
    assert not caplog.records


def test_instance_norm_that_tracks_is_averaged_too() -> None:
    model = seeded(
        lambda: nn.Sequential(
            nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
            nn.Flatten(),
            nn.Linear(50, CLASSES),
        )
    )
    plain = deepcopy(model)
    F.cross_entropy(plain(IMAGES), Y).backward()  # the mean over samples is linear
    with running(job(model, data=(IMAGES, Y))) as coded:
        coded.backward()
        assert off(gradients(coded.model), gradients(plain)) <= 1e-12
        torch.testing.assert_close(coded.model[0].running_var, plain[0].running_var)


# -- losses and metrics ----------------------------------------------------------------


def test_tokens_are_counted_and_metrics_decoded() -> None:
    """Means over what is not padding: parts have unlike shares of it."""
    model = seeded(lambda: nn.Embedding(7, 5))

    def loss(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        before, after = batch[:, :-1], batch[:, 1:]
        scores = model(before)[..., :5].flatten(0, 1)
        wanted = after.flatten() % 5
        total = F.cross_entropy(scores, wanted, ignore_index=0, reduction="sum")
        right = (scores.argmax(1) == wanted)[wanted != 0].sum()
        some = (wanted != 0).sum()
        return total, some, {"right": (right, some), "length": 4 * len(batch)}

    with running(job(model, loss, data=TOKENS, metrics=["length", "right"])) as coded:
        report = coded.backward()
        found = gradients(coded.model)
    plain = deepcopy(model)
    total, count, metrics = loss(plain, TOKENS)
    (total / count).backward()
    assert off(found, gradients(plain)) <= 1e-12
    assert report.loss == pytest.approx(total.item() / count.item())
    assert report.count == pytest.approx(count.item())
    assert report.metrics["length"] == pytest.approx(4)
    assert report.metrics["right"] == pytest.approx(
        metrics["right"][0].item() / count.item()
    )


def test_metrics_of_output_and_target_are_decoded() -> None:
    with running(job(mlp(), metrics={"right": correct})) as coded:
        report = coded.backward()
        right = (coded.model(X).argmax(1) == Y).float().mean()
    assert report.metrics == {"right": pytest.approx(right.item())}


def test_where_nothing_counts_the_gradient_is_zero() -> None:
    targets = torch.full_like(Y, -100)
    with running(job(mlp(), data=(X, targets))) as coded:
        report = coded.backward()
        assert (report.count, report.samples) == pytest.approx((0, SAMPLES), abs=1e-9)
        assert not any(gradient.any() for gradient in gradients(coded.model).values())


# -- what is refused -------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, dtype=torch.complex64))


class Twins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight.data = self.first.weight.data


def lazy_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 3), nn.LazyBatchNorm1d(affine=False))


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, CLASSES).double()
        self.register_buffer("sums", torch.zeros(5000))

    def forward(self, x: Tensor) -> Tensor:
        self.sums += 1
        return self.last(x)


def short_rows() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(7, 3, max_norm=0.1), nn.Flatten(), nn.Linear(12, 3)
    )


def detached(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    return model(batch[0]).sum().detach(), 1


def own_backward(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    total = model(batch[0]).sum()
    total.backward(retain_graph=True)
    return total, 1


REFUSED: dict[str, tuple[Any, str]] = {
    "a sparse embedding": (
        job(nn.Sequential(nn.Embedding(7, 3, sparse=True)), data=(TOKENS, Y)),
        r"the layer 0: \(Embedding\) makes sparse gradients; try sparse=False",
    ),
    "a model that is one": (
        job(nn.EmbeddingBag(7, 3, sparse=True), data=(TOKENS, Y)),
        r"the layer that is the model: \(EmbeddingBag\) makes sparse gradients",
    ),
    "a data set without numbers": (
        job(mlp(), data=Endless()),
        "data: a Endless can only be read from its start",
    ),
    "a lazy parameter": (
        job(nn.Sequential(nn.LazyLinear(3))),
        r"the parameter 0.weight: is lazy: it has no shape yet; try a forward pass",
    ),
    "a lazy buffer": (
        lambda: Job(lazy_norm(), F.cross_entropy, (X, Y)),
        "the buffer 1.running_mean: is lazy",
    ),
    "complex numbers": (
        job(Complex()),
        r"the parameter weight: is of type torch\.complex64; try real",
    ),
    "nothing to train": (
        job(mlp().requires_grad_(False)),
        "the model: has no parameter with requires_grad",
    ),
    "two parameters in one memory": (
        lambda: Job(Twins(), F.cross_entropy, (X, Y)),
        r"second\.weight: shares the memory of first\.weight",
    ),
    "no job": (lambda: mlp(), "the job: made Sequential; try a function that returns"),
    "no model": (lambda: Job("net", F.mse_loss, (X, Y)), "job: model: is str"),  # type: ignore[arg-type]
    "no loss": (lambda: Job(mlp(), 3, (X, Y)), "job: loss: is int"),  # type: ignore[arg-type]
    "a loss class": (job(mlp(), nn.CrossEntropyLoss), "loss: is .* not a function"),
    "a loss that is a sum": (
        job(mlp(), nn.CrossEntropyLoss(reduction="sum")),
        "loss: .*reduction='sum', which is not a mean",
    ),
    "no samples": (job(mlp(), data=(X[:0], Y[:0])), "data: has no samples"),
    "parts that are too small": (
        job(mlp(), batch_size=14, least_samples=3),
        "least_samples: a step of 14 samples in 5 parts leaves some with 2, and 3 are "
        "asked for; try 4 parts at most .*, or batch_size=15 or more",
    ),
    "an unknown shuffle": (job(mlp(), shuffle="all"), "shuffle: is 'all'"),
}
KINDS = {
    "a data set without numbers": InvalidData,
    "no samples": InvalidData,
    "parts that are too small": InvalidData,
    "an unknown shuffle": InvalidOptions,
}  # of all others: InvalidJob


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_anything_starts(name: str) -> None:
    make, said = REFUSED[name]
    engine = SimpleNamespace(name="none", start=pytest.fail, close=lambda: None)
    with pytest.raises(KINDS.get(name, InvalidJob), match=said) as caught:
        train(make, scheme=CODED, engine=engine)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")  # of how groups are made
def test_a_model_in_a_group_is_refused(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(mlp())
        with pytest.raises(InvalidJob, match="model: is wrapped in DDP; try the"):
            train(lambda: Job(model, F.cross_entropy, (X, Y)), scheme=CODED)
    finally:
        torch.distributed.destroy_process_group()


WRONG: dict[str, tuple[Any, str]] = {
    "no pair": (lambda model, batch: model(batch[0]).sum(), "returned a tensor of"),
    "a constant": (detached, "the sum does not depend on any parameter"),
    "its own backward": (own_backward, "the loss: has put gradients into parameters"),
    "undeclared metrics": (
        lambda model, batch: (model(batch[0]).sum(), 1, {"size": 1.0}),
        r"the loss: returned the metrics \['size'\]; try metrics=\['size'\] in the Job",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_loss_that_will_not_do_is_refused_when_it_is_called(name: str) -> None:
    loss, said = WRONG[name]
    with (
        running(job(mlp(), loss)) as coded,
        pytest.raises(InvalidJob, match=said) as caught,
    ):
        coded.backward()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "data", "said"),
    [
        (Large(), (X, Y), "the buffer sums: is changed by the forward pass"),
        (short_rows(), (TOKENS, Y), "the forward pass: changes the parameter 0.weight"),
    ],
    ids=["large buffers", "parameters"],
)
def test_a_forward_pass_that_changes_what_it_may_not_is_refused(
    model: nn.Module, data: Any, said: str
) -> None:
    with (
        running(job(model, data=data)) as coded,
        pytest.raises(InvalidJob, match=said),
    ):
        coded.backward()


def test_a_hook_that_takes_gradients_away_is_refused() -> None:
    def make() -> Job:
        model = mlp()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p: setattr(p, "grad", None)
            )
        return Job(model, F.cross_entropy, (X, Y))

    with (
        running(make) as coded,
        pytest.raises(InvalidJob, match="a hook: has taken the gradient"),
    ):
        coded.backward()


def freeze(model: Any) -> None:
    model[0].weight.requires_grad_(False)


def replace(model: Any) -> None:
    model[0] = nn.Linear(FEATURES, 8).double()


def narrow(model: Any) -> None:
    model.float()


@pytest.mark.parametrize("change", [freeze, replace, narrow])
def test_a_model_that_became_another_is_refused(change: Callable[[Any], None]) -> None:
    with running(job(mlp())) as coded:
        coded.backward()
        change(coded.model)
        with pytest.raises(InvalidCall, match="the model: has other parameters"):
            coded.backward()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "workers: are not given; try workers=8"),
        ({"scheme": "cyclic(2)"}, "workers: are not given; try workers=8"),
        ({"scheme": CODED, "workers": 4}, "workers: are 4, the scheme has 5"),
        (
            {"scheme": CODED, "engine": "cloud"},
            "engine: is 'cloud'; try one of 'local'",
        ),
        ({"scheme": CODED, "seed": -1}, "seed: is -1; try 0 or more"),
        ({"scheme": CODED, "resume": True}, "resume: has no folder to be in"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOptions, match=said):
        train(job(mlp()), **{"engine": "here", **options})


# -- small batches, and losses over a batch --------------------------------------------


def test_a_batch_smaller_than_the_number_of_parts_trains_and_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = mlp()
    parts = Parts(SAMPLES, 5, 4, seed=0)
    with running(job(mlp(), batch_size=4)) as coded:
        assert coded.steps_per_epoch == 8
        for step in coded.steps(8):
            rows = np.concatenate([parts.indices(part, step) for part in range(5)])
            plain.zero_grad()
            F.cross_entropy(plain(X[rows]), Y[rows]).backward()
            assert len(rows) == (4 if step < 7 else 2)
            assert coded.backward().samples == pytest.approx(len(rows))
            assert off(gradients(coded.model), gradients(plain)) <= 1e-12
    [warning] = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "4 samples and 5 parts, of which 1 are empty" in warning


def contrastive(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    """Tell every sample from the others of its batch."""
    x, _ = batch
    codes = F.normalize(model(x), dim=1)
    total = F.cross_entropy(codes @ codes.T, torch.arange(len(x)), reduction="sum")
    return total, len(x)


def test_a_loss_over_the_samples_of_a_batch_has_as_many_as_the_job_asks_for() -> None:
    seen: list[int] = []

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        seen.append(len(batch[0]))
        return contrastive(model, batch)

    make = job(mlp(), loss, batch_size=20, least_samples=4)
    with running(make, PLAIN) as coded:
        assert [coded.backward().samples for _ in coded.steps(2)] == [20, 10]
    assert seen == [4, 4, 4, 4, 4, 5, 5]  # the last ten in two parts, not five


@pytest.mark.parametrize("times_its_count", [False, True])
def test_a_regulariser_counts_once_a_part_unless_it_is_taken_times_the_count(
    times_its_count: bool,
) -> None:
    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        x, y = batch
        penalty = sum(p.square().sum() for p in model.parameters())
        total = F.cross_entropy(model(x), y, reduction="sum")
        return total + (len(y) if times_its_count else 1) * penalty, len(y)

    plain = mlp()
    penalty = sum(p.square().sum() for p in plain.parameters())
    parts = 1 if times_its_count else CODED.parts / SAMPLES
    (F.cross_entropy(plain(X), Y) + parts * penalty).backward()
    assert off(one_step(job(mlp(), loss)), gradients(plain)) <= 1e-11


# -- the loop --------------------------------------------------------------------------


def test_the_steps_yielded_are_those_reported() -> None:
    with running(job(mlp(), batch_size=10)) as coded:
        assert coded.steps_per_epoch == 3
        seen = []
        for step in coded.steps(4):
            assert coded.step == step
            seen.append((step, coded.backward().step))
    assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert coded.step == 4


def test_backward_twice_in_a_step_is_refused() -> None:
    with running(job(mlp())) as coded:
        for _ in coded.steps(1):
            coded.backward()
            with pytest.raises(InvalidCall, match="backward: was called twice"):
                coded.backward()


def test_without_a_loop_every_backward_is_a_step() -> None:
    with running(job(mlp(), batch_size=10)) as coded:
        assert [coded.backward().step for _ in range(4)] == [0, 1, 2, 3]
        assert [coded.backward().step for _ in coded.steps(6)] == [4, 5]
        assert coded.backward().step == 6


def test_a_loop_goes_on_where_another_has_ended() -> None:
    with running(job(mlp())) as coded:
        assert [coded.backward().step for _ in coded.steps(2)] == [0, 1]
        assert [coded.backward().step for _ in coded.steps(4)] == [2, 3]


def test_a_loop_can_be_left_in_the_middle() -> None:
    with running(job(mlp())) as coded:
        for step in coded.steps(9):
            coded.backward()
            if step == 2:
                break
        assert [coded.backward().step for _ in coded.steps(5)] == [3, 4]


def test_a_step_may_pass_without_a_gradient() -> None:
    with running(job(mlp())) as coded:
        seen = [(s, coded.backward().step) for s in coded.steps(4) if s % 2]
    assert seen == [(1, 1), (3, 3)]


def test_a_step_that_failed_can_be_followed_by_another() -> None:
    faulty = [True]

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        if faulty:
            raise ZeroDivisionError("of the loss")
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)

    with running(job(mlp(), loss)) as coded:
        for _ in coded.steps(1):
            with pytest.raises(ZeroDivisionError):
                coded.backward()
            faulty.clear()
            assert coded.backward().step == 1
            assert coded.deviation() < 1e-12


def test_numbers_are_logged_in_a_step_only() -> None:
    with running(job(mlp())) as coded:
        with pytest.raises(InvalidCall, match="log: is outside of a step"):
            coded.log(accuracy=1.0)
        for _ in coded.steps(1):
            coded.log(accuracy=torch.tensor(0.5))
        with pytest.raises(InvalidCall, match="log: is outside of a step"):
            coded.log(accuracy=1.0)


# -- what workers see ------------------------------------------------------------------


def load(model: Any) -> None:
    model.load_state_dict(seeded(mlp).state_dict() | {"0.bias": numbers(8, seed=5)})


def overwrite(model: Any) -> None:
    model[0].weight.data = numbers(8, FEATURES, seed=6)


def scale(model: Any) -> None:
    with torch.no_grad():
        model[2].weight.mul_(3.0)


def clear(model: Any) -> None:
    model.zero_grad(set_to_none=True)


@pytest.mark.parametrize("change", [load, overwrite, scale, clear])
@pytest.mark.parametrize("before", [True, False], ids=["at first", "in between"])
def test_workers_see_the_model_as_it_is(
    change: Callable[[Any], None], before: bool
) -> None:
    with running(job(mlp())) as coded:
        if not before:
            coded.backward()
            descend(coded.model)
        change(coded.model)
        plain = deepcopy(coded.model)
        plain.zero_grad()
        F.cross_entropy(plain(X), Y).backward()
        coded.backward()
        assert off(gradients(coded.model), gradients(plain)) <= 1e-12


def test_workers_see_frozen_parameters_and_narrow_buffers_as_they_are() -> None:
    model = Mixed()
    model.first.requires_grad_(False)
    with running(job(model)) as coded:
        coded.backward()
        with torch.no_grad():
            coded.model.first.weight.mul_(2.0)
            coded.model.scale.copy_(torch.tensor([3.0, 0.1, 1.0]))
        plain = deepcopy(coded.model)
        plain.zero_grad()
        F.cross_entropy(plain(X), Y).backward()
        coded.backward()
        assert off(gradients(coded.model), gradients(plain)) <= 1e-5


def test_workers_compute_in_the_modes_of_the_root_s_model() -> None:
    """Without dropout, and with running statistics, once it is in eval mode."""
    model = nn.Sequential(mlp(), nn.BatchNorm1d(CLASSES).double(), nn.Dropout(0.5))
    with running(job(model)) as coded:
        coded.backward()
        trained = gradients(coded.model)
        coded.model.eval()
        plain = deepcopy(coded.model)
        plain.zero_grad()
        F.cross_entropy(plain(X), Y).backward()
        coded.backward()
        assert off(gradients(coded.model), gradients(plain)) <= 1e-12
        assert coded.model[1].num_batches_tracked == 1
        assert not coded.model.training
        coded.model.train()
        coded.backward()
        assert off(gradients(coded.model), trained) > 0.1  # other luck
        assert coded.model[1].num_batches_tracked == 2


def test_dropout_is_that_of_step_and_part() -> None:
    model = nn.Sequential(mlp(), nn.Dropout(0.5))
    plain = deepcopy(model)
    parts = Parts(SAMPLES, 5, 15, seed=4)
    with running(job(model, batch_size=15), seed=4) as coded:
        for step in coded.steps(3):
            coded.backward()
            plain.zero_grad()
            for part in range(5):
                rows = torch.from_numpy(parts.indices(part, step))
                seed_everything(4, step, part)
                loss = F.cross_entropy(plain(X[rows]), Y[rows], reduction="sum")
                (loss / 15).backward()
            assert off(gradients(coded.model), gradients(plain)) <= 1e-12


def states() -> list[Any]:
    legacy = np.random.get_state()  # noqa: NPY002
    return [torch.get_rng_state().tolist(), str(legacy), random.getstate()]


def test_the_root_s_generators_are_not_touched() -> None:
    make = job(nn.Sequential(mlp(), nn.Dropout(0.5)))
    before = states()
    with running(make) as coded:
        coded.backward()
        coded.deviation()
        coded.backward()
    assert states() == before


# -- reports ---------------------------------------------------------------------------


def test_the_deviation_is_that_of_the_gradient_as_it_was_set() -> None:
    with running(job(mlp())) as coded:
        with pytest.raises(InvalidCall, match="deviation: has no gradient"):
            coded.deviation()
        coded.backward()
        nn.utils.clip_grad_norm_(coded.model.parameters(), 1e-3)
        assert coded.deviation() < 1e-12


def test_looking_at_the_deviation_often_takes_no_more_memory() -> None:
    model = nn.Linear(FEATURES, CLASSES)
    model.large = nn.Parameter(torch.zeros(100_000))
    tracemalloc.start()
    with running(job(model, data=(X.float(), Y)), PLAIN) as coded:
        for _ in coded.steps(8):
            coded.backward()
            coded.deviation()
            if coded.step == 1:
                before = tracemalloc.get_traced_memory()[0]
        grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 400_000  # bytes of one gradient


def test_a_gradient_with_parts_missing_deviates_and_says_so() -> None:
    with running(job(mlp()), ignore(6, 3)) as coded:
        report = coded.backward()
        assert report.residual == pytest.approx(3.0 + 3.0)
        assert coded.deviation() > 0.1
        assert (len(report.heard), len(report.late)) == (3, 3)


def test_the_report_of_a_step_that_waits_for_all() -> None:
    with running(job(mlp(), batch_size=20), PLAIN) as coded:
        report = coded.backward()
        assert coded.report is report
    assert (report.heard, report.late, report.messages) == ((0, 1, 2, 3, 4), (), 5)
    assert (report.work, report.wasted, report.residual) == (5, 0, 0.0)
    assert (report.samples, report.count, report.metrics) == (20, 20, {})
    assert (report.finite, report.contradicted) == (True, ())
    assert 0 < report.waiting.low <= report.waiting.estimate <= report.waiting.high
    assert report.seconds > report.decoding > 0
    assert abs(report.saved) < report.seconds  # it did wait for all


def test_the_report_of_a_step_that_does_not() -> None:
    with running(job(mlp()), fractional(4, 1)) as coded:
        for _ in coded.steps(3):
            report = coded.backward()
            assert sorted(report.heard + report.late) == [0, 1, 2, 3]
            assert {worker // 2 for worker in report.heard} == {0, 1}
            assert report.work >= 4
            assert report.wasted == report.work - 4
            assert report.residual == 0.0
            assert report.waiting.low <= report.waiting.estimate


def test_values_that_are_not_finite_are_handed_over_and_said() -> None:
    with running(job(normalised()), PLAIN) as coded:
        before = coded.model[1].running_mean.clone()
        with torch.no_grad():
            coded.model[0].weight.fill_(float("nan"))
        report = coded.backward()
        assert not report.finite
        assert torch.equal(coded.model[1].running_mean, before)


# -- processes -------------------------------------------------------------------------


def everything() -> nn.Module:
    """A model with all that travels: buffers, statistics, luck, frozen and tied."""
    model = nn.Sequential(
        seeded(Tied), nn.BatchNorm1d(CLASSES).double(), nn.Dropout(0.3), mlp_of(CLASSES)
    )
    model[0].last.bias.requires_grad_(False)
    return model


def mlp_of(features: int) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(features, 4), nn.Linear(4, CLASSES)))


def train_a_little(engine: str) -> tuple[dict[str, Tensor], list[Report], list[Any]]:
    model = everything()
    data = X, Y
    with running(
        lambda: Job(
            deepcopy(model), F.cross_entropy, data, 20, metrics={"right": correct}
        ),
        PLAIN,
        engine=engine,
    ) as coded:
        before = states()
        reports = []
        for step in coded.steps(4):
            coded.model.train(step % 2 == 0)
            reports.append(coded.backward())
            assert states() == before
            descend(coded.model)
            if step == 1:
                with torch.no_grad():
                    coded.model[3][0].weight.mul_(1.5)
        return coded.model.state_dict(), reports, before


def test_processes_give_the_same_bits() -> None:
    here, local = train_a_little("here"), train_a_little("local")
    assert here[0].keys() == local[0].keys()
    for name, tensor in here[0].items():
        assert torch.equal(local[0][name], tensor), name
    for one, other in zip(here[1], local[1], strict=True):
        assert (one.loss, one.metrics) == (other.loss, other.metrics)


def test_an_error_in_a_worker_is_raised_at_the_root_with_its_cause() -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        return model(batch[0]).sum()

    model, data = mlp(), (X, Y)
    said = r"worker \d, step 0, part \d: .*InvalidJob: loss: returned a tensor"
    with (
        train(lambda: Job(deepcopy(model), loss, data), scheme=uncoded(2)) as coded,
        pytest.raises(JobFailed, match=said),
    ):
        coded.backward()


SCRIPT = """
import torch
from torch import nn
from torch.nn import functional as F
from codedgrad.torch import Job, train

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 3)

    def forward(self, x):
        return self.last(x) + OFFSET

OFFSET = torch.tensor([0.5, 0.0, 1.0])
x = torch.linspace(-1, 1, 12).reshape(6, 2)

def job():
    return Job(Net(), F.cross_entropy, (x, torch.arange(6) % 3))

with train(job, scheme="cyclic(1)", workers=3) as coded:
    for step in coded.steps(3):
        report = coded.backward()
        print(step, coded.deviation() < 1e-5)
"""
SAID = "0 True\n1 True\n2 True\n"


def run_script(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_jobs_of_scripts_and_modules_reach_the_workers(
    tmp_path: Path, together: Callable[..., list[str]]
) -> None:
    """Neither has a guard against being imported again."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "module.py").write_text(SCRIPT)
    said = together(
        [
            lambda: run_script("script.py", cwd=tmp_path),
            lambda: run_script("-m", "package.module", cwd=tmp_path),
        ]
    )
    assert said == [SAID] * 2


def test_a_job_of_a_notebook_reaches_the_workers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As cells are run: in a namespace that is nobody's module."""
    exec(SCRIPT, {"__name__": "__main__"})
    assert capsys.readouterr().out == SAID
