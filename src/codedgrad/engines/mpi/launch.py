"""The launcher: `mpirun -n 4 --map-by node python -m codedgrad.engines.mpi train.py`.

MPI is asked for three things: to start the processes, to bring the root's invitation to
the others, and to end together. However the script ends, so do all processes, and
mpirun's exit code is that of the script. mpirun ends the job by SIGTERM and,
milliseconds later, by SIGKILL: there is time for a word, and for no more. Workers end
when the agent of their machine is gone.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from codedgrad.engines.mpi.engine import begin
from codedgrad.engines.optional_libraries import extra
from codedgrad.engines.remote.agent import Agent, Invitation, RootLost
from codedgrad.engines.remote.handshake import RunKey
from codedgrad.engines.remote.lobby import Lobby
from codedgrad.engines.remote.world import World, end_with_launcher
from codedgrad.errors import CodedgradError, EngineFailed

_ENDED = (
    "mpirun ends the job, as one of its processes is lost (it says which) or it was "
    'told to; a run that has a run_dir goes on from its last checkpoint: resume="auto"'
)
_MORTAL = (
    "under this MPI, the loss of a host ends the job; with Open MPI 5, "
    "`mpirun --with-ft ulfm` lets the others go on"
)
_HELP = """\
usage: mpirun -n PROCESSES --map-by node --bind-to none \\
         python -m codedgrad.engines.mpi \\
         [--interface NAME] [--ports FIRST-LAST] SCRIPT [ARGUMENT]...

Runs a script in the first process of an MPI job; on every other machine one process
serves the runs that it starts with engine="mpi". -m MODULE runs a module instead.

  --interface NAME     where processes listen for each other: eth1, or an address;
                       all interfaces, if not given
  --ports FIRST-LAST   at which ports; any, if not given

example: mpirun -n 4 --map-by node --bind-to none \\
           python -m codedgrad.engines.mpi train.py --epochs 3\
