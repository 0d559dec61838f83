"""Training a PyTorch model in the user's own loop.

The root has the model and the optimizer. `backward` publishes the parameters, gets the
gradient of the whole step from whoever is fast enough, and puts it into `p.grad`.

1. A step begins when its number is yielded and ends when the loop comes back for the
   next one. In between the model is the user's. Checkpoints are written at the ends.
2. What is published is what the model is then, however it got there.
3. `backward` is the only thing that waits, and nothing has changed while it does: so a
   step that is given up, or interrupted there, can be taken again from a checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from operator import index
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from codedgrad import __version__
from codedgrad.core import (
    Command,
    Event,
    History,
    Patience,
    Record,
    Scheme,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Rehearsed, Times, rehearse
from codedgrad.engines import Driver, Engine, FaultPlan, Sum, granted
from codedgrad.engines.driver import Watch, header_of, refuse_oracle
from codedgrad.engines.engine import CountsThreads
from codedgrad.engines.preemption_notices import notices_of
from codedgrad.engines.registry import engine_of
from codedgrad.engines.worker_status import WorkerTable, workers_of
from codedgrad.errors import (
    InvalidCall,
    InvalidCheckpoint,
    InvalidInput,
    InvalidOptions,
    LockLost,
)
from codedgrad.learning.savings import Savings
from codedgrad.schemes import build
from codedgrad.torch.checkpoint.files import generators, restore_generators
from codedgrad.torch.checkpoint.run_folder import Checkpoints, Folder, parts_of
from codedgrad.torch.checkpoint.state_tree import flatten
from codedgrad.torch.checkpoint.untracked import warn_of_untracked
from codedgrad.torch.job import Job
from codedgrad.torch.model.attributes import Knobs
from codedgrad.torch.model.flat import Flat
from codedgrad.torch.model.workload import SCALARS, Workload, in_training, workload
from codedgrad.torch.progress import Bar
from codedgrad.torch.report import Report, report_of
from codedgrad.torch.resume_line import print_resume
from codedgrad.torch.signals import Stopping
from codedgrad.torch.stop_line import print_stop
from codedgrad.trace import Manifest, StepLine
from codedgrad.uplink import Link

_log = logging.getLogger("codedgrad")
_DRAWN = 1000  # steps for which delays are drawn; then they repeat
_LOOKED_AT = 10  # steps after which small parts are warned of
_SMALL_PART = 0.005  # seconds; a guess: with 1 ms `auto` took 4 times as long
_USED = 1e-3  # of the parts that used a parameter: 0 but for rounding, or 1 at least


class Tracked(Protocol):
    """What can be in a checkpoint: an optimizer, a scheduler, a model's average."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state: numbers, text and tensors."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Become what a state says."""
        ...


