"""Sums in, parameters out."""

from typing import Any

import numpy as np
import pytest

from codedgrad.errors import InvalidJob, InvalidOptions
from codedgrad.jobs import Descent, NumpyJob, single_process

TOTAL = np.array([4.0, -8.0, 6.0, 2.0])  # two gradients, their losses, two samples


def test_a_step_goes_against_the_mean_gradient() -> None:
    descent = Descent(np.zeros(2), 5, rate=0.5)
    descent.take(TOTAL, 1.5)
    np.testing.assert_array_equal(descent.parameters, [-1.0, 2.0])
    assert descent.step == 1
    run = descent.training()
    assert (run.loss.tolist(), run.seconds.tolist()) == ([3.0], [1.5])
    np.testing.assert_array_equal(TOTAL, [4.0, -8.0, 6.0, 2.0])


def test_metrics_behind_the_samples_change_nothing() -> None:
    descent = Descent(np.zeros(2), 1, rate=0.5)
    descent.take(np.array([*TOTAL, 99.0, np.nan]), 0.0)
    np.testing.assert_array_equal(descent.parameters, [-1.0, 2.0])
    assert descent.training().loss.tolist() == [3.0]


def test_a_step_that_was_given_up_changes_nothing_but_the_clock() -> None:
    scores: list[float] = []
    descent = Descent(np.ones(2), 3, evaluate=lambda x: scores.append(x[0]) or 7.0)
    descent.take(None, 4.0)
    run = descent.training(["given up"])
    np.testing.assert_array_equal(run.parameters, [1.0, 1.0])
    assert np.isnan(run.loss).tolist() == [True]
    assert (run.score.tolist(), run.seconds.tolist()) == ([7.0], [4.0])
    assert run.steps == ("given up",)


def test_without_samples_the_sum_is_taken_as_it_is_and_there_is_no_loss() -> None:
    descent = Descent(np.zeros(2), 1, rate=1.0)
    descent.take(np.array([1.0, 2.0, 5.0, 0.0]), 0.0)
    np.testing.assert_array_equal(descent.parameters, [-1.0, -2.0])
    assert np.isnan(descent.training().loss).all()


def test_the_samples_of_a_whole_step_are_divided_by_if_they_are_given() -> None:
    descent = Descent(np.zeros(2), 2, rate=0.5, samples=8)
    descent.take(TOTAL, 1.0)
    np.testing.assert_array_equal(descent.parameters, [-0.25, 0.5])
    descent.take(np.zeros(4), 2.0)  # nobody was heard
    np.testing.assert_array_equal(descent.parameters, [-0.25, 0.5])
    loss = descent.training().loss
    assert loss[0] == 3.0  # over the samples decoded
    assert np.isnan(loss[1])


@pytest.mark.parametrize("samples", [0, -1.0, np.inf, np.nan])
def test_samples_that_cannot_be_are_refused(samples: float) -> None:
    with pytest.raises(InvalidOptions, match=r"samples: are .*try a number above 0"):
        Descent(np.zeros(2), 1, samples=samples)


def test_a_run_can_be_looked_at_before_it_ends() -> None:
    descent = Descent(np.zeros(2), 3, rate=0.5)
    assert descent.training().loss.shape == (0,)
    descent.take(TOTAL, 1.0)
    half = descent.training([0])
    descent.take(TOTAL, 2.0)
    whole = descent.training([0, 1])
    assert (half.seconds.tolist(), whole.seconds.tolist()) == ([1.0], [1.0, 2.0])
    assert (half.parameters[0], whole.parameters[0]) == (-1.0, -2.0)
    assert half.score.shape == (1,)
    assert whole.steps == (0, 1)


