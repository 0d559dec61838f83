"""The chain of fast and slow spells that `Markov` and `Sticky` share."""

from __future__ import annotations

import numpy as np

from codedgrad.delays.times import Bools


def slow_share(enter: float, leave: float) -> float:
    r"""Return the stationary probability to be slow, $p / (p + q)$.

    A chain that never moves, $p = q = 0$, has no such law; here it is always fast.
    """
    return enter / (enter + leave) if enter > 0 else 0.0


def two_state(
    rng: np.random.Generator, enter: float, leave: float, steps: int, workers: int
) -> Bools:
    r"""Draw who is slow, (steps, workers): one uniform number each, all at once.

    The first step is stationary. After it a worker with the uniform number $u$ is
    slow if it was fast and $u < p$, or was slow and $u < 1 - q$; the lag-1
    autocorrelation is $1 - (p + q)$.

    Args:
        rng: Where the numbers come from.
        enter: $p$, the probability to turn slow in the next step.
        leave: $q$, the probability to turn fast in the next step.
        steps: Rows.
        workers: Columns, independent of each other.

    Example:
        >>> slow = two_state(np.random.default_rng(4), 0.3, 0.3, steps=12, workers=1)
        >>> "".join("fS"[int(x)] for x in slow[:, 0])
        'fffSSSfSffff'
    """
    u = rng.random((steps, workers))
    first = u[0] < slow_share(enter, leave)
    stay = 1.0 - leave
    if enter <= stay:
        return _filled(u, first, enter, stay)
    slow = np.empty(u.shape, dtype=np.bool_)
    slow[0] = first
    for t in range(1, steps):
        slow[t] = u[t] < np.where(slow[t - 1], stay, enter)
    return slow


def _filled(u: np.ndarray, first: Bools, enter: float, stay: float) -> Bools:
    """Carry the last settled state forward.

    Below `enter` a worker is slow whatever it was, from `stay` on fast whatever it
    was, and between the two it stays what it was.
    """
    slow = u < enter
    slow[0] = first
    settled = slow | (u >= stay)
    settled[0] = True
    last = np.where(settled, np.arange(len(u))[:, None], 0)
    np.maximum.accumulate(last, axis=0, out=last)
    return np.take_along_axis(slow, last, axis=0)
