"""The book of sums that lie elsewhere: at their workers, on their way, or arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import ROOT
from codedgrad.engines.host.rows import Rows, inner_products, weighted_sum
from codedgrad.engines.host.sum_checks import add_scales
from codedgrad.errors import EngineFailed
from codedgrad.jobs import VectorLayout


class FarRows(Rows):
    """The rows of the open step, at agents that have each the same number of them.

    A row that is on its way is not given out again before it has left, whatever becomes
    of its step.

    Args:
        layout: Of the job.
        places: Rows for sums of its own that every worker has.
        inbox: Rows that it has for what others send it, after those.
    """

    def __init__(self, layout: VectorLayout, places: int, inbox: int) -> None:
        self._dtype = layout.dtype
        self._first, self._inbox = places, inbox
        self._busy: set[int] = set()  # rows on their way
        self._filling: set[tuple[int, int]] = set()  # (worker, row) they are to fill
        super()._set_up(places, np.empty(layout.row, dtype=layout.dtype))

    def begin(self) -> None:
        """Forget the step before."""
        super().begin()
        self._terms: dict[int, tuple[NDArray[Any], ...]] = {}  # of what has arrived
        self._lent: set[int] = set()  # messages whose terms are rows of their workers
        self._there: dict[int, tuple[int, int]] = {}  # message -> (worker, row)

    def place(self, row: int) -> int:
        """Return the number of a row at its worker."""
        return row % self._places

    # -- on their way ----------------------------------------------------------------

    def is_asked(
        self, worker: int, message: int, cuts: tuple[tuple[int, int], ...]
    ) -> bool:
        """Whether a worker was asked for a message of these segments."""
        asked = worker, frozenset(id_ for id_, _ in cuts)
        return self._asked.get(message) == asked

    def target(self, message: int) -> int | None:
        """Return whom a message goes to; None: to somebody who is gone."""
        return None if message in self._void else self._to.get(message, ROOT)

    def is_there(self, message: int) -> bool:
        """Whether a message has arrived."""
        return message in self._sent

    def of(self, cuts: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """Return the rows of a message; it may be none."""
        return tuple(self._row[id_] for id_, done in cuts if done > 0)

    def is_dropped(self, cuts: tuple[tuple[int, int], ...]) -> bool:
        """Whether a message is of sums that its worker was told to forget."""
        return any(id_ in self._left for id_, _ in cuts)

    def leave(self, cuts: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """Return the rows of a message, which are now on their way."""
        rows = self.of(cuts)
        self._busy.update(rows)
        return rows

    def left(self, rows: tuple[int, ...]) -> None:
        """Note that rows are not on their way any more."""
        self._busy.difference_update(rows)

    def room(self, worker: int) -> int:
        """Return a free row of a worker's for what it is sent."""
        taken = {row for there, row in self._there.values() if there == worker}
        taken |= {row for there, row in self._filling if there == worker}
        for row in range(self._first, self._first + self._inbox):
            if row not in taken:
                self._filling.add((worker, row))
                return row
        problem = f"worker {worker} has no room left for what it is sent"
        raise EngineFailed(problem, "to report this, with the trace")

    def filled(self, worker: int, row: int) -> None:
        """Note that nothing is on its way to a row any more."""
        self._filling.discard((worker, row))

    def arrived(
        self, message: int, terms: tuple[NDArray[Any], ...], lent: bool = False
    ) -> None:
        """Note what the root has of a message: vectors to be added up; it may be none.

        Those that are lent are the rows themselves.
        """
        self._terms[message] = terms
        if lent:
            self._lent.add(message)

    def delivered(self, message: int, worker: int, row: int) -> None:
        """Note where a worker has what it was sent."""
        self._there[message] = worker, row

    # -- what the book says of rows --------------------------------------------------

    def gathered(
        self, messages: Sequence[tuple[int, float]]
    ) -> tuple[tuple[int, float], ...]:
        """Return the (row, weight) pairs of what a worker has been sent."""
        return tuple(
            (self._there[message][1], weight)
            for message, weight in messages
            if message in self._there  # a sum of nothing is not sent
        )

    def forget(self, worker: int) -> None:
        """Free the rows of a worker that were not sent, and what was sent to it."""
        super().forget(worker)
        for message in self._void & self._there.keys():
            del self._there[message]

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages; it is overwritten by the next one."""
        rows: list[NDArray[Any]] = []
        factors: list[float] = []
        for _, message, weight in sorted(
            (self._lowest(message), message, weight) for message, weight in weights
        ):
            rows += self._terms[message]
            factors += [weight] * len(self._terms[message])
        nowhere = np.empty((0, len(self._total)), dtype=self._dtype)
        weighted_sum(nowhere, rows, factors, self._total)
        self._total[-3::2] = 0.0
        self._total[-3::2] = add_scales(rows, factors, self._total)
        return self._total

    def compare(
        self, messages: Sequence[int], length: int
    ) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product) of all pairs of messages, one <= other."""
        if not messages:
            return ()
        ordered = sorted(messages)
        sums = [[term[:length] for term in self._terms[m]] for m in ordered]
        return self._pairs(ordered, inner_products(sums, length))

    def _taken(self) -> set[int]:
        return super()._taken() | self._busy

    def _rescue(self, worker: int) -> int:
        """Free a row whose sum has come to the root, or is copied now."""
        wanted = {
            id_
            for message, (_, segments) in self._asked.items()
            if message not in self._sent and message not in self._void
            for id_ in segments
        }
        for message in self._terms:
            for id_, _ in self._sent[message]:
                row = self._row.get(id_)
                mine = self._segments[id_].worker == worker and id_ not in wanted
                if mine and row is not None and row not in self._busy:
                    self._copy_lent(id_)
                    del self._row[id_]
                    self.rescued += 1
                    return row
        problem = f"worker {worker} has no room left for a sum in this step"
        raise EngineFailed(problem, "more open_segments")

    def _copy_lent(self, segment: int) -> None:
        """Copy the terms of all messages that have a segment, where they are rows."""
        for message in list(self._lent):
            if any(id_ == segment for id_, _ in self._sent[message]):
                self._terms[message] = tuple(t.copy() for t in self._terms[message])
                self._lent.discard(message)
