"""Which worker of a plain DDP run is slow.

Run as a script, this file is a DDP run of three workers that goes through everything
that needs more than one; the tests look at what it leaves in a folder.
"""

import copy
import hashlib
import importlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from codedgrad.cli import main
from codedgrad.delays import Matrix, read_matrix
from codedgrad.errors import EngineFailed, InvalidDelays
from codedgrad.torch.ddp.record import Recording, record
from codedgrad.torch.ddp.stopwatch import StepStopwatch

WORKERS = 3  # no power of two: dividing by it and multiplying by 1/3 round differently
PATIENCE = 100.0  # seconds; only a hang takes so long
NAP = 0.5  # seconds; a step without a nap takes milliseconds

Naps = dict[tuple[int, int], float]  # by worker and step
FORWARD: Naps = {(1, 2): NAP, (1, 4): NAP}
LOADING: Naps = {(0, 4): NAP, (2, 1): NAP}  # DDP rebuilds its buckets in step 1

SETTINGS: dict[str, dict[str, bool | float]] = {
    "as it comes": {},
    "several buckets": {"bucket_cap_mb": 0.01},
    "views": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01},
    "static graph": {"static_graph": True, "bucket_cap_mb": 0.01},
    "unused parameters": {"find_unused_parameters": True, "bucket_cap_mb": 0.01},
}


class Net(nn.Module):
    """A model with buffers, and layers that `skips` does not use in odd calls."""

    def __init__(self, skips: bool = False, naps: Naps | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.middle = nn.Linear(64, 64)
        self.last = nn.Linear(64, 5)
        self.skips, self.naps, self.calls = skips, naps or {}, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.naps:
            time.sleep(self.naps.get((dist.get_rank(), self.calls), 0.0))
        self.calls += 1
        x = self.first(x)
        return self.last(x if self.skips and self.calls % 2 else self.middle(x))


class Loop:
    """A training loop as users have it."""

    def __init__(self, model: nn.Module, **settings: bool | float) -> None:
        self.model = DistributedDataParallel(model, **settings)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.draw = torch.Generator().manual_seed(dist.get_rank())

    def backward(self) -> None:
        batch = torch.randn(8, 20, generator=self.draw)
        self.model(batch).square().mean().backward()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()

    def digest(self) -> str:
        state = self.model.module.state_dict().values()
        data = b"".join(tensor.numpy().tobytes() for tensor in state)
        return hashlib.sha256(data).hexdigest()


# What the script does


def compare(folder: Path) -> dict[str, list[str]]:
    """Train without and with a recording."""
    digests = {}
    for name, settings in SETTINGS.items():
        plain = Loop(Net(skips="unused" in name), **settings)
        recorded = Loop(Net(skips="unused" in name), **settings)
        with record(recorded.model, folder / f"{name}.csv", every=2):
            for _ in range(5):
                plain.step()
                recorded.step()
        recorded.step()  # once more, unrecorded
        plain.step()
        digests[name] = [plain.digest(), recorded.digest()]
    return digests


def nap(folder: Path) -> None:
    loop = Loop(Net(naps=FORWARD), bucket_cap_mb=0.01)
    with record(loop.model, folder / "naps.csv", every=3) as recording:
        for step in range(8):
            time.sleep(LOADING.get((dist.get_rank(), step), 0.0))
            loop.step()
        assert recording.steps == 8


def accumulate(folder: Path) -> None:
    """Two backward passes a step; worker 2 naps in the first one of step 1."""
    loop = Loop(Net(naps={(2, 2): NAP}))
    with record(loop.model, folder / "accumulated.csv"):
        for _ in range(3):
            with loop.model.no_sync():
                loop.backward()
            loop.step()


def run_out(folder: Path) -> None:
    """Worker 0 has data for 2 steps, the others for more."""
    loop = Loop(nn.Linear(20, 2))
    recording = record(loop.model, folder / "joined.csv", every=2)
    with loop.model.join():
        for _ in range(2 + dist.get_rank()):
            loop.step()
    recording.close()


def disagree(folder: Path) -> dict[str, str]:
    """Ask for what one worker, or all together, cannot do."""
    model, worker = DistributedDataParallel(nn.Linear(1, 1)), dist.get_rank()
    asked: dict[str, tuple[Path, int]] = {
        "suffix": (folder / ("t.txt" if worker == 1 else "t.csv"), 20),
        "folder": (folder / "none" / "t.csv", 20),
        "every": (folder / "t.csv", 20 + worker),
    }
    said = {}
    for name, (path, every) in asked.items():
        try:
            record(model, path, every=every)
        except InvalidDelays as error:
            said[name] = str(error)
    return said


def die(folder: Path) -> None:
    loop = Loop(nn.Linear(20, 2))
    record(loop.model, folder / "killed.csv", every=3)
    for _ in range(7):
        loop.step()
    os.kill(os.getpid(), signal.SIGKILL)


def work(worker: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), WORKERS)
    dist.init_process_group("gloo", store=store, rank=worker, world_size=WORKERS)
    said = {"digests": compare(folder), "errors": disagree(folder)}
    nap(folder)
    accumulate(folder)
    run_out(folder)
    (folder / f"said{worker}.json").write_text(json.dumps(said))
    die(folder)


