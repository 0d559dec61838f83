"""The loss of one part, as a sum and a count.

The gradient of a whole step is (sum of the gradients of the sums) / (sum of the
counts), so a part needs both. What a mean divides by is not always the samples: a
weighted cross entropy divides by weights, one with `ignore_index` by what is not
ignored, a squared error by elements.

A loss sees the samples of its part, and not those of the step. One that compares
samples with each other (contrastive, in-batch negatives) has only those:
`Job(least_samples=...)` says how many there must be. A regulariser in the sum is
counted once a part: add it times the count, and the mean over the step has it once.

| `objective(loss)` takes | called as | mean over |
| --- | --- | --- |
| a loss of PyTorch with reduction "mean" | `loss(output, target)` | as PyTorch's |
| `mean_over_samples(function)` | `function(output, target)` | samples |
| any other function, which returns (sum, count) or (sum, count, metrics) | \
`function(model, batch)` | counts |
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from reprlib import repr as brief
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from codedgrad.errors import InvalidData, InvalidJob
from codedgrad.torch.loss_divisors import OWN, WRAP, Number, known, shape_of, what

Metric: TypeAlias = Callable[[Any, Any], Any]
"""metric(output, target) -> sum over the samples, or a pair (sum, count)."""


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """What one part adds to a step.

    Attributes:
        total: Sum of the losses, a tensor of shape () to differentiate.
        count: What to divide the sum of all parts by.
        samples: In the part.
        metrics: By name, in the order of names: a sum and what to divide it by.
    """

    total: Tensor
    count: Number
    samples: int
    metrics: dict[str, tuple[Number, Number]] = field(default_factory=dict)


class Objective(Protocol):
    """What a worker calls for the loss of a part."""

    def __call__(
        self,
        model: nn.Module,
        batch: Any,
        samples: int | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> Loss:
        """Return the loss of a batch.

        Args:
            model: What to call.
            batch: What to call it with.
            samples: In the batch; None: as many as can be seen in it.
            given: `step`, `epoch` and `knobs`, for a function that asks for them.
        """
        ...


_Sum: TypeAlias = Callable[[Any, Any, int], tuple[Tensor, Number]]

GIVEN = ("step", "epoch", "knobs")
"""What a loss of (model, batch) is given, if it has parameters of these names."""

_UNNAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)
RETURN = "to return (sum, count) or (sum, count, metrics)"


def objective(loss: Any, metrics: Mapping[str, Metric] | None = None) -> Objective:
    """Make what a worker calls of what a user gives.

    Args:
        loss: A loss of PyTorch (a module or a function, or a `functools.partial` of
            such a function with keywords) with reduction "mean"; a
            `mean_over_samples`; or a function of (model, batch).
        metrics: By name, functions of (output, target) that return a sum over the
            samples, or a pair (sum, count). A function of (model, batch) returns its
            metrics itself.

    Returns:
        A function of (model, batch). Unless the loss takes those itself, a batch is a
        tuple or list (inputs..., target), and the model is called with the inputs.

    Example:
        >>> evaluate = objective(nn.CrossEntropyLoss(), metrics={"right": correct})
        >>> batch = torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, -100])
        >>> model = nn.Linear(2, 2)
        >>> part = evaluate(model, batch)
        >>> int(part.count), part.samples  # one target is ignored
        (1, 2)
    """
    if isinstance(loss, _OutputTarget):  # of mean_over_samples, or made before
        return replace(loss, metrics=_functions(metrics or loss.metrics))
    if isinstance(loss, type) or not callable(loss):
        problem = f"is {brief(loss)}, not a function"
        raise InvalidJob("loss", problem, f"nn.CrossEntropyLoss() or {OWN}")
    torchs = known(loss)
    if torchs is not None:
        return _OutputTarget(torchs, _functions(metrics or {}))
    if metrics:
        problem = "are given next to a loss of (model, batch)"
        advice = "(sum, count, metrics) as what the loss returns"
        raise InvalidJob("metrics", problem, advice)
    return _ModelBatch(loss)


def mean_over_samples(function: Callable[[Any, Any], Tensor]) -> Objective:
    """Adapt a function of (output, target) that returns a mean over the samples.

    Example:
        >>> def distance(output, target):
        ...     return (output - target).norm(dim=1).mean()
        >>> evaluate = objective(mean_over_samples(distance))
        >>> part = evaluate(nn.Linear(3, 2), (torch.zeros(4, 3), torch.zeros(4, 2)))
        >>> part.count, part.samples
        (4.0, 4)
    """
    if isinstance(function, type) or not callable(function):
        problem = f"is given {brief(function)}, not a function"
        raise InvalidJob("mean_over_samples", problem, "one of (output, target)")
    return _OutputTarget(_Mean(function), {})


def correct(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """Count right predictions: the highest of the outputs in dimension 1, the classes.

    Targets are class numbers, or as many numbers as outputs, of which the highest
    counts. All of them count, `ignore_index` or not.

    Example:
        >>> correct(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        (tensor(1), 2)
    """
    wanted = target
    if output.ndim > 1 and target.shape == output.shape:
        wanted = target.argmax(1)
    if output.ndim < 2 or output.argmax(1).shape != wanted.shape:
        problem = f"output has {shape_of(output)}, target {shape_of(target)}"
        advice = "output (samples, classes, ...), target (samples, ...)"
        raise InvalidJob("correct", problem, advice)
    return (output.argmax(1) == wanted).sum(), wanted.numel()


def samples_of(batch: Any) -> int:
    """Return how many samples are in a batch: the rows of the first tensor in it.

    Tuples, lists and dicts are searched in order, and in depth; of anything else its
    length is taken. Of a list with a tensor per sample that is not the samples: an
    objective can be told them.

    Example:
        >>> samples_of({"text": ["a", "b"], "ids": [torch.zeros(2, 7), None]})
        2
    """
    found = _rows(batch)
    if found is None:
        problem = f"there is no tensor in {brief(batch)}"
        raise InvalidData("batch", problem, "tensors with a row per sample")
    return found


def _rows(batch: Any) -> int | None:
    if isinstance(batch, Tensor):
        return batch.size(0) if batch.ndim else None
    if isinstance(batch, PackedSequence):  # a tuple, of all steps of all samples
        return int(batch.batch_sizes[0])
    if isinstance(batch, tuple | list | Mapping):
        items = batch.values() if isinstance(batch, Mapping) else batch
        return next((n for n in map(_rows, items) if n is not None), None)
    if isinstance(batch, str | bytes) or not hasattr(batch, "__len__"):
        return None
    return len(batch)


@dataclass(frozen=True, slots=True)
class _OutputTarget:
    """Calls the model with the inputs, then something with (output, target)."""

    sums: _Sum
    metrics: Mapping[str, Metric]

    def __call__(
        self,
        model: nn.Module,
        batch: Any,
        samples: int | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> Loss:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            problem = f"is {what(batch)}, not (inputs..., target)"
            raise InvalidData("batch", problem, OWN)
        *inputs, target = batch
        samples = samples_of(batch) if samples is None else samples
        output = model(*inputs)
        total, count = self.sums(output, target, samples)
        with torch.no_grad():
            plain = output.detach() if isinstance(output, Tensor) else output
            found = {name: f(plain, target) for name, f in self.metrics.items()}
        return Loss(_total(total), count, samples, _pairs(found, samples))


@dataclass(frozen=True, slots=True)
class _Mean:
    function: Callable[[Any, Any], Any]

    def __call__(self, output: Any, target: Any, samples: int) -> tuple[Tensor, float]:
        mean = _total(self.function(output, target))
        # float32 at least, for a mean that fits into float16 may not fit as a sum
        wide = mean.to(torch.promote_types(mean.dtype, torch.float32))
        return wide * samples, float(samples)


class _ModelBatch:
    """Calls a function with (model, batch), and checks what it returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._asked = _asked(function)
        self._names: list[str] | None = None

    def __call__(
        self,
        model: nn.Module,
        batch: Any,
        samples: int | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> Loss:
        samples = samples_of(batch) if samples is None else samples
        asked = {name: (given or {})[name] for name in self._asked}
        returned = self._call(model, batch, asked)
        if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
            raise InvalidJob("loss", f"returned {what(returned)}", RETURN)
        total, count, found = (*returned, {})[:3]
        metrics = self._metrics(found, samples)
        return Loss(_total(total), _count(count), samples, metrics)

    def _call(self, model: nn.Module, batch: Any, asked: dict[str, Any]) -> Any:
        try:
            return self._function(model, batch, **asked)
        except (TypeError, AttributeError) as error:
            if _inside(model, error.__traceback__):
                raise
            said = f"{type(error).__name__} ({' '.join(str(error).split())[:200]})"
            problem = f"raised {said} when it was called with (model, batch)"
            raise InvalidJob("loss", problem, WRAP) from error

    def _metrics(self, given: Any, samples: int) -> dict[str, tuple[Number, Number]]:
        if not isinstance(given, Mapping):
            problem = f"returned {what(given)} for the metrics"
            raise InvalidJob("loss", problem, "a dict of sums by name")
        pairs = _pairs(given, samples)
        if self._names is None:
            self._names = list(pairs)
        if self._names != list(pairs):
            problem = f"returned metrics {list(pairs)}, and before {self._names}"
            raise InvalidJob("loss", problem, "the same names for every batch")
        return pairs


def _asked(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return which of `step`, `epoch` and `knobs` a function has as parameters."""
    called: Any = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):  # of a builtin: it asks for none
        return ()
    others = list(parameters.values())[2:]  # after model and batch
    usable = {p.name for p in others if p.kind not in _UNNAMED}
    fixed = function.keywords if isinstance(function, partial) else {}
    return tuple(name for name in GIVEN if name in usable and name not in fixed)


def _inside(model: nn.Module, traceback: TracebackType | None) -> bool:
    """Whether an error came out of a call of the model, and is the model's own."""
    while traceback is not None:
        frame = traceback.tb_frame
        is_call = frame.f_code.co_name != "__getattr__"  # of what a model has not
        if is_call and frame.f_locals.get("self") is model:
            return True
        traceback = traceback.tb_next
    return False


def _total(given: Any) -> Tensor:
    advice = "to return a sum of shape (), made of the outputs of the model"
    if not isinstance(given, Tensor) or given.ndim or not given.is_floating_point():
        raise InvalidJob("loss", f"{what(given)} is not a sum", advice)
    if torch.is_grad_enabled() and not given.requires_grad:
        problem = "the sum does not depend on any parameter to train"
        raise InvalidJob("loss", problem, advice)
    return given


def _count(given: Any) -> Number:
    if isinstance(given, Tensor) and given.requires_grad:
        problem = "the count depends on the parameters"
        raise InvalidJob("loss", problem, "count.detach(), or another count")
    if not _is_number(given) or not 0 <= float(given) < math.inf:
        advice = "a finite number, 0 or more: what to divide the sum by"
        raise InvalidJob("loss", f"{what(given)} is not a count", advice)
    return given if isinstance(given, Tensor) else float(given)


def _pairs(found: Mapping[Any, Any], samples: int) -> dict[str, tuple[Number, Number]]:
    """Return sums and counts of metrics, ordered by name, whoever returned them."""
    pairs = {}
    for name in sorted(found, key=str):
        if not isinstance(name, str):
            raise InvalidJob("metrics", f"{brief(name)} is not a name", "a str")
        given = found[name]
        pair = given if isinstance(given, tuple | list) else (given, samples)
        if len(pair) != 2 or not all(map(_is_number, pair)):
            problem = f"{name} is {what(given)}"
            raise InvalidJob("metrics", problem, "a number, or (sum, count)")
        pairs[name] = _plain(pair[0]), _plain(pair[1])
    return pairs


def _plain(number: Any) -> Number:
    return number.detach() if isinstance(number, Tensor) else float(number)


def _is_number(given: Any) -> bool:
    if isinstance(given, Tensor):
        return not given.ndim and not given.is_complex() and given.dtype != torch.bool
    return isinstance(given, Real) and not isinstance(given, bool)


def _functions(metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
    if not isinstance(metrics, Mapping) or not all(map(callable, metrics.values())):
        advice = 'functions of (output, target) by name, such as {"right": correct}'
        raise InvalidJob("metrics", f"are {brief(metrics)}", advice)
    return dict(metrics)
