"""What a PyTorch user gives: a model, a loss, data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from codedgrad.errors import InvalidJob


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What to train. It is made once at the root and once in every worker.

    Attributes:
        model: Its parameters at the start are the root's; what workers have made is
            overwritten in every step.
        loss: A loss of torch that takes a mean, such as `F.cross_entropy` or
            `nn.MSELoss()`, called with (output, target); or a function of (model,
            batch) that returns (sum, count) or (sum, count, metrics). It is called
            once for every part, with the samples of that part: one that compares
            samples sees no others, and a regulariser in the sum counts once a part.
            If it has parameters called `step`, `epoch` or `knobs`, it is given those.
        data: A map-style data set, or tensors of equal length.
        batch_size: Samples a step, over all parts; None: all of them.
        metrics: By name, functions of (output, target) that return a sum over samples,
            or (sum, count). For a loss of (model, batch): the names of its metrics.
        shuffle: True: within shards; "global": the whole set in every epoch, which
            every worker must then be able to read; False: as it is.
        collate: Makes a batch of samples, as for a `DataLoader`.
        autocast: Type for the forward pass, such as `torch.bfloat16`; None: as it is.
        buffers: By name of a buffer, or a pattern such as `"quantizer.*"`, what becomes
            of its changes in a forward pass: "mean", "sum" or "first"; see
            `codedgrad.torch.model.state`.
        device: Where workers compute. Only the CPU has been tried.
        least_samples: The fewest samples of a part that has any, for losses and layers
            in which the samples of a batch depend on each other; only in an epoch's
            last step, if that has fewer in all, there may be fewer. None: 1; 2 for a
            model with batch normalisation, which cannot do with one, if the batch is
            large enough.
        verify_data: Whether a few samples are compared when a worker joins, so that
            workers that read other files end the run. False for data whose samples are
            meant to differ from worker to worker; lengths are compared all the same.

    Example:
        >>> x = torch.randn(100, 3)
        >>> job = Job(nn.Linear(3, 1), nn.MSELoss(), (x, x.sum(1, keepdim=True)))
    """

    model: nn.Module
    loss: Callable[..., Any]
    data: Any
    batch_size: int | None = None
    metrics: Mapping[str, Callable[..., Any]] | Sequence[str] = ()
    shuffle: bool | str = True
    collate: Callable[[list[Any]], Any] | None = None
    autocast: torch.dtype | None = None
    buffers: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    least_samples: int | None = None
    verify_data: bool = True

    def __post_init__(self) -> None:
        model: object = self.model
        if not isinstance(model, nn.Module):
            problem = f"is {type(model).__name__}"
            raise InvalidJob("job: model", problem, "an nn.Module")
        if isinstance(self.model, nn.parallel.DistributedDataParallel):
            advice = "the model itself; codedgrad adds up the gradients"
            raise InvalidJob("job: model", "is wrapped in DDP", advice)
        loss: object = self.loss
        if not callable(loss):
            problem = f"is {type(loss).__name__}"
            raise InvalidJob("job: loss", problem, "a function or a loss module")
        if isinstance(loss, nn.Module) and any(
            p.requires_grad for p in loss.parameters()
        ):
            advice = "to make the loss a part of the model"
            raise InvalidJob("job: loss", "has parameters of its own", advice)
