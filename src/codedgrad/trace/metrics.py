r"""What a trace says about its steps: times, work, who was late, what waiting costs.

Everything is computed from what a root could see. Work is the parts *known* to be
finished; a late worker may have done more.

Waiting for all, at the uncoded load of $q = k / n$ parts, is never observed when late
workers are not waited for. Two figures stand for it, and are never mixed: a **lower
bound** from what was seen ($D$ parts in $x$ seconds, or not done after $x$, take at
least $x \min(1, q / D)$ for $q$ parts, because some of the time may not depend on the
load), and an **estimate**, in which late workers take what their past steps suggest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codedgrad.core import (
    Assign,
    Combine,
    Cut,
    Drop,
    GiveUp,
    History,
    MessageArrived,
    MessageFailed,
    Observation,
    Patience,
    Progressed,
    Record,
    State,
    StepStarted,
    Upload,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.core.estimators import Speed
from codedgrad.trace.format import Entry
from codedgrad.trace.read import Trace

__all__ = ["StepReport", "Waiting", "ended_steps", "reports"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waiting for all would have taken, seconds; see the module's docstring.

    Attributes:
        at_least: A lower bound from what was seen.
        estimate: With late workers as their past suggests.
    """

    at_least: float
    estimate: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a trace.

    Attributes:
        step: Its number.
        seconds: From start to end.
        combined: Whether it gave a sum.
        residual: Of the sum; the number of parts where there is none.
        heard: Workers with a message heard, ascending.
        late: Workers asked for a message that was not heard, ascending.
        messages: Messages heard.
        work: Parts known to be finished, copies counted.
        wasted: Of those, copies that the sum did not need.
        busy: Share of the workers' time in the step spent on it, as far as seen.
        waiting: What waiting for all would have taken.
    """

    step: int
    seconds: float
    combined: bool
    residual: float
    heard: tuple[int, ...]
    late: tuple[int, ...]
    messages: int
    work: int
    wasted: int
    busy: float
    waiting: Waiting


def ended_steps(trace: Trace) -> Iterator[tuple[Record, Combine | GiveUp]]:
    """Rebuild what was known at the end of every step.

    Late arrivals are in the record by the time the next one is asked for.
    """
    for record, end, _ in _rebuilt(trace):
        yield record, end


def reports(trace: Trace) -> list[StepReport]:
    """Return what there is to say about every whole step."""
    found, waiting_for = [], trace.header.parts / trace.header.workers
    for record, end, history in _rebuilt(trace):
        speed = history.follow(Speed())  # of the steps before this one
        found.append(_report(record, end, speed.seconds, waiting_for))
    return found


def _report(
    record: Record,
    end: Combine | GiveUp,
    speeds: list[float | None],
    uncoded_load: float,
) -> StepReport:
    state, workers = record.state, len(record.state.alive)
    seen = [record.observe(worker) for worker in range(workers)]
    heard = {state.messages[id_].worker for id_ in state.heard}
    owing = {m.worker for m in state.messages.values() if m.arrived is None}
    work = sum(o.done for o in seen if o is not None)
    weights = end.weights if isinstance(end, Combine) else ()
    used = {part for id_, _ in weights for part in state.row(id_)}
    busy = sum(min(o.elapsed, record.seconds) for o in seen if o is not None)
    times = [(_at_least(o, uncoded_load), o) for o in seen if o is not None]
    at_least = max((least for least, _ in times), default=0.0)
    guesses = [
        max(least, (speeds[o.worker] or 0.0) * uncoded_load) if o.is_censored else least
        for least, o in times
    ]
    return StepReport(
        step=record.step,
        seconds=record.seconds,
        combined=isinstance(end, Combine),
        residual=end.residual if isinstance(end, Combine) else float(state.parts),
        heard=tuple(sorted(heard)),
        late=tuple(sorted(owing - heard)),
        messages=len(state.heard),
        work=work,
        wasted=work - len(used),
        busy=busy / (workers * record.seconds) if record.seconds > 0 else 0.0,
        waiting=Waiting(at_least, max(guesses, default=0.0)),
    )


def _at_least(seen: Observation, load: float) -> float:
    parts = seen.done + seen.pending
    seconds = seen.elapsed if seen.is_censored else seen.seconds
    return seconds * min(1.0, load / parts) if parts else 0.0


def _rebuilt(
    trace: Trace,
) -> Iterator[tuple[Record, Combine | GiveUp, History]]:
    """Go through the events as the coordinator did, without deciding anything."""
    header = trace.header
    history = History(header.workers)
    alive = [True] * header.workers
    everything = (frozenset(range(header.parts)),) * header.workers
    state: State | None = None
    for entry in trace.entries:
        event = entry.event
        ends = [c for c in entry.commands if isinstance(c, Combine | GiveUp)]
        if state is not None:
            state.now = event.at
        match event:
            case StepStarted(step, at):
                if state is not None and ends:  # superseded
                    yield _end(history, state, ends.pop(0))
                    state = None
                if state is None and _opens(entry, step):
                    history.settle()
                    deadline = Patience().deadline(history)
                    state = State(
                        step, at, everything, header.parts, alive, deadline,
                        header.capabilities,
                    )  # fmt: skip
            case WorkerLost(worker) | WorkerJoined(worker):
                if 0 <= worker < len(alive):
                    if state is not None and isinstance(event, WorkerLost):
                        state.forget(worker, "lost")
                    alive[worker] = isinstance(event, WorkerJoined)
            case Progressed() | MessageArrived() | MessageFailed():
                if state is not None and event.step == state.step:
                    state.accept(event)
                elif isinstance(event, MessageArrived):
                    history.arrived_late(event)
        if state is not None:
            for command in entry.commands:
                if isinstance(command, Assign | Cut | Upload | Drop):
                    state.obey(command)
            if ends:
                yield _end(history, state, ends[0])
                state = None


def _opens(entry: Entry, step: int) -> bool:
    return any(command.step == step for command in entry.commands)


def _end(
    history: History, state: State, end: Combine | GiveUp
) -> tuple[Record, Combine | GiveUp, History]:
    history.ended(state, combined=isinstance(end, Combine))
    return history.records[-1], end, history
