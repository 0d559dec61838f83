"""However a run ends, no process and no shared memory is left behind."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from codedgrad.engines import FaultPlan, Local, train
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import fractional, uncoded

PATIENCE = 20.0  # seconds; only a hang takes so long


def is_there(pid: int) -> bool:
    """Whether a process runs, sleeps or is stopped; one that has ended does not."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def wait_for(what: Callable[[], bool]) -> bool:
    """Look until it is so; return whether it is before a hang is called one."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def all_gone(pids: Iterable[int]) -> bool:
    pids = list(pids)
    return wait_for(lambda: not any(map(is_there, pids)))


def named_memory() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob("codedgrad-*")]


def open_files() -> list[str]:
    """What this process has open that an engine may have opened."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the listing's own
        if target.startswith(("socket", "/memfd", "anon_inode:[eventpoll]", "pipe")):
            found.append(target)
    return sorted(found)


# -- in this process -------------------------------------------------------------------


class Oops(Exception):
    pass


@dataclass
class Watched:
    """An engine whose processes are noted while it runs."""

    engine: Local
    pids: set[int]

    def note(self, *_: object) -> float:
        self.pids |= {*self.engine.pids, self.engine.nursery} - {0}
        return 0.0

    def note_and_fail(self, *_: object) -> float:
        self.note()
        raise Oops


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    before = open_files()
    watched = Watched(Local(folder=tmp_path), set())
    yield watched
    assert len(watched.pids) >= 4
    assert all_gone(watched.pids)
    assert list(tmp_path.iterdir()) == []
    assert named_memory() == []
    del watched
    gc.collect()
    assert open_files() == before


def gradient_of(scale: float) -> Callable:
    return lambda x, part, step: (0.0, 1.0, scale * x)


def test_nothing_is_left_after_a_run(watched: Watched) -> None:
    faults = FaultPlan().kill(1, 2)
    train(
        gradient_of(1.0), np.ones(2), uncoded(3), steps=5, engine=watched.engine,
        evaluate=watched.note, faults=faults,
    )  # fmt: skip
    assert len(watched.pids) == 1 + 3 + 1  # one came back


def test_nothing_is_left_after_an_error_in_the_evaluation(watched: Watched) -> None:
    with pytest.raises(Oops):
        train(
            gradient_of(1.0), np.ones(2), uncoded(3), steps=5, engine=watched.engine,
            evaluate=watched.note_and_fail,
        )  # fmt: skip


def test_nothing_is_left_after_an_error_in_the_update(watched: Watched) -> None:
    with pytest.raises(Oops):
        train(
            gradient_of(1.0), np.ones(2), uncoded(3), steps=5, engine=watched.engine,
            update=watched.note_and_fail,
        )  # fmt: skip


def test_nothing_is_left_of_a_worker_that_is_stopped_or_an_orphan(
    watched: Watched,
) -> None:
    faults = FaultPlan().stop(0, 1, 1000.0)

    def trouble(x: np.ndarray) -> float:
        watched.note()
        if len(faults.fired) and watched.engine.nursery in watched.pids:
            os.kill(watched.engine.nursery, signal.SIGKILL)
        return 0.0

    train(
        gradient_of(1.0), np.ones(2), fractional(3, 2), steps=3, engine=watched.engine,
        evaluate=trouble, faults=faults,
    )  # fmt: skip
    assert faults.all_fired


def test_nothing_is_left_of_an_engine_that_is_forgotten(watched: Watched) -> None:
    job = NumpyJob(gradient_of(1.0), 2)
    watched.engine.start(lambda: job, job.layout, 3)
    watched.note()
    watched.engine = None
    gc.collect()


def test_a_fork_of_the_root_ends_nothing(watched: Watched) -> None:
    job = NumpyJob(gradient_of(1.0), 2)
    watched.engine.start(lambda: job, job.layout, 3)
    watched.note()
    child = os.fork()
    if child == 0:
        watched.engine.close()
        os._exit(0)
    os.waitpid(child, 0)
    try:
        assert all(map(is_there, watched.pids))
    finally:
        watched.engine.close()


# -- a root that is ended --------------------------------------------------------------

