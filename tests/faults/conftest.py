"""Roots that are processes of their own; see `training_roots`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from codedgrad.core import StepStarted
from codedgrad.torch.checkpoint.files import Shelf, load
from codedgrad.trace import read_run

SCRIPT = Path(__file__).with_name("training_roots.py")


class Root:
    """A root that trains.

    Attributes:
        pid: Its process.
        code: How it has ended: an exit code, or less than 0 by a signal.
    """

    def __init__(self, roots: "Roots", pid: int, says: Path) -> None:
        self._roots = roots
        self._says = says
        self.pid = pid
        self.code: int | None = None

    @property
    def says(self) -> str:
        """All it has said so far: its log, and the traceback it ended with."""
        return self._says.read_text()

    @property
    def error(self) -> str:
        """The exception it ended with, as a user sees it; empty: none."""
        assert self.code is not None
        return self.says.splitlines()[-1] if self.code == 1 else ""

    def warnings(self) -> list[str]:
        lines = self.says.splitlines()
        return [line[8:] for line in lines if line.startswith("WARNING ")]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Stop it, and see that it is."""
        self.signal(signal.SIGSTOP)
        self.wait_for_stop()

    def wait_for_stop(self) -> None:
        status = self._roots.ask("wait", pid=self.pid)
        if status != 1000:
            self.code = status
        assert status == 1000, self.says

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> str:
        """Wait until it has ended; return its error."""
        if self.code is None:
            self.code = self._roots.ask("wait", pid=self.pid)
        return self.error


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what happens soon; the limit is a guard against hanging."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def flat(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint that the training has made."""
    moments = state["tracked"]["optimizer"]["state"]
    found = {f"{at}.{name}": x for at, of in moments.items() for name, x in of.items()}
    return found | state["model"] | {"torch": state["generators"]["torch"]}


def check_whole(folder: Path) -> int:
    """See that a folder of a run is whole; return how many steps have figures."""
    shelf = Shelf(folder / "checkpoints")
    for step in shelf.steps():
        state = load(shelf.path(step))
        assert state["step"] == step
        assert bool((state["tracked"]["ballast"]["weights"] == step).all())
    run = read_run(folder)
    assert [line.step for line in run.steps] == list(range(len(run.steps)))
    assert len(run.steps) >= max(shelf.steps(), default=0)
    events = [entry.event for entry in run.trace.entries]
    begun = [event.step for event in events if isinstance(event, StepStarted)]
    # The trace goes back to where the engine was another, as far as it is kept.
    assert begun == [begun[0] + count for count in range(len(begun))]
    return len(run.steps)


class Roots:
    """Starts roots, in a process that has imported all they need.

    Args:
        logs: A folder for what they say.
        prefix: A command that runs that process.
    """

    def __init__(self, logs: Path, prefix: tuple[str, ...] = ()) -> None:
        self._logs = logs
        self._started: list[Root] = []
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"ROOTS_OF": str(logs)},
        )

    def ask(self, name: str, **options: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, options]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __call__(self, folder: Path, total: int, **options: Any) -> Root:
        says = self._logs / f"root-{len(self._started)}.txt"
        says.touch()
        options = {"resume": "auto"} | options
        pid = self.ask(
            "start", says=str(says), folder=str(folder), total=total, **options
        )
        self._started.append(Root(self, pid, says))
        return self._started[-1]

    def seen(self, folder: Path) -> Path:
        """Return where a folder of the roots is for this process."""
        return Path(f"/proc/{self.process.pid}/root", *folder.parts[1:])

    def check_end(self, folder: Path, undisturbed: Path, total: int) -> None:
        """Let a run come to its end; its result is that of an undisturbed one."""
        seen = self.seen(folder)
        shelf = Shelf(seen / "checkpoints")
        if shelf.steps()[-1:] != [total]:
            last = self(folder, total)
            assert last.wait() == "", last.says
        assert self.check_whole(folder) == total
        self.check_result(folder, undisturbed, total)

    def check_whole(self, folder: Path) -> int:
        return check_whole(self.seen(folder))

    def check_result(self, folder: Path, undisturbed: Path, total: int) -> None:
        """See that the last checkpoint is that of an undisturbed run."""
        seen = self.seen(folder)
        step, state = Shelf(seen / "checkpoints").newest()
        assert step == total
        wanted = Shelf(self.seen(undisturbed) / "checkpoints").newest()[1]
        for name, tensor in flat(wanted).items():
            assert torch.equal(tensor, flat(state)[name]), name
        hidden = {path.name for path in seen.rglob(".*")}
        assert hidden == {".lock.guard", max(hidden)}  # and the file of the last life

    def close(self) -> None:
        """End every root that was not waited for; see that no worker is left."""
        for root in self._started:
            if root.code is None:  # so nobody else has got its id
                root.signal(signal.SIGKILL)
        self.process.communicate()
        wait_until(lambda: not self._left())

    def _left(self) -> list[int]:
        """Return processes that roots have started, and that are still there."""
        mark, left = f"ROOTS_OF={self._logs}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(FileNotFoundError, PermissionError, ProcessLookupError):
                if mark in path.read_bytes().split(b"\0"):
                    left.append(int(path.parent.name))
        return left


@pytest.fixture(scope="module")
def make_roots(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Any]]:
    made: list[Roots] = []

    def make(*prefix: str) -> Roots:
        made.append(Roots(tmp_path_factory.mktemp("roots"), prefix))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def roots(make_roots: Callable[..., Any]) -> Any:
    return make_roots()


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], None]:
    return wait_until
