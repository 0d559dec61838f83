"""Who sits where in a tree: those who were late least, nearest to the root.

Losing a worker costs all that is below it, so reliable ones sit high. Those at the
bottom are dealt out, so that the worst do not meet below one parent: a tree survives
many late workers as long as no parent has too many of them. Whoever is not there sits
last, from the next step on: a step that fails for want of a sum teaches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codedgrad.codes.tree import Tree
from codedgrad.core.history import Record
from codedgrad.learning.estimators import Reliability

_EVERY = 20  # steps: seats cost data that moves, and estimates need time


@dataclass(frozen=True, slots=True)
class Seating:
    """A recipe for seats.

    Attributes:
        tree: With the places.
        every: Steps after which seats are given anew.
    """

    tree: Tree
    every: int = _EVERY

    def start(self, workers: int) -> _Seats:
        """Return seats as numbered."""
        return _Seats(self, workers)


class _Seats:
    """The worker at each place.

    Attributes:
        seat: By place.
    """

    def __init__(self, recipe: Seating, workers: int) -> None:
        self.seat = tuple(range(workers))
        self._recipe = recipe
        self._late = Reliability().start(workers)
        self._steps = 0

    def update(self, record: Record) -> None:
        """Learn who was late, and now and then give seats anew."""
        self._late.update(record)
        self._steps += 1
        if self._steps % self._recipe.every == 0:
            late = self._late.straggle
            best = sorted(range(len(late)), key=lambda worker: (late[worker], worker))
            self.seat = deal(self._recipe.tree, best)


def deal(tree: Tree, best: list[int]) -> tuple[int, ...]:
    """Return the worker at each place, from the workers in order of reliability.

    Layers are filled from the top. In the last one the next best goes to the first
    child of every parent in turn, then to the second, and so on.

    Example:
        >>> deal(Tree(children=2, layers=2), [5, 4, 3, 2, 1, 0])
        (5, 4, 3, 1, 2, 0)
    """
    seat = dict(zip(_places(tree), best, strict=True))
    return tuple(seat[place] for place in range(tree.workers))


def with_the_absent_last(
    tree: Tree, seat: tuple[int, ...], alive: Sequence[bool]
) -> tuple[int, ...]:
    """Return seats in which those who are not there come after all others.

    Args:
        tree: With the places.
        seat: The worker at each place, by reliability.
        alive: For every worker, whether it is there.

    Example:
        >>> tree, alive = Tree(children=2, layers=2), [False, True, True, True, True]
        >>> with_the_absent_last(tree, (0, 1, 2, 3, 4, 5), [*alive, True])
        (1, 2, 4, 5, 3, 0)
    """
    if all(alive):
        return seat
    best = [seat[place] for place in _places(tree)]
    return deal(tree, sorted(best, key=lambda worker: not alive[worker]))


def _places(tree: Tree) -> list[int]:
    """Return the places in the order in which they are given to the best."""
    leaves = [place for place in range(tree.workers) if tree.is_leaf(place)]
    inner = tree.workers - len(leaves)
    leaves.sort(key=lambda place: (place % tree.children, place))
    return [*range(inner), *leaves]
