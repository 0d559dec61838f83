"""Trees, stars and rings in arrays: as by events, and as the closed forms say."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedgrad import codes
from codedgrad.codes import bounds
from codedgrad.codes.tree import ROOT, Tree, allocate, base_size
from codedgrad.delays import Chain, Delays, Pauses, ShiftedExponential, Times, draw
from codedgrad.errors import CodedgradError, InvalidScenario, InvalidScheme
from codedgrad.schemes import (
    CodedReduce,
    CodedScheme,
    clustered,
    coded_reduce,
    cyclic,
    fractional,
    ignore,
    proportional,
    uncoded,
)
from codedgrad.schemes.coded_reduce.tree_plan import TreeLayout
from codedgrad.schemes.options import RULES
from codedgrad.sim import (
    Machine,
    Network,
    Outcome,
    compare,
    counted_seconds,
    has_tree_path,
    ring_seconds,
    run_events,
    tree_outcome,
    tree_seconds,
)
from codedgrad.sim.arrays import trees as trees_module
from codedgrad.testing import Everything
from codedgrad.uplink import Link

LAW = ShiftedExponential(floor=0.1, mean=1.0, fixed_mean=0.2)
SHAPES = [(1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (4, 2), (5, 1), (6, 2)]
PORT = Network(port=1.0)
SLOTS = Network(link=Link(slot=1.0))


def drawn(workers: int, steps: int, seed: int = 0, law: Delays = LAW) -> Times:
    return draw(law, steps=steps, workers=workers, seed=seed)


def none(workers: int, steps: int = 1) -> Times:
    """Nobody takes any time."""
    return Times(np.zeros((steps, workers)), np.zeros((steps, workers)))


@cache
def tree(
    n: int,
    L: int,
    s: int,
    rule: str = "threshold",
    *,
    inner: str = "cyclic",
    parts: int | None = None,
) -> CodedReduce:
    """A tree that counts to n - s at every parent, unless it is asked for another.

    Also where its layers would lose digits: only times matter here.
    """
    code = codes.FAMILIES[inner](n, s) if s else codes.uncoded(n)
    matrix, shape = code.B.toarray().tolist(), Tree(n, L)
    allocation = allocate(shape, matrix, parts or base_size(n, L, s))
    name = f"tree of {n}, {L} layers, tolerance {s}, {inner}, {rule}"
    return CodedReduce(name, TreeLayout(shape, code, RULES[rule], allocation), "given")


def agree(
    scheme: CodedReduce | CodedScheme, times: Times, network: Network | None = None
) -> Outcome:
    """Assert that arrays and events say the same about every step."""
    arrays = tree_outcome(scheme, times, network)
    events = run_events(scheme, times, Machine(drain=False, network=network))
    where = f"{scheme}, {network}"
    for name in ("seconds", "messages", "work", "busy"):
        one, other = getattr(arrays, name), getattr(events, name)
        np.testing.assert_array_equal(one, other, f"{name}, {where}")
    np.testing.assert_allclose(arrays.residual, events.residual, 0, 1e-9)
    seconds = tree_seconds(scheme, times, network)
    np.testing.assert_array_equal(seconds, events.seconds, where)
    return arrays


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps were left to events, each time it happened."""
    counts: list[int] = []

    def counted(scheme: Any, times: Times, machine: Machine) -> Outcome:
        counts.append(times.steps)
        return run_events(scheme, times, machine)

    monkeypatch.setattr(trees_module, "run_events", counted)
    return counts


# -- arrays and events -----------------------------------------------------------------


@st.composite
def some_trees(draw: st.DrawFn) -> CodedReduce:
    n, L = draw(st.sampled_from(SHAPES))
    s = draw(st.integers(0, n - 1))
    rule = draw(st.sampled_from(["decodable", "threshold"]))
    either = ["cyclic", "fractional"] if n % (s + 1) == 0 else ["cyclic"]
    N = Tree(n, L).workers
    parts = draw(st.none() | st.integers(3 * N, 6 * N))
    return tree(n, L, s, rule, inner=draw(st.sampled_from(either)), parts=parts)


