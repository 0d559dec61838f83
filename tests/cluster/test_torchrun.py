"""Training under a real torchrun: as anywhere else, and after a restart, too.

A launch takes seconds, so one job does many things, and tells what came of them.
"""

import importlib.util
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
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

pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(600)  # where the machine is busy otherwise

ANYWHERE = Path(__file__).parents[2] / "examples" / "anywhere.py"

CHECKED = """
import sys
from codedgrad.engines.torchrun.engine import Torchrun
from codedgrad.testing import check_engine
from inside import tell

engines = []
def make():
    engines.append(Torchrun(open_segments=20, root_is_agent=sys.argv[1] == "root"))
    engines[-1].attend()
    return engines[-1]

check_engine(make)
tell("hosts", sorted(len(host.workers) for host in engines[-1]._hosts))
"""

MANY = """
import os, sys, tempfile
import numpy as np
from inside import RATE, agents, alone, gradient, is_close, tell

RANK = int(os.environ["RANK"])
tell("before", [RANK, sys.argv[1:]])

from codedgrad.delays import Times
from codedgrad.engines import FaultPlan, train
from codedgrad.engines.torchrun.engine import Torchrun
from codedgrad.schemes import auto, coded_reduce, cyclic, fractional, uncoded

SIZE, STEPS = 5000, 12

def outcome(run, scheme):
    return {
        "steps": [step.step for step in run.steps if step.combined],
        "equal": is_close(run.parameters, alone(SIZE, scheme.parts, STEPS)),
    }

for scheme in (uncoded(4), cyclic(3, 1), auto(4), coded_reduce(6, 2, 0)):
    run = train(
        gradient, np.zeros(SIZE), scheme, steps=STEPS, rate=RATE, engine="torchrun"
    )
    tell(f"calm {scheme.name}", outcome(run, scheme))

engine, scheme, hosts = Torchrun(), uncoded(5), []
run = train(
    gradient, np.zeros(SIZE), scheme, steps=STEPS, engine=engine,
    evaluate=lambda x: float(hosts.append(agents(engine)) or 0),
)
moved = [engine.read, engine.fetched, engine.delivered]
tell("moved", [len(set(hosts[0])), hosts[0][0] == os.getpid(), moved])

fixed = np.full((1, 4), 0.03)
delays = Times(fixed=fixed, unit=np.zeros_like(fixed))
for name, faults in (
    ("killed", FaultPlan().kill(2, 3).kill(0, 5).kill(1, 8)),
    ("stopped", FaultPlan().stop(1, 3, 0.3).stop(0, 5, 0.3)),
):
    engine, scheme = Torchrun(), uncoded(4)
    run = train(gradient, np.zeros(SIZE), scheme, steps=STEPS, rate=RATE,
                engine=engine, faults=faults, delays=delays)
    facts = {"fired": faults.all_fired, "lives": engine.lives}
    tell(name, outcome(run, scheme) | facts)

tell("behind", RANK)
tell("left", os.listdir(tempfile.gettempdir()))
"""

RESUMED = """
import os, signal, sys
import torch
from torch import nn
import codedgrad as cg
from codedgrad.engines.torchrun.engine import Torchrun
from inside import agents, tell

def job():
    x = torch.randn(60, 4)
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.2), nn.Linear(5, 1))
    return cg.torch.Job(model, nn.MSELoss(), (x, x.sum(1, keepdim=True)), batch_size=12)

place, whom = sys.argv[1:]
life = int(os.path.exists(f"{place}/killed"))  # every torchrun counts for itself

def train(folder, whom=""):
    engine, when = Torchrun(), cg.torch.Checkpoints(seconds=None, steps=3)
    with cg.torch.train(
        job, scheme="uncoded", workers=4, engine=engine,
        run_dir=f"{place}/{folder}", resume="auto", checkpoints=when,
    ) as coded:
        optimizer = torch.optim.Adam(coded.model.parameters(), lr=0.05)
        coded.track(optimizer=optimizer)
        tell(f"begun {folder}", [life, coded.step])
        for step in coded.steps(14):
            if life == 0 and whom and step == 8:
                pid = agents(engine)[1] if whom == "agent" else os.getpid()
                tell("killed", [whom, step, len(set(agents(engine)))])
                open(f"{place}/killed", "w").close()
                os.kill(pid, signal.SIGKILL)
            coded.backward()
            optimizer.step()
    return [p.detach().numpy().tobytes().hex() for p in coded.model.parameters()]

tell("parameters", train("run", whom))
tell("undisturbed", train("other"))
tell("behind", life)
"""

