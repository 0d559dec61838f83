"""Training under a real mpirun: as anywhere else, with slow and dying workers too.

A launch takes seconds, so one job does many things, and tells what came of them. Every
process counts as a machine of its own, unless a job says otherwise.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "mpi_jobs", Path(__file__).with_name("mpi_jobs.py")
)
assert _spec is not None
assert _spec.loader is not None
mpi_jobs = importlib.util.module_from_spec(_spec)
sys.modules["mpi_jobs"] = mpi_jobs
_spec.loader.exec_module(mpi_jobs)

if why_not := mpi_jobs.why_not():
    pytest.skip(why_not, allow_module_level=True)

pytestmark = pytest.mark.timeout(600)  # where the machine is busy otherwise

CHECKED = """
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.testing import check_engine
from inside import agents, tell

engines = []
def make():
    engines.append(Mpi(open_segments=20, root_is_agent=False))
    return engines[-1]

check_engine(make)
tell("hosts", sorted(len(host.workers) for host in engines[-1]._far.values()))
"""

MANY = """
import gc, os, sys, time
import numpy as np
from codedgrad.core import Assign
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, train
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import auto, coded_reduce, cyclic, fractional, uncoded
from inside import (
    RATE, agents, alone, far_host, go_on, gradient, is_close, seconds_used, stop, tell,
)

tell("arguments", sys.argv)
SIZE, STEPS = 5000, 12

def outcome(run, scheme):
    return {
        "steps": [step.step for step in run.steps if step.combined],
        "equal": is_close(run.parameters, alone(SIZE, scheme.parts, STEPS)),
    }

# any number of runs, on some or all of the hosts, one worker or several on each
tree = coded_reduce(4, 1, 0)
for scheme in (
    uncoded(4), fractional(2, 1), cyclic(3, 1), auto(4), tree, fractional(12, 2)
):
    run = train(gradient, np.zeros(SIZE), scheme, steps=STEPS, rate=RATE, engine="mpi")
    tell(f"calm {scheme.workers} {scheme.name}", outcome(run, scheme))

# what is sent, with the root's own host among them and without
for root_is_agent in (True, False):
    engine = Mpi(root_is_agent=root_is_agent)
    train(gradient, np.zeros(SIZE), tree, steps=STEPS, rate=RATE, engine=engine)
    moved = [engine.read, engine.fetched, engine.carried, engine.delivered]
    tell(f"moved, root is agent: {root_is_agent}", moved)

# run after run, nothing is left open
def open_files():
    engine, job = Mpi(), NumpyJob(gradient, 5)
    engine.start(lambda: job, job.layout, 5)
    pids = agents(engine)
    assert pids[0] == os.getpid()
    engine.close()
    gc.collect()
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

tell("open files", [open_files() for _ in range(3)])

# faults on purpose; all take long enough for every worker to have begun
fixed = np.full((1, 4), 0.03)
delays = Times(fixed=fixed, unit=np.zeros_like(fixed))
for name, scheme, faults in (
    ("slow", fractional(4, 1), FaultPlan().slow(1, 3, 0.3).slow(0, 6, 0.3)),
    ("killed", uncoded(4), FaultPlan().kill(2, 3).kill(0, 5).kill(2, 8)),
    ("stopped by a plan", uncoded(4), FaultPlan().stop(1, 3, 0.3).stop(0, 5, 0.3)),
):
    engine = Mpi()
    run = train(gradient, np.zeros(SIZE), scheme, steps=STEPS, rate=RATE,
                engine=engine, faults=faults, delays=delays)
    facts = {"fired": faults.all_fired, "lives": engine.lives}
    tell(name, outcome(run, scheme) | facts)

# steps by hand, with vectors long enough to be caught on their way
class Steps:
    def __init__(self, scheme, size, watch=None):
        self.engine = Mpi(root_is_agent=False)
        self.scheme, self.x = scheme, np.zeros(size)
        job = NumpyJob(gradient, size)
        self.driver = Driver(self.engine, scheme, job.layout, watch=watch)
        self.engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts)
        self.heard = []

    def step(self):
        sum_ = self.driver.step(self.x)
        self.x = self.x - RATE * sum_.gradient
        self.heard.append(sum_.report.heard)

    def until_heard(self, worker):
        for _ in range(10_000):
            self.step()
            if worker in self.heard[-1]:
                return
        raise AssertionError(f"worker {worker} is not heard any more")

    @property
    def is_right(self):
        return is_close(self.x, alone(len(self.x), self.scheme.parts, len(self.heard)))

