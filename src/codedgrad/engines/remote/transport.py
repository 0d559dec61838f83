"""What carries frames and vectors between the root and agents that are elsewhere.

```text
  root                                       host of worker i
  Remote -- Transport == Ray or MPI == agent (`Agent`) -- nursery -- worker
                                             shared memory: parameters, sums
```

Every worker has an agent: a process of Ray's or MPI's that has a worker of its own, as
the local engine has many. Agents compute nothing and decide nothing, so they always
have time for an order. Control is small frames, in order. A vector moves only when the
root says so: from an agent to the root, or from one agent to another.

A transport's duties:

1. What is sent to an agent is taken by it in the order in which it was sent: frames,
   `deliver`, `fetch` and `carry`. Nothing here ever waits for an agent.
2. What an agent says comes in order. `Lost` is the last word of a life of it: nothing
   of that life comes after it, `Fetched` and `Carried` neither. `Joined` begins the
   next one, which knows nothing of what was sent before.
3. Memory that is on its way is not changed: the parameters given to `publish` stay as
   they are until their step is finished, and what is still on its way then was copied;
   a vector that was fetched belongs to the root.
4. After `close` nothing is left that `open` started. It may be called twice.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stretches
from codedgrad.engines.remote.agent import Near


class Joined(Struct, frozen=True):
    """An agent is there, has its set-up, and takes frames: a life of it has begun.

    Attributes:
        agent: Its number.
        near: What it shares with the root, or offers to: `Agent.near`.
    """

    agent: int
    near: Near


class Lost(Struct, frozen=True):
    """An agent is gone, with its worker and all that it held; and why."""

    agent: int
    reason: str


class Spoke(Struct, frozen=True):
    """An agent has said something: a frame, as `Agent.poll` returned it."""

    agent: int
    frame: bytes


class Fetched(Struct, frozen=True, eq=False):
    """A sum has come to the root; None: it cannot be had."""

    agent: int
    key: int
    vector: NDArray[Any] | None


class Carried(Struct, frozen=True):
    """A sum has come from one agent to another; or it never will."""

    agent: int
    key: int
    to: int
    arrived: bool


Notice: TypeAlias = Joined | Lost | Spoke | Fetched | Carried


class Transport(Protocol):
    """Reaches agents 0 to n - 1.

    Attributes:
        name: As in traces.
        restarts: Whether an agent that is lost comes back by itself.
    """

    name: str
    restarts: bool

    def open(self, setup: bytes, agents: int) -> None:
        """Begin with agents, each made as `Agent(setup, number)`.

        Does not wait for them: each is there when `poll` says `Joined`.

        Raises:
            EngineFailed: If there is no cluster, no room, no extra installed...
        """
        ...

    def send(self, agent: int, frame: bytes) -> None:
        """Let an agent `take` a frame."""
        ...

    def publish(self, parameters: NDArray[Any]) -> None:
        """Note the parameters of a new step."""
        ...

    def deliver(self, agent: int, slot: int, stretches: Stretches) -> None:
        """Copy stretches of what was published last to `parameters(slot)` of an agent.

        What it takes after this it takes when they are there.
        """
        ...

    def alert(self, agent: int) -> None:
        """Let an agent know that a sum of its will soon be asked for.

        So that one which looks only now and then looks more often. Nothing may come of
        it, and a transport whose agents hear at once does nothing here.
        """
        ...

    def fetch(self, agent: int, key: int, rows: tuple[int, ...]) -> None:
        """Bring `sum(rows)` of an agent to the root: `Fetched`, with this key."""
        ...

    def carry(
        self, agent: int, key: int, rows: tuple[int, ...], to: int, row: int
    ) -> None:
        """Bring `sum(rows)` of an agent to `row(row)` of another: `Carried`.

        It does not pass the root.
        """
        ...

    def poll(self, timeout: float) -> list[Notice]:
        """Return what has happened; waits up to `timeout` seconds for something."""
        ...

    def close(self) -> None:
        """End all agents."""
        ...
