"""The MPI engine: `mpirun -n 4 --map-by node python -m codedgrad.engines.mpi train.py`.

```text
  mpirun -+- process 0: train.py, the root; the agent of its machine
          +- process 1: the agent of the next machine -- nursery -- workers
          +- process 2: ...
```

The script runs in the first process only. MPI starts the processes and tells them the
root's address; from then on they speak over connections of their own. What MPI does
when one of its processes dies is up to MPI: it ends the job, unless it was told
otherwise (`--with-ft ulfm`, Open MPI 5). A worker that dies is forked again without
its noticing.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence

from codedgrad.engines.host.memory_layout import OPEN_SEGMENTS
from codedgrad.engines.remote.engine import Remote
from codedgrad.engines.remote.world import World, WorldLauncher
from codedgrad.errors import EngineFailed

_log = logging.getLogger("codedgrad")

_world: World | None = None
_warning = ""  # to be logged when the job is first used


class Mpi(Remote):
    """Workers on the machines that mpirun has started processes on.

    Args:
        root_is_agent: Whether the root's process is the agent of its machine, whose
            workers it then shares memory with; False: another process there is, if
            there is one.
        open_segments: Sums that a worker may hold in a step.
        preload: Modules that workers will import anyway; imported once a machine.
        threads: That every worker computes with; `"auto"`: the cores that its agent
            may use, divided by the workers there.
    """

    name = "mpi"

    def __init__(
        self,
        *,
        root_is_agent: bool = True,
        open_segments: int = OPEN_SEGMENTS,
        preload: Sequence[str] = (),
        threads: int | str = "auto",
    ) -> None:
        super().__init__(
            WorldLauncher(the_world, root_is_agent, starts_again=False),
            open_segments=open_segments,
            preload=preload,
            threads=threads,
        )


def begin(world: World, warning: str) -> None:
    """Note that this process is the root of a job; log a warning if that is used."""
    global _world, _warning
    _world, _warning = world, warning


def the_world() -> World:
    """Return the job of this process.

    Raises:
        EngineFailed: If mpirun has not started it by our launcher.
    """
    global _warning
    if _world is None:
        script = shlex.join(sys.argv) if sys.argv[0] else "train.py"
        problem = "the MPI engine works in a script that its launcher runs"
        mpirun = "mpirun -n 4 --map-by node --bind-to none"
        advice = f"`{mpirun} python -m codedgrad.engines.mpi {script}`"
        raise EngineFailed(problem, advice)
    if _warning:
        _log.warning(_warning)
        _warning = ""
    return _world
