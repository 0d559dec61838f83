"""Two stages on real processes: what is computed, by whom, and what deaths cost.

Workers sleep for the seconds that are written here; who straggles sleeps longer than
any test. Decisions are read from the commands, so no test looks at a clock.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    MessageArrived,
    Scheme,
    Segment,
    StepStarted,
    Upload,
    WorkersLost,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Local
from codedgrad.jobs import NumpyJob
from codedgrad.schemes import two_stage
from codedgrad.trace import Entry, Trace, replay

WINDOW = 0.6  # seconds; whoever does not straggle is done long before
PART, QUICK, NEVER = 0.1, 0.002, 60.0  # seconds for a part
WORKERS, LATE = 6, (0, 3)  # who straggles, where somebody does


@dataclass(frozen=True)
class Went:
    """A step: its parameters, its sum, and what led there."""

    x: np.ndarray
    vector: np.ndarray
    entries: tuple[Entry, ...]

    @cached_property
    def given(self) -> list[tuple[bool, Segment]]:
        """Every segment, and whether it was given after the start."""
        return [
            (not isinstance(entry.event, StepStarted), command.segment)
            for entry in self.entries
            for command in entry.commands
            if isinstance(command, Assign)
        ]

    @property
    def second(self) -> list[Segment]:
        """The segments of the second stage."""
        return [segment for is_later, segment in self.given if is_later]

    @property
    def copies(self) -> Counter[int]:
        """How often every part was asked for."""
        return Counter(part for _, segment in self.given for part in segment.parts)

    @property
    def end(self) -> Combine:
        """How it ended."""
        last = self.entries[-1].commands[-1]
        assert isinstance(last, Combine)
        return last


@dataclass(frozen=True)
class Run:
    """Steps on processes."""

    scheme: Scheme
    steps: list[Went]
    faults: FaultPlan
    trace: Trace


def live(
    scheme: Scheme,
    gradient: Callable,
    part: np.ndarray,
    faults: FaultPlan | None = None,
) -> Run:
    """Take a step for every row of `part`, the seconds that parts take."""
    job, engine, log = NumpyJob(gradient, 3), Local(open_segments=4), list[Entry]()
    driver = Driver(
        engine, scheme, job.layout, watch=lambda e, c: log.append(Entry(e, tuple(c)))
    )
    unit = part * scheme.parts / scheme.workers
    faults, begun, steps = faults or FaultPlan(), 0, list[Went]()
    try:
        engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts, faults=faults,
            delays=Times(fixed=np.zeros_like(unit), unit=unit),
        )  # fmt: skip
        for x in np.random.default_rng(0).standard_normal((len(part), 3)):
            vector = driver.step(x).vector.copy()
            ends = [i for i, e in enumerate(log, 1) if e.ends_step]
            steps.append(Went(x, vector, tuple(log[begun : ends[-1]])))
            begun = len(log)
    finally:
        engine.close()
    return Run(scheme, steps, faults, Trace(driver.header(), tuple(log)))


def late(steps: int, quick: tuple[tuple[int, ...], ...] = ()) -> np.ndarray:
    """Seconds for a part: some straggle in all steps, some are quick in one."""
    part = np.full((steps, WORKERS), PART)
    part[:, LATE] = NEVER
    for step, workers in enumerate(quick):
        part[step, list(workers)] = QUICK
    return part


HELPERS = tuple(worker for worker in range(WORKERS) if worker not in LATE)
ONE_EACH = tuple((worker,) for worker in HELPERS)  # any one of a cyclic code
GROUPS = (HELPERS[0::2], HELPERS[1::2])
BUT_ONE = tuple((a, b) for a in GROUPS[0] for b in GROUPS[1])  # one of every group


def killed(victims: tuple[tuple[int, ...], ...]) -> FaultPlan:
    """Kill helpers in the middle of what they were asked for in stage 2.

    They are quick, so that it is known before the others have answered.
    """
    faults = FaultPlan()
    for step, workers in enumerate(victims):
        for worker in workers:
            faults.kill(worker, step, after=3)  # 2 of its list, and 1 more
    return faults


@pytest.fixture(scope="module")
def runs(together: Callable, least_squares: Callable) -> dict[str, Run]:
    gradient = least_squares()
    cyclic = two_stage(
        WORKERS, WORKERS, WINDOW, 1, code="cyclic", copies="all", checkpoints=1
    )
    groups = two_stage(WORKERS, WORKERS, WINDOW, 1, copies="all")
    fresh = two_stage(
        WORKERS, 4, WINDOW, 1, reuse=False, copies="all", start="numbered"
    )
    slow = FaultPlan()
    for step in range(6):
        slow.slow(step, step, seconds=1.5 * WINDOW, after=step % 2)
    even = np.full((6, WORKERS), QUICK)
    alone = two_stage(WORKERS, WORKERS, WINDOW, 0, copies=1, give_up=1.25 * WINDOW)
    calls = {
        "cyclic": lambda: live(cyclic, gradient, late(4, ONE_EACH), killed(ONE_EACH)),
        "groups": lambda: live(groups, gradient, late(4, BUT_ONE), killed(BUT_ONE)),
        "fresh": lambda: live(fresh, gradient, late(2)),
        "planned": lambda: live(two_stage(WORKERS), gradient, even, slow),
        "nobody late": lambda: live(
            two_stage(WORKERS, WORKERS, 20.0, 1), gradient, even
        ),
        "given up": lambda: live(alone, gradient, late(1)),
    }
    return dict(zip(calls, together(calls.values()), strict=True))


EXACT = ("cyclic", "groups", "fresh", "planned", "nobody late")


@pytest.mark.parametrize("name", EXACT)
def test_every_sum_is_the_full_gradient(
    runs: dict[str, Run], least_squares: Callable, part_sums: Callable, name: str
) -> None:
    run = runs[name]
    for step, went in enumerate(run.steps):
        wanted = part_sums(least_squares(), went.x, step, np.ones(run.scheme.parts))
        np.testing.assert_allclose(went.vector, wanted, rtol=1e-6)
        assert went.end.residual == 0.0


@pytest.mark.parametrize("name", [*EXACT, "given up"])
def test_a_live_run_replays_without_a_difference(
    runs: dict[str, Run], name: str
) -> None:
    assert replay(runs[name].trace, runs[name].scheme) is None


def test_a_cyclic_code_asks_for_no_part_more_than_three_times(
    runs: dict[str, Run],
) -> None:
    """By whoever had it in its list, and by s + 1 = 2 helpers."""
    for went in runs["cyclic"].steps:
        assert max(went.copies.values()) == 3
        left = {part for segment in went.second for part in segment.parts}
        assert left == {0, 1, 6, 7}  # of those who straggle
        assert sum(len(segment.parts) for segment in went.second) == 2 * len(left)


def test_groups_ask_for_no_part_more_often_than_they_have_members(
    runs: dict[str, Run],
) -> None:
    for name in ("groups", "fresh"):
        for went in runs[name].steps:
            assert max(went.copies.values()) == 3  # groups of two, and the list
            assert {went.copies[part] for s in went.second for part in s.parts} == {3}


def test_those_who_were_not_started_help(runs: dict[str, Run]) -> None:
    for went in runs["fresh"].steps:
        assert {segment.worker for segment in went.second} == {4, 5}


@pytest.mark.parametrize(
    ("name", "victims"), [("cyclic", ONE_EACH), ("groups", BUT_ONE)]
)
def test_helpers_that_are_killed_delay_nothing(
    runs: dict[str, Run], name: str, victims: tuple[tuple[int, ...], ...]
) -> None:
    """The others are not asked for more, and the last of them ends the step."""
    run = runs[name]
    assert run.faults.all_fired
    for dead, went in zip(victims, run.steps, strict=True):
        lost = [
            place
            for place, entry in enumerate(went.entries)
            if isinstance(entry.event, WorkersLost)
        ]
        gone = [went.entries[place].event.workers for place in lost]
        assert set(chain.from_iterable(gone)) == set(dead)
        after = [c for entry in went.entries[lost[0] :] for c in entry.commands]
        assert not any(isinstance(command, Assign | Upload) for command in after)
        last = went.entries[-1].event
        assert isinstance(last, MessageArrived)
        assert last.worker in set(HELPERS) - set(dead)


def test_if_nobody_straggles_nothing_is_asked_for_after_the_start(
    runs: dict[str, Run],
) -> None:
    for went in runs["nobody late"].steps:
        assert went.second == []
        orders = [
            isinstance(entry.event, StepStarted)
            for entry in went.entries
            for command in entry.commands
            if isinstance(command, Assign | Upload)
        ]
        assert orders
        assert all(orders)
        assert len(went.end.weights) == WORKERS


def test_those_who_sleep_are_helped_without_a_window(runs: dict[str, Run]) -> None:
    """Nothing is known of the workers: half of them set the pace."""
    run = runs["planned"]
    assert run.faults.all_fired
    helped = [bool(went.second) for went in run.steps]
    print(helped)
    assert any(helped)


def test_what_nobody_else_holds_is_given_up_in_time(
    runs: dict[str, Run], least_squares: Callable, part_sums: Callable
) -> None:
    run = runs["given up"]
    [went] = run.steps
    assert went.end.residual == pytest.approx(4.0)  # the parts of who straggles
    there = np.ones(run.scheme.parts)
    there[[0, 1, 6, 7]] = 0.0
    wanted = part_sums(least_squares(), went.x, 0, there)
    np.testing.assert_allclose(went.vector, wanted, rtol=1e-6)