# a process stands still as its worker is given something; later, its fellow does
LONG = 600_000  # numbers: 4.8 MB
def stopping(scheme, of):
    '''Let the agent or the worker 1 stand still for six steps, then the other.'''
    stopped = []
    def watch(event, commands):
        for command in commands:
            if isinstance(command, Assign) and command.step == 3 and not stopped:
                if command.segment.worker == 1:
                    stopped.append(of(steps.engine)[1])
                    stop(stopped[0])
    steps = Steps(scheme, LONG, watch)
    zero, one, *_ = of(steps.engine)
    for _ in range(9):
        steps.step()
    without = steps.heard[3:]
    go_on(one)
    if scheme.name.startswith("fractional"):
        stop(zero)  # so the other one is needed
        for _ in range(3):
            steps.step()
        go_on(zero)
    again = steps.heard[9:]
    steps.until_heard(0)
    steps.until_heard(1)
    return steps, {
        "fired": stopped == [one], "without": without, "with": again,
        "equal": steps.is_right, "lives": steps.engine.lives,
    }

for scheme in (cyclic(4, 1), auto(4)):
    steps, facts = stopping(scheme, agents)
    tell(f"agent stopped, {scheme.name.partition('(')[0]}", facts)
    steps.engine.close()
steps, facts = stopping(fractional(4, 1), lambda engine: engine.pids)
tell("worker stopped, fractional", facts)
steps.engine.close()
steps, facts = stopping(fractional(4, 1), agents)
tell("agent stopped, fractional", facts)

# nobody has anything to do
def shares(pids):
    before, begun = [seconds_used(pid) for pid in pids], time.monotonic()
    time.sleep(1.5)
    wall = time.monotonic() - begun
    return [(seconds_used(p) - b) / wall for p, b in zip(pids, before)]

pids = agents(steps.engine)
tell("idle in a run", shares(pids))
steps.engine.close()
tell("idle between runs", shares(pids))

# a process stands still when its sum is asked for: that is late, and right
steps = Steps(fractional(4, 1), LONG)
engine, one = steps.engine, agents(steps.engine)[1]
host = far_host(engine, 1)
fetch, late = host.fetch, []
def stop_and_fetch(key, rows, sink):
    if len(steps.heard) >= 3 and not late:
        stop(one)
        sink[:] = np.nan  # this list keeps it, so it is used for no other sum
        late.extend([sink, len(steps.heard), steps.x.copy()])
    fetch(key, rows, sink)
host.fetch = stop_and_fetch
while not late:  # until it is asked
    steps.step()
sink, step, x = late
while len(steps.heard) < step + 6:
    steps.step()
was_late = bool(np.isnan(sink).all())
go_on(one)
while np.isnan(sink).any():
    steps.step()
wanted = sum(gradient(x, part, step)[2] for part in (0, 1))
tell("late", {
    "was late": was_late,
    "right": is_close(sink[:LONG], wanted),
    "equal": steps.is_right,
})
steps.engine.close()
sys.exit(7)
"""

TOGETHER = """
import sys
import numpy as np
from codedgrad.engines import train
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.schemes import coded_reduce
from inside import agents, alone, gradient, is_close, tell

tree, root_is_agent = coded_reduce(6, 2, 0), sys.argv[1] == "root"
for _ in range(2):
    engine, hosts = Mpi(root_is_agent=root_is_agent), []
    def evaluate(x):
        hosts.append(len(set(agents(engine))))
        return 0.0
    run = train(
        gradient, np.zeros(500), tree, steps=8, engine=engine, evaluate=evaluate
    )
    tell("moved", [engine.read, engine.fetched, engine.carried, engine.delivered])
    tell("hosts", hosts[0])
    tell("equal", is_close(run.parameters, alone(500, tree.parts, 8)))
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with mpi_jobs.launching(tmp_path_factory.mktemp("mpi")) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def many(jobs: Any) -> Any:
    job = jobs.mpirun(MANY, 5, "--size", "two words", "", **mpi_jobs.APART)
    job.code = job.wait()
    return job


@pytest.mark.parametrize(
    ("processes", "apart", "hosts"),
    [(5, True, [1, 1, 1, 1]), (2, False, [4])],
    ids=["a worker a host", "four workers a host"],
)
def test_it_does_what_engines_have_to_do(
    processes: int, apart: bool, hosts: list[int], jobs: Any
) -> None:
    job = jobs.mpirun(CHECKED, processes, **(mpi_jobs.APART if apart else {}))
    assert job.wait() == 0, job.err
    assert job.answers["hosts"] == hosts
    assert job.is_all_gone()


def test_mpirun_ends_with_the_exit_code_of_the_script(many: Any) -> None:
    assert many.code == 7, many.err
    assert many.is_all_gone()


def test_a_script_gets_its_arguments(many: Any) -> None:
    script, *arguments = many.answers["arguments"]
    assert Path(script).is_file()
    assert arguments == ["--size", "two words", ""]


