r"""Real circulant codes of cyclic support, for every number of workers.

Let $g$ have the $s$ roots $-e^{i\varphi}$, $\varphi = 2\pi m/n$ with $m$ running from
$-(s-1)/2$ to $(s-1)/2$ in steps of 1. They come in conjugate pairs, so $g$ is real,
and they are neighbours on the unit circle, so by the BCH bound the multiples of $g$
modulo $x^n \mp 1$ form an MDS code: any $n - s$ of its rows span it.

- $n - s$ odd: they are roots of $x^n - 1$. Row $i$ is $x^i g(x) \bmod x^n - 1$, and
  the ones vector is in the row space because $g(1) \ne 0$ (Raviv et al., arXiv
  1707.03858).
- $n - s$ even: they are roots of $x^n + 1$. Row $i$ is $x^i g(x) \bmod x^n + 1$:
  what wraps around changes sign. The ones vector is not in the row space, but its
  projection $c$ on it is; dividing column $j$ by $c_j$ turns $c$ into ones and
  keeps the support. (This variant is ours.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Floats, NullSpace
from codedgrad.codes.sparse import Matrix, entries


@dataclass(frozen=True, slots=True)
class Circulant:
    """The few numbers that fix a circulant code.

    Attributes:
        angles: The offsets of the roots from -1 on the unit circle, shape (s,).
        generator: Coefficients of g, lowest first, shape (s + 1,).
        wrap: Sign of what wraps around: 1 circulant, -1 negacyclic.
        scale: The projection c of ones on the row space, shape (n,).
    """

    angles: Floats
    generator: Floats
    wrap: int
    scale: Floats

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.scale.size

    @property
    def tolerance(self) -> int:
        """Late workers survived."""
        return self.angles.size

    def matrix(self) -> Matrix:
        """Return B, shape (n, n)."""
        n, s = self.workers, self.tolerance
        column = np.arange(n)[:, None] + np.arange(s + 1)
        values = np.where(column < n, 1.0, self.wrap) * self.generator
        column %= n
        values /= self.scale[column]
        rows = np.repeat(np.arange(n), s + 1)
        return entries(rows, column.ravel(), values.ravel(), (n, n))

    def code(self, name: str) -> Code:
        """Return the code, with its fast decoder."""
        B = self.matrix()
        N = _null_space(self.angles, self.workers)
        decoder = NullSpace(B, N, self._one_solution())
        return Code(name, B, self.tolerance, decoder)

    def window_amplification(self) -> float:
        """Return the amplification when the last s workers are late, in O(n s).

        The rows heard are then triangular in the first n - s parts, so the weights
        are the power series c(x) / g(x): no matrix is needed to see that a code is
        hopeless.
        """
        from scipy.linalg import solve_banded

        n, s = self.workers, self.tolerance
        if not np.all(np.isfinite(self.generator)):
            return np.inf
        diagonals = np.broadcast_to(self.generator[:, None], (s + 1, n - s))
        weights = solve_banded((s, 0), diagonals, self.scale[: n - s])
        norms = np.convolve(1 / np.abs(self.scale), np.abs(self.generator), "valid")
        return float(np.abs(weights) @ norms) / n

    def _one_solution(self) -> Floats:
        """Return the solution a of a(x) g(x) = c(x) orthogonal to the null space."""
        n, s = self.workers, self.tolerance
        if self.wrap == 1:
            return np.full(n, 1.0 / self.generator.sum())
        points = np.exp(1j * np.pi * (2 * np.arange(n) + 1) / n)
        g = np.ones(n, dtype=np.complex128)
        for angle in self.angles:
            g *= points + np.exp(1j * angle)
        g[_root_numbers(n, s)] = np.inf  # c and a are 0 there
        return _back(_values(self.scale) / g)


def circulant(workers: int, tolerance: int) -> Circulant:
    """Return the real circulant code with 0 < `tolerance` < `workers`."""
    n, s = workers, tolerance
    angles = np.asarray(2 * np.pi / n * (np.arange(s) - (s - 1) / 2), np.float64)
    generator = np.ones(1)
    with np.errstate(over="ignore", invalid="ignore"):  # hopeless codes overflow
        for angle in angles[s // 2 :][_spread(s - s // 2)]:
            factor = [1.0, 2 * np.cos(angle), 1.0] if angle > 0 else [1.0, 1.0]
            generator = np.convolve(generator, factor)
    if (n - s) % 2 == 1:
        return Circulant(angles, generator, wrap=1, scale=np.ones(n))
    ones = _values(np.ones(n))
    ones[_root_numbers(n, s)] = 0.0
    return Circulant(angles, generator, wrap=-1, scale=_back(ones))


def _spread(count: int) -> list[int]:
    """Return 0 to `count` - 1 with neighbours far apart (bits reversed).

    Multiplying the factors in this order keeps the products small. In the order of
    the roots they grow huge and cancel again when s is near n, and digits are lost.
    """
    bits = max(1, (count - 1).bit_length())
    reverse = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits))
    return [i for i in reverse if i < count]


def _root_numbers(n: int, s: int) -> slice:
    """Return which of the roots exp(i pi (2 j + 1) / n) of x^n + 1 are roots of g."""
    return slice((n - s) // 2, (n + s) // 2)


def _values(polynomial: Floats) -> NDArray[np.complex128]:
    """Return the values of a polynomial at the roots of x^n + 1, over n."""
    n = polynomial.size
    return np.fft.ifft(polynomial * np.exp(1j * np.pi * np.arange(n) / n))


def _back(values: NDArray[np.complex128]) -> Floats:
    """Return the real polynomial that has these values."""
    n = values.size
    return np.real(np.fft.fft(values) * np.exp(-1j * np.pi * np.arange(n) / n))


def _null_space(angles: Floats, n: int) -> Floats:
    """Return the orthonormal left null space of the circulant, shape (n, s).

    Its columns are the real and imaginary parts of the powers of the roots.
    """
    s = angles.size
    i = np.arange(n)[:, None]
    sign = np.where(i % 2, -1.0, 1.0)
    turns = i * angles[(s + 1) // 2 :]
    pairs = [np.cos(turns), np.sin(turns)]
    alone = [np.full((n, 1), np.sqrt(0.5))] if s % 2 else []
    N: Floats = np.sqrt(2 / n) * sign * np.hstack(pairs + alone)
    return N
