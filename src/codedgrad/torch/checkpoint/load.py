"""Reading a checkpoint without its run: no workers, no lock, nothing executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from codedgrad.errors import InvalidCheckpoint, InvalidTrace
from codedgrad.torch.checkpoint import files as checkpoint
from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.torch.checkpoint.run_folder import CHECKPOINTS
from codedgrad.trace.path_hints import did_you_mean
from codedgrad.trace.runs import (
    MANIFEST,
    Manifest,
    checked_manifest,
    read_manifest,
)

_ADVICE = "give the file of a checkpoint, or the folder of a run"
_KINDS: dict[str, type] = {
    "step": int,
    "epoch": int,
    "model": dict,
    "tracked": dict,
    "knobs": dict,
    "generators": dict,
}


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint, in main memory.

    Attributes:
        path: Its file.
        step: Steps that were done; the number of the next one.
        epoch: That the next step belongs to.
        model: For `load_state_dict` of the model.
        tracked: For `load_state_dict` of what was tracked, by the names given there.
        knobs: The values of `coded.knobs`.
        generators: The states of torch's, numpy's and Python's generators.
        manifest: What was run; None: neither the checkpoint nor its folder says so.
    """

    path: Path
    step: int
    epoch: int
    model: dict[str, Tensor]
    tracked: dict[str, dict[str, Any]]
    knobs: dict[str, Any]
    generators: dict[str, Any]
    manifest: Manifest | None


def load(path: Path | str) -> Checkpoint:
    """Read a checkpoint; its run may go on meanwhile.

    Args:
        path: The file of a checkpoint; or the folder of a run, or its `checkpoints`:
            then the newest that is whole.

    Raises:
        InvalidCheckpoint: If there is none, or it is damaged; says how.

    Example:
        >>> import tempfile, torch, codedgrad as cg
        >>> def job():
        ...     x = torch.ones(8, 2)
        ...     model = torch.nn.Linear(2, 1)
        ...     return cg.torch.Job(model, torch.nn.MSELoss(), (x, x[:, :1]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with cg.torch.train(job, engine="here", workers=2, run_dir=folder) as c:
        ...         for step in c.steps(3):
        ...             report = c.backward()
        ...     saved = cg.torch.load(folder)
        >>> saved.step, saved.manifest.workers
        (3, 2)
        >>> model = torch.nn.Linear(2, 1)
        >>> model.load_state_dict(saved.model)
        <All keys matched successfully>
    """
    path = Path(path)
    if not path.exists():
        problem = f"does not exist{did_you_mean(path)}; {_ADVICE}"
        raise InvalidCheckpoint(path, problem)
    path, state = _newest(path) if path.is_dir() else (path, checkpoint.load(path))
    for name, kind in _KINDS.items():
        if not isinstance(state.get(name), kind):
            problem = f"is not the checkpoint of a run: it has no {name}"
            raise InvalidCheckpoint(path, problem)
    found = {name: state[name] for name in _KINDS}
    return Checkpoint(path=path, manifest=_manifest(path, state), **found)


def _newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file and the state of the newest checkpoint that is whole."""
    inside = folder / CHECKPOINTS
    shelf = Shelf(inside if inside.is_dir() else folder)
    while True:
        steps = shelf.steps()
        try:
            newest = shelf.newest()
            break
        except InvalidCheckpoint:
            if shelf.steps() == steps:
                raise  # else its run has replaced what was about to be read
    if newest is None:
        raise InvalidCheckpoint(folder, f"has no checkpoint; {_ADVICE}")
    step, state = newest
    return shelf.path(step), state


def _manifest(path: Path, state: dict[str, Any]) -> Manifest | None:
    """Return what was run, as the checkpoint says it, or else the folder around it."""
    if "manifest" in state:
        try:
            return checked_manifest(path, msgspec.convert(state["manifest"], Manifest))
        except (InvalidTrace, msgspec.ValidationError) as error:
            problem = f"is damaged: its manifest does not describe a run: {error}"
            raise InvalidCheckpoint(path, problem) from None
    run = path.parent.parent
    return read_manifest(run) if (run / MANIFEST).is_file() else None
