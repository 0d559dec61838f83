r"""Exact codes for workers of different speed: parts in proportion to it.

Heterogeneity-aware gradient coding: all workers are done at the same time if nobody is
late, and any few may be late. Each part has $s + 1$ owners. The support is the usual
one (loads in proportion to speeds, laid end to end around the parts); the papers draw
coefficients at random, ours are chosen to keep their digits:

Worker $i$ has a point $\theta_i$ on the circle, and one point more, $\tau$, stands for
the sum. Let $q$ run over products of $s$ factors $\sin((\theta - \phi)/2)$ and their
sums, a space of dimension $s + 1$ in which $s$ zeros fix $q$ up to a factor. The
coefficients of part $j$ are those that read $q(\tau)$ off its owners,
$\sum_i B_{ij} q(\theta_i) = q(\tau)$, so weights $a_i = q(\theta_i) / q(\tau)$ give the
sum for any $q$: also for the one that is zero at all late workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.amplification import LIMIT
from codedgrad.codes.arguments import whole
from codedgrad.codes.code import Code
from codedgrad.codes.decoders import Floats, LeastSquares
from codedgrad.codes.late_sets import Sets, late_sets
from codedgrad.codes.sparse import Matrix, entries
from codedgrad.errors import IllConditioned, InvalidCode

_MOST_PIECES = 4  # parts for each worker, where nobody says
_UNEVEN = 1.05  # how much later than the others a worker may be done
_TURNS = 32  # places of the point of the sum that are tried
_TRIED = 1000  # sets of late workers that each of them is judged by
_SLOWEST = 1e-300  # of the fastest: nobody is taken to be slower


def proportional(
    workers: int,
    tolerance: int,
    speeds: float | Sequence[float] | Floats,
    *,
    parts: int | None = None,
    accept_amplification: bool = False,
) -> Code:
    """Give fast workers more parts, so that any few may be late.

    Args:
        workers: Number of workers.
        tolerance: Late workers survived, whoever they are.
        speeds: Of the workers, in any unit; one number for all, or one per worker.
        parts: Number of parts. By default the smallest of 1, 2, 3 or 4 times `workers`
            with which nobody is done more than 5 % later than in exact proportion,
            or the one of them that comes nearest.
        accept_amplification: Build the code even if it loses digits.

    Raises:
        InvalidCode: For impossible numbers.
        IllConditioned: If decoding would amplify rounding more than 500 times.

    Example:
        >>> code = proportional(workers=4, tolerance=1, speeds=[1, 1, 2, 4])
        >>> [len(parts) for parts in code.placement], code.parts
        ([1, 1, 2, 4], 4)
        >>> code.decodable([0, 1, 2]), code.decodable([0, 1])
        (True, False)
    """
    k = whole("proportional", "workers", workers, least=1)
    s = whole("proportional", "tolerance", tolerance, least=0, most=k - 1)
    v = _scaled(_speeds(speeds, k))
    if parts is None:
        n = min(
            (m * k for m in range(1, _MOST_PIECES + 1)),
            key=lambda n: max(_UNEVEN, _unevenness(v, n, s)),
        )
    else:
        n = whole("proportional", "parts", parts, least=1)
    name = f"proportional(workers={k}, tolerance={s}, speeds=one per worker, parts={n})"
    B, found = _best(loads(v, n, s), n, s)
    if found > LIMIT and not accept_amplification:
        fewer = next(t for t in range(s - 1, -1, -1) if _is_fine(v, n, t))
        choice = f"proportional(workers={k}, tolerance={fewer}, speeds=speeds)"
        raise IllConditioned(name, found, LIMIT, [choice])
    return Code(name, B, s, LeastSquares(B))


def loads(speeds: Floats, parts: int, tolerance: int) -> NDArray[np.intp]:
    """Return how many parts each worker holds, in proportion to its speed.

    They sum to `parts` x (`tolerance` + 1), by largest remainder; nobody holds more
    than all parts.

    Example:
        >>> loads(np.array([1.0, 2.0, 9.0]), parts=6, tolerance=1).tolist()
        [2, 4, 6]
    """
    ideal = _ideal(_scaled(speeds), parts, tolerance)
    found = np.floor(ideal + 1e-9).astype(np.intp)
    missing = parts * (tolerance + 1) - int(found.sum())
    found[np.argsort(found - ideal, kind="stable")[:missing]] += 1
    return found


def _ideal(speeds: Floats, parts: int, tolerance: int) -> Floats:
    full = np.zeros(speeds.size, dtype=np.bool_)
    while True:  # once for every worker at most
        rest = parts * (tolerance + 1 - np.count_nonzero(full))
        ideal = np.where(full, parts, rest * speeds / speeds[~full].sum())
        above = ~full & (ideal > parts * (1 + 1e-12))
        if not above.any():
            return ideal
        full |= above


def _unevenness(speeds: Floats, parts: int, tolerance: int) -> float:
    """Return how much later than in exact proportion the last worker is done."""
    time = loads(speeds, parts, tolerance) / speeds
    return float(time.max() / (_ideal(speeds, parts, tolerance) / speeds).max())


def _best(load: NDArray[np.intp], parts: int, tolerance: int) -> tuple[Matrix, float]:
    """Return the matrix that amplifies least of some turns, and by how much."""
    k = load.size
    order = np.argsort(load, kind="stable")
    owners = np.repeat(order, load[order]).reshape(tolerance + 1, parts).T
    batches = late_sets(k, tolerance).batches
    few = list(islice(batches, 2))  # neighbours on the circle, and some others
    tried = order[np.concatenate(few)[:_TRIED]]
    turns = np.linspace(0, k - 1, min(k, _TURNS)).astype(np.intp)
    drawn = [_Drawn.at(_points(order, int(turn)), owners) for turn in turns]
    best = min(drawn, key=lambda one: one.worst(tried))
    found = max(best.worst(order[late]) for late in chain(few, batches))
    columns = np.repeat(np.arange(parts), tolerance + 1)
    return entries(owners.ravel(), columns, best.values.ravel(), (k, parts)), found


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """Points, and what follows from them.

    Attributes:
        points: Half the angle of every worker; that of the sum is 0.
        values: The coefficients of the owners of every part, shape (parts, owners).
        norms: The l1 norm of the coefficients of every worker.
    """

    points: Floats
    values: Floats
    norms: Floats

    @classmethod
    def at(cls, points: Floats, owners: NDArray[np.intp]) -> _Drawn:
        at = points[owners]
        to_sum = np.sin(-at)[:, None, :]
        across = np.sin(at[:, :, None] - at[:, None, :])
        across += np.eye(owners.shape[1]) * to_sum  # with itself: a factor of 1
        values = np.prod(to_sum / across, axis=2)
        norms: Floats = np.zeros(points.size)
        np.add.at(norms, owners, np.abs(values))
        return cls(points, values, norms)

    def worst(self, late: Sets) -> float:
        """Return the largest amplification over sets of late workers."""
        a = np.ones((len(late), self.points.size))
        for member in self.points[late].T:
            a *= np.sin(self.points - member[:, None]) / np.sin(-member)[:, None]
        return float((np.abs(a) @ self.norms).max() / len(self.values))


def _points(order: NDArray[np.intp], turn: int) -> Floats:
    """Return half the angle of every worker; that of the sum is 0."""
    place = np.empty(order.size)
    place[np.roll(order, -turn)] = np.arange(1, order.size + 1)
    return np.pi * place / (order.size + 1)


def _is_fine(speeds: Floats, parts: int, tolerance: int) -> bool:
    return _best(loads(speeds, parts, tolerance), parts, tolerance)[1] <= LIMIT


def _scaled(speeds: Floats) -> Floats:
    """Return the same below 1, by a power of two, so that ratios keep their digits."""
    _, exponent = np.frexp(speeds.max())
    scaled: Floats = np.maximum(np.ldexp(speeds, -exponent), _SLOWEST)
    return scaled


def _speeds(given: object, workers: int) -> Floats:
    advice = f"a number above 0 for each of {workers} workers"
    try:
        speeds = np.asarray(given)
    except ValueError:  # ragged
        speeds = np.array("")
    if speeds.dtype.kind not in "iuf" or speeds.shape not in ((), (workers,)):
        problem = f"speeds = {given!r} are not the speeds of {workers} workers"
        raise InvalidCode("proportional", problem, advice)
    if not np.all((speeds > 0) & np.isfinite(speeds)):  # also refuses NaN
        raise InvalidCode("proportional", f"speeds = {given!r}", advice)
    return np.broadcast_to(speeds, (workers,)).astype(np.float64)
