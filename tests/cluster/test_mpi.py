"""Training under a real mpirun: as anywhere else, with slow and dying workers too.

A launch takes seconds, so one job does many things, and tells what came of them.
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

CHECKED = """
import sys
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.testing import check_engine
from mpi_inside import tell
shares = sys.argv[1] == "near"
check_engine(lambda: Mpi(open_segments=20, share_memory=shares))
tell("passed")
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
from mpi_inside import (
    RATE, agents, alone, go_on, gradient, is_close, seconds_used, stop, tell,
)

tell("arguments", sys.argv)
SIZE, STEPS = 5000, 12

def outcome(run, scheme):
    return {
        "steps": [step.step for step in run.steps if step.combined],
        "equal": is_close(run.parameters, alone(SIZE, scheme.parts, STEPS)),
    }

# any number of runs, on some or all of the processes
tree = coded_reduce(4, 1, 0)
for scheme in (uncoded(4), fractional(2, 1), cyclic(3, 1), auto(4), tree):
    run = train(gradient, np.zeros(SIZE), scheme, steps=STEPS, rate=RATE, engine="mpi")
    tell(f"calm {scheme.name}", outcome(run, scheme))

# what is sent, from workers that share the root's host, and from others
for near in (True, False):
    engine = Mpi(share_memory=near)
    train(gradient, np.zeros(SIZE), tree, steps=STEPS, rate=RATE, engine=engine)
    tell(f"near {near}", [engine.read, engine.fetched, engine.carried])

# run after run, nothing is left open
def open_files(near=True):
    engine, job = Mpi(share_memory=near), NumpyJob(gradient, 5)
    engine.start(lambda: job, job.layout, 4)
    link = engine._transport._link
    tell(f"bells {near}", [link.is_rung_for, len(link._ropes)])
    pids = [os.getpid(), *agents(engine)]
    engine.close()
    gc.collect()
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

tell("open files", [open_files() for _ in range(3)])
open_files(near=False)

# faults on purpose; all take long enough for everybody to have begun
fixed = np.full((1, 4), 0.03)
delays = Times(fixed=fixed, unit=np.zeros_like(fixed))
for name, scheme, faults in (
    ("slow", fractional(4, 1), FaultPlan().slow(1, 3, 0.3).slow(0, 6, 0.3)),
    ("killed", uncoded(4), FaultPlan().kill(2, 3).kill(0, 5).kill(2, 8)),
):
    engine = Mpi()
    run = train(gradient, np.zeros(SIZE), scheme, steps=STEPS, rate=RATE,
                engine=engine, faults=faults, delays=delays)
    facts = {"fired": faults.all_fired, "lives": engine.lives}
    tell(name, outcome(run, scheme) | facts)

# steps by hand, with vectors long enough to be caught on their way
class Steps:
    def __init__(self, scheme, size, watch=None):
        self.engine = Mpi(share_memory=False)
        self.scheme, self.x = scheme, np.zeros(size)
        job = NumpyJob(gradient, size)
        self.driver = Driver(self.engine, scheme, job.layout, watch=watch)
        self.engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts)
        self.heard = []

    def step(self):
        sum_ = self.driver.step(self.x)
        self.x = self.x - RATE * sum_.gradient
        self.heard.append(sum_.report.heard)

    @property
    def is_right(self):
        return is_close(self.x, alone(len(self.x), self.scheme.parts, len(self.heard)))

# a process of MPI stands still as it is given something; later, its fellow does
LONG = 600_000  # numbers: 4.8 MB
stopped = []
def watch(event, commands):
    for command in commands:
        if isinstance(command, Assign) and command.step == 3 and not stopped:
            if command.segment.worker == 1:
                stopped.append(agents(steps.engine)[1])
                stop(stopped[0])

steps = Steps(fractional(4, 1), LONG, watch)
zero, one, *_ = agents(steps.engine)
for _ in range(9):
    steps.step()
without = steps.heard[3:]
go_on(one)
stop(zero)  # so the other one is needed
for _ in range(3):
    steps.step()
go_on(zero)
for _ in range(3):
    steps.step()
tell("stopped", {
    "fired": stopped == [one], "without": without, "with": steps.heard[9:12],
    "equal": steps.is_right, "lives": steps.engine.lives,
})

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
transport, one = steps.engine._transport, agents(steps.engine)[1]
fetch, come, late, came = transport.fetch, steps.engine._come, [], {}
def stop_and_fetch(agent, key, rows):
    if agent == 1 and len(steps.heard) >= 3 and not late:
        stop(one)
        late.extend([key, len(steps.heard), steps.x.copy()])
    fetch(agent, key, rows)
