"""Sums and counts of losses, against PyTorch's own means."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

from codedgrad.errors import InvalidData, InvalidJob
from codedgrad.torch.losses import (
    Loss,
    correct,
    mean_over_samples,
    objective,
    samples_of,
)

SAMPLES, CLASSES = 11, 5
CUTS = (4, 1, 6)  # uneven parts


def named(value: object) -> str:
    """Name a case, the same in every process: without addresses."""
    return re.sub(r" at 0x\w+", "", str(value))


class Scaled(nn.Module):
    """Something with parameters that gives outputs of any shape."""

    def __init__(self, shape: tuple[int, ...], then: Callable[[Tensor], Tensor]):
        super().__init__()
        numbers = torch.Generator().manual_seed(1)
        self.scale = nn.Parameter(
            torch.randn(shape, generator=numbers, dtype=torch.float64)
        )
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(x * self.scale)


def same(x: Tensor) -> Tensor:
    return x


log_softmax = partial(F.log_softmax, dim=1)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def uniform(*shape: int) -> Tensor:
    return torch.rand(shape, generator=rng(), dtype=torch.float64)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(), dtype=torch.float64)


def classes(*shape: int, some: int | None = None) -> Tensor:
    """Class numbers, every third one `some` if given."""
    drawn = torch.randint(0, CLASSES, shape, generator=rng())
    if some is not None:
        drawn.view(-1)[::3] = some
    return drawn


def chances(*shape: int) -> Tensor:
    return numbers(*shape).softmax(1)


N, C = SAMPLES, CLASSES
WEIGHT = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
SIGNS = uniform(N, C).round() * 2 - 1
LABELS = torch.tensor([[3, 0, -1, 1, 2], [1, -1, 0, 0, 0]] * 5 + [[-1, 0, 0, 0, 0]])

# loss, shape of a sample's output, what makes outputs of it, target
MODULES: dict[str, tuple[nn.Module, tuple[int, ...], Callable[..., Any], Tensor]] = {
    "ce": (nn.CrossEntropyLoss(), (C,), same, classes(N)),
    "ce weight": (nn.CrossEntropyLoss(WEIGHT), (C,), same, classes(N)),
    "ce ignored": (nn.CrossEntropyLoss(), (C,), same, classes(N, some=-100)),
    "ce ignore 2": (
        nn.CrossEntropyLoss(WEIGHT, ignore_index=3),
        (C,),
        same,
        classes(N, some=3),
    ),
    "ce smooth": (
        nn.CrossEntropyLoss(WEIGHT, ignore_index=1, label_smoothing=0.2),
        (C,),
        same,
        classes(N),
    ),
    "ce images": (
        nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.1),
        (C, 3, 2),
        same,
        classes(N, 3, 2, some=-100),
    ),
    "ce chances": (nn.CrossEntropyLoss(WEIGHT), (C,), same, chances(N, C)),
    "ce chances of images": (
        nn.CrossEntropyLoss(label_smoothing=0.3),
        (C, 2, 2),
        same,
        chances(N, C, 2, 2),
    ),
    "nll": (nn.NLLLoss(), (C,), log_softmax, classes(N)),
    "nll weight": (
        nn.NLLLoss(WEIGHT, ignore_index=4),
        (C, 3),
        log_softmax,
        classes(N, 3, some=4),
    ),
    "mse": (nn.MSELoss(), (C,), same, numbers(N, C)),
    "mse of one": (nn.MSELoss(), (), same, numbers(N)),
    "l1": (nn.L1Loss(), (C, 2), same, numbers(N, C, 2)),
    "smooth l1": (nn.SmoothL1Loss(beta=0.3), (C,), same, numbers(N, C)),
    "smooth l1 sharp": (nn.SmoothL1Loss(beta=0.0), (C,), same, numbers(N, C)),
    "huber": (nn.HuberLoss(delta=0.3), (C,), same, numbers(N, C)),
    "bce": (nn.BCELoss(), (C,), torch.sigmoid, uniform(N, C)),
    "bce weight": (nn.BCELoss(WEIGHT), (C,), torch.sigmoid, uniform(N, C)),
    "bce of one": (nn.BCEWithLogitsLoss(), (), same, uniform(N)),
    "bce logits": (
        nn.BCEWithLogitsLoss(WEIGHT, pos_weight=WEIGHT.flip(0)),
        (C,),
        same,
        uniform(N, C),
    ),
    "bce logits, rows": (
        nn.BCEWithLogitsLoss(WEIGHT[None], pos_weight=torch.tensor(3.0)),
        (C,),
        same,
        uniform(N, C),
    ),
    "kl": (nn.KLDivLoss(), (C,), log_softmax, chances(N, C)),
    "kl batchmean": (
        nn.KLDivLoss(reduction="batchmean", log_target=True),
        (C, 2),
        log_softmax,
        chances(N, C, 2).log(),
    ),
    "poisson": (nn.PoissonNLLLoss(full=True), (C,), same, uniform(N, C) * 5),
    "poisson rate": (
        nn.PoissonNLLLoss(log_input=False),
        (C,),
        torch.exp,
        uniform(N, C),
    ),
    "soft margin": (nn.SoftMarginLoss(), (C,), same, SIGNS),
    "hinge embedding": (nn.HingeEmbeddingLoss(margin=0.5), (C,), same, SIGNS),
    "labels": (nn.MultiLabelSoftMarginLoss(WEIGHT), (C,), same, uniform(N, C)),
    "label margin": (nn.MultiLabelMarginLoss(), (C,), same, LABELS),
    "margin": (nn.MultiMarginLoss(p=2, weight=WEIGHT), (C,), same, classes(N)),
}

# the function, in the setting of a module
FUNCTIONS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "cross_entropy": (F.cross_entropy, "ce ignored"),
    "cross_entropy, options": (
        partial(F.cross_entropy, weight=WEIGHT, ignore_index=3, label_smoothing=0.1),
        "ce ignore 2",
    ),
    "a partial of a partial": (
        partial(partial(F.cross_entropy, ignore_index=1), weight=WEIGHT),
        "ce",
    ),
    "cross_entropy, chances": (partial(F.cross_entropy, weight=WEIGHT), "ce chances"),
    "nll_loss": (partial(F.nll_loss, weight=WEIGHT, reduction="mean"), "nll weight"),
    "mse_loss": (F.mse_loss, "mse"),
    "l1_loss": (F.l1_loss, "l1"),
    "smooth_l1_loss": (partial(F.smooth_l1_loss, beta=0.2), "smooth l1"),
    "huber_loss": (partial(F.huber_loss, delta=0.2, weight=None), "huber"),
    "binary_cross_entropy": (partial(F.binary_cross_entropy, weight=WEIGHT), "bce"),
    "with_logits": (
        partial(F.binary_cross_entropy_with_logits, pos_weight=WEIGHT),
        "bce logits",
    ),
    "kl_div": (F.kl_div, "kl"),
    "kl_div, batchmean": (partial(F.kl_div, reduction="batchmean"), "kl"),
    "poisson_nll_loss": (partial(F.poisson_nll_loss, full=True), "poisson"),
    "gaussian_nll_loss": (
        partial(F.gaussian_nll_loss, var=0.7, full=True),
        "mse",
    ),
    "soft_margin_loss": (F.soft_margin_loss, "soft margin"),
    "hinge_embedding_loss": (
        partial(F.hinge_embedding_loss, margin=0.4),
        "hinge embedding",
    ),
    "multilabel_soft_margin_loss": (F.multilabel_soft_margin_loss, "labels"),
    "multilabel_margin_loss": (F.multilabel_margin_loss, "label margin"),
    "multi_margin_loss": (partial(F.multi_margin_loss, margin=0.3), "margin"),
}

SETTINGS = [pytest.param(*setting, id=name) for name, setting in MODULES.items()] + [
    pytest.param(function, *MODULES[like][1:], id=name)
    for name, (function, like) in FUNCTIONS.items()
]
kl_warns = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")


def gradient(total: Tensor, model: nn.Module) -> Tensor:
    [found] = torch.autograd.grad(total, list(model.parameters()))
    return found


def check_parts(
    loss: Any,
    model: nn.Module,
    x: Tensor,
    target: Tensor,
    cuts: tuple[int, ...] = CUTS,
) -> None:
    """Sums of parts over counts are PyTorch's mean of the whole; gradients too."""
    want = loss(model(x), target)
    evaluate = objective(loss)
    parts = [
        evaluate(model, batch)
        for batch in zip(x.split(cuts), target.split(cuts), strict=True)
    ]
    count = sum(float(part.count) for part in parts)
    assert [part.samples for part in parts] == list(cuts)
    assert all(part.total.shape == () for part in parts)
    torch.testing.assert_close(sum(part.total for part in parts) / count, want)
    torch.testing.assert_close(
        sum(gradient(part.total, model) for part in parts) / count,
        gradient(want, model),
    )


