"""The local engine beside torch.distributed, memory and itself, as ratios.

    python benchmarks/engine.py            # about two minutes, up to 4 GB of memory
    python benchmarks/engine.py --quick    # smaller messages, for a look

Eight workers (four with --quick), one thread a process, medians of interleaved rounds.

- A step beyond compute: parameters published, orders given, messages checked, heard and
  added up, while the job itself computes nothing; beside gloo's all_reduce of as many
  bytes on as many processes, timed from a barrier on, by the slowest.
- Publishing and adding up, in bytes read and written a second, beside a plain copy.
- Starting the workers, beside as many Python processes that import numpy.
- From SIGKILL to the loss being handed out, and to the next life being ready.

Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import WorkersJoined, WorkersLost
from codedgrad.engines import Driver, Local
from codedgrad.engines.host.rows import weighted_sum
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import uncoded

QUICK = "--quick" in sys.argv[1:]
WORKERS = 4 if QUICK else 8
MEGABYTES = (1,) if QUICK else (1, 10, 100)
ROUNDS = {1: 30, 10: 15, 100: 7}
DTYPE = np.dtype(np.float32)
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


class Nothing:
    """A job whose gradient is there already: what is left is the engine's own work."""

    def __init__(self, layout: VectorLayout) -> None:
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


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


