"""The MPI job that this process is part of, as the root sees it."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from codedgrad.engines.mpi.link import MpiLink, failed_ranks, survives_loss
from codedgrad.engines.mpi.messages import Quit
from codedgrad.errors import EngineFailed

if TYPE_CHECKING:
    from mpi4py import MPI

    from codedgrad.engines.mpi.engine import MpiTransport

_log = logging.getLogger("codedgrad")
_PATIENCE = 5.0  # seconds for a last message
_world: World | None = None


class World:
    """All processes; one run at a time uses them.

    Attributes:
        comm: Reaches all.
        stuck: Processes that are there and do not answer.
        is_ending: The job is being ended from outside; nothing is worth waiting for.
        is_over: MPI cannot be used any more.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.stuck: set[int] = set()
        self.is_ending = False
        self.is_over = False
        self._user: MpiTransport | None = None
        self._has_warned = survives_loss()

    def enter(self, user: MpiTransport, agents: int) -> list[int]:
        """Let a run have processes for its agents; return them."""
        if self._user is not None:
            problem = "another engine uses the processes of MPI"
            raise EngineFailed(problem, "closing it first")
        ranks = self._living()
        if len(ranks) < agents:
            problem = f"{agents} workers need {agents + 1} processes of MPI"
            problem += f", and there are {len(ranks) + 1}"
            raise EngineFailed(problem, _line(agents + 1))
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "under this MPI, the loss of a host ends the job; with Open MPI 5, "
                "`mpirun --with-ft ulfm` lets the others go on"
            )
        self._user = user
        return ranks[:agents]

    def leave(self, user: MpiTransport) -> None:
        """End a run."""
        if self._user is user:
            self._user = None

    def quit(self) -> bool:
        """End the run if there is one, and tell all processes to end.

        Returns:
            Whether all of them are there to do so tidily.
        """
        if self._user is not None:
            self._user.close()
        if self.stuck:
            self.is_over = True
            return False  # MPI will end all; the exit code is of who ends first
        living = self._living()
        tidily = len(living) == self.comm.Get_size() - 1
        link = MpiLink(self.comm, lambda rank, reason: None)
        unheard = set[int]() if tidily else set(living)
        for rank in living:
            if not tidily:  # or else they take our end for a loss
                link.listen(rank, partial(_tick_off, unheard, rank))
            link.send(rank, Quit(tidily))
        while (link.is_busy or unheard - link.gone) and link.quiet < _PATIENCE:
            link.progress()
            time.sleep(link.pause())
        self.is_over = True
        return tidily and not link.is_busy and not link.gone

    def _living(self) -> list[int]:
        away = {*failed_ranks(self.comm), *self.stuck}
        return [rank for rank in range(1, self.comm.Get_size()) if rank not in away]


def begin(comm: MPI.Comm) -> World:
    """Note that this process is the root of a job."""
    global _world
    _world = World(comm)
    return _world


def the_world(agents: int) -> World:
    """Return the job of this process, which wants so many agents."""
    if _world is None:
        problem = "the MPI engine works in a script that its launcher runs"
        raise EngineFailed(problem, _line(agents + 1))
    return _world


def _tick_off(unheard: set[int], rank: int, frame: bytes) -> None:
    unheard.discard(rank)


def _line(processes: int) -> str:
    """Return the command that runs this script with so many processes."""
    script = shlex.join(sys.argv) if sys.argv[0] else "train.py"
    return f"`mpirun -n {processes} python -m codedgrad.engines.mpi {script}`"
