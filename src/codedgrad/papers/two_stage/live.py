"""Two stages on real processes: now and then a worker is slow for a whole step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from codedgrad.papers.paper import Effort, Exhibit
from codedgrad.papers.racing import (
    WORKERS,
    Race,
    equal_steps,
    horizon,
    panel,
    pictures_here,
    table,
)
from codedgrad.papers.two_stage.lab import ABSTRACT, over
from codedgrad.sim.arrays.two_stage import Straggling, redrawn

if TYPE_CHECKING:
    from codedgrad.torch.pictures import Pictures
    from codedgrad.torch.rehearsal import Trial

PARTS = 2 * WORKERS
UNIT = 0.04  # seconds of sleep for a part
WINDOW = 0.16  # seconds: the list of the slowest, and half as much again
STRAGGLING = Straggling(
    tuple((UNIT * np.linspace(0.8, 1.2, WORKERS)).tolist()), excess=0.2, factor=8.0
)
"""Seconds that a part takes longer; one worker in ten straggles in a step."""

_FRACTIONAL, _GIVEN, _PLANNED = (
    "fractional, s = 1",
    "two stages, given",
    "two stages, planned",
)
_SCHEMES = {
    "uncoded": "uncoded(pieces=2)",
    _FRACTIONAL: "fractional(1, pieces=2)",
    "two stages, fresh": f"two_stage(6, {1.5 * WINDOW:g}, 1, reuse=False, copies=all)",
    _GIVEN: f"two_stage({WORKERS}, {WINDOW:g}, 1, copies=all)",
    _PLANNED: "two_stage",
}


def live(effort: Effort, data: Pictures | None = None) -> Exhibit:
    """Return accuracy against seconds, with one stage and with two."""
    steps = effort.some(200, 50)
    rng = np.random.default_rng(effort.seed)
    times = redrawn(STRAGGLING.draw(rng, steps), None, PARTS)
    race = Race(_SCHEMES, pictures_here() if data is None else data, times, effort)
    trials = race.run()
    return Exhibit(
        "live",
        "Accuracy against measured seconds, on real processes",
        f"{race}. Put in on purpose: a part takes {UNIT:g} a_i (1 + Exp(0.2)) s more, "
        "a_i from 0.8 to 1.2, 8 times that with probability 0.1 in a step; slowness "
        f"lasts to its end. Given: {WORKERS} start, T1 = {WINDOW:g} s, s = 1; fresh: "
        "6 start; planned: from past steps, 4 copies of a part. Rule decodable; late "
        "workers sleep to the end of the part in hand.",
        "better accuracy than others, with practical network parameters and benchmark "
        f"data sets (MNIST and CIFAR, from memory). {ABSTRACT}",
        "all of it. Every scheme has the exact gradient, so that accuracy is a matter "
        "of how long a step takes.",
        (
            _against(trials, _GIVEN, _FRACTIONAL),
            _against(trials, _GIVEN, "uncoded"),
            _against(trials, _PLANNED, _GIVEN),
            equal_steps(trials),
        ),
        table(trials, race.data.goal, horizon(trials.values())),
        (panel("pictures of all classes at every worker", trials),),
        has_curves=True,
    )


def _against(trials: dict[str, Trial], one: str, other: str) -> str:
    ratio = over(trials[one].seconds, trials[other].seconds)
    verb = "is faster than" if ratio.is_below(1.0) else "cannot be told from"
    if ratio.is_above(1.0):
        verb = "is slower than"
    return f"{one} {verb} {other}: {ratio} of its mean step."
