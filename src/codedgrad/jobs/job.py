"""What a worker computes: the interface, and how long its vectors are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from codedgrad.errors import InvalidJob

DTYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class VectorLayout:
    """How long the vectors of a job are.

    Attributes:
        parameters: Numbers in the parameter vector.
        gradient: Numbers in a gradient.
        scalars: Trailing numbers of a message: sum of losses, samples, then metrics.
        samples: Which of the scalars counts samples, from 0.
        dtype: Of messages, float32 or float64.
        parameters_dtype: Of the parameter vector, float32 or float64.

    Example:
        >>> VectorLayout(parameters=3, gradient=3).message
        5
    """

    parameters: int
    gradient: int
    scalars: int = 2
    samples: int = 1
    dtype: str = "float64"
    parameters_dtype: str = "float64"

    def __post_init__(self) -> None:
        for name, least in (("parameters", 1), ("gradient", 1), ("scalars", 2)):
            if (given := getattr(self, name)) < least:
                problem = f"{name} = {given} is too few"
                raise InvalidJob("job", problem, f"{least} or more")
        for name in ("dtype", "parameters_dtype"):
            if (given := getattr(self, name)) not in DTYPES:
                problem = f"{name} = {given!r} is unknown"
                raise InvalidJob("job", problem, " or ".join(DTYPES))

    @property
    def message(self) -> int:
        """Numbers that a job writes: a gradient and the scalars."""
        return self.gradient + self.scalars

    @property
    def row(self) -> int:
        """Numbers in a message as it travels: those, and four to check it by."""
        return self.message + 4


class WorkerJob(Protocol):
    """What a worker computes; it lives in the worker and knows nothing of schemes.

    A job may be `Fingerprinted` as well, so that workers that have made another one are
    found out, and may say what a part holds (`DescribesParts`).
    """

    @property
    def layout(self) -> VectorLayout:
        """How long its vectors are; the same in every worker and at the root."""
        ...

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        """Write the sums of a part, times a coefficient.

        The sum of gradients, then the scalars: sum of losses, samples, metrics. They
        depend on the arguments alone, so whoever computes them gets the same numbers.

        Args:
            parameters: Of this step, (layout.parameters,); read-only.
            part: Which part of the data.
            step: Which step; the data of a part may differ from step to step.
            coefficient: What to multiply everything by.
            out: Where to, (layout.message,); what it held before means nothing.
            add: Add to what `out` holds instead, number by number. Whether it is added
                here or by the caller must not change a bit.
        """
        ...


@runtime_checkable
class DescribesParts(Protocol):
    """A job that can say what a part holds; one that cannot has no such method."""

    def describe(self, part: int, step: int) -> str:
        """Return what a part holds at a step, such as `samples 3, 17 and 21`."""
        ...


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What should be the same wherever a job is made, as short texts by name.

    Attributes:
        required: A difference ends the run: the workers would not compute parts of the
            same sum. Such as the number of samples.
        noted: A difference is warned of. Such as the version of a library.
        advice: What to do about a difference in what is required.
    """

    required: Mapping[str, str] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""


@runtime_checkable
class Fingerprinted(Protocol):
    """A job that can be compared with those of other workers."""

    def fingerprint(self) -> Fingerprint:
        """Return what should be the same in every worker and at the root.

        It is asked for once, when the job has been made.
        """
        ...
