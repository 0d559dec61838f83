r"""One exact step with a worker on every machine: does an engine work here?

`python -m codedgrad.engines.doctor.trial local` takes it, and prints one line for
machines; `ray` and an address does so on a cluster. The processes of a job try it by

    mpirun -n 4 --map-by node python -m codedgrad.engines.mpi \
        -m codedgrad.engines.doctor.trial mpi
    torchrun --nnodes=4 --nproc-per-node=1 -m codedgrad.engines.doctor.trial torchrun

Where there are several hosts it is tried, too, whether every one reaches every other.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.driver import Driver
from codedgrad.engines.engine import Engine
from codedgrad.engines.ray.engine import Ray
from codedgrad.engines.registry import engine_of
from codedgrad.engines.remote.engine import Remote
from codedgrad.errors import CodedgradError, EngineFailed
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import uncoded

_USAGE = "usage: python -m codedgrad.engines.doctor.trial ENGINE [ADDRESS OF RAY]"
_START = np.array([4.0, -2.0])
_FEWEST = 2  # workers
_PAIRS = 15.0  # seconds for all hosts to call each other


def take_a_step(engine: Engine) -> dict[str, float]:
    """Take one step, for which all workers are needed; the engine is closed.

    Returns:
        `seconds`, from the start of the engine to its end, `workers` and `hosts`.

    Raises:
        CodedgradError: If there is no sum, or hosts cannot reach each other.
        ArithmeticError: If the sum is not the right one.

    Example:
        >>> from codedgrad.engines import Here
        >>> take_a_step(Here())["workers"]
        2
    """
    begun, hosts = time.monotonic(), 1
    try:
        if isinstance(engine, Remote):
            hosts = engine.machines()
        workers = max(_FEWEST, hosts)
        job = NumpyJob(_gradient, len(_START))
        engine.start(lambda: job, job.layout, workers, parts=workers)
        sum_ = Driver(engine, uncoded(workers), job.layout).step(_START)
        expected = workers * _START - sum(range(workers))
        if not np.array_equal(sum_.vector[: len(_START)], expected):
            found = sum_.vector[: len(_START)]
            raise ArithmeticError(f"the step gave {found}, expected {expected}")
        if isinstance(engine, Remote):
            _try_pairs(engine)
    finally:
        engine.close()
    seconds = time.monotonic() - begun
    return {"seconds": seconds, "workers": workers, "hosts": hosts}


def _try_pairs(engine: Remote) -> None:
    problems = engine.try_pairs(_PAIRS)
    if problems:
        (one, other), why = min(problems.items())
        problem = f"{engine.name_of(one)} cannot reach {engine.name_of(other)}: {why}"
        if len(problems) > 1:
            problem += f" (and {len(problems) - 1} other pairs of hosts)"
        raise EngineFailed(problem, "interface=, ports=, or another firewall")


def _gradient(
    parameters: NDArray[Any], part: int, step: int
) -> tuple[float, float, NDArray[Any]]:
    """Return loss, samples and gradient of `|x - part|^2 / 2`; exact in binary."""
    away = parameters - part
    return float(away @ away) / 2, 1.0, away


def main(words: list[str]) -> int:
    """Take the step on the engine named; print what it was, or the problem, as JSON.

    Args:
        words: `local`, `mpi`, `torchrun`, or `ray` and the address of its cluster.

    Returns:
        0 if it went well, 1 if not, 2 if no engine is named.
    """
    if not words or words[0].startswith("-"):
        is_asked = words[:1] in (["-h"], ["--help"])
        print(_USAGE, file=sys.stdout if is_asked else sys.stderr)
        return 0 if is_asked else 2
    name, *rest = words
    try:
        if name == "ray":  # so that there is one on every node
            engine: Engine = Ray(*rest, workers_per_host=1)
        else:
            engine = engine_of(name, rest[0] if rest else None)
        tried = take_a_step(engine)
    except (CodedgradError, ArithmeticError) as error:
        print("\n" + json.dumps({"problem": str(error)}), flush=True)
        return 1
    print("\n" + json.dumps(tried), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
