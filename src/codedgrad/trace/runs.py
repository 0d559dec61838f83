"""The folder of a run: what was run, every event, every step's figures.

```text
run.json       what is run: a `Manifest`
steps.jsonl    a `StepLine` for every step: loss, metrics, what the user logged
trace/         every event with the commands it led to; see `segments`
checkpoints/   see `codedgrad.torch.checkpoint.files`
lock.json      which root the folder belongs to; see `lock`
status.json    how that root is doing, about once a second; see `status`
```

All of it is plain text to the reader; nothing in it is ever executed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from codedgrad.errors import InvalidTrace
from codedgrad.trace.files import nothing, write_whole
from codedgrad.trace.format import Header
from codedgrad.trace.lines import Lines
from codedgrad.trace.read import Trace
from codedgrad.trace.segments import read_segments

_log = logging.getLogger("codedgrad")
VERSION = 1
_KIND = "codedgrad run"
MANIFEST, TRACE, STEPS = "run.json", "trace", "steps.jsonl"


class Manifest(Struct, frozen=True, kw_only=True):
    """What is run, as by the newest root of its folder.

    Attributes:
        scheme: Its name, with its options.
        workers: How many.
        parts: How many.
        engine: What the workers were, such as `local`.
        seed: Of everything that is random.
        samples: In the data set.
        batch_size: Samples a step.
        least_samples: The fewest samples of a part that has any; None: not recorded.
        steps_per_epoch: Steps in which every sample is used once.
        shuffle: How samples are put in order.
        unbiased: Whether sums were divided by all samples of a step.
        data: Digest of a few samples; empty if they were not to be looked at.
        label: What people should call it; else the scheme.
        note: Anything else, for people.
        created: When it was begun, such as `2026-11-16 04:36:36 UTC`.
        versions: Of what it ran with, such as `{"torch": "2.13.0"}`.
        threads: That each worker computes with, by worker; empty: not known. Bits are
            promised for equal numbers.
        kind: Says that this is a run.
        version: Of the format.
    """

    scheme: str
    workers: int
    parts: int
    engine: str
    seed: int
    samples: int
    batch_size: int
    steps_per_epoch: int
    least_samples: int | None = None
    shuffle: str = ""
    unbiased: bool = False
    data: str = ""
    label: str = ""
    note: str = ""
    created: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    threads: list[int] = msgspec.field(default_factory=list)
    kind: str = _KIND
    version: int = VERSION

    @property
    def title(self) -> str:
        """What people should call it."""
        return self.label or self.scheme


class StepLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of a step.

    Attributes:
        step: Its number.
        at: When its gradient was there, on the clock of the trace.
        seconds: What the step took the root, from asking for the gradient to having
            it: publishing, waiting, decoding. What the user does in between is not in.
        loss: Mean loss at the parameters before the step; None if it is not finite.
        count: What the losses were divided by: samples, or tokens, or weights.
        samples: Samples in it.
        metrics: Means over the step.
        logged: What the user logged, such as an accuracy on other data.
        life: Of the run; a later life may have taken the step again.
    """

    step: int
    at: float
    seconds: float
    loss: float | None = None
    count: float | None = None
    samples: float | None = None
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    logged: dict[str, float | None] = msgspec.field(default_factory=dict)
    life: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as read from its folder.

    Attributes:
        path: The folder.
        manifest: What was run.
        trace: What happened, as far back as it is kept and as the workers were those
            of the newest life; empty if nothing of it can be read.
        steps: The figures of every step, in order; they may end before the trace does.
    """

    path: Path
    manifest: Manifest
    trace: Trace
    steps: tuple[StepLine, ...]


_encode = msgspec.json.Encoder().encode
_manifests = msgspec.json.Decoder(Manifest)
_lines = msgspec.json.Decoder(StepLine)


def read_run(path: Path | str) -> Run:
    """Read the folder of a run.

    Raises:
        InvalidTrace: If it is none; says which file will not do, and why.
    """
    path = Path(path)
    if not path.is_dir():
        raise InvalidTrace(path, "is not the folder of a run")
    if not (path / MANIFEST).exists():
        inside = sorted(each.parent.name for each in path.glob(f"*/{MANIFEST}"))
        if inside:
            names = " and ".join(inside[:3])
            raise InvalidTrace(path, f"is not the folder of a run, but holds {names}")
    manifest = read_manifest(path)
    trace = read_segments(path / TRACE)
    if trace is None:
        earlier = path / "trace.jsonl"  # where it was before it had a folder
        advice = f"; read {earlier} by itself" if earlier.exists() else ""
        _log.warning("%s has no trace: who was late is not known%s", path, advice)
        header = Header(
            scheme=manifest.scheme, workers=manifest.workers, parts=manifest.parts
        )
        trace = Trace(header, ())
    return Run(path, manifest, trace, read_steps(path / STEPS))


def read_manifest(path: Path) -> Manifest:
    """Return what the run of a folder is."""
    file = path / MANIFEST
    try:
        return checked_manifest(file, _manifests.decode(file.read_bytes()))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; is this the folder of a run?"
        raise InvalidTrace(file, problem) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace(file, f"does not describe a run: {error}") from None


def checked_manifest(source: object, manifest: Manifest) -> Manifest:
    """Return a manifest if it is one that this version knows.

    Args:
        source: Where it is from, for the error.
        manifest: As read.
    """
    if manifest.kind != _KIND:
        raise InvalidTrace(source, f"says it is a {manifest.kind!r}")
    if manifest.version > VERSION:
        problem = f"has version {manifest.version}, newer than {VERSION}"
        raise InvalidTrace(source, problem)
    return manifest


def write_manifest(
    path: Path, manifest: Manifest, check: Callable[[], None] = nothing
) -> None:
    """Write what the run of a folder is, whole or not at all.

    Args:
        path: The folder.
        manifest: What is run.
        check: Called right before the file gets its name; raises if this root may not.
    """
    data = msgspec.json.format(_encode(manifest)) + b"\n"
    write_whole(path / MANIFEST, data, before=check)


def read_steps(file: Path) -> tuple[StepLine, ...]:
    """Return the figures of every step, in order.

    A step that a later life has taken again is that life's, and steps after it that
    only an earlier one has taken are left out. So are lines that are no step, as a kill
    leaves one at the end of a life, with a warning where it is not the last.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InvalidTrace(file, f"cannot be read: {error.strerror}") from None
    lines = data.split(b"\n")[:-1]  # what follows the last end of line is torn
    found: list[StepLine] = []
    problems: list[str] = []
    for number, text in enumerate(lines, 1):
        try:
            line = _lines.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problems.append(f"line {number} is no step: {error}")
            continue
        while found and found[-1].step >= line.step and found[-1].life <= line.life:
            found.pop()
        if not found or found[-1].step < line.step:
            found.append(line)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        _log.warning("%s: %s%s; they are left out", file, problems[0], more)
    return tuple(found)


