"""Two drivers, one decision: real processes and the simulator on the same times.

Whatever a decision depends on is at least 50 ms apart, which is looked up in the
simulated run, so that a machine with some load decides the same. Schemes with a budget
of seconds are left out: they use more than the order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from threading import Barrier

import numpy as np
import pytest

from codedgrad.core import Assign, Combine, MessageArrived, Scheme
from codedgrad.delays import Times
from codedgrad.engines import Driver, Local
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import Auto, Dynamic, Heterogeneous, TwoStage
from codedgrad.schemes.dynamic.straggler_states import Late
from codedgrad.sim import Simulator
from codedgrad.testing import EXAMPLES
from codedgrad.trace import Entry

STEPS = 3
APART = 0.05  # seconds
SPACING = 1 / 8  # seconds between workers; sums of it are exact


def learns_from_times(scheme: Scheme) -> bool:
    """Whether more than the order of arrivals counts, or gradients do."""
    if isinstance(scheme, Dynamic):
        return not isinstance(scheme.states, Late)
    return isinstance(scheme, Auto | Heterogeneous | TwoStage)


SCHEMES = [
    scheme
    for scheme in EXAMPLES
    if not learns_from_times(scheme) and math.isinf(scheme.rule.budget)
]
NUMBERS = pytest.mark.parametrize(
    "number",
    range(len(SCHEMES)),
    ids=[f"{scheme.workers} {scheme.name}" for scheme in SCHEMES],
)


class Noted(Simulator):
    """A simulator that notes when any part ends, wanted or not."""

    def __init__(self, scheme: Scheme) -> None:
        self.entries: list[Entry] = []
        self.ends: list[tuple[float, int]] = []  # at, worker

        def watch(event: object, commands: list) -> None:
            self.entries.append(Entry(event, tuple(commands)))

        super().__init__(scheme, capabilities=Local().capabilities, watch=watch)

    def _part_done(self, number: int, run: int) -> None:
        if run == self._workers[number].run:  # not stopped since
            self.ends.append((self.now, number))
        super()._part_done(number, run)

    @property
    def closest(self) -> float:
        """Seconds between the ends of parts of two workers, at least."""
        ends = sorted(self.ends)
        return min(
            later - sooner
            for (sooner, one), (later, other) in pairwise(ends)
            if one != other
        )


@dataclass(frozen=True)
class Pair:
    """The same times, simulated and lived."""

    simulated: Noted
    lived: list[Entry]


def simulated(scheme: Scheme) -> tuple[Times, Noted]:
    """Draw times by which no two workers ever finish a part at the same moment."""
    rng, simulator, rows = np.random.default_rng(0), Noted(scheme), []
    for _ in range(STEPS):
        begins = [
            simulator.now if worker.task is None else worker.end  # it drains first
            for worker in simulator._workers
        ]
        taken, fixed = set(begins), [0.0] * scheme.workers
        for worker in rng.permutation(scheme.workers).tolist():
            end = begins[worker] + SPACING
            while end in taken:
                end += SPACING
            taken.add(end)
            fixed[worker] = end - begins[worker]
        rows.append(fixed)
        simulator.step(fixed, [0.0] * scheme.workers)
    return Times(
        fixed=np.array(rows), unit=np.zeros((STEPS, scheme.workers))
    ), simulator


def lived(scheme: Scheme, times: Times, all_ready: Barrier) -> list[Entry]:
    engine, entries = Local(), list[Entry]()
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, x), 1)
    driver = Driver(
        engine,
        scheme,
        job.layout,
        watch=lambda event, commands: entries.append(Entry(event, tuple(commands))),
    )
    try:
        engine.start(
            lambda: job, job.layout, scheme.workers, delays=times, parts=scheme.parts
        )
        all_ready.wait(60)  # starting takes the processor, sleeping does not
        for _ in range(STEPS):
            driver.step(np.zeros(1))
    finally:
        engine.close()
    return entries


@pytest.fixture(scope="module")
def pairs(together: Callable) -> list[Pair]:
    """Run all schemes at the same time: they sleep, most of the time."""
    prepared = [simulated(scheme) for scheme in SCHEMES]
    all_ready = Barrier(len(SCHEMES))
    runs = together(
        [
            lambda scheme=scheme, times=times: lived(scheme, times, all_ready)
            for scheme, (times, _) in zip(SCHEMES, prepared, strict=True)
        ],
        at_once=len(SCHEMES),
    )
    for number, (times, simulator) in enumerate(prepared):
        for _ in range(2):  # alone, where a machine that stood still changed the order
            if arrivals(runs[number]) == arrivals(simulator.entries):
                break
            runs[number] = lived(SCHEMES[number], times, Barrier(1))
    return [
        Pair(simulator, entries)
        for (_, simulator), entries in zip(prepared, runs, strict=True)
    ]


def assigned(entries: list[Entry]) -> list[Assign]:
    return [c for entry in entries for c in entry.commands if isinstance(c, Assign)]


def combined(entries: list[Entry]) -> list[Combine]:
    return [c for entry in entries for c in entry.commands if isinstance(c, Combine)]


def arrivals(entries: list[Entry]) -> list[list[int]]:
    """Return, for every step, whose messages came before its end, in order."""
    steps: list[list[int]] = [[]]
    for entry in entries:
        event = entry.event
        if isinstance(event, MessageArrived) and event.step == len(steps) - 1:
            steps[-1].append(event.worker)
        if entry.ends_step:
            steps.append([])
    return steps[:-1]


@NUMBERS
def test_what_decisions_depend_on_is_far_enough_apart(
    pairs: list[Pair], number: int
) -> None:
    assert pairs[number].simulated.closest >= APART


@NUMBERS
def test_the_same_messages_arrive_in_the_same_order(
    pairs: list[Pair], number: int
) -> None:
    pair = pairs[number]
    assert arrivals(pair.lived) == arrivals(pair.simulated.entries)


@NUMBERS
def test_the_same_segments_are_assigned(pairs: list[Pair], number: int) -> None:
    pair = pairs[number]
    assert assigned(pair.lived) == assigned(pair.simulated.entries)


@NUMBERS
def test_the_same_messages_are_combined_with_the_same_weights(
    pairs: list[Pair], number: int
) -> None:
    pair = pairs[number]
    found = combined(pair.lived)
    assert len(found) == STEPS
    assert found == combined(pair.simulated.entries)


def test_late_workers_drain_into_later_steps(pairs: list[Pair]) -> None:
    """Or else nothing but the order of sleeping is compared."""
    drained = [
        len(pair.simulated.ends) > len(assigned(pair.simulated.entries))
        or any(len(step) < SCHEMES[i].workers for step in arrivals(pair.lived))
        for i, pair in enumerate(pairs)
    ]
    assert sum(drained) >= len(SCHEMES) - 2  # all but the uncoded ones
