"""What comes in at one place, a few at a time.

Everybody who has finished wants to send at once. A link that takes all of it together
is no faster, and what is wanted first comes last; so a few are let in at a time, in
the order in which they were ready. One that takes much longer than usual is on a slow
link: it no longer counts, and the next one is let in beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Generic, TypeVar

__all__ = ["Port"]

T = TypeVar("T")

_WIDTH = 4  # at a time: enough for a link to be busy while one of them begins
_RECENT = 32  # whose times say what is usual
_SLOWER = 3.0  # times what is usual: a slow link
_FIRST = 0.05  # seconds that one is given before anything is known
_LEAST = 0.005  # seconds, below which nothing is slow


class Port(Generic[T]):
    """Lets things in.

    Args:
        width: How many at a time.

    Example:
        >>> port = Port[str](width=1)
        >>> port.put("a"), port.put("b"), port.admit(now=0.0)
        (None, None, ['a'])
        >>> port.admit(now=0.01)  # the first is on its way
        []
        >>> port.admit(now=0.06)  # for longer than usual
        ['b']
        >>> port.done("a", now=0.08), port.done("b", now=0.09)
        (None, None)
    """

    def __init__(self, width: int = _WIDTH) -> None:
        self._width = width
        self._waiting: deque[T] = deque()
        self._inside: dict[T, float] = {}  # since when
        self._took: deque[float] = deque(maxlen=_RECENT)

    def put(self, item: T) -> None:
        """Let something wait for its turn."""
        self._waiting.append(item)

    def admit(self, now: float) -> list[T]:
        """Return what may come in now."""
        usual = self.usual
        busy = sum(now - since <= usual for since in self._inside.values())
        admitted = []
        while self._waiting and busy < self._width:
            item = self._waiting.popleft()
            self._inside[item] = now
            admitted.append(item)
            busy += 1
        return admitted

    def done(self, item: T, now: float) -> None:
        """Note that something has come in, or never will."""
        since = self._inside.pop(item, None)
        if since is not None:
            self._took.append(now - since)

    @property
    def look_again(self) -> float | None:
        """When one who waits may be let in although nobody is done; None: never."""
        if not self._waiting or not self._inside:
            return None
        return min(self._inside.values()) + self.usual

    @property
    def usual(self) -> float:
        """Seconds after which one is slow."""
        if not self._took:
            return _FIRST
        return max(_LEAST, _SLOWER * median(self._took))

    def clear(self, keep: Callable[[T], bool]) -> None:
        """Let those go who wait, unless they are to be kept."""
        self._waiting = deque(item for item in self._waiting if keep(item))
