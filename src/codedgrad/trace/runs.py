"""The folder of a run: what was run, every event, every step's figures.

```text
run.json       what was run: a `Manifest`
trace.jsonl    every event with the commands it led to; see `format`
steps.jsonl    a `StepLine` for every step: loss, metrics, what the user logged
checkpoints/   see `codedgrad.torch.checkpoint`
```

All of it is plain text to the reader; nothing in it is ever executed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec import Struct

from codedgrad.errors import InvalidTrace
from codedgrad.trace.files import write_whole
from codedgrad.trace.read import Trace, read

__all__ = ["Manifest", "Run", "StepLine", "StepLog", "read_run", "write_manifest"]

VERSION = 1
_KIND = "codedgrad run"
MANIFEST, TRACE, STEPS = "run.json", "trace.jsonl", "steps.jsonl"


class Manifest(Struct, frozen=True, kw_only=True):
    """What was run.

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
        label: What people should call it; else the scheme.
        note: Anything else, for people.
        created: When it was begun, such as `2026-11-16 04:36:36 UTC`.
        versions: Of what it ran with, such as `{"torch": "2.13.0"}`.
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
    label: str = ""
    note: str = ""
    created: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
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
    """

    step: int
    at: float
    seconds: float
    loss: float | None = None
    count: float | None = None
    samples: float | None = None
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    logged: dict[str, float | None] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as read from its folder.

    Attributes:
        path: The folder.
        manifest: What was run.
        trace: What happened.
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
    trace = read(path / TRACE)
    header = trace.header
    if (header.workers, header.parts) != (manifest.workers, manifest.parts):
        raise InvalidTrace(path / TRACE, f"is not of the run that {MANIFEST} tells of")
    return Run(path, manifest, trace, read_steps(path / STEPS))


def read_manifest(path: Path) -> Manifest:
    """Return what the run of a folder is."""
    file = path / MANIFEST
    try:
        manifest = _manifests.decode(file.read_bytes())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; is this the folder of a run?"
        raise InvalidTrace(file, problem) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidTrace(file, f"does not describe a run: {error}") from None
    if manifest.kind != _KIND:
        raise InvalidTrace(file, f"says it is a {manifest.kind!r}")
    if manifest.version > VERSION:
        problem = f"has version {manifest.version}, newer than {VERSION}"
        raise InvalidTrace(file, problem)
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write what the run of a folder is, whole or not at all."""
    write_whole(path / MANIFEST, msgspec.json.format(_encode(manifest)) + b"\n")


def read_steps(file: Path) -> tuple[StepLine, ...]:
    """Return the figures of every step; a torn last line is left out."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InvalidTrace(file, f"cannot be read: {error.strerror}") from None
    lines = data.split(b"\n")[:-1]  # what follows the last end of line is torn
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_lines.decode(line))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidTrace(file, f"line {number} is no step: {error}") from None
    return tuple(found)


class StepLog:
    """Writes the figures of steps, a line at a time.

    Args:
        path: The folder of the run.
        before: Keep only steps before this one; 0 begins anew.
    """

    def __init__(self, path: Path, before: int = 0) -> None:
        file = path / STEPS
        kept = [line for line in read_steps(file) if line.step < before]
        write_whole(file, b"".join(_encode(line) + b"\n" for line in kept))
        self._file = file.open("ab")

    def __call__(self, line: StepLine) -> None:
        """Write the figures of a step."""
        self._file.write(_encode(line) + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """See what is written to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> StepLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
