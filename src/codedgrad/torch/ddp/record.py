"""Recording how long each worker of a DistributedDataParallel run takes, alone.

Under an all-reduce everybody's step ends when the slowest is done, so the step times of
all workers look alike. What tells them apart lies between two moments of the same
worker, read from its own clock:

```text
over     the last all-reduce of the step before has come back
ready    the last of its own gradients waits to be reduced
```

From over to ready it optimizes, loads data, computes forward and backward; from ready
to over it waits. What DDP shares at the start of a forward (buffers, such as those of
BatchNorm) is waiting too, and taken out.

The rules: gradients are those of DDP without a hook, bit for bit; every worker gathers
after the same steps, with its last bucket, so collectives match; the file is whole, or
as it was.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from codedgrad.delays.arguments import whole
from codedgrad.errors import EngineFailed, InvalidDelays
from codedgrad.torch.ddp.stopwatch import StepStopwatch

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket
    from torch.distributed import ProcessGroup
    from torch.futures import Future

GROWTH = 100  # a long file is written again when it is 1/GROWTH longer


def record(
    ddp_model: DistributedDataParallel,
    path: str | os.PathLike[str],
    *,
    every: int = 20,
) -> Recording:
    """Record the seconds of every worker's own steps, while DDP trains as ever.

    All workers call it, after wrapping the model and before `backward`. A step is a
    backward that synchronises; what was accumulated under `no_sync()` counts to it.

    Args:
        ddp_model: A model on the CPU without a communication hook.
        path: A `.csv` file for `codedgrad.delays.read_matrix`, written by worker 0; one
            that is there is replaced when the first steps have been gathered.
        every: Gather, and write, after so many steps; the same for all workers.

    Raises:
        InvalidDelays: On all workers, if one of them cannot record.

    Example:
        >>> import tempfile
        >>> from codedgrad.delays import read_matrix
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = dist.HashStore()
        >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        >>> model = DistributedDataParallel(torch.nn.Linear(2, 1))
        >>> with record(model, Path(folder.name) / "times.csv") as recording:
        ...     model(torch.ones(3, 2)).sum().backward()
        >>> read_matrix(recording.path).workers
        ('worker0',)
        >>> dist.destroy_process_group()
        >>> folder.cleanup()
    """
    given: object = ddp_model
    if not isinstance(given, DistributedDataParallel):
        problem = f"the model is a {type(given).__name__}"
        raise InvalidDelays("record", problem, "a DistributedDataParallel model")
    _agree(ddp_model.process_group, every, lambda: _check(ddp_model, Path(path), every))
    return Recording(ddp_model, Path(path), every)


class Recording:
    """What `record` returns; close it on all workers, or use it in a `with`.

    Without that the steps since the last gathering are missing, `every` - 1 at most,
    or 1 % of a long recording. A `with` that an exception leaves gathers no more, for
    other workers may not come.

    Attributes:
        path: The file.
    """

    def __init__(self, ddp_model: DistributedDataParallel, path: Path, every: int):
        self.path = path
        self._every = every
        self._group = group = ddp_model.process_group
        self._watch = StepStopwatch()
        self._new: list[float] = []  # own seconds, not gathered yet
        self._steps = 0
        self._file = _File(path, group.size(), every) if group.rank() == 0 else None
        self._is_open = True
        self._hooks = [
            ddp_model.register_forward_pre_hook(_Hook(self._forward_called)),
            ddp_model.module.register_forward_pre_hook(
                _Hook(self._watch.forward_began), prepend=True
            ),
        ]
        ddp_model.register_forward_pre_hook(_refuse_uneven)  # for as long as the hook
        # DDP compares a hook's annotations with types: no strings, then rather none
        ddp_model.register_comm_hook(None, lambda state, bucket: self._reduce(bucket))

    @property
    def steps(self) -> int:
        """How many steps were recorded, those that are not in the file yet too."""
        return self._steps

    def close(self) -> None:
        """Gather and write the last steps; DDP trains on, unrecorded.

        Raises:
            InvalidDelays: On worker 0, if the file cannot be written.
        """
        if not self._is_open:
            return
        self._leave()
        if not dist.is_initialized():
            problem = "the process group ended before the recording was closed"
            raise EngineFailed(problem, "close() before destroy_process_group()")
        self._gather()
        if self._file is not None:
            self._file.write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._leave()

    def _leave(self) -> None:
        self._is_open = False
        for hook in self._hooks:
            hook.remove()

    def _forward_called(self) -> None:
        self._watch.forward_called(torch.is_grad_enabled())

    def _reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        if not self._is_open:
            return _average(self._group, bucket.buffer(), _nothing)
        first, last = bucket.index() == 0, bucket.is_last()
        seconds = self._watch.bucket_ready(first, last)
        future = _average(self._group, bucket.buffer(), self._watch.bucket_reduced)
        if seconds is not None:
            self._note(seconds)
        return future

    def _note(self, seconds: float) -> None:
        self._new.append(seconds)
        self._steps += 1
        if len(self._new) < self._every:
            return
        self._gather()
        if self._file is not None and self._file.is_due:
            self._file.try_to_write()
        self._watch.bucket_reduced()  # gathering and writing are nobody's own time

    def _gather(self) -> None:
        own = torch.full((self._every,), torch.nan, dtype=torch.float64, device="cpu")
        own[: len(self._new)] = torch.tensor(self._new, dtype=own.dtype, device="cpu")
        self._new.clear()
        seconds = _all(self._group, own)
        if self._file is not None:
            self._file.add(seconds.tolist())


class _File:
    """The rows so far as text; written whole, beside the old file and over it."""

    def __init__(self, path: Path, workers: int, every: int) -> None:
        self._path = path
        self._every = every
        names = ",".join(f"worker{worker}" for worker in range(workers))
        self._text = bytearray(f"step,{names}\n".encode())
        self._step = self._rows = self._written = 0
        self._has_warned = False

    def add(self, steps: list[list[float]]) -> None:
        """Take the seconds of the next steps; one that has a NaN leaves a gap."""
        for row in steps:
            if not any(map(math.isnan, row)):
                cells = ",".join(f"{seconds:.9f}" for seconds in row)
                self._text += f"{self._step},{cells}\n".encode()
                self._rows += 1
            self._step += 1

    @property
    def is_due(self) -> bool:
        """Whether enough is new; writing takes longer the longer the file is."""
        new = self._rows - self._written
        return new >= max(self._every, self._rows // GROWTH)

    def try_to_write(self) -> None:
        """Write; if that fails, warn once and let the training go on."""
        try:
            self.write()
        except InvalidDelays as error:
            if not self._has_warned:
                self._has_warned = True
                text = f"{error}; recording goes on and will try again"
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def write(self) -> None:
        """Write what is new, if anything is."""
        if self._rows > self._written:
            _replace(self._path, self._text)
            self._written = self._rows


class _Hook:
    """A hook of a model that copies of the model, and pickles, do without."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __call__(self, module: object, arguments: object) -> None:
        self._call()

    def __reduce__(self) -> tuple[Any, ...]:
        return _idle, ()


