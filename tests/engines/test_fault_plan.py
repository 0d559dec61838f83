"""Plans of faults and delays, without a process."""

import math
import signal
import time

import numpy as np
import pytest

from codedgrad.delays import Times
from codedgrad.engines import FaultPlan, Local
from codedgrad.engines.faults import CORRUPTIONS, Injector, away, mangle, spoil
from codedgrad.engines.host.wire import Fired, Left, Said, Sent, Told
from codedgrad.errors import InvalidOptions
from codedgrad.jobs import NumpyJob


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (lambda p: p.slow(-1, 0, 1.0), "slow: worker = -1; try a whole number, 0 or"),
        (lambda p: p.kill(0, -1), "kill: step = -1"),
        (lambda p: p.kill(0, 1.5), "kill: step = 1.5"),
        (lambda p: p.kill(0, 1, after=-1), "kill: after = -1"),
        (lambda p: p.join("1", 1), "join: worker = '1'"),
        (lambda p: p.leave(0, None), "leave: step = None"),
        (lambda p: p.slow(0, 0, 0.0), "slow: seconds = 0.0; try a number greater"),
        (lambda p: p.stop(0, 0, -1.0), "stop: seconds = -1.0"),
        (lambda p: p.stop(0, 0, math.inf), "stop: seconds = inf"),
        (lambda p: p.slow(0, 0, math.nan), "slow: seconds = nan"),
        (lambda p: p.corrupt(0, 0, "upside down"), "'upside down' is not known; try"),
        (lambda p: p.kill(0, 0, on="sunday"), "kill: on = 'sunday' is not known; try"),
        (lambda p: p.stop(0, 0, 1.0, on="sunday"), "stop: on = 'sunday' is not known"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(plan: object, complaint: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        plan(FaultPlan())
    assert str(caught.value).startswith("faults: ")
    assert complaint in str(caught.value)


JOB = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)


def test_a_fault_of_a_worker_that_is_not_there_is_refused_at_start() -> None:
    faults = FaultPlan().slow(3, 0, 1.0).kill(4, 7)
    with pytest.raises(InvalidOptions) as caught:
        Local().start(lambda: JOB, JOB.layout, 4, faults=faults)
    assert str(caught.value) == (
        "faults: kill(worker=4, step=7), but there are 4 workers; try workers below 4"
    )


def test_times_for_other_workers_are_refused_at_start() -> None:
    times = Times(fixed=np.zeros((2, 3)), unit=np.zeros((2, 3)))
    with pytest.raises(InvalidOptions) as caught:
        Local().start(lambda: JOB, JOB.layout, 4, delays=times)
    assert str(caught.value) == "delays: has times for 3 workers; try times for 4"


def test_a_plan_knows_what_has_fired() -> None:
    faults = FaultPlan().slow(0, 1, 0.5).kill(1, 2).join(2, 3)
    assert not faults.all_fired
    for id_ in (2, 0, 1):
        faults.note(id_)
    assert [str(fault) for fault in faults.fired] == [
        "join(worker=2, step=3)", "slow(worker=0, step=1)", "kill(worker=1, step=2)",
    ]  # fmt: skip
    assert faults.all_fired


def test_workers_are_told_of_what_they_do_to_themselves_and_has_not_happened() -> None:
    faults = FaultPlan().slow(0, 1, 0.5).kill(1, 2).kill(1, 2, after=1).stop(0, 3, 0.1)
    faults.corrupt(2, 2).leave(0, 4).join(0, 5).slow(0, 6, 0.5)
    faults.note(0)
    assert [str(fault) for fault in faults.for_workers()] == [
        "kill(worker=1, step=2)", "corrupt(worker=2, step=2)", "slow(worker=0, step=6)",
    ]  # fmt: skip


def test_a_worker_strikes_itself_at_moments_that_only_it_knows() -> None:
    faults = FaultPlan().kill(0, 1, on="held").stop(1, 1, 0.5, on="upload").kill(2, 1)
    assert [fault.worker for fault in faults.for_workers()] == [0, 1]


@pytest.mark.parametrize(
    ("plan", "absent"),
    [
        (FaultPlan().join(0, 3), [0, 1, 2]),
        (FaultPlan().kill(0, 2).join(0, 4), [0, 1, 2, 3]),
        (FaultPlan().leave(0, 2).join(0, 4), [2, 3]),
        (FaultPlan().leave(0, 2), [2, 3, 4, 5]),
        (FaultPlan().leave(0, 1).join(0, 2).leave(0, 4), [1, 4, 5]),
        (FaultPlan().join(0, 2).leave(0, 4), [0, 1, 4, 5]),
        (FaultPlan().kill(0, 2), []),
        (FaultPlan().join(1, 2), []),
    ],
    ids=lambda given: (
        None if isinstance(given, list) else " ".join(map(str, given.planned))
    ),
)
def test_a_worker_that_is_lost_stays_away_as_planned(
    plan: FaultPlan, absent: list[int]
) -> None:
    assert [step for step in range(6) if plan.stays_away(0, step)] == absent


def test_infinite_times_are_absences() -> None:
    fixed = np.zeros((5, 3))
    fixed[:2, 0] = fixed[2:, 1] = fixed[1, 2] = fixed[3, 2] = np.inf
    plan = FaultPlan()
    left = away(plan, Times(fixed=fixed, unit=np.ones((5, 3))))
    assert [str(fault) for fault in plan.planned] == [
        "leave(worker=0, step=0)", "join(worker=0, step=2)",
        "leave(worker=1, step=2)",
        "leave(worker=2, step=1)", "join(worker=2, step=2)",
        "leave(worker=2, step=3)", "join(worker=2, step=4)",
    ]  # fmt: skip
    assert np.isfinite(left.fixed).all()
    np.testing.assert_array_equal(left.unit, np.isfinite(fixed))


def test_a_plan_may_be_used_again_and_added_to() -> None:
    fixed = np.array([[np.inf, 0.0], [0.0, 0.0]])
    times = Times(fixed=fixed, unit=np.zeros_like(fixed))
    plan = FaultPlan().kill(1, 2)
    for more in range(3):
        plan.begin(workers=2)
        assert not plan.fired
        away(plan, times)
        for fault in list(plan.planned):
            plan.note(fault.id)
        assert plan.all_fired
        assert len(plan.fired) == 1 + more + 2  # leaves and joins
        plan.slow(0, 5 + more, 0.1)


def injector(faults: FaultPlan, said: list[Said]) -> Injector:
    nothing = np.zeros(1)
    return Injector(1, faults.planned, nothing, nothing, said.extend)


def test_a_worker_is_slow_when_it_begins_or_after_so_many_parts() -> None:
    said: list[Said] = []
    faults = FaultPlan().slow(1, 2, 0.001).slow(1, 2, 0.001, after=2).slow(0, 2, 99.0)
    worker, told = injector(faults, said), []
    for computed in range(3):
        worker.before_part(2, computed)
        told.append(len(said))
        worker.after_part(2, computed + 1)
        told.append(len(said))
    assert told == [1, 1, 1, 2, 2, 2]
    assert said == [Fired(0), Fired(1)]


def test_a_stretched_part_sleeps_in_multiples_of_what_it_took() -> None:
    slept: list[float] = []
    nothing, factors = np.zeros(2), np.array([1.0, 10.0])
    worker = Injector(1, (), nothing, nothing, lambda said: None, factors)
    for step in range(4):  # the factors repeat
        outer = time.perf_counter()
        worker.before_part(step, 0)
        inner = time.perf_counter()
        while time.perf_counter() == inner:
            pass  # the part
        least = time.perf_counter() - inner
        worker.after_part(step, 1, slept.append)
        most = time.perf_counter() - outer
        if step % 2:
            assert 9 * least <= slept.pop() <= 9 * most
        assert not slept


def test_a_fault_of_another_step_does_not_strike() -> None:
    said: list[Said] = []
    worker = injector(FaultPlan().slow(1, 2, 99.0).corrupt(1, 2), said)
    worker.before_part(1, 0)
    worker.after_part(3, 1)
    assert worker.corruption(3) == ""
    assert said == []


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What a worker would have done to itself, which is this process here."""
    found: list[int] = []
    monkeypatch.setattr(
        "signal.pthread_kill", lambda thread, number: found.append(int(number))
    )
    return found


def test_a_sum_is_held_when_it_is_closed_and_nobody_has_asked_for_it(
    signals: list[int],
) -> None:
    said: list[Said] = []
    worker = injector(FaultPlan().kill(1, 2, on="held"), said)
    for told, asked in (
        (Told(2, 7, 3, closed=False), ()),  # still open
        (Told(2, 7, 0, closed=True), ()),  # of nothing
        (Told(2, 7, 3, closed=True), (7,)),
        (Told(3, 7, 3, closed=True), ()),  # of another step
        (Left(1), ()),
    ):
        worker.after_saying([told], asked, computed=3)
    worker.after_part(2, 3)
    assert (said, signals) == ([], [])
    worker.after_saying([Told(2, 7, 3, closed=True)], (6,), computed=3)
    assert (said, signals) == ([Fired(0)], [signal.SIGKILL])


def test_before_a_message_the_root_hears_what_comes_before_it(
    signals: list[int],
) -> None:
    heard: list[Said] = []
    worker = injector(FaultPlan().stop(1, 2, 0.1, after=3, on="upload"), heard)
    told = Told(2, 7, 3, closed=True)
    before: list[Said] = [told]
    worker.before_message(2, 2, before)  # too soon
    worker.before_message(1, 3, before)  # another step
    assert (heard, before, signals) == ([], [told], [])
    worker.before_message(2, 3, before)
    assert (heard, before, signals) == ([told, Fired(0)], [], [signal.SIGSTOP])
    worker.before_message(2, 3, before)
    assert signals == [signal.SIGSTOP]  # once


def test_each_corruption_strikes_one_message() -> None:
    said: list[Said] = []
    worker = injector(FaultPlan().corrupt(1, 2, "inf").corrupt(1, 2, "size"), said)
    assert [worker.corruption(2) for _ in range(3)] == ["inf", "size", ""]
    assert said == [Fired(0), Fired(1)]


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_whatever_is_wrong_with_a_message_something_is(how: str) -> None:
    sent = Sent(2, 5, ((4, 1),), finite=True, size=3)
    row = np.ones(3)
    spoil([row], how)
    assert mangle(sent, how) != [sent] or not np.isfinite(row).all()
