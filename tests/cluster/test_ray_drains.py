"""Ray drains a host: of the root, a checkpoint is written; of a worker, a line is said.

The cluster has two nodes on this machine. The script, which is this file, has a worker
on each; one is stopped in a step, which so waits until the test lets it go on.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import codedgrad as cg
from codedgrad.core import Command, Event, MessageArrived
from codedgrad.engines import FaultPlan, Ray
from codedgrad.torch import Checkpoints, Job
from codedgrad.torch.checkpoint.files import Shelf

HANG = 200.0  # seconds; only a hang takes so long
TOTAL, WAITS = 8, 4  # steps; the one that waits
GRACE = 600  # seconds, that Ray is told

pytestmark = pytest.mark.timeout(600)  # where the machine is busy otherwise


# -- the script ------------------------------------------------------------------------


def job() -> Job:
    x = torch.randn(24, 3)
    return Job(nn.Linear(3, 1), nn.MSELoss(), (x, x.sum(1, keepdim=True)), 8)


def be_root(folder: str, drained: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False},
    )
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="ERROR")
    root = ray.get_runtime_context().get_node_id()
    engine = Ray()

    def watch(event: Event, commands: list[Command]) -> None:
        if isinstance(event, MessageArrived) and event.step == WAITS:
            nodes = engine._launcher._nodes()
            assert set(nodes) > {root}
            is_root = drained == "root"
            [node] = [n for n in nodes if (n == root) is is_root]
            drain(cluster.address, node)
            print(engine.pids[0], flush=True)

    with cg.torch.train(
        job, scheme="uncoded", workers=2, engine=engine, run_dir=folder,
        checkpoints=Checkpoints(seconds=None), watch=watch,
        faults=FaultPlan().stop(0, WAITS, 1000.0),
    ) as coded:  # fmt: skip
        for _ in coded.steps(TOTAL):
            coded.backward()
    ray.shutdown()
    cluster.shutdown()


def drain(address: str, node: str) -> None:
    """Do what a cloud's preemption does."""
    reason = "DRAIN_NODE_REASON_PREEMPTION"
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "drain-node",
        "--address", address, "--node-id", node, "--reason", reason,
        "--reason-message", "spot", "--deadline-remaining-seconds", str(GRACE),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=HANG)


# -- the tests -------------------------------------------------------------------------


@pytest.mark.parametrize(("drained", "written"), [("root", [4, 8]), ("worker", [8])])
def test_the_root_writes_a_checkpoint_when_its_own_host_is_drained(
    tmp_path: Path, drained: str, written: list[int]
) -> None:
    pytest.importorskip("ray")
    shelf, errors = Shelf(tmp_path / "run" / "checkpoints"), tmp_path / "errors.txt"
    with errors.open("w") as file, tempfile.TemporaryDirectory(dir="/tmp") as ray:
        process = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path / "run"), drained],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": ray},
        )
        with process:
            try:
                assert process.stdout is not None
                stopped = process.stdout.readline()
                assert stopped, errors.read_text()
                wait_for(lambda: "will be taken away" in errors.read_text())
                if drained == "root":
                    wait_for(lambda: shelf.steps() == [WAITS])
                os.kill(int(stopped), signal.SIGCONT)
                assert process.wait(HANG) == 0, errors.read_text()
            finally:
                process.terminate()
                try:
                    process.wait(HANG)
                finally:
                    process.kill()
    assert shelf.steps() == written
    said = [x for x in errors.read_text().splitlines() if "taken away" in x]
    [line] = said  # once
    assert line.startswith("the root's host" if drained == "root" else "host")
    seconds = int(line.partition(" in ")[2].split()[0])
    assert 0 < seconds <= GRACE
    assert line.endswith("(Ray drains it)")


def wait_for(what: Callable[[], object]) -> None:
    """Look until it is so, or until a hang is called one."""
    deadline = time.monotonic() + HANG
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


if __name__ == "__main__":
    be_root(*sys.argv[1:])
