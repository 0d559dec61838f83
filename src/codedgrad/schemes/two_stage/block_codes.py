r"""What a second stage is made of: blocks of parts, each with a code of its own.

A block is solved when the messages heard about it give the sum of its parts. What a
late worker still delivers, one part a message, is a unit vector: it takes that part out
of what the others must determine.

| block | its messages | solved by |
| --- | --- | --- |
| `Repeated` | the same plain sum, from several workers | any one |
| `Cyclic` | rows of a cyclic code over stretches of its parts | any $h - s$, or fewer |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from codedgrad import codes
from codedgrad.codes import Code, decode
from codedgrad.core.state import State
from codedgrad.errors import IllConditioned
from codedgrad.schemes.cover import decode_rows
from codedgrad.schemes.two_stage.matching import even

_SMALL = 40  # helpers of a cyclic code up to which fewer than h - s are tried
LARGEST = 100.0
"""Weight of a message; more would lose digits."""

NOTHING = 1e-12
"""Weight of a message; less is rounding."""


class Repeated:
    """Parts whose plain sum several workers were asked for.

    Attributes:
        parts: What it is about.
        weights: Of messages that give the sum, once it is solved.
    """

    def __init__(self, parts: Sequence[int], messages: Sequence[int] = ()) -> None:
        self.parts = tuple(parts)
        self.weights: dict[int, float] | None = None
        self._messages = set(messages)
        self._units: dict[int, int] = {}  # part -> message

    def hear(self, message: int) -> bool:
        """Note a message; return whether the block is solved by now."""
        if self.weights is None:
            self.weights = {message: 1.0}
        return True

    def deliver(self, part: int, message: int) -> bool:
        """Note one part by itself; return whether the block is solved by now."""
        self._units[part] = message
        if self.weights is None and len(self._units) == len(self.parts):
            self.weights = dict.fromkeys(self._units.values(), 1.0)
        return self.weights is not None

    @property
    def delivered(self) -> Mapping[int, int]:
        """The message of every part that came by itself."""
        return self._units

    def can_be_heard(self, state: State) -> bool:
        """Whether the messages still under way may be enough."""
        return any(is_coming(message, state) for message in self._messages)


class Cyclic:
    """Parts in stretches, one a helper, and rows of a cyclic code over them.

    Args:
        stretches: The parts of every column of the code; some may be empty.
        code: A cyclic code.
        by_count: Wait for h - s messages, whatever fewer may determine.

    Attributes:
        parts: What it is about.
        weights: Of messages that give the sum, once it is solved.
    """

    def __init__(
        self, stretches: Sequence[Sequence[int]], code: Code, by_count: bool
    ) -> None:
        self.parts = tuple(part for stretch in stretches for part in stretch)
        self.weights: dict[int, float] | None = None
        self._column = {p: j for j, stretch in enumerate(stretches) for p in stretch}
        self._code = code
        self._tries = not by_count and code.workers <= _SMALL
        self._row: dict[int, int] = {}  # message -> row of the code
        self._heard: dict[int, int] = {}  # row of the code -> message
        self._units: dict[int, int] = {}  # part -> message
        full = set(self._column.values())
        self._empty = [u for u, (j, _) in enumerate(code.rows) if full.isdisjoint(j)]
        assert code.tolerance is not None  # a cyclic code has one
        self._enough = code.messages - code.tolerance

    def add(self, message: int, row: int) -> None:
        """Note who was asked for which row."""
        self._row[message] = row

    def hear(self, message: int) -> bool:
        """Note a message; return whether the block is solved by now."""
        self._heard[self._row[message]] = message
        return self._solve()

    def deliver(self, part: int, message: int) -> bool:
        """Note one part by itself; return whether the block is solved by now."""
        self._units[part] = message
        return self._solve()

    @property
    def delivered(self) -> Mapping[int, int]:
        """The message of every part that came by itself."""
        return self._units

    def can_be_heard(self, state: State) -> bool:
        """Whether the messages still under way may be enough."""
        coming = sum(is_coming(message, state) for message in self._row)
        return coming + len(self._heard) + len(self._empty) >= self._enough

    def _solve(self) -> bool:
        if self.weights is None:
            if len(self._units) == len(self.parts):
                self.weights = dict.fromkeys(self._units.values(), 1.0)
            elif len(self._heard) + len(self._empty) >= self._enough:
                decoding = decode(self._code, [*self._heard, *self._empty])
                heard = self._heard
                self.weights = {heard[u]: a for u, a in decoding.weights if u in heard}
            elif self._tries and self._heard:
                self.weights = self._with_fewer()
        return self.weights is not None

    def _with_fewer(self) -> dict[int, float] | None:
        """Look for weights that need fewer rows, or parts that came by themselves."""
        wanted = {self._column[p] for p in self.parts if p not in self._units}
        place = {column: number for number, column in enumerate(sorted(wanted))}
        rows = [
            {
                place[j]: b
                for j, b in zip(*self._code.rows[u], strict=True)
                if j in place
            }
            for u in self._heard
        ]
        if len(set().union(*rows)) < len(wanted):
            return None
        weights, residual = decode_rows(rows, len(wanted))
        if residual > 0 or max(map(abs, weights)) > LARGEST:
            return None
        return self._completed(dict(zip(self._heard, weights, strict=True)))

    def _completed(self, weights: Mapping[int, float]) -> dict[int, float]:
        """Return weights of messages: of these rows, and of parts by themselves."""
        columns: dict[int, float] = {}
        for u, a in weights.items():
            for j, b in zip(*self._code.rows[u], strict=True):
                columns[j] = columns.get(j, 0.0) + a * b
        found = {self._heard[u]: a for u, a in weights.items()}
        for part, message in self._units.items():
            found[message] = 1.0 - columns.get(self._column[part], 0.0)
        return {m: a for m, a in found.items() if abs(a) > NOTHING}


Block: TypeAlias = Repeated | Cyclic


def is_coming(message: int, state: State) -> bool:
    """Whether a message may still be heard; one that is just being asked for may."""
    known = state.messages.get(message)
    return known is None or known.pending


def groups(parts: Sequence[int], helpers: int, tolerance: int) -> list[tuple[int, ...]]:
    """Return the parts of every helper of a fractional code, and of group after group.

    There are $g = h // (s + 1)$ groups that share the parts evenly; helper $u$ is in
    group $u$ mod $g$. More groups than parts leave some with nothing.

    Example:
        >>> groups((5, 6, 7), helpers=5, tolerance=1)
        [(5, 6), (7,)]
    """
    return even(parts, helpers // (tolerance + 1))


@lru_cache(maxsize=256)
def cyclic_rows(helpers: int, tolerance: int) -> Code | None:
    """Return the cyclic code for so many helpers; None if it would lose digits."""
    try:
        return codes.cyclic(helpers, tolerance)
    except IllConditioned:
        return None