def fork(folder: Path) -> None:
    """Import torch once, and be three workers."""
    workers = []
    for worker in range(WORKERS):
        if (child := os.fork()) == 0:
            work(worker, folder)
        workers.append(child)
    ends = [os.waitpid(child, 0)[1] for child in workers]
    assert all(os.WIFSIGNALED(end) for end in ends), ends


# What it leaves


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed at its end."""
    folder = tmp_path_factory.mktemp("ddp")
    command = [sys.executable, __file__, str(folder)]
    run = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said = run.communicate(timeout=PATIENCE)[1]
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    assert run.returncode == 0, said
    return folder


def said(left: Path, what: str) -> list[dict[str, list[str]]]:
    files = [left / f"said{worker}.json" for worker in range(WORKERS)]
    return [json.loads(file.read_text())[what] for file in files]


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_those_of_ddp_without_a_recording_bit_for_bit(
    left: Path, name: str
) -> None:
    for plain, recorded in (by[name] for by in said(left, "digests")):
        assert plain == recorded
    assert read_matrix(left / f"{name}.csv").steps.tolist() == [0, 1, 2, 3, 4]


def test_who_napped_took_long_and_who_waited_did_not(left: Path) -> None:
    matrix = read_matrix(left / "naps.csv")
    assert matrix.workers == ("worker0", "worker1", "worker2")
    assert slow(matrix) == sorted((step, who) for who, step in FORWARD | LOADING)


def test_what_was_accumulated_counts_to_its_step(left: Path) -> None:
    matrix = read_matrix(left / "accumulated.csv")
    assert matrix.steps.tolist() == [0, 1, 2]
    assert slow(matrix) == [(1, 2)]


def slow(matrix: Matrix) -> list[tuple[int, int]]:
    """Return (step, worker) that took most of a nap."""
    return [(int(s), int(w)) for s, w in np.argwhere(matrix.seconds > 0.7 * NAP)]


def test_steps_in_which_a_worker_was_out_of_data_are_left_out(left: Path) -> None:
    assert read_matrix(left / "joined.csv").steps.tolist() == [0, 1]


def test_a_killed_run_leaves_the_steps_it_has_gathered(left: Path) -> None:
    assert read_matrix(left / "killed.csv").steps.tolist() == [0, 1, 2, 3, 4, 5]


def test_no_other_file_is_left(left: Path) -> None:
    assert not list(left.glob(".*"))


def test_all_workers_hear_that_one_cannot_record(left: Path) -> None:
    first, second, third = said(left, "errors")
    assert "t.txt is no .csv file" in second["suffix"]
    assert "No such file" in first["folder"]
    for other, worker, what in (
        (first, 1, "suffix"),
        (third, 1, "suffix"),
        (second, 0, "folder"),
        (third, 0, "folder"),
    ):
        advice = "try what its own error says"
        assert other[what] == f"record: worker {worker} cannot record; {advice}"
    for each in (first, second, third):
        assert "every is [20, 21, 22] by worker" in each["every"]


@pytest.mark.parametrize("form", ["{}", "replay(path={}, order=shuffled)"])
def test_a_recording_is_simulated(
    left: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    delays = form.format(left / "naps.csv")
    words = ["simulate", "--delays", delays, "--scheme", "uncoded"]
    monkeypatch.setattr(sys, "argv", ["codedgrad", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "8 steps of 3 workers" in capsys.readouterr().out


# One worker alone


class Clock:
    """Says the time it was set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def alone() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    torch.set_num_threads(threads)


