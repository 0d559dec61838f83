"""What runs in a Ray actor: an agent, and the calls by which the root reaches it.

An actor has threads of four kinds. `control` carries out what the root sends, in order;
`hear` waits for what the worker says; `send` and `fill` move sums. A life of an actor
has a number that it draws itself. Every call bears the number it is meant for, so that
nothing which was on its way to an earlier life reaches a later one.
"""

from __future__ import annotations

import os
import secrets
import threading
import traceback
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines.host.changed_stretches import Stretches, unpack
from codedgrad.engines.optional_libraries import extra
from codedgrad.engines.remote.agent import Agent, Near

GROUPS = {"control": 1, "hear": 1, "send": 2, "fill": 4}
"""Threads of each kind."""

_LOOK = 0.1  # seconds between looks at whether a life is over

Box: TypeAlias = "NDArray[Any] | list[Any]"
"""An array, or a list of one reference to it, which Ray then leaves to the actor."""

Item: TypeAlias = "bytes | tuple[int, Stretches, Box]"
"""A frame to take; or parameters, and the slot they belong in."""

Met: TypeAlias = tuple[int, int, str, Near]
"""The number of a life, the process it has, the id of its Ray node, what it shares."""


class Host:
    """An agent of a root that reaches it by Ray.

    Args:
        number: Of the worker.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._life = 0
        self._agent: Agent | None = None
        self._polling = threading.Lock()

    def __repr__(self) -> str:
        return f"worker {self._number}"  # as it is named in front of what it prints

    # -- control ---------------------------------------------------------------------

    def meet(self, setup: Box) -> Met:
        """Begin a life with a new agent, and end the one before, if there is any."""
        self.leave()
        self._agent = Agent(_opened(setup).tobytes(), self._number)
        self._next, self._early = 0, dict[int, list[Item]]()
        self._life = secrets.randbits(62) + 1
        context = extra("ray").get_runtime_context()
        return self._life, os.getpid(), context.get_node_id(), self._agent.near

    def take(self, life: int, number: int, items: list[Item]) -> None:
        """Carry out what the root has sent, in the order of its numbers."""
        if life != self._life:
            return
        self._early[number] = items
        try:
            while self._next in self._early:
                for item in self._early.pop(self._next):
                    self._carry_out(item)
                self._next += 1
        except BaseException:  # the root waits for this in vain: let it see an end
            traceback.print_exc()
            os._exit(1)

    def leave(self) -> None:
        """End a life."""
        self._life = 0
        agent, self._agent = self._agent, None
        if agent is not None:
            with self._polling:
                agent.close()

    def _carry_out(self, item: Item) -> None:
        assert self._agent is not None
        if isinstance(item, bytes):
            self._agent.take(item)
        else:
            slot, stretches, box = item
            unpack(_opened(box), stretches, self._agent.parameters(slot))

    # -- the other threads -----------------------------------------------------------

    def hear(self, life: int, most: int) -> Iterator[bytes]:
        """Yield what the agent says, until its life is over or so much was said."""
        said = 0
        while said < most:
            with self._polling:
                agent = self._agent
                if life != self._life or agent is None:
                    return
                frames = agent.poll(_LOOK)
            for frame in frames:  # Ray sends to this generator: `yield from` cannot
                said += 1
                yield frame

    def send(self, life: int, rows: tuple[int, ...]) -> NDArray[Any]:
        """Return a sum."""
        return self._of(life).sum(rows)

    def fill(self, life: int, row: int, box: Box) -> bool:
        """Put a sum that another actor returns into a row; return that it is there."""
        vector = _opened(box)
        np.copyto(self._of(life).row(row), vector)
        return True

    def _of(self, life: int) -> Agent:
        agent = self._agent
        if life != self._life or agent is None:
            raise RuntimeError("this was meant for an earlier life")
        return agent


def _opened(box: Box) -> NDArray[Any]:
    opened: NDArray[Any] = extra("ray").get(box[0]) if isinstance(box, list) else box
    return opened
