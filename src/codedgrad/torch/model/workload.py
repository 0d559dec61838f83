"""The gradient of a part, by backward, into the row where it is summed up.

As soon as backward has the gradient of a parameter it is multiplied by the coefficient
and added to the row, and let go: there are never two gradients of the whole model. The
coefficient comes last, in the message's own precision. In the loss it would be rounded
to whatever type backward goes through (bfloat16 parameters, autocast), and hooks of the
user's that are not linear would see it.
"""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from codedgrad.errors import InvalidJob
from codedgrad.jobs import Fingerprint, VectorLayout
from codedgrad.torch.data import Batches, Parts
from codedgrad.torch.job import Job
from codedgrad.torch.losses import Loss, objective
from codedgrad.torch.model.determinism import one_thread, quietly, seed_everything
from codedgrad.torch.model.flat import Flat
from codedgrad.torch.sample_digest import digest

SCALARS = 3  # sum of losses, count, samples; see `flat` for what follows
_KEPT = 64  # rows whose views are kept
_LISTED = 100  # samples of a part that a message names
_CHECKED = 8  # samples by which workers compare their data
_NUMBERS = 1024  # of every tensor, by which initial parameters are compared
_MAKER = "a function that returns a Job, such as `def job(): return Job(...)`"
_ADVICE = (
    "let every worker see the same files in the same order (sort directory listings), "
    "and seed what the job draws; or give the Job verify_data=False, if samples are "
    "meant to differ, or differ in their last digits because hosts do"
)

in_training: set[nn.Module] = set()
"""Models that a root of this process is training."""


def workload(make: Callable[[], Job], parts: int, seed: int) -> Workload:
    """Make a job and the work that it is; runs at the root and in every worker.

    What the job draws is the same everywhere: whatever it makes up, data too. A model
    that the root of this process has already is left to it: a copy is worked with.
    """
    job = make_job(make, seed)
    if job.model in in_training:
        job = replace(job, model=copy.deepcopy(job.model))
    return Workload(job, parts, seed)


def make_job(make: Callable[[], Job], seed: int) -> Job:
    """Make a job with the generators seeded as they are everywhere.

    Raises:
        InvalidJob: If it is not made by a function without arguments.
    """
    _check_maker(make)
    with quietly():
        seed_everything(seed)
        job: object = make()
    if not isinstance(job, Job):
        raise InvalidJob("the job", f"made {type(job).__name__}", _MAKER)
    return job


