"""Limits of messages, of the system and of patience end in one sentence."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from codedgrad.engines import Driver, Local, train
from codedgrad.engines.host import nursery_client as children
from codedgrad.engines.host.nursery_client import LARGEST_JOB, Restarts, packed
from codedgrad.engines.host.wire import Channel
from codedgrad.engines.ray import cluster as ray_cluster
from codedgrad.errors import EngineFailed
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import uncoded

_spec = importlib.util.spec_from_file_location(
    "loopback", Path(__file__).with_name("loopback.py")
)
assert _spec is not None
assert _spec.loader is not None
loopback = importlib.util.module_from_spec(_spec)
sys.modules["loopback"] = loopback
_spec.loader.exec_module(loopback)


def gradient(x, part, step):  # type: ignore[no-untyped-def]
    return 0.0, 1.0, x


# -- a job that is too long ------------------------------------------------------------


def test_the_longest_job_is_the_longest_that_a_frame_can_hold() -> None:
    too_long = memoryview(np.empty(LARGEST_JOB + 1, dtype=np.uint8))  # never touched
    with pytest.raises(msgspec.EncodeError, match=r"longer than 2\*\*32 - 1"):
        msgspec.msgpack.encode(too_long)
    assert LARGEST_JOB == 2**32 - 1


def test_a_job_of_the_longest_length_travels_and_one_byte_more_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    length = len(packed(gradient))
    monkeypatch.setattr(children, "LARGEST_JOB", length)
    assert len(packed(gradient)) == length
    monkeypatch.setattr(children, "LARGEST_JOB", length - 1)
    with pytest.raises(EngineFailed, match="GiB long once it is pickled"):
        packed(gradient)


def test_a_job_that_takes_too_much_along_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "LARGEST_JOB", 2**20)
    data = np.zeros(2**18)
    with pytest.raises(EngineFailed) as caught:
        train(lambda x, part, step: (data[0], 1.0, x), np.zeros(1), uncoded(1), steps=1)
    said = str(caught.value)
    assert said.startswith("the job is 0.00195 GiB long once it is pickled, and 0.000")
    assert "; try reading large data inside the job instead of taking it along" in said


# -- too few file descriptors ----------------------------------------------------------

FEW = """
import json, re, resource, sys
import numpy as np
from codedgrad.engines import Local, train
from codedgrad.errors import EngineFailed
from codedgrad.schemes import uncoded

def run():
    train(lambda x, part, step: (0.0, 1.0, x), np.zeros(1), uncoded(40), steps=1)

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), hard))
try:
    run()
except EngineFailed as error:
    said = str(error)
enough = int(re.search("ulimit -n ([0-9]+)", said)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
run()
print(json.dumps([said, enough]))
"""


@pytest.mark.parametrize("limit", [8, 36])
def test_too_few_descriptors_are_one_sentence_and_its_advice_is_enough(
    limit: int,
) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", FEW, str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.stderr == ""
    said, enough = json.loads(shown.stdout)
    assert said == (
        f"this process may have {limit} files open, too few for 40 workers; "
        f"try `ulimit -n {enough}` before it starts"
    )


# -- a nursery that dies ---------------------------------------------------------------


def test_deaths_that_are_far_apart_are_never_too_many() -> None:
    restarts = Restarts()
    for life in range(100):
        restarts.begin(at=60.0 * life)


def test_the_third_short_life_in_a_row_is_the_last() -> None:
    restarts = Restarts()
    for at in (0.0, 1.0, 2.0, 62.0, 121.9, 181.8):
        restarts.begin(at)
    with pytest.raises(EngineFailed, match="has died 3 times, each within 60 s"):
        restarts.begin(241.7)


def test_a_long_run_goes_on_after_a_fourth_death_of_the_nursery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "_SHORT_LIFE", 0.0)  # whatever it is, it was longer
    job = NumpyJob(gradient, 1)
    engine = Local()
    try:
        engine.start(lambda: job, job.layout, 1)
        for _ in range(4):
            nursery = engine.nursery
            os.kill(nursery, signal.SIGKILL)
            while engine.nursery == nursery:
                engine._poll(1.0)
        Driver(engine, uncoded(1), job.layout).step(np.zeros(1))
    finally:
        engine.close()


@pytest.mark.parametrize("of", ["worker", "nursery"])
def test_a_run_goes_on_after_a_ctrl_c_while_something_was_read(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: what was read last is lost, and so is that process."""
    job, engine, read = NumpyJob(gradient, 1), Local(), Channel._read
    interrupted: list[Channel] = []

    def read_once(channel: Channel) -> None:
        read(channel)
        host = engine._root_host
        assert host is not None
        is_nursery = channel is host._children.channel
        if not interrupted and is_nursery == (of == "nursery"):
            interrupted.append(channel)
            raise KeyboardInterrupt

    try:
        engine.start(lambda: job, job.layout, 2, parts=2)
        driver = Driver(engine, uncoded(2), job.layout)
        driver.step(np.zeros(1))
        monkeypatch.setattr(Channel, "_read", read_once)
        if of == "nursery":
            os.kill(engine.pids[0], signal.SIGKILL)  # it is to say so
        with suppress(KeyboardInterrupt):
            while not interrupted:
                driver.step(np.zeros(1))
        assert interrupted
        lives = sum(engine.lives)
        driver.step(np.zeros(1))
        assert sum(engine.lives) > lives
        driver.step(np.zeros(1))
    finally:
        engine.close()


def test_a_host_gives_its_nursery_up_by_the_same_rule_and_is_set_up_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = NumpyJob(gradient, 1)
    engine = loopback.Looped()
    try:
        engine.start(lambda: job, job.layout, 1)
        driver = Driver(engine, uncoded(1), job.layout)
        for _ in range(3):
            driver.step(np.zeros(1))
            pid = engine.pids[0]
            nursery = int(Path(f"/proc/{pid}/stat").read_text().split()[3])
            os.kill(nursery, signal.SIGKILL)
            while engine.pids[0] == pid:
                engine._poll(1.0)
        driver.step(np.zeros(1))
    finally:
        engine.close()
    assert "has died 3 times, each within 60 s" in caplog.text
    assert "host 1 (" in caplog.text
    assert "; it is set up again" in caplog.text


# -- a module of the working directory -------------------------------------------------


def test_joining_ray_does_not_run_a_ray_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    (tmp_path / "ray.py").write_text("open('marker', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    script = "import ray, sys; sys.exit('none here: ' + str(ray.__file__))"
    monkeypatch.setattr(ray_cluster, "JOIN", script)
    cluster = ray_cluster.Cluster.__new__(ray_cluster.Cluster)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(EngineFailed, match=r"none here: .*__init__\.py"):
            cluster._join(address, None)
    assert not (tmp_path / "marker").exists()
