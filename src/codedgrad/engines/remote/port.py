"""Which transfers to one reader are under way at a time, and which wait.

All workers that have finished want to send at once. A link that takes all of their sums
together is no faster, and the sum that is wanted first comes last. So a port admits a
few transfers at a time.

1. Two at a time: of many transfers that share a link none ends before all of them do;
   with one, the link would be idle while the next is asked for.
2. One at a time of a sender: if its link is slow, and its step is over before the sum
   has come, further sums do not pile up behind it.
3. A transfer that takes much longer than usual is on a slow link. It no longer counts,
   and the next one is admitted beside it.
4. A sender that was slow last time waits until no other does: with luck the step is
   over by then. Otherwise it is first come, first served, or what a shared `Link` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Generic, Protocol, TypeVar

from codedgrad.uplink import Credits, Link

_WIDTH = 2  # transfers at a time
_RECENT = 32  # transfers, whose median duration is the usual one
_SLOWER = 3.0  # times the usual duration: a slow link
_FIRST = 2.0  # seconds until a transfer counts as slow, before any has ended
_CLAIMS = 2.0  # claim limit of the fastest sender; a slower one has proportionally more
_LEAST = 0.005  # seconds: no transfer that is shorter counts as slow


class Sending(Protocol):
    """A transfer: its sender, and a number that no other transfer has."""

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
    """Admits transfers in the order in which they came.

    Args:
        may_begin: Whether a transfer that waits may still begin; asked whenever there
            may be room for one. If not, it is dropped.
        width: How many at a time.
    """

    def __init__(
        self, may_begin: Callable[[T], bool] = lambda item: True, width: int = _WIDTH
    ) -> None:
        self._may_begin = may_begin
        self._width = width
        self._waiting: list[T] = []
        self._inside: dict[int, tuple[int, float]] = {}  # key -> sender, since when
        self._took: deque[float] = deque(maxlen=_RECENT)
        self._last: dict[int, float] = {}  # by sender, how long the last one took

    def put(self, item: T) -> None:
        """Let a transfer wait for its turn."""
        self._waiting.append(item)

    def admit(self, now: float) -> list[T]:
        """Return the transfers that may begin now."""
        self._waiting = [item for item in self._waiting if self._may_begin(item)]
        admitted = []
        while (item := self._next(now)) is not None:
            self._waiting.remove(item)
            self._inside[item.key] = item.sender, now
            admitted.append(item)
        return admitted

    def done(self, item: T, now: float) -> None:
        """Note that a transfer has ended, or never will."""
        sender, since = self._inside.pop(item.key, (-1, now))
        if sender >= 0:
            self._took.append(now - since)
            self._last[sender] = now - since

    def look_again(self, now: float) -> float | None:
        """Return when a transfer may be admitted though none has ended; None: never.

        It is after `now`: a caller that looked again at once would do so without end.
        """
        senders = {sender for sender, _ in self._inside.values()}
        if all(item.sender in senders for item in self._waiting):
            return None
        return min((end for end in self._ends() if end > now), default=None)

    @property
    def usual(self) -> float:
        """Seconds after which a transfer is slow."""
        if not self._took:
            return _FIRST
        return max(_LEAST, _SLOWER * median(self._took))

    def _next(self, now: float) -> T | None:
        usual = self.usual
        busy = sum(now < end for end in self._ends())
        if busy >= self._width:
            return None
        senders = {sender for sender, _ in self._inside.values()}
        ready = [item for item in self._waiting if item.sender not in senders]
        return self._choose(ready, usual) if ready else None

    def _ends(self) -> list[float]:
        """Return when each transfer that is under way no longer counts."""
        return [since + self._given(sender) for sender, since in self._inside.values()]

    def _given(self, sender: int) -> float:
        """Return the seconds after which a transfer no longer counts."""
        return self.usual

    def _choose(self, ready: list[T], usual: float) -> T:
        return min(ready, key=lambda item: self._last.get(item.sender, 0.0) > usual)


class FairPort(Port[T]):
    """Admits transfers as a shared link grants it.

    A claim to the link is a sender's, not a message's: a sender whose message was
    called off because the step was over keeps its claim, and gets another for its next
    message. So its turn comes, the later the slower it is. A sender in its turn has the
    link to itself for as long as its transfer takes, however slow it is.

    Args:
        link: How it is shared out.
        workers: How many share it.
        may_begin: As for `Port`.
    """

    def __init__(
        self,
        link: Link,
        workers: int,
        may_begin: Callable[[T], bool] = lambda item: True,
    ) -> None:
        super().__init__(may_begin, width=1)
        self._rates = link.rates(workers)
        fastest = max(self._rates)
        self._most = [_CLAIMS * fastest / rate for rate in self._rates]
        if link.V is None:  # all claims are admitted: their number is limited here
            beta = link.beta or 1.0 / fastest
            link = replace(link, beta=beta, V=2.0 * max(self._most) / beta)
        self._credits: Credits[int] = link.credits(workers)
        self._claims: dict[int, int] = {}  # claim -> sender
        self._granted: list[int] = []  # senders, in order
        self._made = 0

    def put(self, item: T) -> None:
        """Let a transfer wait for its turn."""
        super().put(item)
        held = [*self._claims.values(), *self._granted].count(item.sender)
        if held < self._most[item.sender]:
            self._claim(item.sender)

    def _claim(self, sender: int) -> None:
        self._made += 1
        self._claims[self._made] = sender
        self._credits.offer(sender, self._made, size=1.0)

    def _given(self, sender: int) -> float:
        return max(_FIRST, self.usual, _SLOWER * self._last.get(sender, 0.0))

    def _choose(self, ready: list[T], usual: float) -> T:
        """Return the transfer whose sender is granted the link first."""
        first = {item.sender: item for item in reversed(ready)}
        # A sender with more messages than it may have claims has used all of them up:
        # without a new one its turn would never come.
        for sender in sorted(first.keys() - {*self._claims.values(), *self._granted}):
            self._claim(sender)
        while not any(sender in first for sender in self._granted):
            for claim in self._credits.advance(self._rates):
                self._granted.append(self._claims.pop(claim))
        sender = next(sender for sender in self._granted if sender in first)
        self._granted.remove(sender)
        return first[sender]
