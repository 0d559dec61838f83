"""Who is expected to be slow: from the past, from an oracle, and who is gone."""

from collections.abc import Sequence

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Coordinator,
    History,
    MessageArrived,
    StepStarted,
    WorkersLost,
)
from codedgrad.delays import Replay
from codedgrad.errors import CodedgradError, InvalidScenario, InvalidScheme
from codedgrad.learning.estimators import HiddenMarkov, Law
from codedgrad.learning.hidden_markov import LearntMarkov
from codedgrad.schemes import Dynamic, dynamic
from codedgrad.schemes.dynamic.scheme import _graded
from codedgrad.schemes.dynamic.straggler_states import (
    STATES,
    Hidden,
    Late,
    Mean,
    Oracle,
    StateForecast,
)
from codedgrad.sim import Machine, compare

NOTHING = History(4)


def played(
    seconds: Sequence[Sequence[float]],
    scheme: Dynamic | None = None,
    lost: Sequence[int] = (),
) -> Coordinator:
    """Steps of four workers, in each of which they answer after so many seconds.

    Whoever takes infinitely long is not heard.
    """
    run = Coordinator(scheme or dynamic(4, 2, 1, state="late"))
    for worker in lost:
        run.handle(WorkersLost((worker,), at=0.0))
    now = 0.0
    for step, times in enumerate(seconds):
        orders = run.handle(StepStarted(step, at=now))
        given = [order for order in orders if isinstance(order, Assign)]
        for order in sorted(given, key=lambda o: times[o.segment.worker]):
            segment, message = order.segment, order.message
            assert message is not None
            at = now + times[segment.worker]
            if np.isfinite(at):
                cuts = ((segment.id, len(segment.parts)),)
                run.handle(MessageArrived(step, segment.worker, message, cuts, at))
        now += 1000.0
    return run


# -- late ------------------------------------------------------------------------------


def test_before_the_first_step_nobody_is_late() -> None:
    assert not Late().forecast(0, NOTHING).slow.any()


def test_late_is_who_was_not_heard_when_the_last_step_ended() -> None:
    run = played([[9.0, 1.0, 9.0, 1.0], [1.0, 1.0, 9.0, 9.0]])  # clusters of two
    found = Late().forecast(2, run.history)
    assert found.slow.tolist() == [False, False, True, True]
    assert found.scores.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_who_answers_after_the_end_was_late_all_the_same() -> None:
    run = played([[1.0, 1.0, np.inf, np.inf]])
    assert run.state is None  # the step has ended
    record = run.history.records[-1]
    late = next(m for m in record.state.messages.values() if m.worker == 2)
    (held,) = record.state.held[2]
    run.handle(MessageArrived(0, 2, late.id, ((held, 2),), at=5.0))
    assert record.observe(2).is_censored is False
    assert Late().forecast(1, run.history).slow.tolist() == [False, False, True, True]


# -- speed -----------------------------------------------------------------------------


def test_before_the_first_step_all_speeds_are_alike() -> None:
    found = Mean().forecast(0, NOTHING)
    assert not found.slow.any()
    assert found.scores.tolist() == [1.0] * 4


def test_speeds_are_in_units_of_their_median_and_twice_that_is_slow() -> None:
    run = played([[2.0, 2.0, 4.0, 8.0]], dynamic(4, 4, 0, state="speed"))
    run.history.settle()  # as the next step does
    found = Mean().forecast(1, run.history)
    assert found.scores.tolist() == pytest.approx([2 / 3, 2 / 3, 4 / 3, 8 / 3])
    assert found.slow.tolist() == [False, False, False, True]


# -- hidden ----------------------------------------------------------------------------


def test_before_the_first_step_all_may_be_slow_alike() -> None:
    for recipe in (
        LearntMarkov(),
        HiddenMarkov(0.1, 0.3, fast=Law(0.0, 1.0), slow=Law(0.0, 9.0)),
    ):
        found = Hidden(recipe).forecast(0, History(4))
        assert len(set(found.scores.tolist())) == 1
        assert not found.slow.any()


def test_who_takes_much_longer_again_and_again_is_held_to_be_slow() -> None:
    scheme = dynamic(4, 2, 1)
    run = played([[1.0, 1.1, 30.0, 1.2]] * 12, scheme)
    found = scheme.states.forecast(12, run.history)
    assert found.slow.tolist() == [False, False, True, False]
    assert found.scores.argmax() == 2
    assert np.all((found.scores > 0) & (found.scores < 1))


# -- oracles ---------------------------------------------------------------------------

SLOW = np.array([[True, False, False, True], [False, True, False, False]])
TYPICAL = np.where(SLOW, 2.0, 0.5)


