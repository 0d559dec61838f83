"""A few at a time, in order, and nobody waits behind a slow link."""

from typing import NamedTuple

from codedgrad.engines.remote.port import FairPort, Port
from codedgrad.uplink import Link


class Item(NamedTuple):
    sender: int
    key: int


def of(*senders: int) -> list[Item]:
    return [Item(sender, key) for key, sender in enumerate(senders)]


def filled(width: int, items: list[Item]) -> Port[Item]:
    port = Port[Item](width=width)
    for item in items:
        port.put(item)
    return port


def learnt(port: Port[Item], sender: int, seconds: float) -> None:
    """Let something come in that takes so long."""
    item = Item(sender, key=1000 + sender)
    port.put(item)
    assert port.admit(0.0) == [item]
    port.done(item, seconds)


def test_a_few_are_let_in_at_a_time_in_the_order_in_which_they_came() -> None:
    a, b, c, d = items = of(3, 2, 1, 0)
    port = filled(2, items)
    assert port.admit(0.0) == [a, b]
    assert port.admit(0.001) == []
    port.done(a, 0.002)
    assert port.admit(0.002) == [c]
    port.done(b, 0.003)
    port.done(c, 0.003)
    assert port.admit(0.003) == [d]
    assert port.admit(0.003) == []


def test_of_one_sender_one_thing_is_on_its_way_at_a_time() -> None:
    a, b, c = items = of(0, 0, 1)
    port = filled(4, items)
    assert port.admit(0.0) == [a, c]
    assert port.admit(99.0) == []  # however slow it is
    port.done(a, 99.0)
    assert port.admit(99.0) == [b]


def test_one_on_a_slow_link_does_not_keep_others_out() -> None:
    port = Port[Item](width=1)
    for sender in range(8):
        learnt(port, sender, 0.010)
    slow, other = items = of(0, 1)
    port.put(slow)
    assert port.admit(1.0) == [slow]
    port.put(other)
    assert port.admit(1.025) == []
    again = port.look_again(1.025)
    assert again == 1.0 + port.usual
    assert port.admit(again) == [other]  # at that moment, not after it
    assert len(items) == 2


def test_who_was_slow_last_time_comes_after_all_others() -> None:
    port = Port[Item](width=1)
    for sender in range(4):
        learnt(port, sender, 0.5 if sender == 1 else 0.010)
    a, b, c = of(1, 2, 3)
    for item in (a, b, c):
        port.put(item)
    order = []
    for _ in range(3):
        (item,) = port.admit(1.0)
        order.append(item)
        port.done(item, 1.01)
    assert order == [b, c, a]
    port.put(a)
    port.put(b)
    assert port.admit(2.0) == [a]  # it was not slow this time


def test_nobody_looks_again_where_nobody_waits() -> None:
    port = Port[Item](width=1)
    assert port.look_again(0.0) is None
    a, b, again = of(0, 1, 0)
    port.put(a)
    port.admit(0.0)
    assert port.look_again(0.0) is None
    port.put(again)
    assert port.look_again(0.0) is None  # its sender has something on its way
    port.put(b)
    assert port.look_again(0.0) is not None


def test_one_looks_again_later_and_not_at_once_because_of_somebody_who_is_late() -> (
    None
):
    port = Port[Item](width=1)
    for sender in range(8):
        learnt(port, sender, 0.010)
    a, b, c = of(0, 1, 2)
    for item in (a, b, c):
        port.put(item)
    assert port.admit(1.0) == [a]
    assert port.admit(2.0) == [b]  # a is late
    again = port.look_again(2.0)
    assert again == 2.0 + port.usual
    assert port.admit(again) == [c]
    assert port.look_again(again) is None


def test_those_who_wait_can_be_sent_away_and_those_inside_stay() -> None:
    a, _, c, _ = items = of(0, 1, 2, 3)
    wanted = [*items]
    port = Port[Item](wanted.__contains__, width=1)
    for item in items:
        port.put(item)
    assert port.admit(0.0) == [a]
    wanted[:] = [c]
    port.done(a, 0.001)
    assert port.admit(0.001) == [c]
    port.done(c, 0.002)
    assert port.admit(0.002) == []


def test_what_nobody_let_in_is_not_counted_as_done() -> None:
    port = Port[Item]()
    before = port.usual
    port.done(Item(0, 7), 100.0)
    assert port.usual == before


class Wanted(set[Item]):
    """The items of a step that is not over; called as a port does."""

    def __call__(self, item: Item) -> bool:
        return item in self


def served(port: Port[Item], wanted: Wanted, rounds: int) -> list[int]:
    """Let one of three in per round, all of whom always want to; return how often."""
    times = [0, 0, 0]
    for round_ in range(rounds):
        for sender in range(3):
            item = Item(sender, 3 * round_ + sender)
            wanted.add(item)
            port.put(item)
        for item in port.admit(float(round_)):
            times[item.sender] += 1
            port.done(item, round_ + 0.001)
        wanted.clear()  # the step is over
    return times


def test_a_fair_port_gives_all_their_turn_where_the_first_would_have_them_all() -> None:
    wanted = Wanted()
    assert served(Port[Item](wanted, width=1), wanted, 30) == [30, 0, 0]
    fair = FairPort[Item](Link("fair"), 3, wanted)
    assert min(served(fair, wanted, 30)) >= 8


def test_a_fair_port_starves_nobody_however_slow_and_treats_equals_alike() -> None:
    seconds = (1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.0)
    wanted = Wanted()
    fair = FairPort[Item](Link("fair", seconds=seconds), 8, wanted)
    heard, now, key = [0] * 8, 0.0, 0
    for _ in range(400):
        for sender in range(8):
            key += 1
            wanted.add(Item(sender, key))
            fair.put(Item(sender, key))
        for _ in range(4):  # a step takes four, and calls the others off
            (item,) = fair.admit(now)
            now += seconds[item.sender]
            fair.done(item, now)
            heard[item.sender] += 1
        wanted.clear()
    assert min(heard[:4]) > 0.8 * max(heard[:4])
    assert min(heard[4:]) > 0.8 * max(heard[4:])
    assert 4 <= heard[0] / heard[4] < 20


def test_a_fair_port_lets_everything_in_that_is_not_called_off() -> None:
    fair = FairPort[Item](Link("fair", seconds=(1.0, 2.0, 4.0)), workers=3)
    items = of(0, 1, 2, 0, 1, 2)
    for item in items:
        fair.put(item)
    came = []
    for _ in range(6):
        for item in fair.admit(0.0):
            came.append(item)
            fair.done(item, 0.001)
    assert sorted(came) == sorted(items)
