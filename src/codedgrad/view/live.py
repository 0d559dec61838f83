"""Training runs on the screen, while they run: how far, who is late, who is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from codedgrad.advise.slow.sentences import in_short
from codedgrad.advise.slow.watcher import Watcher
from codedgrad.core import Record

_LASTING = 3  # steps for which somebody is slow before it is said
_LINES = 3  # at most, about who is slow


class ShownStep(Protocol):
    """What is shown of a step."""

    @property
    def loss(self) -> float:
        """Mean loss before it."""
        ...

    @property
    def heard(self) -> tuple[int, ...]:
        """Workers that were heard."""
        ...

    @property
    def late(self) -> tuple[int, ...]:
        """Workers that were not waited for."""
        ...

    @property
    def seconds(self) -> float:
        """What it took."""
        ...


class LiveView:
    """Shows runs one after the other, a bar each; a line each where nobody is looking.

    What a run saves is measured: the seconds of the first one, up to the same step,
    less its own. Whoever has been slow for some steps has a line, with how much.

    Args:
        names: Of the runs, in order.
        steps: Of each.
        workers: How many.
        console: Where to.
    """

    def __init__(
        self, names: Sequence[str], steps: int, workers: int, console: Console
    ) -> None:
        self._workers = workers
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._tasks = {
            name: self._bars.add_task(name, total=steps, start=False, pace="")
            for name in names
        }
        self._steps = steps
        self._task: TaskID | None = None
        self._live = Live(
            self._bars, console=console, refresh_per_second=8, transient=False
        )
        self._first: list[float] = []  # seconds of the first run, step by step
        self._own: list[float] = []
        self._watcher = Watcher(workers)

    def begin(self, name: str) -> None:
        """Begin with the next run."""
        self._task = self._tasks[name]
        self._first, self._own = self._first or self._own, []
        self._watcher = Watcher(self._workers)
        self._bars.start_task(self._task)
        if not self._console.is_terminal:
            self._console.print(f"{name}: {self._steps} steps ...")

    def step(self, seen: ShownStep, score: float, record: Record | None = None) -> None:
        """Show a step.

        Args:
            seen: What is shown of it.
            score: Accuracy after it.
            record: All that was seen of it, to tell who is slow.
        """
        assert self._task is not None  # a run has begun
        self._own.append(seen.seconds)
        done = len(self._own)
        pace = sum(self._own) / done
        self._bars.update(self._task, advance=1, pace=f"{pace:.3f} s/step")
        if self._console.is_terminal:
            said = Text(f"loss {seen.loss:.3f}   accuracy {100 * score:.1f} %")
            if self._first:
                saved = sum(self._first[:done]) - sum(self._own)
                said.append(f"   saved so far {saved:.1f} s", style="bold")
            slow = self._slow(record)
            self._live.update(Group(self._bars, self._who(seen), *slow, said))

    def _who(self, seen: ShownStep) -> Text:
        shown = Text("workers  ")
        for worker in range(min(self._workers, 16)):
            if worker in seen.late:
                shown.append(f" {worker} late ", style="bold black on yellow")
            elif worker in seen.heard:
                shown.append(f" {worker} ok   ", style="green")
            else:
                shown.append(f" {worker} --   ", style="dim")
        return shown

    def _slow(self, record: Record | None) -> list[Text]:
        """Return a line for everybody who has been slow for some steps."""
        if record is None:
            return []
        found = self._watcher.update(record)
        lines = [in_short(each) for each in found if each.lasts >= _LASTING]
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [f"and {len(lines) - _LINES + 1} more are slow"]
        return [Text(line, style="yellow") for line in lines]

    def __enter__(self) -> LiveView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._live.stop()
