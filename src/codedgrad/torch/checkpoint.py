"""Checkpoints: one safetensors file a step, written whole or not at all.

```text
checkpoints/
  step-00000100.safetensors            tensors by name; the rest as JSON in its metadata
  step-00000200.safetensors
  .step-00000300.safetensors.6f1c09ab  what a killed write left; the next removes it
```

Nothing in a checkpoint is ever executed; one from a stranger can at worst be refused.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from codedgrad.errors import InvalidCheckpoint, InvalidScenario
from codedgrad.torch.tree import flatten, unflatten

__all__ = ["Shelf", "generators", "load", "restore_generators", "save"]

VERSION = 2  # 1: another order of samples, from before steps had equal sizes
_KIND = "codedgrad checkpoint"
_LONGEST = 40_000_000  # bytes of JSON; safetensors reads a header of 100 MB
_NAME = re.compile(r"step-([0-9]{8,})\.safetensors")
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
        state: What `tree.flatten` takes: numbers, text, tensors, nested.

    Raises:
        InvalidCheckpoint: If there is something else in the state, or no space left.
    """
    path = Path(path)
    try:
        structure, tensors = flatten(dict(state))
    except InvalidCheckpoint as error:
        raise InvalidCheckpoint(path, error.problem) from None
    text = json.dumps(structure, allow_nan=False, separators=(",", ":"))
    if len(text) > _LONGEST:
        problem = f"has {len(text)} bytes of numbers and text, over {_LONGEST}"
        raise InvalidCheckpoint(path, f"{problem}; keep long lists as tensors")
    metadata = {"kind": _KIND, "version": str(VERSION), "structure": text}
    try:
        _write(path, tensors, metadata)
    except (OSError, SafetensorError) as error:
        problem = f"cannot be written: {error}; make space or choose another folder"
        raise InvalidCheckpoint(path, problem) from error


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
        with safe_open(path, framework="pt", device="cpu") as file:
            structure = _structure(path, file.metadata() or {})
            names = file.keys()
            # Copied, for what it gives is the file itself, mapped and ill aligned.
            return structure, {name: file.get_tensor(name).clone() for name in names}
    except OSError as error:
        raise InvalidCheckpoint(path, f"cannot be read: {error}") from error
    except InvalidCheckpoint:
        raise
    except (SafetensorError, *_SENSELESS) as error:  # torch's, of shapes that lie
        [said, *_] = str(error).splitlines() or [repr(error)]
        raise InvalidCheckpoint(
            path, f"is damaged, or no checkpoint: {said}"
        ) from error


def _structure(path: Path, metadata: Mapping[str, str]) -> Any:
    """Return what the metadata of a file say of its structure."""
    if metadata.get("kind") != _KIND:
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
        raise InvalidCheckpoint(path, problem)
    try:
        return json.loads(metadata["structure"])
    except (KeyError, RecursionError, ValueError) as error:
        problem = f"is damaged: its structure is not JSON ({error!r})"
        raise InvalidCheckpoint(path, problem) from error


def _write(
    path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]
) -> None:
    """Write a file in a hidden folder beside, see it to the disk, and rename it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.mkdir()  # save_file has a temporary file of its own, which a kill leaves
    try:
        file = beside / path.name
        save_file(tensors, file, metadata)
        file.chmod(beside.stat().st_mode & 0o666)  # as the umask wants; it made 0o600
        _sync(file)
        os.replace(file, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # else the next write does it


def _sync(path: Path) -> None:
    """See a file, or the names in a folder, to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class Shelf:
    """The checkpoints of a run: a folder that keeps the newest few.

    Only one process may write to it at a time.

    Args:
        folder: Where; made when the first is written.
        keep: How many.

    Raises:
        InvalidScenario: If `keep` is below 1.
    """

    def __init__(self, folder: Path | str, keep: int = 3) -> None:
        if keep < 1:
            raise InvalidScenario("checkpoints", f"keep = {keep}", "1 or more")
        self.folder = Path(folder)
        self.keep = keep

    def write(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of a step, then remove those no longer kept.

        Those of later steps go as well: the run went back to before them.

        Raises:
            InvalidCheckpoint: If it cannot be written; the earlier ones stay.
        """
        if step < 0:
            raise InvalidCheckpoint(self.folder, f"step {step} is below 0")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be made: {error}; choose another folder"
            raise InvalidCheckpoint(self.folder, problem) from error
        self._remove_strays()  # first, for they take space
        save(self._path(step), state)
        earlier = [other for other in self.steps() if other <= step]
        for other in sorted({*self.steps()} - {*earlier[-self.keep :]}):
            _remove(self._path(other))
        return self._path(step)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        found = map(_NAME.fullmatch, os.listdir(self.folder))
        steps = {int(name[1]) for name in found if name}
        return sorted(step for step in steps if self._path(step).is_file())

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Return the newest step that can be read, and its state; None without any.

        Where the newest is damaged, a warning is logged, and it is the one before.

        Raises:
            InvalidCheckpoint: If there are some, and all are damaged.
        """
        first: InvalidCheckpoint | None = None
        for step in reversed(self.steps()):
            try:
                state = load(self._path(step))
            except InvalidCheckpoint as error:
                first = first or error
                continue
            if first is not None:
                _log.warning("%s; going back to the checkpoint of step %d", first, step)
            return step, state
        if first is None:
            return None
        problem = f"none of its checkpoints can be read; the newest: {first}"
        raise InvalidCheckpoint(self.folder, problem) from first

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"

    def _remove_strays(self) -> None:
        for name in filter(_STRAY.fullmatch, os.listdir(self.folder)):
            _remove(self.folder / name)


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
