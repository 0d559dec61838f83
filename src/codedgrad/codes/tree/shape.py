"""Trees of workers: who is below whom, and who delivers when some are late."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from codedgrad.codes.arguments import whole
from codedgrad.codes.decoders import Bools
from codedgrad.errors import InvalidCode

ROOT = -1
"""The parent of the first workers; it computes nothing."""


@dataclass(frozen=True, slots=True)
class Tree:
    r"""Workers in layers, `children` below the root and below every inner worker.

    They are numbered layer by layer, without the root: the children of worker $v$ are
    $n (v + 1), \dots, n (v + 1) + n - 1$, also for the root, $v = -1$.

    Attributes:
        children: $n$, of the root and of every worker above the last layer.
        layers: $L$, of workers.
        workers: $n + n^2 + \dots + n^L$.

    Example:
        >>> tree = Tree(children=3, layers=2)
        >>> tree.workers, tree.below(ROOT), tree.below(1)
        (12, range(0, 3), range(6, 9))
        >>> tree.parent(8), tree.layer(8), tree.is_leaf(8)
        (1, 2, True)
    """

    children: int
    layers: int
    workers: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = whole("tree", "children", self.children, least=1)
        L = whole("tree", "layers", self.layers, least=1)
        object.__setattr__(self, "children", n)
        object.__setattr__(self, "layers", L)
        object.__setattr__(self, "workers", _size(n, L))

    @classmethod
    def of(cls, workers: int, children: int) -> Tree:
        """Return the tree of so many workers.

        Raises:
            InvalidCode: If they do not fill their last layer.

        Example:
            >>> Tree.of(workers=12, children=3)
            Tree(children=3, layers=2)
            >>> Tree.of(workers=13, children=3)
            Traceback (most recent call last):
            codedgrad.errors.InvalidCode: tree: workers = 13 do not fill the layers \
of a tree with children = 3; try workers = 12 = 3 + 9 or 39 = 3 + 9 + 27
        """
        N = whole("tree", "workers", workers, least=1)
        n = whole("tree", "children", children, least=1)
        L = N if n == 1 else 1
        while _size(n, L) < N:
            L += 1
        if _size(n, L) == N:
            return cls(n, L)
        problem = f"workers = {N} do not fill the layers of a tree with children = {n}"
        fitting = [_sum(n, layers) for layers in (L - 1, L) if layers]
        raise InvalidCode("tree", problem, f"workers = {' or '.join(fitting)}")

    def parent(self, worker: int) -> int:
        """Return the worker above this one, or `ROOT`."""
        return self.checked(worker) // self.children - 1

    def below(self, worker: int) -> range:
        """Return the children of a worker or of the root; none for a leaf."""
        if worker != ROOT and self.is_leaf(worker):
            return range(0)
        first = self.children * (worker + 1)
        return range(first, first + self.children)

    def layer(self, worker: int) -> int:
        """Return how many links it is from the root: 1 to `layers`."""
        steps, v = 0, self.checked(worker)
        while v != ROOT:
            v = v // self.children - 1
            steps += 1
        return steps

    def of_layer(self, layer: int) -> range:
        """Return the workers of a layer, 1 to `layers`."""
        number = whole("tree", "layer", layer, least=1, most=self.layers)
        return range(_size(self.children, number - 1), _size(self.children, number))

    def is_leaf(self, worker: int) -> bool:
        """Whether nobody is below this worker."""
        return self.checked(worker) >= len(self.inner)

    @property
    def inner(self) -> range:
        """The workers that have children."""
        return range(_size(self.children, self.layers - 1))

    def checked(self, worker: int) -> int:
        """Return the number of a worker, or say which there are."""
        return whole("tree", "worker", worker, least=0, most=self.workers - 1)


def delivers_each(tree: Tree, tolerance: int, alive: Bools) -> Bools:
    """Whether the root recovers the sum from the workers that are not late.

    A worker delivers if it is not late itself, and is a leaf or hears from all but
    `tolerance` of its children. The root must hear from as many. Some codes need fewer
    for some sets: repetition one of every group.

    Args:
        tree: The tree.
        tolerance: Children that a parent can do without.
        alive: Who is not late, shape (..., workers).

    Returns:
        Shape (...).

    Example:
        >>> alive = np.array([[True, True, False], [True, False, False]])
        >>> delivers_each(Tree(children=3, layers=1), 1, alive).tolist()
        [True, False]
    """
    n = tree.children
    needed = n - whole("delivers_each", "tolerance", tolerance, least=0, most=n - 1)
    given = np.asarray(alive)
    if given.dtype != np.bool_ or given.shape[-1:] != (tree.workers,):
        problem = f"alive has shape {given.shape} of {given.dtype}"
        advice = f"booleans of shape (..., {tree.workers})"
        raise InvalidCode("delivers_each", problem, advice)
    enough: Bools = np.ones((*given.shape[:-1], n**tree.layers), dtype=np.bool_)
    for layer in range(tree.layers, 0, -1):
        workers = tree.of_layer(layer)
        delivered = enough & given[..., workers.start : workers.stop]
        groups = delivered.reshape(*given.shape[:-1], -1, n)
        enough = np.count_nonzero(groups, axis=-1) >= needed
    return enough[..., 0]


def _size(children: int, layers: int) -> int:
    if children == 1:
        return layers
    size: int = (children ** (layers + 1) - children) // (children - 1)
    return size


def _sum(children: int, layers: int) -> str:
    """Return the size of a tree, and where it comes from if that is more than one."""
    terms = [str(children**power) for power in range(1, layers + 1)]
    size = str(_size(children, layers))
    return size if layers == 1 else f"{size} = {' + '.join(terms)}"
