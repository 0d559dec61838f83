"""Workers that are elsewhere, without a network: what Ray's and MPI's engines share."""

import gc
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    ROOT,
    Assign,
    Command,
    Event,
    MessageArrived,
    Segment,
    StepStarted,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.engines import Driver, FaultPlan, train
from codedgrad.engines.remote.far_rows import FarRows
from codedgrad.engines.remote.port import Port
from codedgrad.errors import EngineFailed, JobFailed
from codedgrad.jobs import NumpyJob, VectorLayout, single_process
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


@pytest.mark.quick("uncoded-near", "fractional*-far", "auto-far", "coded_reduce*-near")
@pytest.mark.parametrize("near", [False, True], ids=["far", "near"])
@pytest.mark.parametrize(
    "scheme",
    [uncoded(3), fractional(4, 1), auto(3), coded_reduce(6, 2, 1)],
    ids=lambda scheme: scheme.name,
)
def test_training_elsewhere_is_training(scheme, near) -> None:  # type: ignore[no-untyped-def]
    engine = Looped(near=near)
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


# -- near workers ----------------------------------------------------------------------


def test_between_near_workers_and_the_root_nothing_is_sent() -> None:
    engine = Looped(near=True)
    train(gradient, np.zeros(50), uncoded(3), steps=5, engine=engine)
    assert engine.read == 5 * 3
    assert (engine.fetched, engine.transport.delivered) == (0, [])


def test_where_memory_cannot_be_reached_nobody_is_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("codedgrad.engines.host.nearby._host", lambda: None)
    engine = Looped(near=True)
    run = train(gradient, np.zeros(50), uncoded(2), steps=3, engine=engine)
    assert (engine.read, engine.fetched) == (0, 6)
    assert len(engine.transport.delivered) == 2 * 3
    np.testing.assert_array_equal(run.parameters, alone(2, 3))


@pytest.mark.long
def test_children_of_near_workers_send_to_them_as_others_do() -> None:
    engine = Looped(near=True)
    scheme = coded_reduce(6, 2, 0)  # two children of the root, two of each of them
    train(gradient, np.zeros(50), scheme, steps=5, engine=engine)
    assert (engine.read, engine.fetched, engine.carried) == (5 * 2, 0, 5 * 4)


def test_some_may_be_near_and_others_not() -> None:
    engine = Looped(near=True)
    engine.transport.far = {1}
    run = train(gradient, np.zeros(50), uncoded(3), steps=5, engine=engine)
    assert (engine.read, engine.fetched) == (5 * 2, 5)
    assert [agent for agent, _ in engine.transport.delivered] == [1] * 5
    np.testing.assert_array_equal(run.parameters, alone(3, 5))


def test_near_workers_are_let_in_as_a_link_grants_it() -> None:
    engine = Looped(near=True)
    scheme = uncoded(3)
    run = train(
        gradient, np.zeros(50), scheme, steps=5, engine=engine, uplink="round_robin"
    )
    assert (engine.read, engine.fetched) == (5 * 3, 0)
    np.testing.assert_array_equal(run.parameters, alone(3, 5))


@pytest.mark.long
def test_what_was_read_outlives_a_near_host_which_may_come_back_far() -> None:
    """Then it needs parameters that nobody else had to be sent in that step."""
    engine = Looped(near=True)
    faults = FaultPlan().stop(1, 2, 60.0)  # before it begins, so it sends nothing
    steps = Steps(uncoded(3), engine, faults)
    note = steps.watch
    lost = []

    def watch(event: Event, commands: list[Command]) -> None:
        note(event, commands)
        if isinstance(event, MessageArrived) and not lost and event.step == 2:
            lost.extend((event.worker, 1))  # the sum needs what the first has sent
            engine.transport.far.update(lost)
            for worker in lost:
                engine.transport.lose(worker)
                engine.transport.begin(worker)

    steps.driver._watch = watch
    try:
        for _ in range(5):
            steps.step()
        assert len(lost) == 2
        assert faults.all_fired
        assert [engine.lives[worker] for worker in lost] == [2, 2]
        assert len(engine.transport.delivered) == 1 + 2 * 2  # first late in step 2
        assert (engine.read, engine.fetched) == (2 * 3 + 2 + 2 * 1, 1 + 2 * 2)
    finally:
        engine.close()


@pytest.mark.quick("far")
@pytest.mark.parametrize("before", ["near", "far"])
def test_who_is_near_when_it_is_back_reads_the_parameters_of_the_step(
    before: str,
) -> None:
    """Though nobody was near when the step began."""
    engine = Looped(near=True)
    engine.transport.far = {0, 2} if before == "near" else {0, 1, 2}
    steps = Steps(uncoded(3), engine)
    back = []

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, StepStarted) and event.step == 1:
            engine.transport.far.discard(1)
            engine.transport.begin(1)
            back.append(1)

    steps.driver._watch = watch
    try:
        steps.step(1.0)
        engine.transport.lose(1)
        engine._poll(0.0)  # it is known to be gone before the step begins
        steps.step(2.0)
        assert back == [1]
        assert engine.read == 1 + (before == "near")
        steps.step(3.0)
    finally:
        engine.close()


