"""Drawing the times of a run, the same whoever plays them."""

from __future__ import annotations

import numpy as np

from codedgrad.delays.times import Delays, Times

__all__ = ["draw"]


def draw(delays: Delays, *, steps: int, workers: int, seed: int, run: int = 0) -> Times:
    """Draw the times of a run: the same for every scheme, simulated or rehearsed."""
    child = np.random.SeedSequence(seed, spawn_key=(run,))
    return delays.sample(np.random.default_rng(child), steps, workers)
