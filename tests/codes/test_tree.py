"""Who holds what in a tree: the worked example, loads, rounding, exact recovery."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from codedgrad.codes import bounds, cyclic, fractional
from codedgrad.codes.tree import (
    ROOT,
    Allocation,
    Tree,
    allocate,
    base_size,
    fewest_parts,
)
from codedgrad.errors import InvalidCode

from ..tree_oracle import delivers

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
TWELVE = Tree(3, 2)
B = [[HALF, 1, 0], [0, 1, -1], [HALF, 0, 1]]
DECODING = {(0, 1): (2, -1), (0, 2): (1, 1), (1, 2): (1, 2)}

# Settings of the tables: children, layers, tolerance.
SETTINGS = [(3, 2, 1), (4, 3, 1), (4, 3, 2), (12, 2, 1), (12, 2, 3)]

# Part (from 1) and weight of what every worker computes, layer by layer.
TABLE = [
    {1: HALF, 2: HALF, 3: HALF, 4: HALF},
    {6: 1, 7: 1, 8: 1, 9: 1},
    {1: HALF, 2: HALF, 3: HALF, 4: HALF},
    {5: QUARTER, 6: HALF, 7: 1, 8: 1},
    {7: 1, 8: 1, 9: -1, 10: -1},
    {5: QUARTER, 6: HALF, 9: 1, 10: 1},
    {10: HALF, 11: -HALF, 12: -1, 13: -1},
    {12: -1, 13: -1, 14: 1, 15: 1},
    {10: HALF, 11: -HALF, 14: -1, 15: -1},
    {5: QUARTER, 11: HALF, 12: 1, 13: 1},
    {12: 1, 13: 1, 14: -1, 15: -1},
    {5: QUARTER, 11: HALF, 14: 1, 15: 1},
]


def _example() -> Allocation:
    return allocate(TWELVE, B, 15)


def _weights_of_example(heard: tuple[int, ...]) -> dict[int, Fraction]:
    """The decoding rows given, for the first two children heard."""
    pair = heard[:2]
    return dict(zip(pair, DECODING[pair], strict=True))


def _least_squares(matrix: np.ndarray, tolerance: int) -> Callable:
    """Weights for the first children heard, not by our own decoder."""

    @cache
    def weights(heard: tuple[int, ...]) -> dict[int, float]:
        used = list(heard[: len(matrix) - tolerance])
        ones = np.ones(len(matrix))
        a = np.linalg.lstsq(matrix[used].T, ones, rcond=None)[0]
        return dict(zip(used, a.tolist(), strict=True))

    return weights


def _message(
    tree: Tree, found: Allocation, weights: Callable, late: set[int], v: int = ROOT
) -> dict[int, Fraction]:
    """What v sends: every part with the coefficient that it ends up with."""
    total = {} if v == ROOT else dict(zip(*found.own[v], strict=True))
    children = tree.below(v)
    heard = tuple(c for c, w in enumerate(children) if w not in late)
    for c, a in weights(heard).items() if children else ():
        below = _message(tree, found, weights, late, children[c])
        for part, coefficient in below.items():
            total[part] = total.get(part, 0) + a * coefficient
    return total


def _few_late(tree: Tree, tolerance: int, rng: np.random.Generator) -> set[int]:
    """So many children of every parent, drawn."""
    parents = (ROOT, *tree.inner)
    drawn = [rng.choice(tree.below(v), tolerance, replace=False) for v in parents]
    return {int(worker) for workers in drawn for worker in workers}


def _cyclic_ones(children: int, tolerance: int) -> list[list[int]]:
    """The support of a cyclic code."""
    numbers = range(children)
    return [[int((j - c) % children <= tolerance) for j in numbers] for c in numbers]


def _load(children: int, layers: int, tolerance: int) -> Fraction:
    q = Fraction(children, tolerance + 1)
    return 1 / sum(q**layer for layer in range(1, layers + 1))


def test_the_worked_example_number_by_number() -> None:
    found = _example()
    for (parts, weights), expected in zip(found.own, TABLE, strict=True):
        assert {p + 1: w for p, w in zip(parts, weights, strict=True)} == expected
    assert found.load == 4
    assert found.work == 48


def test_subtrees_of_the_worked_example_have_the_weights_of_the_code() -> None:
    first, second, third = (dict(zip(*row, strict=True)) for row in _example().row[:3])
    assert first == {p: HALF if p < 5 else 1 for p in range(10)}
    assert second == {p: 1 if p < 10 else -1 for p in range(5, 15)}
    assert third == {p: HALF if p < 5 else 1 for p in (*range(5), *range(10, 15))}
    assert _example().row[3:] == _example().own[3:]  # the leaves


def test_exact_numbers_stay_exact_and_those_of_numpy_become_plain() -> None:
    kinds = {type(w) for _, weights in _example().row for w in weights}
    assert kinds == {int, Fraction}
    found = allocate(TWELVE, np.array(B, dtype=float), 15)
    assert {type(w) for _, weights in found.own for w in weights} == {float}
    assert [parts for parts, _ in found.own] == [parts for parts, _ in _example().own]


def test_one_late_child_of_every_parent_leaves_the_sum_exact() -> None:
    found, patterns = _example(), 0
    choices = [(None, *TWELVE.below(v)) for v in (ROOT, *TWELVE.inner)]
    for late in product(*choices):
        message = _message(TWELVE, found, _weights_of_example, {*late} - {None})
        assert message == dict.fromkeys(range(15), 1)
        patterns += 1
    assert patterns == 256


def test_the_trace_of_the_worked_example() -> None:
    """The second worker is late, and the second leaf of the first."""
    late = {1, 4}
    first, third = (
        _message(TWELVE, _example(), _weights_of_example, late, v) for v in (0, 2)
    )
    assert first == {p: HALF if p < 5 else 1 for p in range(10)}
    assert third == {p: HALF if p < 5 else 1 for p in (*range(5), *range(10, 15))}


def _rank(rows: Iterable[Iterable[Fraction]]) -> int:
    left = [[Fraction(x) for x in row] for row in rows]
    rank = 0
    for column in range(3):
        pivots = [row for row in left if row[column] != 0]
        if pivots:
            pivot, rank = pivots[0], rank + 1
            left = [
                [
                    x - row[column] / pivot[column] * y
                    for x, y in zip(row, pivot, strict=True)
                ]
                for row in left
                if row is not pivot
            ]
    return rank


def test_what_can_be_decoded_is_what_the_rule_says_for_every_set_of_workers() -> None:
    solvable = {
        heard: _rank([B[c] for c in heard]) == _rank([*(B[c] for c in heard), [1] * 3])
        for size in range(1, 4)
        for heard in combinations(range(3), size)
    }
    assert [heard for heard, can in solvable.items() if not can] == [(0,), (1,), (2,)]

    def can(alive: set[int], v: int) -> bool:
        """Whether all-ones is in the span of what v hears, by linear algebra."""
        children = TWELVE.below(v)
        heard = tuple(c for c, w in enumerate(children) if w in alive and can(alive, w))
        return not children or solvable.get(heard, False)

    found, recovered = _example(), 0
    for mask in product([False, True], repeat=12):
        alive = {w for w, there in enumerate(mask) if there}
        assert can(alive, ROOT) == delivers(TWELVE, 1, alive)
        if can(alive, ROOT):
            late = {w for w in range(12) if w not in alive or not can(alive, w)}
            # Nobody asks a subtree that does not deliver; those below are not late.
            message = _message(TWELVE, found, _weights_of_example, late)
            assert message == dict.fromkeys(range(15), 1)
            recovered += 1
    assert recovered == 640


@pytest.mark.parametrize(
    ("children", "layers", "tolerance", "size"),
    [
        (3, 2, 1, 15),
        (4, 3, 1, 28),
        (4, 3, 2, 148),
        (12, 2, 1, 84),
        (12, 2, 2, 60),
        (12, 2, 3, 48),
        (12, 2, 5, 36),
    ],
)
def test_base_sizes(children: int, layers: int, tolerance: int, size: int) -> None:
    assert base_size(children, layers, tolerance) == size


def _rounds_nothing(tree: Tree, tolerance: int, parts: int) -> bool:
    """Whether all workers have r d parts, and siblings equally many below them."""
    try:
        found = allocate(tree, _cyclic_ones(tree.children, tolerance), parts)
    except InvalidCode:
        return False
    load = _load(tree.children, tree.layers, tolerance) * parts
    equal = all(len(held) == load for held, _ in found.own)
    return equal and parts % tree.children == 0


@pytest.mark.parametrize("setting", [(3, 2, 1), (4, 3, 1), (3, 3, 0), (4, 2, 2)])
def test_no_smaller_number_of_parts_than_the_base_size_needs_no_rounding(
    setting: tuple[int, int, int],
) -> None:
    children, layers, tolerance = setting
    tree, size = Tree(children, layers), base_size(*setting)
    fitting = [d for d in range(1, 2 * size + 1) if _rounds_nothing(tree, tolerance, d)]
    assert fitting == [size, 2 * size]


def _shapes_up_to_200_workers() -> list[tuple[int, int, int]]:
    deep = [
        (n, layers, s)
        for layers in range(2, 8)
        for n in range(2, 14)
        if Tree(n, layers).workers <= 200
        for s in range(n)
    ]
    flat = [(n, 1, s) for n in range(2, 41) for s in range(n)]
    wide = [(n, 1, s) for n in (100, 200) for s in (0, 1, n // 2, n - 1)]
    return deep + flat + wide


def test_every_worker_computes_the_share_of_the_formula() -> None:
    shapes = _shapes_up_to_200_workers()
    for n, layers, s in shapes:
        size = base_size(n, layers, s)
        assert size <= 2000  # none is too large to be looked at
        found = allocate(Tree(n, layers), _cyclic_ones(n, s), size)
        assert {len(parts) for parts, _ in found.own} == {_load(n, layers, s) * size}
        assert found.load / size == pytest.approx(bounds.tree_load(n, layers, s))
    assert sum(layers > 1 for _, layers, _ in shapes) == 113


def _most_parts(children: int, layers: int, tolerance: int, parts: int) -> Fraction:
    """The most that rounding may bring the load to: r d + (s + 1) / (1 - rho)."""
    rounding = Fraction(children * (tolerance + 1), children - tolerance - 1)
    return _load(children, layers, tolerance) * parts + rounding


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_rounding_costs_no_more_than_its_bound(setting: tuple[int, int, int]) -> None:
    children, layers, tolerance = setting
    tree, matrix = Tree(children, layers), _cyclic_ones(children, tolerance)
    excess = Fraction()
    for d in (97, 101, 211, 499, 503, 997, 1009, 1999, 4999, 6552, 7001):
        found = allocate(tree, matrix, d)
        assert found.load <= _most_parts(*setting, d)
        excess = max(excess, found.load - _load(*setting) * d)
    known = {
        (3, 2, 1): 1.07, (4, 3, 1): 1.22, (4, 3, 2): 1.32, (12, 2, 1): 1.70,
        (12, 2, 3): 2.59,
    }  # fmt: skip
    assert known[setting] - 0.4 < excess < known[setting]


def test_a_size_that_does_not_divide_leaves_loads_nearly_equal() -> None:
    for matrix in (_cyclic_ones(12, 3), fractional(12, 3).B.toarray()):
        found = allocate(Tree(12, 2), matrix, 6552)
        loads = {len(parts) for parts, _ in found.own}
        assert loads == {544, 545, 546, 547, 548}


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_children_that_get_everything_share_it_by_layers(layers: int) -> None:
    for d in range(layers, 40):
        found = allocate(Tree(3, layers), _cyclic_ones(3, 2), d)
        assert found.load == -(-d // layers)


@pytest.mark.parametrize("parts", [*range(6, 60), 97])
def test_any_number_of_parts_is_recovered_exactly(parts: int) -> None:
    found = allocate(TWELVE, B, parts)
    rng = np.random.default_rng(parts)
    for _ in range(4):
        late = _few_late(TWELVE, 1, rng)
        message = _message(TWELVE, found, _weights_of_example, late)
        assert message == dict.fromkeys(range(parts), 1)
    for parts_held, _ in (*found.own, *found.row):
        assert list(parts_held) == sorted(set(parts_held))


@pytest.mark.parametrize("setting", [*SETTINGS, (5, 2, 2), (2, 4, 0)], ids=str)
@pytest.mark.parametrize("parts", [197, 503])
def test_awkward_numbers_of_parts_are_recovered_to_rounding(
    setting: tuple[int, int, int], parts: int
) -> None:
    children, layers, tolerance = setting
    tree, matrix = Tree(children, layers), cyclic(children, tolerance).B.toarray()
    found, rng = allocate(tree, matrix, parts), np.random.default_rng(parts)
    weights = _least_squares(matrix, tolerance)
    for late in (set(), _few_late(tree, tolerance, rng)):
        message = _message(tree, found, weights, late)
        assert sorted(message) == list(range(parts))
        np.testing.assert_allclose(list(message.values()), 1, atol=1e-10)


@pytest.mark.parametrize("setting", [(4, 3, 1), (12, 2, 3), (6, 2, 2)], ids=str)
def test_repetition_puts_ones_everywhere(setting: tuple[int, int, int]) -> None:
    children, layers, tolerance = setting
    matrix = fractional(children, tolerance).B.toarray()
    found = allocate(Tree(children, layers), matrix, 101)
    assert {w for _, weights in found.row for w in weights} == {1.0}


def test_a_message_is_the_same_row_whoever_is_late_below() -> None:
    tree, matrix = Tree(5, 3), cyclic(5, 2).B.toarray()
    found, rng = allocate(tree, matrix, 311), np.random.default_rng(0)
    late = _few_late(tree, 2, rng)
    for v in (0, 3, 7, 20, 154):
        message = _message(tree, found, _least_squares(matrix, 2), late, v)
        expected = dict(zip(*found.row[v], strict=True))
        assert message == pytest.approx(expected, abs=1e-10)


def test_weights_that_are_not_inherited_break_recovery() -> None:
    tree, matrix = Tree(5, 2), cyclic(5, 2).B.toarray()
    found = allocate(tree, matrix, base_size(5, 2, 2))
    assert len({w for _, weights in found.own for w in weights}) > 2
    weights = _least_squares(matrix, 2)
    late = _few_late(tree, 2, np.random.default_rng(1))
    message = _message(tree, found, weights, late)
    np.testing.assert_allclose(list(message.values()), 1, atol=1e-12)

    own = list(found.own)
    for leaf in range(5, 30):
        above = dict(zip(*found.row[tree.parent(leaf)], strict=True))
        parts, products = own[leaf]
        last = [w / above[p] for p, w in zip(parts, products, strict=True)]
        assert {round(x, 9) for x in last} <= {*matrix[leaf % 5].round(9).tolist()}
        own[leaf] = (parts, tuple(last))
    message = _message(tree, replace(found, own=tuple(own)), weights, late)
    assert np.abs(np.array(list(message.values())) - 1).max() > 0.5


UNEVEN = [[1, 1, 1], [1, 0, 1], [0, 1, 0]]  # any two have all-ones in their span


def test_rows_may_have_any_support() -> None:
    found = allocate(TWELVE, UNEVEN, 40)
    weights = {(0, 1): {0: 1}, (0, 2): {0: 1}, (0, 1, 2): {0: 1}, (1, 2): {1: 1, 2: 1}}
    for seed in range(20):
        late = _few_late(TWELVE, 1, np.random.default_rng(seed))
        message = _message(TWELVE, found, weights.__getitem__, late)
        assert message == dict.fromkeys(range(40), 1)
    assert found.load == 20  # that of the fullest row everywhere: a half


@pytest.mark.parametrize(
    ("tree", "matrix"),
    [
        (TWELVE, B),
        (TWELVE, UNEVEN),
        (Tree(4, 3), _cyclic_ones(4, 0)),
        (Tree(4, 3), _cyclic_ones(4, 2)),
        (Tree(2, 6), _cyclic_ones(2, 1)),
        (Tree(12, 2), _cyclic_ones(12, 3)),
        (Tree(7, 1), _cyclic_ones(7, 2)),
        (Tree(1, 5), [[1]]),
    ],
)
def test_from_the_fewest_parts_on_everybody_has_one(tree: Tree, matrix: list) -> None:
    fewest = fewest_parts(tree, matrix)
    for parts in range(max(1, fewest - 3), fewest):
        with pytest.raises(InvalidCode, match=f"try parts = {fewest} or more"):
            allocate(tree, matrix, parts)
    for parts in range(fewest, fewest + 20):
        found = allocate(tree, matrix, parts)
        assert all(held for held, _ in found.own)


def test_an_uncoded_tree_needs_a_part_for_each_of_its_workers() -> None:
    assert fewest_parts(Tree(4, 3), _cyclic_ones(4, 0)) == 84 == base_size(4, 3, 0)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: allocate(TWELVE, B, 5),
            "allocate: parts = 5 leave worker 8 without any; try parts = 6 or more",
        ),
        (
            lambda: allocate(TWELVE, B, 0),
            "allocate: parts = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: allocate(TWELVE, B[:2], 15),
            "allocate: the matrix must be 3 rows of 3 finite numbers; "
            "try a code of workers = 3",
        ),
        (
            lambda: allocate(TWELVE, [[1, 1, 0], [0, 1, 0], [1, 0, 0]], 15),
            "allocate: column 2 of the matrix is all zeros; "
            "try a non-zero in every row and column",
        ),
        (
            lambda: allocate(TWELVE, [[1, 1, 1], [0, 0, 0], [1, 1, 1]], 15),
            "allocate: row 1 of the matrix is all zeros; "
            "try a non-zero in every row and column",
        ),
        (
            lambda: base_size(3, 2, 3),
            "base_size: tolerance = 3 is out of range; try a whole number from 0 to 2",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text


@pytest.mark.parametrize(
    "matrix",
    [None, 3, "abc", [[1, 1], [1]], [["1"]], [[np.nan, 1, 1]] * 3, [[np.inf] * 3] * 3],
    ids=repr,
)
def test_only_finite_numbers_are_a_matrix(matrix: object) -> None:
    for build in (allocate, lambda tree, B, _: fewest_parts(tree, B)):
        with pytest.raises(InvalidCode, match="3 rows of 3 finite numbers"):
            build(TWELVE, matrix, 15)
