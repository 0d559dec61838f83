"""`codedgrad doctor`: which engines work here, and how to get the others."""

from __future__ import annotations

import json
import os
import platform
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

import codedgrad
from codedgrad.cli.echo import WIDTH
from codedgrad.engines.doctor.doctor import findings
from codedgrad.engines.doctor.examination import Finding, Looking
from codedgrad.engines.ray.address import is_address
from codedgrad.errors import InvalidOptions
from codedgrad.view.subjects import shown

_INDENT = " " * 17  # before a reason
_LONGEST = 400  # characters of a reason
_COLOUR = re.compile(r"\x1b\[[\d;]*m")  # of what others say


def doctor(
    tries: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Take a small step on every engine that is installed; Ray starts a "
            "cluster of its own for it, mpirun three processes, torchrun two.",
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="Of a Ray cluster to look at: HOST:PORT, or auto. Default: "
            "RAY_ADDRESS.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Seconds for each.", min=1, max=3600)
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say which engines work here, what is missing, and how to install it.

    The local engine takes a step with two workers; of the others it is said whether
    they are installed and fit together. The lab is for benchmarks: hosts on one
    machine.

    Exit code 0 if the local engine works, 1 if not.

    Example: codedgrad doctor --try
    """
    if address is not None and not is_address(address):
        raise InvalidOptions("--address", f"is {address!r}", "HOST:PORT, or auto")
    looking = Looking(address, tries, limit)
    with _progress(looking) as told:
        if as_json:
            found = list(findings(looking, told))
            typer.echo(json.dumps(_for_machines(found)))
        else:
            typer.echo(_here())
            typer.echo("what     state   why, and what to do")
            found = [_echo(finding) for finding in findings(looking, told)]
    raise typer.Exit(0 if _works(found) else 1)


@contextmanager
def _progress(looking: Looking) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is waited for."""
    with Console(stderr=True).status("") as status:
        yield lambda name: status.update(f"{name}, up to {looking.limit:g} s")


def _works(found: list[Finding]) -> bool:
    return any(one.name == "local" and one.state == "ok" for one in found)


def _here() -> str:
    python = platform.python_version()
    system = f"{platform.system()} {platform.machine()}"
    version = f"codedgrad {codedgrad.__version__}"
    return f"{version}, Python {python}, {system}, {os.cpu_count()} cores\n"


def _echo(finding: Finding) -> Finding:
    reason = shown(_COLOUR.sub("", finding.reason), _LONGEST)
    first = f"{finding.name:8} {finding.state:7} "
    typer.echo(
        textwrap.fill(
            reason,
            WIDTH,
            initial_indent=first,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
        )
    )
    if finding.advice:
        typer.echo(f"{_INDENT}{shown(finding.advice, _LONGEST)}")
    return finding


def _for_machines(found: list[Finding]) -> dict[str, object]:
    return {
        "codedgrad": codedgrad.__version__,
        "python": platform.python_version(),
        "works": _works(found),
        "findings": [asdict(one) for one in found],
    }