ROOT = """
import os, re, sys, time
from pathlib import Path
import numpy as np
from codedgrad.engines import FaultPlan, Local, train
from codedgrad.schemes import fractional

folder = Path(sys.argv[1])

def gradient(x, part, step):
    if step == 3:
        try:
            os.close(os.open(folder / "busy", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            (folder / "busy").write_text(str(os.getpid()))
            re.match("(a+)+$", "a" * 60 + "b")  # for years, and holds the lock
    return 0.0, 1.0, x

def evaluate(x):
    if engine.lives and faults.all_fired and (folder / "busy").exists():
        busy = (folder / "busy").read_text()
        if busy and not (folder / "pids").exists():
            (folder / "pids.new").write_text(f"{engine.nursery} {engine.pids}")
            (folder / "pids.new").rename(folder / "pids")
    time.sleep(0.005)
    return 0.0

engine = Local(folder=folder / "memory")
faults = FaultPlan().stop(0, 6, 1000.0)
train(gradient, np.ones(1000), fractional(4, 3), steps=10**6, engine=engine,
      evaluate=evaluate, faults=faults)
"""

STARTING = """
import time
from codedgrad.engines import Local
from codedgrad.jobs import VectorLayout
Local().start(lambda: time.sleep(1000), VectorLayout(parameters=1, gradient=1), 3)
"""

FORGETFUL = """
import numpy as np
from codedgrad.engines import Local
from codedgrad.jobs import NumpyJob
engine, job = Local(), NumpyJob(lambda x, part, step: (0.0, 1.0, x), 2)
engine.start(lambda: job, job.layout, 3)
print(engine.nursery, *engine.pids, flush=True)
raise ValueError("in the user's own loop")
"""


def launch(source: str, folder: Path) -> subprocess.Popen:
    """Run a script; what it prints goes to files, which orphans may keep open."""
    with (folder / "printed").open("w") as out, (folder / "errors").open("w") as err:
        return subprocess.Popen(
            [sys.executable, "-c", source, str(folder)],
            stdout=out,
            stderr=err,
            # a job in the background may have been started with Ctrl-C ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


@dataclass(frozen=True)
class Root:
    """A run for ever: one worker is stopped, one computes and holds its lock."""

    process: subprocess.Popen
    folder: Path
    nursery: int
    workers: tuple[int, ...]


ENDS = ("SIGINT", "SIGTERM", "SIGKILL")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Root]]:
    launched = {}
    for name in ENDS:
        folder = tmp_path_factory.mktemp(name)
        (folder / "memory").mkdir()
        launched[name] = launch(ROOT, folder), folder
    roots = {}
    try:
        for name, (process, folder) in launched.items():
            assert wait_for((folder / "pids").exists), (folder / "errors").read_text()
            nursery, _, pids = (folder / "pids").read_text().partition(" ")
            workers = tuple(map(int, pids.strip("()").split(",")))
            roots[name] = Root(process, folder, int(nursery), workers)
        yield roots
    finally:
        for process, _ in launched.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", ENDS)
def test_all_workers_end_with_their_root_stopped_and_busy_ones_too(
    roots: dict[str, Root], name: str
) -> None:
    root = roots[name]
    assert wait_for(lambda: state(root.workers[0]) == "T")
    busy = int((root.folder / "busy").read_text())
    assert busy in root.workers
    assert all(map(is_there, (root.nursery, *root.workers)))
    root.process.send_signal(getattr(signal, name))
    assert all_gone((root.process.pid, root.nursery, *root.workers))
    assert list((root.folder / "memory").iterdir()) == []


def test_ctrl_c_ends_a_run_as_it_ends_any_script(roots: dict[str, Root]) -> None:
    root = roots["SIGINT"]
    root.process.send_signal(signal.SIGINT)  # if it was not sent before
    root.process.wait(PATIENCE)
    assert root.process.returncode == -signal.SIGINT
    errors = (root.folder / "errors").read_text()
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_while_workers_are_set_up_leaves_nothing(tmp_path: Path) -> None:
    process = launch(STARTING, tmp_path)
    pids: list[int] = []

    def has_workers() -> bool:
        pids[:] = children(process.pid)
        pids.extend(worker for nursery in list(pids) for worker in children(nursery))
        return len(pids) == 1 + 3

    assert wait_for(has_workers)
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    assert all_gone(pids)


def test_a_script_that_fails_and_closes_nothing_leaves_nothing(tmp_path: Path) -> None:
    process = launch(FORGETFUL, tmp_path)
    process.wait(PATIENCE)
    errors = (tmp_path / "errors").read_text()
    assert errors.rstrip().endswith("ValueError: in the user's own loop")
    pids = [*map(int, (tmp_path / "printed").read_text().split())]
    assert len(pids) == 1 + 3
    assert all_gone(pids)
