"""Options that schemes have in common: names, numbers of parts, stop rules."""

from __future__ import annotations

import numpy as np

from codedgrad.codes import Code
from codedgrad.codes.arguments import whole
from codedgrad.core.plan import Rule
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.stop_rules import Decodable, First, Threshold, Within

_LONGEST = 2.0**23  # seconds; simulated times are exact up to here
_USUAL = {"rule": "decodable", "seed": 0}  # defaults, which no name needs to say

RULES: dict[str, Rule] = {"decodable": Decodable(), "threshold": Threshold()}
"""Stop rules of exact schemes, by name."""


def title(family: str, **options: object) -> str:
    """Return the name of a scheme, with the options that are not the usual ones.

    Written so that `build` makes the same scheme of it: numbers with all their digits.

    Example:
        >>> title("cyclic", tolerance=2, rule="threshold", pieces=None)
        'cyclic(tolerance=2, rule=threshold)'
        >>> title("stochastic", copies=2, straggle=[0.1, 0.25])
        'stochastic(copies=2, straggle=[0.1, 0.25])'
    """
    written = {key: _written(value) for key, value in options.items()}
    unusual = [
        f"{key}={word}"
        for key, word in written.items()
        if options[key] is not None and word != _written(_USUAL.get(key))
    ]
    return f"{family}({', '.join(unusual)})" if unusual else family


def _written(value: object) -> str:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def in_all(
    family: str, blocks: int, pieces: int, parts: int | None, usual: int = 1
) -> tuple[int, dict[str, int | None]]:
    """Return how many parts a step has, and the options that say so in a name.

    Args:
        family: Its name.
        blocks: What `pieces` are counted for: workers, or parts of a code.
        pieces: Parts for each block, as given.
        parts: Parts in all, as given.
        usual: `pieces` where nobody gives any, which no name needs to say.

    Example:
        >>> in_all("cyclic", blocks=5, pieces=1, parts=64)
        (64, {'parts': 64})
        >>> in_all("cyclic", blocks=8, pieces=1, parts=64)
        (64, {'pieces': 8})
    """
    pieces = whole(family, "pieces", pieces, least=1)
    if parts is None:
        parts = blocks * pieces
    parts = whole(family, "parts", parts, least=1)
    if pieces != usual and parts != blocks * pieces:
        raise InvalidScheme(
            f"{family}: pieces = {pieces} makes {blocks * pieces} parts in all, not "
            f"parts = {parts}",
            "one of the two options alone",
        )
    each, uneven = divmod(parts, blocks)
    if uneven:
        return parts, {"parts": parts}
    return parts, {"pieces": None if each == usual else each}


def rule_named(rule: str) -> Rule:
    """Return a stop rule of exact schemes."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InvalidScheme(f"rule = {rule!r} is not known", f"rule in {list(RULES)}")
    return RULES[rule]


def stopping(
    family: str, code: Code, budget: float | None, count: int | None, before: Rule
) -> Rule:
    """Return the stop rule of an approximate scheme.

    Args:
        family: Its name.
        code: Whose messages are counted.
        budget: Seconds after which a step ends.
        count: Answers after which it ends.
        before: What may end it before the budget if there is no count.
    """
    if budget is None and count is None:
        raise InvalidScheme(
            f"{family}: an approximate scheme must be told when to stop",
            "budget=SECONDS, or count=MESSAGES",
        )
    rule = before
    if count is not None:
        rule = First(whole(family, "count", count, least=1, most=code.messages))
    if budget is None:
        return rule
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise InvalidScheme(f"{family}: budget = {budget!r}", "a number of seconds")
    if budget > _LONGEST:
        advice = f"seconds up to {_LONGEST:.7g}, 97 days"
        raise InvalidScheme(f"{family}: budget = {budget:g}", advice)
    return Within(float(budget), rule)
