"""The least seconds that any exact scheme could take, on the same delays.

The bounds are those of `codes.bounds.clairvoyant`, for the times that `compare` draws.
They know of no draining, no latency and no network: a clairvoyant stops everybody at
once and sends in no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.bounds import clairvoyant, clairvoyant_whole
from codedgrad.codes.decoders import Floats
from codedgrad.core import Scheme
from codedgrad.delays import Delays, Times, draw

_CELLS = 2**18  # steps x workers at once: tens of megabytes


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """How soon steps could have ended; arrays of shape (runs, steps).

    Attributes:
        fluid: If work could be split at will, in seconds; inf where all are dead.
        whole: With whole parts, as many as the scheme has; not less.
    """

    fluid: Floats
    whole: Floats


def clairvoyant_of(times: Times, parts: int | None = None) -> Floats:
    """Return the least seconds of every step, (steps,).

    Where later orders take other times, the shorter ones count.

    Args:
        times: One row a step.
        parts: How many whole parts a step has; None: work can be split at will.

    Example:
        >>> times = Times(fixed=np.zeros((1, 2)), unit=np.array([[1.0, 3.0]]))
        >>> clairvoyant_of(times), clairvoyant_of(times, parts=2)
        (array([1.5]), array([2.]))
    """
    rows = max(1, _CELLS // times.workers)
    blocks = (
        _least(times.between(low, low + rows), parts)
        for low in range(0, times.steps, rows)
    )
    return np.concatenate([np.empty(0), *blocks])


def _least(times: Times, parts: int | None) -> Floats:
    fixed = times.fixed
    each = times.unit if parts is None else times.part(parts)
    if times.again is not None:
        again = times.again
        there = np.isfinite(fixed + each)
        later = again.unit if parts is None else again.part(parts)
        fixed = np.where(there, np.minimum(fixed, again.fixed), np.inf)
        each = np.where(there, np.minimum(each, later), np.inf)
    if parts is None:
        return clairvoyant(fixed, each)
    return clairvoyant_whole(fixed, each, parts)


def bounds_of(
    schemes: Sequence[Scheme],
    delays: Delays,
    *,
    steps: int,
    runs: int = 1,
    seed: int = 0,
) -> list[Bounds]:
    """Return the bounds of every scheme, on the delays that `compare` draws.

    Args:
        schemes: For the same number of workers; only their numbers of parts matter.
        delays: How long workers take.
        steps: In a run.
        runs: Independent runs.
        seed: Of the delays.

    Example:
        >>> from codedgrad.delays import ShiftedExponential
        >>> from codedgrad.schemes import uncoded
        >>> [bounds] = bounds_of([uncoded(4)], ShiftedExponential(1.0), steps=2)
        >>> bounds.fluid, bounds.whole
        (array([[1., 1.]]), array([[1., 1.]]))
    """
    n = schemes[0].workers
    fluid = np.empty((runs, steps))
    whole = {scheme.parts: np.empty((runs, steps)) for scheme in schemes}
    for run in range(runs):
        times = draw(delays, steps=steps, workers=n, seed=seed, run=run)
        fluid[run] = clairvoyant_of(times)
        for parts, seconds in whole.items():
            seconds[run] = clairvoyant_of(times, parts)
    # seconds of parts are rounded to the grid, which may make them a little less
    made = {k: Bounds(np.minimum(fluid, each), each) for k, each in whole.items()}
    return [made[scheme.parts] for scheme in schemes]