class StepLog:
    """Writes the figures of steps, a line at a time, after those that are there.

    It warns once if the disk does not take a line, and tries again with every step.

    Args:
        path: The folder of the run.
        life: Of the run.
        check: Called before anything is written; raises if this root may not.
    """

    def __init__(
        self, path: Path, life: int = 1, check: Callable[[], None] = nothing
    ) -> None:
        self._life = life
        self._check = check
        self._lines: Lines | None = None
        self._has_warned = False
        file = path / STEPS
        check()
        try:
            self._lines = Lines(file)
            is_torn = self._lines.size > 0 and not _ends_whole(file)  # by a kill
        except (InvalidTrace, OSError) as error:
            _log.warning("%s; training goes on without its figures", error)
        else:
            if is_torn:
                self._write(b"\n")

    def __call__(self, line: StepLine) -> None:
        """Write the figures of a step."""
        line = msgspec.structs.replace(line, life=self._life)
        self._write(_encode(line) + b"\n")

    def _write(self, data: bytes = b"") -> None:
        self._check()
        if self._lines is None:
            return
        try:
            self._lines.write(data)
        except InvalidTrace as error:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("%s; training goes on, and tries again", error)

    def close(self) -> None:
        """Write what is waiting, and close the file. It may be called twice."""
        if self._lines is None:
            return
        try:
            if self._lines.is_waiting:
                self._write()
        finally:
            self._lines.close()
            self._lines = None

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _ends_whole(file: Path) -> bool:
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        return opened.read(1) == b"\n"
