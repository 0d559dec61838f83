"""`codedgrad schemes`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from dataclasses import dataclass
from typing import Annotated

import typer

from codedgrad.errors import InvalidCode, InvalidScheme
from codedgrad.schemes import SCHEMES, families
from codedgrad.schemes.own_schemes import Registration, registered
from codedgrad.schemes.registry import Family, find, options, typical

_WORKERS = 8  # of the examples, where any number will do
_FITTING = {"coded_reduce": 12}


def schemes(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One of them, or FILE.py:NAME of your own, for its options in full."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the schemes and their options; with a name, explain one.

    Schemes of installed packages are listed too; a package is imported when its scheme
    is named. A file that is named is run.

    Example: codedgrad schemes cyclic
    """
    if name is None:
        own = [one for each in registered().values() for one in each]
        _list([describe(each, SCHEMES[each]) for each in SCHEMES], own, as_json)
        return
    one = describe(name, find(name, families(run_files=True)))
    if as_json:
        typer.echo(json.dumps([_for_machines(one)]))
    else:
        _print_one(one)


def _list(built_in: list[Description], own: list[Registration], as_json: bool) -> None:
    if as_json:
        listed = [_for_machines(one) for one in built_in]
        typer.echo(json.dumps(listed + [_not_imported(one) for one in own]))
        return
    for each in built_in:
        _echo(each.signature)
        _echo(each.summary, indent=4)
    for one in own:
        _echo(one.name)
        _echo(str(one), indent=4)
        if one.name in SCHEMES or len(registered()[one.name]) > 1:
            _echo("Cannot be used: the name is taken twice.", indent=4)
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
    """A scheme, for people.

    Attributes:
        name: As on the command line.
        summary: The first line of its docstring.
        details: The rest, before the arguments.
        origin: The paper.
        registered: The package that registers it, and as what; empty: codedgrad.
        choices: Its options, required ones first.
        example: A command.
    """

    name: str
    summary: str
    details: str
    origin: str
    registered: str
    choices: tuple[Choice, ...]
    example: str

    @property
    def signature(self) -> str:
        """Its name with its options, required ones first."""
        inside = ", ".join(map(str, self.choices))
        return f"{self.name}({inside})" if inside else self.name


def describe(name: str, family: Family) -> Description:
    """Return what the docstring of a scheme says."""
    document = inspect.getdoc(family) or ""
    if document.startswith(f"{getattr(family, '__name__', '')}("):
        document = ""  # a dataclass without one: Python put its signature there
    head, _, arguments = re.sub(
        r"(?m)^Attributes:$", "Args:", document, count=1
    ).partition("\nArgs:\n")
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
        registered=_registered(name),
        choices=tuple(sorted(choices, key=lambda choice: not choice.required)),
        example=_example(name, family),
    )


def _registered(name: str) -> str:
    by = () if name in SCHEMES else registered().get(name, ())
    return " ".join(map(str, by))


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
        family(workers, **given)
    except (InvalidCode, InvalidScheme):
        if "count" in known:
            given["count"] = typical("count")  # it must be told when to stop
        elif name in SCHEMES:
            raise
        else:  # a scheme of another package: which values it takes is not known
            given = {key: key.upper() for key in given}
    inside = ", ".join(f"{key}={value}" for key, value in given.items())
    scheme = f'"{name}({inside})"' if inside else name
    first = "" if name == "uncoded" else " --scheme uncoded \\\n   "
    return f"codedgrad simulate --workers {workers}{first} --scheme {scheme}"


def _print_one(one: Description) -> None:
    _echo(one.signature)
    said = (one.summary, one.details, one.origin, one.registered)
    for text in filter(None, said):
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
        "registered": one.registered,
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


def _not_imported(one: Registration) -> dict[str, object]:
    """Return what is known of a scheme without importing its package."""
    return {
        "name": one.name,
        "summary": "",
        "details": "",
        "origin": "",
        "registered": str(one),
        "options": None,  # `codedgrad schemes NAME --json` imports it and has them
        "example": f"codedgrad schemes {one.name}",
    }
