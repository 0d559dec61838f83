"""A whole run of a scheme on the event-driven simulator, in arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codedgrad.core import Scheme
from codedgrad.delays import Times
from codedgrad.sim.arrays.codes import Outcome
from codedgrad.sim.driver import Simulator, Watch
from codedgrad.sim.machine import Machine
from codedgrad.sim.oracle import told


def run_events(
    scheme: Scheme,
    times: Times,
    machine: Machine,
    advanced: Callable[[int], None] = lambda done: None,
    watch: Watch | None = None,
) -> Outcome:
    """Run a scheme on the event-driven simulator."""
    simulator = Simulator(
        told(scheme, times),
        capabilities=machine.capabilities,
        patience=machine.patience(times, scheme),
        latency=machine.latency,
        network=machine.network,
        watch=watch,
    )
    steps = []
    for step in simulator.run(times):
        steps.append(step)
        advanced(1)
    return Outcome(
        seconds=np.array([s.seconds if s.combined else np.inf for s in steps]),
        residual=np.array([s.residual for s in steps]),
        messages=np.array([len(s.heard) for s in steps]),
        work=np.array([float(s.work) for s in steps]),
        busy=np.array([s.busy for s in steps]),
    )
