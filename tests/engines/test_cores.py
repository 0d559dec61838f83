"""How many threads a worker computes with, and which GPUs it sees."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codedgrad.engines import Here, Local
from codedgrad.engines.host import cores
from codedgrad.engines.host.cores import (
    checked_threads,
    own_devices,
    threads_per_worker,
    usable_cores,
)
from codedgrad.engines.registry import engine_named, engine_of
from codedgrad.errors import InvalidOptions


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({}, None),
        ({"cpu.max": "nonsense"}, None),
    ],
    ids=["v2 none", "v2", "v1 none", "v1", "no files", "nonsense"],
)
def test_the_quota_of_a_container_is_read_in_both_versions(
    files: dict[str, str],
    quota: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cores, "_CGROUPS", tmp_path)
    assert cores._quota() == quota
    allowed = len(os.sched_getaffinity(0))
    expected = allowed if quota is None else min(allowed, 2 if quota > 1 else 1)
    assert usable_cores() == expected


def test_cores_that_a_process_may_not_use_are_not_counted() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from codedgrad.engines.host.cores import usable_cores; print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert done.stdout == b"1\n"


def test_a_worker_has_its_share_of_the_cores_and_one_thread_at_least() -> None:
    assert [threads_per_worker(0, 8, workers) for workers in (1, 3, 8, 9)] == [
        8, 2, 1, 1,
    ]  # fmt: skip
    assert threads_per_worker(5, 8, 8) == 5
    assert checked_threads("auto") == 0
    assert checked_threads(4) == 4


@pytest.mark.parametrize("threads", [0, -1, "many", True, 1.5, None])
def test_what_is_no_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(InvalidOptions, match=r"threads: is .*; try 1 or more, or "):
        Local(threads=threads)


def test_threads_are_said_by_name_or_by_the_engine_and_not_twice() -> None:
    assert isinstance(engine_named("here"), Here)
    with pytest.raises(InvalidOptions, match="engine='here' computes in this process"):
        engine_named("here", threads=2)
    with pytest.raises(InvalidOptions, match="the engine is made already"):
        engine_of(Local(), threads=2)


@pytest.mark.parametrize(
    ("visible", "workers", "seen"),
    [
        ("0,1,2,3", 2, ["0,1", "2,3"]),
        ("7,GPU-8a", 2, ["7", "GPU-8a"]),
        ("0", 2, ["0", "0"]),
        ("", 2, ["", ""]),
    ],
)
def test_gpus_of_a_host_are_shared_out_if_there_are_enough(
    visible: str, workers: int, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(workers):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        own_devices(index, workers)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen[index]


THREADS = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from codedgrad.engines import Driver, Local
from codedgrad.jobs import NumpyJob, VectorLayout
from codedgrad.schemes import uncoded

def gradient(x, part, step):
    import torch
    pools = {pool["num_threads"] for pool in threadpool_info()}
    return 0.0, 1.0, np.array([torch.get_num_threads(), min(pools), max(pools)], float)

def make():
    import torch
    return NumpyJob(gradient, 3)

layout = VectorLayout(parameters=3, gradient=3)
engine = Local(threads=3, preload=("torch",) if sys.argv[1] == "before" else ())
engine.start(make, layout, 1)
print(*Driver(engine, uncoded(1), layout).step(np.zeros(3)).gradient)
engine.close()
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_every_library_of_a_worker_computes_with_so_many_threads(when: str) -> None:
    """Whether it is loaded before the worker is forked, or by its job."""
    pytest.importorskip("torch")
    words = [sys.executable, "-c", THREADS, when]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110)
    assert (done.stdout, done.stderr) == ("3.0 3.0 3.0\n", "")