@kl_warns
@pytest.mark.parametrize(("loss", "shape", "then", "target"), SETTINGS)
def test_the_sums_of_parts_over_their_counts_are_the_mean_of_the_whole(
    loss: Any, shape: tuple[int, ...], then: Any, target: Tensor
) -> None:
    model, x = Scaled(shape, then), numbers(SAMPLES, *shape)
    check_parts(loss, model, x, target)
    check_parts(loss, model, x, target, (SAMPLES,))


@settings(max_examples=60)
@given(st.data())
@pytest.mark.hypothesis
def test_cross_entropy_of_any_options_is_that_of_pytorch(data: st.DataObject) -> None:
    draw = data.draw
    seed = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    cuts = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    ways, places = draw(st.integers(1, 4)), draw(st.sampled_from([(), (2,), (2, 3)]))
    shape = (sum(cuts), *places)
    ignored = draw(st.sampled_from([-100, -1, 0, ways - 1]))
    options = {
        "weight": torch.rand(ways, generator=seed).double() + 0.1,
        "label_smoothing": draw(st.sampled_from([0.0, 0.1, 1.0])),
    }
    if draw(st.booleans()):
        options["weight"] = None
    if draw(st.booleans()):
        target = torch.rand((shape[0], ways, *places), generator=seed).double()
    else:
        target = torch.randint(0, ways, shape, generator=seed)
        target[torch.rand(shape, generator=seed) < 0.3] = ignored
        target.view(-1)[0] = (ignored + 1) % ways  # one is not ignored, if it can be
        options["ignore_index"] = ignored
    x = torch.randn((shape[0], ways, *places), generator=seed).double()
    model = Scaled((ways, *places), same)
    loss = nn.CrossEntropyLoss(**options)
    if torch.isfinite(loss(model(x), target)):
        check_parts(loss, model, x, target, cuts)
        check_parts(partial(F.cross_entropy, **options), model, x, target, cuts)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_part_of_which_all_is_ignored_adds_nothing(
    weight: Tensor | None, smoothing: float
) -> None:
    loss = nn.CrossEntropyLoss(weight, label_smoothing=smoothing)
    model, target = Scaled((C,), same), torch.full((N,), -100)
    part = objective(loss)(model, (numbers(N, C), target))
    assert (part.total.item(), float(part.count), part.samples) == (0.0, 0.0, N)
    assert not gradient(part.total, model).any()


