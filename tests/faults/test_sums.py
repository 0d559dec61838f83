"""What comes of a step in trouble: given up, contradicted, diverged, refused."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Drop,
    MessageArrived,
    Patience,
    Progressed,
    Scheme,
    Segment,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Chain, Dead, ShiftedExponential, Times
from codedgrad.engines import Driver, FaultPlan, Local, train
from codedgrad.engines.host.wire import Sent
from codedgrad.errors import EngineFailed, StepGivenUp
from codedgrad.jobs import Gradient, NumpyJob, single_process
from codedgrad.schemes import fractional, uncoded
from codedgrad.trace import read, replay

X = np.array([1.0, 2.0])


@pytest.fixture
def gradient() -> Gradient:
    return lambda x, part, step: (float(part), 1.0, (part + 1.0) * x)


@pytest.fixture
def engine() -> Iterator[Local]:
    engine = Local()
    yield engine
    engine.close()


@pytest.fixture
def drive(engine: Local, gradient: Gradient) -> Callable[..., Driver]:
    """Start an engine, and return what drives it."""

    def start(
        scheme: Scheme, faults: FaultPlan | None = None, job: object = None, **options
    ) -> Driver:
        job = job or NumpyJob(gradient, 2)
        engine.start(lambda: job, job.layout, scheme.workers, faults=faults)
        return Driver(engine, scheme, job.layout, **options)

    return start


def right(parts: int) -> np.ndarray:
    """The sum of `gradient` at `X` over so many parts: gradients, loss, samples."""
    first = sum(range(1, parts + 1))
    return np.array([*(first * X), first - parts, parts])


# -- given up --------------------------------------------------------------------------

SOON = Patience(least=0.5, first=0.5)


def test_a_step_that_cannot_be_finished_is_given_up_and_says_why(
    gradient: Gradient, tmp_path: Path
) -> None:
    faults = FaultPlan().kill(1, 2).join(1, 99)
    with pytest.raises(StepGivenUp) as caught:
        train(
            gradient, X, uncoded(3), steps=9, faults=faults,
            patience=Patience(least=0.5, factor=1.0), trace=tmp_path / "run.jsonl",
        )  # fmt: skip
    error = caught.value
    assert error.step == 2
    assert "lost workers [1]; a tolerance of 1 would have survived" in error.reason
    alone = single_process(gradient, X, 3, steps=2)
    np.testing.assert_allclose(error.training.parameters, alone.parameters)
    assert [step.step for step in error.training.steps] == [0, 1]
    assert replay(read(tmp_path / "run.jsonl"), uncoded(3)) is None


def test_after_a_step_that_was_given_up_the_next_may_be_tried(
    drive: Callable[..., Driver],
) -> None:
    faults = FaultPlan().kill(1, 0).kill(2, 0).join(1, 1).join(2, 1)
    driver = drive(uncoded(3), faults, patience=SOON)
    with pytest.raises(StepGivenUp, match=r"lost workers \[1, 2\]; a tolerance of 2"):
        driver.step(X)
    np.testing.assert_array_equal(driver.step(X).vector, right(3))


def test_a_long_patience_is_waited_for(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedgrad.engines.driver._NOTICE", 0.01)
    faults = FaultPlan().slow(1, 0, 0.1)
    for_ever = Patience(least=1e9, first=1e9)
    driver = drive(uncoded(2), faults, patience=for_ever)
    np.testing.assert_array_equal(driver.step(X).vector, right(2))


def test_lost_and_late_workers_are_named(
    drive: Callable[..., Driver],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("codedgrad.engines.driver._NOTICE", 0.3)
    faults = FaultPlan().slow(1, 0, 60.0).kill(0, 0).join(0, 99)
    driver = drive(uncoded(3), faults, patience=SOON)
    with pytest.raises(StepGivenUp):
        driver.step(X)
    said = [r.getMessage() for r in caplog.records if "been waiting" in r.getMessage()]
    assert [re.sub(r"0\.3\d*", "0.3", text) for text in said] == [
        "step 0 has been waiting for lost workers [0] and for late workers [1]"
        " for 0.3 s; it is given up after 0.5 s (no step has ended yet)"
    ]


# -- not finite ------------------------------------------------------------------------


def test_a_worker_alone_with_its_nan_is_contradicted_by_another(
    drive: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    faults = FaultPlan().corrupt(0, 1).slow(1, 1, 0.05)  # worker 1 holds the same
    driver = drive(fractional(4, 1), faults)
    sums = [driver.step(X) for _ in range(3)]
    assert [sum_.contradicted for sum_ in sums] == [(), (0,), ()]
    assert all(sum_.finite for sum_ in sums)
    assert faults.all_fired
    assert "worker 0 sent a value that is not finite, and others contra" in caplog.text


def test_a_worker_that_nobody_else_can_check_is_asked_again(
    drive: Callable[..., Driver],
) -> None:
    faults = FaultPlan().corrupt(1, 0, "inf")
    sum_ = drive(uncoded(3), faults).step(X)
    assert (sum_.contradicted, sum_.finite) == ((1,), True)
    np.testing.assert_array_equal(sum_.vector, right(3))


@pytest.mark.parametrize("scheme", [uncoded(4), fractional(4, 1)], ids=str)
def test_a_model_that_has_diverged_is_handed_over_and_nobody_is_blamed(
    drive: Callable[..., Driver], scheme: Scheme
) -> None:
    def diverging(x: np.ndarray, part: int, step: int) -> tuple:
        bad = np.nan if step == 1 and part in (0, 1) else 1.0
        return 0.0, 1.0, np.array([bad, 1.0])

    driver = drive(scheme, job=NumpyJob(diverging, 2))
    sums = [(s := driver.step(X)).vector.copy() for _ in range(3)]
    np.testing.assert_array_equal(sums[1], [np.nan, 4.0, 0.0, 4.0])
    np.testing.assert_array_equal(sums[2], [4.0, 4.0, 0.0, 4.0])
    assert s.finite
    records = driver.coordinator.history.records
    assert [record.contradicted for record in records] == [(), (), ()]
    assert [record.diverged for record in records] == [False, True, False]


def test_a_sum_that_is_not_finite_says_so(drive: Callable[..., Driver]) -> None:
    job = NumpyJob(lambda x, part, step: (np.inf, 1.0, x), 2)
    sum_ = drive(uncoded(2), job=job).step(X)
    assert (sum_.finite, sum_.contradicted, sum_.loss) == (False, (), np.inf)
    np.testing.assert_array_equal(sum_.gradient, X)


# -- refused ---------------------------------------------------------------------------


def test_what_is_repeated_or_cannot_be_meant_changes_nothing_and_is_counted(
    drive: Callable[..., Driver], engine: Local, caplog: pytest.LogCaptureFixture
) -> None:
    faults = FaultPlan().slow(1, 0, 0.05)  # so that step 0 is open
    for step, how in enumerate(("repeat", "size", "step", "unknown")):
        faults.corrupt(0, step, how)
    driver = drive(uncoded(2), faults)
    for _ in range(4):
        np.testing.assert_array_equal(driver.step(X).vector, right(2))
    of_nothing = Sent(3, 3, ((999, 1),), finite=True, size=4)
    engine._take(engine._handles[1], of_nothing)  # no fault on purpose says that
    assert engine.next_event(0.0) is None
    assert faults.all_fired
    assert driver.coordinator.ignored == {"repeated": 1}
    assert engine.refused == {"size": 1, "step": 1, "unknown": 2}
    for said in (
        "worker 0 sent what is refused: 5 numbers, 4 were expected",
        "worker 0 sent what is refused: message of step 3, not yet begun",
        "worker 0 sent what is refused: message 1000001 of unknown sums",
        "worker 1 sent what is refused: message 3 of unknown sums",
    ):
        assert said in caplog.text


def test_one_worker_may_be_wrong_more_often_than_it_has_rows(
    gradient: Gradient,
) -> None:
    """Twice of the wrong length, and then it is asked about its neighbour's NaN."""
    faults = FaultPlan().corrupt(0, 2, "size").corrupt(0, 2, "size")
    faults.corrupt(1, 2, "nan").slow(1, 2, 0.1)
    engine = Local(open_segments=1)
    run = train(gradient, X, fractional(4, 1), steps=4, engine=engine, faults=faults)
    assert faults.all_fired
    alone = single_process(gradient, X, 4, steps=4)
    np.testing.assert_allclose(run.parameters, alone.parameters, rtol=1e-12)


