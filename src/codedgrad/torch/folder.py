"""The folder of a run while it is written, and going on with an earlier one.

What was learnt of the workers is not in a checkpoint: the trace has every event, and
deciding them once more gives the coordinator back to the last bit. Steps that were
taken after the last checkpoint are taken again, and cut off the trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedgrad.core import Command, Event
from codedgrad.errors import InvalidScenario, InvalidTrace
from codedgrad.torch.checkpoint import Shelf
from codedgrad.trace import (
    Header,
    Manifest,
    Recorder,
    StepLine,
    StepLog,
    read,
    write_manifest,
)
from codedgrad.trace.runs import MANIFEST, STEPS, TRACE, read_manifest

__all__ = ["Checkpoints", "Folder"]

_SAME = (
    "scheme",
    "workers",
    "parts",
    "seed",
    "samples",
    "batch_size",
    "least_samples",
    "shuffle",
    "unbiased",
)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """When a run writes checkpoints, and how many it keeps.

    One is also written when the steps are done, when it is stopped, and when a step
    is given up.

    Attributes:
        seconds: Between two, about; None: not by time.
        steps: Between two; None: not by steps.
        keep: How many of the newest stay.
    """

    seconds: float | None = 60.0
    steps: int | None = None
    keep: int = 3

    def __post_init__(self) -> None:
        for name, least in (("seconds", 0.0), ("steps", 1), ("keep", 1)):
            given = getattr(self, name)
            if given is not None and not given >= least:
                where = f"checkpoints: {name}"
                raise InvalidScenario(where, f"is {given}", f"{least} or more")


class Folder:
    """A run's folder.

    Args:
        path: Where it is, or will be.
        manifest: What is run.
        resume: True: go on with the run in there; "auto": if there is one; False:
            there must be none.
        checkpoints: When to write them.

    Attributes:
        path: Where it is.
        step: The step to begin with.
        state: As the newest checkpoint has it; None at the beginning.
        past: Events before that step.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        resume: bool | str,
        checkpoints: Checkpoints,
    ) -> None:
        if resume not in (True, False, "auto"):
            raise InvalidScenario("resume", f"is {resume!r}", 'True, False or "auto"')
        self.path = path
        self._when = checkpoints
        self._shelf = Shelf(path / "checkpoints", checkpoints.keep)
        self.step = 0
        self.state: dict[str, Any] | None = None
        self.past: list[Event] = []
        self._files = ExitStack()
        there = (path / MANIFEST).exists() and self._has_begun
        if there and not resume:
            advice = 'resume="auto" to go on with it, or another folder'
            raise InvalidScenario(f"run_dir {path}", "has a run already", advice)
        if resume is True and not (there and self._shelf.steps()):
            problem = "has no checkpoint to go on from"
            raise InvalidScenario(f"run_dir {path}", problem, 'resume="auto"')
        if there:
            self._go_on(manifest)
        else:
            self._begin(manifest)
        self._wrote = self.step
        self._wrote_at = time.monotonic()

    @property
    def _has_begun(self) -> bool:
        """Whether a step was taken; a start that failed leaves nothing to lose."""
        steps = self.path / STEPS
        return bool(self._shelf.steps()) or (
            steps.is_file() and steps.stat().st_size > 0
        )

    def _begin(self, manifest: Manifest) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_manifest(self.path, manifest)
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise InvalidScenario(f"run_dir {self.path}", problem, "another") from None

    def _go_on(self, manifest: Manifest) -> None:
        before = read_manifest(self.path)
        for name in _SAME:
            was, is_ = getattr(before, name), getattr(manifest, name)
            if was is not None and was != is_:  # None: older, as its checkpoints say
                problem = f"has a run with {name} = {was}, not {is_}"
                advice = f"{name} = {was}, or another folder"
                raise InvalidScenario(f"run_dir {self.path}", problem, advice)
        newest = self._shelf.newest()
        if newest is None:
            return  # it begins anew
        self.step, self.state = newest
        trace = self.path / TRACE
        if not trace.exists():
            raise InvalidTrace(trace, "is missing; the run cannot go on without it")
        self.past = [entry.event for entry in read(trace).before(self.step)]

    def open(self, header: Header) -> Callable[[Event, list[Command]], None]:
        """Open the files; return what is to be told every event."""
        trace, goes_on = self.path / TRACE, self.step > 0
        if not goes_on:
            trace.unlink(missing_ok=True)  # of a run killed before its first checkpoint
        recorder = Recorder(trace, header, append=goes_on, before=self.step)
        self._recorder = self._files.enter_context(recorder)
        self._log = self._files.enter_context(StepLog(self.path, before=self.step))
        return recorder

    def log(self, line: StepLine) -> None:
        """Write the figures of a step."""
        self._log(line)

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint should be written before a step."""
        when = self._when
        late = time.monotonic() - self._wrote_at
        return (when.steps is not None and step - self._wrote >= when.steps) or (
            when.seconds is not None and late >= when.seconds
        )

    def save(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        """Write a checkpoint, unless there is one of this step.

        What leads up to it is seen to the disk before.
        """
        if step > self._wrote:
            self._recorder.sync()
            self._log.sync()
            self._shelf.write(step, state())
        self._wrote, self._wrote_at = step, time.monotonic()

    def close(self) -> None:
        """Close the files."""
        self._files.close()
