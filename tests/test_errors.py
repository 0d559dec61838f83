"""The tree of errors: as its module draws it, caught as promised, and sent whole."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import pytest

from codedgrad import errors
from codedgrad.errors import CodedgradError, InvalidInput

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, CodedgradError)
]
INPUTS = [
    "InvalidCall",
    "InvalidData",
    "InvalidFolder",
    "InvalidJob",
    "InvalidOptions",
    "InvalidScenario",
]
FACTS: dict[str, Any] = {
    "amplification": 1e9,
    "choices": ("cyclic(8, 1)", "cyclic(8, 2)"),
    "limit": 1e6,
    "messages": ((0, 1), (3, 2)),
    "step": 7,
}  # by the name of an argument; every other argument is a text


def _drawn() -> dict[str, tuple[str, str | None]]:
    """Return the tree of the docstring: every class, its parent, its other base."""
    assert errors.__doc__ is not None
    found: dict[str, tuple[str, str | None]] = {}
    above = ["CodedgradError"]
    for line in errors.__doc__.splitlines():
        if drawn := re.match(r"([│ ]*)[├└]── (\w+)(?: +\(also (\w+)\))?", line):
            depth = len(drawn[1]) // 4 + 1
            above[depth:] = [drawn[2]]
            assert drawn[2] not in found
            found[drawn[2]] = (above[depth - 1], drawn[3])
    return found


def _made(kind: type[CodedgradError]) -> CodedgradError:
    if not inspect.isfunction(kind.__init__):  # it has no facts of its own
        return kind("a text")
    names = list(inspect.signature(kind).parameters)
    facts = {**FACTS, "messages": 4} if "given" in names else FACTS
    return kind(*(facts.get(name, f"the {name}") for name in names))


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    built: dict[str, tuple[str, str | None]] = {}
    for kind in CLASSES:
        if kind is not CodedgradError:
            parent, *others = (base.__name__ for base in kind.__bases__)
            built[kind.__name__] = (parent, others[0] if others else None)
    assert _drawn() == built


def test_every_kind_of_invalid_input_has_its_class() -> None:
    assert sorted(kind.__name__ for kind in InvalidInput.__subclasses__()) == INPUTS


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_is_called_invalid_is_a_value_error(kind: type[CodedgradError]) -> None:
    assert issubclass(kind, ValueError) == any(
        base.__name__.startswith("Invalid") for base in kind.__mro__
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_comes_out_of_a_pickle_as_it_was(kind: type[CodedgradError]) -> None:
    error = _made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (
        str(error), error.args, vars(error),
    )  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_invalid_input_says_where_and_what_and_what_to_do(name: str) -> None:
    error = getattr(errors, name)("workers", "are 0", "1 or more")
    assert (error.where, error.problem, error.advice) == error.args
    assert str(error) == "workers: are 0; try 1 or more"
