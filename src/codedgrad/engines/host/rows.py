"""Which row of shared memory holds which sum, and adding up the ones that count.

The root gives the rows out, on every host. A row is free unless it holds a sum of the
open step that its worker still has or that was heard, or is being sent. A worker fills
its rows one after the other in one thread and is given none of a new step before it has
let go of the old one; so nothing is ever written into a row that is being read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import ROOT, Segment
from codedgrad.engines.host.memory_layout import Memory
from codedgrad.engines.host.sum_checks import add_scales
from codedgrad.errors import EngineFailed

ROOT_HOST = 0
"""The number of the host that the root's process is the agent of."""

_LONG = 4  # rows at equal distances that are worth a matrix
_FURTHEST = 2**31 - 2  # numbers from one row to the next that BLAS can count
_BLOCK = 1 << 19  # bytes: of a row at a time, so that the sum stays in the cache
_THREADS = 4  # that add up at a time, at most: memory is as fast as it is
_WORTHWHILE = 1 << 24  # bytes that a thread is started for
_TABLE = 1 << 20  # bytes: of all rows together, where each is used with every other


class Rows:
    """The book of the open step's sums: in whose rows they are, and which were heard.

    A message is heard when its sum is where it was to go. Between workers of one host,
    and from the root's own host to the root, that is where it is already. Other sums
    travel: to the root as a vector, or to a row of the inbox of the reader's host.

    Args:
        memory: Of the root's own host, number 0. It may have no workers.
        seats: (host, index among the workers of that host), by worker; None: all are on
            the root's own host.
        inbox: Rows of every host for what other hosts send to its workers.

    Attributes:
        rescued: How many rows were freed because none was: those of sums that the root
            has as well, or that it copied out.
    """

    def __init__(
        self,
        memory: Memory,
        seats: Sequence[tuple[int, int]] | None = None,
        inbox: int = 0,
    ) -> None:
        shape = memory.shape
        self._memory = memory
        self._places = shape.places
        if seats is None:
            seats = [(ROOT_HOST, index) for index in range(shape.workers)]
        self._seats = seats
        self._inbox = inbox
        self._counts = Counter(host for host, _ in seats)
        self._total = np.empty(shape.row, dtype=shape.dtype)
        self._busy: set[tuple[int, int]] = set()  # (worker, row) that is being sent
        self._filling: set[tuple[int, int]] = set()  # (host, row) that is being filled
        self.rescued = 0
        self.begin()

    def begin(self) -> None:
        """Forget the step before."""
        self._segments: dict[int, Segment] = {}
        self._row: dict[int, int] = {}  # segment -> row of its worker's host
        self._copy: dict[int, NDArray[Any]] = {}  # segment -> its sum, copied out
        self._vector: dict[int, tuple[NDArray[Any], ...]] = {}  # message -> what came
        self._inbox_row: dict[int, tuple[int, int]] = {}  # message -> (host, row)
        self._asked: dict[int, tuple[int, frozenset[int]]] = {}  # message -> of whom
        self._sent: dict[int, tuple[tuple[int, int], ...]] = {}  # message -> cuts
        self._to: dict[int, int] = {}  # message -> the worker that reads its rows
        self._void: set[int] = set()  # messages whose reader is gone, and they with it
        self._left: set[int] = set()  # segments whose worker has them no more

    # -- orders ----------------------------------------------------------------------

    def give(self, segment: Segment, message: int | None = None, to: int = ROOT) -> int:
        """Return a free row of the segment's worker, which is now the segment's.

        With a message id, its sum is to be sent as that message, to whom is said.
        """
        worker = segment.worker
        taken = {row for i, row in self._row.items() if self._worker(i) == worker}
        taken |= {row for sender, row in self._busy if sender == worker}
        first = self._seats[worker][1] * self._places
        own = range(first, first + self._places)
        free = next((row for row in own if row not in taken), None)
        if free is None:
            free = self._rescue(worker)
        self._segments[segment.id] = segment
        self._row[segment.id] = free
        if message is not None:
            self.expect(message, worker, (segment.id,), to)
        return free

    def expect(
        self, message: int, worker: int, segments: tuple[int, ...], to: int = ROOT
    ) -> None:
        """Note that a worker was asked for a message of some sums."""
        self._asked[message] = worker, frozenset(segments)
        if to != ROOT:
            self._to[message] = to

    def gathered(
        self, messages: Sequence[tuple[int, float]]
    ) -> tuple[tuple[int, float], ...]:
        """Return the (row, weight) pairs of messages that a worker is to add up.

        The rows are of the worker's own host.
        """
        found: list[tuple[int, float]] = []
        for message, weight in messages:
            if message in self._inbox_row:
                found.append((self._inbox_row[message][1], weight))
            else:
                found += [(row, weight) for row in self.rows_of(self._sent[message])]
        return tuple(found)

    # -- where a message goes --------------------------------------------------------

    def is_asked(
        self, worker: int, message: int, cuts: tuple[tuple[int, int], ...]
    ) -> bool:
        """Whether a worker was asked for a message of these segments."""
        asked = worker, frozenset(id_ for id_, _ in cuts)
        return self._asked.get(message) == asked

    def reader(self, message: int) -> int | None:
        """Return the worker that a message goes to, or the root; None: it is gone."""
        return None if message in self._void else self._to.get(message, ROOT)

    def is_heard(self, message: int) -> bool:
        """Whether a message is where it was to go."""
        return message in self._sent

    def is_dropped(self, cuts: tuple[tuple[int, int], ...]) -> bool:
        """Whether a message is of sums that its worker was told to forget."""
        return any(id_ in self._left for id_, _ in cuts)

    def host_of(self, worker: int) -> int:
        """Return the host of a worker; that of the root is number 0."""
        return ROOT_HOST if worker == ROOT else self._seats[worker][0]

    def rows_of(self, cuts: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """Return the rows of a message at its worker's host; it may be none."""
        return tuple(self._row[id_] for id_, done in cuts if done > 0)

    # -- what happens ----------------------------------------------------------------

    def sent(
        self, worker: int, message: int, cuts: tuple[tuple[int, int], ...]
    ) -> bool:
        """Note that a message was heard: its sum does not change any more.

        Returns:
            False if its worker was not asked for it.
        """
        if not self.is_asked(worker, message, cuts):
            return False
        if message not in self._void:
            self._sent.setdefault(message, cuts)
        return True

    def leave(self, worker: int, cuts: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """Return the rows of a message; they are being sent now.

        A row that is being sent is not given out again, whatever becomes of its step.
        """
        rows = self.rows_of(cuts)
        self._busy.update((worker, row) for row in rows)
        return rows

    def left(self, worker: int, rows: tuple[int, ...]) -> None:
        """Note that rows are not being sent any more."""
        self._busy.difference_update((worker, row) for row in rows)

    def room(self, worker: int) -> int:
        """Return a free row, at a worker's host, for what another host sends to it."""
        host, _ = self._seats[worker]
        taken = {*self._filling, *self._inbox_row.values()}
        first = self._counts[host] * self._places
        for row in range(first, first + self._inbox):
            if (host, row) not in taken:
                self._filling.add((host, row))
                return row
        problem = f"worker {worker} has no room left for what it is sent"
        raise EngineFailed(problem, "to report this, with the trace")

    def filled(self, worker: int, row: int) -> None:
        """Note that nothing is on its way to a row of the inbox any more."""
        self._filling.discard((self.host_of(worker), row))

    def arrived(self, message: int, vectors: tuple[NDArray[Any], ...]) -> None:
        """Note what has come to the root of a message; it may be nothing."""
        self._vector[message] = vectors

    def delivered(self, message: int, worker: int, row: int) -> None:
        """Note where a worker's host has a message that another host has sent."""
        self._inbox_row[message] = self.host_of(worker), row

    def forget(self, worker: int) -> None:
        """Free the rows of a worker that were not sent, and what was sent to it.

        Other workers that have sent something to it still have those sums.
        """
        for message in [m for m, to in self._to.items() if to == worker]:
            del self._to[message]
            self._sent.pop(message, None)
            self._inbox_row.pop(message, None)
            self._void.add(message)
        self._left.update(i for i, s in self._segments.items() if s.worker == worker)
        for id_ in self._left - self._kept():
            self._row.pop(id_, None)

    def refuse(self, worker: int, cuts: tuple[tuple[int, int], ...]) -> None:
        """Free the rows of a message that will not be used, unless another holds them.

        The worker that sent it has closed them and does not write to them any more.
        """
        kept = self._kept()
        for id_, _ in cuts:
            segment = self._segments.get(id_)
            if segment is not None and segment.worker == worker and id_ not in kept:
                self._row.pop(id_, None)
                self._left.add(id_)

    def _kept(self) -> set[int]:
        """Return the segments whose rows hold something that was heard."""
        return {id_ for cuts in self._sent.values() for id_, _ in cuts}

    def _worker(self, segment: int) -> int:
        return self._segments[segment].worker

    def _rescue(self, worker: int) -> int:
        """Free rows whose sums were heard at the root, copied if they are only here."""
        read = {id_ for message in self._to for id_ in self._asked[message][1]}
        wanted = {
            id_
            for message, (_, segments) in self._asked.items()
            if message not in self._sent and message not in self._void
            for id_ in segments
        }
        is_here = self._seats[worker][0] == ROOT_HOST
        freed = []
        for message, cuts in self._sent.items():
            for id_, _ in cuts:
                row = self._row.get(id_)
                if row is None or self._worker(id_) != worker or id_ in read:
                    continue
                is_free = is_here or (message in self._vector and id_ not in wanted)
                if not is_free or (worker, row) in self._busy:
                    continue
                if is_here:
                    self._copy[id_] = self._memory.row(row).copy()
                del self._row[id_]
                freed.append(row)
        if not freed:
            problem = f"worker {worker} has no room left for a sum in this step"
            raise EngineFailed(problem, "more open_segments")
        self.rescued += len(freed)
        return freed[0]

    # -- adding up -------------------------------------------------------------------

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages; it is overwritten by the next one.

        Messages are added in the order of their lowest part: whichever workers sent
        them, the same numbers are added in the same order.
        """
        rows: list[int | NDArray[Any]] = []
        factors: list[float] = []
        for _, message, weight in sorted(
            (self._lowest(message), message, weight) for message, weight in weights
        ):
            terms = self._terms(message)
            rows += terms
            factors += [weight] * len(terms)
        table = self._memory.rows
        weighted_sum(table, rows, factors, self._total)
        arrays = [table[row] if isinstance(row, int) else row for row in rows]
        self._total[-3::2] = 0.0
        self._total[-3::2] = add_scales(arrays, factors, self._total)
        return self._total

    def compare(
        self, messages: Sequence[int], length: int
    ) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product) of all pairs of messages, one <= other.

        Args:
            messages: None twice, in any order.
            length: How many numbers of each count, from the first on.
        """
        if not messages:
            return ()
        ordered, table = sorted(messages), self._memory.rows
        sums = [
            [
                (table[term] if isinstance(term, int) else term)[:length]
                for term in self._terms(message)
            ]
            for message in ordered
        ]
        products = inner_products(sums, length)
        return tuple(
            (one, other, float(products[i, i + j]))
            for i, one in enumerate(ordered)
            for j, other in enumerate(ordered[i:])
        )

    def _terms(self, message: int) -> list[int | NDArray[Any]]:
        """Return what a message is the sum of: rows of the root's host, or vectors."""
        if message in self._vector:
            return [*self._vector[message]]
        segments = [id_ for id_, done in self._sent[message] if done > 0]
        return [
            self._row[id_] if id_ not in self._copy else self._copy[id_]
            for id_ in segments
        ]

    def _lowest(self, message: int) -> int:
        parts = [
            part
            for id_, done in self._sent[message]
            for part in self._segments[id_].parts[:done]
        ]
        return min(parts, default=0)


def add_rows(gathered: Sequence[tuple[NDArray[Any], float]], out: NDArray[Any]) -> None:
    """Add some rows to another, each times its weight, in their order.

    Args:
        gathered: (row, weight) pairs, rows of (layout.row,).
        out: (layout.row,).
    """
    rows, weights = [row for row, _ in gathered], [weight for _, weight in gathered]
    scales = add_scales(rows, weights, out)
    width = _BLOCK // out.itemsize
    term = np.empty(min(width, len(out)), dtype=out.dtype)
    for block in _blocks(len(out), width):
        sum_ = out[block]
        for row, weight in gathered:  # without BLAS: workers would have to load it
            scaled = np.multiply(row[block], weight, out=term[: len(sum_)])
            np.add(sum_, scaled, out=sum_)
    out[-3::2] = scales


def weighted_sum(
    table: NDArray[Any],
    rows: Sequence[int | NDArray[Any]],
    weights: Sequence[float],
    out: NDArray[Any],
) -> None:
    """Add up some rows of a table, each times its weight.

    In blocks, so that every row is read once and the sum is written once. If all
    weights are 1 the rows are added one by one in the order given, wherever they lie,
    so that equal rows give equal bits. Otherwise long runs of rows at equal distances,
    as those of one place at several workers are, are multiplied as one matrix, which is
    faster, and rounds as it comes.

    Args:
        table: (rows, length).
        rows: Numbers of rows of the table, or arrays of their own.
        weights: One for each.
        out: (length,).
    """
    width = _BLOCK // out.itemsize
    if not rows:
        out[:] = 0
    elif all(weight == 1.0 for weight in weights):
        plain = [table[row] if isinstance(row, int) else row for row in rows]
        _by_threads(
            lambda block: _add_plain([row[block] for row in plain], out[block]),
            _blocks(len(out), width),
            size=len(rows) * out.nbytes,
        )
    else:
        factors = np.array(weights, dtype=out.dtype)
        runs = [(_run(table, rows, *run), factors[slice(*run)]) for run in _runs(rows)]
        term = np.empty(min(width, len(out)), dtype=out.dtype)
        for block in _blocks(len(out), width):
            part = out[block]
            _add_runs([(r[:, block], f) for r, f in runs], part, term[: len(part)])


def inner_products(
    sums: Sequence[Sequence[NDArray[Any]]], length: int
) -> NDArray[np.float64]:
    """Return the inner products of vectors, each given as terms to be added up.

    In blocks, so that every row is read once; those are added up in double precision.

    Args:
        sums: The terms of every vector, each (length,); none for a zero vector.
        length: Of the vectors.
    """
    table = np.zeros((len(sums), len(sums)))
    dtype = next((term.dtype for terms in sums for term in terms), table.dtype)
    width = max(1, min(length, _TABLE // (dtype.itemsize * len(sums))))
    part = np.zeros((len(sums), width), dtype=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for block in _blocks(length, width):
            rows = part[:, : block.stop - block.start]
            for row, terms in zip(rows, sums, strict=True):
                if terms:
                    _add_plain([term[block] for term in terms], row)
            table += rows @ rows.T
    return table


def _blocks(length: int, width: int) -> list[slice]:
    return [slice(b, min(b + width, length)) for b in range(0, length, width)]


def _by_threads(act: Callable[[slice], None], blocks: list[slice], size: int) -> None:
    """Do something to all blocks, by several threads if there is enough to do.

    They begin and end here: a script may fork itself between two steps. BLAS, which
    does the rest of what is added up here, gains nothing by it.

    Args:
        act: Does it to one of them; who does it does not matter.
        blocks: What it is done to.
        size: Bytes in all.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    count = max(1, min(cores, _THREADS, size // _WORTHWHILE))

    def share(number: int) -> None:
        for block in blocks[number::count]:
            act(block)

    if count == 1:
        share(0)
        return
    with ThreadPoolExecutor(count - 1) as threads:
        others = [threads.submit(copy_context().run, share, i) for i in range(1, count)]
        share(0)
        for other in others:
            other.result()


def _add_plain(rows: list[NDArray[Any]], out: NDArray[Any]) -> None:
    if len(rows) == 1:
        out[:] = rows[0]
        return
    np.add(rows[0], rows[1], out=out)
    for row in rows[2:]:
        np.add(out, row, out=out)


def _add_runs(
    runs: list[tuple[NDArray[Any], NDArray[Any]]],
    out: NDArray[Any],
    term: NDArray[Any],
) -> None:
    from scipy.linalg.blas import daxpy, saxpy

    axpy = saxpy if out.dtype == np.float32 else daxpy
    for number, (block, factors) in enumerate(runs):
        if len(block) >= _LONG and block.strides[0] <= _FURTHEST * out.itemsize:
            np.matmul(factors, block, out=term if number else out)
            if number:
                np.add(out, term, out=out)
            continue
        for at, factor in enumerate(factors):
            if number or at:
                axpy(block[at], out, a=factor)  # in place: one pass
            else:
                np.multiply(block[at], factor, out=out)


def _run(
    table: NDArray[Any], rows: Sequence[int | NDArray[Any]], first: int, last: int
) -> NDArray[Any]:
    start = rows[first]
    if not isinstance(start, int):
        return start[None]
    end = rows[last - 1]
    assert isinstance(end, int)
    step = (end - start) // (last - 1 - first) if last - first > 1 else 1
    block: NDArray[Any] = table[start : end + 1 : step]
    return block


def _runs(rows: Sequence[int | NDArray[Any]]) -> list[tuple[int, int]]:
    """Return the (first, last + 1) of stretches of rows at equal distances.

    Example:
        >>> _runs([0, 16, 32, 48, 49, 50])
        [(0, 4), (4, 6)]
    """
    found, first, step = [], 0, 0  # step: of the stretch in hand, 0 if it has one row
    for at in range(1, len(rows) + 1):
        before, here = rows[at - 1], rows[at] if at < len(rows) else None
        gap = 0
        if isinstance(before, int) and isinstance(here, int):
            gap = here - before
        if gap > 0 and step in (0, gap):
            step = gap
        elif gap > 0 and at - first == 2:  # two rows are no stretch: leave the first
            found.append((first, at - 1))
            first, step = at - 1, gap
        else:
            found.append((first, at))
            first, step = at, 0
    return found
