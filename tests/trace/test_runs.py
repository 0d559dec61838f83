"""The folder of a run: written a line at a time, read whole, refused if damaged."""

import errno
import math
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from codedgrad.core import Coordinator, MessageArrived, StepStarted
from codedgrad.errors import InvalidTrace, LockLost
from codedgrad.schemes import uncoded
from codedgrad.trace import (
    Header,
    Manifest,
    Recorder,
    StepLine,
    StepLog,
    read_run,
    write_manifest,
)
from codedgrad.trace.files import write_whole
from codedgrad.trace.runs import read_manifest, read_steps

MANIFEST = Manifest(
    scheme="uncoded",
    workers=1,
    parts=1,
    engine="local",
    seed=5,
    samples=100,
    batch_size=10,
    steps_per_epoch=10,
    versions={"numpy": "2"},
)
LINES = (
    StepLine(step=0, at=1.5, seconds=1.25, loss=2.0, count=10.0, samples=10.0),
    StepLine(step=1, at=3.0, seconds=1.5, metrics={"norm": 0.1}, logged={"acc": None}),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two steps."""
    write_manifest(tmp_path, MANIFEST)
    coordinator = Coordinator(uncoded(1))
    header = Header(scheme="uncoded", workers=1, parts=1)
    (tmp_path / "trace").mkdir()
    with Recorder(tmp_path / "trace" / "0001-00000000.jsonl", header) as record:
        for step in range(2):
            for event in (
                StepStarted(step, at=2.0 * step),
                MessageArrived(step, 0, 1, ((0, 1),), at=2.0 * step + 1.0),
            ):
                record(event, coordinator.handle(event))
    with StepLog(tmp_path) as log:
        for line in LINES:
            log(line)
    return tmp_path


def test_what_was_written_is_read_back(folder: Path) -> None:
    run = read_run(folder)
    assert run.path == folder
    assert run.manifest == MANIFEST
    assert run.steps == LINES
    assert run.trace.header.scheme == "uncoded"
    assert sum(entry.ends_step for entry in run.trace.entries) == 2
    assert read_run(str(folder)).steps == LINES


def test_people_call_it_by_its_label_or_else_by_its_scheme() -> None:
    assert MANIFEST.title == "uncoded"
    assert msgspec.structs.replace(MANIFEST, label="mine").title == "mine"


def test_a_manifest_is_for_people_to_read_too(folder: Path) -> None:
    text = (folder / "run.json").read_text()
    assert '\n  "scheme": "uncoded",\n' in text
    assert text.endswith("}\n")


def test_a_loss_that_is_not_finite_is_none(tmp_path: Path) -> None:
    with StepLog(tmp_path) as log:
        log(StepLine(step=0, at=0.0, seconds=1.0, loss=math.nan))
    [line] = read_steps(tmp_path / "steps.jsonl")
    assert line.loss is None


def test_a_torn_last_line_is_left_out(folder: Path) -> None:
    file = folder / "steps.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    assert read_run(folder).steps == LINES[:1]


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    log = StepLog(tmp_path)
    log.close()
    log.close()


def test_a_run_that_logged_nothing_has_no_figures(folder: Path) -> None:
    (folder / "steps.jsonl").unlink()
    assert read_run(folder).steps == ()


def test_steps_that_cannot_be_read_are_refused(folder: Path) -> None:
    (folder / "steps.jsonl").unlink()
    (folder / "steps.jsonl").mkdir()
    with pytest.raises(InvalidTrace, match=r"steps.jsonl: cannot be read"):
        read_run(folder)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "line 2 is no step"),
        ("[]", "line 2 is no step"),
        ('{"step":1}', "missing required field `at`"),
        ('{"step":"one","at":1,"seconds":1}', "line 2 is no step"),
        ("[" * 100_000, "line 2 is no step"),
    ],
)
def test_a_line_that_is_no_step_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture, line: str, why: str
) -> None:
    first, second = (folder / "steps.jsonl").read_text().splitlines()
    (folder / "steps.jsonl").write_text(f"{first}\n{line}\n{second}\n")
    assert read_run(folder).steps == LINES
    assert why in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not describe a run"),
        ("{}", "does not describe a run"),
        ("[" * 100_000, "does not describe a run"),
        ("\xff", "does not describe a run"),
    ],
)
def test_a_manifest_that_describes_no_run_is_refused(
    folder: Path, text: str, why: str
) -> None:
    (folder / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(InvalidTrace, match=why):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "a cake"}, "says it is a 'a cake'"),
        ({"version": 2}, "has version 2, newer than 1"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(
    folder: Path, changes: dict[str, object], why: str
) -> None:
    write_manifest(folder, msgspec.structs.replace(MANIFEST, **changes))
    with pytest.raises(InvalidTrace, match=why):
        read_run(folder)


@pytest.mark.parametrize("left", ["nothing", "a file", "an empty folder", "rubbish"])
def test_a_run_without_a_trace_has_its_figures(
    folder: Path, caplog: pytest.LogCaptureFixture, left: str
) -> None:
    shutil.rmtree(folder / "trace")
    if left == "a file":
        (folder / "trace").touch()
    elif left != "nothing":
        (folder / "trace").mkdir()
    if left == "rubbish":
        (folder / "trace" / "0001-00000000.jsonl").write_text("my thesis")
    run = read_run(folder)
    assert run.steps == LINES
    assert run.trace.entries == ()
    assert (run.trace.header.workers, run.trace.header.parts) == (1, 1)
    assert "has no trace: who was late is not known" in caplog.text
    assert "trace.jsonl" not in caplog.text
    (folder / "trace.jsonl").touch()  # of a version that had no folder for it
    read_run(folder)
    assert f"is not known; read {folder / 'trace.jsonl'} by itself" in caplog.text


def test_a_file_is_no_folder_of_a_run(folder: Path) -> None:
    with pytest.raises(InvalidTrace, match="is not the folder of a run"):
        read_run(folder / "run.json")


def test_a_folder_of_runs_says_which(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    with pytest.raises(InvalidTrace, match="of a run, but holds one and two"):
        read_run(tmp_path)


def test_a_manifest_is_whole_or_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        write_manifest(folder, msgspec.structs.replace(MANIFEST, seed=6))
    monkeypatch.undo()
    assert read_manifest(folder).seed == 5
    assert sorted(path.name for path in folder.iterdir()) == [
        "run.json",
        "steps.jsonl",
        "trace",
    ]


def test_a_whole_file_replaces_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"old")
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_later_life_has_the_last_word_on_its_steps(tmp_path: Path) -> None:
    for life, steps in ((1, range(7)), (2, range(4, 6)), (3, range(4, 9))):
        with StepLog(tmp_path, life) as log:
            for step in steps:
                log(StepLine(step=step, at=1.0, seconds=float(life)))
    found = read_steps(tmp_path / "steps.jsonl")
    assert [line.step for line in found] == [*range(9)]
    assert [line.life for line in found] == [1] * 4 + [3] * 5


def test_a_line_of_an_earlier_life_that_comes_late_does_not_count(
    tmp_path: Path,
) -> None:
    """Of a root that had lost the folder, and did not know yet."""
    first, second = StepLog(tmp_path, 1), StepLog(tmp_path, 2)
    for step in range(3):
        first(StepLine(step=step, at=1.0, seconds=1.0))
    second(StepLine(step=1, at=1.0, seconds=2.0))
    first(StepLine(step=3, at=1.0, seconds=1.0))
    first(StepLine(step=0, at=1.0, seconds=1.0))
    second(StepLine(step=2, at=1.0, seconds=2.0))
    found = read_steps(tmp_path / "steps.jsonl")
    assert [(line.step, line.life) for line in found] == [(0, 1), (1, 2), (2, 2)]
    first.close()
    second.close()


def test_a_line_that_a_kill_has_torn_costs_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with StepLog(tmp_path) as log:
        log(LINES[0])
    with (tmp_path / "steps.jsonl").open("ab") as file:
        file.write(b'{"step":1,"at":1.0,"sec')
    assert read_steps(tmp_path / "steps.jsonl") == LINES[:1]
    assert caplog.text == ""  # it may be that it is being written
    with StepLog(tmp_path) as log:
        log(LINES[1])
    assert read_steps(tmp_path / "steps.jsonl") == LINES
    assert "line 2 is no step" in caplog.text


@pytest.mark.parametrize("what", ["a folder", "a folder that is not there"])
def test_figures_that_cannot_be_written_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    if what == "a folder":
        (tmp_path / "steps.jsonl").mkdir()
    with StepLog(tmp_path if what == "a folder" else tmp_path / "no") as log:
        for line in LINES:
            log(line)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith("training goes on without its figures")


def test_figures_that_the_disk_does_not_take_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(file, data[: len(data) - 30])

    third, fourth = (msgspec.structs.replace(LINES[1], step=step) for step in (2, 3))
    with StepLog(tmp_path) as log:
        log(LINES[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            log(LINES[1])
            log(third)
            assert read_steps(tmp_path / "steps.jsonl") == LINES[:1]
        log(fourth)
        assert read_steps(tmp_path / "steps.jsonl") == (*LINES, third, fourth)
        monkeypatch.setattr(os, "write", half)
        log(msgspec.structs.replace(third, step=4))
        monkeypatch.undo()
    assert [line.step for line in read_steps(tmp_path / "steps.jsonl")] == [*range(5)]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith("No space left on device; training goes on, and tries again")


def test_figures_are_not_written_by_a_root_that_lost_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        if is_lost:
            raise LockLost(tmp_path, "is another's")

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    is_lost = False
    log = StepLog(tmp_path, check=check)
    monkeypatch.setattr(os, "write", full)
    log(LINES[0])
    monkeypatch.undo()
    is_lost = True
    with pytest.raises(LockLost):
        log(LINES[1])
    with pytest.raises(LockLost):
        log.close()
    assert (tmp_path / "steps.jsonl").read_bytes() == b""
