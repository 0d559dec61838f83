"""A process of MPI is killed: training goes on, or can be resumed."""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
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

LOST = """
import os, signal, sys
import numpy as np
from codedgrad.core import Assign, Progressed, WorkersLost
from codedgrad.delays import Times
from codedgrad.engines import Driver
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.errors import EngineFailed
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import build
from inside import RATE, agents, alone, gradient, is_close, is_gone, state, tell

WHEN = 3  # the first step in which the host of the victim, a worker, may be lost

def deadly(x, part, step):
    '''Kill the agent of the victim's host, in the middle of a part.'''
    if step >= WHEN and os.getpid() == int(open(f"{folder}/victim").read() or 0):
        os.kill(int(state(int(state(os.getpid())[1]))[1]), signal.SIGKILL)
    return gradient(x, part, step)

class Run:
    def __init__(self, moment, scheme, size=40_000, root_is_agent=True):
        self.moment, self.scheme, self.lost, self.killed = moment, scheme, [], []
        self.engine = Mpi(open_segments=20, root_is_agent=root_is_agent)
        self.x = np.zeros(size)
        job = NumpyJob(deadly if moment == "computes" else gradient, size)
        self.driver = Driver(self.engine, scheme, job.layout, watch=self.watch)
        late = np.full((1, scheme.workers), 0.01)
        late[0, VICTIM] = 0.0  # so that it always takes part
        open(f"{folder}/victim", "w").close()
        self.engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts,
            delays=Times(fixed=late, unit=np.zeros_like(late)),
        )
        for host in self.engine._far.values():
            host.fetch = self.seen(host, host.fetch, "is asked for its sum")
            host.carry = self.seen(host, host.carry, "sends its sum to another")
        self.agents, self.pids = agents(self.engine), self.engine.pids
        with open(f"{folder}/victim", "w") as file:
            file.write(str(self.engine.pids[VICTIM]))
        self.step = 0

    def kill(self, moment):
        if (moment, self.killed) == (self.moment, []) and self.step >= WHEN:
            self.killed.append(self.step)
            os.kill(self.agents[VICTIM], signal.SIGKILL)

    def watch(self, event, commands):
        match event:
            case WorkersLost(workers):
                self.lost.append(workers)
            case Progressed(_, worker, _, _, closed) if worker == VICTIM and closed:
                self.kill("is done")
        for command in commands:
            if isinstance(command, Assign) and command.segment.worker == VICTIM:
                self.kill("is given something")

    def seen(self, host, act, moment):
        def do(key, rows, *where):
            act(key, rows, *where)
            if VICTIM in host.workers:
                self.kill(moment)
            if moment.startswith("sends") and VICTIM in where[0].workers:
                self.kill("is sent a sum by another")
        return do

    def take_step(self):
        self.x = self.x - RATE * self.driver.step(self.x).gradient
        self.step += 1

    def until_lost(self):
        for _ in range(2000):
            self.take_step()
            if self.lost:
                return
        raise AssertionError("no worker was lost")

    def end(self):
        for _ in range(5):
            self.take_step()
        lost = [worker for workers in self.lost for worker in workers]
        are_gone = all(is_gone(self.pids[worker]) for worker in lost)
        self.engine.close()
        equal = is_close(self.x, alone(len(self.x), self.scheme.parts, self.step))
        return {
            "lost": self.lost, "killed": self.killed, "gone": are_gone, "equal": equal,
        }

folder, moment, words, workers, victim = sys.argv[1:]
VICTIM = int(victim)
if moment != "several":
    run = Run(moment, build(words, int(workers)))
    run.until_lost()
    tell("lost", run.end())
else:  # one after the other, until the root is alone
    for moment, scheme in (
        ("is asked for its sum", build("fractional(3)", 8)),
        ("is given something", build("cyclic(2)", 6)),
    ):
        run = Run(moment, scheme)
        run.until_lost()
        tell(moment, run.end())
    run = Run("never", build("fractional(1)", 2))
    os.kill(run.agents[VICTIM], signal.SIGKILL)  # between two steps
    run.until_lost()
    tell("between two steps", run.end())
    run = Run("never", build("uncoded", 3))
    tell("alone", [run.agents == [os.getpid()] * 3, run.end()])
    try:
        Run("never", build("uncoded", 2), root_is_agent=False)
    except EngineFailed as error:
        tell("nobody", str(error))
"""

LOSS = (
    r"{} on \S+ {} lost: host \d \(\S+\) is gone \(its process has ended\); "
    r"{} back only if the agent there is still running"
)


def loss(workers: Sequence[int]) -> str:
    """Return a pattern for the line about workers that are lost with their host."""
    if len(workers) == 1:
        return LOSS.format(f"worker {workers[0]}", "was", "it comes")
    named = ", ".join(map(str, workers))
    return LOSS.format(f"workers {named}", "were", "they come")


MOMENTS = {  # when its agent is killed: in which scheme, processes, and whom it takes
    "is given something": ("cyclic(2)", 6, 3, [1, 4]),
    "computes": ("fractional(2)", 6, 3, [1, 4]),
    "is done": ("auto", 6, 3, [1, 4]),
    "is asked for its sum": ("cyclic(1)", 3, 3, [1]),
    "is sent a sum by another": ("coded_reduce(2, 1)", 6, 3, [1, 4]),
    "sends its sum to another": ("coded_reduce(2, 1)", 6, 3, [5, 2]),
}

