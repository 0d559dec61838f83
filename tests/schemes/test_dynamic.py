"""GC-DC: its worked example number by number, its storage, its names."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from codedgrad import codes
from codedgrad.core import (
    Assign,
    Combine,
    Coordinator,
    MessageArrived,
    Scheme,
    StepStarted,
)
from codedgrad.delays import Markov, ShiftedExponential, draw
from codedgrad.errors import CodedgradError
from codedgrad.schemes import Dynamic, build, clustered, cyclic, dynamic
from codedgrad.schemes.dynamic.grid import grid
from codedgrad.schemes.dynamic.straggler_states import Oracle, StateForecast
from codedgrad.schemes.stop_rules import Threshold
from codedgrad.sim import Machine, record
from codedgrad.testing import check_scheme
from codedgrad.trace import replay

# -- the worked example: 12 workers, 4 clusters of 3, load 2, reach 2 ------------------
# Workers, clusters, slots and parts are counted from 1 in its tables, from 0 in code.

INNER = codes.from_null_space([[1, 1, -2]])
CODE = codes.clustered(INNER, clusters=4)
G = np.array(
    [[4, 2, 0], [-3, -2, -5], [-5, -5, -4], [3, 2, 5], [0, 1, 5], [3, 1, 0],
     [1, 5, -2], [3, 2, -5], [-1, 4, 1], [-5, 3, 3], [4, -4, -5], [4, -5, 0]],
    dtype=float,
)  # fmt: skip
TOTAL = [8.0, 4.0, -7.0]
SLOW = (1, 5, 7, 11)

STORED = {
    1: {1, 2, 4, 5}, 2: {4, 5, 7, 8}, 3: {7, 8, 10, 11}, 4: {10, 11, 1, 2},
    5: {2, 3, 5, 6}, 6: {5, 6, 8, 9}, 7: {8, 9, 11, 12}, 8: {11, 12, 2, 3},
    9: {3, 1, 6, 4}, 10: {6, 4, 9, 7}, 11: {9, 7, 12, 10}, 12: {12, 10, 3, 1},
}  # fmt: skip

FORMED = ((1, 8, 9), (2, 5, 10), (3, 6, 11), (4, 7, 12))

ARRIVALS = {  # cluster: worker, slot and message of both, weights, sum
    1: (((8, 2, (-5.5, -4.5, -7)), (9, 3, (3, -1, -4))), (1, 0.5), (-4, -5, -9)),
    2: (((2, 1, (3, 1, 0)), (10, 3, (9, 5, 10))), (-1, 1), (6, 4, 10)),
    3: (((3, 1, (-2, 3, 3)), (6, 2, (2.5, 4, -4.5))), (1, 2), (3, 11, -6)),
    4: (((4, 1, (-9, 7, 8)), (12, 3, (-6, 1, 6))), (-1, 1), (3, -6, -2)),
}  # fmt: skip


def told(slow: Sequence[int], **changes: object) -> Dynamic:
    """The scheme of the example; its oracle knows who is slow, counted from 1."""
    mask = np.zeros((1, 12), dtype=np.bool_)
    mask[0, np.array(slow) - 1] = True
    scheme = Dynamic(
        "example", CODE, Threshold(), grid(12, 4, 2, "common", 0), "slot", "exact",
        Oracle(),
    )  # fmt: skip
    return replace(scheme, **changes).told(mask, np.where(mask, 10.0, 1.0))


class Formed(Dynamic):
    """With the clusters of the example: another choice is as even."""

    def seats(self, forecast: StateForecast) -> tuple[int, ...]:
        assert (np.flatnonzero(forecast.slow) + 1).tolist() == list(SLOW)
        return tuple(worker - 1 for cluster in FORMED for worker in cluster)


def formed() -> Formed:
    scheme = told(SLOW)
    fields = ("name", "code", "rule", "grid", "storage", "spread", "states")
    return Formed(**{field: getattr(scheme, field) for field in fields})


def carry_out(scheme: Scheme, slow: Sequence[int]) -> tuple[dict, Combine | None]:
    """Run a step in which the slow never answer; return messages and the end.

    Messages are by id: the worker, counted from 1, and what it sent.
    """
    run = Coordinator(scheme)
    sent, end = {}, None
    for order in run.handle(StepStarted(0, at=0.0)):
        if isinstance(order, Assign) and order.segment.worker + 1 not in slow:
            segment = order.segment
            value = np.array(segment.coefficients) @ G[list(segment.parts)]
            sent[order.message] = (segment, value)
    for at, (message, (segment, _)) in enumerate(sent.items()):
        cuts = ((segment.id, len(segment.parts)),)
        event = MessageArrived(0, segment.worker, message, cuts, float(at))
        for command in run.handle(event):
            assert isinstance(command, Combine)
            end = command
    return {m: (s.worker + 1, value) for m, (s, value) in sent.items()}, end


def test_slot_storage_is_that_of_the_example() -> None:
    for worker, parts in enumerate(told(SLOW).placement, start=1):
        assert {part + 1 for part in parts} == STORED[worker], worker


def test_the_inner_code_and_its_weights_are_those_of_the_example() -> None:
    expected = [[1, -1, 0], [0, 1, 0.5], [2, 0, 1]]
    assert INNER.B.toarray() == pytest.approx(np.array(expected))
    for heard, weights in (((1, 2), (1, 2)), ((1, 3), (-1, 1)), ((2, 3), (1, 0.5))):
        found = codes.decode(INNER, [slot - 1 for slot in heard])
        assert [m + 1 for m, _ in found.weights] == list(heard)
        assert [a for _, a in found.weights] == pytest.approx(weights)
        assert found.is_exact


def test_the_gradients_of_the_example_add_up_to_its_total() -> None:
    assert G.sum(axis=0).tolist() == TOTAL


def test_messages_weights_cluster_sums_and_total_are_those_of_the_example() -> None:
    sent, end = carry_out(formed(), SLOW)
    assert end is not None
    weights = dict(end.weights)
    assert len(sent) == len(weights) == 8
    by_worker = {worker: message for message, (worker, _) in sent.items()}
    total = np.zeros(3)
    for cluster, (arrivals, expected, sum_) in ARRIVALS.items():
        found = np.zeros(3)
        for (worker, slot, value), weight in zip(arrivals, expected, strict=True):
            assert FORMED[cluster - 1][slot - 1] == worker
            message = by_worker[worker]
            assert sent[message][1] == pytest.approx(value), worker
            assert weights[message] == pytest.approx(weight), worker
            found += weights[message] * sent[message][1]
        assert found == pytest.approx(sum_), cluster
        total += found
    assert total == pytest.approx(TOTAL)
    assert end.residual == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize(
    ("storage", "spread"),
    [
        ("slot", "exact"), ("slot", "rows"), ("cluster", "exact"),
        ("cluster", "greedy"), ("cluster", "tiers"),
    ],
)  # fmt: skip
def test_every_way_to_form_clusters_gets_the_total_from_eight_messages(
    storage: str, spread: str
) -> None:
    scheme = told(SLOW, storage=storage, spread=spread)
    sent, end = carry_out(scheme, SLOW)
    assert end is not None
    assert len(sent) == len(end.weights) == 8
    total = sum(weight * sent[message][1] for message, weight in end.weights)
    assert total == pytest.approx(TOTAL)


def test_gradient_coding_and_static_clusters_fail_on_the_example() -> None:
    sent, end = carry_out(cyclic(12, 1, rule="threshold"), SLOW)
    assert (len(sent), end) == (8, None)
    at_home = told(SLOW, grid=grid(12, 4, 1, "common", 0))
    sent, end = carry_out(at_home, SLOW)
    assert (len(sent), end) == (8, None)
    for alone in SLOW:  # and each of them alone is tolerated
        assert carry_out(cyclic(12, 1, rule="threshold"), [alone])[1] is not None
        assert carry_out(told([alone], grid=at_home.grid), [alone])[1] is not None


@pytest.mark.parametrize("slow", [(1, 5, 6, 10), (1, 5, 9, 3)], ids=str)
def test_the_counter_examples_fail_with_a_reach_of_two_and_not_of_three(
    slow: tuple[int, ...],
) -> None:
    for storage in ("slot", "cluster"):
        two, three = (grid(12, 4, reach, "common", 0) for reach in (2, 3))
        assert carry_out(told(slow, storage=storage, grid=two), slow)[1] is None
        _, end = carry_out(told(slow, storage=storage, grid=three), slow)
        assert end is not None
        assert len(end.weights) == 8


# -- storage, load, messages -----------------------------------------------------------


@pytest.mark.parametrize(
    ("storage", "stored"), [("slot", 6), ("cluster", 12)], ids=["slot", "cluster"]
)
def test_a_worker_stores_what_the_table_says_and_computes_no_more_than_before(
    storage: str, stored: int
) -> None:
    scheme = dynamic(20, 5, 1, reach=3, storage=storage)
    assert {len(parts) for parts in scheme.placement} == {stored}
    assert scheme.code.load == clustered(20, 5, 1).code.load == 2
    assert (scheme.parts, scheme.workers, scheme.tolerance) == (20, 20, 1)


def test_pieces_multiply_what_is_stored() -> None:
    whole, cut = dynamic(12, 4, 1), dynamic(12, 4, 1, pieces=3)
    for few, many in zip(whole.placement, cut.placement, strict=True):
        assert many == tuple(3 * p + i for p in few for i in range(3))


@pytest.mark.parametrize("storage", ["slot", "cluster"])
@pytest.mark.parametrize("shifts", ["common", "row"])
def test_nobody_is_ever_asked_for_a_part_it_does_not_store(
    storage: str, shifts: str
) -> None:
    scheme = dynamic(12, 4, 1, reach=3, storage=storage, shifts=shifts, seed=3)
    law = Markov(
        ShiftedExponential(0.1, 0.1), ShiftedExponential(0.1, 2.0), enter=0.2, leave=0.3
    )
    trace = record(scheme, draw(law, steps=30, workers=12, seed=0))
    given = {
        (order.segment.worker, order.segment.parts)
        for entry in trace.entries
        for order in entry.commands
        if isinstance(order, Assign)
    }
    for worker, parts in given:
        assert set(parts) <= set(scheme.placement[worker])
    assert len(given) > 12  # clusters were formed anew


# -- names and options -----------------------------------------------------------------

SPREADS = [
    ("slot", "rows"), ("slot", "exact"), ("cluster", "exact"), ("cluster", "greedy"),
    ("cluster", "tiers"),
]  # fmt: skip


@pytest.mark.parametrize("state", ["hidden", "late", "speed"])
@pytest.mark.parametrize(("storage", "spread"), SPREADS)
def test_every_kind_is_built_again_from_its_name_and_decides_the_same(
    state: str, storage: str, spread: str
) -> None:
    scheme = dynamic(
        8, 4, 1, reach=2, state=state, storage=storage, spread=spread, shifts="row",
        seed=5, rule="threshold", pieces=2,
    )  # fmt: skip
    again = build(scheme.name, 8)
    assert isinstance(again, Dynamic)
    assert (again.grid, again.storage, again.spread) == (scheme.grid, storage, spread)
    assert again.placement == scheme.placement
    law = ShiftedExponential(0.1, 1.0)
    trace = record(scheme, draw(law, steps=8, workers=8, seed=1), Machine())
    assert replay(trace, again) is None


def test_the_usual_options_are_not_in_the_name() -> None:
    assert dynamic(20, 5, 1).name == "dynamic(clusters=5, tolerance=1)"
    assert dynamic(6, 2, 1, reach=2).name == "dynamic(clusters=2, tolerance=1)"
    assert (
        dynamic(20, 5, 1, reach=3, spread="rows", seed=0).name == dynamic(20, 5, 1).name
    )
    assert str(dynamic(20, 5, 1, state="late", storage="cluster")) == (
        "dynamic(clusters=5, tolerance=1, state=late, storage=cluster)"
    )


def test_the_usual_way_to_spread_fits_what_is_known() -> None:
    assert dynamic(20, 5, 1).spread == "rows"
    for state in ("late", "oracle", "oracle-previous"):
        assert dynamic(20, 5, 1, state=state, storage="cluster").spread == "exact"
    for state in ("hidden", "speed"):
        assert dynamic(20, 5, 1, state=state, storage="cluster").spread == "tiers"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("7, 1", "clusters = 7 must divide workers = 12"),
        ("4, 3", "tolerance = 3 is out of range"),
        ("4, 1, reach=5", "reach = 5 is out of range"),
        ("4, 1, storage=disk", "storage = 'disk'"),
        ("4, 1, spread=greedy", "spread = 'greedy'"),
        ("4, 1, storage=cluster, spread=rows", "spread = 'rows'"),
        ("4, 1, shifts=all", "shifts = 'all'"),
        ("4, 1, rule=soon", "rule = 'soon' is not known"),
        ("4, 1, pieces=0", "pieces = 0 is out of range"),
        ("four, 1", "clusters must be a whole number"),
    ],
)
def test_a_bad_option_says_what_would_do(options: str, why: str) -> None:
    with pytest.raises(CodedgradError, match=why):
        build(f"dynamic({options})", 12)


@pytest.mark.parametrize("storage", ["slot", "cluster"])
@pytest.mark.parametrize("state", ["hidden", "late", "speed"])
def test_every_source_and_storage_passes_the_conformance_suite(
    state: str, storage: str
) -> None:
    check_scheme(dynamic(8, 2, 1, state=state, storage=storage), schedules=5)