def test_a_user_s_module_is_left_as_it_was() -> None:
    loss = nn.CrossEntropyLoss(WEIGHT)
    evaluate = objective(loss)
    evaluate(Scaled((C,), same), (numbers(N, C), classes(N)))
    assert loss.reduction == "mean"
    assert loss.weight is WEIGHT


def test_weights_follow_the_user_s_module() -> None:
    loss = nn.CrossEntropyLoss(WEIGHT)
    evaluate = objective(loss)
    loss.to(torch.float32)
    model = Scaled((C,), same).to(torch.float32)
    part = evaluate(model, (numbers(N, C).float(), classes(N)))
    assert part.total.dtype == torch.float32
    assert float(part.count) == float(WEIGHT[classes(N)].sum())


def test_counts_of_narrow_weights_are_not_rounded() -> None:
    ones = torch.ones(2, dtype=torch.bfloat16)
    model = nn.Linear(1, 2, dtype=torch.bfloat16)
    batch = torch.ones(1001, 1, dtype=torch.bfloat16), torch.zeros(1001).long()
    part = objective(nn.CrossEntropyLoss(ones))(model, batch)
    assert float(part.count) == 1001.0  # bfloat16 has 8 bits for it


def test_all_but_the_last_of_a_batch_go_to_the_model() -> None:
    model = nn.Bilinear(2, 3, 1)
    a, b, target = torch.ones(4, 2), torch.ones(4, 3), torch.ones(4, 1)
    part = objective(F.mse_loss)(model, [a, b, target])
    torch.testing.assert_close(part.total / part.count, F.mse_loss(model(a, b), target))


