"""A plan as a scenario that `codedgrad simulate` runs, the chosen scheme first."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from codedgrad.advise.plan.planner import Planned, Setting
from codedgrad.advise.plan.sentences import Advice
from codedgrad.delays import Replay, traces, write_matrix
from codedgrad.errors import InvalidOptions
from codedgrad.trace.files import write_whole


def check_scenario(path: Path) -> None:
    """Say now if a scenario cannot be written there."""
    if path.suffix.lower() != ".toml":
        raise InvalidOptions(f"--out {path}", "does not end in .toml", "plan.toml")
    for file in (path, _times_file(path)):
        if file.exists():
            raise InvalidOptions("--out", f"{file} is there already", "another name")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidOptions(f"--out {path}", "cannot be written", "another folder")


def write_scenario(
    path: Path,
    planned: Planned,
    advice: Advice,
    network: Mapping[str, object] | None = None,
) -> list[Path]:
    """Write a scenario; return the files written.

    Seconds that are in no file a scenario can name are written beside it.

    Args:
        path: A name that ends in `.toml`.
        planned: What was planned.
        advice: What came of it.
        network: As in a scenario, if there is one.
    """
    setting, written = planned.setting, [path]
    if setting.matrix is not None and setting.path is None:
        beside = _times_file(path)
        matrix = setting.matrix
        write_matrix(beside, matrix.steps, matrix.seconds, matrix.workers)
        written.insert(0, beside)
    tables = _delays(setting, path)
    chosen, *others = [
        advice.chosen,
        *(score for score in advice.ranking if score is not advice.chosen),
    ]
    where = setting.field
    machine: dict[str, object] = {
        "drain": where.machine.drain,
        "latency": where.machine.latency,
    }
    if network is not None:
        machine["network"] = dict(network)
    lines = [
        f"# {advice.sentence}",
        f"title = {_written(f'{setting.source.name}: {advice.sentence}')}",
        f"workers = {where.workers}",
        f"steps = {where.steps}",
        f"runs = {where.runs}",
        f"seed = {where.seed}",
        "",
        "[machine]",
        *(f"{key} = {_written(value)}" for key, value in machine.items()),
    ]
    for score in (chosen, *others):
        lines += ["", "[[schemes]]", f"scheme = {_written(score.candidate.text)}"]
    for table in tables:
        lines += ["", "[[delays]]"]
        lines += [f"{key} = {_written(value)}" for key, value in table.items()]
    write_whole(path, ("\n".join(lines) + "\n").encode())
    return written


def _times_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}-times.csv")


def _delays(setting: Setting, path: Path) -> Sequence[Mapping[str, object]]:
    if setting.matrix is None:
        return [_beside(table, path) for table in setting.tables]
    law, recorded = setting.field.law, setting.path
    assert isinstance(law, Replay)  # what there is a matrix for
    if recorded is None:
        recorded = _times_file(path).name
    elif recorded not in traces():
        recorded = os.path.relpath(recorded, path.parent)
    return [
        {"kind": "replay", "path": recorded, "share": law.share, "order": law.order}
    ]


def _beside(table: Mapping[str, object], path: Path) -> Mapping[str, object]:
    """Return a table whose recording is named relative to the scenario."""
    recorded = table.get("path")
    if not isinstance(recorded, str) or recorded in traces():
        return table
    return {**table, "path": os.path.relpath(recorded, path.parent)}


def _written(value: object) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {_written(one)}" for key, one in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
