r"""How weights are found: one general way, and the fast ones.

A decoder is asked about many patterns at once. Row `b` of `heard`, shape
(patterns, messages), says which messages pattern `b` has; row `b` of the answer
holds its weights, zero where nothing was heard. `LeastSquares` serves every
matrix. Others know how their code was built, need no dense solve for the sets their
code tolerates, and are tested against it. The last kind, `Prescribed`, weighs by a
rule of its own: it makes no promise to be exact wherever that is possible.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.sparse import Matrix, combine, tidy

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

EXACT = 1e-13
"""A residual up to this is rounding: every part's weight is 1 within 4e-7.

`benchmarks/amplification.py` prints how far from it, on either side, the sets of late
workers stay that decode and those that do not.
"""

_DENSE = 512 * 512  # entries; beyond, iteration is tried before the SVD
_LARGEST_DENSE = 4096 * 4096
_CACHE_BYTES = 32 * 2**20


class Decoder(Protocol):
    """What a code needs of whatever finds its weights."""

    def weights(self, heard: Bools) -> Floats:
        """Return the best weights it knows, shape (patterns, messages)."""
        ...

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns give the sum exactly, shape (patterns,)."""
        ...


def residuals(B: Matrix, weights: Floats) -> Floats:
    r"""Return $\lVert a^\top B - \mathbf 1^\top \rVert_2^2$ for every row $a$."""
    gap = combine(weights, B) - 1.0
    return np.asarray(np.einsum("bk,bk->b", gap, gap))


