"""When is enough enough? Stop rules for schemes that follow a code.

`Decodable` asks whether the messages heard determine the sum. `Threshold` counts, as
the papers do, and so never ends a step before `Decodable` would. `First` takes the
first few and accepts the residual; `Within` ends a step at a budget of seconds. A rule
is one class here; a table always says which was used.

Rules keep counters: a message costs O(parts in it), and a decoder is asked only once
a necessary count is reached and every part is held by some message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from codedgrad.codes import Code
from codedgrad.codes.decoders import LeastSquares
from codedgrad.core.plan import Rule, Tally
from codedgrad.errors import InvalidScheme


def blocks(code: Code) -> tuple[Code, int]:
    """Return the smallest code that `code` repeats along its diagonal, how often.

    Example:
        >>> from codedgrad.codes import fractional
        >>> inner, times = blocks(fractional(workers=6, tolerance=2))
        >>> inner.workers, times
        (3, 2)
    """
    inner = code
    while inner.inner is not None:
        inner = inner.inner
    return inner, code.messages // inner.messages


@dataclass(frozen=True, slots=True)
class Decodable:
    """Enough is a predicate: stop as soon as the messages heard determine the sum."""

    budget: float = field(default=math.inf, init=False)

    def start(self, code: Code) -> Tally:
        """Return a count for one step."""
        return _DecodableTally(code)

    def __str__(self) -> str:
        return "decodable"


class _DecodableTally:
    """Decodes every block by itself; a block that is done is not looked at again."""

    def __init__(self, code: Code) -> None:
        self._inner, count = blocks(code)
        self._open = count
        self._blocks: list[_Block | None] = [None] * count
        self._sure = self._inner.messages + 1
        if self._inner.tolerance is not None and _one_message_each(self._inner):
            self._sure = self._inner.messages - self._inner.tolerance

    def hear(self, message: int) -> bool:
        """Note a message, by its row; return whether every block is decodable."""
        number, row = divmod(message, self._inner.messages)
        block = self._blocks[number]
        if block is None:
            block = self._blocks[number] = _Block(self._inner)
        if not block.done:
            block.hear(row)
            if block.heard >= self._sure or block.decodable():
                block.done = True
                self._open -= 1
        return self._open == 0


class _Block:
    """One block of one step."""

    __slots__ = (
        "_code", "_covered", "_mask", "_span", "_uncovered", "done", "heard",
    )  # fmt: skip

    def __init__(self, code: Code) -> None:
        self._code = code
        self._mask = np.zeros(code.messages, dtype=np.bool_)
        self._covered = bytearray(code.parts)
        self._uncovered = code.parts
        decoder = code.decoder
        self._span = _Span(decoder) if isinstance(decoder, LeastSquares) else None
        self.heard = 0
        self.done = False

    def hear(self, row: int) -> None:
        self._mask[row] = True
        self.heard += 1
        covered = self._covered
        for part in self._code.rows[row][0]:
            if not covered[part]:
                covered[part] = 1
                self._uncovered -= 1
        if self._span is not None:
            self._span.add(row)

    def decodable(self) -> bool:
        """Ask the decoder, but not before there can be anything to find."""
        if self._uncovered or self.heard < self._code.fewest:
            return False
        if self._span is not None and not self._span.may_hold_ones():
            return False
        return bool(self._code.decoder.decodable(self._mask[None])[0])


class _Span:
    """What rows span, kept up to date: is the sum of all parts in it?

    An orthonormal basis grows by a row at a time, O(rows x parts) each, so that a
    general decoder is asked for weights once, and not at every message.
    """

    def __init__(self, decoder: LeastSquares) -> None:
        self._decoder = decoder
        messages, parts = decoder.shape
        self._basis = np.empty((min(messages, parts), parts))
        self._rank = 0
        self._gap = np.ones(parts)

    def add(self, row: int) -> None:
        if self._rank == len(self._basis):
            return
        new = self._decoder.row(row)
        size = np.linalg.norm(new)
        known = self._basis[: self._rank]
        for _ in range(2):  # once more, for the digits lost the first time
            new -= known.T @ (known @ new)
        left = np.linalg.norm(new)
        if left > 1e-10 * size:
            new /= left
            self._basis[self._rank] = new
            self._rank += 1
            self._gap -= (new @ self._gap) * new

    def may_hold_ones(self) -> bool:
        """Whether the ones vector is as good as in it."""
        return bool(self._gap @ self._gap <= 1e-6)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Count messages: a block needs its messages less its tolerance, whoever sent them.

    The rule of the published tables and lower bounds.
    """

    budget: float = field(default=math.inf, init=False)

    def start(self, code: Code) -> Tally:
        """Return a count for one step."""
        inner, count = blocks(code)
        return _CountTally(inner.messages, count, needed(inner))

    def __str__(self) -> str:
        return "threshold"


def needed(inner: Code) -> int:
    """Return how many messages of a block the threshold waits for."""
    if inner.tolerance is None or not _one_message_each(inner):
        raise InvalidScheme(
            f"threshold: {inner} promises no tolerance to count to",
            "the rule decodable, or within a budget",
        )
    return inner.messages - inner.tolerance


class _CountTally:
    """Counts per block."""

    def __init__(self, size: int, count: int, needed: int) -> None:
        self._size = size
        self._left = [needed] * count
        self._open = count

    def hear(self, message: int) -> bool:
        """Note a message, by its row; return whether every block has enough."""
        number = message // self._size
        self._left[number] -= 1
        self._open -= self._left[number] == 0
        return self._open == 0


@dataclass(frozen=True, slots=True)
class First:
    """Take the first `count` messages, whatever they determine.

    Attributes:
        count: How many.
    """

    count: int
    budget: float = field(default=math.inf, init=False)

    def start(self, code: Code) -> Tally:
        """Return a count for one step."""
        if not 1 <= self.count <= code.messages:
            raise InvalidScheme(
                f"first {self.count} messages: the code has {code.messages}",
                f"a number from 1 to {code.messages}",
            )
        return _CountTally(code.messages, 1, self.count)

    def __str__(self) -> str:
        return f"first {self.count}"


@dataclass(frozen=True, slots=True)
class Within:
    """End a step at a budget of seconds with what was heard, or before by `rule`.

    If nothing at all was heard the sum is 0 with the full residual: waiting for a
    first message would spoil the mean of codes that are right on average.

    Attributes:
        seconds: The budget, from the start of the step.
        rule: What may end it before.
    """

    seconds: float
    rule: Rule = Decodable()  # frozen

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise InvalidScheme(
                f"budget = {self.seconds} s is not a time to wait",
                "seconds greater than 0",
            )

    @property
    def budget(self) -> float:
        """Seconds after which the step ends with what there is."""
        return min(self.seconds, self.rule.budget)

    def start(self, code: Code) -> Tally:
        """Return a count for one step."""
        return self.rule.start(code)

    def __str__(self) -> str:
        return f"within {self.seconds:g} s or {self.rule}"


def _one_message_each(code: Code) -> bool:
    return code.messages == code.workers
