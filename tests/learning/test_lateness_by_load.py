"""How often workers are late, by how much they are asked for."""

import math

import numpy as np
import pytest

from codedgrad.core import Capabilities, Record
from codedgrad.delays import Times
from codedgrad.learning.lateness_by_load import Punctuality
from codedgrad.schemes import CodedScheme, uncoded
from codedgrad.schemes.stop_rules import First, Within
from codedgrad.sim import Simulator

PARTS = 4  # for each worker
BUDGET = 10.0


def step(
    seconds: list[float], pause: float = 0.0, progress: bool = True, parts: int = PARTS
) -> Record:
    """A step in which workers take so long for a part, and have so many each."""
    plain = uncoded(len(seconds), pieces=parts)
    scheme = CodedScheme("plain", plain.code, Within(BUDGET, First(len(seconds))))
    simulator = Simulator(scheme, capabilities=Capabilities(progress=progress))
    fixed = np.full((1, len(seconds)), pause)
    times = Times(fixed=fixed, unit=parts * np.array([seconds]))
    for _ in simulator.run(times):
        pass
    return simulator.coordinator.history.records[-1]


def learnt(*records: Record, budget: float = BUDGET, forget: float = 1.0) -> object:
    tracker = Punctuality(parts=16, forget=forget, budget=budget).start(
        len(records[0].alive)
    )
    for record in records:
        tracker.update(record)
    return tracker


def by_load(tracker: object, worker: int = 0) -> list[float]:
    """Return the probability to be late with 1, 2, ... 8 parts."""
    found = [tracker.straggle([load] * 2)[worker] for load in range(1, 9)]
    return [round(p, 6) for p in found]


def test_nothing_seen_is_the_uniform_prior_for_every_load() -> None:
    tracker = Punctuality(parts=3).start(2)
    assert tracker.is_empty
    assert tracker.straggle([1, 99]).tolist() == [0.5, 0.5]


def test_in_time_says_how_much_there_would_have_been_time_for() -> None:
    # 4 parts in 6 s: there is time for 6 in 10 s, and nobody knows about 7
    tracker = learnt(step([1.5, 1.5]))
    assert by_load(tracker) == [round(1 / 3, 6)] * 8
    more = learnt(*[step([1.5, 1.5])] * 3, *[step([3.0, 1.5])] * 2)
    known = by_load(more)
    assert known[0] == known[2] == round(1 / 7, 6)  # 3 parts are done in 9 s
    with_four = 1 - 6 / 7 * (1 - 2 / 7)  # 2 of 5 are late with a fourth
    assert known[3:] == [round(with_four, 6)] * 5


def test_time_to_spare_is_evidence_about_more_parts_than_were_asked_for() -> None:
    spare = [step([1.5, 1.5])] * 3  # 4 parts in 6 of 10 s: 6 would have been done
    late = step([2.2, 1.0], parts=8)  # 4 parts done in 10 s
    known = by_load(learnt(*spare, late))
    assert known[3] == round(1 / 6, 6)
    assert known[4] == round(1 - 5 / 6 * (1 - 1 / 6), 6)  # late in 1 of 4 with a fifth


def test_late_with_some_parts_done_is_in_time_with_those() -> None:
    tracker = learnt(step([4.0, 1.0]))  # 2 parts done in 10 s
    assert by_load(tracker)[:2] == [round(1 / 3, 6)] * 2
    assert by_load(tracker)[2:] == [round(1 - 2 / 3 * (1 - 1 / 3), 6)] * 6


def test_without_progress_late_says_nothing_about_less() -> None:
    tracker = learnt(step([4.0, 1.0], progress=False))
    assert by_load(tracker)[:3] == [0.5] * 3
    assert by_load(tracker)[3:] == [round(1 - 1 / 2 * (1 - 1 / 3), 6)] * 5


def test_a_pause_is_late_whatever_the_load() -> None:
    tracker = learnt(step([0.1, 0.1], pause=20.0))
    assert by_load(tracker) == [round(2 / 3, 6)] * 8


def test_who_is_gone_is_late_with_anything() -> None:
    tracker = learnt(step([math.inf, 1.0]))
    assert by_load(tracker) == [round(2 / 3, 6)] * 8
    assert by_load(tracker, worker=1)[0] == round(1 / 3, 6)


def test_without_a_budget_the_end_of_the_step_is_what_counts() -> None:
    scheme = CodedScheme("plain", uncoded(2, pieces=PARTS).code, First(1))
    simulator = Simulator(scheme)
    unit = PARTS * np.array([[1.0, 1.9]])
    for _ in simulator.run(Times(fixed=np.zeros((1, 2)), unit=unit)):
        pass
    tracker = learnt(simulator.coordinator.history.records[-1], budget=math.inf)
    assert by_load(tracker, worker=1)[:2] == [round(1 / 3, 6)] * 2  # 2 done after 4 s
    assert by_load(tracker, worker=1)[2] > 0.5


def test_a_step_that_gave_no_sum_says_nothing() -> None:
    record = step([1.0, 1.0])
    record.combined = False
    assert learnt(record).is_empty


def test_more_is_never_thought_to_be_done_more_surely_than_less() -> None:
    rng = np.random.default_rng(0)
    records = [step(rng.exponential(3.0, 2).tolist()) for _ in range(40)]
    tracker = learnt(*records, forget=0.9)
    for worker in (0, 1):
        assert np.all(np.diff(by_load(tracker, worker)) >= 0)


@pytest.mark.parametrize("forget", [0.5, 0.9])
def test_forgetting_is_by_load(forget: float) -> None:
    """What is not tried any more is not forgotten, and not tried again for that."""
    two, none = step([4.0, 1.0]), step([11.0, 1.0])  # parts done in 10 s
    tracker = learnt(*[two] * 9, *[none] * 30, *[two] * 3, forget=forget)
    again = learnt(*[two] * 12, forget=forget)
    risks = [1 - (1 - by_load(t)[2]) / (1 - by_load(t)[1]) for t in (tracker, again)]
    assert risks[0] == pytest.approx(risks[1], abs=1e-4)
