"""However a script with a Ray cluster of its own ends, no process of it is left.

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
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import codedgrad as cg
from codedgrad.engines import Engine, Ray
from codedgrad.engines.ray.cluster import _LONGEST
from codedgrad.torch import Checkpoints, Job
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.state_tree import flatten
from codedgrad.trace import read_run

HANG = 200.0  # seconds; only a hang takes so long
TOTAL = 80
EVERY = 5  # steps from a checkpoint to the next
TOLD = 2 * EVERY + 2  # the step in which the script is told to stop
FOLDER = "cg-".ljust(_LONGEST - len("/tmp/12345678"), "-")  # as long as it may be
FOR_EVER = 10**6  # steps

pytestmark = pytest.mark.timeout(600)  # where the machine is busy otherwise


# -- the script ------------------------------------------------------------------------


def job() -> Job:
    x = torch.randn(24, 3, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 3)).double()
    return Job(model, F.cross_entropy, (x, x.argmax(dim=1)), batch_size=8)


def train(
    folder: str,
    total: int,
    engine: Engine | str = "ray",
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
        agents: The processes of its actors.
        pids: Of all processes that were noted.
        modes: Of the folders in which it keeps its cluster.
        code: Its exit code.
    """

    def __init__(self, base: Path, name: str, *words: str) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix=FOLDER, dir="/tmp"))
        self.modes: list[int] = []
        self.folder = base / "run"
        self.errors = base / f"{name}.err"
        self.steps: list[int] = []
        self.agents: list[int] = []
        self.pids = set[int]()
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

    @property
    def left(self) -> dict[int, str]:
        """Its processes that have not ended, with their commands."""
        mark, found = f"TMPDIR={self.temporary}".encode(), {}
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has just ended, or is somebody else's
                if mark in path.read_bytes().split(b"\0"):
                    command = path.with_name("cmdline").read_text(errors="replace")
                    found[int(path.parent.name)] = command.replace("\0", " ")
        return found

    def until(self, step: int) -> None:
        """Wait until a step is done; note the processes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._note(line)
            if self.steps[-1:] >= [step]:
                self.pids.update(self.left)
                folders = self.temporary.glob("codedgrad-*")
                self.modes = [stat.S_IMODE(path.stat().st_mode) for path in folders]
                return
        pytest.fail(self.errors.read_text())

    def _note(self, line: str) -> None:
        name, _, words = line.rpartition(":")
        if name == "agents":
            self.agents = [*map(int, words.split())]
        else:
            self.steps.append(int(words))

    def one_of(self, named: str) -> int:
        """Return a process of it whose command says something; wait for one."""
        wait_until(lambda: any(named in command for command in self.left.values()))
        left = self.left
        self.pids.update(left)
        return next(pid for pid, command in left.items() if named in command)

    def ends(self) -> None:
        """Wait for its end, and that of all its processes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._note(line)
        self.code = self.process.wait(HANG)
        self.process.stdout.close()
        wait_until(lambda: not self.left)

    def close(self) -> None:
        """End whatever is left."""
        while left := self.left:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
        self.process.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)


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
        os.kill(life.agents[1], signal.SIGSTOP)
        os.kill(life.one_of("codedgrad worker 0"), signal.SIGSTOP)
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
def test_no_process_of_its_cluster_and_no_worker_is_left(
    lives: dict[str, Life], name: str
) -> None:
    """Nor if some stand still; after a kill, Ray's own processes may take a minute."""
    life = lives[name]
    assert len(life.pids) >= (3 if name == "starting" else 9)  # of Ray and of ours
    assert life.left == {}


def test_agents_of_other_hosts_are_among_those_that_end(lives: dict[str, Life]) -> None:
    for name in ("killed", "interrupted", "terminated"):
        assert len(lives[name].agents) == 2
        assert {*lives[name].agents} < lives[name].pids


@pytest.mark.parametrize("name", ["resumed", "interrupted", "terminated"])
def test_no_file_of_its_cluster_is_left_unless_it_was_killed(
    lives: dict[str, Life], name: str
) -> None:
    """Nor interrupted while it starts: processes of Ray's end after the root then."""
    assert list(lives[name].temporary.glob("codedgrad-*")) == []


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


if __name__ == "__main__":
    folder, name = sys.argv[1:]
    is_last = name == "resumed"
    # The root is the agent of its node, as it is by default, or there are two actors.
    engine = Ray() if is_last else Ray(workers_per_host=1, root_is_agent=False)

    def told(step: int) -> None:
        if name != "resumed" and step % EVERY == 0:
            pids = [str(host.link.said.pid) for host in engine._far.values()]
            print("agents:", *pids, flush=True)
        print(step, flush=True)
        if name == "terminated":
            stop(step)

    total = TOTAL if is_last else FOR_EVER
    train(folder, total, engine=engine, told=told, then=fail)
