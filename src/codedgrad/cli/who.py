"""`codedgrad who`: which worker is slow, how, and since when."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedgrad.advise import Slowness, read_paces, said, who_is_slow
from codedgrad.advise.slow.sentences import HEADS, for_machines, rest, rows
from codedgrad.cli.echo import PATHS_HELP, WIDTH
from codedgrad.view.subjects import shown

_TEXT = ("worker", "what", "cause")


def who(
    path: Annotated[
        str,
        typer.Argument(
            help=PATHS_HELP,
            metavar="PATH",
            show_default=False,
        ),
    ],
    everybody: Annotated[
        bool, typer.Option("--all", help="List those with whom nothing is wrong, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say which worker is slow, how much, and since when.

    Every worker is compared with the others, step by step and part by part, so that
    neither a larger batch nor a larger share of the parts makes a worker slow. A worker
    that was cut off counts with the time it took at least. A worker is called slow if
    the difference is above 15 %, above chance, and above how much workers differ
    anyway. That takes 5 steps, of two workers 6; with fewer the command says so.

    Two scores from 0 to 1: now, the others' time over the worker's own, of the last ten
    steps; best, the worker's own best stretch over that.

    Examples: codedgrad who runs/first, codedgrad who times.csv
    """
    found = who_is_slow(read_paces(path))
    if as_json:
        told = {"path": path, **for_machines(found)}
        typer.echo(json.dumps(told, allow_nan=False))
        return
    _show(found, everybody)


def _show(found: Slowness, everybody: bool) -> None:
    for sentence in said(found):
        typer.echo(textwrap.fill(sentence, WIDTH))
    if found.savings is not None and found.savings.steps:
        typer.echo(textwrap.fill(str(found.savings), WIDTH))
    listed = rows(found, everybody)
    if listed:
        typer.echo("")
        console = Console(width=WIDTH)
        with console.capture() as printed:
            console.print(_table(listed))
        for line in printed.get().splitlines():
            typer.echo(line.rstrip())
    last = "" if everybody else rest(found)
    if last and listed:
        typer.echo(last)
    for note in (*found.doubts, *(found.remarks if listed else ())):
        typer.echo("\n" + textwrap.fill(note, WIDTH))


def _table(listed: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in HEADS:
        is_text = head in _TEXT
        table.add_column(
            Text(head),
            justify="left" if is_text else "right",
            no_wrap=head != "worker",
            overflow="fold",
        )
    for row in listed:
        table.add_row(*(Text(shown(cell)) for cell in row))
    return table
