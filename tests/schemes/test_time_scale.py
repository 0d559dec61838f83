"""When a plan looks again does not depend on how long a step is waited for."""

import numpy as np
import pytest

from codedgrad.core import (
    Capabilities,
    Command,
    Deadline,
    Event,
    History,
    Patience,
    Scheme,
    WakeAt,
)
from codedgrad.delays import Times
from codedgrad.schemes import auto, two_stage
from codedgrad.sim import Simulator
from codedgrad.testing import Everything

WORKERS, STEPS = 6, 8
USED_TO_BE = Patience(least=60.0, factor=10.0, first=600.0)

PLANS = [
    auto(WORKERS, copies=3),
    auto(WORKERS, copies="all"),
    two_stage(WORKERS, copies="all"),
    two_stage(WORKERS, 4, 2.5, 1, copies="all"),
    Everything(WORKERS),
]


def times(hung_in: int | None, factor: float = 1.0) -> Times:
    """Return times in which the last worker never answers from a step on."""
    rng = np.random.default_rng(5)
    unit = factor * (1.0 + rng.exponential(0.5, (STEPS, WORKERS)))
    if hung_in is not None:
        unit[hung_in:, -1] = 1e7
    return Times(fixed=np.zeros(unit.shape), unit=unit)


def moments(
    scheme: Scheme, patience: Patience, engine: Capabilities, given: Times
) -> list[tuple[Event, list[Command]]]:
    """Return all events and commands, without timers for giving a step up."""
    said: list[tuple[Event, list[Command]]] = []

    def watch(event: Event, commands: list[Command]) -> None:
        state = simulator.coordinator.state
        end = None if state is None else state.started + state.deadline.seconds
        said.append(
            (event, [c for c in commands if not isinstance(c, WakeAt) or c.at != end])
        )

    simulator = Simulator(
        scheme, capabilities=engine, patience=patience, latency=0.01, watch=watch
    )
    for step in simulator.run(given):
        assert step.combined
    return said


@pytest.mark.parametrize("hung_in", [None, 0, 2])
@pytest.mark.parametrize(
    ("scheme", "progress"),
    [
        (scheme, progress)
        for scheme in PLANS
        for progress in (True, False)
        if progress or not scheme.traits.needs_progress
    ],
    ids=str,
)
def test_a_longer_patience_changes_no_moment_of_a_plan(
    scheme: Scheme, hung_in: int | None, progress: bool
) -> None:
    engine, given = Capabilities(progress=progress), times(hung_in)
    usual = moments(scheme, Patience(), engine, given)
    assert usual == moments(scheme, USED_TO_BE, engine, given)
    assert usual == moments(scheme, Patience(1e5, first=1e5), engine, given)


# -- the scale itself ------------------------------------------------------------------


def deadline(patience: Patience, *durations: float) -> Deadline:
    history = History(workers=1)
    history.durations.extend(durations)
    return patience.deadline(history)


@pytest.mark.parametrize(
    ("durations", "seconds", "scale"),
    [
        ((), 1800.0, 600.0),
        ((1.0, 6.0), 1800.0, 60.0),
        ((1.0, 7.0), 1800.0, 70.0),
        ((180.0,), 1800.0, 1800.0),
        ((181.0,), 1810.0, 1810.0),
    ],
)
def test_the_scale_follows_recent_steps(
    durations: tuple[float, ...], seconds: float, scale: float
) -> None:
    found = deadline(Patience(), *durations)
    assert (found.seconds, found.scale) == (seconds, scale)
    assert deadline(Patience(1e5, 50.0, 1e5), *durations).scale == scale


def test_a_plan_looks_again_before_a_short_patience_is_over() -> None:
    assert deadline(Patience(least=5.0, first=5.0)).scale == 5.0
    assert deadline(Patience(least=5.0, first=5.0), 0.1).scale == 5.0
    assert deadline(Patience(least=5.0, factor=1.0), 7.0).scale == 7.0


def test_a_step_that_was_given_up_makes_no_plan_slower() -> None:
    history = History(workers=1)
    history.durations.append(1.0)
    history.given_up = 1800.0
    found = Patience().deadline(history)
    assert (found.seconds, found.scale) == (3600.0, 60.0)


def test_a_scale_may_be_asked_for() -> None:
    patience = Patience(1e5, first=1e5, scale=1e4)
    assert deadline(patience).scale == deadline(patience, 1.0).scale == 1e4


def test_a_deadline_says_its_seconds_and_why() -> None:
    assert str(Deadline(18000.0, "twice")) == "18000 s (twice)"
    assert str(Deadline(0.5, "a test")) == "0.5 s (a test)"
