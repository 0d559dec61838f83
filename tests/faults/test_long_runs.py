"""Long runs do not grow: memory and open files, of the root and of its workers."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codedgrad.engines import Driver, Local
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import fractional

SIZE = 20_000  # numbers: one more vector a step would be 160 kB a step
ALLOWED = 2.0  # MB, for what allocators keep


@pytest.fixture
def engine() -> Iterator[Local]:
    engine = Local()
    yield engine
    engine.close()


def own_memory(pid: int) -> float:
    """Return the MB of a process that nobody shares and no file holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"RssAnon:\s*(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1000


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.hypothesis  # so that a soak runs it
@pytest.mark.timeout(3600)
def test_memory_and_open_files_do_not_grow(engine: Local, long_steps: int) -> None:
    """One worker in four is killed on the way; the others live as long as the run."""
    scheme = fractional(4, 1)
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), SIZE)
    engine.start(lambda: job, job.layout, scheme.workers)
    driver, x = Driver(engine, scheme, job.layout), np.ones(SIZE)

    def run(steps: int) -> None:
        for step in range(steps):
            driver.step(x)
            if step == steps // 2:
                killed = engine.pids[0]
                os.kill(killed, signal.SIGKILL)
                while engine.pids[0] in (0, killed):
                    driver.step(x)  # until it is back

    run(100)
    pids = [os.getpid(), engine.nursery, *engine.pids[1:]]
    memory, files = [*map(own_memory, pids)], [*map(open_files, pids)]
    run(long_steps)
    assert [*map(open_files, pids)] == files
    grown = np.array([*map(own_memory, pids)]) - memory
    print(f"{long_steps} steps: grown by {grown} MB")
    assert (grown < ALLOWED).all(), grown
    assert engine.pids[1:] == tuple(pids[2:])
    assert engine.lives == (3, 1, 1, 1)
