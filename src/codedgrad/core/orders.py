"""A small builder of orders that numbers them as the coordinator expects."""

from __future__ import annotations

from collections.abc import Sequence

from codedgrad.core.commands import ROOT, Assign, Cut, Drop, Order, Segment, Upload
from codedgrad.core.plan import Ask
from codedgrad.core.state import State


class Orders:
    """Collects the orders of one answer.

    Numbers count on from `state.next_id`, in the order the orders are made.
    """

    def __init__(self, state: State) -> None:
        self._step = state.step
        self._next = state.next_id
        self._orders: list[Order] = []

    def assign(
        self,
        worker: int,
        parts: Sequence[int],
        coefficients: Sequence[float] | None = None,
        upload: bool = False,
        whole: bool = False,
        to: int = ROOT,
    ) -> tuple[int, int | None]:
        """Give a worker a segment; return its id, and its message's if it is to upload.

        Coefficients are 1 unless given. What is given as a whole must not be cut. The
        message goes to a worker, or to the root.
        """
        parts = tuple(parts)
        given = (1.0,) * len(parts) if coefficients is None else tuple(coefficients)
        segment = Segment(self._number(), worker, parts, given)
        message = self._number() if upload else None
        self._orders.append(Assign(self._step, segment, message, whole, to))
        return segment.id, message

    def cut(self, worker: int, segment: int, keep: int = 0) -> None:
        """Close a segment at `keep` parts, or where it is if that is more."""
        self._orders.append(Cut(self._step, worker, segment, keep))

    def upload(
        self,
        worker: int,
        segments: Sequence[int],
        gathered: Sequence[tuple[int, float]] = (),
        to: int = ROOT,
    ) -> int:
        """Ask for one message of several segments; return its id.

        Args:
            worker: Who is asked.
            segments: Of that worker.
            gathered: (message, weight) of messages that have come to it.
            to: A worker, or the root.
        """
        message, sums = self._number(), tuple(segments)
        order = Upload(self._step, worker, message, sums, tuple(gathered), to)
        self._orders.append(order)
        return message

    def given(self, worker: int) -> int:
        """Return how many segments a worker is given in this answer."""
        return sum(
            isinstance(order, Assign) and order.segment.worker == worker
            for order in self._orders
        )

    def drop(self, worker: int) -> None:
        """Let a worker go for the rest of the step."""
        self._orders.append(Drop(self._step, worker))

    def ask(self, until: float) -> Ask:
        """Return the answer: these orders, and then wait."""
        return Ask(tuple(self._orders), until)

    def __bool__(self) -> bool:
        return bool(self._orders)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1
