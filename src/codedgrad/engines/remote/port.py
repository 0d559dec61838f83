"""What comes in at one place, a few at a time.

Everybody who has finished wants to send at once. A link that takes all of it together
is no faster, and what is wanted first comes last; so a few are let in at a time.

1. How many at a time is tried out, and as few as can be (`pace`): of those that share a
   link none is there before all of them are.
2. Of a sender one thing is on its way at a time: what a slow one has not got rid of
   when its step is over does not pile up.
3. One that takes much longer than usual is on a slow link. It no longer counts, and the
   next one is let in beside it.
4. Who was slow last time waits until nobody else does: with luck the step is over by
   then. Otherwise it is first come, first served, or what a shared `Link` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Generic, Protocol, TypeVar

from codedgrad.engines.remote.pace import BusyStretch, Pace
from codedgrad.uplink import Credits, Link

_RECENT = 32  # whose times say what is usual
_SLOWER = 3.0  # times what is usual: a slow link
_FIRST = 2.0  # seconds that one is given before anything is known
_CLAIMS = 2.0  # of the fastest sender, at most; of others as many as weigh the same
_LEAST = 0.005  # seconds, below which nothing is slow


class Sending(Protocol):
    """Something to be let in: who sends it, and a number that no other has."""

    @property
    def sender(self) -> int:
        """The worker."""
        ...

    @property
    def key(self) -> int:
        """The number."""
        ...


T = TypeVar("T", bound=Sending)


class Port(Generic[T]):
    """Lets things in, in the order in which they came.

    Args:
        width: How many at a time; None: that is tried out.
        pace: What was found out about that at other places like this one.
    """

    def __init__(self, width: int | None = None, pace: Pace | None = None) -> None:
        self._width = width
        self._stretch = BusyStretch(Pace() if pace is None else pace)
        self._waiting: list[T] = []
        self._inside: dict[int, tuple[int, float]] = {}  # key -> sender, since when
        self._took: deque[float] = deque(maxlen=_RECENT)
        self._last: dict[int, float] = {}  # by sender, how long the last one took

    def put(self, item: T) -> None:
        """Let something wait for its turn."""
        self._waiting.append(item)

    def admit(self, now: float) -> list[T]:
        """Return what may come in now."""
        admitted = []
        while (item := self._next(now)) is not None:
            self._waiting.remove(item)
            self._inside[item.key] = item.sender, now
            admitted.append(item)
        self._stretch.go_on(len(self._inside), len(self._waiting), now)
        return admitted

    def done(self, item: T, now: float) -> None:
        """Note that something has come in, or never will."""
        sender, since = self._inside.pop(item.key, (-1, now))
        if sender >= 0:
            ends = since + self._given(sender), *self._ends()
            slow = any(now >= end for end in ends)
            self._took.append(now - since)
            self._last[sender] = now - since
            left = len(self._inside) + len(self._waiting)
            self._stretch.came(left, now, is_slow=slow)

    def clear(self, keep: Callable[[T], bool]) -> None:
        """Let those go who wait, unless they are to be kept."""
        self._waiting = [item for item in self._waiting if keep(item)]
        if not self._inside and not self._waiting:
            self._stretch.end()

    @property
    def next_up(self) -> T | None:
        """Who is likely to be let in next; None: nobody waits."""
        senders = {sender for sender, _ in self._inside.values()}
        waiting = [item for item in self._waiting if item.sender not in senders]
        return self._likely(waiting, self.usual) if waiting else None

    def look_again(self, now: float) -> float | None:
        """Return when one who waits may be let in though nobody is done; None: never.

        It is after `now`, or whoever looked again would do so without end.
        """
        senders = {sender for sender, _ in self._inside.values()}
        if all(item.sender in senders for item in self._waiting):
            return None
        return min((end for end in self._ends() if end > now), default=None)

    @property
    def usual(self) -> float:
        """Seconds after which one is slow."""
        if not self._took:
            return _FIRST
        return max(_LEAST, _SLOWER * median(self._took))

    def _next(self, now: float) -> T | None:
        usual = self.usual
        busy = sum(now < end for end in self._ends())
        if busy >= (self._width or self._stretch.width):
            return None
        senders = {sender for sender, _ in self._inside.values()}
        ready = [item for item in self._waiting if item.sender not in senders]
        return self._choose(ready, usual) if ready else None

    def _ends(self) -> list[float]:
        """Return when each of those inside no longer counts."""
        return [since + self._given(sender) for sender, since in self._inside.values()]

    def _given(self, sender: int) -> float:
        """Return the seconds that one is given before it no longer counts."""
        return self.usual

    def _choose(self, ready: list[T], usual: float) -> T:
        return self._likely(ready, usual)

    def _likely(self, ready: list[T], usual: float) -> T:
        return min(ready, key=lambda item: self._last.get(item.sender, 0.0) > usual)


class FairPort(Port[T]):
    """Lets things in as a shared link grants it.

    A claim to the link is a sender's, not a message's: one whose message was called off
    because the step was over has its claim still, and another one for the next message,
    so that its turn comes, the later the slower it is. Whoever has
    its turn has the link to itself for as long as it takes, as slow as it may be.

    Args:
        link: How it is shared out.
        workers: How many share it.
    """

    def __init__(self, link: Link, workers: int) -> None:
        super().__init__(width=1)
        self._rates = link.rates(workers)
        fastest = max(self._rates)
        self._most = [_CLAIMS * fastest / rate for rate in self._rates]
        if link.V is None:  # all claims are admitted: their number is limited here
            beta = link.beta or 1.0 / fastest
            link = replace(link, beta=beta, V=2.0 * max(self._most) / beta)
        self._credits: Credits[int] = link.credits(workers)
        self._claims: dict[int, int] = {}  # claim -> whose
        self._granted: list[int] = []  # to whom, in order
        self._made = 0

    def put(self, item: T) -> None:
        """Let something wait for its turn."""
        super().put(item)
        held = [*self._claims.values(), *self._granted].count(item.sender)
        if held < self._most[item.sender]:
            self._made += 1
            self._claims[self._made] = item.sender
            self._credits.offer(item.sender, self._made, size=1.0)

    def _given(self, sender: int) -> float:
        return max(_FIRST, self.usual, _SLOWER * self._last.get(sender, 0.0))

    def _choose(self, ready: list[T], usual: float) -> T:
        """Return what is granted first of what could be let in."""
        first = {item.sender: item for item in reversed(ready)}
        while not any(sender in first for sender in self._granted):
            for claim in self._credits.advance(self._rates):
                self._granted.append(self._claims.pop(claim))
        sender = next(sender for sender in self._granted if sender in first)
        self._granted.remove(sender)
        return first[sender]
