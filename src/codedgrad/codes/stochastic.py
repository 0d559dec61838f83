"""Stochastic gradient coding (SGC). Bitar, Wootters, El Rouayheb, 2019."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedgrad.codes.arguments import probabilities, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Fixed
from codedgrad.codes.sparse import entries


def stochastic(
    workers: int,
    copies: int,
    straggle: float | Sequence[float],
    *,
    seed: int = 0,
) -> Code:
    r"""Give every part to a few random workers, and simply add what arrives.

    Worker $i$ of the $d$ that hold a part multiplies it by $1 / (d (1 - p_i))$, with
    $p_i$ its probability to be late. The sum of the messages heard is then right on
    average, whatever the gradients are; `bounds.stochastic_residual` says how far off
    it is in one step. The paper has one $p$ for all workers; a $p_i$ for each is as in
    the code published with Song and Choi, arXiv 2510.22539.

    Args:
        workers: Number of workers, and of parts.
        copies: Workers that hold a part.
        straggle: Probability to be late, in [0, 1), one for all or one per worker.
        seed: Of the placement.

    Example:
        >>> code = stochastic(workers=4, copies=2, straggle=0.5)
        >>> float(code.B.sum(axis=0)[0])  # each part: 2 copies, 1 / (2 * 0.5) each
        2.0
    """
    n = whole("stochastic", "workers", workers, least=1)
    d = whole("stochastic", "copies", copies, least=1, most=n)
    seed = whole("stochastic", "seed", seed, least=0)
    p = probabilities("stochastic", "straggle", straggle, n)
    rng = np.random.default_rng(seed)
    holders = np.concatenate([rng.choice(n, d, replace=False) for _ in range(n)])
    parts = np.repeat(np.arange(n), d)
    values = 1.0 / (d * (1.0 - p[holders]))
    B = entries(holders, parts, values, (n, n))
    late = f"{p[0]:g}" if np.all(p == p[0]) else "one per worker"
    name = f"stochastic(workers={n}, copies={d}, straggle={late}, seed={seed})"
    return Code(name, B, None, Fixed(B))
