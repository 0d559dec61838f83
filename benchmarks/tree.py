"""Trees, stars and rings: what the simulator says of them, and one machine.

    python benchmarks/tree.py            # about two minutes
    python benchmarks/tree.py --quick    # fewer samples, shorter vectors, for a look

Simulated, in units of the time that one vector keeps a port busy, with every parent
counting to n - s:

- CR is `coded_reduce`, n children below every parent, L layers, tolerance s; GC is
  plain gradient coding of as many workers and the same share S = N s / n of late ones;
  UMW is the uncoded star, RAR a ring all-reduce. A is what one uncoded share takes. "as
  built" is CR by default: repetition where s + 1 divides n, which does with fewer than
  n - s if they are the right ones.
- The reference numbers come from another program for the same model.

Measured, on processes of this machine: a step whose job computes nothing, by the local
engine, as a star and as a tree, beside gloo's ring all-reduce of as many bytes. No port
has a rate here and all vectors are in one memory, so there is no port to relieve, which
is what a tree is for: this says nothing about networks. It shows that a tree adds up
right, and what its turns cost, less what its workers save the root by adding up
themselves. Who comes first is drawn anew in every round.

Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad import codes
from codedgrad.codes import bounds
from codedgrad.codes.tree import Tree, allocate, base_size
from codedgrad.core import Scheme
from codedgrad.delays import Chain, Delays, Pauses, ShiftedExponential, Times, draw
from codedgrad.engines import Driver, Local
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import CodedReduce, coded_reduce, fractional, uncoded
from codedgrad.schemes.coded_reduce import tree_plan as reducing
from codedgrad.schemes.stop_rules import Threshold
from codedgrad.sim import Network, counted_seconds, ring_seconds, tree_seconds

QUICK = "--quick" in sys.argv[1:]
SAMPLES = 300 if QUICK else 4000
CLOSE = 0.08 if QUICK else 0.03  # to reference numbers, relative
RANKS = 6  # 2 + 4: a tree of two layers
MEGABYTES = (1,) if QUICK else (1, 10, 50)
ROUNDS = {1: 30, 10: 20, 50: 9}
CHECKED = 2  # steps whose job does compute, to be checked and not timed
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
PORT, SLOW = Network(port=1.0), Network(port=1.0, latency=0.5)

Missed: TypeAlias = list[str]
Floats: TypeAlias = NDArray[np.float64]
Model: TypeAlias = Callable[[Times], Floats]


@dataclass(frozen=True)
class Shape:
    """A tree, and the star to compare it with."""

    n: int
    L: int
    s: int

    @property
    def N(self) -> int:
        return Tree(self.n, self.L).workers

    @property
    def S(self) -> int:
        return self.s * self.N // self.n

    def __str__(self) -> str:
        return f"({self.n},{self.L}) {self.s}"


@cache
def counting(shape: Shape) -> CodedReduce:
    """Return the tree that counts, also where its layers would lose digits."""
    n, L, s = shape.n, shape.L, shape.s
    code = codes.cyclic(n, s) if s else codes.uncoded(n)
    allocation = allocate(Tree(n, L), code.B.toarray().tolist(), base_size(n, L, s))
    layout = reducing.TreeLayout(Tree(n, L), code, Threshold(), allocation)
    return CodedReduce(f"counting {shape}", layout, "given")


@cache
def built(shape: Shape) -> CodedReduce:
    return coded_reduce(shape.N, shape.n, shape.s)


# What is known: CR in vectors, then GC, UMW, RAR, RAR with latency in units of CR.
EXPONENTIAL = {
    (Shape(4, 3, 0), 0.1): (12.10, 6.95, 6.95, 0.213, 6.29),
    (Shape(4, 3, 0), 1.0): (13.03, 6.52, 6.52, 0.614, 6.26),
    (Shape(4, 3, 0), 10.0): (63.06, 1.50, 1.50, 0.987, 2.25),
    (Shape(4, 3, 1), 0.1): (9.61, 6.79, 8.75, 0.268, 7.70),
    (Shape(4, 3, 1), 1.0): (20.23, 4.21, 4.20, 0.396, 4.24),
    (Shape(4, 3, 1), 10.0): (177.8, 2.94, 0.531, 0.350, 0.812),
    (Shape(12, 2, 0), 0.1): (24.10, 6.48, 6.48, 0.110, 6.28),
    (Shape(12, 2, 0), 1.0): (25.01, 6.28, 6.28, 0.345, 6.29),
    (Shape(12, 2, 0), 10.0): (68.51, 2.42, 2.42, 0.998, 3.22),
    (Shape(12, 2, 1), 0.1): (22.37, 6.45, 6.98, 0.119, 6.75),
    (Shape(12, 2, 1), 1.0): (25.75, 6.10, 6.10, 0.335, 6.12),
    (Shape(12, 2, 1), 10.0): (157.4, 3.08, 1.06, 0.434, 1.41),
}
PAUSES = {
    Shape(4, 3, 0): (104.3, 1.01, 1.01, 0.98),
    Shape(4, 3, 1): (17.4, 4.89, 6.04, 5.85),
    Shape(4, 3, 2): (21.4, 3.98, 4.91, 4.76),
}
# The A above which the tree without a code, or the star without one, is faster.
CROSSINGS = {
    Shape(4, 3, 1): (0.50, 4.9),
    Shape(4, 3, 2): (0.32, 2.8),
    Shape(12, 2, 1): (0.73, 10.6),
    Shape(12, 2, 3): (0.49, 4.4),
}


# -- simulated -------------------------------------------------------------------------


def sample(workers: int, law: Delays, samples: int = SAMPLES) -> Times:
    return draw(law, steps=samples, workers=workers, seed=0)


def exponential(shape: Shape, A: float) -> Times:
    return sample(shape.N, ShiftedExponential(floor=A, mean=A))


def ratios(shape: Shape, times: Times, network: Network = PORT) -> tuple[float, ...]:
    """Return CR in vectors, then GC, UMW and RAR in units of it."""
    cr = float(tree_seconds(counting(shape), times, network).mean())
    rivals = (
        counted_seconds(shape.S, times, network),
        counted_seconds(0, times, network),
        ring_seconds(times, network),
    )
    return cr, *(float(rival.mean()) / cr for rival in rivals)


def off(found: tuple[float, ...], known: tuple[float, ...]) -> float:
    return max(abs(a / b - 1) for a, b in zip(found, known, strict=True))


def shown(numbers: tuple[float, ...]) -> str:
    return " ".join(f"{number:>8.3g}" for number in numbers)


def without_computing(missed: Missed) -> None:
    print("without computing: GC / CR is N / (n L), and the ring wins by bandwidth")
    print(f"{'(n,L) s':<10} {'CR':>8} {'GC/CR':>8} {'UMW/CR':>8} {'RAR/CR':>8}")
    for shape in (Shape(4, 3, 1), Shape(12, 2, 1), Shape(9, 2, 1), Shape(5, 3, 1)):
        at_once = Times(np.zeros((1, shape.N)), np.zeros((1, shape.N)))
        found = ratios(shape, at_once)
        print(f"{shape!s:<10} {shown(found)}")
        if abs(found[1] - shape.N / (shape.n * shape.L)) > 1e-12:
            missed.append(f"{shape} without computing: GC / CR is {found[1]}")
        closed = bounds.tree_receive(shape.n, shape.L, shape.s, port=1.0)
        if found[0] != closed:
            missed.append(f"{shape} without computing: {found[0]}, not {closed}")


def tails(missed: Missed) -> None:
    print("\na tail that grows with the load (shifted exponential, a mu = 1)")
    print(
        f"{'(n,L) s':<10} {'A':>5} {'CR':>8} {'GC/CR':>8} {'UMW/CR':>8} {'RAR/CR':>8} "
        f"{'latency':>8} {'as built':>8}   off"
    )
    for (shape, A), known in EXPONENTIAL.items():
        times = exponential(shape, A)
        found = (*ratios(shape, times), ratios(shape, times, SLOW)[3])
        as_built = float(tree_seconds(built(shape), times, PORT).mean()) / found[0]
        wrong = off(found, known)
        print(f"{shape!s:<10} {A:>5} {shown((*found, as_built))} {wrong:>5.1%}")
        if wrong > CLOSE:
            missed.append(f"{shape}, A = {A}: {wrong:.1%} off the reference")
        low, high = bounds.tree_seconds(shape.n, shape.L, shape.s, share=A, port=1.0)
        if not (1 - CLOSE) * low <= found[0] <= (1 + CLOSE) * high:
            missed.append(f"{shape}, A = {A}: {found[0]:.4g} is out of bounds")
    print("latency: RAR/CR where every message is under way for half a vector's time")


def pauses(missed: Missed) -> None:
    print("\npauses whatever the load: 100 vectors long, 5 % of workers, A = 1")
    print(f"{'(n,L) s':<10} {'CR':>8} {'GC/CR':>8} {'UMW/CR':>8} {'RAR/CR':>8}   off")
    law = Chain(ShiftedExponential(1.0, 0.05), Pauses(0.05, 100.0, 100.0))
    for shape, known in PAUSES.items():
        found = ratios(shape, sample(shape.N, law, 4 * SAMPLES))
        wrong = off(found, known)
        print(f"{shape!s:<10} {shown(found)} {wrong:>5.1%}")
        if wrong > 2 * CLOSE:  # one step in 37 is a hundred times as long
            missed.append(f"pauses, {shape}: {wrong:.1%} off the reference")


def crossings(missed: Missed) -> None:
    print("\nthe A up to which a code pays under that tail (what is known in brackets)")
    print(f"{'':<10} {'beside the tree without':>25} {'beside UMW':>14}")
    print(f"{'(n,L) s':<10} {'counting':>14} {'as built':>10} {'counting':>14}")
    for shape, known in list(CROSSINGS.items())[: 2 if QUICK else None]:
        plain = tree_of(counting(Shape(shape.n, shape.L, 0)))
        counted, default = tree_of(counting(shape)), tree_of(built(shape))
        drawn = sample(shape.N, ShiftedExponential(1.0, 1.0)).unit
        found = crossing(drawn, counted, plain), crossing(drawn, counted, star)
        by_default = crossing(drawn, default, plain)
        print(
            f"{shape!s:<10} {found[0]:>7.2f} ({known[0]:g}) {by_default:>9.2f} "
            f"{found[1]:>8.2f} ({known[1]:g})"
        )
        if off(found, known) > 2 * CLOSE:
            missed.append(f"{shape}: a code pays up to {found}, not {known}")


def tree_of(scheme: CodedReduce) -> Model:
    return lambda times: tree_seconds(scheme, times, PORT)


def star(times: Times) -> Floats:
    return counted_seconds(0, times, PORT)


def crossing(drawn: Floats, mine: Model, rival: Model) -> float:
    """Return the A, from 0.05 to 50, above which the rival's mean is the lower."""
    low, high = 0.05, 50.0
    for _ in range(9 if QUICK else 13):
        middle = (low * high) ** 0.5
        times = Times(np.zeros_like(drawn), middle * drawn)
        wins = mine(times).mean() < rival(times).mean()
        low, high = (middle, high) if wins else (low, middle)
    return float((low * high) ** 0.5)


