"""The root's view of one worker: which life of it, what it has in hand, what waits.

Orders of a new step wait here until the worker has let go of the old one. So a worker
has one version of the parameters in hand at most, a stopped one finds a step's orders
when it wakes up and not a thousand, and no pipe fills up. The price is one more round
trip for a late worker.
"""

from __future__ import annotations

from typing import Protocol

from codedgrad.core import Assign, Drop
from codedgrad.engines.host.deaths import InHand
from codedgrad.engines.host.wire import Give, encode

_SHORT = 10.0  # seconds: a life that ended sooner makes the next one wait
_FIRST, _LONGEST = 0.1, 30.0  # seconds of back-off


class Line(Protocol):
    """Frames to a life of a worker, and from it."""

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        ...

    def send(self, frame: bytes) -> None:
        """Put a frame on its way; never waits."""
        ...

    def receive(self) -> list[bytes]:
        """Return the frames that have come."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class WorkerHandle:
    """One worker number.

    Attributes:
        worker: The number.
        life: How many processes have had it.
        channel: To the one that has it; None if nobody has.
        is_up: It is ready for orders, and the coordinator thinks so too.
        is_doomed: It was killed on purpose, and its end is not heard of yet.
        pid: Its process id; 0 if not known.
        host: Where its process is, or its last one was; empty if not known.
        in_hand: The step it has something in hand of; None: it is idle.
        version: Of the parameters that it has in hand.
        hand: The segments that it has not reported as done.
    """

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.life = 0
        self.channel: Line | None = None
        self.is_up = False
        self.is_doomed = False
        self.pid = 0
        self.host = ""
        self.in_hand: int | None = None
        self.version = -1
        self.hand = InHand()
        self._given = 0
        self._waiting: list[Give] = []
        self._born = 0.0
        self._failures = 0

    def begin(self, channel: Line, at: float) -> None:
        """Begin a life."""
        self.life += 1
        self.channel = channel
        self._born = at

    def end(self, at: float) -> None:
        """End a life."""
        if self.channel is not None:
            self.channel.close()
        self.channel, self.pid = None, 0
        self.is_up = self.is_doomed = False
        self.in_hand, self.version, self._given = None, -1, 0
        self.hand.clear()
        self._waiting.clear()
        self._failures = 1 if at - self._born > _SHORT else self._failures + 1

    @property
    def back_off(self) -> float:
        """Seconds to wait before the next life: none after a long one."""
        if self._failures < 2:
            return 0.0
        return min(_LONGEST, _FIRST * 2.0 ** (self._failures - 2))

    def give(self, give: Give) -> None:
        """Send an order, or let it wait until the worker has let go."""
        busy_elsewhere = self.in_hand not in (None, give.order.step)
        if busy_elsewhere or self._waiting:
            self._waiting.append(give)
        else:
            self._send([give])

    def drop(self, step: int) -> None:
        """End a step here: nothing of it is wanted any more."""
        self._waiting.clear()
        if self.in_hand == step:
            self._send([Give(Drop(step, self.worker))])

    def left(self, taken: int) -> None:
        """Note that the worker was idle after so many segments."""
        if taken == self._given:  # none is on its way
            self.in_hand = None
            self.hand.clear()
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._send(waiting)

    def _send(self, gives: list[Give]) -> None:
        for give in gives:
            self.hand.give(give.order)
            if isinstance(give.order, Assign):
                self._given += 1
                self.in_hand, self.version = give.order.step, give.version
        if self.channel is not None:
            self.channel.send(encode(gives))
