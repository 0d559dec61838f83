"""Networks in words, as the command line has them: `port=0.1, latency=0.05`."""

from __future__ import annotations

from collections.abc import Mapping

from codedgrad.errors import InvalidOptions, InvalidScenario
from codedgrad.network import Network
from codedgrad.schemes.registry import apart, value_of
from codedgrad.uplink import Link

_NUMBERS = ("port", "latency", "down", "slot", "seconds", "V", "beta")
_KEYS = (*_NUMBERS, "uplink")
_LISTS = ("port", "seconds")


def network_table(text: str) -> dict[str, object]:
    """Return the table that a text stands for.

    Example:
        >>> network_table("port=0.1, latency=0.05")
        {'port': 0.1, 'latency': 0.05}
    """
    table: dict[str, object] = {}
    words = apart(text)
    if not words:
        raise _wrong(f"{text!r} cannot be read")
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or key in table:
            raise _wrong(f"{word!r} cannot be read, or is said twice")
        table[key] = value_of(value)
    return table


def network_of(table: Mapping[str, object]) -> Network:
    """Return the network of a table.

    Args:
        table: With any of `port`, `latency`, `down`, all in seconds; and `uplink`, the
            policy of a link to the root that is shared out in slots of `slot` seconds,
            through which a message takes `seconds`.

    Example:
        >>> network_of({"port": 0.5}).port
        0.5
    """
    for key, value in table.items():
        if key not in _KEYS:
            raise _wrong(f"has no {key!r}; there are {', '.join(_KEYS)}")
        listed = isinstance(value, list) and key in _LISTS
        each = value if isinstance(value, list) and listed else [value]
        if key in _NUMBERS and not all(_is_number(one) for one in each):
            raise _wrong(f"{key} is {value!r}")
    link = {key: _plain(table[key]) for key in _KEYS[3:-1] if key in table}
    if "uplink" in table:
        link["policy"] = table["uplink"]
    elif link:
        raise _wrong(f"has {', '.join(link)} and no uplink")
    rest = {key: _plain(table[key]) for key in _KEYS[:3] if key in table}
    try:
        shared = Link(**link) if link else None  # type: ignore[arg-type]  # checked above
    except InvalidOptions as error:  # here a link is a part of the scenario
        where = f"network {error.where}"
        raise InvalidScenario(where, error.problem, error.advice) from None
    return Network(**rest, link=shared)  # type: ignore[arg-type]  # checked above


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: object) -> object:
    """Return lists as tuples, and whole numbers as floats."""
    if isinstance(value, list):
        return tuple(map(float, value))
    return float(value) if isinstance(value, int) else value


def _wrong(problem: str) -> InvalidScenario:
    advice = "such as port=0.1, latency=0.05, or uplink=fair, slot=0.01, seconds=0.1"
    return InvalidScenario("network", problem, advice)