def test_a_subclass_that_changes_nothing_is_still_known() -> None:
    class Mine(nn.MSELoss):
        pass

    check_parts(Mine(), Scaled((C,), same), numbers(N, C), numbers(N, C))


def test_an_evaluation_needs_no_gradient() -> None:
    model, batch = Scaled((C,), same), (numbers(N, C), classes(N))
    with torch.no_grad():
        part = objective(F.cross_entropy)(model, batch)
    assert not part.total.requires_grad


def test_an_objective_travels() -> None:
    model, batch = Scaled((C,), same), (numbers(N, C), classes(N))
    for loss in (nn.CrossEntropyLoss(WEIGHT), F.cross_entropy):
        evaluate = objective(loss, metrics={"right": correct})
        there = cloudpickle.loads(cloudpickle.dumps(evaluate))
        assert torch.equal(there(model, batch).total, evaluate(model, batch).total)


class Focal(nn.Module):
    reduction = "mean"

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return ((1 - output.exp()) * output).mean()


class Doubled(nn.MSELoss):
    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return 2 * super().forward(output, target)


@pytest.mark.parametrize(
    ("loss", "complaint"),
    [
        (
            nn.MSELoss(reduction="sum"),
            "MSELoss has reduction='sum', which is not a mean: its gradient would grow "
            'with the batch; try reduction="mean", or a function loss(model, batch) '
            "that returns (sum, count)",
        ),
        (nn.MSELoss(reduction="none"), "MSELoss has reduction='none', which is not a"),
        (nn.MSELoss(reduction="batchmean"), "reduction='batchmean', which is not a"),
        (partial(F.l1_loss, reduction="sum"), "l1_loss has reduction='sum'"),
        (partial(F.l1_loss, reduction="none"), "l1_loss has reduction='none'"),
        (partial(F.nll_loss, size_average=False), "fixes size_average; try keywords"),
        (partial(F.mse_loss, reduce=True), "a partial of mse_loss fixes reduce"),
        (
            partial(F.nll_loss, torch.ones(2)),
            "a partial of nll_loss fixes values without names; try keywords out of "
            "weight, ignore_index, reduction",
        ),
        (partial(F.nll_loss, target=torch.ones(2)), "a partial of nll_loss fixes targ"),
        (partial(F.nll_loss, wieght=WEIGHT), "a partial of nll_loss fixes wieght"),
        (partial(F.mse_loss, weight=WEIGHT), "the weight of mse_loss has a row per"),
        (F.gaussian_nll_loss, "gaussian_nll_loss is called with (output, target) and"),
        (partial(F.gaussian_nll_loss, var=WEIGHT), "needs a var; try functools.partia"),
        (nn.GaussianNLLLoss(), "what the mean of GaussianNLLLoss divides by is not"),
        (nn.CTCLoss(), "what the mean of CTCLoss divides by is not known here; try a"),
        (F.triplet_margin_loss, "what the mean of triplet_margin_loss divides by"),
        (nn.Softmax(dim=1), "what the mean of Softmax divides by"),
        (
            Focal(),
            "what the mean of Focal divides by is not known here; try a function",
        ),
        (Doubled(), "or mean_over_samples(function) if it was written for (output,"),
        (nn.CrossEntropyLoss, "not a function; try nn.CrossEntropyLoss() or a"),
        ("cross_entropy", "loss: is 'cross_entropy', not a function; try"),
        (None, "loss: is None, not a function"),
    ],
    ids=named,
)
def test_a_loss_without_a_known_mean_is_refused_at_once(
    loss: Any, complaint: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        objective(loss)
    assert complaint in str(caught.value)


def test_what_broadcasts_across_samples_is_refused() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(InvalidJob, match=r"shape \(6, 1\), the target shape \(6,"):
        objective(F.mse_loss)(model, (torch.ones(6, 2), torch.ones(6)))


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_weights_of_samples_are_refused(name: str) -> None:
    loss = nn.BCEWithLogitsLoss(**{name: torch.ones(6, 1)})
    with pytest.raises(InvalidJob, match=f"{name} has shape .6, 1., a row per"):
        objective(loss)(nn.Linear(2, 1), (torch.ones(6, 2), torch.ones(6, 1)))


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        ({"x": torch.ones(2, 3), "y": torch.ones(2, 1)}, "batch: is a dict of 2, not"),
        (
            torch.ones(2, 3),
            "batch: is a tensor of shape (2, 3) and torch.float32, not ",
        ),
        ([torch.ones(2, 3)], "batch: is a list of 1, not (inputs..., target); try a"),
        ((torch.ones(2, 3), ["a", "b"]), "the target: is a list of 2, not a tensor"),
    ],
    ids=named,
)
def test_a_batch_without_a_target_is_refused(batch: Any, complaint: str) -> None:
    with pytest.raises(InvalidData) as caught:
        objective(F.mse_loss)(nn.Linear(3, 1), batch)
    assert complaint in str(caught.value)
    assert "try a function loss(model, batch) that returns (sum, count)" in str(
        caught.value
    )


