"""Hypothesis strategies for streams of events.

Streams are meant to hurt: they name workers, steps and messages that may not exist, in
any order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from hypothesis import strategies as st
from msgspec import structs

from codedgrad.core import (
    Event,
    MessageArrived,
    MessageFailed,
    MessagesCompared,
    Progressed,
    StepCancelled,
    StepStarted,
    TimerFired,
    WorkerFreed,
    WorkersJoined,
    WorkersLost,
)


def events(workers: int, steps: int = 3, ids: int = 20) -> st.SearchStrategy[Event]:
    """Any one event at time 0; about these many workers, steps and numbers."""
    step = st.integers(0, steps)
    worker = st.integers(-1, workers)
    several = st.lists(worker, max_size=workers + 2).map(tuple)  # none, repeated, all
    number = st.integers(0, ids)
    done = st.integers(0, 5)
    cuts = st.lists(st.tuples(number, done), max_size=3).map(tuple)
    product = st.tuples(number, number, st.sampled_from([-1.0, 0.0, 2.5]))
    products = st.lists(product, max_size=3).map(tuple)
    now = st.just(0.0)
    return st.one_of(
        st.builds(StepStarted, step, now),
        st.builds(Progressed, step, worker, number, done, st.booleans(), now),
        st.builds(MessageArrived, step, worker, number, cuts, now, st.booleans()),
        st.builds(
            MessageFailed, step, worker, number, st.sampled_from(["nan", "gone"]), now
        ),
        st.builds(MessagesCompared, step, products, now),
        st.builds(WorkersLost, several, now),
        st.builds(WorkersJoined, several, now, st.integers(0, 2)),
        st.builds(WorkerFreed, step, worker, st.sampled_from([-1.0, 0.5]), now),
        st.builds(TimerFired, now),
        st.builds(StepCancelled, step, now),
    )


def streams(
    workers: int, steps: int = 3, ids: int = 20, most: int = 60
) -> st.SearchStrategy[list[Event]]:
    """Lists of events in order of time, with gaps from nothing to hours."""
    gap = st.sampled_from([0.0, 0.0, 0.1, 1.0, 70.0, 10_000.0])
    pairs = st.lists(st.tuples(events(workers, steps, ids), gap), max_size=most)
    return pairs.map(_stamped)


def _stamped(pairs: list[tuple[Event, float]]) -> list[Event]:
    times = accumulate(gap for _, gap in pairs)
    restamp: Callable[..., Event] = structs.replace
    return [restamp(event, at=at) for (event, _), at in zip(pairs, times, strict=True)]
