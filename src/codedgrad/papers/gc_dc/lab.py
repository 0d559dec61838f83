"""Schemes on the same delays, and words that all exhibits share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codedgrad.core import Scheme
from codedgrad.delays import Delays
from codedgrad.papers.gc_dc.settings import (
    AT_ONCE,
    CLUSTERS,
    FAST,
    FLOOR,
    IMPERFECT,
    PERFECT,
    REACH,
    SLOW,
    WORKERS,
    waits,
)
from codedgrad.papers.measuring import Floats, Measured, ratio
from codedgrad.papers.paper import Effort
from codedgrad.schemes import Dynamic, dynamic
from codedgrad.sim import compare

KNOWN = {"GC-DC, perfect": PERFECT, "GC-DC, imperfect": IMPERFECT}
"""What only a simulation can know about the workers."""

BOUND, FINEST = "lower bound", "fractional repetition"
USUAL = f"{WORKERS} workers in {CLUSTERS} clusters, reach {REACH}"
MODEL = (
    f"A part takes {FLOOR:g} s and an exponential excess of {FAST:g} s on average, "
    f"of {SLOW:g} s at slow workers; late workers stop at once."
)
WORDS = (
    "perfect: who is slow now is known; imperfect: who was in the step before; "
    "learnt: by a filter of past times."
)


def moving(r: int, state: str, rule: str = "threshold", **options: Any) -> Dynamic:
    """Return GC-DC in the usual clusters, by cluster, unless said otherwise."""
    usual: dict[str, Any] = {
        "workers": WORKERS,
        "clusters": CLUSTERS,
        "reach": REACH,
        "storage": "cluster",
    }
    return dynamic(tolerance=r - 1, state=state, rule=rule, **(usual | options))


@dataclass(frozen=True, slots=True)
class ClusterLab:
    """Runs schemes on the same delays, and says how far it is.

    Attributes:
        effort: From which seed, and who is told.
        runs: Of schemes with a fast path.
        seen: Of those, runs in which schemes run by events, which take longer.
        steps: Of a run.
        share: Of the exhibit that a call of `seconds` is.
    """

    effort: Effort
    runs: int
    seen: int
    steps: int
    share: float

    def seconds(
        self, schemes: Sequence[Scheme], delays: Delays, runs: int | None = None
    ) -> list[Floats]:
        """Return the seconds of every step of every scheme, (runs, steps)."""
        runs = self.runs if runs is None else runs
        total = runs * self.steps * len(schemes)
        results = compare(
            schemes,
            delays,
            steps=self.steps,
            runs=runs,
            seed=self.effort.seed,
            machine=AT_ONCE,
            advanced=lambda done: self.effort.advance(self.share * done / total),
        )
        return [result.seconds for result in results]

    def ratios(
        self,
        base: Scheme,
        known: dict[str, Scheme],
        seen: dict[str, Scheme],
        delays: Delays,
    ) -> tuple[Floats, dict[str, Measured]]:
        """Return the seconds of a scheme, and the mean step of others over its own.

        Those `seen` run in fewer runs: they are compared with the last one `known` in
        the same runs.
        """
        first, *found = self.seconds([base, *known.values()], delays)
        ratios = {n: ratio(x, first) for n, x in zip(known, found, strict=True)}
        *_, near = ratios.values()
        taken = self.seconds(list(seen.values()), delays, self.seen)
        for name, each in zip(seen, taken, strict=True):
            ratios[name] = ratio(each, found[-1][: self.seen]).times(near)
        return first, ratios

    def bound(self, delays: Delays, r: int) -> Floats:
        """Return the lower bound of the usual clusters, (runs, steps)."""
        return waits(
            delays,
            r,
            WORKERS - CLUSTERS * (r - 1),
            workers=WORKERS,
            steps=self.steps,
            runs=self.runs,
            seed=self.effort.seed,
        )

    def __str__(self) -> str:
        return f"{self.runs} runs of {self.steps} steps, seed {self.effort.seed}"


def largest(found: Sequence[dict[str, Measured]]) -> str:
    """Return how uncertain ratios are, in words."""
    errors = [each.error for of in found for each in of.values()]
    return f"standard errors up to {np.nanmax(errors):.3f} of GC"
