"""The fast path gives what the events give, sample by sample."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedgrad import codes
from codedgrad.codes.decoders import Fixed
from codedgrad.codes.sparse import tidy
from codedgrad.delays import (
    GRID,
    Chain,
    Dead,
    Pauses,
    Replay,
    ShiftedExponential,
    Times,
    on_grid,
)
from codedgrad.schemes import (
    SCHEMES,
    CodedScheme,
    bernoulli,
    clustered,
    cyclic,
    edge_graph,
    erasurehead,
    fractional,
    heterogeneous,
    ignore,
    proportional,
    stochastic,
    uncoded,
    vertex_graph,
)
from codedgrad.schemes.stop_rules import Decodable, First, Threshold, Within, blocks
from codedgrad.sim import Machine, Outcome, has_fast_path, outcome, run_events
from codedgrad.sim.arrays import codes as fast_path
from codedgrad.sim.arrays.codes import step_seconds
from codedgrad.testing import Everything

LAW = ShiftedExponential(floor=0.1, mean=1.0)
PAUSES = Chain(LAW, Pauses(probability=0.3, low=0.2, high=3.0))


def agree(scheme: CodedScheme, times: Times, note: object = "") -> Outcome:
    """Assert that both simulators say the same about every step."""
    fast = outcome(scheme, times)
    slow = run_events(scheme, times, Machine(drain=False))
    where = f"{scheme} {note}"
    np.testing.assert_array_equal(fast.seconds, slow.seconds, where)
    np.testing.assert_array_equal(step_seconds(scheme, times), slow.seconds, where)
    np.testing.assert_array_equal(fast.messages, slow.messages, where)
    np.testing.assert_array_equal(fast.work, slow.work, where)
    np.testing.assert_allclose(fast.residual, slow.residual, 0, 1e-9, err_msg=where)
    np.testing.assert_allclose(fast.busy, slow.busy, 0, 1e-9, err_msg=where)
    return fast


def drawn(law: Any, workers: int, steps: int = 12, seed: int = 0) -> Times:
    return law.sample(np.random.default_rng(seed), steps, workers)


def on_the_grid(seconds: float) -> float:
    return float(on_grid(np.array(seconds)))


B1, B2 = on_the_grid(0.7), on_the_grid(2.9)  # budgets: some are in, most are in

EXACT = [
    uncoded(2), uncoded(7), uncoded(24, pieces=2),
    fractional(2, 1), fractional(6, 2, rule="threshold"), fractional(24, 3, pieces=3),
    cyclic(2, 1), cyclic(5, 2), cyclic(8, 3, rule="threshold"), cyclic(14, 2),
    cyclic(6, 2, pieces=4), cyclic(15, 2), cyclic(24, 1), cyclic(24, 3, pieces=2),
    cyclic(24, 3, rule="threshold"),
    clustered(8, 2, 1), clustered(20, 5, 2, rule="threshold"), clustered(24, 2, 3),
    clustered(24, 6, 1, pieces=3),
    proportional(6, 1, [1, 1, 2, 2, 3, 3]), proportional(8, 2, [1, 2] * 4, pieces=2),
]  # fmt: skip

APPROXIMATE = [
    ignore(2, 1), ignore(9, 5, pieces=2), ignore(24, 24),
    erasurehead(6, 2, count=4), erasurehead(6, 3, budget=B1),
    erasurehead(24, 4, count=9), erasurehead(8, 2, budget=B2, count=7, pieces=2),
    bernoulli(6, 2, count=4), bernoulli(9, 3, budget=B2), bernoulli(20, 2, budget=B2),
    bernoulli(12, 4, count=8, decoding="optimal", pieces=2),
    bernoulli(20, 5, budget=B2, decoding="optimal"),
    stochastic(6, 2, 0.2, count=5), stochastic(10, 3, 0.1, budget=B2),
    stochastic(24, 2, 0.5, budget=B1, pieces=2),
    vertex_graph(6, 2, count=4), vertex_graph(12, 3, budget=B2),
    vertex_graph(20, 3, budget=B2, decoding="one-step", pieces=2),
    edge_graph(6, 2, count=4), edge_graph(12, 4, budget=B2, count=11),
    edge_graph(24, 3, budget=B2, decoding="one-step", pieces=2),
    ignore(9, budget=B1), ignore(9, budget=B2, scaled=False),
    bernoulli(9, 3, budget=B2, decoding="sum"),
    erasurehead(8, 2, budget=B1, decoding="sum"),
    stochastic(6, 2, [0.1, 0.2] * 3, budget=B2, placement="cyclic"),
    *(
        heterogeneous(6, budget=B2, straggle=[0.1, 0.3, 0.5] * 2, decoding=decoding)
        for decoding in ("fixed", "normalised", "optimal", "gram", "debiased")
    ),
    heterogeneous(9, count=7, straggle=0.2, allocation="chain", pieces=2),
]  # fmt: skip


def test_the_list_below_misses_no_family_and_no_rule() -> None:
    every = EXACT + APPROXIMATE
    seen = {scheme.name.partition("(")[0] for scheme in every}
    elsewhere = {"auto", "dynamic", "coded_reduce", "two_stage"}  # and oracles, trees
    assert seen == set(SCHEMES) - elsewhere
    assert {type(s.rule) for s in every} == {Decodable, Threshold, First, Within}
    assert all(has_fast_path(scheme) for scheme in every)
    assert {scheme.workers for scheme in every} >= {2, 24}
    by_bisection = [s for s in EXACT if blocks(s.code)[0].messages > fast_path._TABLE]
    assert any(isinstance(s.rule, Decodable) for s in by_bisection)


@pytest.mark.parametrize("law", [LAW, PAUSES], ids=["plain", "pauses"])
@pytest.mark.parametrize("scheme", EXACT + APPROXIMATE, ids=str)
def test_the_fast_path_equals_the_events(scheme: CodedScheme, law: Any) -> None:
    result = agree(scheme, drawn(law, scheme.workers))
    assert np.all(np.isfinite(result.seconds))


@pytest.mark.parametrize("scheme", EXACT, ids=str)
def test_workers_that_are_dead_in_some_steps_are_missed_alike(
    scheme: CodedScheme,
) -> None:
    rng = np.random.default_rng(1)
    times = drawn(PAUSES, scheme.workers, steps=8)
    fixed, unit = times.fixed.copy(), times.unit.copy()
    assert scheme.tolerance is not None
    for step in range(times.steps):
        dead = rng.choice(scheme.workers, rng.integers(scheme.tolerance + 1), False)
        unit[step, dead] = np.inf
        fixed[step, dead[::2]] = np.inf
    result = agree(scheme, Times(fixed, unit))
    assert np.all(np.isfinite(result.seconds))


@pytest.mark.parametrize(
    "scheme", [uncoded(3), cyclic(6, 2), clustered(8, 2, 1), ignore(5, 5)], ids=str
)
def test_one_dead_worker_too_many_makes_a_step_endless_in_both(
    scheme: CodedScheme,
) -> None:
    times = drawn(LAW, scheme.workers, steps=4)
    fixed, unit = times.fixed.copy(), times.unit.copy()
    tolerance = scheme.tolerance or 0
    unit[1, : tolerance + 1] = fixed[1, : tolerance + 1] = np.inf
    result = agree(scheme, Times(fixed, unit))
    assert np.isfinite(result.seconds).tolist() == [True, False, True, True]
    assert result.residual[1] == scheme.parts


def test_a_budget_ends_a_step_with_dead_workers_in_both() -> None:
    law = Chain(LAW, Dead(worker=1, step=2))
    for scheme in (stochastic(6, 2, 0.2, budget=B2), erasurehead(6, 2, budget=B1)):
        assert np.all(agree(scheme, drawn(law, 6)).seconds <= B2)


def without_parts(workers: int, copies: int, least: int, most: int) -> list[int]:
    """Seeds of Bernoulli codes with so many workers that have nothing to do."""
    found = []
    for seed in itertools.count():
        sizes = np.diff(bernoulli(workers, copies, count=1, seed=seed).code.B.indptr)
        if least <= np.count_nonzero(sizes == 0) <= most:
            found.append(seed)
            if len(found) == 3:
                return found
    raise AssertionError  # not reached


@pytest.mark.parametrize("law", [LAW, PAUSES], ids=["plain", "pauses"])
@pytest.mark.parametrize("decoding", ["one-step", "optimal"])
def test_a_worker_without_parts_is_heard_at_once_and_pays_nothing(
    law: Any, decoding: str
) -> None:
    for seed in without_parts(8, 1, least=2, most=7):
        for options in ({"count": 5}, {"budget": B1}, {"budget": B2, "count": 7}):
            scheme = bernoulli(8, 1, seed=seed, decoding=decoding, **options)
            agree(scheme, drawn(law, 8), f"seed {seed}")


def test_a_step_does_not_end_before_anything_has_happened() -> None:
    # More workers without parts than are waited for: the first real answer ends it.
    (seed, *_) = without_parts(6, 1, least=3, most=4)
    scheme = bernoulli(6, 1, count=2, seed=seed)
    assert np.all(agree(scheme, drawn(LAW, 6)).seconds > 0)
    (seed, *_) = without_parts(2, 1, least=2, most=2)  # nobody has any part
    result = agree(bernoulli(2, 1, budget=B1, seed=seed), drawn(LAW, 2))
    assert result.seconds.tolist() == [B1] * 12
    result = agree(bernoulli(2, 1, count=1, seed=seed), drawn(LAW, 2, steps=2))
    assert result.seconds.tolist() == [np.inf] * 2


@pytest.mark.parametrize("order", ["recorded", "shuffled"])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
def test_a_recording_is_played_alike(order: str, share: float) -> None:
    law = Replay.read("AR", share=share, order=order)
    budget = on_the_grid(float(np.median(law.seconds)))
    for scheme in (
        uncoded(4), fractional(4, 1), cyclic(4, 2), ignore(4, 3),
        erasurehead(4, 2, budget=budget),
    ):  # fmt: skip
        agree(scheme, drawn(law, 4, steps=60), f"{order} {share}")


# -- ties ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", EXACT + APPROXIMATE, ids=str)
def test_when_all_are_equally_fast_the_same_messages_are_heard(
    scheme: CodedScheme,
) -> None:
    even = np.ones((2, scheme.workers))
    agree(scheme, Times(np.zeros_like(even), even))
    pauses = np.arange(scheme.workers) % 3 * np.array([[1.0], [0.5]])
    agree(scheme, Times(pauses, even), "pauses")


@settings(max_examples=60)
@given(st.data())
@pytest.mark.hypothesis
def test_ties_are_broken_alike_whatever_the_loads(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 7))
    seed = data.draw(st.integers(0, 50))
    copies = data.draw(st.integers(1, n))
    count = data.draw(st.integers(1, n))
    budget = data.draw(st.sampled_from([None, 1.0, 2.0, 4.0]))
    scheme = data.draw(
        st.sampled_from([
            bernoulli(n, copies, count=count, budget=budget, seed=seed),
            bernoulli(n, copies, count=count, seed=seed, decoding="optimal"),
            stochastic(n, copies, 0.2, count=count, budget=budget, seed=seed),
            ignore(n, count, pieces=2),
            cyclic(n, min(copies, n) - 1),
        ])
    )  # fmt: skip
    few = st.sampled_from([0.5, 1.0, 2.0])
    rows = st.lists(st.lists(few, min_size=n, max_size=n), min_size=1, max_size=4)
    unit = np.array(data.draw(rows))
    fixed = np.array(
        data.draw(
            st.lists(
                st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n),
                min_size=len(unit),
                max_size=len(unit),
            )
        )
    )
    agree(scheme, Times(fixed, unit))


def test_all_messages_that_come_with_the_budget_are_heard() -> None:
    scheme = CodedScheme("within", codes.uncoded(4), Within(1.0))
    unit = np.array([[1.0, 1.0, 2.0, 1.0], [1.0, 1.0 + GRID, 2.0, 1.0]])
    result = agree(scheme, Times(np.zeros_like(unit), unit))
    assert result.seconds.tolist() == [1.0, 1.0]
    assert result.messages.tolist() == [3, 2]


# -- workers with several messages -----------------------------------------------------


def several(messages: int, workers: int, tolerance: int | None) -> codes.Code:
    """Plain rows of three parts each, in turn with every worker."""
    B = np.zeros((messages, workers))
    for message in range(messages):
        for step in range(min(3, workers)):
            B[message, (message + step * (message // workers + 1)) % workers] = 1.0
    owner = tuple(message % workers for message in range(messages))
    return codes.from_matrix(B, tolerance, owner=owner, accept_amplification=True)


@pytest.mark.parametrize(("messages", "workers"), [(8, 4), (15, 5), (18, 6)])
def test_workers_may_send_several_messages(messages: int, workers: int) -> None:
    for tolerance in (0, None):
        code = several(messages, workers, tolerance)
        rules = [First(messages // 2), Within(B2, First(messages - 1))]
        rules += [Decodable()] if code.decodable(range(messages)) else []
        assert tolerance is None or len(rules) == 3
        for rule in rules:
            agree(
                CodedScheme("own", code, rule), drawn(PAUSES, workers, steps=20), rule
            )


def test_a_part_that_a_worker_adds_up_twice_is_work_twice() -> None:
    B = [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    code = codes.from_matrix(B, None, owner=(0, 0, 1))
    result = agree(CodedScheme("own", code, First(3)), drawn(LAW, 2))
    assert result.work.tolist() == [4.0] * 12


def test_weights_by_rule_may_be_exact_now_and_not_later() -> None:
    # Three replicas that are added up as they come: one is right, two are too many.
    B = tidy(np.ones((3, 2)))
    code = codes.Code("added up", B, None, Fixed(B))
    scheme = CodedScheme("added up", code, Within(64.0))
    times = drawn(LAW, 3)
    result = agree(scheme, times)
    np.testing.assert_array_equal(result.seconds, 2 * times.part(2).min(axis=1))
    np.testing.assert_array_equal(result.residual, 0.0)


# -- any small setting -----------------------------------------------------------------


@st.composite
def small_schemes(draw: st.DrawFn) -> CodedScheme:
    n = draw(st.integers(2, 10))
    pieces = draw(st.integers(1, 3))
    rule = draw(st.sampled_from(["decodable", "threshold"]))
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    copies = draw(st.integers(1, n))
    count = draw(st.integers(1, n))
    budget = draw(st.none() | st.integers(1, 5 * 2**30).map(lambda g: g * GRID))
    stop = {"count": count, "budget": budget}
    seed = draw(st.integers(0, 99))
    family = draw(st.sampled_from(["fractional", "cyclic", "clustered", "erasurehead",
                                   "bernoulli", "stochastic", "ignore"]))  # fmt: skip
    match family:
        case "fractional":
            size = draw(st.sampled_from(divisors))
            return fractional(n, size - 1, rule=rule, pieces=pieces)
        case "cyclic":
            return cyclic(n, min(copies - 1, 4), rule=rule, pieces=pieces)
        case "clustered":
            size = draw(st.sampled_from(divisors))
            tolerance = draw(st.integers(0, min(size - 1, 4)))
            return clustered(n, n // size, tolerance, rule=rule, pieces=pieces)
        case "erasurehead":
            size = draw(st.sampled_from(divisors))
            return erasurehead(n, size, pieces=pieces, **stop)
        case "bernoulli":
            way = draw(st.sampled_from(["one-step", "optimal"]))
            return bernoulli(n, copies, decoding=way, seed=seed, pieces=pieces, **stop)
        case "stochastic":
            straggle = draw(st.sampled_from([0.0, 0.3]))
            return stochastic(n, copies, straggle, seed=seed, pieces=pieces, **stop)
    return ignore(n, count, pieces=pieces)


@settings(max_examples=80)
@given(small_schemes(), st.integers(0, 2**32 - 1), st.booleans())
@pytest.mark.hypothesis
def test_any_small_setting_gives_the_same_both_ways(
    scheme: CodedScheme, seed: int, pauses: bool
) -> None:
    law = PAUSES if pauses else LAW
    agree(scheme, drawn(law, scheme.workers, steps=4, seed=seed))


# -- the pieces ------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 15))
def test_the_kth_smallest_is_what_sorting_says(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.integers(0, 6, (2, 40, size)).astype(float)  # with ties
    values[0, 0, 0] = np.inf
    before = values.copy()
    for k in range(1, size + 1):
        expected = np.sort(values, axis=-1)[..., k - 1]
        np.testing.assert_array_equal(fast_path._kth(values, k), expected, str(k))
    np.testing.assert_array_equal(values, before)  # the network works on copies


@pytest.mark.parametrize(
    "code",
    [
        codes.cyclic(3, 1), codes.cyclic(6, 2), codes.cyclic(7, 5), codes.cyclic(10, 3),
        codes.cyclic(14, 4), codes.bernoulli(8, 3, decoding="optimal"),
        codes.vertex_graph(10, 3), codes.edge_graph(6, 3), codes.bernoulli(5, 1,
        decoding="optimal", seed=3),
    ],
    ids=str,
)  # fmt: skip
def test_bisection_finds_the_place_that_the_table_has(code: codes.Code) -> None:
    rng = np.random.default_rng(3)
    order = np.array([rng.permutation(code.messages) for _ in range(60)])
    table = fast_path._look_up(code, order)
    np.testing.assert_array_equal(fast_path._bisect(code, order), table)
    for row, place in zip(order[:10], table[:10], strict=True):  # and one by one
        enough = [code.decodable(row[: i + 1]) for i in range(code.messages)]
        assert place == (enough.index(True) if any(enough) else code.messages)


def test_only_schemes_that_follow_a_code_have_a_fast_path() -> None:
    class Odd:
        budget = np.inf

        def start(self, code: codes.Code) -> Any:
            return Decodable().start(code)

    assert not has_fast_path(Everything(3))
    odd = replace(cyclic(4, 1), rule=Odd())
    assert not has_fast_path(odd)
    with pytest.raises(NotImplementedError, match="no fast path"):
        outcome(odd, drawn(LAW, 4))
