"""How the shared memory of a host is laid out.

| what | how many | length |
| --- | --- | --- |
| versions of the parameters | workers of the host + 2 | `layout.parameters` |
| rows for sums | workers of the host x open segments x 2 | `layout.row` |
| rows for what other hosts send to these workers | `inbox` | `layout.row` |

A worker has at most one version of the parameters in hand, so one is always free to be
written. The root's memory has more versions: one may be on its way to every worker that
is elsewhere. A worker may hold `open_segments` sums in a step; twice as many rows let
the sums that were heard of a worker that died or was dropped stay where they are, while
its successor fills others. Free rows are given out from the first on, and memory that
is never touched costs nothing: a worker that holds one sum uses one row, however many
it might hold.

The rows of a worker lie together and fill whole pages, `worker * places + place`: so a
worker maps them to write, and everything else, the parameters and the rows of others,
to read (`WorkerMemory`). A job that writes where it must not then ends its own worker
instead of spoiling a sum. Rows with the same place at their workers are equally far
apart, so what is combined is still mostly a few strided matrices.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stale
from codedgrad.engines.host.shared_memory import Shared, nameless
from codedgrad.errors import InvalidJob
from codedgrad.jobs import VectorLayout

OPEN_SEGMENTS = 8
"""Sums that a worker may hold in a step, unless told otherwise.

