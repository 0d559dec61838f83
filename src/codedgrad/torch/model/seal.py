"""Seeing that memory has changed by reading it, not by asking PyTorch.

A tensor's `_version` counts the writes that autograd is told of. Writes through
`.data`, through NumPy, and those of batch normalisation are not among them. So memory
is digested and compared with its digest of before: one read of it, by XXH3, which is as
fast as memory (`python benchmarks/publish.py`). Two contents have the same digest by
chance once in 2**64 times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 1 << 20
"""Bytes that are digested at a time: longer than a call takes, shorter than a part."""

_SHARE = 0.02  # of a part's time, at most, for looking at what was looked at before


def digest(memory: NDArray[Any]) -> int:
    """Return the digest of contiguous memory."""
    number: int = xxhash.xxh3_64_intdigest(memory.data)
    return number


def raw(tensor: Tensor) -> NDArray[Any]:
    """Return the bytes of a tensor, in its order; a copy only if they are scattered.

    Example:
        >>> raw(torch.tensor([[1.0, -0.0]], dtype=torch.float16)).tolist()
        [0, 60, 0, 128]
    """
    plain = tensor.detach().cpu().contiguous()
    bytes_: NDArray[Any] = plain.view(-1).view(torch.uint8).numpy()
    return bytes_


def digest_of(tensor: Tensor) -> int:
    """Return the digest of a tensor's numbers, whatever their type and device."""
    return digest(raw(tensor))


@dataclass(slots=True, eq=False)
class Piece:
    """Something that must stay as it is.

    Attributes:
        error: Makes the error to raise if it has changed.
        digest: Returns its digest now.
        size: Bytes.
    """

    error: Callable[[], Exception]
    digest: Callable[[], int]
    size: int
    sealed: int = 0


class Seal:
    """Memory that nobody may change between `close` and `check`.

    Looking at everything costs a read of it, which is little beside a forward and a
    backward pass but not nothing. So what was closed since the last part, such as the
    parameters of a new step, is looked at in full. Everything else is looked at in
    turn, after each part as much as 2 % of its time is enough for: a forward pass that
    writes to a frozen parameter is found out at its first part, and one that begins
    to do so later after a few parts.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._fresh: list[int] = []
        self._next = 0
        self._credit = 0.0  # seconds that may be spent on looking
        self._rate = math.inf  # seconds a byte, of the last look at what was fresh

    def close(self, numbers: Iterable[int]) -> None:
        """Note what some pieces are now."""
        self._fresh = sorted({*self._fresh, *numbers})
        for number in self._fresh:
            piece = self._pieces[number]
            piece.sealed = piece.digest()

    def check(self, seconds: float) -> Exception | None:
        """Look at what is due after a part; return the error of what has changed.

        Args:
            seconds: What the part took.
        """
        error = self._check_fresh() if self._fresh else None
        self._credit += _SHARE * seconds
        return error or self._check_share()

    def _check_fresh(self) -> Exception | None:
        fresh, self._fresh = [self._pieces[number] for number in self._fresh], []
        begun = time.perf_counter()
        broken = next((piece for piece in fresh if _is_broken(piece)), None)
        size = sum(piece.size for piece in fresh)
        self._rate = (time.perf_counter() - begun) / max(size, 1)
        return None if broken is None else broken.error()

    def _check_share(self) -> Exception | None:
        for _ in self._pieces:  # none twice
            piece = self._pieces[self._next]
            if self._rate * piece.size > self._credit:
                return None
            self._next = (self._next + 1) % len(self._pieces)
            begun = time.perf_counter()
            is_broken = _is_broken(piece)
            self._credit -= time.perf_counter() - begun
            if is_broken:
                return piece.error()
        self._credit = min(self._credit, 0.0)  # time that is left over is not saved up
        return None


def _is_broken(piece: Piece) -> bool:
    return piece.digest() != piece.sealed