@st.composite
def some_networks(draw: st.DrawFn, workers: int) -> Network | None:
    seconds = st.floats(0.0, 2.0) | st.sampled_from([0.0, 0.25, 1.0])
    each = st.lists(seconds, min_size=workers + 1, max_size=workers + 1).map(tuple)
    network = st.builds(Network, seconds | each, seconds, st.none() | seconds)
    return draw(st.none() | network)


@st.composite
def some_times(draw: st.DrawFn, workers: int) -> Times:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    times = LAW.sample(rng, 4, workers)
    fixed, unit = times.fixed.copy(), times.unit.copy()
    if draw(st.booleans()):  # so that some end together
        fixed, unit = np.round(fixed), np.round(unit)
    dead = draw(st.sampled_from([0.0, 0.0, 0.05, 0.3]))
    unit[rng.random(unit.shape) < dead] = np.inf
    fixed[rng.random(unit.shape) < dead / 2] = np.inf
    return Times(fixed, unit)


@settings(max_examples=60)
@given(st.data())
@pytest.mark.hypothesis
def test_arrays_equal_the_events_in_any_setting(data: st.DataObject) -> None:
    scheme = data.draw(some_trees())
    times = data.draw(some_times(scheme.workers))
    agree(scheme, times, data.draw(some_networks(scheme.workers)))


@settings(max_examples=40)
@given(st.data())
@pytest.mark.hypothesis
def test_stars_in_arrays_equal_the_events_too(data: st.DataObject) -> None:
    scheme = data.draw(st.sampled_from(STARS))
    times = data.draw(some_times(scheme.workers))
    agree(scheme, times, data.draw(some_networks(scheme.workers)))


STARS = [
    uncoded(5, pieces=2), fractional(6, 2), fractional(6, 1, rule="threshold"),
    cyclic(7, 2), cyclic(6, 3, rule="threshold", pieces=2), clustered(8, 2, 1),
    proportional(6, 1, [1, 1, 2, 2, 3, 3]),
]  # fmt: skip


@pytest.mark.parametrize("rule", ["threshold", "decodable"])
@pytest.mark.parametrize(("n", "L", "s"), [(4, 3, 1), (12, 2, 1), (12, 2, 3)])
def test_large_trees_need_no_events_where_times_are_drawn(
    n: int, L: int, s: int, rule: str, settled: list[int]
) -> None:
    inner = "cyclic" if rule == "threshold" else "fractional"
    scheme = tree(n, L, s, rule, inner=inner)
    network = Network(port=0.2, latency=0.05, down=0.01)
    agree(scheme, drawn(scheme.workers, steps=3), network)
    assert settled == []


def test_where_the_order_decides_events_are_asked_once_for_equal_steps(
    settled: list[int],
) -> None:
    scheme = tree(4, 2, 1, "decodable", inner="fractional")
    assert scheme.code.inner is not None  # one of every pair is enough
    even = np.ones((5, 20))
    even[2:, 3] = 2.0
    result = agree(scheme, Times(np.zeros_like(even), even), PORT)
    assert settled == [2, 2]  # by tree_outcome and by tree_seconds, two distinct steps
    assert len(set(result.seconds.tolist())) <= 2


def test_where_any_messages_do_their_order_needs_no_events(settled: list[int]) -> None:
    even = Times(np.zeros((2, 20)), np.ones((2, 20)))
    for s in (0, 1, 2):
        tree_seconds(tree(4, 2, s), even, PORT)
    tree_seconds(tree(4, 2, 1, "decodable", inner="fractional"), even, Network())
    assert settled == []


def test_a_dead_inner_worker_is_missed_with_all_below_it() -> None:
    scheme = tree(3, 2, 1)
    unit = np.ones((4, 12))
    unit[1, 0] = np.inf  # one child of the root: survived
    unit[2, [0, 1]] = np.inf  # two
    unit[3, [3, 6, 9]] = np.inf  # a child of every parent
    network = Network(port=0.125, down=0.25)  # nobody sends the dead a copy
    result = agree(scheme, Times(np.zeros((4, 12)), unit), network)
    assert np.isfinite(result.seconds).tolist() == [True, True, False, True]
    assert result.residual.tolist() == [0.0, 0.0, 15.0, 0.0]
    assert result.messages[2] == 4  # of one subtree
    assert result.work[2] == 4 * 4


