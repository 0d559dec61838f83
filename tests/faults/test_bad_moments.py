"""Trouble at the moments when it is least welcome: starting, hearing, ending."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Command, Event, Progressed
from codedgrad.engines import Driver, FaultPlan, Local, train
from codedgrad.engines.fleet.worker_handle import WorkerHandle
from codedgrad.engines.host.wire import Left, Said
from codedgrad.errors import (
    EngineFailed,
    InvalidJob,
    InvalidOptions,
    JobFailed,
    ProtocolError,
)
from codedgrad.jobs import NumpyJob, VectorLayout, WorkerJob
from codedgrad.schemes import fractional, uncoded

X = np.ones(2)
RIGHT = np.array([3.0, 3.0, 1.0, 2.0])  # of parts 0 and 1


def gradient(x, part, step):
    return float(part), 1.0, (part + 1.0) * x


def job() -> NumpyJob:
    return NumpyJob(lambda x, part, step: (float(part), 1.0, (part + 1.0) * x), 2)


@pytest.fixture
def engine() -> Iterator[Local]:
    engine = Local()
    yield engine
    engine.close()


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


# -- a step that is interrupted --------------------------------------------------------


def test_a_step_that_was_interrupted_does_not_spoil_the_next(engine: Local) -> None:
    interrupted = []

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, Progressed) and event.step == 1 and not interrupted:
            interrupted.append(event)
            raise KeyboardInterrupt

    engine.start(job, job().layout, 2)
    driver = Driver(engine, uncoded(2), job().layout, watch=watch)
    driver.step(X)
    with pytest.raises(KeyboardInterrupt):
        driver.step(X)
    for _ in range(3):
        np.testing.assert_array_equal(driver.step(X).vector, RIGHT)


def test_an_interrupt_while_a_worker_is_heard_loses_no_worker(
    engine: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.start(job, job().layout, 2)
    driver = Driver(engine, uncoded(2), job().layout)
    driver.step(X)
    take, raised = engine._take, []

    def taken(handle: WorkerHandle, said: Said) -> None:
        if isinstance(said, Left) and not raised:
            raised.append(said)
            raise KeyboardInterrupt
        take(handle, said)

    monkeypatch.setattr(engine, "_take", taken)
    with pytest.raises(KeyboardInterrupt):
        two_steps(driver)  # it may be heard when the next one begins
    for _ in range(3):
        np.testing.assert_array_equal(driver.step(X).vector, RIGHT)
    assert sum(engine.lives) == 3  # the one that was not heard out begins anew


def two_steps(driver: Driver) -> None:
    for _ in range(2):
        driver.step(X)


# -- while workers are set up ----------------------------------------------------------


def test_who_dies_while_others_are_set_up_is_not_waited_for(
    engine: Local, tmp_path: Path
) -> None:
    def make() -> WorkerJob:
        try:
            os.close(os.open(tmp_path / "first", os.O_CREAT | os.O_EXCL))
        except FileExistsError:  # the second: kill the first when it is ready
            pid = tmp_path / "pid"
            while not pid.exists() or "listen" not in threads(int(pid.read_text())):
                time.sleep(0.01)
            os.kill(int(pid.read_text()), 9)
            time.sleep(60)
        (tmp_path / "writing").write_text(str(os.getpid()))
        (tmp_path / "writing").rename(tmp_path / "pid")
        return job()

    def threads(pid: int) -> str:  # a worker that is ready has two
        return "listen" if len(os.listdir(f"/proc/{pid}/task")) > 1 else ""

    with pytest.raises(EngineFailed, match="died while it was set up"):
        engine.start(make, job().layout, 2)


def test_who_joins_and_cannot_be_set_up_is_not_waited_for(
    engine: Local, tmp_path: Path
) -> None:
    def make() -> WorkerJob:
        if (tmp_path / "gone").exists():
            raise FileNotFoundError("the data has gone")
        return job()

    engine.start(make, job().layout, 2, faults=FaultPlan().join(1, step=1))
    driver = Driver(engine, fractional(2, 1), job().layout)
    driver.step(X)
    (tmp_path / "gone").touch()
    with pytest.raises(JobFailed, match="the data has gone"):
        driver.step(X)


def test_a_job_that_is_longer_than_was_said_is_refused(engine: Local) -> None:
    with pytest.raises(JobFailed, match="its parameters is 2; try 3, as the engine"):
        engine.start(job, VectorLayout(parameters=3, gradient=3), 2)


def test_a_module_that_trains_when_it_is_imported_does_so_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from codedgrad.engines import train\n"
        "from codedgrad.schemes import uncoded\n"
        "def gradient(x, part, step): return 1.0, 1.0, x\n"
        "train(gradient, np.zeros(2), uncoded(2), steps=2)\n"
    )
    shown = run("import mine", tmp_path)
    assert shown.returncode == 1
    assert "training was started by a module that the workers import" in shown.stderr
    assert 'under `if __name__ == "__main__":`' in shown.stderr


def test_modules_in_the_current_folder_do_not_shadow_ours(tmp_path: Path) -> None:
    for name in ("struct", "queue", "select"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    shown = subprocess.run(
        [sys.executable, "-P", "-c", SMALL],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (shown.stdout, shown.stderr) == ("[0. 0.]\n", "")


SMALL = """
import numpy as np
from codedgrad.engines import train
from codedgrad.schemes import uncoded
run = train(lambda x, p, s: (1.0, 1.0, x), np.zeros(2), uncoded(2), steps=2)
print(run.parameters)
"""


def test_a_root_with_many_files_open_may_train() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2000:
        pytest.skip("this process may not open 2000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2000), before[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        done = train(gradient, X, uncoded(2), steps=2)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(done.steps) == 2


# -- the job ends, or does not ---------------------------------------------------------


def test_a_job_that_exits_has_failed() -> None:
    def exits(x, part, step):
        sys.exit("enough")

    with pytest.raises(JobFailed, match="SystemExit: enough") as error:
        train(exits, X, uncoded(2), steps=2)
    assert error.value.training.steps == ()


def test_what_a_job_has_started_ends_with_it(tmp_path: Path) -> None:
    def starts(x, part, step):
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / f"{part}").write_text(str(child.pid))
        return 1.0, 1.0, x

    train(starts, X, uncoded(2), steps=1)
    for part in range(2):
        state = Path(f"/proc/{(tmp_path / str(part)).read_text()}/stat")
        deadline = time.monotonic() + 20
        while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_workers_end_though_a_fork_of_the_root_lives_on(engine: Local) -> None:
    engine.start(job, job().layout, 2)
    pids = (*engine.pids, engine.nursery)
    reader, writer = os.pipe()
    fork = os.fork()
    if fork == 0:
        os.close(writer)
        os.read(reader, 1)  # until the test is over
        os._exit(0)
    try:
        engine.close()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(fork, 0)


# -- mistakes of whoever drives --------------------------------------------------------


def test_an_engine_is_started_before_it_is_used_and_not_after_it_is_closed() -> None:
    engine = Local()
    driver = Driver(engine, uncoded(2), job().layout)
    with pytest.raises(ProtocolError, match="not started, or closed"):
        driver.step(X)
    engine.start(job, job().layout, 2)
    engine.close()
    with pytest.raises(ProtocolError, match="not started, or closed"):
        driver.step(X)
    with pytest.raises(ProtocolError, match="started once"):
        engine.start(job, job().layout, 2)


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"steps": -1}, InvalidOptions, "steps: is -1; try 0 or more"),
        ({"dtype": "abc"}, InvalidOptions, "dtype: is 'abc'; try float32 or float64"),
        ({"parameters": X * 1j}, InvalidJob, "parameters: are of type complex128"),
        ({"parameters": np.ones((2, 2))}, InvalidJob, "parameters: has shape"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    options: dict[str, object],
    kind: type[Exception],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("it has started")

    monkeypatch.setattr(Local, "start", start)
    options = {"parameters": X, "steps": 1, **options}
    with pytest.raises(kind, match=problem):
        train(gradient, scheme=uncoded(2), **options)


def test_no_step_is_a_run_too() -> None:
    done = train(gradient, X, uncoded(2), steps=0)
    np.testing.assert_array_equal(done.parameters, X)