class Gloo:
    """Eight processes that wait to be told how many megabytes to reduce."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name, "store"))
        self._ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--gloo", store, str(rank), str(WORKERS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(WORKERS)
        ]

    def reduce(self, megabytes: int) -> float:
        """Return the seconds of the slowest rank."""
        for rank in self._ranks:
            assert rank.stdin is not None
            print(megabytes, file=rank.stdin, flush=True)
        answers = []
        for rank in self._ranks:
            assert rank.stdout is not None
            answers.append(float(rank.stdout.readline()))
        return max(answers)

    def close(self) -> None:
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.close()
        for rank in self._ranks:
            rank.wait()
            assert rank.stdout is not None
            rank.stdout.close()
        self._folder.cleanup()


def gloo_rank(store: str, rank: int, ranks: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    tensors: dict[int, torch.Tensor] = {}
    for line in sys.stdin:
        size = int(line)
        tensor = tensors.setdefault(size, torch.ones(size * 250_000))
        tensor.fill_(1.0)
        dist.barrier()
        print(seconds(lambda tensor=tensor: dist.all_reduce(tensor)), flush=True)
    dist.destroy_process_group()


def round_trips(missed: list[str]) -> None:
    print(f"\na step beyond compute, {WORKERS} workers, one message each")
    print(f"{'message [MB]':>12} {'ours [ms]':>10} {'gloo [ms]':>10} {'ratio':>7}")
    gloo = Gloo()
    try:
        for megabytes in MEGABYTES:
            ours, theirs = one_size(gloo, megabytes)
            ratio = ours / theirs
            print(
                f"{megabytes:>12} {1e3 * ours:>10.1f} {1e3 * theirs:>10.1f} "
                f"{ratio:>7.2f}"
            )
            if ratio > 0.5:
                missed.append(f"{megabytes} MB: {ratio:.2f} of gloo's time, not 0.5")
    finally:
        gloo.close()


def one_size(gloo: Gloo, megabytes: int) -> tuple[float, float]:
    size = megabytes * 1_000_000 // DTYPE.itemsize
    layout = VectorLayout(
        parameters=size, gradient=size - 2, dtype=DTYPE.name, parameters_dtype="float32"
    )
    parameters = np.ones(size, dtype=DTYPE)
    engine = Local()
    scheme = uncoded(WORKERS)
    try:
        engine.start(lambda: Nothing(layout), layout, WORKERS)
        driver = Driver(engine, scheme, layout)
        ours, theirs = [], []
        for number in range(ROUNDS[megabytes] + 2):
            mine = seconds(lambda: driver.step(parameters))
            other = gloo.reduce(megabytes)
            if number >= 2:  # the first ones touch their memory for the first time
                ours.append(mine)
                theirs.append(other)
    finally:
        engine.close()
    return median(ours), median(theirs)


def bandwidths(missed: list[str]) -> None:
    megabytes = MEGABYTES[-1]
    length = megabytes * 1_000_000 // DTYPE.itemsize
    print(f"\nbytes read and written a second, rows of {megabytes} MB")
    table = np.empty((8, length), dtype=DTYPE)
    table[:] = 1.0
    out = np.zeros(length, dtype=DTYPE)
    source, target = np.ones(length, dtype=DTYPE), np.zeros(length, dtype=DTYPE)
    every, some = list(range(8)), [0, 1, 2, 4, 5, 7]
    weights = [0.5 + 0.1 * i for i in range(8)]
    acts: dict[str, tuple[Callable[[], object], int, float]] = {
        "plain copy": (lambda: np.copyto(target, source), 2, 0.0),
        "publish (copy to shared memory)": (publisher(length), 2, 0.0),
        "combine, 8 rows, weights 1": (
            lambda: weighted_sum(table, every, [1.0] * 8, out), 9, 0.8,
        ),
        "combine, 8 rows, any weights": (
            lambda: weighted_sum(table, every, weights, out), 9, 0.8,
        ),
        "combine, 6 scattered rows": (
            lambda: weighted_sum(table, some, weights[:6], out), 7, 0.8,
        ),
    }  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(9):
        for name, (act, _, _) in acts.items():
            times[name].append(seconds(act))
    rates = {
        name: rows * length * DTYPE.itemsize / median(times[name]) / 1e9
        for name, (_, rows, _) in acts.items()
    }
    print(f"{'':<34} {'GB/s':>6} {'ratio to a copy':>16}")
    for name, (_, _, aim) in acts.items():
        ratio = rates[name] / rates["plain copy"]
        print(f"{name:<34} {rates[name]:>6.1f} {ratio:>16.2f}")
        if ratio < aim:
            missed.append(f"{name}: {ratio:.2f} of a copy's bandwidth, not {aim}")


def publisher(length: int) -> Callable[[], object]:
    from codedgrad.engines.host.shared_memory import Shared

    shared = Shared(length * DTYPE.itemsize)
    version = shared.array(DTYPE, (length,))
    source = np.ones(length, dtype=DTYPE)
    return lambda: np.copyto(version, source)


def starting() -> None:
    layout = VectorLayout(parameters=10, gradient=10)
    ours, theirs, raw = [], [], []
    for _ in range(1 if QUICK else 5):
        engine = Local()
        begun = time.perf_counter()
        engine.start(lambda: Nothing(layout), layout, WORKERS)
        ours.append(time.perf_counter() - begun)
        pids = engine.pids
        begun = time.perf_counter()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        joined = 0
        while joined < WORKERS:
            event = engine.next_event(60.0)
            if isinstance(event, WorkersJoined):
                joined += len(event.workers)
        raw.append(time.perf_counter() - begun)
        engine.close()
        theirs.append(seconds(plain_processes))
    print(f"\nstarting {WORKERS} workers")
    print(f"  the engine, its nursery included  {median(ours):6.2f} s")
    print(f"  all {WORKERS} killed, until all are back  {median(raw):6.2f} s")
    print(f"  {WORKERS} processes that import numpy  {median(theirs):9.2f} s")
    print(f"  ratio of the first to the last    {median(ours) / median(theirs):6.2f}")


def plain_processes() -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", "import numpy"]) for _ in range(WORKERS)
    ]
    for child in children:
        child.wait()


def deaths() -> None:
    layout = VectorLayout(parameters=10, gradient=10)
    engine = Local()
    lost, joined = [], []
    try:
        engine.start(lambda: Nothing(layout), layout, WORKERS)
        for worker in range(WORKERS):  # each once: a second time there is a back-off
            begun = time.perf_counter()
            os.kill(engine.pids[worker], signal.SIGKILL)
            while not isinstance(engine.next_event(60.0), WorkersLost):
                pass
            lost.append(time.perf_counter() - begun)
            while not isinstance(engine.next_event(60.0), WorkersJoined):
                pass
            joined.append(time.perf_counter() - begun)
    finally:
        engine.close()
    print("\nfrom SIGKILL, medians")
    print(f"  to WorkersLost   {1e3 * median(lost):6.1f} ms")
    print(f"  to WorkersJoined {1e3 * median(joined):6.1f} ms")


def main() -> int:
    missed: list[str] = []
    bandwidths(missed)
    starting()
    deaths()
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        print("\nno torch here, so no comparison with gloo")
    else:
        round_trips(missed)
    print("\naims: a step takes at most 0.5 of gloo's all_reduce; adding up reaches at")
    print("least 0.8 of a plain copy's bandwidth:")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    if not ONE_THREAD.items() <= os.environ.items():  # numpy has read it: once more
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    elif sys.argv[1:2] == ["--gloo"]:
        gloo_rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        logging.getLogger("codedgrad").setLevel(
            logging.ERROR
        )  # it kills workers itself
        sys.exit(main())
