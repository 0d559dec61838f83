r"""What a trace says about its steps: times, work, who was late, what waiting costs.

Everything is computed from what a root could see. Work is the parts *known* to be
finished; a late worker may have done more.

Waiting for all, at the uncoded load of $q = k / n$ parts, is never observed when late
workers are not waited for. Two figures stand for it, and are never mixed: a **lower
bound** from what was seen ($D$ parts in $x$ seconds, or not done after $x$, take at
least $x \min(1, q / D)$ for $q$ parts, because some of the time may not depend on the
load), and an **estimate**, in which late workers take what their past steps suggest.
The bound counts only time in which a worker is known to have been at it: not while it
may have been idle, or finishing a part of the step before. Both are of computing only:
where progress is reported, what messages take on their way is not in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codedgrad.core import (
    Assign,
    Combine,
    Command,
    Cut,
    Drop,
    GiveUp,
    History,
    MessageArrived,
    MessageFailed,
    MessagesCompared,
    Opinions,
    Patience,
    Progressed,
    Record,
    Scheme,
    State,
    StepStarted,
    Upload,
    WorkerJoined,
    WorkerLost,
    is_question,
)
from codedgrad.errors import BrokenPlan, InvalidTrace
from codedgrad.learning.estimators import Speed
from codedgrad.trace.format import Entry, Header
from codedgrad.trace.read import Trace

_REMEMBERED = 64  # steps for which late messages are still told to the record


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
        late: Workers asked for a message that was not heard, or given parts of a fixed
            code and never asked, as when those below them were late; ascending.
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

    Late arrivals, and how alike messages were, are in the record by the time the next
    one is asked for.
    """
    for record, end, _ in _rebuilt(trace):
        yield record, end


def settled_steps(trace: Trace) -> Iterator[tuple[Record, Combine | GiveUp]]:
    """Return the steps in order, each when no late message can be told to it."""
    waiting: deque[tuple[Record, Combine | GiveUp]] = deque()
    for ended in ended_steps(trace):
        waiting.append(ended)
        if len(waiting) > _REMEMBERED:
            yield waiting.popleft()
    yield from waiting


def reports(trace: Trace) -> list[StepReport]:
    """Return what there is to say about every whole step."""
    report = Reporter(trace.header.workers, trace.header.parts)
    return [report(*ended) for ended in _rebuilt(trace)]


class Reporter:
    """Reports steps one by one as they end, as `reports` does for a whole trace.

    Args:
        workers: How many.
        parts: How many.

    Example:
        >>> from codedgrad.core import Coordinator
        >>> from codedgrad.schemes import uncoded
        >>> coordinator, report = Coordinator(uncoded(workers=1)), Reporter(1, 1)
        >>> _ = coordinator.handle(StepStarted(0, at=0.0))
        >>> [end] = coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=2.5))
        >>> history = coordinator.history
        >>> report(history.records[-1], end, history).seconds
        2.5
    """

    def __init__(self, workers: int, parts: int) -> None:
        self._load = parts / workers
        self._free = [True] * workers

    def __call__(
        self, record: Record, end: Combine | GiveUp, history: History
    ) -> StepReport:
        """Report the step that has just ended; before the next one starts.

        Args:
            record: Of the step.
            end: How it ended.
            history: Of the run, in which the step is the last one.
        """
        speeds = history.follow(Speed()).seconds  # of the steps before this one
        stretches, free = [], self._free
        for worker in range(len(free)):
            stretch, free[worker] = _stretches(record, worker, free[worker])
            stretches.append(stretch)
        waiting = _waiting(record, stretches, speeds, self._load)
        return _report(record, end, waiting)


def _report(record: Record, end: Combine | GiveUp, waiting: Waiting) -> StepReport:
    state, workers = record.state, len(record.state.alive)
    seen = [record.observe(worker) for worker in range(workers)]
    heard = {state.messages[id_].worker for id_ in state.heard}
    owing = {m.worker for m in state.messages.values() if m.arrived is None}
    owing |= {k.segment.worker for k in state.segments.values() if k.whole}
    work = sum(o.done for o in seen if o is not None)
    weights = end.weights if isinstance(end, Combine) else ()
    used = {part for id_, _ in weights for part in state.row(id_)}
    busy = sum(min(o.elapsed, record.seconds) for o in seen if o is not None)
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
        waiting=waiting,
    )


def _waiting(
    record: Record,
    stretches: Sequence[Sequence[tuple[float, int]]],
    speeds: Sequence[float | None],
    load: float,
) -> Waiting:
    at_least = estimate = 0.0
    for worker, stretch in enumerate(stretches):
        bounds = (seconds * min(1.0, load / parts) for seconds, parts in stretch)
        least = max(bounds, default=0.0)
        seen = record.observe(worker)
        late = seen is not None and seen.is_censored
        guess = load * (speeds[worker] or 0.0) if late else 0.0
        at_least, estimate = max(at_least, least), max(estimate, least, guess)
    return Waiting(at_least, estimate)


