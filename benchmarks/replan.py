"""What planning a step again costs: seconds of one look, in an open step of `auto`.

    python benchmarks/replan.py            # about half a minute
    python benchmarks/replan.py --quick    # fewer looks, for a look

Steps are simulated with workers of half a second and an exponential of the same mean,
8 parts each, a latency of half a percent of a step, and everybody or three workers to
ask for a part. Every look of the real coordinator is timed where it happens, the first
step's left out: how things stand, when the step could end, and the making of orders.
Many looks change nothing, and most events lead to none; those are shown apart.

Seconds are of processor time, so that other work on a machine does not count; machines
still differ, so the last column is in units of sorting a million floats in the same
run.

Aims: of looks that give orders, a median of less than 1 ms for 32 workers and 50 ms for
1,000, where everybody may be asked for everything. Exit code 1 if one is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from unittest.mock import patch

import numpy as np

from codedgrad.core import Command, Event, Progressed
from codedgrad.core.plan import Ask, Decision
from codedgrad.core.state import State
from codedgrad.delays import ShiftedExponential
from codedgrad.schemes import auto
from codedgrad.schemes.auto.plan import LivePlan
from codedgrad.sim import Machine, Simulator

QUICK = "--quick" in sys.argv[1:]
PIECES = 8
LATENCY = 0.005  # seconds; a step is about one
LEAST = 20  # looks with orders, or it is no median
STEPS = {32: 12, 1000: 2} if QUICK else {32: 60, 1000: 5}
AIMS = {32: 1e-3, 1000: 50e-3}  # seconds, where everybody may be asked
COPIES: tuple[int | str, ...] = ("all", 3)


@dataclass
class Costs:
    """Seconds of processor time.

    Attributes:
        looks: Of looks, those left out that were put off.
        orders: Of looks that led to orders.
        events: Of whole events that led to a look.
        others: Of reports of progress that led to none.
    """

    looks: list[float] = field(default_factory=list)
    orders: list[float] = field(default_factory=list)
    events: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)


def p95(seconds: list[float]) -> float:
    return float(np.quantile(seconds, 0.95))


@contextmanager
def timed_looks(costs: Costs) -> Iterator[None]:
    """Time what plans look at."""
    look = LivePlan._look

    def timed(plan: LivePlan, state: State, must: bool = False) -> Decision:
        before, start = plan._looked, time.thread_time()
        decision = look(plan, state, must)
        spent = time.thread_time() - start
        if must or plan._looked != before:  # or it was put off
            costs.looks.append(spent)
            if isinstance(decision, Ask):
                costs.orders.append(spent)
        return decision

    with patch.object(LivePlan, "_look", timed):
        yield


def timed_events(
    handle: Callable[[Event], list[Command]], costs: Costs
) -> Callable[[Event], list[Command]]:
    """Time what a coordinator does about events."""

    def timed(event: Event) -> list[Command]:
        looks, start = len(costs.looks), time.thread_time()
        commands = handle(event)
        spent = time.thread_time() - start
        if len(costs.looks) > looks:
            costs.events.append(spent)
        elif isinstance(event, Progressed):
            costs.others.append(spent)
        return commands

    return timed


def measured(workers: int, copies: int | str) -> Costs:
    scheme = auto(workers, PIECES, copies=copies)
    law, machine = ShiftedExponential(0.5, 0.5), Machine(drain=False, latency=LATENCY)
    steps = STEPS[workers] + 1
    times = law.sample(np.random.default_rng(0), steps, workers)
    simulator = Simulator(
        scheme,
        capabilities=machine.capabilities,
        patience=machine.patience(times, scheme),
        latency=machine.latency,
    )
    costs = Costs()
    run = simulator.run(times)
    assert next(run).combined  # nothing is known in the first step
    simulator.coordinator.handle = timed_events(simulator.coordinator.handle, costs)
    with timed_looks(costs):
        for step in run:
            assert step.combined, step.reason
    return costs


def sorting() -> float:
    """Return the seconds of sorting a million floats."""
    numbers = np.random.default_rng(0).random(1_000_000)
    spent = []
    for _ in range(5):
        start = time.thread_time()
        np.sort(numbers)
        spent.append(time.thread_time() - start)
    return median(spent)


def main() -> int:
    missed: list[str] = []
    unit = sorting()
    print(f"a sort of a million floats: {1e3 * unit:.1f} ms\n")
    print(f"{'':>14} {'looks a step':>13} {'all looks':>19} {'with orders':>19}")
    print(
        f"{'workers':>7} {'copies':>6} {'all':>6} {'orders':>6} {'median':>9} "
        f"{'p95':>9} {'median':>9} {'p95':>9} {'event':>8} {'other':>8} {'/ sort':>8}"
    )
    units = ("[ms]", "[ms]", "[ms]", "[ms]")
    print(f"{'':>28} {' '.join(f'{u:>9}' for u in units)} {'[ms]':>8} {'[us]':>8}")
    for workers in STEPS:
        for copies in COPIES:
            costs = measured(workers, copies)
            typical, looks = median(costs.orders), len(costs.orders)
            each = (median(costs.looks), p95(costs.looks), typical, p95(costs.orders))
            print(
                f"{workers:>7} {copies:>6} {len(costs.looks) / STEPS[workers]:>6.1f} "
                f"{looks / STEPS[workers]:>6.1f} "
                f"{' '.join(f'{1e3 * value:>9.2f}' for value in each)} "
                f"{1e3 * median(costs.events):>8.2f} "
                f"{1e6 * median(costs.others):>8.1f} {typical / unit:>8.3f}",
                flush=True,
            )
            name = f"{workers} workers, {copies} copies"
            if looks < LEAST:
                missed.append(f"{name}: only {looks} looks with orders were timed")
            if copies == "all" and not typical < AIMS[workers]:
                missed.append(f"{name}: a look takes {1e3 * typical:.2f} ms")
    print(
        "event: the median of events with a look, orders noted; other: that of\n"
        "reports without; / sort: the median look with orders\n\n"
        "aims: a median look with orders below 1 ms for 32 workers and 50 ms for\n"
        "1,000, if all may be asked for all:"
    )
    print("\n".join(f"MISSED {line}" for line in missed) or "all met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