def _check_maker(make: object) -> None:
    # A module is callable, but with a batch, and what it returns is never a Job.
    if isinstance(make, Job | nn.Module) or not callable(make):
        problem = f"is {type(make).__name__}, and every worker must make its own"
        raise InvalidJob("the job", problem, _MAKER)
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # some callables of C code have none
        return
    try:
        signature.bind()
    except TypeError as error:
        problem = f"is called without arguments: {error}"
        raise InvalidJob("the job", problem, _MAKER) from None


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
        self.job = job
        job.model.to(job.device)
        self.metrics = tuple(job.metrics)
        functions = job.metrics if isinstance(job.metrics, Mapping) else None
        self._objective = objective(job.loss, functions)
        self._batches = Batches(job.data, job.collate)
        self.parts = Parts(
            len(self._batches),
            parts,
            job.batch_size,
            seed,
            job.shuffle,
            job.least_samples,
            preferred=2 if _normalises(job.model) else 1,
        )
        self.flat = Flat(job.model, job.buffers)
        parameters = self.flat.trainable.tensors
        self._used = np.zeros(len(parameters))
        types = {*(parameter.dtype for parameter in parameters), job.autocast}
        self._is_half = torch.float16 in types
        named = SCALARS + 2 * len(self.metrics)
        self.layout = VectorLayout(
            parameters=len(self.flat.vector),
            gradient=self.flat.trainable.size,
            scalars=named + len(parameters) + self.flat.state.carried,
            samples=2,
            dtype=_name(self.flat.dtype),
            parameters_dtype=_name(self.flat.vector.dtype),
        )
        self._seed = seed
        self._initial = digest([_thinned(p) for p in job.model.parameters()])
        self._loaded: tuple[int, int] | None = None
        self._rows: dict[int, list[Tensor]] = {}
        self._encoded: tuple[float, list[Tensor], bool] | None = None
        self._is_hooked = False  # nor is a model that nothing is computed with

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
        indices = self.parts.indices(part, step)
        if not len(indices):
            if not add:
                out[:] = 0
            return
        # only at the root does anybody else draw numbers
        with quietly() if in_training else one_thread(), self._own_gradients():
            try:
                self._compute(parameters, part, step, coefficient, out, add)
            except BaseException:
                self._loaded = None  # the part has left the model half changed
                self.flat.forget()
                raise

    def describe(self, part: int, step: int) -> str:
        """Return the samples of a part at a step, in words."""
        numbers = self.parts.indices(part, step).tolist()
        if not numbers:
            return "no samples"
        if len(numbers) == 1:
            return f"sample {numbers[0]}"
        more = len(numbers) - _LISTED
        listed = ", ".join(map(str, numbers[:_LISTED]))
        return f"samples {listed}" + (f" and {more} more" if more > 0 else "")

    def fingerprint(self) -> Fingerprint:
        """Return what should be the same in every worker: data, model, versions."""
        model = self.job.model
        named = [*model.named_parameters(), *model.named_buffers()]
        shapes = [(name, str(x.dtype), tuple(x.shape)) for name, x in named]
        numbers = sum(x.numel() for _, x in named)
        made = f"{len(named)} tensors of {numbers} numbers (digest {digest(shapes)})"
        return Fingerprint(
            required={
                "number of samples": str(len(self._batches)),
                "model": made,
                **self._sampled(),
            },
            noted={
                "digest of the initial parameters, of which the root's are used,": (
                    self._initial
                ),
                "version of torch": str(torch.__version__),
            },
            advice=_ADVICE,
        )

    def digest_of_data(self) -> str:
        """Return a digest of a few samples; empty if they are not to be looked at."""
        found = self._sampled()
        return digest(found) if found else ""

    def _sampled(self) -> dict[str, str]:
        """Return digests of a few samples, by name."""
        found: dict[str, str] = {}
        if not self.job.verify_data:
            return found
        with quietly():
            for number in self.parts.checked(_CHECKED):
                seed_everything(self._seed, number)  # of whatever the data set draws
                # a root may have no data; a worker that has none fails at its part
                with suppress(Exception):
                    sample = self._batches.sample(number)
                    found[f"sample {number}"] = f"{digest(sample)} (digest)"
        return found

    def _compute(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool,
    ) -> None:
        is_loaded = self._load(parameters, step)
        seed_everything(self._seed, step, part)
        begun = time.perf_counter()
        loss = self._forward(self.parts.indices(part, step), step)
        self._backward(loss, coefficient, torch.from_numpy(out), add)
        self.flat.check(time.perf_counter() - begun, is_loaded)
        scalars = self._scalars(loss, part == self._first_part(step)) * coefficient
        tail = self.layout.gradient
        out[tail:] = out[tail:] + scalars if add else scalars
        self.flat.put_back()

    def _load(self, parameters: NDArray[Any], step: int) -> bool:
        """Let the model be what was published, once a step; return whether it was."""
        key = step, parameters.__array_interface__["data"][0]
        if key == self._loaded:
            return False
        self.flat.load(parameters)
        torch.clear_autocast_cache()
        self._loaded = key
        return True

    def _first_part(self, step: int) -> int:
        """Return the first part of a step that has samples."""
        parts = range(self.parts.parts)
        return next(part for part in parts if len(self.parts.indices(part, step)))

    def _forward(self, indices: NDArray[np.int64], step: int) -> Loss:
        job = self.job
        epoch = step // self.parts.steps_per_epoch
        self._batches.set_epoch(epoch)
        given = {"step": step, "epoch": epoch, "knobs": self.flat.notes.knobs}
        batch = to_device(self._batches(indices), job.device)
        narrow = torch.autocast(
            torch.device(job.device).type,
            dtype=job.autocast,
            enabled=job.autocast is not None,
        )
        with narrow:
            loss = self._objective(job.model, batch, len(indices), given)
        if set(loss.metrics) != set(self.metrics):
            problem = f"returned the metrics {sorted(loss.metrics)}"
            advice = f"metrics={sorted(loss.metrics)} in the Job"
            raise InvalidJob("the loss", problem, advice)
        return loss

    @contextmanager
    def _own_gradients(self) -> Iterator[None]:
        """Set what `p.grad` holds aside."""
        parameters = self.flat.trainable.tensors
        held = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(parameters, held, strict=True):
                parameter.grad = gradient

    def _backward(self, loss: Loss, coefficient: float, out: Tensor, add: bool) -> None:
        if any(p.grad is not None for p in self.flat.trainable.tensors):
            problem = "has put gradients into parameters"
            advice = "to leave backward() to codedgrad; torch.autograd.grad() is fine"
            raise InvalidJob("the loss", problem, advice)
        self._hook()
        self._used[:] = 0
        rows = self._views(out)
        scale = self._scale(loss)
        self._encoded = coefficient * scale, rows, add
        try:
            begin = None if scale == 1.0 else torch.full_like(loss.total, 1.0 / scale)
            loss.total.backward(begin)  # type: ignore[no-untyped-call]  # torch's
        finally:
            self._encoded = None
        for row, used in zip(rows, self._used.tolist(), strict=True):
            if not add and not used:
                row.zero_()

    def _scale(self, loss: Loss) -> float:
        """Return what backward divides a part's sum of losses by; 1 but for float16.

        The gradient of a sum over many samples overflows in float16 where that of the
        mean, which plain PyTorch differentiates, does not. So the sum is divided by
        about its count, and the gradient multiplied by it again in the message's type.
        """
        if not self._is_half or not 1.0 < (count := float(loss.count)) < math.inf:
            return 1.0
        # a power of two, so that no digit is rounded; up to 2^14, for the reciprocal of
        # a larger one is not a normal number in float16
        return 2.0 ** min(14, math.ceil(math.log2(count)))

    def _hook(self) -> None:
        if self._is_hooked:
            return
        self._is_hooked = True
        for number, parameter in enumerate(self.flat.trainable.tensors):
            merge = partial(self._merge, number)
            parameter.register_post_accumulate_grad_hook(merge)  # type: ignore[no-untyped-call]  # torch's

    def _merge(self, number: int, parameter: Tensor) -> None:
        """Add the gradient of a parameter to the row; backward calls it.

        The gradient itself is left as it is: autograd may still need its memory.
        """
        if self._encoded is None:
            return  # somebody else's backward
        if parameter.grad is None:
            problem = "has taken the gradient of a parameter away"
            raise InvalidJob("a hook", problem, "to leave p.grad where it is")
        coefficient, rows, add = self._encoded
        row = rows[number]
        gradient = parameter.grad.to(row.device, row.dtype)
        if add or self._used[number]:  # a checkpointed layer may come several times
            row += gradient if coefficient == 1.0 else gradient * coefficient
        else:
            torch.mul(gradient, coefficient, out=row)
        self._used[number] = 1
        parameter.grad = None

    def _views(self, out: Tensor) -> list[Tensor]:
        """Return the place of every gradient in a row."""
        views = self._rows.get(out.data_ptr())
        if views is None:
            if len(self._rows) >= _KEPT:
                self._rows.clear()
            views = self._rows[out.data_ptr()] = self.flat.trainable.views(out)
        return views

    def _scalars(self, loss: Loss, is_first: bool) -> NDArray[Any]:
        """Return what is behind the gradient; see `flat`."""
        named = [number for name in self.metrics for number in loss.metrics[name]]
        numbers = [loss.total.detach(), loss.count, loss.samples, *named]
        head = [float(number) for number in numbers]
        changes = self.flat.state.changes(loss.samples, is_first).numpy()
        return np.concatenate([head, self._used, changes], dtype=self.layout.dtype)


def _thinned(tensor: Tensor) -> Tensor:
    """Return some numbers of a tensor, evenly spaced."""
    return tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _NUMBERS)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _normalises(model: nn.Module) -> bool:
    """Whether a layer may take the variance over a batch, which one sample has not.

    Whatever mode it is in: that changes, and samples must not change with it.
    """
    norms = nn.modules.batchnorm._BatchNorm
    return any(isinstance(module, norms) for module in model.modules())


def to_device(batch: Any, device: str) -> Any:
    """Move the tensors of a batch to a device; containers keep their types."""
    if device == "cpu":
        return batch
    if callable(getattr(batch, "to", None)):  # a tensor, a PackedSequence
        return batch.to(device)
    if isinstance(batch, Mapping):
        moved = {key: to_device(value, device) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            return moved
        mapping = copy.copy(batch)  # not made anew: a defaultdict is more than items
        mapping.update(moved)
        return mapping
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a namedtuple
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(to_device(value, device) for value in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        like = copy.copy(batch)  # not made anew: __init__ may take something else
        for field in fields(batch):
            value = to_device(getattr(batch, field.name), device)
            object.__setattr__(like, field.name, value)  # it may be frozen
        return like
    return batch
