"""Jobs of real launchers: started, watched, and seen to leave no process behind.

Every process of a job inherits a variable with a value of its own, by which all of them
are found in `/proc`: mpirun or torchrun, root, agents, nurseries, workers, and whatever
else.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

PATIENCE = 200.0  # seconds; only a hang takes so long
ULFM = ("--with-ft", "ulfm", "--mca", "btl", "self,tcp")
_RULE = "-" * 74  # above and below what mpirun has to say
_CLOSED = re.compile(r"\[warn\] Epoll |\[[^]]+:\d+\] pmix_ptl_base: send_msg: ")
_VARIABLE = "CODEDGRAD_TEST_JOB"
_INSIDE = Path(__file__).parent  # where scripts find `inside`
APART = {"CODEDGRAD_HOSTS": "processes"}  # every process is a machine of its own


def launcher() -> str | None:
    beside = str(Path(sys.executable).parent)
    return shutil.which("mpirun", path=beside) or shutil.which("mpirun")


def why_not() -> str:
    """Return what is missing here; empty if MPI can be used."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install -r requirements/engines.txt"
    if launcher() is None:
        return "there is no mpirun: pip install -r requirements/engines.txt"
    said = subprocess.run([launcher(), "--version"], capture_output=True, text=True)
    if "Open MPI" not in said.stdout:
        return f"{launcher()} is not of Open MPI"
    return ""


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> bool:
    """Look until it is so; return whether it is before a hang is called one."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Job:
    """A command that may start others, on any number of processes.

    Args:
        command: The program and its words.
        folder: For what it prints and answers.
        environment: Variables to set besides.
    """

    def __init__(
        self, command: list[str], folder: Path, environment: dict[str, str]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._mark = f"{_VARIABLE}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,  # files, which orphans may keep open
                stderr=err,
                start_new_session=True,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join(
                        filter(None, (str(_INSIDE), os.environ.get("PYTHONPATH")))
                    ),
                    "CODEDGRAD_ANSWERS": str(folder / "answers"),
                    **environment,
                    name: value,
                },
                # a job in the background may have been started with Ctrl-C ignored
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def said(self) -> list[str]:
        """The lines on standard error, without those of Open MPI.

        It says something about exit codes and, sometimes, when a process is killed,
        about its own connections to it, which are closed.
        """
        ours = re.sub(
            rf"^{_RULE}\nprterun .*?^{_RULE}\n", "", self.err, flags=re.M | re.S
        )
        return [line for line in ours.splitlines() if not _CLOSED.match(line)]

    @property
    def answers(self) -> dict[str, Any]:
        """What the script has told so far, by name."""
        path = self.folder / "answers"
        lines = path.read_text().splitlines() if path.exists() else []
        return {name: facts for name, facts in map(json.loads, lines)}

    def answer(self, name: str) -> Any:
        """Wait until the script has told something."""
        assert wait_for(lambda: name in self.answers or self.has_ended), self.err
        assert name in self.answers, self.err
        return self.answers[name]

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, as a terminal or a user would."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Return the exit code."""
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            text = f"it hangs: {self.left()}\n{self.out}\n{self.err}"
            raise AssertionError(text) from None

    def left(self) -> dict[int, str]:
        """Return the processes that are there, with their commands."""
        mark, found = self._mark.encode(), {}
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has just ended, or is somebody else's
                if mark in path.read_bytes().split(b"\0"):
                    command = path.with_name("cmdline").read_bytes()
                    found[int(path.parent.name)] = command.decode().replace("\0", " ")
        return found

    def is_all_gone(self) -> bool:
        return wait_for(lambda: not self.left(), 20.0)

    def end(self) -> None:
        """End whatever is left."""
        while left := self.left():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
        self._process.wait()


class Jobs:
    """Launches jobs; each has a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs: list[Job] = []
        self._numbers = count()  # for threads as well

    def mpirun(
        self,
        script: str | Path,
        processes: int,
        *arguments: str,
        options: tuple[str, ...] = (),
        ours: tuple[str, ...] = (),
        **environment: str,
    ) -> Job:
        """Run a script, a file or its text, under mpirun.

        Args:
            script: The file, or the text.
            processes: How many mpirun starts.
            arguments: Of the script.
            options: Of mpirun.
            ours: Options of our launcher.
            environment: Variables to set besides.
        """
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        mpirun = [launcher() or "mpirun", *as_root, "--oversubscribe", *options]
        mpirun += ["-n", str(processes)]
        words = ["-m", "codedgrad.engines.mpi", *ours, self.file(script), *arguments]
        return self.python(*words, under=mpirun, **environment)

    def torchrun(
        self,
        script: str | Path,
        processes: int,
        *arguments: str,
        options: tuple[str, ...] = ("--standalone",),
        **environment: str,
    ) -> Job:
        """Run a script, a file or its text, under torchrun."""
        words = ["-m", "torch.distributed.run", *options]
        words += [f"--nproc-per-node={processes}", self.file(script), *arguments]
        return self.python(*words, **environment)

    def python(self, *words: str, under: Sequence[str] = (), **environment: str) -> Job:
        """Run a Python, or many."""
        folder = self.folder / str(next(self._numbers))
        job = Job([*under, sys.executable, *words], folder, environment)
        self._jobs.append(job)
        return job

    def file(self, script: str | Path) -> str:
        """Return where a script is that may be given as text."""
        if isinstance(script, Path):
            return str(script)
        path = self.folder / f"script-{next(self._numbers)}.py"
        path.write_text(script)
        return str(path)

    def end(self) -> None:
        for job in self._jobs:
            job.end()


@contextmanager
def launching(folder: Path) -> Iterator[Jobs]:
    """Launch jobs, and let none of them outlive this."""
    jobs = Jobs(folder)
    try:
        yield jobs
    finally:
        jobs.end()