def look_and_come(key, terms):
    for vector in terms or ():
        came[key] = vector.copy() if late[:1] == [key] else None
    come(key, terms)
transport.fetch, steps.engine._come = stop_and_fetch, look_and_come
while not late:  # until it is asked
    steps.step()
while len(steps.heard) < late[1] + 6:
    steps.step()
was_late = late[0] not in came
go_on(one)
while late[0] not in came:
    steps.step()
key, step, x = late
wanted = sum(gradient(x, part, step)[2] for part in (0, 1))
tell("late", {
    "was late": was_late,
    "right": is_close(came[key][:LONG], wanted),
    "equal": steps.is_right,
})
steps.engine.close()
sys.exit(7)
"""

DRAINED = """
import os, sys, time
import numpy as np
import mpi4py
from mpi4py import MPI
from codedgrad.engines.mpi.engine import _Pool
from codedgrad.engines.mpi.link import BODY, MpiLink
from mpi_inside import go_on, stop, tell

comm, SIZE, MANY = MPI.COMM_WORLD, 600_000, 24
other = comm.sendrecv(os.getpid(), 1 - comm.Get_rank(), source=1 - comm.Get_rank())
link, pool = MpiLink(comm, lambda rank, reason: sys.exit(reason)), _Pool()
if comm.Get_rank() == 0:
    stop(other)
    for number in range(MANY):
        vector = pool.vector(SIZE, "float64")
        vector[:] = number
        link.give(1, BODY, vector)
        del vector  # as parameters are forgotten with which a step is over
        link.progress()
    tell("on its way", link.is_busy)
    go_on(other)
    while link.is_busy:
        link.progress()
        time.sleep(link.pause())
    free = sum(map(len, pool._free.values()))
    tell("memory", [free, MANY])
else:
    found = []
    def take(number):
        if number < MANY:
            vector = np.full(SIZE, -1.0)
            link.take(0, BODY, vector, lambda: look(vector, number))
    def look(vector, number):
        found.append([float(vector.min()), float(vector.max())])
        take(number + 1)
    take(0)
    while len(found) < MANY:
        link.progress()
        time.sleep(link.pause())
    tell("found", found)
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with mpi_jobs.launching(tmp_path_factory.mktemp("mpi")) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def many(jobs: Any) -> Any:
    job = jobs.mpirun(MANY, 5, "--size", "two words", "")
    job.code = job.wait()
    return job


@pytest.mark.parametrize("where", ["near", "far"])
def test_it_does_what_engines_have_to_do(where: str, jobs: Any) -> None:
    job = jobs.mpirun(CHECKED, 5, where)
    assert job.wait() == 0, job.err
    assert "passed" in job.answers
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
    assert len(calm) == 5
    for name, facts in calm.items():
        assert facts == {"steps": [*range(12)], "equal": True}, name


def test_what_is_near_is_read_and_what_is_not_is_fetched(many: Any) -> None:
    """Of a tree that is a chain, what the one child of the root has."""
    assert many.answers["near True"] == [12, 0, 12 * 3]
    assert many.answers["near False"] == [0, 12, 12 * 3]


def test_the_root_and_who_is_near_ring_for_each_other_and_nobody_else(
    many: Any,
) -> None:
    """An agent says where its own bell is only if it has reached the root's."""
    assert many.answers["bells True"] == [True, 4]
    assert many.answers["bells False"] == [False, 0]


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


def test_a_slow_worker_changes_nothing(many: Any) -> None:
    facts = many.answers["slow"]
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


def test_steps_go_on_without_a_process_that_stands_still(many: Any) -> None:
    facts = many.answers["stopped"]
    assert facts["fired"]
    assert facts["equal"]
    assert facts["lives"] == [1, 1, 1, 1]
    assert len(facts["without"]) == 6
    assert all(1 not in heard for heard in facts["without"])


def test_a_process_that_goes_on_is_used_again(many: Any) -> None:
    facts = many.answers["stopped"]
    assert all(1 in heard and 0 not in heard for heard in facts["with"])


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


def test_no_memory_is_used_again_before_what_was_in_it_has_arrived(jobs: Any) -> None:
    job = jobs.mpirun(DRAINED, 2, plain=True)
    assert job.wait() == 0, job.err
    assert job.answers["on its way"] is True
    assert job.answers["found"] == [[number, number] for number in range(24)]
    free, sent = job.answers["memory"]
    assert 1 < free <= sent
    assert job.is_all_gone()
