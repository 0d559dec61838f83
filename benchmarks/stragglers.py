"""What a slow or stopped worker costs a step, and what not waiting for it costs.

    python benchmarks/stragglers.py            # about a minute and a half
    python benchmarks/stragglers.py --quick    # fewer steps, for a look

Eight workers train a PyTorch model. Two tables:

- Sleep: a part takes 50 ms, nearly all of it sleep, so that two cores can show eight
  machines. In one run, one after the other: undisturbed steps, steps in which worker 0
  takes ten times as long, and steps in which it is stopped (SIGSTOP) for some seconds.
- Compute: no sleep at all, every core busy. Redundant parts cost their full time here;
  what it is worth when a worker is ten times as slow is beside it.

Aim: coded steps with a disturbed worker within 1.2 of the undisturbed ones. Exit code 1
if it is missed.
"""

from __future__ import annotations

import sys
import time
from statistics import mean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

import codedgrad as cg
from codedgrad.delays import Times
from codedgrad.engines import FaultPlan

QUICK = "--quick" in sys.argv[1:]
WORKERS = 8
STEPS = 6 if QUICK else 30  # of every kind
SLEEP = 0.05  # seconds a part
SLOW = 10.0
STOPPED = 1.0 if QUICK else 5.0  # seconds
AIM = 1.2
SCHEMES = ("uncoded", "fractional(1)", "cyclic(1)", "cyclic(2)")[: 2 if QUICK else 4]


def small() -> cg.torch.Job:
    torch.manual_seed(0)
    x = torch.randn(1024, 32)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    return cg.torch.Job(model, F.cross_entropy, (x, x.argmax(1) % 2), 128)


def large() -> cg.torch.Job:
    """Return a job whose parts keep a core busy for some 20 ms."""
    torch.manual_seed(0)
    x = torch.randn(2048, 512)
    layers = [nn.Linear(512, 512), nn.ReLU()] * (2 if QUICK else 6)
    model = nn.Sequential(*layers, nn.Linear(512, 2))
    return cg.torch.Job(model, F.cross_entropy, (x, x.argmax(1) % 2), 1024)


def times(sleep: float, slow: float) -> Times:
    """Return undisturbed steps, then some in which worker 0 is slow, then more."""
    unit = np.full((3 * STEPS + 1, WORKERS), sleep)
    unit[STEPS + 1 : 2 * STEPS + 1, 0] = slow
    return Times(fixed=np.zeros_like(unit), unit=unit)


def run(
    job: object, scheme: str, delays: Times, faults: FaultPlan | None = None
) -> NDArray[np.float64]:
    """Return the seconds of every step but the first, (kinds, STEPS)."""
    kinds = 3 if faults is not None else 2
    seconds = []
    with cg.torch.train(
        job, scheme=scheme, workers=WORKERS, delays=delays, faults=faults
    ) as coded:
        optimizer = torch.optim.SGD(coded.model.parameters(), lr=0.01)
        for _ in coded.steps(kinds * STEPS + 1):
            begun = time.perf_counter()
            coded.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begun)
    return np.array(seconds[1:]).reshape(kinds, STEPS)


def asleep() -> bool:
    print(
        f"sleep: {WORKERS} workers, {SLEEP * 1e3:.0f} ms of sleep a part; worker 0 "
        f"{SLOW:.0f} x slow, then stopped for {STOPPED:g} s; mean s a step\n"
    )
    print(f"{'scheme':<15}{'undisturbed':>12}{'slow':>9}{'ratio':>8}", end="")
    print(f"{'stopped':>10}{'ratio':>8}")
    met = True
    for scheme in SCHEMES:
        stop = FaultPlan().stop(worker=0, step=2 * STEPS + 1, seconds=STOPPED)
        calm, slow, stopped = run(small, scheme, times(SLEEP, SLOW * SLEEP), stop)
        assert stop.all_fired
        ratios = mean(slow) / mean(calm), mean(stopped) / mean(calm)
        print(
            f"{scheme:<15}{mean(calm):>12.3f}{mean(slow):>9.3f}{ratios[0]:>8.2f}"
            f"{mean(stopped):>10.3f}{ratios[1]:>8.2f}"
        )
        met &= scheme == "uncoded" or max(ratios) <= AIM
    return met


def busy() -> None:
    calm, _ = run(large, "uncoded", times(0.0, 0.0))
    part = mean(calm) / WORKERS * 2  # seconds of a core, if two are busy
    print(
        f"\ncompute: no sleep, {part * 1e3:.0f} ms of a core a part; worker 0 sleeps "
        f"{SLOW - 1:.0f} times a worker's usual step on top\n"
    )
    print(f"{'scheme':<15}{'undisturbed':>12}{'of uncoded':>12}{'slow':>9}", end="")
    print(f"{'of uncoded':>12}")
    base: tuple[float, float] | None = None
    for scheme in SCHEMES:
        extra = (SLOW - 1) * mean(calm)
        usual, slow = map(mean, run(large, scheme, times(0.0, extra)))
        base = base or (usual, slow)
        print(
            f"{scheme:<15}{usual:>12.3f}{usual / base[0]:>12.2f}{slow:>9.3f}"
            f"{slow / base[1]:>12.2f}"
        )


def main() -> int:
    met = asleep()
    busy()
    print()
    print("all met" if met else f"MISSED: coded steps within {AIM} of undisturbed ones")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