def test_an_output_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(InvalidJob, match="the output of the model: is a tuple of"):
        objective(F.mse_loss)(nn.LSTM(3, 1), (torch.ones(2, 3), torch.ones(2, 1)))


# losses of (model, batch)


def summed(model: nn.Module, batch: Any) -> Any:
    errors = (model(batch["x"]) - batch["y"]) ** 2
    return errors.sum(), len(errors)


BATCH = {"x": torch.ones(4, 3), "y": torch.zeros(4, 1)}


def test_a_function_of_model_and_batch_returns_sum_and_count() -> None:
    model = nn.Linear(3, 1)
    part = objective(summed)(model, BATCH)
    torch.testing.assert_close(part.total, 4 * model(torch.ones(3)).square().sum())
    assert (part.count, part.samples, part.metrics) == (4.0, 4, {})


def test_a_module_may_be_a_function_of_model_and_batch() -> None:
    class Summed(nn.Module):
        def forward(self, model: nn.Module, batch: Any) -> Any:
            return summed(model, batch)

    assert objective(Summed())(nn.Linear(3, 1), BATCH).count == 4.0


def with_metrics(found: Any) -> Callable[[nn.Module, Any], Any]:
    return lambda model, batch: (*summed(model, batch), found)


def test_metrics_are_sums_over_samples_or_pairs_in_the_order_of_names() -> None:
    model = nn.Linear(3, 1)
    tensor = model.weight.sum()
    found = {"z": 2, "b": (tensor, 3), "a": np.float32(0.5)}
    part = objective(with_metrics(found))(model, BATCH)
    assert list(part.metrics) == ["a", "b", "z"]
    assert part.metrics["z"] == (2.0, 4.0)
    assert part.metrics["a"] == (0.5, 4.0)
    assert part.metrics["b"] == (tensor.detach(), 3.0)
    assert not part.metrics["b"][0].requires_grad


