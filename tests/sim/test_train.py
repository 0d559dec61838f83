"""Real gradients in virtual time."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedgrad.core import (
    Assign,
    Combine,
    Command,
    Event,
    History,
    MessageArrived,
    MessagesCompared,
    Plan,
    Scheme,
    Segment,
    StepStarted,
)
from codedgrad.delays import Chain, Dead, Pauses, ShiftedExponential
from codedgrad.errors import InvalidJob
from codedgrad.learning.estimators import Likeness
from codedgrad.schemes import (
    cyclic,
    fractional,
    ignore,
    stochastic,
    uncoded,
)
from codedgrad.sim import Gradient, Machine, Simulator, Training, train
from codedgrad.testing import EXAMPLES, Comparing, Everything

LAW = Chain(
    ShiftedExponential(floor=0.1, mean=1.0), Pauses(probability=0.2, low=0.1, high=3.0)
)
EXACT = [
    *(scheme for scheme in EXAMPLES if scheme.exact),
    Everything(6),
    Everything(6, each=1),
    Everything(6, each=5, copies=2),
]
APPROXIMATE = [scheme for scheme in EXAMPLES if not scheme.exact]
MACHINES = [
    Machine(),
    Machine(drain=False, progress=False),
    Machine(latency=0.07),
    Machine(drain=False, latency=0.3),
]


class Regression:
    """Least squares with uneven parts; the data of a part differ from step to step."""

    def __init__(self, parts: int, d: int = 3) -> None:
        rng = np.random.default_rng(7)
        self.A = rng.standard_normal((4, parts, 5, d))
        self.b = rng.standard_normal((4, parts, 5))
        self.size = rng.integers(1, 6, parts)
        self.parts = parts
        self.d = d
        self.calls: Counter[tuple[int, int]] = Counter()

    def gradient(
        self, x: np.ndarray, part: int, step: int
    ) -> tuple[float, float, np.ndarray]:
        self.calls[step, part] += 1
        A = self.A[step % 4, part, : self.size[part]]
        gap = A @ x - self.b[step % 4, part, : self.size[part]]
        return float(gap @ gap / 2), float(len(gap)), A.T @ gap

    def descend(self, steps: int, rate: float) -> tuple[np.ndarray, list[float]]:
        """Plain gradient descent over the same parts, in one process."""
        x, losses = np.zeros(self.d), []
        for step in range(steps):
            each = [self.gradient(x, part, step) for part in range(self.parts)]
            count = sum(samples for _, samples, _ in each)
            losses.append(sum(loss for loss, _, _ in each) / count)
            x = x - rate * sum(gradient for _, _, gradient in each) / count
        return x, losses


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("scheme", EXACT, ids=lambda s: s.name)
def test_every_exact_scheme_trains_as_one_process_does(
    scheme: Scheme, machine: Machine
) -> None:
    if scheme.traits.needs_progress:
        machine = replace(machine, progress=True)
    problem = Regression(scheme.parts)
    run = train(
        problem.gradient, np.zeros(3), scheme, LAW, steps=12, seed=1, machine=machine
    )
    x, losses = Regression(scheme.parts).descend(steps=12, rate=0.1)
    np.testing.assert_allclose(run.parameters, x, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.loss, losses, rtol=0, atol=1e-10)
    assert all(step.combined for step in run.steps)


@pytest.mark.parametrize(
    "scheme", [fractional(6, 2), cyclic(6, 2), Everything(6)], ids=lambda s: s.name
)
def test_workers_that_die_do_not_change_what_is_learnt(scheme: Scheme) -> None:
    law = Chain(LAW, Dead(worker=2, step=2), Dead(worker=5, step=4))
    run = train(Regression(scheme.parts).gradient, np.zeros(3), scheme, law, steps=8)
    x, _ = Regression(scheme.parts).descend(steps=8, rate=0.1)
    np.testing.assert_allclose(run.parameters, x, rtol=0, atol=1e-10)


class Rows:
    """Rebuilds, from events and orders alone, the rows of the messages heard."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.step = -1
        self.segments: dict[tuple[int, int], Segment] = {}
        self.rows: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, event: Event, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Assign):
                self.segments[command.step, command.segment.id] = command.segment
        if isinstance(event, StepStarted):
            self.step = event.step
        if isinstance(event, MessageArrived):
            row = np.zeros(self.parts)
            for id_, done in event.cuts:
                segment = self.segments[event.step, id_]
                for part, c in zip(segment.parts[:done], segment.coefficients[:done],
                                   strict=True):  # fmt: skip
                    row[part] += c
            self.rows[event.step, event.message] = row


