"""What past steps say of the next one: from steps that were simulated."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from codedgrad.core import Record
from codedgrad.delays import Times
from codedgrad.schemes import auto
from codedgrad.schemes.auto.forecast import Forecast, Paces, seen_in
from codedgrad.sim import Machine, Network, Simulator

N, C = 6, 8
LATENCY = 0.005  # seconds each way
PACES = Paces(C)


def times(x: np.ndarray, share: float) -> Times:
    """Let so many seconds be taken, of which a share grows with the load."""
    return Times((1.0 - share) * x, share * x)


def calm(steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 1.0 + 0.02 * np.abs(rng.standard_normal((steps, N)))


def unpredictable(steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.5 + rng.exponential(0.5, (steps, N))


def classes(steps: int, seed: int = 0) -> np.ndarray:
    return calm(steps, seed) * np.array([1.0, 1.5, 2.0, 3.0, 1.0, 1.5])


def played(
    seconds: Times, latency: float = LATENCY, network: Network | None = None
) -> list[Record]:
    """Run steps, and return what was seen of them."""
    scheme = auto(N, C)
    machine = Machine(drain=False, latency=latency, network=network)
    simulator = Simulator(
        scheme,
        capabilities=machine.capabilities,
        patience=machine.patience(seconds, scheme),
        latency=latency,
        network=network,
    )
    for step in simulator.run(seconds):
        assert step.combined
    return list(simulator.coordinator.history.records)


def forecasts(records: list[Record]) -> Iterator[Forecast]:
    """Go through what is expected after each step."""
    tracker = PACES.start(N)
    for record in records:
        tracker.update(record)
        yield tracker.forecast()


def last(records: list[Record]) -> Forecast:
    *_, forecast = forecasts(records)
    return forecast


# -- what is measured ------------------------------------------------------------------


def test_before_the_first_step_nothing_is_expected() -> None:
    forecast = PACES.start(3).forecast()
    assert (forecast.step, forecast.trip, forecast.sending) == (0.0, 0.0, 0.0)
    assert not forecast.fixed.any()
    assert not forecast.pace.any()
    assert not forecast.uneven
    assert not forecast.cautious
    assert forecast.surprises == ()


@pytest.mark.parametrize("make", [calm, unpredictable], ids=["calm", "unpredictable"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_the_share_that_grows_with_the_load_is_found(make, share: float) -> None:
    forecast = last(played(times(make(24), share)))
    assert forecast.share == pytest.approx(share, rel=0.03)


def test_what_is_fixed_and_what_a_part_takes_are_found() -> None:
    forecast = last(played(times(np.full((5, N), 2.0), 0.4), latency=0.0))
    np.testing.assert_allclose(forecast.fixed, 1.2)
    np.testing.assert_allclose(forecast.pace, 0.8 / C)
    assert forecast.step == pytest.approx(2.0)


def test_a_share_changes_slowly() -> None:
    """One step in five is news."""
    records = played(times(np.full((5, N), 2.0), 1.0), latency=0.0)
    records += played(times(np.full((1, N), 2.0), 0.5), latency=0.0)
    assert last(records).share == pytest.approx(0.8 * 1.0 + 0.2 * 0.5)


@pytest.mark.parametrize("latency", [0.002, 0.02])
def test_a_round_trip_is_measured(latency: float) -> None:
    """Of orders to workers that had nothing to do."""
    forecast = last(played(times(unpredictable(8), 0.5), latency))
    assert forecast.trip == pytest.approx(2 * latency, rel=0.2)


def test_until_it_is_measured_a_round_trip_is_a_small_share_of_a_step() -> None:
    [record] = played(times(np.full((1, N), 2.0), 1.0), latency=0.0)
    forecast = last([record])  # nobody was idle and given more
    assert forecast.trip == pytest.approx(0.01 * 2.0)


def test_sending_is_measured_where_sums_were_there_and_asked_for() -> None:
    network = Network(port=0.05)  # one after the other
    forecast = last(played(times(calm(1), 1.0), LATENCY, network))
    orders = LATENCY
    assert orders + 0.05 <= forecast.sending <= orders + N * 0.05 + 1e-9


def test_a_step_that_gave_no_sum_tells_nothing() -> None:
    records = played(times(calm(3), 1.0))
    tracker = PACES.start(N)
    records[0].combined = False
    tracker.update(records[0])
    assert tracker.forecast().step == 0.0


def test_a_worker_that_did_one_part_is_scaled_by_the_share() -> None:
    """Half of its time is fixed: a part in 1.125 s is a whole load in 2 s."""
    [record] = played(times(np.full((1, N), 2.0), 0.5), latency=0.0)
    known = record.state.segments[0]
    known.marks = known.marks[:1]
    assert known.marks == [(1, 1.125)]
    seen = seen_in(record, C, share=0.5)
    assert seen.seconds[0] == pytest.approx(2.0)
    assert not seen.is_least[0]


# -- uneven loads ----------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_loads_are_uneven_where_workers_differ_for_good(share: float) -> None:
    """Where most is fixed the slow ones do nothing, and are only known to be slow."""
    forecast = last(played(times(classes(12), share)))
    assert forecast.uneven
    found, true = forecast.fixed + C * forecast.pace, classes(12).mean(axis=0)
    heard = np.full(N, True) if share == 1.0 else true < 1.2
    np.testing.assert_allclose(found[heard], true[heard], rtol=0.05)
    assert (found[~heard] > 1.1 * found[heard].max()).all()


def test_who_was_cut_off_is_not_believed_to_be_slower_than_is_known() -> None:
    """Steps took 1.1 s; a load of 9 s cannot follow from that if a tenth grows."""
    forecast = last(played(times(classes(12), 0.1)))
    found = forecast.fixed + C * forecast.pace
    assert (found <= 1.05 * classes(12).mean(axis=0)).all()


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("make", [calm, unpredictable], ids=["calm", "unpredictable"])
def test_loads_stay_even_where_nobody_can_know(make, share: float) -> None:
    every = list(forecasts(played(times(make(20), share))))
    assert not any(forecast.uneven for forecast in every[4:])
    for forecast in every[4:]:  # everybody alike
        assert len(set(forecast.pace.tolist())) == 1


def test_workers_that_change_places_are_followed() -> None:
    x = np.ones((24, N))
    x[:12, 0] = 4.0
    x[12:, 1] = 4.0
    every = list(forecasts(played(times(x, 1.0))))
    assert every[11].uneven
    assert every[11].pace[0] > 3 * every[11].pace[1]
    assert every[23].uneven
    assert every[23].pace[1] > 3 * every[23].pace[0]


def test_who_was_cut_off_is_believed_to_be_slow() -> None:
    """Worker 2 never reports in time, and that it took longer counts."""
    x = np.ones((10, N))
    x[:, 2] = 50.0
    records = played(times(x, 1.0))
    seen = seen_in(records[-1], C, share=1.0)
    assert seen.is_least.tolist() == [w == 2 for w in range(N)]
    forecast = last(records)
    assert forecast.uneven
    others = np.delete(forecast.pace, 2)
    assert forecast.pace[2] > 5 * others.max()


def test_who_was_cut_off_is_no_quicker_than_it_was() -> None:
    x = np.ones((9, N))
    x[:, 2] = 3.0
    records = played(times(x, 1.0))
    slow = last(records[:-1]).pace[2]
    tail = records[-1]
    for known in tail.state.given(2):  # as if it had not reported in the last one
        known.marks.clear()
        known.ended_at = 0.0
    assert last(records).pace[2] == pytest.approx(slow, rel=0.05)


def test_who_stopped_on_the_way_is_believed_to_be_slow() -> None:
    """It did two parts at a pace of 1/8 s, and then none for the rest of the step."""
    [record] = played(times(np.ones((1, N)), 1.0), latency=0.0)
    known = record.state.segments[0]
    known.marks, known.ended = known.marks[:2], "dropped"
    seen = seen_in(record, C, share=1.0)
    assert seen.seconds[0] == pytest.approx(C * 0.75)
    assert seen.is_least[0]


def test_a_dead_worker_does_not_spoil_what_is_known_of_others() -> None:
    x = classes(12)
    x[6:, 3] = np.inf
    seconds = Times(np.zeros_like(x), x)
    forecast = last(played(seconds))
    assert forecast.uneven
    found = C * forecast.pace
    there = np.arange(N) != 3
    np.testing.assert_allclose(found[there], classes(12).mean(axis=0)[there], rtol=0.06)
    assert np.isfinite(found).all()


# -- surprises -------------------------------------------------------------------------


def test_surprises_are_how_much_longer_than_expected_it_took() -> None:
    assert last(played(times(calm(1), 1.0))).surprises == ()  # nothing was expected
    quiet = last(played(times(calm(10), 1.0))).surprises
    assert len(quiet) == 9 * N
    assert quiet == tuple(sorted(quiet))
    assert 0.9 < quiet[0] <= quiet[-1] < 1.1
    x = calm(10)
    x[5, 1] = 4.0
    loud = last(played(times(x, 1.0))).surprises
    assert loud[-2] < 1.1 < 2.0 < loud[-1] < 4.2


def test_old_surprises_are_forgotten() -> None:
    records = played(times(calm(5), 1.0)) * 14
    assert len(last(records[:30]).surprises) == 29 * N
    assert len(last(records).surprises) == 400


# -- the guard -------------------------------------------------------------------------


def cautious(records: list[Record], factor: float) -> list[bool]:
    """Return when to be cautious, had steps taken so many times their longest time."""
    for record in records:
        seen = seen_in(record, C, share=1.0)
        record.seconds = factor * float(np.nanmax(seen.seconds))
    return [forecast.cautious for forecast in forecasts(records)]


def test_after_twenty_bad_steps_it_is_cautious_for_fifty() -> None:
    """The first is not compared: nothing was expected of it."""
    found = cautious(played(times(calm(5), 1.0)) * 24, 1.02)
    assert found == [20 <= step < 70 or step >= 90 for step in range(120)]


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.005])
def test_steps_that_waiting_would_not_have_ended_sooner_need_no_caution(
    factor: float,
) -> None:
    assert not any(cautious(played(times(calm(5), 1.0)) * 10, factor))


def test_what_sums_take_on_their_way_is_no_reason_for_caution() -> None:
    """Whoever waits for all waits for them as well."""
    tracker, found = PACES.start(N), []
    for record in played(times(calm(5), 1.0)) * 8:
        seconds = seen_in(record, PACES.pieces, 1.0).seconds
        record.seconds = 1.2 * float(seconds.max())
        tracker._trips += [0.01] * 20  # more than the record tells itself
        tracker._sendings += [0.01 + 0.3 * float(seconds.max())] * 20
        tracker.update(record)
        found.append(tracker.forecast().cautious)
    assert not any(found)


def test_while_it_is_cautious_loads_are_even() -> None:
    records = played(times(classes(8), 1.0)) * 4
    for record in records:
        record.seconds = 100.0
    every = list(forecasts(records))
    assert every[19].uneven
    assert not any(forecast.uneven for forecast in every[20:])


def test_forecasts_are_the_same_again() -> None:
    first, second = (last(played(times(unpredictable(8), 0.5))) for _ in range(2))
    assert first.surprises == second.surprises
    assert (first.trip, first.share, first.step) == (
        second.trip,
        second.share,
        second.step,
    )
    assert math.isfinite(first.step)
