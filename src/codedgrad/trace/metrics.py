"""What a trace says about its steps: times, work, late workers, what waiting costs.

Everything is computed from what a root could see. Work is the parts *known* to be
finished; a late worker may have done more. What waiting for all workers would have
taken is never observed when late workers are not waited for: it is estimated, by
`codedgrad.learning.waiting`, for the progress bar, the report of a step, the page and
the commands alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    WorkerFreed,
    WorkersJoined,
    WorkersLost,
    is_question,
)
from codedgrad.core.history import Observation
from codedgrad.errors import BrokenPlan, InvalidTrace
from codedgrad.learning.savings import Savings, Waiting, WorkerLoad
from codedgrad.learning.waiting import WaitingForAll
from codedgrad.trace.format import Entry, Header
from codedgrad.trace.read import Trace

_REMEMBERED = 64  # steps for which late messages are still told to the record


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a trace.

    Attributes:
        step: Its number.
        seconds: From start to end.
        combined: Whether it gave a sum.
        residual: Of the sum; the number of parts where there is none.
        heard: Workers with a message heard, ascending.
        late: Workers that were asked for a message which was not heard in time, or that
            were given parts of a fixed code and never asked for them, as when workers
            below them in a tree were late; and, where the plan moves parts, workers
            that finished less than an equal share because they are slower than the
            others. Ascending.
        messages: Messages heard.
        work: Parts known to be finished, copies counted.
        wasted: Of those, copies that the sum did not need.
        busy: Share of the workers' time in the step spent on it, as far as seen.
        waiting: What waiting for all would have taken, as far as was known at the end
            of the step; of a whole trace, as far as is known by its end.
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
    header = trace.header
    return _go_through(header, trace.entries, History(header.workers))


def settled_steps(trace: Trace) -> Iterator[tuple[Record, Combine | GiveUp]]:
    """Return the steps in order, each when no late message can be told to it."""
    waiting: deque[tuple[Record, Combine | GiveUp]] = deque()
    for ended in ended_steps(trace):
        waiting.append(ended)
        if len(waiting) > _REMEMBERED:
            yield waiting.popleft()
    yield from waiting


def waiting_of(header: Header) -> WaitingForAll:
    """Return what estimates waiting for all in every step of a trace."""
    load = header.parts / header.workers
    return WaitingForAll(header.workers, load, keep_all=True, cores=header.cores)


@dataclass(frozen=True, slots=True)
class StepReports:
    """What there is to say about the whole steps of a trace.

    Attributes:
        steps: A report of each.
        loads: For each, what an equal share of the parts would have taken each worker;
            None for a worker that was away. Empty for a step that gave no sum.
        savings: What steps took, and what waiting for all would have taken, on average.
    """

    steps: tuple[StepReport, ...]
    loads: tuple[tuple[WorkerLoad | None, ...], ...]
    savings: Savings


def reports(trace: Trace) -> StepReports:
    """Report every whole step of a trace."""
    header = trace.header
    reporter = Reporter(header.workers, header.parts, header.cores, keep_all=True)
    made = [reporter(record, end) for record, end in ended_steps(trace)]
    waiting = reporter.waiting
    newest, loads = waiting.estimates(), dict(waiting.loads())
    return StepReports(
        tuple(replace(r, waiting=newest.get(r.step, r.waiting)) for r in made),
        tuple(tuple(loads.get(r.step, ())) for r in made),
        waiting.means(),
    )


class Reporter:
    """Reports steps one by one as they end, as `reports` does for a whole trace.

    Args:
        workers: How many.
        parts: How many.
        cores: That the workers share; 0: not known.
        keep_all: Whether estimates of all steps are wanted, not of recent ones only.

    Attributes:
        waiting: What waiting for all would have taken, over all steps so far.

    Example:
        >>> from codedgrad.core import Coordinator
        >>> from codedgrad.schemes import uncoded
        >>> coordinator, report = Coordinator(uncoded(workers=1)), Reporter(1, 1)
        >>> _ = coordinator.handle(StepStarted(0, at=0.0))
        >>> [end] = coordinator.handle(MessageArrived(0, 0, 1, ((0, 1),), at=2.5))
        >>> report(coordinator.history.records[-1], end).seconds
        2.5
    """

    def __init__(
        self, workers: int, parts: int, cores: int = 0, keep_all: bool = False
    ) -> None:
        self._load = parts / workers
        self.waiting = WaitingForAll(workers, self._load, keep_all, cores)

    def __call__(self, record: Record, end: Combine | GiveUp) -> StepReport:
        """Report the step that has just ended; before the next one starts."""
        waiting = self.waiting.add(record)
        state, workers = record.state, len(record.state.alive)
        seen = [record.observe(worker) for worker in range(workers)]
        heard = {state.messages[id_].worker for id_ in state.heard}
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
            late=self._late(record, heard, seen),
            messages=len(state.heard),
            work=work,
            wasted=work - len(used),
            busy=busy / (workers * record.seconds) if record.seconds > 0 else 0.0,
            waiting=waiting,
        )

    def _late(
        self, record: Record, heard: set[int], seen: Sequence[Observation | None]
    ) -> tuple[int, ...]:
        """Return the workers that were late."""
        state = record.state
        late = {m.worker for m in state.messages.values() if m.arrived is None}
        fixed = {k.segment.worker for k in state.segments.values() if k.whole}
        late = (late | fixed) - heard
        if fixed:
            return tuple(sorted(late))
        slow = {worker for worker, _ in self.waiting.slow(steps=1)}
        for worker in slow:
            told = seen[worker]
            done = 0 if told is None else told.done
            if record.alive[worker] and done <= self._load - 1:
                late.add(worker)  # other workers did at least one of its parts
        return tuple(sorted(late))


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


def _go_through(
    header: Header,
    entries: Iterable[Entry],
    history: History,
    scheme: Scheme | None = None,
    patience: Patience | None = None,
) -> Iterator[tuple[Record, Combine | GiveUp]]:
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
            case WorkersLost(workers) | WorkersJoined(workers):
                for worker in workers:
                    if 0 <= worker < len(alive):
                        if state is not None and isinstance(event, WorkersLost):
                            state.forget(worker, "lost")
                        alive[worker] = isinstance(event, WorkersJoined)
            case MessagesCompared():
                history.compared(event)
            case WorkerFreed():
                if state is not None and event.step == state.step:
                    state.note_freed(event)
                else:
                    history.freed(event)
            case Progressed() | MessageArrived() | MessageFailed():
                if state is not None and event.step == state.step:
                    if opinions is not None and opinions.concern(event):
                        opinions.accept(event)
                    else:
                        state.accept(event)
                elif isinstance(event, MessageArrived):
                    history.arrived_late(event)
                elif isinstance(event, Progressed):
                    history.progressed_late(event)
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
) -> tuple[Record, Combine | GiveUp]:
    for message, _ in end.weights if isinstance(end, Combine) else ():
        if message in state.doubted:
            state.hand_over(message)  # the sum says so
    failed = isinstance(end, GiveUp) and end.reason not in ("cancelled", "superseded")
    history.ended(state, isinstance(end, Combine), failed)
    return history.records[-1], end