TRAINED = """
import os, signal, sys
import torch
from torch import nn
import codedgrad as cg
from codedgrad.engines.mpi.engine import Mpi
from inside import agents, tell

def job():
    x = torch.randn(60, 4)
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.2), nn.Linear(5, 1))
    return cg.torch.Job(model, nn.MSELoss(), (x, x.sum(1, keepdim=True)), batch_size=12)

def train(folder, kill_at):
    engine, when = Mpi(), cg.torch.Checkpoints(seconds=None, steps=3)
    with cg.torch.train(
        job, scheme="uncoded", workers=2, engine=engine, run_dir=folder,
        resume="auto", checkpoints=when,
    ) as coded:
        optimizer = torch.optim.Adam(coded.model.parameters(), lr=0.05)
        coded.track(optimizer=optimizer)
        tell("begun", coded.step)
        for step in coded.steps(14):
            if step == kill_at:
                tell("killed", step)
                os.kill(agents(engine)[1], signal.SIGKILL)
            coded.backward()
            optimizer.step()
    return [p.detach().numpy().tobytes().hex() for p in coded.model.parameters()]

folder, kill_at, *other = sys.argv[1:]
tell("parameters", train(folder, int(kill_at)))
for folder in other:
    tell("undisturbed", train(folder, -1))
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with mpi_jobs.launching(tmp_path_factory.mktemp("mpi")) as jobs:
        yield jobs


def lose(
    jobs: Any,
    number: int,
    moment: str,
    words: str = "",
    workers: int = 0,
    hosts: int = 4,
    victims: Sequence[int] = (1,),
) -> Any:
    folder = jobs.folder / f"lost-{number}"
    folder.mkdir()
    arguments = str(folder), moment, words, str(workers), str(victims[0])
    job = jobs.mpirun(LOST, hosts, *arguments, options=mpi_jobs.ULFM, **mpi_jobs.APART)
    job.code = job.wait()
    return job


@pytest.fixture
def losses(request: pytest.FixtureRequest) -> int:
    """How many jobs lose a process: one for every moment, and 20 in a soak."""
    profile = request.config.getoption("--hypothesis-profile")
    return 20 if profile == "soak" else len(MOMENTS)


@pytest.mark.hypothesis  # so that a soak runs it
def test_with_ulfm_training_goes_on_without_a_process_that_is_killed(
    jobs: Any, together: Callable[..., list[Any]], losses: int
) -> None:
    planned = [*islice(cycle(MOMENTS), losses)]
    done = together(
        [
            lambda number=number, moment=moment: lose(
                jobs, number, moment, *MOMENTS[moment]
            )
            for number, moment in enumerate(planned)
        ],
        at_once=2,
    )
    assert len(done) == losses
    for moment, job in zip(planned, done, strict=True):
        assert job.code == 0, (moment, job.err)
        facts, victims = job.answers["lost"], sorted(MOMENTS[moment][-1])
        assert facts["equal"], moment
        assert facts["lost"] == [victims], moment  # all in one event
        assert facts["gone"], moment
        assert len(facts["killed"]) == (moment != "computes"), moment  # by whom it was
        [said] = job.said
        assert re.fullmatch(loss(victims), said), said
        assert job.is_all_gone(), moment


def test_with_ulfm_several_may_be_lost_in_one_job(jobs: Any) -> None:
    job = lose(jobs, 1000, "several")
    assert job.code == 0, job.err
    found = {"gone": True, "equal": True}
    asked = job.answers["is asked for its sum"]
    [step] = asked["killed"]
    assert step >= 3  # on a busy machine another worker may be asked in step 3
    assert asked == {**found, "lost": [[1, 5]], "killed": [step]}
    given = {**found, "lost": [[1, 4]], "killed": [3]}
    assert job.answers["is given something"] == given
    between = {**found, "lost": [[1]], "killed": []}
    assert job.answers["between two steps"] == between
    assert job.answers["alone"] == [True, {**found, "lost": [], "killed": []}]
    assert job.answers["nobody"].startswith("there is no process for workers besides")
    assert job.is_all_gone()


@pytest.fixture(scope="module")
def broken(jobs: Any) -> Any:
    """A training that has lost a process, without ULFM."""
    job = jobs.mpirun(TRAINED, 3, str(jobs.folder / "run"), "8", **mpi_jobs.APART)
    job.code = job.wait()
    return job


def test_without_ulfm_the_job_ends_and_says_what_to_do(broken: Any) -> None:
    assert broken.answers["killed"] == 8
    assert broken.code != 0
    [begun] = [line for line in broken.said if line.startswith("codedgrad: ")]
    assert begun.endswith("beginning at step 0")  # it may resume, and has nothing to
    # The root hears of it, too, if mpirun leaves it time.
    warning, *lost, ended = [line for line in broken.said if line != begun]
    assert all(re.fullmatch(loss([1]), line) for line in lost)
    assert len(lost) <= 1
    assert warning.startswith("under this MPI, the loss of a host ends the job")
    assert ended.startswith("error: mpirun ends the job, as one of its processes is ")
    assert ended.endswith('goes on from its last checkpoint: resume="auto"')
    assert "prterun noticed that process rank 1" in broken.err
    assert broken.is_all_gone()


def test_without_ulfm_a_run_goes_on_from_its_checkpoint(jobs: Any, broken: Any) -> None:
    left = sorted((jobs.folder / "run" / "checkpoints").glob("step-*.safetensors"))
    step = int(left[-1].stem.removeprefix("step-"))
    assert step in (6, 8)  # the last one that was due, unless mpirun has left it time
    again = [str(jobs.folder / name) for name in ("run", "other")]
    job = jobs.mpirun(TRAINED, 3, again[0], "-1", again[1], **mpi_jobs.APART)
    assert job.wait() == 0, job.err
    assert job.answers["begun"] == 0  # the other one, which is the last to begin
    assert f'["begun", {step}]' in (job.folder / "answers").read_text()
    assert job.answers["parameters"] == job.answers["undisturbed"]
    assert job.is_all_gone()
