"""Schemes by name, as on the command line and in scenario files."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping

from codedgrad.core.plan import Scheme
from codedgrad.errors import InvalidCode, InvalidScheme

Family = Callable[..., Scheme]
"""What makes a scheme: a function of the number of workers and of its options."""

_TYPICAL = {
    "children": 3, "clusters": 2, "copies": 2, "count": 6, "degree": 2, "straggle": 0.1,
}  # of options, where 1 would not do  # fmt: skip
_NAME = r"[A-Za-z_][\w-]*"
_FILE = r"[^()]+\.py(?::[A-Za-z_]\w*)?"  # a Python file and what makes the scheme in it
_SHAPE = re.compile(rf"\s*({_NAME}|{_FILE})\s*(?:\((.*)\))?\s*")


def parse(text: str, families: Mapping[str, Family]) -> tuple[str, dict[str, object]]:
    """Return the name and the options of a scheme written as `name(key=value, ...)`.

    Options without a key are the scheme's first ones, in their order. Values are
    numbers, true or false, plain words, and lists of them in brackets. A name may be a
    Python file and what makes the scheme in it, `FILE.py:NAME`.

    Example:
        >>> from codedgrad.schemes import SCHEMES
        >>> parse("clustered(5, tolerance=1, rule=threshold)", SCHEMES)
        ('clustered', {'clusters': 5, 'tolerance': 1, 'rule': 'threshold'})
        >>> parse("stochastic(2, straggle=[0.1, 0.25])", SCHEMES)
        ('stochastic', {'copies': 2, 'straggle': [0.1, 0.25]})
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise InvalidScheme(
            f"{text!r} is not a scheme", "a name, such as fractional(tolerance=1)"
        )
    name, inside = shape[1], shape[2] or ""
    first = _without_a_key(find(name, families))
    given: dict[str, object] = {}
    words = apart(inside)
    if words is None:
        advice = "lists such as [0.1, 0.2]"
        raise InvalidScheme(f"{text!r} has an odd bracket", advice)
    for word in words:
        key, equals, value = (w.strip() for w in word.partition("="))
        if not equals:
            free = [o for o in first if o not in given]
            if not free:
                raise InvalidScheme(
                    f"{text!r}: {word!r} has no name", "options written as key=value"
                )
            key, value = free[0], word
        if key in given:
            raise InvalidScheme(f"{text!r}: {key} is given twice", f"one {key}")
        given[key] = value_of(value)
    return name, given


def build_from(
    families: Mapping[str, Family],
    name: str,
    workers: int,
    given: Mapping[str, object],
) -> Scheme:
    """Return the scheme of this name for so many workers."""
    family = find(name, families)
    known = options(family)
    for key in given:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            listed = f"one of {', '.join(known)}" if known else f"{name} alone"
            advice = nearest[0] if nearest else listed
            raise InvalidScheme(f"{name} has no option {key}", advice)
    needed = [key for key in known if known[key] is inspect.Parameter.empty]
    missing = [key for key in needed if key not in given]
    if missing:
        each = ", ".join(f"{key}={given.get(key, typical(key))}" for key in needed)
        raise InvalidScheme(f"{name} needs {' and '.join(missing)}", f"{name}({each})")
    return family(workers, **given)


def build_with_parts(
    families: Mapping[str, Family],
    name: str,
    workers: int,
    given: Mapping[str, object],
    parts: int,
) -> Scheme:
    """Return the scheme with so many parts, or say which other schemes have as many.

    Args:
        families: Every scheme by its name.
        name: Of the scheme.
        workers: How many workers there are.
        given: Its options; `pieces` among them give way to `parts`.
        parts: In all.
    """
    said = given.get("parts", parts)
    if said != parts:
        problem = f"{name}: parts = {said}, and the run has {parts}"
        raise InvalidScheme(problem, f"{name} without parts")
    wanted = {key: value for key, value in given.items() if key != "pieces"}
    try:
        usual = build_from(families, name, workers, given)
        if usual.parts == parts:  # under its usual name, as when the run was begun
            return usual
    except (InvalidCode, InvalidScheme):
        pass  # with these parts it may be possible, or the error says more
    try:
        return build_from(families, name, workers, {**wanted, "parts": parts})
    except (InvalidCode, InvalidScheme) as error:
        others = ["auto", "uncoded"]
        if "tolerance" in given:
            others.insert(1, f"cyclic(tolerance={given['tolerance']})")
        able = [each for each in others if _takes(families, each, workers, parts)]
        if not able:  # numbers that no scheme has
            raise
        family = f"{error.family}: " if isinstance(error, InvalidCode) else ""
        raise InvalidScheme(
            f"{family}{error.problem}",
            f"{error.advice}; or {' or '.join(able)}, which can have {parts} parts "
            f"with {workers} workers",
        ) from None


def _takes(families: Mapping[str, Family], text: str, workers: int, parts: int) -> bool:
    try:
        name, given = parse(text, families)
        build_from(families, name, workers, {**given, "parts": parts})
    except (InvalidCode, InvalidScheme):
        return False
    return True


def typical(option: str) -> object:
    """Return a value of an option to try first.

    Example:
        >>> typical("children"), typical("tolerance")
        (3, 1)
    """
    return _TYPICAL.get(option, 1)


def options(family: Family) -> dict[str, object]:
    """Return the options of a family and their defaults, `empty` where required."""
    parameters = list(inspect.signature(family).parameters.values())[1:]
    return {p.name: p.default for p in parameters}


def _without_a_key(family: Family) -> list[str]:
    """Return the options that may be given by their place alone."""
    parameters = list(inspect.signature(family).parameters.values())[1:]
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def apart(inside: str) -> list[str] | None:
    """Split at the commas that are not inside brackets; None if a bracket is odd.

    Example:
        >>> apart("2, straggle=[0.1, 0.2]")
        ['2', 'straggle=[0.1, 0.2]']
    """
    words, depth = [""], 0
    for letter in inside:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
        if depth < 0:
            break
    return None if depth else [word.strip() for word in words if word.strip()]


def find(name: str, families: Mapping[str, Family]) -> Family:
    """Return what makes the scheme of this name, or say which name is near it."""
    if name not in families:
        listed = f"one of {', '.join(families)}"
        package = "installing the package that registers it, if it has one"
        # Close enough for a slip of a finger; the name of an absent package is not.
        nearest = difflib.get_close_matches(name, families, n=1, cutoff=0.7)
        advice = nearest[0] if nearest else f"{listed}; or {package}"
        raise InvalidScheme(f"there is no scheme {name!r}", advice)
    return families[name]


def value_of(word: str) -> object:
    """Return what a word of a command line stands for: a number, a list, a word."""
    if word.startswith("[") and word.endswith("]"):
        return [value_of(w) for w in map(str.strip, word[1:-1].split(",")) if w]
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word.strip("'\"")