def test_an_oracle_knows_the_step_itself_and_with_a_lag_the_one_before() -> None:
    for lag, rows in ((0, (0, 1)), (1, (None, 0))):
        oracle = Oracle(lag, SLOW, TYPICAL)
        for step, row in enumerate(rows):
            found = oracle.forecast(step, NOTHING)
            if row is None:  # before the first step nothing is known
                assert not found.slow.any()
                assert len(set(found.scores.tolist())) == 1
            else:
                assert found.slow.tolist() == SLOW[row].tolist()
                assert found.scores.tolist() == TYPICAL[row].tolist()


@pytest.mark.parametrize("state", ["oracle", "oracle-previous"])
def test_an_oracle_that_was_told_nothing_cannot_be_used(state: str) -> None:
    scheme = dynamic(4, 2, 1, state=state)
    assert scheme.traits.tell is not None
    with pytest.raises(InvalidScheme, match=r"only a simulation can tell.*=hidden"):
        Coordinator(scheme).handle(StepStarted(0, at=0.0))


@pytest.mark.parametrize("machine", [Machine(drain=False), Machine()], ids=str)
def test_an_oracle_cannot_be_told_the_truth_of_a_recording(machine: Machine) -> None:
    scheme = dynamic(4, 2, 1, state="oracle")
    with pytest.raises(InvalidScenario, match="these delays do not know"):
        compare([scheme], Replay.read("AR"), steps=3, machine=machine)


def test_only_an_oracle_is_told() -> None:
    plain = dynamic(4, 2, 1)
    assert plain.told(SLOW, TYPICAL) is plain
    assert plain.traits.tell is None
    told = dynamic(4, 2, 1, state="oracle-previous").told(SLOW, TYPICAL)
    assert isinstance(told.states, Oracle)
    assert (told.states.lag, told.states.slow is SLOW) == (1, True)


# -- who is gone -----------------------------------------------------------------------


def test_who_is_gone_is_slower_than_anybody_whatever_the_scale() -> None:
    calm = np.zeros(4, dtype=np.bool_)
    alive = [True, False, True, False]
    for scale in (1e-6, 1.0, 1e6):
        for scores in (np.full(4, scale), scale * np.array([1.0, 2.0, 3.0, 4.0])):
            found = StateForecast(calm, scores).without(alive)
            assert found.slow.tolist() == [False, True, False, True]
            assert found.scores[[1, 3]].min() > found.scores[[0, 2]].max()
            assert found.scores[[0, 2]].tolist() == scores[[0, 2]].tolist()


def test_if_nobody_is_gone_a_forecast_stays_as_it_is() -> None:
    forecast = StateForecast(np.zeros(2, dtype=np.bool_), np.ones(2))
    assert forecast.without([True, True]) is forecast


@pytest.mark.parametrize("storage", ["slot", "cluster"])
@pytest.mark.parametrize("state", ["hidden", "late", "speed"])
def test_two_that_are_gone_from_one_cluster_are_put_into_two(
    state: str, storage: str
) -> None:
    scheme = dynamic(12, 3, 1, state=state, storage=storage)
    for gone in ((0, 3), (4, 10), (2, 11)):  # at home in the same cluster
        run = Coordinator(scheme)
        for worker in gone:
            run.handle(WorkersLost((worker,), at=0.0))
        forecast = scheme.states.forecast(0, run.history).without(run.history.alive)
        seats = scheme.seats(forecast)
        clusters = {seats.index(worker) // 4 for worker in gone}
        assert len(clusters) == 2, gone


def test_scores_that_are_added_up_are_from_0_to_1_and_1_for_who_is_gone() -> None:
    def graded(*scores: float) -> list[float]:
        calm = np.zeros(len(scores), dtype=np.bool_)
        return list(_graded(StateForecast(calm, np.array(scores))))

    assert graded(3.0, 1.0, 2.0) == [1.0, 0.0, 0.5]
    assert graded(3.0, np.inf, 1.0) == [1.0, 1.0, 0.0]
    assert graded(2.0, np.inf, 2.0) == [0.0, 1.0, 0.0]
    assert graded(7.0, 7.0) == [0.0, 0.0]
    assert graded(np.inf, np.inf) == [1.0, 1.0]


# -- names -----------------------------------------------------------------------------


def test_every_source_is_known_by_its_name_and_unknown_names_are_refused() -> None:
    for name, states in STATES.items():
        assert dynamic(4, 2, 1, state=name).states is states
    with pytest.raises(CodedgradError, match=r"state = 'lat'.*late"):
        dynamic(4, 2, 1, state="lat")
    with pytest.raises(InvalidScheme, match=r"state = 3"):
        dynamic(4, 2, 1, state=3)  # type: ignore[arg-type]


def test_a_source_of_ones_own_is_taken_as_it_is() -> None:
    class Always:
        def forecast(self, step: int, history: History) -> StateForecast:
            first = np.arange(history.workers) == 0
            return StateForecast(first, first.astype(np.float64))

    own = Always()
    assert dynamic(4, 2, 1, state=own).states is own