"""
_SURVIVES = "OMPI_MCA_mpi_ft_enable"  # set by mpirun for its processes
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_PATIENCE = 30.0  # seconds for MPI to end
_BAD_INPUT, _TERMINATED, _INTERRUPTED = 2, 143, 130


def survives_loss() -> bool:
    """Whether the processes that are left may go on when one is lost.

    So it is with Open MPI 5 when mpirun was told `--with-ft ulfm`.
    """
    told = os.environ.get(_SURVIVES, "")
    return told.lower() in ("1", "true", "yes", "on", "t", "y", "enabled")


def main() -> NoReturn:
    """Run a script in the first process, and serve it in all others."""
    mpi = _started()
    comm = mpi.COMM_WORLD
    if comm.Get_rank() == 0:
        _be_root(mpi, comm)
    told = comm.bcast(None)
    if isinstance(told, int):  # there is nothing to serve; the root has said why
        _finalize(mpi)
        sys.exit(told)
    _be_agent(mpi, comm, told)


def _started() -> Any:
    try:
        with suppress(ImportError):  # which is said next
            import mpi4py

            mpi4py.rc.initialize = mpi4py.rc.finalize = False
        mpi = extra("mpi")
    except EngineFailed as error:
        if any(os.environ.get(name, "0") != "0" for name in _LOCAL_RANKS):
            sys.exit(0)  # one of each host says it, before mpirun ends them all
        _refuse(str(error))
        sys.exit(_BAD_INPUT)
    mpi.Init_thread(mpi.THREAD_SERIALIZED)
    mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_RETURN)
    return mpi


# -- the first process -----------------------------------------------------------------


def _be_root(mpi: Any, comm: Any) -> NoReturn:
    options = _options(sys.argv[1:])
    lobby = None
    if options.script:
        try:
            lobby = Lobby(RunKey.draw(), options.interface, options.ports)
        except CodedgradError as error:
            _refuse(str(error))
            options.code = _BAD_INPUT
    if lobby is None:
        comm.bcast(options.code)
        _finalize(mpi)
        sys.exit(options.code)
    comm.bcast(lobby.invitation)
    others = comm.Get_size() - 1
    tasks = os.environ.get("SLURM_NTASKS", "1")
    if not others and tasks != "1":
        print(
            f"warning: Slurm runs {tasks} tasks, each of them a job of MPI's that "
            "trains by itself: Slurm and MPI have no PMIx in common",
            file=sys.stderr,
        )
    world = World(lobby, others)
    begin(world, _MORTAL if others and not survives_loss() else "")
    is_ending = False

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal is_ending
        if not is_ending:
            # If mpirun was killed no process reads this. An OSError from here could be
            # taken for that of the system call which the signal has interrupted.
            with suppress(OSError):
                os.write(2, f"error: {_ENDED}\n".encode())  # now: it is killed next
        is_ending = True
        raise SystemExit(_TERMINATED)

    signal.signal(signal.SIGTERM, terminate)
    if others:
        end_with_launcher()
    process = os.getpid()
    code = _run(options.script)
    _flush()
    if is_ending or os.getpid() != process:  # a fork of the root's has no part in MPI
        os._exit(_TERMINATED if is_ending else code)
    with suppress(EngineFailed):  # those that are lost are told of next
        world.gather()  # a script that ends at once is faster than they are
    # MPI's own end may wait for ever for a process that is lost; under ULFM it need not
    # be. Without ULFM an end without it counts as a failure.
    if world.quit() and not survives_loss():
        _finalize(mpi)
    sys.exit(code)


@dataclass(slots=True)
class _Options:
    """What the launcher was told; without a script, there is an exit code only."""

    interface: str | None = None
    ports: str | None = None
    script: list[str] = field(default_factory=list)
    code: int = 0


def _options(words: list[str]) -> _Options:
    options, rest = _Options(), list(words)
    while rest and rest[0] in ("--interface", "--ports"):
        name, value, *rest = [*rest, ""] if len(rest) == 1 else rest
        if not value:
            _refuse(f"{name}: a value is missing")
            return _Options(code=_BAD_INPUT)
        setattr(options, name.removeprefix("--"), value)
    if rest and rest[0] in ("-h", "--help"):
        print(_HELP)
        return _Options()
    if not rest:
        print(_HELP, file=sys.stderr)
        return _Options(code=_BAD_INPUT)
    if rest[0].startswith("-") and rest[0] != "-m":
        _refuse(f"{rest[0]} is no option; try --help")
        return _Options(code=_BAD_INPUT)
    options.script = rest
    return options


def _run(arguments: list[str]) -> int:
    """Run a script, or `-m` and a module, as Python would; return its exit code."""
    script = Path(arguments[0])
    if arguments[0] == "-m":
        if len(arguments) == 1:
            _refuse("-m: the name of a module is missing")
            return _BAD_INPUT
    elif not script.exists() or (script.is_dir() and not _has_main(script)):
        _refuse(f"there is no script {script}; try a path from {Path.cwd()}")
        return _BAD_INPUT
    try:
        if arguments[0] == "-m":
            sys.argv[:] = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv[:] = arguments
            sys.path[0] = str(script.resolve().parent)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return _code(end)
    except EngineFailed as error:
        _refuse(str(error))
        return _BAD_INPUT
    except KeyboardInterrupt:
        _print_traceback(arguments[0])
        return _INTERRUPTED
    except BaseException:
        _print_traceback(arguments[0])
        return 1
    return 0


def _has_main(folder: Path) -> bool:
    return (folder / "__main__.py").exists()


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _print_traceback(script: str) -> None:
    """Print what went wrong, without how the script was started."""
    kind, error, trace = sys.exc_info()
    inside: TracebackType | None = trace
    while inside is not None and inside.tb_frame.f_code.co_filename != script:
        inside = inside.tb_next
    traceback.print_exception(kind, error, inside)  # none: it cannot be compiled


# -- the others ------------------------------------------------------------------------


def _be_agent(mpi: Any, comm: Any, invitation: Invitation) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the root will say what follows
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # mpirun forwards it to all processes
    try:
        Agent(invitation, comm.Get_rank(), ends_with_parent=True).serve()
    except RootLost:
        _flush()
        os._exit(1)
    except CodedgradError as error:  # such as an interface that is not there
        _refuse(str(error))
        _fail(mpi)
    except BaseException:
        traceback.print_exc()
        _flush()
        _fail(mpi)
    if not survives_loss():
        _finalize(mpi)
    sys.exit(0)


def _fail(mpi: Any) -> NoReturn:
    """End this process so that mpirun notices."""
    if survives_loss():  # which takes note of signals only
        os.kill(os.getpid(), signal.SIGKILL)
    _limit()
    mpi.COMM_WORLD.Abort(1)
    os._exit(1)


# -- the end ---------------------------------------------------------------------------


def _finalize(mpi: Any) -> None:
    _flush()
    _limit()
    mpi.Finalize()
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _limit() -> None:
    """Let this process be killed if MPI does not come back in time.

    No thread could do so: mpi4py holds the interpreter's lock meanwhile.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _refuse(problem: str) -> None:
    print("error: " + " ".join(problem.split()), file=sys.stderr, flush=True)
