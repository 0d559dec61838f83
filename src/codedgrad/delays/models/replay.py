"""Times that were recorded, played again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from reprlib import repr as brief
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from codedgrad.delays.arguments import LONGEST, probability, settle, shape
from codedgrad.delays.bundled import located
from codedgrad.delays.matrix import SHORTEST, read_matrix
from codedgrad.delays.times import Floats, Times
from codedgrad.errors import InvalidDelays

ORDERS = ("recorded", "shuffled")


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    r"""Recorded seconds, at the uncoded load, step after step.

    Of $x$ seconds recorded the part $(1 - f) x$ is paid whatever the load and $f x$
    in proportion to it: a recording at one load cannot tell $f$, its owner has to.
    A run needs as many workers as were recorded.

    Attributes:
        seconds: What was recorded, (steps, workers).
        share: $f$, from 0 to 1.
        order: `recorded`: row after row from the first, and round again at the end;
            `shuffled`: rows drawn at random with replacement, which keeps who is slow
            together with whom but forgets the order of the steps.

    Example:
        >>> law = Replay(np.array([[1.0, 2.0], [3.0, 4.0]]), share=0.5)
        >>> law.sample(np.random.default_rng(0), steps=3, workers=2).unit
        array([[0.5, 1. ],
               [1.5, 2. ],
               [0.5, 1. ]])
        >>> print(Replay.read("AR"))
        replay: 44 steps of 4 workers, recorded order, 100 % grows with the load
    """

    kind: ClassVar[str] = "replay"

    seconds: Floats
    share: float = 1.0
    order: str = "recorded"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            problem = f"order = {brief(self.order)} is not known"
            raise InvalidDelays(self.kind, problem, f"order in {list(ORDERS)}")
        share = probability(self.kind, "share", self.share)
        settle(self, seconds=_recorded(self.seconds), share=share)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        share: float = 1.0,
        order: str = "recorded",
    ) -> Replay:
        """Read a recording as `read_matrix` does; `AR` and `SE` come with codedgrad."""
        given: object = path  # a table may hold anything
        if not isinstance(given, str | os.PathLike):
            problem = f"path must be a file name, got {brief(path)}"
            raise InvalidDelays(cls.kind, problem, "a .csv, .npy or .parquet file")
        return cls(read_matrix(located(path)).seconds, share, order)

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Take the next rows, or random ones; only the latter uses `rng`."""
        steps, workers = shape(self.kind, steps, workers)
        rows, columns = self.seconds.shape
        if workers != columns:
            problem = f"{columns} workers were recorded, {workers} are asked for"
            raise InvalidDelays(self.kind, problem, f"workers = {columns}")
        if self.order == "shuffled":
            taken = self.seconds[rng.integers(rows, size=steps)]
        else:
            taken = self.seconds[np.arange(steps) % rows]
        return Times((1.0 - self.share) * taken, self.share * taken)

    def __str__(self) -> str:
        rows, columns = self.seconds.shape
        return (
            f"replay: {rows} steps of {columns} workers, {self.order} order, "
            f"{100 * self.share:.3g} % grows with the load"
        )


def _recorded(given: ArrayLike) -> Floats:
    try:
        seconds = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        problem = f"seconds must be numbers, got {brief(given)}"
        raise InvalidDelays("replay", problem, "a (steps, workers) array") from None
    if seconds.ndim != 2 or seconds.size == 0:
        problem = f"seconds has shape {seconds.shape}"
        raise InvalidDelays("replay", problem, "(steps, workers), at least one each")
    wrong = ~((seconds >= SHORTEST) & (seconds <= LONGEST))
    if wrong.any():
        row, worker = np.argwhere(wrong)[0]
        value = float(seconds[row, worker])
        missing = "without that row, or with dead for a worker that went away"
        raise InvalidDelays(
            "replay",
            f"row {row}, worker {worker}: {value} is not a duration",
            missing
            if np.isnan(value)
            else f"seconds from {SHORTEST:g} to {LONGEST:.7g}",
        )
    seconds.setflags(write=False)
    return seconds
