"""How many cores a host's workers share, and how many threads each computes with."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from codedgrad.errors import InvalidOptions

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Read by libraries when they are loaded."""

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the cores that this process may use: its affinity, and its cgroup's quota.

    A container that may use 150 % of a core has two: threads that wait for the quota
    cost less than a core that stays idle.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota() -> float | None:
    """Return the cores' worth of time that the cgroup allows; None: no limit is known.

    Reads the files of both versions of control groups, as a container sees them.
    """
    try:
        allowed, period = (_CGROUPS / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            allowed, period = (
                (_CGROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text().strip()
                for name in ("quota", "period")
            )
        except OSError:
            return None
    if not (allowed.isdigit() and period.isdigit()):
        return None  # "max", or -1
    return int(allowed) / int(period)


def checked_threads(threads: int | str) -> int:
    """Return the threads that every worker is to have; 0 for `"auto"`.

    Raises:
        InvalidOptions: If it is neither a count nor `"auto"`.
    """
    if threads == "auto":
        return 0
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise InvalidOptions("threads", f"is {threads!r}", '1 or more, or "auto"')
    return threads


def threads_per_worker(threads: int, cores: float, workers: int) -> int:
    """Return how many threads each worker of a host computes with.

    Args:
        threads: As asked for; 0: the host's cores are divided by its workers.
        cores: That the host's workers may use.
        workers: On this host.

    Example:
        >>> threads_per_worker(0, cores=16, workers=3), threads_per_worker(2, 16, 3)
        (5, 2)
    """
    return threads or max(1, int(cores // workers))


def use_threads(count: int) -> None:
    """Let this process compute with so many threads.

    A nursery is told 1 when it starts, because libraries that start threads as they are
    imported do not survive a fork. So a worker raises the count itself, once for
    libraries that the nursery has loaded, and again when its job has loaded others.
    """
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    if count > 1:
        from threadpoolctl import ThreadpoolController

        ThreadpoolController().limit(limits=count)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


def own_devices(index: int, workers: int) -> None:
    """Show a worker its share of the GPUs that its host was given, before CUDA looks.

    Where there are fewer GPUs than workers, every worker sees all of them.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    given = [name for name in visible.split(",") if name]
    share = len(given) // workers
    if share:
        own = given[index * share : (index + 1) * share]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(own)
