"""Checks of what the delay models are given."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from reprlib import repr as brief

import numpy as np

from codedgrad.errors import InvalidDelays

LONGEST = 2.0**23
"""Seconds, 97 days: more is a wrong unit, and sums on the grid would be inexact."""

EXTREME = 1e6
"""The largest factor, and one over the smallest."""


def settle(model: object, **values: object) -> None:
    """Set the fields of a frozen dataclass to their checked values."""
    for name, value in values.items():
        object.__setattr__(model, name, value)


def number(
    model: str, name: str, value: object, least: float, most: float, what: str
) -> float:
    """Return `value` as a float from `least` to `most`, or say what would be one."""
    advice = f"{what} from {least:.7g} to {most:.7g}"
    if isinstance(value, bool) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        problem = f"{name} must be a number, got {brief(value)}"
        raise InvalidDelays(model, problem, advice)
    if not least <= value <= most:  # also refuses NaN
        raise InvalidDelays(model, f"{name} = {brief(value)} is out of range", advice)
    return float(value)


def seconds(model: str, name: str, value: object) -> float:
    """Return a duration, 0 included."""
    return number(model, name, value, 0.0, LONGEST, "seconds")


def probability(model: str, name: str, value: object) -> float:
    """Return a probability, 0 and 1 included."""
    return number(model, name, value, 0.0, 1.0, "a number")


def factor(model: str, name: str, value: object) -> float:
    """Return what times are multiplied or divided by."""
    return number(model, name, value, 1 / EXTREME, EXTREME, "a factor")


def ordered(model: str, low: float, high: float) -> None:
    """Refuse an interval that ends before it begins."""
    if low > high:
        problem = f"low = {low:g} is more than high = {high:g}"
        raise InvalidDelays(model, problem, f"low={high:g}, high={low:g}")


def whole(model: str, name: str, value: object, least: int) -> int:
    """Return `value` as an int of at least `least`."""
    advice = f"a whole number, {least} or more"
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)  # type: ignore[arg-type]  # TypeError is ours
    except TypeError:
        problem = f"{name} must be a whole number, got {brief(value)}"
        raise InvalidDelays(model, problem, advice) from None
    if count < least:
        raise InvalidDelays(model, f"{name} = {count} is out of range", advice)
    return count


def truth(model: str, name: str, value: object) -> bool:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        problem = f"{name} must be true or false, got {brief(value)}"
        raise InvalidDelays(model, problem, f"{name} = true")
    return value


def several(model: str, name: str, value: object) -> tuple[object, ...]:
    """Return the items of a list that is not empty."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        problem = f"{name} must be a list, got {brief(value)}"
        raise InvalidDelays(model, problem, f"{name} = [...]")
    items = tuple(value)
    if not items:
        raise InvalidDelays(model, f"{name} is empty", "at least one")
    return items


def shape(model: str, steps: object, workers: object) -> tuple[int, int]:
    """Return (steps, workers) of a sample."""
    return whole(model, "steps", steps, 1), whole(model, "workers", workers, 1)


def present(model: str, worker: int, workers: int) -> None:
    """Refuse a worker number that a run of `workers` does not have."""
    if worker >= workers:
        problem = f"there is no worker {worker} among {workers}"
        raise InvalidDelays(model, problem, f"a worker from 0 to {workers - 1}")