@pytest.mark.parametrize("machine", MACHINES[:3], ids=str)
@pytest.mark.parametrize("scheme", APPROXIMATE, ids=str)
def test_an_approximate_gradient_is_the_weights_times_the_rows(
    scheme: Scheme, machine: Machine
) -> None:
    problem, rows = Regression(scheme.parts), Rows(scheme.parts)
    used: list[tuple[np.ndarray, np.ndarray]] = []

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        used.append((x.copy(), mean.copy()))
        return x - 0.05 * mean

    run = train(
        problem.gradient, np.zeros(3), scheme, LAW, steps=10, update=update,
        machine=machine, watch=rows,
    )  # fmt: skip
    inexact = 0
    for number, (step, (x, mean)) in enumerate(zip(run.steps, used, strict=True)):
        weighed = sum(
            (a * rows.rows[number, message] for message, a in step.weights),
            np.zeros(scheme.parts),
        )
        each = [problem.gradient(x, part, number) for part in range(scheme.parts)]
        total = weighed @ np.array([gradient for _, _, gradient in each])
        count = weighed @ np.array([samples for _, samples, _ in each])
        loss = weighed @ np.array([loss for loss, _, _ in each])
        if step.weights:
            np.testing.assert_allclose(mean, total / count, rtol=0, atol=1e-10)
            assert run.loss[number] == pytest.approx(loss / count, abs=1e-10)
        gap = weighed - 1.0
        assert step.residual == pytest.approx(gap @ gap, abs=1e-9)
        inexact += step.residual > 1e-9
    assert inexact > 0  # else it was not approximate at all


# -- right on average ------------------------------------------------------------------


def stretched(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    """Gradients that stay as they are; parts with more samples have unlike ones."""
    return 1.0, 1.0 + 4 * part, np.array([float(part * part), 3.0 - part])


def means(scheme: Scheme, samples: float | None) -> np.ndarray:
    """Return the gradients used in 800 steps; workers are late with probability 0.4."""
    law = Chain(
        ShiftedExponential(floor=0.1), Pauses(probability=0.4, low=50.0, high=60.0)
    )
    used: list[np.ndarray] = []

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        used.append(mean)
        return x

    machine = Machine(drain=False)  # late or not, it is there for the next step
    train(
        stretched, np.zeros(2), scheme, law, steps=800, update=update,
        machine=machine, samples=samples,
    )  # fmt: skip
    return np.array(used)


def test_what_is_right_on_average_stays_so_if_all_samples_are_divided_by() -> None:
    """Three standard errors: one seed in 200 would fail by chance; this one does not.

    Divided by what was decoded it is some six of them off.
    """
    scheme = stochastic(4, 2, 0.4, budget=10.0)
    each = [stretched(np.zeros(2), part, 0) for part in range(4)]
    samples = sum(count for _, count, _ in each)
    whole = sum(gradient for _, _, gradient in each) / samples
    off = []
    for given in (samples, None):
        used = means(scheme, given)
        error = used.std(axis=0, ddof=1) / np.sqrt(len(used))
        off.append(np.abs(used.mean(axis=0) - whole) / error)
    assert off[0].max() < 3.0
    assert off[1].max() > 3.0  # divided by what was decoded it is something else


# -- messages compared -----------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES[:3], ids=str)
@pytest.mark.parametrize(
    "scheme",
    [Comparing(cyclic(6, 2)), Comparing(stochastic(6, 2, 0.2, budget=3.0))],
    ids=lambda s: s.name,
)
def test_who_asks_is_told_the_inner_products_of_the_gradients(
    scheme: Scheme, machine: Machine
) -> None:
    problem, rows = Regression(scheme.parts), Rows(scheme.parts)
    used, told = list[np.ndarray](), list[MessagesCompared]()
    ends: list[Combine] = []

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        used.append(x.copy())
        return x - 0.05 * mean

    def watch(event: Event, commands: list[Command]) -> None:
        rows(event, commands)
        ends.extend(c for c in commands if isinstance(c, Combine))
        if isinstance(event, MessagesCompared):
            told.append(event)
            assert event.step == ends[-1].step  # and no later one has begun

    train(
        problem.gradient, np.zeros(3), scheme, LAW, steps=8, update=update,
        machine=machine, watch=watch,
    )  # fmt: skip
    assert [event.step for event in told] == [e.step for e in ends if e.weights]
    for event in told:
        step, heard = event.step, sorted(m for m, _ in ends[event.step].weights)
        slopes = [problem.gradient(used[step], p, step)[2] for p in range(scheme.parts)]
        sums = {m: rows.rows[step, m] @ np.array(slopes) for m in heard}
        pairs = [(i, j) for i in heard for j in heard if i <= j]
        assert [(i, j) for i, j, _ in event.products] == pairs
        expected = [float(sums[i] @ sums[j]) for i, j in pairs]
        found = [product for *_, product in event.products]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e160, np.nan], ids=["1", "1e160", "nan"])
