r"""How far off a code is on average, when every worker is late by itself.

With $c_j$ the weight part $j$ ends up with, and $G$ the inner products of the part
gradients, the squared error of the sum is $(c - \mathbf 1)^\top G (c - \mathbf 1)$.
Two models of $G$ say most: all gradients equal, and all orthogonal. Anything of the
form $(1 - \rho) I + \rho \mathbf 1 \mathbf 1^\top$ is a mixture of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codedgrad.codes.arguments import probabilities, whole
from codedgrad.codes.code import Code, a_code
from codedgrad.codes.decoders import (
    Bools,
    Debiased,
    Decoder,
    Floats,
    GramLeastSquares,
    LeastSquares,
)
from codedgrad.codes.sparse import combine
from codedgrad.errors import InvalidCode

_ENUMERATED = 16  # workers up to which all patterns are looked at
_CHUNK = 2**20  # entries of the weights looked at at once
_LARGEST = 20_000  # numbers for a pattern, beyond which patterns go one by one
_RIDGE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    r"""The mean squared error of a code, relative to $\lVert \sum_j g_j \rVert^2$.

    A code that always gives zero scores 1.

    Attributes:
        aligned: Where all part gradients are equal: $E(\sum_j c_j - n)^2 / n^2$.
        orthogonal: Where they are orthogonal and of one length:
            $E \lVert c - \mathbf 1 \rVert^2 / n$, the mean residual for each part.
        weights: The mean weight of every part, shape (parts,); 1 where unbiased.
        patterns: How many sets of late workers were looked at.
        is_exact: Whether those were all, each with its probability; else a sample.
    """

    aligned: float
    orthogonal: float
    weights: Floats
    patterns: int
    is_exact: bool

    def error(self, correlation: float) -> float:
        r"""Return the relative error for $G = (1-\rho) I + \rho 11^\top$.

        Args:
            correlation: $\rho$, above $-1 / (n - 1)$, where the sum itself vanishes,
                and at most 1.
        """
        n = self.weights.size
        length = 1.0 - correlation + correlation * n  # of the sum, by that of a part
        if not correlation <= 1.0 or not length > 0.0:
            problem = f"correlation = {correlation} is none that {n} parts have"
            advice = "a number up to 1, above -1 / (parts - 1)"
            raise InvalidCode("error", problem, advice)
        apart, alike = (1.0 - correlation) / length, correlation * n / length
        return apart * self.orthogonal + alike * self.aligned


def expected(
    code: Code,
    straggle: float | Sequence[float] | Floats,
    *,
    seed: int = 0,
    patterns: int = 10_000,
) -> Expected:
    """Return how far off a code is on average, and towards which parts.

    Exact up to 16 workers, by all sets of late ones; beyond, an estimate from random
    sets. All messages of a late worker are missing.

    Args:
        code: Of any family.
        straggle: Probability to be late, in [0, 1), one for all or one per worker.
        seed: Of the sets, if they are drawn.
        patterns: How many are drawn.

    Example:
        >>> from codedgrad.codes import stochastic
        >>> found = expected(stochastic(workers=10, copies=2, straggle=0.5), 0.5)
        >>> found.is_exact, found.patterns, round(found.orthogonal, 9)
        (True, 1024, 0.5)
    """
    a_code("expected", "code", code)
    p = probabilities("expected", "straggle", straggle, code.workers)
    count = whole("expected", "patterns", patterns, least=1)
    seed = whole("expected", "seed", seed, least=0)
    is_exact = code.workers <= _ENUMERATED
    batch = max(1, _CHUNK // max(code.messages, code.parts))
    sets = _all(p, batch) if is_exact else _drawn(p, batch, count, seed)
    owner, n = np.asarray(code.owner), code.parts
    aligned = orthogonal = 0.0
    weights = np.zeros(n)
    for heard, law in sets:
        part_weights = combine(_weights(code.decoder, heard[:, owner]), code.B)
        gap = part_weights - 1.0
        aligned += float(law @ gap.sum(axis=1) ** 2) / n**2
        orthogonal += float(law @ np.einsum("bj,bj->b", gap, gap)) / n
        weights += law @ part_weights
    seen = 2**code.workers if is_exact else count
    return Expected(aligned, orthogonal, weights, seen, is_exact)


def _weights(decoder: Decoder, heard: Bools) -> Floats:
    if isinstance(decoder, GramLeastSquares | Debiased):
        decoder = decoder.general
    if isinstance(decoder, LeastSquares):
        return least_squares(decoder, heard)
    return decoder.weights(heard)


def least_squares(decoder: LeastSquares, heard: Bools) -> Floats:
    """Return weights of the same misfit as the decoder's, all patterns at once.

    Up to a hundred times faster for thousands of patterns, and nothing is kept. Of
    several minimisers it may take another one, and rounding differs.
    """
    B, target = decoder.problem
    system = _Normal.of(B.toarray(), target)
    if system.size > _LARGEST:
        return decoder.weights(heard)
    batch = max(1, _CHUNK // system.size)
    cut = [heard[low : low + batch] for low in range(0, len(heard), batch)]
    return np.concatenate([system.solve(some) for some in cut])


@dataclass(frozen=True, slots=True, eq=False)
class _Normal:
    """Normal equations of all rows, of which patterns keep some.

    Rows of length 1, in their order, of which neighbours overlap most: what is left of
    the first overlap of a row stays zero in elimination. All numbers of a row are
    vectors over patterns. A late row is one of the identity. Rows may be dependent,
    hence a ridge, the trace of which two more rounds remove.

    Attributes:
        gram: Inner products of the rows.
        wanted: Inner products of the rows with the target.
        norms: Of the rows as they were.
        first: The first row that each row overlaps with.
    """

    gram: Floats
    wanted: Floats
    norms: Floats
    first: list[int]

    @classmethod
    def of(cls, B: Floats, target: Floats) -> _Normal:
        norms = np.linalg.norm(B, axis=1)
        norms = np.where(norms > 0, norms, 1.0)
        rows = B / norms[:, None]
        gram = rows @ rows.T
        first = [
            int(np.argmax(np.append(row[:i] != 0, True))) for i, row in enumerate(gram)
        ]
        return cls(gram, rows @ target, norms, first)

    @property
    def size(self) -> int:
        """Numbers that elimination keeps for each pattern."""
        return sum(i - low + 1 for i, low in enumerate(self.first))

    def solve(self, heard: Bools) -> Floats:
        """Return weights, shape (patterns, rows)."""
        there = heard.T.astype(np.float64)
        lower, pivots = self._factors(there)
        wanted = there * self.wanted[:, None]
        x = self._solved(lower, pivots, wanted)
        for _ in range(2):
            left = wanted - there * (self.gram @ x)
            x += self._solved(lower, pivots, left)
        return np.asarray((there * x / self.norms[:, None]).T)

    def _factors(self, there: Floats) -> tuple[list[Floats], Floats]:
        """Return L, by row from its first entry on, and D of L D L^T."""
        lower: list[Floats] = []
        pivots = np.empty(there.shape)
        for i, low in enumerate(self.first):
            scaled = there[low:i] * there[i] * self.gram[i, low:i, None]
            for j in range(low, i):
                m = max(low, self.first[j])
                known = lower[j][m - self.first[j] :]
                scaled[j - low] -= _dot(scaled[m - low : j - low], known)
            lower.append(scaled / pivots[low:i])
            own = np.where(there[i] > 0, self.gram[i, i] + _RIDGE, 1.0)
            pivots[i] = np.maximum(own - _dot(scaled, lower[i]), _RIDGE)
        return lower, pivots

    def _solved(self, lower: list[Floats], pivots: Floats, wanted: Floats) -> Floats:
        x = wanted.copy()
        for i, low in enumerate(self.first):
            x[i] -= _dot(lower[i], x[low:i])
        x /= pivots
        for i in range(len(x) - 1, -1, -1):
            x[self.first[i] : i] -= lower[i] * x[i]
        return x


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("mb,mb->b", a, b))


def _all(p: Floats, batch: int) -> Iterator[tuple[Bools, Floats]]:
    """Yield all patterns of workers heard, and their probabilities."""
    for low in range(0, 2**p.size, batch):
        numbers = np.arange(low, min(low + batch, 2**p.size))
        heard = (numbers[:, None] >> np.arange(p.size)) & 1 == 1
        yield heard, np.prod(np.where(heard, 1.0 - p, p), axis=1)


def _drawn(
    p: Floats, batch: int, count: int, seed: int
) -> Iterator[tuple[Bools, Floats]]:
    """Yield random patterns, all equally likely."""
    rng = np.random.default_rng(seed)
    for low in range(0, count, batch):
        size = min(batch, count - low)
        yield rng.random((size, p.size)) >= p, np.full(size, 1.0 / count)
