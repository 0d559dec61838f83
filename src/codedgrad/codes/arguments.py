"""Checks of the numbers that every code family takes."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from codedgrad.codes.decoders import Floats
from codedgrad.errors import InvalidCode


def whole(
    family: str, name: str, value: object, least: int, most: int | None = None
) -> int:
    """Return `value` as an int from `least` to `most`, or say what would be one."""
    limits = f", {least} or more" if most is None else f" from {least} to {most}"
    advice = f"a whole number{limits}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # TypeError is ours
    except TypeError:
        problem = f"{name} must be a whole number, got {value!r}"
        raise InvalidCode(family, problem, advice) from None
    if number < least or (most is not None and number > most):
        raise InvalidCode(family, f"{name} = {number} is out of range", advice)
    return number


def divisors(number: int) -> list[int]:
    """Return what divides `number`, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]


def one_of(family: str, name: str, value: object, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if isinstance(value, str) and value in choices:
        return value
    problem = f"{name} = {value!r} is not known"
    raise InvalidCode(family, problem, f"{name} in {list(choices)}")


def probabilities(family: str, name: str, value: object, count: int) -> Floats:
    """Return `value` as `count` probabilities in [0, 1); one number serves all."""
    advice = "a number in [0, 1)" + (f", or {count} of them" if count > 1 else "")
    try:
        given = np.asarray(value)
    except ValueError:  # ragged
        given = np.array("")
    if given.dtype.kind not in "iuf":
        raise InvalidCode(family, f"{name} must be numbers, got {value!r}", advice)
    if given.shape not in ((), (count,)):
        problem = f"{name} has shape {given.shape}, workers = {count}"
        raise InvalidCode(family, problem, advice)
    if not np.all((given >= 0) & (given < 1)):  # also refuses NaN
        raise InvalidCode(family, f"{name} = {value!r} is not in [0, 1)", advice)
    return np.broadcast_to(given, (count,)).astype(np.float64)
