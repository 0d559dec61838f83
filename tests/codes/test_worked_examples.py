"""Codes worked out by hand elsewhere, number by number."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from codedgrad.codes import (
    clustered,
    cyclic,
    decode,
    fractional,
    from_matrix,
    from_null_space,
)


def _weights(code, heard) -> list[float]:
    found = dict(decode(code, heard).weights)
    return [found.get(m, 0.0) for m in heard]


def test_fractional_repetition_is_blocks_of_ones() -> None:
    expected = np.kron(np.eye(3), np.ones((2, 2)))
    np.testing.assert_array_equal(fractional(6, 1).B.toarray(), expected)
    assert _weights(fractional(6, 1), [0, 3, 5]) == [1, 1, 1]


def test_fractional_repetition_is_clusters_of_full_repetition() -> None:
    clusters = clustered(cyclic(3, 2), 4)
    np.testing.assert_array_equal(fractional(12, 2).B.toarray(), clusters.B.toarray())


def test_the_null_space_of_1_1_minus_2_gives_the_worked_inner_code() -> None:
    code = from_null_space([[1, 1, -2]])
    expected = [[1, -1, 0], [0, 1, 0.5], [2, 0, 1]]
    np.testing.assert_allclose(code.B.toarray(), expected)
    np.testing.assert_allclose(_weights(code, [0, 1]), [1, 2])
    np.testing.assert_allclose(_weights(code, [0, 2]), [-1, 1])
    np.testing.assert_allclose(_weights(code, [1, 2]), [1, 0.5])


def test_a_random_draw_is_orthogonal_to_its_null_space() -> None:
    rng = np.random.default_rng(3)
    H = rng.standard_normal((3, 8))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = from_null_space(H).B.toarray()
    np.testing.assert_allclose(B @ H.T, 0, atol=1e-12)
    np.testing.assert_allclose(np.diag(B), 1)


def test_the_plain_draw_is_the_one_of_its_seed() -> None:
    H = np.random.default_rng(7).standard_normal((2, 9))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    by_name = cyclic(9, 2, construction="random", seed=7)
    np.testing.assert_array_equal(by_name.B.toarray(), from_null_space(H).B.toarray())


@pytest.mark.parametrize(("n", "s"), [(4, 1), (5, 2), (10, 3), (12, 5)])
def test_odd_cyclic_codes_are_circulants_of_the_generator_polynomial(
    n: int, s: int
) -> None:
    """g(x) has s consecutive powers of the n-th root of unity around n/2 as roots."""
    exponents = np.arange((n - s + 1) // 2, (n - s + 1) // 2 + s)
    g = np.poly(np.exp(2j * np.pi * exponents / n))
    row = np.zeros(n)
    row[: s + 1] = g.real
    np.testing.assert_allclose(g.imag, 0, atol=1e-12)
    expected = [np.roll(row, i) for i in range(n)]
    np.testing.assert_allclose(cyclic(n, s).B.toarray(), expected, atol=1e-12)


@pytest.mark.parametrize(("n", "s"), [(6, 2), (7, 3), (20, 2)])
def test_even_cyclic_codes_are_scaled_negacyclic_circulants(n: int, s: int) -> None:
    """By dense linear algebra: the roots of x^n + 1 nearest to -1, then 1 / c."""
    roots = np.exp(1j * np.pi * (2 * np.arange(n) + 1) / n)
    g = np.poly(roots[np.argsort(np.abs(roots + 1))[:s]]).real
    B0 = np.zeros((n, n))
    for i in range(n):
        for q in range(s + 1):
            B0[i, (i + q) % n] = g[q] if i + q < n else -g[q]
    basis = np.linalg.svd(B0)[2][: n - s]
    c = basis.T @ (basis @ np.ones(n))
    code = cyclic(n, s, construction="circulant")
    np.testing.assert_allclose(code.B.toarray(), B0 / c, atol=1e-11)


def test_the_four_worker_circulant_decodes_opposite_pairs_too() -> None:
    code = cyclic(4, 1)
    decodable = [pair for pair in combinations(range(4), 2) if code.decodable(pair)]
    assert decodable == [(0, 2), (1, 3)]
    assert all(code.decodable(three) for three in combinations(range(4), 3))


@pytest.mark.parametrize(("m", "s"), [(4, 1), (5, 2), (6, 3)])
def test_reed_solomon_codes_decode_by_lagrange_interpolation(m: int, s: int) -> None:
    """Halbawi et al.: our least squares against their closed form at 0."""
    x = np.cos(np.pi * (2 * np.arange(m) + 1) / (2 * m))
    x = np.where(np.abs(x) < 1e-9, 0.5, x)
    B = np.zeros((m, m))
    for j in range(m):
        holders = {(j - q) % m for q in range(s + 1)}
        zeros = [i for i in range(m) if i not in holders]
        for i in holders:
            B[i, j] = np.prod([1 - x[i] / x[z] for z in zeros])
    code = from_matrix(B, tolerance=s)
    for heard in combinations(range(m), m - s):
        lagrange = [
            np.prod([x[o] / (x[o] - x[i]) for o in heard if o != i]) for i in heard
        ]
        np.testing.assert_allclose(_weights(code, heard), lagrange, rtol=1e-8)


# The worked example of dynamic clustering: 12 workers, 4 clusters, load 2.
GRADIENTS = np.array(
    [
        (4, 2, 0), (-3, -2, -5), (-5, -5, -4), (3, 2, 5), (0, 1, 5), (3, 1, 0),
        (1, 5, -2), (3, 2, -5), (-1, 4, 1), (-5, 3, 3), (4, -4, -5), (4, -5, 0),
    ],
    dtype=float,
)  # fmt: skip
HOME = [[1, 5, 9], [2, 6, 10], [3, 7, 11], [4, 8, 12]]  # members by slot
SHIFTED = [[1, 8, 9], [2, 5, 10], [3, 6, 11], [4, 7, 12]]  # row 2 moved by one
LATE = {1, 5, 7, 11}


def _heard_of(clusters: list[list[int]]) -> list[int]:
    members = [worker for cluster in clusters for worker in cluster]
    return [message for message, worker in enumerate(members) if worker not in LATE]


def test_static_clusters_fail_where_moved_clusters_recover_the_sum() -> None:
    code = clustered(from_null_space([[1, 1, -2]]), clusters=4)
    assert not code.decodable(_heard_of(HOME))
    plain = cyclic(12, 1, construction="random")  # tolerates 1 late worker, not 4
    assert not plain.decodable([w - 1 for w in range(1, 13) if w not in LATE])

    decoding = decode(code, _heard_of(SHIFTED))
    messages = code.B.toarray() @ GRADIENTS
    weights = dict(decoding.weights)
    assert len(weights) == 8
    # cluster -> ((message, its value, its weight), ...), and the sum of the cluster
    expected = {
        0: (((1, (-5.5, -4.5, -7), 1), (2, (3, -1, -4), 0.5)), (-4, -5, -9)),
        1: (((3, (3, 1, 0), -1), (5, (9, 5, 10), 1)), (6, 4, 10)),
        2: (((6, (-2, 3, 3), 1), (7, (2.5, 4, -4.5), 2)), (3, 11, -6)),
        3: (((9, (-9, 7, 8), -1), (11, (-6, 1, 6), 1)), (3, -6, -2)),
    }
    for rows, cluster_sum in expected.values():
        for message, value, weight in rows:
            np.testing.assert_allclose(messages[message], value)
            assert weights[message] == pytest.approx(weight)
        got = sum(weights[m] * messages[m] for m, _, _ in rows)
        np.testing.assert_allclose(got, cluster_sum, atol=1e-12)
    total = sum(a * messages[m] for m, a in decoding.weights)
    np.testing.assert_allclose(total, (8, 4, -7), atol=1e-12)


# The worked example of coded trees: 3 children, any one may be late.
TREE_CODE = [[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]]


def test_the_tree_example_has_the_stated_decoding_rows() -> None:
    code = from_matrix(TREE_CODE, tolerance=1)
    np.testing.assert_allclose(_weights(code, [0, 1]), [2, -1])
    np.testing.assert_allclose(_weights(code, [0, 2]), [1, 1])
    np.testing.assert_allclose(_weights(code, [1, 2]), [1, 2])
    # Two siblings late: no decoding row. What is left is 3 - (sum of b)^2 / |b|^2.
    left = [decode(code, [alone]).residual for alone in range(3)]
    assert left == pytest.approx([1.2, 3.0, 1.2])


def test_two_levels_of_the_tree_example_decode_with_inherited_weights() -> None:
    """All 256 patterns of at most one late child per parent, in exact fractions."""
    B = [[Fraction(b) for b in row] for row in TREE_CODE]
    code = from_matrix(TREE_CODE, tolerance=1)
    rows = {
        late: [Fraction(a).limit_denominator(100) for a in _full_row(code, late)]
        for late in (None, 0, 1, 2)
    }
    kept, leaves = _tree_example(B)
    for pattern in np.ndindex(4, 4, 4, 4):
        root, *inner = [None if late == 3 else late for late in pattern]
        coefficient = {point: Fraction(0) for point in range(1, 16)}
        for child in range(3):
            for point, weight in kept[child].items():
                coefficient[point] += rows[root][child] * weight
            for leaf in range(3):
                share = rows[root][child] * rows[inner[child]][leaf]
                for point, weight in leaves[child][leaf].items():
                    coefficient[point] += share * weight
        assert set(coefficient.values()) == {Fraction(1)}, pattern


def _full_row(code, late) -> list[float]:
    heard = [child for child in range(3) if child != late]
    if late is None:
        heard = [0, 2]  # the first n - s to arrive
    found = dict(decode(code, heard).weights)
    return [found.get(child, 0.0) for child in range(3)]


def _tree_example(B):
    """What the nodes and leaves of the 12-worker tree compute: point -> weight."""
    parts = [range(1, 6), range(6, 11), range(11, 16)]
    kept, leaves = [], []
    for child in range(3):
        own = {p: B[child][j] for j in range(3) if B[child][j] for p in parts[j]}
        points = sorted(own)
        kept.append({p: own[p] for p in points[:4]})
        pieces = [points[4:6], points[6:8], points[8:10]]
        leaves.append(
            [
                {p: own[p] * row[j] for j in range(3) if row[j] for p in pieces[j]}
                for row in B
            ]
        )
    half, one = Fraction(1, 2), Fraction(1)
    assert kept[0] == dict.fromkeys((1, 2, 3, 4), half)
    assert kept[1] == dict.fromkeys((6, 7, 8, 9), one)
    assert leaves[0][0] == {5: half * half, 6: half, 7: one, 8: one}
    assert leaves[0][1] == {7: one, 8: one, 9: -one, 10: -one}
    assert leaves[0][2] == {5: half * half, 6: half, 9: one, 10: one}
    assert leaves[1][0] == {10: half, 11: -half, 12: -one, 13: -one}
    assert leaves[1][1] == {12: -one, 13: -one, 14: one, 15: one}
    assert leaves[1][2] == {10: half, 11: -half, 14: -one, 15: -one}
    assert leaves[2][0] == {5: half * half, 11: half, 12: one, 13: one}
    assert leaves[2][1] == {12: one, 13: one, 14: -one, 15: -one}
    assert leaves[2][2] == {5: half * half, 11: half, 14: one, 15: one}
    return kept, leaves
