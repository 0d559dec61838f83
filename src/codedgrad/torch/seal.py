"""Seeing that memory has changed by reading it, not by asking PyTorch.

A tensor's `_version` counts the writes that autograd is told of. Writes through
`.data`, through NumPy, and those of batch normalisation are not among them. So memory
is digested and compared with its digest of before: one read of it, by XXH3, which is as
fast as memory (`python benchmarks/publish.py`). Two contents have the same digest by
chance once in 2**64 times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["CHUNK", "Piece", "Seal", "digest", "digest_of", "raw"]

CHUNK = 1 << 20
"""Bytes that are digested at a time: longer than a call takes, shorter than a part."""

_SHARE = 0.02  # of a part's time, at most, for looking again after the first part


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
    backward pass but not nothing. So the first part of a step is followed by a look at
    everything, later ones by a look at the next few pieces, in turn: as many as can be
    read in 2 % of the part's time, as measured.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._next = 0
        self._credit = 0.0  # seconds that may be spent on looking
        self._rate = 0.0  # seconds a byte, of the last look at everything

    def close(self, numbers: Iterable[int]) -> None:
        """Note what some pieces are now."""
        for number in numbers:
            piece = self._pieces[number]
            piece.sealed = piece.digest()

    def check(self) -> Exception | None:
        """Look at everything; return the error of a piece that has changed."""
        self._credit = 0.0
        begun = time.perf_counter()
        broken = next((piece for piece in self._pieces if _is_broken(piece)), None)
        size = sum(piece.size for piece in self._pieces)
        self._rate = (time.perf_counter() - begun) / max(size, 1)
        return None if broken is None else broken.error()

    def check_share(self, seconds: float) -> Exception | None:
        """Look at what there is time for after a part; return an error, likewise.

        Args:
            seconds: What the part took.
        """
        self._credit += _SHARE * seconds
        for piece in self._affordable():
            if _is_broken(piece):
                return piece.error()
        return None

    def _affordable(self) -> Iterator[Piece]:
        for _ in range(len(self._pieces)):  # none twice
            piece = self._pieces[self._next]
            cost = self._rate * piece.size
            if cost > self._credit:
                return
            self._credit -= cost
            self._next = (self._next + 1) % len(self._pieces)
            yield piece
        self._credit = 0.0  # all was looked at: what is left over is not saved up


def _is_broken(piece: Piece) -> bool:
    return piece.digest() != piece.sealed
