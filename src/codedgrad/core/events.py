"""What happened: the only things a coordinator is ever told.

All carry `at`, seconds on the driver's own clock, stamped by the driver when it feeds
the event; never less than that of the event before.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class StepStarted(Struct, frozen=True, tag=True, gc=False):
    """The parameters of `step` are published. Ignored unless it is a later step."""

    step: int
    at: float


class Progressed(Struct, frozen=True, tag=True, gc=False):
    """A worker has merged the first `done` parts of a segment.

    `closed` is final: no part will be added. It is sent once.
    """

    step: int
    worker: int
    segment: int
    done: int
    closed: bool
    at: float


class MessageArrived(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A message is in the driver's hands.

    `cuts` are its (segment, parts merged) pairs. They are all one needs to know what
    was added up, and say that those segments are closed. Not `finite`: the driver
    found a value in it that is infinite or not a number. See `second_opinion`.
    """

    step: int
    worker: int
    message: int
    cuts: tuple[tuple[int, int], ...]
    at: float
    finite: bool = True


class MessageFailed(Struct, frozen=True, tag=True, gc=False):
    """A message will never come, or cannot be used."""

    step: int
    worker: int
    message: int
    reason: str
    at: float


class MessagesCompared(Struct, frozen=True, tag=True, gc=False):
    """How alike the messages of a sum are, as its `Combine` asked.

    `products` are (message, message, inner product of their gradients), the first
    number never above the second, all finite. Fed at most once, after the end of the
    step and before the next one starts; where a product is not finite, never.
    """

    step: int
    products: tuple[tuple[int, int, float], ...]
    at: float


class WorkersLost(Struct, frozen=True, tag=True, gc=False):
    """Workers are gone together, and what they had not sent with them.

    One process that died is a tuple of one; a lost host is all the workers on it. A
    plan that was told of a host's workers one by one would give the parts of the first
    to another that is gone too.
    """

    workers: tuple[int, ...]
    at: float


class WorkersJoined(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Vacant worker numbers are filled again, by processes that know nothing.

    `host` is the number of the host that the processes are on; 0 is the root's own
    machine.
    """

    workers: tuple[int, ...]
    at: float
    host: int = 0


class WorkerFreed(Struct, frozen=True, tag=True, gc=False):
    """A worker has finished a part that it was no longer asked for, and has no other.

    Most often because the step ended while the worker was computing the part, seldom
    because the part was cut away. The part is in no sum. `seconds` is how long it took,
    by the worker's own clock: `at` may be much later, because a root that is between
    two steps does not listen. No plan is shown the event.
    """

    step: int
    worker: int
    seconds: float
    at: float


class TimerFired(Struct, frozen=True, tag=True, gc=False):
    """The moment asked for by `WakeAt` has come. Early or repeated is harmless."""

    at: float


class StepCancelled(Struct, frozen=True, tag=True, gc=False):
    """Nobody wants the sum of `step` any more."""

    step: int
    at: float


Event: TypeAlias = (
    StepStarted
    | Progressed
    | MessageArrived
    | MessageFailed
    | MessagesCompared
    | WorkersLost
    | WorkersJoined
    | WorkerFreed
    | TimerFired
    | StepCancelled
)
