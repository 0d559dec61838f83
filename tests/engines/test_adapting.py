"""What schemes learn from real processes, and what they do about it."""

from collections.abc import Callable

import numpy as np

from codedgrad.core import Assign, Combine, Command, Event, Scheme
from codedgrad.delays import Times
from codedgrad.engines import Driver, Local
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import Dynamic, dynamic, heterogeneous

STEPS = 25
PART, SLOW = 0.004, 0.2  # seconds


def live(scheme: Scheme, slow: list[int], watch: Callable) -> Driver:
    """Take steps on processes, some of which sleep longer in every part."""
    unit = np.full((1, scheme.workers), PART)
    unit[0, slow] = SLOW
    delays = Times(fixed=np.zeros_like(unit), unit=unit)

    def job() -> NumpyJob:
        return NumpyJob(lambda x, part, step: (0.0, 1.0, x), 2)

    engine = Local()
    try:
        layout = job().layout
        engine.start(job, layout, scheme.workers, delays=delays, parts=scheme.parts)
        driver = Driver(engine, scheme, layout, watch=watch)
        for _ in range(STEPS):
            driver.step(np.ones(2))
        return driver
    finally:
        engine.close()


def test_workers_that_are_slow_are_put_into_different_clusters() -> None:
    """0 and 2 are at home in the same of two clusters, which can do without one."""
    scheme = dynamic(6, 2, 1, rule="threshold")
    apart = []

    def watch(event: Event, commands: list[Command]) -> None:
        given = [c.segment for c in commands if isinstance(c, Assign)]
        if len(given) == scheme.workers:  # the orders that open a step
            cluster = {s.worker: s.parts[0] // scheme.grid.rows for s in given}
            apart.append(cluster[0] != cluster[2])

    driver = live(scheme, [0, 2], watch)
    assert isinstance(scheme, Dynamic)
    scores = scheme.states.forecast(STEPS, driver.coordinator.history).scores
    print([int(a) for a in apart], scores.round(2))
    assert len(apart) == STEPS
    assert not apart[0]  # nothing is known yet: everybody is at home
    assert np.mean(apart[-10:]) >= 0.8
    assert set(np.argsort(scores)[-2:]) == {0, 2}


def test_parts_of_a_worker_that_is_always_late_are_heard_from_others() -> None:
    budget = 0.08  # less than worker 3 takes for one of its two parts
    scheme = heterogeneous(4, budget=budget, pieces=2, cap=float("inf"))
    held: dict[int, tuple[int, ...]] = {}
    absent = []

    def watch(event: Event, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Assign):
                held[command.message] = command.segment.parts
            elif isinstance(command, Combine):
                heard = {p for m, _ in command.weights for p in held[m]}
                absent.append(scheme.parts - len(heard))
                held.clear()

    driver = live(scheme, [3], watch)
    tracker = driver.coordinator.history.follow(scheme.design)
    print(absent, np.round(tracker.straggle, 2), tracker.loads)
    assert absent[0] == 2  # those of worker 3
    assert np.mean(absent[-10:]) <= 1
    assert np.argmax(tracker.straggle) == 3
    assert tracker.straggle[3] > 0.8
