"""The drive loop: events from an engine to the coordinator, commands back.

Nothing here decides. It reads the clock and sets the one timer there is. A due timer is
shown to the coordinator when no report is waiting any more: until then the time stands
still, and reports are stamped with the time of the timer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.decoders import EXACT
from codedgrad.core import (
    Combine,
    Command,
    Coordinator,
    Event,
    GiveUp,
    History,
    MessagesCompared,
    Patience,
    Scheme,
    State,
    StepCancelled,
    StepStarted,
    TimerFired,
    WakeAt,
    WorkersJoined,
)
from codedgrad.engines.engine import Engine, KnowsCores
from codedgrad.engines.host.sum_checks import entries, is_off, token_of_step
from codedgrad.errors import InvalidScheme, StepGivenUp, WrongSum
from codedgrad.jobs import VectorLayout
from codedgrad.learning.waiting import WaitingForAll
from codedgrad.trace import Header, Reporter, StepReport

_log = logging.getLogger("codedgrad")
_NOTICE = 5.0  # seconds that a step is open, at least, before late workers are named
_LONGER = 3.0  # times the longest recent step: the same
_AGAIN = 2.0  # times the seconds so far: until they are named again
# Seconds between two calls of `tend`, by which a waiting root hears of what no signal
# handler tells it: preemption notices, and signals where it is not the main thread.
_TEND = 1.0
_MISCOUNT = 1e4  # roundings of a decoded count: codes amplify them 500 times at most
_READING = 0.5  # seconds for which reports may hold up a timer that is due

Watch: TypeAlias = Callable[[Event, list[Command]], None]
"""Is told every event and the commands it led to, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """What a step gave.

    Attributes:
        step: Its number.
        vector: Decoded sums of gradients, losses, samples and metrics, (message,);
            overwritten by the next step.
        layout: Where in `vector` is what.
        finite: Whether all of it is. If not, the model has diverged, or a value
            overflowed; a worker that sent what others contradict is in `contradicted`.
        contradicted: Workers whose messages were not finite while another's, of the
            same parts, were.
        decoding: Seconds spent on adding up, and on comparing where the plan asked for
            it, which `report.seconds` does not count.
        report: How it went.
    """

    step: int
    vector: NDArray[Any]
    layout: VectorLayout
    finite: bool
    contradicted: tuple[int, ...]
    decoding: float
    report: StepReport

    @property
    def loss(self) -> float:
        """Mean loss over the samples, at the parameters of the step."""
        count = self.count
        return float(self.vector[self.layout.gradient]) / count if count else math.nan

    @property
    def count(self) -> float:
        """Samples in the sum."""
        return float(self.vector[self.layout.gradient + 1])

    @property
    def gradient(self) -> NDArray[Any]:
        """Mean gradient over the samples, (gradient,)."""
        mean: NDArray[Any] = self.vector[: self.layout.gradient] / (self.count or 1.0)
        return mean


