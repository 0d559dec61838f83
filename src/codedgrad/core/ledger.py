"""Where every part stands: in hand, finished, closed, covered.

A copy of a part is *in hand* while a segment still has to compute it, *open* once it
is merged into a segment that may still grow, and *closed* when that segment is closed;
a part is *covered* by every heard message that holds it. Counts are kept per part, and
the totals that plans ask for are kept with them, so that nothing is summed up twice.

    assign -> in hand -> finish -> open -> close -> closed -> (its message) covered

What is lost leaves the counts of where it was; what was heard stays.
"""

from __future__ import annotations

from collections.abc import Iterable


class Ledger:
    """Counts of copies for parts 0 to `parts` - 1.

    Attributes:
        in_hand: Copies still to be computed, by part.
        open: Copies merged into segments that are not closed, by part.
        closed: Copies in closed segments that their workers hold, by part.
        covered: Heard messages that hold the part, by part.
        missing: How many parts nobody has finished.
        uncovered: How many parts no heard message holds.

    Example:
        >>> ledger = Ledger(3)
        >>> ledger.assign((0, 1, 2))
        >>> ledger.finish(0)
        >>> ledger.close((0,), rest=(1, 2))  # a cut: parts 1 and 2 are nobody's now
        >>> ledger.missing, ledger.uncovered
        (2, 3)
        >>> ledger.cover((0,))
        >>> ledger.uncovered
        2
    """

    __slots__ = ("closed", "covered", "in_hand", "missing", "open", "uncovered")

    def __init__(self, parts: int) -> None:
        self.in_hand = [0] * parts
        self.open = [0] * parts
        self.closed = [0] * parts
        self.covered = [0] * parts
        self.missing = parts
        self.uncovered = parts

    def is_finished(self, part: int) -> bool:
        """Whether there is a finished copy of a part, wherever it is."""
        return self.open[part] + self.closed[part] + self.covered[part] > 0

    def assign(self, parts: Iterable[int]) -> None:
        """Note parts given to a worker."""
        for part in parts:
            self.in_hand[part] += 1

    def finish(self, part: int) -> None:
        """Note a part merged into its open segment."""
        if not self.is_finished(part):
            self.missing -= 1
        self.open[part] += 1
        self.in_hand[part] -= 1

    def close(self, done: Iterable[int], rest: Iterable[int]) -> None:
        """Note that a segment with `done` parts is closed and its `rest` given up."""
        for part in done:
            self.open[part] -= 1
            self.closed[part] += 1
        for part in rest:
            self.in_hand[part] -= 1

    def cover(self, parts: Iterable[int]) -> None:
        """Note a message heard by the root.

        What it holds of a worker that is lost was missing, if others gathered it.
        """
        for part in parts:
            if not self.is_finished(part):
                self.missing -= 1
            if self.covered[part] == 0:
                self.uncovered -= 1
            self.covered[part] += 1

    def lose(self, done: Iterable[int], rest: Iterable[int], closed: bool) -> None:
        """Note that a segment is gone: its finished parts and its rest."""
        where = self.closed if closed else self.open
        for part in done:
            where[part] -= 1
            if not self.is_finished(part):
                self.missing += 1
        if not closed:
            for part in rest:
                self.in_hand[part] -= 1