# -- a tree of one layer is plain gradient coding --------------------------------------


@pytest.mark.parametrize("network", [None, PORT, Network(0.3, 0.2, down=0.1)])
@pytest.mark.parametrize(
    ("scheme", "n", "s", "inner"),
    [
        (uncoded(6), 6, 0, None),
        (fractional(6, 2), 6, 2, "fractional"),
        (cyclic(6, 2), 6, 2, "cyclic"),
        (cyclic(7, 3), 7, 3, "cyclic"),
    ],
    ids=str,
)
def test_a_tree_of_one_layer_takes_as_long_as_its_code(
    scheme: CodedScheme, n: int, s: int, inner: str | None, network: Network | None
) -> None:
    times = drawn(n, steps=20)
    flat = agree(coded_reduce(n, n, s, inner=inner), times, network)
    plain = agree(scheme, times, network)
    for name in ("seconds", "messages", "work", "busy"):
        np.testing.assert_array_equal(getattr(flat, name), getattr(plain, name), name)


@pytest.mark.parametrize("network", [None, PORT, Network(0.3, 0.2, down=0.1)])
@pytest.mark.parametrize("s", [0, 1, 3])
def test_counting_is_what_a_code_takes_that_counts(
    s: int, network: Network | None
) -> None:
    times = drawn(7, steps=20)
    fixed, unit = times.fixed.copy(), times.unit.copy()
    unit[3, 2], fixed[4, 5] = np.inf, np.inf
    some_dead = Times(fixed, unit)
    scheme = cyclic(7, s, rule="threshold")
    expected = tree_seconds(scheme, some_dead, network)
    np.testing.assert_array_equal(counted_seconds(s, some_dead, network), expected)


# -- closed forms ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "L", "s"),
    [(1, 2, 0), (3, 2, 1), (4, 3, 0), (4, 3, 1), (4, 3, 2), (5, 3, 1), (9, 2, 1),
     (12, 2, 0), (12, 2, 1), (12, 2, 3)],
)  # fmt: skip
def test_without_computing_all_four_take_exactly_what_the_formulas_say(
    n: int, L: int, s: int
) -> None:
    N = Tree(n, L).workers
    S, scheme = s * N // n, tree(n, L, s)
    for t_l in (0.0, 0.25):
        network = Network(port=2.0, latency=t_l)
        found = agree(scheme, none(N), network) if N < 50 else None
        (cr,) = tree_seconds(scheme, none(N), network)
        (gc,) = counted_seconds(S, none(N), network)
        (umw,) = counted_seconds(0, none(N), network)
        (rar,) = ring_seconds(none(N), network)
        assert found is None or found.seconds[0] == cr
        assert cr == L * (n - s) * 2.0 + L * t_l
        assert gc == (N - S) * 2.0 + t_l
        assert umw == N * 2.0 + t_l
        assert rar == pytest.approx(2 * (N - 1) * (t_l + 2.0 / N), rel=1e-14)
        assert cr == bounds.tree_receive(n, L, s, port=2.0, latency=t_l)
        assert gc == bounds.tree_receive(N, 1, S, port=2.0, latency=t_l)
        if t_l == 0.0:
            assert gc / cr == pytest.approx(N / (n * L), rel=1e-14)


SETTINGS = [(4, 3, 0), (4, 3, 1), (12, 2, 0), (12, 2, 1)]
REFERENCE = {  # (n, L, s), A: CR, then GC, UMW, RAR and RAR with latency over CR
    (4, 3, 0): {
        0.1: (12.10, 6.95, 6.95, 0.213, 6.29),
        1.0: (13.03, 6.52, 6.52, 0.614, 6.26),
        10.0: (63.06, 1.50, 1.50, 0.987, 2.25),
    },
    (4, 3, 1): {
        0.1: (9.61, 6.79, 8.75, 0.268, 7.70),
        1.0: (20.23, 4.21, 4.20, 0.396, 4.24),
        10.0: (177.8, 2.94, 0.531, 0.350, 0.812),
    },
    (12, 2, 0): {
        0.1: (24.10, 6.48, 6.48, 0.110, 6.28),
        1.0: (25.01, 6.28, 6.28, 0.345, 6.29),
        10.0: (68.51, 2.42, 2.42, 0.998, 3.22),
    },
    (12, 2, 1): {
        0.1: (22.37, 6.45, 6.98, 0.119, 6.75),
        1.0: (25.75, 6.10, 6.10, 0.335, 6.12),
        10.0: (157.4, 3.08, 1.06, 0.434, 1.41),
    },
}


