"""Codes for workers of individual reliability, right on average (OSGC).

Song, Choi, "Approximate Gradient Coding for Distributed Learning with Heterogeneous
Stragglers", arXiv 2510.22539: fixed weights, and the allocations `common` and `chain`.
The allocation `interval`, and all other ways to decode, are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedgrad.codes.arguments import one_of, probabilities, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import (
    Debiased,
    Decoder,
    Fixed,
    Floats,
    GramLeastSquares,
    LeastSquares,
    Normalised,
)
from codedgrad.codes.expected_error import expected
from codedgrad.codes.families.allocation import (
    ALLOCATIONS,
    correlated,
    gram_aware,
    shares,
)
from codedgrad.codes.sparse import Matrix, entries
from codedgrad.errors import InvalidCode

DECODINGS = ("fixed", "normalised", "optimal", "gram", "debiased")
"""Ways to decode, by name."""

_ALIKE = 0.5  # how alike gradients are, where nobody says
_SEEN = 1e-6  # of a mean weight: below it a part is as good as never heard


def heterogeneous(
    workers: int,
    straggle: float | Sequence[float] | Floats,
    *,
    parts: int | None = None,
    allocation: str = "interval",
    decoding: str = "fixed",
    correlation: float | None = None,
    cap: float | None = None,
    seed: int = 0,
) -> Code:
    r"""Give reliable workers more to carry, so that the sum errs least on average.

    Worker $i$ carries a share in proportion to its odds to be heard, and its message is
    a mean of its parts: coefficients sum to 1. With fixed weights the sum is right on
    average, whatever the gradients are, and its relative error is $1/S$,
    $S = \sum_i (1 - p_i) / p_i$, where they are all alike (`bounds.unbiased_error`).

    How to decode:

    - `fixed`: one weight for each worker, as published; unbiased.
    - `normalised`: scaled so that the weights of all parts sum to their number; a
      little bias, and no error where gradients are alike.
    - `optimal`: least squares; the least residual, but parts weigh less than 1 on
      average.
    - `gram`: least squares for gradients that are alike (0.5, or `correlation`).
    - `debiased`: `optimal` with every part divided by the mean weight it gets; these
      means are of all patterns up to 16 workers, of 10,000 random ones beyond. It
      takes some tenths of a second to build for 16 workers, or for 100.

    Args:
        workers: Number of workers.
        straggle: Probability to be late, in [0, 1), one for all or one per worker.
        parts: Number of parts; by default as many as workers.
        allocation: `interval`; or, as published, `common` or `chain`.
        decoding: How, as above.
        correlation: How alike part gradients are, if known: mass is then divided for
            the least error at just that, among the workers that hold a part.
        cap: The largest share of a worker, in parts, by which parts are laid out.
            With a correlation mass is then divided anew, whatever the cap.
        seed: Of the random patterns of `debiased`.

    Example:
        >>> code = heterogeneous(workers=4, straggle=[0.1, 0.2, 0.4, 0.5])
        >>> code.B.toarray().round(3)
        array([[0.431, 0.431, 0.139, 0.   ],
               [0.   , 0.   , 0.656, 0.344],
               [0.   , 0.   , 0.   , 1.   ],
               [0.   , 0.   , 0.   , 1.   ]])
        >>> code.placement
        ((0, 1, 2), (2, 3), (3,), (3,))
    """
    k = whole("heterogeneous", "workers", workers, least=1)
    p = probabilities("heterogeneous", "straggle", straggle, k)
    n = k if parts is None else whole("heterogeneous", "parts", parts, least=1)
    where = one_of("heterogeneous", "allocation", allocation, tuple(ALLOCATIONS))
    kind = one_of("heterogeneous", "decoding", decoding, DECODINGS)
    mass = ALLOCATIONS[where](shares(p, n, cap), n)
    if correlation is not None:
        correlated("heterogeneous", correlation, n)  # says whether it is one
        mass = gram_aware(mass, p, correlation)
    seed = whole("heterogeneous", "seed", seed, least=0)
    name = _name(k, p, n, where, kind, correlation, cap)
    return weighed(name, mass, p, kind, correlation, seed)


def weighed(
    name: str,
    mass: Matrix,
    straggle: Floats,
    decoding: str,
    correlation: float | None = None,
    seed: int = 0,
) -> Code:
    """Return the code in which workers carry this mass, for these reliabilities.

    Args:
        name: What it is called.
        mass: Of every worker and part, shape (workers, parts); columns sum to 1.
        straggle: Probability to be late of every worker, shape (workers,).
        decoding: How, as in `heterogeneous`.
        correlation: How alike part gradients are, for `gram`.
        seed: Of the random patterns of `debiased`.
    """
    B, gauge = _means(mass)
    if decoding == "debiased":
        return _debiased(name, B, straggle, seed)
    alike = _ALIKE if correlation is None else correlation
    return Code(name, B, None, _decoder(decoding, B, gauge / (1.0 - straggle), alike))


def _means(mass: Matrix) -> tuple[Matrix, Floats]:
    """Return rows that sum to 1, where they can, and what they were divided by."""
    total: Floats = np.asarray(mass.sum(axis=1))
    size: Floats = np.asarray(abs(mass).sum(axis=1))
    gauge = np.where(np.abs(total) > 1e-3 * size, total, size)
    gauge = np.where(gauge != 0.0, gauge, 1.0)
    rows = np.repeat(np.arange(gauge.size), np.diff(mass.indptr))
    values = mass.data / gauge[rows]
    return entries(rows, mass.indices, values, mass.shape), gauge


def _decoder(kind: str, B: Matrix, weights: Floats, correlation: float) -> Decoder:
    if kind == "fixed":
        return Fixed(B, weights)
    if kind == "normalised":
        return Normalised(B, weights)
    if kind == "gram":
        alike = correlated("heterogeneous", correlation, B.shape[1])
        return GramLeastSquares(B, max(0.0, alike))  # below 0 it would give nothing
    return LeastSquares(B)


def _debiased(name: str, B: Matrix, straggle: Floats, seed: int) -> Code:
    inner = LeastSquares(B)
    mean = expected(Code(name, B, None, inner), straggle, seed=seed).weights
    if not np.all(mean > _SEEN):
        part = int(np.argmin(mean))
        problem = f"part {part} weighs {mean[part]:.1g} on average, not to be made 1"
        raise InvalidCode("heterogeneous", problem, "decoding='fixed'")
    divided = B.copy()
    divided.data /= mean[B.indices]
    return Code(name, divided, None, Debiased(divided, inner))


def _name(
    workers: int,
    straggle: Floats,
    parts: int,
    allocation: str,
    decoding: str,
    correlation: float | None,
    cap: float | None,
) -> str:
    alike = bool(np.all(straggle == straggle[0]))
    late = f"{straggle[0]:g}" if alike else "one per worker"
    options = [f"workers={workers}", f"straggle={late}", f"parts={parts}"]
    options += [f"allocation={allocation!r}", f"decoding={decoding!r}"]
    options += [] if correlation is None else [f"correlation={correlation:g}"]
    options += [] if cap is None else [f"cap={cap:g}"]
    return f"heterogeneous({', '.join(options)})"