RUNNING = """
import os, sys, time
import numpy as np
from codedgrad.engines import Driver
from codedgrad.engines.torchrun.engine import Torchrun
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import fractional
from inside import agents, gradient, nurseries, tell

def go_wrong():
    raise ValueError("in the user's own loop")

engine, scheme = Torchrun(), fractional(4, 3)
engine.attend()
job = NumpyJob(gradient, 1000)
driver = Driver(engine, scheme, job.layout)
engine.start(lambda: job, job.layout, 4)
for _ in range(5):
    driver.step(np.zeros(1000))
tell("pids", [*{*agents(engine), *nurseries(engine), *engine.pids}])
if "raises" in sys.argv:
    go_wrong()
if "exits" in sys.argv:
    sys.exit(3)
while True:
    driver.step(np.zeros(1000))
    time.sleep(0.005)
"""

REFUSED = """
import numpy as np
from codedgrad.engines import FaultPlan, train
from codedgrad.errors import InvalidOptions
from codedgrad.schemes import uncoded
from inside import gradient, tell

try:
    train(gradient, np.zeros(5), uncoded(4), steps=2, engine="torchrun",
          faults=FaultPlan().kill(9, 1))
except InvalidOptions as error:
    tell("refused", str(error))
"""

LOST_AND_BACK = """
import os, signal
import numpy as np
from codedgrad.core import WorkersJoined, WorkersLost
from codedgrad.engines import Driver
from codedgrad.engines.torchrun.engine import Torchrun
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import fractional
from inside import RATE, agents, alone, gradient, is_close, tell

SIZE, scheme = 5000, fractional(4, 1)
engine, lost, joined = Torchrun(), [], []
engine.attend()

def watch(event, commands):
    if isinstance(event, WorkersLost):
        lost.append(event.workers)
    if isinstance(event, WorkersJoined):
        joined.append([sorted(event.workers), event.host])

job, x, steps = NumpyJob(gradient, SIZE), np.zeros(SIZE), 0
driver = Driver(engine, scheme, job.layout, watch=watch)
engine.start(lambda: job, job.layout, 4, parts=scheme.parts)
after = 5
while after:
    if steps == 3:
        os.kill(agents(engine)[1], signal.SIGKILL)
    x = x - RATE * driver.step(x).gradient
    steps, after = steps + 1, after - bool(joined)
tell("lost", lost)
tell("joined", joined)
tell("equal", is_close(x, alone(SIZE, scheme.parts, steps)))
"""

FAILS_AT_FIRST = """
import os, sys
import numpy as np
import codedgrad as cg
from codedgrad.engines import train
from codedgrad.schemes import uncoded
from inside import gradient, tell

life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if life == 0:
    # On the others it serves, and is ended with a root that finds nothing to open.
    cg.torch.train(lambda: open(sys.argv[1] + "/none"), workers=4, engine="torchrun")
run = train(gradient, np.zeros(50), uncoded(4), steps=3, engine="torchrun")
tell("life", life)
"""

RAISES = """
from codedgrad.engines.torchrun.engine import Torchrun

Torchrun().attend()
raise ValueError("before there is a run")
"""

SERVES_ONCE_TOLD = """
from codedgrad.engines.torchrun import engine
from inside import tell

look, looks = engine._door, 0

def told_of(store):
    global looks
    looks += 1
    tell("looks", looks)
    return look(store)

engine._door = told_of
engine.Torchrun().attend()
"""

GATHERS_TWICE = """
import numpy as np
from codedgrad.engines import train
from codedgrad.engines.remote import world
from codedgrad.errors import EngineFailed
from codedgrad.schemes import uncoded
from inside import gradient, tell

def trained(patience):
    world._PATIENCE = patience
    train(gradient, np.zeros(50), uncoded(3), steps=3, engine="torchrun")

problem = ""
while not problem.startswith("process 2 "):  # until one of the two others has called
    try:
        trained(0.5)
    except EngineFailed as error:
        problem = str(error)
tell("failed", problem)
trained(120.0)
tell("trained")
"""

ENDS = {  # how: words for the script, which signal to torchrun
    "SIGINT": ((), signal.SIGINT),
    "SIGTERM": ((), signal.SIGTERM),
    "SIGKILL": ((), signal.SIGKILL),
    "an exception": (("raises",), None),
    "sys.exit(3)": (("exits",), None),
}

ADVICE = (
    "error: torchrun hands no secret to 2 machines, and CODEDGRAD_SECRET {}; try "
    "`export CODEDGRAD_SECRET=$(openssl rand -hex 32)`, the same on all"
)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with mpi_jobs.launching(tmp_path_factory.mktemp("torchrun")) as jobs:
        yield jobs


