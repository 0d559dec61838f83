"""A process of MPI is killed: training goes on, or can be resumed."""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
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

LOST = """
import os, signal, sys
import numpy as np
from codedgrad.core import Assign, Progressed, WorkerLost
from codedgrad.delays import Times
from codedgrad.engines import Driver
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.errors import EngineFailed
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import build
from mpi_inside import RATE, agents, alone, gradient, is_close, state, tell

VICTIM, WHEN = 1, 3  # the worker, and the first step in which it may be killed

def deadly(x, part, step):
    '''Kill the process of MPI beside the victim, in the middle of a part.'''
    if step >= WHEN and os.getpid() == int(open(f"{folder}/victim").read() or 0):
        os.kill(int(state(int(state(os.getpid())[1]))[1]), signal.SIGKILL)
    return gradient(x, part, step)

class Run:
    def __init__(self, moment, scheme, size=40_000):
        self.moment, self.scheme, self.lost, self.killed = moment, scheme, [], []
        self.engine = Mpi(open_segments=20, share_memory=shares == "near")
        self.x = np.zeros(size)
        job = NumpyJob(deadly if moment == "computes" else gradient, size)
        self.driver = Driver(self.engine, scheme, job.layout, watch=self.watch)
        transport = self.engine._transport
        self.fetch, self.carry = transport.fetch, transport.carry
        transport.fetch, transport.carry = self.see_fetch, self.see_carry
        late = np.full((1, scheme.workers), 0.01)
        late[0, VICTIM] = 0.0  # so that it always takes part
        open(f"{folder}/victim", "w").close()
        self.engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts,
            delays=Times(fixed=late, unit=np.zeros_like(late)),
        )
        self.agents = agents(self.engine)
        with open(f"{folder}/victim", "w") as file:
            file.write(str(self.engine.pids[VICTIM]))
        self.step = 0

    def kill(self, moment):
        if (moment, self.killed) == (self.moment, []) and self.step >= WHEN:
            self.killed.append(self.step)
            os.kill(self.agents[VICTIM], signal.SIGKILL)

    def watch(self, event, commands):
        match event:
            case WorkerLost(worker):
                self.lost.append(worker)
            case Progressed(_, worker, _, _, closed) if worker == VICTIM and closed:
                self.kill("is done")
        for command in commands:
            if isinstance(command, Assign) and command.segment.worker == VICTIM:
                self.kill("is given something")

    def see_fetch(self, agent, key, rows):
        self.fetch(agent, key, rows)
        if agent == VICTIM:
            self.kill("is asked for its sum")

    def see_carry(self, agent, key, rows, to, row):
        self.carry(agent, key, rows, to, row)
        if agent == VICTIM:
            self.kill("sends its sum to another")
        if to == VICTIM:
            self.kill("is sent a sum by another")

    def take_step(self):
        self.x = self.x - RATE * self.driver.step(self.x).gradient
        self.step += 1

    def until_lost(self):
        for _ in range(2000):
            self.take_step()
            if self.lost:
                return
        raise AssertionError("nobody was lost")

    def end(self):
        for _ in range(5):
            self.take_step()
        self.engine.close()
        equal = is_close(self.x, alone(len(self.x), self.scheme.parts, self.step))
        return {"lost": self.lost, "killed": self.killed, "equal": equal}

folder, moment, words, workers, shares = sys.argv[1:]
if moment != "several":
    run = Run(moment, build(words, int(workers)))
    run.until_lost()
    tell("lost", run.end())
else:  # one after the other, until too few are left
    for moment, scheme in (
        ("is asked for its sum", build("fractional(3)", 4)),
        ("is given something", build("cyclic(1)", 3)),
    ):
        run = Run(moment, scheme)
        run.until_lost()
        tell(moment, run.end())
    run = Run("never", build("fractional(1)", 2))
    os.kill(run.agents[VICTIM], signal.SIGKILL)  # between two steps
    run.until_lost()
    tell("between two steps", run.end())
    try:
        Run("never", build("uncoded", 2))
    except EngineFailed as error:
        tell("too few", str(error))
"""

