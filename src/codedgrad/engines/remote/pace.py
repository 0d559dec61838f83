"""How many should be on their way at a time? As few as keep a link busy.

Those that share a link all arrive at the end; one after the other, most of them are
there before. So fewer are better, down to one: unless the link is idle while the next
one is asked for, or wider than what a single sender can fill. That cannot be known
beforehand, so it is tried: the fewest that are no slower than the best.
"""

from __future__ import annotations

from collections import deque
from statistics import median

_WIDTHS = (4, 1, 2, 8)  # in the order in which they are tried first
_LONGEST = 8  # that come in, in a stretch
_TRIES = 3  # stretches of each before one is chosen
_KEPT = 7  # stretches of each that are remembered
_AGAIN = 64  # stretches after which the others are tried again, one of each
_AS_GOOD = 1.15  # times the best


class Pace:
    """What was found out at places that are alike.

    Example:
        >>> pace = Pace()
        >>> while pace.is_trying:
        ...     width = pace.width()
        ...     pace.learn(width, seconds=0.1 if width < 2 else 0.05)
        >>> pace.width()
        2
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {w: deque(maxlen=_KEPT) for w in _WIDTHS}
        self._trials = deque(width for width in _WIDTHS for _ in range(_TRIES))
        self._learnt = 0

    @property
    def is_trying(self) -> bool:
        """Whether the next stretch is a trial."""
        return bool(self._trials)

    def width(self) -> int:
        """Return how many to let in at a time in the stretch that begins."""
        if self._trials:
            self._trials.rotate(-1)
            return self._trials[-1]
        each = {width: median(seen) for width, seen in self._seen.items() if seen}
        good = _AS_GOOD * min(each.values())
        return min(width for width, seconds in each.items() if seconds <= good)

    def learn(self, width: int, seconds: float) -> None:
        """Note how many seconds each one took, of those in a stretch."""
        self._seen[width].append(seconds)
        self._learnt += 1
        if width in self._trials:
            self._trials.remove(width)
        elif not self._trials and self._learnt % _AGAIN == 0:
            self._trials.extend(other for other in _WIDTHS if other != width)


class BusyStretch:
    """A while in which a place is never without something on its way.

    Args:
        pace: Where it is learnt from.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._since: float | None = None  # None: nothing is on its way
        self._count, self._came = 0, 0.0
        self._is_pressed = self._is_void = False
        self.width = pace.width()

    def go_on(self, inside: int, waiting: int, now: float) -> None:
        """Note how many are on their way, and how many wait."""
        if self._since is None and inside:
            self._since, self._count = now, 0
            self._is_pressed = self._is_void = False
        self._is_pressed |= inside + waiting > 1

    def came(self, left: int, now: float, *, is_slow: bool) -> None:
        """Note that one has come, or never will.

        Args:
            left: How many are on their way, or wait.
            now: Seconds.
            is_slow: Whether it, or another one, took so long that others were let in.
        """
        self._count += 1
        self._came = now
        self._is_void |= is_slow
        if not left or self._count == _LONGEST:
            self.end()

    def end(self) -> None:
        """End it with the last one that has come."""
        if self._since is not None and self._is_pressed and self._count > 1:
            if not self._is_void:
                self._pace.learn(self.width, (self._came - self._since) / self._count)
            self.width = self._pace.width()
        self._since = None
