"""Delays in words, as the command line has them: `kind(key=value, ...)`."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import fields
from difflib import get_close_matches
from pathlib import PurePath

from codedgrad.delays import MODELS, traces
from codedgrad.errors import InvalidDelays
from codedgrad.schemes.registry import apart

PATHS = (
    "the folder of a run, a trace (.jsonl), recorded seconds (.csv, .npy, .parquet), "
    "a probe (.json), AR or SE"
)
"""The kinds of paths that recorded times are read from, for people."""

_SHAPE = re.compile(r"([A-Za-z_-]+)\s*(?:\((.*)\))?", re.DOTALL)


def table_of(text: str) -> dict[str, object]:
    """Return the table for `codedgrad.delays.build` that a text stands for.

    Values are numbers, true or false, plain words, lists and tables as TOML writes
    them. Recorded times may be named by their path, or by their short name alone.

    Example:
        >>> table_of("sticky(factor=10, workers=0, always=true)")
        {'kind': 'sticky', 'factor': 10, 'workers': [0], 'always': True}
        >>> table_of("classes(factors=[1, 1, 3])")
        {'kind': 'classes', 'factors': [1, 1, 3]}
        >>> table_of("AR"), table_of("runs/first")
        ({'kind': 'replay', 'path': 'AR'}, {'kind': 'replay', 'path': 'runs/first'})
    """
    text = text.strip()
    if text in traces() or _is_path(text):
        return {"kind": "replay", "path": text}
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        advice = "a kind with its keys, such as spikes(probability=0.02, low=3, high=9)"
        raise InvalidDelays("delays", f"{text!r} cannot be read", advice)
    kind = shape[1].replace("_", "-")
    if kind not in MODELS:
        choices = [*MODELS, *traces()]
        close = get_close_matches(kind, choices, n=1)
        listed = f"{', '.join(MODELS)}, or {PATHS}"
        advice = f"{close[0]!r} of {listed}" if close else f"one of {listed}"
        raise InvalidDelays("delays", f"there is no kind {kind!r}", advice)
    return {"kind": kind, **_values(kind, shape[2] or "", text)}


def _is_path(text: str) -> bool:
    """Whether a text names a file or a folder, and not a kind of delays."""
    if "(" in text or text.replace("_", "-") in MODELS:
        return False
    has_form = bool(PurePath(text).suffix) or os.sep in text
    return has_form or (bool(text) and os.path.isdir(text))


def keys_of(kind: str) -> dict[str, bool]:
    """Return the keys of a kind, and whether each takes a list."""
    if kind == "replay":  # it is read from a file, not made from its own fields
        return {"path": False, "share": False, "order": False}
    return {field.name: "Sequence" in str(field.type) for field in fields(MODELS[kind])}


def _values(kind: str, inside: str, text: str) -> dict[str, object]:
    known, given = keys_of(kind), dict[str, object]()
    words = apart(inside)
    if words is None:
        raise InvalidDelays("delays", f"{text!r} has an odd bracket", "closing it")
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value:
            problem = f"{word!r} in {text!r} is not key=value"
            raise InvalidDelays(kind, problem, f"keys of {', '.join(known)}")
        if key in given:
            raise InvalidDelays(kind, f"{key} is given twice", f"one {key}")
        plain = _value(value)
        alone = known.get(key, False) and not isinstance(plain, list)
        given[key] = [plain] if alone else plain
    return given


def _value(word: str) -> object:
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    try:
        return tomllib.loads(f"value = {' '.join(word.split())}")["value"]
    except tomllib.TOMLDecodeError:
        return word
