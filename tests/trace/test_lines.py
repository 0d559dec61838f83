"""A file of lines: whole whatever the disk and signals do in the middle of a write."""

import errno
import os
import sys
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from codedgrad.errors import InvalidTrace
from codedgrad.trace import lines
from codedgrad.trace.lines import Lines


@pytest.fixture
def file(tmp_path: Path) -> Lines:
    made = Lines(tmp_path / "file")
    made.write(b"old\n")
    return made


def interrupted(file: Lines, at: int, data: bytes) -> bool:
    """Write, and let Ctrl-C come right before the n-th line; return whether it did."""
    left = at

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code is not Lines.write.__code__:
            return None
        left -= event == "line"
        if left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        file.write(data)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_anywhere_in_a_write_neither_tears_nor_repeats_lines(
    tmp_path: Path,
) -> None:
    found = set()
    for at in count():
        path = tmp_path / f"{at}"
        file = Lines(path)
        file.write(b"old\n")
        was_interrupted = interrupted(file, at, b"a\nb\n")
        assert path.read_bytes() in (b"old\n", b"old\na\nb\n")
        file.write(b"new\n")
        found.add(path.read_bytes())
        assert file.size == path.stat().st_size
        file.close()
        if not was_interrupted:
            break
    assert at > 5
    assert found == {b"old\nnew\n", b"old\na\nb\nnew\n"}  # early, or from then on


def failing(number: int) -> Any:
    def fail(*given: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_torn_end_that_cannot_be_removed_is_not_written_again(
    file: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = os.write, count()

    def half(file: int, data: bytes) -> int:
        if next(written):
            raise OSError(errno.EIO, "Input/output error")
        return write(file, data[:2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        with pytest.raises(InvalidTrace, match="Input/output error"):
            file.write(b"torn\n")
    assert not file.is_waiting
    assert file.size == file.path.stat().st_size == 6
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC))
        with pytest.raises(InvalidTrace):
            file.write(b"late\n")
    file.write()
    assert file.path.read_bytes() == b"old\ntolate\n"


@pytest.mark.parametrize("more", [False, True])
def test_lines_wait_up_to_a_number_of_bytes(
    file: Lines, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    monkeypatch.setattr(lines, "_WAITING", 8)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC))
        for data in (b"one\n", b"four\n" if more else b"two\n"):
            with pytest.raises(InvalidTrace, match="No space left on device"):
                file.write(data)
            assert file.path.read_bytes() == b"old\n"
    assert file.is_waiting == (not more)
    file.write(b"new\n")
    waited = b"" if more else b"one\ntwo\n"
    assert file.path.read_bytes() == b"old\n" + waited + b"new\n"
