"""Trains until something is written to its input; runs in `h0` of the lab.

    training.py --engine ray --workers 8 < a pipe
    mpirun -n 3 python -m codedgrad.engines.mpi training.py --engine mpi < a pipe
    torchrun --nnodes=3 ... training.py --engine torchrun < a pipe

Prints a line of JSON for every step, loss and return. All have `at`, on the clock that
every process of the machine shares. Every sum is compared with one made here, and the
parameters, at the end, with those of a single process.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import select
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Command, Event, WorkersJoined, WorkersLost
from codedgrad.engines import Driver, Mpi, Ray, Torchrun
from codedgrad.jobs import Descent, NumpyJob, single_process
from codedgrad.schemes import build

SIZE = 15_000  # numbers in a gradient: 120 kB, more than Ray sends with a call
SAMPLES = 4  # of a part
RATE = 0.5
MOST = 100_000  # steps
CLOSE = 1e-10  # to the parameters of a single process


class Regression:
    """A least-squares problem whose parts take some time.

    What is to be learnt changes from step to step. So no gradient vanishes, and one of
    another step is seen to be wrong.

    Args:
        seconds: Of a part. Up to half as many are added, at random.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._known: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}

    def __call__(
        self, x: NDArray[Any], part: int, step: int
    ) -> tuple[float, float, NDArray[Any]]:
        if self._seconds:
            time.sleep(self._seconds * random.uniform(1.0, 1.5))
        if part not in self._known:
            draw = np.random.default_rng(part)
            samples = draw.standard_normal((SAMPLES, SIZE)) / SIZE**0.5
            self._known[part] = samples, draw.standard_normal(SAMPLES)
        samples, wanted = self._known[part]
        wrong = samples @ x - wanted * math.cos(step)
        return float(wrong @ wrong) / 2, float(SAMPLES), samples.T @ wrong


def say(**what: Any) -> None:
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


def watch(event: Event, commands: list[Command]) -> None:
    if isinstance(event, WorkersLost | WorkersJoined):
        what = "lost" if isinstance(event, WorkersLost) else "joined"
        say(what=what, workers=list(event.workers))


def engine_of(name: str) -> Mpi | Ray | Torchrun:
    if name == "mpi":  # the root's host has workers like any other
        return Mpi(threads=1)
    if name == "torchrun":
        return Torchrun(threads=1)
    # One core a host has room for one worker; the root's host has none.
    return Ray(address="auto", workers_per_host=1, root_is_agent=False)


def places(engine: Mpi | Ray | Torchrun) -> list[str]:
    """Return the host of every worker; empty while the worker is not there."""
    absent = ("lost", "starting")
    return ["" if w.state in absent else w.host for w in engine.workers]


def is_over() -> bool:
    """Return whether there is input; mpirun does not say that it is closed."""
    return bool(select.select([sys.stdin], [], [], 0.0)[0])


def run(options: argparse.Namespace) -> None:
    scheme = build(options.scheme, options.workers)
    quick = NumpyJob(Regression(), SIZE)
    job = NumpyJob(Regression(options.seconds), SIZE)
    engine, begin = engine_of(options.engine), np.zeros(SIZE)
    if isinstance(engine, Torchrun):
        engine.attend()  # in all processes but the root's it does not return
    descent, worst, step = Descent(begin, MOST, RATE), 0.0, 0
    right, scratch = np.empty((2, job.layout.message))
    try:
        driver = Driver(engine, scheme, job.layout, watch=watch)
        engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts)
        parts = [list(parts) for parts in scheme.placement]
        say(what="started", parts=parts, pids=engine.pids, where=places(engine))
        while not is_over():
            sum_ = driver.step(descent.parameters)
            right[:] = 0.0
            for part in range(scheme.parts):
                quick.part(descent.parameters, part, step, 1.0, scratch)
                right += scratch
            off = abs(sum_.vector - right)[:SIZE].max() / abs(right[:SIZE]).max()
            worst = max(worst, float(off))
            descent.take(sum_.vector, engine.now())
            report = sum_.report
            say(
                what="step",
                step=report.step,
                seconds=round(report.seconds, 4),
                heard=list(report.heard),
                off=float(off),
                lives=list(engine.lives),
                where=places(engine),
            )
            step += 1
    finally:
        engine.close()
    alone = single_process(Regression(), begin, scheme.parts, steps=step, rate=RATE)
    apart = float(abs(alone.parameters - descent.parameters).max())
    scale = float(abs(alone.parameters).max())
    equal = np.allclose(alone.parameters, descent.parameters, rtol=CLOSE, atol=CLOSE)
    say(
        what="ended",
        steps=step,
        worst=worst,
        apart=apart / scale,
        equal=bool(equal),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("mpi", "ray", "torchrun"), required=True)
    parser.add_argument("--scheme", default="fractional(1)")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.025, help="of a part")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
