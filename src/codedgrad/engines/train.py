"""Gradient descent on real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from codedgrad.core import Command, Event, Patience, Scheme
from codedgrad.delays import Rehearsed, rehearse
from codedgrad.engines.driver import Driver, refuse_oracle
from codedgrad.engines.engine import Engine
from codedgrad.engines.fair_link import granted
from codedgrad.engines.faults import FaultPlan
from codedgrad.engines.registry import engine_of
from codedgrad.errors import JobFailed, StepGivenUp
from codedgrad.jobs import Descent, Gradient, NumpyJob, Training, Update
from codedgrad.trace import Recorder, StepReport
from codedgrad.uplink import Link


def train(
    gradient: Gradient,
    parameters: NDArray[Any],
    scheme: Scheme,
    *,
    steps: int,
    rate: float = 0.1,
    update: Update | None = None,
    evaluate: Callable[[NDArray[Any]], float] | None = None,
    engine: Engine | str = "local",
    address: str | None = None,
    threads: int | str = "auto",
    delays: Rehearsed | None = None,
    seed: int = 0,
    faults: FaultPlan | None = None,
    patience: Patience | None = None,
    trace: Path | str | None = None,
    dtype: str = "float64",
    progress: bool = False,
    watch: Callable[[Event, list[Command]], None] | None = None,
    samples: float | None = None,
    uplink: Link | str | None = None,
) -> Training[StepReport]:
    """Train by gradient descent, with every step's sum from whoever is fast enough.

    Args:
        gradient: gradient(parameters, part, step) -> (sum of losses, samples, sum of
            gradients). It runs in the workers: on whichever has to, at least once a
            part and step, so it must depend on its arguments alone.
        parameters: To start from, shape (d,); not changed.
        scheme: Who computes what, and when it is enough.
        steps: How many.
        rate: Step size, unless `update` is given.
        update: What to do with a mean gradient; runs here.
        evaluate: Scores the parameters after every step; runs here.
        engine: What the workers are: "local", processes of this machine; "ray", "mpi"
            or "torchrun", of several; "here", none; or an engine. It is closed at the
            end.
        address: Of a Ray cluster that is there, such as "auto"; None: `RAY_ADDRESS`,
            or else of its own.
        threads: That every worker computes with; "auto": the cores of its machine, or
            its share of Ray's, divided by the workers there.
        delays: What every part is to take longer, to rehearse: a law of seconds; a
            change alone, such as `Slow(worker=2, factor=10)`, which multiplies what
            the worker really takes; or times.
        seed: Of the delays.
        faults: What to do to workers on purpose.
        patience: When to give a step up.
        trace: A file for the record of the run; it must not exist.
        dtype: Of parameters and messages, float32 or float64.
        progress: Whether to show a progress bar.
        watch: Told every event and the commands it led to.
        samples: Of a whole step; divide by them rather than by the decoded number,
            which keeps a sum unbiased that is so; None: by the decoded number.
        uplink: How the link to the root is shared out among finished messages: "fair",
            another policy, or a `Link`. None: first come, first served.

    Raises:
        StepGivenUp: If a step cannot be finished; its `training` is the run so far.
        JobFailed: If `gradient` raises twice for the same part, or ends its workers by
            a signal there; likewise.

    Example:
        >>> import numpy as np
        >>> from codedgrad.schemes import fractional
        >>> def gradient(x, part, step):  # of (x - part)^2 / 2: the best x is 1.5
        ...     return float((x[0] - part) ** 2 / 2), 1.0, x - part
        >>> run = train(gradient, np.zeros(1), fractional(4, tolerance=1), steps=100)
        >>> run.parameters.round(3)
        array([1.5])
    """
    refuse_oracle(scheme)
    descent = Descent(parameters, steps, rate, update, evaluate, dtype, samples)
    size = len(descent.parameters)
    job = NumpyJob(gradient, size, dtype)
    engine = granted(engine_of(engine, address, threads), uplink)
    times = None
    if delays is not None:
        times = rehearse(delays, steps=steps, workers=scheme.workers, seed=seed)
    done: list[StepReport] = []
    with ExitStack() as stack:
        stack.callback(engine.close)
        watches = [] if watch is None else [watch]
        driver = Driver(
            engine, scheme, job.layout, patience=patience, watch=_tell_all(watches)
        )
        if trace is not None:
            header = driver.header(seed=seed if delays is not None else None)
            watches.append(stack.enter_context(Recorder(trace, header)))
        engine.start(
            lambda: job,
            job.layout,
            scheme.workers,
            faults=faults,
            delays=times,
            parts=scheme.parts,
        )
        advance = stack.enter_context(_bar(steps, progress))
        begun = engine.now()
        for _ in range(steps):
            try:
                sum_ = driver.step(descent.parameters)
            except (StepGivenUp, JobFailed) as error:
                error.training = descent.training(done)
                raise
            descent.take(sum_.vector, engine.now() - begun)
            done.append(sum_.report)
            advance()
    return descent.training(done)


def _tell_all(
    watches: list[Callable[[Event, list[Command]], None]],
) -> Callable[[Event, list[Command]], None]:
    def tell(event: Event, commands: list[Command]) -> None:
        for watch in watches:
            watch(event, commands)

    return tell


@contextmanager
def _bar(steps: int, is_shown: bool) -> Iterator[Callable[[], None]]:
    """Show how far it is, on standard error."""
    if not is_shown:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=steps)
        yield lambda: bar.advance(task)
