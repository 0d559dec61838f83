"""One exact step with two workers: does an engine work here?

`python -m codedgrad.engines.doctor.trial local` takes it, and prints one line for
machines; `ray` and an address, or `mpi` below `codedgrad.engines.mpi`, do so elsewhere.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.engine import Engine
from codedgrad.engines.registry import engine_named
from codedgrad.engines.train import train
from codedgrad.errors import CodedgradError
from codedgrad.schemes import uncoded

_START = np.array([4.0, -2.0])


def take_a_step(engine: Engine) -> float:
    """Take one step with two workers, both of them needed; the engine is closed.

    Returns:
        Seconds, from the start of the engine to its end.

    Raises:
        CodedgradError: If there is no sum.
        ArithmeticError: If the sum is not the right one.

    Example:
        >>> from codedgrad.engines import Here
        >>> take_a_step(Here()) < 60
        True
    """
    begun = time.monotonic()
    run = train(_gradient, _START, uncoded(2), steps=1, rate=0.5, engine=engine)
    expected = _START - 0.5 * (_START - 0.5)  # the mean of parts 0 and 1
    if not np.array_equal(run.parameters, expected):
        raise ArithmeticError(f"the step gave {run.parameters}, expected {expected}")
    return time.monotonic() - begun


def _gradient(
    parameters: NDArray[Any], part: int, step: int
) -> tuple[float, float, NDArray[Any]]:
    """Return loss, samples and gradient of `|x - part|^2 / 2`; exact in binary."""
    away = parameters - part
    return float(away @ away) / 2, 1.0, away


def main(words: Sequence[str]) -> int:
    """Take the step on the engine named; print seconds, or the problem, as JSON.

    Args:
        words: `local`, `mpi`, or `ray` and the address of its cluster.

    Returns:
        0 if it went well, else 1.
    """
    name, *rest = words
    try:
        seconds = take_a_step(engine_named(name, rest[0] if rest else None))
    except (CodedgradError, ArithmeticError) as error:
        print("\n" + json.dumps({"problem": str(error)}), flush=True)
        return 1
    print("\n" + json.dumps({"seconds": seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
