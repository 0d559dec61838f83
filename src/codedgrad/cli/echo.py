"""What the commands print alike: text that standard output can show, and help."""

from __future__ import annotations

import sys
import textwrap

import typer

from codedgrad.scenario.delays_text import PATHS

PATHS_HELP = f"{PATHS[0].upper()}{PATHS[1:]}, which come with codedgrad."
"""What `simulate`, `plan`, `who` and `report` take as a path."""

WIDTH = 80
"""Columns of a line, of every table and sentence."""

_PLAIN = {"±": "+-", "“": '"', "”": '"'}  # what ASCII has in their place


def encodable(text: str) -> str:
    """Return a text as standard output can show it, if there is one."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if text.encode(encoding, "replace").decode(encoding) != text:
        for letter, plain in _PLAIN.items():
            text = text.replace(letter, plain)
    return text.encode(encoding, "replace").decode(encoding)


def echo(text: str) -> None:
    """Print a text."""
    typer.echo(encodable(text))


def echo_wrapped(line: str) -> None:
    """Print a line, wrapped where it is longer than `WIDTH`."""
    echo(line if len(line) <= WIDTH else textwrap.fill(line, WIDTH))
