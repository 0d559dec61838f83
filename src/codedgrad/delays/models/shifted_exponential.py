"""A floor plus an exponential excess: the law most papers assume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedgrad.delays.arguments import seconds, settle, shape
from codedgrad.delays.times import Times, Truth


@dataclass(frozen=True, slots=True)
class ShiftedExponential:
    r"""A floor and an exponential excess, apart for the two shares of the time.

    $T = F + \ell \, (t_0 + \tau E)$ and $F = f_0 + \varphi E'$ for $\ell$ times the
    uncoded load, with $E$ and $E'$ exponential of mean 1, independent over steps and
    workers. The law $T = r(\alpha + E / \mu)$ of the GC-DC papers has
    `floor` $\alpha$ and `mean` $1 / \mu$.

    $E$ is drawn first, as one matrix; $E'$ after it, only if $\varphi > 0$.

    Attributes:
        floor: $t_0$ in seconds, for the uncoded load.
        mean: $\tau$ in seconds, the mean excess over the floor.
        fixed_floor: $f_0$ in seconds, whatever the load.
        fixed_mean: $\varphi$ in seconds.

    Example:
        >>> law = ShiftedExponential(floor=1.0, mean=0.2)
        >>> print(law)
        shifted exponential: floor 1 s, mean excess 0.2 s
        >>> times = law.sample(np.random.default_rng(0), steps=2, workers=3)
        >>> times.unit.round(2)
        array([[1.14, 1.2 , 1.  ],
               [1.  , 1.11, 1.33]])
    """

    kind: ClassVar[str] = "shifted-exponential"

    floor: float = 1.0
    mean: float = 0.0
    fixed_floor: float = 0.0
    fixed_mean: float = 0.0

    def __post_init__(self) -> None:
        for name in ("floor", "mean", "fixed_floor", "fixed_mean"):
            settle(self, **{name: seconds(self.kind, name, getattr(self, name))})

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        """Draw times."""
        size = shape(self.kind, steps, workers)
        unit = self.floor + self.mean * rng.standard_exponential(size)
        fixed = np.full(size, self.fixed_floor)
        if self.fixed_mean > 0:
            fixed += self.fixed_mean * rng.standard_exponential(size)
        typical = np.broadcast_to(self.typical, size)
        calm = np.broadcast_to(np.bool_(False), size)
        return Times(fixed, unit, Truth(calm, typical))

    @property
    def typical(self) -> float:
        """Mean seconds for the uncoded load."""
        return self.floor + self.mean + self.fixed_floor + self.fixed_mean

    @property
    def terms(self) -> str:
        """Its numbers with their units, those that are 0 left out."""
        text = f"floor {self.floor:g} s"
        if self.mean > 0:
            text += f", mean excess {self.mean:g} s"
        if self.fixed_floor > 0 or self.fixed_mean > 0:
            text += f", whatever the load {self.fixed_floor:g} s"
        if self.fixed_mean > 0:
            text += f" and mean excess {self.fixed_mean:g} s"
        return text

    def __str__(self) -> str:
        return f"shifted exponential: {self.terms}"
