"""Many runs of several schemes on the same delays.

All schemes meet the same workers: run `r` draws its times from child `r` of the seed,
so the comparison is paired and does not depend on which schemes are in it, on blocks or
on threads. Schemes that follow a code, and trees, take the fast path where it says the
same as the events do; the others run on the event-driven simulator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Scheme
from codedgrad.delays import Delays, Times, draw
from codedgrad.errors import InvalidOptions
from codedgrad.schemes import CodedScheme
from codedgrad.sim.arrays.codes import (
    Outcome,
    as_code,
    has_fast_path,
    outcome,
    step_seconds,
)
from codedgrad.sim.arrays.trees import has_tree_path, tree_outcome
from codedgrad.sim.events import run_events
from codedgrad.sim.machine import Machine

Floats: TypeAlias = NDArray[np.float64]

_ROWS = 4096  # steps evaluated at once: their times fit a core's cache


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a scheme did; arrays of shape (runs, steps).

    Attributes:
        scheme: The scheme.
        seconds: From start to end of every step; inf where it gave no sum.
        residual: Of the sum.
        messages: Messages heard.
        work: Parts computed to their end.
        busy: Seconds workers spent on parts, together.
        by_events: Whether it ran on the event-driven simulator.
    """

    scheme: Scheme
    seconds: Floats
    residual: Floats
    messages: Floats
    work: Floats
    busy: Floats
    by_events: bool

    def summary(self) -> dict[str, float]:
        """Return the figures of a table; times in seconds, over steps with a sum.

        Quantiles are times that occurred: of fewer than 100 steps, p99 is the longest.
        """
        done = np.isfinite(self.seconds)
        seconds, parts = self.seconds[done], self.scheme.parts
        none = float("nan")
        mean = float(seconds.mean()) if seconds.size else none
        p50, p95, p99 = (
            np.quantile(seconds, (0.5, 0.95, 0.99), method="higher").tolist()
            if seconds.size
            else [none] * 3
        )
        total = float(seconds.sum())
        exact = done & (self.residual <= 1e-9)
        return {
            "mean_seconds": mean,
            "median_seconds": p50,
            "p95_seconds": p95,
            "p99_seconds": p99,
            "work": float(self.work[done].mean() / parts) if seconds.size else none,
            "busy": float(self.busy[done].sum() / (total * self.scheme.workers))
            if total > 0 else none,
            "messages": float(self.messages[done].mean()) if seconds.size else none,
            "residual": float(self.residual[done].mean() / parts)
            if seconds.size else none,
            "exact": float(exact.mean()),
            "gave_up": float(1 - done.mean()),
        }  # fmt: skip


def compare(
    schemes: Sequence[Scheme],
    delays: Delays,
    *,
    steps: int,
    runs: int = 1,
    seed: int = 0,
    machine: Machine | None = None,
    advanced: Callable[[int], None] | None = None,
    threads: int | None = None,
) -> list[Result]:
    """Run all schemes on the same delays.

    Args:
        schemes: For the same number of workers.
        delays: How long workers take.
        steps: In a run.
        runs: Independent runs.
        seed: Of the delays.
        machine: What the simulated engine can do; by default workers drain.
        advanced: Called with a number of scheme-steps done, for a progress bar.
        threads: For the fast path; by default one a core.

    Example:
        >>> from codedgrad.delays import ShiftedExponential
        >>> from codedgrad.schemes import fractional, uncoded
        >>> two = compare([uncoded(4), fractional(4, 1)],
        ...               ShiftedExponential(floor=1.0, mean=1.0), steps=100)
        >>> [result.seconds.shape for result in two]
        [(1, 100), (1, 100)]
    """
    machine = machine or Machine()
    workers = {scheme.workers for scheme in schemes}
    if len(workers) != 1:
        problem = f"are for {sorted(workers)} workers"
        raise InvalidOptions("schemes", problem, "schemes for one number of workers")
    if steps < 1 or runs < 1:
        raise InvalidOptions("steps, runs", f"are {steps} and {runs}", "1 or more")
    n = workers.pop()
    advanced = advanced or (lambda done: None)
    fast = {
        place: scheme
        for place, scheme in enumerate(schemes)
        if _is_fast(scheme, machine)
    }
    outcomes: list[list[Outcome]] = [[] for _ in schemes]

    def sample(run: int) -> Times:
        return draw(delays, steps=steps, workers=n, seed=seed, run=run)

    def evaluate(run: int) -> list[list[Outcome]]:
        times = sample(run)
        return [_evaluated(scheme, times, machine) for scheme in fast.values()]

    if fast:
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            for each in pool.map(evaluate, range(runs)):
                for place, blocks in zip(fast, each, strict=True):
                    outcomes[place] += blocks
                    advanced(steps)
    for run in range(runs if len(fast) < len(schemes) else 0):
        times = sample(run)
        for place, scheme in enumerate(schemes):
            if place not in fast:
                outcomes[place].append(run_events(scheme, times, machine, advanced))
    return [
        _gather(scheme, outcomes[place], runs, by_events=place not in fast)
        for place, scheme in enumerate(schemes)
    ]


def end_times(scheme: CodedScheme, times: Times, threads: int | None = None) -> Floats:
    """Return when every step ends, (steps,), and nothing else: the quickest answer."""
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return np.concatenate(
            list(pool.map(lambda block: step_seconds(scheme, block), _blocks(times)))
        )


def run_fast(
    scheme: CodedScheme, times: Times, threads: int | None = None
) -> list[Outcome]:
    """Evaluate one long run in blocks of steps, over threads; in their order."""
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(lambda block: outcome(scheme, block), _blocks(times)))


def _is_fast(scheme: Scheme, machine: Machine) -> bool:
    ideal = machine.is_ideal and has_fast_path(scheme)
    return ideal or has_tree_path(scheme, machine)


def _evaluated(scheme: Scheme, times: Times, machine: Machine) -> list[Outcome]:
    """Evaluate a scheme that is fast, in blocks of steps."""
    if machine.is_ideal and has_fast_path(scheme):
        code, seated = as_code(scheme, times)
        return [outcome(code, block) for block in _blocks(seated)]
    return [tree_outcome(scheme, block, machine.network) for block in _blocks(times)]


def _blocks(times: Times) -> Iterator[Times]:
    for low in range(0, times.steps, _ROWS):
        yield times.between(low, low + _ROWS)


def _gather(
    scheme: Scheme, outcomes: Sequence[Outcome], runs: int, by_events: bool
) -> Result:
    def joined(name: str) -> Floats:
        arrays = [getattr(o, name) for o in outcomes]
        return np.concatenate(arrays).astype(np.float64).reshape(runs, -1)

    return Result(
        scheme,
        joined("seconds"),
        joined("residual"),
        joined("messages"),
        joined("work"),
        joined("busy"),
        by_events,
    )
