"""Roots that fight over a folder: processes that train, are stopped and are killed.

What is drawn in a round depends on its number alone; what the processes make of it, on
the machine. `training_roots` is what they run.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codedgrad.trace import read_run

TOTAL = 64  # more than a slow root takes while a test is held up for a second
FOREVER = 10**6  # steps of a root that does not come to its end
SLOW = 0.03  # seconds a step, at least


@pytest.fixture(scope="module")
def undisturbed(roots: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody else wants."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert roots(folder, TOTAL).wait() == ""
    return folder


def steps_in(folder: Path) -> int:
    try:
        return (folder / "steps.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def is_refused(second: Any, first: Any) -> bool:
    """Whether a root was refused, with the name of the first one and what to do."""
    error = second.wait()
    if "FolderInUse" not in error:
        return False
    host = os.uname().nodename
    assert f"process {first.pid} on {host}, since 20" in error
    assert f"kill {first.pid} on {host}" in error
    assert "or take_over=True" in error
    return True


def is_taken_over(first: Any, second: Any) -> bool:
    """Whether a root lost the folder to the second one, and says so."""
    error = first.wait()
    if "LockLost" not in error:
        return False
    assert f"taken over: process {second.pid} on {os.uname().nodename}" in error
    assert "this root writes nothing more" in error
    return True


@pytest.mark.quick("[0-4]", "7")
@pytest.mark.parametrize("number", range(10))
def test_of_two_roots_one_trains_and_the_other_is_told(
    roots: Any,
    until: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    undisturbed: Path,
    number: int,
) -> None:
    draw = random.Random(number)
    folder = tmp_path / "run"
    engine = "local" if number == 7 else "here"
    case = number % 5
    total, pace = FOREVER if case < 3 else TOTAL, draw.uniform(SLOW, 3 * SLOW)
    first = roots(folder, total, pace=pace, engine=engine)
    if case < 3:
        begun = draw.randint(1, 8)
        until(lambda: steps_in(folder) >= begun)
    else:  # the folder may be the second one's, if that is faster
        time.sleep(draw.uniform(0.0, 0.05))
    second = roots(folder, TOTAL, take_over=case in (1, 4))
    if case == 0:
        assert is_refused(second, first), second.says
        first.kill()
    elif case == 1:
        assert second.wait() == "", second.says
        assert is_taken_over(first, second), first.says
    elif case == 2:  # killed while the second one looks, or before
        time.sleep(draw.uniform(0.0, 0.1))
        first.kill()
        assert is_refused(second, first) or second.code == 0, second.says
    elif case == 3 and is_refused(second, first):
        until(lambda: steps_in(folder) > 0)
        first.signal(signal.SIGTERM)
        assert first.wait() in ("", "codedgrad.torch.signals.Terminated: 143"), (
            first.says
        )
    else:
        assert second.wait() == "", second.says
        lost = case == 4 and is_taken_over(first, second)
        assert lost or is_refused(first, second) or first.code == 0, first.says
    roots.check_whole(folder)
    roots.check_end(folder, undisturbed, TOTAL)


# Pauses


def picture(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return all files of a folder: what is in them, and when they were written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def wake(first: Any, second: Any, folder: Path) -> None:
    """Let the second root end, then wake the first, which is to write nothing.

    But for a step of the trace or a line of figures, if it was paused between its look
    at the lock and that write. It is marked as of its own life, and readers leave it
    out.
    """
    assert second.wait() == "", second.says
    before, run = picture(folder), read_run(folder)
    first.signal(signal.SIGCONT)
    assert is_taken_over(first, second), first.says
    after = picture(folder)
    assert before.keys() <= after.keys()
    changed = [name for name in after if after[name] != before.get(name)]
    assert all(name.startswith(("trace/0001-", "steps.")) for name in changed), changed
    assert len(changed) <= 1
    for name in changed:
        was, now = before.get(name, (b"", 0))[0], after[name][0]
        assert now.startswith(was)
        new = now[len(was) :]
        assert new.count(b"StepStarted" if "trace" in name else b"\n") <= 1
    assert read_run(folder) == run


@pytest.mark.quick("[0-4]")
@pytest.mark.parametrize("number", range(10))
def test_a_root_that_is_woken_after_it_lost_the_folder_writes_nothing(
    roots: Any,
    until: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    undisturbed: Path,
    number: int,
) -> None:
    draw = random.Random(number)
    folder = tmp_path / "run"
    ballast = 1_000_000 if number % 2 else 0
    engine = "local" if number == 4 else "here"
    first = roots(folder, FOREVER, pace=0.03, engine=engine, every=2, ballast=ballast)
    if ballast:  # stopped in the middle of a checkpoint
        begun = draw.randint(0, 3)
        until(lambda: steps_in(folder) >= begun)
        until(lambda: any((folder / "checkpoints").glob(".step-*")))
        time.sleep(draw.uniform(0.0, 0.01))
    else:
        until((folder / "lock.json").exists)
        time.sleep(draw.uniform(0.0, 0.4))
    first.stop()
    if number in (2, 3):  # no force: it is taken for dead
        second = roots(folder, TOTAL, stale=0.4, ballast=ballast)
    else:
        second = roots(folder, TOTAL, take_over=True, ballast=ballast)
    wake(first, second, folder)
    roots.check_end(folder, undisturbed, TOTAL)


BEFORE = {
    "run.json gets its name": ("replace", r"/run\.json$", 1),
    "a heartbeat gets its name": ("replace", r"/status\.json$", 3),
    "it reads the lock that it has opened": ("fstat", r"/lock\.json$", 8),
    "a checkpoint gets its name": ("replace", r"/step-\d+\.safetensors$", 2),
    "a checkpoint is on the disk": ("fsync", r"/\.step-\d+\.safetensors", 2),
    "its name is on the disk": ("fsync", r"/checkpoints$", 2),
    "a line of figures is written": ("write", r"/steps\.jsonl", 5),
    "a step of the trace is written": ("write", r"/trace/", 5),
    "the trace is compressed": ("replace", r"\.jsonl\.gz$", 1),
}


@pytest.mark.quick("run.json*", "a checkpoint gets*", "a line*", "a step*")
@pytest.mark.parametrize("moment", BEFORE)
def test_a_root_that_was_paused_right_before_it_writes_spoils_nothing(
    roots: Any, tmp_path: Path, undisturbed: Path, moment: str
) -> None:
    folder = tmp_path / "run"
    every = 1000 if "reads the lock" in moment else 2  # for a line, not a checkpoint
    segment = 2000 if "compressed" in moment else 1 << 20
    first = roots(
        folder, 10 * TOTAL, pace=0.01, every=every, segment=segment, stop=BEFORE[moment]
    )
    first.wait_for_stop()
    second = roots(folder, TOTAL, take_over=True)
    wake(first, second, folder)
    roots.check_end(folder, undisturbed, TOTAL)


def test_a_checkpoint_of_a_root_that_lost_the_folder_does_not_get_its_name(
    roots: Any,
    until: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    undisturbed: Path,
) -> None:
    """Nor if its successor has written none yet, and so removed none of before."""
    folder = tmp_path / "run"
    first = roots(
        folder, TOTAL, pace=0.01, every=2, stop=BEFORE["a checkpoint gets its name"]
    )
    first.wait_for_stop()
    second = roots(folder, FOREVER, pace=0.03, every=FOREVER, take_over=True)
    until(lambda: any(line.life == 2 for line in read_run(folder).steps))
    first.signal(signal.SIGCONT)
    assert is_taken_over(first, second), first.says
    assert "make space" not in first.says  # it is not the disk
    assert os.listdir(folder / "checkpoints") == ["step-00000002.safetensors"]
    second.kill()
    roots.check_end(folder, undisturbed, TOTAL)
