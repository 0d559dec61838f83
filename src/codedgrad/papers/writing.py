"""Exhibits as files: a figure, a table, curves; and all numbers for machines."""

from __future__ import annotations

import csv
import json
import math
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codedgrad.errors import InvalidOptions
from codedgrad.papers.drawing import save
from codedgrad.papers.paper import Cell, Exhibit, Paper, Table


def check_folder(folder: Path) -> None:
    """Refuse a folder that could not be written, before there is anything to lose."""
    if folder.exists() and not folder.is_dir():
        raise InvalidOptions(f"--out {folder}", "is a file", "a folder")
    whole = folder.absolute()
    near = next(path for path in (whole, *whole.parents) if path.exists())
    if not near.is_dir() or not os.access(near, os.W_OK | os.X_OK):
        raise InvalidOptions(f"--out {folder}", "cannot be written", "another folder")


def write_exhibit(folder: Path, paper: Paper, exhibit: Exhibit) -> list[Path]:
    """Write the files of an exhibit; each appears whole or not at all.

    Returns:
        A .png, a .csv and, where the figure shows more than the table, a -curves.csv.
    """
    stem = f"{paper.name}-{exhibit.name}"
    written = [folder / f"{stem}.png", folder / f"{stem}.csv"]
    with _appearing(written[0]) as hidden:
        title = f"{paper.name}: {exhibit.title}"
        save(hidden, title, exhibit.panels, (paper.citation, *exhibit.lines))
    _write_table(written[1], exhibit.table)
    if (curves := exhibit.curves) is not None:
        written.append(folder / f"{stem}-curves.csv")
        _write_table(written[-1], curves)
    return written


def write_facts(path: Path, found: dict[str, Any]) -> None:
    """Write what `facts` returns."""
    with _appearing(path) as hidden:
        text = json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False)
        hidden.write_text(text + "\n", encoding="utf-8")


def facts(
    made: Sequence[tuple[Paper, Sequence[Exhibit]]], *, seed: int, quick: bool
) -> dict[str, Any]:
    """Return all numbers and sentences, for machines."""
    return {
        "seed": seed,
        "quick": quick,
        "papers": [
            {
                "name": paper.name,
                "title": paper.title,
                "citation": paper.citation,
                "says": paper.says,
                "ours": paper.ours,
                "not_available": paper.missing,
                "exhibits": [_exhibit(each) for each in exhibits],
            }
            for paper, exhibits in made
        ],
    }


def _exhibit(exhibit: Exhibit) -> dict[str, Any]:
    table = exhibit.table
    return {
        "name": exhibit.name,
        "title": exhibit.title,
        "setting": exhibit.setting,
        "claim": exhibit.claim,
        "ours": exhibit.ours,
        "found": list(exhibit.found),
        "columns": [column.header for column in table.columns],
        "rows": [[_plain(cell) for cell in row] for row in table.rows],
    }


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _write_table(path: Path, table: Table) -> None:
    with (
        _appearing(path) as hidden,
        hidden.open("w", newline="", encoding="utf-8") as f,
    ):
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow([column.header for column in table.columns])
        for row in table.rows:
            cells = [_plain(cell) for cell in row]
            writer.writerow(["" if cell is None else cell for cell in cells])


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """Yield a file to write, which then takes its place at once."""
    hidden = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield hidden
        os.replace(hidden, path)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InvalidOptions(f"--out {path}", problem, "another folder") from None
    finally:
        hidden.unlink(missing_ok=True)
