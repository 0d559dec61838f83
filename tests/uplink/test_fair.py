"""The fair uplink and its rivals: bounds in every slot, figures over many."""

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.errors import InvalidOptions
from codedgrad.uplink.batteries import Battery
from codedgrad.uplink.bounds import gap_bound, jain, static_optimum, utility
from codedgrad.uplink.fair import Uplink
from codedgrad.uplink.rivals import POLICIES
from codedgrad.uplink.slots import Slot

RATES = (1.0, 2.0, 4.0, 8.0)
MOST = 4.0
SLOTS = 20_000
FEW = 5000  # slots, where nothing is left to chance
OPTIMUM = utility(static_optimum(RATES, MOST))
FADE = 3.0  # the largest factor
WAIT = 400  # slots


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the last four fifths of a run; extremes and counts over all of it."""

    admitted: list[float]
    sent: list[float]
    backlog: float
    most_queue: float
    most_virtual: float
    most_energy: tuple[float, ...]
    scheduled: int
    short: int

    @property
    def gap(self) -> float:
        return OPTIMUM - utility(self.admitted)


def weather(fading: bool, slots: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return what is offered and the rates, slot by slot."""
    if not fading:
        return [[MOST] * 4] * slots, [list(RATES)] * slots
    rng = np.random.default_rng(0)
    factors = np.minimum(rng.exponential(size=(slots, 4)), FADE)
    offered = rng.integers(0, 5, (slots, 4)).astype(float)
    return offered.tolist(), (factors * RATES).tolist()


