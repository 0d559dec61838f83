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

__all__ = ["LateSets", "heard_without", "late_sets"]

Sets: TypeAlias = NDArray[np.intp]  # shape (sets, late)

_EXHAUSTIVE = 100_000
_SAMPLES = 10_000
_CHUNK = 2**21  # entries of the masks evaluated at once


@dataclass(frozen=True, slots=True)
class LateSets:
    """Batches of sets of late workers.

    Attributes:
        all_of_them: Whether they are all there are (up to a turn).
        batches: Arrays of shape (sets, late), made as they are asked for. A set may
            come twice.
    """

    all_of_them: bool
    batches: Iterator[Sets]


def late_sets(workers: int, late: int, turns: bool = False) -> LateSets:
    """Return all sets of `late` workers up to 100,000, else the likely worst ones.

    Beyond that: every window of neighbours, and 10,000 sets drawn with a fixed seed.

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
    few = math.comb(workers - fixed, late - fixed) <= _EXHAUSTIVE
    rest = _all(workers, late, fixed) if few else _random(workers, late)
    return LateSets(few, chain(_windows(workers, late, turns), rest))


def heard_without(late: Sets, owner: Sequence[int]) -> Bools:
    """Return masks over messages, shape (sets, messages), with `late` workers out."""
    heard = np.ones((len(late), max(owner) + 1), dtype=np.bool_)
    np.put_along_axis(heard, late, False, axis=1)
    return heard[:, np.asarray(owner)]


def _windows(workers: int, late: int, turns: bool) -> Iterator[Sets]:
    """Neighbouring workers: nearly always the worst sets, so they come first."""
    if late < 2:
        return  # then every set is a window
    starts = np.arange(1 if turns else workers)
    for some in np.array_split(starts, math.ceil(starts.size / _batch(workers))):
        yield (some[:, None] + np.arange(late)) % workers


def _all(workers: int, late: int, fixed: int) -> Iterator[Sets]:
    """All sets; with `fixed`, those that hold worker 0."""
    first = range(fixed)
    rest = combinations(range(fixed, workers), late - fixed)
    while batch := list(islice(rest, _batch(workers))):
        yield np.array([(*first, *others) for others in batch], dtype=np.intp).reshape(
            len(batch), late
        )


def _random(workers: int, late: int) -> Iterator[Sets]:
    rng, size = np.random.default_rng(0), _batch(workers)
    for start in range(0, _SAMPLES, size):
        draws = rng.random((min(size, _SAMPLES - start), workers))
        yield np.argpartition(draws, late, axis=1)[:, :late]


def _batch(workers: int) -> int:
    return max(1, _CHUNK // workers)
