"""How long a step may stay open at most, derived from recent steps.

Nobody is asked for a time-out. The deadline is generous, because giving up loses a
step and waiting loses only time; it is there so that every step ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codedgrad.errors import InvalidScenario

if TYPE_CHECKING:
    from codedgrad.core.history import History

__all__ = ["Deadline", "Patience"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds from the start of a step after which it is given up, and the reason."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits `factor` times the longest of the recent steps, and at least `least`.

    After a step that was given up it waits longer, up to `factor` times as long: the
    workers may have become slow, and what is never waited for is never learnt.

    Attributes:
        least: Seconds, 60 by default.
        factor: Times the longest of the steps remembered.
        first: Seconds for a first step, of which nothing is known.

    Example:
        >>> from codedgrad.core.history import History
        >>> Patience().deadline(History(workers=4))
        Deadline(seconds=600.0, reason='no step has ended yet')
    """

    least: float = 60.0
    factor: float = 10.0
    first: float = 600.0

    def __post_init__(self) -> None:
        for name in ("least", "factor", "first"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                problem = f"{name} is {value}"
                raise InvalidScenario("patience", problem, "a number greater than 0")

    def deadline(self, history: History) -> Deadline:
        """Return the deadline of the next step."""
        usual = self._usual(history)
        longer = min(2 * history.given_up, self.factor * usual.seconds)
        if longer > usual.seconds:
            return Deadline(longer, "twice the step before, which was given up")
        return usual

    def _usual(self, history: History) -> Deadline:
        recent = history.durations
        if not recent:
            first = max(self.first, self.least)
            return Deadline(first, "no step has ended yet")
        longest = max(recent)
        if self.factor * longest <= self.least:
            reason = f"the least allowed; the longest recent step took {longest:.3g} s"
            return Deadline(self.least, reason)
        reason = f"{self.factor:g} x the longest recent step, {longest:.3g} s"
        return Deadline(self.factor * longest, reason)
