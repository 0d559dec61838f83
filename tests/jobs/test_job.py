"""How long the vectors of a job are."""

from typing import Any

import pytest

from codedgrad.errors import InvalidJob
from codedgrad.jobs import VectorLayout


def test_a_message_is_a_gradient_and_the_scalars() -> None:
    assert VectorLayout(parameters=7, gradient=4).message == 6
    assert VectorLayout(parameters=7, gradient=4, scalars=5).message == 9
    assert (
        VectorLayout(parameters=1, gradient=1, scalars=2).message == 3
    )  # the smallest


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"parameters": 0}, "job: parameters = 0 is too few; try 1 or more"),
        ({"gradient": 0}, "job: gradient = 0 is too few; try 1 or more"),
        ({"scalars": 1}, "job: scalars = 1 is too few; try 2 or more"),
        ({"dtype": "float16"}, "job: dtype = 'float16' is unknown; try float32 or"),
        ({"parameters_dtype": "int64"}, "job: parameters_dtype = 'int64' is unknown"),
    ],
    ids=str,
)
def test_a_layout_that_cannot_be_is_refused(
    given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        VectorLayout(**({"parameters": 3, "gradient": 3} | given))
    assert str(caught.value).startswith(complaint)
