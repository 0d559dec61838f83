"""Starts MPI programs across the hosts of a lab, one process in each.

    with Lab(hosts=85, rate="10mbit") as lab:
        run_mpi(lab, lab.hosts, "bare.py", ["--shape", "tree"])

Open MPI starts its daemons by ssh; here it is given, in place of ssh, a script that
enters a host of the lab. All traffic goes through the hosts' `eth0`, by TCP.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hosts import Host, Lab, LabFailed, kill_in

__all__ = ["mpi_command", "run_mpi", "started"]

MPIRUN = Path(sys.executable).with_name("mpirun")
AGENT = '#!/bin/sh\nhost=$1; shift\nexec {enter} "$host" sh -c "$*"\n'
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
HARMLESS = re.compile(r"plm:ssh: Warning: setpgid\(.*Permission denied")


def mpi_command(
    lab: Lab,
    hosts: Sequence[Host],
    script: str | Path,
    args: Sequence[str] = (),
    *,
    survives: bool = False,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = ONE_THREAD,
) -> list[str]:
    """Return the words that start a Python program in some hosts.

    They are to be run in the first of these hosts. Process k is in `hosts[k]`.

    Args:
        lab: Where the hosts are.
        hosts: Where the processes go, one in each.
        script: A file, or `-m`, with the module as the first of the arguments.
        args: What comes after it.
        survives: Whether the others go on when a process ends (ULFM).
        options: More words for `mpirun`.
        environment: Variables that the processes are to have.
    """
    agent = lab.folder / "agent"
    agent.write_text(AGENT.format(enter=lab.enter))
    agent.chmod(0o700)
    words = [str(MPIRUN), "--allow-run-as-root", "--prtemca", "plm_ssh_agent"]
    words += [str(agent), "--prtemca", "prte_if_include", "eth0"]
    words += ["--host", ",".join(host.name for host in hosts), "-n", str(len(hosts))]
    words += ["--map-by", "node", "--bind-to", "none"]
    words += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    words += ["--mca", "btl_tcp_if_include", "eth0"]
    words += ["--mca", "mpi_yield_when_idle", "1"]  # 85 of them share two cores
    words += ["--with-ft", "ulfm"] if survives else []
    for name, value in environment.items():
        words += ["-x", f"{name}={value}"]
    return [*words, *options, sys.executable, str(script), *map(str, args)]


def run_mpi(
    lab: Lab,
    hosts: Sequence[Host],
    script: str | Path,
    args: Sequence[str] = (),
    *,
    patience: float = 600.0,
    show: Callable[[str], None] = print,
    **options: object,
) -> int:
    """Run a program in some hosts to its end, and return its exit code.

    Whatever happens, no process is left in these hosts.

    Args:
        lab: Where the hosts are.
        hosts: As in `mpi_command`.
        script: As in `mpi_command`.
        args: As in `mpi_command`.
        patience: Seconds after which it is taken to hang, and is ended.
        show: Called with every line that it prints, as it comes.
        options: As in `mpi_command`.

    Raises:
        LabFailed: It was not done in time.
    """
    command = mpi_command(lab, hosts, script, args, **options)  # type: ignore[arg-type]
    with started(lab, hosts, command, patience) as (process, late):
        assert process.stdout is not None
        for line in process.stdout:
            if not HARMLESS.search(line):
                show(line.rstrip("\n"))
        code = process.wait()
    if late.is_set():
        problem = f"{script} was not done after {patience:g} s"
        raise LabFailed(problem, "give it more patience, or see where it hangs")
    return code


@contextlib.contextmanager
def started(
    lab: Lab,
    hosts: Sequence[Host],
    command: Sequence[str],
    patience: float,
    stdin: int = subprocess.DEVNULL,
) -> Iterator[tuple[subprocess.Popen[str], threading.Event]]:
    """Start a command in the first host; leave no process in any when it is over.

    Yields the process, and whether it had to be ended because it took too long.
    """
    process = hosts[0].popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()
        kill_in(host.namespace for host in hosts)

    guard = threading.Timer(patience, end)
    guard.start()
    try:
        yield process, late
    finally:
        guard.cancel()
        guard.join()
        process.kill()
        kill_in(host.namespace for host in hosts)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
