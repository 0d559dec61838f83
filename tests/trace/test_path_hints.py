"""Which path is suggested for one that does not exist."""

from pathlib import Path

import pytest

from codedgrad.trace.path_hints import did_you_mean


def test_the_nearest_name_that_would_do_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "s-auto").mkdir()
    (tmp_path / "s-aut0").touch()
    (tmp_path / ".s-aut").mkdir()
    said = f" (did you mean {tmp_path / 's-auto'}?)"
    assert did_you_mean(tmp_path / "s-aut", Path.is_dir) == said
    assert did_you_mean(tmp_path / "s-aut", Path.is_dir, close=0.95) == ""


def test_files_are_not_alike_because_their_endings_are(tmp_path: Path) -> None:
    (tmp_path / "all.parquet").touch()
    assert did_you_mean(tmp_path / "none.parquet") == ""
    said = f" (did you mean {tmp_path / 'all.parquet'}?)"
    assert did_you_mean(tmp_path / "al.parquet") == said


def test_a_misspelt_folder_above_is_mended_too(tmp_path: Path) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    said = f" (did you mean {tmp_path / 'runs' / 'first'}?)"
    assert did_you_mean(tmp_path / "rusn" / "first") == said
    assert did_you_mean(tmp_path / "rusn" / "frist") == said
    assert did_you_mean(tmp_path / "elsewhere" / "first") == ""


@pytest.mark.parametrize("name", ["", "/", "x" * 5000, "x" * 5000 + "/y", "a\0b/c"])
def test_a_path_that_cannot_exist_has_no_suggestion(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert did_you_mean(Path(name)) == ""


def test_a_working_directory_that_was_removed_has_no_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert did_you_mean(Path("runs/first")) == ""
