"""Reliability on real processes: two of eight workers are hardly ever in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from codedgrad.delays import Times
from codedgrad.papers.paper import Effort, Exhibit, Table
from codedgrad.papers.racing import (
    WORKERS,
    Race,
    by_class,
    horizon,
    panel,
    pictures_here,
    score_at,
    table,
)

if TYPE_CHECKING:
    from codedgrad.torch.pictures import Pictures
    from codedgrad.torch.rehearsal import Trial

UNIT = 0.08  # seconds of sleep at the uncoded load
STRAGGLE = (0.02, 0.02, 0.05, 0.05, 0.1, 0.1, 0.95, 0.95)
HOLD_UP = 1.0  # seconds that a worker which is late takes longer

_SCHEMES = {
    "ignore: first 4 answers": "ignore(count=4)",
    "ignore: answers in 0.18 s": "ignore(budget=0.18)",
    "interval: first 4 answers": "heterogeneous(count=4, pieces=4)",
    "interval: answers in 0.24 s": "heterogeneous(budget=0.24, pieces=4)",
}


def held_up(steps: int, seed: int) -> Times:
    """Return times in which some workers are late more often than others."""
    drawn = np.random.default_rng(seed).random((steps, len(STRAGGLE)))
    fixed = np.where(drawn < np.array(STRAGGLE), HOLD_UP, 0.0)
    return Times(fixed=fixed, unit=np.full_like(fixed, UNIT))


def live(effort: Effort, data: Pictures | None = None) -> Exhibit:
    """Return accuracy against seconds, with unreliable workers."""
    times = held_up(effort.some(200, 60), effort.seed)
    data = pictures_here() if data is None else data
    own = by_class(data, WORKERS, effort.seed)
    races = {
        "own": Race(_SCHEMES, own, times, effort, shuffle=False, share=0.5),
        "some of each": Race(_SCHEMES, data, times, effort, share=0.5),
    }
    found = {who: race.run() for who, race in races.items()}
    headings = {
        "own": "each worker has classes of its own",
        "some of each": "every worker has some of each class",
    }
    return Exhibit(
        "live",
        "Accuracy against measured seconds, two workers hardly ever in time",
        f"{races['own']}. Put in on purpose: {UNIT:g} s a part at the uncoded load, "
        f"and {HOLD_UP:g} s more with probability {', '.join(map(str, STRAGGLE))} by "
        "worker; reliabilities are learnt. Ignore: answers are scaled up.",
        "no samples are lost of workers that are often late; training is near GD.",
        "all of it but the idea: the allocation interval, its cap, what is learnt; and "
        "delays that are long against what the machine itself takes: with half of them "
        "and 40 steps, one run found ignoring slightly ahead.",
        tuple(_verdict(headings[who], trials) for who, trials in found.items()),
        _tables(found, data.goal),
        tuple(panel(headings[who], trials) for who, trials in found.items()),
        has_curves=True,
    )


def _tables(found: dict[str, dict[str, Trial]], goal: float) -> Table:
    """Return one table; all are compared after the same seconds."""
    end = min(horizon(trials.values()) for trials in found.values())
    labelled = {
        f"{who}, {label}": trial
        for who, trials in found.items()
        for label, trial in trials.items()
    }
    return table(labelled, goal, end)


def _verdict(heading: str, trials: dict[str, Trial]) -> str:
    end = horizon(trials.values())
    score = {label: 100 * score_at(trial, end) for label, trial in trials.items()}
    ours = max(s for label, s in score.items() if label.startswith("interval"))
    others = max(s for label, s in score.items() if label.startswith("ignore"))
    verdict = "the code pays" if ours > others else "the code does not pay"
    return (
        f"where {heading}, {verdict}: after {end:.1f} s the best of it is at "
        f"{ours:.1f} %, the best of ignoring at {others:.1f} %."
    )
