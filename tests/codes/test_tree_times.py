"""How long a step of a tree takes: tables, anchors, crossovers, a small simulator."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from codedgrad.codes import bounds
from codedgrad.codes.tree import Tree
from codedgrad.errors import InvalidCode

# children, layers, tolerance; compute alone, exactly; that of its order statistic.
COMPUTE = [
    ((4, 3, 1), 2.925, 2.083),
    ((4, 3, 2), 1.948, 1.583),
    ((12, 2, 1), 4.187, 3.103),
    ((12, 2, 3), 2.772, 2.270),
    ((12, 2, 5), 2.118, 1.820),
]

# Tree, share in units of the port; seconds of the tree by simulation in the same units,
# and by how much coded star, uncoded star and ring (latency 0 and 0.5) take longer.
SIMULATED = [
    ((4, 3, 0), 0.1, 12.10, 6.95, 6.95, 0.213, 6.29),
    ((4, 3, 0), 1.0, 13.03, 6.52, 6.52, 0.614, 6.26),
    ((4, 3, 0), 10.0, 63.06, 1.50, 1.50, 0.987, 2.25),
    ((4, 3, 1), 0.1, 9.61, 6.79, 8.75, 0.268, 7.70),
    ((4, 3, 1), 1.0, 20.23, 4.21, 4.20, 0.396, 4.24),
    ((4, 3, 1), 10.0, 177.8, 2.94, 0.531, 0.350, 0.812),
    ((12, 2, 0), 0.1, 24.10, 6.48, 6.48, 0.110, 6.28),
    ((12, 2, 0), 1.0, 25.01, 6.28, 6.28, 0.345, 6.29),
    ((12, 2, 0), 10.0, 68.51, 2.42, 2.42, 0.998, 3.22),
    ((12, 2, 1), 0.1, 22.37, 6.45, 6.98, 0.119, 6.75),
    ((12, 2, 1), 1.0, 25.75, 6.10, 6.10, 0.335, 6.12),
    ((12, 2, 1), 10.0, 157.4, 3.08, 1.06, 0.434, 1.41),
]
DIGITS = 0.008  # of the table: three of them, and 20 000 samples

Polynomial = list[int]


def _times(p: Polynomial, q: Polynomial) -> Polynomial:
    return np.convolve(np.array(p, dtype=object), np.array(q, dtype=object)).tolist()


def _plus(p: Polynomial, q: Polynomial) -> Polynomial:
    size = max(len(p), len(q))
    return [sum(x[k] for x in (p, q) if k < len(x)) for k in range(size)]


def _more_than(s: int, n: int, p: Polynomial) -> Polynomial:
    """The chance that more than s of n happen, for a chance that is a polynomial."""
    total, other = [0], _plus([1], [-x for x in p])
    for k in range(s + 1, n + 1):
        term = [math.comb(n, k)]
        for factor in [p] * k + [other] * (n - k):
            term = _times(term, factor)
        total = _plus(total, term)
    return total


def _exact_compute(n: int, layers: int, s: int) -> Fraction:
    """The integral of P(u) / u over [0, 1], which is a polynomial, term by term."""
    missing = [0, 1]
    for _ in range(layers - 1):
        missing = _plus([0, 1], _times([1, -1], _more_than(s, n, missing)))
    failure = _more_than(s, n, missing)
    return 1 + sum(Fraction(c, k) for k, c in enumerate(failure) if k)


def _star_compute(workers: int, tolerance: int, tail: float = 1.0) -> float:
    """The mean of an order statistic: 1 + (H_N - H_S) / tail."""
    return 1 + sum(1 / k for k in range(tolerance + 1, workers + 1)) / tail


@pytest.mark.parametrize(("tree", "exact", "order_statistic"), COMPUTE)
def test_the_table_of_compute(
    tree: tuple[int, int, int], exact: float, order_statistic: float
) -> None:
    assert round(bounds.tree_compute(*tree), 3) == exact
    assert round(_star_compute(tree[0], tree[2]), 3) == order_statistic


@pytest.mark.parametrize(
    "tree",
    [(3, 2, 1), (4, 3, 1), (4, 3, 2), (12, 2, 3), (2, 4, 0), (2, 5, 1), (1, 3, 0)],
    ids=str,
)
def test_compute_is_right_to_eight_digits(tree: tuple[int, int, int]) -> None:
    exact = _exact_compute(*tree)
    assert bounds.tree_compute(*tree) == pytest.approx(float(exact), abs=1e-8)
    found = bounds.tree_compute(*tree, tail=4.0)
    assert found == pytest.approx(float(1 + (exact - 1) / 4), abs=1e-8)


def test_uncoded_trees_compute_as_long_as_stars_of_all_their_workers() -> None:
    for n, layers in [(4, 3), (12, 2), (2, 10), (40, 2), (3, 6)]:
        star = _star_compute(Tree(n, layers).workers, 0)
        assert bounds.tree_compute(n, layers, 0) == pytest.approx(star, abs=1e-8)
    star = _star_compute(50, 20, tail=0.1)
    assert bounds.tree_compute(50, 1, 20, tail=0.1) == pytest.approx(star, abs=1e-7)


def test_a_large_tree_computes_as_long_as_its_limit() -> None:
    """One worker in four may be late: log 4, once n is large."""
    found = [bounds.tree_compute(n, 2, n // 4) for n in (12, 400, 4_000, 40_000)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(1 + math.log(4), rel=0.01)


def _simulate(
    tree: Tree, tolerance: int, steps: int, *, share: float, latency: float
) -> np.ndarray:
    """Seconds of many steps, messages taken first come, first served; port = 1."""
    n, rng = tree.children, np.random.default_rng(0)
    needed, x = n - tolerance, bounds.tree_load(n, tree.layers, tolerance)
    compute = (
        x * tree.workers * share * (1 + rng.exponential(size=(steps, tree.workers)))
    )
    busy = np.arange(needed, 0, -1)
    ready = compute[:, list(tree.of_layer(tree.layers))]
    for layer in range(tree.layers - 1, -1, -1):
        first = np.sort(ready.reshape(steps, -1, n), axis=2)[:, :, :needed]
        received = (first + latency + busy).max(axis=2)
        if layer == 0:
            return received[:, 0]
        ready = np.maximum(compute[:, list(tree.of_layer(layer))], received)
    raise AssertionError


@pytest.mark.parametrize("latency", [0.0, 0.5])
@pytest.mark.parametrize(("tree", "share"), [row[:2] for row in SIMULATED])
def test_a_simulated_tree_is_between_its_bounds(
    tree: tuple[int, int, int], share: float, latency: float
) -> None:
    n, layers, s = tree
    found = _simulate(Tree(n, layers), s, 2000, share=share, latency=latency)
    low, high = bounds.tree_seconds(*tree, share=share, port=1.0, latency=latency)
    error = 4 * found.std() / math.sqrt(found.size)
    assert low - error <= found.mean() <= high + error


@pytest.mark.parametrize(
    ("tree", "share", "seconds", "coded", "uncoded", "ring", "ring_late"), SIMULATED
)
def test_the_table_of_seconds_is_between_the_bounds(
    tree: tuple[int, int, int],
    share: float,
    seconds: float,
    coded: float,
    uncoded: float,
    ring: float,
    ring_late: float,
) -> None:
    n, layers, s = tree
    workers = Tree(n, layers).workers
    given = {"share": share, "port": 1.0}
    for found, (low, high) in [
        (seconds, bounds.tree_seconds(*tree, **given)),
        (seconds * coded, bounds.tree_seconds(workers, 1, workers * s // n, **given)),
        (seconds * uncoded, bounds.tree_seconds(workers, 1, 0, **given)),
    ]:
        assert low * (1 - DIGITS) <= found <= high * (1 + DIGITS)
    found = bounds.ring_seconds(workers, **given)
    assert found / seconds == pytest.approx(ring, rel=DIGITS)
    steps = _simulate(Tree(n, layers), s, 4000, share=share, latency=0.5)
    found = bounds.ring_seconds(workers, **given, latency=0.5)
    assert found / steps.mean() == pytest.approx(ring_late, rel=3 * DIGITS)


@pytest.mark.parametrize(
    ("children", "layers", "ratio"),
    [(4, 3, 7.0), (12, 2, 6.5), (9, 2, 5.0), (5, 3, 10.33)],
)
def test_without_compute_stars_take_longer_by_workers_over_children_and_layers(
    children: int, layers: int, ratio: float
) -> None:
    workers = Tree(children, layers).workers
    for s in range(children):
        tolerance = Fraction(s * workers, children)
        assert tolerance.denominator == 1
        star = bounds.tree_receive(workers, 1, int(tolerance), port=1.0)
        found = star / bounds.tree_receive(children, layers, s, port=1.0)
        assert found == pytest.approx(workers / (children * layers))
        assert found == pytest.approx(ratio, abs=5e-3)


def test_without_compute_the_bounds_meet() -> None:
    given = {"share": 0.0, "port": 2.0, "latency": 0.3}
    expected = pytest.approx((18.9, 18.9))
    assert bounds.tree_seconds(4, 3, 1, **given) == expected
    received = bounds.tree_receive(4, 3, 1, port=2.0, latency=0.3)
    assert received == pytest.approx(3 * 3 * 2.0 + 3 * 0.3)
    assert bounds.tree_seconds(84, 1, 21, **given) == pytest.approx((126.3, 126.3))
    assert bounds.tree_receive(84, 1, 0, port=2.0, latency=0.3) == pytest.approx(168.3)
    ring = bounds.ring_seconds(84, **given)
    assert ring == pytest.approx(2 * 83 * (0.3 + 2.0 / 84))


def test_for_one_worker_the_bounds_meet() -> None:
    given = {"share": 3.0, "tail": 2.0, "port": 1.0, "latency": 0.25}
    seconds = 3.0 * (1 + 1 / 2) + 1.0 + 0.25
    assert bounds.tree_seconds(1, 1, 0, **given) == pytest.approx((seconds, seconds))


@pytest.mark.parametrize("chunks", [1, 2, 5, 40])
def test_chunks_overlap_the_layers(chunks: int) -> None:
    """A layer begins a chunk when it is there and the one before is done."""
    n, layers, s = 4, 3, 1
    done = np.zeros(chunks)
    for _ in range(layers):
        port_free = 0.0
        for chunk in range(chunks):
            port_free = max(done[chunk], port_free) + (n - s) / chunks
            done[chunk] = port_free
    found = bounds.tree_receive(n, layers, s, port=1.0, chunks=chunks)
    assert found == pytest.approx(done[-1])
    assert found >= bounds.tree_receive(n, layers, s, port=1.0, chunks=math.inf) == 3


CROSSOVERS = [
    # tree, latency over port to beat the ring, and to beat it sevenfold
    ((4, 3, 1), 0.043, 0.42),
    ((12, 2, 1), 0.065, 0.51),
    ((12, 2, 3), 0.052, 0.42),
]


def _ring_over_tree(tree: tuple[int, int, int], port: float, latency: float) -> float:
    workers = Tree(*tree[:2]).workers
    ring = bounds.ring_seconds(workers, share=0.0, port=port, latency=latency)
    return ring / bounds.tree_receive(*tree, port=port, latency=latency)


@pytest.mark.parametrize(("tree", "even", "sevenfold"), CROSSOVERS)
def test_latency_from_which_a_tree_beats_a_ring(
    tree: tuple[int, int, int], even: float, sevenfold: float
) -> None:
    found = bounds.latency_to_beat_ring(*tree)
    assert found == pytest.approx(even, abs=5e-4)
    assert _ring_over_tree(tree, 1.0, found) == pytest.approx(1)
    found = bounds.latency_to_beat_ring(*tree, times=7.0)
    assert found == pytest.approx(sevenfold, abs=5e-3)
    assert _ring_over_tree(tree, 1.0, found) == pytest.approx(7)


@pytest.mark.parametrize(("tree", "ratio"), [((4, 3, 1), 0.22), ((12, 2, 1), 0.09)])
def test_the_limits_of_bandwidth_and_of_latency(
    tree: tuple[int, int, int], ratio: float
) -> None:
    n, layers, s = tree
    workers = Tree(n, layers).workers
    bandwidth = _ring_over_tree(tree, 1.0, 0.0)
    assert bandwidth == pytest.approx(ratio, abs=5e-3)
    assert bandwidth == pytest.approx(2 * (workers - 1) / (workers * layers * (n - s)))
    most = 2 * (workers - 1) / layers
    assert _ring_over_tree(tree, 0.0, 1.0) == pytest.approx(most)
    assert bounds.latency_to_beat_ring(*tree, times=most) == math.inf
    assert bounds.latency_to_beat_ring(*tree, times=0.99 * most) < math.inf


def test_a_tree_that_always_beats_the_ring_and_one_that_never_does() -> None:
    given = {"latency": 1e-4, "bandwidth": 1e9}
    assert bounds.latency_to_beat_ring(5, 1, 4) == 0
    assert bounds.message_to_beat_ring(5, 1, 4, **given) == math.inf
    assert bounds.latency_to_beat_ring(1, 2, 0) == math.inf
    assert bounds.message_to_beat_ring(1, 2, 0, **given) == 0


@pytest.mark.parametrize(
    ("latency", "bandwidth", "chunks", "kilobytes"),
    [
        (1e-4, 125e6, 1, (290, 192)),
        (2e-5, 1250e6, 1, (580, 385)),
        (1e-4, 125e6, math.inf, (1990, 427)),  # about 2.0 and 0.43 megabytes
    ],
)
def test_the_size_of_messages_up_to_which_a_tree_beats_a_ring(
    latency: float, bandwidth: float, chunks: float, kilobytes: tuple[int, int]
) -> None:
    given = {"latency": latency, "bandwidth": bandwidth, "chunks": chunks}
    for tree, expected in zip([(4, 3, 1), (12, 2, 1)], kilobytes, strict=True):
        found = bounds.message_to_beat_ring(*tree, **given)
        assert found / 1e3 == pytest.approx(expected, rel=3e-3)
        ratio = bounds.latency_to_beat_ring(*tree, chunks=chunks)
        assert latency * bandwidth / found == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: bounds.tree_compute(3, 2, 1, tail=0.0),
            "tree_compute: tail = 0.0; try a number above 0",
        ),
        (
            lambda: bounds.tree_compute(3, 1, 1, tail=math.inf),
            "tree_compute: tail = inf; try a number above 0",
        ),
        (
            lambda: bounds.tree_receive(3, 2, 1, port=-1.0),
            "tree_receive: port = -1.0; try a number, 0 or more",
        ),
        (
            lambda: bounds.tree_receive(3, 2, 1, port=1.0, chunks=0),
            "tree_receive: chunks = 0 is out of range; try a whole number, 1 or more",
        ),
        (
            lambda: bounds.tree_receive(3, 1, 1, port=1.0, latency="1"),
            "tree_receive: latency = '1'; try a number, 0 or more",
        ),
        (
            lambda: bounds.ring_seconds(3, share=True, port=1.0),
            "ring_seconds: share = True; try a number, 0 or more",
        ),
        (
            lambda: bounds.message_to_beat_ring(3, 2, 1, latency=0, bandwidth=1e9),
            "message_to_beat_ring: latency = 0; try a number above 0",
        ),
        (
            lambda: bounds.latency_to_beat_ring(3, 2, 1, times=math.nan),
            "latency_to_beat_ring: times = nan; try a number above 0",
        ),
    ],
)
def test_what_is_wrong_and_what_would_be_right(build: Callable, text: str) -> None:
    with pytest.raises(InvalidCode) as raised:
        build()
    assert str(raised.value) == text