def train(
    job: Callable[[], Job],
    *,
    scheme: Scheme | str = "auto",
    workers: int | None = None,
    engine: Engine | str = "local",
    address: str | None = None,
    threads: int | str = "auto",
    uplink: Link | str | None = None,
    unbiased: bool = False,
    seed: int = 0,
    run_dir: Path | str | None = None,
    resume: bool | str = False,
    take_over: bool = False,
    checkpoints: Checkpoints | None = None,
    label: str = "",
    delays: Rehearsed | None = None,
    faults: FaultPlan | None = None,
    patience: Patience | None = None,
    progress: bool | None = None,
    watch: Callable[[Event, list[Command]], None] | None = None,
) -> Coded:
    """Start workers for a job; use what it returns in a `with` statement.

    Args:
        job: Makes the job; called once here and once in every worker, with torch,
            numpy and random seeded alike.
        scheme: Who computes what, and when it is enough; in words, such as "auto" or
            "fractional(1)", or built; or a scenario, such as "plan.toml": then it is
            the first scheme in it.
        workers: How many; needed where the scheme is in words.
        engine: What the workers are: "local", processes of this machine; "ray", "mpi"
            or "torchrun", of several machines; "here", none, for a debugger; or an
            engine. It is closed at the end.
        address: Of a Ray cluster that is there, such as "auto"; None: `RAY_ADDRESS`,
            or else of its own.
        threads: That every worker computes with; "auto": the cores of its machine, or
            its share of Ray's, divided by the workers there. Bits are promised for
            equal numbers.
        uplink: How the link to the root is shared out among finished messages: "fair",
            another policy, or a `Link`. None: first come, first served.
        unbiased: Divide by the samples of the whole step, and not by those decoded:
            for schemes whose sums are right on average. A step in which nobody is
            heard then has a gradient of zero.
        seed: Of whatever the job draws, of shards and permutations, and of what the
            model draws in a part.
        run_dir: A folder for the trace, the figures of every step, and checkpoints.
        resume: "auto": go on with the run in `run_dir` if there is one; True: there
            must be one; False: there must be none. A run may go on with another number
            of workers, scheme or engine. It keeps its number of parts.
        take_over: Whether to take `run_dir` from a root that is still running; that one
            stops before its next write.
        checkpoints: When to write them, and how many to keep.
        label: What people should call the run.
        delays: What every part is to take longer, to rehearse: a law of seconds, drawn
            for 1000 steps and then repeated; a change alone, such as
            `cg.delays.Slow(worker=2, factor=10)`, which multiplies what the worker
            really takes; or times.
        faults: What to do to workers on purpose.
        patience: When to give a step up.
        progress: Whether `steps` shows a bar; None: if somebody is looking.
        watch: Told every event and the commands it led to.

    Example:
        >>> def job():
        ...     x = torch.linspace(0, 1, 48).reshape(48, 1)
        ...     return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=16)
        >>> with train(job, workers=2) as coded:
        ...     optimizer = torch.optim.SGD(coded.model.parameters(), lr=0.5)
        ...     for step in coded.steps(100):
        ...         report = coded.backward()
        ...         optimizer.step()
        >>> report.loss < 0.01
        True
    """
    if seed < 0:
        raise InvalidOptions("seed", f"is {seed}", "0 or more")
    _check_faults(faults)
    given = scheme
    parts = None if run_dir is None or not resume else parts_of(Path(run_dir))
    scheme = _scheme(given, workers, parts)
    refuse_oracle(scheme)
    engine = granted(engine_of(engine, address, threads), uplink)
    folder: Folder | None = None
    with ExitStack() as stack:

        def say(kind: object, error: BaseException | None, trace: object) -> None:
            print_stop(error, 0 if folder is None else folder.step, folder)

        stack.push(say)  # first, so that it is said when all is closed
        stopping = Stopping()
        stack.callback(stopping.remove)
        stopping.install()
        stack.callback(engine.close)
        if run_dir is not None:
            when = Checkpoints() if checkpoints is None else checkpoints
            folder = Folder(Path(run_dir), resume, when, take_over)
            stack.callback(folder.close)
        elif resume or take_over or checkpoints is not None:
            name = "resume" if resume else "take_over" if take_over else "checkpoints"
            problem = "has no folder to be in"
            raise InvalidOptions(name, problem, 'run_dir="runs/first"')
        if folder is not None and folder.parts not in (None, scheme.parts):
            scheme = _scheme(given, workers, folder.parts)
        times = None
        if delays is not None:
            times = rehearse(delays, steps=_DRAWN, workers=scheme.workers, seed=seed)
        coded = Coded(job, scheme, engine, seed, progress, unbiased)
        coded._stopping = stopping
        coded._folder = folder
        if folder is not None:
            parameters = coded.model.parameters()
            stack.callback(warn_of_untracked(parameters, coded._all_tracked))
        coded._start(engine, times, faults, patience, watch, label)
        coded._stack = stack.pop_all()
    return coded


def _scheme(given: Scheme | str, workers: int | None, parts: int | None) -> Scheme:
    """Return the scheme of a run.

    Args:
        given: Built, in words, or a scenario that has it.
        workers: How many, if they are given.
        parts: As the run in the folder has them; None: as many as the scheme has.
    """
    if isinstance(given, str) and given.lower().endswith(".toml"):
        from codedgrad.scenario.scenario import read_scenario  # no worker needs it

        given = read_scenario(given).schemes[0]
        if parts not in (None, given.parts) and workers in (None, given.workers):
            return build(given.name, given.workers, parts=parts)
    if isinstance(given, str):
        if workers is None:
            raise InvalidOptions("workers", "are not given", "workers=8")
        return build(given, workers, parts=parts)
    if workers not in (None, given.workers):
        problem = f"are {workers}, the scheme has {given.workers}"
        raise InvalidOptions("workers", problem, "to leave them out")
    return given


