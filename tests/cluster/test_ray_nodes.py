"""A node of a Ray cluster is lost, and another takes its place.

The cluster has two nodes on this machine, with two workers on each. The script, which
is this file, tells what came of it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedgrad.core import Command, Event, Patience, WorkersJoined, WorkersLost
from codedgrad.engines import Driver, Ray
from codedgrad.jobs import NumpyJob, single_process
from codedgrad.schemes import fractional

HANG = 300.0  # seconds; only a hang takes so long
HANGS = Patience(least=HANG, first=HANG)
SIZE, RATE = 5000, 0.1

pytestmark = pytest.mark.timeout(600)  # where the machine is busy otherwise


# -- the script ------------------------------------------------------------------------


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    return 0.0, 1.0, x - np.sin(np.arange(len(x)) * (part + 1) + step)


class Run:
    """Steps on the cluster, one by one."""

    def __init__(self) -> None:
        self.x, self.steps = np.zeros(SIZE), 0
        self.events: list[Event] = []
        self.scheme, self.engine = fractional(4, 1), Ray()
        job = NumpyJob(gradient, SIZE)
        self._driver = Driver(
            self.engine, self.scheme, job.layout, patience=HANGS, watch=self._watch
        )
        self.engine.start(lambda: job, job.layout, 4, parts=self.scheme.parts)

    def _watch(self, event: Event, commands: list[Command]) -> None:
        if isinstance(event, WorkersLost | WorkersJoined):
            self.events.append(event)

    def step(self) -> None:
        self.x = self.x - RATE * self._driver.step(self.x).gradient
        self.steps += 1

    def until(self, kind: type[Event]) -> None:
        while not any(isinstance(event, kind) for event in self.events):
            self.step()

    @property
    def is_right(self) -> bool:
        parts, start = self.scheme.parts, np.zeros(SIZE)
        alone = single_process(gradient, start, parts, steps=self.steps, rate=RATE)
        return bool(np.allclose(self.x, alone.parameters, rtol=1e-10, atol=1e-11))


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False},
    )
    node = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, logging_level="ERROR")
    run = Run()
    hosts = [[*host.workers] for host in run.engine._hosts]
    for _ in range(3):
        run.step()
    cluster.remove_node(node)
    run.until(WorkersLost)
    for _ in range(3):
        run.step()
    cluster.add_node(num_cpus=2)
    run.until(WorkersJoined)
    for _ in range(3):
        run.step()
    told = {
        "hosts": hosts,
        "events": [
            [type(e).__name__, sorted(e.workers), getattr(e, "host", None)]
            for e in run.events
        ],
        "lives": run.engine.lives,
        "right": run.is_right,
    }
    run.engine.close()
    print(json.dumps(told))
    ray.shutdown()
    cluster.shutdown()


# -- the tests -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, str(Path(__file__))],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_root_is_the_agent_of_its_own_node(told: dict[str, Any]) -> None:
    assert told["hosts"] == [[0, 2], [1, 3]]


def test_a_node_that_is_lost_is_one_event_and_so_is_the_one_in_its_place(
    told: dict[str, Any],
) -> None:
    assert told["events"] == [
        ["WorkersLost", [1, 3], None],
        ["WorkersJoined", [1, 3], 1],
    ]
    assert told["lives"] == [1, 2, 1, 2]


def test_training_goes_on_meanwhile_and_is_right(told: dict[str, Any]) -> None:
    assert told["right"]


if __name__ == "__main__":
    main()
