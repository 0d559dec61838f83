"""Trees: who is below whom, and who delivers when some are late."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest

from codedgrad.codes.tree import ROOT, Tree, delivers_each
from codedgrad.errors import InvalidCode

from ..tree_oracle import delivers

TREES = [Tree(3, 2), Tree(4, 3), Tree(12, 2), Tree(2, 5), Tree(5, 1), Tree(1, 4)]
TWELVE = Tree(3, 2)
EVERY_SET = np.array(list(product([False, True], repeat=12)))


@pytest.mark.parametrize(
    ("children", "layers", "workers"),
    [(4, 3, 84), (12, 2, 156), (9, 2, 90), (5, 3, 155), (3, 2, 12), (1, 4, 4)],
)
def test_the_sizes_of_trees(children: int, layers: int, workers: int) -> None:
    assert Tree(children, layers).workers == workers
    assert Tree.of(workers, children) == Tree(children, layers)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_parents_and_children_are_those_of_a_heap_without_its_root(tree: Tree) -> None:
    for worker in range(tree.workers):
        rank = worker + 1  # the root is 0
        assert tree.parent(worker) + 1 == (rank - 1) // tree.children
        assert worker in tree.below(tree.parent(worker))
    children = [c for v in (ROOT, *tree.inner) for c in tree.below(v)]
    assert children == list(range(tree.workers))


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_layers_are_full_and_only_the_last_has_leaves(tree: Tree) -> None:
    layers = Counter(tree.layer(worker) for worker in range(tree.workers))
    n = tree.children
    assert layers == {layer: n**layer for layer in range(1, tree.layers + 1)}
    for worker in range(tree.workers):
        assert worker in tree.of_layer(tree.layer(worker))
        assert tree.is_leaf(worker) == (tree.layer(worker) == tree.layers)
        assert tree.is_leaf(worker) == (len(tree.below(worker)) == 0)
        assert tree.is_leaf(worker) == (worker not in tree.inner)


def test_a_tree_is_a_value() -> None:
    assert Tree(np.int64(3), 2) == TWELVE
    assert hash(Tree(3, 2)) == hash(TWELVE)
    assert repr(TWELVE) == "Tree(children=3, layers=2)"
    with pytest.raises(AttributeError):
        TWELVE.layers = 3


def test_of_all_sets_of_the_twelve_640_are_recovered() -> None:
    found = delivers_each(TWELVE, 1, EVERY_SET)
    late = 12 - EVERY_SET.sum(axis=1)
    assert found.sum() == 640
    counts = np.bincount(late[found], minlength=13).tolist()
    assert counts == [1, 12, 63, 174, 237, 126, 27, 0, 0, 0, 0, 0, 0]


def test_the_pairs_that_are_not_survived_are_those_of_the_first_layer() -> None:
    everybody = set(range(12))
    fatal = [
        pair
        for pair in combinations(range(12), 2)
        if not delivers(TWELVE, 1, everybody - set(pair))
    ]
    assert fatal == [(0, 1), (0, 2), (1, 2)]


def test_many_sets_at_once_are_as_one_by_one() -> None:
    one_by_one = [delivers(TWELVE, 1, np.flatnonzero(mask)) for mask in EVERY_SET]
    assert delivers_each(TWELVE, 1, EVERY_SET).tolist() == one_by_one
    rng = np.random.default_rng(0)
    for tree, tolerance in [(Tree(4, 3), 2), (Tree(2, 5), 0), (Tree(5, 1), 3)]:
        masks = rng.random((7, 30, tree.workers)) < rng.random((7, 1, 1))
        found = delivers_each(tree, tolerance, masks)
        for at in np.ndindex(7, 30):
            alive = np.flatnonzero(masks[at])
            assert found[at] == delivers(tree, tolerance, alive)


def test_any_late_children_of_every_parent_are_survived_and_one_more_is_not() -> None:
    tree, tolerance = Tree(4, 3), 2
    late = {c for v in (ROOT, *tree.inner) for c in tree.below(v)[:tolerance]}
    everybody = set(range(tree.workers))
    assert len(late) == tree.workers // 2
    assert delivers(tree, tolerance, everybody - late)
    assert not delivers(tree, tolerance, everybody - late - {2})


def test_late_workers_below_late_ones_cost_nothing() -> None:
    everybody = set(range(12))
    assert delivers(TWELVE, 1, everybody - {2, *TWELVE.below(2)})


def test_with_nobody_there_nothing_is_delivered() -> None:
    assert not delivers(TWELVE, 2, [])
    assert delivers(TWELVE, 2, [1, 7])


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: Tree(0, 2),
            "tree: children = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: Tree(3, 2.0),
            "tree: layers must be a whole number, got 2.0; "
            "try a whole number, 1 or more",
        ),
        (
            lambda: Tree.of(13, 3),
            "tree: workers = 13 do not fill the layers of a tree with children = 3; "
            "try workers = 12 = 3 + 9 or 39 = 3 + 9 + 27",
        ),
        (
            lambda: Tree.of(156, 5),
            "tree: workers = 156 do not fill the layers of a tree with children = 5; "
            "try workers = 155 = 5 + 25 + 125 or 780 = 5 + 25 + 125 + 625",
        ),
        (
            lambda: Tree.of(2, 3),
            "tree: workers = 2 do not fill the layers of a tree with children = 3; "
            "try workers = 3",
        ),
        (
            lambda: TWELVE.parent(12),
            "tree: worker = 12 is out of range; try a whole number from 0 to 11",
        ),
        (
            lambda: TWELVE.below(-2),
            "tree: worker = -2 is out of range; try a whole number from 0 to 11",
        ),
        (
            lambda: TWELVE.of_layer(0),
            "tree: layer = 0 is out of range; try a whole number from 1 to 2",
        ),
        (
            lambda: delivers_each(TWELVE, 3, np.ones(12, dtype=bool)),
            "delivers_each: tolerance = 3 is out of range; "
            "try a whole number from 0 to 2",
        ),
        (
            lambda: TWELVE.parent(True),
            "tree: worker must be a whole number, got True; "
            "try a whole number from 0 to 11",
        ),
        (
            lambda: delivers_each(TWELVE, 1, np.ones((5, 11), dtype=bool)),
            "delivers_each: alive has shape (5, 11) of bool; "
            "try booleans of shape (..., 12)",
        ),
        (
            lambda: delivers_each(TWELVE, 1, np.ones(12)),
            "delivers_each: alive has shape (12,) of float64; "
            "try booleans of shape (..., 12)",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text
