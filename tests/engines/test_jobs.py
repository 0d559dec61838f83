"""What is computed travels to the workers, and what goes wrong there comes back."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codedgrad.engines import Driver, Local, train
from codedgrad.errors import EngineFailed, JobFailed, ProtocolError
from codedgrad.jobs import NumpyJob, VectorLayout, single_process
from codedgrad.schemes import fractional, uncoded

SCRIPT = """
import numpy as np
from codedgrad.engines import train
from codedgrad.schemes import fractional

centre = np.array([1.0, -2.0])

def gap(x):
    return x - centre

def gradient(x, part, step):
    print("computing part", part)
    return float(gap(x) @ gap(x)) / 2, 1.0, gap(x)

run = train(gradient, np.zeros(2), fractional(4, tolerance=1), steps=60, rate=0.5)
print("found", run.parameters.round(6))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the same script prints, without a main guard and however it is run."""
    path = tmp_path_factory.mktemp("script") / "script.py"
    path.write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    running = {
        name: subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=path.parent,
            env=environment,
        )
        for name, arguments in (
            ("file", [str(path)]),
            ("stdin", ["-"]),
            ("command", ["-c", SCRIPT]),
        )
    }
    given = {"stdin": SCRIPT}
    return {
        name: process.communicate(given.get(name), timeout=60)[0]
        for name, process in running.items()
    }


@pytest.mark.parametrize("how", ["file", "stdin", "command"])
def test_a_script_needs_no_main_guard(printed: dict[str, str], how: str) -> None:
    assert re.findall("found .*", printed[how]) == ["found [ 1. -2.]"]


@pytest.mark.parametrize("how", ["file", "stdin", "command"])
def test_what_workers_print_is_seen_though_they_are_killed_in_the_end(
    printed: dict[str, str], how: str
) -> None:
    lines = [line for line in printed[how].splitlines() if "computing" in line]
    assert {*lines} == {f"computing part {part}" for part in range(4)}
    assert len(lines) >= 60 * 4


@pytest.fixture
def engine() -> Iterator[Local]:
    engine = Local()
    yield engine
    engine.close()


def test_a_function_of_a_module_is_found_by_the_path_of_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def gradient(x, part, step):\n    return 0.0, 1.0, x - 3.0\n"
    (tmp_path / "a_module_of_mine.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    from a_module_of_mine import gradient

    run = train(gradient, np.zeros(1), uncoded(2), steps=40, rate=0.5)
    np.testing.assert_allclose(run.parameters, [3.0])


def test_a_job_that_cannot_travel_is_refused_with_advice(engine: Local) -> None:
    lock = threading.Lock()

    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        with lock:
            return 0.0, 1.0, x

    with pytest.raises(EngineFailed) as caught:
        train(gradient, np.zeros(1), uncoded(2), steps=1, engine=engine)
    assert "the job cannot be sent to the workers: cannot pickle '_thread.lock'" in str(
        caught.value
    )
    assert "try opening files, locks and connections inside" in str(caught.value)


def test_an_exception_in_a_worker_ends_the_run_with_its_traceback() -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        if (part, step) == (1, 2):
            raise ZeroDivisionError("of all things")
        return 0.0, 1.0, x

    with pytest.raises(JobFailed) as caught:
        train(gradient, np.zeros(1), uncoded(2), steps=5)
    error = caught.value
    assert error.where == "worker 1, step 2, part 1"
    assert "raise ZeroDivisionError" in error.traceback
    assert f"in {gradient.__name__}" in error.traceback
    assert str(error).startswith(f"{error.where}: ZeroDivisionError: of all things\n")


def test_an_exception_that_does_not_come_again_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flag = tmp_path / "raised"

    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        if (part, step) == (1, 2) and not flag.exists():
            flag.touch()
            raise ZeroDivisionError("of all things")
        return float(x[0]), 1.0, x - part

    engine = Local()
    run = train(gradient, np.zeros(1), uncoded(3), steps=5, engine=engine)
    assert flag.exists()
    assert engine.lives == (1, 2, 1)
    assert "in step 2, part 1: the job raised ZeroDivisionError" in caplog.text
    alone = single_process(gradient, np.zeros(1), 3, steps=5)
    np.testing.assert_array_equal(run.parameters, alone.parameters)


def test_a_gradient_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(JobFailed, match=r"has shape \(2,\) in step 0"):
        train(
            lambda x, part, step: (0.0, 1.0, np.zeros(2)),
            np.zeros(1),
            uncoded(1),
            steps=1,
        )


LAYOUT = VectorLayout(parameters=1, gradient=1)


def test_a_job_that_cannot_be_set_up_is_known_at_start(engine: Local) -> None:
    def make() -> NumpyJob:
        raise FileNotFoundError("no such data")

    with pytest.raises(JobFailed) as caught:
        engine.start(make, LAYOUT, 2)
    assert caught.value.where.endswith(", while it was set up")
    assert "FileNotFoundError: no such data" in caught.value.traceback


def test_a_job_that_dies_while_it_is_set_up_is_known_at_start(engine: Local) -> None:
    with pytest.raises(EngineFailed, match=r"worker \d died while it was set up"):
        engine.start(lambda: os._exit(3), LAYOUT, 2)


def test_a_job_that_cannot_be_unpacked_is_known_at_start(engine: Local) -> None:
    class Fragile:
        def __reduce__(self) -> tuple:
            return int, ("not a number",)

    fragile = Fragile()
    with pytest.raises(JobFailed, match="as it was unpacked: ValueError"):
        engine.start(lambda: fragile, LAYOUT, 2)


def test_a_module_to_preload_that_is_not_there_is_known_at_start() -> None:
    engine = Local(preload=["no_such_module"])
    with pytest.raises(JobFailed, match="No module named 'no_such_module'"):
        engine.start(lambda: None, LAYOUT, 1)


def test_a_worker_that_cannot_be_set_up_again_is_tried_once_more(
    engine: Local, tmp_path: Path
) -> None:
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)

    def make() -> NumpyJob:
        number = len(list(tmp_path.iterdir()))
        (tmp_path / str(number)).touch()
        if number == 1:
            os._exit(1)
        if number == 2:
            raise FileNotFoundError("no such data, at the moment")
        return job

    engine.start(make, LAYOUT, 1)
    driver = Driver(engine, uncoded(1), LAYOUT)
    os.kill(engine.pids[0], signal.SIGKILL)
    assert driver.step(np.ones(1)).vector.tolist() == [1.0, 0.0, 1.0]
    assert engine.lives == (4,)


def test_a_process_that_cannot_be_started_is_known_at_start(
    engine: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EngineFailed, match="forks the workers could not start"):
        engine.start(lambda: None, LAYOUT, 1)


def test_progress_is_shown_beside_what_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        return 0.0, 1.0, x

    train(gradient, np.zeros(1), uncoded(1), steps=2, progress=True)
    printed, shown = capfd.readouterr()
    assert printed == ""
    assert "training" in shown
    assert "100%" in shown


def test_the_process_that_forks_has_one_thread_and_nothing_is_warned_of(
    engine: Local, caplog: pytest.LogCaptureFixture
) -> None:
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, np.linalg.inv(np.eye(9))[0, :1]), 1)
    caplog.set_level(logging.DEBUG, "codedgrad")
    engine.start(lambda: job, job.layout, 2)
    Driver(engine, uncoded(2), job.layout).step(np.zeros(1))
    assert len(list(Path(f"/proc/{engine.nursery}/task").iterdir())) == 1
    assert caplog.records == []


def test_a_library_that_starts_threads_when_imported_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = (
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (tmp_path / "a_busy_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    engine = Local(preload=["a_busy_module"])
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)
    engine.start(lambda: job, job.layout, 1)
    engine.close()
    assert "importing the job started 1 threads" in caplog.text


def test_an_engine_is_started_once(engine: Local) -> None:
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)
    engine.start(lambda: job, job.layout, 1)
    with pytest.raises(ProtocolError, match="started once"):
        engine.start(lambda: job, job.layout, 1)
    engine.close()
    engine.close()  # harmless
    with pytest.raises(ProtocolError, match="started once"):
        engine.start(lambda: job, job.layout, 1)


def test_messages_of_single_precision_train_as_well() -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        assert x.dtype == np.float32
        return 0.0, 1.0, x - part

    run = train(
        gradient, np.zeros(1), fractional(4, 1), steps=60, rate=0.5, dtype="float32"
    )
    assert run.parameters.dtype == np.float32
    np.testing.assert_allclose(run.parameters, [1.5], rtol=1e-6)
