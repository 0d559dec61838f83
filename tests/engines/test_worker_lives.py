"""What is said of workers: lines of a loss and of a return, a table, titles."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedgrad.core import (
    Command,
    Event,
    StepStarted,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.engines import Driver, FaultPlan, Here, Local, granted
from codedgrad.engines.fleet.lost_workers import UNKNOWN, LostWorker, LostWorkerLog
from codedgrad.engines.host.process_title import script_name
from codedgrad.engines.host.same_job import host_name
from codedgrad.errors import EngineFailed
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import build

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)

Looped = loopback.Looped

WITH_PROCESSES = pytest.mark.parametrize("make", [Local, Looped])


def calm(x: np.ndarray, part: int, step: int) -> tuple:
    return float(part), 1.0, x


@contextmanager
def running(
    engine: Any,
    gradient: Callable[..., tuple] = calm,
    *,
    workers: int = 2,
    scheme: str = "uncoded",
    faults: FaultPlan | None = None,
    watch: Callable[[Event, list[Command]], None] | None = None,
) -> Iterator[Driver]:
    job, built = NumpyJob(gradient, 1), build(scheme, workers)
    try:
        engine.start(lambda: job, job.layout, workers, parts=built.parts, faults=faults)
        yield Driver(engine, built, job.layout, watch=watch)
    finally:
        engine.close()


def step_until(driver: Driver, what: Callable[[], bool]) -> None:
    while not what():
        driver.step(np.zeros(1))


# -- lines -----------------------------------------------------------------------------


@WITH_PROCESSES
def test_a_worker_that_is_killed_and_its_return_are_a_line_each(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine = make()
    with running(engine) as driver:
        driver.step(np.zeros(1))
        before = engine.workers[1]
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        step_until(driver, lambda: "is back" in caplog.text)
        after = engine.workers[1]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    lost, back = caplog.messages
    where = rf"worker 1 \(pid {before.pid} on {re.escape(host_name())}\)"
    when = r"was lost in step \d+(, part 1)?"
    why = "ended by SIGKILL: by kill -9, or by the kernel because memory ran out"
    assert re.fullmatch(f"{where} {when}: {why}; a new process is started", lost)
    now = rf"worker 1 is back \(pid {after.pid} on {re.escape(host_name())}\)"
    assert re.fullmatch(rf"{now} after [\d.e-]+ s", back)
    assert before.pid != after.pid


@WITH_PROCESSES
def test_the_exit_code_of_a_worker_that_ended_itself_is_named(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        if (part, step) == (1, 1) and not (tmp_path / "done").exists():
            (tmp_path / "done").touch()
            os._exit(7)
        return calm(x, part, step)

    with running(make(), gradient) as driver:
        step_until(driver, lambda: "is back" in caplog.text)
    lost, _ = caplog.messages
    assert "was lost in step 1, part 1: it ended with exit code 7; a new pro" in lost


@WITH_PROCESSES
def test_an_exception_in_the_job_is_in_the_line_of_the_loss(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        if (part, step) == (1, 1) and not (tmp_path / "done").exists():
            (tmp_path / "done").touch()
            raise ValueError("only once")
        return calm(x, part, step)

    with running(make(), gradient) as driver:
        step_until(driver, lambda: "is back" in caplog.text)
    lost, _ = caplog.messages
    assert "lost in step 1, part 1: the job raised ValueError: only once; a" in lost


def test_workers_that_the_fault_plan_takes_away_and_brings_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = FaultPlan().leave(0, 1).join(0, 2).join(1, 2)
    with running(Local(), faults=faults, workers=3, scheme="auto") as driver:
        step_until(driver, lambda: "has joined" in caplog.text)
    lost, back, joined = caplog.messages
    assert lost.endswith("ended by SIGKILL, on purpose; the fault plan keeps it away")
    assert back.startswith("worker 0 is back (pid ")
    assert re.fullmatch(r"worker 1 has joined \(pid \d+ on .*\)", joined)


def test_the_loss_of_a_host_is_one_line_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Looped(hosts=2)
    with running(engine, workers=4) as driver:
        driver.step(np.zeros(1))
        engine.launcher.lose(1)
        while "lost" not in caplog.text:
            engine.workers  # noqa: B018  looks
        assert [engine.workers[worker].state for worker in (1, 3)] == ["lost"] * 2
        engine.launcher.begin(1)
        step_until(driver, lambda: "are back" in caplog.text)
    lost, back = (line for line in caplog.messages if line.startswith("workers"))
    name = re.escape(host_name())
    why = rf"host 2 \({name}\) is gone \(its process has ended\)"
    then = "they come back if the host does"
    assert re.fullmatch(rf"workers 1, 3 on {name} were lost: {why}; {then}", lost)
    assert re.fullmatch(rf"workers 1, 3 are back \(on {name}\) after [\d.]+ s", back)


def test_the_death_of_the_nursery_is_the_cause_of_all_losses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, events = Local(), list[Event]()
    watch: Any = lambda event, commands: events.append(event)  # noqa: E731
    with running(engine, watch=watch) as driver:
        driver.step(np.zeros(1))
        os.kill(engine.nursery, signal.SIGKILL)
        step_until(driver, lambda: "are back" in caplog.text)
    lost, back = caplog.messages
    cause = "the process that forks the workers has died; new processes are started"
    assert lost == f"workers 0, 1 on {host_name()} were lost: {cause}"
    assert back.startswith(f"workers 0, 1 are back (on {host_name()}) after")
    changes = [e for e in events if isinstance(e, WorkersLost | WorkersJoined)]
    assert [(type(e), e.workers) for e in changes] == [
        (WorkersLost, (0, 1)), (WorkersJoined, (0, 1)),
    ]  # fmt: skip


def test_a_return_waits_for_the_line_of_the_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses = LostWorkerLog()
    losses.lost(
        1, LostWorker(2, 4711, "a", "in step 7", "a new process is started", 3.0)
    )
    losses.back([2], 4712, "a", 3.5)
    assert caplog.messages == []
    losses.explain(2, 1, "ended by SIGKILL")
    losses.explain(2, 1, UNKNOWN)  # the time is up, and it was told
    assert caplog.messages == [
        "worker 2 (pid 4711 on a) was lost in step 7: ended by SIGKILL; "
        "a new process is started",
        "worker 2 is back (pid 4712 on a) after 0.5 s",
    ]


def test_a_worker_that_dies_twice_before_it_is_told_is_back_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses = LostWorkerLog()
    losses.lost(1, LostWorker(2, 4711, "a", "in step 7", "one starts", 3.0))
    losses.lost(2, LostWorker(2, 0, "a", "while it was set up", "one starts", 4.0))
    losses.back([2], 4713, "a", 5.0)
    losses.explain(2, 2, "one cause")
    losses.explain(2, 1, "another")
    assert caplog.messages == [
        "worker 2 was lost while it was set up: one cause; one starts",
        "worker 2 (pid 4711 on a) was lost in step 7: another; one starts",
        "worker 2 is back (pid 4713 on a) after 2 s",
    ]


# -- the table -------------------------------------------------------------------------


@WITH_PROCESSES
def test_a_table_follows_a_worker_from_its_death_to_its_end(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine = make()
    with running(engine) as driver:
        first = engine.workers
        assert [(w.number, w.host, w.state) for w in first] == [
            (0, host_name(), "ready"),
            (1, host_name(), "ready"),
        ]
        assert tuple(w.pid for w in first) == engine.pids
        os.kill(engine.pids[0], signal.SIGKILL)
        while engine.workers[0].state != "lost":
            """Between two steps, too, it is noticed."""
        assert engine.workers[0].pid is None
        assert engine.workers[0].host == host_name()
        assert engine.workers[1] == first[1]
        step_until(driver, lambda: "is back" in caplog.text)
        assert engine.workers[0].state in ("ready", "late")
    assert [(w.pid, w.state) for w in engine.workers] == [(None, "ended")] * 2


def test_a_worker_works_while_its_step_is_open_and_is_late_when_that_is_over() -> None:
    engine = Local()
    seen: list[str] = []

    def watch(event: Event, commands: list[Command]) -> None:
        if seen and not isinstance(event, StepStarted):
            seen.append(engine.workers[0].state)
        elif isinstance(event, StepStarted):
            seen.append("begun")

    faults = FaultPlan().stop(0, 0, 1000.0)
    scheme = "fractional(tolerance=1)"
    with running(engine, faults=faults, scheme=scheme, watch=watch) as driver:
        driver.step(np.zeros(1))
        assert engine.workers[0].state == "late"
    assert set(seen) == {"begun", "working"}


def test_a_table_that_another_thread_asks_for_looks_at_nothing() -> None:
    engine, found = Local(), []
    with running(engine) as driver:
        driver.step(np.zeros(1))
        engine._poll = None  # type: ignore[method-assign]  # it would raise
        thread = threading.Thread(target=lambda: found.append(engine.workers))
        thread.start()
        thread.join()
        del engine._poll
    assert [worker.number for worker in found[0]] == [0, 1]


def test_what_a_look_finds_fatal_is_raised_by_the_next_step() -> None:
    engine = Local()
    with running(engine) as driver:
        driver.step(np.zeros(1))
        for _ in range(3):
            nursery = engine.nursery
            os.kill(nursery, signal.SIGKILL)
            while engine.nursery == nursery and engine._failure is None:
                engine.workers  # noqa: B018  looks
        with pytest.raises(EngineFailed, match="has died 3 times"):
            driver.step(np.zeros(1))


def test_workers_without_processes_are_this_one() -> None:
    engine = Here()
    with running(engine) as driver:
        driver.step(np.zeros(1))
        assert [(w.pid, w.host, w.state) for w in engine.workers] == [
            (os.getpid(), host_name(), "ready")
        ] * 2
    assert [(w.pid, w.state) for w in engine.workers] == [(None, "ended")] * 2


def test_an_engine_whose_messages_are_granted_lists_its_workers() -> None:
    local = Local()
    engine: Any = granted(local, "fair")
    assert engine is not local
    with running(engine) as driver:
        driver.step(np.zeros(1))
        assert engine.workers == local.workers


# -- titles ----------------------------------------------------------------------------


def title(pid: int) -> tuple[str, str]:
    """Return what `ps` and what `top` call a process."""
    folder = Path(f"/proc/{pid}")
    words = (folder / "cmdline").read_bytes().rstrip(b"\0").decode()
    return words, (folder / "comm").read_text().rstrip("\n")


@WITH_PROCESSES
def test_processes_bear_the_number_of_their_worker(make: Callable[[], Any]) -> None:
    engine, script = make(), script_name()
    with running(engine):
        for number, pid in enumerate(engine.pids):
            said = f"codedgrad worker {number} of {script}"
            assert title(pid) == (said, f"cg-worker-{number}")
            nursery = int(Path(f"/proc/{pid}/stat").read_text().split()[3])
            assert title(nursery) == (f"codedgrad nursery of {script}", "cg-nursery")


LONG = """
import os
from codedgrad.engines.host.process_title import set_title
words = open("/proc/self/cmdline", "rb").read()
around = open("/proc/self/environ", "rb").read()
set_title("worker 12345678", "x" * 5000)
shown = open("/proc/self/cmdline", "rb").read()
assert len(shown) == len(words) and shown.endswith(b"xx" + bytes(1)), shown
assert shown.startswith(b"codedgrad worker 12345678 of xxx"), shown
assert open("/proc/self/comm").read() == "cg-worker-12345\\n"
assert open("/proc/self/environ", "rb").read() == around
"""


def test_a_title_too_long_for_the_arguments_is_cut_and_spares_the_environment() -> None:
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
