r"""A code is a matrix.

Row `m` of `B` says which parts message `m` adds up and with which coefficients;
`owner[m]` is the worker that sends it. With the part gradients as rows of `G`, the
messages are `B @ G`, and weights `a` with $a^\top B_H = \mathbf 1^\top$ turn the
messages heard, `H`, into the full gradient: `a @ B[H] @ G == G.sum(axis=0)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes.arguments import whole
from codedgrad.codes.decoders import EXACT, Bools, Decoder, Floats, residuals
from codedgrad.codes.sparse import Matrix
from codedgrad.errors import InvalidCode, InvalidHeard

_NOISE = 1e-13  # a message that adds this much less than the largest adds nothing


@dataclass(frozen=True, slots=True)
class Decoding:
    r"""What to do with the messages heard.

    Attributes:
        weights: Pairs (message, weight), ascending, only non-zero weights.
        residual: $\lVert a^\top B_H - \mathbf 1^\top \rVert_2^2$; 0 means exact, the
            number of parts means that nothing is known.
    """

    weights: tuple[tuple[int, float], ...]
    residual: float

    @property
    def is_exact(self) -> bool:
        """Whether the weighted messages are the full sum, up to rounding."""
        return self.residual <= EXACT


@dataclass(frozen=True, eq=False, repr=False)
class Code:
    """A gradient code: who adds up which parts, and what it survives.

    Codes are built by the families (`fractional`, `cyclic`, ...) or, from any
    matrix, by `from_matrix`. They are not to be changed; their arrays are read-only.

    Attributes:
        name: What built it, such as `cyclic(workers=8, tolerance=2)`.
        B: Coefficients, sparse, shape (messages, parts).
        tolerance: Late workers survived exactly, whoever they are; None where the
            code promises a small residual instead.
        decoder: Finds weights for sets of messages.
        owner: The worker that sends each message; by default message = worker.
        inner: The code of one block, if `B` repeats it along its diagonal; where its
            parts were cut (see `recut`), the code before: messages are the same.

    Example:
        >>> from codedgrad.codes import fractional
        >>> code = fractional(workers=4, tolerance=1)
        >>> code.B.toarray()
        array([[1., 1., 0., 0.],
               [1., 1., 0., 0.],
               [0., 0., 1., 1.],
               [0., 0., 1., 1.]])
        >>> code.placement
        ((0, 1), (0, 1), (2, 3), (2, 3))
        >>> code.load, code.work
        (2, 8)
        >>> code.decodable([1, 2]), code.decodable([0, 1])
        (True, False)
    """

    name: str
    B: Matrix
    tolerance: int | None
    decoder: Decoder
    owner: tuple[int, ...] = ()
    inner: Code | None = None

    def __post_init__(self) -> None:
        owner = tuple(self.owner) or tuple(range(self.B.shape[0]))
        object.__setattr__(self, "owner", owner)
        self._check()
        self._freeze()

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._freeze()  # pickling forgets it

    def _freeze(self) -> None:
        for array in (self.B.data, self.B.indices, self.B.indptr):
            array.flags.writeable = False

    def _check(self) -> None:
        messages, parts = self.B.shape
        if self.B.dtype != np.float64 or not self.B.has_canonical_format:
            problem = "B must be in the format of codes.sparse"
            raise InvalidCode(self.name, problem, "from_matrix, which takes any matrix")
        if messages == 0 or parts == 0:
            problem = f"B has shape {self.B.shape}"
            raise InvalidCode(self.name, problem, "at least one message and one part")
        if not np.all(np.isfinite(self.B.data)):
            problem = "B holds a coefficient that is not finite"
            raise InvalidCode(self.name, problem, "finite numbers")
        absent = np.setdiff1d(np.arange(parts), self.B.indices)
        if absent.size and self.tolerance is not None:
            problem = f"no message holds part {absent[0]}"
            raise InvalidCode(self.name, problem, "a non-zero in every column of B")
        if len(self.owner) != messages or not self._owners_are_workers():
            problem = "owner must name a worker for every message, and all workers"
            raise InvalidCode(self.name, problem, f"a tuple of {messages} workers")
        if self.tolerance is not None:
            whole(self.name, "tolerance", self.tolerance, 0, self.workers - 1)

    def _owners_are_workers(self) -> bool:
        numbers = all(type(worker) is int for worker in self.owner)
        return numbers and set(self.owner) == set(range(self.workers))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self.name}: {self.messages} messages of {self.parts} parts>"

    @property
    def messages(self) -> int:
        """Number of messages, rows of `B`."""
        return self.B.shape[0]

    @property
    def parts(self) -> int:
        """Number of parts, columns of `B`."""
        return self.B.shape[1]

    @cached_property
    def workers(self) -> int:
        """Number of workers."""
        return max(self.owner) + 1

    @cached_property
    def row_norms(self) -> Floats:
        """The l1 norm of the coefficients of each message, shape (messages,)."""
        return np.asarray(abs(self.B).sum(axis=1))

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The parts each worker needs, ascending."""
        held: list[set[int]] = [set() for _ in range(self.workers)]
        for message, worker in enumerate(self.owner):
            held[worker].update(self._support(message).tolist())
        return tuple(tuple(sorted(parts)) for parts in held)

    @cached_property
    def rows(self) -> tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]:
        """The parts, ascending, and the coefficients of every message."""
        B = self.B
        borders = zip(B.indptr[:-1].tolist(), B.indptr[1:].tolist(), strict=True)
        parts, values = B.indices.tolist(), B.data.tolist()
        return tuple(
            (tuple(parts[low:high]), tuple(values[low:high])) for low, high in borders
        )

    @property
    def load(self) -> int:
        """The most parts that one worker computes in a step."""
        return max(map(len, self.placement))

    @property
    def work(self) -> int:
        """The parts computed by all workers together in a step."""
        return sum(map(len, self.placement))

    @cached_property
    def fewest(self) -> int:
        """Messages without which no set decodes: fewer cannot hold every part."""
        largest_first = np.sort(np.diff(self.B.indptr))[::-1]
        return int(np.searchsorted(np.cumsum(largest_first), self.parts)) + 1

    def decodable(self, heard: Iterable[int]) -> bool:
        """Whether the messages heard determine the full sum."""
        pattern = self.pattern(heard)
        if np.count_nonzero(pattern) < self.fewest:
            return False
        return bool(self.decoder.decodable(pattern[None])[0])

    def pattern(self, heard: Iterable[int]) -> Bools:
        """Return `heard` as a mask over messages, having checked it."""
        try:
            given = heard if isinstance(heard, np.ndarray) else list(heard)
            numbers = np.asarray(given)
        except (TypeError, ValueError):  # not iterable, or ragged
            raise InvalidHeard(_shortened(heard), self.messages) from None
        mask = np.zeros(self.messages, dtype=np.bool_)
        if numbers.size == 0:
            return mask
        if (
            numbers.ndim != 1
            or numbers.dtype.kind not in "iu"
            or numbers.min() < 0
            or numbers.max() >= self.messages
        ):
            raise InvalidHeard(_shortened(numbers.tolist()), self.messages)
        mask[numbers] = True
        return mask

    def _support(self, message: int) -> NDArray[np.int32]:
        B = self.B
        return B.indices[B.indptr[message] : B.indptr[message + 1]]


