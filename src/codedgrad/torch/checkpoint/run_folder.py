"""The folder of a run while it is written, and going on with an earlier one.

1. One root writes to a folder at a time; see `codedgrad.trace.lock`. It makes sure that
   the folder is still its own before it writes anything.
2. A checkpoint stands alone: it has the model, what is tracked, what was learnt of the
   workers, and what the run is. Trace and figures are telemetry, and may be missing.
3. Steps that were taken after the checkpoint are taken again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from codedgrad.core import Command, Event, History, Patience, Scheme
from codedgrad.errors import InvalidFolder, InvalidOptions, InvalidTrace
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.writer import Saver
from codedgrad.trace import (
    Entry,
    Header,
    Manifest,
    RunRecorder,
    StepLine,
    StepLog,
    relearn,
    write_manifest,
)
from codedgrad.trace.files import folder_advice
from codedgrad.trace.lock import Lock
from codedgrad.trace.path_hints import did_you_mean
from codedgrad.trace.runs import (
    MANIFEST,
    STEPS,
    TRACE,
    checked_manifest,
    read_manifest,
)
from codedgrad.trace.segments import trouble_with
from codedgrad.trace.status import LOCK, STATUS

CHECKPOINTS = "checkpoints"  # their folder, in that of the run
_OWN = {CHECKPOINTS, LOCK, MANIFEST, STATUS, STEPS, TRACE}  # that make it a run's
_log = logging.getLogger("codedgrad")
_SAME: dict[str, tuple[str, str]] = {  # what the numbers depend on: problem, advice
    "seed": ("has seed {was}, not {now}", "seed={was}"),
    "samples": ("has {was} samples, and the job has {now}", "the same data"),
    "batch_size": ("takes {was} samples a step, not {now}", "batch_size={was}"),
    "least_samples": (
        "has {was} samples in a part at least, not {now}", "least_samples={was}",
    ),
    "shuffle": ("has shuffle={was}, not {now}", "shuffle={was}"),
    "unbiased": ("has unbiased={was}, not {now}", "unbiased={was}"),
    "parts": (
        "has {was} parts a step, and the scheme has {now}",
        "the scheme in words, which is then built for {was} parts",
    ),
    "data": (
        "was trained on other samples: a few had the digest {was}, and now have {now}",
        "the same data, Job(verify_data=False) if only their form has changed",
    ),
}  # fmt: skip


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
                raise InvalidOptions(where, f"is {given}", f"{least} or more")


class Folder:
    """A run's folder, which belongs to this root from here to `close`.

    Args:
        path: Where it is, or will be.
        resume: True: go on with the run in there; "auto": if there is one; False:
            there must be none.
        checkpoints: When to write them.
        take_over: Whether to take the folder from a root that is still at it.

    Attributes:
        path: Where it is.
        may_resume: Whether `resume` is True or "auto".
        lock: That makes it this root's.
        step: The step to begin with.
        state: As the newest checkpoint has it; None at the beginning.
        before: What was run here; None at the beginning.
        outcome: How the run ended, for its last status: `ended` or `stopped`.
    """

    def __init__(
        self,
        path: Path,
        resume: bool | str,
        checkpoints: Checkpoints,
        take_over: bool = False,
    ) -> None:
        if resume not in (True, False, "auto"):
            raise InvalidOptions("resume", f"is {resume!r}", 'True, False or "auto"')
        self.path = path
        self.may_resume = bool(resume)
        self._when = checkpoints
        self._shelf = Shelf(path / CHECKPOINTS, checkpoints.keep)
        self.step = 0
        self.state: dict[str, Any] | None = None
        self.before: Manifest | None = None
        self.outcome = "stopped"
        self._past: tuple[Entry, ...] = ()
        self._recorder: RunRecorder | None = None
        self._files = ExitStack()
        self._refuse(resume)
        self._warn_of_other_files()
        self._make()
        self.lock = Lock(path, take_over=take_over)
        with ExitStack() as stack:
            stack.callback(lambda: self.lock.close(self.outcome))
            self._refuse(resume)  # another root may have begun since
            self._clear()
            if self.has_begun:
                self._look()
            self._saver = Saver(self._shelf, before=self.lock.check)
            self._saver.wrote = None if self.state is None else self.step
            stack.callback(self._saver.close)
            self._files = stack.pop_all()
        self._wrote = self.step
        self._wrote_at = time.monotonic()

    def _refuse(self, resume: bool | str) -> None:
        if self.has_begun and not resume:
            advice = 'resume="auto" to go on with it, or another folder'
            raise InvalidFolder(f"run_dir {self.path}", "has a run already", advice)
        if resume is True and not self._shelf.steps():
            if self.has_begun:
                problem = "has no checkpoint to go on from"
                advice = 'resume="auto", which begins at step 0'
            else:
                is_there = self.path.exists()
                problem = "has no run to resume" if is_there else "does not exist"
                # However unlike its name is: a user who resumes has some run in mind.
                problem += did_you_mean(self.path, _has_checkpoint, close=0.0)
                advice = "the folder of a run, or resume=False to begin one"
            raise InvalidFolder(f"run_dir {self.path}", problem, advice)

    @property
    def has_begun(self) -> bool:
        """Whether a step was taken in this folder."""
        return _has_begun(self.path, self._shelf)

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def _warn_of_other_files(self) -> None:
        """Warn if the folder holds files, and none of them is of a run."""
        try:
            names = set(os.listdir(self.path))
        except OSError:  # it does not exist yet; `_make` says if it cannot be made
            return
        if names & _OWN or all(name.startswith(".") for name in names):
            return
        _log.warning(
            "run_dir %s holds other files: the files of the run are written beside "
            "them; a folder of its own, such as %s, keeps them apart",
            self.path,
            self.path / "runs" / "first",
        )

    def _clear(self) -> None:
        """Remove what earlier roots have half written, so that they cannot name it."""
        try:
            self._shelf.remove_strays(self.lock.check)
        except OSError as error:
            raise _unwritable(self._shelf.folder, error) from None

    def _look(self) -> None:
        """Read the newest checkpoint, and what is run here."""
        newest = self._shelf.newest()
        if newest is not None:
            self.step, self.state = newest
        try:
            told = (self.state or {}).get("manifest")
            if told is not None:
                manifest = msgspec.convert(told, Manifest)
                self.before = checked_manifest("the checkpoint's manifest", manifest)
                return
            if (self.path / MANIFEST).exists():
                self.before = read_manifest(self.path)
        except (InvalidTrace, msgspec.ValidationError) as error:
            _log.warning("%s; the run goes on with what its checkpoint holds", error)

    @property
    def newest(self) -> tuple[int, Path] | None:
        """The newest checkpoint: how many steps it holds, and its file."""
        steps = self._shelf.steps()
        return (steps[-1], self._shelf.path(steps[-1])) if steps else None

    @property
    def parts(self) -> int | None:
        """How many parts a step of the run has; None: no run, or not known."""
        return None if self.before is None else self.before.parts

    def compare(self, manifest: Manifest) -> Manifest:
        """Return what is run from now on; a run that goes on keeps its beginning.

        Raises:
            InvalidFolder: If the numbers would be those of another run.
        """
        before = self.before
        if before is None:
            return manifest
        for name, (problem, advice) in _SAME.items():
            was, now = getattr(before, name), getattr(manifest, name)
            if was not in (None, "") and now != "" and was != now:
                where, said = f"run_dir {self.path}", problem.format(was=was, now=now)
                advised = f"{advice.format(was=was)}, or another folder"
                raise InvalidFolder(where, f"the run {said}", advised)
        return msgspec.structs.replace(
            manifest,
            created=before.created or manifest.created,
            data=manifest.data or before.data,  # it may be looked at again later
        )

    def relearn(
        self, header: Header, scheme: Scheme, patience: Patience
    ) -> History | None:
        """Return what the run has learnt of its workers; None if it is of no use."""
        learnt = (self.state or {}).get("learnt")
        if not isinstance(learnt, dict):
            return None
        try:
            history, self._past = relearn(learnt, self.step, header, scheme, patience)
        except InvalidTrace as error:
            _log.info("workers are learnt anew: %s", error)
            return None
        return history

    def open(
        self, header: Header, manifest: Manifest
    ) -> Callable[[Event, list[Command]], None]:
        """Open the files; return what is to be told every event."""
        check = self.lock.check
        check()  # making the job may have taken long
        self._write(manifest)
        if self.step > 0 and (problem := trouble_with(self.path / TRACE)):
            _log.warning("%s; earlier steps will be missing from reports", problem)
        log = StepLog(self.path, self.lock.life, check)
        self._log = self._files.enter_context(log)
        self._recorder = RunRecorder(
            self.path / TRACE, header, self.lock.life, check, past=self._past
        )
        self._files.callback(self._recorder.close)
        return self._recorder

    def note_threads(self, threads: Sequence[int]) -> None:
        """Note the threads of every worker, which are known when hosts are there."""
        before = [] if self.before is None else self.before.threads
        now = list(threads)
        if before and now and before != now:
            _log.warning(
                "workers computed with %s threads before, and with %s from now on; "
                "sums may differ in their last bits",
                before,
                now,
            )
        self._write(msgspec.structs.replace(self._manifest, threads=now))

    def _write(self, manifest: Manifest) -> None:
        """Write what is run."""
        check = self.lock.check
        try:
            write_manifest(self.path, manifest, check)
        except OSError as error:
            check()  # a successor removes what this root has half written
            if self.step == 0:
                raise _unwritable(self.path, error) from None
            problem = "%s cannot be written: %s; the run goes on"
            _log.warning(problem, self.path / MANIFEST, error.strerror)
        self._manifest = manifest

    def log(self, line: StepLine) -> None:
        """Write the figures of a step.

        Raises:
            LockLost: If another root has taken the folder.
        """
        self._log(line)

    def save_if_due(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        """Copy a state that should be written by now, and write it beside the training.

        One is written at a time. A checkpoint that is due by time waits for its turn
        while the training goes on; for one that is due by steps, whose step counts, the
        training waits. A disk that fails is warned of.
        """
        self._saver.tell()
        when = self._when
        late = time.monotonic() - self._wrote_at
        if when.steps is not None and step - self._wrote >= when.steps:
            self._saver.finish()
        elif when.seconds is None or late < when.seconds or self._saver.busy:
            return
        self.lock.check()
        self._saver.start(step, self._whole(state))
        self._wrote, self._wrote_at = step, time.monotonic()

    def save(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        """Write a checkpoint before going on, unless there is one of this step.

        Raises:
            InvalidCheckpoint: If it cannot be written.
        """
        self._saver.finish()
        if step != (self._saver.wrote or 0):
            self.lock.check()
            self._saver.write(step, self._whole(state))
        self._wrote, self._wrote_at = step, time.monotonic()

    def _whole(self, state: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
        """Add to a state what makes it a checkpoint that stands alone."""
        assert self._recorder is not None  # the files are open
        return {
            **state(),
            "manifest": msgspec.to_builtins(self._manifest),
            "learnt": self._recorder.recent.packed(),
        }

    def close(self) -> None:
        """Close the files, and let another root have the folder."""
        self._files.close()


def _unwritable(path: Path, error: OSError) -> InvalidFolder:
    problem = f"cannot be written: {error.strerror}"
    return InvalidFolder(f"run_dir {path}", problem, folder_advice(error))


def parts_of(path: Path) -> int | None:
    """Return how many parts the run in a folder has, without taking the folder.

    None: there is no run, or it does not say.
    """
    if not _has_begun(path, Shelf(path / CHECKPOINTS)):
        return None
    try:
        return read_manifest(path).parts
    except InvalidTrace:
        return None


def _has_checkpoint(path: Path) -> bool:
    return bool(Shelf(path / CHECKPOINTS).steps())


def _has_begun(path: Path, shelf: Shelf) -> bool:
    """Whether a step was taken; a start that failed leaves nothing to lose."""
    steps = path / STEPS
    return bool(shelf.steps()) or (steps.is_file() and steps.stat().st_size > 0)
