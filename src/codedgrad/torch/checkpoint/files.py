"""Checkpoints: one safetensors file a step, written whole or not at all.

```text
checkpoints/
  step-00000100.safetensors            tensors by name; the rest as JSON in its metadata
  step-00000200.safetensors
  .step-00000300.safetensors.6f1c09ab  what a killed write left; the next removes it
```

Nothing in a checkpoint is ever executed; one from a stranger can at worst be refused.
A digest (XXH3) of all that a file holds is in its metadata, so bytes that a disk has
changed are noticed, and the run goes back to the checkpoint before. It is no signature.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from codedgrad.errors import InvalidCheckpoint, InvalidOptions, OtherVersion
from codedgrad.torch.checkpoint.packed import (
    DIGEST,
    KIND,
    VERSION,
    Packed,
    digest_of_state,
    is_whole,
    pack,
)
from codedgrad.torch.checkpoint.state_tree import unflatten
from codedgrad.trace.files import FULL, nothing, write_whole
from codedgrad.trace.listing import CHECKPOINT

_STRAY = re.compile(r"\.step-[0-9]{8,}\.safetensors\.[0-9a-f]{8}")
_SENSELESS = (  # what torch, numpy and Python say to what is not for them
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
_log = logging.getLogger("codedgrad")


def save(path: Path | str, state: Mapping[str, Any]) -> None:
    """Write a state to a file, so that a kill leaves the old file or the new one.

    Beside the state, memory is needed only for tensors that are not contiguous, that
    overlap, or that are on a GPU.

    Args:
        path: The file; its folder must be there.
        state: What `state_tree.flatten` takes: numbers, text, tensors, nested.

    Raises:
        InvalidCheckpoint: If there is something else in the state, or no space left.
    """
    path = Path(path)
    packed = pack(path, state)
    try:
        write_whole(path, *packed.pieces())
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> InvalidCheckpoint:
    problem = f"cannot be written: {error}; make space or choose another folder"
    return InvalidCheckpoint(path, problem)


def load(path: Path | str) -> dict[str, Any]:
    """Read a state from a file, into main memory.

    Raises:
        InvalidCheckpoint: If it is not a checkpoint, or damaged; says how.
    """
    path = Path(path)
    structure, tensors = _read(path)
    try:
        state = unflatten(structure, tensors)
    except InvalidCheckpoint as error:
        raise InvalidCheckpoint(path, f"is damaged: {error}") from error
    if not isinstance(state, dict):
        raise InvalidCheckpoint(path, f"holds a {type(state).__name__}, not a state")
    return state


def _read(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the structure and the tensors of a file."""
    try:
        _read_once(path)
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            structure = _structure(path, metadata)
            names = file.keys()
            # Copied, for what it gives is the file itself, mapped and ill aligned.
            tensors = {name: file.get_tensor(name).clone() for name in names}
            _check_digest(path, metadata, tensors)
            return structure, tensors
    except OSError as error:
        raise InvalidCheckpoint(
            path, f"cannot be read: {error.strerror or error}"
        ) from error
    except InvalidCheckpoint:
        raise
    except (SafetensorError, *_SENSELESS) as error:  # torch's, of shapes that lie
        [said, *_] = str(error).splitlines() or [repr(error)]
        raise InvalidCheckpoint(
            path, f"is damaged, or no checkpoint: {said}"
        ) from error


