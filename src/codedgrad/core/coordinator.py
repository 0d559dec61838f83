"""The one that decides: events in, commands out.

The rules:

1. A step is open from its `StepStarted` to its one end, `Combine` or `GiveUp`. A later
   step supersedes an open one; an earlier or repeated one is ignored.
2. Every event first changes the state, then the plan of the step is asked once. What
   changes nothing (repeated, unknown, late, of a lost worker) is not shown to the plan.
   Workers that are lost or return together are one event: the state has all of them
   before the plan is asked, and the plan sees only the workers that changed.
3. While a step is open a timer is set. It is shown to the plan only when it is due; an
   event stamped after a timer that has not come yet brings it along.
4. A message that is not finite is doubted, and a second opinion asked for, by the rules
   in `second_opinion`. The plan is shown it when that is settled: as arrived if it is
   handed over, as failed if it is contradicted. What an event settles is shown after
   it. The plan is not shown what is only about opinions.
5. What compares the messages of a sum is noted in the history, once, as long as no
   later step has started; and so is when a worker finished a part that it was no longer
   asked for. No plan is shown either.
6. Nothing here reads a clock, draws a number or sees a gradient: the same events give
   the same commands, on any machine.

```text
              StepStarted                       Finish -> Combine
    closed ---------------> open --------------------------------------> closed
                            | ^                 Fail, cancelled,
                 any event  | | Wait, Ask       superseded -> GiveUp
                            +-+
```
"""

from __future__ import annotations

import math
from collections import Counter

import msgspec