def told(job: Any, name: str) -> list[Any]:
    """Return what the processes of a job have told under a name, in turn."""
    path = job.folder / "answers"
    lines = path.read_text().splitlines() if path.exists() else []
    return [facts for what, facts in map(json.loads, lines) if what == name]


@pytest.mark.parametrize(
    ("processes", "agent", "apart", "hosts"),
    [(4, "root", True, [1, 1, 1, 1]), (2, "another", False, [4])],
    ids=["a worker a host", "four workers a host"],
)
def test_it_does_what_engines_have_to_do(
    jobs: Any, processes: int, agent: str, apart: bool, hosts: list[int]
) -> None:
    environment = mpi_jobs.APART if apart else {}
    job = jobs.torchrun(CHECKED, processes, agent, **environment)
    assert job.wait() == 0, job.err
    assert job.answers["hosts"] == hosts
    assert job.is_all_gone()


# -- runs ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 3])
def many(jobs: Any, request: pytest.FixtureRequest) -> Any:
    temporary = jobs.folder / f"temporary-{request.param}"
    temporary.mkdir()
    job = jobs.torchrun(
        MANY,
        request.param,
        "--size",
        "two words",
        TMPDIR=str(temporary),
        **mpi_jobs.APART,
    )
    job.processes = request.param
    job.code = job.wait()
    return job


def test_torchrun_ends_with_0_and_leaves_no_process(many: Any) -> None:
    assert many.code == 0, many.err
    assert many.is_all_gone()


def test_code_before_train_runs_everywhere_and_code_behind_it_once(many: Any) -> None:
    before = sorted(told(many, "before"))
    words = ["--size", "two words"]
    assert before == [[rank, words] for rank in range(many.processes)]
    assert told(many, "behind") == [0]


def test_any_number_of_runs_come_out_as_in_a_single_process(many: Any) -> None:
    calm = {k: v for k, v in many.answers.items() if k.startswith("calm")}
    assert len(calm) == 4
    for name, facts in calm.items():
        assert facts == {"steps": [*range(12)], "equal": True}, name


def test_every_process_is_a_host_and_the_root_reads_sums_of_its_own(many: Any) -> None:
    """Of five workers two are on the root's host if there are three."""
    hosts, is_root, moved = many.answers["moved"]
    assert hosts == many.processes
    assert is_root
    here = 5 if many.processes == 1 else 2
    assert moved == [12 * here, 12 * (5 - here), 12 * (many.processes - 1)]


@pytest.mark.parametrize(
    ("what", "lives"), [("killed", [2, 2, 2, 1]), ("stopped", [1, 1, 1, 1])]
)
def test_workers_that_are_killed_or_stopped_cost_no_step(
    many: Any, what: str, lives: list[int]
) -> None:
    assert many.answers[what] == {
        "steps": [*range(12)], "equal": True, "fired": True, "lives": lives,
    }  # fmt: skip


def test_no_secret_is_left_in_a_file(many: Any) -> None:
    assert [name for name in many.answers["left"] if name.startswith("codedg")] == []


# -- restarts --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resumed(jobs: Any) -> dict[str, Any]:
    """Jobs that run together, by the process that is killed in them."""
    launched = {}
    for whom in ("agent", "root"):
        place = jobs.folder / whom
        place.mkdir()
        options = "--standalone", "--max-restarts=1"
        launched[whom] = jobs.torchrun(
            RESUMED, 3, str(place), whom, options=options, **mpi_jobs.APART
        )
    return launched


KILLED = pytest.mark.parametrize("whom", ["agent", "root"])


@KILLED
def test_torchrun_starts_everything_again_when_a_process_is_killed(
    resumed: dict[str, Any], whom: str
) -> None:
    job = resumed[whom]
    assert job.wait() == 0, job.err
    assert told(job, "killed") == [[whom, 8, 3]]
    assert told(job, "behind") == [1]  # in the second life, and only in the root
    assert job.is_all_gone()


@KILLED
def test_a_run_goes_on_from_its_checkpoint_to_the_same_end(
    resumed: dict[str, Any], whom: str
) -> None:
    job = resumed[whom]
    assert job.wait() == 0, job.err
    first, second = told(job, "begun run")
    assert first == [0, 0]
    life, step = second
    assert life == 1
    assert step in (
        6,
        8,
    )  # the last one that was due, or one that SIGTERM has asked for
    assert told(job, "begun other") == [[1, 0]]
    assert job.answers["parameters"] == job.answers["undisturbed"]


