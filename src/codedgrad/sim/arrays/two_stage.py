r"""Two stages in arrays: what the events give, for many steps at once.

The model of `schemes.two_stage.model` on drawn times, for schemes that it knows: where
everybody holds everything, nothing is planned from history, those of the lowest numbers
start, late workers count when all are in, and a cyclic code counts its answers. Sample
by sample it equals the event-driven simulator, where no worker dies or is silent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedgrad.delays import Times
from codedgrad.delays.times import Floats
from codedgrad.errors import InvalidScenario
from codedgrad.schemes import TwoStage
from codedgrad.schemes.two_stage.model import Staged, staged


@dataclass(frozen=True, slots=True)
class Straggling:
    r"""Seconds a part takes: $c_i = a_i (1 + X)$, many times that now and then.

    $X$ is exponential, drawn anew for every worker and step; so is who straggles.

    Attributes:
        floors: $a_i$, the least seconds of every worker.
        excess: The mean of $X$.
        probability: To straggle, in a step.
        factor: How many times as long that takes.

    Example:
        >>> law = Straggling.between(0.8, 1.2, workers=12, probability=0.1)
        >>> law.draw(np.random.default_rng(7), steps=3000).shape
        (3000, 12)
    """

    floors: tuple[float, ...]
    excess: float = 0.2
    probability: float = 0.1
    factor: float = 8.0

    @classmethod
    def between(
        cls, low: float, high: float, workers: int, probability: float = 0.1
    ) -> Straggling:
        """Return a law with floors evenly spaced from `low` to `high`."""
        floors = np.linspace(low, high, workers).tolist()
        return cls(tuple(floors), probability=probability)

    def draw(self, rng: np.random.Generator, steps: int) -> Floats:
        """Draw the seconds of every worker in every step, (steps, workers)."""
        shape = steps, len(self.floors)
        pace = np.array(self.floors) * (1.0 + rng.exponential(self.excess, shape))
        slow = rng.random(shape) < self.probability
        return np.asarray(pace * np.where(slow, self.factor, 1.0))


def redrawn(first: Floats, second: Floats | None, parts: int) -> Times:
    """Return times by which parts take so long, and again so long in stage 2.

    Args:
        first: Seconds a part takes, (steps, workers).
        second: The same for what is asked for later; None: the same.
        parts: Of a step.
    """
    scale, none = parts / first.shape[1], np.zeros(first.shape)
    again = None if second is None else Times(none, second * scale)
    return Times(none, first * scale, again=again)


def has_model(scheme: TwoStage) -> bool:
    """Whether a scheme goes as the model does."""
    planner = scheme.planner
    by_number = planner.by_number or planner.first == scheme.workers
    by_count = planner.code != "cyclic" or scheme.staging.counts
    return (
        planner.is_fixed
        and by_number
        and by_count
        and scheme.copies == scheme.workers
        and scheme.rest == "whole"
        and scheme.checkpoints == 1
        and scheme.helpers is None
        and math.isinf(scheme.rule.budget)
    )


def two_stage_model(scheme: TwoStage, times: Times) -> Staged:
    """Return how every step goes.

    Args:
        scheme: One that the model knows.
        times: One row a step; nobody dies, and nothing is paid before the first part.

    Example:
        >>> from codedgrad.schemes import two_stage
        >>> scheme = two_stage(4, 4, 2.5, 1, copies="all", rest="whole")
        >>> pace = np.array([[1.0, 1.1, 1.0, 5.0]])
        >>> two_stage_model(scheme, redrawn(pace, None, parts=8)).seconds
        array([4.5])
    """
    planner = scheme.planner
    if not has_model(scheme):
        problem = f"{scheme.name} does not go as the model of two stages does"
        advice = "first, window and tolerance, copies=all, rest=whole, start=numbered"
        raise InvalidScenario("scheme", problem, f"{advice}, rule=threshold")
    if times.fixed.any() or not np.all(np.isfinite(times.unit)):
        problem = "have a worker that dies, or pays before its first part"
        raise InvalidScenario(
            "times", problem, "finite ones, in proportion to the load"
        )
    assert planner.first is not None  # it is fixed, and so is the rest
    assert planner.window is not None
    assert planner.tolerance is not None
    again = times if times.again is None else times.again
    return staged(
        times.part(scheme.parts),
        again.part(scheme.parts),
        scheme.parts,
        range(planner.first),
        planner.window,
        planner.tolerance,
        reuse=planner.reuse,
        code=planner.code,
    )