def test_any_number_of_runs_come_out_as_in_a_single_process(many: Any) -> None:
    calm = {k: v for k, v in many.answers.items() if k.startswith("calm")}
    assert len(calm) == 6
    for name, facts in calm.items():
        assert facts == {"steps": [*range(12)], "equal": True}, name


@pytest.mark.parametrize(
    ("root_is_agent", "moved"),
    [(True, [12, 0, 12 * 3, 12 * 3]), (False, [0, 12, 12 * 3, 12 * 4])],
)
def test_sums_of_the_roots_host_are_read_and_others_are_fetched(
    many: Any, root_is_agent: bool, moved: list[int]
) -> None:
    """Of a tree that is a chain, what the one child of the root has.

    Every other worker sends to another host, and every other host than the root's is
    sent the parameters.
    """
    assert many.answers[f"moved, root is agent: {root_is_agent}"] == moved


@pytest.mark.parametrize(
    ("who", "processes", "apart", "hosts", "moved"),
    [
        ("root", 3, False, 1, [16, 0, 0, 0]),
        ("another", 3, False, 1, [0, 16, 0, 8]),
        ("root", 2, True, 2, [8, 8, 16, 8]),
    ],
    ids=["on the root's host", "on another", "on two hosts"],
)
def test_between_workers_of_a_host_nothing_is_sent(
    jobs: Any, who: str, processes: int, apart: bool, hosts: int, moved: list[int]
) -> None:
    """In a tree in which two children of the root have two children each.

    The parameters go to a host once a step, however many workers it has. Of several
    processes on a machine one is the agent, and the others sleep.
    """
    environment = mpi_jobs.APART if apart else {}
    job = jobs.mpirun(TOGETHER, processes, who, **environment)
    assert job.wait() == 0, job.err
    assert job.answers == {"moved": moved, "hosts": hosts, "equal": True}
    assert job.is_all_gone()


def test_a_script_runs_without_mpirun_too(jobs: Any) -> None:
    script = jobs.file(TOGETHER)
    job = jobs.python("-m", "codedgrad.engines.mpi", script, "root")
    assert job.wait() == 0, job.err
    assert job.answers == {"moved": [16, 0, 0, 0], "hosts": 1, "equal": True}
    assert job.said == []
    assert job.is_all_gone()


def test_nothing_is_left_open_after_a_run(many: Any) -> None:
    first, *others = many.answers["open files"]
    assert others == [first] * 2
    assert len(first) == 5


def test_that_a_loss_ends_the_job_is_said_once_and_at_the_start(many: Any) -> None:
    assert many.err.startswith(
        "under this MPI, the loss of a host ends the job; with Open MPI 5, "
        "`mpirun --with-ft ulfm` lets the others go on\n"
    )
    assert many.err.count("the loss of a host") == 1


@pytest.mark.parametrize("what", ["slow", "stopped by a plan"])
def test_a_slow_worker_changes_nothing(many: Any, what: str) -> None:
    facts = many.answers[what]
    assert facts["fired"]
    assert facts["steps"] == [*range(12)]
    assert facts["equal"]
    assert facts["lives"] == [1, 1, 1, 1]


def test_a_worker_that_is_killed_is_forked_again_and_no_step_is_lost(many: Any) -> None:
    facts = many.answers["killed"]
    assert facts["fired"]
    assert facts["steps"] == [*range(12)]
    assert facts["equal"]
    assert facts["lives"] == [2, 1, 3, 1]


STOPPED = pytest.mark.parametrize(
    "who",
    [
        "agent stopped, fractional",
        "agent stopped, cyclic",
        "agent stopped, auto",
        "worker stopped, fractional",
    ],
)


@STOPPED
def test_steps_go_on_without_a_process_that_stands_still(many: Any, who: str) -> None:
    facts = many.answers[who]
    assert facts["fired"]
    assert facts["equal"]
    assert facts["lives"] == [1, 1, 1, 1]
    assert len(facts["without"]) == 6
    assert all(1 not in heard for heard in facts["without"])


@pytest.mark.parametrize("who", ["agent", "worker"])
def test_a_process_that_goes_on_is_used_again(many: Any, who: str) -> None:
    facts = many.answers[f"{who} stopped, fractional"]
    assert all(1 in heard and 0 not in heard for heard in facts["with"])
    assert len(facts["with"]) == 3


def test_a_sum_of_megabytes_that_comes_late_is_whole_and_spoils_nothing(
    many: Any,
) -> None:
    assert many.answers["late"] == {"was late": True, "right": True, "equal": True}


@pytest.mark.parametrize("when", ["idle in a run", "idle between runs"])
def test_processes_that_have_nothing_to_do_leave_the_cores_to_others(
    many: Any, when: str
) -> None:
    shares = many.answers[when]
    print(when, shares)
    assert len(shares) == 4
    assert max(shares) < 0.2
