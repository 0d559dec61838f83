"""An engine around another one, whose workers send when they are granted the link.

A finished message waits at its worker until the root has granted all of it, in the
order of a policy (`Link`). With slots of some seconds the link is emulated: a message
arrives when it would have been sent through it. Without, no time passes: of messages
that are there together, the policy decides which comes first.

Messages that go to other workers, as in a tree, do not use the link to the root. What a
worker reports after a message comes after it. A message that was not granted when its
worker is lost was not sent, and is lost with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from numpy.typing import NDArray

from codedgrad.core import (
    ROOT,
    Assign,
    Capabilities,
    Event,
    MessageArrived,
    MessageFailed,
    Order,
    Progressed,
    Upload,
    WorkersLost,
)
from codedgrad.engines.engine import CountsThreads, Engine, MakeJob
from codedgrad.engines.preemption_notices import PreemptionNotice, notices_of
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.replayed import Replayed
from codedgrad.engines.worker_status import WorkerTable, workers_of
from codedgrad.errors import InvalidOptions
from codedgrad.jobs import VectorLayout
from codedgrad.uplink import Credits, Link


def granted(engine: Engine, uplink: Link | str | None) -> Engine:
    """Return an engine whose link to the root is shared out; itself if it is not.

    What a recorded run is replayed from was granted in that run, and stays as it is.
    An engine with a real link shares that out itself, unless its slots have seconds.

    Args:
        engine: Not yet started.
        uplink: A link, the name of its policy, such as `fair`, or None.
    """
    if uplink is None:
        return engine
    link = _link(uplink)
    if isinstance(engine, Replayed):
        return engine
    if isinstance(engine, Remote) and not link.slot:
        engine.share(link)  # a link that there is: sums wait where they are
        return engine
    return Granting(engine, link)


def _link(uplink: object) -> Link:
    if isinstance(uplink, Link):
        return uplink
    if not isinstance(uplink, str):
        advice = "a Link, or the name of its policy, such as fair"
        raise InvalidOptions("uplink", f"is {uplink!r}", advice)
    return Link(uplink)


class Granting:
    """Lets messages of another engine arrive in the order of a policy.

    Args:
        engine: What runs the workers; not yet started.
        link: How the link to the root is shared out.
    """

    def __init__(self, engine: Engine, link: Link) -> None:
        self.name = engine.name
        self._engine = engine
        self._link = link
        self._lines: list[deque[Event]] = []  # by worker; a held message at the head
        self._ready: deque[Event] = deque()
        self._held: dict[int, int] = {}  # message -> worker
        self._elsewhere: set[int] = set()  # messages that go to other workers
        self._step = -1
        self._tick = math.inf

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._engine.capabilities

    def notices(self) -> list[PreemptionNotice]:
        """Return which hosts the engine says will be taken away."""
        return notices_of(self._engine)

    @property
    def workers(self) -> WorkerTable:
        """Where the engine says that its workers are, and what they do."""
        return workers_of(self._engine, [True] * len(self._lines))

    @property
    def threads(self) -> Sequence[int]:
        """How many threads the engine's workers compute with, if it knows."""
        engine = self._engine
        return engine.threads if isinstance(engine, CountsThreads) else ()

    def start(
        self, make: MakeJob, layout: VectorLayout, workers: int, **options: Any
    ) -> None:
        """Start the workers and wait until they are ready."""
        self._credits: Credits[int] = self._link.credits(workers)
        self._rates = self._link.rates(workers)
        self._lines = [deque() for _ in range(workers)]
        self._engine.start(make, layout, workers, **options)

    def now(self) -> float:
        """Return the engine's time."""
        return self._engine.now()

    def publish(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Let all orders from now on be about a new step, and these parameters."""
        self._engine.publish(step, parameters, changed)
        self._step = step
        self._elsewhere.clear()

    def give(self, order: Order) -> None:
        """Give an order to its worker; never waits for it."""
        match order:
            case Assign(message=int(message), to=to) | Upload(message=message, to=to):
                if to != ROOT:
                    self._elsewhere.add(message)
        self._engine.give(order)

    def finish(self, step: int) -> None:
        """Let all workers drop what they have in hand of a step."""
        for message in list(self._held):
            self._withdraw(message)
        for line in self._lines:
            self._ready.extend(line)  # of a step that is over: only to be recorded
            line.clear()
        self._tick = math.inf  # the next slot begins when something is offered
        self._engine.finish(step)

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages, (message,); valid until the next."""
        return self._engine.combine(weights)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs."""
        return self._engine.compare(messages)

    def close(self) -> None:
        """End everything."""
        self._engine.close()

    def next_event(self, timeout: float) -> Event | None:
        """Return what happened next; None if nothing does for `timeout` seconds."""
        deadline = self.now() + timeout
        while not self._ready:
            left = deadline - self.now()
            event = self._engine.next_event(self._patience(left))
            if event is not None:
                self._take(event)
            elif not self._link.slot:
                self._advance()
            while self._tick <= self.now():
                self._advance()
            # Not before the engine has nothing left: "nothing" lets a timer fire.
            if event is None and not self._ready and deadline <= self.now():
                return None
        stamped: Event = msgspec.structs.replace(self._ready.popleft(), at=self.now())
        return stamped

    def _patience(self, left: float) -> float:
        """Return for how long nothing needs to be granted."""
        if not self._held:
            return left
        if not self._link.slot:
            return 0.0
        return max(0.0, min(left, self._tick - self.now()))

    def _take(self, event: Event) -> None:
        match event:
            case MessageArrived(step, worker, message) if step == self._step:
                if message not in self._elsewhere and message not in self._held:
                    self._held[message] = worker
                    self._credits.offer(worker, message, size=1.0)
                    self._lines[worker].append(event)
                    if self._link.slot and self._tick == math.inf:
                        self._tick = self.now() + self._link.slot
                    return
            case WorkersLost(workers):
                for message in [m for m, w in self._held.items() if w in workers]:
                    self._withdraw(message)
                for worker in workers:
                    self._release(worker)
        line: deque[Event] = deque()
        if isinstance(event, Progressed | MessageArrived | MessageFailed):
            line = self._lines[event.worker]
        (line or self._ready).append(event)  # behind what is held, if something is

    def _advance(self) -> None:
        """Let a slot pass; without seconds, as many as bring a message."""
        while self._held:
            arrived = self._credits.advance(self._rates)
            for message in arrived:
                self._release(self._held.pop(message))
            if arrived or self._link.slot:
                break
        self._tick = self._tick + self._link.slot if self._held else math.inf

    def _release(self, worker: int) -> None:
        """Hand out what a worker has said, up to a message that is not granted."""
        line = self._lines[worker]
        while line:
            event = line[0]
            if isinstance(event, MessageArrived) and event.message in self._held:
                break
            self._ready.append(line.popleft())

    def _withdraw(self, message: int) -> None:
        """Forget a message that was not sent."""
        worker = self._held.pop(message)
        self._credits.withdraw(message)
        line = self._lines[worker]
        kept = [
            event
            for event in line
            if not (isinstance(event, MessageArrived) and event.message == message)
        ]
        line.clear()
        line.extend(kept)