def decode(code: Code, heard: Iterable[int]) -> Decoding:
    r"""Find the best weights for the messages heard.

    Minimises $\lVert a^\top B_H - \mathbf 1^\top \rVert_2^2$ (approximate codes with
    a decoder of their own: whatever that one does); the misfit left is the residual.
    It is 0, up to rounding, exactly when the sum can be recovered. With nothing
    heard there are no weights and the residual is the number of parts.

    Args:
        code: The code in use.
        heard: Numbers of the messages that arrived, in any order.

    Raises:
        InvalidHeard: If a number is not that of a message of this code.

    Example:
        >>> from codedgrad.codes import fractional
        >>> decode(fractional(workers=4, tolerance=1), heard=[2, 1])
        Decoding(weights=((1, 1.0), (2, 1.0)), residual=0.0)
        >>> decode(fractional(workers=4, tolerance=1), heard=[0, 1])
        Decoding(weights=((0, 1.0),), residual=2.0)
    """
    weights = code.decoder.weights(code.pattern(heard)[None])[0]
    share = np.abs(weights) * code.row_norms
    used = np.flatnonzero(share > _NOISE * share.max())
    a = np.zeros((1, code.messages))
    a[0, used] = weights[used]
    residual = float(residuals(code.B, a)[0])
    return Decoding(
        tuple(zip(used.tolist(), a[0, used].tolist(), strict=True)), residual
    )


def a_code(family: str, name: str, value: object) -> None:
    """Raise unless `value` is a code."""
    if not isinstance(value, Code):
        problem = f"{name} must be a code, got {value!r}"
        raise InvalidCode(family, problem, "cyclic(workers=4, tolerance=1)")


def _shortened(given: object) -> str:
    text = str(given)
    return text if len(text) <= 60 else text[:57] + "..."
