"""Processes that a launcher starts once for a whole script, as MPI and torchrun do.

One of them runs the script and is the root. On every other machine the lowest is the
agent, and the others sleep: they wait for a word on a socket, which uses no core. Runs
take turns; each uses as many machines as it has workers for.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from codedgrad.engines.host.cores import usable_cores
from codedgrad.engines.remote.launcher import Launcher, Share, shared_out
from codedgrad.engines.remote.lobby import AgentLink, Lobby
from codedgrad.engines.remote.machine import machine
from codedgrad.engines.remote.messages import Quit
from codedgrad.errors import EngineFailed

_log = logging.getLogger("codedgrad")
_PATIENCE = 120.0  # seconds for all processes to call the root
_POLITE = 5.0  # seconds for agents to hear that they may end
_CALL = 1.0  # seconds in which an agent whose connection was cut calls again
_LOOKS = 1000  # at what has come between runs, at most: there may always be more
_GRACE = 60.0  # seconds for the root to write a checkpoint after SIGTERM
_TERMINATED = 143  # the exit code: 128 + SIGTERM, as a shell counts it
_LOOK = 0.1  # seconds between looks at whether the launcher is there


class World:
    """All processes of a launcher, as the root sees them.

    Args:
        lobby: Where the others call.
        others: How many there are besides the root.
    """

    def __init__(self, lobby: Lobby, others: int) -> None:
        self.lobby = lobby
        self._others = others
        self._owner = os.getpid()
        self._is_complete = self._is_used = False

    @property
    def is_complete(self) -> bool:
        """Whether all processes are there."""
        return len(self.lobby.links) == self._others

    def enter(self, workers: int, root_is_agent: bool) -> list[Share]:
        """Share the workers of a run out among the machines that are there.

        Args:
            workers: How many.
            root_is_agent: Whether the root is the agent of its own machine.

        Raises:
            EngineFailed: If another run uses the processes, or they do not come.
        """
        if self._is_used:
            problem = "another engine uses the processes of this job"
            raise EngineFailed(problem, "closing it first")
        self.gather()
        for _ in range(_LOOKS):  # between runs no engine hears that a process has ended
            if not self.lobby.reactor.poll(0.0):
                break
        agents: list[int | None] = []
        cores: list[float] = []
        known = {machine()} if root_is_agent else set()
        if root_is_agent:
            agents.append(None)
            cores.append(usable_cores())
        for number, link in sorted(self.lobby.links.items()):
            if link.said.machine not in known:
                known.add(link.said.machine)
                agents.append(number)
                cores.append(link.said.cores)
        if not agents:
            problem = "there is no process for workers besides the root's"
            raise EngineFailed(problem, "more processes, or root_is_agent=True")
        self._is_used = True
        counts = shared_out(workers, cores)
        return [
            Share(agent, count)
            for agent, count in zip(agents, counts, strict=True)
            if count
        ]

    def machines(self) -> set[str]:
        """Return the machines of all processes, once all of them have called."""
        self.gather()
        return {machine(), *(link.said.machine for link in self.lobby.links.values())}

    def leave(self) -> None:
        """End a run."""
        self._is_used = False

    def quit(self) -> bool:
        """Let all processes end; return whether every one of them has done so.

        An agent that hears it hangs up. One that is stopped does not, although its
        kernel takes the message. One whose connection was cut may be about to call
        again, and must hear it then: it would take an unanswered call for a failure.
        """
        if os.getpid() != self._owner:
            return False  # a fork of the root: the processes are not its own
        told: set[AgentLink] = set()
        begun, links = time.monotonic(), self.lobby.links
        while True:
            for link in set(links.values()) - told:
                link.send(Quit())
                told.add(link)
            ended = len({link.number for link in told} - links.keys())
            left = begun + (_POLITE if links else _CALL) - time.monotonic()
            if ended == self._others or left <= 0:
                break
            self.lobby.reactor.poll(left)
        self.lobby.close()
        return ended == self._others

    def gather(self) -> None:
        """Wait until all processes have called once.

        Raises:
            EngineFailed: If one of them does not.
        """
        deadline = time.monotonic() + _PATIENCE
        while not self._is_complete and not self.is_complete:
            left = deadline - time.monotonic()
            if left <= 0:
                absent = sorted({*range(1, self._others + 1)} - self.lobby.links.keys())
                door = self.lobby.invitation
                named = ", ".join(map(str, absent))
                one = len(absent) == 1
                problem = f"process{'' if one else 'es'} {named} of this job "
                problem += f"{'has' if one else 'have'} not called in {_PATIENCE:g} s"
                advice = (
                    "looking at what was printed there: the script may have ended "
                    "before `train`, have another secret, or be unable to reach "
                    f"{' or '.join(door.addresses)} port {door.port}, which "
                    "interface= and ports= change"
                )
                raise EngineFailed(problem, advice)
            self.lobby.reactor.poll(left)
        self._is_complete = True


def end_with_launcher() -> None:
    """Send this process SIGTERM when the launcher that has started it ends.

    A launcher that is killed tells its processes nothing; a root that went on would
    train with what is left of a job that its user takes to be over. A root that has not
    ended `_GRACE` after the signal is ended at once.
    """
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)
        # Python ignores what the handler raises if the signal comes in a finalizer.
        time.sleep(_GRACE)
        os._exit(_TERMINATED)

    threading.Thread(target=watch, daemon=True).start()


class WorldLauncher(Launcher):
    """Lends the processes of a world to one engine; see `Launcher`.

    Args:
        world: Returns the processes, or raises `EngineFailed`.
        root_is_agent: Whether the root is the agent of its own machine.
        starts_again: See `Launcher`.
    """

    def __init__(
        self,
        world: Callable[[], World],
        root_is_agent: bool,
        starts_again: bool = True,
    ) -> None:
        self.starts_again = starts_again
        self._world_of = world
        self._root_is_agent = root_is_agent
        self._world: World | None = None

    def machines(self) -> int:
        """Return on how many machines there are processes, the root's included."""
        return len(self._world_of().machines())

    def open(self, workers: int) -> list[Share]:
        """Share workers out among the machines."""
        world = self._world_of()
        shares = world.enter(workers, self._root_is_agent)
        self._world, self.lobby = world, world.lobby
        return shares

    def close(self) -> None:
        """Let another engine use the processes."""
        if self._world is not None:
            self._world.leave()
            self._world = None
