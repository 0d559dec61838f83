"""Fractional repetition: groups of replicas. Tandon et al., ICML 2017."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codedgrad.codes.arguments import divisors, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import FirstHeard
from codedgrad.codes.families.clustered import clustered
from codedgrad.codes.sparse import tidy
from codedgrad.errors import InvalidCode


def replicas(workers: int) -> Code:
    """One group: every worker sends the plain sum of all parts; any one is enough."""
    return Code(
        name=f"replicas(workers={workers})",
        B=tidy(np.ones((workers, workers))),
        tolerance=workers - 1,
        decoder=FirstHeard(),
    )


def fractional(workers: int, tolerance: int) -> Code:
    """Cut the workers into groups of `tolerance` + 1 replicas.

    Each group shares as many parts as it has members, and every member sends their
    plain sum; one answer per group is enough. All coefficients and weights are 1, so
    decoding loses no digit, and its outcome does not depend on who was late.

    Args:
        workers: Number of workers, and of parts.
        tolerance: Late workers survived; `tolerance` + 1 must divide `workers`.

    Example:
        >>> from codedgrad.codes import decode
        >>> decode(fractional(workers=6, tolerance=2), heard=[1, 5]).weights
        ((1, 1.0), (5, 1.0))
        >>> fractional(workers=6, tolerance=3)
        Traceback (most recent call last):
        codedgrad.errors.InvalidCode: fractional: tolerance + 1 = 4 must divide \
workers = 6; try tolerance in [0, 1, 2, 5]
    """
    workers = whole("fractional", "workers", workers, least=1)
    tolerance = whole("fractional", "tolerance", tolerance, least=0, most=workers - 1)
    size = tolerance + 1
    if workers % size:
        fitting = [d - 1 for d in divisors(workers)]
        problem = f"tolerance + 1 = {size} must divide workers = {workers}"
        raise InvalidCode("fractional", problem, f"tolerance in {fitting}")
    name = f"fractional(workers={workers}, tolerance={tolerance})"
    return replace(clustered(replicas(size), workers // size), name=name)
