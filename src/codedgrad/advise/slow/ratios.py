r"""How much slower than the others: ratios, and from where on they are no chance.

All is in logarithms of seconds. The ratio of a worker in a step is against the median
of the others in that step, so that what is common to all is nobody's. A median over
several steps stands out if it is above three limits:

1. 15 %: less is not worth a word. A single step must take twice as long.
2. Chance: if steps were independent, each with the upper tail that the others show.
   The tail is taken to be exponential, of a ratio that is a power law, which is heavier
   than most; a median over $L$ steps is above $x$ if half of them are, which is a
   binomial probability.
3. The spread of the same medians among the others, by their median absolute deviation:
   where workers differ anyway, or their jitter lasts, nobody is singled out for it.

Limits 2 and 3 are about workers other than the suspect. Of three workers the other two
are compared with each other only, or the suspect would spread their ratios. Of two
workers the other's ratios mirror the suspect's, so limit 2 takes the noise from
differences of successive steps, and limit 3 never asks for more than twice as long.

Limits 2 and 3 count how many medians are looked at, over workers and stretches of
steps: in all of them together, chance alone is above in about one run of a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import betaincinv, ndtri

from codedgrad.advise.slow.stopwatch import Bools, Floats

WORTH = math.log(1.15)
TWICE = math.log(2.0)  # a single step is worth a word from here on
SHORTEST = 5  # steps of a stretch
FEWEST_STEPS = SHORTEST
"""Steps from which on slow workers can be told, if there are three workers or more."""

FEWEST_STEPS_OF_TWO = 6
"""The same of two workers, whose noise is read from differences between steps."""

_CHANCE = 0.002  # that anybody is above a limit by chance, for every length
_OVERLAP = 5  # stretches of a length begin so many times in every length
_CROWD = 16  # workers; among more, one does not change what all show
_FEWEST = 10  # values, or there is no telling what is usual
_SIGMA = 1.4826  # of a normal law, in median absolute deviations
_AT_ONCE = 4_000_000  # values in memory at once
_TAIL = 2.08  # mean of an exponential excess, in median absolute deviations


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """Log ratios, those of every worker moved together: a column has no gaps.

    Attributes:
        values: (steps, workers), from the top; NaN below a worker's last one.
        rows: (steps, workers) the row in which each was seen.
        counts: (workers,) how many there are.
        own: (steps, workers) the logarithms of the worker's seconds, moved likewise.
        others: (steps, workers) those of the others' median.
        is_bound: (steps, workers) whether the ratio is so much at least.
    """

    values: Floats
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    own: Floats
    others: Floats
    is_bound: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """From where on medians over so many steps are no chance.

    Attributes:
        length: Steps that a median is taken over.
        limit: For each of the workers asked about; a median above it stands out.
        medians: (stretches, workers); NaN where a worker has not that many steps.
    """

    length: int
    limit: Floats
    medians: Floats


def ratios(seconds: Floats, is_bound: Bools) -> Ratios:
    """Compare everybody with the others, step by step.

    A lower bound counts where it says something: among the others if it is above the
    median of those that finished, as a ratio of its own if that is worth a word.

    Args:
        seconds: (steps, workers); NaN where nothing was seen.
        is_bound: (steps, workers) whether it took that long at least.

    Example:
        >>> found = ratios(np.array([[1.0, 1.0, 2.0]]), np.zeros((1, 3), bool))
        >>> np.exp(found.values).round(2)
        array([[0.71, 0.71, 2.  ]])
    """
    own = np.full(seconds.shape, np.nan)
    np.log(seconds, out=own, where=seconds > 0)
    finished = np.where(is_bound, np.nan, own)
    own[is_bound & ~(own >= _middle(finished)[:, None])] = np.nan
    others = _others(own)
    values = own - others
    values[is_bound & ~(values > WORTH)] = np.nan
    order = np.argsort(np.isnan(values), axis=0, kind="stable")
    counts = np.isfinite(values).sum(axis=0)
    longest = int(counts.max(initial=0))
    order = order[:longest]
    moved = [np.take_along_axis(x, order, axis=0) for x in (values, own, others)]
    bounds = np.take_along_axis(is_bound, order, axis=0)
    return Ratios(moved[0], order, counts, moved[1], moved[2], bounds)


def _middle(values: Floats) -> Floats:
    """Return the median of every row, the lower one of two; NaN if there is none."""
    counts = np.isfinite(values).sum(axis=1)
    ordered = np.sort(values, axis=1)  # NaN is last
    place = np.maximum((counts - 1) // 2, 0)
    return np.asarray(ordered[np.arange(len(values)), place])


def _others(values: Floats) -> Floats:
    """Return for every cell the median of the rest of its row; NaN if that is empty."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    rank = np.argsort(order, axis=1)
    seen = np.isfinite(values)
    rest = seen.sum(axis=1, keepdims=True) - seen
    total = np.zeros(values.shape)
    for place in ((rest - 1) // 2, rest // 2):
        without = place + (rank <= place)  # the cell itself is passed over
        last = np.clip(without, 0, values.shape[1] - 1)
        total += np.take_along_axis(ordered, last, axis=1)
    return np.where(rest > 0, total / 2, np.nan)


def rolling(found: Ratios, length: int) -> Floats:
    """Return medians over so many steps in a row, (stretches, workers).

    They overlap: every stretch begins a fifth of its length after the one before, and
    the last one ends with the last step. NaN where a worker has not so many steps.
    """
    steps, workers = found.values.shape
    first = np.arange(0, steps - length + 1, max(1, length // _OVERLAP))
    first = first if first[-1] == steps - length else np.append(first, steps - length)
    medians = np.empty((len(first), workers))
    some = max(1, _AT_ONCE // (len(first) * length))
    for begin in range(0, workers, some):
        columns = slice(begin, begin + some)
        every = sliding_window_view(found.values[:, columns], length, axis=0)
        windows = np.sort(every[first])
        low, high = windows[..., (length - 1) // 2], windows[..., length // 2]
        medians[:, columns] = (low + high) / 2
    is_whole = first[:, None] + length <= found.counts
    return np.where(is_whole, medians, np.nan)


def limits(found: Ratios, whom: Sequence[int]) -> tuple[list[Limit], Floats]:
    """Return the limits for medians of every length; single steps come first.

    Args:
        found: The ratios of all workers.
        whom: The workers for whom limits are wanted.

    Returns:
        The limits, and for each of the workers the mean excess of the others' upper
        tail; infinite where there is no telling.
    """
    steps, workers = found.values.shape
    peers = _peers(found, whom)
    usual = np.array([_tail(rest) for rest in _usual(found, whom, peers)])
    centre, excess = np.broadcast_to(usual, (len(whom), 2)).T
    made = []
    for length in _lengths(steps):
        looks = steps if length == 1 else max(1, _OVERLAP * (steps - length) / length)
        chance = _CHANCE / (workers * looks)
        half = (length + 1) // 2
        share = min(0.5, float(betaincinv(half, length - half + 1, chance)))
        limit = np.maximum(centre, 0.0) + excess * math.log(0.5 / share)
        medians, least = found.values, TWICE
        if length > 1:
            medians, least = rolling(found, length), WORTH
            sigmas = -float(ndtri(chance))
            rests = _medians(medians, whom, peers, length)
            spread = np.array([_spread(rest, sigmas) for rest in rests])
            if workers == 2:  # a mirror of the suspect, not a spread of others
                spread = np.minimum(spread, TWICE)
            limit = np.maximum(limit, spread)
        made.append(Limit(length, np.maximum(limit, least), medians))
    return made, excess


def _lengths(steps: int) -> Iterator[int]:
    yield 1
    length = SHORTEST
    while length < steps:
        yield length
        length *= 2
    if steps >= SHORTEST:
        yield steps


def _peers(found: Ratios, whom: Sequence[int]) -> list[Ratios]:
    """Compare the other two of three workers with each other, for each suspect."""
    if len(found.counts) != 3:
        return []
    logs = np.full((int(found.rows.max(initial=-1)) + 1, 3), np.nan)
    for worker, count in enumerate(found.counts.tolist()):
        logs[found.rows[:count, worker], worker] = found.own[:count, worker]
    pairs = (np.exp(np.delete(logs, worker, axis=1)) for worker in whom)
    return [ratios(pair, np.zeros(pair.shape, dtype=np.bool_)) for pair in pairs]


def _usual(found: Ratios, whom: Sequence[int], peers: Sequence[Ratios]) -> list[Floats]:
    """Return the ratios that single steps have without each of the suspects."""
    if peers:
        return [pair.values[np.isfinite(pair.values)] for pair in peers]
    if len(found.counts) == 2:
        return [_differences(found, worker) for worker in whom]
    return _without(found.values, whom)


def _differences(found: Ratios, worker: int) -> Floats:
    """Return a worker's changes from step to step, with both signs, over sqrt(2).

    A change of level is one difference of many, so it hardly shows in their quantiles.
    """
    steps = np.diff(found.values[: found.counts[worker], worker]) / math.sqrt(2.0)
    return np.concatenate((steps, -steps))


def _medians(
    medians: Floats, whom: Sequence[int], peers: Sequence[Ratios], length: int
) -> list[Floats]:
    """Return the medians over `length` steps that there are without each suspect."""
    if not peers:
        return _without(medians, whom)
    both = [
        rolling(pair, length) if len(pair.values) >= length else pair.values[:0]
        for pair in peers
    ]
    return [values[np.isfinite(values)] for values in both]


def _without(values: Floats, whom: Sequence[int]) -> list[Floats]:
    """Return what all but one worker show, for each named; in a crowd, once, all."""
    if values.shape[1] > _CROWD:
        return [values[np.isfinite(values)]]
    rests = (np.delete(values, worker, axis=1) for worker in whom)
    return [rest[np.isfinite(rest)] for rest in rests]


def _tail(values: Floats) -> tuple[float, float]:
    """Return the median, and the mean excess of an exponential upper tail.

    Slow workers among the values would only make it longer, so the shortest of several
    estimates is taken; and a little is added, for there may be few values.
    """
    if len(values) < _FEWEST:
        return 0.0, math.inf
    middle, *upper = np.quantile(values, (0.5, 0.7, 0.8, 0.9))
    falls = math.log(0.5 / 0.3), math.log(0.5 / 0.2), math.log(0.5 / 0.1)
    excesses = [(q - middle) / fall for q, fall in zip(upper, falls, strict=True)]
    excess = min(_TAIL * float(np.median(np.abs(values - middle))), *excesses)
    return float(middle), float(excess) * (1 + 3 / math.sqrt(len(values)))


def _spread(values: Floats, sigmas: float) -> float:
    """Return the limit that the spread of medians sets."""
    if len(values) < 2:
        return 0.0
    middle = float(np.median(values))
    deviation = float(np.median(np.abs(values - middle)))
    return max(middle, 0.0) + sigmas * _SIGMA * deviation