from codedgrad.core.commands import ROOT, Combine, Command, Drop, GiveUp, WakeAt
from codedgrad.core.events import (
    Event,
    MessageArrived,
    MessageFailed,
    MessagesCompared,
    Progressed,
    StepCancelled,
    StepStarted,
    TimerFired,
    WorkerFreed,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.core.history import History
from codedgrad.core.patience import Patience
from codedgrad.core.plan import (
    Ask,
    Capabilities,
    Decision,
    Fail,
    Finish,
    Plan,
    Scheme,
    Wait,
)
from codedgrad.core.second_opinion import Opinions, Verdict
from codedgrad.core.state import State
from codedgrad.errors import BrokenPlan, InvalidScheme, ProtocolError


class Coordinator:
    """Turns events into commands for one training run.

    Args:
        scheme: How steps are planned and ended.
        capabilities: Of the engine.
        patience: When steps are given up.
        history: What was seen of past steps, where a run goes on.

    Attributes:
        scheme: How steps are planned and ended.
        patience: When steps are given up.
        history: What was seen of past steps.
        ignored: How many events changed nothing, by reason: `late` (of a step that is
            not open), `repeated`, `unknown`, `inconsistent`, `lost`, `early`.

    Example:
        >>> from codedgrad.core.events import MessageArrived, StepStarted
        >>> from codedgrad.schemes import fractional
        >>> coordinator = Coordinator(fractional(workers=2, tolerance=1))
        >>> for command in coordinator.handle(StepStarted(0, at=0.0)):
        ...     print(command)
        Assign(step=0, segment=Segment(id=0, worker=0, parts=(0, 1), \
coefficients=(1.0, 1.0)), message=1, whole=True)
        Assign(step=0, segment=Segment(id=2, worker=1, parts=(0, 1), \
coefficients=(1.0, 1.0)), message=3, whole=True)
        WakeAt(step=0, at=1800.0)
        >>> coordinator.handle(MessageArrived(0, 1, message=3, cuts=((2, 2),), at=1.5))
        [Combine(step=0, weights=((3, 1.0),), residual=0.0)]
    """

    def __init__(
        self,
        scheme: Scheme,
        capabilities: Capabilities | None = None,
        patience: Patience | None = None,
        history: History | None = None,
    ) -> None:
        _check_engine(scheme, capabilities or Capabilities())
        self.scheme = scheme
        self.history = History(scheme.workers) if history is None else history
        self.ignored: Counter[str] = Counter()
        self._capabilities = capabilities or Capabilities()
        self.patience = patience or Patience()
        self._placement = tuple(frozenset(parts) for parts in scheme.placement)
        self._alive = self.history.alive
        self._last = max((r.step for r in self.history.records), default=-1)
        self._now = -math.inf
        self._state: State | None = None
        self._plan: Plan | None = None
        self._opinions: Opinions | None = None  # from the first doubt of a step on
        self._until = math.inf

    @property
    def state(self) -> State | None:
        """The open step, if one is."""
        return self._state

    @property
    def alive(self) -> tuple[bool, ...]:
        """For every worker, whether it is there."""
        return tuple(self._alive)

    def handle(self, event: Event) -> list[Command]:
        """Return what to do about an event, in order.

        Raises:
            ProtocolError: If time runs backwards, a driver's mistake.
            BrokenPlan: If the plan's answer cannot be meant, a scheme's mistake.
        """
        if not event.at >= self._now:
            late = f"{event} comes before {self._now}"
            raise ProtocolError(f"{late}; drivers stamp events in order")
        self._now = event.at
        try:
            return self._decide(event)
        except Exception:  # a plan's mistake: its step is over, whatever comes next
            self._close()
            raise

    def _decide(self, event: Event) -> list[Command]:
        match event:
            case StepStarted(step):
                return self._start(step)
            case TimerFired():
                return self._timer(event)
            case WorkersLost() | WorkersJoined():
                return self._membership(event)
            case StepCancelled(step):
                if self._state is None or step != self._state.step:
                    return self._ignore("late")
                return self._end(GiveUp(step, "cancelled"))
            case MessagesCompared():
                refused = self.history.compared(event)
                return self._ignore(refused) if refused else []
            case WorkerFreed():
                if self._state is not None and event.step == self._state.step:
                    refused = self._state.note_freed(event)
                else:
                    refused = self.history.freed(event)
                return self._ignore(refused) if refused else []
            case Progressed() | MessageArrived() | MessageFailed():
                return self._report(event)

    def _start(self, step: int) -> list[Command]:
        if step <= self._last:
            return self._ignore("late")
        commands: list[Command] = []
        if self._state is not None:
            commands += self._end(GiveUp(self._state.step, "superseded"))
        self._last = step
        self.history.settle()
        state = State(
            step,
            self._now,
            self._placement,
            self.scheme.parts,
            self._alive,
            self.patience.deadline(self.history),
            self._capabilities,
        )
        plan = self.scheme.plan(step, self.history)
        self._state, self._plan = state, plan
        return commands + self._carry_out(state, plan.first(state))

    def _timer(self, event: TimerFired) -> list[Command]:
        if self._state is None:
            return self._ignore("late")
        if not self._now >= self._until:
            return self._ignore("early")
        return self._judge(self._state, event)

    def _membership(self, event: WorkersLost | WorkersJoined) -> list[Command]:
        known = [each for each in event.workers if 0 <= each < len(self._alive)]
        if not known:
            return self._ignore("unknown")
        joined = isinstance(event, WorkersJoined)
        changed = tuple(
            worker for worker in dict.fromkeys(known) if self._alive[worker] != joined
        )
        if not changed:
            return self._ignore("repeated")
        # All of them, before the plan is asked: otherwise it would give the parts of
        # one to another that is gone too.
        for worker in changed:
            self._alive[worker] = joined
        state = self._state
        if state is None:
            return []
        if not joined:
            state.now = self._now
            for worker in changed:
                state.forget(worker, "lost")
        if changed != event.workers:
            event = msgspec.structs.replace(event, workers=changed)
        return self._judge(state, event)

    def _report(
        self, event: Progressed | MessageArrived | MessageFailed
    ) -> list[Command]:
        state = self._state
        if state is None or event.step != state.step:
            if isinstance(event, MessageArrived):
                self.history.arrived_late(event)
            elif isinstance(event, Progressed):
                self.history.progressed_late(event)
            return self._ignore("late")
        state.now = self._now
        opinions = self._opinions
        if opinions is not None and opinions.concern(event):
            refused = opinions.accept(event)
        else:
            refused = state.accept(event)
        if refused:
            return self._ignore(refused)
        if state.doubted and opinions is None:
            self._opinions = Opinions(state)
        return self._judge(state, event)

    def _judge(self, state: State, event: Event) -> list[Command]:
        """Show the plan an event, and a timer that it has overtaken."""
        state.now = self._now
        if isinstance(event, TimerFired):
            self._until = math.inf
            return self._show(state, event)
        # Strictly before: at equal times messages come first, so a message that arrives
        # at its very deadline still counts.
        overtaken = self._until < self._now
        commands = self._show(state, event)
        if overtaken and self._state is state:
            self._until = math.inf
            commands += self._show(state, TimerFired(self._now))
        return commands

    def _show(self, state: State, event: Event) -> list[Command]:
        """Ask the plan about an event, and about every doubt that it settles."""
        assert self._plan is not None  # a step is open
        if self._opinions is None:
            return self._carry_out(state, self._plan.judge(state, event))
        opinions, plan, commands = self._opinions, self._plan, list[Command]()
        doubted = isinstance(event, MessageArrived) and not event.finite
        shown = [] if doubted or opinions.concern(event) else [event]
        settled: list[Verdict] = []
        while self._state is state:
            questions, verdicts = opinions.review()
            commands += questions
            settled += verdicts
            if not shown and not settled:
                break
            asked = shown.pop() if shown else settled.pop(0)
            answer = self._carry_out(state, plan.judge(state, asked))
            commands += answer
            dropped = {order.worker for order in answer if isinstance(order, Drop)}
            settled = [v for v in settled if v.worker not in dropped]
        return commands

    def _carry_out(self, state: State, decision: Decision) -> list[Command]:
        match decision:
            case Wait(until):
                return self._wake(state, until)
            case Ask(orders, until):
                for order in orders:
                    state.obey(order)
                return [*orders, *self._wake(state, until)]
            case Finish(weights, residual, compare):
                self._check_sum(state, decision)
                return self._end(Combine(state.step, weights, residual, compare))
            case Fail(reason):
                return self._end(GiveUp(state.step, reason), failed=True)

    def _wake(self, state: State, until: float) -> list[Command]:
        if until == self._until < math.inf:
            return []  # it is set; if it is due, it comes next
        if not self._now < until < math.inf:
            problem = f"waits until {until}, which is not after {self._now}, or never"
            raise BrokenPlan(self._plan, problem)
        self._until = until
        return [WakeAt(state.step, until)]

    def _check_sum(self, state: State, decision: Finish) -> None:
        if not 0 <= decision.residual < math.inf:
            raise BrokenPlan(decision, "has a residual that cannot be")
        if len({message for message, _ in decision.weights}) < len(decision.weights):
            raise BrokenPlan(decision, "weighs a message twice")
        for message, weight in decision.weights:
            known = state.messages.get(message)
            if known is None or known.arrived is None:
                raise BrokenPlan(decision, f"uses message {message}, which is not here")
            if known.to != ROOT:
                raise BrokenPlan(decision, f"uses message {message}, sent elsewhere")
            if not math.isfinite(weight):
                raise BrokenPlan(decision, "has a weight that is not finite")

    def _end(self, end: Combine | GiveUp, failed: bool = False) -> list[Command]:
        assert self._state is not None  # a step is open
        self._state.now = self._now
        combined = isinstance(end, Combine)
        self.history.ended(self._state, combined, failed)
        self._close()
        return [end]

    def _close(self) -> None:
        self._state = self._plan = self._opinions = None
        self._until = math.inf

    def _ignore(self, reason: str) -> list[Command]:
        self.ignored[reason] += 1
        return []


def _check_engine(scheme: Scheme, engine: Capabilities) -> None:
    """Refuse a scheme whose plans need more than the engine can do.

    Raises:
        InvalidScheme: If they do. Without the refusal every step would end by patience.
    """
    needs, problem = scheme.traits, ""
    if needs.needs_progress and not engine.progress:
        problem = "reports of progress, which this engine does not send"
    elif needs.needs_rows > engine.rows_per_worker:
        problem = f"workers that hold {needs.needs_rows} sums at once"
    if problem:
        raise InvalidScheme(
            f"{scheme.name} needs {problem}",
            "two_stage, or a fixed code such as fractional(tolerance=1)",
        )