class Driver:
    """Runs steps on an engine that has been started.

    Args:
        engine: What carries out.
        scheme: What decides.
        layout: Of the job that the engine runs.
        patience: When to give a step up.
        watch: Told every event and the commands it led to.
        history: What was seen of past steps, where a run goes on with new workers.
        earlier: Seconds that the run has taken already; time goes on from there.
        tend: Called about once a second while a step waits, between two events.

    Attributes:
        coordinator: Whose `history` and `ignored` say more.
    """

    def __init__(
        self,
        engine: Engine,
        scheme: Scheme,
        layout: VectorLayout,
        *,
        patience: Patience | None = None,
        watch: Watch | None = None,
        history: History | None = None,
        earlier: float = 0.0,
        tend: Callable[[], None] | None = None,
    ) -> None:
        refuse_oracle(scheme)
        self.coordinator = Coordinator(scheme, engine.capabilities, patience, history)
        self._engine = engine
        self._layout = layout
        self._watch = watch
        self._tend = tend
        self._report = Reporter(scheme.workers, scheme.parts, _cores(engine))
        self._next = 0
        self._until = math.inf
        self._fed = -math.inf  # the time of the last event
        self._end: Combine | GiveUp | None = None
        self._earlier = earlier
        self._is_resumed = earlier > 0.0

    def now(self) -> float:
        """Return the seconds since the run began, earlier lives of it included."""
        return self._earlier + self._engine.now()

    @property
    def waiting(self) -> WaitingForAll:
        """What waiting for all would have taken, in the steps of this driver."""
        return self._report.waiting

    @property
    def ended(self) -> float:
        """When the last step ended, on the clock of `now`."""
        return self.coordinator.history.records[-1].state.now

    def step(
        self,
        parameters: NDArray[Any],
        number: int | None = None,
        *,
        changed: Sequence[tuple[int, int]] | None = None,
        samples: float | None = None,
    ) -> Sum:
        """Get the sum of the next step at these parameters.

        Args:
            parameters: Of the step, (layout.parameters,).
            number: Of the step, above those before; the next one if None.
            changed: Stretches of the parameters that may differ from those of the step
                before; None: all may.
            samples: How many all parts of the step have together; None: not known.

        Raises:
            StepGivenUp: If it cannot be had; the next step may be tried all the same.
            WrongSum: If the sum is not what its messages add up to.
        """
        engine, step = self._engine, self._next if number is None else number
        self._abandon()
        self._next = step + 1
        engine.publish(step, parameters, changed)
        if self._is_resumed:
            self._welcome()
        while (event := self._next_event(0.0)) is not None:  # of the step before
            self._feed(event)
        self._end = None
        self._feed(StepStarted(step, self.now()))
        end = self._until_end(step)
        engine.finish(step)
        history = self.coordinator.history
        report = self._report(history.records[-1], end)
        if isinstance(end, GiveUp):
            raise StepGivenUp(step, end.reason)
        begun = engine.now()
        vector = engine.combine(end.weights)
        self._compare(end)
        decoding = engine.now() - begun
        contradicted = history.records[-1].contradicted
        for worker in contradicted:
            times = history.contradicted[worker]
            _log.warning(
                "step %d: worker %d sent a value that is not finite, and others "
                "contradict it (%d times so far)", step, worker, times,
            )  # fmt: skip
        finite = self._check(end, vector, samples)
        sums = vector[: self._layout.message]
        return Sum(step, sums, self._layout, finite, contradicted, decoding, report)

    def _check(self, end: Combine, vector: NDArray[Any], samples: float | None) -> bool:
        """Return whether a sum is finite.

        Raises:
            WrongSum: If it is, and cannot be the sum of its messages.
        """
        layout = self._layout
        total = entries(vector, layout.gradient)
        scalars = vector[layout.gradient : layout.message]
        if not math.isfinite(total) or not np.isfinite(scalars).all():
            # the entries may also have overflowed in their sum, which says nothing
            return bool(np.isfinite(vector[: layout.message]).all())
        known = self.coordinator.history.records[-1].state.messages
        messages = [(message, known[message].worker) for message, _ in end.weights]
        added = len(messages)
        if is_off(vector, -2, total, added):
            problem = f"its entries add up to {total:.9g}, not {vector[-2]:.9g}"
            raise WrongSum(end.step, messages, problem)
        if end.residual > EXACT:
            return True
        parts = self.coordinator.scheme.parts
        token = token_of_step(end.step, parts)
        if is_off(vector, -4, token, added + parts):
            problem = "it does not hold every part of this step once"
            raise WrongSum(end.step, messages, problem)
        counted = float(scalars[layout.samples])
        tolerance = _MISCOUNT * float(np.finfo(vector.dtype).eps)
        wanted = counted if samples is None else samples
        if not math.isclose(counted, wanted, rel_tol=tolerance):
            problem = f"it counts {counted:.9g} samples, the step has {wanted:.9g}"
            raise WrongSum(end.step, messages, problem)
        return True

    def _compare(self, end: Combine) -> None:
        """Report how alike the messages of the sum are, if the plan has asked."""
        if not end.compared:
            return
        products = self._engine.compare(end.compared)
        if products and all(math.isfinite(product) for *_, product in products):
            self._feed(MessagesCompared(end.step, products, self.now()))

    def _welcome(self) -> None:
        """Say that workers which an earlier life had lost are there again."""
        self._is_resumed = False
        alive = self.coordinator.alive
        back = tuple(worker for worker in range(len(alive)) if not alive[worker])
        if back:
            self._feed(WorkersJoined(back, self.now()))

    def _next_event(self, timeout: float) -> Event | None:
        event = self._engine.next_event(timeout)
        if event is None or not self._earlier:
            return event
        later: Event = msgspec.structs.replace(event, at=event.at + self._earlier)
        return later

    def _abandon(self) -> None:
        """Close a step that an exception has left open."""
        state = self.coordinator.state
        if state is not None:
            self._feed(StepCancelled(state.step, self.now()))
            self._engine.finish(state.step)

    def header(self, seed: int | None = None, note: str = "") -> Header:
        """Return the header of this run's trace; with it a replay decides the same."""
        found = header_of(
            self._engine, self.coordinator.scheme, self.coordinator.patience
        )
        return msgspec.structs.replace(found, seed=seed, note=note)

    def _until_end(self, step: int) -> Combine | GiveUp:
        started = self.now()
        notice = started + self._notice()
        tend_at = math.inf if self._tend is None else started + _TEND
        reading = math.inf  # until when reports may hold up the timer
        while self._end is None:
            now = self.now()
            if self._tend is not None and now >= tend_at:
                self._tend()
                tend_at = self.now() + _TEND
                continue  # it may have taken long
            if now >= notice:
                notice = started + _AGAIN * (now - started)
                self._name_late_workers(now - started)
            is_due = now >= self._until
            reading = min(reading, now + _READING) if is_due else math.inf
            event = None
            if now <= reading:
                until = min(self._until, notice, tend_at)
                event = self._next_event(until - now)
            if event is not None:
                self._feed(self._in_time(event) if is_due else event)
            elif is_due:  # and nothing was waiting after it was
                reading = math.inf
                self._feed(TimerFired(self.now()))
        return self._end

    def _in_time(self, event: Event) -> Event:
        """Stamp an event that was waiting when the timer came due with that time.

        Stamped later, the first of several would bring the timer along, and the plan
        would give up a step although all its answers are there.
        """
        at = max(self._fed, min(event.at, self._until))
        stamped: Event = msgspec.structs.replace(event, at=at)
        return stamped

    def _feed(self, event: Event) -> None:
        self._fed = event.at
        commands = self.coordinator.handle(event)
        if self._watch is not None:
            self._watch(event, commands)
        for command in commands:
            match command:
                case WakeAt(_, at):
                    self._until = at
                case Combine() | GiveUp():
                    self._until = math.inf
                    self._end = command
                case _:
                    self._engine.give(command)

    def _notice(self) -> float:
        recent = self.coordinator.history.durations
        return max(_NOTICE, _LONGER * max(recent, default=0.0))

    def _name_late_workers(self, seconds: float) -> None:
        """Warn that a step takes long, long before it is given up."""
        state = self.coordinator.state
        if state is None:
            return
        recent = max(self.coordinator.history.durations, default=0.0)
        usual = f", {seconds / recent:.0f} times a recent step" if recent else ""
        _log.warning(
            "step %d has been waiting%s for %.3g s%s; it is given up after %s",
            state.step, _for_whom(state), seconds, usual, state.deadline,
        )  # fmt: skip


