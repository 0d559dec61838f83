"""Ports that take one message at a time, and parameters on their way down."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedgrad.codes.tree import ROOT
from codedgrad.core import Command, Event, MessageArrived, Progressed
from codedgrad.delays import GRID, Times, on_grid
from codedgrad.errors import InvalidScenario
from codedgrad.network import Downlink
from codedgrad.schemes import coded_reduce, fractional, uncoded
from codedgrad.sim import Machine, Network, Outcome, Simulator, run_events
from codedgrad.sim.arrays.ports import received
from codedgrad.uplink import Link

LINK_FOR_TWO = Link("fair", slot=0.5, seconds=(1.0, 1.0))


class Seen:
    """What a run shows to whoever watches it."""

    def __init__(self, scheme: Any, times: Times, machine: Machine) -> None:
        self.events: list[Event] = []
        self.outcome: Outcome = run_events(scheme, times, machine, watch=self._see)

    def _see(self, event: Event, commands: list[Command]) -> None:
        self.events.append(event)

    def received(self) -> dict[int, float]:
        """When the last message of each worker was received."""
        found = [e for e in self.events if isinstance(e, MessageArrived)]
        return {event.worker: event.at for event in found}

    def first_parts(self) -> dict[int, float]:
        """When each worker was done with its first part."""
        found = [e for e in self.events if isinstance(e, Progressed)]
        return {event.worker: event.at for event in reversed(found)}


def ready_at(*rows: list[float]) -> Times:
    """Times of workers whose sums are ready so long after the start of each step."""
    fixed = np.array(rows)
    return Times(fixed, np.zeros_like(fixed))


def at_once(network: Network) -> Machine:
    return Machine(drain=False, network=network)


# -- ports -----------------------------------------------------------------------------


moments = st.floats(0.0, 8.0) | st.integers(0, 8).map(float)


@settings(max_examples=60)
@given(st.lists(moments, min_size=1, max_size=9), moments, moments)
@pytest.mark.hypothesis
def test_messages_are_received_as_the_closed_form_says(
    ready: list[float], port: float, latency: float
) -> None:
    network = Network(port, latency)
    times = ready_at(ready)
    seen = Seen(uncoded(len(ready)), times, at_once(network))
    y = sorted(times.fixed[0].tolist())
    t_c, t_l, K = network.seconds(ROOT), network.latency, len(y)
    each = [max(y[j] + t_l + (k - j + 1) * t_c for j in range(k + 1)) for k in range(K)]
    assert sorted(seen.received().values()) == each
    assert seen.outcome.seconds.tolist() == [each[-1]]
    assert sorted(received(times.fixed, t_c, t_l)[0].tolist()) == each


def test_messages_are_taken_in_the_order_in_which_they_are_ready() -> None:
    times = ready_at([3.0, 0.0, 0.5])
    seen = Seen(uncoded(3), times, at_once(Network(port=1.0)))
    assert seen.received() == {1: 1.0, 2: 2.0, 0: 4.0}
    assert received(times.fixed[0], 1.0).tolist() == [4.0, 1.0, 2.0]


def test_what_is_never_ready_is_never_received() -> None:
    arrivals = received(np.array([math.inf, 1.0, math.inf]), port=2.0, latency=1.0)
    assert arrivals.tolist() == [math.inf, 4.0, math.inf]


def test_latency_does_not_occupy_the_port() -> None:
    times = ready_at([0.0, 0.0, 0.5])
    seen = Seen(uncoded(3), times, at_once(Network(port=1.0, latency=5.0)))
    assert sorted(seen.received().values()) == [6.0, 7.0, 8.0]
    none = Seen(uncoded(3), times, at_once(Network(latency=5.0)))
    assert none.received() == {0: 5.0, 1: 5.0, 2: 5.5}


def test_every_node_has_a_port_of_its_own() -> None:
    ports = (4.0, 1.0, 2.0, *(64.0 for _ in range(4)))  # the root's first
    scheme = coded_reduce(6, 2, 0)
    seen = Seen(scheme, ready_at([0.0] * 6), at_once(Network(ports)))
    assert seen.received() == {2: 1.0, 3: 2.0, 4: 2.0, 5: 4.0, 0: 6.0, 1: 10.0}
    assert seen.outcome.seconds.tolist() == [10.0]


def test_who_receives_can_compute_at_the_same_time() -> None:
    scheme = coded_reduce(6, 2, 0)
    slow_above = ready_at([7.0, 9.0, 1.0, 1.0, 1.0, 1.0])
    seen = Seen(scheme, slow_above, at_once(Network(port=1.0)))
    assert seen.outcome.seconds.tolist() == [10.0]  # as if they had not received


# -- steps that are over ---------------------------------------------------------------


@pytest.mark.parametrize(("drain", "second"), [(False, 5.0), (True, 8.0)])
def test_a_message_of_a_step_that_is_over_is_received_only_where_workers_drain(
    drain: bool, second: float
) -> None:
    # The second message is begun with at 5, when the step ends: until 9, if at all.
    # The third waits then, and is received by nobody.
    times = ready_at([1.0] * 3, [1.0] * 3)
    machine = Machine(drain=drain, network=Network(port=4.0))
    outcome = run_events(fractional(3, 2), times, machine)
    assert outcome.seconds.tolist() == [5.0, second]
    assert outcome.messages.tolist() == [1, 1]


@pytest.mark.parametrize("drain", [False, True])
def test_a_message_under_way_when_its_step_ends_is_not_received(drain: bool) -> None:
    # It would reach the port at 8.5 and keep it until 10.5; the next one comes at 10.
    times = ready_at([1.0, 5.5], [1.0, 9.0])
    machine = Machine(drain=drain, network=Network(port=2.0, latency=3.0))
    outcome = run_events(fractional(2, 1), times, machine)
    assert outcome.seconds.tolist() == [6.0, 6.0]


# -- parameters ------------------------------------------------------------------------


def test_parameters_go_down_one_copy_after_the_other() -> None:
    scheme, part = coded_reduce(12, 3, 1), 2.0
    unit = np.full((1, 12), part * scheme.parts / 12)
    network = Network(latency=0.25, down=0.5)
    seen = Seen(scheme, Times(np.zeros_like(unit), unit), at_once(network))
    there = {worker: at - part for worker, at in seen.first_parts().items()}
    above = [0.75, 1.25, 1.75]
    leaves = [at + 0.25 + 0.5 * (c + 1) for at in above for c in range(3)]
    assert there == dict(enumerate(above + leaves))


def test_nobody_sends_a_copy_to_the_dead() -> None:
    unit = np.full((1, 4), 2.0)
    unit[0, 1] = math.inf
    network = Network(down=0.5)
    scheme = fractional(4, 1)
    seen = Seen(scheme, Times(np.zeros_like(unit), unit), at_once(network))
    assert seen.first_parts() == {0: 2.5, 2: 3.0, 3: 3.5}


def test_without_a_time_for_copies_everybody_has_them_at_once() -> None:
    unit = np.full((1, 3), 2.0)
    times = Times(np.zeros_like(unit), unit)
    seen = Seen(uncoded(3), times, at_once(Network(port=1.0, latency=5.0)))
    assert set(seen.first_parts().values()) == {2.0}
    no_time = Seen(uncoded(3), times, at_once(Network(latency=5.0, down=0.0)))
    assert set(no_time.first_parts().values()) == {7.0}


def test_a_worker_has_one_copy_and_its_next_life_another() -> None:
    down = Downlink(Network(down=1.0, latency=0.5), started=10.0)
    down.reach(0, ROOT, now=10.0)
    down.reach(0, ROOT, now=10.0)  # asked for more: it has the parameters
    down.reach(1, ROOT, now=10.0)
    down.reach(5, 0, now=10.0)  # below 0, which must have them first
    assert [down.there(worker) for worker in (0, 1, 5)] == [11.5, 12.5, 13.0]
    down.lose(0)
    down.reach(0, ROOT, now=20.0)
    assert down.there(0) == 21.5


# -- what a network is -----------------------------------------------------------------


def test_a_network_can_be_made_from_bytes() -> None:
    network = Network.of(size=40e3, bandwidth=125e6, latency=1e-4, down=True)
    assert network.port == pytest.approx(0.00032, abs=GRID)
    assert network.down == network.port
    assert network.seconds(ROOT) == network.seconds(7) == network.port
    assert Network.of(40e3, 125e6).down is None


def test_its_times_are_on_the_grid() -> None:
    network = Network((0.1, 0.2), latency=0.3, down=0.7)
    numbers = np.array([*network.port, network.latency, network.down])  # type: ignore[misc]
    np.testing.assert_array_equal(numbers, on_grid(np.array([0.1, 0.2, 0.3, 0.7])))
    assert Network(port=1).port == 1.0


def test_patience_outlasts_all_messages_after_one_another() -> None:
    network = Network(port=100.0, latency=50.0, down=25.0)
    scheme = coded_reduce(12, 3, 0)
    times = ready_at([1.0] * 12)
    outcome = run_events(scheme, times, at_once(network))
    assert math.isfinite(outcome.seconds[0])
    assert network.longest(12) >= outcome.seconds[0] - 1.0
    assert Network((1.0, 9.0)).longest(2) >= 18.0


def test_slots_may_be_a_microsecond_and_a_message_ten_thousand_of_them() -> None:
    for link in (Link(slot=1e-6, seconds=1e-2), Link(slot=1e-4, seconds=(2.0, 1.0))):
        assert Network(link=link).link == link


def test_a_network_says_what_messages_go_through() -> None:
    link = Link("fair", slot=0.25)
    port, slots = "a message keeps a port busy for", "slots of 0.25 s, fair"
    other = "a message keeps any other port busy for"
    for network, said in (
        (Network(), f"{port} 0 s"),
        (Network((1.0, 2.0, 4.0), latency=0.5), f"{port} 1 to 4 s, latency 0.5 s"),
        (Network(link=link), slots),
        (Network((3.0, 0.0, 0.0), link=link), slots),  # the root's, which is not used
        (Network(0.5, link=link), f"{slots}, {other} 0.5 s"),
        (Network((9.0, 1.0, 2.0), link=link), f"{slots}, {other} 1 to 2 s"),
    ):
        assert str(network) == said


@pytest.mark.parametrize(
    "make",
    [
        lambda: Network(port=-1.0),
        lambda: Network(port=math.nan),
        lambda: Network(port=math.inf),
        lambda: Network(port=True),
        lambda: Network(port="fast"),  # type: ignore[arg-type]
        lambda: Network(port=(1.0, -1.0)),
        lambda: Network(port=[1.0, 1.0]),  # type: ignore[arg-type]
        lambda: Network(port=()),
        lambda: Network(port=1e9),
        lambda: Network(latency=-0.1),
        lambda: Network(latency=math.nan),
        lambda: Network(down=-0.1),
        lambda: Network(down=True),
        lambda: Network(down=()),  # type: ignore[arg-type]
        lambda: Network(link="fair"),  # type: ignore[arg-type]
        lambda: Network(link=Link("fair")),
        lambda: Network(link=Link("fair", slot=9e-7, seconds=1e-3)),
        lambda: Network(link=Link("fair", slot=0.9e-4, seconds=(2.0, 1.0))),
        lambda: Network(chunks=0),
        lambda: Network(chunks=1.5),  # type: ignore[arg-type]
        lambda: Network(chunks=True),
        lambda: Network.of(size=-1.0, bandwidth=1.0),
        lambda: Network.of(size=1.0, bandwidth=0.0),
        lambda: Network.of(size=math.nan, bandwidth=1.0),
        lambda: Network.of(size=1.0, bandwidth=math.nan),
        lambda: Network.of(size=math.inf, bandwidth=1.0),
        lambda: Simulator(uncoded(3), network=Network((1.0, 1.0, 1.0))),
        lambda: Simulator(uncoded(3), network=Network(port=1.0, chunks=2)),
        lambda: Simulator(uncoded(3), network=Network(link=LINK_FOR_TWO)),
    ],
)
def test_what_no_network_can_be_is_refused_in_a_sentence(make: Any) -> None:
    with pytest.raises(InvalidScenario, match=r"network.*; try ") as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1