@cache
def play(
    name: str,
    V: float,
    beta: float,
    fading: bool,
    battery: Battery | None,
    how: str,
    count: int,
) -> Outcome:
    peaks = [FADE * rate for rate in RATES] if fading else RATES
    options = {"shared": how == "shared"}
    options |= {"battery": battery} if battery else {}
    options |= {"wait_most": WAIT} if how == "hurried" else {}
    uplink = POLICIES[name](4, V=V, beta=beta, most=MOST, peaks=peaks, **options)
    harvest: list[list[float] | None] = [None] * count
    if battery:
        rng = np.random.default_rng(1)
        harvest = rng.uniform(0, battery.harvest_most, (count, 4)).tolist()
    fair = isinstance(uplink, Uplink)
    slots, seen = [], []
    for offered, rates, on_offer in zip(*weather(fading, count), harvest, strict=True):
        slots.append(uplink.slot(offered, rates, on_offer))
        more = (uplink.virtual, uplink.batteries) if fair else ()
        seen.append((uplink.queues, *more))
    queues, *others = (np.array(states) for states in zip(*seen, strict=True))
    assert max(sum(slot.shares) for slot in slots) <= 1.0 + 1e-12
    if fair:  # what must hold in every slot
        virtual, levels = others
        assert queues.max() <= uplink.most_queue
        assert virtual.max() <= uplink.most_virtual
        assert levels.min(initial=0.0) >= 0.0
        if battery:
            assert (levels <= np.add(uplink.perturbation, battery.harvest_most)).all()
    kept = slots[count // 5 :]
    return Outcome(
        admitted=np.mean([slot.admitted for slot in kept], axis=0).tolist(),
        sent=np.mean([slot.sent for slot in kept], axis=0).tolist(),
        backlog=float(queues[count // 5 :].sum(axis=1).mean()),
        most_queue=float(queues.max()),
        most_virtual=float(others[0].max()) if fair else math.nan,
        most_energy=tuple(others[1].max(axis=0)) if battery else (),
        scheduled=sum(len(slot.scheduled) for slot in slots),
        short=sum(len(slot.short) for slot in slots),
    )


def run(
    name: str = "fair",
    V: float = 20.0,
    beta: float = 1.0,
    fading: bool = False,
    battery: Battery | None = None,
    how: str = "alone",
    slots: int = SLOTS,
) -> Outcome:
    """Play many slots; the first worker in line has a slot for itself (`alone`)."""
    return play(name, V, beta, fading, battery, how, slots)


# One slot


def test_the_first_slot_admits_everything_and_sends_nothing() -> None:
    uplink = Uplink(2, V=10.0, most=4.0, peaks=(1.0, 8.0))
    slot = uplink.slot([4.0, 3.0], [1.0, 8.0])
    assert slot == Slot((4.0, 3.0), (0.0, 0.0), (0.0, 0.0), ())
    assert (uplink.queues, uplink.virtual) == ((4.0, 3.0), (0.0, 1.0))


def test_the_largest_weight_is_served_first_and_the_rest_of_the_slot_handed_on() -> (
    None
):
    uplink = Uplink(3, V=10.0, most=4.0, peaks=(1.0, 8.0, 8.0))
    uplink.slot([4.0, 4.0, 1.0], [0.0, 0.0, 0.0])
    slot = uplink.slot([4.0, 4.0, 4.0], [1.0, 8.0, 8.0])  # weights 4, 32, 8
    assert slot.scheduled == (1, 2, 0)
    assert slot.shares == (0.375, 0.5, 0.125)
    assert slot.sent == (0.375, 4.0, 1.0)
    assert slot.admitted == (0.0, 0.0, 4.0)  # by Q <= H: 4 > 0, 4 > 0, 1 <= 3


def test_a_slot_that_is_not_shared_is_all_for_the_first() -> None:
    uplink = Uplink(2, V=10.0, most=4.0, peaks=(1.0, 8.0), shared=False)
    uplink.slot([4.0, 4.0], [0.0, 0.0])
    slot = uplink.slot([0.0, 0.0], [1.0, 8.0])
    assert (slot.scheduled, slot.shares) == ((1,), (0.0, 0.5))


def test_the_aim_is_everything_at_first_and_nothing_once_enough_is_owed() -> None:
    uplink = Uplink(1, V=2.0, beta=2.0, most=1.0, peaks=(1.0,))
    owed = [0.0]
    for _ in range(500):
        uplink.slot([0.0], [1.0])
        owed.append(uplink.virtual[0])
    gains = [later - before for before, later in pairwise(owed)]
    assert gains[0] == gains[1] == 1.0  # 2 / 1 - 1 / 2 is more than is ever offered
    assert gains[2] == 0.5  # 2 / 2 - 1 / 2
    assert owed[-1] == pytest.approx(4.0)


def test_the_bound_of_the_queues_is_reached_where_utility_weighs_nothing() -> None:
    uplink = Uplink(1, V=1e-9, most=MOST, peaks=(1.0,))
    for _ in range(4):
        uplink.slot([MOST], [0.0])
    assert uplink.queues == (2 * MOST,)
    assert uplink.queues[0] <= uplink.most_queue < 2 * MOST + 1e-8


def test_nobody_sends_at_rate_0_or_without_data() -> None:
    for name, make in POLICIES.items():
        uplink = make(3, V=1.0, beta=1.0, most=1.0, peaks=(9.0, 9.0, 9.0))
        uplink.slot([1.0, 0.0, 1.0], [9.0, 9.0, 9.0])
        assert uplink.slot([0.0] * 3, [0.0, 9.0, 1.0]).scheduled == (2,), name


@pytest.mark.parametrize(
    ("battery", "line"),
    [
        (None, [1, 1, 1, 0, 1, 1, 1, 0, 1]),
        (Battery(1.0, 2.0, perturbation=0.0), [1, 1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_who_waited_too_long_goes_first_if_its_battery_lasts(
    battery: Battery | None, line: list[int]
) -> None:
    uplink = Uplink(
        2,
        V=100.0,
        most=8.0,
        peaks=(1.0, 8.0),
        shared=False,
        battery=battery,
        wait_most=3,
    )
    sun = None if battery is None else [0.0, 2.0]
    uplink.slot([2.0, 8.0], [1.0, 1.0], sun)
    slots = [uplink.slot([0.0, 8.0], [1.0, 1.0], sun) for _ in range(9)]
    assert [slot.scheduled[0] for slot in slots] == line


# Any slots at all

BITS = st.floats(0, MOST) | st.sampled_from([0.0, MOST])
SLOT = st.tuples(
    st.lists(BITS, min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.none() | st.tuples(st.integers(0, 2), BITS),
)
SIZES = st.floats(1e-3, 1e3)


@pytest.mark.hypothesis
@given(
    slots=st.lists(SLOT, max_size=60),
    V=SIZES,
    beta=SIZES,
    peaks=st.lists(SIZES, min_size=3, max_size=3),
    battery=st.none() | st.builds(Battery, power=SIZES, harvest_most=SIZES),
    options=st.fixed_dictionaries(
        {"shared": st.booleans(), "wait_most": st.none() | st.integers(1, 9)}
    ),
)
def test_whatever_is_offered_at_whatever_rates_the_bounds_hold(
    slots: list, V: float, beta: float, peaks: list, battery: Battery, options: dict
) -> None:
    uplink = Uplink(
        3, V=V, beta=beta, most=MOST, peaks=peaks, battery=battery, **options
    )
    assert uplink.most_queue == pytest.approx(V * beta + 2 * MOST)
    assert uplink.most_virtual == pytest.approx(V * beta + MOST)
    energy = [battery.harvest_most] * 3 if battery else []
    for offered, good, sun, withdrawn in slots:
        rates = [g * peak for g, peak in zip(good, peaks, strict=True)]
        harvest = [s * e for s, e in zip(sun, energy, strict=True)] if battery else None
        before = uplink.queues
        slot = uplink.slot(offered, rates, harvest)
        assert sum(slot.shares) <= 1.0 + 1e-12
        assert max(uplink.queues) <= uplink.most_queue
        assert max(uplink.virtual) <= uplink.most_virtual
        assert not slot.short
        for level, full, more in zip(
            uplink.batteries, uplink.perturbation, energy, strict=True
        ):
            assert 0.0 <= level <= full + more
        for i in range(3):
            assert slot.admitted[i] in (0.0, offered[i])
            assert 0.0 <= slot.sent[i] <= before[i]
            assert slot.sent[i] == pytest.approx(slot.shares[i] * rates[i])
            assert uplink.queues[i] == before[i] - slot.sent[i] + slot.admitted[i]
        if withdrawn:
            uplink.withdraw(*withdrawn)
            assert min(uplink.queues) >= 0.0


# Rates that never change


@pytest.mark.parametrize(
    ("V", "reached", "backlog", "most_queue", "most_virtual"),
    [
        (5, 2.19722, 24.0, 8, 5),
        (20, 2.67350, 50.2, 20, 20),
        (50, 2.71483, 118.1, 52, 50),
        (100, 2.73664, 235.9, 100, 100),
        (200, 2.74125, 474.1, 200, 200),
    ],
)
def test_static_rates_give_the_known_utilities_and_queues(
    V: float, reached: float, backlog: float, most_queue: float, most_virtual: float
) -> None:
    found = run(V=V)
    assert utility(found.admitted) == pytest.approx(reached, abs=2e-4)
    assert found.backlog == pytest.approx(backlog, rel=2e-3)
    assert found.most_queue == most_queue
    assert found.most_virtual == pytest.approx(most_virtual)
    assert found.gap <= gap_bound(V, MOST, RATES)
    if V >= 20:
        assert 0.9 <= V * found.gap <= 2.1


def test_ten_times_the_weight_costs_queues_and_gains_utility() -> None:
    assert run(V=20).gap >= 4 * run(V=200).gap
    assert 7 <= run(V=200).backlog / run(V=20).backlog <= 12


def test_what_is_admitted_is_delivered() -> None:
    found = run(V=200)
    np.testing.assert_allclose(found.sent, found.admitted, atol=200 / (0.8 * SLOTS))


def test_handing_on_the_rest_of_a_slot_does_not_hurt() -> None:
    assert utility(run(V=5, how="shared", slots=FEW).admitted) >= 2.6  # 2.197 if not
    shared, alone = run(V=20, how="shared", slots=FEW), run(V=20)
    assert utility(shared.admitted) >= utility(alone.admitted) - 1e-4


def test_a_longest_wait_costs_little_and_serves_everybody() -> None:
    hurried, free = run(V=100, how="hurried", slots=2 * FEW), run(V=100)
    assert free.sent[0] == 0.0
    assert hurried.sent[0] >= RATES[0] / (WAIT + 4)
    lost = utility(free.admitted) - utility(hurried.admitted)
    assert lost <= 0.005  # of 2.737: a slot in 400 is for the slowest


@pytest.mark.parametrize(
    ("name", "reached", "left"),
    [
        ("max_rate", 1.609, 12.0),
        ("round_robin", 2.420, 12.25),
        ("longest_queue", 1.710, 13.867),
        ("max_weight", 2.702, 10.667),
    ],
)
def test_rivals_give_the_known_utilities_and_their_queues_grow(
    name: str, reached: float, left: float
) -> None:
    found = run(name, slots=FEW)
    assert utility(found.sent) == pytest.approx(reached, abs=1e-3)
    assert utility(found.sent) < utility(run(V=50).sent)
    middle = 0.6 * FEW  # of the slots that count
    assert found.backlog == pytest.approx(left * middle, rel=2e-3)


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (1.0, (0.0, 0.31, 1.69, 3.38)),
        (5.0, (0.14, 0.49, 1.20, 2.50)),
        (20.0, (0.22, 0.50, 1.05, 2.12)),
    ],
)
def test_beta_sets_how_fair_it_is(beta: float, expected: tuple[float, ...]) -> None:
    found = run(V=100, beta=beta)
    np.testing.assert_allclose(found.admitted, expected, atol=0.02)
    best = utility(static_optimum(RATES, MOST, beta), beta)
    assert best - utility(found.admitted, beta) <= gap_bound(100, MOST, RATES)


def test_a_large_beta_is_much_fairer_than_serving_the_best_rate() -> None:
    fair, best = run(V=100, beta=20.0), run("max_rate", slots=FEW)
    assert jain(best.sent) == pytest.approx(0.25)
    assert jain(fair.sent) >= jain(best.sent) + 0.2


# Rates that fade. The tolerances are four standard deviations over seeds, or more.


@pytest.mark.parametrize(
    ("V", "reached", "throughput", "backlog"),
    [
        (5, 2.237, 3.19, 16),
        (20, 2.765, 4.28, 39),
        (50, 3.088, 5.03, 82),
        (200, 3.312, 5.55, 289),
    ],
)
def test_fading_rates_give_the_known_utilities(
    V: float, reached: float, throughput: float, backlog: float
) -> None:
    found = run(V=V, fading=True, slots=2 * FEW)
    assert utility(found.admitted) == pytest.approx(reached, abs=0.04)
    assert sum(found.admitted) == pytest.approx(throughput, abs=0.1)
    assert found.backlog == pytest.approx(backlog, rel=0.03)
    assert 0.78 <= jain(found.admitted) <= 0.84


@pytest.mark.parametrize(
    ("name", "reached", "throughput", "index", "noise"),
    [
        ("max_rate", 2.625, 4.51, 0.62, 0.05),
        ("round_robin", 2.335, 3.56, 0.66, 0.09),
        ("max_weight", 3.295, 5.37, 0.87, 0.05),
    ],
)
def test_fading_rates_give_the_known_figures_of_rivals(
    name: str, reached: float, throughput: float, index: float, noise: float
) -> None:
    found = run(name, fading=True, slots=2 * FEW)
    assert utility(found.sent) == pytest.approx(reached, abs=noise)
    assert sum(found.sent) == pytest.approx(throughput, abs=2.4 * noise)
    assert jain(found.sent) == pytest.approx(index, abs=0.025)
    fair = run(V=200, fading=True, slots=2 * FEW)
    assert found.backlog > 10 * fair.backlog
    assert jain(fair.sent) > jain(run("max_rate", fading=True, slots=2 * FEW).sent)


# Batteries


def test_the_perturbation_is_what_a_full_queue_needs() -> None:
    uplink = Uplink(4, V=5.0, most=MOST, peaks=RATES, battery=Battery(1.0, 0.3))
    assert uplink.perturbation == (14.0, 27.0, 53.0, 105.0)
    uneven = Battery([1.0, 2.0, 4.0, 8.0], 0.3)
    uplink = Uplink(4, V=5.0, most=MOST, peaks=RATES, battery=uneven)
    assert uplink.perturbation == (14.0, 15.0, 17.0, 21.0)


@pytest.mark.parametrize(("V", "most_queue"), [(5, 8), (20, 23), (50, 52)])
def test_with_the_perturbation_no_battery_is_ever_short(
    V: float, most_queue: float
) -> None:
    battery = Battery(power=1.0, harvest_most=0.3)
    found = run(V=V, battery=battery)
    assert found.short == 0
    assert found.scheduled > SLOTS / 2
    # The energy on offer lasts for 0.15 of the time, to 4 standard errors of its mean.
    best = utility(static_optimum(RATES, [0.15 * rate for rate in RATES]))
    assert best == pytest.approx(1.6606, abs=1e-4)
    assert utility(found.admitted) == pytest.approx(best, abs=0.01)
    assert found.most_queue == most_queue
    for level, rate in zip(found.most_energy, RATES, strict=True):
        assert level < 1.0 + (V + 2 * MOST) * rate


def test_without_perturbation_every_worker_scheduled_is_short() -> None:
    found = run(V=5, battery=Battery(1.0, 0.3, perturbation=0.0), slots=FEW)
    assert found.short == found.scheduled == FEW - 1
    assert utility(found.admitted) == 0.0


def test_too_small_a_perturbation_leaves_the_slowest_out() -> None:
    found = run(V=20, battery=Battery(1.0, 0.3, perturbation=5.0), slots=FEW)
    assert found.short == pytest.approx(0.9 * FEW, rel=0.05)
    np.testing.assert_allclose(found.sent[:2], 0.0, atol=1e-3)
    assert min(found.sent[2:]) > 0.3


def test_a_worker_that_is_short_sends_for_as_long_as_its_battery_lasts() -> None:
    battery = Battery(power=2.0, harvest_most=1.0, perturbation=1.0)
    uplink = Uplink(2, V=5.0, most=4.0, peaks=(4.0, 4.0), battery=battery)
    assert uplink.slot([4.0, 4.0], [4.0, 4.0], [0.5, 1.0]).harvested == (0.5, 1.0)
    slot = uplink.slot([0.0, 0.0], [4.0, 4.0], [0.5, 0.5])
    assert slot.scheduled == slot.short == (1, 0)  # weights 16 and 15
    assert slot.shares == (0.25, 0.5)
    assert slot.sent == (1.0, 2.0)
    assert slot.harvested == (0.5, 0.0)  # the second was full when the slot began
    assert uplink.batteries == (0.5, 0.0)


# Bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workers": 0}, "workers is 0; try 1 or more"),
        ({"V": 0.0}, "V is 0.0; try a number greater than 0"),
        ({"beta": -1.0}, "beta is -1.0"),
        ({"most": math.nan}, "most is nan"),
        ({"peaks": (1.0,)}, "peaks has 1 numbers for 2 workers; try 2 numbers"),
        ({"peaks": (1.0, math.inf)}, r"peaks\[1\] is inf"),
        ({"wait_most": 0}, "wait_most is 0; try 1 or more slots"),
        ({"battery": Battery(0.0, 1.0)}, r"power\[0\] is 0.0"),
        ({"battery": Battery([1.0], 1.0)}, "power has 1 numbers"),
        ({"battery": Battery(1.0, -1.0)}, "harvest_most is -1.0"),
        ({"battery": Battery(1.0, 1.0, -2.0)}, "perturbation of worker 0 is -2.0"),
    ],
)
def test_parameters_that_cannot_be_are_refused(change: dict, words: str) -> None:
    good = {"workers": 2, "V": 1.0, "most": 1.0, "peaks": (1.0, 2.0)}
    with pytest.raises(InvalidOptions, match=words):
        Uplink(**good | change)


@pytest.mark.parametrize("name", POLICIES)
def test_a_slot_beyond_the_bounds_is_refused_and_changes_nothing(name: str) -> None:
    uplink = POLICIES[name](2, V=1.0, beta=1.0, most=1.0, peaks=(1.0, 2.0))
    for offered, rates, harvest, words in (
        ([1.5, 0.0], [0.0, 0.0], None, "offered of worker 0 is 1.5; try a number from"),
        ([1.0], [0.0, 0.0], None, "offered has 1 numbers for 2 workers"),
        ([1.0, 1.0], [1.0, 2.5], None, "rates of worker 1 is 2.5"),
        ([1.0, 1.0], [math.nan, 2.0], None, "rates of worker 0 is nan"),
        ([1.0, 1.0], [1.0, 2.0], [0.0, 0.0], "harvest is given"),
    ):
        with pytest.raises(InvalidOptions, match=words):
            uplink.slot(offered, rates, harvest)
    with pytest.raises(InvalidOptions, match="bits is -1"):
        uplink.withdraw(0, -1.0)
    assert uplink.queues == (0.0, 0.0)


def test_a_slot_of_a_battery_needs_to_know_the_harvest() -> None:
    uplink = Uplink(1, V=1.0, most=1.0, peaks=(1.0,), battery=Battery(1.0, 0.5))
    with pytest.raises(InvalidOptions, match="harvest is missing; try the energy"):
        uplink.slot([1.0], [1.0])
    with pytest.raises(InvalidOptions, match=r"harvest of worker 0 is 0\.6"):
        uplink.slot([1.0], [1.0], [0.6])
