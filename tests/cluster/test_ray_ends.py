"""However a script with a Ray cluster of its own ends, nothing of it is left.

And if it was killed it goes on, as if nothing had happened. This file is the script.
"""

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import codedgrad as cg
from codedgrad.engines.ray.cluster import _LONGEST
from codedgrad.engines.ray.guard import members, sweep
from codedgrad.torch import Checkpoints, Job
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.state_tree import flatten
from codedgrad.trace import read_run

HANG = 60.0  # seconds; only a hang takes so long
TOTAL = 80
EVERY = 5  # steps from a checkpoint to the next
TOLD = 2 * EVERY + 2  # the step in which the script is told to stop
FOLDER = "cg-".ljust(_LONGEST - len("/tmp/12345678"), "-")  # as long as it may be
FOR_EVER = 10**6  # steps

pytestmark = pytest.mark.timeout(300)  # where the machine is busy otherwise


# -- the script ------------------------------------------------------------------------


def job() -> Job:
    x = torch.randn(24, 3, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 3)).double()
    return Job(model, F.cross_entropy, (x, x.argmax(dim=1)), batch_size=8)


def train(
    folder: str,
    total: int,
    engine: str = "ray",
    told: Callable[[int], None] = lambda step: None,
    then: Callable[[], None] = lambda: None,
) -> None:
    with cg.torch.train(
        job,
        scheme="fractional(1)",
        workers=2,
        engine=engine,
        run_dir=folder,
        resume="auto",
        checkpoints=Checkpoints(seconds=None, steps=EVERY),
    ) as coded:
        optimizer = torch.optim.AdamW(coded.model.parameters(), lr=0.05)
        coded.track(optimizer=optimizer)
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(coded.step)
        for step in coded.steps(total):
            coded.backward()
            optimizer.step()
            told(step)
        then()


def stop(step: int) -> None:
    """Send SIGTERM in the midst of an update."""
    if step == TOLD:
        os.kill(os.getpid(), signal.SIGTERM)


def fail() -> None:
    raise ValueError("in the user's own code")


STARTS = """
import numpy as np
from codedgrad.engines import train
from codedgrad.schemes import uncoded
gradient = lambda x, part, step: (0.0, 1.0, x)
train(gradient, np.ones(3), uncoded(2), steps=1, engine="ray")
"""


# -- a life of it ----------------------------------------------------------------------


class Life:
    """The script, from its start to its end.

    Attributes:
        steps: Those it has done.
        pids: It, and all processes below it that were noted.
        modes: Of the folders in which it keeps its cluster.
        code: Its exit code.
    """

    def __init__(self, base: Path, name: str, *words: str) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix=FOLDER, dir="/tmp"))
        self.modes: list[int] = []
        self.folder = base / "run"
        self.errors = base / f"{name}.err"
        self.steps: list[int] = []
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *(words or (__file__, str(self.folder), name))],
                env={**os.environ, "TMPDIR": str(self.temporary)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                process_group=0,  # as a terminal's Ctrl-C would reach it
                preexec_fn=lambda: signal.signal(
                    signal.SIGINT, signal.default_int_handler
                ),
            )
        self.pids = {self.process.pid}

    def until(self, step: int) -> None:
        """Wait until a step is done; note the processes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.steps.append(int(line))
            if self.steps[-1] >= step:
                self.pids |= below(self.process.pid)
                folders = self.temporary.glob("codedgrad-*")
                self.modes = [stat.S_IMODE(path.stat().st_mode) for path in folders]
                return
        pytest.fail(self.errors.read_text())

    def one_of(self, named: str) -> int:
        """Return a process below it whose command says something; wait for one."""
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            self.pids |= below(self.process.pid)
            for pid in self.pids:
                if named in command(pid):
                    return pid
            time.sleep(0.01)
        pytest.fail(self.errors.read_text())

    def ends(self) -> None:
        """Wait for its end, and that of all the others."""
        assert self.process.stdout is not None
        self.steps += map(int, self.process.stdout)
        self.code = self.process.wait(HANG)
        self.process.stdout.close()
        wait_until(lambda: not self.left)

    @property
    def left(self) -> list[str]:
        """The commands of its processes that have not ended."""
        pids = {int(path.name) for path in Path("/proc").glob("[0-9]*")}
        named = [pid for pid in pids if str(self.temporary) in command(pid)]
        return [command(pid) for pid in {*self.pids, *named} if state(pid)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)


def below(pid: int) -> set[int]:
    """Return the processes below one."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(parent, []).append(int(path.parent.name))
    found = set[int]()
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found.update(children)
        todo += children
    return found


