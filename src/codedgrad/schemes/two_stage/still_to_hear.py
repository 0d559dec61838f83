"""What is still to be heard in a step, block by block."""

from __future__ import annotations

from collections.abc import Iterable

from codedgrad.core.state import State
from codedgrad.schemes.cover import decode_rows
from codedgrad.schemes.two_stage.block_codes import LARGEST, NOTHING, Block

_ENTRIES = 100_000  # messages x parts up to which all that was heard is tried at once


class Needs:
    """The blocks that together are all parts, each of them once.

    Attributes:
        weights: Of the messages of all blocks that are solved.
    """

    def __init__(self) -> None:
        self.weights: dict[int, float] = {}
        self._open: dict[int, Block] = {}  # by identity, in the order they came
        self._of: dict[int, Block] = {}  # message -> what it is about
        self._about: dict[int, Block] = {}  # part -> where it is wanted
        self._alone: dict[int, int] = {}  # message -> its one part

    @property
    def are_met(self) -> bool:
        """Whether all blocks are solved."""
        return not self._open

    def want(self, block: Block, messages: Iterable[int] = ()) -> None:
        """Add a block, and the messages that are about it."""
        self._open[id(block)] = block
        self._of.update(dict.fromkeys(messages, block))
        self._about.update(dict.fromkeys(block.parts, block))

    def expect_alone(self, part: int, message: int) -> None:
        """Note a message of one part, which serves whatever block wants it."""
        self._alone[message] = part

    def hear(self, message: int) -> None:
        """Note a message."""
        if message in self._alone:
            part = self._alone[message]
            block = self._about.get(part)
            solved = block is not None and block.deliver(part, message)
        else:
            block = self._of.get(message)
            solved = block is not None and block.hear(message)
        if solved and block is not None and id(block) in self._open:  # not withdrawn
            del self._open[id(block)]
            assert block.weights is not None  # it is solved
            self._add(block.weights)

    def withdraw(self, block: Block) -> list[int]:
        """Take back a block that is not solved; return the parts still wanted.

        What was delivered of it alone is kept, as a block of its own.
        """
        del self._open[id(block)]
        for part in block.parts:
            if self._about.get(part) is block:
                del self._about[part]
        self._add(dict.fromkeys(block.delivered.values(), 1.0))
        return [part for part in block.parts if part not in block.delivered]

    def unsolved(self) -> list[Block]:
        """Return the blocks that are not solved, oldest first."""
        return list(self._open.values())

    def hopeless(self, state: State) -> list[Block]:
        """Return the blocks that nobody who helps can solve any more.

        That a late worker may still deliver its parts is no reason to wait for it.
        """
        return [b for b in self.unsolved() if not b.can_be_heard(state)]

    def _add(self, weights: dict[int, float]) -> None:
        for message, weight in weights.items():
            self.weights[message] = self.weights.get(message, 0.0) + weight


def all_heard(
    state: State, exact: bool
) -> tuple[tuple[tuple[int, float], ...], float] | None:
    """Return weights for everything that was heard, by least squares; the residual.

    Args:
        state: Of the step.
        exact: Whether None is the answer if it is not the sum of all parts, or would
            lose digits, or would take long to find out.
    """
    if exact and (state.ledger.uncovered or len(state.heard) * state.parts > _ENTRIES):
        return None
    weights, residual = decode_rows([state.row(m) for m in state.heard], state.parts)
    if exact and (residual > 0 or max(map(abs, weights)) > LARGEST):
        return None
    pairs = zip(state.heard, weights, strict=True)
    return tuple(sorted((m, a) for m, a in pairs if abs(a) > NOTHING)), residual
