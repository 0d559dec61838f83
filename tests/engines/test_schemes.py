"""Every scheme on real processes, with slow workers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from codedgrad.core import Assign, Combine, MessageArrived, Scheme, Segment
from codedgrad.delays import Times
from codedgrad.engines import Driver, FaultPlan, Local, train
from codedgrad.errors import InvalidScheme
from codedgrad.jobs import NumpyJob, Training, single_process
from codedgrad.schemes import (
    CodedScheme,
    auto,
    bernoulli,
    cyclic,
    dynamic,
    stochastic,
)
from codedgrad.schemes.stop_rules import Within
from codedgrad.testing import EXAMPLES, Everything, Invariants
from codedgrad.trace import Entry, StepReport, Trace, read, replay

STEPS = 100
EXACT: list[Scheme] = [
    *(scheme for scheme in EXAMPLES if scheme.exact),
    cyclic(8, 3),
    Everything(5, each=3),
    cyclic(5, 1, parts=12),  # blocks of two and of three parts
    cyclic(5, 1, parts=2),  # a worker without any
    auto(4, parts=11),
    auto(4, parts=3, copies=2),
]


def named(schemes: list[Scheme]) -> list[str]:
    return [f"{scheme.workers} {scheme.name}" for scheme in schemes]


# -- exact schemes ---------------------------------------------------------------------


def EACH(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with every exact scheme; one of each kind is quick."""
    quick = pytest.mark.quick(
        "4 uncoded",
        "6 fractional(tolerance=1)",
        "5 cyclic(tolerance=2)",
        "6 clustered(clusters=2, tolerance=1)",
        "6 proportional*",
        "6 dynamic(clusters=2, tolerance=1)",
        "6 coded_reduce(children=2, tolerance=1)",
        "6 two_stage",
        "5 auto(pieces=3)",
        "5 everything*",
        "4 auto(parts=11)",
    )
    numbers = range(len(EXACT))
    return quick(pytest.mark.parametrize("number", numbers, ids=named(EXACT))(test))


@dataclass(frozen=True)
class Trained:
    training: Training[StepReport]
    trace: Path


@pytest.fixture(scope="module")
def trained(
    least_squares: Callable, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Trained]:
    """Train with an exact scheme, once, and with workers that are slow now and then."""
    folder = tmp_path_factory.mktemp("traces")

    @cache
    def run(number: int) -> Trained:
        scheme = EXACT[number]
        rng = np.random.default_rng(number)
        fixed = rng.choice([0.0, 0.0, 0.001, 0.006], (STEPS, scheme.workers))
        path = folder / f"{number}.jsonl"
        training = train(
            least_squares(),
            np.zeros(3),
            scheme,
            steps=STEPS,
            engine=Local(open_segments=30),
            delays=Times(fixed=fixed, unit=np.zeros_like(fixed)),
            trace=path,
        )
        return Trained(training, path)

    return run


@EACH
def test_training_equals_a_single_process(
    trained: Callable[[int], Trained], least_squares: Callable, number: int
) -> None:
    parts = EXACT[number].parts
    alone = single_process(least_squares(), np.zeros(3), parts, steps=STEPS)
    coded = trained(number).training
    np.testing.assert_allclose(coded.parameters, alone.parameters, rtol=1e-10)
    np.testing.assert_allclose(coded.loss, alone.loss, rtol=1e-10)


@EACH
def test_a_trace_replays_without_a_difference(
    trained: Callable[[int], Trained], number: int
) -> None:
    trace = read(trained(number).trace)
    last = trace.entries[-1]
    assert (len(trace.tail), last.ends_step or last.compares) == (0, True)
    assert replay(trace, EXACT[number]) is None


@EACH
def test_a_live_run_keeps_the_rules_that_simulated_ones_keep(
    trained: Callable[[int], Trained], number: int
) -> None:
    invariants = Invariants(EXACT[number], Local(open_segments=30).capabilities)
    for entry in read(trained(number).trace).entries:
        invariants(entry.event, entry.commands)
    assert sorted(invariants.ends) == list(range(STEPS))


