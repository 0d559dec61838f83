"""Sums that add up to the full one: disjoint covers, and the general way out.

A *unit* is something with a plain sum of parts that can only be used whole: a closed
segment, or a message heard. A cover is a set of units in which every part is exactly
once. That all parts are finished does not mean that there is one: a giver may have
closed beyond its cut. Then the best partial cover says which parts to plan again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from codedgrad.codes.decoders import EXACT, LeastSquares, residuals
from codedgrad.codes.sparse import entries

__all__ = ["Cover", "best_cover", "decode_rows"]

_U = TypeVar("_U", bound=Hashable)
_TRIES = 2000  # choices looked at before settling for the best so far


@dataclass(frozen=True, slots=True)
class Cover(Generic[_U]):
    """Disjoint units, and the parts they leave out.

    Attributes:
        units: The keys chosen, in the order they were offered.
        left: Parts in none of them, ascending; empty if the cover is exact.
    """

    units: tuple[_U, ...]
    left: tuple[int, ...]


def best_cover(units: Mapping[_U, Collection[int]], parts: int) -> Cover[_U]:
    """Return disjoint units that leave as few parts out as could be found.

    Looks for an exact cover, the part with the fewest units first; after some thousand
    choices it settles for the best seen. Deterministic: ties go to what came first.

    Args:
        units: The parts of each unit, by any key; earlier ones are preferred.
        parts: How many parts there are.

    Example:
        >>> best_cover({"a": (0, 1, 2), "b": (2, 3), "c": (3,)}, parts=4)
        Cover(units=('a', 'c'), left=())
        >>> best_cover({"a": (0, 1, 2), "b": (2, 3)}, parts=4)
        Cover(units=('a',), left=(3,))
    """
    search = _Search({key: frozenset(held) for key, held in units.items()}, parts)
    search.extend((), frozenset(range(parts)))
    return Cover(search.best, tuple(sorted(search.left)))


class _Search(Generic[_U]):
    """Backtracking with a bound on the choices looked at."""

    def __init__(self, units: Mapping[_U, frozenset[int]], parts: int) -> None:
        self._units = {key: held for key, held in units.items() if held}
        self._order = {key: number for number, key in enumerate(self._units)}
        self._tries = 0
        self.best: tuple[_U, ...] = ()
        self.left = frozenset(range(parts))

    def extend(self, chosen: tuple[_U, ...], left: frozenset[int]) -> bool:
        """Try to cover what is left; return whether to stop looking."""
        if len(left) < len(self.left):
            self.best = tuple(sorted(chosen, key=self._order.__getitem__))
            self.left = left
        if not left:
            return True
        fitting = {key: held for key, held in self._units.items() if held <= left}
        candidates: dict[int, list[_U]] = {}
        for key, held in fitting.items():
            for part in held:
                candidates.setdefault(part, []).append(key)
        if not candidates:
            return False
        part = min(candidates, key=lambda p: (len(candidates[p]), p))
        largest_first = sorted(candidates[part], key=lambda key: -len(fitting[key]))
        for key in largest_first:
            self._tries += 1
            if self._tries > _TRIES:
                return True
            if self.extend((*chosen, key), left - fitting[key]):
                return True
        return False


def decode_rows(
    rows: Sequence[Mapping[int, float]], parts: int
) -> tuple[tuple[float, ...], float]:
    """Return weights of least misfit for any rows, and the residual.

    The general way, by least squares; for plans whose rows no code knows in advance.

    Example:
        >>> weights, residual = decode_rows([{0: 1.0, 1: 1.0}, {1: 2.0}], parts=2)
        >>> residual
        0.0
    """
    if not rows:
        return (), float(parts)
    lengths = [len(row) for row in rows]
    numbers = np.repeat(np.arange(len(rows)), lengths)
    columns = np.array([part for row in rows for part in row], dtype=np.intp)
    values = np.array([value for row in rows for value in row.values()])
    B = entries(numbers, columns, values, (len(rows), parts))
    weights = LeastSquares(B).weights(np.ones((1, len(rows)), dtype=np.bool_))
    residual = float(residuals(B, weights)[0])
    return tuple(weights[0].tolist()), 0.0 if residual <= EXACT else residual
