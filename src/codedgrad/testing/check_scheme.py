"""`check_scheme`: may this scheme be let loose on a cluster?"""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from codedgrad.core import Capabilities, Command, Coordinator, Event, Patience, Scheme
from codedgrad.delays import Times
from codedgrad.errors import Violation
from codedgrad.sim import Simulator
from codedgrad.testing.faults import attack
from codedgrad.testing.invariants import Invariants
from codedgrad.testing.returning_workers import check_returning_workers
from codedgrad.trace import Entry, Header, Trace, replay

_SETS = 120  # of late workers, all if there are not more
_FOREVER = 1e6  # seconds: slow, not lost
_PATIENCE = 400.0  # seconds


def check_scheme(scheme: Scheme, schedules: int = 50, seed: int = 0) -> None:
    """Raise `Violation` unless the scheme does what every driver relies on.

    - its description makes sense: a placement for every worker, every part placed;
    - segments fit the placement, steps end once, weights times rows give ones
      (see `Invariants`);
    - it gives a sum whatever tolerated set of workers is very slow, or dead before the
      step, or dies in it; and does so no later than the others would take for all they
      hold, plus a quarter of the patience (for plans that wait for evidence);
    - it uses workers that were lost and came back: in the same step if that needs them,
      and within 10 steps, or as many as there are workers, if it would use them had
      they stayed (see `returning_workers`);
    - the same events give the same commands, and a replay agrees;
    - it survives the fault simulator.

    Args:
        scheme: To be checked.
        schedules: How many random schedules of faults.
        seed: Of the delays and the faults.

    Example:
        >>> from codedgrad.schemes import cyclic
        >>> check_scheme(cyclic(workers=5, tolerance=2), schedules=5)
    """
    _check_description(scheme)
    if scheme.tolerance is not None:
        for late in _late_sets(scheme.workers, scheme.tolerance, seed):
            for how in ("slow", "dead", "dying"):
                _check_tolerated(scheme, late, how, seed)
    check_returning_workers(scheme, seed)
    _check_replay(scheme, Capabilities(), seed)
    if not scheme.traits.needs_progress:
        _check_replay(scheme, Capabilities(progress=False), seed)
    failure = attack([scheme], schedules, seed)
    if failure is not None:
        raise Violation(f"{scheme.name} survives the fault simulator", str(failure))


def _check_description(scheme: Scheme) -> None:
    rule = f"{scheme.name} describes itself"
    if scheme.exact and scheme.tolerance is None:
        raise Violation(rule, "it is exact, and promises no tolerance")
    if len(scheme.placement) != scheme.workers:
        raise Violation(rule, "its placement is not one list for every worker")
    placed = {part for parts in scheme.placement for part in parts}
    if not placed <= set(range(scheme.parts)):
        raise Violation(rule, "its placement has parts that are none")
    if scheme.tolerance is not None:
        if placed != set(range(scheme.parts)):
            raise Violation(rule, "it is exact, and a part is placed nowhere")
        if not 0 <= scheme.tolerance < scheme.workers:
            raise Violation(rule, f"a tolerance of {scheme.tolerance}")


def _late_sets(workers: int, tolerance: int, seed: int) -> list[tuple[int, ...]]:
    if math.comb(workers, tolerance) <= _SETS:
        return list(itertools.combinations(range(workers), tolerance))
    rng = np.random.default_rng(seed)
    windows = [
        tuple(sorted((first + i) % workers for i in range(tolerance)))
        for first in range(workers)
    ]
    drawn = [
        tuple(sorted(rng.choice(workers, tolerance, replace=False).tolist()))
        for _ in range(_SETS - min(workers, _SETS))
    ]
    return windows[:_SETS] + drawn


def _check_tolerated(
    scheme: Scheme, late: tuple[int, ...], how: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    unit = 1.0 + rng.exponential(0.3, (2, scheme.workers))
    unit[:, late] = math.inf if how == "dead" else _FOREVER
    times = Times(fixed=np.zeros(unit.shape), unit=unit)
    part, load = times.part(scheme.parts).tolist(), max(map(len, scheme.placement))
    invariants = Invariants(scheme)
    simulator = Simulator(
        scheme,
        patience=Patience(least=_PATIENCE, first=_PATIENCE),
        watch=invariants,
    )
    if how == "dying":
        for order, worker in enumerate(late):
            simulator.schedule(0.1 * (order + 1), partial(simulator.lose, worker))
    for step in simulator.run(times):
        if not step.combined:
            raise Violation(
                f"{scheme.name} survives any {scheme.tolerance} late workers",
                f"with {list(late)} {how} it gave up: {step.reason}",
            )
        others = [p for w, p in enumerate(part[step.step]) if w not in late]
        if step.seconds > load * max(others) + _PATIENCE / 4:
            raise Violation(
                f"{scheme.name} does not wait for tolerated workers",
                f"with {list(late)} {how} a step took {step.seconds:.3g} s",
            )


def _check_replay(scheme: Scheme, capabilities: Capabilities, seed: int) -> None:
    rng = np.random.default_rng(seed)
    unit = 0.5 + rng.exponential(1.0, (4, scheme.workers))
    times = Times(fixed=np.zeros(unit.shape), unit=unit)
    entries: list[Entry] = []
    invariants = Invariants(scheme)

    def watch(event: Event, commands: list[Command]) -> None:
        entries.append(Entry(event, tuple(commands)))
        invariants(event, commands)

    simulator = Simulator(scheme, capabilities=capabilities, watch=watch)
    for _ in simulator.run(times):
        pass
    header = Header(
        scheme=scheme.name,
        workers=scheme.workers,
        parts=scheme.parts,
        capabilities=capabilities,
    )
    difference = replay(Trace(header, tuple(entries)), scheme)
    if difference is not None:
        raise Violation(f"{scheme.name} decides the same again", str(difference))
    first, second = (
        Coordinator(scheme, capabilities, header.patience) for _ in range(2)
    )
    for entry in entries:  # side by side: nothing may leak from one run to another
        if first.handle(entry.event) != second.handle(entry.event):
            raise Violation(f"{scheme.name} keeps runs apart", f"at {entry.event}")
