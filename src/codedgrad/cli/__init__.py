"""The command line: parse, call, print."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

import codedgrad
from codedgrad.cli.demo import demo
from codedgrad.cli.doctor import doctor
from codedgrad.cli.papers import papers
from codedgrad.cli.plan import plan
from codedgrad.cli.probe import probe
from codedgrad.cli.report import report
from codedgrad.cli.runs import runs
from codedgrad.cli.schemes import schemes
from codedgrad.cli.simulate import help_text, simulate
from codedgrad.cli.who import who
from codedgrad.errors import CodedgradError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(demo)
app.command(help=help_text())(simulate)
app.command()(schemes)
app.command()(papers)
app.command()(report)
app.command()(runs)
app.command()(plan)
app.command()(probe)
app.command()(who)
app.command()(doctor)


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
        code = app(standalone_mode=False)
    except CodedgradError as error:
        _refuse(str(error))
    except typer.TyperException as error:  # any wrong use of an option
        message = getattr(error, "format_message", error.__str__)()
        if message:  # without: no arguments at all, and the help was shown
            _refuse(message)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except OSError as error:  # a path or a device that will not do
        _refuse(str(error))
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(problem: str) -> NoReturn:
    print("error: " + " ".join(problem.split()), file=sys.stderr)
    sys.exit(2)
