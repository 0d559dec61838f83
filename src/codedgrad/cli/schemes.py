"""`codedgrad schemes`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

import typer

from codedgrad.errors import InvalidCode, InvalidOption, InvalidScheme
from codedgrad.schemes import SCHEMES, build
from codedgrad.schemes.registry import Family, options, typical

_WORKERS = 8  # of the examples, where any number will do
_FITTING = {"coded_reduce": 12}


def schemes(
    name: Annotated[
        str | None, typer.Argument(help="One of them, for its options in full.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the schemes and their options; with a name, explain one.

    Example: codedgrad schemes cyclic
    """
    if name is not None and name not in SCHEMES:
        close = get_close_matches(name, SCHEMES, n=1)
        advice = close[0] if close else f"one of {', '.join(SCHEMES)}"
        raise InvalidOption(f"there is no scheme {name!r}", advice)
    chosen = [describe(each) for each in (SCHEMES if name is None else [name])]
    if as_json:
        typer.echo(json.dumps([_for_machines(each) for each in chosen]))
        return
    if name is not None:
        _print_one(chosen[0])
        return
    for each in chosen:
        _echo(each.signature)
        _echo(each.summary, indent=4)
    typer.echo("\ncodedgrad schemes NAME explains one, with an example.")


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a scheme."""

    name: str
    meaning: str
    default: object
    required: bool

    def __str__(self) -> str:
        return self.name if self.required else f"{self.name}={self.default}"


@dataclass(frozen=True, slots=True)
class Description:
    """A scheme, for people."""

    name: str
    summary: str
    details: str
    origin: str
    choices: tuple[Choice, ...]
    example: str

    @property
    def signature(self) -> str:
        """Its name with its options, required ones first."""
        inside = ", ".join(map(str, self.choices))
        return f"{self.name}({inside})" if inside else self.name


def describe(name: str) -> Description:
    """Return what the docstring of a scheme says."""
    family = SCHEMES[name]
    head, _, arguments = (inspect.getdoc(family) or "").partition("\nArgs:\n")
    head, _, origin = head.partition("\nSource: ")
    summary, _, details = head.partition("\n")
    meanings = _meanings(arguments)
    choices = [
        Choice(
            name=option,
            meaning=meanings.get(option, ""),
            default=None if default is inspect.Parameter.empty else default,
            required=default is inspect.Parameter.empty,
        )
        for option, default in options(family).items()
    ]
    return Description(
        name=name,
        summary=summary,
        details=" ".join(details.split()),
        origin=" ".join(origin.split()),
        choices=tuple(sorted(choices, key=lambda choice: not choice.required)),
        example=_example(name, family),
    )


def _meanings(arguments: str) -> dict[str, str]:
    """Return what is said about each argument; up to the next section."""
    block = re.split(r"\n(?=\S)", arguments)[0]
    found = re.findall(
        r"^(\w+): (.*(?:\n[ ]+.*)*)", textwrap.dedent(block), re.MULTILINE
    )
    return {name: " ".join(text.split()) for name, text in found}


def _example(name: str, family: Family) -> str:
    known, workers = options(family), _FITTING.get(name, _WORKERS)
    given = {
        key: typical(key)
        for key, default in known.items()
        if default is inspect.Parameter.empty
    }
    try:
        build(name, workers, given)
    except (InvalidCode, InvalidScheme):
        if "count" not in known:
            raise
        given["count"] = typical("count")  # it must be told when to stop
    inside = ", ".join(f"{key}={value}" for key, value in given.items())
    scheme = f'"{name}({inside})"' if inside else name
    first = "" if name == "uncoded" else " --scheme uncoded \\\n   "
    return f"codedgrad simulate --workers {workers}{first} --scheme {scheme}"


def _print_one(one: Description) -> None:
    _echo(one.signature)
    for text in filter(None, (one.summary, one.details, one.origin)):
        _echo(text, indent=4)
    typer.echo("\nOptions" if one.choices else "\nIt has no options.")
    for choice in one.choices:
        default = "required" if choice.required else f"default {choice.default}"
        _echo(f"{choice.name} ({default})", indent=4)
        _echo(choice.meaning, indent=8)
    typer.echo("\nExample")
    typer.echo(textwrap.indent(one.example, "    "))


def _echo(text: str, indent: int = 0) -> None:
    first, later = " " * indent, " " * (indent or 4)
    typer.echo(textwrap.fill(text, 80, initial_indent=first, subsequent_indent=later))


def _for_machines(one: Description) -> dict[str, object]:
    return {
        "name": one.name,
        "summary": one.summary,
        "details": one.details,
        "origin": one.origin,
        "options": [
            {
                "name": choice.name,
                "meaning": choice.meaning,
                "required": choice.required,
                "default": choice.default,
            }
            for choice in one.choices
        ],
        "example": one.example,
    }
