"""Frames and vectors between processes of MPI; nothing here waits for any of them.

A frame is a message of fixed size that is always expected, so that the death of its
sender is noticed; what does not fit comes after it. A vector goes from memory to memory
and is expected when a frame has said so. What is sent with one tag from one process to
another arrives in order: that is MPI's promise, and all that is relied upon.

Calls return at once, so somebody has to look, again and again, whether something has
arrived. `MpiLink.pause` says how long to sleep in between: a tenth of the time for
which nothing has happened, and little while something is on its way. Where all who may
send something are on this host they ring a bell when they have, and there is no hurry.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.mpi.messages import Down, Up, encode
from codedgrad.engines.optional_libraries import extra
from codedgrad.engines.remote.bell import Rope

if TYPE_CHECKING:
    from mpi4py import MPI

_HEAD, BODY, FETCHED, CARRIED = range(4701, 4705)  # tags
_HEAD_BYTES = 2048  # of a frame that comes in one piece
_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 28  # numbers that are sent at a time; MPI counts with 31 bits
_SHORTEST, _LONGEST = 5e-5, 1e-2  # seconds of a pause
_SPIN, _BUSY = 1e-3, 5e-4  # seconds: while something is on its way
_ALERT = 2.0  # seconds for which something is awaited soon
_LATE, _BUSIEST = 4.0, 5e-3  # times what a pause took too long; seconds at the most
_SURVIVES = "OMPI_MCA_mpi_ft_enable"  # set by mpirun for its processes
_LOOK = 0.2  # seconds between looks at who has failed


def survives_loss() -> bool:
    """Whether the processes that are left may go on when one is lost.

    So it is with Open MPI 5 when mpirun was told `--with-ft ulfm`.
    """
    told = os.environ.get(_SURVIVES, "")
    return told.lower() in ("1", "true", "yes", "on", "t", "y", "enabled")


def failed_ranks(comm: MPI.Comm) -> list[int]:
    """Return the processes that are known to have failed; none, if MPI cannot tell."""
    if not survives_loss():
        return []
    group = comm.Get_failed()
    ranks = group.Translate_ranks(list(range(group.Get_size())), comm.Get_group())
    group.Free()
    return [int(rank) for rank in ranks]


def _nothing() -> None:
    pass


@dataclass(slots=True, eq=False)
class _Transfer:
    """A vector on its way, with what to do when it is there or never will be."""

    peer: int
    tag: int
    vector: NDArray[Any]
    done: Callable[[], None] = _nothing
    failed: Callable[[], None] = _nothing
    is_busy: bool = True  # not: the next frame, which may be far off


class MpiLink:
    """This process's end of what goes to and comes from the others.

    Args:
        comm: All processes.
        lost: Called once for each peer that cannot be reached any more, with why;
            nothing is heard of it afterwards.
        longest: Seconds of a pause at most, where nobody rings and nothing is on its
            way.

    Attributes:
        gone: The peers that were lost.
        is_rung_for: Whether all who send something, unasked, ring when they have.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        lost: Callable[[int, str], None],
        longest: float = _LONGEST,
    ) -> None:
        self._mpi = extra("mpi")
        self._comm = comm
        self._lost = lost
        self._longest = longest
        self._transfers: list[_Transfer] = []
        self._requests: list[MPI.Request] = []  # of the transfers, in their order
        self._buried: list[_Transfer] = []  # never ended; MPI may know their memory
        self._heads: dict[int, NDArray[Any]] = {}
        self._busy = 0
        self._moved = time.monotonic()
        self._looked = self._moved
        self._alert_until = self._due = self._moved
        self._lateness = 0.0  # seconds
        self.gone: set[int] = set()
        self._ropes: dict[int, Rope] = {}
        self._rung_at = 0.0
        self.is_rung_for = False

    # -- bells -----------------------------------------------------------------------

    def tie(self, peer: int, rope: Rope | None) -> None:
        """Ring from now on when something was sent to a peer; None: no more."""
        if peer in self._ropes:
            self._ropes.pop(peer).close()
        if rope is not None:
            self._ropes[peer] = rope

    def untie(self) -> None:
        """Ring nobody any more."""
        for peer in list(self._ropes):
            self.tie(peer, None)

    def was_rung(self) -> None:
        """Look often for a moment: what was rung for is there, or is about to be."""
        self._rung_at = time.monotonic()

    # -- what is sent and taken ------------------------------------------------------

    def send(self, peer: int, message: Down | Up) -> None:
        """Send a message; they arrive in order."""
        frame = encode(message)
        head = _LENGTH.pack(len(frame))
        if len(frame) <= _HEAD_BYTES - _LENGTH.size:
            self.give(peer, _HEAD, np.frombuffer(head + frame, np.uint8))
        else:
            self.give(peer, _HEAD, np.frombuffer(head, np.uint8))
            self.give(peer, BODY, np.frombuffer(frame, np.uint8))

    def listen(self, peer: int, heard: Callable[[bytes], None]) -> None:
        """Take the next message of a peer, one only."""
        head = self._heads.setdefault(peer, np.zeros(_HEAD_BYTES, np.uint8))

        def arrived() -> None:
            (length,) = _LENGTH.unpack_from(head.data)
            if length <= _HEAD_BYTES - _LENGTH.size:
                heard(head[_LENGTH.size : _LENGTH.size + length].tobytes())
                return
            body = np.empty(length, np.uint8)
            self.take(peer, BODY, body, lambda: heard(body.tobytes()))

        transfer = _Transfer(peer, _HEAD, head, arrived, is_busy=False)
        self._post(transfer, self._comm.Irecv)

    def give(self, peer: int, tag: int, vector: NDArray[Any]) -> None:
        """Send a vector; its memory must stay as it is until it has arrived."""
        if tag != _HEAD:
            self._alert_until = 0.0  # this is what was awaited
        for piece in _pieces(vector):
            transfer = _Transfer(peer, tag, piece)
            self._post(transfer, self._comm.Isend)
        self._moved = time.monotonic()
        if peer in self._ropes:
            self._ropes[peer].ring()

    def take(
        self,
        peer: int,
        tag: int,
        vector: NDArray[Any],
        done: Callable[[], None],
        failed: Callable[[], None] = _nothing,
    ) -> None:
        """Let the next vector of a peer be written to some memory."""
        pieces = _pieces(vector)
        left = len(pieces)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for piece in pieces[:-1]:
            self._post(_Transfer(peer, tag, piece, one_done), self._comm.Irecv)
        last = _Transfer(peer, tag, pieces[-1], one_done, failed)
        self._post(last, self._comm.Irecv)

    def _post(self, transfer: _Transfer, call: Callable[..., MPI.Request]) -> None:
        if transfer.peer in self.gone:
            transfer.failed()
            return
        try:
            request = call(transfer.vector, transfer.peer, transfer.tag)
        except self._mpi.Exception as error:
            transfer.failed()
            self.lose(transfer.peer, str(error))
            return
        self._transfers.append(transfer)
        self._requests.append(request)
        self._busy += transfer.is_busy

    # -- what happens ----------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether anything is on its way that was sent or told of."""
        return self._busy > 0

    @property
    def quiet(self) -> float:
        """Seconds since something was sent or has arrived."""
        return time.monotonic() - self._moved

    def alert(self) -> None:
        """Look often for a while: something will be asked for soon."""
        self._alert_until = time.monotonic() + _ALERT

    def pause(self) -> float:
        """Return the seconds to wait before `progress` is called again; 0: yield.

        Where pauses take longer than they should, the processor has too much to do, and
        to look less often helps everybody.
        """
        now = time.monotonic()
        is_awaiting = self._is_awaiting(now)
        quiet = now - (self._rung_at if is_awaiting else self._moved)
        if self._busy and quiet < _SPIN:
            pause = 0.0
        elif self.is_rung_for and not self._busy and not is_awaiting:
            pause = _LONGEST
        else:
            soon = self._busy or now < self._alert_until
            longest = max(_BUSY, self._lateness) if soon else self._longest
            pause = min(longest, max(_SHORTEST, quiet / 10))
        self._due = now + pause
        return pause

    def _is_awaiting(self, now: float) -> bool:
        """Whether it was rung for something that has not been seen yet."""
        return self._moved < self._rung_at > now - _SPIN

    def _waited(self) -> None:
        """Note by how much a pause was longer than it should have been."""
        late = min(_BUSIEST, _LATE * (time.monotonic() - self._due))
        if late > 0:
            self._lateness += 0.1 * (late - self._lateness)

    def progress(self) -> None:
        """See to all that has arrived, and to who is lost."""
        self._waited()
        while self._requests:
            try:
                index, is_done = self._mpi.Request.Testany(self._requests)
            except self._mpi.Exception as error:
                self._failed(error)
                continue
            if not is_done or index < 0:
                break
            self._moved = time.monotonic()
            self._remove([index])[0][0].done()
        if time.monotonic() - self._looked > _LOOK:
            self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        for peer in failed_ranks(self._comm):
            self.lose(peer, "its process has ended")

    def lose(self, peer: int, reason: str) -> None:
        """Give a peer up, after what has arrived from it."""
        rest: list[_Transfer] = []
        arrived: list[_Transfer] = []
        while peer not in self.gone:
            mine = [i for i, t in enumerate(self._transfers) if t.peer == peer]
            for transfer, request in self._remove(mine):
                there = self._has_arrived(transfer, request)
                (arrived if there else rest).append(transfer)
            if not arrived:
                self.gone.add(peer)
                for transfer in rest:
                    transfer.failed()
                self._lost(peer, reason)
            while arrived:
                arrived.pop(0).done()  # which may expect more, and look for that again

    def _has_arrived(self, transfer: _Transfer, request: MPI.Request) -> bool:
        if request == self._mpi.REQUEST_NULL:  # this is the one that has failed
            return False
        try:
            if request.Test():
                return True
        except self._mpi.Exception:
            return False
        self._buried.append(transfer)
        return False

    def _failed(self, error: Exception) -> None:
        """Find out who it was that an error was raised for."""
        before = len(self.gone)
        for transfer, request in zip(self._transfers, self._requests, strict=True):
            if request == self._mpi.REQUEST_NULL:
                self.lose(transfer.peer, str(error))
                return
        self._look()
        if len(self.gone) == before:
            raise error

    def _remove(self, indices: list[int]) -> list[tuple[_Transfer, MPI.Request]]:
        removed = [(self._transfers[i], self._requests[i]) for i in indices]
        for index in reversed(indices):
            del self._transfers[index], self._requests[index]
        self._busy -= sum(transfer.is_busy for transfer, _ in removed)
        return removed


def _pieces(vector: NDArray[Any]) -> list[NDArray[Any]]:
    """Cut a vector into pieces that MPI can count; of no length, it is one piece."""
    starts = range(0, max(1, len(vector)), _PIECE)
    return [vector[start : start + _PIECE] for start in starts]
