"""A part that ends the workers that compute it, and a worker that others end."""

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Assign, Cut, Drop, Segment
from codedgrad.engines import Driver, Engine, FaultPlan, Local
from codedgrad.engines.fleet.deaths import Deaths, InHand
from codedgrad.errors import JobFailed
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import build, uncoded

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)

Looped = loopback.Looped

FAULTS = [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT]


class Deadly(NumpyJob):
    """Ends its worker by a signal in one part of step 1, so many times."""

    def __init__(self, folder: Path, number: int, times: int, part: int = 1) -> None:
        def gradient(x: np.ndarray, which: int, step: int) -> tuple:
            if (which, step) == (part, 1):
                before = len(list(folder.iterdir()))
                if before < times:
                    (folder / f"{before}-{os.getpid()}").touch()
                    os.kill(os.getpid(), number)
            return float(which), 1.0, x + which

        super().__init__(gradient, 1)

    def describe(self, part: int, step: int) -> str:
        return f"samples {part}{step}1 and {part}{step}2"


def run(engine: Engine, job: Deadly, scheme: str = "uncoded", workers: int = 2) -> None:
    built = build(scheme, workers)
    try:
        engine.start(lambda: job, job.layout, workers, parts=built.parts, root=job)
        driver = Driver(engine, built, job.layout)
        for step in range(3):
            total = driver.step(np.zeros(1)).vector
            assert total[-1] == built.parts, step
    finally:
        engine.close()


@pytest.mark.parametrize("number", FAULTS[::4], ids=lambda number: number.name)
def test_a_second_death_by_a_fault_in_the_same_part_is_the_jobs(
    number: signal.Signals, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(JobFailed) as caught:
        run(Local(), Deadly(tmp_path, number, times=99))
    said = str(caught.value)
    assert said.startswith("worker 1, step 1, part 1 (samples 111 and 112): the part ")
    assert f"(worker 1 by {number.name}, worker 1 by {number.name})" in said
    assert 'engine="here"' in said
    assert "\n" not in said
    assert len(list(tmp_path.iterdir())) == 2
    lost, back = caplog.messages  # the second death is the exception
    assert "was lost in step 1, part 1 (samples 111 and 112): ended by" in lost
    assert f"ended by {number.name}; a new process is started" in lost
    assert back.startswith("worker 1 is back (pid ")


def test_a_single_death_by_a_fault_is_a_warning_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(Local(), Deadly(tmp_path, signal.SIGSEGV, times=1))
    assert "ended by SIGSEGV; a new process is started" in caplog.text
    assert "memory" not in caplog.text


@pytest.mark.parametrize("engine", [Local, Looped])
def test_the_third_death_by_sigkill_on_two_workers_is_the_jobs(
    engine: Callable[[], Engine], tmp_path: Path
) -> None:
    with pytest.raises(JobFailed) as caught:
        run(engine(), Deadly(tmp_path, signal.SIGKILL, 99, part=0), "fractional(1)")
    said = str(caught.value)
    assert "step 1, part 0 (samples 011 and 012): the part ends the workers" in said
    assert said.count("by SIGKILL") >= 3
    assert "worker 0 by" in said
    assert "worker 1 by" in said
    assert "because memory ran out" in said
    assert "give workers more memory, or make parts smaller" in said


def test_deaths_by_sigkill_of_one_worker_alone_end_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(Local(), Deadly(tmp_path, signal.SIGKILL, times=4))
    lines = [line for line in caplog.messages if "ended by SIGKILL" in line]
    assert all("was lost in step 1, part 1 (samples 111" in line for line in lines)
    assert all("because memory ran out; a new process" in line for line in lines)
    assert [line.partition("started")[2] for line in lines] == [
        "", " in 0.1 s", " in 0.2 s", " in 0.4 s",
    ]  # fmt: skip


def test_a_worker_elsewhere_is_judged_alike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(JobFailed, match=r"worker 1, step 1, part 1 \(samples 111"):
        run(Looped(), Deadly(tmp_path, signal.SIGSEGV, times=99))
    assert "(samples 111 and 112): ended by SIGSEGV; a new proc" in caplog.text
    assert len(list(tmp_path.iterdir())) == 2


def test_kills_on_purpose_are_logged_and_do_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job, scheme = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1), uncoded(2)
    faults = FaultPlan().kill(0, 1).kill(1, 1).kill(0, 1, after=1).kill(1, 1, after=1)
    engine = Local()
    try:
        engine.start(lambda: job, job.layout, 2, faults=faults)
        driver = Driver(engine, scheme, job.layout)
        for _ in range(3):
            driver.step(np.zeros(1))
    finally:
        engine.close()
    assert faults.all_fired
    assert caplog.text.count("ended by SIGKILL, on purpose; a new process") == 4
    assert "memory" not in caplog.text


