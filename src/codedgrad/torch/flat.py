"""A model as vectors: which of its tensors lies where.

```text
parameters   trainable | frozen | state: the bytes of all buffers and of training modes
gradient     trainable
scalars      sum of losses, count, samples | metrics: (sum, count) | parameters used |
             changes of buffers
```

One vector is published a step, one comes back. Tied parameters are in it once. Numbers
of a narrower type go into a wider one, and back, without a change of a bit; buffers are
of any type, and go as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidScenario
from codedgrad.torch.state import State

__all__ = ["Flat", "Span", "refuse"]

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
        self._places: list[Tensor] = []

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
        self._places = self.views(vector)
        for tensor, place in self._pairs():
            place.copy_(tensor.detach())
            if tensor.dtype == place.dtype and tensor.device == place.device:
                tensor.data = place

    def gather(self) -> None:
        """Write into the vector what the tensors are, where they do not live there."""
        for tensor, place in self._pairs():
            if tensor.data_ptr() != place.data_ptr():
                place.copy_(tensor.detach())

    def scatter(self) -> None:
        """Set the tensors to what is in the vector, where they do not live there."""
        for tensor, place in self._pairs():
            if tensor.data_ptr() != place.data_ptr():
                tensor.detach().copy_(place)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.tensors, self._places, strict=True)


class Flat:
    """The vectors of a model, which lives in one of them from now on.

    Args:
        model: Whose parameters and buffers.

    Attributes:
        trainable: Parameters that have a gradient.
        frozen: Parameters that have none.
        state: Buffers and training modes.
        vector: What is published, (numbers,): float64 if any parameter is, else
            float32.
        dtype: Of gradients and messages, likewise, by the trainable ones.

    Example:
        >>> flat = Flat(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        >>> flat.trainable.size, flat.state.carried  # mean and variance, and a count
        (12, 5)
    """

    def __init__(self, model: nn.Module) -> None:
        refuse(model)
        parameters = list(model.parameters())
        trainable = [p for p in parameters if p.requires_grad]
        self.trainable = Span(trainable, 0)
        self.frozen = Span(
            [p for p in parameters if not p.requires_grad], self.trainable.end
        )
        self.dtype = _wide(trainable)
        wide = _wide(parameters)
        self.state = State(model, self.frozen.end * wide.itemsize, self.trainable.size)
        size = -(-self.state.end // wide.itemsize)
        self.vector = torch.zeros(size, dtype=wide)
        self.trainable.move(self.vector)
        self.frozen.move(self.vector)
        self.state.settle(self.vector)

    def gather(self) -> None:
        """Write into the vector what the model is now."""
        self.trainable.gather()
        self.frozen.gather()
        self.state.gather()

    def scatter(self) -> None:
        """Let the model be what the vector says."""
        self.trainable.scatter()
        self.frozen.scatter()
        self.state.scatter()

    @property
    def versions(self) -> list[int]:
        """Count how often each parameter was written to."""
        spans = (self.trainable, self.frozen)
        return [tensor._version for span in spans for tensor in span.tensors]


def _wide(tensors: Sequence[Tensor]) -> torch.dtype:
    has_double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if has_double else torch.float32


def refuse(model: nn.Module) -> None:
    """Raise if there is something in a model that cannot be published or sent."""
    if not any(p.requires_grad for p in model.parameters()):
        problem = "has no parameter with requires_grad"
        raise InvalidScenario("the model", problem, "one to train")
    for name, parameter in model.named_parameters():
        _refuse_lazy(f"the parameter {name}", parameter)
        if parameter.dtype not in _WIDE:
            problem = f"is of type {parameter.dtype}"
            advice = "real parameters of 16, 32 or 64 bits"
            raise InvalidScenario(f"the parameter {name}", problem, advice)
    for name, buffer in model.named_buffers():
        _refuse_lazy(f"the buffer {name}", buffer)
        if buffer.requires_grad:
            advice = "an nn.Parameter, if it is to be trained"
            raise InvalidScenario(f"the buffer {name}", "has requires_grad", advice)
    for name, module in model.named_modules():
        _refuse_sparse(f"the layer {name or 'that is the model'}", module)
    _refuse_overlaps(model)


def _refuse_lazy(name: str, tensor: Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        advice = "a forward pass in the job, after which it has a shape"
        raise InvalidScenario(name, "is lazy: it has no shape yet", advice)


def _refuse_sparse(name: str, module: nn.Module) -> None:
    if getattr(module, "sparse", False) is True:
        problem = f"({type(module).__name__}) makes sparse gradients"
        raise InvalidScenario(name, problem, "sparse=False; messages are dense")


def _refuse_overlaps(model: nn.Module) -> None:
    """Refuse tensors in one memory: parameters would be separate from now on."""
    found = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.numel():
            reach = sum(
                (n - 1) * step
                for n, step in zip(tensor.shape, tensor.stride(), strict=True)
            )
            first = tensor.data_ptr()
            last = first + (reach + 1) * tensor.itemsize
            found.append((tensor.device, first, last, name, tensor))
    found.sort(key=lambda place: (str(place[0]), place[1], place[2]))
    for before, after in pairwise(found):
        same = before[0] == after[0] and after[1] < before[2]
        if same and any(isinstance(p[4], nn.Parameter) for p in (before, after)):
            problem = f"shares the memory of {before[3]}, and is not the same tensor"
            advice = "one nn.Parameter in both places"
            raise InvalidScenario(f"the tensor {after[3]}", problem, advice)
