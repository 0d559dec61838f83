"""Workers that give one answer a call: lists, the net under them, what is chosen."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pytest
from msgspec import structs

from codedgrad.codes.bounds import clairvoyant
from codedgrad.core import (
    Assign,
    Capabilities,
    Combine,
    Command,
    Coordinator,
    Drop,
    Event,
    GiveUp,
    History,
    MessageArrived,
    MessageFailed,
    Patience,
    StepStarted,
    Task,
    TimerFired,
    WakeAt,
    WorkerJoined,
    WorkerLost,
)
from codedgrad.core.cover import best_cover
from codedgrad.delays import Times
from codedgrad.schemes import uncoded
from codedgrad.schemes.opaque import OpaquePlan
from codedgrad.schemes.opaque_arms import Arms
from codedgrad.schemes.opaque_helpers import Pace, shared
from codedgrad.schemes.opaque_lists import Lists, Places, ring
from codedgrad.schemes.opaque_past import Guesses, Tail
from codedgrad.schemes.opaque_picking import Picker
from codedgrad.schemes.opaque_replay import Costs, arms_for, went
from codedgrad.schemes.opaque_shares import Call, Shares
from codedgrad.sim import Machine, Simulator
from codedgrad.testing import Invariants, check_scheme
from codedgrad.testing.faults import draw, run


@dataclass(frozen=True)
class Opaque:
    """Nothing but the opaque plan."""

    workers: int
    pieces: int = 2
    copies: int = 0
    share: float = 0.5
    exact: bool = True

    @property
    def name(self) -> str:
        return f"opaque({self.workers}, {self.pieces}, {self.copies})"

    @property
    def parts(self) -> int:
        return self.workers * self.pieces

    @cached_property
    def recipe(self) -> Arms:
        copies = self.copies or self.workers
        return Arms(self.workers, self.parts, copies, share=self.share)

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        held = enumerate(self.recipe.holders)
        pairs = [(worker, part) for part, able in held for worker in able]
        return tuple(
            tuple(part for w, part in pairs if w == worker)
            for worker in range(self.workers)
        )

    @property
    def tolerance(self) -> int:
        return self.recipe.copies - 1

    def plan(self, step: int, history: History) -> OpaquePlan:
        choice = history.follow(self.recipe).choice(step, history.alive)
        return OpaquePlan(self.recipe, choice)

    def __str__(self) -> str:
        return self.name


class PaidAgain(Simulator):
    """Workers pay their fixed seconds with every call, not once a step."""

    def _begin(self, number: int, worker: object, task: Task) -> None:
        calls = self.__dict__.setdefault("_calls", {})
        state = self.coordinator.state
        assert state is not None
        known = state.given(number)
        call = (
            task.step,
            next(k.assigned for k in known if k.segment.id == task.segment),
        )
        if calls.setdefault(number, call) != call:
            calls[number], worker.step = call, -1  # type: ignore[attr-defined]
        super()._begin(number, worker, task)  # type: ignore[arg-type]


OPAQUE = Machine(progress=False, drain=False)
VARIANTS = [Opaque(5), Opaque(6, 3, 2), Opaque(4, 1), Opaque(6, 2, 3)]


def drawn(kind: str, workers: int, steps: int, share: float, seed: int = 1) -> Times:
    rng = np.random.default_rng(seed)
    x = 1.0 + 0.02 * np.abs(rng.standard_normal((steps, workers)))
    if kind == "exponential":
        x = 0.5 + rng.exponential(0.5, (steps, workers))
    elif kind == "classes":
        x *= np.resize([1.0, 1.5, 2.0, 3.0], workers)
    elif kind == "sticky":
        slow = np.zeros((steps, workers), dtype=np.bool_)
        u = rng.random((steps, workers))
        for t in range(1, steps):
            slow[t] = u[t] < np.where(slow[t - 1], 0.9, 0.004)
        x *= np.where(slow, 10.0, 1.0)
    return Times(fixed=(1.0 - share) * x, unit=share * x)


def played(
    scheme: Opaque, times: Times, engine: type[Simulator] = PaidAgain
) -> tuple[list[float], Simulator]:
    simulator = engine(
        scheme,
        capabilities=OPAQUE.capabilities,
        patience=OPAQUE.patience(times, scheme),
    )
    steps = list(simulator.run(times))
    assert all(step.combined for step in steps)
    return [step.seconds for step in steps], simulator


# -- any engine, any trouble -----------------------------------------------------------


@pytest.mark.parametrize("scheme", VARIANTS[:2], ids=str)
def test_it_passes_the_conformance_suite(scheme: Opaque) -> None:
    check_scheme(scheme, schedules=5)


@pytest.mark.parametrize(
    ("progress", "extend", "rows"),
    [(False, True, 1), (False, False, 1), (True, False, 2), (False, False, 2)],
)
def test_faults_do_not_harm_it_on_engines_that_can_do_less(
    progress: bool, extend: bool, rows: int
) -> None:
    rng = np.random.default_rng(rows)
    engine = Capabilities(progress=progress, extend=extend, rows_per_worker=rows)
    for scheme, more in itertools.product(VARIANTS, (0, 5)):
        schedule = draw(scheme, rng)
        steps = schedule.steps + more  # the first choice is made after five
        failure = run(
            structs.replace(schedule, steps=steps, capabilities=engine), scheme
        )
        assert failure is None, failure


@pytest.mark.parametrize("scheme", VARIANTS, ids=str)
def test_lists_are_apart_or_inside_each_other(scheme: Opaque) -> None:
    """So that what was heard is the full sum as soon as every part was."""
    lists: list[frozenset[int]] = []
    heard: dict[int, tuple[int, ...]] = {}
    asked: dict[int | None, tuple[int, ...]] = {}

    def watch(event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, StepStarted):
            lists.clear(), heard.clear(), asked.clear()
        if isinstance(event, MessageArrived):
            heard[event.message] = asked[event.message]
        for command in commands:
            if isinstance(command, Assign):
                lists.append(frozenset(command.segment.parts))
                asked[command.message] = command.segment.parts
            if isinstance(command, Combine):
                assert best_cover(heard, scheme.parts).left == ()
        for one, other in itertools.combinations(lists, 2):
            assert one <= other or other <= one or one.isdisjoint(other)

    times = drawn("exponential", scheme.workers, 12, 0.5)
    simulator = Simulator(scheme, capabilities=OPAQUE.capabilities, watch=watch)
    simulator.schedule(0.6, partial(simulator.lose, 1))
    simulator.schedule(3.9, partial(simulator.join, 1))
    assert all(step.combined for step in simulator.run(times))


@pytest.mark.parametrize("copies", [0, 2])
def test_a_dead_worker_does_not_hang_it(copies: int) -> None:
    times = drawn("calm", 8, 20, 0.5)
    unit = times.unit.copy()
    unit[4:, 3] = np.inf
    seconds, _ = played(Opaque(8, 8, copies), Times(times.fixed, unit))
    assert max(seconds) < 1.7


# -- one step, event by event ----------------------------------------------------------


def begun(
    scheme: Opaque, engine: Capabilities | None = None
) -> tuple[Coordinator, list[Command]]:
    opaque = engine or Capabilities(progress=False)
    coordinator = Coordinator(scheme, opaque, Patience(least=160.0, first=160.0))
    return coordinator, coordinator.handle(StepStarted(0, at=0.0))


def answer(order: Command, at: float) -> MessageArrived:
    assert isinstance(order, Assign)
    assert order.message is not None
    segment = order.segment
    cuts = ((segment.id, len(segment.parts)),)
    return MessageArrived(0, segment.worker, order.message, cuts, at)


def given(commands: Sequence[Command]) -> dict[int, tuple[int, ...]]:
    return {
        order.segment.worker: order.segment.parts
        for order in commands
        if isinstance(order, Assign)
    }


def test_a_first_step_is_even_and_late_after_half_more_than_half_of_them_took() -> None:
    coordinator, orders = begun(Opaque(4))
    assert given(orders) == {0: (0, 1), 1: (2, 3), 2: (4, 5), 3: (6, 7)}
    assert orders[-1] == WakeAt(0, 10.0)
    assert coordinator.handle(answer(orders[0], 1.0)) == []
    assert coordinator.handle(answer(orders[1], 1.2)) == [WakeAt(0, 1.2 * 1.5)]
    assert coordinator.handle(answer(orders[2], 1.3)) == []
    assert given(coordinator.handle(TimerFired(1.2 * 1.5))) == {0: (6,), 1: (7,)}


def test_a_late_answer_of_the_straggler_counts() -> None:
    coordinator, orders = begun(Opaque(4))
    for order in orders[:3]:
        coordinator.handle(answer(order, 1.0))
    coordinator.handle(TimerFired(1.5))
    end = coordinator.handle(answer(orders[3], 1.6))
    assert isinstance(end[0], Combine)
    assert len(end[0].weights) == 4


def test_what_helpers_do_counts_as_soon_as_all_of_it_is_in() -> None:
    coordinator, orders = begun(Opaque(4))
    for order in orders[:3]:
        coordinator.handle(answer(order, 1.0))
    one, two, *_ = coordinator.handle(TimerFired(1.5))
    assert coordinator.handle(answer(one, 1.7)) == []
    end = coordinator.handle(answer(two, 1.8))
    assert isinstance(end[0], Combine)
    assert len(end[0].weights) == 5


def test_what_is_lost_is_shared_out_when_half_of_the_others_are_in() -> None:
    coordinator, orders = begun(Opaque(4))
    assert coordinator.handle(WorkerLost(2, 0.1)) == []
    assert coordinator.handle(answer(orders[0], 1.0)) == []
    found = coordinator.handle(answer(orders[1], 1.1))
    assert given(found) == {0: (4,), 1: (5,)}


def test_a_message_that_failed_is_asked_of_others() -> None:
    coordinator, orders = begun(Opaque(4))
    for order in orders[:2]:
        coordinator.handle(answer(order, 1.0))
    assert isinstance(orders[2], Assign)
    assert orders[2].message is not None
    failed = MessageFailed(0, 2, orders[2].message, "torn", 1.1)
    assert given(coordinator.handle(failed)) == {0: (4,), 1: (5,)}


def test_a_worker_with_one_sum_is_emptied_before_it_helps() -> None:
    engine = Capabilities(progress=False, extend=False, rows_per_worker=1)
    coordinator, orders = begun(Opaque(4), engine)
    for order in orders[:3]:
        coordinator.handle(answer(order, 1.0))
    found = coordinator.handle(TimerFired(1.5))
    drops = [order.worker for order in found if isinstance(order, Drop)]
    assert drops == list(given(found)) == [0, 1]


def test_a_helper_that_is_late_is_helped_in_turn_after_twice_as_long() -> None:
    coordinator, orders = begun(Opaque(6))
    for order in orders[:4]:
        coordinator.handle(answer(order, 1.0))
    *helpers, wake = coordinator.handle(TimerFired(1.5))
    assert given(helpers) == {0: (8,), 1: (10,), 2: (9,), 3: (11,)}
    assert wake == WakeAt(0, 1.5 + 1.5 * 0.75)  # half of 1 s again, and a part's 0.25 s
    for order in helpers[:3]:
        assert coordinator.handle(answer(order, 1.6)) == []
    again, later = coordinator.handle(TimerFired(2.625))
    assert given([again]) == {0: (11,)}
    assert later == WakeAt(0, 2.625 + 2 * 1.5 * 0.75)
    assert isinstance(coordinator.handle(answer(again, 3.0))[0], Combine)


def test_if_nobody_is_there_it_waits_for_somebody() -> None:
    coordinator = Coordinator(Opaque(3), Capabilities(progress=False))
    for worker in range(3):
        coordinator.handle(WorkerLost(worker, 0.0))
    assert given(coordinator.handle(StepStarted(0, 1.0))) == {}
    found = coordinator.handle(WorkerJoined(1, 2.0))
    assert given(found) == {1: (0, 1, 2, 3, 4, 5)}
    end = coordinator.handle(answer(found[0], 3.0))
    assert isinstance(end[0], Combine)


def test_it_gives_up_with_a_sentence_that_names_the_lost_and_the_late() -> None:
    coordinator, orders = begun(Opaque(4, 2, 2))
    coordinator.handle(answer(orders[0], 1.0))
    coordinator.handle(WorkerLost(2, 1.1))
    coordinator.handle(WorkerLost(1, 1.2))
    end: list[Command] = []
    for at in itertools.count(10.0, 10.0):
        end = coordinator.handle(TimerFired(at))
        if coordinator.state is None:
            break
    assert end == [
        GiveUp(
            0,
            "not all parts were heard after 160 s (no step has ended yet); "
            "lost workers [1, 2]; late workers [0, 3]; "
            "more copies than 2 of every part would have helped",
        )
    ]


# -- lists -----------------------------------------------------------------------------


def test_slow_workers_are_grouped_with_fast_ones() -> None:
    places = Places(6, 12, 6, ring(6, 12, 6))
    x = np.array([1.0, 9.0, 2.0, 8.0, 3.0, 7.0])
    found = places.repeated(range(6), x, 1)
    assert found.workers == ((0, 1), (2, 3), (4, 5))
    assert [len(parts) for parts in found.parts] == [4, 4, 4]


@pytest.mark.parametrize(("copies", "tolerance"), [(3, 1), (5, 2), (4, 1)])
def test_groups_of_neighbours_hold_what_they_are_asked_for(
    copies: int, tolerance: int
) -> None:
    places = Places(6, 12, copies, ring(6, 12, copies))
    assert places.can_repeat(tolerance)
    assert not places.can_repeat(tolerance + 2)
    for slow in range(6):
        x = np.where(np.arange(6) == slow, 9.0, 1.0)
        found = places.repeated(range(6), x, tolerance)
        assert sorted(p for parts in found.parts for p in parts) == list(range(12))
        for parts, workers in zip(found.parts, found.workers, strict=True):
            assert len(workers) == tolerance + 1
            assert all(w in places.holders[p] for p in parts for w in workers)


@pytest.mark.parametrize("dead", [(), (2,), (2, 4), (0, 7)])
def test_uneven_lists_on_a_ring_are_held_whole_and_balanced(
    dead: tuple[int, ...],
) -> None:
    places = Places(8, 64, 3, ring(8, 64, 3))
    there = [worker for worker in range(8) if worker not in dead]
    rng = np.random.default_rng(0)
    for _ in range(20):
        pace = rng.uniform(1.0, 2.0, len(there)) / 8
        found = places.uneven(there, np.full(len(there), 0.1), pace)
        assert sorted(p for parts in found.parts for p in parts) == list(range(64))
        loads = dict.fromkeys(there, 0)
        for parts, (worker,) in zip(found.parts, found.workers, strict=True):
            assert all(worker in places.holders[part] for part in parts)
            loads[worker] = len(parts)
        ends = [loads[w] * p for w, p in zip(there, pace, strict=True)]
        fluid = 64.0 / float((1.0 / pace).sum())
        assert max(ends) < 1.35 * fluid + 0.25


def test_a_helper_has_parts_of_one_group_only() -> None:
    able = {worker: Pace(0.5, 0.1 + 0.01 * worker) for worker in range(5)}
    groups = [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9, 10, 11]]
    found = shared(groups, able)
    assert sorted(worker for _, worker in found) == list(range(5))
    assert {number for number, _ in found} == {0, 1, 2}
    assert sorted(p for parts in found.values() for p in parts) == list(range(12))


def test_helpers_take_only_what_they_hold() -> None:
    holders = ring(4, 8, 2)
    able = {1: Pace(0.0, 1.0), 2: Pace(0.0, 1.0)}
    assert shared([[4, 5], [0, 1]], able, holders) == {(0, 1): [4], (0, 2): [5]}


# -- what is known of the past ---------------------------------------------------------


def test_what_was_cut_off_is_drawn_from_what_takes_longer() -> None:
    rng = np.random.default_rng(0)
    true = 0.5 + rng.exponential(0.5, (20, 200))
    cut = np.full(true.shape, 0.8)
    cut[:4] = 9.0  # a few steps in which all were waited for
    tail = Tail(200)
    for x, most in zip(true, cut, strict=True):
        tail.add(np.minimum(x, most), x > most)
    found = [tail.beyond(0.8, longer) for longer in np.linspace(0.01, 0.99, 99)]
    assert min(found) > 0.8
    assert abs(np.mean(found) - 1.3) < 0.1  # without memory: 0.8 + 0.5


@pytest.mark.parametrize(("share", "again"), [(0.1, 0.9), (0.5, 0.5), (0.4, 0.0)])
def test_shares_are_learnt_from_later_calls(share: float, again: float) -> None:
    shares = Shares(0.5, unit=8)
    for step in range(4):
        calls = [Call(w, True, 8, 1.0 + w, 0, 0.0) for w in range(4)]
        for worker in range(4):
            parts = 1 + (worker + step) % 3
            seconds = (1.0 + worker) * (again + share * parts / 8)
            calls.append(Call(worker, False, parts, seconds, 0, 0.0))
        shares.learn(calls)
    assert abs(shares.share - share) < 0.05
    assert abs(shares.again - again) < 0.05


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_share_is_learnt_from_steps_with_other_loads(share: float) -> None:
    shares = Shares(0.5, unit=8)
    for parts in (8, 8, 16, 16):
        seconds = (1.0 - share) + share * parts / 8
        shares.learn([Call(w, True, parts, seconds, 0, 0.0) for w in range(6)])
    assert abs(shares.share - share) < 0.01


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_share_is_learnt_from_lists_that_become_uneven(share: float) -> None:
    shares = Shares(0.5, unit=8)
    x = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0] * 6
    for loads in ((8, 8), (11, 5)):
        calls = [
            Call(w, True, p, x[w] * ((1.0 - share) + share * p / 8), 0, 0.0)
            for w, p in enumerate([loads[v > 1.0] for v in x])
        ]
        shares.learn(calls)
    assert abs(shares.share - share) < 0.1


def test_who_was_never_seen_is_taken_for_one_like_the_others() -> None:
    guesses = Guesses(3)
    assert set(guesses.all()["last"].tolist()) == {1.0}
    guesses.learn(np.array([2.0, 4.0, np.nan]))
    assert guesses.all()["quick"].tolist() == [
        pytest.approx(2.0),
        pytest.approx(4.0),
        3.0,
    ]


# -- what is chosen --------------------------------------------------------------------


def test_a_replay_says_what_events_say() -> None:
    """For even lists, and for groups, of workers whose times are known."""
    times = drawn("exponential", 8, 1, 0.5, seed=3)
    x = (times.fixed + times.unit)[0]
    scheme, costs = Opaque(8, 4), Costs(0.5, 0.5, 4)
    lists = scheme.recipe.places.even(range(8))
    replay = went(lists, x, costs)
    half = np.sort(x)[3]
    seconds, _ = played(scheme, times)
    end = replay.end(1.5 * float(half), x, costs, scheme.recipe.places)
    assert abs(end - seconds[0]) < 0.1
    pairs = Lists(lists.parts[:2], ((0, 1), (2, 3)))
    assert went(pairs, x, costs).firsts.tolist() == [min(x[:2]), min(x[2:4])]


def test_calm_workers_are_asked_for_nothing_twice() -> None:
    scheme = Opaque(8, 8)
    seconds, simulator = played(scheme, drawn("calm", 8, 15, 0.5))
    history = simulator.coordinator.history
    assert history.follow(scheme.recipe).choice(15, history.alive).arm == "uncoded"
    state = history.records[-1].state
    assert len(state.segments) == 8
    assert max(seconds) < 1.1


@pytest.mark.parametrize(
    ("kind", "share", "arm", "most"),
    [
        ("classes", 1.0, "uneven", 1.25),
        ("exponential", 1.0, "two_stage(", 2.2),
        ("exponential", 0.1, "repeated(", 1.6),
    ],
)
def test_an_arm_that_suits_the_workers_is_found(
    kind: str, share: float, arm: str, most: float
) -> None:
    scheme, times = Opaque(16, 8), drawn(kind, 16, 25, share)
    seconds, simulator = played(scheme, times)
    history = simulator.coordinator.history
    assert history.follow(scheme.recipe).picker.present.startswith(arm)
    chosen = sum(seconds[5:])  # the first steps are even
    assert chosen < most * clairvoyant(times.fixed, times.unit)[5:].sum()
    assert chosen < 0.75 * (times.fixed + times.unit)[5:].max(axis=1).sum()


def test_sticky_stragglers_cost_little_whether_calls_are_paid_again_or_not() -> None:
    for engine in (Simulator, PaidAgain):
        times = drawn("sticky", 12, 30, 0.5, seed=4)
        assert times.unit.max() > 4.0
        seconds, _ = played(Opaque(12, 8), times, engine)
        assert sum(seconds) < 1.3 * clairvoyant(times.fixed, times.unit).sum()


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_when_it_becomes_calm_again_nothing_is_asked_for_twice(share: float) -> None:
    """Also after a code, which does not wait for those who would show it."""
    wild, calm = drawn("exponential", 8, 12, share), drawn("calm", 8, 48, share)
    times = Times(
        np.concatenate([wild.fixed, calm.fixed]), np.concatenate([wild.unit, calm.unit])
    )
    scheme = Opaque(8, 2)
    _, simulator = played(scheme, times)
    history = simulator.coordinator.history
    assert history.follow(scheme.recipe).choice(60, history.alive).arm == "uncoded"


def picked(losses: dict[str, float], own: float, steps: int) -> list[str]:
    """Return what is followed if every step would have taken this long."""
    picker, found = Picker(arms_for(Opaque(12).recipe.places)), []
    for _ in range(steps):
        ends = dict.fromkeys(picker.losses, 9.0) | losses
        picker.learn(ends, own, is_out=False)
        found.append(picker.pick(share=0.5, tau=1.5).name)
    return found


def test_an_arm_must_be_better_by_two_per_cent() -> None:
    assert picked({"uncoded": 1.0, "two_stage": 0.985}, 1.0, 9)[-1] == "uncoded"
    assert picked({"uncoded": 1.0, "two_stage": 0.97}, 0.97, 9)[-1] == "two_stage"


def test_of_arms_about_as_good_the_one_that_asks_for_least_is_taken() -> None:
    losses = {"uncoded": 1.0, "uneven(last)": 0.905, "two_stage(0.5)": 0.9}
    assert picked(losses, 0.9, 9)[-1] == "uneven(last)"


def test_a_code_that_ties_with_others_is_taken_by_the_rule() -> None:
    losses = {"uncoded": 1.5, "two_stage": 1.0, "repeated(1)": 0.985}
    assert picked(losses, 1.0, 9)[-1] == "two_stage"  # nobody is ever out for long
    picker = Picker(arms_for(Opaque(12).recipe.places))
    ends = dict.fromkeys(picker.losses, 9.0) | losses
    picker.learn(ends | {"two_stage": 1.004}, 1.0, is_out=True)
    assert picker.pick(share=0.1, tau=1.5).name == "repeated(1)"


def test_in_steps_of_a_code_it_is_looked_now_and_then_what_others_would_take() -> None:
    losses = {"uncoded": 2.0, "two_stage": 1.5, "repeated(1)": 1.0}
    for own, gaps in ((1.4, [20, 40, 80, 80]), (0.9, [20, 20, 20, 20])):
        found = picked(losses, own, 260)
        looks = [step for step, name in enumerate(found) if name == "two_stage"]
        between = np.diff([-1, *looks])[:4] - 1
        assert between.tolist() == gaps


def test_an_arm_that_takes_longer_than_uncoded_would_is_left_for_fifty_steps() -> None:
    found = picked({"uncoded": 1.0, "two_stage": 0.9}, 1.1, 100)
    changes = [len(list(some)) for _, some in itertools.groupby(found)]
    assert found[0] == "two_stage"
    assert changes[:2] == [20, 50]


def test_arms_that_the_placement_does_not_allow_are_left_out() -> None:
    names = [
        {*arms_for(Opaque(12, 2, copies).recipe.places)} for copies in (0, 5, 3, 2)
    ]
    repeated = [sum("repeated" in name for name in some) for some in names]
    assert repeated == [4, 2, 1, 0]
    assert all("uncoded" in some and "two_stage" in some for some in names)


def test_equal_recipes_share_what_is_learnt() -> None:
    one, other = Opaque(4).recipe, Opaque(4).recipe
    history = History(4)
    assert one == other
    assert hash(one) == hash(other)
    assert history.follow(one) is history.follow(other)


def test_whoever_is_too_slow_for_a_list_is_probed_and_comes_back() -> None:
    x = np.ones((30, 6))
    x[2:15, 4] = 40.0
    scheme = Opaque(6, 4)
    loads: list[int] = []

    def watch(event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, StepStarted):
            loads.append(len(given(commands).get(4, ())))
        invariants(event, commands)

    invariants = Invariants(scheme)
    times = Times(0.5 * x, 0.5 * x)
    simulator = PaidAgain(scheme, capabilities=OPAQUE.capabilities, watch=watch)
    steps = list(simulator.run(times))
    assert set(loads[8:15]) == {1}
    assert loads[-1] == 4
    assert max(step.seconds for step in steps[8:]) < 1.5


def test_it_beats_waiting_for_all() -> None:
    times = drawn("sticky", 8, 25, 0.1, seed=4)
    seconds, _ = played(Opaque(8, 4), times)
    simulator = Simulator(uncoded(8), capabilities=OPAQUE.capabilities)
    waiting = sum(step.seconds for step in simulator.run(times))
    assert sum(seconds) < waiting / 2
