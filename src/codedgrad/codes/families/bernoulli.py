"""Bernoulli gradient codes (BGC). Charles, Papailiopoulos, Ellenberg, 2017."""

from __future__ import annotations

import numpy as np

from codedgrad.codes.arguments import one_of, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Decoder, Fixed, LeastSquares, OneStep
from codedgrad.codes.sparse import entries


def bernoulli(
    workers: int, copies: int, *, decoding: str = "one-step", seed: int = 0
) -> Code:
    """Give every part to every worker by the toss of a coin.

    Each of the workers x parts coefficients is 1 with probability `copies` /
    `workers`, else 0. A worker may end up without parts, and a part without workers:
    nothing is promised exactly.

    Args:
        workers: Number of workers, and of parts.
        copies: Mean number of workers that hold a part.
        decoding: `one-step` (one common weight, larger the fewer are heard), `optimal`
            (least squares), or `sum` (plain sum over `copies`, as the published
            comparison of Song and Choi runs it).
        seed: Of the coin.

    Example:
        >>> code = bernoulli(workers=6, copies=2, seed=1)
        >>> code.tolerance is None, code.parts
        (True, 6)
    """
    n = whole("bernoulli", "workers", workers, least=1)
    d = whole("bernoulli", "copies", copies, least=1, most=n)
    seed = whole("bernoulli", "seed", seed, least=0)
    kind = one_of("bernoulli", "decoding", decoding, ("one-step", "optimal", "sum"))
    rng = np.random.default_rng(seed)
    held = [np.flatnonzero(rng.random(n) < d / n) for _ in range(n)]
    rows = np.repeat(np.arange(n), [len(parts) for parts in held])
    B = entries(rows, np.concatenate(held), 1.0, (n, n))
    decoder: Decoder = LeastSquares(B)
    if kind != "optimal":
        decoder = OneStep(B, d) if kind == "one-step" else Fixed(B, 1.0 / d)
    name = f"bernoulli(workers={n}, copies={d}, decoding={kind!r}, seed={seed})"
    return Code(name, B, None, decoder)
