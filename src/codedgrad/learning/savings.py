"""What steps took, and what waiting for all would have taken: figures and sentences.

`codedgrad.learning.waiting` makes them. Every place that shows them prints them as they
print themselves here, so that all agree to the digit.
"""

from __future__ import annotations

from dataclasses import dataclass

_WORTH = 0.01  # of a step: less is within what two runs differ


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waiting for all would have taken, seconds; see the module's docstring.

    Attributes:
        estimate: The most likely.
        low: At the low end of the range.
        high: At the high end.
        is_bound: Whether it would have taken at least that long: the slowest worker was
            not seen to finish its part in hand.
    """

    estimate: float
    low: float
    high: float
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class Savings:
    """What steps took, and what waiting for all would have taken; means over steps.

    Attributes:
        steps: Steps that gave a sum.
        seconds: That one took.
        waiting: That it would have taken with waiting for all.
        gone: Steps in which a worker was away from the start; it is not counted.
        workers: How many the run has; 0: not known.
        cores: That these share; 0: not known.
    """

    steps: int
    seconds: float
    waiting: Waiting
    gone: int = 0
    workers: int = 0
    cores: int = 0

    @property
    def saved(self) -> float:
        """Seconds a step that waiting for all would have taken more; may be negative.

        Example:
            >>> Savings(10, 0.5, Waiting(2.0, 1.75, 2.5)).saved
            1.5
        """
        return self.waiting.estimate - self.seconds

    def __str__(self) -> str:
        """Return the one sentence that the bar, the page and the commands print.

        Example:
            >>> print(Savings(10, 0.588, Waiting(4.012, 3.9, 4.1)))
            a step took 0.588 s; waiting for all in the same parts would have taken \
4.01 s (3.9 to 4.1): saved 3.42 s a step
        """
        if not self.steps:
            return "no step has ended yet"
        return f"{self.figures}: {self.in_short}{self.caveats}"

    @property
    def caveats(self) -> str:
        """What the figures do not count, such as `; 4 workers share 2 cores, ...`."""
        told = ""
        if self.gone:
            told += f"; workers that were gone in {self.gone} steps are not counted"
        if 0 < self.cores < self.workers:
            # Workers that compute slow each other down. With waiting for all, the first
            # ones to finish would leave their cores to the others.
            told += (
                f"; {self.workers} workers share {self.cores} "
                f"core{'s' if self.cores > 1 else ''}: if they compute all the time, "
                f"waiting for all would have taken less"
            )
        return told

    @property
    def figures(self) -> str:
        """What a step took, and what waiting for all would have taken.

        In the same parts: fewer and larger parts may take less, or more.
        """
        waiting = self.waiting
        low, high = f"{waiting.low:.3g}", f"{waiting.high:.3g}"
        span = f" ({low} to {high})" if low != high and not waiting.is_bound else ""
        least = "at least " if waiting.is_bound else ""
        return (
            f"a step took {self.seconds:.3g} s; waiting for all in the same parts "
            f"would have taken {least}{waiting.estimate:.3g} s{span}"
        )

    @property
    def is_worth_a_word(self) -> bool:
        """Whether more than a hundredth of a step was saved, or lost."""
        return bool(self.steps) and abs(self.saved) >= _WORTH * self.seconds

    @property
    def in_short(self) -> str:
        """What was saved or lost a step, such as `saved 3.42 s a step`."""
        if self.waiting.is_bound and self.saved < _WORTH * self.seconds:
            return "what was saved is not known"  # less than a bound proves nothing
        if not self.is_worth_a_word:
            return "nothing saved"
        if self.saved < 0:
            return f"lost {-self.saved:.3g} s a step"
        least = "at least " if self.waiting.is_bound else ""
        return f"saved {least}{self.saved:.3g} s a step"


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What the uncoded load would have taken one worker in one step.

    Attributes:
        seconds: The estimate, its message included.
        message: What its message takes of them.
        is_bound: Whether the worker was not seen to finish its part in hand, so that it
            may be more.
        is_seen: Whether it showed anything in this step; if not, its usual time stands
            here.
    """

    seconds: float
    message: float
    is_bound: bool
    is_seen: bool