def _idle() -> Callable[..., None]:
    return _nothing


def _nothing(*arguments: object) -> None:
    pass


def _refuse_uneven(ddp_model: Any, arguments: object) -> None:
    """Refuse the one setting that DDP, without a hook, would average otherwise."""
    is_joining = ddp_model._join_config.enable
    if is_joining and not ddp_model._divide_by_initial_world_size:
        setting = "join(divide_by_initial_world_size=False)"
        problem = f"no hook hears of {setting}, and gradients would differ"
        raise InvalidDelays("record", problem, "join(), or no recording")


def _average(
    group: ProcessGroup, gradient: torch.Tensor, then: Callable[[], None]
) -> Future[torch.Tensor]:
    """Start the mean over workers, rounded as DDP rounds it without a hook.

    DDP multiplies by 1/n, and divides sparse gradients by n. The hook that comes with
    PyTorch always divides, which gives other last bits unless n is a power of two.

    Returns:
        The mean. It is there after `then` was called, in a thread of the group's, so
        that DDP's own wait is one for `then`.
    """
    if gradient.is_sparse:
        gradient.div_(group.size())
    else:
        gradient.mul_(1.0 / group.size())

    def finish(done: Future[list[torch.Tensor]]) -> torch.Tensor:
        then()
        return done.value()[0]

    work = dist.all_reduce(gradient, group=group, async_op=True)
    return cast("Future[torch.Tensor]", work.get_future().then(finish))


def _all(group: ProcessGroup, own: torch.Tensor) -> torch.Tensor:
    """Return everybody's numbers, a column per worker."""
    found = [torch.empty_like(own) for _ in range(group.size())]
    dist.all_gather(found, own, group=group)
    return torch.stack(found, dim=1)


def _agree(group: ProcessGroup, every: int, check: Callable[[], None]) -> None:
    """Raise on all workers if one cannot record, so that nobody is waited for."""
    problem: InvalidDelays | None = None
    try:
        check()
    except InvalidDelays as error:
        problem = error
    own = [0.0, 0.0] if problem else [1.0, float(every)]
    able, counts = _all(group, torch.tensor(own, dtype=torch.float64, device="cpu"))
    if problem:
        raise problem
    if not able.all():
        unable = f"worker {able.tolist().index(0.0)} cannot record"
        raise InvalidDelays("record", unable, "what its own error says")
    if not (counts == counts[0]).all():
        asked = [int(count) for count in counts]
        raise InvalidDelays("record", f"every is {asked} by worker", "one for all")


def _check(ddp_model: DistributedDataParallel, path: Path, every: int) -> None:
    whole("record", "every", every, 1)
    tensors = [*ddp_model.parameters(), *ddp_model.buffers()]
    away = sorted({tensor.device.type for tensor in tensors} - {"cpu"})
    if away:
        problem = f"the model is on {away[0]}, whose work the host's clock does not see"
        raise InvalidDelays("record", problem, "a model on the CPU")
    known: Any = ddp_model._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # torch's
    if known.get("comm_hook"):
        problem = "the model has a communication hook already, and DDP takes one, once"
        raise InvalidDelays("record", problem, "a new DistributedDataParallel")
    if path.suffix.lower() != ".csv":
        raise InvalidDelays("record", f"{path} is no .csv file", "a name such as t.csv")
    if ddp_model.process_group.rank() == 0:
        _replace(path, None)


def _replace(path: Path, text: bytearray | None) -> None:
    """Write a file whole or not at all; without a text only try whether one could."""
    beside = path.with_name(f".{path.name}.new")
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "a folder has this name")
        try:
            beside.write_bytes(text or b"")
            if text is not None:
                os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InvalidDelays(str(path), problem, "a folder with room") from None
