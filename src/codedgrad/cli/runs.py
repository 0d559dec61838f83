"""`codedgrad runs`: every run in a folder, and whether its root is alive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import asdict

from codedgrad.cli.echo import echo
from codedgrad.errors import InvalidOptions
from codedgrad.trace.listing import Listed, list_runs
from codedgrad.trace.path_hints import did_you_mean

_HEADER = (
    *("run", "scheme", "engine", "workers", "parts", "steps", "checkpoint"),
    *("loss", "size", "state"),
)
_TO_THE_LEFT = {"run", "scheme", "engine", "state"}


def runs(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, or one that holds some.", metavar="DIR"
        ),
    ] = Path(),
    watch: Annotated[
        float,
        typer.Option(
            help="Seconds to watch heartbeats for, where a root holds a folder.", min=0
        ),
    ] = 2.5,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the runs in a folder: steps, newest checkpoint, loss, and who runs them.

    Folders of runs are looked for in DIR and up to three folders below. A run is called
    running only if its heartbeat moved while it was watched; silent means that it did
    not move, so its root may have been killed; gone, that this host's kernel knows it
    has ended.

    Example: codedgrad runs /shared/runs
    """
    if not folder.is_dir():
        hint = did_you_mean(folder, Path.is_dir)
        problem = f"there is no folder {str(folder)!r}{hint}"
        raise InvalidOptions("runs", problem, "one that holds runs")
    listed = list_runs(folder, watch)
    if as_json:
        shown = {"folder": str(folder), "runs": [_for_machines(run) for run in listed]}
        typer.echo(json.dumps(shown, allow_nan=False))
    elif listed:
        _show_people(listed, folder)
    else:
        echo(f"no run in {folder}, nor in folders up to three below")


def _show_people(listed: Sequence[Listed], folder: Path) -> None:
    names = [_name(run, folder) for run in listed]
    rows = [_HEADER, *(_row(*each) for each in zip(names, listed, strict=True))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if name in _TO_THE_LEFT else cell.rjust(width)
            for name, cell, width in zip(_HEADER, row, widths, strict=True)
        ]
        echo("  ".join(cells).rstrip())
    notes = [
        f"{name}: {note}"
        for name, run in zip(names, listed, strict=True)
        for note in _notes(run)
    ]
    if notes:
        echo("")
    for note in notes:
        echo(note)


def _name(run: Listed, folder: Path) -> str:
    return _plain(str(folder if run.path == folder else run.path.relative_to(folder)))


def _row(name: str, run: Listed) -> tuple[str, ...]:
    manifest = run.manifest
    state = run.state
    if state == "running" and run.holder is not None:
        state = f"running on {run.holder.host}, pid {run.holder.pid}"
    checkpoint = "-"
    if run.checkpoint is not None:
        checkpoint = f"{run.checkpoint} ({_bytes(run.checkpoint_bytes)})"
    return (
        name,
        "?" if manifest is None else _plain(manifest.title),
        "?" if manifest is None else _plain(manifest.engine),
        "?" if manifest is None else str(manifest.workers),
        "?" if manifest is None else str(manifest.parts),
        str(run.steps),
        checkpoint,
        "-" if run.loss is None else f"{run.loss:.4g}",
        _bytes(run.size),
        _plain(state),
    )


def _notes(run: Listed) -> list[str]:
    """Return what a word in the table cannot say, a sentence each."""
    notes = list(run.problems)
    beat = "it wrote no heartbeat"
    if run.status is not None:
        beat = f"last heartbeat: beat {run.status.beat} at step {run.status.step}"
    if run.state == "silent":
        notes.append(f"held by {run.holder}; {beat}; it may have been killed")
    if run.state == "gone":
        notes.append(f"its root ({run.holder}) ended without a word; {beat}")
    return [_plain(note) for note in notes]


def _for_machines(run: Listed) -> dict[str, Any]:
    manifest, status = run.manifest, run.status
    keys = ("label", "scheme", "engine", "workers", "parts", "created")
    return {
        "path": str(run.path),
        **{key: getattr(manifest, key, None) for key in keys},
        "steps": run.steps,
        "loss": run.loss,
        "checkpoint": run.checkpoint,
        "checkpoint_bytes": run.checkpoint_bytes,
        "bytes": run.size,
        "state": run.state,
        "root": None if run.holder is None else asdict(run.holder),
        "status": None if status is None else asdict(status),
        "problems": run.problems,
    }


def _bytes(count: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        del units[0]
    digits = 0 if units[0] == "B" or count >= 10 else 1
    return f"{count:.{digits}f} {units[0]}"


def _plain(text: str) -> str:
    """Return text of a file or a name on one line, without control characters."""
    return "".join(each if each.isprintable() else "?" for each in text)
