"""A job made of a function."""

from typing import Any

import cloudpickle
import numpy as np
import pytest

from codedgrad.errors import InvalidJob
from codedgrad.jobs import NumpyJob, VectorLayout, WorkerJob

X = np.array([1.0, 2.0, 3.0])


def returning(value: Any, dtype: str = "float64") -> NumpyJob:
    return NumpyJob(lambda x, part, step: value, 3, dtype)


def written(job: WorkerJob, coefficient: float = 1.0, **call: int) -> np.ndarray:
    layout = job.layout
    out = np.full(layout.message, np.nan, layout.dtype)
    parameters = X.astype(layout.parameters_dtype)
    job.part(parameters, call.get("part", 0), call.get("step", 0), coefficient, out)
    return out


def test_a_message_holds_the_gradient_the_loss_and_the_samples() -> None:
    job = returning((7.0, 2, [1.0, -2.0, 0.5]))
    np.testing.assert_array_equal(written(job, -2.0), [-2.0, 4.0, -1.0, -14.0, -4.0])
    assert job.layout == VectorLayout(parameters=3, gradient=3)


def test_the_function_is_told_parameters_part_and_step() -> None:
    told: list[tuple[list[float], int, int]] = []

    def gradient(
        x: np.ndarray, part: int, step: int
    ) -> tuple[float, float, np.ndarray]:
        told.append((x.tolist(), part, step))
        return 0.0, 1.0, x

    written(NumpyJob(gradient, 3), part=4, step=9)
    assert told == [([1.0, 2.0, 3.0], 4, 9)]


def test_the_function_may_return_the_parameters_themselves() -> None:
    x = X.copy()
    out = np.empty(5)
    NumpyJob(lambda x, part, step: (0.0, 1.0, x), 3).part(x, 0, 0, 3.0, out)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(out[:3], 3.0 * X)


def test_a_part_may_be_added_to_what_is_there() -> None:
    job, out = returning((7.0, 2, [1.0, -2.0, 0.5])), np.full(5, 100.0)
    job.part(X, 0, 0, -2.0, out, add=True)
    np.testing.assert_array_equal(out, [98.0, 104.0, 99.0, 86.0, 96.0])


def test_a_coefficient_of_one_changes_no_bit() -> None:
    gradient = np.array([5e-324, -0.0, 1 / 3])  # denormal, negative zero
    out = written(returning((np.pi, 3.0, gradient)))
    assert out.tobytes() == np.array([*gradient, np.pi, 3.0]).tobytes()


def test_what_is_not_finite_is_passed_on() -> None:
    out = written(returning((np.nan, 1.0, [np.inf, -np.inf, np.nan])))
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan, np.nan, 1.0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint64, bool])
def test_a_gradient_of_less_precision_is_multiplied_in_that_of_messages(
    dtype: type,
) -> None:
    gradient = np.array([1, 0, 1], dtype) / np.array(1, dtype)
    out = written(returning((1.0, 1.0, gradient.astype(dtype))), 0.1)
    np.testing.assert_array_equal(out[:3], [0.1, 0.0, 0.1])  # not float32(0.1)


def test_messages_may_be_of_single_precision() -> None:
    job = returning((7.0, 2.0, np.array([0.1, 0.2, 0.3])), "float32")
    assert job.layout.dtype == job.layout.parameters_dtype == "float32"
    out = written(job, 0.5)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, [0.05, 0.1, 0.15, 3.5, 1.0], rtol=2e-7)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "the gradient of part 4: is None in step 9, not three values"),
        (np.zeros(3), "part 4: is an array of shape (3,) in step 9, not three values"),
        ((0.0, np.zeros(3)), "part 4: is a tuple of 2 in step 9, not three values"),
        (
            (0.0, 1.0, np.zeros(2)),
            "the gradient of part 4: has shape (2,) in step 9, the parameters (3,); "
            "try an array as long as the parameters",
        ),
        ((0.0, 1.0, np.zeros((3, 1))), "part 4: has shape (3, 1) in step 9"),
        ((0.0, 1.0, 5.0), "part 4: has shape () in step 9"),
        ((0.0, 1.0, None), "part 4: is no array of real numbers in step 9"),
        ((0.0, 1.0, ["a", "b", "c"]), "is no array of real numbers in step 9"),
        ((0.0, 1.0, np.zeros(3, complex)), "is no array of real numbers in step 9"),
        ((0.0, 1.0, [[1.0], [1.0, 2.0]]), "is no array of real numbers in step 9"),
        (
            (None, 1.0, np.zeros(3)),
            "the loss and the samples of part 4: are None and 1.0 in step 9; "
            "try two real numbers",
        ),
        ((0.0, "5", np.zeros(3)), "are 0.0 and '5' in step 9"),
        ((np.zeros(3), 3, np.zeros(3)), "are an array of shape (3,) and 3 in step 9"),
        ((np.zeros(1), np.zeros(1), np.zeros(3)), "are an array of shape (1,) and an"),
        ((range(3), 3, np.zeros(3)), "are an array of shape (3,) and 3 in step 9"),
        ((1j, 3, np.zeros(3)), "are 1j and 3 in step 9"),
    ],
    ids=str,
)
def test_what_is_not_a_gradient_is_refused_with_part_and_step(
    value: Any, complaint: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        written(returning(value), part=4, step=9)
    assert complaint in str(caught.value)


def test_an_error_of_the_function_is_its_own() -> None:
    def gradient(x: np.ndarray, part: int, step: int) -> Any:
        raise ZeroDivisionError(part)

    with pytest.raises(ZeroDivisionError):
        written(NumpyJob(gradient, 3))


def test_a_job_travels() -> None:
    factor = 4.0
    job = NumpyJob(lambda x, part, step: (0.0, 1.0, factor * x), 3)
    there = cloudpickle.loads(cloudpickle.dumps(job))
    assert there.layout == job.layout
    np.testing.assert_array_equal(written(there), written(job))


def test_a_job_without_parameters_is_refused() -> None:
    with pytest.raises(InvalidJob, match="parameters = 0 is too few"):
        NumpyJob(lambda x, part, step: (0.0, 1.0, x), 0)