@pytest.mark.parametrize(("n", "L", "s"), SETTINGS)
def test_the_reference_numbers_of_the_shifted_exponential_come_out(
    n: int, L: int, s: int
) -> None:
    # 1500 samples: the noise is below 1 %, so 4 % is more than four times that.
    N, slow = Tree(n, L).workers, Network(port=1.0, latency=0.5)
    S, scheme = s * N // n, tree(n, L, s)
    for A, expected in REFERENCE[n, L, s].items():
        times = drawn(N, 1500, law=ShiftedExponential(floor=A, mean=A))
        cr = tree_seconds(scheme, times, PORT).mean()
        rivals = (
            counted_seconds(S, times, PORT),
            counted_seconds(0, times, PORT),
            ring_seconds(times, PORT),
        )
        late = (
            ring_seconds(times, slow).mean() / tree_seconds(scheme, times, slow).mean()
        )
        found = (cr, *(rival.mean() / cr for rival in rivals), late)
        assert found == pytest.approx(expected, rel=0.04), A


@pytest.mark.parametrize(
    ("s", "expected"),
    [(0, (104.3, 1.01, 1.01, 0.98)), (1, (17.4, 4.89, 6.04, 5.85)),
     (2, (21.4, 3.98, 4.91, 4.76))],
)  # fmt: skip
def test_the_reference_numbers_of_pauses_come_out(
    s: int, expected: tuple[float, ...]
) -> None:
    # One step in 37 is a hundred times as long: 10,000 samples for 1 % of noise.
    law = Chain(ShiftedExponential(1.0, 0.05), Pauses(0.05, 100.0, 100.0))
    times = drawn(84, 10_000, law=law)
    cr = tree_seconds(tree(4, 3, s), times, PORT).mean()
    rivals = (
        counted_seconds(21 * s, times, PORT),
        counted_seconds(0, times, PORT),
        ring_seconds(times, PORT),
    )
    assert (cr, *(rival.mean() / cr for rival in rivals)) == pytest.approx(
        expected, rel=0.04
    )


@pytest.mark.parametrize(("n", "L", "s"), [*SETTINGS, (4, 3, 2), (12, 2, 5), (3, 2, 1)])
@pytest.mark.parametrize(("A", "tail", "latency"), [(0.3, 1.0, 0.0), (3.0, 2.0, 0.5)])
def test_means_lie_between_the_bounds(
    n: int, L: int, s: int, A: float, tail: float, latency: float
) -> None:
    # Five standard errors: a false alarm in a million.
    N, network = Tree(n, L).workers, Network(1.0, latency)
    S, scheme = s * N // n, tree(n, L, s)
    given = {"share": A, "tail": tail, "port": 1.0, "latency": latency}
    times = drawn(N, 400, law=ShiftedExponential(floor=A, mean=A / tail))
    for seconds, (low, high) in (
        (tree_seconds(scheme, times, network), bounds.tree_seconds(n, L, s, **given)),
        (counted_seconds(S, times, network), bounds.tree_seconds(N, 1, S, **given)),
        (ring_seconds(times, network), (bounds.ring_seconds(N, **given),) * 2),
    ):  # fmt: skip
        noise = 5 * seconds.std() / 20
        assert low - noise <= seconds.mean() <= high + noise


@pytest.mark.parametrize("s", [0, 1, 2])
def test_the_mean_without_messages_is_that_of_the_exact_law(s: int) -> None:
    times = drawn(84, 2000, law=ShiftedExponential(1.0, 1.0))
    seconds = tree_seconds(tree(4, 3, s), times)
    x = bounds.tree_load(4, 3, s) * 84
    noise = 5 * seconds.std() / 2000**0.5
    assert seconds.mean() == pytest.approx(x * bounds.tree_compute(4, 3, s), abs=noise)