@EACH
def test_some_workers_were_late_and_all_but_uncoded_did_not_wait_for_them(
    trained: Callable[[int], Trained], number: int
) -> None:
    scheme = EXACT[number]
    if not isinstance(scheme, CodedScheme):
        return  # it may ask for nothing that comes late
    late = any(step.late for step in trained(number).training.steps)
    assert late == (scheme.tolerance != 0)


# -- approximate schemes ---------------------------------------------------------------

BUDGET = 0.05  # seconds, instead of that of the example


def hurried(scheme: CodedScheme) -> CodedScheme:
    if isinstance(scheme.rule, Within):
        return replace(scheme, rule=Within(BUDGET, scheme.rule.rule))
    return scheme


APPROXIMATE: list[CodedScheme] = [hurried(s) for s in EXAMPLES if not s.exact]


@dataclass(frozen=True)
class Summed:
    """A step: where it was, what came out, and the events that led there."""

    x: np.ndarray
    vector: np.ndarray
    entries: tuple[Entry, ...]


def steps_of(
    scheme: Scheme, gradient: Callable, xs: np.ndarray, **options: object
) -> tuple[list[Summed], Trace]:
    """Run a step at each of some parameters."""
    job, engine, log = NumpyJob(gradient, xs.shape[1]), Local(), list[Entry]()
    driver = Driver(
        engine, scheme, job.layout, watch=lambda e, c: log.append(Entry(e, tuple(c)))
    )
    done, begun = list[Summed](), 0
    engine.start(lambda: job, job.layout, scheme.workers, parts=scheme.parts, **options)
    try:
        for x in xs:
            vector = driver.step(x).vector.copy()
            done.append(Summed(x, vector, tuple(log[begun:])))
            begun = len(log)
    finally:
        engine.close()
    return done, Trace(driver.header(), tuple(log))


def misfit(
    step: int, entries: tuple[Entry, ...], parts: int
) -> tuple[np.ndarray, float]:
    """Return a^T B over what was heard, from the events alone, and the residual."""
    segments: dict[int, Segment] = {}
    heard: dict[int, tuple[tuple[int, int], ...]] = {}
    for entry in entries:
        if isinstance(entry.event, MessageArrived) and entry.event.step == step:
            heard.setdefault(entry.event.message, entry.event.cuts)
        for command in entry.commands:
            if isinstance(command, Assign):
                segments[command.segment.id] = command.segment
            elif isinstance(command, Combine):
                weighed = np.zeros(parts)
                for message, weight in command.weights:
                    for id_, done in heard[message]:
                        segment = segments[id_]
                        held, by = segment.parts[:done], segment.coefficients[:done]
                        weighed[list(held)] += weight * np.array(by)
                return weighed, command.residual
    raise AssertionError("the step has not ended")


@pytest.fixture(scope="module")
def summed(together: Callable, least_squares: Callable) -> list[tuple]:
    """Run every approximate scheme for some steps, with two who sleep over them."""

    def run(number: int, scheme: Scheme) -> tuple[list[Summed], Trace]:
        xs = np.random.default_rng(0).standard_normal((4, 3))
        fixed = np.zeros((1, 6))
        fixed[0, sleepers(number)] = 0.3
        delays = Times(fixed=fixed, unit=np.zeros_like(fixed))
        return steps_of(scheme, least_squares(), xs, delays=delays)

    calls = [
        lambda number=number, scheme=scheme: run(number, scheme)
        for number, scheme in enumerate(APPROXIMATE)
    ]
    return together(calls)


def sleepers(number: int) -> list[int]:
    return [number % 6, (number + 2) % 6]