Most hold one or two; re-planning has been seen to use up to six, and with three it is
held up.
"""

_ALIGNED = 64  # bytes; a cache line
_PAGE = mmap.ALLOCATIONGRANULARITY  # bytes; a mapping begins at a multiple of it


class MemoryShape(Struct, frozen=True):
    """What there is room for.

    Attributes:
        workers: How many have rows of their own.
        places: Rows of each; they come first.
        rows: All rows, with those for what other hosts send.
        versions: Of the parameters.
        parameters: Numbers in a version.
        message: Numbers in a row.
        dtype: Of rows.
        parameters_dtype: Of versions.

    Example:
        >>> layout = VectorLayout(parameters=3, gradient=3)
        >>> shape = MemoryShape.of(layout, 8, open_segments=3)
        >>> shape.places, shape.rows, shape.versions
        (6, 48, 10)
    """

    workers: int
    places: int
    rows: int
    versions: int
    parameters: int
    row: int
    dtype: str
    parameters_dtype: str

    @classmethod
    def of(
        cls,
        layout: VectorLayout,
        workers: int,
        open_segments: int,
        *,
        elsewhere: int = 0,
        inbox: int = 0,
    ) -> MemoryShape:
        """Return the shape for a job.

        Args:
            layout: Of the job.
            workers: On this host.
            open_segments: Sums that each may hold.
            elsewhere: Workers on other hosts, to which parameters are sent from here.
            inbox: Rows for what other hosts send to the workers of this one.
        """
        return cls(
            workers=workers,
            places=open_segments * 2,
            rows=workers * open_segments * 2 + inbox,
            versions=workers + elsewhere + 2,
            parameters=layout.parameters,
            row=layout.row,
            dtype=layout.dtype,
            parameters_dtype=layout.parameters_dtype,
        )

    def check(self, layout: VectorLayout) -> None:
        """Raise unless a job that was made is as long as was said."""
        made = MemoryShape.of(layout, self.workers, 1)
        for name in ("parameters", "row", "dtype", "parameters_dtype"):
            if getattr(made, name) != getattr(self, name):
                problem = f"its {name} is {getattr(made, name)}"
                wanted = f"{getattr(self, name)}, as the engine was told"
                raise InvalidJob("the job's layout", problem, wanted)

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next; the rows of a worker fill whole pages."""
        step = max(_ALIGNED, _PAGE // math.gcd(_PAGE, self.places))
        return _round(self.row * np.dtype(self.dtype).itemsize, step)

    @property
    def version_bytes(self) -> int:
        """Bytes from one version of the parameters to the next."""
        return _round(self.parameters * np.dtype(self.parameters_dtype).itemsize)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.rows_offset + self.rows * self.row_bytes

    @property
    def rows_offset(self) -> int:
        """Bytes before the first row, whole pages of them."""
        return _round(self.versions * self.version_bytes, _PAGE)

    @property
    def least(self) -> int:
        """Bytes that are sure to be used: one sum a worker, and two versions."""
        return 2 * self.version_bytes + self.workers * self.row_bytes


def _round(size: int, step: int = _ALIGNED) -> int:
    return -(-size // step) * step


class Private:
    """Memory of this process alone, for engines that have no other."""

    def __init__(self, size: int) -> None:
        try:
            self._buffer = np.empty(size, dtype=np.uint8)
        except MemoryError:  # most of it is never touched, but not all systems lend it
            self._buffer = self._untouched(size)

    def _untouched(self, size: int) -> NDArray[np.uint8]:
        fd = nameless(size, least=0)
        if fd is None:
            raise MemoryError(f"{size} bytes of address space")
        try:
            return np.frombuffer(mmap.mmap(fd, size), dtype=np.uint8)
        finally:
            os.close(fd)

    def array(
        self, dtype: str, shape: tuple[int, ...], offset: int = 0
    ) -> NDArray[Any]:
        """Return an array that begins `offset` bytes into the memory."""
        return np.ndarray(shape, dtype, self._buffer, offset)

    def close(self) -> None:
        """Let go of it."""


class Memory:
    """Views of a run's shared memory, which can be written if the mapping can.

    Attributes:
        rows: (rows, layout.row).
        versions: (versions, parameters).
    """

    def __init__(self, shared: Shared | Private, shape: MemoryShape) -> None:
        self.shape = shape
        self._shared = shared
        self.versions = _table(
            shared,
            shape.parameters_dtype,
            (shape.versions, shape.parameters),
            shape.version_bytes,
        )
        self.rows = _table(
            shared,
            shape.dtype,
            (shape.rows, shape.row),
            shape.row_bytes,
            shape.rows_offset,
        )
        self._stale = Stale(shape.parameters)
        self._read_only = self.versions.view()
        self._read_only.setflags(write=False)

    def row(self, number: int) -> NDArray[Any]:
        """Return the row for a sum, (layout.row,)."""
        row: NDArray[Any] = self.rows[number]
        return row

    def sum(self, rows: Sequence[int]) -> NDArray[Any]:
        """Return the sum of some rows, (layout.row,); of one, that row itself."""
        total = self.row(rows[0])
        for number in rows[1:]:
            total = np.add(total, self.row(number))
        return total

    def parameters(self, version: int) -> NDArray[Any]:
        """Return a version of the parameters, read-only."""
        parameters: NDArray[Any] = self._read_only[version]
        return parameters

    def publish(
        self,
        parameters: NDArray[Any],
        in_hand: Collection[int],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> int:
        """Write the parameters to a version that no worker has in hand; return it.

        Args:
            parameters: (parameters,).
            in_hand: Versions that workers have in hand.
            changed: Stretches that may differ from the version before; None: all.
        """
        free = next(v for v in range(len(self.versions)) if v not in in_hand)
        self._stale.change(changed)
        for start, end in self._stale.take(free):
            np.copyto(self.versions[free, start:end], parameters[start:end])
        return free

    def close(self) -> None:
        """Let go of it."""
        del self.rows, self.versions, self._read_only
        self._shared.close()


class WorkerMemory:
    """A host's memory as a worker has it: it can write its own rows, and read the rest.

    Args:
        whole: All of it, mapped to read.
        own: The same memory, as a descriptor.
        index: Of the worker among those of its host.

    Attributes:
        shape: Of the memory.
    """

    def __init__(self, whole: Memory, own: int, index: int) -> None:
        self.shape = shape = whole.shape
        self.parameters = whole.parameters
        self._whole = whole
        self._first = index * shape.places
        size = shape.places * shape.row_bytes
        offset = shape.rows_offset + index * size
        shared = Shared.attach(own, size, offset=offset)
        counts = shape.places, shape.row
        self._rows = _table(shared, shape.dtype, counts, shape.row_bytes)

    def row(self, number: int) -> NDArray[Any]:
        """Return a row, (layout.row,); only those of the worker can be written."""
        place = number - self._first
        is_own = 0 <= place < self.shape.places
        row: NDArray[Any] = self._rows[place] if is_own else self._whole.row(number)
        return row


def _table(
    shared: Shared | Private,
    dtype: str,
    shape: tuple[int, int],
    step: int,
    offset: int = 0,
) -> NDArray[Any]:
    """Return a view of rows, (rows, length), that begin `step` bytes apart."""
    count, length = shape
    width = step // np.dtype(dtype).itemsize
    return shared.array(dtype, (count, width), offset)[:, :length]
