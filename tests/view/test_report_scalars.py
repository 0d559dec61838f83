"""Scalars, read back as TensorBoard reads them."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codedgrad.errors import InvalidOptions
from codedgrad.schemes import fractional, uncoded
from codedgrad.view import read_subject, read_subjects, write_scalars

Make = Callable[..., Path]

SLOW = [[0.5, 9.0]] * 3
BEGUN = 1794803796.0  # 2026-11-16 04:36:36 UTC


def read_back(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_every_figure_is_a_scalar_of_its_step(make_run: Make, tmp_path: Path) -> None:
    run = make_run(fractional(2, tolerance=1), SLOW)
    write_scalars([read_subject(run)], tmp_path / "board")
    found = read_back(tmp_path / "board" / "coded")
    assert set(found.Tags()["scalars"]) == {
        "loss",
        "logged/accuracy",
        "metrics/norm",
        "step/heard",
        "step/late",
        "step/messages",
        "step/seconds",
        "step/work",
        "waiting for all/estimate",
        "waiting for all/high",
        "waiting for all/low",
    }
    loss = found.Scalars("loss")
    assert [(each.step, each.value) for each in loss] == [(0, 1.0), (1, 0.5), (2, 0.25)]
    assert [each.wall_time - BEGUN for each in loss] == [1.0, 2.0, 3.0]
    assert [each.value for each in found.Scalars("step/seconds")] == [9.25] * 3
    assert [each.value for each in found.Scalars("step/late")] == [1.0] * 3
    [accuracy] = found.Scalars("logged/accuracy")
    assert (accuracy.step, accuracy.value) == (1, pytest.approx(0.1))


def test_a_trace_has_the_seconds_since_it_began(
    make_trace: Make, tmp_path: Path
) -> None:
    path = make_trace(uncoded(2), SLOW)
    write_scalars([read_subject(path)], tmp_path / "board")
    found = read_back(tmp_path / "board" / "uncoded")
    times = [each.wall_time for each in found.Scalars("step/seconds")]
    assert times == [9.0, 18.0, 27.0]


def test_runs_whose_names_look_alike_have_folders_of_their_own(
    make_run: Make, tmp_path: Path
) -> None:
    names = ("a b", "a/b", "../..", "...")
    runs = [make_run(uncoded(2), SLOW, name, f"r{i}") for i, name in enumerate(names)]
    write_scalars(read_subjects(runs), tmp_path / "board")
    made = sorted(path.name for path in (tmp_path / "board").iterdir())
    assert made == ["a-b", "a-b-2", "run", "run-2"]


def test_a_folder_that_is_there_is_left_alone(make_run: Make, tmp_path: Path) -> None:
    subjects = read_subjects([make_run(uncoded(2), SLOW)])
    write_scalars(subjects, tmp_path / "board")
    before = sorted((tmp_path / "board").rglob("*"))
    with pytest.raises(InvalidOptions, match="coded is there already"):
        write_scalars(subjects, tmp_path / "board")
    assert sorted((tmp_path / "board").rglob("*")) == before


def test_a_folder_that_cannot_be_is_refused(make_run: Make, tmp_path: Path) -> None:
    subjects = read_subjects([make_run(uncoded(2), SLOW)])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOptions, match="cannot be written"):
        write_scalars(subjects, tmp_path / "file" / "board")


def test_a_full_disk_leaves_no_half_of_a_folder(
    make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    subjects = read_subjects([make_run(uncoded(2), SLOW)])
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InvalidOptions, match=r"cannot be written \(No space left"):
        write_scalars(subjects, tmp_path / "board")
    assert list((tmp_path / "board").iterdir()) == []


def test_without_tensorboard_the_extra_is_named(
    make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "tensorboard.summary.writer.event_file_writer"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidOptions, match=r"codedgrad\[tensorboard\]"):
        write_scalars(read_subjects([make_run(uncoded(2), SLOW)]), tmp_path / "board")
    assert not (tmp_path / "board").exists()
