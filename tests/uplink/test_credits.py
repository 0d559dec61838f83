"""Whole messages over an uplink: each is delivered once, in order, bit by bit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.errors import InvalidOptions, ProtocolError
from codedgrad.uplink.batteries import Battery
from codedgrad.uplink.credits import Credits
from codedgrad.uplink.fair import Uplink
from codedgrad.uplink.rivals import POLICIES

WORKERS = 3
MOST = 4.0
LEAST, PEAK = 0.25, 8.0  # bits per slot

rates = st.lists(st.floats(LEAST, PEAK), min_size=WORKERS, max_size=WORKERS)
faint = st.lists(
    st.just(0.0) | st.floats(LEAST, PEAK), min_size=WORKERS, max_size=WORKERS
)
sizes = st.floats(1e-3, 50.0) | st.integers(1, 50).map(float)
actions = st.one_of(
    st.tuples(st.just("offer"), st.integers(0, WORKERS - 1), sizes),
    st.tuples(st.just("withdraw"), st.integers(0, 30)),
    st.tuples(st.just("advance"), faint),
)


class Run:
    """Credits over a policy, with an account of every bit."""

    def __init__(self, name: str, V: float, shared: bool) -> None:
        self.policy = POLICIES[name](
            WORKERS, V=V, beta=1.0, most=MOST, peaks=[PEAK] * WORKERS, shared=shared
        )
        self.credits = Credits[int](self.policy)
        self.offered: dict[int, tuple[int, float]] = {}
        self.withdrawn: dict[int, float] = {}
        self.delivered: list[int] = []
        self.sent = 0.0
        plain = self.policy.slot

        def counted(*given: object) -> object:
            slot = plain(*given)
            self.sent += math.fsum(slot.sent)
            return slot

        self.policy.slot = counted

    def act(self, action: tuple) -> None:
        match action:
            case "offer", worker, size:
                key = len(self.offered)
                self.offered[key] = worker, size
                self.credits.offer(worker, key, size)
            case "withdraw", key:
                vanished = self.credits.withdraw(key)
                if vanished:
                    self.withdrawn[key] = vanished
            case "advance", speeds:
                self.delivered += self.credits.advance(speeds)
        if isinstance(self.policy, Uplink):
            assert max(self.policy.queues) <= self.policy.most_queue
            assert max(self.policy.virtual) <= self.policy.most_virtual

    def size(self, keys: object) -> float:
        return math.fsum(self.offered[key][1] for key in keys)


@pytest.mark.hypothesis
@given(
    name=st.sampled_from(list(POLICIES)),
    V=st.floats(0.01, 100),
    shared=st.booleans(),
    stream=st.lists(actions, max_size=40),
    speeds=rates,
)
def test_all_that_is_offered_and_not_withdrawn_is_delivered_once_and_in_order(
    name: str, V: float, shared: bool, stream: list, speeds: list[float]
) -> None:
    run = Run(name, V, shared)
    for action in stream:
        run.act(action)
    bits, left = sum(run.credits.backlogs), len(run.offered) - len(run.delivered)
    # A slot sends at the least rate, or empties a queue that was filled once more.
    for _ in range(math.ceil(bits / LEAST + 2 * (bits / MOST + left)) + 3):
        if run.credits.is_idle:
            break
        run.act(("advance", speeds))
    assert run.credits.is_idle
    assert sum(run.credits.backlogs) == 0.0
    assert not run.withdrawn.keys() & set(run.delivered)
    assert sorted([*run.delivered, *run.withdrawn]) == list(run.offered)
    for worker in range(WORKERS):
        own = [key for key in run.delivered if run.offered[key][0] == worker]
        assert own == sorted(own)
    in_vain = run.size(run.withdrawn) - math.fsum(run.withdrawn.values())
    assert run.sent == pytest.approx(run.size(run.delivered) + in_vain, abs=1e-6)
    assert max(run.policy.queues) <= 1e-6


@pytest.mark.parametrize("name", POLICIES)
def test_a_message_arrives_with_its_last_bit(name: str) -> None:
    run = Run(name, V=100.0, shared=True)
    run.act(("offer", 1, 8.0))
    run.act(("offer", 1, 1.0))
    arrivals = []
    for _ in range(8):
        run.act(("advance", [2.0] * WORKERS))
        arrivals.append(len(run.delivered))
    # The first slot admits 4 of the 9 bits; from then on 2 leave in each.
    assert arrivals == [0, 0, 0, 0, 1, 2, 2, 2]


def test_messages_delivered_in_one_slot_are_told_in_the_order_of_sending() -> None:
    credits = Credits[str](Uplink(3, V=10.0, most=4.0, peaks=[8.0] * 3))
    for worker, (name, size) in enumerate([("a", 1.0), ("b", 2.0), ("c", 1.0)]):
        credits.offer(worker, name, size)
    assert credits.advance([8.0] * 3) == []
    assert credits.advance([8.0] * 3) == ["b", "a", "c"]


def test_what_is_withdrawn_leaves_the_queue_and_makes_room() -> None:
    policy = Uplink(2, V=10.0, most=4.0, peaks=[2.0, 2.0])
    credits = Credits[str](policy)
    credits.offer(0, "late", 10.0)
    credits.offer(0, "next", 1.0)
    credits.advance([2.0, 2.0])
    credits.advance([2.0, 2.0])
    assert policy.queues[0] == 2.0  # 4 were admitted, 2 of them sent
    assert credits.waiting(0) == ("late", "next")
    assert credits.withdraw("late") == 8.0
    assert policy.queues[0] == 0.0
    assert credits.waiting(0) == ("next",)
    assert credits.withdraw("late") == 0.0  # nothing is left of it
    assert [credits.advance([2.0, 2.0]) for _ in range(2)] == [[], ["next"]]
    assert credits.withdraw("next") == 0.0  # it has arrived
    credits.offer(0, "late", 1.0)  # a name is free again
    assert not credits.is_idle


def test_a_message_that_rounding_swallowed_is_delivered_all_the_same() -> None:
    policy = POLICIES["max_rate"](1, V=1.0, beta=1.0, most=1e9, peaks=[1e9])
    credits = Credits[str](policy)
    credits.offer(0, "large", 1e9)
    assert credits.advance([0.0]) == []
    credits.offer(0, "small", 1e-8)
    assert credits.advance([0.0]) == []
    assert policy.queues == (1e9,)  # plus 1e-8
    credits.withdraw("large")
    assert credits.advance([1e9]) == ["small"]
    assert credits.is_idle


def busy(credits: Credits[int], peaks: list[float], slots: int) -> bool:
    """Whether message 0 is delivered while all others keep offering."""
    for slot in range(slots):
        for worker in (1, 2, 3):
            credits.offer(worker, 3 * slot + worker, size=4.0)
        if 0 in credits.advance(peaks):
            return True
    return False


@pytest.mark.parametrize("beta", [1.0, 20.0])
def test_under_endless_traffic_a_longest_wait_is_what_brings_the_last_bits_home(
    beta: float,
) -> None:
    peaks, size = [1.0, 2.0, 4.0, 8.0], 40.0
    free = Uplink(4, V=10.0, beta=beta, most=4.0, peaks=peaks)
    credits = Credits[int](free)
    credits.offer(0, 0, size)
    assert not busy(credits, peaks, slots=2000)
    for worker in (1, 2, 3):  # the others stop
        for key in credits.waiting(worker):
            credits.withdraw(key)
    assert any(0 in credits.advance(peaks) for _ in range(50))

    hurried = Uplink(4, V=10.0, beta=beta, most=4.0, peaks=peaks, wait_most=20)
    credits = Credits[int](hurried)
    credits.offer(0, 0, size)
    assert busy(credits, peaks, slots=(20 + 4) * 40)  # a bit every time


def test_messages_arrive_on_harvested_energy_too() -> None:
    battery = Battery(power=1.0, harvest_most=0.3)
    uplink = Uplink(2, V=1.0, most=1.0, peaks=[2.0, 4.0], battery=battery)
    credits = Credits[str](uplink)
    credits.offer(0, "a", 6.0)
    credits.offer(1, "b", 6.0)
    heard = []
    for _ in range(200):
        heard += credits.advance([2.0, 4.0], harvest=[0.3, 0.3])
    assert sorted(heard) == ["a", "b"]


def test_offers_that_cannot_be_are_refused() -> None:
    credits = Credits[str](Uplink(2, V=1.0, most=1.0, peaks=[1.0, 1.0]))
    credits.offer(0, "a", 1.0)
    with pytest.raises(ProtocolError, match="message 'a' is offered, and it waits"):
        credits.offer(1, "a", 1.0)
    with pytest.raises(InvalidOptions, match="size is 0"):
        credits.offer(1, "b", 0)
    with pytest.raises(InvalidOptions, match="no worker 2; try a worker from 0 to 1"):
        credits.offer(2, "b", 1.0)
    assert credits.waiting(1) == ()
