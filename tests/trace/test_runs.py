"""The folder of a run: written a line at a time, read whole, refused if damaged."""

import errno
import math
import os
from pathlib import Path

import msgspec
import pytest

from codedgrad.core import Coordinator, MessageArrived, StepStarted
from codedgrad.errors import InvalidTrace
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
    with Recorder(tmp_path / "trace.jsonl", header) as record:
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


def test_a_log_goes_on_before_a_step(folder: Path) -> None:
    with StepLog(folder, before=1) as log:
        log(msgspec.structs.replace(LINES[1], seconds=9.0))
    assert [line.seconds for line in read_run(folder).steps] == [1.25, 9.0]


def test_a_log_goes_on_after_a_torn_line(folder: Path) -> None:
    with (folder / "steps.jsonl").open("ab") as file:
        file.write(b'{"step":2,')
    with StepLog(folder, before=2) as log:
        log(msgspec.structs.replace(LINES[1], step=2))
    assert [line.step for line in read_run(folder).steps] == [0, 1, 2]


def test_a_log_begins_anew_by_default(folder: Path) -> None:
    StepLog(folder).close()
    assert read_run(folder).steps == ()


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
def test_a_line_that_is_no_step_is_named(folder: Path, line: str, why: str) -> None:
    first = (folder / "steps.jsonl").read_text().splitlines()[0]
    (folder / "steps.jsonl").write_text(f"{first}\n{line}\n{first}\n")
    with pytest.raises(InvalidTrace, match=why):
        read_run(folder)


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


def test_a_trace_of_another_run_is_refused(folder: Path) -> None:
    write_manifest(folder, msgspec.structs.replace(MANIFEST, workers=2))
    with pytest.raises(InvalidTrace, match=r"is not of the run that run.json tells of"):
        read_run(folder)


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
        "trace.jsonl",
    ]


def test_a_whole_file_replaces_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"old")
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
