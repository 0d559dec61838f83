"""Gradient descent at the root: sums in, parameters out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from codedgrad.errors import InvalidJob, InvalidOptions
from codedgrad.jobs.arrays import REAL, Floats, Gradient, NumpyJob
from codedgrad.jobs.job import DTYPES

Update: TypeAlias = Callable[[Floats, Floats, int], Floats]
"""update(parameters, mean gradient, step) -> parameters."""

S = TypeVar("S")


@dataclass(frozen=True, slots=True, eq=False)
class Training(Generic[S]):
    """A training run.

    Attributes:
        parameters: After the last step.
        seconds: Since the start, at the end of every step, (steps,). Virtual seconds in
            a simulation.
        loss: Mean loss at the start of every step as decoded, (steps,); NaN where the
            step was given up, or nothing was heard in it.
        score: What `evaluate` said after every step, (steps,); NaN without it.
        steps: How every step went, as told by whoever drove it.
    """

    parameters: Floats
    seconds: Floats
    loss: Floats
    score: Floats
    steps: tuple[S, ...]

    def seconds_to(self, score: float) -> float:
        """Return the seconds until a score was first reached; inf if never."""
        reached = np.flatnonzero(self.score >= score)
        return float(self.seconds[reached[0]]) if reached.size else float("inf")


class Descent:
    """Holds the parameters, and what became of them step by step.

    Args:
        parameters: To start from, shape (d,); not changed.
        steps: How many at most.
        rate: Step size, unless `update` is given.
        update: What to do with a mean gradient.
        evaluate: Scores the parameters after every step.
        dtype: Of the parameters, float32 or float64.
        samples: Of a whole step; divide by them rather than by the decoded number,
            which keeps a sum unbiased that is so; None: by the decoded number.

    Attributes:
        parameters: As they are now, (d,).
        step: The number of the next step; so many have been taken.

    Example:
        >>> descent = Descent(np.zeros(1), steps=9, rate=0.5)
        >>> descent.take(np.array([-12.0, 18.0, 4.0]), 0.25)  # gradient, loss, samples
        >>> descent.take(None, 0.75)  # given up
        >>> run = descent.training()
        >>> run.parameters, run.loss, run.seconds
        (array([1.5]), array([4.5, nan]), array([0.25, 0.75]))
    """

    def __init__(
        self,
        parameters: Floats,
        steps: int,
        rate: float = 0.1,
        update: Update | None = None,
        evaluate: Callable[[Floats], float] | None = None,
        dtype: str = "float64",
        samples: float | None = None,
    ) -> None:
        if steps < 0:
            raise InvalidOptions("steps", f"is {steps}", "0 or more")
        if samples is not None and not 0 < samples < np.inf:
            raise InvalidOptions("samples", f"are {samples}", "a number above 0")
        if dtype not in DTYPES:
            raise InvalidOptions("dtype", f"is {dtype!r}", " or ".join(DTYPES))
        if np.asarray(parameters).dtype.kind not in REAL:
            problem = f"are of type {np.asarray(parameters).dtype}"
            raise InvalidJob("parameters", problem, "real numbers")
        self.parameters: NDArray[Any] = np.array(parameters, dtype=dtype)
        if self.parameters.ndim != 1:
            problem = f"has shape {self.parameters.shape}"
            raise InvalidJob("parameters", problem, "one flat array")
        self.step = 0
        self._rate = rate
        self._update = update
        self._evaluate = evaluate
        self._samples = samples
        self._seconds, self._loss, self._score = np.full((3, steps), np.nan)

    def take(self, total: NDArray[Any] | None, seconds: float) -> None:
        """Take a step.

        Args:
            total: Decoded sums of gradients (d,), of losses and of samples, and more
                behind them or not; None if the step was given up. It is only read.
            seconds: Since the start.
        """
        if total is not None:
            self._descend(total)
        self._seconds[self.step] = seconds
        if self._evaluate is not None:
            self._score[self.step] = self._evaluate(self.parameters)
        self.step += 1

    def _descend(self, total: NDArray[Any]) -> None:
        d = len(self.parameters)
        samples = total[d + 1] if total[d + 1] != 0 else 1.0
        if total[d + 1] != 0:
            self._loss[self.step] = total[d] / samples
        divisor = samples if self._samples is None else self._samples
        mean, x = total[:d] / divisor, self.parameters
        if self._update is None:
            self.parameters = self._like(x - self._rate * mean)
        else:
            self.parameters = self._like(self._update(x, mean, self.step))

    def _like(self, given: Any) -> NDArray[Any]:
        array, wanted = np.asarray(given), self.parameters
        if array.shape == wanted.shape and array.dtype.kind in REAL:
            return array.astype(wanted.dtype, copy=False)
        problem = f"has shape {array.shape}, the parameters {wanted.shape}"
        if array.dtype.kind not in REAL:
            problem = "is no array of real numbers"
        raise InvalidJob("the update", problem, "an array as long as the parameters")

    def training(self, records: Iterable[S] = ()) -> Training[S]:
        """Return the run so far, with the records of its steps."""
        seconds, loss, score = (
            array[: self.step].copy()
            for array in (self._seconds, self._loss, self._score)
        )
        return Training(self.parameters.copy(), seconds, loss, score, tuple(records))


def single_process(
    gradient: Gradient,
    parameters: Floats,
    parts: int,
    *,
    steps: int,
    rate: float = 0.1,
    update: Update | None = None,
    evaluate: Callable[[Floats], float] | None = None,
) -> Training[None]:
    """Train in this process, over the same parts: what coded training should equal.

    The parts are added up in ascending order, as one worker with all of them would.
    Its `seconds` are real ones; it has nothing to report of its steps.

    Args:
        gradient: Of one part.
        parameters: To start from, shape (d,); not changed.
        parts: How many there are, `scheme.parts`.
        steps: How many.
        rate: Step size, unless `update` is given.
        update: What to do with a mean gradient.
        evaluate: Scores the parameters after every step.

    Example:
        >>> def gradient(x, part, step):  # of (x - part)^2 / 2: the best x is 1.5
        ...     return float((x[0] - part) ** 2 / 2), 1.0, x - part
        >>> single_process(gradient, np.zeros(1), 4, steps=100).parameters.round(3)
        array([1.5])
    """
    for name, given in (("parts", parts), ("steps", steps)):
        if given < 1:
            raise InvalidOptions(name, f"{given} is too few", "1 or more")
    descent = Descent(parameters, steps, rate, update, evaluate)
    job = NumpyJob(gradient, len(descent.parameters))
    total, scratch = np.empty((2, job.layout.message))
    start = perf_counter()
    for step in range(steps):
        x = descent.parameters.view()
        x.flags.writeable = False
        job.part(x, 0, step, 1.0, total)
        for part in range(1, parts):
            job.part(x, part, step, 1.0, scratch)
            total += scratch
        descent.take(total, perf_counter() - start)
    return descent.training()
