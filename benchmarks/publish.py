"""What parameters cost that do not change: frozen ones beside a few that are trained.

    python benchmarks/publish.py            # about a minute, up to 3 GB of memory
    python benchmarks/publish.py --quick    # less memory, for a look

One run, interleaved rounds, medians, one thread a process.

- The root looks at every `backward` whether frozen parameters have changed: beside one
  read of the same memory (a sum by NumPy). Aim: 1.5 times a read.
- A step on two worker processes with frozen parameters, beside one without any. Aim: it
  takes no longer than the root's look adds, and 5 ms.
- A worker looks again at what it computes with, after every part. Aim: no more than
  2 % of the time, but for what was loaded since the part before.

Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

import codedgrad as cg
from codedgrad.torch.model.flat import Flat
from codedgrad.torch.model.workload import Workload

QUICK = "--quick" in sys.argv[1:]
MEGABYTES = 64 if QUICK else 256
ROUNDS = 9 if QUICK else 25
READS, SHARE, MORE = 1.5, 0.02, 0.005


class Net(nn.Module):
    """A small layer that is trained, and a large one that only lies there."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self.trained = nn.Linear(64, 8)
        numbers = torch.ones(megabytes << 18)
        self.frozen = nn.Parameter(numbers, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.trained(x)


def job(megabytes: int) -> cg.torch.Job:
    x, y = torch.ones(64, 64), torch.zeros(64, 8)
    return cg.torch.Job(Net(megabytes), nn.MSELoss(), (x, y))


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def looking() -> float:
    """Return the seconds of a look at the root; print it beside a read."""
    flat = Flat(Net(MEGABYTES))
    memory = flat.vector.numpy().view(np.float64)
    flat.gather()
    looks, reads = [], []
    for _ in range(ROUNDS):
        looks.append(seconds(flat.gather))
        reads.append(seconds(memory.sum))
    look, read = median(looks), median(reads)
    print(f"{MEGABYTES} MB that have not changed, at the root [ms]")
    print(f"  a look {look * 1e3:.1f}, a read {read * 1e3:.1f}: ", end="")
    met("times a read", look / read, READS)
    return look


def stepping(look: float) -> None:
    """Print a step with and without frozen parameters."""
    with (
        cg.torch.train(lambda: job(0), workers=2, scheme="uncoded") as bare,
        cg.torch.train(lambda: job(MEGABYTES), workers=2, scheme="uncoded") as full,
    ):
        for coded in (bare, full):
            for _ in range(5):
                coded.backward()
        without, with_ = [], []
        for _ in range(ROUNDS):
            without.append(seconds(bare.backward))
            with_.append(seconds(full.backward))
    more = median(with_) - median(without)
    print("a step on two processes [ms]")
    print(f"  without {median(without) * 1e3:.1f}, with them {median(with_) * 1e3:.1f}")
    print("  more than the look at the root [ms]: ", end="")
    met("", (more - look) * 1e3, MORE * 1e3)


def checking() -> None:
    """Print how long a worker looks again after a part."""
    work = Workload(job(MEGABYTES), 4, seed=0)
    work.flat.gather()
    published = work.flat.vector.numpy().copy()
    out = np.empty(work.layout.message, dtype=work.layout.dtype)
    check, spent = work.flat.check, [0.0]

    def timed(seconds_: float, is_first: bool) -> None:
        begun = time.perf_counter()
        check(seconds_, is_first)
        if not is_first:
            spent[0] += time.perf_counter() - begun

    work.flat.check = timed  # type: ignore[method-assign]
    total = 0.0
    for round_ in range(500):
        took = seconds(lambda r=round_: work.part(published, r % 4, 0, 1.0, out))  # type: ignore[misc]
        total += took if round_ else 0.0
    print(
        f"looking again in a worker, parts of {total / 499 * 1e3:.2f} ms [%]: ", end=""
    )
    met("", 100 * spent[0] / total, 100 * SHARE)


def met(unit: str, found: float, aim: float) -> None:
    """Print a figure beside its aim."""
    is_met = found <= aim
    print(f"{found:.2f} {unit}".strip(), f"(aim {aim:g}{'' if is_met else ': MISSED'})")
    missed.append(unit) if not is_met else None


missed: list[str] = []

if __name__ == "__main__":
    torch.set_num_threads(1)
    stepping(looking())
    checking()
    print("all met" if not missed else "MISSED an aim")
    sys.exit(bool(missed))
