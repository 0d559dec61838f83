"""A bar that says how far it is, who is late, and what was saved."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from codedgrad.torch.report import Report


class Bar:
    """Shows the steps of a loop on standard error.

    Args:
        total: Steps of the run.
        done: Steps that are done already.
        shown: Whether to show it; None: if somebody is looking.
    """

    def __init__(self, total: int, done: int, shown: bool | None) -> None:
        if shown is None:
            shown = sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[said]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._bar.add_task("", total=total, completed=done, said="")
        self._saved = 0.0

    def advance(self, report: Report | None) -> None:
        """Note a step."""
        said = ""
        if report is not None:
            self._saved += report.saved
            late = ", ".join(map(str, report.late)) or "nobody"
            said = (
                f"loss {report.loss:.4g}, late: {late}, saved about {self._saved:.1f} s"
            )
        self._bar.update(self._task, advance=1, said=said)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
