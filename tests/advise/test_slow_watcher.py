"""Who is slow while it runs."""

import numpy as np
import pytest

from codedgrad.advise import Kind, Verdict, Watcher
from codedgrad.advise.slow.stopwatch import StopwatchRow
from codedgrad.core import Coordinator, MessageArrived, StepStarted
from codedgrad.schemes import uncoded


def row(
    step: int, seconds: np.ndarray, message: np.ndarray | None = None
) -> StopwatchRow:
    workers = len(seconds)
    nobody = np.zeros(workers, dtype=bool)
    unseen = np.full(workers, np.nan)
    return StopwatchRow(
        step=step,
        part=seconds,
        part_is_bound=nobody,
        message=unseen if message is None else message,
        message_is_bound=nobody,
        work=1.0,
        alive=~nobody,
    )


def watched(seconds: np.ndarray) -> list[list[Verdict]]:
    watcher = Watcher(seconds.shape[1])
    return [watcher.update(row(step, each)) for step, each in enumerate(seconds)]


def jittered(steps: int, workers: int = 8) -> np.ndarray:
    return np.random.default_rng(0).uniform(1.0, 1.1, (steps, workers))


def test_nothing_is_said_while_nobody_is_slow() -> None:
    assert not any(watched(jittered(100)))


def test_a_worker_that_turns_slow_is_told_within_three_steps_and_counted_on() -> None:
    seconds = jittered(150)
    seconds[30:, 2] *= 10
    told = watched(seconds)
    assert not any(told[:30])
    for step in range(32, 150):
        [verdict] = told[step]
        assert (verdict.worker, verdict.since, verdict.lasts) == (2, 30, step - 29)
        assert verdict.kind is Kind.TURNED
        assert verdict.factor == pytest.approx(10, rel=0.1)


def test_a_worker_that_was_slow_from_the_first_step_stays_always_slow() -> None:
    seconds = jittered(100)
    seconds[:, 5] *= 2
    told = watched(seconds)
    for step in range(10, 100):
        [verdict] = told[step]
        assert (verdict.kind, verdict.since) == (Kind.ALWAYS, 0)
        assert verdict.lasts == step + 1


def test_slow_since_the_second_step_is_never_called_always() -> None:
    seconds = jittered(100)
    seconds[1:, 5] *= 10
    for step, told in enumerate(watched(seconds)[6:], start=6):
        [verdict] = told
        assert (verdict.kind, verdict.since) == (Kind.TURNED, 1)
        assert verdict.lasts == step


def test_a_spell_that_is_over_is_not_told_any_more() -> None:
    seconds = jittered(60)
    seconds[20:30, 2] *= 10
    told = watched(seconds)
    assert [verdict.lasts for verdict in told[29]] == [10]
    assert not any(told[30:])


def test_the_worst_comes_first() -> None:
    seconds = jittered(30)
    seconds[:, 1] *= 2
    seconds[:, 6] *= 5
    assert [verdict.worker for verdict in watched(seconds)[-1]] == [6, 1]


def test_slow_messages_are_told_apart() -> None:
    watcher, found = Watcher(8), []
    for step, seconds in enumerate(jittered(20)):
        message = 0.2 * seconds
        message[3] *= 6
        found = watcher.update(row(step, seconds, message))
    assert [(each.worker, each.cause) for each in found] == [(3, "network")]


def test_it_is_shown_records_as_a_run_has_them() -> None:
    coordinator, watcher = Coordinator(uncoded(workers=4)), Watcher(4)
    found: list[Verdict] = []
    for step, seconds in enumerate(jittered(12, 4)):
        seconds[1] *= 3
        at = 10.0 * step
        coordinator.handle(StepStarted(step, at=at))
        for worker in np.argsort(seconds).tolist():
            cuts, heard = ((2 * worker, 1),), at + float(seconds[worker])
            coordinator.handle(
                MessageArrived(step, worker, 2 * worker + 1, cuts, at=heard)
            )
        found = watcher.update(coordinator.history.records[-1])
    assert [(each.worker, each.lasts) for each in found] == [(1, 12)]