def test_a_count_may_be_a_tensor() -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        return [model(batch).sum(), (batch > 0).sum()]

    part = objective(loss)(nn.Linear(3, 1), torch.tensor([[1.0, 0.0, 2.0]]))
    assert (int(part.count), part.samples) == (2, 1)


def returning(value: Any) -> Callable[[nn.Module, Any], Any]:
    """A loss that returns this; a function is called with the sum."""

    def loss(model: nn.Module, batch: Any) -> Any:
        total = summed(model, batch)[0]
        return value(total) if callable(value) else value

    return loss


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (
            lambda total: torch.zeros(4, 1),
            "loss: returned a tensor of shape (4, 1) and torch.float32; try to return "
            "(sum, count) or (sum, count, metrics)",
        ),
        (lambda total: total, "loss: returned a tensor of shape () and torch.float32,"),
        (None, "loss: returned None; try to return (sum, count)"),
        (1.5, "loss: returned 1.5; try"),
        (lambda total: (total,), "loss: returned a tuple of 1; try"),
        (lambda total: (total, 1, {}, 2), "loss: returned a tuple of 4; try"),
        (
            lambda total: (total[None], 1),
            "loss: a tensor of shape (1,) and torch.float",
        ),
        (lambda total: (total.item(), 1), "is not a sum; try to return a sum of shape"),
        (lambda total: (total.long(), 1), "torch.int64, "),
        (lambda total: (total.detach(), 1), "the sum does not depend on any parameter"),
        (lambda total: (total, -1), "loss: -1 is not a count; try a finite number, 0"),
        (lambda total: (total, np.inf), "loss: inf is not a count"),
        (lambda total: (total, torch.tensor(np.nan)), "torch.float32, nan is not a co"),
        (lambda total: (total, torch.ones(4)), "loss: a tensor of shape (4,) and torc"),
        (lambda total: (total, "4"), "loss: '4' is not a count"),
        (lambda total: (total, True), "loss: True is not a count"),
        (lambda total: (total, total.abs()), "the count depends on the parameters"),
        (lambda total: (total, 1, [1.0]), "loss: returned a list of 1 for the metrics"),
        (lambda total: (total, 1, None), "loss: returned None for the metrics; try a"),
        (lambda total: (total, 1, {"a": "b"}), "metrics: a is 'b'; try a number, or"),
        (lambda total: (total, 1, {"a": (1, 2, 3)}), "metrics: a is a tuple of 3; try"),
        (lambda total: (total, 1, {"a": torch.ones(2)}), "a is a tensor of shape (2,)"),
        (lambda total: (total, 1, {3: 1.0}), "metrics: 3 is not a name"),
    ],
)
def test_what_is_not_a_sum_and_a_count_is_refused(value: Any, complaint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        objective(returning(value))(nn.Linear(3, 1), BATCH)
    assert complaint in str(caught.value)


def test_a_sum_that_is_not_finite_is_passed_on() -> None:
    part = objective(returning(lambda total: (total / 0, 1)))(nn.Linear(3, 1), BATCH)
    assert not torch.isfinite(part.total)


def test_a_count_of_zero_is_one() -> None:
    part = objective(returning(lambda total: (total * 0, 0)))(nn.Linear(3, 1), BATCH)
    assert part.count == 0.0


def test_names_of_metrics_stay_the_same() -> None:
    names = iter(["a", "b"])

    def loss(model: nn.Module, batch: Any) -> Any:
        return (*summed(model, batch), {next(names): 1.0})

    evaluate, model = objective(loss), nn.Linear(3, 1)
    evaluate(model, BATCH)
    with pytest.raises(InvalidJob, match=r"metrics \['b'\], and before \['a'\]"):
        evaluate(model, BATCH)


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def cross(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target)


def masked(output: Tensor, target: Tensor) -> Tensor:
    return output[target.bool()].mean()


def sizes(output: Tensor, target: Tensor) -> Tensor:
    return output.sum() / output.size(0)


@pytest.mark.parametrize(
    "loss",
    [
        squared,
        cross,
        masked,
        sizes,
        torch.dist,
        lambda output: output,
        lambda a, b, c: a,
    ],
)
def test_a_function_of_output_and_target_is_told_apart(loss: Any) -> None:
    with pytest.raises(InvalidJob) as caught:
        objective(loss)(nn.Linear(3, 1), (torch.ones(4, 3), torch.zeros(4, 1)))
    assert isinstance(caught.value.__cause__, TypeError | AttributeError)
    assert "when it was called with (model, batch); try mean_over_samples(f" in str(
        caught.value
    )
    assert len(str(caught.value).splitlines()) == 1


def test_an_error_of_the_model_is_its_own() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.no_such_thing

    def loss(model: nn.Module, batch: Any) -> Any:
        return model(batch).sum(), 1

    with pytest.raises(AttributeError, match="no_such_thing"):
        objective(loss)(Broken(), torch.ones(2))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        objective(lambda model, batch: model())(Broken(), torch.ones(2))


def test_another_error_of_a_loss_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        objective(lambda model, batch: 1 / 0)(nn.Linear(3, 1), BATCH)


# means over samples


def test_a_mean_over_samples_becomes_a_sum() -> None:
    model, x, target = Scaled((C,), same), numbers(N, C), numbers(N, C)

    def distance(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).norm(dim=1).mean()

    evaluate = objective(mean_over_samples(distance))
    batches = zip(x.split(CUTS), target.split(CUTS), strict=True)
    parts = [evaluate(model, batch) for batch in batches]
    assert [part.count for part in parts] == list(CUTS)
    total = sum(part.total for part in parts)
    torch.testing.assert_close(total / SAMPLES, distance(model(x), target))


def test_a_mean_over_samples_may_have_outputs_of_any_kind() -> None:
    def loss(output: tuple[Tensor, Any], target: list[str]) -> Tensor:
        return output[0].sum() / len(target)

    batch = (torch.ones(2, 3), ["a", "b"])
    part = objective(mean_over_samples(loss))(nn.LSTM(3, 1), batch)
    assert (part.count, part.samples) == (2.0, 2)


@pytest.mark.parametrize("value", [torch.ones(3), 1.0, (torch.tensor(1.0), 2)])
def test_a_mean_that_is_not_one_number_is_refused(value: Any) -> None:
    evaluate = objective(mean_over_samples(lambda output, target: value))
    with pytest.raises(InvalidJob, match="is not a sum"):
        evaluate(nn.Linear(3, 1), (torch.ones(4, 3), torch.zeros(4, 1)))


@pytest.mark.parametrize("function", [nn.MSELoss, None])
def test_a_mean_of_no_function_is_refused(function: Any) -> None:
    with pytest.raises(InvalidJob, match="mean_over_samples: is given"):
        mean_over_samples(function)


def test_whoever_picked_the_samples_may_say_how_many_there_are() -> None:
    images = [torch.ones(3, 5), torch.ones(3, 7)]  # of unlike sizes: a list of 2

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return output.mean()

    class Model(nn.Linear):
        def forward(self, images: list[Tensor]) -> Tensor:
            return super().forward(torch.stack([image.mean(1) for image in images]))

    evaluate = objective(mean_over_samples(loss), metrics={"one": lambda o, t: 1.0})
    part = evaluate(Model(3, 1), (images, torch.ones(2)), 2)
    assert (part.count, part.samples, part.metrics) == (2.0, 2, {"one": (1.0, 2.0)})
    part = objective(summed)(nn.Linear(3, 1), BATCH, samples=7)
    assert (part.count, part.samples) == (4.0, 7)


# metrics


@pytest.mark.parametrize("loss", [F.cross_entropy, mean_over_samples(cross)])
def test_metrics_see_the_output_and_the_target_without_gradients(loss: Any) -> None:
    seen: list[Tensor] = []

    def largest(output: Tensor, target: Tensor) -> float:
        seen.extend((output, target))
        assert not torch.is_grad_enabled()
        return float(output.max())

    model, batch = Scaled((C,), same), (numbers(N, C), classes(N))
    evaluate = objective(loss, metrics={"right": correct, "largest": largest})
    part = evaluate(model, batch)
    output, target = seen
    assert not output.requires_grad
    assert target is batch[1]
    assert part.metrics["largest"] == (float(output.max()), float(N))
    assert part.metrics["right"] == (int((output.argmax(1) == target).sum()), float(N))
    assert list(part.metrics) == ["largest", "right"]
    assert part.total.requires_grad


def test_metrics_next_to_a_loss_of_model_and_batch_are_refused() -> None:
    with pytest.raises(InvalidJob, match="are given next to a loss of"):
        objective(summed, metrics={"right": correct})


@pytest.mark.parametrize("metrics", [[correct], {"right": 1}, "right"])
def test_metrics_that_are_no_functions_are_refused(metrics: Any) -> None:
    with pytest.raises(InvalidJob, match=r"functions of .output, target. by name"):
        objective(F.cross_entropy, metrics=metrics)


@pytest.mark.parametrize("value", ["a", torch.ones(3), (1, 2, 3), None])
def test_a_metric_that_is_no_number_is_refused(value: Any) -> None:
    evaluate = objective(F.mse_loss, metrics={"odd": lambda output, target: value})
    with pytest.raises(InvalidJob, match=r"metrics: odd is .*; try a number, or"):
        evaluate(nn.Linear(3, 1), (torch.ones(4, 3), torch.zeros(4, 1)))


def test_right_predictions_are_counted_in_every_place() -> None:
    output, target = numbers(N, C, 3), classes(N, 3)
    right, count = correct(output, target)
    plain = [
        int(output[i, :, j].argmax()) == int(target[i, j])
        for i in range(N)
        for j in range(3)
    ]
    assert (int(right), count) == (sum(plain), 3 * N)


def test_right_predictions_of_probabilities_are_counted() -> None:
    output = numbers(N, C)
    assert correct(output, output.softmax(1)) == (N, N)


@pytest.mark.parametrize(
    ("output", "target"), [((4,), (4,)), ((4, 2), (4, 1)), ((4, 2), (2,))]
)
def test_predictions_without_classes_are_refused(
    output: tuple[int, ...], target: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidJob, match="correct: output has shape"):
        correct(torch.ones(output), torch.ones(target))


# samples


class Sized:
    def __len__(self) -> int:
        return 8


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.ones(3, 2), 3),
        ((torch.ones(3, 2), torch.ones(4)), 3),
        ([[{"a": None, "b": "text"}, {"c": (torch.ones(5),)}], torch.ones(4)], 5),
        ({"flag": torch.tensor(1.0), "x": torch.ones(6, 1)}, 6),
        ((["a", "b"], torch.ones(2)), 2),
        (np.ones((7, 2)), 7),
        (Sized(), 8),
        (torch.ones(0, 2), 0),
        (pack_sequence([torch.ones(4, 1), torch.ones(2, 1)]), 2),
    ],
)
def test_the_samples_of_a_batch_are_the_rows_of_its_first_tensor(
    batch: Any, samples: int
) -> None:
    assert samples_of(batch) == samples


@pytest.mark.parametrize(
    "batch", [None, "text", ["a"], torch.tensor(1.0), {}, object()]
)
def test_a_batch_without_rows_is_refused(batch: Any) -> None:
    with pytest.raises(InvalidData, match="batch: there is no tensor in"):
        samples_of(batch)


def test_a_loss_is_a_value_with_names() -> None:
    part = Loss(torch.tensor(1.0), 2.0, 3)
    assert (part.count, part.samples, part.metrics) == (2.0, 3, {})
