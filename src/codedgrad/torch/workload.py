"""The gradient of a part, by backward, into the row where it is summed up.

As soon as backward has the gradient of a parameter it is multiplied by the coefficient
and added to the row, and let go: there are never two gradients of the whole model. The
coefficient comes last, in the message's own precision. In the loss it would be rounded
to whatever type backward goes through (bfloat16 parameters, autocast), and hooks of the
user's that are not linear would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
    """Make a job and the work that it is; runs at the root and in every worker.

    What the job draws is the same everywhere: whatever it makes up, data too.
    """
    with quietly():
        seed_everything(seed)
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
        self._encoded: tuple[float, list[Tensor]] | None = None
        self._is_hooked = False  # nor is a model that nothing is computed with

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
        with quietly(), self._own_gradients():
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
        """Put all buffers back: every part starts from the root's."""
        flat = self.flat
        flat.put_back()
        self._array[flat.buffers.start :] = parameters[flat.buffers.start :]
        for span in (flat.buffers, flat.running, flat.counted):
            span.scatter(self._vector)

    def _forward(self, indices: NDArray[np.int64]) -> Loss:
        job = self.job
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

    @contextmanager
    def _own_gradients(self) -> Iterator[None]:
        """Set what `p.grad` holds aside: the model may be the one the root trains."""
        parameters = self.flat.trainable.tensors
        held = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(parameters, held, strict=True):
                parameter.grad = gradient

    def _backward(self, total: Tensor, coefficient: float, out: Tensor) -> None:
        if any(p.grad is not None for p in self.flat.trainable.tensors):
            problem = "has put gradients into parameters"
            advice = "to leave backward() to codedgrad; torch.autograd.grad() is fine"
            raise InvalidScenario("the loss", problem, advice)
        self._hook()
        self._encoded = coefficient, self._views(out)
        try:
            total.backward()  # type: ignore[no-untyped-call]
        finally:
            self._encoded = None

    def _hook(self) -> None:
        if self._is_hooked:
            return
        self._is_hooked = True
        for number, parameter in enumerate(self.flat.trainable.tensors):
            merge = partial(self._merge, number)
            parameter.register_post_accumulate_grad_hook(merge)  # type: ignore[no-untyped-call]

    def _merge(self, number: int, parameter: Tensor) -> None:
        """Add the gradient of a parameter to the row; backward calls it."""
        if self._encoded is None:
            return  # somebody else's backward
        if parameter.grad is None:
            problem = "has taken the gradient of a parameter away"
            raise InvalidScenario("a hook", problem, "to leave p.grad where it is")
        coefficient, rows = self._encoded
        row = rows[number]
        gradient = parameter.grad.to(row.device, row.dtype)
        row += gradient if coefficient == 1.0 else gradient.mul_(coefficient)
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