def _read_once(path: Path) -> None:
    """Read a file into the page cache.

    The library maps it, and where the disk cannot read a page of a mapped file the
    process gets SIGBUS and ends. Here it is an OSError.
    """
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _check_digest(
    path: Path, metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Compare what was read with the digest in the file, if it has one."""
    if DIGEST not in metadata:  # from before there were any
        return
    if digest_of_state(metadata["structure"], tensors) != metadata[DIGEST]:
        problem = "is damaged: its content is not what was written (another digest)"
        raise InvalidCheckpoint(path, problem)


def _structure(path: Path, metadata: Mapping[str, str]) -> Any:
    """Return what the metadata of a file say of its structure."""
    if metadata.get("kind") != KIND:
        problem = (
            f"is not a checkpoint of codedgrad: its kind is {metadata.get('kind')!r}"
        )
        raise InvalidCheckpoint(path, problem)
    version = metadata.get("version", "")
    if version != str(VERSION):
        problem = f"has version {version[:9]!r}, this is {VERSION}"
        if version.isdecimal() and int(version[:9]) > VERSION:
            problem += "; read it with a newer codedgrad"
        elif version.isdecimal():  # going on would repeat samples and leave others out
            problem += (
                ": its run took the samples in another order; finish it with the "
                "codedgrad that began it, or begin anew in another folder"
            )
        raise OtherVersion(path, problem)
    try:
        return json.loads(metadata["structure"])
    except (KeyError, RecursionError, ValueError) as error:
        problem = f"is damaged: its structure is not JSON ({error!r})"
        raise InvalidCheckpoint(path, problem) from error


class Shelf:
    """The checkpoints of a run: a folder that keeps the newest few.

    Only one process may write to it at a time.

    Args:
        folder: Where; made when the first is written.
        keep: How many.

    Raises:
        InvalidOptions: If `keep` is below 1.
    """

    def __init__(self, folder: Path | str, keep: int = 3) -> None:
        if keep < 1:
            raise InvalidOptions("checkpoints", f"keep = {keep}", "1 or more")
        self.folder = Path(folder)
        self.keep = keep
        self._was_there = self.folder.is_dir()
        self._has_made_room = False

    def write(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of a step, then remove those no longer kept.

        Those of later steps could not be read, for the run went back to before them:
        they are set aside, under another name.

        Raises:
            InvalidCheckpoint: If it cannot be written; the earlier ones stay.
        """
        return self.put(step, pack(self.path(step), state))

    def put(
        self, step: int, packed: Packed, before: Callable[[], None] = nothing
    ) -> Path:
        """Write a packed state, as `write` does.

        Where the disk is full, the oldest checkpoints go to make room, one after the
        other, but never the newest that can be read: it stays until a newer one is
        whole. With `keep=1` nothing goes.

        Args:
            step: Its step.
            packed: The state.
            before: Called before the file gets its name and before anything is
                removed. If it raises, neither happens.

        Raises:
            InvalidCheckpoint: If it cannot be written; an `OSError` is its cause.
        """
        if step < 0:
            raise InvalidCheckpoint(self.folder, f"step {step} is below 0")
        self._make_folder()
        path = self.path(step)
        try:
            self.remove_strays(before)  # first, for they take space
            self._write(path, packed.pieces(), before)
            old, later = self._others(step)
            _remove_all(old, before)
            for each in later:  # a failing disk may only have failed for a moment
                os.replace(each, f"{each}.damaged")
        except OSError as error:
            with suppress(OSError):  # the first error says what is wrong with the disk
                before()  # the root's successor may have removed the file: not the disk
            raise _unwritten(path, error) from error
        return path

    def remove_strays(self, before: Callable[[], None] = nothing) -> None:
        """Remove what writes that did not end have left.

        A root that takes a folder calls it at once: an earlier root that was paused
        right before it gives such a file its name fails to, when it is woken.

        Args:
            before: Called before anything is removed; if it raises, nothing is.

        Raises:
            OSError: If the folder cannot be read.
        """
        if self.folder.is_dir():
            names = os.listdir(self.folder)
            strays = [self.folder / name for name in names if _STRAY.fullmatch(name)]
            _remove_all(strays, before)

    def _make_folder(self) -> None:
        # Once it was there, its parent is not made again: a run's folder that has
        # vanished was removed, or its disk is gone, and then the next disk would fill.
        try:
            self.folder.mkdir(parents=not self._was_there, exist_ok=True)
            self._was_there = True
        except OSError as error:
            problem = f"cannot be made: {error}; choose another folder"
            raise InvalidCheckpoint(self.folder, problem) from error

    def _write(
        self,
        path: Path,
        pieces: list[bytes | memoryview],
        before: Callable[[], None],
    ) -> None:
        while True:
            try:
                return write_whole(path, *pieces, before=before)
            except OSError as error:
                if error.errno not in FULL or not self._make_room(before):
                    raise

    def _make_room(self, before: Callable[[], None]) -> bool:
        """Remove the oldest checkpoint but for the newest good one; say if one went."""
        steps = self.steps()
        good = next((s for s in reversed(steps) if is_whole(self.path(s))), None)
        oldest = next((step for step in steps if step != good), None)
        if good is None or oldest is None:
            return False
        before()
        self.path(oldest).unlink()
        if not self._has_made_room:  # once: it may be so from now on
            text = "%s is on a full disk: fewer than %d checkpoints are kept"
            _log.warning(text, self.folder, self.keep)
        self._has_made_room = True
        return True

    def _others(self, step: int) -> tuple[list[Path], list[Path]]:
        """Return those before the newest few up to a step, and those after it."""
        steps = self.steps()
        earlier = [other for other in steps if other <= step]
        later = steps[len(earlier) :]
        old = earlier[: -self.keep]
        return [self.path(each) for each in old], [self.path(each) for each in later]

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending.

        Raises:
            InvalidCheckpoint: If the folder cannot be read.
        """
        try:
            if not self.folder.is_dir():
                return []
            found = map(CHECKPOINT.fullmatch, os.listdir(self.folder))
            steps = {int(name[1]) for name in found if name}
            return sorted(step for step in steps if self.path(step).is_file())
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise InvalidCheckpoint(self.folder, problem) from None

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Return the newest step that can be read, and its state; None without any.

        Where the newest is damaged, a warning is logged, and it is the one before.

        Raises:
            InvalidCheckpoint: If there are some, and all are damaged; or if the newest
                is of another version, whose run this one must not go on with.
        """
        first: InvalidCheckpoint | None = None
        for step in reversed(self.steps()):
            try:
                state = load(self.path(step))
            except OtherVersion:
                raise
            except InvalidCheckpoint as error:
                first = first or error
                continue
            if first is not None:
                _log.warning("%s; going back to the checkpoint of step %d", first, step)
            return step, state
        if first is None:
            return None
        problem = (
            f"none of its checkpoints can be read; restore one from a copy, or choose "
            f"another folder; the newest: {first}"
        )
        raise InvalidCheckpoint(self.folder, problem) from first

    def path(self, step: int) -> Path:
        """Return where the checkpoint of a step is, or would be."""
        return self.folder / f"step-{step:08d}.safetensors"


def _remove_all(paths: list[Path], before: Callable[[], None]) -> None:
    """Remove files that were listed before `before` looks at the lock.

    So a root that was paused for any time since, and has lost the folder, removes
    nothing that its successor has written.
    """
    before()
    for path in paths:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; training goes on if not."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        _log.warning("%s cannot be removed: %s", path, error)


def generators() -> dict[str, Any]:
    """Return the states of torch's, numpy's and Python's global generators.

    Those of GPUs are in it where there are any (untested).

    Example:
        >>> before = generators()
        >>> first = torch.rand(3), random.random()
        >>> restore_generators(before)
        >>> bool((torch.rand(3) == first[0]).all()), random.random() == first[1]
        (True, True)
    """
    version, numbers, gauss = random.getstate()
    state = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  the user's
        "python": (version, np.array(numbers, np.uint32), gauss),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_generators(state: Mapping[str, Any]) -> None:
    """Put the global generators back to where `generators` found them.

    Raises:
        InvalidCheckpoint: If these are not the states of generators.
    """
    try:
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(map(int, numbers)), gauss))
        if not 0 <= state["numpy"]["state"].get("pos", 0) <= 624:  # numpy does not look
            raise ValueError("a position outside of its 624 words")
        np.random.set_state(state["numpy"])  # noqa: NPY002  the user's
        torch.set_rng_state(state["torch"])
        if torch.cuda.is_available():
            here = torch.cuda.device_count()
            torch.cuda.set_rng_state_all(state.get("cuda", [])[:here])
    except _SENSELESS as error:
        problem = f"are not those of generators: {error!r}"
        raise InvalidCheckpoint("the states of the generators", problem) from error
