"""What the processes of MPI do that do not run the script: an agent for every run."""

from __future__ import annotations

import os
import time
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stretches
from codedgrad.engines.host.nearby import Where
from codedgrad.engines.host.process_title import set_title
from codedgrad.engines.mpi.link import BODY, CARRIED, FETCHED, MpiLink
from codedgrad.engines.mpi.messages import (
    Alert,
    Broken,
    Carry,
    Deliver,
    End,
    Ended,
    Fetch,
    Open,
    Opened,
    Quit,
    Said,
    Take,
    Tell,
    Took,
    decode_down,
)
from codedgrad.engines.remote.agent import Agent
from codedgrad.engines.remote.bell import Bell, Rope
from codedgrad.errors import CodedgradError

if TYPE_CHECKING:
    from mpi4py import MPI

_ROOT = 0
_LOOK = 1.0  # seconds between looks at whether the root is still there
_COARSE = 1e-3  # seconds: a selector waits no shorter


class RootLost(Exception):
    """The process that runs the script is gone."""


class Server:
    """Serves the root: run after run, an agent each, until it says that this is all.

    Args:
        comm: All processes.
        root: The process id of the root, if it is on this host: Open MPI takes no note
            of a process that ends by itself with an exit code other than 0.
    """

    def __init__(self, comm: MPI.Comm, root: int | None) -> None:
        self._root = root
        self._parent = os.getppid()
        self._looked = 0.0
        self._link = MpiLink(comm, self._lost)
        self._bell = Bell()
        self._agent: Agent | None = None
        self._is_ending = False
        self._quit: Quit | None = None

    def serve(self) -> bool:
        """Serve until the root says so; return whether to end tidily.

        Raises:
            RootLost: If the root does not exist any more.
        """
        self._listen()
        while self._quit is None:
            if self._bell.was_rung():
                self._link.was_rung()
            self._link.progress()
            if self._is_ending and not self._link.is_busy:
                self._end()
            self._hand_on(self._link.pause())
            if time.monotonic() - self._looked > _LOOK:
                self._look()
        if not self._quit.tidily:
            self._answer()
        return self._quit.tidily

    def close(self) -> None:
        """End the agent, if there is one."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _hand_on(self, pause: float) -> None:
        """Let the root hear what the worker says; waits for it, and for MPI."""
        frames: list[bytes] = []
        if self._agent is not None:
            frames = self._agent.poll(pause if pause >= _COARSE else 0.0)
        for frame in frames:
            self._link.send(_ROOT, Said(frame))
        if not frames and (self._agent is None or pause < _COARSE):
            self._bell.wait(pause)

    def _look(self) -> None:
        self._looked = time.monotonic()
        if os.getppid() != self._parent:
            raise RootLost("what has started this process is gone")
        if self._root is not None and not _is_there(self._root):
            raise RootLost("it has ended by itself")

    def _answer(self) -> None:
        """Let the root know that it may end before this process does."""
        with suppress(RootLost):  # it has not waited
            self._link.send(_ROOT, Ended())
            while self._link.is_busy and self._link.quiet < _LOOK:
                self._link.progress()
                time.sleep(self._link.pause())

    def _listen(self) -> None:
        self._link.listen(_ROOT, self._heard)

    def _heard(self, frame: bytes) -> None:
        link, message = self._link, decode_down(frame)
        match message:
            case Open(number, size, bell):
                setup = np.empty(size, np.uint8)
                then = partial(self._open, number, setup, bell)
                link.take(_ROOT, BODY, setup, then)
                return
            case Quit():
                self._quit = message
                return
            case End():
                self._is_ending = True
                return
            case _ if self._agent is None:
                pass  # it could not be made, and the root does not know yet
            case Deliver(slot, stretches):
                self._receive(self._agent.parameters(slot), stretches)
                return
            case Tell(told):
                self._agent.take(told)
            case Alert():
                link.alert()
            case Fetch(rows):
                link.give(_ROOT, FETCHED, self._agent.sum(rows))
            case Carry(rows, to):
                link.give(to, CARRIED, self._agent.sum(rows))
            case Take(key, source, row):
                done, failed = (partial(self._took, key, x) for x in (True, False))
                link.take(source, CARRIED, self._agent.row(row), done, failed)
        self._listen()

    def _receive(self, parameters: NDArray[Any], stretches: Stretches) -> None:
        """Take stretches of the parameters in turn, then listen again."""
        if not stretches:
            self._listen()
            return
        (start, end), *others = stretches
        then = partial(self._receive, parameters, tuple(others))
        self._link.take(_ROOT, BODY, parameters[start:end], then)

    def _open(self, number: int, setup: np.ndarray, bell: Where | None) -> None:
        try:
            self._agent = Agent(setup.tobytes(), number)
            self._agent.wait_also_at(self._bell.fd)
            set_title(f"agent {number}", self._agent.script)
        except CodedgradError as error:
            self._link.send(_ROOT, Broken(str(error)))
        except Exception:
            self._link.send(_ROOT, Broken(traceback.format_exc()))
        else:
            rope = Rope.reach(bell)
            self._link.tie(_ROOT, rope)
            self._link.is_rung_for = rope is not None
            mine = None if rope is None else self._bell.where
            self._link.send(_ROOT, Opened(self._agent.near, mine))
        self._listen()

    def _took(self, key: int, arrived: bool) -> None:
        self._link.send(_ROOT, Took(key, arrived))

    def _end(self) -> None:
        self._is_ending = False
        self.close()
        self._link.send(_ROOT, Ended())
        self._link.untie()
        self._link.is_rung_for = False
        self._listen()

    def _lost(self, peer: int, reason: str) -> None:
        if peer == _ROOT:
            raise RootLost(reason)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return True
