"""Hosts that are processes of this machine: agents called by a launcher of our own.

Ray, MPI and torchrun do no more than start such processes, so this is what they have in
common, without them: real agents, real connections, over the loopback.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import msgspec

from codedgrad.engines.remote.agent import Agent, Invitation, RootLost
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.handshake import RunKey
from codedgrad.engines.remote.launcher import Launcher, Share, shared_out
from codedgrad.engines.remote.lobby import Lobby
from codedgrad.errors import EngineFailed

_PROGRAM = f"""
import sys
sys.path[:] = {sys.path!r}
import importlib.util
spec = importlib.util.spec_from_file_location("loopback", {__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.serve(int(sys.argv[1]))
"""


def serve(number: int) -> None:
    """Be an agent, in a process of its own."""
    text = sys.stdin.buffer.read()
    invitation = msgspec.msgpack.decode(text, type=Invitation)
    try:
        Agent(invitation, number, ends_with_parent=True).serve()
    except RootLost as error:
        raise SystemExit(f"agent {number}: {error}") from None


class Loopback(Launcher):
    """A launcher of processes.

    Args:
        hosts: How many; None: one for every worker.
        at_root: Whether the root's process is the agent of the first host.
    """

    def __init__(self, hosts: int | None, at_root: bool) -> None:
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        self._hosts, self._at_root = hosts, at_root

    def open(self, workers: int) -> list[Share]:
        counts = shared_out(workers, [1.0] * (self._hosts or workers))
        self.lobby = Lobby(RunKey.draw(), "lo")
        numbers: list[int | None] = [*range(len(counts))]
        if self._at_root:
            numbers[0] = None
        for number in numbers:
            if number is not None:
                self.begin(number)
        pairs = zip(numbers, counts, strict=True)
        return [Share(agent, count) for agent, count in pairs]

    def begin(self, number: int) -> None:
        """Start an agent, for the first time or once more."""
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(number)], stdin=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.msgpack.encode(self.lobby.invitation))
        process.stdin.close()
        self.agents[number] = process

    def machines(self) -> int:
        return 1

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to an agent."""
        self.agents[number].send_signal(what)

    def lose(self, number: int) -> None:
        """Kill an agent, and with it the workers of its host."""
        self.signal(number, signal.SIGKILL)
        self.agents.pop(number).wait()

    def check(self) -> None:
        for number, process in self.agents.items():
            if process.poll() is not None:
                problem = f"agent {number} has ended with {process.returncode}"
                raise EngineFailed(problem, "another test")

    def close(self) -> None:
        if hasattr(self, "lobby"):
            self.lobby.close()
        for process in self.agents.values():
            process.kill()
            process.wait()


class Looped(Remote):
    """An engine over it: agents are numbered from 0, hosts from 1; 0 is the root's."""

    name = "loopback"

    def __init__(
        self,
        hosts: int | None = None,
        *,
        at_root: bool = False,
        open_segments: int = 20,
        threads: int | str = "auto",
    ) -> None:
        self.launcher = Loopback(hosts, at_root)
        super().__init__(self.launcher, open_segments=open_segments, threads=threads)
