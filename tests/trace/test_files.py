"""Files that are whole or not there, on disks that fail in their own ways."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from codedgrad.trace import files
from codedgrad.trace.files import sync_folder, write_whole

Fail = Callable[[str, int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Let fsync of files, or of folders, fail; no such disk is here."""

    def of(what: str, number: int) -> None:
        fsync = os.fsync

        def failing(file: int) -> None:
            is_folder = stat.S_ISDIR(os.fstat(file).st_mode)
            if is_folder == (what == "folder"):
                raise OSError(number, os.strerror(number))
            fsync(file)

        monkeypatch.setattr(os, "fsync", failing)

    return of


def test_pieces_are_written_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BURST", 7)
    data = os.urandom(100)
    pieces = [data[:3], memoryview(data)[3:60], b"", data[60:61], data[61:]]
    write_whole(tmp_path / "a", *pieces)
    assert (tmp_path / "a").read_bytes() == data
    assert os.listdir(tmp_path) == ["a"]


def test_no_more_than_a_burst_is_written_between_two_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BURST", 1000)
    sizes, fsync = [0], os.fsync

    def noting(file: int) -> None:
        fsync(file)
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            sizes.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", noting)
    write_whole(tmp_path / "a", bytes(300), bytes(2500), bytes(10))
    assert sizes == [0, 1000, 2000, 2810]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_cannot_be_synced_does_not_get_its_name(
    tmp_path: Path, fail: Fail, number: int
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    fail("file", number)
    with pytest.raises(OSError, match=os.strerror(number)):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_disk_without_fsync_will_do(
    tmp_path: Path, fail: Fail, what: str, number: int
) -> None:
    fail(what, number)
    write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EBADF, errno.EPERM])
def test_a_disk_without_fsync_of_folders_will_do(
    tmp_path: Path, fail: Fail, number: int
) -> None:
    fail("folder", number)
    write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_folder_that_fails_to_sync_is_said(tmp_path: Path, fail: Fail) -> None:
    fail("folder", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        write_whole(tmp_path / "a", b"new")
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "none")


def test_a_disk_that_keeps_less_than_it_says_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def lose(file: int) -> None:
        fsync(file)
        os.ftruncate(file, 2)

    monkeypatch.setattr(os, "fsync", lose)
    with pytest.raises(OSError, match="the disk kept 2 bytes of 3"):
        write_whole(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == []


def test_what_is_called_before_the_name_may_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def before() -> None:
        [beside] = [path for path in tmp_path.iterdir() if path.name != "a"]
        assert beside.read_bytes() == b"new"  # all of it
        raise KeyError("no")

    with pytest.raises(KeyError):
        write_whole(tmp_path / "a", b"new", before=before)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
