"""The gradient of a part, by backward, straight into the row where it is summed up.

`coefficient * loss` is what is differentiated, so the gradient comes out encoded, and
the parameters' gradients are views of the row, so it need not be stored or copied.
Where numbers are narrower than a message (bfloat16 parameters, autocast) that would
round the coefficients too: there the plain gradient is multiplied afterwards, in the
message's own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codedgrad.errors import InvalidScenario
from codedgrad.jobs import Layout
from codedgrad.torch.data import Batches, Parts
from codedgrad.torch.flat import Flat, refuse_sparse
from codedgrad.torch.job import Job
from codedgrad.torch.losses import Loss, objective
from codedgrad.torch.quiet import quietly, seed_everything

__all__ = ["SCALARS", "Workload", "workload"]

SCALARS = 3  # sum of losses, count, samples; metrics and statistics follow
_KEPT = 64  # rows whose views are kept


def workload(make: Callable[[], Job], parts: int, seed: int) -> Workload:
    """Make a job and the work that it is; runs in every worker."""
    job: object = make()
    if not isinstance(job, Job):
        problem = f"made {type(job).__name__}"
        raise InvalidScenario("the job", problem, "a function that returns a Job")
    return Workload(job, parts, seed)


class Workload:
    """A job, cut into parts; what an engine's workers compute.

    Args:
        job: What to train.
        parts: How many parts a step has.
        seed: Of shards, permutations, and whatever the model draws.

    Attributes:
        layout: How long its vectors are.
        flat: Which tensor lies where in them.
        parts: Which samples a part has.
        metrics: Names of the metrics, in the order of their scalars.
    """

    def __init__(self, job: Job, parts: int, seed: int) -> None:
        refuse_sparse(job.model)
        self.job = job
        job.model.to(job.device)
        self.metrics = tuple(job.metrics)
        functions = job.metrics if isinstance(job.metrics, Mapping) else None
        self._objective = objective(job.loss, functions)
        self._batches = Batches(job.data, job.collate)
        self.parts = Parts(len(self._batches), parts, job.batch_size, seed, job.shuffle)
        self.flat = Flat(job.model)
        self._vector = self.flat.vector()
        self._array = self._vector.numpy()
        dtype = str(self.flat.dtype).removeprefix("torch.")
        self.layout = Layout(
            parameters=self.flat.size,
            gradient=self.flat.trainable.size,
            scalars=SCALARS + 2 * len(self.metrics) + self.flat.running.size,
            dtype=dtype,
            parameters_dtype=dtype,
        )
        self._seed = seed
        self._loaded: tuple[int, int] | None = None
        self._rows: dict[int, list[Tensor]] = {}
        self._is_narrow = False
        job.model.register_forward_pre_hook(self._look_for_autocast)

    @property
    def vector(self) -> Tensor:
        """The vector that the model lives in."""
        return self._vector

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        """Write coefficient x (gradient, losses, count, samples...) of a part."""
        if not add:
            out[:] = 0
        indices = self.parts.indices(part, step)
        if not len(indices):
            return
        with quietly():
            self._load(parameters, step)
            seed_everything(self._seed, step, part)
            loss = self._forward(indices)
            self._backward(loss.total, coefficient, torch.from_numpy(out))
        scalars = self._scalars(loss)
        out[self.layout.gradient :] += np.multiply(scalars, coefficient)
        self._restore(parameters)

    def _load(self, parameters: NDArray[Any], step: int) -> None:
        """Set the model to the parameters of a step, once a step."""
        key = step, parameters.__array_interface__["data"][0]
        if key != self._loaded:
            np.copyto(self._array, parameters)
            for span in self.flat.spans:
                span.scatter(self._vector)
            self._loaded = key

    def _restore(self, parameters: NDArray[Any]) -> None:
        """Put the running statistics back: every part starts from the root's."""
        start = self.flat.running.start
        self._array[start:] = parameters[start:]
        self.flat.running.scatter(self._vector)
        self.flat.counted.scatter(self._vector)

    def _forward(self, indices: NDArray[np.int64]) -> Loss:
        job = self.job
        self._is_narrow = job.autocast is not None
        batch = _to(self._batches(indices), job.device)
        kind = torch.device(job.device).type
        if job.autocast is None:
            loss = self._objective(job.model, batch, len(indices))
        else:
            with torch.autocast(kind, dtype=job.autocast):
                loss = self._objective(job.model, batch, len(indices))
        if set(loss.metrics) != set(self.metrics):
            problem = f"returned the metrics {sorted(loss.metrics)}"
            advice = f"metrics={sorted(loss.metrics)} in the Job"
            raise InvalidScenario("the loss", problem, advice)
        return loss

    def _look_for_autocast(self, *_: object) -> None:
        kind = torch.device(self.job.device).type
        self._is_narrow |= torch.is_autocast_enabled(kind)

    def _backward(self, total: Tensor, coefficient: float, out: Tensor) -> None:
        parameters, rows = self.flat.trainable.tensors, self._views(out)
        plain = self.flat.is_plain and not self._is_narrow
        if plain and total.dtype == self.flat.dtype:
            for parameter, row in zip(parameters, rows, strict=True):
                parameter.grad = row
            (coefficient * total).backward()  # type: ignore[no-untyped-call]
            for parameter, row in zip(parameters, rows, strict=True):
                _check_place(parameter, row)
                parameter.grad = None
            return
        total.backward()  # type: ignore[no-untyped-call]
        for parameter, row in zip(parameters, rows, strict=True):
            if parameter.grad is not None:
                gradient = parameter.grad.to(row.device, row.dtype)
                row.add_(gradient * coefficient)
                parameter.grad = None

    def _views(self, out: Tensor) -> list[Tensor]:
        """Return the place of every gradient in a row."""
        views = self._rows.get(out.data_ptr())
        if views is None:
            if len(self._rows) >= _KEPT:
                self._rows.clear()
            views = self._rows[out.data_ptr()] = self.flat.trainable.views(out)
        return views

    def _scalars(self, loss: Loss) -> NDArray[Any]:
        """Return what is behind the gradient: three sums, metrics, statistics."""
        named = [number for name in self.metrics for number in loss.metrics[name]]
        numbers = [loss.total.detach(), loss.count, loss.samples, *named]
        head = [float(number) for number in numbers]
        running = [t.detach().flatten().cpu() for t in self.flat.running.tensors]
        if not running:
            return np.array(head, dtype=self.layout.dtype)
        statistics = torch.cat(running).to(self.flat.dtype).numpy() * loss.samples
        return np.concatenate([head, statistics], dtype=self.layout.dtype)


def _check_place(parameter: Tensor, row: Tensor) -> None:
    if parameter.grad is None or parameter.grad.data_ptr() != row.data_ptr():
        problem = "put a gradient of a parameter elsewhere"
        advice = "a loss that leaves p.grad, zero_grad() and backward() alone"
        raise InvalidScenario("the loss, or a hook,", problem, advice)


def _to(batch: Any, device: str) -> Any:
    """Move the tensors of a batch to a device."""
    if device == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _to(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)(_to(value, device) for value in batch)
    return batch
