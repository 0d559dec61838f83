"""The command line: parse, call, print."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import codedgrad
from codedgrad.cli.demo import demo
from codedgrad.errors import CodedgradError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"codedgrad {codedgrad.__version__}")
        raise typer.Exit


@app.callback()
def codedgrad_(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print it."
        ),
    ] = False,
) -> None:
    """Synchronous training that does not wait for its slowest workers."""


def main() -> None:
    """Run the command line; bad input is one sentence and exit code 2."""
    try:
        app()
    except CodedgradError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
