"""How build and decode grow with the number of workers, as ratios of one run.

    python benchmarks/decode.py            # about a minute
    python benchmarks/decode.py --quick    # smaller, for a look

Every decode is of a fresh pattern at the code's tolerance, so that no cache helps:
`tolerance` late workers for cyclic codes, that many in every group or cluster for the
others. Times are medians. Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from codedgrad.codes import Code, clustered, cyclic, decode, fractional

QUICK = "--quick" in sys.argv[1:]
SIZES = (100, 990) if QUICK else (100, 990, 9990)
REPEATS = 5 if QUICK else 25
DENSE_SIZE = 990

FAMILIES: dict[str, Callable[[int], Code]] = {
    "fractional s=9": lambda n: fractional(n, 9),
    "clusters of 10, s=9": lambda n: clustered(cyclic(10, 9), n // 10),
    "clusters of 15, s=9": lambda n: clustered(cyclic(15, 9), round(n / 15)),
    "cyclic s=1": lambda n: cyclic(n, 1),
    "cyclic s=1, odd n": lambda n: cyclic(n + 1, 1),
    "cyclic s=9 (override)": lambda n: cyclic(n, 9, accept_amplification=True),
}


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def late_pattern(code: Code, rng: np.random.Generator) -> list[int]:
    block = code.inner.workers if code.inner is not None else code.workers
    order = rng.random((code.workers // block, block)).argsort(axis=1)
    return np.flatnonzero(order.ravel() >= code.tolerance).tolist()


def bytes_per_nonzero(build: Callable[[], Code]) -> float:
    tracemalloc.start()
    code = build()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / code.B.nnz


def dense_over_ours(code: Code, rng: np.random.Generator) -> float:
    """Our decode against a dense least-squares solve of the same messages."""
    B, dense, ours = code.B.toarray(), [], []
    for _ in range(5):
        heard = rng.permutation(code.workers)[code.tolerance :].tolist()
        A, ones = B[heard].T, np.ones(code.parts)
        dense.append(seconds(partial(np.linalg.lstsq, A, ones, rcond=None)))
        ours.append(seconds(partial(decode, code, heard)))
    return median(dense) / median(ours)


def main() -> int:
    rng = np.random.default_rng(0)
    missed = []
    heads = f"{'build':>9} {'decode':>9} {'worst':>9} {'memory':>11}"
    print(f"{'code':<22} {'workers':>7} {heads}")
    print(f"{'':<30} {'[ms]':>9} {'[ms]':>9} {'residual':>9} {'[B/nonzero]':>11}")
    for name, family in FAMILIES.items():
        decoding, memory = {}, {}
        for n in SIZES:
            build_time = seconds(partial(family, n))
            code = family(n)
            patterns = [late_pattern(code, rng) for _ in range(REPEATS)]
            worst = max(decode(code, heard).residual for heard in patterns)
            patterns = [late_pattern(code, rng) for _ in range(REPEATS)]
            decoding[n] = median(seconds(partial(decode, code, h)) for h in patterns)
            memory[n] = bytes_per_nonzero(partial(family, n))
            print(
                f"{name:<22} {code.workers:>7} {1e3 * build_time:>9.2f} "
                f"{1e3 * decoding[n]:>9.3f} {worst:>9.0e} {memory[n]:>11.0f}"
            )
            if worst > 1e-9 and "override" not in name:
                missed.append(f"{name}: residual {worst:.0e} at {n} workers")
        small, large = SIZES[-2:]
        growth = decoding[large] / decoding[small] / (large / small)
        print(f"{'':<22} decode, {large} over {small} workers: {growth:.2f} of linear")
        if growth > 1.5:
            missed.append(f"{name}: decode grows {growth:.2f} times faster than n")
        if decoding[large] > 10e-3:
            missed.append(f"{name}: decode takes {1e3 * decoding[large]:.1f} ms")
        if memory[large] > 1.1 * memory[small]:
            missed.append(f"{name}: memory is not in proportion to the non-zeros")

    print(f"\n{f'{DENSE_SIZE} workers, s of them late':<30} {'dense / ours':>12}")
    for name, family in FAMILIES.items():
        ratio = dense_over_ours(family(DENSE_SIZE), rng)
        print(f"{name:<30} {ratio:>11.0f}x")
        if ratio < 50:
            missed.append(f"{name}: only {ratio:.0f}x the dense decode")

    print("\naims: decode <= 10 ms at the largest, linear in n; memory linear in the")
    print("non-zeros; >= 50x the dense least-squares decode:")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
