"""A job made of a function on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.errors import InvalidJob
from codedgrad.jobs.job import VectorLayout

Floats: TypeAlias = NDArray[np.float64]
Gradient: TypeAlias = Callable[[Floats, int, int], tuple[float, float, Floats]]
"""gradient(parameters, part, step) -> (sum of losses, samples, sum of gradients)."""

REAL = "biuf"  # the kinds of dtypes that are real numbers


class NumpyJob:
    """Calls a function for the gradient of a part, and checks what it returns.

    Args:
        gradient: Of one part; its arrays may be of any real type.
        size: Numbers in the parameters, and so in a gradient.
        dtype: Of messages and parameters, float32 or float64.

    Example:
        >>> def gradient(x, part, step):  # of (x - part)^2 / 2
        ...     return float((x[0] - part) ** 2 / 2), 1.0, x - part
        >>> out = np.empty(3)
        >>> NumpyJob(gradient, 1).part(np.array([5.0]), 3, 0, 10.0, out)
        >>> out  # gradient, loss, samples; each 10 times
        array([20., 20., 10.])
    """

    def __init__(self, gradient: Gradient, size: int, dtype: str = "float64") -> None:
        self.layout = VectorLayout(size, size, dtype=dtype, parameters_dtype=dtype)
        self._gradient = gradient
        self._scratch: NDArray[Any] = np.empty(0)

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        """Write coefficient x (gradient, loss, samples) of a part into `out`."""
        if add:
            if self._scratch.shape != out.shape:
                self._scratch = np.empty_like(out)
            self.part(parameters, part, step, coefficient, self._scratch)
            np.add(out, self._scratch, out=out)
            return
        given: Any = self._gradient(parameters, part, step)
        if not isinstance(given, tuple | list) or len(given) != 3:
            problem = f"is {_what(given)} in step {step}, not three values"
            advice = "to return (sum of losses, samples, sum of gradients)"
            raise InvalidJob(f"the gradient of part {part}", problem, advice)
        loss, count, sums = given
        sums = self._sums(sums, part, step)
        scalars = _scalars(loss, count, part, step)
        # in the precision of messages, whatever that of the function is
        np.multiply(sums, coefficient, out=out[:-2], dtype=out.dtype)
        np.multiply(scalars, coefficient, out=out[-2:], dtype=out.dtype)

    def _sums(self, given: Any, part: int, step: int) -> NDArray[Any]:
        array, size = _array(given), self.layout.gradient
        if array.dtype.kind in REAL and array.shape == (size,):
            return array
        problem = f"is no array of real numbers in step {step}"
        if array.dtype.kind in REAL:
            problem = (
                f"has shape {array.shape} in step {step}, the parameters ({size},)"
            )
        advice = "an array as long as the parameters"
        raise InvalidJob(f"the gradient of part {part}", problem, advice)


def _scalars(loss: Any, count: Any, part: int, step: int) -> NDArray[Any]:
    array = _array((loss, count))
    if array.dtype.kind in REAL and array.shape == (2,):
        return array
    where = f"the loss and the samples of part {part}"
    problem = f"are {_what(loss)} and {_what(count)} in step {step}"
    raise InvalidJob(where, problem, "two real numbers")


def _array(given: Any) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError:  # rows of unlike lengths
        return np.asarray(None)


def _what(given: Any) -> str:
    """Name a value in few words."""
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)}"
    shape = np.shape(given)
    return f"an array of shape {shape}" if shape else repr(given)[:40]