class Coded:
    """A model whose gradients come from whoever is fast enough. Made by `train`.

    Attributes:
        model: The root's; give its parameters to an optimizer.
        scheme: Who computes what.
        step: The number of the step in hand, or else of the next one.
        report: Of the last step; None before the first.
    """

    def __init__(
        self,
        job: Callable[[], Job],
        scheme: Scheme,
        engine: Engine,
        seed: int,
        progress: bool | None,
        unbiased: bool = False,
    ) -> None:
        self._make = partial(workload, job, scheme.parts, seed)
        self._work = self._make()
        self.model: nn.Module = self._work.job.model
        self.scheme = scheme
        self.step = 0
        self.report: Report | None = None
        self._seed = seed
        self._progress = progress
        self._unbiased = unbiased
        self._gradient = torch.zeros(self._work.layout.gradient, dtype=self._flat.dtype)
        self._views = self._flat.trainable.views(self._gradient)
        self._known = self._parameters()
        in_training.add(self.model)
        self._folder: Folder | None = None
        self._bar: Bar | None = None
        self._stack = ExitStack()
        self._stopping = Stopping()
        self._reference: Workload | None = None
        self._tracked: dict[str, Tracked] = {}
        self._unclaimed: dict[str, Any] = {}  # states of what is not tracked yet
        self._missed: set[str] = set()  # and was not when the steps began
        self._warned: set[str] = set()  # names of states that nobody tracks
        self._generators: dict[str, Any] | None = None
        self._begun_with: dict[str, Any] | None = None  # generators, in a step
        self._logged: dict[str, float] = {}
        self._sum: Sum | None = None
        self._is_in_step = self._is_looping = self._is_warned_of_parts = False
        self._is_tried = self._has_gradient = False
        self._is_closed = self._is_warned_of_no_gradient = False
        self._is_finite = True  # the last gradient

    def _start(
        self,
        engine: Engine,
        delays: Times | None,
        faults: FaultPlan | None,
        patience: Patience | None,
        watch: Callable[[Event, list[Command]], None] | None,
        label: str,
    ) -> None:
        watches: list[Watch] = [self._show_worker]
        if watch is not None:
            watches.append(watch)
        patience = patience or Patience()
        header = header_of(engine, self.scheme, patience)
        history: History | None = None
        earlier = 0.0
        if self._folder is not None:
            manifest = self._folder.compare(self._manifest(engine.name, label))
            history = self._folder.relearn(header, self.scheme, patience)
            earlier = self._restore(self._folder)
            if self._folder.may_resume:
                print_resume(self._folder)  # now that the checkpoint fits the model

        def tell(event: Event, commands: list[Command]) -> None:
            for told in watches:
                told(event, commands)

        self._driver = Driver(
            engine,
            self.scheme,
            self._work.layout,
            patience=patience,
            watch=tell,
            history=history,
            earlier=earlier,
            tend=self._tend,
        )
        self._notices = partial(notices_of, engine)
        self._engine = engine
        if self._folder is not None:
            watches.append(self._folder.open(header, manifest))
            self._tell(self._folder)
        self._warn()
        engine.start(
            self._make,
            self._work.layout,
            self.scheme.workers,
            faults=faults,
            delays=delays,
            parts=self.scheme.parts,
            root=self._work,
        )
        if self._folder is not None and isinstance(engine, CountsThreads):
            self._folder.note_threads(engine.threads)
        self._stopping.may_stop = lambda: not self._has_gradient
        self._stopping.save = self._save
        if self._folder is not None:
            self._folder.outcome = "ended"

    # -- the loop --------------------------------------------------------------------

    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the steps until `total` of them are done, in all.

        A run that goes on with an earlier one begins where that one's checkpoint is.
        Ten epochs are `steps(10 * coded.steps_per_epoch)`, in one loop.
        """
        self._check_open("steps")
        total = _number("steps", total)
        self._settle()
        self._check_total(total)
        if self._folder is not None:
            self._folder.lock.update(steps=total)
        self._take_up_generators()
        self._warn_of_unclaimed()
        self._missed |= set(self._unclaimed)
        self._unclaimed = {}
        with Bar(total, self.step, self._progress) as bar:
            self._bar = bar
            self._is_looping = True
            try:
                while self.step < total:
                    self._is_in_step = True
                    if self._folder is not None:
                        self._begun_with = generators()
                    yield self.step
                    if not self._has_gradient:
                        self._warn_of_no_gradient()
                    report = self.report if self._has_gradient else None
                    bar.advance(report, self._driver.waiting)
                    self._warn_of_small_parts()
                    self._settle()
            finally:
                self._bar = None
                self._is_looping = False
                if not self._has_gradient:  # the loop was left: the step is not taken
                    self._is_in_step = self._is_tried = False
        self._save()

    def backward(self) -> Report:
        """Set every `p.grad` to the gradient of the whole step; say how it went.

        The gradient is the mean over the step's samples, tokens or weights, as the loss
        counts; None for a parameter that no part used. What `p.grad` held before is
        gone, and its memory is used again: copy what is to be kept.

        Raises:
            InvalidCall: If it has been called in this step already, or the run is
                closed.
            StepGivenUp: If it cannot be had: too many workers are gone for too long.
            JobFailed: If the job raises twice for the same part, or ends its workers by
                a signal there; or if a worker that joins has other data.
        """
        self._check_open("backward")
        if self._has_gradient and self._is_looping:
            problem = "was called twice in a step"
            advice = "a larger batch_size, whose parts are the micro-batches"
            raise InvalidCall("backward", problem, advice)
        if self._is_tried:  # outside of a loop, or once more after a failure
            self._settle()
        if not self._is_looping and self._folder is not None:
            self._take_up_generators()
            self._begun_with = generators()
        begun = self._driver.now()
        self._check_parameters()
        self._warn_of_unclaimed()
        self._is_in_step = self._is_tried = True
        self._sum = self._get_sum()
        self._has_gradient = True  # from here on the model is in between two steps
        try:
            self._take(self._sum)
        except InvalidInput:
            self._has_gradient = False  # nothing was taken
            raise
        seconds = self._driver.now() - begun
        self.report = report_of(self._sum, self._work.metrics, seconds)
        self._warn_of_divergence(self.report)
        return self.report

    @property
    def knobs(self) -> Knobs:
        """Values that reach a loss which has a parameter `knobs`, by name.

        They do from the next `backward` on, and are in checkpoints.
        """
        return self._flat.notes.knobs

    @knobs.setter
    def knobs(self, values: Mapping[str, Any]) -> None:
        fresh = Knobs()
        fresh.update(values)  # refuses what cannot be one before anything has changed
        self.knobs.clear()
        self.knobs.update(fresh)

    @property
    def workers(self) -> WorkerTable:
        """The number, host, process id and state of every worker.

        A state is `starting`, `ready`, `working`, `late`, `lost` or `ended`; see
        `codedgrad.engines.worker_status`. `print(coded.workers)` shows a table.
        """
        return workers_of(self._engine, self._driver.coordinator.alive)

    @property
    def record(self) -> Record | None:
        """All that was seen of the last step; None before the first.

        What an `advise.Watcher` is shown, to say who is slow while it runs.
        """
        records = self._driver.coordinator.history.records
        return records[-1] if records else None

    @property
    def savings(self) -> Savings:
        """What steps took, and what waiting for all would have taken, on average.

        Of the steps since `train` was called; a run that goes on has more, which
        `codedgrad report` adds up. Printed, it is a sentence.
        """
        return self._driver.waiting.means()

    def track(self, **objects: Tracked) -> None:
        """Let optimizers, schedulers and the like be in checkpoints.

        Where a run goes on with an earlier one, each takes up its state here. In a
        step, change them after `backward`: one that is interrupted before is taken
        again, with what they were then.
        """
        for name, tracked in objects.items():
            if name in self._tracked:
                raise InvalidCall("track", f"has a {name} already", "another name")
            if name in self._missed:
                problem = f"{name} comes too late to take up its state"
                raise InvalidCall("track", problem, "to track it before steps()")
            if self._folder is not None:
                flatten({name: tracked.state_dict()})  # says now whether it can be
            self._tracked[name] = tracked
            if name in self._unclaimed:
                tracked.load_state_dict(self._unclaimed.pop(name))
            elif self._folder is not None and self._folder.step > 0:
                _log.warning(
                    "the checkpoint has no state of %r: it starts as it is now", name
                )

    def log(self, **scalars: float) -> None:
        """Note numbers of this step, such as an accuracy, in the run's folder."""
        if not self._is_in_step:
            raise InvalidCall("log", "is outside of a step", "to call it in one")
        for name, value in scalars.items():
            self._logged[name] = float(value)

    def samples(self, step: int | None = None, *, part: int | None = None) -> list[int]:
        """Return the numbers of the samples of a step in the data set, in order.

        The order is that of the parts: first the samples of part 0, then those of part
        1, and so on. It follows from the seed, the number of parts and the step alone,
        so it is known for past and for future steps, and the same in a run that is
        resumed.

        Args:
            step: Its number, from 0 on; None: the step in hand, or else the next one.
            part: Only the samples of this part, of `coded.scheme.parts` parts; there
                may be none. Batch normalisation and random numbers are by part.

        Example:
            >>> x = torch.arange(10.0).reshape(10, 1)
            >>> def job():
            ...     return Job(nn.Linear(1, 1), nn.MSELoss(), (x, x), 6, shuffle=False)
            >>> with train(job, workers=2, scheme="uncoded", engine="here") as coded:
            ...     coded.samples(0), coded.samples(1), coded.samples(0, part=1)
            ([0, 2, 4, 1, 3, 5], [6, 8, 7, 9], [1, 3, 5])
        """
        at = self.step if step is None else _number("step", step)
        parts = self._work.parts
        if part is None:
            chosen = range(parts.parts)
        else:
            first = _number("part", part)
            if first >= parts.parts:
                advice = f"a number from 0 to {parts.parts - 1}"
                raise InvalidOptions("part", f"is {part}", advice)
            chosen = range(first, first + 1)
        return [number for j in chosen for number in parts.indices(j, at).tolist()]

    def deviation(self) -> float:
        """Compute the gradient in this process, and return how far off the other is.

        The relative distance between `p.grad` as it was set, and the gradient over the
        same parts by this process alone. It belongs between `backward()` and
        `optimizer.step()`: of other parameters the gradient is another one.

        Raises:
            InvalidCall: If there is no gradient yet, or the parameters have changed
                since `backward`.
        """
        if self._sum is None or not self._has_gradient:
            advice = "to call it after backward(), in the same step"
            raise InvalidCall("deviation", "has no gradient to look at", advice)
        if self._flat.has_changed():
            problem = "the parameters have changed since backward()"
            advice = "to call it between backward() and optimizer.step()"
            raise InvalidCall("deviation", problem, advice)
        layout, parameters = self._work.layout, self._flat.vector.numpy()
        if self._reference is None:
            self._reference = self._make()
            self._total = np.empty(layout.message, dtype=layout.dtype)
        total = self._total
        total[:] = 0
        for part in range(self.scheme.parts):
            self._reference.part(parameters, part, self.step, 1.0, total, add=True)
        true = total[: layout.gradient] / (total[layout.gradient + 1] or 1.0)
        taken = self._sum.vector[: layout.gradient] / self._divisor(self._sum)
        gap = np.linalg.norm(taken - true)
        return float(gap / (np.linalg.norm(true) or 1.0))

    def close(self) -> None:
        """End all workers and close the files. It may be called twice."""
        self._is_closed = True
        in_training.discard(self.model)
        self._stopping.save = lambda: True  # all that there is to save is saved
        with self._stopping.busy():
            self._stack.close()

    def __enter__(self) -> Coded:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: object
    ) -> None:
        stop = error
        try:
            with self._stopping.busy(), ExitStack() as stack:
                if error is None:
                    stack.callback(self.close)
                    stack.callback(self._save)
                    if self._has_gradient:
                        self._settle()
                    return
                if self._folder is not None:
                    self._folder.outcome = "stopped"
                stack.callback(_in_spite_of, error, self.close)
                stack.callback(_in_spite_of, error, self._save)
        except BaseException as another:
            stop = another  # a signal that came in the meantime, perhaps
            raise
        finally:
            print_stop(stop, self.step, self._folder)

    # -- in between ------------------------------------------------------------------

    @property
    def _flat(self) -> Flat:
        return self._work.flat

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every sample is used once."""
        return self._work.parts.steps_per_epoch

    def _parameters(self) -> list[tuple[object, ...]]:
        return [
            (id(p), p.requires_grad, p.dtype, p.shape) for p in self.model.parameters()
        ]

    def _check_parameters(self) -> None:
        if self._parameters() != self._known:
            problem = "has other parameters, of other types, or others are frozen"
            advice = "to make and freeze them in the job, as workers must do the same"
            raise InvalidCall("the model", problem, advice)

    def _get_sum(self) -> Sum:
        """Publish what the model is, and wait for the sum of the step."""
        flat, samples = self._flat, self._work.parts.total(self.step)
        try:
            changed = flat.gather()
            return self._driver.step(
                flat.vector.numpy(), self.step, changed=changed, samples=samples
            )
        except BaseException:
            flat.lose_track()  # the engine may not have taken what has changed
            raise

    def _take(self, sum_: Sum) -> None:
        """Hand the sum over: running statistics, gradients.

        Raises:
            InvalidJob: If buffers cannot be changed by it. Nothing has changed.
        """
        size, vector = self._work.layout.gradient, sum_.vector
        named = size + SCALARS + 2 * len(self._work.metrics)
        parameters = self._flat.trainable.tensors
        samples = float(vector[size + 2])
        if self._flat.state.carried and sum_.finite and samples:
            changes = torch.from_numpy(vector[named + len(parameters) :])
            self._flat.state.change(changes, samples)
        np.divide(vector[:size], self._divisor(sum_), out=self._gradient.numpy())
        used = np.abs(vector[named : named + len(parameters)]) > _USED
        if self._unbiased and not used.any():
            used[:] = True  # nobody was heard, and zero is what was decoded
        for parameter, view, is_used in zip(
            parameters, self._views, used.tolist(), strict=True
        ):
            gradient = view.to(parameter.device, parameter.dtype)
            # None as in plain PyTorch: with a zero an optimizer would decay the weight.
            parameter.grad = gradient if is_used else None

    def _divisor(self, sum_: Sum) -> float:
        """Return what makes a mean of the decoded sum of gradients.

        By default the samples decoded, which makes any sum self-normalised: mostly less
        error, but biased where the sum itself is right on average.
        """
        if not self._unbiased:
            return sum_.count or 1.0
        samples = float(sum_.vector[self._work.layout.gradient + 2])
        each = sum_.count / samples if samples else 1.0  # what a sample counts
        return each * self._work.parts.total(sum_.step) or 1.0

    def _settle(self) -> None:
        """End the step in hand, if there is one."""
        if not self._is_in_step:
            return
        if self._has_gradient and self._folder is not None:
            self._folder.log(self._line())
        self._logged = {}
        self._begun_with = None
        self.step += 1
        self._is_in_step = self._is_tried = self._has_gradient = False
        if self._folder is not None:
            self._tell(self._folder)
            with self._stopping.busy():  # a signal must not write a second one in it
                self._folder.save_if_due(self.step, self._state)
        self._tend()
        self._stopping.obey()

    def _show_worker(self, event: Event, commands: list[Command]) -> None:
        """Show in the bar that a worker is lost, or back."""
        if self._bar is not None and isinstance(event, WorkersLost | WorkersJoined):
            for worker in event.workers:
                self._bar.show_worker(worker, isinstance(event, WorkersJoined))

    def _tell(self, folder: Folder) -> None:
        """Let the heartbeat of the folder say how it goes."""
        report = self.report
        folder.lock.update(
            step=self.step,
            workers=self.scheme.workers,
            alive=sum(self._driver.coordinator.alive),
            seconds=None if report is None else report.seconds,
            loss=None if report is None else report.loss,
            late=() if report is None else report.late,
        )

    def _tend(self) -> None:
        """Hear of hosts that will be taken away; write a checkpoint if asked for."""
        for notice in self._notices():
            _log.warning("%s", notice)
            if notice.is_root:
                self._stopping.ask()
        self._stopping.heed()

    def _line(self) -> StepLine:
        report = self.report
        assert report is not None  # there is a gradient
        return StepLine(
            step=report.step,
            at=self._driver.ended,
            seconds=report.seconds,
            loss=report.loss,
            count=report.count,
            samples=report.samples,
            metrics=dict(report.metrics),
            logged=dict(self._logged),
        )

    # -- checkpoints -----------------------------------------------------------------

    def _save(self) -> bool:
        """Write a checkpoint, unless the model is in between two steps.

        Returns:
            Whether there is a folder to write to.
        """
        if self._folder is not None and not self._has_gradient:
            with self._stopping.busy():  # a signal must not write a second one in it
                self._folder.save(self.step, self._state)
        return self._folder is not None

    def _state(self) -> dict[str, Any]:
        per_epoch = self.steps_per_epoch
        return {
            "step": self.step,
            "seconds": self._driver.now(),
            "epoch": self.step // per_epoch,
            "step_of_epoch": self.step % per_epoch,
            "model": self.model.state_dict(),
            "knobs": dict(self.knobs),
            "tracked": {k: v.state_dict() for k, v in self._tracked.items()},
            "generators": self._begun_with or generators(),
        }

    def _restore(self, folder: Folder) -> float:
        """Take up the state of a checkpoint; return the seconds of the run so far."""
        if folder.state is None:
            return 0.0
        state, folder.state = folder.state, None  # it may be large
        where = f"the checkpoint of step {folder.step} does not fit"
        try:
            if unlike := _unlike(self.model.state_dict(), state["model"]):
                raise InvalidCheckpoint(folder.path, f"{where}: {unlike}")
            self.model.load_state_dict(state["model"])
            self.knobs.update(state["knobs"])
            self._unclaimed = dict(state["tracked"])
            self._generators = state["generators"]
            seconds = float(state.get("seconds", 0.0))
        except InvalidCheckpoint:
            raise
        except (
            AttributeError, LookupError, RuntimeError, TypeError, ValueError,
        ) as error:  # fmt: skip
            said = " ".join(str(error).split())
            raise InvalidCheckpoint(folder.path, f"{where}: {said}") from error
        self.step = folder.step
        return seconds

    def _manifest(self, engine: str, label: str) -> Manifest:
        parts = self._work.parts
        return Manifest(
            scheme=self.scheme.name,
            workers=self.scheme.workers,
            parts=self.scheme.parts,
            engine=engine,
            seed=self._seed,
            samples=parts.samples,
            batch_size=parts.batch_size,
            least_samples=parts.least_samples,
            shuffle=str(self._work.job.shuffle),
            unbiased=self._unbiased,
            data=self._work.digest_of_data(),
            steps_per_epoch=parts.steps_per_epoch,
            label=label,
            created=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
            versions={"codedgrad": __version__, "torch": str(torch.__version__)},
        )

    def _check_open(self, method: str) -> None:
        if self._is_closed:
            problem = "was called after the run was closed, and its workers have ended"
            advice = "to call it inside of `with train(...) as coded:`"
            raise InvalidCall(method, problem, advice)

    def _check_total(self, total: int) -> None:
        if self._is_looping:
            raise InvalidCall("steps", "is in a loop over steps", "one loop")
        begun = 0 if self._folder is None else self._folder.step
        if begun < self.step >= total:
            problem = f"are done: {self.step} in all, of {total}"
            advice = "the number of the whole run, in one loop over all epochs"
            raise InvalidCall("steps", problem, advice)

    def _take_up_generators(self) -> None:
        """Let generators go on where the checkpoint's were, once."""
        state, self._generators = self._generators, None
        if state is not None:
            restore_generators(state)

    def _warn_of_unclaimed(self) -> None:
        for name in [n for n in self._unclaimed if n not in self._warned]:
            _log.warning("the checkpoint has %r, which is not tracked", name)
        self._warned |= self._unclaimed.keys()

    def _warn_of_small_parts(self) -> None:
        """Say once that parts are so small that they may cost more than they save."""
        waiting, scheme = self._driver.waiting, self.scheme
        if self._is_warned_of_parts or scheme.parts <= scheme.workers:
            return
        if waiting.means().steps < _LOOKED_AT:
            return
        self._is_warned_of_parts = True
        seconds = waiting.part_seconds
        if 0 < seconds < _SMALL_PART:
            _log.warning(
                "a part takes %.2g ms, of which its own costs are a large share: fewer "
                'and larger parts may be faster, such as scheme="auto(pieces=2)", or '
                'scheme="uncoded" where no worker is slow',
                1000 * seconds,
            )

    def _all_tracked(self) -> list[object]:
        return list(self._tracked.values())

    def _warn_of_no_gradient(self) -> None:
        """Warn once of a step that has not asked the workers for its gradient."""
        if not self._is_warned_of_no_gradient:
            self._is_warned_of_no_gradient = True
            _log.warning(
                "step %d has ended without coded.backward(): the workers have computed "
                "nothing for it",
                self.step,
            )

    def _warn_of_divergence(self, report: Report) -> None:
        """Warn of the first gradient that is not finite, until one is finite again."""
        if self._is_finite and not report.finite:
            _log.warning(
                "step %d: the gradient is not finite: the model has diverged, or a "
                "value overflowed",
                report.step,
            )
        self._is_finite = report.finite

    def _warn(self) -> None:
        parts = self._work.parts
        if parts.total(0) < parts.parts:
            _log.warning(
                "a step has %d samples and %d parts, of which %d are empty: a larger "
                "batch_size, or fewer parts (fewer `pieces` or workers), would keep "
                "all workers busy",
                parts.total(0),
                parts.parts,
                parts.parts - parts.total(0),
            )
        if self._flat.state.has_statistics:
            _log.warning(
                "the model normalises over batches: it does so over every part of its "
                "own (%d samples, in the last step of an epoch down to %d; "
                "least_samples sets how few), not over all %d of a step; running "
                "statistics are averaged over the parts",
                parts.smallest,
                parts.smallest_at_end,
                parts.total(0),
            )