def test_products_that_are_not_finite_are_not_told(scale: float) -> None:
    seen: list[Event] = []
    train(
        lambda x, part, step: (0.0, 1.0, np.full(2, scale)), np.zeros(2),
        Comparing(uncoded(3)), LAW, steps=2, update=lambda x, mean, step: x,
        watch=lambda event, commands: seen.append(event),
    )  # fmt: skip
    told = [event for event in seen if isinstance(event, MessagesCompared)]
    assert len(told) == (2 if scale == 1.0 else 0)


def test_without_gradients_there_is_nothing_to_compare() -> None:
    seen: list[Event] = []
    simulator = Simulator(
        Comparing(uncoded(3)), watch=lambda event, commands: seen.append(event)
    )
    simulator.step([1.0] * 3, [0.0] * 3)
    assert not any(isinstance(event, MessagesCompared) for event in seen)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_the_likeness_of_gradients_is_learnt_in_training(rho: float) -> None:
    """Gradients of 400 numbers: their correlation is known to 0.05, and shrinks not."""
    rng = np.random.default_rng(0)
    own, shared = rng.standard_normal((6, 400)), rng.standard_normal(400)
    slopes = np.sqrt(1 - rho) * own + np.sqrt(rho) * shared
    believed: list[float | None] = []

    class Noting(Comparing):
        def plan(self, step: int, history: History) -> Plan:
            believed.append(history.follow(Likeness()).correlation)
            return super().plan(step, history)

    train(
        lambda x, part, step: (0.0, 1.0, 0.5**step * slopes[part]), np.zeros(400),
        Noting(stochastic(6, 3, 0.2, budget=3.0)), LAW, steps=12,
    )  # fmt: skip
    assert believed[0] is None
    assert believed[-1] == pytest.approx(rho, abs=0.15)


@pytest.mark.parametrize("scheme", [cyclic(6, 2), Everything(6)], ids=lambda s: s.name)
def test_the_clock_of_a_run_is_the_sum_of_its_steps(scheme: Scheme) -> None:
    run = train(Regression(scheme.parts).gradient, np.zeros(3), scheme, LAW, steps=15)
    assert np.all(np.diff(run.seconds) > 0)
    durations = [step.seconds for step in run.steps]
    np.testing.assert_allclose(run.seconds, np.cumsum(durations))
    assert len(run.steps) == len(run.loss) == 15


