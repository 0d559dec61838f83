"""A bar that says how far a run is, which workers are slow, and what was saved."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from codedgrad.learning.savings import Savings
from codedgrad.learning.waiting import WaitingForAll
from codedgrad.torch.report import Report

_EVERY = 0.2  # seconds between two looks at what was saved: it costs some 0.1 ms
_BACK = 5  # steps for which the bar says that a worker is back
_NAMED = 2  # slow workers in the line


class _LinesBelow(Progress):
    """A bar with lines of text below it, as wide as the terminal."""

    lines: tuple[str, ...] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for line in self.lines:
            yield Text(line)


class Bar:
    """Shows the steps of a loop on standard error.

    Args:
        total: Steps of the run.
        done: Steps that are done already.
        shown: Whether to show it; None: if standard error is a terminal.
    """

    def __init__(self, total: int, done: int, shown: bool | None) -> None:
        if shown is None:
            shown = sys.stderr.isatty()
        self._bar = _LinesBelow(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[loss]}"),
            TextColumn("{task.fields[workers]}"),
            console=Console(stderr=True),
            disable=not shown,
            # What a script prints goes above the bar, but to its file if it has one.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._bar.add_task(
            "", total=total, completed=done, loss="", workers=""
        )
        self._waiting: WaitingForAll | None = None
        self._report: Report | None = None
        self._looked = -_EVERY
        self._lost: set[int] = set()
        self._back: dict[int, int] = {}  # steps for which it is said, by worker
        self._stack = ExitStack()

    def advance(self, report: Report | None, waiting: WaitingForAll) -> None:
        """Note a step.

        Args:
            report: Of the step; None if the loop has not asked for its gradient.
            waiting: What waiting for all would have taken so far.
        """
        self._waiting = waiting
        if report is not None:
            self._report = report
        loss = "" if report is None else f"loss {report.loss:.4g}"
        self._back = {
            worker: left - 1 for worker, left in self._back.items() if left > 1
        }
        self._bar.update(self._task, advance=1, loss=loss, workers=self._workers)
        now = time.monotonic()
        if not self._bar.disable and now >= self._looked + _EVERY:
            self._looked = now
            self._look()

    def _look(self) -> None:
        if self._report is not None and self._waiting is not None:
            savings = self._waiting.means()
            slow = self._waiting.slow()
            figures = savings.figures + savings.caveats
            self._bar.lines = (said(self._report.late, slow, savings), figures)

    def show_worker(self, worker: int, is_back: bool) -> None:
        """Show that a worker is lost, until it is back, and that for a few steps."""
        if is_back:
            self._lost.discard(worker)
            self._back[worker] = _BACK
        else:
            self._back.pop(worker, None)
            self._lost.add(worker)
        self._bar.update(self._task, workers=self._workers, refresh=True)

    @property
    def _workers(self) -> str:
        said = [("lost", self._lost), ("back", self._back)]
        return ", ".join(
            f"{word}: {', '.join(map(str, sorted(workers)))}"
            for word, workers in said
            if workers
        )

    def __enter__(self) -> Bar:
        before = sys.stdout, sys.stderr
        self._bar.start()
        self._stack.callback(self._bar.stop)
        # rich has replaced those that are a terminal, and prints above the bar what is
        # written to its own
        for old, new in zip(before, (sys.stdout, sys.stderr), strict=True):
            if new is not old:
                self._stack.enter_context(_logging_to(new, instead_of=old))
        return self

    def __exit__(self, *error: object) -> None:
        self._look()
        self._stack.close()


def said(
    late: Iterable[int], slow: Iterable[tuple[int, float]], savings: Savings
) -> str:
    """Return which workers are slow, what became of their parts, and what was saved.

    Args:
        late: Workers that were late in the last step.
        slow: (worker, how many times as slow as the others), the slowest first.
        savings: Over the run.

    Example:
        >>> from codedgrad.learning.savings import Waiting
        >>> savings = Savings(10, 0.588, Waiting(4.012, 3.9, 4.1))
        >>> said([3], [(3, 9.84)], savings)
        'worker 3 is 9.8x slow; its parts were done by others; saved 3.42 s a step'
        >>> said([], [], Savings(10, 0.588, Waiting(0.588, 0.5, 0.6)))
        'no worker is slow'
    """
    late, slow = set(late), list(slow)
    told = [f"worker {worker} is {_factor(times)}x slow" for worker, times in slow]
    more = [f"{len(told) - _NAMED} more are"] if len(told) > _NAMED else []
    lines = [", ".join(told[:_NAMED] + more) or "no worker is slow"]
    relieved = [worker for worker, _ in slow if worker in late]
    if relieved:
        whose = "its parts" if len(slow) == 1 else "parts of theirs"
        lines.append(f"{whose} were done by others")
    if savings.is_worth_a_word:
        lines.append(savings.in_short)
    return "; ".join(lines)


def _factor(times: float) -> str:
    return f"{times:.1f}" if times < 9.95 else f"{times:.0f}"


@contextmanager
def _logging_to(stream: TextIO, instead_of: TextIO) -> Iterator[None]:
    """Let log lines go through the bar, which they would tear apart.

    A handler that was made before the bar has the terminal itself. It stays in use,
    with its format and its filters, and is given its stream back in the end.
    """
    moved = [
        handler
        for logger in (logging.getLogger(), logging.getLogger("codedgrad"))
        for handler in logger.handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is instead_of
    ]
    for handler in moved:
        handler.setStream(stream)
    try:
        yield
    finally:
        for handler in moved:
            handler.setStream(instead_of)
