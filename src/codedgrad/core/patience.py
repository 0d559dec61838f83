"""How long a step may stay open at most, derived from recent steps.

Nobody is asked for a time-out. The deadline is generous, because giving up loses a
step and waiting loses only time; it is there so that every step ends. It is half an
hour at least, as in gloo: compiling a model again for a shorter batch takes half a
minute even for a toy.

When a plan looks again, or asks another worker, is another matter, and has a time scale
of its own: a longer patience makes no plan slower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codedgrad.errors import InvalidOptions

if TYPE_CHECKING:
    from codedgrad.core.history import History

_SCALE_OF_STEP = 10.0  # times the longest recent step: the time scale of plans
_FIRST_SCALE = 600.0  # seconds: at least, in a first step, which may compile


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a step is given up, and on what time scale its plan looks again.

    Attributes:
        seconds: From the start of the step until it is given up.
        reason: Why so many.
        scale: Seconds of which plans take small fractions where they know nothing
            better: until they look again, or ask another worker. It follows recent
            steps and not `seconds`, and is never longer than that; 0: as long.
    """

    seconds: float
    reason: str
    scale: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < self.seconds:
            object.__setattr__(self, "scale", self.seconds)

    def __str__(self) -> str:
        long = self.seconds >= 100
        text = f"{self.seconds:.0f}" if long else f"{self.seconds:.3g}"
        return f"{text} s ({self.reason})"


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits `factor` times the longest of the recent steps, and at least `least`.

    After a step that was given up it waits longer, up to `factor` times as long: the
    workers may have become slow, and what is never waited for is never learnt.

    Attributes:
        least: Seconds; half an hour by default.
        factor: Times the longest of the steps remembered.
        first: Seconds for a first step, of which nothing is known; not below `least`.
        scale: Seconds of the time scale on which plans look again, at least; see
            `Deadline.scale`. A simulation in which nobody is to be called silent makes
            it longer.

    Example:
        >>> from codedgrad.core.history import History
        >>> Patience().deadline(History(workers=4))
        Deadline(seconds=1800.0, reason='no step has ended yet', scale=600.0)
    """

    least: float = 1800.0
    factor: float = 10.0
    first: float = 1800.0
    scale: float = 60.0

    def __post_init__(self) -> None:
        for name in ("least", "factor", "first", "scale"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                problem = f"{name} is {value}"
                raise InvalidOptions("patience", problem, "a number greater than 0")

    def deadline(self, history: History) -> Deadline:
        """Return the deadline of the next step."""
        longest = max(history.durations, default=0.0)
        usual = _SCALE_OF_STEP * longest if history.durations else _FIRST_SCALE
        seconds, reason = self._usual(history)
        longer = min(2 * history.given_up, self.factor * seconds)
        if longer > seconds:
            seconds, reason = longer, "twice the step before, which was given up"
        return Deadline(seconds, reason, max(self.scale, usual))

    def _usual(self, history: History) -> tuple[float, str]:
        recent = history.durations
        if not recent:
            return max(self.first, self.least), "no step has ended yet"
        longest = max(recent)
        if self.factor * longest <= self.least:
            reason = f"the least allowed; the longest recent step took {longest:.3g} s"
            return self.least, reason
        reason = f"{self.factor:g} x the longest recent step, {longest:.3g} s"
        return self.factor * longest, reason
