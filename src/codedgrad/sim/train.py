"""Training in virtual time: real gradients, simulated seconds.

What a scheme does to a training run, without a cluster: the gradients, the coded sums
and the decoding are real, the clock is not. So loss can be drawn against seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codedgrad.core import Combine, Scheme, Send, Task
from codedgrad.delays import Delays, draw
from codedgrad.jobs import (
    Descent,
    Floats,
    Gradient,
    NumpyJob,
    Training,
    Update,
    WorkerJob,
)
from codedgrad.sim.driver import Simulator, Step, Watch
from codedgrad.sim.machine import Machine
from codedgrad.sim.oracle import told


def train(
    gradient: Gradient,
    parameters: Floats,
    scheme: Scheme,
    delays: Delays,
    *,
    steps: int,
    rate: float = 0.1,
    update: Update | None = None,
    evaluate: Callable[[Floats], float] | None = None,
    seed: int = 0,
    machine: Machine | None = None,
    watch: Watch | None = None,
    samples: float | None = None,
) -> Training[Step]:
    r"""Train by gradient descent, with every step's sum got as the scheme gets it.

    The gradient used is the decoded sum divided by the decoded number of samples. A
    step that is given up leaves the parameters as they are.

    Args:
        gradient: Of one part; called once a part and step, whoever computes it.
        parameters: To start from, shape (d,); not changed.
        scheme: Who computes what, and when it is enough.
        delays: How long workers take.
        steps: How many.
        rate: Step size, unless `update` is given.
        update: What to do with a gradient.
        evaluate: Scores the parameters after every step, such as by test accuracy; it
            takes no virtual time.
        seed: Of the delays; the same seed gives the same delays for every scheme.
        machine: What the simulated engine can do.
        watch: Told every event and the commands it led to.
        samples: Of a whole step; divide by them rather than by the decoded number,
            which keeps a sum unbiased that is so; None: by the decoded number.

    Example:
        >>> from codedgrad.delays import ShiftedExponential
        >>> from codedgrad.schemes import fractional
        >>> def gradient(x, part, step):  # of (x - part)^2 / 2: the best x is 1.5
        ...     return float((x[0] - part) ** 2 / 2), 1.0, x - part
        >>> run = train(gradient, np.zeros(1), fractional(4, tolerance=1),
        ...             ShiftedExponential(mean=1.0), steps=100)
        >>> run.parameters.round(3)
        array([1.5])
    """
    machine = machine or Machine()
    times = draw(delays, steps=steps, workers=scheme.workers, seed=seed)
    descent = Descent(parameters, steps, rate, update, evaluate, samples=samples)
    carried = _Sums(NumpyJob(gradient, len(descent.parameters)), descent.parameters)
    simulator = Simulator(
        told(scheme, times),
        capabilities=machine.capabilities,
        patience=machine.patience(times, scheme),
        latency=machine.latency,
        network=machine.network,
        watch=watch,
        payload=carried,
    )
    ended = []
    for step in simulator.run(times):
        ended.append(step)
        descent.take(carried.total if step.combined else None, simulator.now)
        carried.renew(descent.step, descent.parameters)
    return descent.training(ended)


class _Sums:
    """The arrays of a step: running sums at the workers, messages at the root."""

    def __init__(self, job: WorkerJob, parameters: Floats) -> None:
        self._job = job
        self.total = np.zeros(job.layout.message)
        self.renew(0, parameters)

    def renew(self, step: int, parameters: Floats) -> None:
        """Begin a step."""
        self._step = step
        self._parameters = parameters
        self._known: dict[int, Floats] = {}  # parts computed, by anybody
        self._sums: dict[tuple[int, int], Floats] = {}  # (worker, segment)
        self._sent: dict[int, tuple[int, Floats]] = {}  # message: lowest part, sum
        self._lowest: dict[tuple[int, int], int] = {}

    def merge(self, worker: int, task: Task) -> None:
        """Add a part to its segment's sum."""
        if task.step != self._step:
            return
        key = worker, task.segment
        added = task.coefficient * self._part(task.part)
        self._sums[key] = self._sums[key] + added if key in self._sums else added
        self._lowest[key] = min(task.part, self._lowest.get(key, task.part))

    def _part(self, part: int) -> Floats:
        if part not in self._known:
            known = np.empty_like(self.total)
            self._job.part(self._parameters, part, self._step, 1.0, known)
            self._known[part] = known
        return self._known[part]

    def send(self, worker: int, send: Send) -> None:
        """Take the sum of a message as it is now."""
        if send.step != self._step:
            return
        keys = [(worker, segment) for segment, done in send.cuts if done > 0]
        sum_ = sum((self._sums[key] for key in keys), np.zeros_like(self.total))
        for message, weight in send.gathered:
            sum_ = sum_ + weight * self._sent[message][1]
        lowest = min((self._lowest[key] for key in keys), default=0)
        self._sent[send.message] = lowest, sum_

    def drop(self, worker: int) -> None:
        """Forget the sums of a worker."""
        for key in [key for key in self._sums if key[0] == worker]:
            del self._sums[key]

    def combine(self, combine: Combine) -> None:
        """Add up the messages, in the order of their lowest part."""
        used = sorted((self._sent[m][0], m, a) for m, a in combine.weights)
        self.total = np.zeros_like(self.total)
        if used:
            rows = np.stack([self._sent[message][1] for _, message, _ in used])
            self.total = np.array([a for _, _, a in used]) @ rows

    def compare(self, messages: Sequence[int]) -> tuple[tuple[int, int, float], ...]:
        """Return (one, other, inner product of their gradients) of all pairs."""
        ordered, size = sorted(messages), self._job.layout.gradient
        rows = np.stack([self._sent[message][1][:size] for message in ordered])
        with np.errstate(over="ignore", invalid="ignore"):
            table = rows @ rows.T
        return tuple(
            (one, other, float(table[i, i + j]))
            for i, one in enumerate(ordered)
            for j, other in enumerate(ordered[i:])
        )
