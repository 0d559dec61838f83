"""Every order is carried out on the parameters of its own step, however slow."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedgrad.engines import Driver, Local
from codedgrad.errors import InvalidOptions, JobFailed
from codedgrad.jobs import NumpyJob, VectorLayout
from codedgrad.schemes import fractional, uncoded

SIZE = 50_000  # long enough to be read while it is written
STEPS = 100
LAYOUT = VectorLayout(parameters=SIZE, gradient=1)


def wary(folder: Path) -> Callable[[], object]:
    """Make a job that raises if its parameters are not, or do not stay, its step's.

    In both groups of three, two workers are slow: the first ones to come.
    """

    class Wary:
        layout = LAYOUT
        sleeps: float | None = None

        def part(
            self,
            parameters: np.ndarray,
            part: int,
            step: int,
            coefficient: float,
            out: np.ndarray,
            add: bool,
        ) -> None:
            if self.sleeps is None:
                self.sleeps = 0.01 if self.is_among_the_first(part // 3) else 0.0
            for look in range(6):
                low, high = parameters.min(), parameters.max()
                if not low == high == step:
                    raise ValueError(f"look {look}: {low} to {high}, not {step}")
                time.sleep(self.sleeps)
            out[:] = out + coefficient if add else coefficient

        def is_among_the_first(self, group: int) -> bool:
            for number in range(2):
                try:
                    os.close(
                        os.open(folder / f"{group} {number}", os.O_CREAT | os.O_EXCL)
                    )
                except FileExistsError:
                    continue
                return True
            return False

    return Wary


@pytest.fixture
def engine() -> Iterator[Local]:
    engine = Local()
    yield engine
    engine.close()


def run(engine: Local, folder: Path) -> int:
    """Take many steps; return how many laggards were behind, on average."""
    scheme = fractional(6, 2)
    engine.start(wary(folder), LAYOUT, scheme.workers)
    driver = Driver(engine, scheme, LAYOUT)
    late = 0
    for step in range(STEPS):
        late += len(driver.step(np.full(SIZE, float(step))).report.late)
    while engine.next_event(0.2) is not None:  # until the last laggard has reported
        pass
    return late // STEPS


def test_slow_workers_see_the_parameters_of_their_step_as_long_as_they_look(
    engine: Local, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = run(engine, tmp_path)
    assert late >= 3  # so a version is written again while laggards read others
    assert [record.getMessage() for record in caplog.records] == []
    assert engine.lives == (1,) * 6
    assert engine.shape.versions > 6  # one is free whatever is in hand
    assert engine.shape.rows == 6 * 8 * 2


def test_a_root_that_writes_over_what_is_being_read_would_be_caught(
    engine: Local,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = Local.publish

    def careless(self: Local, step: int, parameters: np.ndarray, *_: Any) -> None:
        held = [handle.in_hand for handle in self._handles]
        for handle in self._handles:
            handle.in_hand = None  # so that version 0 is always free
        publish(self, step, parameters)
        for handle, step_in_hand in zip(self._handles, held, strict=True):
            handle.in_hand = step_in_hand

    monkeypatch.setattr(Local, "publish", careless)
    caught = ""
    try:
        run(engine, tmp_path)
    except JobFailed as failed:  # two of them, in the same part
        caught = str(failed)
    assert "ValueError: look" in caught + caplog.text


def test_workers_cannot_write_to_the_parameters(engine: Local) -> None:
    class Greedy:
        layout = VectorLayout(parameters=3, gradient=3)

        def part(self, parameters: np.ndarray, *_: object) -> None:
            parameters[0] = 1.0

    engine.start(Greedy, Greedy.layout, 1)
    with pytest.raises(JobFailed, match="read-only"):
        Driver(engine, uncoded(1), Greedy.layout).step(np.zeros(3))


def test_parameters_of_another_length_are_refused(engine: Local) -> None:
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 3)
    engine.start(lambda: job, job.layout, 1)
    with pytest.raises(InvalidOptions, match=r"parameters: have shape \(4,\)"):
        engine.publish(0, np.zeros(4))
