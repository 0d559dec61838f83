"""A progress bar with an ETA, for work that takes more than a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

Advanced: TypeAlias = Callable[[int, int], None]
"""Told how much is done, of how much."""

_PATIENCE = 1.0  # seconds of work before there is a bar


@contextmanager
def bar(what: str, of: str) -> Iterator[Advanced]:
    """Show a bar on a terminal once the work has taken a second.

    Args:
        what: What is being done.
        of: What is counted.
    """
    console = Console(stderr=True)
    shown = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{of}, left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task, began = shown.add_task("", total=None), time.monotonic()

    def advanced(done: int, total: int) -> None:
        shown.update(task, completed=done, total=total)
        if not shown.live.is_started and time.monotonic() - began > _PATIENCE:
            shown.start()

    try:
        yield advanced if console.is_terminal else lambda done, total: None
    finally:
        if shown.live.is_started:
            shown.stop()