@pytest.mark.parametrize("near", [False, True], ids=["far", "near"])
def test_a_message_of_a_worker_that_was_dropped_is_too_late(near: bool) -> None:
    engine = Looped(near=near)
    job = NumpyJob(gradient, 50, "float64")
    try:
        engine.start(lambda: job, job.layout, 1)
        engine.publish(0, np.ones(50))
        engine.give(Assign(0, Segment(0, 0, (3,), (1.0,)), 1))
        engine._rows.forget(0)  # as by an order that its message has overtaken
        while not any(isinstance(e, MessageArrived) for e in engine._pending):
            engine._poll(1.0)
        assert engine.lives == (1,)
        assert (engine.read, engine.fetched) == (0, 0)
    finally:
        engine.close()


@pytest.mark.long
def test_nothing_is_left_open_when_near_workers_are_gone() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        train(gradient, np.zeros(50), uncoded(2), steps=2, engine=Looped(near=True))
    gc.collect()  # the last ones to look at memory keep it
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_row_that_is_read_where_it_is_is_copied_before_it_is_given_out_again() -> (
    None
):
    rows = FarRows(VectorLayout(parameters=1, gradient=3), places=1, inbox=0)
    row = np.arange(9.0)
    rows.give(Segment(0, 1, (0,), (1.0,)), message=0)
    rows.arrived(0, (row,), lent=True)
    rows.sent(1, 0, ((0, 1),))
    again = rows.give(Segment(1, 1, (1,), (1.0,)))
    assert (rows.place(again), rows.rescued) == (0, 1)
    row[:] = -1.0  # what the worker does there next
    np.testing.assert_array_equal(rows.combine([(0, 2.0)])[:5], 2.0 * np.arange(5.0))


def test_all_messages_that_have_a_row_keep_it_when_it_is_given_out_again() -> None:
    rows = FarRows(VectorLayout(parameters=1, gradient=3), places=1, inbox=0)
    row = np.arange(9.0)
    rows.give(Segment(0, 0, (0,), (1.0,)), message=0)
    rows.expect(7, 0, (0,))
    for message in (0, 7):
        rows.arrived(message, (row,), lent=True)
        rows.sent(0, message, ((0, 1),))
    rows.give(Segment(1, 0, (1,), (1.0,)))
    row[:] = -1.0
    for message in (0, 7):
        np.testing.assert_array_equal(
            rows.combine([(message, 1.0)])[:5], np.arange(5.0)
        )


def test_a_row_that_another_message_will_have_is_not_given_out_again() -> None:
    rows = FarRows(VectorLayout(parameters=1, gradient=3), places=1, inbox=0)
    rows.give(Segment(0, 0, (0,), (1.0,)), message=0)
    rows.expect(7, 0, (0,))
    rows.arrived(0, (np.arange(5.0),), lent=True)
    rows.sent(0, 0, ((0, 1),))
    with pytest.raises(EngineFailed, match="has no room left for a sum in this step"):
        rows.give(Segment(1, 0, (1,), (1.0,)))


# -- hosts that are lost ---------------------------------------------------------------


class Steps:
    """A driver of an engine whose hosts can be lost between two steps."""

    def __init__(self, scheme, engine, faults=None) -> None:  # type: ignore[no-untyped-def]
        self.events: list[Event] = []
        self.engine = engine
        job = NumpyJob(gradient, 50, "float64")
        self.driver = Driver(engine, scheme, job.layout, watch=self.watch)
        engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts, faults=faults
        )
        self.parts = scheme.parts

    def watch(self, event: Event, commands: list[Command]) -> None:
        self.events.append(event)

    def step(self, x: float = 1.0) -> tuple[int, ...]:
        sum_ = self.driver.step(np.full(50, x))
        parts = np.arange(self.parts)
        np.testing.assert_allclose(sum_.vector[:50], (x - parts).sum(), atol=1e-12)
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


@pytest.mark.long
def test_a_host_that_is_lost_is_not_let_in_by_what_ends_with_it() -> None:
    """Worker 1 has two sums to send, and is lost with the first on its way."""
    engine = Looped({1: 60.0})
    job = NumpyJob(gradient, 50, "float64")
    port = engine._ports[ROOT] = Port(width=1)
    try:
        engine.start(lambda: job, job.layout, 2)
        engine.publish(0, np.ones(50))
        for id_ in (0, 2):
            engine.give(Assign(0, Segment(id_, 1, (id_,), (1.0,)), id_ + 1))
        while not port._waiting:
            engine._poll(1.0)
        engine.transport.lose(1)
        while not any(isinstance(event, WorkerLost) for event in engine._pending):
            engine._poll(1.0)
        assert len(engine.transport.fetches) == 1
        assert not engine._trips
    finally:
        engine.close()


@pytest.mark.long
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
        engine.start(broken, VectorLayout(parameters=2, gradient=2), 2)
    assert not engine._is_open


@pytest.mark.long
def test_who_is_to_be_asked_next_is_told_so_once() -> None:
    engine = Looped(dict.fromkeys(range(12), 0.02))
    run = train(gradient, np.zeros(50), uncoded(12), steps=2, engine=engine)
    alerts = engine.transport.alerts
    assert len(run.steps) == 2
    assert 0 < len(alerts) <= 2 * 12
