"""Trains on a Ray cluster until its input is closed; runs in `h0` of the lab.

    spot_driver.py --workers 8 < a pipe

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
import ray
from numpy.typing import NDArray

from codedgrad.core import Command, Event, WorkerJoined, WorkerLost
from codedgrad.engines import Driver, Ray
from codedgrad.jobs import Descent, NumpyJob, single_process
from codedgrad.schemes import fractional

SIZE = 15_000  # numbers in a gradient: 120 kB, more than Ray sends with a call
SAMPLES = 4  # of a part
RATE = 0.5
MOST = 100_000  # steps


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
    if isinstance(event, WorkerLost | WorkerJoined):
        what = "lost" if isinstance(event, WorkerLost) else "joined"
        say(what=what, worker=event.worker)


class Places:
    """Knows the host of every worker."""

    def __init__(self, engine: Ray) -> None:
        self._engine = engine
        self._names = {"": ""}

    def __call__(self) -> list[str]:
        nodes = self._engine.agent_nodes
        if not self._names.keys() >= set(nodes):
            found = {n["NodeID"]: n["NodeManagerHostname"] for n in ray.nodes()}
            self._names |= found
        return [self._names[node] for node in nodes]


def is_over() -> bool:
    """Return whether the input is closed."""
    return bool(select.select([sys.stdin], [], [], 0.0)[0])


def run(workers: int, seconds: float) -> None:
    scheme = fractional(workers, tolerance=1)
    quick = NumpyJob(Regression(), SIZE)
    job = NumpyJob(Regression(seconds / len(scheme.placement[0])), SIZE)
    engine, begin = Ray(address="auto"), np.zeros(SIZE)
    descent, worst, step = Descent(begin, MOST, RATE), 0.0, 0
    right, scratch = np.empty((2, job.layout.message))
    try:
        driver = Driver(engine, scheme, job.layout, watch=watch)
        engine.start(lambda: job, job.layout, workers, parts=scheme.parts)
        places = Places(engine)
        say(what="started", parts=[list(parts) for parts in scheme.placement])
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
                lives=list(engine.lives),
                where=places(),
            )
            step += 1
    finally:
        engine.close()
    alone = single_process(Regression(), begin, scheme.parts, steps=step, rate=RATE)
    apart = float(abs(alone.parameters - descent.parameters).max())
    scale = float(abs(alone.parameters).max())
    say(what="ended", steps=step, worst=worst, apart=apart / scale)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.05, help="a worker and step")
    options = parser.parse_args()
    run(options.workers, options.seconds)


if __name__ == "__main__":
    main()