# -- ends ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(jobs: Any) -> dict[str, Any]:
    """Jobs that run together, and are ended one after the other."""
    launched = {
        how: jobs.torchrun(RUNNING, 3, *words, **mpi_jobs.APART)
        for how, (words, _) in ENDS.items()
    }
    for how, job in launched.items():
        job.pids = job.answer("pids")
        _, number = ENDS[how]
        if number is not None:
            job.before = job.left()
            job.signal(number)
    return launched


@pytest.mark.parametrize("how", ENDS)
def test_no_process_is_left_after(ended: dict[str, Any], how: str) -> None:
    job, (_, number) = ended[how], ENDS[how]
    assert job.wait() != 0
    assert len(job.pids) == 3 + 3 + 4  # agents, the root is one; nurseries, workers
    if number is not None:  # they were there when it was sent
        assert {*job.pids} < {*job.before}
    assert job.is_all_gone(), job.left()


def test_an_exception_is_told_once(ended: dict[str, Any]) -> None:
    job = ended["an exception"]
    assert job.wait() == 1
    assert job.err.count("ValueError: in the user's own loop") == 1


def test_a_script_that_does_without_its_run_ends_everywhere(jobs: Any) -> None:
    job = jobs.torchrun(REFUSED, 3, **mpi_jobs.APART)
    assert job.wait() == 0, job.err
    assert len(told(job, "refused")) == 1
    assert job.is_all_gone()


def test_a_root_that_fails_before_its_run_begins_may_be_started_again(
    jobs: Any, tmp_path: Path
) -> None:
    options = "--standalone", "--max-restarts=1"
    job = jobs.torchrun(
        FAILS_AT_FIRST, 3, str(tmp_path), options=options, **mpi_jobs.APART
    )
    assert job.wait() == 0, job.err
    assert "FileNotFoundError" in job.err
    assert told(job, "life") == [1]
    assert job.is_all_gone()


def test_it_does_not_matter_which_process_serves_the_store(jobs: Any) -> None:
    words = "--engine", "torchrun", "--steps", "3"
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **mpi_jobs.APART}
    job = jobs.torchrun(ANYWHERE, 3, *words, **variables)
    assert job.wait() == 0, job.err
    assert job.is_all_gone()


# -- one process at a time -------------------------------------------------------------


@pytest.fixture
def alone(jobs: Any) -> Callable[..., Any]:
    """Starts processes of a job on one machine as torchrun would, one at a time."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def start(script: str, rank: int, size: int, life: int = 0) -> Any:
        job = jobs.python(
            jobs.file(script),
            RANK=str(rank),
            WORLD_SIZE=str(size),
            GROUP_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(store.port),
            TORCHELASTIC_RUN_ID="alone",
            TORCHELASTIC_RESTART_COUNT=str(life),
            TORCHELASTIC_USE_AGENT_STORE="True",
            **mpi_jobs.APART,
        )
        return job

    return start  # the store is served for as long as `start` is there


def test_the_word_that_there_will_be_no_run_may_be_of_an_earlier_life(
    alone: Callable[..., Any],
) -> None:
    """After a restart it is believed at once only if it was not there before."""
    first = alone(REFUSED, 0, 2)
    assert first.wait() == 0, first.err  # it has left its word
    job = alone(SERVES_ONCE_TOLD, 1, 2)
    assert job.wait() == 0, job.err
    assert told(job, "looks") == [1]
    job = alone(SERVES_ONCE_TOLD, 1, 2, life=1)
    assert mpi_jobs.wait_for(lambda: len(told(job, "looks")) > 3 or job.has_ended)
    assert not job.has_ended
    second = alone(REFUSED, 0, 2, life=1)
    assert second.wait() == 0, second.err
    assert job.wait() == 0, job.err


def test_a_root_that_raises_before_its_run_does_not_release_the_others(
    alone: Callable[..., Any],
) -> None:
    """torchrun starts it again, or ends them: with 0 they would have succeeded."""
    assert alone(RAISES, 0, 2).wait() == 1
    job = alone(SERVES_ONCE_TOLD, 1, 2)
    assert mpi_jobs.wait_for(lambda: len(told(job, "looks")) > 3 or job.has_ended)
    assert not job.has_ended
    assert alone(REFUSED, 0, 2).wait() == 0
    assert job.wait() == 0, job.err


def test_after_some_processes_were_late_the_script_may_train_again(
    alone: Callable[..., Any],
) -> None:
    root, one = alone(GATHERS_TWICE, 0, 3), alone(GATHERS_TWICE, 1, 3)
    assert root.answer("failed").startswith(
        "process 2 of this job has not called in 0.5 s; try looking at what was"
    )
    two = alone(GATHERS_TWICE, 2, 3)
    for job in (root, one, two):
        assert job.wait() == 0, job.err
    assert told(root, "trained") == [None]


# -- several machines ------------------------------------------------------------------


def machines_of(
    jobs: Any,
    script: str | Path,
    *options: str,
    words: tuple[str, ...] = (),
    secret: str = "a" * 16,
    other: str | None = None,
    elastic: bool = False,
) -> list[Any]:
    """Launch two torchruns as if on two machines, with a process each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launched = []
    for rank in (0, 1):
        where = [f"--node-rank={rank}", "--master-addr=127.0.0.1"]
        where.append(f"--master-port={port}")
        if elastic:
            where = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
            where.append("--local-addr=127.0.0.1")
        launched.append(
            jobs.torchrun(
                script,
                1,
                *words,
                options=("--nnodes=2", *where, *options),
                CODEDGRAD_SECRET=other if rank and other is not None else secret,
                **mpi_jobs.APART,
            )
        )
    return launched


