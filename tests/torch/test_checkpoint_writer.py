"""Checkpoints in the background: what is in them, and disks and processes that fail."""

import errno
import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch

from codedgrad.errors import InvalidCheckpoint, InvalidFolder
from codedgrad.torch.checkpoint import packed
from codedgrad.torch.checkpoint import writer as saving
from codedgrad.torch.checkpoint.files import Shelf, load
from codedgrad.torch.checkpoint.packed import is_whole
from codedgrad.torch.checkpoint.writer import Saver
from codedgrad.trace import files

LONG = 60.0  # seconds; a guard against hanging


def state_of(step: int, size: int = 1000) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((size,), float(step))}


def check(found: tuple[int, dict[str, Any]] | None, step: int) -> None:
    assert found is not None
    assert found[0] == step
    assert found[1]["step"] == step
    assert bool((found[1]["weights"] == step).all())


class Gate:
    """Lets a writer wait in the middle of a file until it is opened."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.is_open = threading.Event()
        self.threads = list[threading.Thread]()

    def __call__(self) -> None:
        self.threads.append(threading.current_thread())
        self.is_reached.set()
        assert self.is_open.wait(LONG)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.is_open.set()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "checkpoints", keep=2)


# What is written


def test_a_state_that_changes_after_start_is_written_as_it_was(
    shelf: Shelf, gate: Gate
) -> None:
    saver = Saver(shelf, before=gate)
    base = torch.arange(12.0)
    state = {
        "whole": base,
        "overlapping": base[3:9],
        "scattered": base.reshape(3, 4).t(),
        "same": base,
        "list": [1, 2],
        "array": base[:2].numpy(),
    }
    assert saver.start(1, state)
    base += 100
    state["list"].append(3)
    gate.is_open.set()
    saver.finish()
    _, found = shelf.newest()
    expected = torch.arange(12.0)
    assert torch.equal(found["whole"], expected)
    assert found["same"] is found["whole"]  # still one tensor
    assert torch.equal(found["overlapping"], expected[3:9])
    assert torch.equal(found["scattered"], expected.reshape(3, 4).t())
    assert found["list"] == [1, 2]
    assert found["array"].tolist() == [0.0, 1.0]


def test_the_loop_goes_on_while_one_is_written(shelf: Shelf, gate: Gate) -> None:
    saver = Saver(shelf, before=gate)
    assert (saver.busy, saver.wrote) == (False, None)
    assert saver.start(1, state_of(1))
    assert gate.is_reached.wait(LONG)
    assert gate.threads[0] is not threading.current_thread()
    assert saver.busy
    assert not saver.start(2, state_of(2))
    assert shelf.steps() == []
    gate.is_open.set()
    saver.finish()
    assert (saver.busy, saver.wrote) == (False, 1)
    check(shelf.newest(), 1)
    assert saver.start(3, state_of(3, size=5000))  # the memory grows with it
    saver.finish()
    check(shelf.newest(), 3)
    assert saver.start(4, state_of(4, size=10))
    saver.close()
    saver.close()
    check(shelf.newest(), 4)
    assert shelf.steps() == [3, 4]


def test_the_last_one_waits_for_the_one_under_way(shelf: Shelf, gate: Gate) -> None:
    saver = Saver(shelf, before=gate)
    saver.start(1, state_of(1))
    assert gate.is_reached.wait(LONG)
    is_done, wait = saver._under_way.is_done, saver._under_way.is_done.wait
    is_done.wait = lambda: (gate.is_open.set(), wait(LONG))
    assert saver.write(2, state_of(2)) == shelf.path(2)
    assert shelf.steps() == [1, 2]
    assert saver.wrote == 2


def test_a_saver_knows_what_is_there_already(shelf: Shelf) -> None:
    shelf.write(7, {})
    assert Saver(shelf).wrote == 7


def test_an_empty_state_is_written(shelf: Shelf) -> None:
    saver = Saver(shelf)
    saver.start(1, {})
    saver.close()
    assert shelf.newest() == (1, {})


def test_a_state_that_cannot_be_kept_is_said_in_the_loop(shelf: Shelf) -> None:
    saver = Saver(shelf)
    for act in (saver.start, saver.write):
        with pytest.raises(InvalidCheckpoint, match="optimizer is a builtin_function"):
            act(1, {"optimizer": print})
    assert not saver.busy
    assert shelf.steps() == []


# What fails in the thread


def test_a_lost_lock_is_raised_and_nothing_is_named_or_removed(shelf: Shelf) -> None:
    for step in (1, 2):
        shelf.write(step, state_of(step))
    stray = shelf.folder / ".step-00000003.safetensors.0123abcd"  # another root's
    stray.touch()
    before = sorted(os.listdir(shelf.folder))
    lost = InvalidFolder("run_dir", "is another root's now", "another folder")

    def fail() -> None:
        raise lost

    saver = Saver(shelf, before=fail)
    for act in (saver.finish, saver.close, lambda: saver.start(4, {})):
        assert saver.start(3, state_of(3))
        saver._under_way.is_done.wait(LONG)
        with pytest.raises(InvalidFolder, match="is another root's now"):
            act()
    saver.finish()  # it was said
    with pytest.raises(InvalidFolder, match="is another root's now"):
        saver.write(3, state_of(3))
    assert sorted(os.listdir(shelf.folder)) == before
    assert saver.wrote == 2


def test_a_lock_lost_while_writing_leaves_no_file(shelf: Shelf) -> None:
    calls = iter([None, KeyError("lost")])

    def before() -> None:
        error = next(calls)
        if error is not None:
            raise error

    saver = Saver(shelf, before=before)
    saver.start(1, state_of(1))
    with pytest.raises(KeyError, match="lost"):
        saver.finish()
    assert os.listdir(shelf.folder) == []


def test_a_mistake_in_the_thread_is_raised_but_not_instead_of_the_last_one(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, pieces: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    saver = Saver(shelf)
    with monkeypatch.context() as patch:
        patch.setattr(files, "fill", broken)
        saver.start(1, state_of(1))
        saver._under_way.is_done.wait(LONG)
    with pytest.raises(ZeroDivisionError, match="a mistake of ours"):
        saver.write(2, state_of(2))
    check(shelf.newest(), 2)
    saver.close()


def test_disks_that_fail_are_warned_of_once_for_each_kind(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing: list[int] = []
    fsync = os.fsync

    def sync(file: int) -> None:
        if failing and not stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(failing[0], os.strerror(failing[0]))
        fsync(file)

    monkeypatch.setattr(os, "fsync", sync)
    saver = Saver(shelf)

    def warnings(step: int, number: int | None) -> int:
        caplog.clear()
        failing[:] = [] if number is None else [number]
        assert saver.start(step, state_of(step))
        saver.finish()
        return len(caplog.records)

    assert warnings(1, None) == 0
    assert warnings(2, errno.EIO) == 1
    [record] = caplog.records
    assert record.getMessage() == (
        f"{shelf.path(2)}: cannot be written: [Errno 5] Input/output error; make space "
        "or choose another folder; training goes on, the newest is that of step 1"
    )
    assert warnings(3, errno.EIO) == 0
    assert warnings(4, errno.EDQUOT) == 1
    assert warnings(5, errno.EIO) == 0
    assert saver.wrote == 1
    with pytest.raises(InvalidCheckpoint, match="Input/output error"):
        saver.write(6, state_of(6))
    assert shelf.steps() == [1]
    assert warnings(7, None) == 0
    assert warnings(8, errno.EIO) == 1  # once more, for it had gone well
    check(shelf.newest(), 7)


def test_the_thread_needs_no_lock_of_logging(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler of a signal waits for it, and may have interrupted a log line."""

    def full(path: Path, pieces: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def check() -> None:
        logging.getLogger("codedgrad").warning("as of a disk that does not answer")

    monkeypatch.setattr(files, "fill", full)
    saver = Saver(shelf, before=check)
    caplog.handler.acquire()  # as in the middle of a log line
    try:
        assert saver.start(1, state_of(1))
        write = saver._under_way
        assert write is not None
        assert write.is_done.wait(LONG)
        assert caplog.text == ""
        saver.tell()
    finally:
        caplog.handler.release()
    first, *_, last = (record.getMessage() for record in caplog.records)
    assert first == "as of a disk that does not answer"
    assert last.endswith("; training goes on, there is none yet")
    logged = len(caplog.records)
    saver.close()
    assert len(caplog.records) == logged
    assert not logging.getLogger("codedgrad").filters


def test_without_memory_for_a_copy_the_loop_waits_for_the_disk(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = np.empty

    def too_large(size: int, *given: Any) -> Any:
        if size:
            raise MemoryError
        return empty(size, *given)

    saver = Saver(shelf)
    monkeypatch.setattr(saving.np, "empty", too_large)
    assert saver.start(1, state_of(1))
    assert not saver.busy
    check(shelf.newest(), 1)
    monkeypatch.undo()
    assert saver.start(2, state_of(2))
    saver.close()
    check(shelf.newest(), 2)


def test_a_folder_that_has_vanished_is_warned_of_and_not_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    shelf = Shelf(run / "checkpoints")
    saver = Saver(shelf)
    saver.write(1, {})
    run.rename(tmp_path / "elsewhere")
    saver.start(2, {})
    saver.finish()
    assert "checkpoints: cannot be made: " in caplog.text
    with pytest.raises(InvalidCheckpoint, match="cannot be made"):
        saver.write(3, {})
    assert not run.exists()
    run.mkdir()
    saver.start(4, {})
    saver.close()
    assert shelf.steps() == [4]


# Full disks

NO_MOUNT = subprocess.run(
    ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"],
    capture_output=True,
).returncode

ON_SMALL_DISK = """
import json, logging, os, sys
import torch
from codedgrad.errors import InvalidCheckpoint
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.writer import Saver

torch.set_num_threads(1)
disk, said = sys.argv[1], []

class Note(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())

logging.getLogger("codedgrad").addHandler(Note())
shelf = Shelf(disk + "/run/checkpoints", keep=3)
saver = Saver(shelf)

def act(step, megabytes=3):
    size = megabytes * 250_000
    state = {"step": step, "weights": torch.full((size,), float(step))}
    before, error = len(said), None
    if step < 100:
        saver.start(step, state)
        saver.finish()
    else:
        try:
            saver.write(step, state)
        except InvalidCheckpoint as failed:
            error = str(failed)
    newest = shelf.newest()
    assert newest is None or bool((newest[1]["weights"] == newest[0]).all())
    names = sorted(os.listdir(shelf.folder))
    story.append([step, shelf.steps(), len(names), said[before:], error])

def fill(megabytes):
    with open(disk + "/other", "ab") as file:
        file.write(bytes(megabytes * 1_000_000))

story = []
for step in range(4):
    act(step)            # 10 MB: three do not leave room for a fourth
shelf.path(1).unlink()
fill(4)                  # now there is room for two only
for step in range(4, 7):
    act(step)
shelf.path(5).unlink()
fill(3)                  # and now for one, beside which no other fits
for step in (7, 8, 100):
    act(step)
os.remove(disk + "/other")
for step in (9, 101):
    act(step)
print(json.dumps(story))
"""


@pytest.mark.skipif(NO_MOUNT != 0, reason="mounting a private tmpfs is not permitted")
def test_a_disk_that_fills_up_costs_old_checkpoints_then_new_ones_never_the_newest(
    tmp_path: Path,
) -> None:
    mount = 'mount -t tmpfs -o size=10m none "$1" && exec "$2" -c "$3" "$1"'
    python = [sys.executable, ON_SMALL_DISK]
    shown = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", tmp_path, *python],
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert shown.stderr == ""
    story = {step: rest for step, *rest in json.loads(shown.stdout)}
    folder = tmp_path / "run" / "checkpoints"
    is_full = f"{folder} is on a full disk: fewer than 3 checkpoints are kept"

    assert story[2] == [[0, 1, 2], 3, [], None]
    assert story[3] == [[1, 2, 3], 3, [is_full], None]  # one made room for it
    assert story[6] == [[5, 6], 2, [], None]
    steps, files_, said, _ = story[7]
    assert (steps, files_) == ([6], 1)  # the newest stays, and nothing half written
    [warning] = said
    assert warning == (
        f"{folder}/step-00000007.safetensors: cannot be written: [Errno 28] No space "
        "left on device; make space or choose another folder; training goes on, the "
        "newest is that of step 6"
    )
    assert story[8] == [[6], 1, [], None]  # it was said
    steps, _, said, error = story[100]
    assert (steps, said) == ([6], [])
    assert error == (
        f"{folder}/step-00000100.safetensors: cannot be written: [Errno 28] No space "
        "left on device; make space or choose another folder"
    )
    assert story[9] == [[6, 9], 2, [], None]
    assert story[101] == [[6, 9, 101], 3, [], None]


def test_only_the_newest_good_one_is_kept_where_the_newest_is_damaged(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = Shelf(shelf.folder, keep=4)
    paths = [wide.write(step, state_of(step)) for step in (1, 2, 3, 4)]
    paths[3].write_bytes(b"")

    def full(path: Path, pieces: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "fill", full)
    with pytest.raises(InvalidCheckpoint, match="No space left"):
        wide.write(5, state_of(5))
    assert wide.steps() == [3]
    check(wide.newest(), 3)


# Processes that end, fork and are interrupted


HALTING = """
import json, os, signal, sys, threading
import torch
from codedgrad.errors import InvalidCheckpoint
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.writer import Saver

torch.set_num_threads(1)
reached, go, calls = threading.Event(), threading.Event(), []

def before():
    calls.append(None)
    if len(calls) == 2:  # all is written but for the name
        reached.set()
        go.wait()

for line in sys.stdin:
    folder, output, body = json.loads(line)
    child = os.fork()
    if not child:
        said = os.open(output, os.O_CREAT | os.O_WRONLY)
        os.dup2(said, 1)
        os.dup2(said, 2)
        shelf = Shelf(folder, keep=2)
        shelf.write(1, {})
        saver = Saver(shelf, before=before)
        assert saver.start(2, {"t": torch.ones(1000)})
        reached.wait()
        exec(body)
        break  # and the interpreter ends, as after any script
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Halting = Callable[[str], str]


@pytest.fixture(scope="module")
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HALTING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as parent:
        yield parent
        parent.stdin.close()


@pytest.fixture
def halting(parent: subprocess.Popen[str], shelf: Shelf, tmp_path: Path) -> Halting:
    """Run Python in a process whose background write halts; return what it prints."""

    def run(body: str) -> str:
        output = tmp_path / "output"
        parent.stdin.write(json.dumps([str(shelf.folder), str(output), body]) + "\n")
        ended = parent.stdout.readline()
        assert (ended, output.read_text()) == ("0\n", ANY)
        return output.read_text()

    return run


@pytest.mark.long
def test_a_process_that_ends_does_not_wait_for_a_disk_that_hangs(
    halting: Halting, shelf: Shelf
) -> None:
    assert halting("") == ""
    assert shelf.steps() == [1]
    assert len(os.listdir(shelf.folder)) == 2  # one without its name, as after a kill
    shelf.write(3, {})
    assert shelf.steps() == [1, 3]
    assert len(os.listdir(shelf.folder)) == 2


def test_a_process_that_ends_well_has_written_it(
    halting: Halting, shelf: Shelf
) -> None:
    assert halting("go.set(); saver.close()") == ""
    assert shelf.steps() == [1, 2]


def test_a_fork_neither_hangs_nor_writes(halting: Halting, shelf: Shelf) -> None:
    body = """
child = os.fork()
if not child:
    try:
        assert not saver.busy
        assert not saver.start(3, {})
        saver.finish()
        try:
            saver.write(4, {})
        except InvalidCheckpoint as error:
            print(error, flush=True)
        saver.close()
        os._exit(7)
    finally:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shelf.steps(), flush=True)
go.set()
saver.close()
"""
    said, ended = halting(body).splitlines()
    assert "and this is a fork of it; write it there" in said
    assert ended == "7 [1]"
    assert shelf.steps() == [1, 2]
    assert len(os.listdir(shelf.folder)) == 2


def test_ctrl_c_in_the_loop_leaves_both_checkpoints(halting: Halting) -> None:
    body = """
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    saver.finish()  # is interrupted: the disk hangs
except KeyboardInterrupt:
    assert saver.busy
    go.set()
    saver.write(3, {})
    print(shelf.steps(), flush=True)
"""
    assert halting(body) == "[2, 3]\n"


@pytest.mark.parametrize("has_begun", [False, True])
def test_ctrl_c_while_the_thread_is_started_loses_nothing(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    begin = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if has_begun:
            begin(thread)
        raise KeyboardInterrupt

    saver = Saver(shelf)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            saver.start(1, state_of(1))
    saver.finish()
    check(shelf.newest(), 1)
    assert saver.start(2, state_of(2))
    saver.close()
    check(shelf.newest(), 2)


def test_where_no_thread_can_be_had_it_is_written_in_the_loop(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    saver = Saver(shelf)
    assert saver.start(1, state_of(1))
    assert not saver.busy
    check(shelf.newest(), 1)


# Kills

SAVING = """
import os, sys
import torch
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.writer import Saver

torch.set_num_threads(1)
for line in sys.stdin:
    child = os.fork()
    if not child:
        shelf = Shelf(line.rstrip(), keep=2)
        saver = Saver(shelf)
        step = saver.wrote or 0
        tensor = torch.empty(500_000)
        while True:
            if saver.start(step + 1, {"step": step + 1, "weights": tensor.fill_(step + 1)}):
                step += 1
                os.write(1, b"started %d\\n" % step)
            tensor.zero_()
    os.write(1, b"child %d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""  # noqa: E501

Kill = Callable[[Path, int, int], list[int]]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    """Let a process save all the time, and kill it after it began so many."""
    with subprocess.Popen(
        [sys.executable, "-c", SAVING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None

        def call(folder: Path, count: int, spin: int) -> list[int]:
            parent.stdin.write(f"{folder}\n")
            child, started = 0, list[int]()
            while not (child and len(started) >= count):
                word, number = parent.stdout.readline().split()
                if word == "child":
                    child = int(number)
                else:
                    started.append(int(number))
            for _ in range(spin):  # so that the moment is any
                pass
            os.kill(child, signal.SIGKILL)
            for line in parent.stdout:
                if line == "ended\n":
                    break
                started.append(int(line.split()[1]))
            return started

        yield call
        parent.stdin.close()


@pytest.mark.long
def test_killed_at_any_moment_there_is_a_whole_newest_and_strays_do_not_pile_up(
    tmp_path: Path, kill: Kill
) -> None:
    draw = random.Random(0)
    shelf = Shelf(tmp_path, keep=2)
    for _ in range(25):
        started = kill(tmp_path, draw.randint(2, 4), draw.randint(0, 300_000))
        step = shelf.newest()[0]
        check(shelf.newest(), step)
        # a new one is begun only when the one before is there
        assert step in (started[-1], started[-1] - 1)
        assert len(shelf.steps()) <= 3  # killed before the oldest was removed
        strays = [name for name in os.listdir(tmp_path) if name.startswith(".")]
        assert len(strays) <= 1


# Damage


@pytest.mark.parametrize("part", ["tensor", "structure", "type"])
def test_a_changed_byte_sends_the_run_back_to_the_one_before(
    shelf: Shelf, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    for step in (1, 2):
        shelf.write(step, state_of(step))
    data = bytearray(shelf.path(2).read_bytes())
    place, byte = {
        "tensor": (len(data) - 1000, data[-1000] ^ 4),
        "structure": (data.index(b'step\\":2') + 7, ord("3")),
        "type": (data.index(b'"F32"') + 1, ord("I")),
    }[part]
    data[place] = byte
    shelf.path(2).write_bytes(data)
    with caplog.at_level(logging.WARNING, "codedgrad"):
        check(shelf.newest(), 1)
    [record] = caplog.records
    assert record.getMessage() == (
        f"{shelf.path(2)}: is damaged: its content is not what was written (another "
        "digest); going back to the checkpoint of step 1"
    )


def test_a_disk_that_cannot_read_sends_the_run_back_to_the_one_before(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.write(1, state_of(1))
    shelf.path(2).symlink_to("/proc/self/mem")  # EIO at its first byte
    check(shelf.newest(), 1)
    assert "cannot be read: Input/output error" in caplog.text


def test_what_a_saver_writes_is_what_a_shelf_writes(tmp_path: Path) -> None:
    state = state_of(1) | {"half": torch.ones(3, dtype=torch.float16)}
    one, other = Shelf(tmp_path / "one"), Shelf(tmp_path / "other")
    saver = Saver(one)
    saver.start(1, state)
    saver.close()
    other.write(1, state)
    assert one.path(1).read_bytes() == other.path(1).read_bytes()
    assert load(one.path(1))["half"].tolist() == [1.0, 1.0, 1.0]


def test_whether_a_file_is_whole_is_told_without_torch(shelf: Shelf) -> None:
    path = shelf.write(1, state_of(1))
    data = path.read_bytes()
    assert is_whole(path)
    length = 8 + int.from_bytes(data[:8], "little")
    for place in (0, 9, length - 9, length, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert not is_whole(path), place
    for torn in (b"", data[:4], data[:length], data[:-1], data + b"\0"):
        path.write_bytes(torn)
        assert not is_whole(path)
    assert not is_whole(path.with_name("nothing"))


def test_what_could_not_be_read_is_set_aside_and_not_removed(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk may only have failed for a moment."""
    for step in (1, 2):
        shelf.write(step, state_of(step))
    data = shelf.path(2).read_bytes()
    shelf.path(2).write_bytes(data[:-1])
    check(shelf.newest(), 1)
    shelf.path(2).write_bytes(data)
    shelf.write(1, state_of(1))
    assert sorted(os.listdir(shelf.folder)) == [
        "step-00000001.safetensors",
        "step-00000002.safetensors.damaged",
    ]


def test_a_checkpoint_of_a_newer_version_is_not_passed_over(shelf: Shelf) -> None:
    shelf.write(1, state_of(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "VERSION", 3)
        shelf.write(2, state_of(2))
    with pytest.raises(InvalidCheckpoint, match="read it with a newer codedgrad"):
        shelf.newest()
    assert shelf.steps() == [1, 2]
