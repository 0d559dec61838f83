"""The losses of PyTorch as sums, and what their means divide by."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from reprlib import repr as brief
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codedgrad.errors import InvalidData, InvalidJob

Number: TypeAlias = Tensor | float
_Options: TypeAlias = Mapping[str, Any]
_Function: TypeAlias = Callable[..., Tensor]
_Count: TypeAlias = Callable[[Tensor, Tensor, _Options], Number]

_NARROW = (torch.float16, torch.bfloat16)

OWN = "a function loss(model, batch) that returns (sum, count)"
WRAP = (
    "mean_over_samples(function) if it was written for (output, target) and returns a "
    "mean over the samples"
)


@dataclass(frozen=True, slots=True)
class Known:
    """A loss of PyTorch: its sum, and what its mean divides by.

    Attributes:
        sum: The loss with reduction "sum".
        each: The loss with reduction "none".
        count: Returns what the mean divides by.
        options: Returns the options of the loss.
    """

    sum: Callable[[Tensor, Tensor], Tensor]
    each: Callable[[Tensor, Tensor], Tensor]
    count: _Count
    options: Callable[[], _Options]

    def __call__(self, output: Any, target: Any, _: int) -> tuple[Tensor, Number]:
        """Return the sum of the losses, and what the mean would divide by."""
        for name, given, error in (
            ("output of the model", output, InvalidJob),
            ("target", target, InvalidData),
        ):
            if not isinstance(given, Tensor):
                problem = f"is {what(given)}, not a tensor"
                raise error(f"the {name}", problem, OWN)
        count = self.count(output, target, self.options())
        if output.dtype in _NARROW:  # a sum in float16 overflows at 65504
            return self.each(output, target).sum(dtype=torch.float32), count
        return self.sum(output, target), count


def _together(output: Tensor, target: Tensor, options: _Options) -> tuple[int, ...]:
    """The shape after broadcasting, which must not mix samples."""
    if output.ndim != target.ndim or output.shape[:1] != target.shape[:1]:
        problem = (
            f"the output of the model has {shape_of(output)}, the target "
            f"{shape_of(target)}: samples would be compared with each other's targets"
        )
        raise InvalidJob("loss", problem, "to squeeze or unsqueeze one of them")
    for name in ("weight", "pos_weight"):
        rows = () if options.get(name) is None else options[name].shape
        if len(rows) >= output.ndim and rows[:1] > (1,):
            problem = f"{name} has {shape_of(options[name])}, a row per sample"
            raise InvalidJob("loss", problem, f"weights in the data, and {OWN}")
    return np.broadcast_shapes(output.shape, target.shape)  # torch's imports sympy


def _elements(output: Tensor, target: Tensor, options: _Options) -> float:
    return float(math.prod(_together(output, target, options)))


def _labelled(output: Tensor, target: Tensor, options: _Options) -> float:
    """Rows of labels: the classes are in the last dimension."""
    return float(math.prod(_together(output, target, options)[:-1]))


def _rated(output: Tensor, target: Tensor, options: _Options) -> float:
    """Rows of classes, with one target each."""
    return float(math.prod(output.shape[:-1]))


def _first(output: Tensor, target: Tensor, options: _Options) -> float:
    return float(math.prod(_together(output, target, options)[:1]))


def _classified(output: Tensor, target: Tensor, options: _Options) -> Number:
    """Weights of the targets that are not ignored, or all rows of probabilities."""
    if target.shape == output.shape:  # probabilities of classes
        classes = min(1, output.ndim - 1)  # their dimension
        return float(math.prod((*output.shape[:classes], *output.shape[classes + 1 :])))
    counted: Tensor = target != options.get("ignore_index", -100)
    weight: Tensor | None = options.get("weight")
    if weight is None:
        return counted.sum()
    precise = torch.promote_types(weight.dtype, torch.float32)
    return weight.detach()[target[counted].long()].sum(dtype=precise)


_TORCH: tuple[tuple[_Function, type[nn.Module] | None, _Count], ...] = (
    (F.cross_entropy, nn.CrossEntropyLoss, _classified),
    (F.nll_loss, nn.NLLLoss, _classified),
    (F.mse_loss, nn.MSELoss, _elements),
    (F.l1_loss, nn.L1Loss, _elements),
    (F.smooth_l1_loss, nn.SmoothL1Loss, _elements),
    (F.huber_loss, nn.HuberLoss, _elements),
    (F.binary_cross_entropy, nn.BCELoss, _elements),
    (F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss, _elements),
    (F.kl_div, nn.KLDivLoss, _elements),
    (F.poisson_nll_loss, nn.PoissonNLLLoss, _elements),
    (F.gaussian_nll_loss, None, _elements),  # the module wants a third argument
    (F.soft_margin_loss, nn.SoftMarginLoss, _elements),
    (F.hinge_embedding_loss, nn.HingeEmbeddingLoss, _elements),
    (F.multilabel_soft_margin_loss, nn.MultiLabelSoftMarginLoss, _labelled),
    (F.multilabel_margin_loss, nn.MultiLabelMarginLoss, _labelled),
    (F.multi_margin_loss, nn.MultiMarginLoss, _rated),
)
_COUNTS = {function: count for function, _, count in _TORCH}
_FIXED = ("input", "target", "size_average", "reduce")  # ours, and the outdated
_WEIGHED = (F.mse_loss, F.l1_loss, F.huber_loss)  # their weight is per sample


def known(loss: Any) -> Known | None:
    """Return a loss of PyTorch; None if it is somebody else's."""
    if isinstance(loss, nn.Module):
        return _module(loss)
    is_partial = isinstance(loss, partial)
    function = loss.func if is_partial else loss
    if inspect.isfunction(function) and function in _COUNTS:
        if is_partial:
            return _function(function, loss.args, loss.keywords)
        return _function(function, (), {})
    if getattr(function, "__module__", None) == F.__name__:
        raise _unknown(function.__name__)
    return None


