"""Training in virtual time: real gradients, simulated seconds.

What a scheme does to a training run, without a cluster: the gradients, the coded sums
and the decoding are real, the clock is not. So loss can be drawn against seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.core import Combine, Scheme, Send, Task
from codedgrad.delays import Delays
from codedgrad.errors import InvalidScenario
from codedgrad.sim.driver import Simulator, Step, Watch
from codedgrad.sim.machine import Machine
from codedgrad.sim.sweep import draw

__all__ = ["Gradient", "Training", "Update", "train"]

Floats: TypeAlias = NDArray[np.float64]
Gradient: TypeAlias = Callable[[Floats, int, int], tuple[float, float, Floats]]
"""gradient(parameters, part, step) -> (sum of losses, samples, sum of gradients)."""

Update: TypeAlias = Callable[[Floats, Floats, int], Floats]
"""update(parameters, mean gradient, step) -> parameters."""


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A training run in virtual time.

    Attributes:
        parameters: After the last step.
        seconds: Virtual seconds at the end of every step, (steps,).
        loss: Mean loss at the start of every step as decoded, (steps,); NaN where the
            step was given up, or nothing was heard in it.
        score: What `evaluate` said after every step, (steps,); NaN without it.
        steps: How every step went.
    """

    parameters: Floats
    seconds: Floats
    loss: Floats
    score: Floats
    steps: tuple[Step, ...]

    def seconds_to(self, score: float) -> float:
        """Return the virtual seconds until a score was first reached; inf if never."""
        reached = np.flatnonzero(self.score >= score)
        return float(self.seconds[reached[0]]) if reached.size else float("inf")


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
) -> Training:
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
    start = np.array(parameters, dtype=np.float64)
    if start.ndim != 1:
        problem = f"has shape {start.shape}"
        raise InvalidScenario("parameters", problem, "one flat array")
    carried = _Sums(gradient, start)
    simulator = Simulator(
        scheme,
        capabilities=machine.capabilities,
        patience=machine.patience(times, scheme),
        latency=machine.latency,
        watch=watch,
        payload=carried,
    )
    ended, seconds = [], np.empty(steps)
    loss, score = np.full(steps, np.nan), np.full(steps, np.nan)
    for number, step in enumerate(simulator.run(times)):
        ended.append(step)
        seconds[number] = simulator.now
        if step.combined:
            total = carried.total
            samples = total[-1] if total[-1] != 0 else 1.0
            if total[-1] != 0:
                loss[number] = total[-2] / samples
            mean = total[:-2] / samples
            x = carried.parameters
            x = x - rate * mean if update is None else update(x, mean, number)
            carried.parameters = _like(carried.parameters, x, "the update")
        if evaluate is not None:
            score[number] = evaluate(carried.parameters)
        carried.renew(number + 1)
    return Training(carried.parameters, seconds, loss, score, tuple(ended))


def _like(parameters: Floats, given: Floats, what: str) -> Floats:
    array = np.asarray(given, dtype=np.float64)
    if array.shape != parameters.shape:
        problem = f"has shape {array.shape}, the parameters {parameters.shape}"
        raise InvalidScenario(what, problem, "an array as long as the parameters")
    return array


class _Sums:
    """The arrays of a step: running sums at the workers, messages at the root."""

    def __init__(self, gradient: Gradient, parameters: Floats) -> None:
        self._gradient = gradient
        self.parameters = parameters
        self.total = np.zeros(len(parameters) + 2)
        self.renew(0)

    def renew(self, step: int) -> None:
        """Begin a step."""
        self._step = step
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
            loss, count, gradient = self._gradient(self.parameters, part, self._step)
            gradient = _like(self.parameters, gradient, f"the gradient of part {part}")
            self._known[part] = np.concatenate([gradient, [loss, count]])
        return self._known[part]

    def send(self, worker: int, send: Send) -> None:
        """Take the sum of a message as it is now."""
        if send.step != self._step:
            return
        keys = [(worker, segment) for segment, done in send.cuts if done > 0]
        sum_ = sum((self._sums[key] for key in keys), np.zeros_like(self.total))
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
