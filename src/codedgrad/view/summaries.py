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
        waiting_at_least: Mean seconds of a step that waits for all, a lower bound.
        waiting_estimate: The same, an estimate.
        waited_for_all: Whether it did wait, so that those two are what it took.
        never_finished: Workers that were late and never seen to finish the uncoded
            load, by name. How long they take is not known: the estimate is too low.
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
    waiting_at_least: float
    waiting_estimate: float
    waited_for_all: bool
    never_finished: tuple[str, ...]
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
        waiting_at_least=_mean(report.waiting.at_least for report in done),
        waiting_estimate=_mean(report.waiting.estimate for report in done),
        waited_for_all=subject.waits_for_all,
        never_finished=_never_finished(subject),
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


def _never_finished(subject: Subject) -> tuple[str, ...]:
    late = (subject.fates == Fate.LATE).any(axis=0)
    silent = np.flatnonzero(late & ~subject.has_finished)
    return tuple(subject.workers[worker] for worker in silent)


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
        "steps", "mean\nstep\n[s]", "p99\nstep\n[s]", "wait\n>=\n[s]",
        "wait\n~\n[s]", "heard\n/step", "work\n/step", "mess.\n/step", "final\nloss",
    ):  # fmt: skip
        shown.add_column(Text(name), justify="right", no_wrap=True, vertical="bottom")
    for each in figures:
        cells = [
            str(each.steps),
            number_text(each.mean_seconds),
            number_text(each.p99_seconds),
            number_text(each.waiting_at_least),
            number_text(each.waiting_estimate),
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