def bowl(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    """Half the squared distance to (part, part)."""
    return float((x - part) @ (x - part) / 2), 1.0, x - part


def test_the_loss_falls_as_virtual_time_goes_on() -> None:
    run = train(bowl, np.full(2, 9.0), cyclic(6, 2), LAW, steps=40)
    assert np.all(np.diff(run.loss) < 0)
    assert run.loss[0] == pytest.approx(np.mean([(9.0 - p) ** 2 for p in range(6)]))
    np.testing.assert_allclose(run.parameters, 2.5 + 6.5 * 0.9**40)


def test_a_step_that_is_given_up_leaves_the_parameters_alone() -> None:
    law = Chain(ShiftedExponential(floor=1.0, mean=0.1), Dead(worker=1, step=3))
    calls: list[int] = []

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        calls.append(step)
        return x - 0.1 * mean

    run = train(bowl, np.zeros(2), uncoded(3), law, steps=5, update=update)
    assert calls == [0, 1, 2]
    assert [step.combined for step in run.steps] == [True] * 3 + [False] * 2
    np.testing.assert_array_equal(np.isnan(run.loss), [False] * 3 + [True] * 2)
    np.testing.assert_allclose(run.parameters, 1.0 - 0.9**3)
    assert np.all(np.diff(run.seconds) > 0)


def test_a_step_in_which_nothing_is_heard_has_no_loss_and_no_gradient() -> None:
    law = ShiftedExponential(floor=1.0)
    scheme = stochastic(4, 2, 0.1, budget=0.25)
    run = train(bowl, np.full(2, 5.0), scheme, law, steps=3)
    assert all(step.combined and step.residual == 4.0 for step in run.steps)
    assert np.all(np.isnan(run.loss))
    np.testing.assert_array_equal(run.parameters, [5.0, 5.0])


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(
    "scheme", [fractional(6, 2), cyclic(6, 2), Everything(6)], ids=lambda s: s.name
)
def test_the_gradient_of_a_part_is_computed_once_a_step(
    scheme: Scheme, machine: Machine
) -> None:
    problem = Regression(scheme.parts)
    run = train(problem.gradient, np.zeros(3), scheme, LAW, steps=6, machine=machine)
    assert max(problem.calls.values()) == 1
    assert len(problem.calls) == 6 * scheme.parts  # and every one is needed
    assert sum(step.work for step in run.steps) > len(problem.calls)


def test_the_update_is_told_parameters_gradient_and_step() -> None:
    told: list[tuple[list[float], list[float], int]] = []

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        told.append((x.tolist(), mean.tolist(), step))
        return x + 1.0

    run = train(bowl, np.zeros(1), uncoded(2), LAW, steps=3, update=update)
    assert told == [([0.0], [-0.5], 0), ([1.0], [0.5], 1), ([2.0], [1.5], 2)]
    assert run.parameters.tolist() == [3.0]


def test_the_parameters_given_are_not_changed() -> None:
    given = np.full(2, 3.0)
    run = train(bowl, given, fractional(4, 1), LAW, steps=3)
    assert given.tolist() == [3.0, 3.0]
    assert run.parameters is not given
    as_integers = train(bowl, np.array([3, 3]), fractional(4, 1), LAW, steps=3)
    np.testing.assert_array_equal(as_integers.parameters, run.parameters)


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> Training:
        scheme = ignore(6, 3)
        return train(bowl, np.zeros(2), scheme, LAW, steps=10, seed=seed)

    first, again, other = run(1), run(1), run(2)
    assert first.steps == again.steps
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert first.steps != other.steps


@pytest.mark.parametrize("shape", [(), (2, 2), (1, 3)])
def test_parameters_that_are_not_flat_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidJob, match=r"parameters: has shape .*flat array"):
        train(bowl, np.zeros(shape), uncoded(2), LAW, steps=1)


def wrong(size: Any) -> Gradient:
    return lambda x, part, step: (0.0, 1.0, np.zeros(size))


@pytest.mark.parametrize("size", [1, 2, 4, (3, 1), ()])
def test_a_gradient_unlike_the_parameters_is_refused(size: Any) -> None:
    with pytest.raises(InvalidJob, match="the gradient of part 0: has shape"):
        train(wrong(size), np.zeros(3), uncoded(1), LAW, steps=1)


def test_an_update_unlike_the_parameters_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"the update: has shape \(2,\)"):
        train(
            bowl, np.zeros(3), uncoded(2), LAW, steps=1,
            update=lambda x, mean, step: x[:2],
        )  # fmt: skip


def test_scores_are_taken_after_every_step_and_say_when_one_was_reached() -> None:
    scores = iter([0.1, 0.5, 0.4, 0.7])
    seen: list[float] = []

    def evaluate(parameters: np.ndarray) -> float:
        seen.append(float(parameters[0]))
        return next(scores)

    run = train(
        lambda x, part, step: (0.0, 1.0, np.ones(1)),
        np.zeros(1),
        uncoded(2),
        ShiftedExponential(floor=1.0),
        steps=4,
        rate=1.0,
        evaluate=evaluate,
    )
    assert seen == [-1.0, -2.0, -3.0, -4.0]
    assert run.score.tolist() == [0.1, 0.5, 0.4, 0.7]
    assert run.seconds_to(0.45) == run.seconds[1]
    assert run.seconds_to(0.71) == np.inf


def test_without_an_evaluation_there_are_no_scores() -> None:
    run = train(
        lambda x, part, step: (0.0, 1.0, np.ones(1)),
        np.zeros(1),
        uncoded(2),
        ShiftedExponential(floor=1.0),
        steps=2,
    )
    assert np.isnan(run.score).all()
    assert run.seconds_to(0.0) == np.inf