def test_a_worker_that_somebody_ends_is_warned_of_by_the_name_of_the_signal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)
    engine = Local()
    try:
        engine.start(lambda: job, job.layout, 1)
        driver = Driver(engine, uncoded(1), job.layout)
        os.kill(engine.pids[0], signal.SIGTERM)
        while "SIGTERM" not in caplog.text:
            driver.step(np.zeros(1))
    finally:
        engine.close()
    assert "ended by SIGTERM; a new process is started" in caplog.text


# -- which part it was -----------------------------------------------------------------


def assign(id_: int, *parts: int, step: int = 0) -> Assign:
    return Assign(step, Segment(id_, 0, parts, (1.0,) * len(parts)), None)


def test_the_part_in_hand_is_the_first_that_is_not_reported() -> None:
    hand = InHand()
    assert hand.part is None
    hand.give(assign(0, 7, 8))
    hand.give(assign(1, 9))
    assert hand.part == (0, 7)
    hand.told(0, 0, 1, False)
    assert hand.part == (0, 8)
    hand.told(0, 0, 2, True)
    assert hand.part == (0, 9)
    hand.told(0, 1, 1, True)
    assert hand.part is None


def test_a_part_that_was_cut_off_is_in_hand_until_it_cannot_be_told() -> None:
    hand = InHand()
    hand.give(assign(0, 7, 8))
    hand.give(Cut(0, 0, segment=0, keep=0))
    hand.told(0, 0, 0, True)
    assert hand.part == (0, 7)
    hand.give(assign(1, 9, 10))
    assert hand.part is None  # 7 or 9
    hand.told(0, 1, 1, False)
    assert hand.part == (0, 10)


def test_a_step_that_was_dropped_is_in_hand_until_the_worker_is_idle() -> None:
    hand = InHand()
    hand.give(assign(0, 7, 8))
    hand.give(Drop(0, 0))
    assert hand.part == (0, 7)
    hand.clear()
    assert hand.part is None
    hand.give(assign(0, 3, step=1))
    assert hand.part == (1, 3)


@pytest.mark.parametrize("number", FAULTS, ids=lambda number: number.name)
def test_two_faults_of_any_kind_in_a_part_are_enough(number: signal.Signals) -> None:
    deaths = Deaths()
    deaths.lost(3, 1, (0, 0), is_intended=False)
    deaths.lost(4, 1, (0, 0), is_intended=False)
    first, second = deaths.died(3, 1, -signal.SIGSEGV), deaths.died(4, 1, -number)
    assert first is not None
    assert second is not None
    assert not first.killed
    assert second.killed == ((3, signal.SIGSEGV), (4, number))


@pytest.mark.parametrize("code_first", [False, True])
def test_a_death_is_judged_when_both_its_halves_are_known(code_first: bool) -> None:
    deaths = Deaths()
    for life, killed in ((1, ()), (2, ((0, 11), (0, 11)))):
        if code_first:
            assert deaths.died(0, life, -11) is None
            verdict = deaths.lost(0, life, (5, 3), is_intended=False)
        else:
            assert deaths.lost(0, life, (5, 3), is_intended=False) is None
            verdict = deaths.died(0, life, -11)
        assert verdict is not None
        assert verdict.killed == killed


def test_the_same_part_of_another_step_is_another_part() -> None:
    deaths = Deaths()
    for life in range(10):
        deaths.lost(0, life, (life, 3), is_intended=False)
        verdict = deaths.died(0, life, -11)
        assert verdict is not None
        assert not verdict.killed


def test_a_worker_that_leaves_when_it_is_gone_is_not_doomed_in_its_next_life() -> None:
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)
    engine = Local()
    try:
        engine.start(
            lambda: job, job.layout, 1, faults=FaultPlan().leave(0, 1).join(0, 2)
        )
        engine.publish(0, np.zeros(1))
        os.kill(engine.pids[0], signal.SIGKILL)
        handle = engine._handles[0]
        while handle.is_there:
            engine._poll(1.0)
        engine.publish(1, np.zeros(1))
        engine.publish(2, np.zeros(1))
        assert handle.is_up
        assert not handle.is_doomed
    finally:
        engine.close()