def chunks(missed: Missed) -> None:
    print("\nvectors sent on in chunks, (4,3) 1: CR, and RAR / CR")
    shape = Shape(4, 3, 1)
    counts = (1, 2, 4, 16)
    print(f"{'A':>5} " + " ".join(f"{f'C = {count}':>16}" for count in counts))
    for A in (0.0, 0.1, 1.0):
        times = exponential(shape, A).between(0, 100 if QUICK else 1000)
        ring = float(ring_seconds(times, PORT).mean())
        found = [
            float(
                tree_seconds(counting(shape), times, Network(1.0, chunks=count)).mean()
            )
            for count in counts
        ]
        print(f"{A:>5} " + " ".join(f"{cr:>8.3g} {ring / cr:>7.2f}" for cr in found))
        if found != sorted(found, reverse=True):
            missed.append(f"chunks, A = {A}: more of them take longer")


# -- measured --------------------------------------------------------------------------


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


class Numbers:
    """A job whose part p is the vector of p + 1; it computes in the first steps only.

    Later ones leave in the rows whatever is there: only the engine's work is left.
    """

    def __init__(self, layout: VectorLayout) -> None:
        self.layout = layout

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        if step < CHECKED:
            out[:] = coefficient * (part + 1) + (out if add else 0.0)