MOMENTS = {  # when it is killed: in which scheme, and whether it shares memory
    "is given something": ("cyclic(1)", 3, False),
    "computes": ("fractional(2)", 3, True),
    "is done": ("auto", 3, True),
    "is asked for its sum": ("cyclic(1)", 3, False),
    "is sent a sum by another": ("coded_reduce(2, 1)", 6, False),
}

TRAINED = """
import os, signal, sys
import torch
from torch import nn
import codedgrad as cg
from codedgrad.engines.mpi.engine import Mpi
from mpi_inside import agents, tell

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
    jobs: Any, number: int, moment: str, words: str, workers: int, shares: bool
) -> Any:
    folder = jobs.folder / f"lost-{number}"
    folder.mkdir()
    arguments = str(folder), moment, words, str(workers), "near" if shares else "far"
    job = jobs.mpirun(LOST, workers + 1, *arguments, options=mpi_jobs.ULFM)
    job.code = job.wait()
    return job


@pytest.fixture
def losses(request: pytest.FixtureRequest) -> int:
    """How many jobs lose a process: one for every moment, and 20 in a soak."""
    profile = request.config.getoption("--hypothesis-profile")
    return 20 if profile == "soak" else len(MOMENTS)


@pytest.mark.hypothesis  # so that a soak runs it
@pytest.mark.timeout(600)
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
        facts = job.answers["lost"]
        assert facts["equal"], moment
        assert facts["lost"] == [1], moment
        assert len(facts["killed"]) == (moment != "computes"), moment  # by whom it was
        [said] = job.said
        assert re.fullmatch(
            r"worker 1 \(pid \d+ on \S+\) was lost in step \d+(, part \d+)?: its agent "
            r"is gone \(MPI says: (MPI_ERR_PROC_FAILED: Process Failure|its process "
            r"has ended)\); it does not come back",
            said,
        )
        assert job.is_all_gone(), moment


def test_with_ulfm_several_may_be_lost_in_one_job(jobs: Any) -> None:
    job = lose(jobs, 1000, "several", "", 4, False)
    assert job.code == 0, job.err
    lost = {"lost": [1], "equal": True}
    assert job.answers["is given something"] == {**lost, "killed": [3]}
    asked = job.answers["is asked for its sum"]
    [step] = asked["killed"]
    assert step >= 3  # on a busy machine another worker may be asked in step 3
    assert asked == {**lost, "killed": [step]}
    assert job.answers["between two steps"] == {**lost, "killed": []}
    assert job.answers["too few"].startswith(
        "2 workers need 3 processes of MPI, and there are 2; try `mpirun -n 3 "
    )
    assert job.is_all_gone()


@pytest.fixture(scope="module")
def broken(jobs: Any) -> Any:
    """A training that has lost a process, without ULFM."""
    job = jobs.mpirun(TRAINED, 3, str(jobs.folder / "run"), "8")
    job.code = job.wait()
    return job


def test_without_ulfm_the_job_ends_and_says_what_to_do(broken: Any) -> None:
    assert broken.answers["killed"] == 8
    assert broken.code != 0
    [begun] = [line for line in broken.said if line.startswith("codedgrad: ")]
    assert begun.endswith("beginning at step 0")  # it may resume, and has nothing to
    warning, ended = [line for line in broken.said if line != begun]
    assert warning.startswith("under this MPI, the loss of a host ends the job")
    assert ended.startswith("error: mpirun ends the job, as one of its processes is ")
    assert ended.endswith('goes on from its last checkpoint: resume="auto"')
    assert "prterun noticed that process rank 2" in broken.err
    assert broken.is_all_gone()


def test_without_ulfm_a_run_goes_on_from_its_checkpoint(jobs: Any, broken: Any) -> None:
    left = sorted((jobs.folder / "run" / "checkpoints").glob("step-*.safetensors"))
    step = int(left[-1].stem.removeprefix("step-"))
    assert step in (6, 8)  # the last one that was due, unless mpirun has left it time
    again = [str(jobs.folder / name) for name in ("run", "other")]
    job = jobs.mpirun(TRAINED, 3, again[0], "-1", again[1])
    assert job.wait() == 0, job.err
    assert job.answers["begun"] == 0  # the other one, which is the last to begin
    assert f'["begun", {step}]' in (job.folder / "answers").read_text()
    assert job.answers["parameters"] == job.answers["undisturbed"]
    assert job.is_all_gone()