# -- rings -----------------------------------------------------------------------------


def ring_by_turns(ready: list[float], port: float, latency: float) -> float:
    """A ring all-reduce, turn by turn: each waits for the one before it."""
    N, at = len(ready), ready
    for _ in range(2 * (N - 1)):
        at = [max(at[i], at[i - 1]) + latency + port / N for i in range(N)]
    return max(at)


@pytest.mark.parametrize("workers", [1, 2, 5, 12])
def test_a_ring_takes_what_it_takes_turn_by_turn(workers: int) -> None:
    times = drawn(workers, steps=10)
    for network in (PORT, Network(0.7, 0.03)):
        expected = [
            ring_by_turns(row, float(network.port), network.latency)  # type: ignore[arg-type]
            for row in (times.fixed + times.unit).tolist()
        ]
        found = ring_seconds(times, network)
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_ring_never_ends_without_one_of_its_workers() -> None:
    unit = np.ones((2, 5))
    unit[1, 3] = np.inf
    seconds = ring_seconds(Times(np.zeros((2, 5)), unit))
    assert seconds.tolist() == [1.0, np.inf]


# -- chunks ----------------------------------------------------------------------------


def in_chunks(
    node: int, scheme: CodedReduce, own: list[float], network: Network
) -> list[float]:
    """When the chunks of a worker's message are ready, or all is at the root."""
    below = [in_chunks(c, scheme, own, network) for c in scheme.tree.below(node)]
    if not below:
        return [own[node]] * network.chunks
    enough = scheme.tree.children - scheme.tolerance
    waiting = {
        (number, ready + network.latency, child)
        for child, chunks in enumerate(below)
        for number, ready in enumerate(chunks)
    }
    chosen: set[int] = set()
    gathered, clock = [0.0] * network.chunks, 0.0
    while waiting:
        clock = max(clock, min(reach for _, reach, _ in waiting))
        taken = min(chunk for chunk in waiting if chunk[1] <= clock)
        waiting.remove(taken)
        clock += network.seconds(node) / network.chunks
        number, _, child = taken
        gathered[number] = clock
        chosen.add(child)
        if len(chosen) == enough:  # nothing more is taken of the others
            waiting = {chunk for chunk in waiting if chunk[2] in chosen}
    mine = 0.0 if node == ROOT else own[node]
    return [max(mine, at) for at in gathered]


@pytest.mark.parametrize("chunks", [1, 2, 4, 7])
@pytest.mark.parametrize(("n", "L", "s"), [(2, 3, 0), (3, 2, 1), (4, 2, 2), (3, 3, 1)])
def test_chunks_are_taken_as_the_model_says(
    n: int, L: int, s: int, chunks: int
) -> None:
    scheme = tree(n, L, s)
    times = drawn(scheme.workers, steps=12)
    load = np.array([len(parts) for parts in scheme.placement])
    own = (times.fixed + load * times.part(scheme.parts)).tolist()
    ports = tuple(0.1 + 0.4 * (node % 3) for node in range(scheme.workers + 1))
    for network in (
        Network(0.5, 0.1, chunks=chunks),
        Network(ports, 0.3, chunks=chunks),
    ):
        expected = [in_chunks(ROOT, scheme, row, network)[-1] for row in own]
        found = tree_seconds(scheme, times, network)
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize(("n", "L", "s"), [(4, 3, 1), (12, 2, 1), (3, 4, 1), (5, 1, 2)])
def test_without_computing_chunks_are_passed_on_at_once(n: int, L: int, s: int) -> None:
    scheme = tree(n, L, s)
    for chunks in (1, 2, 8, 64):
        network = Network(1.0, 0.25, chunks=chunks)
        (seconds,) = tree_seconds(scheme, none(scheme.workers), network)
        assert seconds == (n - s) * (1 + (L - 1) / chunks) + 0.25 * L
        closed = bounds.tree_receive(n, L, s, port=1.0, latency=0.25, chunks=chunks)
        assert seconds == closed


