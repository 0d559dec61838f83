"""A run that was killed goes on: nothing is lost, nothing is done twice.

What a kill leaves is what is in the folder at that moment. So one run that is never
stopped, and of whose folder copies are made on the way, stands for many that are killed
there. Some real ones are killed as well: this file is their script.
"""

import math
import os
import pickle
import random
import runpy
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import codedgrad as cg
from codedgrad.core import Combine, Patience, StepStarted, WorkersJoined, WorkersLost
from codedgrad.engines import Engine, FaultPlan, Here, Local, Replayed
from codedgrad.errors import InvalidCheckpoint, InvalidFolder, InvalidOptions
from codedgrad.schemes import build
from codedgrad.torch import Checkpoints, Job
from codedgrad.torch.checkpoint import files as checkpoint
from codedgrad.torch.checkpoint import packed
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.state_tree import flatten
from codedgrad.trace import Entry, files, read_run, replay
from codedgrad.trace.runs import MANIFEST, STEPS, TRACE

TOTAL = 13
EVERY = 4  # steps from a checkpoint to the next


# -- what is trained -------------------------------------------------------------------


def job(
    dtype: str = "float32",
    samples: int = 40,
    batch_size: int = 15,
    width: int = 9,
    offset: float = 0.0,
    **more: Any,
) -> Job:
    data = np.random.default_rng(0).standard_normal((samples, 4)) + offset
    x = torch.from_numpy(data).to(getattr(torch, dtype))
    model = nn.Sequential(
        nn.Linear(4, width, bias=False),  # its gradient would be rounding errors alone
        nn.BatchNorm1d(width),
        nn.Dropout(0.3),
        nn.Linear(width, 3),
    )
    y = x.argmax(dim=1).clamp(max=2)
    return Job(model.to(x.dtype), F.cross_entropy, (x, y), batch_size, **more)


def draw(step: int) -> float:
    """Draw from all the generators that a user may draw from at the root."""
    numbers = torch.rand(()).item(), np.random.normal(), random.random()  # noqa: NPY002
    return sum(numbers)


