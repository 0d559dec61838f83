"""Three hosts with several workers each: what becomes of a run when one of them fails.

Every story is a run of its own, on the same hosts, under MPI or under torchrun with
fixed ranks. The root's host has workers like the others. Something happens to another
host in the middle of training, and is undone where it can be:

    host killed     SIGKILL to agent, nursery and workers there, all at once
    link cut        its link is down until the root has noticed, and then up again
    host stopped    SIGSTOP to every process there, and SIGCONT after a while
    worker killed   kill -9 of a worker there
    agent killed    kill -9 of the process that the launcher has started there
    daemon killed   SIGKILL to every process there, also to mpirun's own daemon
    machine killed  the same, with torchrun's own process; then torchrun is started anew

Workers are numbered round robin over hosts, so those of one host are in different
groups, and the loss of a host is a loss that the scheme tolerates. So no step may be
lost, every sum has to be right, and the parameters are those of a single process. The
loss of a host is one event, and so is its return. In the end no process is left.

Open MPI 5.0 does not survive the loss of a daemon: mpirun then ends the whole job, with
exit code 0. All that can be promised there is that nothing is left running. MPI does
not start again what was killed; torchrun does, and `spot` shows Ray doing it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driver_lines import DriverLines, Line
from hosts import Host, Lab, LabFailed
from kernel import pids_in
from launch import mpi_command, started
from writing import Table, table

TRAINING = Path(__file__).with_name("training.py")
HOSTS, RATE = 3, "100mbit"
HIT = 2  # the host that something happens to; 0 is the root's
PATIENCE = 120.0  # seconds for anything that is waited for
LONGEST = 10.0  # seconds of a step: less than it takes to notice a cut
CUT = (20.0, 60.0)  # seconds after which a cut is noticed, at least and at most
QUICKLY = 5.0  # seconds within which any other loss is noticed
RESTARTS = 3  # of the processes of a machine, by torchrun
PORT = 29400  # of torchrun's store, in h0
OFF = 1e-9  # of a sum, relative to it


@dataclass(frozen=True)
class Setting:
    """How much is done.

    Attributes:
        workers: Of all hosts together.
        schemes: Each of which goes through every story.
        steps: Before the fault, and after all is well again.
        stopped: Seconds.
    """

    workers: int = 12
    schemes: tuple[str, ...] = ("fractional(1)", "auto")
    steps: int = 20
    stopped: float = 40.0  # longer than it takes to notice a cut


QUICK = Setting(workers=6, schemes=("fractional(1)",), steps=10, stopped=3.0)


@dataclass
class Run:
    """One story: what was done, and what the driver said.

    Attributes:
        launcher: `mpi` or `torchrun`.
        name: Of the story.
        scheme: In words.
        lines: Of the driver.
        host: The one that is hit.
        start_again: Starts torchrun on that host once more.
        workers: Those on it.
        pids: Of all workers as they were at first.
        expected: Losses and returns, in order: what, and of which workers.
        at: When the fault was made, on the clock of `monotonic`.
        undone: When it was undone.
        during: Steps that ended between the two.
        fired: Whether it can be seen that the fault was made.
        ends: Whether mpirun is to end the job for it.
        code: Exit code of mpirun, or of torchrun on the root's host.
        left: Processes that were still there when it had ended.
    """

    launcher: str
    name: str
    scheme: str
    lines: DriverLines
    host: Host
    start_again: Callable[[], object]
    workers: list[int] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    expected: list[tuple[str, list[int]]] = field(default_factory=list)
    at: float = 0.0
    undone: float | None = None
    fired: bool = False
    ends: bool = False
    code: int | None = None
    left: list[int] = field(default_factory=list)

    @property
    def end(self) -> Line | None:
        ended = self.lines.of(("ended",))
        return ended[0] if ended else None

    @property
    def agent(self) -> int:
        """The process that the launcher has started on the host."""
        return parent(parent(self.pids[self.workers[0]]))  # its nursery's, a worker's

    @property
    def changes(self) -> list[Line]:
        """Losses and returns, as the driver was told of them."""
        return self.lines.of(("lost", "joined"))

    def expect(self, what: str, workers: list[int]) -> None:
        """Wait for a loss or a return."""
        self.expected.append((what, workers))
        self.lines.wait(
            lambda line: line["what"] == what and sorted(line["workers"]) == workers,
            after=self.at,
        )

    def use_again(self, workers: list[int]) -> None:
        """Wait until each of these has been heard in a step."""
        since = time.monotonic()
        for worker in workers:
            self.lines.wait(is_step_of(worker), after=since)


def is_step_of(worker: int) -> Callable[[Line], bool]:
    return lambda line: line["what"] == "step" and worker in line["heard"]


# -- what happens ----------------------------------------------------------------------


def kill_host(run: Run, setting: Setting) -> None:
    agent = run.agent
    pids = {agent, *descendants(agent)}
    run.fired = pids > {run.pids[worker] for worker in run.workers}
    run.at = time.monotonic()
    send(signal.SIGKILL, pids)
    run.expect("lost", run.workers)


def cut_link(run: Run, setting: Setting) -> None:
    run.at = time.monotonic()
    run.host.cut()
    sent = run.host.sent_bytes()
    run.expect("lost", run.workers)
    run.fired = 0 < run.host.sent_bytes() == sent
    run.undone = time.monotonic()
    run.host.mend()
    run.expect("joined", run.workers)
    run.use_again(run.workers)


def stop_host(run: Run, setting: Setting) -> None:
    run.at = time.monotonic()
    stopped: set[int] = set()
    while new := set(run.host.pids()) - stopped:  # until none has forked meanwhile
        send(signal.SIGSTOP, new)
        stopped |= new
    time.sleep(setting.stopped)
    run.fired = all(state(pid) == "T" for pid in stopped)
    run.undone = time.monotonic()
    send(signal.SIGCONT, stopped)
    run.use_again(run.workers)


def kill_worker(run: Run, setting: Setting) -> None:
    victim = run.workers[0]
    kill(run, run.pids[victim])
    run.expect("lost", [victim])
    run.expect("joined", [victim])
    run.use_again([victim])


def kill_agent(run: Run, setting: Setting) -> None:
    kill(run, run.agent)
    run.expect("lost", run.workers)
    if run.launcher == "torchrun":  # which starts it again
        run.expect("joined", run.workers)
        run.use_again(run.workers)


def kill_daemon(run: Run, setting: Setting) -> None:
    run.ends = True
    run.fired = run.agent in run.host.pids()
    run.at = time.monotonic()
    run.host.kill_all()


def kill_machine(run: Run, setting: Setting) -> None:
    run.fired = {run.agent, parent(run.agent)} < set(run.host.pids())
    run.at = time.monotonic()
    run.host.kill_all()
    run.expect("lost", run.workers)
    run.lines.go_on(setting.steps)  # without it
    run.undone = time.monotonic()
    run.start_again()
    run.expect("joined", run.workers)
    run.use_again(run.workers)


def kill(run: Run, pid: int) -> None:
    run.fired = pid in run.host.pids()
    run.at = time.monotonic()
    os.kill(pid, signal.SIGKILL)


def send(number: signal.Signals, pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)


def descendants(pid: int) -> set[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(word) for word in path.read_text().split()]
    return set(children).union(*map(descendants, children))


def state(pid: int) -> str:
    return stat(pid)[0]


def parent(pid: int) -> int:
    return int(stat(pid)[1])


def stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        raise LabFailed(f"process {pid} has ended by itself", "see why") from None


Story = Callable[[Run, Setting], None]
EITHER: dict[str, Story] = {
    "link cut": cut_link,
    "host stopped": stop_host,
    "worker killed": kill_worker,
    "agent killed": kill_agent,
}
STORIES: dict[str, dict[str, Story]] = {
    "mpi": {"host killed": kill_host, **EITHER, "daemon killed": kill_daemon},
    "torchrun": {**EITHER, "machine killed": kill_machine},
}
"""By launcher."""


# -- a run -----------------------------------------------------------------------------


def measure(lab: Lab, launcher: str, name: str, scheme: str, setting: Setting) -> Run:
    """Train, let it happen, and train on for some steps."""
    words = ["--engine", launcher, "--scheme", scheme]
    words += ["--workers", str(setting.workers)]
    words += ["--seconds", "0.01" if scheme == "auto" else "0.025"]  # of a part
    hit = lab.hosts[HIT]
    if launcher == "mpi":
        args = ["codedgrad.engines.mpi", str(TRAINING), *words]
        command = mpi_command(lab, lab.hosts, "-m", args, survives=True)
        others = {}
    else:
        command, *rest = torchrun_commands(lab.hosts, [str(TRAINING), *words])
        others = dict(zip(lab.hosts[1:], rest, strict=True))

    def start(host: Host) -> None:
        with (host.folder / "torchrun").open("a") as said:
            host.popen(others[host], stdout=said, stderr=subprocess.STDOUT)

    limit = 5 * PATIENCE
    with started(lab, lab.hosts, command, limit, subprocess.PIPE) as (process, _):
        for host in others:
            start(host)
        lines = DriverLines(process.stdout, PATIENCE)
        run = Run(launcher, name, scheme, lines, hit, lambda: start(hit))
        run.lines.go_on(setting.steps)
        if len(run.lines.steps()) < setting.steps:
            said = "".join(run.lines.others)[-1500:]
            raise LabFailed(f"{name}: training does not start: {said}", "see above")
        (begun,) = run.lines.of(("started",))
        run.pids = begun["pids"]
        places = enumerate(begun["where"])
        run.workers = [worker for worker, host in places if host == run.host.name]
        STORIES[launcher][name](run, setting)
        if not run.ends:
            run.lines.go_on(setting.steps)
            with contextlib.suppress(BrokenPipeError):  # it has ended by itself
                process.stdin.write("end\n")
                process.stdin.flush()
            run.lines.wait(lambda line: line["what"] == "ended")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.code = process.wait(PATIENCE)
        run.left = remaining(lab.hosts)
    return run


def torchrun_commands(hosts: Sequence[Host], words: list[str]) -> list[list[str]]:
    """Return the command for each host, which are of one job with fixed ranks."""
    secret = secrets.token_hex(16)
    environment = [f"CODEDGRAD_SECRET={secret}", "OMP_NUM_THREADS=1"]
    options = [f"--nnodes={len(hosts)}", "--nproc-per-node=1"]
    options += [f"--max-restarts={RESTARTS}"]
    options += [f"--master-addr={hosts[0].name}", f"--master-port={PORT}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options]
    return [
        ["env", *environment, *torchrun, f"--node-rank={host.number}", *words]
        for host in hosts
    ]


def remaining(hosts: Sequence[Host], patience: float = 10.0) -> list[int]:
    """Return the processes that do not end by themselves within some seconds."""
    until = time.monotonic() + patience
    while (pids := pids_in(host.namespace for host in hosts)) and (
        time.monotonic() < until
    ):
        time.sleep(0.1)
    return pids


def main(quick: bool, out: Path) -> list[str]:
    """Measure, print; return what was missed."""
    setting = QUICK if quick else Setting()
    each = setting.workers // HOSTS
    print(f"{HOSTS} hosts, {each} workers each, {RATE}; hit: h{HIT}")
    runs = []
    with Lab(HOSTS, RATE) as lab:
        for scheme in setting.schemes:
            for launcher, stories in STORIES.items():
                for name in stories:
                    runs.append(measure(lab, launcher, name, scheme, setting))
    print(table(shown(runs)))
    return [line for run in runs for line in judged(run)]


# -- what is shown ---------------------------------------------------------------------


def shown(runs: list[Run]) -> Table:
    head = (
        "launcher", "story", "scheme", "steps", "lost", "longest [s]", "equal", "left",
        "code", "events [s after it was done or undone]",
    )  # fmt: skip
    rows = []
    for run in runs:
        lost, equal = "-", "-"
        if not run.ends:
            lost = str(lost_steps(run))
            equal = "yes" if run.end is not None and run.end["equal"] else "NO"
        rows.append(
            (run.launcher, run.name, run.scheme, str(len(run.lines.steps())), lost,
             f"{longest(run):.2f}", equal, str(len(run.left)), str(run.code),
             "; ".join(events(run)) or "none")
        )  # fmt: skip
    return Table(head, rows)


def lost_steps(run: Run) -> int:
    """Return how many steps have no right sum, as far as the driver has come."""
    steps = run.lines.steps()
    done = run.end["steps"] if run.end else len(steps) + 1  # the one it ended in
    return int(done) - sum(step["off"] <= OFF for step in steps)


def longest(run: Run) -> float:
    return max((step["seconds"] for step in run.lines.steps()), default=0.0)


def events(run: Run) -> Iterator[str]:
    for line in run.changes:
        since = run.at
        if run.undone is not None and line["at"] > run.undone:
            since = run.undone
        workers = " ".join(map(str, line["workers"]))
        yield f"{line['what']} {workers} ({line['at'] - since:.1f})"


def judged(run: Run) -> Iterator[str]:
    """Yield what is not as it was promised."""
    named = f"{run.launcher}, {run.name}, {run.scheme}"
    if not run.fired:
        yield f"{named}: it cannot be seen that it was done"
    if run.left:
        yield f"{named}: {len(run.left)} processes are left"
    if run.ends:
        if run.code is None:
            yield f"{named}: mpirun has not ended"
        return
    if run.end is None or run.code != 0:
        said = " ".join("".join(run.lines.others).split()[-60:])
        yield f"{named}: training has not ended well ({run.code}): {said}"
    elif not run.end["equal"]:
        yield f"{named}: the parameters are off by {run.end['apart']:.0e}"
    if lost_steps(run):
        yield f"{named}: {lost_steps(run)} steps are lost"
    if longest(run) > LONGEST:
        yield f"{named}: a step took {longest(run):.1f} s"
    if run.undone is not None and not run.lines.steps(run.at, run.undone):
        yield f"{named}: no step was done meanwhile"
    found = [(line["what"], sorted(line["workers"])) for line in run.changes]
    if found != run.expected:
        yield f"{named}: the events are {found}, not {run.expected}"
    least, most = CUT if run.name == "link cut" else (0.0, QUICKLY)
    for line in run.changes[:1]:
        if not least <= line["at"] - run.at <= most:
            yield f"{named}: it was noticed after {line['at'] - run.at:.1f} s"
