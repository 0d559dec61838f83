"""A probe on real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codedgrad.advise import Asked, plan, probe, read_probe, source_from
from codedgrad.advise.probe.probe import Work
from codedgrad.engines import Local
from codedgrad.jobs import NumpyJob

PATIENCE = 60.0  # seconds; only a hang takes so long

JOB = """
import os
import time
import torch
from codedgrad.torch import Job


def loss(model, batch):
    x, y = batch
    with open(os.environ["TOLD"], "a") as told:
        told.write(f"{os.getpid()}\\n")
    while "BLOCKS" in os.environ:  # until it is killed
        time.sleep(0.05)
    return ((model(x) - y) ** 2).sum(), len(x)


def job():
    x = torch.arange(64.0).reshape(64, 1)
    return Job(torch.nn.Linear(1, 1), loss, (x, 2 * x), batch_size=32)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_job.py").write_text(JOB)
    return tmp_path


def command(*words: str) -> list[str]:
    local = ["--engine", "local", "--workers", "3"]
    return [sys.executable, "-m", "codedgrad", "probe", *local, *words]


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TOLD": str(folder / "told")}


@pytest.mark.long
def test_a_probe_measures_the_users_own_job_in_processes_of_its_own(
    folder: Path,
) -> None:
    shown = subprocess.run(
        command("--job", "own_job:job", "--steps", "3", "--out", "probe.json"),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "own_job:job: 3 workers (local), 3 steps at each load" in shown.stdout
    found = read_probe(folder / "probe.json")
    assert (found.engine, found.workers, found.pieces) == ("local", 3, 8)
    assert np.shape(found.seconds) == np.shape(found.doubled) == (3, 3)
    assert np.shape(found.uploads) == (6, 3)
    assert 0 < found.latency < found.typical + PATIENCE
    assert str(folder) not in (folder / "probe.json").read_text()
    computed = set((folder / "told").read_text().split())
    assert len(computed) == 6  # 3 workers of each of 2 runs, and nobody else
    until(lambda: not any(map(is_there, computed)))
    planned = plan(source_from(folder / "probe.json"), Asked())
    assert (planned.setting.field.workers, planned.setting.field.steps) == (3, 3)
    assert "Only 3 steps" in " ".join(planned.setting.warnings)
    assert 0 <= (planned.setting.share or 0) <= 1


def test_twice_the_load_is_twice_the_parts_in_one_step() -> None:
    def gradient(
        x: np.ndarray, part: int, step: int
    ) -> tuple[float, float, np.ndarray]:
        time.sleep(0.04)
        return 0.0, 1.0, x

    def cut(parts: int) -> Work:
        job = NumpyJob(gradient, 3)
        return Work(lambda: job, job.layout, np.zeros(3))

    found = probe(cut, Local, 2, steps=3, pieces=1)
    assert np.min(found.seconds) >= 0.04  # sleep is never shorter than asked for
    assert np.min(found.doubled) >= 0.08


@pytest.mark.long
def test_ctrl_c_leaves_no_process_and_no_file(folder: Path) -> None:
    process = subprocess.Popen(
        command("--job", "own_job:job", "--steps", "1", "--out", "probe.json"),
        cwd=folder,
        env=environment(folder) | {"BLOCKS": "yes"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # if ignored
    )
    told = folder / "told"
    try:
        until(lambda: told.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    # A busy machine may also be told that workers take long to start.
    lines = [line for line in err.splitlines() if not line.startswith("still waiting")]
    assert lines == ["interrupted: nothing was written"]
    assert not (folder / "probe.json").exists()
    until(lambda: not any(map(is_there, told.read_text().split())))


def is_there(pid: str) -> bool:
    return Path("/proc", pid).exists()


def until(done: Callable[[], bool]) -> None:
    """Wait for something; only a hang takes long."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
