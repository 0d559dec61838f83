"""An engine that lets a recorded run happen once more, event by event.

The events come from a trace, the sums are computed in this process: so the run gives
the same parameters to the last bit, whatever its scheme, without its workers and
without its waiting. A bug report is then a trace and the script that made it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from codedgrad.core import (
    Assign,
    Event,
    MessageArrived,
    MessageFailed,
    MessagesCompared,
    Order,
    Segment,
    StepStarted,
    TimerFired,
    Upload,
    WorkersLost,
)
from codedgrad.engines.engine import MakeJob
from codedgrad.engines.here import Desk
from codedgrad.errors import InvalidTrace, ProtocolError
from codedgrad.jobs import VectorLayout
from codedgrad.trace import Trace, read, read_run

_log = logging.getLogger("codedgrad")


class Replayed:
    """Hands out the events of a trace.

    Args:
        trace: A trace, its file, or the folder of a run.
    """

    name = "replayed"

    def __init__(self, trace: Trace | Path | str) -> None:
        self._path = "the trace" if isinstance(trace, Trace) else trace
        if not isinstance(trace, Trace):
            trace = read_run(trace).trace if Path(trace).is_dir() else read(trace)
        self.capabilities = trace.header.capabilities
        self._header = trace.header
        self._left = deque(entry.event for entry in (*trace.entries, *trace.tail))
        self._now = 0.0
        self._step = -1
        self._is_open = False
        self._is_closed = False
        self._desk: Desk | None = None
        self._sent: set[int] = set()
        self._unlike: set[int] = set()  # messages that were not finite, and now are
        self._has_told = False
        self._segments: dict[int, Segment] = {}
        self._asked: dict[int, tuple[int, ...]] = {}  # message -> its segments

    def start(
        self,
        make: MakeJob,
        layout: VectorLayout,
        workers: int,
        *,
        parts: int = 1,
        **recorded: Any,
    ) -> None:
        """Make the job. Faults and delays are in the trace, not made once more."""
        if self._desk is not None or self._is_closed:
            raise ProtocolError("an engine is started once")
        if (workers, parts) != (self._header.workers, self._header.parts):
            problem = (
                f"is of {self._header.workers} workers and {self._header.parts} "
                f"parts, not of {workers} and {parts}"
            )
            raise InvalidTrace(self._path, problem)
        self._desk = Desk(make, layout, workers, self.capabilities.rows_per_worker)

    def now(self) -> float:
        """Return the time of the last event; of the next step, if that comes next."""
        if not self._is_open and isinstance(event := self._next, StepStarted):
            return event.at
        return self._now

    def publish(
        self,
        step: int,
        parameters: NDArray[Any],
        changed: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Let all orders from now on be about a new step, and these parameters."""
        self._desk_there.begin(step, parameters, changed)
        self._step = step
        self._is_open = False
        self._segments.clear()
        self._asked.clear()
        self._sent.clear()
        self._unlike.clear()

    def give(self, order: Order) -> None:
        """Make room for a sum; it is computed when its message arrives."""
        self._desk_there.take(order)
        if isinstance(order, Assign):
            self._segments[order.segment.id] = order.segment
            if order.message is not None:
                self._asked[order.message] = (order.segment.id,)
        elif isinstance(order, Upload):
            self._asked[order.message] = order.segments

    def next_event(self, timeout: float) -> Event | None:
        """Return the next event; None where the driver's own comes next."""
        event = self._next
        if isinstance(event, StepStarted):
            if self._is_open or event.step != self._step:
                here = f"goes on with step {event.step}, the run with {self._step}"
                raise InvalidTrace(self._path, f"{here}; is it of the same script?")
            self._is_open = True  # the driver starts it, now
            self._now = event.at
            self._left.popleft()
            return None
        if event is None:
            raise InvalidTrace(self._path, "ends here; the run went no further")
        if isinstance(event, TimerFired) and timeout > 0 and self._now < event.at:
            self._now = event.at
            return None  # the driver looks once more before it lets the timer fire
        self._left.popleft()
        self._now = event.at
        if isinstance(event, TimerFired):
            return None  # the driver lets it fire, now
        self._happen(event)
        return event

    def finish(self, step: int) -> None:
        """Nobody has anything in hand."""

    def combine(self, weights: Sequence[tuple[int, float]]) -> NDArray[Any]:
        """Return the weighted sum of messages, (layout.row,); valid until the next."""
        if not self._has_told and any(
            message in self._unlike for message, _ in weights
        ):
            self._has_told = True
            _log.warning(
                "step %d: a sum was not finite in the run, and is here; a worker was "
                "at fault, and all differs from here on", self._step,
            )  # fmt: skip
        return self._desk_there.rows.combine(weights)

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return what the run reported, which comes next; nothing if it did not."""
        event = self._next
        if not isinstance(event, MessagesCompared) or event.step != self._step:
            return ()
        self._left.popleft()
        self._now = event.at
        return event.products

    def close(self) -> None:
        """Let go of the job."""
        self._is_closed = True
        self._desk = None
        self._left.clear()

    @property
    def _next(self) -> Event | None:
        return self._left[0] if self._left else None

    @property
    def _desk_there(self) -> Desk:
        if self._desk is None:
            raise ProtocolError("the engine is not started, or closed")
        return self._desk

    def _happen(self, event: Event) -> None:
        """Do to the rows what the event did to those of the run."""
        desk, rows = self._desk_there, self._desk_there.rows
        match event:
            case MessageArrived(step, worker, message, cuts) if step == self._step:
                if message not in self._sent and rows.sent(worker, message, cuts):
                    self._sent.add(message)
                    for id_, done in cuts:
                        desk.compute(self._segments[id_], done)
                    is_finite = desk.send(message, cuts)
                    if not event.finite and is_finite:
                        self._unlike.add(message)
            case MessageFailed(step, worker, message) if step == self._step:
                asked = self._asked.get(message, ())
                rows.refuse(worker, tuple((id_, 0) for id_ in asked))
            case WorkersLost(workers):
                for worker in workers:
                    rows.forget(worker)