class LeastSquares:
    r"""The general decoder: $\min_a \lVert a^\top B_H - \mathbf 1^\top \rVert_2$.

    Of several minimisers it takes the one of least norm. Works on the rows heard
    and the parts they hold: by SVD up to 512 x 512, by sparse iteration beyond. Where
    that does not converge, by SVD again; above 4096 x 4096 the weights are then the
    best found, and their residual is still their own. Answers are kept by pattern in
    a cache of bounded size.

    Args:
        B: Coefficients, shape (messages, parts).
        cache_bytes: The size of the cache.
        target: What to come nearest to instead of ones, shape (parts,).
    """

    def __init__(
        self,
        B: Matrix,
        cache_bytes: int = _CACHE_BYTES,
        target: Floats | None = None,
    ) -> None:
        self._B = B  # of a code cut into even pieces, that of the code before
        self._target = np.ones(B.shape[1]) if target is None else target
        self._entries = max(16, cache_bytes // (8 * max(1, B.shape[0])))
        self._known: dict[bytes, Floats] = {}  # least recently used first

    def weights(self, heard: Bools) -> Floats:
        """Return the weights of least misfit."""
        return np.stack([self._recall(pattern.tobytes()) for pattern in heard])

    @property
    def problem(self) -> tuple[Matrix, Floats]:
        """Its matrix, and what it comes nearest to."""
        return self._B, self._target

    @property
    def shape(self) -> tuple[int, int]:
        """Messages and parts of its matrix."""
        return self._B.shape

    def row(self, message: int) -> Floats:
        """Return the coefficients of a message, dense."""
        return np.asarray(self._B[[message]].toarray()[0])

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns have residual 0; no solve where a part is absent."""
        return _exact_if_covered(self, self._B, heard)

    def over(self, B: Matrix) -> LeastSquares:
        """Return the decoder of `B`, the same messages over other parts."""
        return LeastSquares(B)

    def _recall(self, pattern: bytes) -> Floats:
        answer = self._known.pop(pattern, None)
        self._known[pattern] = answer = (
            self._solve(pattern) if answer is None else answer
        )
        if len(self._known) > self._entries:  # safe with other threads at it
            for old in list(self._known)[: len(self._known) // 2]:
                self._known.pop(old, None)
        return answer

    def _solve(self, pattern: bytes) -> Floats:
        heard = np.flatnonzero(np.frombuffer(pattern, dtype=np.bool_))
        answer = np.zeros(self._B.shape[0])
        rows = self._B[heard]
        parts = np.unique(rows.indices)
        if parts.size:  # the other parts weigh 0 whatever we choose
            answer[heard] = _least_squares(rows[:, parts].T, self._target[parts])
        answer.flags.writeable = False
        return answer


def _exact_if_covered(decoder: Decoder, B: Matrix, heard: Bools) -> Bools:
    """Return which patterns are exact; no weights are found where a part is absent."""
    holders = combine(heard.astype(np.float64), abs(B))
    exact = np.asarray(np.all(holders > 0, axis=1))
    some = np.flatnonzero(exact)
    if some.size:
        exact[some] = residuals(B, decoder.weights(heard[some])) <= EXACT
    return exact


def _least_squares(A: Any, target: Floats) -> Floats:
    """Return the x of least norm that brings `A` x nearest to `target`."""
    size = A.shape[0] * A.shape[1]
    if size > _DENSE:
        from scipy.sparse.linalg import lsmr

        most = 20 * min(A.shape)
        x, stop, *_ = lsmr(A, target, atol=1e-15, btol=1e-15, conlim=0, maxiter=most)
        ran_out = 7
        if stop != ran_out or size > _LARGEST_DENSE:
            return np.asarray(x)
    return np.asarray(np.linalg.lstsq(A.toarray(), target, rcond=None)[0])


class FirstHeard:
    """For replicas of one message: take the lowest one heard, whole."""

    def weights(self, heard: Bools) -> Floats:
        """Return 1 for the first message heard, 0 elsewhere."""
        answer = np.zeros(heard.shape)
        first = np.argmax(heard, axis=1)
        answer[np.arange(len(heard)), first] = heard.any(axis=1)
        return answer

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns heard any replica at all."""
        return np.asarray(heard.any(axis=1))


@dataclass(frozen=True, slots=True)
class PerBlock:
    """For block-diagonal codes of equal blocks: decode each block by itself.

    Attributes:
        inner: The decoder of one block.
        blocks: How many blocks; consecutive messages share one.
        idle: Messages without parts: they count as heard.
    """

    inner: Decoder
    blocks: int
    idle: tuple[int, ...] = ()

    def weights(self, heard: Bools) -> Floats:
        """Return every block's own best weights, side by side."""
        return self.inner.weights(self._apart(heard)).reshape(heard.shape)

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns are decodable in all blocks."""
        each = self.inner.decodable(self._apart(heard))
        return np.asarray(np.all(each.reshape(len(heard), self.blocks), axis=1))

    def _apart(self, heard: Bools) -> Bools:
        size = heard.shape[1] // self.blocks
        if self.idle:
            heard = heard.copy()
            heard[:, self.idle] = True
        return heard.reshape(len(heard) * self.blocks, size)


class NullSpace:
    r"""For codes of which any $n - s$ rows decode, with a known left null space.

    With $N$ ($n \times s$, orthonormal, $N^\top B = 0$) and one solution $a_0$ of
    $a_0^\top B = \mathbf 1^\top$ orthogonal to it, all solutions are
    $a = a_0 + N z$. Zeros on the late rows $L$ fix $z$: $N_L z = -a_{0,L}$, an
    $s \times s$ system, $O(s^3 + n s)$ in all. Fewer late rows leave the solution
    of least norm; more may still be consistent, and otherwise least squares
    gives the smallest misfit.
    """

    def __init__(self, B: Matrix, N: Floats, a0: Floats) -> None:
        self._B, self._N, self._a0 = B, N, a0
        self._general = LeastSquares(B)

    def weights(self, heard: Bools) -> Floats:
        """Return exact weights where there are any, else those of least misfit."""
        answer = self._solve(heard)
        # Up to s late there is a solution; if an ill-conditioned code has lost digits
        # of it, the residual says so. The general decoder is not asked: its time is not
        # bounded by O(s^3 + n s).
        late = np.count_nonzero(~heard, axis=1)
        exact = residuals(self._B, answer) <= EXACT  # not so for NaN
        again = (late > self._N.shape[1]) & ~exact
        if again.any():
            answer[again] = self._general.weights(heard[again])
        return answer

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns are consistent, without looking for the best misfit."""
        return residuals(self._B, self._solve(heard)) <= EXACT

    def over(self, B: Matrix) -> NullSpace:
        """Return the decoder of `B`, which holds every part of this one, repeated.

        The null space is the same. What cannot be exact is best for the parts of `B`.
        """
        again = copy(self)
        again._general = LeastSquares(B)
        return again

    def _solve(self, heard: Bools) -> Floats:
        answer = np.empty(heard.shape)
        late = np.count_nonzero(~heard, axis=1)
        for count in np.unique(late):
            alike = np.flatnonzero(late == count)
            try:
                answer[alike] = self._with_late(heard[alike], int(count))
            except np.linalg.LinAlgError:  # a null space that is not generic
                answer[alike] = self._general.weights(heard[alike])
        return answer

    def _with_late(self, heard: Bools, late: int) -> Floats:
        n, s = self._N.shape
        if late == n:
            return np.zeros(heard.shape)
        if n - late <= s <= late:  # few heard: their own rows are the smaller system
            return self._from_heard(heard, n - late)
        where = np.nonzero(~heard)[1].reshape(len(heard), late)
        N_L, wanted = self._N[where], -self._a0[where][..., None]
        if late == s:
            z = np.linalg.solve(N_L, wanted)
        elif late < s:  # least norm: N_L^T = Q R, z = Q R^-T wanted
            Q, R = np.linalg.qr(N_L.swapaxes(1, 2))
            z = Q @ np.linalg.solve(R.swapaxes(1, 2), wanted)
        else:  # overdetermined: exact only if consistent
            Q, R = np.linalg.qr(N_L)
            z = np.linalg.solve(R, Q.swapaxes(1, 2) @ wanted)
        answer: Floats = self._a0 + z[..., 0] @ self._N.T
        answer[~heard] = 0.0
        return answer

    def _from_heard(self, heard: Bools, count: int) -> Floats:
        where = np.nonzero(heard)[1]
        rows = self._B[where].toarray().reshape(len(heard), count, -1)
        Q, R = np.linalg.qr(rows.swapaxes(1, 2))
        answer = np.zeros(heard.shape)
        ones = Q.sum(axis=1)[..., None]
        answer[heard] = np.linalg.solve(R, ones).ravel()
        return answer


class Prescribed:
    """Weights by a rule: what is exact now need not be so with more messages heard."""

    def __init__(self, B: Matrix) -> None:
        self._B = B

    def weights(self, heard: Bools) -> Floats:
        """Return the weights of the rule."""
        raise NotImplementedError

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns happen to sum to 1 on every part."""
        return residuals(self._B, self.weights(heard)) <= EXACT

    def over(self, B: Matrix) -> Prescribed:
        """Return the same rule for `B`, the same messages over other parts."""
        again = copy(self)
        again._B = B
        return again


class Fixed(Prescribed):
    """A weight of its own for every message, whoever else was heard.

    Args:
        B: Coefficients, shape (messages, parts).
        weights: One for all messages or one each; by default 1.
    """

    def __init__(self, B: Matrix, weights: float | Floats = 1.0) -> None:
        super().__init__(B)
        self._each = np.broadcast_to(np.asarray(weights, np.float64), B.shape[:1])

    def weights(self, heard: Bools) -> Floats:
        """Return the weight of every message heard."""
        return np.where(heard, self._each, 0.0)


class OneStep(Prescribed):
    r"""The common weight $n / (r d)$ for $r$ of $n$ messages and $d$ copies a part.

    It makes the mean weight of a part 1 over random sets of $r$ messages.
    """

    def __init__(self, B: Matrix, copies: float) -> None:
        super().__init__(B)
        self._copies = copies
        self._counts = np.ones(B.shape[0], dtype=np.bool_)

    def weights(self, heard: Bools) -> Floats:
        """Return the same weight for every message heard."""
        heard = heard & self._counts
        count = np.maximum(np.count_nonzero(heard, axis=1), 1)[:, None]
        total = np.count_nonzero(self._counts)
        return np.asarray(heard * (total / (count * self._copies)))

    def over(self, B: Matrix) -> OneStep:
        """Return the same rule for `B`, without messages that it leaves empty.

        Those are heard always, and counting them would make the weights too small.
        """
        again = OneStep(B, self._copies)
        again._counts = self._counts & (
            (np.diff(B.indptr) > 0) | (np.diff(self._B.indptr) == 0)
        )
        return again


class Normalised(Prescribed):
    r"""Fixed weights, scaled so that the weights of all parts sum to their number.

    $a_i = w_i \, n / \sum_{l \in H} w_l \sum_j B_{lj}$: the error that all parts have
    in common vanishes, for a little bias. Where nothing was heard, or what was cancels
    out, there are no weights.
    """

    def __init__(self, B: Matrix, weights: float | Floats = 1.0) -> None:
        super().__init__(B)
        self._each = np.broadcast_to(np.asarray(weights, np.float64), B.shape[:1])
        self._mass = self._each * np.asarray(B.sum(axis=1))

    def weights(self, heard: Bools) -> Floats:
        """Return the weights of the messages heard, to a common scale."""
        total = heard @ self._mass
        some = total > 1e-9 * (heard @ np.abs(self._mass))
        scale = np.where(some, self._B.shape[1] / np.where(some, total, 1.0), 0.0)
        return np.asarray(heard * self._each * scale[:, None])

    def over(self, B: Matrix) -> Normalised:
        """Return the same weights, scaled to the parts of `B`."""
        return Normalised(B, self._each)


class GramLeastSquares(Prescribed):
    r"""Least squares for part gradients that are alike: least error, not misfit.

    With $G = (1 - \rho) I + \rho \mathbf 1 \mathbf 1^\top$ the inner products of part
    gradients, and $e = B_H^\top a - \mathbf 1$ the misfit, it minimises
    $e^\top G e = (1 - \rho) \lVert e \rVert^2 + \rho \, (\sum_j e_j)^2$: one equation
    more than `LeastSquares` has, which does the work and keeps the answers.

    Args:
        B: Coefficients, shape (messages, parts).
        correlation: $\rho$, from 0 to below 1.
    """

    def __init__(self, B: Matrix, correlation: float) -> None:
        from scipy.sparse import csr_array, hstack

        super().__init__(B)
        self._correlation = correlation
        scale = np.sqrt(correlation / (1.0 - correlation))
        total = csr_array(scale * np.asarray(B.sum(axis=1))[:, None])
        target = np.append(np.ones(B.shape[1]), scale * B.shape[1])
        self.general = LeastSquares(tidy(hstack([B, total])), target=target)

    def weights(self, heard: Bools) -> Floats:
        """Return the weights of least error."""
        return self.general.weights(heard)

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns have residual 0; no solve where a part is absent."""
        return _exact_if_covered(self, self._B, heard)

    def over(self, B: Matrix) -> GramLeastSquares:
        """Return the decoder of `B`, the same messages over other parts."""
        return GramLeastSquares(B, self._correlation)


class Debiased(Prescribed):
    """The weights that another decoder finds for another matrix.

    That of `B` with every part multiplied by the mean weight it gets there: `B` gives
    each the mean weight 1. It decodes what its own matrix says, not the other one.

    Args:
        B: Coefficients, shape (messages, parts).
        general: The decoder of the matrix that is not divided.
    """

    def __init__(self, B: Matrix, general: LeastSquares) -> None:
        super().__init__(B)
        self.general = general

    def weights(self, heard: Bools) -> Floats:
        """Return the weights found for the other matrix."""
        return self.general.weights(heard)

    def decodable(self, heard: Bools) -> Bools:
        """Return which patterns have residual 0; no solve where a part is absent."""
        return _exact_if_covered(self, self._B, heard)
