"""The root's view of one worker: which life of it, what it has in hand, what waits.

Orders of a new step wait here until the worker has let go of the old one. So a worker
has one version of the parameters in hand at most, a stopped one finds a step's orders
when it wakes up and not a thousand, and no pipe fills up. The price is one more round
trip for a late worker.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from codedgrad.core import Assign, Drop
from codedgrad.engines.faults import Fault
from codedgrad.engines.fleet.deaths import InHand
from codedgrad.engines.host.host import Gives, Order
from codedgrad.engines.host.nursery_messages import Signal, Spawn
from codedgrad.engines.host.wire import Give, encode

_SHORT = 10.0  # seconds: a life that ended sooner makes the next one wait
_FIRST, _LONGEST = 0.1, 30.0  # seconds of back-off


class BackOff:
    """How long to wait before the next life of something that ends again and again.

    Example:
        >>> back_off = BackOff()
        >>> for begun, ended in ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 99.0)):
        ...     back_off.begin(begun)
        ...     back_off.end(ended)
        ...     print(back_off.seconds)
        0.0
        0.1
        0.2
        0.0
    """

    def __init__(self) -> None:
        self._begun = 0.0
        self._short_lives = 0

    def begin(self, at: float) -> None:
        """Begin a life, at so many seconds on a clock that never goes back."""
        self._begun = at

    def end(self, at: float) -> None:
        """End a life."""
        self._short_lives = 1 if at - self._begun > _SHORT else self._short_lives + 1

    @property
    def seconds(self) -> float:
        """Seconds to wait before the next life: none after a long one."""
        if self._short_lives < 2:
            return 0.0
        return min(_LONGEST, _FIRST * 2.0 ** (self._short_lives - 2))


class HostHandle(Protocol):
    """A host, as the root sees it."""

    @property
    def number(self) -> int:
        """Of the host; 0 is the root's own machine."""
        ...

    @property
    def workers(self) -> Sequence[int]:
        """The numbers of its workers, in the order of their rows."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether workers can be started there."""
        ...

    def take(self, order: Order) -> None:
        """Put an order on its way to the host; never waits."""
        ...

    def version(self, step: int) -> int:
        """Return where workers of the host find the parameters of a step.

        What is sent to the host after this arrives when the parameters are there.
        """
        ...


class WorkerHandle:
    """One worker number.

    Args:
        worker: The number.
        where: The host of its processes.

    Attributes:
        worker: The number.
        where: The host of its processes.
        life: How many processes have had it.
        is_there: Whether it has a process; it may not be ready yet.
        is_up: It is ready for orders, and the coordinator thinks so too.
        is_doomed: It was killed on purpose, and its end is not heard of yet.
        pid: Its process id; 0 if not known.
        host: The name of the machine where its process is, or its last one was; empty
            if not known.
        in_hand: The step it has something in hand of; None: it is idle.
        version: Of the parameters that it has in hand.
        hand: The segments that it has not reported as done.
    """

    def __init__(self, worker: int, where: HostHandle) -> None:
        self.worker, self.where = worker, where
        self.life = 0
        self.is_there = self.is_up = self.is_doomed = False
        self.pid = 0
        self.host = ""
        self.in_hand: int | None = None
        self.version = -1
        self.hand = InHand()
        self._given = 0
        self._waiting: list[Give] = []
        self._back_off = BackOff()

    def begin(self, faults: Sequence[Fault], at: float) -> None:
        """Begin a life."""
        self.life += 1
        self.is_there = True
        self._back_off.begin(at)
        self.where.take(Spawn(self.worker, self.life, list(faults)))

    def end(self, at: float) -> None:
        """End a life."""
        self.is_there = self.is_up = self.is_doomed = False
        self.pid = 0
        self.in_hand, self.version, self._given = None, -1, 0
        self.hand.clear()
        self._waiting.clear()
        self._back_off.end(at)

    @property
    def back_off(self) -> float:
        """Seconds to wait before the next life."""
        return self._back_off.seconds

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self.is_there:
            self.where.take(Signal(self.worker, self.life, number, self.pid))

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
        sent = []
        for give in gives:
            self.hand.give(give.order)
            if isinstance(give.order, Assign):
                self._given += 1
                # Only now: a late worker is sent once all that has changed since it
                # was last here, and not the parameters of every step.
                self.version = self.where.version(give.order.step)
                self.in_hand = give.order.step
                give = replace(give, version=self.version)
            sent.append(give)
        self.where.take(Gives(self.worker, self.life, encode(sent)))