def train(
    folder: Path | None,
    *,
    make: Callable[[], Job] = job,
    scheme: str = "uncoded",
    workers: int = 3,
    engine: Engine | str = "here",
    total: int = TOTAL,
    resume: bool | str = "auto",
    checkpoints: Checkpoints | None = None,
    look: Callable[[str, int], None] = lambda phase, step: None,
    **options: Any,
) -> nn.Module:
    """Train as users do: with a schedule, clipping, an average, and luck."""
    when = checkpoints or Checkpoints(seconds=None, steps=EVERY, keep=2)
    if folder is not None or resume is True:
        options |= {"run_dir": folder, "resume": resume, "checkpoints": when}
    with cg.torch.train(
        make, scheme=scheme, workers=workers, engine=engine, **options
    ) as coded:
        parameters = list(coded.model.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=0.05)
        warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n % 7))
        average = AveragedModel(coded.model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        coded.track(optimizer=optimizer, schedule=warm, average=average)
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(coded.step)
        for step in coded.steps(total):
            if coded._folder is not None:
                coded._folder._saver.finish()  # so that pictures have it
            luck = draw(step)
            look("begun", step)
            report = coded.backward()
            look("has its gradient", step)
            nn.utils.clip_grad_norm_(parameters, 0.5)
            for parameter in parameters:
                parameter.grad *= 1.0 + 0.1 * luck
            optimizer.step()
            warm.step()
            look("is half done", step)
            average.update_parameters(coded.model)
            coded.log(luck=luck + draw(step), loss=report.loss)
            look("is done", step)
    return coded.model


def outcome(folder: Path) -> tuple[object, ...]:
    """Return all that a run has come to, to the last bit: its newest checkpoint and
    its figures, but not its times.
    """
    state, lines = state_of(folder), read_run(folder).steps
    figures = [(x.step, x.loss, x.count, x.samples, x.logged) for x in lines]
    return state["step"], *bits(state), figures


def state_of(folder: Path) -> dict[str, Any]:
    newest = Shelf(folder / "checkpoints").newest()
    assert newest is not None
    return newest[1]


def come_to(state: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Flatten a state without what it tells of how it came about."""
    told = ("seconds", "learnt", "manifest")
    return flatten({k: v for k, v in state.items() if k not in told})


def bits(state: dict[str, Any]) -> tuple[object, dict[str, object]]:
    """Return what a state is made of, to be compared bit by bit."""
    structure, tensors = come_to(state)
    return structure, {k: (t.dtype, t.numpy().tobytes()) for k, t in tensors.items()}


def check_record(folder: Path, total: int = TOTAL, scheme: str = "uncoded") -> None:
    """Every step is there once and in order, time goes on, and all is decided alike."""
    run = read_run(folder)
    started = [e.event.step for e in run.trace.entries if is_start(e.event)]
    ended = [c.step for e in run.trace.entries for c in e.commands if is_end(c)]
    assert started == ended == [line.step for line in run.steps] == [*range(total)]
    times = [entry.event.at for entry in run.trace.entries]
    assert times == sorted(times)
    times = [line.at for line in run.steps]
    assert times == sorted(times)
    assert replay(run.trace, build(scheme, run.manifest.workers)) is None


def is_start(event: object) -> bool:
    return isinstance(event, StepStarted)


def is_end(command: object) -> bool:
    return isinstance(command, Combine)


def contents(folder: Path) -> dict[str, bytes]:
    """Return what is in a folder, but for who was its root and when."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.lstrip(".").startswith(("lock", "status"))
    }


def newest_file(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step-*.safetensors"))


# -- killed here, and there, and there -------------------------------------------------

MOMENTS = ("begun", "has its gradient", "is half done", "is done")
WRITING = ("half written", "written", "in its place", "the old one goes")


def copy(folder: Path, to: Path) -> Path:
    """Copy a folder as a kill would leave it, but for the heartbeat, which goes on."""
    ignored = shutil.ignore_patterns("status.json", ".status.*")
    return shutil.copytree(folder, to, ignore=ignored)


class Photos:
    """Copies the folder of a run at every moment of every step, or at one only."""

    def __init__(
        self, run: Path, album: Path, only: tuple[str, int] | None = None
    ) -> None:
        self.run = run
        self.album = album
        self.only = only

    def __call__(self, moment: str, step: int) -> None:
        if self.only in (None, (moment, step)):
            copy(self.run, self.album / f"{moment} {step}")

    def print(self, moment: str, step: int, to: Path) -> Path:
        """Return a copy of what was in the folder at that moment."""
        return shutil.copytree(self.album / f"{moment} {step}", to / "run")


@dataclass(frozen=True)
class Whole:
    """A run that nobody has stopped."""

    folder: Path
    outcome: tuple[object, ...]
    photos: Photos

    def goes_on(self, moment: str, step: int, to: Path, **options: Any) -> Path:
        """Let a run go on that was killed then."""
        folder = self.photos.print(moment, step, to)
        train(folder, **options)
        return folder


@pytest.fixture(scope="module", autouse=True)
def luck() -> Iterator[None]:
    """Leave the generators of this process as they are."""
    states = checkpoint.generators()
    yield
    checkpoint.restore_generators(states)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    base = tmp_path_factory.mktemp("whole")
    photos = Photos(base / "run", base / "album")
    with pytest.MonkeyPatch.context() as patch:
        photograph_writing(patch, photos)
        train(photos.run, look=photos)
    return Whole(photos.run, outcome(photos.run), photos)


def photograph_writing(patch: pytest.MonkeyPatch, photos: Photos) -> None:
    """Take pictures while a checkpoint is written."""
    fill, replace, remove = files.fill, os.replace, checkpoint._remove
    writes = iter(range(EVERY, TOTAL + EVERY, EVERY))
    now = 0

    def torn(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        nonlocal now
        fill(path, pieces)
        if "step-" not in path.name:
            return
        now = next(writes)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        photos("half written", now)
        path.write_bytes(data)
        photos("written", now)

    def replaced(one: Path, other: Path) -> None:
        replace(one, other)
        if other.name.endswith(".safetensors"):
            photos("in its place", now)

    def removed(path: Path) -> None:
        if path.name.startswith("step-"):
            photos("the old one goes", now)
        remove(path)

    patch.setattr(files, "fill", torn)
    patch.setattr(checkpoint.os, "replace", replaced)
    patch.setattr(checkpoint, "_remove", removed)


def test_a_run_that_nobody_stops_is_all_there(whole: Whole) -> None:
    check_record(whole.folder)
    assert whole.outcome[0] == TOTAL


@pytest.mark.parametrize("step", [3, 4, 10])
@pytest.mark.parametrize("moment", MOMENTS)
def test_wherever_it_is_killed_it_comes_out_the_same_to_the_last_bit(
    whole: Whole, tmp_path: Path, moment: str, step: int
) -> None:
    folder = whole.goes_on(moment, step, tmp_path)
    assert outcome(folder) == whole.outcome
    check_record(folder)


@pytest.mark.parametrize(
    ("moment", "step"),
    [(moment, step) for step in (4, 8) for moment in WRITING[:3]]
    + [("the old one goes", 12)],
)
def test_a_kill_while_a_checkpoint_is_written_costs_that_one_at_most(
    whole: Whole, tmp_path: Path, moment: str, step: int
) -> None:
    folder = whole.photos.print(moment, step, tmp_path)
    shelf = Shelf(folder / "checkpoints")
    there = step if moment in WRITING[2:] else step - EVERY
    assert (shelf.newest() or (0, None))[0] == there
    train(folder)
    assert outcome(folder) == whole.outcome
    check_record(folder)
    assert {*os.listdir(folder / "checkpoints")} == {
        "step-00000012.safetensors", "step-00000013.safetensors",
    }  # fmt: skip


def test_a_run_may_be_killed_many_times(whole: Whole, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def die(folder: Path, album: Path, when: int, moment: str, step: int) -> None:
        if (moment, step) == ("is half done", when):
            copy(folder, album)
            raise Killed

    folder = tmp_path / "0"
    for life, step in enumerate((2, 6, 5, 6, 11, 12), start=1):
        album = tmp_path / str(life)
        with pytest.raises(Killed):
            train(folder, look=partial(die, folder, album, step))
        folder = album
    train(folder)
    assert outcome(folder) == whole.outcome
    check_record(folder)


def test_workers_that_were_lost_are_there_again(whole: Whole, tmp_path: Path) -> None:
    """The last that the checkpoint of an earlier life says of worker 1 is its loss."""
    folder = whole.photos.print("begun", 5, tmp_path)
    state = checkpoint.load(newest_file(folder))
    *before, end = zlib.decompress(bytes(state["learnt"]["lines"])).splitlines()
    at = msgspec.json.decode(end, type=Entry).event.at
    lost = msgspec.json.encode(Entry(WorkersLost((1,), at), ()))
    changed = zlib.compress(b"\n".join([*before, lost, end, b""]))
    state["learnt"]["lines"] = np.frombuffer(changed, np.uint8)
    checkpoint.save(newest_file(folder), state)
    train(folder)
    assert outcome(folder) == whole.outcome
    check_record(folder)
    events = [entry.event for entry in read_run(folder).trace.entries]
    joined = [event for event in events if isinstance(event, WorkersJoined)]
    assert [event.workers for event in joined] == [(1,)]
    following = events[events.index(joined[0]) + 1]
    assert is_start(following)
    assert following.step == 4


def test_a_worker_lost_right_after_a_checkpoint_is_there_again(tmp_path: Path) -> None:
    engine, options = Local(), {"scheme": "fractional(1)", "workers": 4}

    def lose(moment: str, step: int) -> None:
        if (moment, step) == ("begun", EVERY):  # the checkpoint is of this step
            os.kill(engine.pids[0], signal.SIGKILL)
            wait_for(lambda: engine.workers[0].state == "lost")
        if (moment, step) == ("is done", EVERY + 1):
            copy(tmp_path / "run", tmp_path / "killed")

    train(tmp_path / "run", engine=engine, look=lose, **options)
    lost = [e.event for e in read_run(tmp_path / "run").trace.entries]
    assert [e.workers for e in lost if isinstance(e, WorkersLost)] == [(0,)]
    train(tmp_path / "killed", engine=Local(), **options)
    check_record(tmp_path / "killed", scheme="fractional(1)")
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "run")


@pytest.mark.parametrize("scheme", ["fractional(2)", "cyclic(1)", "clustered(1, 2)"])
def test_other_schemes_go_on_as_well(scheme: str, tmp_path: Path) -> None:
    photos = Photos(tmp_path / "run", tmp_path / "album", only=("is half done", 10))
    train(photos.run, scheme=scheme, look=photos)
    folder = photos.print("is half done", 10, tmp_path / "other")
    train(folder, scheme=scheme)
    assert outcome(folder) == outcome(photos.run)
    check_record(folder, scheme=scheme)


# -- whether there is a run ------------------------------------------------------------


def test_a_run_is_not_written_over(whole: Whole, tmp_path: Path) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    before = contents(folder)
    said = 'has a run already; try resume="auto" to go on with it, or another folder'
    with pytest.raises(InvalidFolder, match=said):
        train(folder, resume=False)
    assert contents(folder) == before


def test_a_run_that_must_be_there_is_missed(whole: Whole, tmp_path: Path) -> None:
    advice = "; try the folder of a run, or resume=False to begin one"
    with pytest.raises(InvalidFolder, match=f"none: does not exist{advice}"):
        train(tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidFolder, match=f"none: has no run to resume{advice}"):
        train(tmp_path / "none", resume=True)
    folder = whole.photos.print("begun", 3, tmp_path)  # before its first checkpoint
    before = contents(folder)
    said = 'has no checkpoint to go on from; try resume="auto", which begins at step 0'
    with pytest.raises(InvalidFolder, match=said):
        train(folder, resume=True)
    assert contents(folder) == before
    with pytest.raises(InvalidOptions, match="resume: has no folder to be in"):
        train(None, resume=True)


def test_a_misspelt_folder_is_answered_with_the_run_that_was_meant(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    (tmp_path / "typ").mkdir()  # nearer, and without a run
    with pytest.raises(InvalidFolder) as caught:
        train(tmp_path / "typo", resume=True)
    assert f"typo: does not exist (did you mean {folder}?); try " in str(caught.value)
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("resume", ["yes", "AUTO", None])
def test_another_word_is_refused(tmp_path: Path, resume: Any) -> None:
    with pytest.raises(InvalidOptions, match=r"resume: is .* try True, False or"):
        train(tmp_path / "run", resume=resume)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_where_it_must_be_there(whole: Whole, tmp_path: Path) -> None:
    folder = whole.goes_on("begun", 7, tmp_path, resume=True)
    assert outcome(folder) == whole.outcome


def test_where_there_is_nothing_a_run_begins(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path / "a" / "b", tmp_path):
        train(folder, resume="auto")
        assert outcome(folder) == whole.outcome
        assert capsys.readouterr().err == (
            f"codedgrad: nothing to resume in {folder}: beginning at step 0\n"
        )


@pytest.mark.parametrize("resume", [True, "auto"])
def test_a_run_that_goes_on_says_from_where(
    whole: Whole,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    resume: bool | str,
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    saved = Shelf(folder / "checkpoints").steps()[-1]
    train(folder, resume=resume)
    said = f"codedgrad: going on from step {saved} of {folder}\n"
    assert capsys.readouterr().err == said


def test_a_new_run_has_nothing_to_say_of_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", resume=False)
    assert capsys.readouterr().err == ""


def test_a_folder_with_files_of_the_user_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "train.py").touch()
    train(tmp_path, total=2)
    own = tmp_path / "runs" / "first"
    assert caplog.messages[0] == (
        f"run_dir {tmp_path} holds other files: the files of the run are written "
        f"beside them; a folder of its own, such as {own}, keeps them apart"
    )
    train(tmp_path, total=3)
    assert caplog.text.count("holds other files") == 1


@pytest.mark.parametrize("names", [[], [".gitkeep"], ["lock.json"], ["run.json"]])
def test_a_folder_that_is_empty_or_of_a_run_is_not_warned_of(
    names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in names:
        (tmp_path / name).touch()
    train(tmp_path, total=2)
    assert "other files" not in caplog.text


def write_trace(folder: Path, data: bytes) -> None:
    """Leave a trace of the first life."""
    (folder / TRACE).mkdir(exist_ok=True)
    (folder / TRACE / "0001-00000000.jsonl").write_bytes(data)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: write_trace(folder, b""),
        lambda folder: write_trace(folder, b'{"scheme":"unc'),
        lambda folder: (folder / STEPS).unlink(),
        lambda folder: (folder / f".{MANIFEST}.0123abcd").write_bytes(b"{"),
    ],
    ids=["empty trace", "torn trace", "no figures", "torn manifest"],
)
def test_a_run_killed_as_it_began_begins_anew(
    whole: Whole, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    folder = whole.photos.print("begun", 0, tmp_path)
    spoil(folder)
    train(folder)
    assert outcome(folder) == whole.outcome
    check_record(folder)


# -- what must be the same -------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": 1}, "has seed 0, not 1; try seed=0"),
        (
            {"make": partial(job, batch_size=16)},
            "takes 15 samples a step, not 16; try batch_size=15",
        ),
        (
            {"make": partial(job, samples=41)},
            "has 40 samples, and the job has 41; try the same data",
        ),
        (
            {"make": partial(job, offset=1.0)},
            "was trained on other samples: a few had the digest [0-9a-f]{16}, and now "
            r"have [0-9a-f]{16}; try the same data, Job\(verify_data=False\) if only",
        ),
        (
            {"make": partial(job, least_samples=3)},
            "has 2 samples in a part at least, not 3; try least_samples=2",
        ),
        (
            {"make": partial(job, shuffle=False)},
            "has shuffle=True, not False; try shuffle=True",
        ),
        ({"unbiased": True}, "has unbiased=False, not True; try unbiased=False"),
        (
            {"scheme": build("uncoded(pieces=2)", 3)},
            "has 3 parts a step, and the scheme has 6; try the scheme in words, which "
            "is then built for 3 parts",
        ),
    ],
    ids=[
        "seed",
        "batch_size",
        "samples",
        "data",
        "least_samples",
        "shuffle",
        "unbiased",
        "parts",
    ],
)
@pytest.mark.parametrize("step", [2, 7])
def test_another_run_is_not_gone_on_with(
    whole: Whole, tmp_path: Path, step: int, options: dict, said: str
) -> None:
    folder = whole.photos.print("begun", step, tmp_path)
    before = contents(folder)
    where = f"run_dir {folder}: the run "
    with pytest.raises(InvalidFolder, match=f"{where}{said}.*, or another folder$"):
        train(folder, **options)
    assert contents(folder) == before


def test_samples_that_are_not_to_be_looked_at_are_not_compared(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    train(folder, make=partial(job, verify_data=False))
    assert outcome(folder) == whole.outcome


@pytest.mark.parametrize("missing", ["run.json", "in the checkpoint", "both"])
def test_what_is_run_is_told_twice(whole: Whole, tmp_path: Path, missing: str) -> None:
    """A run whose manifest is lost goes on, and is still not taken for another."""
    folder = whole.photos.print("begun", 7, tmp_path)
    if missing != "in the checkpoint":
        (folder / MANIFEST).unlink()
    if missing != "run.json":
        state = checkpoint.load(newest_file(folder))
        del state["manifest"]
        checkpoint.save(newest_file(folder), state)
    if missing != "both":
        with pytest.raises(InvalidFolder, match="has seed 0, not 1"):
            train(folder, seed=1)
    train(folder)
    assert outcome(folder) == whole.outcome


@pytest.mark.parametrize(
    "options",
    [
        {"patience": Patience(least=1.0)},
        {"engine": Here(open_segments=7)},
        {"label": "another"},
    ],
    ids=["patience", "engine", "label"],
)
def test_another_way_to_decide_goes_on(
    whole: Whole, tmp_path: Path, options: dict
) -> None:
    folder = whole.goes_on("begun", 7, tmp_path, **options)
    assert outcome(folder) == whole.outcome


def test_another_model_is_not_gone_on_with(whole: Whole, tmp_path: Path) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    before = contents(folder)
    said = (
        rf"^{folder}: the checkpoint of step 4 does not fit: 0\.weight has the shape "
        r"\(9, 4\), the model's \(8, 4\)"
    )
    with pytest.raises(InvalidCheckpoint, match=said):
        train(folder, make=partial(job, width=8))
    assert contents(folder) == before


# -- files that are damaged ------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def scribble(path: Path) -> None:
    path.write_bytes(b"my thesis\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("damage", [truncate, scribble, empty])
@pytest.mark.parametrize("step", [9, 12])
def test_where_the_newest_checkpoint_is_damaged_it_is_the_one_before(
    whole: Whole,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    step: int,
) -> None:
    folder = whole.photos.print("begun", step, tmp_path)
    damage(newest_file(folder))
    train(folder)
    damaged = step // EVERY * EVERY
    said = [r.getMessage() for r in caplog.records if "checkpoint of" in r.getMessage()]
    assert len(said) == 1
    assert f"step-{damaged:08d}.safetensors" in said[0]
    assert said[0].endswith(f"going back to the checkpoint of step {damaged - EVERY}")
    assert outcome(folder) == whole.outcome
    check_record(folder)


def test_a_damaged_checkpoint_is_replaced_when_its_step_comes_again(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 9, tmp_path)
    truncate(newest_file(folder))
    photos = Photos(folder, tmp_path / "album", only=("begun", 9))
    train(folder, look=photos)
    newest = Shelf(photos.album / "begun 9" / "checkpoints").newest()
    assert newest is not None
    assert newest[0] == 8


def test_where_all_checkpoints_are_damaged_nothing_is_lost(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 9, tmp_path)
    for file in (folder / "checkpoints").iterdir():
        truncate(file)
    before = contents(folder)
    with pytest.raises(InvalidCheckpoint, match="none of its checkpoints can be read"):
        train(folder)
    assert contents(folder) == before


def test_a_run_whose_samples_came_in_another_order_is_not_gone_on_with(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = whole.photos.print("begun", 5, tmp_path)
    state = checkpoint.load(newest_file(folder))
    with monkeypatch.context() as patch:
        patch.setattr(packed, "VERSION", 1)
        checkpoint.save(newest_file(folder), state)
    before = contents(folder)
    with pytest.raises(InvalidCheckpoint, match="took the samples in another order"):
        train(folder)
    assert contents(folder) == before


def test_nothing_in_a_checkpoint_is_executed(whole: Whole, tmp_path: Path) -> None:
    folder = whole.photos.print("begun", 5, tmp_path)
    trap = tmp_path / "sprung"
    newest_file(folder).write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(InvalidCheckpoint, match="is damaged, or no checkpoint"):
        train(folder)
    torch.save({"model": Trap(trap)}, newest_file(folder))
    with pytest.raises(InvalidCheckpoint, match="is damaged, or no checkpoint"):
        train(folder)
    assert not trap.exists()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"model": {}, "tracked": {}, "generators": {}},
        {"model": 3, "tracked": 4, "generators": 5},
        {"model": {"0.weight": "heavy"}, "tracked": [], "generators": None},
    ],
    ids=range(4),
)
def test_a_checkpoint_of_something_else_is_refused(
    whole: Whole, tmp_path: Path, state: dict
) -> None:
    folder = whole.photos.print("begun", 5, tmp_path)
    checkpoint.save(newest_file(folder), state)
    before = contents(folder)
    with pytest.raises(InvalidCheckpoint, match="checkpoint of step 4 does not fit: "):
        train(folder)
    assert contents(folder) == before


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run"
    file.write_text("my thesis")
    for resume in (False, "auto"):
        with pytest.raises(InvalidFolder, match=f"run_dir {file}: cannot be written"):
            train(file, resume=resume)
    with pytest.raises(InvalidFolder, match="has no run to resume"):
        train(file, resume=True)
    assert file.read_text() == "my thesis"


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidFolder, match="run_dir /proc/nothing: cannot be"):
        train(Path("/proc/nothing"), resume=False)


@pytest.mark.parametrize("name", [STEPS, MANIFEST, TRACE])
def test_what_is_only_told_to_people_does_not_stop_a_run(
    whole: Whole, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    if name == TRACE:
        shutil.rmtree(folder / name)
        (folder / name).write_text("my thesis")
    else:
        (folder / name).unlink()
        (folder / name).mkdir()
    train(folder)
    assert state_of(folder)["step"] == TOTAL
    assert bits(state_of(folder)) == bits(state_of(whole.folder))
    assert caplog.text.count(f"{folder / name}") >= 1


def test_a_run_whose_checkpoints_are_gone_says_that_it_begins_again(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    shutil.rmtree(folder / "checkpoints")
    lines = (folder / STEPS).read_bytes()
    train(folder)
    assert capsys.readouterr().err == (
        f"codedgrad: {folder} has figures of steps, but no checkpoint: beginning at "
        "step 0\n"
    )
    assert (folder / STEPS).read_bytes().startswith(lines)  # nothing is lost
    assert outcome(folder) == whole.outcome


def test_samples_are_still_compared_after_a_life_that_did_not(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    train(folder, make=partial(job, verify_data=False), total=9)
    with pytest.raises(InvalidFolder, match="was trained on other samples"):
        train(folder, make=partial(job, offset=1.0))


def test_a_model_of_another_type_is_not_gone_on_with(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    said = r"0\.weight is of torch\.float32, the model's of torch\.float64"
    with pytest.raises(InvalidCheckpoint, match=said):
        train(folder, make=partial(job, "float64", verify_data=False))


def test_a_loop_without_steps_goes_on_with_its_luck(tmp_path: Path) -> None:
    def drawn(total: int) -> list[float]:
        found = []
        with cg.torch.train(
            job, scheme="uncoded", workers=2, engine="here", run_dir=tmp_path / "run",
            resume="auto",
        ) as coded:  # fmt: skip
            while coded.step + bool(found) < total:
                coded.backward()
                found.append(torch.rand(()).item())
        return found

    torch.manual_seed(5)
    drawn(3)
    after = torch.rand(()).item()
    torch.manual_seed(99)
    assert drawn(4)[0] == after


def open_files(folder: Path) -> list[Path]:
    """Return the files in a folder that this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found.append(entry.readlink())
    return [path for path in found if path.is_relative_to(folder)]


def test_files_are_open_while_a_run_goes_on(tmp_path: Path) -> None:
    seen: list[set[str]] = []
    train(tmp_path, total=1, look=lambda *_: seen.append(names(tmp_path)))
    others = {"lock.json", "status.json", ".status.json.1", TRACE}  # threads', at times
    files = {".lock.life-1", STEPS}
    assert [each - others for each in seen] == [
        files, *[files | {"0001-00000000.jsonl"}] * 3
    ]  # fmt: skip
    assert open_files(tmp_path) == []


def names(folder: Path) -> set[str]:
    return {path.name for path in open_files(folder)}


class Broken(Here):
    """An engine that does not start."""

    def start(self, *given: Any, **options: Any) -> None:
        raise InvalidOptions("the engine", "is broken", "another")


def test_a_start_that_failed_is_not_yet_a_run(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="is broken"):
        train(tmp_path, engine=Broken(), seed=5)
    train(tmp_path, resume=False)
    assert outcome(tmp_path) == whole.outcome
    check_record(tmp_path)


def test_files_are_closed_where_workers_do_not_start(
    whole: Whole, tmp_path: Path
) -> None:
    folder = whole.photos.print("begun", 7, tmp_path)
    with pytest.raises(InvalidOptions, match="is broken"):
        train(folder, engine=Broken())
    assert open_files(folder) == []
    train(folder)
    assert outcome(folder) == whole.outcome


# -- how far ---------------------------------------------------------------------------


def test_a_run_that_is_done_does_nothing_more(whole: Whole, tmp_path: Path) -> None:
    folder = shutil.copytree(whole.folder, tmp_path / "run")
    before = contents(folder)
    for total in (TOTAL, TOTAL - 5, 0):
        train(folder, total=total)
        assert contents(folder) == before


def test_a_run_that_is_done_goes_on_where_more_is_wanted(
    whole: Whole, tmp_path: Path
) -> None:
    folder, longer = shutil.copytree(whole.folder, tmp_path / "run"), tmp_path / "long"
    train(folder, total=TOTAL + 5)
    train(longer, total=TOTAL + 5)
    assert outcome(folder) == outcome(longer)
    check_record(folder, TOTAL + 5)


def test_as_many_checkpoints_are_kept_as_were_asked_for(
    whole: Whole, tmp_path: Path
) -> None:
    assert Shelf(whole.folder / "checkpoints").steps() == [12, 13]
    seen: dict[int, list[int]] = {}

    def look(moment: str, step: int) -> None:
        seen[step] = Shelf(folder / "checkpoints").steps()

    folder = whole.photos.print("begun", 7, tmp_path)
    train(folder, look=look, checkpoints=Checkpoints(seconds=None, steps=2, keep=3))
    assert seen == {
        4: [4], 5: [4], 6: [4, 6], 7: [4, 6], 8: [4, 6, 8], 9: [4, 6, 8],
        10: [6, 8, 10], 11: [6, 8, 10], 12: [8, 10, 12],
    }  # fmt: skip
    assert Shelf(folder / "checkpoints").steps() == [10, 12, 13]


@pytest.mark.parametrize(
    ("when", "seen"),
    [
        (Checkpoints(seconds=None, steps=1, keep=9), [*range(1, TOTAL + 1)]),
        (Checkpoints(seconds=None), [TOTAL]),
        (Checkpoints(seconds=1000.0, steps=6), [6, 12, TOTAL]),
    ],
    ids=["always", "never", "both"],
)
def test_checkpoints_are_written_by_time_and_by_steps(
    tmp_path: Path, when: Checkpoints, seen: list[int]
) -> None:
    train(tmp_path, checkpoints=when)
    assert Shelf(tmp_path / "checkpoints").steps() == seen[-when.keep :]


@pytest.mark.parametrize("name", ["seconds", "steps", "keep"])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_checkpoints_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidOptions, match=f"checkpoints: {name}: is {value}; try"):
        Checkpoints(**{name: value})


# -- what is in a checkpoint -----------------------------------------------------------


def test_what_is_tracked_and_what_is_not_are_told_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def once(total: int, *names: str) -> list[str]:
        caplog.clear()
        with cg.torch.train(
            job, scheme="uncoded", workers=2, engine="here", run_dir=tmp_path,
            resume="auto",
        ) as coded:  # fmt: skip
            for name in names:
                optimizer = torch.optim.SGD(coded.model.parameters(), 0.1, momentum=0.9)
                coded.track(**{name: optimizer})
            for _ in coded.steps(total):
                coded.backward()
                optimizer.step()
        said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        return [line for line in said if "normalises" not in line]

    assert once(2, "first", "second") == []
    assert once(3, "first", "second") == []
    assert once(4, "second", "third") == [
        "the checkpoint has no state of 'third': it starts as it is now",
        "the checkpoint has 'first', which is not tracked",
    ]


def test_what_is_tracked_later_in_a_first_run_is_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cg.torch.train(
        job, scheme="uncoded", workers=2, engine="here", run_dir=tmp_path
    ) as coded:
        for step in coded.steps(3):
            coded.backward()
            if step == 1:
                late = torch.optim.SGD(coded.model.parameters(), 0.1)
                coded.track(late=late)
    assert "has no state of" not in caplog.text
    _, state = Shelf(tmp_path / "checkpoints").newest() or (0, {})
    assert list(state["tracked"]) == ["late"]


def test_the_states_of_a_run_are_in_its_checkpoint(whole: Whole) -> None:
    _, state = Shelf(whole.folder / "checkpoints").newest() or (0, {})
    assert (state["step"], state["epoch"], state["step_of_epoch"]) == (13, 4, 1)
    assert state["model"]["1.num_batches_tracked"] == TOTAL
    assert not torch.equal(state["model"]["1.running_mean"], torch.zeros(9))
    assert list(state["tracked"]) == ["optimizer", "schedule", "average"]
    assert state["tracked"]["schedule"]["last_epoch"] == TOTAL
    assert state["tracked"]["average"]["n_averaged"] == TOTAL


def test_luck_before_a_gradient_that_never_came_is_not_used_up(
    whole: Whole, tmp_path: Path
) -> None:
    """A step that was begun, and could not be ended, is begun once more."""

    class Oops(Exception):
        pass

    def fail(moment: str, step: int) -> None:
        if (moment, step) == ("begun", 6):
            raise Oops

    folder = tmp_path / "run"
    with pytest.raises(Oops):
        train(folder, look=fail)
    assert Shelf(folder / "checkpoints").steps() == [4, 6]
    train(folder)
    assert outcome(folder) == whole.outcome


def test_time_in_the_loop_does_not_make_time_go_back(tmp_path: Path) -> None:
    """The clock of a run stands still between two lives of it, and never goes back."""
    ends: list[float] = []

    def dawdle(moment: str, step: int) -> None:
        if moment == "is half done":
            time.sleep(0.1)

    for total in (2, 4):
        train(tmp_path, total=total, look=dawdle)
        ends.append(read_run(tmp_path).trace.entries[-1].event.at)
    check_record(tmp_path, 4)
    lines = read_run(tmp_path).steps
    assert lines[1].at <= ends[0] <= lines[2].at


# -- really killed ---------------------------------------------------------------------

LONG = 60
PATIENCE = 60.0  # seconds; only a hang takes so long


@dataclass(frozen=True)
class Case:
    """A run with workers in trouble, whose root is killed a few times.

    Attributes:
        scheme: In words.
        workers: How many.
        kills: In which steps, each drawn between two; None: while a checkpoint is
            written.
        faults: What is done to workers, by kind; all of it for certain to happen.
        dtype: Of the model.
    """

    scheme: str
    workers: int
    kills: tuple[tuple[int, int] | None, ...]
    faults: dict[str, tuple[float, ...]]
    dtype: str = "float32"

    @property
    def is_to_the_bit(self) -> bool:
        return self.scheme.startswith(("uncoded", "fractional"))

    @property
    def options(self) -> dict[str, Any]:
        """What is the same in all lives of it."""
        return {
            "make": partial(job, self.dtype, samples=110, batch_size=60),
            "scheme": self.scheme,
            "workers": self.workers,
            "total": LONG,
        }

    def plan(self) -> FaultPlan:
        faults = FaultPlan()
        for kind, given in self.faults.items():
            getattr(faults, kind)(*given)
        return faults


CASES = [
    Case(
        "uncoded",
        4,
        kills=((2, 4), None),
        faults={"slow": (2, 9, 0.05), "kill": (1, 20), "stop": (3, 52, 0.1)},
    ),
    Case(
        "fractional(1)",
        4,
        kills=((8, 25), (35, 55)),
        faults={"kill": (0, 12), "stop": (3, 28, 0.2)},
        dtype="float64",
    ),
    Case(
        "cyclic(2)",
        5,
        kills=((6, 12), (35, 55)),
        faults={"kill": (0, 10), "stop": (3, 30, 0.2)},
    ),
    Case(
        "clustered(2, 1)",
        6,
        kills=(None,),
        faults={"stop": (1, 12, 0.2), "kill": (2, 28)},
    ),
]
NUMBERED = pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda n: CASES[n].scheme
)


def ALL(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on every story. They are long: roots are killed and start anew."""
    return pytest.mark.long(NUMBERED(test))


def live(life: dict[str, Any]) -> None:
    """Be the root of a run, and tell how it goes; in a process of its own.

    Args:
        life: The case, the folder, and whom to tell. `until` is a step in which it
            waits to be killed; `torn` says to be killed while a checkpoint is written.
    """
    case, tell = Case(**life["case"]), life["tell"]
    faults, engine, begun = case.plan(), Local(), time.monotonic()

    def look(moment: str, step: int) -> None:
        nonlocal begun
        if moment == "begun" and step == life["until"]:
            time.sleep(PATIENCE)
        if moment == "is done":
            took, begun = time.monotonic() - begun, time.monotonic()
            tell.send((step, took, engine.nursery, [*map(str, faults.fired)]))

    if life["torn"]:
        files.fill = partial(save_half, files.fill)
    when = Checkpoints(seconds=None, steps=5, keep=2)
    train(
        life["folder"], engine=engine, faults=faults, look=look, checkpoints=when,
        **case.options,
    )  # fmt: skip
    tell.send((LONG, 0.0, 0, []))


def save_half(fill: Callable, path: Path, pieces: object) -> None:
    """Write half of a checkpoint, and be killed; the second time it comes to it."""
    fill(path, pieces)
    if path.with_name("step-00000020.safetensors").exists():
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Story:
    """All lives of a run.

    Attributes:
        folder: Of the run.
        steps: Those that each life has done.
        fired: Faults, of all lives.
        orphans: Processes that were left behind, for longer than they need to end.
    """

    folder: Path
    steps: list[list[int]] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)
    orphans: list[int] = field(default_factory=list)

    def live(self, case: Case, **life: Any) -> None:
        """Live until killed, or to the end."""
        context = get_context("forkserver")
        context.set_forkserver_preload(["pytest", "codedgrad.torch"])
        hear, tell = context.Pipe(duplex=False)
        given = {"case": asdict(case), "folder": self.folder, "tell": tell, **life}
        process = context.Process(
            target=runpy.run_path, args=(__file__, {"LIFE": given}, "__main__")
        )
        process.start()
        tell.close()
        try:
            self._listen(process, hear, life)
            process.join(PATIENCE)
        finally:
            process.kill()
            process.join()
            hear.close()

    def _listen(self, process: Any, hear: Connection, life: dict[str, Any]) -> None:
        steps, nursery, killed = list[int](), 0, False
        self.steps.append(steps)
        while hear.poll(PATIENCE):
            try:
                step, took, session, fired = hear.recv()
            except EOFError:  # it has ended, or was killed
                break
            steps.append(step)
            self.fired.update(fired)
            nursery = session or nursery
            if step == life["until"] - 2 and not killed:
                time.sleep(life["fraction"] * took)
                process.kill()
                killed = True
        assert nursery
        wait_for(lambda: not members(nursery))
        self.orphans += members(nursery)


def members(session: int) -> list[int]:
    """Return the processes of a session that have not ended: those of a nursery."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


def wait_for(what: Callable[[], bool]) -> None:
    """Look until it is so, or until a hang is called one."""
    deadline = time.monotonic() + PATIENCE
    while not what() and time.monotonic() < deadline:
        time.sleep(0.01)


def tell_story(case: Case, folder: Path, rng: np.random.Generator) -> Story:
    story = Story(folder)
    for between in case.kills:
        until = LONG + 2 if between is None else int(rng.integers(*between))
        fraction = float(rng.uniform(0, 1.5))
        story.live(case, until=until, torn=between is None, fraction=fraction)
    story.live(case, until=LONG + 2, torn=False, fraction=0.0)
    return story


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Future[Story]]]:
    """Tell all stories, two at a time; each test waits for its own alone."""
    base = tmp_path_factory.mktemp("killed")
    rngs = np.random.default_rng(7).spawn(len(CASES))
    with ThreadPoolExecutor(2) as pool:
        yield [
            pool.submit(tell_story, case, base / str(number), rng)
            for number, (case, rng) in enumerate(zip(CASES, rngs, strict=True))
        ]


@pytest.fixture
def story(stories: list[Future[Story]], number: int) -> Story:
    return stories[number].result()


@pytest.fixture
def case(number: int) -> Case:
    return CASES[number]


@ALL
def test_roots_are_killed_and_workers_are_in_trouble(story: Story, case: Case) -> None:
    lives, deaths = len(story.steps), len(case.kills)
    assert [LONG in steps for steps in story.steps] == [False] * deaths + [True]
    assert lives == deaths + 1
    assert story.fired == {str(fault) for fault in case.plan().planned}


@ALL
def test_no_process_outlives_its_root(story: Story) -> None:
    assert story.orphans == []


@ALL
def test_all_lives_of_a_run_make_one_run(story: Story, case: Case) -> None:
    check_record(story.folder, LONG, case.scheme)
    for before, after in pairwise(story.steps):
        assert max(before) - 6 < min(after) <= max(before) + 1  # from a checkpoint


@ALL
def test_a_run_that_was_killed_comes_out_as_one_that_was_not(
    story: Story, case: Case, tmp_path: Path
) -> None:
    train(tmp_path, **case.options)  # in this process
    if case.is_to_the_bit:
        assert outcome(story.folder) == outcome(tmp_path)
        return
    found, wanted = (come_to(state_of(path))[1] for path in (story.folder, tmp_path))
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-4)


@ALL
def test_a_run_that_was_killed_replays_to_the_last_bit(
    story: Story, case: Case
) -> None:
    model = train(None, engine=Replayed(story.folder), **case.options)
    assert bits(model.state_dict()) == bits(state_of(story.folder)["model"])


if __name__ == "__main__":
    live(globals()["LIFE"])