class Ours:
    """A scheme on the local engine."""

    def __init__(self, scheme: Scheme, megabytes: int) -> None:
        size = megabytes * 250_000
        self._parameters = np.ones(size, dtype=np.float32)
        layout = VectorLayout(
            parameters=size,
            gradient=size - 2,
            dtype="float32",
            parameters_dtype="float32",
        )
        self._engine = Local()
        self._engine.start(
            lambda: Numbers(layout), layout, scheme.workers, parts=scheme.parts
        )
        self._driver = Driver(self._engine, scheme, layout)
        self._expected = scheme.parts * (scheme.parts + 1) // 2

    def is_right(self) -> bool:
        vector = self._driver.step(self._parameters).vector[:-2]
        return bool(np.allclose(vector, self._expected, rtol=1e-5))

    def step(self) -> float:
        return seconds(lambda: self._driver.step(self._parameters))

    def close(self) -> None:
        self._engine.close()


class Gloo:
    """Processes that wait to be told how many megabytes to reduce, by a ring."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--gloo", str(Path(self._folder.name, "store"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def reduce(self, megabytes: int) -> float:
        """Return the seconds of the slowest."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(megabytes, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


def fork_ranks(store: str) -> None:
    """Fork the ranks from a process that has imported torch, as the engine does."""
    import torch.distributed  # noqa: F401

    for number in range(1, RANKS):
        if os.fork() == 0:
            try:
                be_rank(store, number)
            finally:
                os._exit(0)
    be_rank(store, 0)