@pytest.mark.parametrize("A", [0.1, 1.0, 10.0])
def test_chunks_save_time_whatever_computing_takes(A: float) -> None:
    scheme = tree(4, 3, 1)
    times = drawn(84, 200, law=ShiftedExponential(A, A))
    before = tree_seconds(scheme, times, PORT)
    for chunks in (2, 4, 8):
        seconds = tree_seconds(scheme, times, Network(1.0, chunks=chunks))
        assert seconds.mean() < before.mean()
        before = seconds


def test_chunks_do_not_end_a_step_that_cannot_end() -> None:
    dead = np.ones((1, 84))
    dead[0, :2] = np.inf
    endless = Times(np.zeros((1, 84)), dead)
    assert tree_seconds(tree(4, 3, 1), endless, Network(1.0, chunks=3)).tolist() == [
        np.inf
    ]


# -- comparisons -----------------------------------------------------------------------


def test_comparisons_take_the_path_where_it_says_the_same() -> None:
    given, moving = tree(3, 2, 1), coded_reduce(12, 3, 1, seats="reliable")
    schemes = [given, fractional(12, 2), moving, ignore(12, 10)]
    for machine, by_events in [
        (Machine(drain=False), [False, False, True, False]),
        (Machine(drain=False, network=PORT), [False, False, True, True]),
        (Machine(False, progress=False, network=PORT), [False, False, True, True]),
        (Machine(False, network=SLOTS), [True] * 4),
        (Machine(network=PORT), [True] * 4),
        (Machine(drain=False, latency=0.1, network=PORT), [True] * 4),
        (Machine(), [True] * 4),
    ]:  # fmt: skip
        results = compare(schemes, LAW, steps=2, machine=machine)
        assert [result.by_events for result in results] == by_events, machine


@pytest.mark.parametrize("network", [None, Network(0.3, 0.1, down=0.05)])
def test_a_comparison_by_either_path_is_the_same(network: Network | None) -> None:
    machine = Machine(drain=False, network=network)
    schemes = [tree(3, 2, 1), tree(3, 2, 0), cyclic(12, 1)]
    results = compare(schemes, LAW, steps=6, runs=2, seed=5, machine=machine)
    for scheme, result in zip(schemes, results, strict=True):
        for run in range(2):
            times = draw(LAW, steps=6, workers=12, seed=5, run=run)
            events = run_events(scheme, times, machine)
            for name in ("seconds", "messages", "work", "busy"):
                one, other = getattr(result, name)[run], getattr(events, name)
                np.testing.assert_array_equal(one, other, name)


def test_a_comparison_with_chunks_says_that_it_cannot_be_made() -> None:
    machine = Machine(drain=False, network=Network(1.0, chunks=2))
    assert not has_tree_path(tree(3, 2, 1), machine)
    with pytest.raises(InvalidScenario, match="chunks"):
        compare([tree(3, 2, 1)], LAW, steps=1, machine=machine)


# -- what cannot be --------------------------------------------------------------------


def test_what_is_known_by_events_only_is_refused() -> None:
    moving = coded_reduce(12, 3, 1, seats="reliable")
    machine = Machine(drain=False, network=PORT)
    for scheme in (moving, ignore(6, 4), Everything(4)):
        assert not has_tree_path(scheme, machine)
        with pytest.raises(InvalidScheme, match="by its events only; try a tree"):
            tree_outcome(scheme, drawn(scheme.workers, 1), PORT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: tree_seconds(tree(3, 2, 1), none(11)), "those of 11 workers; try"),
        (lambda: tree_seconds(tree(3, 2, 1), none(12), Network((1.0,) * 3)), "13, the"),
        (lambda: counted_seconds(2, none(3), Network((1.0,) * 3)), "3 ports; try 4"),
        (lambda: counted_seconds(3, none(3)), "tolerance"),
        (lambda: counted_seconds(1, none(3), Network(1.0, chunks=2)), "try chunks=1"),
        (lambda: tree_outcome(tree(3, 2, 1), none(12), Network(chunks=2)), "chunks=1"),
        (lambda: ring_seconds(none(3), Network((1.0,) * 4)), "try one port for all"),
        (lambda: tree_seconds(tree(3, 2, 1), none(12), SLOTS), "shared out in slots"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence(ask: Any, said: str) -> None:
    with pytest.raises(CodedgradError, match=said) as caught:
        ask()
    assert len(str(caught.value).splitlines()) == 1