def _stretches(
    record: Record, worker: int, free: bool
) -> tuple[list[tuple[float, int]], bool]:
    """Return (seconds, parts) that a worker took at least so long for.

    Args:
        record: A step.
        worker: Whom to look at.
        free: Whether it had nothing else in hand when the step began; also returned,
            for the next step.
    """
    engine = record.state.capabilities
    prompt = engine.interrupts_part and engine.orders_during_part
    found: list[tuple[float, int]] = []
    for stretch in record.stretches(worker):
        marks, start, before, done = stretch.marks, stretch.start, 0, 0
        if not free:  # at it for certain only since its first report
            before, start = marks[0] if marks else (0, stretch.end)
        found += [(at - start, done - before) for done, at in marks if done > before]
        if stretch.left and start < stretch.end:
            done = marks[-1][0] if marks else 0
            found.append((stretch.end - start, done - before + stretch.left))
        was_at_it = free or bool(marks)
        stopped = not stretch.left or (prompt and stretch.closed)
        free = stretch.ended == "lost" or (was_at_it and stopped)
    return found, free or prompt


def rebuilt(
    header: Header, entries: Iterable[Entry], scheme: Scheme, patience: Patience
) -> History:
    """Return what a coordinator knows after these events.

    Args:
        header: Of the trace.
        entries: Whole steps.
        scheme: Asked for its plan of every step, as the coordinator did, because its
            estimators record what they expect when a plan is made.
        patience: Of the coordinator.
    """
    history = History(header.workers)
    for _ in _go_through(header, entries, history, scheme, patience):
        pass
    return history


def _rebuilt(
    trace: Trace,
) -> Iterator[tuple[Record, Combine | GiveUp, History]]:
    header = trace.header
    return _go_through(header, trace.entries, History(header.workers))


def _go_through(
    header: Header,
    entries: Iterable[Entry],
    history: History,
    scheme: Scheme | None = None,
    patience: Patience | None = None,
) -> Iterator[tuple[Record, Combine | GiveUp, History]]:
    """Go through the events as the coordinator did, without deciding anything.

    What came of a message that is not finite follows from what else was heard and asked
    about it, so it need not be written down.
    """
    alive, patience = history.alive, patience or Patience()
    held = (frozenset(range(header.parts)),) * header.workers
    if scheme is not None:
        held = tuple(frozenset(parts) for parts in scheme.placement)
    state: State | None = None
    opinions: Opinions | None = None
    for entry in entries:
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
                    deadline = patience.deadline(history)
                    state = State(
                        step, at, held, header.parts, alive, deadline,
                        header.capabilities,
                    )  # fmt: skip
                    opinions = Opinions(state)
                    if scheme is not None:
                        # The orders are recorded already. But estimators note what they
                        # expect when a plan is made, and learn from the difference.
                        scheme.plan(step, history).first(state)
            case WorkerLost(worker) | WorkerJoined(worker):
                if 0 <= worker < len(alive):
                    if state is not None and isinstance(event, WorkerLost):
                        state.forget(worker, "lost")
                    alive[worker] = isinstance(event, WorkerJoined)
            case MessagesCompared():
                history.compared(event)
            case Progressed() | MessageArrived() | MessageFailed():
                if state is not None and event.step == state.step:
                    if opinions is not None and opinions.concern(event):
                        opinions.accept(event)
                    else:
                        state.accept(event)
                elif isinstance(event, MessageArrived):
                    history.arrived_late(event)
        if state is not None and opinions is not None:
            try:
                _follow(state, opinions, entry.commands)
            except BrokenPlan as error:
                raise InvalidTrace("the trace", str(error)) from None
            if ends:
                yield _end(history, state, ends[0])
                state = None


def _follow(state: State, opinions: Opinions, commands: Iterable[Command]) -> None:
    """Do what was ordered, and review what is doubted as often as that was done."""
    left = deque(c for c in commands if isinstance(c, Assign | Cut | Upload | Drop))
    before = -1
    while before != len(left):
        before = len(left)
        opinions.review(left)
        while left and not is_question(left[0]):
            state.obey(left.popleft())


def _opens(entry: Entry, step: int) -> bool:
    return any(command.step == step for command in entry.commands)


def _end(
    history: History, state: State, end: Combine | GiveUp
) -> tuple[Record, Combine | GiveUp, History]:
    for message, _ in end.weights if isinstance(end, Combine) else ():
        if message in state.doubted:
            state.hand_over(message)  # the sum says so
    failed = isinstance(end, GiveUp) and end.reason not in ("cancelled", "superseded")
    history.ended(state, isinstance(end, Combine), failed)
    return history.records[-1], end, history
