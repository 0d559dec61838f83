"""The engine without processes: the same sums, in turn, in this process."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    Command,
    Cut,
    Event,
    MessageArrived,
    Patience,
    Progressed,
    Scheme,
    Segment,
    Session,
    Upload,
    WakeAt,
)
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Here, Sum, train
from codedgrad.errors import InvalidJob, InvalidOptions, ProtocolError
from codedgrad.jobs import Gradient, NumpyJob, VectorLayout, single_process
from codedgrad.schemes import bernoulli, cyclic, fractional, uncoded
from codedgrad.schemes.stop_rules import Within
from codedgrad.testing import EXAMPLES, Everything, Invariants
from codedgrad.trace import Entry, Trace, replay

SIZE, STEPS = 5, 6
EXACT: list[Scheme] = [s for s in EXAMPLES if s.exact]
CUT: list[Scheme] = [Everything(5), Everything(4, each=6, copies=2), Everything(7, 5)]


def named(schemes: list[Scheme]) -> list[str]:
    return [f"{scheme.workers} {scheme.name}" for scheme in schemes]


def sums(x: np.ndarray | float, part: int, step: int) -> np.ndarray:
    """Return what a message of a part holds: different for all parts and steps."""
    gradient = np.sin(np.arange(SIZE) * (part + 1) + step) + x
    return np.array([*gradient, float(part), 1.0])


def gradient(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    *slopes, loss, count = sums(x, part, step)
    return loss, count, np.array(slopes)


class Uneven(Here):
    """Lets a worker sit out most of its turns, so that others take over from it."""

    def _compute(self, session: Session) -> None:
        if session.worker != 1 or self._turn % 4 == 0:
            super()._compute(session)


class Run:
    """Steps on the engine, watched."""

    def __init__(
        self,
        scheme: Scheme,
        gradient: Gradient = gradient,
        size: int = SIZE,
        **options: object,
    ) -> None:
        self.scheme = scheme
        kind = Uneven if scheme in CUT else Here
        self.engine = kind(open_segments=30)
        self.invariants = Invariants(scheme, self.engine.capabilities)
        self.entries: list[Entry] = []
        job = NumpyJob(gradient, size)
        self.driver = Driver(
            self.engine, scheme, job.layout, patience=Patience(10.0), watch=self.watch
        )
        self.engine.start(
            lambda: job, job.layout, scheme.workers, parts=scheme.parts, **options
        )

    def watch(self, event: Event, commands: list[Command]) -> None:
        self.entries.append(Entry(event, tuple(commands)))
        self.invariants(event, commands)

    def step(self, step: int) -> Sum:
        return self.driver.step(np.full(SIZE, float(step)))

    @property
    def trace(self) -> Trace:
        return Trace(self.driver.header(), tuple(self.entries))


@pytest.mark.parametrize("scheme", [*EXACT, *CUT], ids=named([*EXACT, *CUT]))
def test_every_sum_is_that_of_the_parts(scheme: Scheme) -> None:
    run = Run(scheme)
    for step in range(STEPS):
        x = np.full(SIZE, float(step))
        wanted = sum(sums(x, part, step) for part in range(scheme.parts))
        found = run.step(step)
        np.testing.assert_allclose(found.vector, wanted, rtol=1e-10, atol=1e-10)
        assert found.report.residual < 1e-18
    if scheme in CUT:
        given = {type(c) for entry in run.entries for c in entry.commands}
        assert {Assign, Cut, Upload, WakeAt, Combine} <= given
    assert sorted(run.invariants.ends) == list(range(STEPS))
    assert replay(run.trace, scheme) is None
    run.engine.close()


@pytest.mark.parametrize(
    "scheme", [s for s in EXAMPLES if not s.exact], ids=lambda s: s.name
)
def test_an_approximate_sum_is_as_its_residual_says(scheme: Scheme) -> None:
    """Every part has a place of its own, so its weight is what comes out there."""
    run = Run(scheme, lambda x, p, _: (0.0, 1.0, np.eye(scheme.parts)[p]), scheme.parts)
    for _ in range(STEPS):
        found = run.driver.step(np.zeros(scheme.parts))
        weights = found.vector[: scheme.parts]
        misfit = np.sum((weights - 1.0) ** 2)
        np.testing.assert_allclose(found.report.residual, misfit, atol=1e-12)
    assert replay(run.trace, scheme) is None
    run.engine.close()


def test_training_is_that_of_a_single_process(least_squares: Callable) -> None:
    single = single_process(least_squares(), np.zeros(3), 6, steps=20)
    for scheme in (uncoded(6), cyclic(6, 1), fractional(6, 2)):
        coded = train(least_squares(), np.zeros(3), scheme, steps=20, engine=Here())
        np.testing.assert_allclose(coded.parameters, single.parameters, rtol=1e-10)


def test_workers_take_turns() -> None:
    seen: list[int] = []

    def watched(x: np.ndarray, part: int, step: int) -> tuple:
        seen.append(part // 3)  # whose it is
        return gradient(x, part, step)

    run = Run(uncoded(4, pieces=3), watched)
    run.step(0)
    assert len(seen) == 12
    for first in range(0, 12, 4):
        assert sorted(seen[first : first + 4]) == [0, 1, 2, 3]


# -- time ------------------------------------------------------------------------------


def seconds(fixed: list[float]) -> Times:
    return Times(fixed=np.array([fixed]), unit=np.zeros((1, len(fixed))))


def test_a_budget_ends_a_step_while_there_is_work() -> None:
    """Six workers take 0.6 s in turn; who is not through after 0.15 s is late."""
    scheme = bernoulli(6, 2, budget=0.15, decoding="optimal")
    run = Run(scheme, delays=seconds([0.1] * 6))
    report = run.step(0).report
    assert report.late
    assert report.residual > 0
    assert report.work < sum(map(len, scheme.placement))


def test_a_budget_ends_a_step_in_which_nothing_is_left_to_do() -> None:
    scheme = replace(bernoulli(6, 2, budget=0.05), rule=Within(0.05, Never()))
    assert Run(scheme).step(0).report.late == ()  # all are through, and it waits


class Never:
    """A stop rule for which it is never enough."""

    budget = float("inf")

    def start(self, code: object) -> "Never":
        return self

    def hear(self, message: int) -> bool:
        return False


def test_nothing_is_begun_when_the_time_is_up() -> None:
    engine = Here()
    start(engine)
    engine.publish(0, np.zeros(SIZE))
    engine.give(Assign(0, Segment(0, 2, (1,), (1.0,)), message=0))
    assert engine.next_event(0.0) is None
    assert isinstance(engine.next_event(5.0), Progressed)
    assert isinstance(engine.next_event(0.0), MessageArrived)
    assert engine.next_event(0.01) is None
    np.testing.assert_array_equal(engine.combine([(0, 2.0)])[:-4], 2 * sums(0, 1, 0))


def test_delays_are_slept_and_change_nothing_else() -> None:
    run, calm = Run(uncoded(3), delays=seconds([0.0, 0.02, 0.0])), Run(uncoded(3))
    for step in range(2):
        found, wanted = run.step(step), calm.step(step)
        assert found.vector.tobytes() == wanted.vector.tobytes()
        assert found.report.seconds >= 0.02


# -- what is refused -------------------------------------------------------------------


def start(engine: Here, **options: object) -> None:
    job = NumpyJob(gradient, SIZE)
    engine.start(lambda: job, job.layout, 3, parts=3, **options)


def test_faults_are_refused() -> None:
    said = 'the engine `here`: has no processes to stop or to kill; try engine="local"'
    with pytest.raises(InvalidOptions, match=said):
        start(Here(), faults=FaultPlan().kill(0, step=1))
    start(Here(), faults=FaultPlan())  # none are planned


@pytest.mark.parametrize(
    ("delays", "said"),
    [
        (seconds([0.0, 1.0]), "delays: has times for 2 workers; try times for 3"),
        (seconds([0.0, 1.0, np.inf]), "no processes that could be away for ever"),
    ],
)
def test_delays_that_cannot_be_slept_are_refused(delays: Times, said: str) -> None:
    with pytest.raises(InvalidOptions, match=said):
        start(Here(), delays=delays)


def test_a_job_of_another_length_is_refused() -> None:
    job, told = NumpyJob(gradient, SIZE), VectorLayout(parameters=4, gradient=4)
    with pytest.raises(InvalidJob, match="the job's layout: its parameters is 5"):
        Here().start(lambda: job, told, 3)


def test_parameters_of_another_length_are_refused() -> None:
    run = Run(uncoded(3))
    with pytest.raises(InvalidOptions, match=r"parameters: have shape \(4,\)"):
        run.driver.step(np.zeros(4))


def test_an_engine_is_started_once() -> None:
    engine = Here()
    start(engine)
    with pytest.raises(ProtocolError, match="started once"):
        start(engine)
    engine.close()
    with pytest.raises(ProtocolError, match="started once"):
        start(engine)


def test_an_engine_that_is_closed_or_not_started_does_nothing() -> None:
    engine = Here()
    with pytest.raises(ProtocolError, match="not started, or closed"):
        engine.publish(0, np.zeros(SIZE))
    start(engine)
    engine.close()
    engine.close()
    with pytest.raises(ProtocolError, match="not started, or closed"):
        engine.publish(0, np.zeros(SIZE))


def test_what_a_job_raises_is_raised_here_as_it_is() -> None:
    """For a debugger: the traceback leads into the job."""
    broken = [True]

    def gradient(x: np.ndarray, part: int, step: int) -> tuple:
        if broken:
            raise ZeroDivisionError("of the job")
        return 0.0, 1.0, x

    run = Run(uncoded(3), gradient)
    with pytest.raises(ZeroDivisionError, match="of the job"):
        run.step(0)
    broken.clear()
    assert run.driver.step(np.ones(SIZE)).gradient.tolist() == [1.0] * SIZE