def test_a_worker_that_talks_nonsense_loses_its_life_and_is_replaced(
    drive: Callable[..., Driver], engine: Local, tmp_path: Path
) -> None:
    flag = tmp_path / "talked"

    def babbling(x: np.ndarray, part: int, step: int) -> tuple:
        if part == 1 and step == 1 and not flag.exists():
            flag.touch()
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}"):
                    is_socket = os.readlink(f"/proc/self/fd/{fd}").startswith("socket")
                    if is_socket:
                        os.write(fd, b"\x05\x00\x00\x00hello")
        return float(part), 1.0, (part + 1.0) * x

    driver = drive(uncoded(3), job=NumpyJob(babbling, 2))
    for _ in range(3):
        np.testing.assert_array_equal(driver.step(X).vector, right(3))
    assert flag.exists()
    assert engine.refused == {"nonsense": 1}
    assert engine.lives == (1, 2, 1)


def test_a_worker_that_was_stopped_finds_the_orders_of_one_step_when_it_wakes(
    drive: Callable[..., Driver],
) -> None:
    told: list[int] = []  # steps that worker 0 has spoken of

    def watch(event: object, commands: list) -> None:
        if isinstance(event, Progressed | MessageArrived) and event.worker == 0:
            told.append(event.step)

    driver = drive(fractional(2, 1), FaultPlan().stop(0, 3, 0.2), watch=watch)
    step = 0
    while max(told, default=0) <= 3:
        step = driver.step(X).step
    first = min(step for step in told if step > 3)
    assert first > 3 + (step - 3) / 2  # a new one, not all that it has missed


