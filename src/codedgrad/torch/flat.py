"""A model as vectors: which of its tensors lies where.

```text
parameters   trainable | frozen | other floating-point buffers | running statistics |
             batches that were counted
gradient     trainable
scalars      sum of losses, count, samples, metrics (sum, count) | running statistics
```

One vector is published a step; one comes back. Tied parameters are in it once. Numbers
of a narrower type go into a wider one, and back, without a change of a bit. Running
statistics are those of layers in training mode; of others they are buffers like any.
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
        frozen: Parameters that have none.
        buffers: Floating-point ones that are not running statistics.
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
        _check_memory(model)
        for name, buffer in model.named_buffers():
            _check_shape(f"the buffer {name}", buffer)
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
        self.frozen = Span(frozen, self.trainable.end)
        self.buffers = Span(buffers, self.frozen.end)
        self.running = Span(running, self.buffers.end)
        self.counted = Span(counted, self.running.end)
        self.size = self.counted.end
        kinds = {tensor.dtype for tensor in (*parameters, *buffers, *running)}
        self.dtype = torch.float64 if torch.float64 in kinds else torch.float32
        self._homes = [
            (module._buffers, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
        ]

    @property
    def spans(self) -> tuple[Span, ...]:
        """All of them, in order."""
        return self.trainable, self.frozen, self.buffers, self.running, self.counted

    def put_back(self) -> None:
        """Give modules the buffers they had; some put others in their place."""
        for buffers, name, buffer in self._homes:
            buffers[name] = buffer

    def vector(self) -> Tensor:
        """Return a vector in which the model lives from now on."""
        vector = torch.empty(self.size, dtype=self.dtype)
        for span in self.spans:
            span.move(vector)
        return vector


def _check(name: str, parameter: Tensor) -> None:
    _check_shape(name, parameter)
    if parameter.dtype not in _WIDE:
        advice = "real parameters of 16, 32 or 64 bits"
        raise InvalidScenario(name, f"is of type {parameter.dtype}", advice)


def _check_shape(name: str, tensor: Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        advice = "a forward pass in the job, after which it has a shape"
        raise InvalidScenario(name, "is lazy: it has no shape yet", advice)


def _check_memory(model: nn.Module) -> None:
    """Refuse two parameters in one memory: they would be separate from now on."""
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        before = names.setdefault(parameter.data_ptr(), name)
        if before != name and parameter.numel():
            problem = f"shares the memory of {before}, and is not the same parameter"
            advice = "one nn.Parameter in both places"
            raise InvalidScenario(f"the parameter {name}", problem, advice)


def _statistics(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Return the running statistics of a model, and the counts of their batches."""
    running: dict[int, Tensor] = {}
    counted: dict[int, Tensor] = {}
    for module in model.modules():
        if isinstance(module, _NORMS) and module.training:
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
            where = f"the layer {name or 'that is the model'}"
            problem = f"({type(module).__name__}) makes sparse gradients"
            raise InvalidScenario(where, problem, "sparse=False; messages are dense")
