"""A run whose root was killed goes on: whatever is left of its trace, with other
workers, another scheme, another engine.

Every first life is a process with eight workers that is really killed, every second one
a process that ends by itself. `make test` runs a few cells of the matrix, which share
first lives by copies of what the kill left. A soak runs all 58, each with a kill of its
own at another moment, in about 15 minutes on two cores:

    make soak ARGS=tests/faults/test_resume_matrix.py

With `--hypothesis-seed` the moments are drawn as in the run that printed it.
"""

import gzip
import importlib.util
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from secrets import randbits
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import codedgrad as cg
from codedgrad.core import Combine
from codedgrad.torch.data import Parts
from codedgrad.trace import read_run
from codedgrad.trace.format import VERSION


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


SCRIPT = Path(__file__).with_name("resume_root.py")
mpi_jobs = module(Path(__file__).parents[1] / "cluster" / "mpi_jobs.py")
root = module(SCRIPT)

PARTS = 64  # of a step, in all lives
PADDING = 1 << 24  # bytes; writing as many takes long enough to be seen
OURS = str(Path(cg.__file__).parents[1])  # what other processes import, too


pytestmark = pytest.mark.long  # resuming without processes: tests/torch/test_resume.py

# -- the matrix ------------------------------------------------------------------------

TRACES = ("whole", "missing", "torn", "older")
KILLS = ("at random", "while writing")
CHANGES = {  # scheme, workers and engine of the second life
    "the same": ("auto", 8, "local"),
    "5 workers": ("auto", 5, "local"),
    "11 workers": ("auto", 11, "local"),
    "fractional": ("fractional(tolerance=1)", 8, "local"),
    "dynamic": ("dynamic(clusters=2, tolerance=1)", 8, "local"),
    "ray": ("auto", 4, "ray"),
    "mpi": ("auto", 4, "mpi"),
}


@dataclass(frozen=True)
class Cell:
    """What happens to a run.

    Attributes:
        trace: What is left of its trace; one of `TRACES`.
        then: Scheme, workers and engine of its second life.
        kill: When its first root is killed; one of `KILLS`.
        name: Of the change.
        first: Scheme of its first life.
    """

    trace: str
    then: tuple[str, int, str]
    kill: str
    name: str
    first: str = "auto"

    @property
    def is_to_the_bit(self) -> bool:
        """Whether the scheme stays one that promises it; see docs/torch.md."""
        return self.first != "auto"

    def __str__(self) -> str:
        return f"{self.name}, trace {self.trace}, killed {self.kill}"


def cell(trace: str, change: str, kill: str) -> Cell:
    return Cell(trace, CHANGES[change], kill, change)


def stays(scheme: str, kill: str) -> Cell:
    return Cell("missing", (scheme, 8, "local"), kill, f"still {scheme}", scheme)


EXACT = [
    stays("uncoded", "at random"),
    stays("fractional(tolerance=1)", "while writing"),
]
ALL = [cell(*axes) for axes in product(TRACES, CHANGES, KILLS)] + EXACT
FEW = [  # every change, and every trace; to the bit: tests/torch/test_resume.py
    cell("missing", "ray", "at random"),
    cell("older", "mpi", "while writing"),
    cell("older", "the same", "at random"),
    cell("missing", "5 workers", "while writing"),
    cell("torn", "11 workers", "at random"),
    cell("whole", "fractional", "while writing"),
    cell("torn", "dynamic", "while writing"),
]


def is_soak(config: pytest.Config) -> bool:
    return config.getoption("--hypothesis-profile") == "soak"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        cells = ALL if is_soak(metafunc.config) else FEW
        metafunc.parametrize("cell", cells, ids=str)


@cache
def why_not(engine: str) -> str:
    """Return what an engine lacks here; empty if it can be used."""
    if engine == "mpi":
        return mpi_jobs.why_not()
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        return "ray is not installed: pip install -r requirements/engines.txt"
    return ""


