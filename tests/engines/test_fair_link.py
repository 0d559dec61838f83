"""Workers that send when they are granted the link to the root."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Capabilities,
    Event,
    MessageArrived,
    Order,
    Progressed,
    Segment,
    Upload,
    WorkersLost,
)
from codedgrad.engines import Engine, Granting, Here, Local, Replayed, granted, train
from codedgrad.errors import InvalidOptions
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import coded_reduce, fractional, uncoded
from codedgrad.testing import check_engine
from codedgrad.trace import read, replay
from codedgrad.uplink import Link

LAYOUT = VectorLayout(parameters=1, gradient=1)


class Scripted:
    """An engine whose events and clock are what a test says."""

    name = "scripted"
    capabilities = Capabilities()

    def __init__(self, *events: tuple[float, Event]) -> None:
        self.time = 0.0
        self.events = list(events)
        self.given: list[Order] = []

    def start(self, *_: Any, **__: Any) -> None: ...

    def publish(self, step: int, parameters: Any, changed: Any = None) -> None: ...

    def give(self, order: Order) -> None:
        self.given.append(order)

    def finish(self, step: int) -> None: ...

    def combine(self, weights: Sequence[tuple[int, float]]) -> Any: ...

    def compare(self, messages: Sequence[int]) -> Any: ...

    def close(self) -> None: ...

    def now(self) -> float:
        return self.time

    def next_event(self, timeout: float) -> Event | None:
        if self.events and self.events[0][0] <= self.time + max(timeout, 0.0):
            at, event = self.events.pop(0)
            self.time = max(self.time, at)
            return event
        self.time += max(timeout, 0.0)
        return None


def message(worker: int, id_: int, step: int = 0) -> MessageArrived:
    return MessageArrived(step, worker, id_, ((id_ - 1, 1),), 0.0)


def started(link: Link, *events: tuple[float, Event], workers: int = 4) -> Granting:
    engine = Granting(Scripted(*events), link)
    engine.start(lambda: None, LAYOUT, workers)  # type: ignore[arg-type, return-value]
    engine.publish(0, np.zeros(1))
    return engine


def all_events(engine: Engine, until: float) -> list[Event]:
    found = []
    while (event := engine.next_event(until - engine.now())) is not None:
        found.append(event)
    return found


def senders(events: Sequence[Event]) -> list[int]:
    return [event.worker for event in events if isinstance(event, MessageArrived)]


def test_without_a_link_an_engine_stays_what_it_is() -> None:
    engine = Here()
    assert granted(engine, None) is engine
    with pytest.raises(InvalidOptions, match="there is no policy 'fare'"):
        granted(engine, "fare")


@pytest.mark.parametrize("uplink", [5, 0, ["fair"], Link])
def test_what_is_no_link_is_refused_in_one_sentence(uplink: Any) -> None:
    with pytest.raises(InvalidOptions, match=r"uplink: is .*; try a Link"):
        granted(Here(), uplink)


def test_messages_that_are_there_together_come_in_the_order_of_the_policy() -> None:
    there = [(0.0, message(worker, 2 * worker + 1)) for worker in range(4)]
    fast_last = (4.0, 3.0, 2.0, 1.0)  # seconds for a message
    in_turn = started(Link("round_robin"), *there)
    by_rate = started(Link("max_rate", seconds=fast_last), *there)
    assert senders(all_events(in_turn, 1.0)) == [0, 1, 2, 3]
    assert senders(all_events(by_rate, 1.0)) == [3, 2, 1, 0]


def test_without_slots_no_time_passes_by_waiting() -> None:
    engine = started(Link("fair"), (0.25, message(1, 3)), (0.25, message(0, 1)))
    found = all_events(engine, 9.0)
    assert sorted(senders(found)) == [0, 1]
    assert {event.at for event in found} == {0.25}


def test_with_slots_a_message_arrives_when_it_would_have_been_sent() -> None:
    link = Link("max_rate", slot=0.5, seconds=2.0)
    engine = started(link, (1.0, message(0, 1)), (1.0, message(1, 3)))
    first, second = all_events(engine, 20.0)
    # Admitted in one slot and sent from the next on: 2 s each, one after the other.
    assert (first.at, second.at) == (3.5, 5.5)


def test_a_fair_link_gives_a_slow_worker_its_share_and_max_rate_does_not() -> None:
    slow, fast = 4.0, 1.0

    def arrivals(policy: str) -> dict[int, float]:
        many = [(0.0, message(1, 2 * i + 1)) for i in range(1, 9)]
        engine = started(
            Link(policy, slot=0.25, seconds=(slow, fast)),
            (0.0, message(0, 1)), *many, workers=2,
        )  # fmt: skip
        found = all_events(engine, 60.0)
        assert sorted(e.message for e in found if isinstance(e, MessageArrived)) == [
            1, 3, 5, 7, 9, 11, 13, 15, 17,
        ]  # fmt: skip
        return {e.message: e.at for e in found if isinstance(e, MessageArrived)}

    assert arrivals("fair")[1] < arrivals("max_rate")[1]
    assert arrivals("max_rate")[1] == max(arrivals("max_rate").values())


def test_what_a_worker_reports_after_a_message_comes_after_it() -> None:
    progress = Progressed(0, 0, 5, 1, False, 0.0)
    other = Progressed(0, 1, 6, 1, False, 0.0)
    engine = started(
        Link("fair", slot=1.0, seconds=1.0),
        (0.0, message(0, 1)), (0.0, progress), (0.0, other),
    )  # fmt: skip
    kinds = [(type(e).__name__, e.worker) for e in all_events(engine, 9.0)]  # type: ignore[union-attr]
    assert kinds == [("Progressed", 1), ("MessageArrived", 0), ("Progressed", 0)]


def test_a_message_that_was_not_granted_is_lost_with_its_worker() -> None:
    engine = started(
        Link("fair", slot=1.0, seconds=5.0),
        (0.0, message(0, 1)), (0.0, message(1, 3)), (1.0, WorkersLost((0,), 0.0)),
    )  # fmt: skip
    found = all_events(engine, 30.0)
    assert [type(e).__name__ for e in found] == ["WorkersLost", "MessageArrived"]
    assert senders(found) == [1]


def test_a_step_that_is_over_needs_no_messages() -> None:
    engine = started(Link("fair", slot=1.0, seconds=5.0), (0.0, message(0, 1)))
    assert engine.next_event(0.5) is None
    engine.finish(0)
    engine.publish(1, np.zeros(1))
    assert all_events(engine, 30.0) == []


def test_the_slots_of_a_step_do_not_go_on_into_the_next() -> None:
    link = Link("max_rate", slot=0.5, seconds=2.0)
    engine = started(link, (0.0, message(0, 1)), (9.25, message(0, 1, step=1)))
    assert engine.next_event(1.25) is None
    engine.finish(0)
    engine.publish(1, np.zeros(1))
    (arrived,) = all_events(engine, 30.0)
    assert arrived.at == 9.25 + 0.5 + 2.0  # as in a first step


def test_what_was_said_behind_a_message_of_a_step_that_is_over_is_told_once() -> None:
    behind, later = (Progressed(step, 0, 5, 1, False, 0.0) for step in (0, 1))
    engine = started(
        Link("fair", slot=1.0, seconds=5.0),
        (0.0, message(0, 1)), (0.0, behind), (9.0, later), (9.0, message(0, 1, step=1)),
    )  # fmt: skip
    assert engine.next_event(0.5) is None
    engine.finish(0)
    engine.publish(1, np.zeros(1))
    found = all_events(engine, 30.0)
    assert [(type(e).__name__, e.step) for e in found] == [  # type: ignore[union-attr]
        ("Progressed", 0), ("Progressed", 1), ("MessageArrived", 1),
    ]  # fmt: skip
    assert found[1].at == 9.0  # nothing is before it


def test_a_message_of_a_step_before_does_not_wait_for_the_link() -> None:
    engine = started(Link("fair", slot=1.0, seconds=5.0), (2.0, message(0, 1)))
    engine.finish(0)
    engine.publish(1, np.zeros(1))
    (late,) = all_events(engine, 30.0)
    assert late.at == 2.0


def test_who_sent_elsewhere_in_one_step_may_send_to_the_root_in_the_next() -> None:
    engine = started(
        Link("fair", slot=1.0, seconds=5.0),
        (0.0, message(3, 1)), (1.0, message(3, 1, step=1)),
    )  # fmt: skip
    engine.give(Assign(0, Segment(0, 3, (0,), (1.0,)), 1, whole=True, to=0))
    assert engine.next_event(0.5) is not None  # at once
    engine.finish(0)
    engine.publish(1, np.zeros(1))
    engine.give(Assign(1, Segment(0, 3, (0,), (1.0,)), 1))
    (arrived,) = all_events(engine, 30.0)
    assert arrived.at > 5.0


def test_messages_to_other_workers_do_not_use_the_link() -> None:
    engine = started(
        Link("fair", slot=1.0, seconds=5.0),
        (0.0, message(3, 1)), (0.0, message(0, 3)),
    )  # fmt: skip
    engine.give(Assign(0, Segment(0, 3, (0,), (1.0,)), 1, whole=True, to=0))
    engine.give(Upload(0, 0, 3, (2,), ((1, 1.0),)))
    below, above = all_events(engine, 30.0)
    assert (below.at, above.at > 5.0) == (0.0, True)


@pytest.mark.long
def test_an_engine_keeps_its_duties_behind_a_link() -> None:
    check_engine(lambda: Granting(Local(), Link("fair", slot=1e-3, seconds=2e-3)))


def test_training_over_a_fair_link_gives_the_same_parameters(
    tmp_path: Any, least_squares: Any
) -> None:
    gradient = least_squares(3)
    for number, scheme in enumerate(
        (uncoded(4), fractional(4, 1), coded_reduce(6, 2, 1))
    ):
        plain = train(gradient, np.zeros(3), scheme, steps=5, engine=Here())
        path = tmp_path / f"{number}.jsonl"
        fair = train(gradient, np.zeros(3), scheme, steps=5, uplink="fair", trace=path)
        assert np.allclose(plain.parameters, fair.parameters, rtol=1e-10, atol=0)
        assert replay(read(path), scheme) is None


@pytest.mark.parametrize("uplink", ["fair", Link("fair", slot=1e-3, seconds=2e-3)])
def test_a_recorded_run_was_granted_and_is_replayed_as_it_was(
    tmp_path: Any, least_squares: Any, uplink: Any
) -> None:
    gradient, scheme = least_squares(3), fractional(4, 1)
    path = tmp_path / "run.jsonl"
    run = train(gradient, np.zeros(3), scheme, steps=4, uplink=uplink, trace=path)
    engine = Replayed(path)
    assert granted(engine, uplink) is engine
    again = train(gradient, np.zeros(3), scheme, steps=4, uplink=uplink, engine=engine)
    assert (again.parameters == run.parameters).all()
