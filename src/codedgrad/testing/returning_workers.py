"""What `check_scheme` asks of a scheme when a lost worker comes back.

1. **In later steps**: a worker that was lost for two steps is assigned a part again
   within 10 steps after it came back, or within as many as there are workers. Only a
   worker that is assigned one in those steps of a run without losses has to be: a
   scheme may leave workers idle by design, as a code with empty rows does.
2. **In the same step**: `tolerance + 1` workers are lost, or all of them, and all but
   `tolerance` are back while the step is open. From then on the step gives a sum, in
   the time that the workers take plus a quarter of the patience. Of a scheme that
   promises no tolerance all workers are lost and all come back; it assigns a part to
   at least one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from codedgrad.core import (
    Assign,
    Command,
    Event,
    Patience,
    Scheme,
    StepStarted,
    WorkersJoined,
)
from codedgrad.delays import Times
from codedgrad.errors import Violation
from codedgrad.sim import Simulator, Step
from codedgrad.testing.invariants import Invariants

_BEFORE = 4  # steps in which every worker is there
_AWAY = 2  # steps without the worker
_SOON = 10  # steps within which it is used again, unless there are more workers
_SETS = 24  # of lost workers
_LOST_BY = 0.05  # seconds into the step; a worker takes a second or more for its share
_BACK_AT = (0.1, 5.0)  # seconds: the others compute; the others have done their share
_PATIENCE = 400.0  # seconds


def check_returning_workers(scheme: Scheme, seed: int = 0) -> None:
    """Raise `Violation` unless the scheme uses workers that come back.

    Example:
        >>> from codedgrad.schemes import uncoded
        >>> check_returning_workers(uncoded(workers=3))
    """
    _check_later_steps(scheme, seed)
    if scheme.tolerance is None:
        _check_that_one_is_asked(scheme, seed)
        return
    n = scheme.workers
    for first in range(min(n, _SETS)):
        turned = [(first + i) % n for i in range(n)]
        for at in _BACK_AT:
            # Neighbours hold copies of the same parts in most codes, so that the step
            # needs one of them; of workers further apart, it often needs none.
            neighbours = turned[: scheme.tolerance + 1]
            _check_same_step(scheme, neighbours, neighbours[:1], at, seed)
            # A scheme that moves parts needs one back only when none is left.
            _check_same_step(scheme, turned, turned[: n - scheme.tolerance], at, seed)


class _WatchedReturns:
    """A simulator of a scheme, and which workers it assigned parts to.

    Attributes:
        simulator: The simulator.
        assigned: Workers that were assigned a part in the current step.
        returned: Workers that have come back.
        used_again: Those of them that were assigned a part since.
    """

    def __init__(self, scheme: Scheme) -> None:
        self.assigned: set[int] = set()
        self.returned: set[int] = set()
        self.used_again: set[int] = set()
        self._invariants = Invariants(scheme)
        self.simulator = Simulator(
            scheme,
            patience=Patience(least=_PATIENCE, first=_PATIENCE),
            watch=self._see,
        )

    def _see(self, event: Event, commands: list[Command]) -> None:
        self._invariants(event, commands)
        if isinstance(event, StepStarted):
            self.assigned.clear()
        elif isinstance(event, WorkersJoined):
            self.returned.update(event.workers)
        workers = {each.segment.worker for each in commands if isinstance(each, Assign)}
        self.assigned |= workers
        self.used_again |= workers & self.returned


def _times(scheme: Scheme, steps: int, seed: int) -> Times:
    unit = 1.0 + np.random.default_rng(seed).exponential(0.3, (steps, scheme.workers))
    return Times(fixed=np.zeros(unit.shape), unit=unit)


# -- in later steps ------------------------------------------------------------------


def _check_later_steps(scheme: Scheme, seed: int) -> None:
    back = _BEFORE + _AWAY
    soon = max(_SOON, scheme.workers)
    times = _times(scheme, back + soon, seed)
    for worker in sorted(_used_without_losses(scheme, times, back)):
        if not _is_used_again(scheme, worker, times, back):
            raise Violation(
                f"{scheme.name} uses workers that were lost and came back",
                f"worker {worker} was away in steps {_BEFORE} to {back - 1}, and was "
                f"assigned no part in the {soon} steps after that; when it is never "
                f"away, it is assigned some there",
            )


def _used_without_losses(scheme: Scheme, times: Times, since: int) -> set[int]:
    watched, used = _WatchedReturns(scheme), set[int]()
    for step in watched.simulator.run(times):
        if step.step >= since:
            used |= watched.assigned
    return used


def _is_used_again(scheme: Scheme, worker: int, times: Times, back: int) -> bool:
    unit = times.unit.copy()
    unit[_BEFORE:back, worker] = math.inf  # the simulator loses it, and lets it join
    watched = _WatchedReturns(scheme)
    steps = watched.simulator.run(Times(fixed=times.fixed, unit=unit))
    return any(worker in watched.used_again for _ in steps)


# -- in the same step ----------------------------------------------------------------


def _step_with(
    watched: _WatchedReturns,
    lost: Sequence[int],
    back: Sequence[int],
    at: float,
    times: Times,
) -> Step:
    """Simulate a step that loses workers at its start and gets some back `at` seconds.

    Args:
        watched: The simulator.
        lost: Workers that are lost one after the other.
        back: Those of them that come back.
        at: Seconds into the step.
        times: Of one step.
    """
    simulator = watched.simulator
    for order, worker in enumerate(lost):
        moment = _LOST_BY * (order + 1) / len(lost)
        simulator.schedule(moment, partial(simulator.lose, worker))
    for worker in back:
        simulator.schedule(at, partial(simulator.join, worker))
    [step] = simulator.run(times)
    return step


def _check_same_step(
    scheme: Scheme, lost: Sequence[int], back: Sequence[int], at: float, seed: int
) -> None:
    times, watched = _times(scheme, 1, seed), _WatchedReturns(scheme)
    step = _step_with(watched, lost, back, at, times)
    rule = f"{scheme.name} asks workers that come back in a step that needs them"
    unused = sorted(watched.returned - watched.used_again)
    found = (
        f"workers {sorted(lost)} were lost, workers {sorted(back)} came back after "
        f"{at:g} s (assigned no part since: {unused or 'none'})"
    )
    if not step.combined:
        raise Violation(rule, f"{found}, and the step was given up: {step.reason}")
    load = max(map(len, scheme.placement))
    longest = load * float(times.part(scheme.parts).max())
    if step.seconds > at + longest + _PATIENCE / 4:
        raise Violation(rule, f"{found}, and the step took {step.seconds:.3g} s")


def _check_that_one_is_asked(scheme: Scheme, seed: int) -> None:
    workers, at = range(scheme.workers), _BACK_AT[0]
    watched = _WatchedReturns(scheme)
    _step_with(watched, workers, workers, at, _times(scheme, 1, seed))
    if watched.returned and not watched.used_again:  # else the step ended before
        raise Violation(
            f"{scheme.name} asks workers that come back while a step is open",
            f"all workers were lost, came back after {at:g} s, and none was assigned a "
            f"part in that step",
        )