def _check_faults(given: object) -> None:
    if given is not None and not isinstance(given, FaultPlan):
        advice = "a FaultPlan; what makes a worker slow goes into delays="
        raise InvalidOptions("faults", f"are {brief(given)}", advice)


def _number(name: str, given: int) -> int:
    """Return a number that is given as an argument, or say what would be one."""
    try:
        number = index(given)
    except TypeError:
        number = -1
    if number < 0 or isinstance(given, bool):
        problem = f"is {brief(given)}"
        raise InvalidOptions(name, problem, "a whole number, 0 or more")
    return number


def _in_spite_of(error: BaseException, act: Callable[[], object]) -> None:
    """Save or close after an error of the loop; log what fails, and raise nothing.

    What `with` raises is then the error of the loop, which is the cause of the rest.
    """
    try:
        act()
    except (InvalidCheckpoint, LockLost) as another:
        if type(another) is not type(error):
            _log.error("%s", another)


def _unlike(model: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """Return in what a model differs from a saved one, in words; nothing if it fits."""
    now, was = (
        {name: x for name, x in state.items() if isinstance(x, Tensor)}
        for state in (model, saved)
    )
    for name in sorted(now.keys() | was.keys()):
        if name not in was:
            return f"it has no {name}, the model has"
        if name not in now:
            return f"it has {name}, which the model has not"
        one, other = was[name], now[name]
        if one.shape != other.shape:
            shape = tuple(one.shape)
            return f"{name} has the shape {shape}, the model's {tuple(other.shape)}"
        if one.dtype != other.dtype:
            return f"{name} is of {one.dtype}, the model's of {other.dtype}"
    return ""
