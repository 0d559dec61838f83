"""How fast the simulator is, as ratios of one run.

    python benchmarks/simulate.py            # about a minute, 4 GB of memory
    python benchmarks/simulate.py --quick    # smaller, for a look

The fast path answers when each of 1,000,000 steps of 84 workers ends; a plain numpy
sort of the same matrix of arrival times, with the order statistic read off (and the
largest over clusters taken), is what one would write by hand. The last column is for
all figures of a step (work, messages, residual, busy time). Interleaved, best of
several.
Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from codedgrad import schemes
from codedgrad.delays import ShiftedExponential, Times
from codedgrad.schemes import CodedScheme
from codedgrad.sim import Machine, Simulator, end_times, run_events, run_fast
from codedgrad.testing import Everything

QUICK = "--quick" in sys.argv[1:]
STEPS = 100_000 if QUICK else 1_000_000
WORKERS = 84
ROUNDS = 3 if QUICK else 5


def best(rounds: int, *runs: Callable[[], object]) -> list[float]:
    """Return the best time of each, in seconds; they take turns."""
    times = [[] for _ in runs]
    for _ in range(rounds):
        for spent, run in zip(times, runs, strict=True):
            start = time.perf_counter()
            run()
            spent.append(time.perf_counter() - start)
    return [min(spent) for spent in times]


def by_sorting(times: Times, load: int, blocks: int, k: int) -> np.ndarray:
    arrivals = (times.fixed + load * times.unit).reshape(times.steps * blocks, -1)
    kth = np.sort(arrivals, axis=1)[:, k - 1]
    return kth.reshape(times.steps, blocks).max(axis=1)


def fast_path(missed: list[str]) -> None:
    law = ShiftedExponential(floor=0.1, mean=1.0)
    times = law.sample(np.random.default_rng(0), STEPS, WORKERS)
    print(f"fast path, {STEPS:,} steps x {WORKERS} workers, rule threshold")
    print(f"{'':<34} {'[s]':>7} {'sort / ours':>12} {'all figures':>12}")
    cases: list[tuple[str, CodedScheme, int, int]] = [
        ("first 72 of 84 (cyclic s=12)", _cyclic(12), 1, 72),
        (
            "21 clusters of 4, s=1",
            schemes.clustered(84, 21, 1, rule="threshold"),
            21,
            3,
        ),
        ("7 clusters of 12, s=3", schemes.clustered(84, 7, 3, rule="threshold"), 7, 9),
        ("fractional s=1", schemes.fractional(84, 1), 42, 1),
    ]
    for name, scheme, blocks, k in cases:
        load = scheme.code.load
        same = end_times(scheme, times) == by_sorting(times, load, blocks, k)
        if not np.all(same):
            missed.append(f"{name}: {np.sum(~same)} steps differ from the plain sort")
        sort, ours, all_figures = best(
            ROUNDS,
            lambda b=blocks, k=k, load=load: by_sorting(times, load, b, k),
            lambda s=scheme: end_times(s, times),
            lambda s=scheme: run_fast(s, times),
        )
        ratios = f"{sort / ours:>11.1f}x {sort / all_figures:>11.1f}x"
        print(f"{name:<34} {ours:>7.2f} {ratios}")
        if sort / ours < 2 and not QUICK:
            missed.append(f"{name}: only {sort / ours:.2f}x a plain sort")
    growth(times, missed)


def _cyclic(tolerance: int) -> CodedScheme:
    """A count is a count: the coefficients do not matter to a threshold."""
    from codedgrad import codes
    from codedgrad.schemes.stop_rules import Threshold

    code = codes.cyclic(WORKERS, tolerance, accept_amplification=True)
    return CodedScheme(f"cyclic({tolerance})", code, Threshold())


def growth(times: Times, missed: list[str]) -> None:
    scheme = _cyclic(12)
    quarter = times.between(0, STEPS // 4)
    whole, part = best(
        ROUNDS, lambda: end_times(scheme, times), lambda: end_times(scheme, quarter)
    )
    steps = whole / part / 4
    wide = Times(fixed=np.tile(quarter.fixed, 2), unit=np.tile(quarter.unit, 2))
    double = schemes.clustered(2 * WORKERS, 42, 1, rule="threshold")
    single = schemes.clustered(WORKERS, 21, 1, rule="threshold")
    wider, narrow = best(
        ROUNDS, lambda: end_times(double, wide), lambda: end_times(single, quarter)
    )
    workers = wider / narrow / 2
    print(f"4 x the steps: {steps:.2f} of linear; 2 x the workers: {workers:.2f}\n")
    if max(steps, workers) > 1.5:
        missed.append(f"the fast path grows {max(steps, workers):.2f} x linearly")


def event_driven(missed: list[str]) -> None:
    print("event-driven, workers drain, progress reported")
    print(
        f"{'scheme':<34} {'workers':>7} {'steps/s':>9} {'events/s':>9} {'us/event':>9}"
    )
    rate: dict[tuple[str, int], float] = {}
    machine = Machine()
    for name, build in {
        "uncoded": lambda n: schemes.uncoded(n),
        "cyclic s=1": lambda n: schemes.cyclic(n, 1),
        "clusters of 4, s=1": lambda n: schemes.clustered(n, n // 4, 1),
        "everything (re-plans, 3 parts each)": lambda n: Everything(n),
    }.items():
        for n in (8, 80) if QUICK or "every" in name else (8, 80, 800):
            steps = max(2, (400 if QUICK else 4000) // n)
            steps = max(2, steps // 8) if "every" in name else steps
            scheme = build(n)
            events = 0

            def count(event: object, commands: object) -> None:
                nonlocal events
                events += 1

            law = ShiftedExponential(floor=0.1, mean=1.0)
            times = law.sample(np.random.default_rng(0), steps, n)
            (spent,) = best(2, lambda s=scheme, t=times: run_events(s, t, machine))
            simulator = Simulator(
                scheme, capabilities=machine.capabilities, watch=count
            )
            list(simulator.run(times))
            rate[name, n] = spent / events
            print(
                f"{name:<34} {n:>7} {steps / spent:>9.0f} {events / spent:>9.0f} "
                f"{1e6 * spent / events:>9.1f}"
            )
    for name in ("uncoded", "clusters of 4, s=1"):
        large = max(n for key, n in rate if key == name)
        growth = rate[name, large] / rate[name, 80]
        if growth > 2:
            missed.append(f"{name}: an event costs {growth:.1f}x more at {large}")


def main() -> int:
    missed: list[str] = []
    fast_path(missed)
    event_driven(missed)
    print(
        "\naims: the fast path at least twice as fast as a plain sort and equal to it;"
    )
    print("cost linear in steps and workers:")
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