@pytest.fixture
def loop(alone: None) -> Loop:
    return Loop(Net(), bucket_cap_mb=0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "times.csv"


def test_the_file_has_the_steps_gathered_and_after_closing_all(
    loop: Loop, path: Path
) -> None:
    found = []
    with record(loop.model, path, every=2) as recording:
        for _ in range(5):
            loop.step()
            found.append(len(read_matrix(path).steps) if path.exists() else 0)
    recording.close()  # no harm
    assert found == [0, 2, 2, 4, 4]
    assert read_matrix(recording.path).steps.tolist() == [0, 1, 2, 3, 4]
    loop.step()
    assert recording.steps == 5


def test_only_a_backward_that_synchronises_is_a_step(loop: Loop, path: Path) -> None:
    with record(loop.model, path) as recording:
        for synchronises in (False, True, True):
            with nullcontext() if synchronises else loop.model.no_sync():
                loop.backward()
            with torch.no_grad():
                loop.model.eval()(torch.zeros(2, 20))
            loop.model.train().module(torch.zeros(2, 20))
    assert recording.steps == 2


def test_nothing_recorded_leaves_no_file(loop: Loop, path: Path) -> None:
    record(loop.model, path).close()
    assert not path.exists()


def test_an_exception_leaves_the_steps_gathered_and_training_may_go_on(
    loop: Loop, path: Path
) -> None:
    def fail() -> None:
        with record(loop.model, path, every=2):
            for _ in range(3):
                loop.step()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    loop.step()
    assert read_matrix(path).steps.tolist() == [0, 1]


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "pickle"],
)
def test_a_copy_of_the_model_is_not_recorded(
    loop: Loop, path: Path, copied: Callable[[nn.Module], nn.Module]
) -> None:
    with record(loop.model, path) as recording:
        other = copied(loop.model.module)
        other(torch.zeros(2, 20)).sum().backward()
        assert recording.steps == 0
        torch.save(loop.model.state_dict(), io.BytesIO())


def test_a_disk_that_fails_does_not_end_the_training(loop: Loop, path: Path) -> None:
    recording = record(loop.model, path, every=1)
    loop.step()
    before = path.read_bytes()
    parked = path.parent.rename(path.parent.with_name("parked"))
    with pytest.warns(RuntimeWarning, match=r"No such file.*will try again"):
        loop.step()
    loop.step()  # a second warning would be an error
    assert (parked / path.name).read_bytes() == before
    with pytest.raises(InvalidDelays, match="cannot be written"):
        recording.close()


def test_a_long_file_is_written_less_often(
    loop: Loop, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("codedgrad.torch.ddp.record")
    monkeypatch.setattr(module, "GROWTH", 2)
    found = []
    with record(loop.model, path, every=1):
        for _ in range(10):
            loop.step()
            found.append(len(read_matrix(path).steps))
    assert found == [1, 2, 3, 3, 5, 5, 5, 5, 9, 9]
    assert len(read_matrix(path).steps) == 10


def test_writing_the_file_is_nobodys_step(
    loop: Loop, path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, ends = os.replace, []

    def linger(source: Path, target: Path) -> None:
        replace(source, target)
        clock.now += 50.0
        ends.append(clock.now)

    module = importlib.import_module("codedgrad.torch.ddp.record")
    monkeypatch.setattr(module, "StepStopwatch", lambda: StepStopwatch(clock))
    monkeypatch.setattr(os, "replace", linger)
    with record(loop.model, path, every=2):
        for _ in range(3):
            clock.now += 1.0
            loop.step()
    assert len(ends) == 2
    assert read_matrix(path).seconds[1:].tolist() == [[1.0], [1.0]]


def test_the_lines_of_the_document_run(
    alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Path(__file__).parents[2] / "docs/ddp-recording.md"
    block = document.read_text().partition("```diff\n")[2].partition("```")[0]
    code = "\n".join(line[2:] for line in block.splitlines())
    net = nn.Linear(20, 1)
    given = {
        "DistributedDataParallel": DistributedDataParallel,
        "net": net,
        "optimizer": torch.optim.SGD(net.parameters()),
        "loader": [(torch.zeros(2, 20), torch.zeros(2, 1))] * 3,
        "loss_function": nn.functional.mse_loss,
    }
    monkeypatch.chdir(tmp_path)
    exec(compile(code, document.name, "exec"), given)
    assert len(read_matrix("times.csv").steps) == 3


def test_closing_after_the_group_has_ended_is_refused(loop: Loop, path: Path) -> None:
    recording = record(loop.model, path)
    loop.step()
    dist.destroy_process_group()
    with pytest.raises(EngineFailed, match="before destroy_process_group"):
        recording.close()


# What cannot be recorded


def test_a_model_without_ddp_is_refused(path: Path) -> None:
    with pytest.raises(InvalidDelays, match="a Linear; try a DistributedDataParallel"):
        record(nn.Linear(1, 1), path)  # type: ignore[arg-type]


def test_a_model_that_is_not_on_the_cpu_is_refused(loop: Loop, path: Path) -> None:
    loop.model.module.register_buffer("far", torch.zeros(1, device="meta"))
    with pytest.raises(InvalidDelays, match=r"is on meta.*try a model on the CPU"):
        record(loop.model, path)


def test_a_mean_over_those_who_have_data_is_refused(loop: Loop, path: Path) -> None:
    def train() -> None:
        with loop.model.join(divide_by_initial_world_size=False):
            loop.step()

    record(loop.model, path).close()
    loop.step()
    with pytest.raises(InvalidDelays, match="gradients would differ"):
        train()


def built_in(model: DistributedDataParallel) -> None:
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


def own(model: DistributedDataParallel) -> None:
    model.register_comm_hook(None, lambda state, bucket: torch.futures.Future())


@pytest.mark.parametrize("register", [built_in, own])
def test_a_model_that_has_a_hook_is_refused(
    loop: Loop, path: Path, register: Callable[[DistributedDataParallel], None]
) -> None:
    register(loop.model)
    with pytest.raises(InvalidDelays, match="has a communication hook already"):
        record(loop.model, path)


def test_a_model_is_recorded_once(loop: Loop, path: Path) -> None:
    record(loop.model, path).close()
    with pytest.raises(InvalidDelays, match="try a new DistributedDataParallel"):
        record(loop.model, path)
    assert isinstance(record(Loop(Net()).model, path), Recording)


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "20", None])
def test_every_is_a_number_of_steps(loop: Loop, path: Path, every: object) -> None:
    with pytest.raises(InvalidDelays, match=r"every.*try a whole number, 1 or more"):
        record(loop.model, path, every=every)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["times", "times.npy", "times.parquet", "times.txt"])