@pytest.mark.parametrize("number", range(len(APPROXIMATE)), ids=named(APPROXIMATE))
def test_the_sum_is_that_of_the_part_gradients_as_they_were_weighed(
    summed: list, part_sums: Callable, least_squares: Callable, number: int
) -> None:
    steps, _ = summed[number]
    for step, done in enumerate(steps):
        weighed, _ = misfit(step, done.entries, APPROXIMATE[number].parts)
        expected = part_sums(least_squares(), done.x, step, weighed)
        np.testing.assert_allclose(done.vector, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("number", range(len(APPROXIMATE)), ids=named(APPROXIMATE))
def test_the_residual_stated_is_the_misfit_of_what_was_heard(
    summed: list, number: int
) -> None:
    steps, _ = summed[number]
    stated, found = [], []
    for step, done in enumerate(steps):
        weighed, residual = misfit(step, done.entries, APPROXIMATE[number].parts)
        stated.append(residual)
        found.append(np.sum((weighed - 1.0) ** 2))
    np.testing.assert_allclose(stated, found, atol=1e-12)


@pytest.mark.parametrize("number", range(len(APPROXIMATE)), ids=named(APPROXIMATE))
def test_no_step_waits_for_those_who_sleep(summed: list, number: int) -> None:
    _, trace = summed[number]
    events = [entry.event for entry in trace.entries]
    heard = {event.worker for event in events if isinstance(event, MessageArrived)}
    assert heard.isdisjoint(sleepers(number))


@pytest.mark.parametrize("number", range(len(APPROXIMATE)), ids=named(APPROXIMATE))
def test_an_approximate_run_replays_without_a_difference(
    summed: list, number: int
) -> None:
    assert replay(summed[number][1], APPROXIMATE[number]) is None


@pytest.fixture(scope="module")
def rotated(together: Callable, least_squares: Callable) -> list[np.ndarray]:
    """Let every one of 6 workers be away in one of 6 steps, at the same parameters."""

    def mean(scheme: Scheme) -> np.ndarray:
        faults = FaultPlan()
        for worker in range(6):
            faults.leave(worker, step=worker).join(worker, step=worker + 1)
        always = least_squares()
        steps, _ = steps_of(
            scheme,
            lambda x, part, _: always(x, part, 0),
            np.ones((6, 3)),
            faults=faults,
        )
        return np.mean([step.vector for step in steps], axis=0)

    return together([lambda scheme=scheme: mean(scheme) for scheme in UNBIASED])


# each of 6 workers is late with probability 1/6, and exactly one is
UNBIASED = [stochastic(6, 2, 1 / 6, count=5), bernoulli(6, 3, count=5, seed=1)]


def test_over_all_late_workers_a_stochastic_code_is_right_on_average(
    rotated: list[np.ndarray], part_sums: Callable, least_squares: Callable
) -> None:
    """Nothing is drawn, so the tolerance is for rounding and no alarm is false."""
    right = part_sums(least_squares(), np.ones(3), 0, np.ones(6))
    np.testing.assert_allclose(rotated[0], right, rtol=1e-12)


def test_over_all_late_workers_a_bernoulli_code_weighs_a_part_by_its_holders(
    rotated: list[np.ndarray], part_sums: Callable, least_squares: Callable
) -> None:
    """It is right on average over its coin, which is tossed once: not over steps."""
    B = UNBIASED[1].code.B.toarray()
    assert (B.sum(axis=1) > 0).all()  # everybody has something to send
    weighed = B.sum(axis=0) / 3
    expected = part_sums(least_squares(), np.ones(3), 0, weighed)
    np.testing.assert_allclose(rotated[1], expected, rtol=1e-12)


# -- oracles ---------------------------------------------------------------------------


class Unstarted(Local):
    """Processes that nobody may start."""

    def start(self, *given: object, **options: object) -> None:
        raise AssertionError("the engine was started")


@pytest.mark.parametrize("state", ["oracle", "oracle-previous"])
def test_an_oracle_is_refused_before_anything_starts(
    state: str, least_squares: Callable, tmp_path: Path
) -> None:
    scheme, trace = dynamic(4, 2, 1, state=state), tmp_path / "trace.jsonl"
    said = "an oracle knows what only a simulation can tell it; try state=hidden"
    job = NumpyJob(least_squares(), 3)
    with pytest.raises(InvalidScheme, match=said):
        Driver(Unstarted(), scheme, job.layout)
    with pytest.raises(InvalidScheme, match=said):
        train(
            least_squares(), np.zeros(3), scheme, steps=1, engine=Unstarted(),
            trace=trace,
        )  # fmt: skip
    assert not trace.exists()


def test_an_oracle_that_was_told_is_as_good_as_any_scheme() -> None:
    slow = np.zeros((3, 4), dtype=np.bool_)
    told = dynamic(4, 2, 1, state="oracle").told(slow, np.ones((3, 4)))
    Driver(Unstarted(), told, NumpyJob(lambda x, part, step: (0.0, 1.0, x), 3).layout)