def header_of(engine: Engine, scheme: Scheme, patience: Patience) -> Header:
    """Return the header of the trace of a run."""
    return Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        driver=engine.name,
        capabilities=engine.capabilities,
        patience=patience,
        cores=_cores(engine),
    )


def _cores(engine: Engine) -> int:
    """Return the cores that all workers share; 0 if the engine does not say."""
    return engine.cores if isinstance(engine, KnowsCores) else 0


def refuse_oracle(scheme: Scheme) -> None:
    """Say at once, and not in the first step, that nobody tells an oracle the truth.

    Raises:
        InvalidScheme: If it is one that nobody has told.
    """
    if scheme.traits.tell is not None:
        raise InvalidScheme(
            f"{scheme.name}: an oracle knows what only a simulation can tell it",
            "state=hidden, which learns from the times of past steps",
        )


def _for_whom(state: State) -> str:
    """Name the workers that are lost, and those that owe something they were asked for.

    A worker that was asked for parts and not yet for their sum is late as well.
    """
    lost = [worker for worker, alive in enumerate(state.alive) if not alive]
    late = [
        worker
        for worker in range(len(state.alive))
        if any(message.finite for message in state.owed(worker))
        or any(not known.closed and not known.gone for known in state.given(worker))
    ]
    said = [
        f" for {word} workers {who}"
        for word, who in (("lost", lost), ("late", late))
        if who
    ]
    return " and".join(said)