def test_an_update_in_place_will_do_and_leaves_the_start_alone() -> None:
    start = np.zeros(2)

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        x -= mean
        return x

    descent = Descent(start, 2, update=update)
    descent.take(TOTAL, 0.0)
    half = descent.training()
    descent.take(TOTAL, 0.0)
    np.testing.assert_array_equal(descent.parameters, [-4.0, 8.0])
    np.testing.assert_array_equal(half.parameters, [-2.0, 4.0])
    np.testing.assert_array_equal(start, [0.0, 0.0])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (1.0, "has shape (), the parameters (2,)"),
        (np.zeros(3), "has shape (3,), the parameters (2,)"),
        (np.zeros((2, 1)), "has shape (2, 1), the parameters (2,)"),
        (None, "is no array of real numbers"),
        (["a", "b"], "is no array of real numbers"),
    ],
    ids=str,
)
def test_an_update_unlike_the_parameters_is_refused(given: Any, problem: str) -> None:
    descent = Descent(np.zeros(2), 1, update=lambda x, mean, step: given)
    with pytest.raises(InvalidJob) as caught:
        descent.take(TOTAL, 0.0)
    assert str(caught.value).startswith(f"the update: {problem}; try an array as")


def test_single_precision_stays_single() -> None:
    descent = Descent(np.zeros(2), 1, rate=np.float64(0.1), dtype="float32")
    descent.take(TOTAL.astype(np.float32), 0.0)
    assert descent.parameters.dtype == np.float32
    np.testing.assert_allclose(descent.parameters, [-0.2, 0.4], rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (2, 2)])
def test_parameters_that_are_not_flat_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidJob, match=r"parameters: has shape .*flat"):
        Descent(np.zeros(shape), 1)


def uneven(x: np.ndarray, part: int, step: int) -> tuple[float, float, np.ndarray]:
    """Least squares; `part + 1` samples, other ones in every step."""
    rng = np.random.default_rng([part, step])
    A, b = rng.standard_normal((part + 1, 3)), rng.standard_normal(part + 1)
    gap = A @ x - b
    return float(gap @ gap / 2), float(part + 1), A.T @ gap


def test_a_single_process_trains_as_a_loop_over_all_samples_does() -> None:
    x, losses = np.zeros(3), []
    for step in range(8):
        each = [uneven(x, part, step) for part in range(5)]
        losses.append(sum(loss for loss, _, _ in each) / 15)
        x = x - 0.1 * sum(gradient for _, _, gradient in each) / 15
    run = single_process(uneven, np.zeros(3), 5, steps=8)
    np.testing.assert_allclose(run.parameters, x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(run.loss, losses, rtol=0, atol=1e-14)
    assert np.all(np.diff(run.seconds) > 0)
    assert run.steps == ()


def test_a_single_process_adds_up_as_one_segment_of_all_parts_does() -> None:
    sums: list[np.ndarray] = []

    def update(x: np.ndarray, mean: np.ndarray, step: int) -> np.ndarray:
        sums.append(mean * 15)
        return x

    single_process(uneven, np.ones(3), 5, steps=1, update=update)
    job = NumpyJob(uneven, 3)
    row, scratch = np.empty((2, 5))
    job.part(np.ones(3), 0, 0, 1.0, row)
    for part in range(1, 5):
        job.part(np.ones(3), part, 0, 1.0, scratch)
        row += scratch
    assert (sums[0] / 15).tobytes() == (row[:3] / 15).tobytes()


def test_a_single_process_scores_every_step() -> None:
    run = single_process(
        uneven, np.zeros(3), 2, steps=3, evaluate=lambda x: float(x @ x)
    )
    assert run.score[-1] == run.parameters @ run.parameters
    assert run.seconds_to(run.score.max()) == run.seconds[run.score.argmax()]


def test_a_gradient_cannot_change_the_parameters() -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> Any:
        x += 1.0
        return 0.0, 1.0, x

    with pytest.raises(ValueError, match="read-only"):
        single_process(gradient, np.zeros(3), 2, steps=1)


@pytest.mark.parametrize(("parts", "steps"), [(0, 1), (1, 0)])
def test_nothing_to_do_is_refused(parts: int, steps: int) -> None:
    with pytest.raises(InvalidOptions, match="0 is too few; try 1 or more"):
        single_process(uneven, np.zeros(3), parts, steps=steps)
