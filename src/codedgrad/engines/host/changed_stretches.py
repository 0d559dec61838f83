"""Which stretches of the parameters a copy of them lacks.

Most of a vector may be the same in every step: frozen parameters, masks, tables. The
root says which stretches have changed; a copy then lacks what has changed since it was
last brought up to date, and only that is moved.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

Stretches: TypeAlias = tuple[tuple[int, int], ...]
"""The (first, last + 1) numbers of stretches of a vector, ascending, with gaps."""


class Stale:
    """What copies of a vector lack, by name of the copy.

    Args:
        length: Of the vector. A copy that is not known yet lacks all of it.

    Example:
        >>> stale = Stale(100)
        >>> stale.take("a")
        ((0, 100),)
        >>> stale.change([(0, 10), (50, 60)])
        >>> stale.change([(5, 20)])
        >>> stale.take("a"), stale.take("a"), stale.take("b")
        (((0, 20), (50, 60)), (), ((0, 100),))
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._lacks: dict[Hashable, Stretches] = {}

    def change(self, stretches: Sequence[tuple[int, int]] | None) -> None:
        """Note what of the vector has changed; None: all of it may have."""
        if stretches is None:
            self._lacks.clear()
        for copy, lacks in self._lacks.items():
            self._lacks[copy] = _union([*lacks, *(stretches or ())])

    def take(self, copy: Hashable) -> Stretches:
        """Return what a copy lacks; it is brought up to date now."""
        lacks = self._lacks.get(copy, ((0, self._length),))
        self._lacks[copy] = ()
        return lacks


def _union(stretches: list[tuple[int, int]]) -> Stretches:
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)