def state(pid: int) -> str:
    """Return how a process is; empty if it has ended."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if found in "ZX" else found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until(what: Callable[[], bool]) -> None:
    """Look until it is so, or until a hang is called one."""
    deadline = time.monotonic() + HANG
    while not what() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.fixture(scope="module")
def lives(
    together: Callable[..., list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Life]]:
    pytest.importorskip("ray")
    lives: dict[str, Life] = {}

    def live(name: str, where: Path, *words: str) -> Life:
        lives[name] = Life(where, name, *words)
        return lives[name]

    def killed() -> None:
        base = tmp_path_factory.mktemp("killed")
        life = live("killed", base)
        life.until(EVERY + 2)
        os.kill(life.one_of("ray::Host"), signal.SIGSTOP)
        life.process.kill()
        life.ends()
        life = live("resumed", base)
        life.until(0)
        life.ends()

    def interrupted() -> None:
        life = live("interrupted", tmp_path_factory.mktemp("interrupted"))
        life.until(3)
        os.killpg(life.process.pid, signal.SIGINT)
        life.ends()

    def terminated() -> None:
        life = live("terminated", tmp_path_factory.mktemp("terminated"))
        life.until(3)
        life.ends()

    def starting() -> None:
        life = live("starting", tmp_path_factory.mktemp("starting"), "-c", STARTS)
        life.one_of("/raylet/raylet")
        os.killpg(life.process.pid, signal.SIGINT)
        life.ends()

    try:
        together([killed, interrupted, terminated, starting], at_once=2)
        yield lives
    finally:
        for life in lives.values():
            life.close()


ALL = pytest.mark.parametrize(
    "name", ["killed", "resumed", "interrupted", "terminated", "starting"]
)


@ALL
def test_no_process_and_no_file_of_its_cluster_is_left(
    lives: dict[str, Life], name: str
) -> None:
    life = lives[name]
    assert len(life.pids) >= (3 if name == "starting" else 12)  # of Ray and of ours
    assert life.left == []
    assert list(life.temporary.glob("codedgrad-*")) == []


@pytest.mark.parametrize("name", ["killed", "interrupted"])
def test_nobody_else_may_enter_the_folder_of_its_cluster(
    lives: dict[str, Life], name: str
) -> None:
    assert lives[name].modes == [0o700]


def test_sigterm_in_the_midst_of_an_update_leaves_a_checkpoint_of_that_step(
    lives: dict[str, Life],
) -> None:
    life = lives["terminated"]
    assert life.code == 128 + signal.SIGTERM
    assert life.steps[-1] == TOLD
    newest = Shelf(life.folder / "checkpoints").newest()
    assert newest is not None
    assert newest[0] == TOLD + 1


def test_a_run_that_was_killed_goes_on_to_the_same_end_to_the_last_bit(
    lives: dict[str, Life], tmp_path: Path
) -> None:
    killed, resumed = lives["killed"], lives["resumed"]
    assert killed.code == -signal.SIGKILL
    assert EVERY < killed.steps[-1] < TOTAL
    assert 0 < resumed.steps[0] <= killed.steps[-1] + 1
    assert resumed.steps[0] % EVERY == 0  # at a checkpoint
    assert resumed.steps[-1] == TOTAL - 1
    train(str(tmp_path), TOTAL, engine="here")
    assert outcome(resumed.folder) == outcome(tmp_path)


def outcome(folder: Path) -> tuple[object, ...]:
    """Return all that a run has come to, to the last bit, but for its times."""
    newest = Shelf(folder / "checkpoints").newest()
    assert newest is not None
    told = ("seconds", "learnt", "manifest")  # of how it came about
    structure, tensors = flatten({k: v for k, v in newest[1].items() if k not in told})
    bits = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return structure, bits, [(line.step, line.loss) for line in read_run(folder).steps]


@pytest.mark.parametrize(
    ("name", "code", "last"),
    [
        ("interrupted", 128 + signal.SIGINT, 'go on with resume="auto"'),
        ("starting", -signal.SIGINT, "KeyboardInterrupt"),
        ("resumed", 1, "ValueError: in the user's own code"),
    ],
)
def test_a_script_ends_as_any_other_would(
    lives: dict[str, Life], name: str, code: int, last: str
) -> None:
    assert lives[name].code == code
    assert lives[name].errors.read_text().rstrip().endswith(last)


# -- the guard -------------------------------------------------------------------------


def test_readers_of_its_files_and_forks_of_the_root_are_no_part_of_a_cluster(
    tmp_path: Path,
) -> None:
    folder, waits = tmp_path / "cluster", [sys.executable, "-c", "input()"]
    folder.mkdir()
    with (
        (folder / "log").open("w") as log,
        (folder / "log").open() as copy,
        (folder / f"core_{os.getpid()}.log").open("w") as roots,
    ):
        processes = [
            subprocess.Popen([*waits, *words], stdin=subprocess.PIPE, **how)
            for words, how in [
                ([], {"stdout": log}),
                ([f"--temp-dir={folder}/session"], {}),
                ([f"{folder}/log"], {"pass_fds": [copy.fileno()]}),
                ([], {"stdout": roots}),
            ]
        ]
        try:
            writes, told, reads, forked = processes
            found = members(str(folder), os.getpid())
            assert set(found) == {writes.pid, told.pid}
            sweep(str(folder), os.getpid())
            assert writes.wait(HANG) == told.wait(HANG) == -signal.SIGKILL
            assert reads.poll() is forked.poll() is None
            assert not folder.exists()
        finally:
            for process in processes:
                process.kill()
                process.communicate()


if __name__ == "__main__":
    folder, name = sys.argv[1:]
    is_last = name == "resumed"

    def told(step: int) -> None:
        print(step, flush=True)
        if name == "terminated":
            stop(step)

    train(folder, TOTAL if is_last else FOR_EVER, told=told, then=fail)