def _module(loss: nn.Module) -> Known | None:
    name, reduction = type(loss).__name__, getattr(loss, "reduction", None)
    for function, kind, _ in _TORCH:
        if kind and isinstance(loss, kind) and type(loss).forward is kind.forward:
            count = _counting(function, name, reduction)
            summing, each = _reducing(loss, "sum"), _reducing(loss, "none")
            return Known(summing, each, count, partial(_attributes, summing))
    if reduction is not None or type(loss).__module__.startswith("torch.nn."):
        raise _unknown(name)
    return None


def _reducing(loss: nn.Module, reduction: str) -> nn.Module:
    other: Any = copy.copy(loss)  # shares buffers, which may move, and hooks
    other.reduction = reduction
    return cast(nn.Module, other)


def _attributes(loss: nn.Module) -> _Options:
    return {**vars(loss), **dict(loss.named_buffers(recurse=False))}


def _function(
    function: _Function, positional: tuple[Any, ...], given: dict[str, Any]
) -> Known:
    name, has = function.__name__, inspect.signature(function).parameters
    options = {"reduction": "mean", **given}
    odd = [key for key in options if key not in has or key in _FIXED]
    if positional or odd:
        problem = f"a partial of {name} fixes {_listed(odd) or 'values without names'}"
        usable = _listed([key for key in has if key not in _FIXED])
        raise InvalidJob("loss", problem, f"keywords out of {usable}")
    if function in _WEIGHED and options.get("weight") is not None:
        problem = f"the weight of {name} has a row per sample, and a part has others"
        raise InvalidJob("loss", problem, f"weights in the data, and {OWN}")
    if function is F.gaussian_nll_loss and not isinstance(options.get("var"), float):
        problem = f"{name} is called with (output, target) and needs a var"
        advice = f"functools.partial({name}, var=1.0), or {OWN}"
        raise InvalidJob("loss", problem, advice)
    count = _counting(function, name, options.pop("reduction"))
    summing = partial(function, **options, reduction="sum")
    each = partial(function, **options, reduction="none")
    return Known(summing, each, count, lambda: options)


def _counting(function: _Function, name: str, reduction: Any) -> _Count:
    if reduction == "batchmean" and function is F.kl_div:
        return _first
    if reduction == "mean":
        return _COUNTS[function]
    problem = f"{name} has reduction={reduction!r}, which is not a mean"
    if reduction == "sum":
        problem += ": its gradient would grow with the batch"
    raise InvalidJob("loss", problem, f'reduction="mean", or {OWN}')


def _unknown(name: str) -> InvalidJob:
    problem = f"what the mean of {name} divides by is not known here"
    return InvalidJob("loss", problem, f"{OWN}, or {WRAP}")


def what(given: Any) -> str:
    """Name a value in few words."""
    if isinstance(given, Tensor):
        kind = f"a tensor of {shape_of(given)} and {given.dtype}"
        return kind if given.ndim else f"{kind}, {given.detach().item()}"
    if isinstance(given, tuple | list | dict):
        return f"a {type(given).__name__} of {len(given)}"
    return brief(given)


def _listed(words: list[str]) -> str:
    return ", ".join(words)


def shape_of(tensor: Tensor) -> str:
    """Name the shape of a tensor."""
    return f"shape {tuple(tensor.shape)}"
