"""Which late workers a tree survives, one pattern at a time: an oracle for arrays."""

from collections.abc import Iterable

from codedgrad.codes.tree import Tree


def delivers(tree: Tree, tolerance: int, alive: Iterable[int]) -> bool:
    """Whether the root recovers the sum from the workers that are not late."""
    n = tree.children
    needed = n - tolerance
    on_time = {tree.checked(worker) for worker in alive}
    heard = [0] * (len(tree.inner) + 1)  # by the root, then by every inner worker
    for worker in sorted(on_time, reverse=True):  # children before their parents
        if tree.is_leaf(worker) or heard[worker + 1] >= needed:
            heard[worker // n] += 1
    return heard[0] >= needed
