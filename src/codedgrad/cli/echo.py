"""Printing what standard output can show; some know ASCII only."""

from __future__ import annotations

import sys
import textwrap

import typer

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
