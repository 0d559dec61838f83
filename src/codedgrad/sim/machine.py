"""The engine that a simulation plays: what it can do, and how fast it talks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedgrad.core import Capabilities, Patience, Scheme
from codedgrad.delays import Times
from codedgrad.delays.arguments import LONGEST
from codedgrad.errors import InvalidScenario
from codedgrad.network import Network

_WAITS = 20.0  # times the longest time drawn: only the dead are given up


@dataclass(frozen=True, slots=True)
class Machine:
    """An engine to be simulated.

    Attributes:
        drain: A late worker finishes the part in hand before it takes up the next
            step, as most real ones do. False: it stops at once (ideal cancelling),
            which papers assume, and which gives shorter steps.
        progress: Workers report every part.
        latency: Seconds an order takes to its worker, and a report back.
        network: What messages go through; None: they are there after the latency.
    """

    drain: bool = True
    progress: bool = True
    latency: float = 0.0
    network: Network | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.latency <= LONGEST:
            advice = f"seconds from 0 to {LONGEST:.7g}"
            raise InvalidScenario("latency", f"is {self.latency} s", advice)

    @property
    def capabilities(self) -> Capabilities:
        """What its engine would state."""
        return Capabilities(progress=self.progress, interrupts_part=not self.drain)

    @property
    def is_ideal(self) -> bool:
        """Whether the fast path plays it: no draining, no latency, no network."""
        return not self.drain and self.latency == 0.0 and self.network is None

    def patience(self, times: Times, scheme: Scheme) -> Patience:
        """Return a patience that outlasts every worker alive in `times`, and a budget.

        Its plans look again on the same scale: nobody who is alive is called silent.
        """
        load = max(map(len, scheme.placement))
        seconds = times.fixed + load * times.part(scheme.parts)
        alive = seconds[np.isfinite(seconds)]
        longest = float(alive.max()) if alive.size else 0.0
        if math.isfinite(scheme.traits.budget):
            longest = max(longest, scheme.traits.budget)
        travel = 2 * self.latency
        if self.network is not None:
            travel += self.network.longest(scheme.workers)
        least = max(60.0, _WAITS * (longest + travel))
        return Patience(least=least, first=least, scale=least)
