"""Sums that add up to the full one: disjoint covers, and the general way out.

A *unit* is something with a plain sum of parts that can only be used whole: a closed
segment, or a message heard. A cover is a set of units in which every part is exactly
once. That all parts are finished does not mean that there is one: a giver may have
closed beyond its cut. Then the best partial cover says which parts to plan again.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from codedgrad.codes.decoders import EXACT, LeastSquares, residuals
from codedgrad.codes.sparse import entries

_U = TypeVar("_U", bound=Hashable)
_TRIES = 2000  # choices looked at in a piece before settling for the best so far
_DEPTH = 400  # units chosen one upon the other, well below what Python can stack


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

    First takes what must be taken: a unit with a part that no other has. What remains
    falls into pieces that have nothing to do with each other; in each an exact cover is
    looked for, the part with the fewest units first, and after some thousand choices
    the best seen is settled for. Deterministic: ties go to what came first.

    Args:
        units: The parts of each unit, by any key; earlier ones are preferred.
        parts: How many parts there are.

    Example:
        >>> best_cover({"a": (0, 1, 2), "b": (2, 3), "c": (3,)}, parts=4)
        Cover(units=('a', 'c'), left=())
        >>> best_cover({"a": (0, 1, 2), "b": (2, 3)}, parts=4)
        Cover(units=('a',), left=(3,))
    """
    rest = {key: frozenset(held) for key, held in units.items() if held}
    order = {key: number for number, key in enumerate(rest)}
    chosen = _forced(rest)
    for piece in _pieces(rest):
        search = _Search({key: rest[key] for key in piece})
        search.extend((), search.left)
        chosen += search.best
    chosen.sort(key=order.__getitem__)
    used = {part for key in chosen for part in units[key]}
    return Cover(tuple(chosen), tuple(p for p in range(parts) if p not in used))


def _forced(rest: dict[_U, frozenset[int]]) -> list[_U]:
    """Take units that alone hold some part out of `rest`, with what they exclude."""
    holders: dict[int, dict[_U, None]] = {}
    for key, held in rest.items():
        for part in held:
            holders.setdefault(part, {})[key] = None
    order = {key: number for number, key in enumerate(rest)}
    taken: list[_U] = []
    alone: list[tuple[int, int, int]] = []  # largest unit first, then as offered

    def look(part: int) -> None:
        if len(holders[part]) == 1:
            (key,) = holders[part]
            heapq.heappush(alone, (-len(rest[key]), order[key], part))

    for part in holders:
        look(part)
    while alone:
        *_, part = heapq.heappop(alone)
        if len(holders[part]) != 1:
            continue  # its unit is gone, taken or excluded
        (key,) = holders[part]
        taken.append(key)
        excluded = {other: None for p in rest[key] for other in holders[p]}
        for other in excluded:
            for p in rest.pop(other):
                del holders[p][other]
                look(p)
    return taken


def _pieces(rest: Mapping[_U, frozenset[int]]) -> list[list[_U]]:
    """Return groups of units that share parts with each other and with nobody else."""
    holders: dict[int, list[_U]] = {}
    for key, held in rest.items():
        for part in held:
            holders.setdefault(part, []).append(key)
    pieces, seen = [], set[_U]()
    for first in rest:
        if first in seen:
            continue
        piece, to_do = [], [first]
        seen.add(first)
        while to_do:
            key = to_do.pop()
            piece.append(key)
            for part in sorted(rest[key]):
                for other in holders[part]:
                    if other not in seen:
                        seen.add(other)
                        to_do.append(other)
        pieces.append(piece)
    return pieces


class _Search(Generic[_U]):
    """Backtracking in one piece, with a bound on the choices looked at."""

    def __init__(self, units: Mapping[_U, frozenset[int]]) -> None:
        self._units = units
        self._tries = 0
        self.best: tuple[_U, ...] = ()
        self.left: frozenset[int] = frozenset().union(*units.values())

    def extend(
        self, chosen: tuple[_U, ...], left: frozenset[int], depth: int = 0
    ) -> bool:
        """Try to cover what is left; return whether to stop looking."""
        if len(left) < len(self.left):
            self.best, self.left = chosen, left
        if not left:
            return True
        candidates: dict[int, list[_U]] = {}
        for key, held in self._units.items():
            if held <= left:
                for part in held:
                    candidates.setdefault(part, []).append(key)
        if not candidates:
            return False
        part = min(candidates, key=lambda p: (len(candidates[p]), p))
        for key in sorted(candidates[part], key=lambda key: -len(self._units[key])):
            self._tries += 1
            if self._tries > _TRIES or depth > _DEPTH:
                return True
            if self.extend((*chosen, key), left - self._units[key], depth + 1):
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
