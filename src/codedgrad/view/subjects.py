"""What a report is about: runs, traces and recordings, in one shape.

A run has a folder, a trace is one file of events, a recording is a matrix of seconds
such as one takes of plain data-parallel training. Each is a `Subject` with as much as
it has; where a recording is concerned, a step lasts as long as its slowest worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.learning.savings import Savings
from codedgrad.trace import StepLine, StepReport, Trace

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

_LONGEST = 60  # characters of a title


class Fate(IntEnum):
    """What became of a worker in a step, in a word."""

    HEARD = 0
    LATE = 1
    LOST = 2
    FAILED = 3
    SPARED = 4  # asked nothing, or what it had was not needed


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """What became of a worker in a step.

    Attributes:
        fate: In a word.
        seconds: From the start of the step until it answered, or was cut off; NaN if
            there is nothing to tell.
        is_bound: Whether it was cut off: it would have taken longer.
        done: Parts it is known to have finished.
    """

    fate: Fate
    seconds: float
    is_bound: bool
    done: int


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A run, a trace or a recording.

    Attributes:
        path: Where it is from.
        title: What to call it; printable, and its own on a page.
        kind: `run`, `trace` or `recording`.
        scheme: Its name, with its options; `recorded` for a recording.
        source: What measured the seconds, such as `local` or `simulator`.
        workers: Their names.
        parts: How many.
        facts: What else there is to know, by name.
        reports: Of every step that ended, in order.
        savings: What steps took, and what waiting for all would have taken.
        answers: (steps, workers) seconds from the start of a step until a worker
            answered, or was cut off; of a late worker whose parts others did, what an
            equal share would have taken it. NaN where there is nothing to tell.
        is_bound: (steps, workers) whether it was cut off: it would have taken longer.
        fates: (steps, workers) of `Fate`.
        losses: (row, worker) whenever a worker was lost; it may be back in the same
            step. A row is one of `reports`.
        lines: What was logged of the steps; a run only.
        created: When it was begun, in words; empty if unknown.
        trace: The events; None of a recording.
    """

    path: Path
    title: str
    kind: str
    scheme: str
    source: str
    workers: tuple[str, ...]
    parts: int
    facts: dict[str, str]
    reports: tuple[StepReport, ...]
    savings: Savings
    answers: Floats
    is_bound: Bools
    fates: NDArray[np.int8]
    losses: tuple[tuple[int, int], ...] = ()
    lines: tuple[StepLine, ...] = ()
    created: str = ""
    trace: Trace | None = None

    @property
    def where(self) -> str:
        """Where it is from, printable."""
        return shown(str(self.path), 400)

    @property
    def steps(self) -> NDArray[np.int64]:
        """Numbers of the steps, (steps,)."""
        return np.array([report.step for report in self.reports], dtype=np.int64)

    @property
    def combined(self) -> Bools:
        """Whether each step gave a sum, (steps,)."""
        return np.array([report.combined for report in self.reports], dtype=np.bool_)

    @property
    def seconds(self) -> Floats:
        """What every step took, (steps,).

        As the root measured it, publishing and decoding included, where that was
        logged; else from the start to the decision.
        """
        taken = np.array([report.seconds for report in self.reports], dtype=np.float64)
        place = {report.step: number for number, report in enumerate(self.reports)}
        for line in self.lines:
            if line.step in place:
                taken[place[line.step]] = line.seconds
        return taken

    @property
    def waits_for_all(self) -> bool:
        """Whether it waits for every worker in every step."""
        return self.kind == "recording" or self.scheme.partition("(")[0] == "uncoded"

    @property
    def is_simulated(self) -> bool:
        """Whether its seconds are those of a virtual clock."""
        return self.source == "simulator"


def shown(text: str, longest: int = _LONGEST) -> str:
    r"""Return a text from a file as it may be shown: one line, printable, not long.

    Example:
        >>> shown("two\n  lines\x1b[31m", longest=10)
        'two lines…'
    """
    plain = "".join(c if c.isprintable() else " " for c in text)
    plain = " ".join(plain.split())
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
