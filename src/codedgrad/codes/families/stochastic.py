"""Stochastic gradient coding (SGC). Bitar, Wootters, El Rouayheb, 2019."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.arguments import one_of, probabilities, whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Fixed, Floats
from codedgrad.codes.families.allocation import odds
from codedgrad.codes.sparse import entries


def stochastic(
    workers: int,
    copies: int,
    straggle: float | Sequence[float] | Floats,
    *,
    placement: str = "random",
    weights: str = "equal",
    seed: int = 0,
) -> Code:
    r"""Give every part to a few random workers, and simply add what arrives.

    Worker $i$ of the $d$ that hold a part multiplies it by $1 / (d (1 - p_i))$, with
    $p_i$ its probability to be late. The sum of the messages heard is then right on
    average, whatever the gradients are; `expected` says how far off it is. The paper
    has one $p$ for all workers; a $p_i$ for each is as in the code published with Song
    and Choi, arXiv 2510.22539.

    A part may also be divided among its holders in proportion to their odds to be
    heard, $(1 - p_i) / p_i$. Of all fixed weights that are right on average these have
    the least residual; for equal $p$ they are the same.

    Args:
        workers: Number of workers, and of parts.
        copies: Workers that hold a part.
        straggle: Probability to be late, in [0, 1), one for all or one per worker.
        placement: `random`, or `cyclic`: worker i holds the parts from i on.
        weights: `equal` shares of a part, or `inverse-odds` (of being late).
        seed: Of the placement, if it is random.

    Example:
        >>> code = stochastic(workers=4, copies=2, straggle=0.5)
        >>> float(code.B.sum(axis=0)[0])  # each part: 2 copies, 1 / (2 * 0.5) each
        2.0
    """
    n = whole("stochastic", "workers", workers, least=1)
    d = whole("stochastic", "copies", copies, least=1, most=n)
    seed = whole("stochastic", "seed", seed, least=0)
    where = one_of("stochastic", "placement", placement, ("random", "cyclic"))
    kind = one_of("stochastic", "weights", weights, ("equal", "inverse-odds"))
    p = probabilities("stochastic", "straggle", straggle, n)
    holders = _random(n, d, seed) if where == "random" else _cyclic(n, d)
    share = np.ones(n) if kind == "equal" else odds(p)
    shares = share[holders] / share[holders].sum(axis=1, keepdims=True)
    values = shares / (1.0 - p[holders])
    parts = np.repeat(np.arange(n), d)
    B = entries(holders.ravel(), parts, values.ravel(), (n, n))
    late = f"{p[0]:g}" if np.all(p == p[0]) else "one per worker"
    name = f"stochastic(workers={n}, copies={d}, straggle={late}"
    name += f", placement={where!r}" if where != "random" else ""
    name += f", weights={kind!r}" if kind != "equal" else ""
    return Code(f"{name}, seed={seed})", B, None, Fixed(B))


def _random(workers: int, copies: int, seed: int) -> NDArray[np.intp]:
    """Return who holds each part, shape (parts, copies)."""
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(workers, copies, replace=False) for _ in range(workers)]
    return np.asarray(drawn, dtype=np.intp)


def _cyclic(workers: int, copies: int) -> NDArray[np.intp]:
    return (np.arange(workers)[:, None] - np.arange(copies)) % workers
