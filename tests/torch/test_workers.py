"""`coded.workers`: where the workers of a run are, through a death and a return."""

import os
import signal

import pytest
import torch
from torch import nn

from codedgrad.engines.host.same_job import host_name
from codedgrad.torch import Job, WorkerStatus, train


def job() -> Job:
    x = torch.linspace(0, 1, 8).reshape(8, 1)
    return Job(nn.Linear(1, 1), nn.MSELoss(), (x, 2 * x), batch_size=4)


@pytest.mark.parametrize("uplink", [None, "fair"])
def test_a_worker_is_listed_before_its_death_and_after_its_return(
    caplog: pytest.LogCaptureFixture, uplink: str | None
) -> None:
    with train(job, scheme="uncoded", workers=2, uplink=uplink) as coded:
        before = coded.workers
        assert [worker.number for worker in before] == [0, 1]
        assert before[1].pid is not None
        os.kill(before[1].pid, signal.SIGKILL)
        while coded.workers[1].state != "lost":
            """The root notices it between two steps, too."""
        assert coded.workers[1] == WorkerStatus(1, host_name(), None, "lost")
        while "worker 1 is back" not in caplog.text:
            coded.backward()
        after = coded.workers
        assert after[0].pid == before[0].pid
        assert after[1].pid not in (None, before[1].pid)
        assert f"is back (pid {after[1].pid} on {host_name()})" in caplog.text
    assert {worker.state for worker in coded.workers} == {"ended"}


def test_without_processes_all_workers_are_the_root() -> None:
    with train(job, workers=2, engine="here") as coded:
        coded.backward()
        assert [worker.pid for worker in coded.workers] == [os.getpid()] * 2
        assert str(coded.workers).splitlines()[0].split() == [
            "worker", "host", "pid", "state",
        ]  # fmt: skip