def test_orders_that_do_not_fit_into_a_pipe_wait_and_the_root_does_not(
    drive: Callable[..., Driver], engine: Local
) -> None:
    drive(uncoded(1))
    os.kill(engine.pids[0], signal.SIGSTOP)
    engine.publish(0, X)
    many = tuple(range(60_000))
    engine.give(Assign(0, Segment(0, 0, many, tuple(map(float, many))), message=1))
    assert engine.next_event(0.0) is None
    os.kill(engine.pids[0], signal.SIGCONT)
    assert isinstance(engine.next_event(20.0), Progressed)
    engine.give(Drop(0, 0))
    engine.give(Assign(0, Segment(2, 0, (7,), (1.0,)), message=3))
    while not isinstance(event := engine.next_event(20.0), MessageArrived):
        assert event is not None
    assert event.message == 3
    np.testing.assert_array_equal(
        engine.combine([(3, 1.0)])[:-4], [*(8.0 * X), 7.0, 1.0]
    )


# -- away ------------------------------------------------------------------------------


def test_infinite_times_are_played_as_leaving_and_joining(gradient: Gradient) -> None:
    fixed = np.zeros((8, 4))
    fixed[2:5, 1] = np.inf
    law = Times(fixed=fixed, unit=np.zeros_like(fixed))
    faults, seen = FaultPlan(), list[tuple[type, tuple[int, ...]]]()

    def watch(event: object, commands: list) -> None:
        if isinstance(event, WorkersLost | WorkersJoined):
            seen.append((type(event), event.workers))

    run = train(
        gradient, X, fractional(4, 1), steps=8, delays=law, faults=faults, watch=watch
    )
    assert [str(fault) for fault in faults.fired] == [
        "leave(worker=1, step=2)", "join(worker=1, step=5)",
    ]  # fmt: skip
    assert seen == [(WorkersLost, (1,)), (WorkersJoined, (1,))]
    assert not any(1 in step.heard for step in run.steps[2:5])


def test_who_is_dead_for_good_stays_away(gradient: Gradient) -> None:
    law = Chain(ShiftedExponential(floor=0.001, mean=0.0001), Dead(worker=3, step=2))
    engine = Local()
    run = train(gradient, X, fractional(4, 1), steps=30, delays=law, engine=engine)
    assert engine.lives == (1, 1, 1, 1)
    assert not any(3 in step.heard for step in run.steps[2:])


# -- the process that forks ------------------------------------------------------------


def test_when_the_process_that_forks_dies_all_start_again_and_training_goes_on(
    drive: Callable[..., Driver], engine: Local, caplog: pytest.LogCaptureFixture
) -> None:
    driver = drive(uncoded(3), FaultPlan().stop(2, 40, 0.05).kill(1, 41))
    first = engine.nursery
    driver.step(X)
    os.kill(first, signal.SIGKILL)
    while min(engine.lives) < 2:
        np.testing.assert_array_equal(driver.step(X).vector, right(3))
    while driver.step(X).step < 41:  # one is stopped, and one killed again
        pass
    assert engine.lives == (2, 3, 2)
    assert engine.nursery != first
    assert "the process that forks the workers has died" in caplog.text


def test_who_is_to_leave_leaves_though_the_process_that_forks_is_dead(
    drive: Callable[..., Driver], engine: Local
) -> None:
    faults = FaultPlan().leave(0, 1).join(0, 2)
    driver = drive(fractional(2, 1), faults)
    driver.step(X)
    os.kill(engine.nursery, signal.SIGKILL)
    assert 0 not in driver.step(X).report.heard
    driver.step(X)
    assert faults.all_fired


def test_a_process_that_forks_and_dies_again_and_again_is_given_up(
    drive: Callable[..., Driver], engine: Local
) -> None:
    driver = drive(uncoded(2))

    def kill_and_step() -> None:
        nursery = engine.nursery
        os.kill(nursery, signal.SIGKILL)
        while engine.nursery == nursery:
            driver.step(X)

    for _ in range(2):
        kill_and_step()
    with pytest.raises(EngineFailed, match="has died 3 times"):
        kill_and_step()
