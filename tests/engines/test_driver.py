"""The drive loop: what is waiting is read before a timer that is due is shown."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Event,
    GiveUp,
    MessageArrived,
    Order,
    Patience,
    StepStarted,
    TimerFired,
)
from codedgrad.engines import Driver, Replayed
from codedgrad.engines.host.sum_checks import token_of_step
from codedgrad.errors import StepGivenUp
from codedgrad.jobs import NumpyJob, VectorLayout
from codedgrad.schemes import uncoded
from codedgrad.testing import Everything
from codedgrad.trace import Entry, Header, Trace, replay

LAYOUT = VectorLayout(parameters=1, gradient=1)
SECONDS = 10.0  # after which a step is given up
READ = 0.01  # seconds for a report to be read


class Late:
    """An engine whose root is away: in its own time, which a test moves.

    Args:
        answers: When each worker answers, seconds; inf: never.
        away: From when to when the root is not there.
        noise: How often a report that says nothing new is waiting.
    """

    name = "late"
    capabilities = Capabilities()

    def __init__(
        self, answers: Sequence[float], away: tuple[float, float], noise: int = 0
    ) -> None:
        self.time = 0.0
        self._answers, self._away, self._noise = answers, away, noise
        self._waiting: list[tuple[float, Event]] = []

    def start(self, *_: Any, **__: Any) -> None: ...

    def publish(self, step: int, parameters: Any, changed: Any = None) -> None:
        self._step = step

    def give(self, order: Order) -> None:
        assert isinstance(order, Assign)
        id_, worker, parts = order.segment.id, order.segment.worker, order.segment.parts
        assert order.message is not None
        event = MessageArrived(
            order.step, worker, order.message, ((id_, len(parts)),), 0.0
        )
        self._waiting.append((self._answers[worker], event))
        self._waiting.sort(key=lambda pair: pair[0])

    def finish(self, step: int) -> None:
        self._waiting.clear()

    def combine(self, weights: Sequence[tuple[int, float]]) -> Any:
        row = np.zeros(LAYOUT.row)
        row[-4] = token_of_step(self._step, 3)  # as if all parts were there
        return row

    def compare(self, messages: Sequence[int]) -> Any: ...

    def close(self) -> None: ...

    def now(self) -> float:
        return self.time

    def _pass(self, until: float) -> None:
        low, high = self._away
        self.time = high if low <= until < high else max(self.time, until)

    def next_event(self, timeout: float) -> Event | None:
        until = self.time + max(timeout, 0.0)
        at = self._waiting[0][0] if self._waiting else np.inf
        if at <= until:
            self._pass(at)
            if timeout > 0 and self.time > until:
                return None
            self.time += READ
            _, event = self._waiting.pop(0)
        elif self._noise and self.time > SECONDS:
            self._noise -= 1
            self.time += READ
            event = MessageArrived(0, 0, 99, (), 0.0)
        else:
            self._pass(until)
            return None
        stamped: Event = structs.replace(event, at=self.time)
        return stamped


def run(engine: Late) -> list[Entry]:
    entries: list[Entry] = []

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))

    patience = Patience(least=SECONDS, first=SECONDS)
    driver = Driver(engine, uncoded(3), LAYOUT, patience=patience, watch=watch)
    with suppress(StepGivenUp):
        driver.step(np.zeros(1))
    header = driver.header()
    assert replay(Trace(header, tuple(entries)), uncoded(3)) is None
    return entries


@pytest.mark.parametrize("away", [(0.5, 40.0), (1.5, 40.0), (9.99, 12.0)])
def test_answers_that_wait_when_the_timer_is_due_come_before_it(
    away: tuple[float, float],
) -> None:
    entries = run(Late((1.0, 2.0, 9.995), away))
    assert isinstance(entries[-1].commands[-1], Combine)
    assert max(entry.event.at for entry in entries) <= SECONDS
    assert not any(isinstance(entry.event, TimerFired) for entry in entries)


def test_the_timer_is_shown_when_nothing_is_waiting_any_more() -> None:
    entries = run(Late((1.0, 2.0, np.inf), (0.5, 40.0)))
    started, *heard, timer = entries
    assert isinstance(started.event, StepStarted)
    assert [entry.event.worker for entry in heard] == [0, 1]  # type: ignore[union-attr]
    assert [entry.event.at for entry in heard] == [SECONDS] * 2
    assert isinstance(timer.event, TimerFired)
    assert timer.event.at >= 40.0
    assert isinstance(timer.commands[-1], GiveUp)


def test_reports_that_never_end_do_not_hold_up_a_timer_for_ever() -> None:
    entries = run(Late((1.0, 2.0, np.inf), (0.5, 40.0), noise=1000))
    timer = entries[-1]
    assert isinstance(timer.event, TimerFired)
    assert 40.0 + 0.5 <= timer.event.at <= 40.0 + 0.5 + 2 * READ
    assert isinstance(timer.commands[-1], GiveUp)


def test_what_was_read_before_a_timer_is_read_before_it_once_more() -> None:
    """A recorded run has the same sums and the same end on the engine `replayed`."""
    entries = tuple(run(Late((1.0, 2.0, np.inf), (0.5, 40.0))))
    header = Header(
        scheme="uncoded", workers=3, parts=3, patience=Patience(SECONDS, 10.0, SECONDS)
    )
    engine = Replayed(Trace(header, entries))
    job = NumpyJob(lambda x, part, step: (1.0, 1.0, x), 1)
    again: list[Entry] = []
    driver = Driver(
        engine,
        uncoded(3),
        job.layout,
        patience=header.patience,
        watch=lambda event, commands: again.append(Entry(event, tuple(commands))),
    )
    engine.start(lambda: job, job.layout, 3, parts=3)
    with pytest.raises(StepGivenUp):
        driver.step(np.zeros(1))
    assert tuple(again) == entries


# -- late workers are named ------------------------------------------------------------


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text.split(";")[0] for text in caplog.messages if "waiting" in text]


def test_late_workers_are_named_again_after_twice_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Late((1.0, 70.0, np.inf), (-1.0, -1.0))
    driver = Driver(engine, uncoded(3), LAYOUT, patience=Patience(200.0, first=200.0))
    with pytest.raises(StepGivenUp):
        driver.step(np.zeros(1))
    both = "step 0 has been waiting for late workers [1, 2] for"
    one = "step 0 has been waiting for late workers [2] for"
    assert named(caplog) == [
        f"{both} 5 s", f"{both} 10 s", f"{both} 20 s", f"{both} 40 s",
        f"{one} 80 s", f"{one} 160 s",
    ]  # fmt: skip


def test_with_steps_to_go_by_a_step_of_a_few_times_as_long_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Late([4.0, 4.0, 4.0], (-1.0, -1.0))
    driver = Driver(engine, uncoded(3), LAYOUT)
    driver.step(np.zeros(1))
    assert named(caplog) == []
    usual, begun = driver.coordinator.history.durations[-1], engine.time
    engine._answers = [begun + 1.0, begun + 2.0, begun + 3.0 * usual + 1.0]
    driver.step(np.zeros(1))
    late = "late workers [2] for 12.1 s, 3 times a recent step"
    assert named(caplog) == [f"step 1 has been waiting for {late}"]
    assert "given up after 1800 s (the least allowed" in caplog.text


def test_a_worker_that_is_asked_for_parts_and_not_for_a_sum_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Silent(Late):
        def give(self, order: Order) -> None: ...

    engine = Silent([], (-1.0, -1.0))
    patience = Patience(6.0, first=6.0)
    driver = Driver(engine, Everything(3, each=2), LAYOUT, patience=patience)
    with pytest.raises(StepGivenUp):
        driver.step(np.zeros(1))
    assert named(caplog) == [
        "step 0 has been waiting for late workers [0, 1, 2] for 5 s"
    ]
