"""The launcher: `mpirun -n 9 python -m codedgrad.engines.mpi train.py arguments`.

However the script ends, so do all processes, and mpirun's exit code is that of the
script. mpirun ends the job by SIGTERM and, milliseconds later, by SIGKILL: there is
time for a word, and for no more. Workers end when the process beside them is gone.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from codedgrad.engines.mpi.agent import RootLost, Server
from codedgrad.engines.mpi.link import survives_loss
from codedgrad.engines.mpi.world import World, begin
from codedgrad.engines.optional_libraries import extra
from codedgrad.errors import EngineFailed

_USAGE = (
    "usage: mpirun -n PROCESSES python -m codedgrad.engines.mpi SCRIPT [ARGUMENT]..."
)
_ENDED = (
    "mpirun ends the job, as one of its processes is lost (it says which) or it was "
    'told to; a run that has a run_dir goes on from its last checkpoint: resume="auto"'
)
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_PATIENCE = 5.0  # seconds for MPI to end
_BAD_INPUT, _TERMINATED, _INTERRUPTED = 2, 143, 130


def main() -> NoReturn:
    """Run a script in the first process, and serve it in all others."""
    mpi = _started()
    comm = mpi.COMM_WORLD
    root = comm.bcast((_place(), os.getpid()))
    if comm.Get_rank() == 0:
        _be_root(mpi, begin(comm))
    else:
        _be_server(mpi, root[1] if root[0] and root[0] == _place() else None)


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


def _place() -> str:
    """Return where process numbers mean the same as here; empty: nobody knows."""
    try:
        host = Path("/proc/sys/kernel/random/boot_id").read_text()
        return host + os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return ""


# -- the first process -----------------------------------------------------------------


def _be_root(mpi: Any, world: World) -> NoReturn:
    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        if not world.is_ending:
            os.write(2, f"error: {_ENDED}\n".encode())  # now: it is killed next
        world.is_ending = True
        raise SystemExit(_TERMINATED)

    signal.signal(signal.SIGTERM, terminate)
    code = _run(sys.argv[1:])
    _flush()
    if world.is_ending:
        os._exit(_TERMINATED)
    tidily = world.quit()
    if not tidily:
        _leave(mpi, world, code)
    _finalize(mpi, code)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Run a script as Python would; return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else _BAD_INPUT
    script = Path(arguments[0])
    if not script.exists() or (script.is_dir() and not _has_main(script)):
        _refuse(f"there is no script {script}; try a path from {Path.cwd()}")
        return _BAD_INPUT
    sys.argv[:] = arguments
    sys.path[0] = str(script.resolve().parent)
    try:
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


def _leave(mpi: Any, world: World, code: int) -> NoReturn:
    """End without the others, because some of them cannot end tidily any more."""
    _flush()
    if world.stuck:
        who = sorted(world.stuck)
        _refuse(f"processes {who} of MPI do not answer; the job is aborted")
        _soon(code or 1)
        mpi.COMM_WORLD.Abort(code or 1)
    os._exit(code)


# -- the others ------------------------------------------------------------------------


def _be_server(mpi: Any, root: int | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the root will say what follows
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # mpirun forwards it to all processes
    server = Server(mpi.COMM_WORLD, root)
    try:
        tidily = server.serve()
    except RootLost:
        server.close()
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        _flush()
        server.close()
        _fail(mpi)
    server.close()
    if not tidily:
        os._exit(0)
    _finalize(mpi, 0)
    sys.exit(0)


def _fail(mpi: Any) -> NoReturn:
    """End this process so that others notice, and the job if it must be."""
    if survives_loss():  # which takes note of signals only
        os.kill(os.getpid(), signal.SIGKILL)
    _soon(1)
    mpi.COMM_WORLD.Abort(1)
    os._exit(1)


# -- the end ---------------------------------------------------------------------------


def _finalize(mpi: Any, code: int) -> None:
    _flush()
    timer = _soon(code)
    mpi.Finalize()
    timer.cancel()


def _soon(code: int) -> threading.Timer:
    """End this process, whatever it is waiting for, in a while."""
    timer = threading.Timer(_PATIENCE, os._exit, [code])
    timer.daemon = True
    timer.start()
    return timer


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _refuse(problem: str) -> None:
    print("error: " + " ".join(problem.split()), file=sys.stderr, flush=True)
