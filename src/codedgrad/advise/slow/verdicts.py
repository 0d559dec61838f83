"""What may be found out about slow workers: kinds, verdicts, where everybody stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from codedgrad.learning.savings import Savings


class Kind(StrEnum):
    """How a worker is slow."""

    ALWAYS = "always slow"
    TURNED = "turned slow"
    SOMETIMES = "sometimes slow"
    ONE_OFF = "one-off"


@dataclass(frozen=True, slots=True)
class Verdict:
    """That a worker is slow, and how.

    Attributes:
        worker: Its number.
        kind: How.
        cause: `compute` or `network`.
        factor: How many times as long as the others it takes, when it is slow.
        is_bound: Whether that is a lower bound: it was mostly not waited for.
        share: Of its steps, those in which it was slow.
        since: The step with which its last slow spell began; the first slow step of a
            worker that is always slow.
        until: The last step in which it was slow.
        lasts: Steps for which it has been slow now; 0 if it is not.
        steps: The slow ones.
    """

    worker: int
    kind: Kind
    cause: str
    factor: float
    is_bound: bool
    share: float
    since: int
    until: int
    lasts: int
    steps: tuple[int, ...]

    @property
    def weight(self) -> float:
        """How much it matters, to put the worst first."""
        return self.share * (self.factor - 1.0)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a worker stands.

    Attributes:
        worker: Its number.
        name: Of the worker, as the recording has it.
        now: The others' recent seconds a part over its own, at most 1; NaN if it was
            not seen beside others.
        best: Its own best stretch over its recent seconds, both against the others, at
            most 1; NaN if it has no stretch of 5 steps.
        verdicts: What is wrong with it, if anything; one for a cause.
        gone_since: The step from which on it was not there to the end; else None.
        lost: The steps in which its process was lost.
    """

    worker: int
    name: str
    now: float
    best: float
    verdicts: tuple[Verdict, ...]
    gone_since: int | None
    lost: tuple[int, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.verdicts and self.gone_since is None


@dataclass(frozen=True, slots=True)
class Slowness:
    """Who is slow, and where everybody stands.

    Attributes:
        standings: Of every worker, in order.
        steps: Steps that were looked at.
        doubts: What one should know before one believes it, in sentences.
        remarks: What one should know of where it is from, in sentences.
        needed: Steps that are needed to tell; with fewer there are no verdicts.
        savings: What steps took, and what waiting for all would have taken; None where
            that is not known.
    """

    standings: tuple[Standing, ...]
    steps: int
    doubts: tuple[str, ...]
    remarks: tuple[str, ...]
    needed: int
    savings: Savings | None = None

    @property
    def is_too_short(self) -> bool:
        """Whether too few steps have ended to tell which workers are slow."""
        return self.steps < self.needed

    @property
    def verdicts(self) -> list[Verdict]:
        """Return what is wrong with whom, the worst first."""
        found = [each for standing in self.standings for each in standing.verdicts]
        return sorted(found, key=lambda verdict: -verdict.weight)