# -- the first life --------------------------------------------------------------------


@dataclass(frozen=True)
class Killed:
    """What is left of a root that was killed.

    Attributes:
        folder: Of its run.
        done: Steps that it had done.
        when: The moment that was drawn, in words.
    """

    folder: Path
    done: int
    when: str


def launch(
    jobs: Any, folder: Path, scheme: str, workers: int, engine: str, **more: Any
) -> Any:
    """Start a root."""
    options = {"scheme": scheme, "workers": workers, "engine": engine, **more}
    words = str(folder), json.dumps(options)
    if engine == "mpi":
        return jobs.mpirun(SCRIPT, workers + 1, *words, PYTHONPATH=OURS)
    return jobs.python(str(SCRIPT), *words, PYTHONPATH=OURS)


def steps_of(job: Any) -> list[int]:
    """Return how many steps were done at each moment that the root told it."""
    return [int(line) for line in job.out.splitlines(keepends=True) if line[-1] == "\n"]


def be_killed(jobs: Any, folder: Path, scheme: str, kill: str, seed: Any) -> Killed:
    """Live a first life up to a moment that is drawn."""
    rng = np.random.default_rng(seed)
    is_written = kill == "while writing"
    padding = PADDING if is_written else 0
    job = launch(
        jobs, folder, scheme, 8, "local", parts=PARTS, padding=padding, waits=True
    )
    # The first checkpoint is on the disk before the second one is begun, so there is
    # one to go on from in any case.
    if is_written:
        step = int(rng.integers(root.EVERY + 1, root.TOTAL // 2))
        when = f"the first checkpoint from step {step} on, if it is seen"
        stop_while_writing(job, folder, step)
    else:
        step = int(rng.integers(2 * root.EVERY + 1, root.TOTAL - 1))
        extra = float(rng.uniform(0.0, 0.2))  # seconds: about two steps
        when = f"step {step} and {extra:.3f} s"
        wait_for(job, lambda: steps_of(job)[-1:] >= [step])
        time.sleep(extra)  # the moment is drawn, and not waited for
    job.signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL, job.err
    assert job.is_all_gone(), job.left()
    assert half_written(folder) or not is_written
    return Killed(folder, steps_of(job)[-1], f"seed {seed}: {when}")


def stop_while_writing(job: Any, folder: Path, step: int) -> None:
    """Stop the root while it writes the checkpoint of a step, or of a later one.

    One that is killed at once may have given the file its name by then. A root that is
    stopped cannot: so one can look again, and let it go on to the next checkpoint.
    """
    while True:
        wait_for(job, lambda: half_written(folder, step))
        job.signal(signal.SIGSTOP)
        wait_for(job, lambda: states(holder(folder)["pid"]) == {"T"})
        if half_written(folder, step):
            return
        job.signal(signal.SIGCONT)


def wait_for(job: Any, what: Callable[[], Any]) -> None:
    """Look every millisecond, as a checkpoint is written in a few tens."""
    deadline = time.monotonic() + mpi_jobs.PATIENCE
    while not what():
        assert not job.has_ended, job.err
        assert time.monotonic() < deadline, f"it hangs: {job.out} {job.err}"
        time.sleep(0.001)


def half_written(folder: Path, step: int = 0) -> list[str]:
    """Return the checkpoints, from a step on, that have no name yet."""
    names = [path.name for path in (folder / "checkpoints").glob(".step-*")]
    return [name for name in names if int(name.split(".")[1][len("step-") :]) >= step]


def states(pid: int) -> set[str]:
    """Return what the threads of a process do."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.add(task.read_text().rpartition(")")[2].split()[0])
    return found


def holder(folder: Path) -> dict[str, Any]:
    """Return which root has, or had, the folder."""
    return json.loads((folder / "lock.json").read_bytes())


# -- what becomes of the trace ---------------------------------------------------------

UNKNOWN = b'{"event":{"type":"WorkerDreamt","worker":0,"at":0.5},"commands":[]}\n'


def damage(folder: Path, trace: str) -> None:
    newest = max((folder / "trace").glob("*.jsonl"))
    data = newest.read_bytes()
    if trace == "missing":
        shutil.rmtree(folder / "trace")
    elif trace == "torn":
        middle = data.index(b"\n", len(data) // 2)
        newest.write_bytes(data[: middle - 10])
    elif trace == "older":
        header, *lines = data.splitlines(keepends=True)
        older, newer = (
            header.replace(b'"version":%d' % VERSION, b'"version":%d' % n)
            for n in (VERSION - 1, VERSION + 1)
        )
        assert header not in (older, newer)
        lines.insert(len(lines) // 2, UNKNOWN)
        newest.write_bytes(older + b"".join(lines))
        newest.with_name("0000-00000000.jsonl").write_bytes(newer + b"".join(lines))
        newest.with_name("0000-00000001.jsonl").write_bytes(header + b"".join(lines))
        (folder / "trace.jsonl").write_bytes(newer + UNKNOWN)  # its former name


def traces(folder: Path) -> dict[str, bytes]:
    """Return what is in the files of a trace, and in one of the former name.

    A later life compresses those of an earlier one.
    """
    paths = [*folder.glob("trace/*.jsonl"), *folder.glob("trace.jsonl")]
    found = {path.name: path.read_bytes() for path in paths}
    for path in folder.glob("trace/*.jsonl.gz"):
        found[path.stem] = gzip.decompress(path.read_bytes())
    return found


# -- the second life -------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """A run of two lives.

    Attributes:
        killed: The first.
        folder: Of the second; a copy.
        begun: With which step the second began.
        lives: How many roots the folder has had, by its lock, after each life.
        left: Processes that the second left behind.
        before: The files of the trace, before the second life.
    """

    killed: Killed
    folder: Path
    begun: int
    lives: tuple[int, int]
    left: dict[int, str]
    before: dict[str, bytes]


def go_on(jobs: Any, cell: Cell, first: Callable[[], Killed], folder: Path) -> Story:
    """Live a second life, with a copy of what is left of the first."""
    killed = first()
    shutil.copytree(killed.folder, folder)
    damage(folder, cell.trace)
    before, life = traces(folder), holder(folder)["life"]
    job = launch(jobs, folder, *cell.then)
    assert job.wait() == 0, job.out + job.err
    job.is_all_gone()
    lives = life, holder(folder)["life"]
    return Story(killed, folder, steps_of(job)[0], lives, job.left(), before)


@pytest.fixture(scope="module")
def stories(request: pytest.FixtureRequest) -> Iterator[dict[Cell, Future[Story]]]:
    """Run the cells that were selected, two at a time; each test waits for its own."""
    in_soak = is_soak(request.config)
    seed = int(request.config.getoption("--hypothesis-seed") or 0)
    if in_soak and not seed:
        seed = randbits(32)
    cells = selected(request)
    with (
        TemporaryDirectory() as place,  # not kept: it is a gigabyte in a soak
        mpi_jobs.launching(Path(place) / "jobs") as jobs,
        ThreadPoolExecutor(2) as pool,
    ):
        shared: dict[tuple[str, str], Future[Killed]] = {}
        firsts: list[Callable[[], Killed]] = []
        for cell in cells:
            drawn = seed, ALL.index(cell)
            folder = Path(place) / f"killed-{drawn[1]}"
            first = partial(be_killed, jobs, folder, cell.first, cell.kill, drawn)
            if not in_soak:
                like = cell.first, cell.kill
                if like not in shared:
                    shared[like] = pool.submit(first)
                first = shared[like].result
            firsts.append(first)
        told = {
            cell: pool.submit(go_on, jobs, cell, first, Path(place) / f"run-{number}")
            for number, (cell, first) in enumerate(zip(cells, firsts, strict=True))
        }
        try:
            yield told
        finally:  # none is left to be told, unless this ends early
            pool.shutdown(wait=False, cancel_futures=True)
            jobs.end()


def selected(request: pytest.FixtureRequest) -> list[Cell]:
    """Return the cells of the tests that are to be run, without what cannot be."""
    ours = (item for item in request.session.items if item.path == request.path)
    cells = dict.fromkeys(item.callspec.params["cell"] for item in ours)
    return [cell for cell in cells if not why_not(cell.then[2])]


@pytest.fixture
def story(stories: dict[Cell, Future[Story]], cell: Cell) -> Story:
    if reason := why_not(cell.then[2]):
        pytest.skip(reason)
    return stories[cell].result()


# -- what comes of it ------------------------------------------------------------------


@cache
def alone() -> dict[str, Tensor]:
    """Train in this process with PyTorch alone, and return the parameters."""
    job = root.make()
    optimizer, schedule = root.optimizers(job.model)
    dealt = Parts(root.SAMPLES, PARTS, root.BATCH, seed=0)
    for step in range(root.TOTAL):
        ids = np.concatenate([dealt.indices(part, step) for part in range(PARTS)])
        total, count = root.loss(job.model, tuple(each[ids] for each in job.data))
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        schedule.step()
    return job.model.state_dict()


@pytest.mark.hypothesis  # so that a soak runs it, in all cells; the others as well
def test_a_root_is_killed_in_the_middle_and_the_next_goes_on(
    story: Story, cell: Cell
) -> None:
    killed = story.killed
    print(f"{cell}: {killed.when}; {killed.done} done, goes on from {story.begun}")
    assert 0 < killed.done < root.TOTAL
    assert 0 < story.begun <= killed.done + 1  # a checkpoint may be faster than print
    left = half_written(killed.folder)
    assert left or cell.kill == "at random"
    assert left == half_written(killed.folder, story.begun + 1)  # taken by nobody
    assert half_written(story.folder) == []
    assert story.lives == (1, 2)
    assert story.left == {}


@pytest.mark.hypothesis
def test_parameters_are_those_of_a_run_that_nobody_killed(
    story: Story, cell: Cell
) -> None:
    found, wanted = cg.torch.load(story.folder).model, alone()
    assert found.keys() == wanted.keys()
    gap = max(float((found[k] - x).norm() / x.norm()) for k, x in wanted.items())
    print(f"{cell}: relative difference {gap:.1e}")
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=0.0)
    if cell.is_to_the_bit:
        for name, tensor in uninterrupted(*cell.then[:2]).items():
            assert found[name].numpy().tobytes() == tensor.numpy().tobytes(), name


def uninterrupted(scheme: str, workers: int) -> dict[str, Tensor]:
    """Train in this process, with every worker's share, and return the parameters."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as workers have
    try:
        return root.live(None, scheme, workers, "here", parts=PARTS).state_dict()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.hypothesis
def test_every_sample_was_used_once_an_epoch(story: Story) -> None:
    seen = cg.torch.load(story.folder).model["seen"]
    wanted = torch.full_like(seen, -root.EPOCHS / root.BATCH)
    torch.testing.assert_close(seen, wanted, rtol=1e-12, atol=0.0)


@pytest.mark.hypothesis
def test_the_record_has_every_step_and_no_earlier_file_has_changed(
    story: Story, cell: Cell
) -> None:
    run = read_run(story.folder)
    assert [line.step for line in run.steps] == [*range(root.TOTAL)]
    assert run.manifest.parts == run.trace.header.parts == PARTS
    assert run.manifest.workers == run.trace.header.workers == cell.then[1]
    assert run.manifest.engine == run.trace.header.driver == cell.then[2]
    ended = [c.step for e in run.trace.entries for c in e.commands if is_end(c)]
    later = [*range(story.begun, root.TOTAL)]
    assert ended[-len(later) :] == later
    assert story.before.items() <= traces(story.folder).items()


def is_end(command: object) -> bool:
    return isinstance(command, Combine)
