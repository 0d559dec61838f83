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
from codedgrad.cli.echo import WIDTH
from codedgrad.view.subjects import shown

_TEXT = ("worker", "what", "cause")


def who(
    path: Annotated[
        str,
        typer.Argument(
            help="The folder of a run, a trace (.jsonl), recorded seconds (.csv, .npy, "
            ".parquet), or AR or SE, which come with codedgrad.",
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

    Everybody is compared with the others, step by step and part by part, so that
    neither a larger batch nor a larger share makes anybody slow. Who was not waited for
    counts with what it took at least. Only what is clearly more than chance, more than
    how much workers differ anyway, and more than 15 % is told.

    Two scores from 0 to 1: now, the others' time over its own, of the last ten steps;
    best, its own best stretch over that.

    Example: codedgrad who runs/first
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