def be_rank(store: str, number: int) -> None:
    """Reduce as often and as much as is said to rank 0, which tells the others."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=number, world_size=RANKS)
    while True:
        asked = sys.stdin.readline() if number == 0 else ""
        megabytes = torch.tensor(int(asked or 0))
        dist.broadcast(megabytes, 0)
        if not megabytes:
            return
        vector = torch.ones(int(megabytes) * 250_000)
        dist.barrier()
        taken = torch.tensor(seconds(partial(dist.all_reduce, vector)))
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        assert bool((vector == RANKS).all())
        del vector
        dist.barrier()  # so that nobody is at work when the others are timed
        if number == 0:
            print(float(taken), flush=True)


def measured(missed: Missed) -> None:
    schemes: dict[str, Scheme] = {
        "star": uncoded(RANKS),
        "coded star": fractional(RANKS, 1),
        "tree": coded_reduce(RANKS, 2, 0),
        "coded tree": coded_reduce(RANKS, 2, 1),
    }
    print(f"\nmeasured, {RANKS} processes of this machine, nothing computed [ms]")
    print(f"{'MB':>4} {'gloo':>8} " + " ".join(f"{name:>11}" for name in schemes))
    gloo = Gloo()
    try:
        for megabytes in MEGABYTES:
            found = one_size(gloo, schemes, megabytes, missed)
            middle = {name: median(each) for name, each in found.items()}
            ours = " ".join(f"{1e3 * middle[name]:>11.1f}" for name in schemes)
            print(f"{megabytes:>4} {1e3 * middle['gloo']:>8.1f} {ours}")
            units = " ".join(
                f"{middle['gloo'] / middle[name]:>11.2f}" for name in schemes
            )
            print(f"{'':>4} {'gloo / ':>8} {units}")
            low, turns, high = np.quantile(
                np.divide(found["tree"], found["star"]), (0.25, 0.5, 0.75)
            )
            print(
                f"{'':>4} tree / star {turns:.2f}, half of them {low:.2f} to {high:.2f}"
            )
            if turns > 4:
                missed.append(f"{megabytes} MB: a tree takes {turns:.2f} of a star")
    finally:
        gloo.close()
    print(
        "All in one memory, and no port with a rate: there is nothing here that a tree"
    )
    print("could relieve. What it is for is in the tables above, not in this one.")


def one_size(
    gloo: Gloo, schemes: dict[str, Scheme], megabytes: int, missed: Missed
) -> dict[str, list[float]]:
    """Return the seconds of each in every round; the sums are checked first."""
    draw_order = random.Random(0)
    players = {name: Ours(scheme, megabytes) for name, scheme in schemes.items()}
    try:
        for name, player in players.items():
            if not all([player.is_right() for _ in range(CHECKED)]):
                missed.append(f"{megabytes} MB: the {name} adds up wrongly")
        acts: dict[str, Callable[[], float]] = {"gloo": lambda: gloo.reduce(megabytes)}
        acts |= {name: player.step for name, player in players.items()}
        times: dict[str, list[float]] = {name: [] for name in acts}
        names = list(acts)
        for number in range(ROUNDS[megabytes] + 2):
            draw_order.shuffle(names)  # whoever comes after gloo finds other caches
            for name in names:
                taken = acts[name]()
                if number >= 2:  # the first ones touch their memory
                    times[name].append(taken)
    finally:
        for player in players.values():
            player.close()
    return times


def main() -> int:
    missed: Missed = []
    for show in (without_computing, tails, pauses, crossings, chunks):
        show(missed)
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        print("\nno torch here, so no ring all-reduce of its gloo")
    else:
        measured(missed)
    print(
        f"\naims: within {CLOSE:.0%} of the reference numbers (twice that where noise"
    )
    print("is), within the bounds, more chunks no slower, sums that are right, and a")
    print("tree's turns no more than four times a star's time:")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    if not ONE_THREAD.items() <= os.environ.items():  # numpy has read it: once more
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    elif sys.argv[1:2] == ["--gloo"]:
        fork_ranks(sys.argv[2])
    else:
        sys.exit(main())
