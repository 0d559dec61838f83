"""The gradient that a plain script computes: PyTorch in one process, nothing else.

`PlainLoop` has a model of its own and uses neither the vectors nor the hooks by which
workers compute (`torch/model/`), so that it can be compared with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidOptions
from codedgrad.torch.data import Batches
from codedgrad.torch.job import Job
from codedgrad.torch.loss_divisors import known, what
from codedgrad.torch.losses import Loss, objective
from codedgrad.torch.model.determinism import quietly, seed_everything
from codedgrad.torch.model.workload import to_device

ScriptLoss: TypeAlias = Callable[[nn.Module, Any], Tensor]
"""The loss of a script: of (model, batch), the number that it calls backward() on."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainGradient:
    """A loss and its gradient.

    Attributes:
        loss: A mean over the step.
        gradients: By name of a parameter, float64; zeros where `p.grad` is None.
    """

    loss: float
    gradients: dict[str, Tensor]


class PlainLoop:
    """A job's model in this process, without workers.

    Args:
        job: What to train; its model is copied.
        samples: Returns the samples of a step, part by part.
        steps_per_epoch: For losses and data sets that ask for the epoch.
        seed: Of the run.
        knobs: For a loss that asks for them.

    Attributes:
        model: The copy.
    """

    def __init__(
        self,
        job: Job,
        samples: Callable[[int], list[list[int]]],
        steps_per_epoch: int,
        seed: int,
        knobs: Mapping[str, Any],
    ) -> None:
        self.model = copy.deepcopy(job.model).to(job.device)
        self._job = job
        self._samples = samples
        self._per_epoch = steps_per_epoch
        self._seed = seed
        self._knobs = knobs
        functions = job.metrics if isinstance(job.metrics, Mapping) else None
        self._objective = objective(job.loss, functions)
        self._batches = Batches(job.data, job.collate)

    def script(self, step: int, loss: ScriptLoss | None, draw: int = 0) -> Tensor:
        """Set `p.grad` by one backward pass over the whole batch; return the loss.

        Args:
            step: Whose samples.
            loss: Of the script; None: the job's, over the whole batch.
            draw: Another number for other random numbers.
        """
        self.model.zero_grad(set_to_none=True)
        samples = [number for part in self._samples(step) for number in part]
        with quietly():
            seed_everything(self._seed, step, len(samples), draw)
            value = self._whole(step, samples, loss)
            value.backward()  # type: ignore[no-untyped-call]  # torch's
        return value.detach()

    def whole(self, step: int, loss: ScriptLoss | None, draw: int = 0) -> PlainGradient:
        """Return the gradient of the whole batch at once; see `script`."""
        value = self.script(step, loss, draw)
        return PlainGradient(float(value), gradients_of(self.model))

    def by_part(self, step: int) -> PlainGradient:
        """Return the gradient of the parts, one after the other, as micro-batches.

        Every part begins with the same parameters and buffers, and with the random
        numbers that a worker begins it with.
        """
        sums = {name: x.zero_() for name, x in gradients_of(self.model).items()}
        begun = copy.deepcopy(self.model)
        total = count = 0.0
        for part, samples in enumerate(self._samples(step)):
            if not samples:
                continue
            take_over(self.model, begun)
            self.model.zero_grad(set_to_none=True)
            with quietly():
                seed_everything(self._seed, step, part)
                found = self._loss(step, samples)
                each = float(found.count) or 1.0
                # the mean, for the gradient of a sum may overflow in float16
                (found.total / each).backward()  # type: ignore[no-untyped-call]
            for name, gradient in gradients_of(self.model).items():
                sums[name] += gradient * each
            total += float(found.total.detach())
            count += float(found.count)
        take_over(self.model, begun)
        count = count or 1.0
        return PlainGradient(total / count, {n: x / count for n, x in sums.items()})

    def sums(self, step: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return (sum, count) of the job's loss: of the whole batch, and of its parts.

        Of the parts it is what those of all parts add up to.
        """
        parts = [samples for samples in self._samples(step) if samples]
        everything = [number for samples in parts for number in samples]
        with quietly(), torch.no_grad():
            found = [self._loss(step, samples) for samples in (everything, *parts)]
        whole, *others = [(float(each.total), float(each.count)) for each in found]
        totals, counts = zip(*others, strict=True)
        return whole, (sum(totals), sum(counts))

    def _whole(
        self, step: int, samples: Sequence[int], loss: ScriptLoss | None
    ) -> Tensor:
        if loss is None and known(self._job.loss) is not None:
            loss = self._of_torch
        if loss is None:
            found = self._loss(step, samples)
            return found.total / (float(found.count) or 1.0)
        batch = self._batch(step, samples)
        with self._autocast():
            value: object = loss(self.model, batch)
        if not isinstance(value, Tensor) or value.numel() != 1:
            advice = "a function of (model, batch) that returns the mean loss, a tensor"
            raise InvalidOptions("loss", f"returned {what(value)}", advice)
        return value.reshape(())

    def _of_torch(self, model: nn.Module, batch: Any) -> Tensor:
        """Call the loss as a script does, not as a worker does."""
        *inputs, target = batch
        value: Tensor = self._job.loss(model(*inputs), target)
        return value

    def _loss(self, step: int, samples: Sequence[int]) -> Loss:
        epoch = step // self._per_epoch
        given = {"step": step, "epoch": epoch, "knobs": self._knobs}
        batch = self._batch(step, samples)
        with self._autocast():
            return self._objective(self.model, batch, len(samples), given)

    def _batch(self, step: int, samples: Sequence[int]) -> Any:
        self._batches.set_epoch(step // self._per_epoch)
        return to_device(self._batches(samples), self._job.device)

    def _autocast(self) -> torch.autocast:
        dtype = self._job.autocast
        kind = torch.device(self._job.device).type
        return torch.autocast(kind, dtype=dtype, enabled=dtype is not None)


def take_over(model: nn.Module, other: nn.Module) -> None:
    """Let a model have the parameters, buffers and modes of another one like it."""
    with torch.no_grad():
        theirs = dict(_tensors(other))
        for name, tensor in _tensors(model):
            if tensor.shape == theirs[name].shape:  # a cache may have grown
                tensor.copy_(theirs[name])
    for ours, another in zip(model.modules(), other.modules(), strict=True):
        ours.training = another.training


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all gradients by name, in float64; zeros where there is none."""
    return {
        name: torch.zeros(p.shape, dtype=torch.float64)
        if p.grad is None
        else p.grad.detach().to("cpu", torch.float64, copy=True)
        for name, p in model.named_parameters()
        if p.requires_grad
    }


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]
