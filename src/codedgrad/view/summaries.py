"""Runs in a few figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from codedgrad.view.subjects import Fate, Floats, Subject

_TOLERATED = 1e-9  # a residual above it is not exact


@dataclass(frozen=True, slots=True)
class Summary:
    """The key figures of a run; NaN where there are none.

    Attributes:
        title: What it is called.
        path: Where it is from.
        scheme: Its name, with its options.
        workers: How many.
        parts: How many.
        steps: Steps that have ended.
        gave_up: Of those, steps without a sum; they are in no figure below.
        mean_seconds: Of a step.
        p50_seconds: Half of the steps took longer.
        p99_seconds: One step in a hundred took longer.
        step_seconds: Mean seconds from the start of a step to its decision; what
            `mean_seconds` has more, where it was logged, is publishing and decoding.
        waiting_estimate: Mean seconds of a step that waits for all, an estimate, to be
            compared with `step_seconds`.
        waiting_low: The low end of its range.
        waiting_high: The high end.
        saved: The estimate less what a step took, both from the start of a step to its
            decision.
        waited_for_all: Whether it did wait, so that the estimate is what it took.
        heard: Workers heard in a step, mean.
        late: Workers late in a step, mean.
        lost: Workers that were not there in a step, mean.
        losses: How often a worker was lost.
        work: Parts known to be computed in a step, copies counted, mean.
        wasted: Of those, copies that the sum did not need, mean.
        messages: Messages heard in a step, mean.
        exact: Share of the steps whose sum was exact.
        loss: Of the last step that has one.
        scores: The last of everything that was logged, by name.
    """

    title: str
    path: str
    scheme: str
    workers: int
    parts: int
    steps: int
    gave_up: int
    mean_seconds: float
    p50_seconds: float
    p99_seconds: float
    step_seconds: float
    waiting_estimate: float
    waiting_low: float
    waiting_high: float
    saved: float
    waited_for_all: bool
    heard: float
    late: float
    lost: float
    losses: int
    work: float
    wasted: float
    messages: float
    exact: float
    loss: float
    scores: dict[str, float]

    def for_machines(self) -> dict[str, object]:
        """Return it as JSON has it, None for what is not a number."""
        return {name: _finite(value) for name, value in asdict(self).items()}


def summary(subject: Subject) -> Summary:
    """Return the key figures of a run, a trace or a recording.

    Example:
        >>> from codedgrad.delays import traces
        >>> from codedgrad.view.reading import read_subject
        >>> figures = summary(read_subject(traces()["AR"]))
        >>> figures.workers, figures.late, figures.waited_for_all
        (4, 0.0, True)
    """
    done = [report for report in subject.reports if report.combined]
    seconds, fates = subject.seconds[subject.combined], subject.fates[subject.combined]
    waiting = subject.savings.waiting
    losses = [line.loss for line in subject.lines if line.loss is not None]
    return Summary(
        title=subject.title,
        path=subject.where,
        scheme=subject.scheme,
        workers=len(subject.workers),
        parts=subject.parts,
        steps=len(subject.reports),
        gave_up=len(subject.reports) - len(done),
        mean_seconds=_mean(seconds),
        p50_seconds=float(np.quantile(seconds, 0.5)) if done else math.nan,
        p99_seconds=float(np.quantile(seconds, 0.99)) if done else math.nan,
        step_seconds=subject.savings.seconds if done else math.nan,
        waiting_estimate=waiting.estimate if done else math.nan,
        waiting_low=waiting.low if done else math.nan,
        waiting_high=waiting.high if done else math.nan,
        saved=subject.savings.saved if done else math.nan,
        waited_for_all=subject.waits_for_all,
        heard=_mean(len(report.heard) for report in done),
        late=_mean((fates == Fate.LATE).sum(axis=1)),
        lost=_mean((fates == Fate.LOST).sum(axis=1)),
        losses=len(subject.losses),
        work=_mean(report.work for report in done),
        wasted=_mean(report.wasted for report in done),
        messages=_mean(report.messages for report in done),
        exact=_mean(report.residual <= _TOLERATED for report in done),
        loss=losses[-1] if losses else math.nan,
        scores=_last_scores(subject),
    )


def _mean(values: Iterable[float] | Floats) -> float:
    array = np.array(list(values), dtype=np.float64)
    return float(array.mean()) if array.size else math.nan


def _last_scores(subject: Subject) -> dict[str, float]:
    last: dict[str, float] = {}
    for line in subject.lines:
        for name, value in (*line.metrics.items(), *line.logged.items()):
            if value is not None:
                last[name] = value
    return last


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- on the screen -------------------------------------------------------------------


def summary_table(figures: Sequence[Summary]) -> Table:
    """Return the figures of several runs as a table; it fits 80 columns."""
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("run", overflow="fold")
    for name in (
        "steps", "mean\nstep\n[s]", "p99\nstep\n[s]", "wait\nall\n[s]",
        "saved\n/step\n[s]", "heard\n/step", "work\n/step", "mess.\n/step",
        "final\nloss",
    ):  # fmt: skip
        shown.add_column(Text(name), justify="right", no_wrap=True, vertical="bottom")
    for each in figures:
        cells = [
            str(each.steps),
            number_text(each.mean_seconds),
            number_text(each.p99_seconds),
            number_text(each.waiting_estimate),
            number_text(each.saved),
            _decimal(each.heard),
            _decimal(each.work),
            _decimal(each.messages),
            number_text(each.loss),
        ]
        shown.add_row(Text(each.title), *map(Text, cells))
    return shown


def seconds_text(value: float) -> str:
    """Return seconds with three digits, such as `0.110 s`.

    Example:
        >>> seconds_text(0.11), seconds_text(4813.2)
        ('0.110 s', '4813 s')
    """
    return f"{number_text(value)} s"


def number_text(value: float) -> str:
    """Return a number with three digits; a dash if it is none.

    Example:
        >>> number_text(2.0), number_text(0.02345), number_text(float("nan"))
        ('2.00', '0.0234', '-')
    """
    if not math.isfinite(value):
        return "-"
    if value == 0 or 1e-4 <= abs(value) < 1000:
        return f"{value:#.3g}".rstrip(".")
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.2e}"


def _decimal(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"
