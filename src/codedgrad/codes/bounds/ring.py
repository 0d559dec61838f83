r"""How soon a step could end if only neighbours on a ring hold each other's data.

The load of worker $g$ may be computed by $g, g - 1, \dots, g - r + 1$ (modulo $n$) and
by nobody else. Whoever knows all times, and may split at will, ends a step at the least
$T$ for which a flow from loads to their holders exists. By Hall's theorem that is the
largest, over sets of loads, of what they ask for over the speed of all who hold any of
it. On a ring it is enough to look at arcs: where the holders of two arcs meet, nobody
else holds what lies between, so the gap can be filled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from codedgrad.codes.arguments import whole
from codedgrad.codes.decoders import Floats
from codedgrad.errors import InvalidCode

_NOTHING = 1e-300  # seconds; less is no time at all, its inverse would overflow


def ring_bound(unit: ArrayLike, copies: int, replanned: float | None = None) -> Floats:
    r"""Return the least seconds of steps on a ring, (steps,); nothing is fixed.

    With `replanned` nobody knows anything at first: all work on their own load until
    that share of the time which the median worker alive takes for it. Who has finished
    idles. From then on everything is known, and what is left is split as above. It is
    what a plan made once, at that moment, could reach at best.

    Args:
        unit: Seconds for the uncoded load, (steps, workers); inf: dead.
        copies: $r$, how many workers hold the load of each.
        replanned: A share from 0 to 1; None: all is known from the start.

    Returns:
        Seconds; inf where all who hold some load are dead.

    Example:
        >>> seconds = [[1.0, 1.0, 4.0, 1.0]]
        >>> [ring_bound(seconds, copies).round(3).item() for copies in (1, 2, 4)]
        [4.0, 1.231, 1.231]
        >>> ring_bound(seconds, copies=2, replanned=0.75).round(3)
        array([1.4])
    """
    b = _unit(unit)
    r = whole("ring_bound", "copies", copies, least=1, most=b.shape[1])
    share = 0.0 if replanned is None else _share(replanned)
    alive = np.isfinite(b)
    some = alive.any(axis=1)
    ends = np.full(len(b), np.inf)
    begun = share * _median(b[some])
    ends[some] = _after(b[some], begun, r)
    return ends


def _unit(unit: ArrayLike) -> Floats:
    try:
        b = np.asarray(unit, dtype=np.float64)
    except (TypeError, ValueError):
        problem = "the seconds are not numbers"
        raise InvalidCode("ring_bound", problem, "(steps, workers) of them") from None
    if b.ndim != 2 or b.shape[1] == 0:
        problem = f"the seconds have shape {b.shape}"
        raise InvalidCode("ring_bound", problem, "(steps, workers)")
    if not np.all(b >= 0):  # also refuses NaN
        raise InvalidCode("ring_bound", "seconds are negative or NaN", "0 or more")
    return b


def _share(value: object) -> float:
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not real or not 0.0 <= value <= 1.0:  # type: ignore[operator]  # if real
        problem = f"replanned = {value!r}"
        raise InvalidCode("ring_bound", problem, "a share from 0 to 1")
    return float(value)  # type: ignore[arg-type]  # it is real


def _median(b: Floats) -> Floats:
    """Return the median of those alive, (steps,); there is one at least."""
    ordered, alive = np.sort(b, axis=1), np.isfinite(b).sum(axis=1)
    middle = np.stack([(alive - 1) // 2, alive // 2], axis=1)
    return np.asarray(np.take_along_axis(ordered, middle, axis=1).mean(axis=1))


def _after(b: Floats, begun: Floats, r: int) -> Floats:
    """Return when steps end whose work is split anew at `begun`, (steps,)."""
    moment = np.broadcast_to(begun[:, None], b.shape)
    done = np.ones_like(b)  # of the own load, by those who have had the time for it
    np.divide(moment, b, out=done, where=b > moment)
    left = 1.0 - done
    ends = begun + _split(left, b, r)
    finished = ~left.any(axis=1)  # before anything was split
    ends[finished] = b[finished].max(axis=1)
    return ends


def _split(left: Floats, b: Floats, r: int) -> Floats:
    """Return how long it takes what is left, split on the ring, (steps,)."""
    n = b.shape[1]
    rate = np.full_like(b, np.inf)
    np.divide(1.0, b, out=rate, where=b > _NOTHING)
    asked, speed = np.zeros_like(b), np.zeros_like(b)
    for behind in range(r - 1):  # who holds the first load of an arc without owning it
        speed += np.roll(rate, behind + 1, axis=1)
    longest = _over(left.sum(axis=1), rate.sum(axis=1))
    for length in range(n - r + 1):  # arcs that begin anywhere, by one load longer
        asked += np.roll(left, -length, axis=1)
        speed += np.roll(rate, -length, axis=1)
        longest = np.maximum(longest, _over(asked, speed).max(axis=1))
    return longest


def _over(asked: Floats, speed: Floats) -> Floats:
    """Return asked / speed; what nobody asks for takes no time, even without speed."""
    seconds = np.where(asked > 0, np.inf, 0.0)
    np.divide(asked, speed, out=seconds, where=speed > 0)
    return seconds
