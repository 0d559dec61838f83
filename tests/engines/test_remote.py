"""Workers that are elsewhere, without a network: what Ray's and MPI's engines share."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Command, Event, MessageArrived, WorkerJoined, WorkerLost
from codedgrad.engines import Driver, train
from codedgrad.errors import EngineFailed, JobFailed
from codedgrad.jobs import Layout, NumpyJob, single_process
from codedgrad.schemes import (
    auto,
    coded_reduce,
    cyclic,
    fractional,
    uncoded,
)

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)
Looped = loopback.Looped


def gradient(x, part, step):  # type: ignore[no-untyped-def]
    return float(((x - part) ** 2).sum() / 2), 1.0, x - part


def alone(parts: int, steps: int):  # type: ignore[no-untyped-def]
    return single_process(gradient, np.zeros(50), parts, steps=steps).parameters


@pytest.mark.parametrize(
    "scheme",
    [uncoded(3), fractional(4, 1), auto(3), coded_reduce(6, 2, 1)],
    ids=lambda scheme: scheme.name,
)
def test_training_elsewhere_is_training(scheme) -> None:  # type: ignore[no-untyped-def]
    engine = Looped()
    run = train(gradient, np.zeros(50), scheme, steps=6, engine=engine)
    np.testing.assert_allclose(
        run.parameters, alone(scheme.parts, 6), rtol=1e-12, atol=1e-13
    )


def test_in_a_tree_the_root_gets_a_message_of_each_of_its_children_only() -> None:
    engine = Looped()
    scheme = coded_reduce(6, 2, 0)  # two children of the root, two of each of them
    train(gradient, np.zeros(50), scheme, steps=5, engine=engine)
    assert engine.fetched == 5 * 2
    assert engine.carried == 5 * 4


def test_a_sum_that_nobody_needs_is_not_fetched() -> None:
    slow = {3: 0.3}  # seconds that its sums need to come
    engine = Looped(slow)
    scheme = cyclic(4, 1, rule="threshold")
    train(gradient, np.zeros(50), scheme, steps=6, engine=engine)
    assert engine.fetched == 6 * 3
    assert len(engine.transport.fetches) <= 6 * 4


class Steps:
    """A driver of an engine whose hosts can be lost between two steps."""

    def __init__(self, scheme, engine) -> None:  # type: ignore[no-untyped-def]
        self.events: list[Event] = []
        self.engine = engine
        job = NumpyJob(gradient, 50, "float64")
        self.driver = Driver(engine, scheme, job.layout, watch=self.watch)
        engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts)
        self.parts = scheme.parts

    def watch(self, event: Event, commands: list[Command]) -> None:
        self.events.append(event)

    def step(self) -> tuple[int, ...]:
        sum_ = self.driver.step(np.ones(50))
        parts = np.arange(self.parts)
        np.testing.assert_allclose(sum_.vector[:50], (1.0 - parts).sum(), atol=1e-12)
        return sum_.report.heard


def test_a_host_that_is_lost_is_done_without_and_used_when_it_is_back() -> None:
    engine = Looped()
    steps = Steps(fractional(4, 1), engine)
    try:
        steps.step()
        engine.transport.lose(2)
        for _ in range(3):
            assert 2 not in steps.step()
        assert [e for e in steps.events if isinstance(e, WorkerLost)]
        engine.transport.begin(2)
        while not any(isinstance(event, WorkerJoined) for event in steps.events):
            steps.step()
        assert engine.lives == (1, 1, 2, 1)
        for _ in range(200):
            if 2 in steps.step():
                break
        else:
            pytest.fail("worker 2 is never heard again")
    finally:
        engine.close()


def test_a_host_that_is_lost_while_its_sum_is_on_its_way_is_lost_with_it() -> None:
    engine = Looped({1: 0.2})
    steps = Steps(uncoded(3), engine)
    try:
        lost = False

        def watch(event: Event, commands: list[Command]) -> None:
            nonlocal lost
            arrived = isinstance(event, MessageArrived)
            if arrived and event.worker == 0 and not lost and engine.transport._later:
                lost = True
                engine.transport.lose(1)
                engine.transport.begin(1)

        steps.driver._watch = watch
        for _ in range(20):
            steps.step()
            if lost:
                break
        assert lost
        assert engine.lives[1] == 2
        steps.step()
    finally:
        engine.close()


def test_a_host_that_is_lost_at_the_start_is_an_error_that_says_so() -> None:
    engine = Looped()
    job = NumpyJob(gradient, 50, "float64")
    begin = engine.transport.begin

    def begin_but_one(number: int) -> None:
        begin(number)
        if number == 1:
            engine.transport.lose(1)

    engine.transport.begin = begin_but_one
    with pytest.raises(EngineFailed, match="worker 1 was lost while it was set up"):
        engine.start(lambda: job, job.layout, 2)
    assert not engine._is_open


def test_a_job_that_cannot_be_made_elsewhere_is_told_with_its_traceback() -> None:
    def broken():  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("of all things")

    engine = Looped()
    with pytest.raises(JobFailed, match="of all things"):
        engine.start(broken, Layout(parameters=2, gradient=2), 2)
    assert not engine._is_open


def test_who_is_to_be_asked_next_is_told_so_once() -> None:
    engine = Looped(dict.fromkeys(range(12), 0.02))
    run = train(gradient, np.zeros(50), uncoded(12), steps=2, engine=engine)
    alerts = engine.transport.alerts
    assert len(run.steps) == 2
    assert 0 < len(alerts) <= 2 * 12
