"""Sets of late workers to try a code on: all of them, or enough of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.decoders import Bools

Sets: TypeAlias = NDArray[np.intp]  # shape (sets, late)

_EXHAUSTIVE = 100_000
_SAMPLES = 10_000
_CHUNK = 2**21  # entries of the masks evaluated at once
_MOST = 2 * 10**8  # entries of the masks evaluated in all


@dataclass(frozen=True, slots=True)
class LateSets:
    """Batches of sets of late workers.

    Attributes:
        all_of_them: Whether they are all there are (up to a turn), each once.
        batches: Arrays of shape (sets, late), made as they are asked for.
    """

    all_of_them: bool
    batches: Iterator[Sets]


def late_sets(workers: int, late: int, turns: bool = False) -> LateSets:
    """Return all sets of `late` workers up to 100,000, else the likely worst ones.

    Beyond that: every window of neighbours, and 10,000 sets drawn with a fixed seed;
    above 14,000 workers fewer of both, so that the time stays in bounds. Windows come
    first, because they are nearly always the worst.

    Args:
        workers: Number of workers.
        late: Size of every set.
        turns: Whether sets that differ by a shift of all workers count as one.

    Example:
        >>> sets = late_sets(workers=4, late=1)
        >>> sets.all_of_them, [batch.tolist() for batch in sets.batches]
        (True, [[[0], [1], [2], [3]]])
    """
    fixed = 1 if turns and late else 0
    count = math.comb(workers - fixed, late - fixed)
    affordable = max(1, _MOST // workers)
    starts = np.arange(1 if turns else workers)[:affordable]
    windows = (_windows(some, workers, late) for some in _cut(starts, workers))
    if count <= min(_EXHAUSTIVE, affordable):
        if 0 < late < workers:
            return LateSets(True, chain(windows, _others(workers, late, fixed)))
        return LateSets(True, iter([np.arange(late)[None]]))
    return LateSets(False, chain(windows, _random(workers, late, affordable)))


def heard_without(late: Sets, owner: Sequence[int]) -> Bools:
    """Return masks over messages, shape (sets, messages), with `late` workers out."""
    heard = np.ones((len(late), max(owner) + 1), dtype=np.bool_)
    np.put_along_axis(heard, late, False, axis=1)
    return heard[:, np.asarray(owner)]


def _windows(starts: Sets, workers: int, late: int) -> Sets:
    return (starts[:, None] + np.arange(late)) % workers


def _others(workers: int, late: int, fixed: int) -> Iterator[Sets]:
    """All sets but the windows; with `fixed`, those that hold worker 0."""
    first = tuple(range(fixed))
    rest = combinations(range(fixed, workers), late - fixed)
    while some := list(islice(rest, _batch(workers))):
        sets = np.array([first + others for others in some], dtype=np.intp)
        gaps = np.count_nonzero(np.diff(sets, axis=1) > 1, axis=1)
        around = (gaps == 1) & (sets[:, 0] == 0) & (sets[:, -1] == workers - 1)
        others_only = sets[(gaps > 0) & ~around]
        if len(others_only):
            yield others_only


def _random(workers: int, late: int, most: int) -> Iterator[Sets]:
    rng = np.random.default_rng(0)
    for some in _cut(np.arange(min(_SAMPLES, most)), workers):
        draws = rng.random((len(some), workers))
        yield np.argpartition(draws, late, axis=1)[:, :late]


def _cut(numbers: Sets, workers: int) -> list[Sets]:
    return np.array_split(numbers, math.ceil(numbers.size / _batch(workers)))


def _batch(workers: int) -> int:
    return max(1, _CHUNK // workers)