@pytest.fixture(scope="module")
def machines(jobs: Any) -> dict[str, list[Any]]:
    """Two launchers each, by the secret that they have."""
    words = "--engine", "torchrun", "--steps", "3"
    secrets = {"none": "", "short": "a" * 15, "one": "a" * 16}
    return {
        name: machines_of(jobs, ANYWHERE, words=words, secret=secret)
        for name, secret in secrets.items()
    }


@pytest.mark.parametrize(
    ("secret", "problem"),
    [("none", "is not set"), ("short", "has less than 16 characters")],
)
def test_that_several_machines_need_a_secret_is_said_on_each(
    machines: dict[str, list[Any]], secret: str, problem: str
) -> None:
    for job in machines[secret]:
        assert job.wait() != 0
        assert Counter(job.err.splitlines())[ADVICE.format(problem)] == 1, job.err
        assert "codedgrad/" not in job.err  # no traceback of ours
        assert job.is_all_gone()


def test_a_machine_with_another_secret_is_told_so(jobs: Any) -> None:
    words = "--engine", "torchrun"
    root, other = machines_of(jobs, ANYWHERE, words=words, other="b" * 16)
    assert other.wait() != 0
    assert (
        "error: the root of this job has another secret than this process; try the "
        "same CODEDGRAD_SECRET on all machines"
    ) in other.err.splitlines(), other.err
    assert other.is_all_gone()
    root.end()  # it waits for others to call: a machine may be late


def test_several_machines_that_share_a_secret_train(
    machines: dict[str, list[Any]],
) -> None:
    root, other = machines["one"]
    assert root.wait() == 0, root.err
    assert other.wait() == 0, other.err
    assert [line.split()[0] for line in root.out.splitlines()] == [
        "scheme", "uncoded", "auto",
    ]  # fmt: skip
    assert other.out == ""
    assert root.is_all_gone()
    assert other.is_all_gone()


def test_a_machine_that_is_lost_comes_back_while_the_others_go_on(jobs: Any) -> None:
    """With fixed ranks every torchrun starts its own processes again."""
    root, other = machines_of(jobs, LOST_AND_BACK, "--max-restarts=1")
    assert root.wait() == 0, root.err
    assert other.wait() == 0, other.err
    assert root.answers == {"lost": [[1, 3]], "joined": [[[1, 3], 1]], "equal": True}
    assert other.answers == {}
    assert root.is_all_gone()
    assert other.is_all_gone()


def test_torchrun_starts_all_machines_again_when_it_finds_their_ranks(
    jobs: Any,
) -> None:
    place = jobs.folder / "elastic"
    place.mkdir()
    both = machines_of(
        jobs, RESUMED, "--max-restarts=1", words=(str(place), "agent"), elastic=True
    )
    for job in both:
        assert job.wait() == 0, job.err
    found = [fact for job in both for fact in told(job, "killed")]
    assert found == [["agent", 8, 2]]
    [root] = [job for job in both if "undisturbed" in job.answers]
    assert root.answers["parameters"] == root.answers["undisturbed"]
    assert told(root, "behind") == [1]
    assert all(job.is_all_gone() for job in both)


def test_without_torchrun_it_is_said_how_to_run_it(jobs: Any) -> None:
    job = jobs.python(str(ANYWHERE), "--engine", "torchrun", RANK="0")
    assert job.wait() == 2
    assert job.err == (
        "error: the torchrun engine works in a script that torchrun runs; try "
        f"`torchrun --standalone --nproc-per-node=1 {ANYWHERE} --engine torchrun`\n"
    )
    assert os.path.isabs(ANYWHERE)
