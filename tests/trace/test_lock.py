"""One root a folder, with roots that are real processes, stopped and killed."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codedgrad.errors import (
    FolderInUse,
    InvalidFolder,
    InvalidOptions,
    InvalidTrace,
    LockLost,
)
from codedgrad.trace import Lock, Status, read_status

QUICK = {"stale": 0.4, "every": 0.02}  # where the holder is stopped, or killed
PATIENT = {"stale": 60.0, "every": 0.02}  # where it must be seen to be alive


class Root:
    """A process that takes folders; see `root_process`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("root_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, name: str, **options: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, options]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, name: str, **options: Any) -> Any:
        self.tell(name, **options)
        said = self.hear()
        assert "answer" in said, said
        return said["answer"]

    def fail(self, name: str, **options: Any) -> tuple[str, str]:
        self.tell(name, **options)
        said = self.hear()
        return said["error"], said["text"]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def root() -> Iterator[Callable[[], Root]]:
    roots: list[Root] = []

    def start() -> Root:
        roots.append(Root())
        return roots[-1]

    yield start
    for each in roots:
        each.end()


def until(condition: Callable[[], object]) -> None:
    """Wait for what happens soon; the limit is a guard against hanging."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def beat(folder: Path) -> Status:
    status = read_status(folder)
    assert status is not None
    return status


def test_the_first_root_begins_life_1_and_a_clean_end_lets_the_next_in(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "runs" / "a"
    with Lock(folder) as first:
        first.check()
        first.update(step=7, loss=0.5, late=(1, 2))
    status = beat(folder)
    assert (status.life, status.state) == (1, "ended")
    assert (status.step, status.loss, status.late) == (7, 0.5, (1, 2))
    second = Lock(folder)
    assert second.life == 2
    second.close("stopped")
    assert beat(folder).state == "stopped"


def test_an_exception_leaves_the_status_stopped(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Lock(tmp_path):
        raise ZeroDivisionError
    assert beat(tmp_path).state == "stopped"


def test_after_close_nothing_may_be_written(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.close()
    lock.close()
    with pytest.raises(LockLost, match="has released it"):
        lock.check()


def test_the_heartbeat_moves_and_says_what_it_was_told(tmp_path: Path) -> None:
    with Lock(tmp_path, every=0.01) as lock:
        lock.update(step=3, steps=10, workers=4, alive=3, seconds=0.25)
        until(lambda: beat(tmp_path).step == 3)
        first = beat(tmp_path)
        assert (first.steps, first.workers, first.alive) == (10, 4, 3)
        assert (first.pid, first.state) == (os.getpid(), "running")
        until(lambda: beat(tmp_path).beat > first.beat + 2)


def test_what_no_status_can_hold_is_refused_where_it_is_said(tmp_path: Path) -> None:
    with Lock(tmp_path) as lock:
        with pytest.raises(TypeError):
            lock.update(loss=object())  # type: ignore[typeddict-item]
        with pytest.raises(TypeError):
            lock.update(speed=1)  # type: ignore[call-arg]
        lock.update(loss=float("nan"))
    assert beat(tmp_path).loss is None


def test_a_second_root_is_refused_with_the_first_ones_name(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path), **PATIENT)
    first.do("update", step=17)
    until(lambda: beat(tmp_path).step == 17)
    with pytest.raises(FolderInUse) as refused:
        Lock(tmp_path, **PATIENT)
    text = str(refused.value)
    name = f"process {first.pid} on {os.uname().nodename}, since 20"
    assert name in text
    assert "at step 17" in text
    assert f"kill {first.pid} on {os.uname().nodename}" in text
    assert "take_over=True" in text
    assert isinstance(refused.value, InvalidFolder)
    first.do("check")


def test_a_second_root_of_the_same_process_is_refused(tmp_path: Path) -> None:
    with Lock(tmp_path, every=0.01) as first:
        with pytest.raises(FolderInUse, match="it is in this process"):
            Lock(tmp_path, every=0.01)
        first.check()


def test_a_root_that_ends_while_another_watches_lets_it_in_at_once(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first, second = root(), root()
    first.do("take", folder=str(tmp_path), **PATIENT)
    first.signal(signal.SIGSTOP)
    second.tell("take", folder=str(tmp_path), **PATIENT)
    first.signal(signal.SIGKILL)
    assert second.hear() == {"answer": 2}


def test_after_a_kill_on_the_same_host_the_next_root_need_not_wait(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path))
    first.signal(signal.SIGKILL)
    with Lock(tmp_path, stale=1e6) as second:  # watching would never end
        assert second.life == 2


def test_a_child_that_holds_the_descriptor_costs_the_wait_only(
    root: Callable[[], Root], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path))
    child = first.do("leave_descriptor_to_a_child")
    try:
        first.signal(signal.SIGKILL)
        with caplog.at_level(logging.WARNING), Lock(tmp_path, **QUICK) as second:
            assert second.life == 2
        [line] = caplog.messages
        assert f"waiting up to 0.4 s to see whether its root (process {first.pid}" in (
            line
        )
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_clean_end_frees_the_folder_although_a_child_holds_the_descriptor(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path))
    child = first.do("leave_descriptor_to_a_child")
    try:
        first.do("close")
        with Lock(tmp_path, stale=1e6) as second:
            assert second.life == 2
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_beat_and_is_not_the_root(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path), **PATIENT)
    threads, said = first.do("fork")
    assert threads == 1
    assert "is not the root" in said
    first.do("check")  # the child's `close` released nothing
    first.signal(signal.SIGSTOP)
    with pytest.raises(LockLost):
        _take_and_wake(first, tmp_path)


def _take_and_wake(first: Root, folder: Path) -> None:
    with Lock(folder, **QUICK):
        first.signal(signal.SIGCONT)
        error, text = first.fail("check")
        assert error == "LockLost"
        raise LockLost(folder, text)


def test_a_stopped_root_that_wakes_up_writes_nothing_and_finds_out(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path))
    first.signal(signal.SIGSTOP)
    second = Lock(tmp_path, stale=0.4, every=0.02)
    second.close("stopped")  # so that nobody writes but the first, if it does
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    first.signal(signal.SIGCONT)
    error, text = first.fail("check")
    assert error == "LockLost"
    assert f"process {os.getpid()} on" in text
    assert first.fail("check") == (error, text)
    first.do("close")
    status = beat(tmp_path)
    assert (status.life, status.state) == (2, "stopped")
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after == before


def test_a_forced_take_over_stops_the_root_that_is_alive(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path), **PATIENT)
    with Lock(tmp_path, take_over=True, **PATIENT) as second:
        assert second.life == 2
        assert first.fail("check")[0] == "LockLost"
        second.check()
    assert first.fail("check")[0] == "LockLost"


def race(takers: list[Root], folder: Path, **options: Any) -> list[Any]:
    """Let all take a folder at once; return what each says, a refusal or its life."""
    go = folder.with_name(f"go-{folder.name}")
    for taker in takers:
        taker.tell("take", folder=str(folder), go=str(go), **options)
    go.touch()
    return [taker.hear() for taker in takers]


@pytest.mark.quick("after a kill")
@pytest.mark.parametrize("forced", [False, True], ids=["after a kill", "forced"])
def test_of_two_takers_exactly_one_stays_twenty_times(
    root: Callable[[], Root], tmp_path: Path, forced: bool
) -> None:
    takers = [root(), root()]
    for number in range(20):
        folder = tmp_path / str(number)
        with Lock(folder) as earlier:
            held = (folder / "lock.json").read_bytes()
        (folder / "lock.json").write_bytes(held)  # as if it had not been released
        assert earlier.life == 1
        said = race(takers, folder, take_over=forced, **PATIENT)
        taken = [t for t, s in zip(takers, said, strict=True) if "answer" in s]
        assert {"answer": 2} in said
        if not forced:  # a forced one may come a moment later, and take it once more
            assert len(taken) == 1, said
            assert sum(s.get("error") == "FolderInUse" for s in said) == 1, said
        for taker in taken:
            taker.tell("check")
        assert sum(taker.hear() == {"answer": None} for taker in taken) == 1
        for taker in taken:
            taker.do("close")


@pytest.mark.long
def test_of_two_takers_one_stays_on_a_disk_without_kernel_locks(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    takers = [root(), root()]
    for taker in takers:
        taker.do("have_no_flock")
    for number in range(3):
        said = race(takers, tmp_path / str(number), stale=60, every=0.2)
        winners = [t for t, s in zip(takers, said, strict=True) if "answer" in s]
        assert len(winners) == 1, said
        winners[0].do("check")
        winners[0].do("close")


@pytest.mark.long
def test_without_kernel_locks_a_killed_root_is_found_out_by_watching(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first, second = root(), root()
    for each in (first, second):
        each.do("have_no_flock")
    first.do("take", folder=str(tmp_path), **QUICK)
    assert not json.loads((tmp_path / "lock.json").read_bytes())["flocked"]
    error, _ = second.fail("take", folder=str(tmp_path), **PATIENT)
    assert error == "FolderInUse"
    first.signal(signal.SIGKILL)
    assert second.do("take", folder=str(tmp_path), **QUICK) == 2


def test_a_lock_of_another_host_is_watched(tmp_path: Path) -> None:
    Lock(tmp_path).close()
    told = json.loads((tmp_path / "lock.json").read_bytes())
    told |= {"host": "elsewhere", "released": False}
    (tmp_path / "lock.json").write_text(json.dumps(told))
    for unlike in ({}, {"host": os.uname().nodename, "boot": "another"}):
        (tmp_path / "lock.json").write_text(json.dumps(told | unlike))
        begun = time.monotonic()
        Lock(tmp_path, **QUICK).close()
        assert time.monotonic() - begun >= QUICK["stale"]  # by the clock it counts on


@pytest.mark.quick("2100")
@pytest.mark.parametrize("year", [1980, 2100])
def test_clocks_that_differ_neither_kill_nor_save_a_root(
    root: Callable[[], Root], tmp_path: Path, year: int
) -> None:
    first, second = root(), root()
    first.do("be_in_another_century")
    first.do("take", folder=str(tmp_path), **PATIENT)
    error, _ = second.fail("take", folder=str(tmp_path), **PATIENT)
    assert error == "FolderInUse"
    first.signal(signal.SIGSTOP)
    at = (year - 1970) * 365 * 86400
    for name in ("lock.json", "status.json"):
        os.utime(tmp_path / name, (at, at))
    assert second.do("take", folder=str(tmp_path), **QUICK) == 2


def test_a_full_disk_neither_ends_a_root_nor_makes_it_look_dead(
    root: Callable[[], Root], tmp_path: Path
) -> None:
    first = root()
    first.do("take", folder=str(tmp_path), **PATIENT)
    first.do("fill_the_disk")
    until(lambda: not _moves(tmp_path / "status.json"))
    with pytest.raises(FolderInUse):
        Lock(tmp_path, **PATIENT)
    first.do("check")
    until(lambda: not list(tmp_path.glob(".status*")))  # it goes on trying


def _moves(file: Path) -> bool:
    before, seen = file.read_bytes(), time.monotonic()
    while time.monotonic() < seen + 0.2:
        if file.read_bytes() != before:
            return True
    return False


def test_a_status_that_cannot_be_written_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Lock(tmp_path, every=0.01) as lock:
        until(lambda: not list(tmp_path.glob(".status*")))
        (tmp_path / "status.json").unlink()
        (tmp_path / "status.json").mkdir()
        (tmp_path / "status.json" / "file").touch()  # nothing can replace it now
        before = (tmp_path / "lock.json").stat().st_mtime_ns
        until(lambda: (tmp_path / "lock.json").stat().st_mtime_ns > before)
        lock.check()
    warned = [line for line in caplog.messages if "status.json" in line]
    assert len(warned) == 1
    assert "training goes on" in warned[0]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_lock_that_was_removed_is_lost(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "run"
    with Lock(folder) as lock:
        if what == "file":
            (folder / "lock.json").unlink()
        else:
            folder.rename(tmp_path / "elsewhere")
        with pytest.raises(LockLost, match=r"lock\.json was removed"):
            lock.check()
    assert not (folder / "lock.json").exists()


def test_a_lock_that_is_something_else_is_lost_and_can_be_taken_after_watching(
    tmp_path: Path,
) -> None:
    first = Lock(tmp_path)
    (tmp_path / "lock.json").write_text('{"kind": "something else"}')
    with pytest.raises(LockLost, match="not what this root wrote"):
        first.check()
    first.close()
    with pytest.raises(InvalidTrace, match=r"lock\.json"):
        read_status(tmp_path)
    with Lock(tmp_path, **QUICK) as second:
        assert second.life == 2


def test_nothing_is_written_while_the_lock_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = Lock(tmp_path, stale=0.3, every=0.01)
    kept = (tmp_path / "lock.json").rename(tmp_path / "kept.json")
    assert kept.exists()
    # A loop of links cannot be opened, and that is neither missing nor another's lock.
    os.symlink("lock.json", tmp_path / "link")
    os.replace(tmp_path / "link", tmp_path / "lock.json")
    lost = lock._lost  # the thread may have looked between the two lines above
    with pytest.raises(LockLost, match=r"could not be read for 0\.3 s|was removed"):
        lock.check()
    before = (tmp_path / "status.json").read_bytes()
    assert not _moves(tmp_path / "status.json")
    assert (tmp_path / "status.json").read_bytes() == before
    assert lost or any("cannot be read" in line for line in caplog.messages)
    lock.close()


def test_a_disk_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    lock = Lock(tmp_path, stale=60, every=30)
    held = (tmp_path / "lock.json").read_bytes()
    (tmp_path / "lock.json").unlink()
    os.symlink("lock.json", tmp_path / "lock.json")
    back = tmp_path / "back"
    back.write_bytes(held)
    mend = subprocess.Popen(["sh", "-c", f"sleep 0.5; mv {back} {tmp_path}/lock.json"])
    lock.check()
    mend.wait()
    lock.close()
    assert beat(tmp_path).state == "ended"


def test_a_beat_of_an_earlier_life_is_left_out(tmp_path: Path) -> None:
    Lock(tmp_path).close()
    old = (tmp_path / "status.json").read_bytes()
    Lock(tmp_path).close()
    (tmp_path / "status.json").write_bytes(old)
    assert read_status(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "x"}', '{"life": "1"}'])
def test_a_damaged_status_is_one_sentence(tmp_path: Path, text: str) -> None:
    Lock(tmp_path).close()
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(InvalidTrace, match=r"status\.json"):
        read_status(tmp_path)


def test_a_copy_of_a_folder_in_use_can_be_used_at_once(tmp_path: Path) -> None:
    with Lock(tmp_path / "a"):
        subprocess.run(["cp", "-r", tmp_path / "a", tmp_path / "b"], check=True)
        with Lock(tmp_path / "b", stale=1e6) as copied:
            assert copied.life == 2


def test_lives_are_counted_on_when_the_lock_was_removed(tmp_path: Path) -> None:
    for _ in range(3):
        Lock(tmp_path).close()
    (tmp_path / "lock.json").unlink()
    with Lock(tmp_path) as lock:
        assert lock.life == 4
    hidden = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert hidden == {".lock.guard", ".lock.life-4"}


def test_a_taker_that_is_stopped_half_way_is_not_waited_for_for_ever(
    tmp_path: Path,
) -> None:
    with (tmp_path / ".lock.guard").open("wb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(FolderInUse, match="is being taken by another process"):
            Lock(tmp_path, **QUICK)
    Lock(tmp_path).close()


def test_a_lock_that_cannot_be_released_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = Lock(tmp_path, **QUICK)
    with (tmp_path / ".lock.guard").open("wb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        lock.close()
    assert "the next root may have to wait" in caplog.text
    with Lock(tmp_path, stale=1e6) as second:  # the kernel's lock was let go
        assert second.life == 2


def test_a_folder_that_cannot_be_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidFolder, match="cannot be read or written"):
        Lock(tmp_path / "file" / "run")
    with pytest.raises(InvalidOptions, match="several heartbeats"):
        Lock(tmp_path / "run", stale=1.0, every=1.0)
