"""Clusters on real processes: a worker turns slow, and stays so for some steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codedgrad.delays import Chain, ShiftedExponential, Sticky, draw
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

if TYPE_CHECKING:
    from codedgrad.torch.pictures import Pictures
    from codedgrad.torch.rehearsal import Trial

PART = 0.03  # seconds of sleep at the uncoded load
LAW = Chain(
    ShiftedExponential(floor=PART, mean=0.1 * PART),
    Sticky(factor=8, enter=0.03, leave=0.1),
)
"""Eight times as slow for ten steps on average."""

_SCHEMES = {
    "GC": "cyclic(1)",
    "GC-SC, 2 clusters": "clustered(2, 1)",
    "GC-DC, 2 clusters": "dynamic(2, 1)",
    "fractional repetition": "fractional(1)",
    "GC-DC, 4 clusters": "dynamic(4, 1)",
}


def live(effort: Effort, data: Pictures | None = None) -> Exhibit:
    """Return accuracy against seconds, with clusters of all kinds."""
    steps = effort.some(200, 60)
    times = draw(LAW, steps=steps, workers=WORKERS, seed=effort.seed)
    race = Race(_SCHEMES, pictures_here() if data is None else data, times, effort)
    trials = race.run()
    return Exhibit(
        "live",
        "Accuracy against measured seconds, on real processes",
        f"{race}. Put in on purpose: {LAW}. Stop rule decodable; late workers finish "
        "the part in hand; who is slow is learnt, from one draw of spells for all. 4 "
        "clusters of 2 are the finest.",
        "nothing on real machines: its results are simulated.",
        "all of it. Every scheme has the exact gradient, so that accuracy is a matter "
        "of how long a step takes.",
        (
            _against(trials, "GC-DC, 2 clusters", "GC-SC, 2 clusters"),
            _against(trials, "GC-DC, 4 clusters", "fractional repetition"),
            equal_steps(trials),
        ),
        table(trials, race.data.goal, horizon(trials.values())),
        (panel("pictures of all classes at every worker", trials),),
        has_curves=True,
    )


def _against(trials: dict[str, Trial], moving: str, static: str) -> str:
    ratio = trials[moving].seconds.mean() / trials[static].seconds.mean()
    verb = "is faster than" if ratio < 1 else "is not faster than"
    return f"{moving} {verb} {static}: {ratio:.2f} of its mean step."
