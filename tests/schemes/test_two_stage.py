"""Two stages as a scheme: its options, its orders, and what it does in trouble."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest

from codedgrad.codes import cyclic
from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Coordinator,
    Cut,
    Drop,
    Event,
    GiveUp,
    MessageArrived,
    MessageFailed,
    Patience,
    Progressed,
    StepStarted,
    TimerFired,
    Upload,
    WakeAt,
    WorkersJoined,
    WorkersLost,
)
from codedgrad.delays import Chain, ShiftedExponential, Spikes, Times
from codedgrad.errors import CodedgradError
from codedgrad.schemes import TwoStage, build, two_stage, uncoded
from codedgrad.schemes.cover import decode_rows
from codedgrad.schemes.stop_rules import Decodable, Threshold, Within
from codedgrad.schemes.two_stage.block_codes import Cyclic, Repeated, cyclic_rows
from codedgrad.schemes.two_stage.matching import even, shared_out, staffed
from codedgrad.schemes.two_stage.past_times import filled
from codedgrad.sim import Machine, Simulator, compare
from codedgrad.testing import Invariants, check_scheme
from codedgrad.testing.faults import attack

VARIANTS = [
    two_stage(6),
    two_stage(6, tolerance=1, code="cyclic"),
    two_stage(6, give_up=4.0),
    two_stage(6, 4, tolerance=1, reuse=False),
    two_stage(6, copies=2),
    two_stage(6, checkpoints=3),
]


# -- every variant, in every kind of trouble -------------------------------------------


@pytest.mark.parametrize("scheme", VARIANTS, ids=str)
def test_a_variant_passes_the_conformance_suite(scheme: TwoStage) -> None:
    check_scheme(scheme, schedules=4)


def test_variants_survive_the_fault_simulator() -> None:
    failure = attack(VARIANTS, schedules=54, seed=3)
    assert failure is None, failure


def test_variants_survive_on_engines_with_little_room() -> None:
    """Lists are cut where a worker holds few sums, and what was heard is dropped."""
    rng = np.random.default_rng(1)
    for rows, progress in product((1, 2, 3), (True, False)):
        scheme = two_stage(4, 3, 1.2, 1, pieces=4, code="cyclic", copies="all")
        engine = Capabilities(progress=progress, rows_per_worker=rows)
        unit = 0.5 + rng.exponential(2.0, (4, 4))
        invariants = Invariants(scheme, engine)
        simulator = Simulator(scheme, capabilities=engine, watch=invariants)
        simulator.schedule(2.0, partial(simulator.lose, 1))
        simulator.schedule(4.0, partial(simulator.join, 1))
        times = Times(fixed=np.zeros_like(unit), unit=unit)
        assert all(step.combined for step in simulator.run(times))


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"first": 8, "window": 4.5, "tolerance": 1},
        {"code": "cyclic", "copies": "all", "rule": "threshold"},
        {"copies": 3, "reuse": False, "checkpoints": 2, "give_up": 9, "price": 0.25},
        {"rest": "whole", "start": "numbered", "helpers": 3, "pieces": 1},
        {"pieces": 1},
        {"window": 1 / 3, "pieces": 5},
    ],
    ids=str,
)
def test_a_name_makes_the_same_scheme(options: dict[str, object]) -> None:
    scheme = two_stage(8, **options)
    assert build(scheme.name, 8) == scheme
    assert str(scheme) == scheme.name
    assert scheme.name.count("(") <= 1


def test_names_are_short_and_options_may_go_without_theirs() -> None:
    assert two_stage(6).name == "two_stage"
    assert two_stage(6, pieces=1).name == "two_stage(pieces=1)"
    named = "two_stage(first=8, window=4.5, tolerance=1)"
    assert build("two_stage(8, 4.5, 1)", 9).name == named
    assert build(f"{named[:-1]}, pieces=1)", 9).name == f"{named[:-1]}, pieces=1)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("two_stage(9)", "first = 9 is out of range; try a whole number from 1 to 6"),
        ("two_stage(0)", "first = 0 is out of range"),
        ("two_stage(window=0)", "window = 0; try seconds above 0"),
        ("two_stage(window=soon)", "window = 'soon'; try seconds above 0"),
        ("two_stage(window=nan)", "window = nan; try seconds"),
        ("two_stage(give_up=1e9)", "give_up = 1e[+]09; try seconds above 0"),
        ("two_stage(tolerance=6)", "tolerance = 6 is out of range"),
        ("two_stage(code=other)", "code = 'other' is not known"),
        ("two_stage(copies=some)", "copies = 'some'; try a whole number from 1 to 6"),
        ("two_stage(copies=7)", "copies = 7 is out of range"),
        ("two_stage(checkpoints=0)", "checkpoints = 0 is out of range"),
        ("two_stage(price=-1)", "price = -1; try seconds for a part"),
        ("two_stage(price=inf)", "price = inf"),
        ("two_stage(price=dear)", "price = 'dear'"),
        ("two_stage(rest=none)", "rest = 'none' is not known"),
        ("two_stage(start=all)", "start = 'all' is not known"),
        ("two_stage(helpers=0)", "helpers = 0 is out of range"),
        ("two_stage(reuse=2)", "reuse = 2; try true or false"),
        ("two_stage(rule=maybe)", "rule = 'maybe' is not known"),
        ("two_stage(pieces=0)", "pieces = 0 is out of range"),
    ],
)
def test_a_bad_option_says_what_would_do(text: str, why: str) -> None:
    with pytest.raises(CodedgradError, match=why):
        build(text, 6)


def test_copies_are_what_is_promised() -> None:
    assert two_stage(8, tolerance=1).tolerance == 2  # 3 copies
    assert two_stage(8).tolerance == 3  # whatever is planned, up to 2
    assert two_stage(8, copies="all").tolerance == 7
    assert two_stage(3).copies == 3
    assert two_stage(8, copies=1).tolerance == 0
    for scheme in (two_stage(8, tolerance=1), two_stage(5, copies=2, pieces=3)):
        held = [sum(p in placed for placed in scheme.placement) for p in range(8)]
        assert set(held) == {scheme.copies}
        assert {len(placed) for placed in scheme.placement} == {
            scheme.copies * scheme.parts // scheme.workers
        }


def test_giving_up_leaves_a_residual_and_promises_no_tolerance() -> None:
    scheme = two_stage(6, give_up=2.0, rule="threshold")
    assert (scheme.exact, scheme.tolerance) == (False, None)
    assert scheme.rule == Within(2.0, Threshold())
    assert two_stage(6).rule == Decodable()
    assert two_stage(6, 4).load == 3


# -- the orders of a step --------------------------------------------------------------


class Table:
    """A coordinator to whom things are told one by one, all at given moments."""

    def __init__(self, scheme: TwoStage, **options: object) -> None:
        self.coordinator = Coordinator(scheme, **options)
        self.given = self.tell(StepStarted(0, at=0.0))

    def tell(self, event: Event) -> list:
        return self.coordinator.handle(event)

    def close(self, worker: int, segment: int, at: float) -> list:
        return self.tell(Progressed(0, worker, segment, 1, True, at))

    def hear(self, worker: int, message: int, at: float) -> list:
        state = self.coordinator.state
        assert state is not None
        cuts = tuple(
            (id_, len(state.segments[id_].segment.parts))
            for id_ in state.messages[message].segments
        )
        return self.tell(MessageArrived(0, worker, message, cuts, at))

    def finish(self, workers: list[int], at: float) -> list:
        """Let workers finish their lists of two parts, as four workers have them."""
        said = []
        for worker in workers:
            said += self.close(worker, 3 * worker, at)
            said += self.close(worker, 3 * worker + 1, at)
            said += self.hear(worker, 3 * worker + 2, at)
        return said


def four(**options: object) -> TwoStage:
    return two_stage(4, 4, 2.0, 1, copies="all", **options)


def of(kind: type, commands: list) -> list:
    return [command for command in commands if isinstance(command, kind)]


def test_lists_are_given_part_by_part_with_one_message_each() -> None:
    table = Table(four())
    assert len(of(Assign, table.given)) == 8
    assert [c.segment.parts for c in of(Assign, table.given)] == [
        (part,) for part in range(8)
    ]
    assert [(c.worker, c.message, c.segments) for c in of(Upload, table.given)] == [
        (w, 3 * w + 2, (3 * w, 3 * w + 1)) for w in range(4)
    ]
    assert table.given[-1] == WakeAt(0, at=2.0)


def test_all_lists_are_the_sum() -> None:
    table = Table(four())
    said = table.finish([2, 0, 3, 1], at=1.0)
    assert said == [Combine(0, tuple((3 * w + 2, 1.0) for w in range(4)), 0.0)]


def test_at_the_checkpoint_the_late_are_asked_for_what_they_have() -> None:
    table = Table(four())
    table.finish([0, 1, 2], at=1.0)
    table.close(3, 9, at=1.5)
    said = table.tell(TimerFired(at=2.0))
    # one part is left: groups of three helpers for it, as 3 // (1 + 1) = 1
    assert of(Upload, said) == [Upload(0, 3, 12, (9,)), Upload(0, 3, 13, (10,))]
    assert [(c.segment.worker, c.segment.parts) for c in of(Assign, said)] == [
        (w, (7,)) for w in (0, 1, 2)
    ]
    assert table.hear(1, said[3].message, at=2.5) == []  # the prefix is not here yet
    [end] = table.hear(3, 12, at=2.5)
    assert end == Combine(0, ((2, 1.0), (5, 1.0), (8, 1.0), (12, 1.0), (17, 1.0)), 0.0)


def test_what_a_late_worker_still_does_counts() -> None:
    table = Table(four())
    table.finish([0, 1, 2], at=1.0)
    table.close(3, 9, at=1.5)
    table.tell(TimerFired(at=2.0))
    table.hear(3, 12, at=2.1)
    table.close(3, 10, at=2.2)
    [end] = table.hear(3, 13, at=2.2)
    assert end.weights == ((2, 1.0), (5, 1.0), (8, 1.0), (12, 1.0), (13, 1.0))


def test_the_rest_as_a_whole_counts_only_when_all_of_them_are_in() -> None:
    table = Table(four(rest="whole"))
    table.finish([0, 1], at=1.0)
    said = table.tell(TimerFired(at=2.0))
    assert of(Upload, said) == []  # nothing is closed, and the rest was asked for
    assert table.finish([2], at=2.1) == []
    [end] = table.finish([3], at=2.2)
    assert end.weights == tuple((3 * w + 2, 1.0) for w in range(4))


def test_those_who_failed_are_not_asked_again_if_others_can_be() -> None:
    table = Table(four())
    table.finish([1, 2], at=1.0)
    table.close(0, 0, at=1.0)
    table.close(0, 1, at=1.0)
    assert table.tell(MessageFailed(0, 0, 2, "torn", at=1.0)) == []
    said = table.tell(TimerFired(at=2.0))
    assert {c.segment.worker for c in of(Assign, said)} == {1, 2}
    assert {p for c in of(Assign, said) for p in c.segment.parts} == {0, 1, 6, 7}


def test_nobody_is_waited_for_who_is_lost() -> None:
    """The others have finished: the checkpoint is now."""
    table = Table(four())
    table.finish([0, 1, 2], at=0.5)
    said = table.tell(WorkersLost((3,), at=0.6))
    assert {p for c in of(Assign, said) for p in c.segment.parts} == {6, 7}


def test_a_group_that_is_lost_is_coded_again_at_once() -> None:
    table = Table(two_stage(4, 3, 2.0, 0, copies="all", start="numbered", pieces=3))
    messages = {}
    for worker in (1, 2):
        for segment in range(5 * worker, 5 * worker + 4):
            table.close(worker, segment, at=1.0)
        table.hear(worker, 5 * worker + 4, at=1.0)
    said = table.tell(TimerFired(at=2.0))  # worker 0 has nothing; 3 is fresh
    for order in of(Assign, said):
        messages[order.segment.worker] = order.message, order.segment.parts
    assert {w: parts for w, (_, parts) in messages.items()} == {
        3: (0, 1), 1: (2,), 2: (3,)
    }  # fmt: skip
    table.hear(1, messages[1][0], at=2.5)
    # Worker 0 may still deliver both, or not.
    said = table.tell(WorkersLost((3,), at=2.6))
    assert [(c.segment.worker, c.segment.parts) for c in of(Assign, said)] == [
        (1, (0, 1))
    ]
    table.hear(2, messages[2][0], at=2.8)
    [end] = table.hear(1, of(Assign, said)[0].message, at=3.0)
    assert isinstance(end, Combine)


def test_a_group_of_which_all_are_lost_together_is_coded_for_those_that_are_left() -> (
    None
):
    table = Table(four())
    table.finish([0, 1], at=0.5)
    said = table.tell(WorkersLost((3, 2), at=0.6))
    asked = of(Assign, said)
    assert {part for order in asked for part in order.segment.parts} == {4, 5, 6, 7}
    assert {order.segment.worker for order in asked} == {0, 1}


def test_what_was_asked_for_before_counts_though_it_was_coded_again() -> None:
    """Worker 3 is silent, its parts are given to others, and then it is there first."""
    table = Table(two_stage(4, 3, 2.0, 0, copies="all", start="numbered", pieces=3))
    messages = {}
    for worker in (1, 2):
        for segment in range(5 * worker, 5 * worker + 4):
            table.close(worker, segment, at=1.0)
        table.hear(worker, 5 * worker + 4, at=1.0)
    for order in of(Assign, table.tell(TimerFired(at=2.0))):
        messages[order.segment.worker] = order.message
    table.hear(1, messages[1], at=2.5)
    table.hear(2, messages[2], at=2.5)
    again = of(Assign, table.tell(TimerFired(at=50.0)))
    assert {part for order in again for part in order.segment.parts} == {0, 1}
    [end] = table.hear(3, messages[3], at=51.0)
    assert isinstance(end, Combine)
    assert messages[3] in dict(end.weights)


def test_when_everybody_is_gone_somebody_who_joins_does_it_all() -> None:
    table = Table(four())
    for worker in range(4):
        table.tell(WorkersLost((worker,), at=0.1))
    said = table.tell(WorkersJoined((2,), at=5.0))
    [order] = of(Assign, said)
    assert order.segment.parts == tuple(range(8))
    [end] = table.hear(2, order.message, at=6.0)
    assert end == Combine(0, ((order.message, 1.0),), 0.0)


def test_a_step_that_starts_with_nobody_ends_at_its_deadline() -> None:
    coordinator = Coordinator(four(), patience=Patience(least=60.0, first=60.0))
    for worker in range(4):
        coordinator.handle(WorkersLost((worker,), at=0.0))
    wake = coordinator.handle(StepStarted(0, at=0.0))
    at = 0.0
    while not of(GiveUp, wake):
        at = wake[-1].at
        wake = coordinator.handle(TimerFired(at))
    assert at == 60.0
    assert wake[0].reason == (
        "not all parts were heard after 60 s (no step has ended yet); "
        "lost workers [0, 1, 2, 3]"
    )


def test_giving_up_a_step_says_who_was_late_and_what_would_have_helped() -> None:
    scheme = two_stage(3, 3, 2.0, 0, copies=1)
    unit = np.array([[1.0, 1e6, 1.0]])
    simulator = Simulator(scheme, patience=Patience(least=60.0, first=60.0))
    [step] = simulator.run(Times(np.zeros((1, 3)), unit))
    assert not step.combined
    assert step.seconds == 60.0
    assert step.reason.endswith(
        "late workers [1]; more copies than 1 of every part would have helped"
    )


def test_a_silent_helper_is_replaced_after_a_while() -> None:
    """Worker 3 is fresh, and takes for ever; the pulse of the step finds it out."""
    scheme = two_stage(
        4, 3, 2.0, 0, reuse=False, copies="all", start="numbered", pieces=3
    )
    unit = np.array([[1e6, 1.0, 1.0, 1e6]])
    simulator = Simulator(scheme, patience=Patience(least=160.0, first=160.0))
    [step] = simulator.run(Times(np.zeros((1, 4)), unit))
    assert step.combined
    assert 12.0 < step.seconds < 14.0  # 2 s, and a sixteenth of the deadline, and work


def test_without_a_window_half_of_the_workers_set_the_pace() -> None:
    asked = []
    scheme = two_stage(4, tolerance=0, copies="all")

    def watch(event: Event, commands: list) -> None:
        asked.extend(event.at for c in commands if isinstance(c, Assign))

    unit = np.array([[1.0, 2.0, 3.5, 90.0]])
    [step] = Simulator(scheme, watch=watch).run(Times(np.zeros((1, 4)), unit))
    assert sorted(set(asked)) == [0.0, 3.0]  # 1.5 times the 2 s of the second worker
    assert step.seconds < 6.0


def test_a_checkpoint_without_anybody_to_help_is_put_off() -> None:
    """The window is too short for all: half of them are waited for."""
    asked = []
    scheme = two_stage(4, 4, 0.5, 0, copies="all")

    def watch(event: Event, commands: list) -> None:
        asked.extend(event.at for c in commands if isinstance(c, Assign))

    unit = np.array([[1.0, 2.0, 3.5, 90.0]])
    Simulator(scheme, watch=watch).step([0.0] * 4, (unit[0] / 2).tolist())
    assert sorted(set(asked)) == [0.0, 3.0]


def test_the_same_rule_is_applied_again_at_every_checkpoint() -> None:
    """A helper that is slow in stage 2 is helped in its turn, as planned."""
    seconds = {}
    pace = np.array([[9.0, 0.5, 0.5, 0.5]])
    again = np.array([[9.0, 9.0, 0.5, 0.5]])
    none = np.zeros((1, 4))
    for checkpoints in (1, 2):
        scheme = two_stage(4, 4, 2.0, 0, copies="all", checkpoints=checkpoints)
        times = Times(none, pace * 2, again=Times(none, again * 2))
        [step] = Simulator(scheme).run(times)
        seconds[checkpoints] = step.seconds
    assert seconds[1] == 8.75  # 2 s, 12.5 times the 0.5 s of a part, and another 0.5 s
    assert seconds[2] < 4.0


def test_long_lists_are_cut_where_there_is_little_room() -> None:
    said: list = []
    scheme = two_stage(2, 2, 2.0, 0, copies="all", pieces=6)
    engine = Capabilities(rows_per_worker=2)
    simulator = Simulator(
        scheme, capabilities=engine, watch=lambda e, c: said.extend(c)
    )
    # worker 0 has done two of its six parts at the checkpoint, and is in the third
    [step] = simulator.run(Times(np.zeros((1, 2)), np.array([[4.8, 1.2]])))
    assert of(Cut, said) == [Cut(0, 0, 0, 0)]
    assert [c.segment.parts for c in of(Assign, said)][2:] == [(2, 3, 4, 5)]
    assert step.seconds == pytest.approx(2.0 + 4 * 0.2)


def test_a_worker_without_room_is_emptied_of_what_was_heard() -> None:
    said: list = []
    scheme = two_stage(3, 3, 2.0, 0, copies="all", pieces=2)
    simulator = Simulator(
        scheme,
        capabilities=Capabilities(rows_per_worker=1),
        watch=lambda e, c: said.extend(c),
    )
    [step] = simulator.run(Times(np.zeros((1, 3)), np.array([[1e5, 1.0, 1.0]])))
    assert [(c.worker) for c in of(Drop, said)] == [1, 2]
    assert step.combined
    assert step.seconds == 2.5


# -- codes over those who help ---------------------------------------------------------


def weighed(block: Cyclic | Repeated, rows: dict[int, dict[int, float]]) -> np.ndarray:
    """Return how often every part of a block is in its sum."""
    assert block.weights is not None
    total = dict.fromkeys(block.parts, 0.0)
    for message, weight in block.weights.items():
        for part, value in rows[message].items():
            total[part] += weight * value
    return np.array(list(total.values()))


def laid(h: int, s: int, r: int, by_count: bool) -> tuple[Cyclic, dict]:
    """Code r parts over h helpers; messages are numbered as rows, units from 100."""
    code, stretches = cyclic_rows(h, s), even(range(r), h)
    assert code is not None
    block, rows = Cyclic(stretches, code, by_count), {}
    for row, (columns, values) in enumerate(code.rows):
        pairs = zip(columns, values, strict=True)
        held = {part: value for j, value in pairs for part in stretches[j]}
        if held:
            block.add(row, row)
            rows[row] = held
    rows.update({100 + part: {part: 1.0} for part in range(r)})
    return block, rows


@pytest.mark.parametrize(("h", "s", "r"), [(4, 1, 4), (5, 2, 3), (6, 2, 9), (3, 1, 1)])
def test_a_cyclic_block_is_solved_as_soon_as_what_was_heard_allows(
    h: int, s: int, r: int
) -> None:
    rng = np.random.default_rng(h)
    for _ in range(40):
        block, rows = laid(h, s, r, by_count=False)
        heard: list[int] = []
        for message in rng.permutation(list(rows)).tolist():
            heard.append(message)
            one = message >= 100
            solved = (
                block.deliver(message - 100, message) if one else block.hear(message)
            )
            possible = decode_rows([rows[m] for m in heard], r)[1] == 0.0
            assert solved == possible
            if solved:
                break
        np.testing.assert_allclose(weighed(block, rows), 1.0, atol=1e-9)
        assert set(block.weights or ()) <= set(heard)


def test_by_count_a_cyclic_block_waits_for_all_but_the_tolerated() -> None:
    for late in combinations(range(4), 1):
        block, rows = laid(4, 1, 4, by_count=True)
        heard = [row for row in range(4) if row not in late]
        solved = [block.hear(message) for message in heard]
        assert solved == [False, False, True]
        np.testing.assert_allclose(weighed(block, rows), 1.0, atol=1e-9)


def test_a_code_that_would_lose_digits_is_not_laid() -> None:
    assert cyclic_rows(40, 6) is None
    assert cyclic_rows(6, 2) is cyclic_rows(6, 2)  # made once
    assert cyclic_rows(6, 2).name == cyclic(6, 2).name


def test_every_part_goes_to_a_holder_and_nobody_has_more_than_needed() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        workers, parts = rng.integers(2, 6), rng.integers(1, 8)
        holds = rng.random((parts, workers)) < 0.5
        able = {p: np.flatnonzero(holds[p]).tolist() for p in range(parts)}
        given = shared_out(able)
        assert sorted(p for some in given.values() for p in some) == [
            p for p in able if able[p]
        ]
        assert all(w in able[p] for w, some in given.items() for p in some)
        wanted = [able[p] for p in able if able[p]]
        best = min(
            (max(map(choice.count, choice)) for choice in product(*wanted) if choice),
            default=0,
        )
        assert max(map(len, given.values()), default=0) == best


def test_limits_are_kept_where_parts_are_left_over_then() -> None:
    assert shared_out({0: [1], 1: [1], 2: [1, 2]}, {1: 1, 2: 1}) == {1: [0], 2: [2]}
    assert shared_out({}) == {}


def test_every_task_has_a_helper_before_any_has_two() -> None:
    room = dict.fromkeys(range(5), 1)
    staff = staffed([[0, 1, 2], [0], [2, 3, 4]], [3, 1, 2], 2, room)
    assert staff[1] == [0]
    assert all(staff)
    assert sum(map(len, staff)) == 5
    assert staffed([[0, 1]], [2], 1, {0: 0, 1: 1}) == [[1]]
    assert staffed([[0], [0]], [1, 1], 1, {0: 2}) == [[0], [0]]
    assert staffed([[0], [0]], [1, 1], 1, {0: 1}) == [[0], []]


def test_helpers_are_holders() -> None:
    """Check with copies on neighbours only; what is left is with two of them."""
    said: list = []
    scheme = two_stage(6, 6, 2.0, 1, copies=3)
    simulator = Simulator(scheme, watch=lambda e, c: said.extend(c))
    unit = np.array([[1.0, 1.0, 50.0, 1.0, 1.0, 1.0]])
    [step] = simulator.run(Times(np.zeros((1, 6)), unit))
    second = [c.segment for c in of(Assign, said)][12:]
    assert [(s.worker, s.parts) for s in second] == [(0, (4, 5)), (1, (4, 5))]
    assert step.seconds == 3.0


# -- what is learnt --------------------------------------------------------------------


def after(scheme: TwoStage, unit: np.ndarray, look: Callable) -> list:
    """Simulate; return what `look` says of the planner after every step."""
    simulator = Simulator(scheme)
    times = Times(np.zeros_like(unit), unit)
    follow = simulator.coordinator.history.follow
    return [look(step, follow(scheme.planner)) for step in simulator.run(times)]


def steady(steps: int, *pace: float) -> np.ndarray:
    return np.tile(np.array(pace), (steps, 1))


def test_the_fastest_start_once_they_are_known() -> None:
    """All are seen in the first step, in which the others help."""
    scheme = two_stage(4, 2, 1.0, 1, copies="all")
    opened = after(
        scheme,
        steady(12, 3.0, 1.0, 2.0, 0.5),
        lambda step, planner: planner.opening(step.step + 1, [True] * 4).starters,
    )
    assert opened[-1] == (1, 3)


def test_those_who_are_about_as_fast_take_turns() -> None:
    scheme = two_stage(4, 2, 5.0, 0, copies="all")
    opened = after(
        scheme,
        steady(60, 1.0, 1.02, 0.98, 1.01),
        lambda step, planner: planner.opening(step.step + 1, [True] * 4).starters,
    )
    assert {worker for some in opened for worker in some} == {0, 1, 2, 3}
    assert {len(some) for some in opened} == {2}


def test_whoever_was_not_seen_for_twenty_steps_is_probed() -> None:
    probed = []
    scheme = two_stage(3, 2, 5.0, 0, copies="all", start="numbered")

    def watch(event: Event, commands: list) -> None:
        given = [c.segment for c in commands if isinstance(c, Assign)]
        if isinstance(event, StepStarted):
            probed.append([s.worker for s in given].count(2))

    simulator = Simulator(scheme, watch=watch)
    unit = steady(45, 1.0, 1.0, 1.5)
    steps = list(simulator.run(Times(np.zeros_like(unit), unit)))
    assert [step for step, count in enumerate(probed) if count] == [20, 41]
    assert set(probed) == {0, 1}
    assert all(step.combined for step in steps)
    tracker = simulator.coordinator.history.follow(scheme.planner)
    assert tracker._mean[2] == pytest.approx(0.75)  # seconds a part, from probes alone


def test_two_slow_steps_in_a_row_are_a_change() -> None:
    scheme = two_stage(4, copies="all", tolerance=0)
    unit = np.concatenate([steady(15, 1, 1, 1, 1), steady(4, 3, 3, 3, 3)])
    made = after(scheme, unit, lambda step, planner: planner.made)
    assert made[10:15] == [1] * 5  # after ten steps were seen
    assert made[15:] == [1, 1, 2, 2]  # a step is learnt from when the next one starts


def test_what_is_fixed_is_not_planned() -> None:
    fixed = two_stage(4, 3, 2.0, 1, copies="all")
    assert after(fixed, steady(14, 1, 1, 1, 1), lambda _, p: p.plan)[-1] is None
    some = two_stage(4, window=2.5, copies="all")
    first, window, tolerance = after(some, steady(14, 1, 1, 1, 1), lambda _, p: p.plan)[
        -1
    ]
    assert window == 2.5
    assert 2 <= first <= 4
    assert tolerance == 0  # nobody straggles: the first of equals


def test_a_price_makes_work_count() -> None:
    """Where helpers straggle a code is worth it, unless work is dear."""
    rng = np.random.default_rng(0)
    pace = (1 + rng.exponential(0.2, (60, 8))) * np.where(
        rng.random((60, 8)) < 0.2, 8.0, 1.0
    )
    again = (1 + rng.exponential(0.2, (60, 8))) * np.where(
        rng.random((60, 8)) < 0.2, 8.0, 1.0
    )
    none, found = np.zeros((60, 8)), {}
    for price in (0.0, 50.0):
        scheme = two_stage(8, price=price, copies="all", start="numbered")
        simulator = Simulator(scheme, patience=Patience(least=1e4, first=1e4))
        for _ in simulator.run(Times(none, pace * 2, again=Times(none, again * 2))):
            pass
        plan = simulator.coordinator.history.follow(scheme.planner).plan
        assert plan is not None
        found[price] = plan[2]
    assert found[0.0] >= 1
    assert found[50.0] == 0


def test_straggling_is_counted_against_the_median_of_each() -> None:
    unit = steady(20, 1.0, 4.0, 1.0)
    unit[::5, 2] = 3.0
    scheme = two_stage(3, 3, 30.0, 0, copies="all")
    straggle = after(scheme, unit, lambda _, planner: planner.straggle)[-1]
    assert straggle[0] == straggle[1] == 1 / 21  # 19 steps are known when 20 start
    assert straggle[2] == 5 / 21


def test_gaps_are_filled_with_what_is_known_of_the_worker() -> None:
    nan = math.nan
    seconds = np.array(
        [
            [[1.0, 2.0, nan], [nan, 2.5, nan], [3.0, 2.0, nan]],
            [[nan, nan, 4.0], [5.0, nan, nan], [nan, nan, 6.0]],
        ]
    )
    least = np.zeros(seconds.shape, dtype=np.bool_)
    least[0, 0, 0] = least[0, 1, 1] = True  # 1.0 and 2.5 were cut off
    one, two = filled(seconds, least)
    assert one[:, 0].tolist() == [3.0, 3.0, 3.0]  # the only one that is longer
    assert one[:, 1].tolist() == [2.0, 5.0, 2.0]  # none is: twice as long
    assert one[:, 2].tolist() == [4.0, 6.0, 4.0]  # from stage 2
    assert two[:, 0].tolist() == [5.0, 5.0, 5.0]
    assert two[:, 2].tolist() == [4.0, 6.0, 6.0]
    assert np.isfinite(two).all()  # worker 1 never helped: as others did, to scale


def test_a_run_is_planned_alike_by_a_fresh_coordinator() -> None:
    scheme = two_stage(6, checkpoints=2)
    rng, plans = np.random.default_rng(0), []
    unit = 1.0 + rng.exponential(0.5, (40, 6))
    for _ in range(2):
        plans.append(after(scheme, unit, lambda _, planner: planner.plan))
    assert plans[0] == plans[1]
    assert plans[0][-1] is not None


def test_parts_need_not_be_a_multiple_of_the_workers() -> None:
    scheme = two_stage(4, copies=2)
    odd = replace(scheme, parts=7, planner=replace(scheme.planner, parts=7))
    assert [len(placed) for placed in odd.placement] == [4, 4, 3, 3]
    check_scheme(odd, schedules=3)


@pytest.mark.parametrize("drain", [True, False])
def test_where_nobody_straggles_it_takes_as_long_as_no_code(drain: bool) -> None:
    """Helpers that finish a part nobody needs any more would begin the next step late:
    the planner has to count that, or it looks too early."""
    law, machine = ShiftedExponential(floor=1.0, mean=0.05), Machine(drain=drain)
    plain, staged = compare(
        [uncoded(8, pieces=2), two_stage(8)], law, steps=60, machine=machine
    )
    late = slice(20, None)  # when it has seen some steps
    ratio = staged.seconds[:, late].mean() / plain.seconds[:, late].mean()
    assert ratio == pytest.approx(1.0, abs=0.02)
    assert staged.work[:, late].mean() == pytest.approx(16.0, abs=0.2)


@pytest.mark.parametrize("window", [None, 0.85, 20.0])
def test_giving_up_loses_no_part_that_is_done(window: float | None) -> None:
    """All are a little too slow: what they have is asked for before the end."""
    scheme = two_stage(6, 6, window, 0, give_up=0.9, pieces=10)
    unit = np.full((3, 6), 1.0)
    for step in Simulator(scheme).run(Times(np.zeros_like(unit), unit)):
        assert step.combined
        assert step.seconds == pytest.approx(0.9)
        assert step.residual <= 30.0  # of 60: at least what was done at 0.6 of the time


def test_a_lost_helper_of_a_short_step_does_not_cost_a_pulse() -> None:
    scheme = two_stage(4, 3, 0.02, 0, reuse=True, copies="all", start="numbered")
    unit = np.array([[1e6, 0.01, 0.01, 0.01]])
    simulator = Simulator(scheme)
    simulator.schedule(0.021, partial(simulator.lose, 3))
    [step] = simulator.run(Times(np.zeros_like(unit), unit))
    assert step.combined
    assert step.seconds < 0.1


def test_where_finishers_help_everybody_is_started() -> None:
    law = Chain(ShiftedExponential(floor=1.0, mean=0.2), Spikes(0.2, 8.0, 8.0))
    planned, fixed = compare(
        [two_stage(16, copies="all"), two_stage(16, 16, 1.6, 0, copies="all")],
        law, steps=60,
    )  # fmt: skip
    ratio = planned.seconds[:, 12:].mean() / fixed.seconds[:, 12:].mean()
    assert ratio < 1.3


def test_noise_alone_starts_no_second_stage() -> None:
    rng = np.random.default_rng(0)
    unit = 1.0 + 0.01 * np.abs(rng.standard_normal((50, 8)))
    scheme = two_stage(8)
    work = [
        step.work for step in Simulator(scheme).run(Times(np.zeros_like(unit), unit))
    ]
    assert np.mean(work[15:]) == pytest.approx(16.0, abs=0.1)
