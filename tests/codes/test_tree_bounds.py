"""What is known of trees: their load and its optimality, and what they survive."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from codedgrad.codes import bounds
from codedgrad.codes.tree import ROOT, Tree, delivers_each
from codedgrad.errors import InvalidCode

# children, layers, tolerance; load of the tree; tolerance and load of the star as
# tolerant in proportion; by how much the star's is larger.
LOADS = [
    ((4, 3, 1), Fraction(1, 14), 21, 0.2619, 3.67),
    ((4, 3, 2), Fraction(27, 148), 42, 0.5119, 2.81),
    ((12, 2, 1), Fraction(1, 42), 13, 0.0897, 3.77),
    ((12, 2, 3), Fraction(1, 12), 39, 0.2564, 3.08),
    ((12, 2, 5), Fraction(1, 6), 65, 0.4231, 2.54),
    ((5, 3, 1), Fraction(8, 195), 31, 0.2065, 5.03),
]

# The same, then how often workers fail, and the chances of tree and star to do so.
FAILURES = [
    ((4, 3, 1), 0.05, "2.7e-02", "1.1e-10"),
    ((12, 2, 1), 0.02, "9.0e-02", "3.7e-06"),
    ((12, 2, 3), 0.05, "2.6e-03", "7.5e-18"),
]


@pytest.mark.parametrize(("tree", "load", "tolerance", "star", "ratio"), LOADS)
def test_the_table_of_loads(
    tree: tuple[int, int, int],
    load: Fraction,
    tolerance: int,
    star: float,
    ratio: float,
) -> None:
    assert bounds.tree_load(*tree) == float(load)
    workers = Tree(*tree[:2]).workers
    assert tolerance == workers * tree[2] / tree[0]
    found = (tolerance + 1) / workers
    assert found == pytest.approx(star, abs=5e-5)
    assert found / bounds.tree_load(*tree) == pytest.approx(ratio, abs=5e-3)


@pytest.mark.parametrize(("tree", "larger"), [((4, 3, 1), 1.75), ((12, 2, 1), 1.17)])
def test_relays_cost_load(tree: tuple[int, int, int], larger: float) -> None:
    n, layers, s = tree
    rho = Fraction(s + 1, n)
    expected = float(sum(rho**layer for layer in range(layers)))
    ratio = bounds.relay_load(*tree) / bounds.tree_load(*tree)
    assert ratio == pytest.approx(expected)
    assert ratio == pytest.approx(larger, abs=5e-3)


def test_a_tree_of_one_layer_has_the_load_of_a_star() -> None:
    for n in range(1, 12):
        for s in range(n):
            assert (
                bounds.tree_load(n, 1, s) == (s + 1) / n == bounds.relay_load(n, 1, s)
            )


def test_an_uncoded_tree_shares_equally() -> None:
    for n, layers in [(4, 3), (12, 2), (2, 6), (1, 5)]:
        assert bounds.tree_load(n, layers, 0) == 1 / Tree(n, layers).workers


def _safe_sets(tree: Tree, tolerance: int, v: int = ROOT) -> Iterator[frozenset[int]]:
    """Smallest sets of holders that no few late children of every parent cut off."""
    if v != ROOT:
        yield frozenset([v])
    for chosen in combinations(tree.below(v), tolerance + 1):
        below = (list(_safe_sets(tree, tolerance, child)) for child in chosen)
        for held in product(*below):
            yield frozenset().union(*held)


def test_safe_sets_are_those_that_survive_every_pattern() -> None:
    """By brute force: all sets of holders against all ways to be late."""
    tree = Tree(3, 2)
    choices = [(-2, *tree.below(v)) for v in (ROOT, *tree.inner)]
    late = np.zeros((256, 12), dtype=bool)
    for row, workers in enumerate(product(*choices)):
        late[row, [w for w in workers if w >= 0]] = True
    parents = [tree.parent(w) for w in range(12)]
    cut_off = late.copy()
    for worker in range(3, 12):
        cut_off[:, worker] |= cut_off[:, parents[worker]]
    held = np.array(list(product([False, True], repeat=12)))
    survives = (held.astype(int) @ ~cut_off.T > 0).all(axis=1)
    smallest = [sorted(workers) for workers in set(_safe_sets(tree, 1))]
    includes = [held[:, workers].all(axis=1) for workers in smallest]
    np.testing.assert_array_equal(np.any(includes, axis=0), survives)


@pytest.mark.parametrize(
    "shape", [(3, 2, 1), (4, 2, 1), (4, 2, 2), (3, 3, 1), (2, 3, 0), (3, 2, 2)], ids=str
)
def test_no_placement_has_less_load(shape: tuple[int, int, int]) -> None:
    """A linear program over all ways to hold a part so that it is safe."""
    n, layers, s = shape
    tree = Tree(n, layers)
    ways = list(_safe_sets(tree, s))
    holds = np.zeros((tree.workers, len(ways) + 1))
    for column, workers in enumerate(ways):
        holds[list(workers), column] = 1
    holds[:, -1] = -1  # no worker more than the load
    found = linprog(
        c=[0] * len(ways) + [1],
        A_ub=holds,
        b_ub=np.zeros(tree.workers),
        A_eq=[[1] * len(ways) + [0]],
        b_eq=[1],
    )
    assert found.fun == pytest.approx(bounds.tree_load(*shape), abs=1e-9)


@pytest.mark.parametrize(("tree", "straggle", "fails", "star_fails"), FAILURES)
def test_the_table_of_failures(
    tree: tuple[int, int, int], straggle: float, fails: str, star_fails: str
) -> None:
    assert f"{bounds.tree_failure(*tree, straggle):.1e}" == fails
    workers = Tree(*tree[:2]).workers
    tolerance = workers * tree[2] // tree[0]
    found = bounds.star_failure(workers, tolerance, straggle)
    assert f"{found:.1e}" == star_fails
    assert found == pytest.approx(binom.sf(tolerance, workers, straggle), rel=1e-9)


@pytest.mark.parametrize(("shape", "straggle"), [row[:2] for row in FAILURES])
def test_random_failures_are_as_frequent_as_the_recursion_says(
    shape: tuple[int, int, int], straggle: float
) -> None:
    """False alarms: 4 standard errors, 1 in 16 000."""
    n, layers, s = shape
    tree, rng, drawn, failed = Tree(n, layers), np.random.default_rng(5), 200_000, 0
    for _ in range(8):
        alive = rng.random((drawn // 8, tree.workers), dtype=np.float32) >= straggle
        failed += np.count_nonzero(~delivers_each(tree, s, alive))
    chance = bounds.tree_failure(*shape, straggle)
    assert failed / drawn == pytest.approx(
        chance, abs=4 * math.sqrt(chance * (1 - chance) / drawn)
    )


@pytest.mark.parametrize("straggle", [0.0, 0.03, 0.3, 0.9])
def test_the_recursion_is_the_sum_over_all_sets(straggle: float) -> None:
    alive = np.array(list(product([False, True], repeat=12)))
    law = np.prod(np.where(alive, 1 - straggle, straggle), axis=1)
    fails = law @ ~delivers_each(Tree(3, 2), 1, alive)
    assert bounds.tree_failure(3, 2, 1, straggle) == pytest.approx(fails, rel=1e-10)


def test_a_tree_of_one_layer_fails_like_a_star() -> None:
    for s in range(5):
        assert bounds.tree_failure(5, 1, s, 0.2) == bounds.star_failure(5, s, 0.2)
    assert bounds.star_failure(5, 0, 0.2) == pytest.approx(1 - 0.8**5)
    assert bounds.star_failure(5, 4, 1e-3) == pytest.approx(1e-15, rel=1e-12)


def test_the_bounds_of_trees_are_among_the_others() -> None:
    names = {name for name in bounds.__all__ if "tree" in name or "star" in name}
    names |= {name for name in bounds.__all__ if "ring" in name} - {"ring_bound"}
    assert names == {
        "latency_to_beat_ring", "message_to_beat_ring", "ring_seconds",
        "star_failure", "tree_compute", "tree_failure", "tree_load",
        "tree_receive", "tree_seconds",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: bounds.tree_load(3, 2, 3),
            "tree_load: tolerance = 3 is out of range; try a whole number from 0 to 2",
        ),
        (
            lambda: bounds.tree_failure(3, 2, 1, 1.5),
            "tree_failure: straggle = 1.5 is not in [0, 1); try a number in [0, 1)",
        ),
        (
            lambda: bounds.star_failure(3, 3, 0.5),
            "star_failure: tolerance = 3 is out of range; "
            "try a whole number from 0 to 2",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text
