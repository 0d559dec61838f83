"""Whole messages over an uplink that thinks in bits per slot.

A finished message is offered to the policy bit by bit, at most `policy.most` in a slot.
What is refused stays at the worker and is offered again. A message is delivered when
its last bit has left the queue of its worker. Messages of a worker go in the order in
which they were offered.

Every slot in which a worker with admitted bits can send, bits leave; and a worker with
an empty queue is always admitted. So whatever is offered is delivered after finitely
many slots, if rates are positive often enough and the others do not offer for ever. If
they do, the policy decides. The fair one may then keep the last bits of a message for
ever, as a short queue weighs little; with `wait_most` it does not, and neither does
round robin.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from codedgrad.errors import InvalidOptions, ProtocolError
from codedgrad.uplink.slots import Policy, positive

Key = TypeVar("Key", bound=Hashable)

_ROUNDING = 1e-9  # of a message: less than this is rounding, and is not waited for


@dataclass(slots=True)
class _Message(Generic[Key]):
    """A message on its way: bits refused so far, and bits in the queue."""

    key: Key
    size: float
    refused: float
    queued: float = 0.0

    @property
    def negligible(self) -> float:
        return _ROUNDING * self.size


class Credits(Generic[Key]):
    """Sends whole messages by a policy, and says when each has arrived.

    Args:
        policy: Any; it must be used by nobody else.

    Example:
        >>> from codedgrad.uplink.fair import Uplink
        >>> uplink = Uplink(2, V=10.0, most=4.0, peaks=[2.0, 4.0])
        >>> credits = Credits(uplink)
        >>> credits.offer(0, "a", size=2.0)
        >>> credits.offer(1, "b", size=6.0)
        >>> while not credits.is_idle:
        ...     print(credits.advance(rates=[2.0, 4.0]))
        []
        []
        ['a']
        ['b']
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lines: list[deque[_Message[Key]]] = [
            deque() for _ in range(policy.workers)
        ]
        self._owner: dict[Key, int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._owner

    @property
    def backlogs(self) -> tuple[float, ...]:
        """Bits that each worker has yet to send."""
        return tuple(sum(m.refused + m.queued for m in line) for line in self._lines)

    def waiting(self, worker: int) -> tuple[Key, ...]:
        """Return the messages of a worker that were not delivered yet, in order."""
        return tuple(message.key for message in self._lines[worker])

    def offer(self, worker: int, key: Key, size: float) -> None:
        """Take a finished message of so many bits; its key names it until delivered."""
        if not 0 <= worker < len(self._lines):
            advice = f"a worker from 0 to {len(self._lines) - 1}"
            raise InvalidOptions("uplink", f"there is no worker {worker}", advice)
        if key in self._owner:
            raise ProtocolError(f"message {key!r} is offered, and it waits already")
        size = positive("size", size)
        self._owner[key] = worker
        self._lines[worker].append(_Message(key, size, refused=size))

    def withdraw(self, key: Key) -> float:
        """Forget a message whose step is over, or whose worker is lost.

        Its bits vanish, from the queue too: they wait at the worker, and nobody needs
        them. Queues only become shorter by that, so their bounds hold. What has been
        sent was sent in vain. A message that was delivered, or never offered, is none.

        Returns:
            The bits that need not be sent any more.
        """
        worker = self._owner.pop(key, None)
        if worker is None:
            return 0.0
        line = self._lines[worker]
        message = next(m for m in line if m.key == key)
        line.remove(message)
        self._policy.withdraw(worker, message.queued)
        return message.refused + message.queued

    def advance(
        self, rates: Sequence[float], harvest: Sequence[float] | None = None
    ) -> list[Key]:
        """Let a slot pass, and return the messages delivered in it, in order.

        Args:
            rates: Bits that each worker could send if it had the whole slot.
            harvest: Energy on offer, by worker; None without batteries.
        """
        most, before = self._policy.most, self._policy.queues
        offered = [min(most, sum(m.refused for m in line)) for line in self._lines]
        slot = self._policy.slot(offered, rates, harvest)
        delivered: list[Key] = []
        empty = (worker for worker, bits in enumerate(before) if bits == 0.0)
        for worker in (*slot.scheduled, *empty):
            sent = slot.sent[worker]
            # An emptied queue is believed: a sum may have swallowed a small message.
            sent = math.inf if sent >= before[worker] else sent
            delivered += self._leave(worker, sent)
        for worker, bits in enumerate(slot.admitted):
            self._enter(worker, bits)
        return delivered

    def _leave(self, worker: int, bits: float) -> list[Key]:
        """Take bits out of the queue; return the messages that are complete."""
        line, complete = self._lines[worker], []
        while line:
            head = line[0]
            left = head.queued - bits
            if left > head.negligible or head.refused > 0.0:
                head.queued = max(left, 0.0)
                break
            bits = max(-left, 0.0)
            complete.append(head.key)
            del self._owner[line.popleft().key]
        return complete

    def _enter(self, worker: int, bits: float) -> None:
        """Put bits that were admitted into the queue, in order."""
        for message in self._lines[worker]:
            if bits <= 0.0:
                break
            taken = min(bits, message.refused)
            bits -= taken
            message.refused -= taken
            if message.refused <= message.negligible:
                taken += message.refused
                message.refused = 0.0
            message.queued += taken
