r"""How long two stages take, for many steps at once, in arrays.

Started worker $i$ has $q_i$ parts at $c_i$ seconds each; at the checkpoint $T_1$ the
$r$ parts that are not done are coded over $h$ helpers, who take $c'_i$ seconds a part.

$$T = \max_i c_i q_i \text{ if that is at most } T_1, \text{ else }
  \min(T_1 + T_2, \max_i c_i q_i)$$

What late workers still deliver counts when all of it is in, and a cyclic code counts to
$h - s$ answers. Helpers are those who were not started, then those who have finished;
helper $u$ of a fractional code is in group $u$ mod $g$, $g = \lfloor h/(s+1) \rfloor$.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.decoders import Bools, Floats

Ints: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """How many steps went; arrays of shape (steps,).

    Attributes:
        seconds: From start to end.
        work: Parts asked for, less those that were handed over: parts - r + stage 2.
        left: Parts not done at the checkpoint, r.
        helpers: Who were free to help, h; also where nothing was left.
        drained: Seconds after the end for which a helper is still at the part in hand,
            the longest; where nothing interrupts it, its next step begins that late. Of
            those who started it is not counted: they were late anyway.
    """

    seconds: Floats
    work: Floats
    left: Ints
    helpers: Ints
    drained: Floats


def parts_done(pace: Floats, seconds: float, most: Ints) -> Ints:
    """Return how many parts are done in time, one after the other, at most `most`.

    Exact on the grid of times: a part that ends at that very moment is done.
    """
    done = np.minimum(np.floor(seconds / np.maximum(pace, 1e-300)), most)
    done -= done * pace > seconds
    done += (done < most) & ((done + 1) * pace <= seconds)
    return np.asarray(done.astype(np.intp))


def staged(
    first: Floats,
    second: Floats,
    parts: int,
    starters: Sequence[int],
    window: float,
    tolerance: int,
    *,
    reuse: bool = True,
    code: str = "fractional",
) -> Staged:
    """Return how steps go in which everybody holds everything.

    Args:
        first: Seconds a part takes in stage 1, (steps, workers).
        second: The same in stage 2, (steps, workers).
        parts: Of a step.
        starters: Who is started.
        window: Seconds until the checkpoint.
        tolerance: Late helpers survived, s.
        reuse: Whether those who have finished help.
        code: `fractional` or `cyclic`.

    Example:
        >>> c = np.array([[1, 1.1, 2, 5, 1, 1.2]])
        >>> went = staged(c, c, 8, range(4), 2.5, 1, reuse=False, code="cyclic")
        >>> went.seconds, went.work, went.left
        (array([5.5]), array([11.]), array([3]))
    """
    mine, q = first[:, list(starters)], _sizes(parts, len(starters))
    late = (mine * q).max(axis=1)
    done = parts_done(mine, window, np.broadcast_to(q, mine.shape))
    left = np.asarray((q - done).sum(axis=1))
    started = set(starters)
    fresh = [worker for worker in range(first.shape[1]) if worker not in started]
    is_free = np.ones(first.shape, dtype=np.bool_)
    is_free[:, len(fresh) :] = (done == q) & reuse
    pace = second[:, [*fresh, *starters]]
    helpers = np.count_nonzero(is_free, axis=1)
    stage = _cyclic if code == "cyclic" else _fractional
    spare = np.clip(np.minimum(tolerance, helpers - 1), 0, None)
    seconds, load = stage(pace, is_free, left, np.maximum(helpers, 1), spare)
    helped = (left > 0) & (helpers > 0)
    ends = np.where(helped, np.minimum(window + seconds, late), late)
    return Staged(
        seconds=ends,
        work=np.where(helped, parts - left + load.sum(axis=1), float(parts)),
        left=left,
        helpers=helpers,
        drained=np.where(helped, _drained(pace, load, ends - window), 0.0),
    )


def _drained(pace: Floats, load: Ints, stage: Floats) -> Floats:
    """Return how long the longest part in hand goes on after a stage is over."""
    seconds = np.maximum(stage, 0.0)[:, None]
    done = np.floor(seconds / np.maximum(pace, 1e-300))
    rest = np.where(done < load, (done + 1) * pace - seconds, 0.0)
    return np.asarray(rest.max(axis=1))


def one_stage(pace: Floats, parts: int, tolerance: int, code: str) -> Floats:
    """Return the seconds of a code without a second stage, (steps,).

    Shares need not be whole numbers of parts; tolerance + 1 divides the workers of a
    fractional code.

    Args:
        pace: Seconds a part takes, (steps, workers).
        parts: Of a step.
        tolerance: Late workers survived, 0 for no code.
        code: `fractional` or `cyclic`.

    Example:
        >>> c = np.array([[1, 1.1, 2, 5, 1, 1.2]])
        >>> [float(one_stage(c, 8, s, "cyclic")[0].round(3)) for s in (0, 1)]
        [6.667, 5.333]
    """
    steps, workers = pace.shape
    answers = pace * (tolerance + 1) * parts / workers
    if code == "cyclic":
        return np.asarray(np.sort(answers, axis=1)[:, workers - tolerance - 1])
    groups = answers.reshape(steps, -1, tolerance + 1)
    return np.asarray(groups.min(axis=2).max(axis=1))


def _sizes(parts: int, groups: int) -> Ints:
    return parts // groups + (np.arange(groups) < parts % groups).astype(np.intp)


def _fractional(
    pace: Floats, is_free: Bools, left: Ints, helpers: Ints, spare: Ints
) -> tuple[Floats, Ints]:
    """Return the seconds of groups that share what is left, and every load."""
    groups = (helpers // (spare + 1))[:, None]
    group = np.where(is_free, (np.cumsum(is_free, axis=1) - 1) % groups, 0)
    size, more = left[:, None] // groups, left[:, None] % groups
    load = np.where(is_free, size + (group < more), 0)
    answers = np.where(is_free, load * pace, np.inf)
    first = np.full(pace.shape, np.inf)
    np.minimum.at(first, (np.arange(len(pace))[:, None], group), answers)
    number = np.arange(pace.shape[1])
    asked = (number < groups) & (size + (number < more) > 0)
    return np.where(asked, first, 0.0).max(axis=1), load


def _cyclic(
    pace: Floats, is_free: Bools, left: Ints, helpers: Ints, spare: Ints
) -> tuple[Floats, Ints]:
    """Return the seconds of a code that counts to h - s, and every load."""
    h, s = helpers[:, None], spare[:, None]
    rank = np.cumsum(is_free, axis=1) - 1
    load = np.zeros(pace.shape, dtype=np.intp)
    for ahead in range(int(spare.max(initial=0)) + 1):
        block = (rank + ahead) % h
        size = left[:, None] // h + (block < left[:, None] % h)
        load += np.where(is_free & (ahead <= s), size, 0)
    answers = np.sort(np.where(is_free, load * pace, np.inf), axis=1)
    last = np.take_along_axis(answers, h - s - 1, axis=1)[:, 0]
    return last, load