def test_only_a_csv_is_written(loop: Loop, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDelays, match=f"{name} is no .csv file"):
        record(loop.model, tmp_path / name)


def test_a_folder_in_the_place_of_the_file_is_refused(loop: Loop, path: Path) -> None:
    path.mkdir()
    with pytest.raises(InvalidDelays, match="a folder has this name"):
        record(loop.model, path)


# The stopwatch


def forward(watch: StepStopwatch, clock: Clock, at: float, shared: float = 0.0) -> None:
    clock.now = at
    watch.forward_called(training=True)
    clock.now += shared
    watch.forward_began()


def reduced(watch: StepStopwatch, clock: Clock, at: float) -> None:
    clock.now = at
    watch.bucket_reduced()


def ready(
    watch: StepStopwatch, clock: Clock, at: float, first: bool = True, last: bool = True
) -> float | None:
    clock.now = at
    return watch.bucket_ready(first, last)


def test_a_step_begins_when_the_last_of_its_buckets_to_come_back_is_there(
    clock: Clock,
) -> None:
    watch = StepStopwatch(clock)
    forward(watch, clock, 101)
    assert ready(watch, clock, 102, last=False) is None
    reduced(watch, clock, 102.5)  # while the rest is computed
    assert ready(watch, clock, 103, first=False) == 2.0
    reduced(watch, clock, 107)
    reduced(watch, clock, 106)  # another thread, a moment before
    forward(watch, clock, 110)
    assert ready(watch, clock, 111) == 4.0


def test_sharing_at_the_start_of_a_forward_is_not_in_the_step(clock: Clock) -> None:
    watch = StepStopwatch(clock)
    forward(watch, clock, 101, shared=5)
    assert ready(watch, clock, 107) == 1.0
    reduced(watch, clock, 108)
    forward(watch, clock, 109, shared=10)
    forward(watch, clock, 120, shared=10)
    watch.forward_began()  # the model called without DDP
    assert ready(watch, clock, 131) == 3.0


def test_an_evaluation_does_not_begin_the_first_step(clock: Clock) -> None:
    watch = StepStopwatch(clock)
    watch.forward_called(training=False)
    forward(watch, clock, 150)
    assert ready(watch, clock, 151) == 1.0


def test_seconds_are_never_0(clock: Clock) -> None:
    watch = StepStopwatch(clock)
    forward(watch, clock, 101)
    assert ready(watch, clock, 101) == 1e-9


def test_a_step_without_a_forward_has_no_seconds(clock: Clock) -> None:
    watch = StepStopwatch(clock)
    seconds = ready(watch, clock, 101)
    assert seconds is not None
    assert np.isnan(seconds)


if __name__ == "__main__":
    fork(Path(sys.argv[1]))
