"""Every run below a folder: how far it is, and whether its root is alive.

Files are read from their ends, so a run of a million steps is listed as quickly as a
short one. A damaged folder is listed with what is wrong with it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from codedgrad.errors import InvalidTrace
from codedgrad.trace.lock import is_gone
from codedgrad.trace.runs import MANIFEST, STEPS, Manifest, StepLine, read_manifest
from codedgrad.trace.status import LOCK, STATUS, Holder, Look, Status, look

_DEPTH = 3
CHECKPOINT = re.compile(r"step-([0-9]{8,})\.safetensors")
"""The name of a checkpoint's file."""
_LONGEST_LINE = 1 << 24
_PATIENCE = 0.2  # seconds for a file that cannot be read
_lines = msgspec.json.Decoder(StepLine)


@dataclass(frozen=True, slots=True)
class Listed:
    """A run's folder, at a glance.

    Attributes:
        path: The folder.
        manifest: What was run; None if `run.json` is missing or damaged.
        steps: Steps done, by the last line of `steps.jsonl` or the newest checkpoint.
        loss: Of the last of them; None if it is not known, or not finite.
        checkpoint: The step before which the newest checkpoint was written; None: none.
        checkpoint_bytes: Its size; 0 if there is none.
        size: Bytes of all files in the folder.
        state: `running`: the heartbeat moved while it was watched. `silent`: the root
            holds the folder, and its heartbeat did not move. `gone`: the kernel of this
            host proves that the root ended without a word. `unlocked`: no root has ever
            held it. `unknown`: `lock.json` cannot be read. Or what the root said last:
            `ended`, `stopped`, or another word.
        holder: The root that holds the folder, or held it last.
        status: The last heartbeat of that root.
        problems: What is wrong with the folder, a sentence each.
    """

    path: Path
    manifest: Manifest | None
    steps: int
    loss: float | None
    checkpoint: int | None
    checkpoint_bytes: int
    size: int
    state: str
    holder: Holder | None
    status: Status | None
    problems: tuple[str, ...]


def list_runs(folder: Path, watch: float = 2.5) -> list[Listed]:
    """List the run in a folder, or all runs in the folders below it, three deep.

    Links to folders are not followed, and hidden folders are left out.

    Args:
        folder: Must be there.
        watch: For how many seconds heartbeats are watched that have not moved; only if
            a root holds one of the folders, and all of them at once.
    """
    found = list(_find(folder, _DEPTH))
    first = [_look(path) for path, _ in found]
    latest = _watch([path for path, _ in found], first, watch)
    return [
        _describe(path, problem, before, after)
        for (path, problem), before, after in zip(found, first, latest, strict=True)
    ]


def _find(folder: Path, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield the folders of runs, and folders that cannot be read with the reason."""
    try:
        with os.scandir(folder) as entries:
            files, folders = set(), []
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    files.add(entry.name)
                elif not entry.name.startswith("."):
                    folders.append(entry.name)
    except OSError as error:
        yield folder, f"cannot be read: {error.strerror}"
        return
    if files & {MANIFEST, STEPS} or files >= {LOCK, STATUS}:
        yield folder, ""
    elif depth:
        for name in sorted(folders):
            yield from _find(folder / name, depth - 1)


def _look(path: Path) -> Look | str:
    """Look at who holds a folder; or say why that cannot be told."""
    try:
        return look(path, _PATIENCE)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _watch(
    paths: Sequence[Path], first: Sequence[Look | str], seconds: float
) -> list[Look | str]:
    """Look again until every heartbeat has moved, or the time is over."""
    latest = list(first)
    end = time.monotonic() + seconds
    waiting = [
        number
        for number, seen in enumerate(first)
        if isinstance(seen, Look)
        and not seen.is_free
        and not is_gone(paths[number], seen.holder)
    ]
    while waiting and time.monotonic() < end:
        time.sleep(0.1)
        for number in waiting:
            latest[number] = _look(paths[number])
        waiting = [number for number in waiting if not _moved(first, latest, number)]
    return latest


def _moved(
    first: Sequence[Look | str], latest: Sequence[Look | str], number: int
) -> bool:
    before, after = first[number], latest[number]
    if isinstance(before, str) or isinstance(after, str):
        return isinstance(after, str)  # no use in looking at it again
    return before.pulse != after.pulse


def _describe(
    path: Path, problem: str, before: Look | str, after: Look | str
) -> Listed:
    """Gather what is known of a folder."""
    problems = [problem] if problem else []
    manifest = line = None
    if not problem:
        try:
            manifest = read_manifest(path)
        except InvalidTrace as error:
            problems.append(f"{MANIFEST} {error.problem}")
        try:
            line = _last_step(path / STEPS)
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{STEPS} is damaged at its end: {error}")
    if isinstance(after, str):
        holder = status = None
        if not problem:
            problems.append(f"{LOCK} or {STATUS} {after}")
    else:
        holder, status = after.holder, after.status
        named = ((LOCK, after.problem), (STATUS, after.status_problem))
        problems += [f"{name} {wrong}" for name, wrong in named if wrong]
    saved = checkpoints_of(path)
    newest = saved[-1][0] if saved else 0
    return Listed(
        path=path,
        manifest=manifest,
        steps=max(0 if line is None else line.step + 1, newest),
        loss=None if line is None else line.loss,
        checkpoint=newest if saved else None,
        checkpoint_bytes=saved[-1][1] if saved else 0,
        size=_size(path),
        state=_state(path, before, after),
        holder=holder,
        status=status,
        problems=tuple(problems),
    )


def _state(path: Path, before: Look | str, after: Look | str) -> str:
    if isinstance(before, str) or isinstance(after, str) or after.problem:
        return "unknown"
    if after.holder is None:
        return "unlocked"
    if after.holder.released:
        return "ended" if after.status is None else after.status.state
    if is_gone(path, after.holder):
        return "gone"
    return "silent" if before.pulse == after.pulse else "running"


def _last_step(file: Path) -> StepLine | None:
    """Return the last line that was written whole, without reading what is before."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return None
    with opened:
        length = opened.seek(0, os.SEEK_END)
        block = 1 << 14
        while True:
            opened.seek(max(0, length - block))
            whole, newline, _ = opened.read(block).rpartition(b"\n")
            _, another, line = whole.rpartition(b"\n")
            if another or block >= length:
                return _lines.decode(line) if newline else None
            if block >= _LONGEST_LINE:
                raise ValueError(f"its last {block} bytes have no line of a step")
            block *= 8


def checkpoints_of(run: Path) -> list[tuple[int, int]]:
    """Return step and bytes of every checkpoint of a run, the newest last."""
    found = []
    with suppress(OSError):  # there is no such folder
        for entry in os.scandir(run / "checkpoints"):
            if match := CHECKPOINT.fullmatch(entry.name):
                with suppress(OSError):  # its root has removed it just now
                    found.append((int(match[1]), entry.stat().st_size))
    return sorted(found)


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # a root has replaced it since
                continue
    return total
