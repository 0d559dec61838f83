"""What is to be done: the only things a coordinator ever says."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

ROOT = -1
"""Whom messages go to, unless an order names a worker."""

_COMPARED = 16  # messages at most; 136 inner products, in a few times what adding takes


class Segment(Struct, frozen=True, tag=True, gc=False):
    """An ordered list of parts for one worker, with one running sum.

    Attributes:
        id: One counter a step numbers segments and messages alike.
        worker: Whose it is.
        parts: In the order in which they are to be merged; not empty.
        coefficients: What each part gradient is multiplied by.
    """

    id: int
    worker: int
    parts: tuple[int, ...]
    coefficients: tuple[float, ...]


class Assign(
    Struct,
    frozen=True,
    tag=True,
    gc=False,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Append a segment to its worker's queue; with a message id, upload when closed.

    A `whole` one is never cut, so its worker may add parts straight into the sum. The
    message goes to worker `to`, or to the root. One that asks for a second opinion is
    `about` the message that is doubted.
    """

    step: int
    segment: Segment
    message: int | None
    whole: bool = False
    to: int = ROOT
    about: int | None = None


class Cut(Struct, frozen=True, tag=True, gc=False):
    """Close a segment at max(keep, parts merged by then); the sum is kept.

    `keep` = 0 means now. The coordinator proposes the border, the worker disposes.
    """

    step: int
    worker: int
    segment: int
    keep: int


class Upload(
    Struct,
    frozen=True,
    tag=True,
    gc=False,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Send the sum of some segments in one message, as soon as all are closed.

    An inner node of a tree adds what it has `gathered`: (message, weight) pairs of
    messages that have come to it. The sum goes to worker `to`, or to the root. Trees
    need no more of the core than these two fields: one coordinator decides for every
    parent, from what has come to that parent, so there is one trace and one history.
    """

    step: int
    worker: int
    message: int
    segments: tuple[int, ...]
    gathered: tuple[tuple[int, float], ...] = ()
    to: int = ROOT


class Drop(Struct, frozen=True, tag=True, gc=False):
    """Abandon and release everything of a step."""

    step: int
    worker: int


class WakeAt(Struct, frozen=True, tag=True, gc=False):
    """Fire a timer at `at` seconds. Replaces the one before."""

    step: int
    at: float


class Combine(
    Struct,
    frozen=True,
    tag=True,
    gc=False,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """The step is done: the gradient is the weighted sum of these messages.

    Everything else of the step is to be dropped, by all workers. With `compare`, a
    driver that has gradients answers with `MessagesCompared`.
    """

    step: int
    weights: tuple[tuple[int, float], ...]
    residual: float
    compare: bool = False

    @property
    def compared(self) -> tuple[int, ...]:
        """The messages to be compared: the first 16 weighed, if any were asked for."""
        asked = self.weights[:_COMPARED] if self.compare else ()
        return tuple(message for message, _ in asked)


class GiveUp(Struct, frozen=True, tag=True, gc=False):
    """The step has ended without a sum. Implies a drop by all workers, too."""

    step: int
    reason: str


Order: TypeAlias = Assign | Cut | Upload | Drop
"""What goes to one worker."""

Command: TypeAlias = Order | WakeAt | Combine | GiveUp
