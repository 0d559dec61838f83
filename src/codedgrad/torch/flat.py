"""A model as vectors: which of its tensors lies where.

```text
parameters   trainable | frozen | other floating-point buffers | running statistics |
             batches that were counted
gradient     trainable
scalars      sum of losses, count, samples, metrics (sum, count) | running statistics
```

One vector is published a step; one comes back. Tied parameters are in it once. Numbers
of a narrower type go into a wider one, and back, without a change of a bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidScenario

__all__ = ["Flat", "Span", "refuse_sparse"]

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_WIDE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Span:
    """Some tensors, one after the other, in a stretch of a vector.

    Attributes:
        tensors: In order.
        start: Where the first one begins.
        size: Numbers in all of them.
    """

    def __init__(self, tensors: Sequence[Tensor], start: int) -> None:
        self.tensors = tensors
        self.start = start
        self.size = sum(tensor.numel() for tensor in tensors)

    @property
    def end(self) -> int:
        """Where the last one ends."""
        return self.start + self.size

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the stretch of a vector of each tensor, in its shape."""
        found, at = [], self.start
        for tensor in self.tensors:
            stretch = vector[at : at + tensor.numel()]
            found.append(stretch.view(tensor.shape))
            at += tensor.numel()
        return found

    def move(self, vector: Tensor) -> None:
        """Let the tensors live in a vector from now on, where their types allow it."""
        for tensor, view in zip(self.tensors, self.views(vector), strict=True):
            view.copy_(tensor.detach())
            if tensor.dtype == vector.dtype and tensor.device == vector.device:
                tensor.data = view

    def gather(self, vector: Tensor) -> None:
        """Write into a vector what the tensors are, where they do not live there."""
        for tensor, view in zip(self.tensors, self.views(vector), strict=True):
            if tensor.data_ptr() != view.data_ptr():
                view.copy_(tensor.detach())

    def scatter(self, vector: Tensor) -> None:
        """Set the tensors to what is in a vector, where they do not live there."""
        for tensor, view in zip(self.tensors, self.views(vector), strict=True):
            if tensor.data_ptr() != view.data_ptr():
                tensor.detach().copy_(view)


class Flat:
    """The vectors of a model.

    Args:
        model: Whose parameters and buffers.

    Attributes:
        trainable: Parameters that have a gradient.
        rest: Everything else that is published, up to the running statistics.
        running: Running statistics, which workers send back.
        counted: How many batches those are of.
        dtype: Of the vectors: float64 if any tensor is, else float32.
        size: Numbers in the vector that is published.

    Example:
        >>> flat = Flat(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        >>> flat.trainable.size, flat.running.size, flat.size
        (12, 4, 17)
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = list(model.parameters())
        trainable = [p for p in parameters if p.requires_grad]
        for name, parameter in model.named_parameters():
            _check(f"the parameter {name}", parameter)
        if not trainable:
            problem = "has no parameter with requires_grad"
            raise InvalidScenario("the model", problem, "one to train")
        running, counted = _statistics(model)
        taken = {id(tensor) for tensor in running}
        buffers = [
            buffer
            for buffer in model.buffers()
            if buffer.is_floating_point() and id(buffer) not in taken
        ]
        frozen = [p for p in parameters if not p.requires_grad]
        self.trainable = Span(trainable, 0)
        self.rest = Span([*frozen, *buffers], self.trainable.end)
        self.running = Span(running, self.rest.end)
        self.counted = Span(counted, self.running.end)
        self.size = self.counted.end
        kinds = {tensor.dtype for tensor in (*parameters, *buffers, *running)}
        self.dtype = torch.float64 if torch.float64 in kinds else torch.float32

    @property
    def spans(self) -> tuple[Span, ...]:
        """All of them, in order."""
        return self.trainable, self.rest, self.running, self.counted

    @property
    def is_plain(self) -> bool:
        """Whether every gradient is of the vectors' own type, and on the CPU."""
        return all(
            p.dtype == self.dtype and p.device.type == "cpu"
            for p in self.trainable.tensors
        )

    def vector(self) -> Tensor:
        """Return a vector in which the model lives from now on."""
        vector = torch.empty(self.size, dtype=self.dtype)
        for span in self.spans:
            span.move(vector)
        return vector


def _check(name: str, parameter: Tensor) -> None:
    if isinstance(parameter, nn.UninitializedParameter):
        advice = "a forward pass in the job, after which it has a shape"
        raise InvalidScenario(name, "is lazy: it has no shape yet", advice)
    if parameter.dtype not in _WIDE:
        advice = "real parameters of 16, 32 or 64 bits"
        raise InvalidScenario(name, f"is of type {parameter.dtype}", advice)


def _statistics(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Return the running statistics of a model, and the counts of their batches."""
    running: dict[int, Tensor] = {}
    counted: dict[int, Tensor] = {}
    for module in model.modules():
        if isinstance(module, _NORMS):
            for name, tensor in _buffers(module):
                found = counted if name == "num_batches_tracked" else running
                found[id(tensor)] = tensor
    return list(running.values()), list(counted.values())


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        tensor = getattr(module, name, None)
        if tensor is not None:
            yield name, tensor


def refuse_sparse(model: nn.Module) -> None:
    """Raise if a layer of a model makes sparse gradients."""
    for name, module in model.named_modules():
        if getattr(module, "sparse", False) is True:
            problem = f"({type(module).__name__}) makes sparse gradients"
            advice = "sparse=False; messages are dense"
            raise InvalidScenario(f"the layer {name}", problem, advice)
