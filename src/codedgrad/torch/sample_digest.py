"""A short digest of a sample, the same in every process that reads the same sample.

Tensors, arrays, numbers, text and bytes are digested by type, shape and content, and
what holds them (sequences, mappings, data classes, images) by structure. Of an object
of another kind only the type counts: its text or its pickle may name an address, or
depend on the process.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

_BYTES = 8  # of a digest: enough to tell samples apart, short enough to be read
_DEEPEST = 32  # levels of nesting; deeper ones, as in a cycle, do not count


def digest(value: object) -> str:
    """Return the digest of a value, as 16 hexadecimal digits.

    Example:
        >>> digest((torch.arange(3), {"a": 1.5}))
        '830e35c630bc8463'
        >>> digest(torch.arange(3)) == digest(torch.arange(3.0))
        False
    """
    return _digest(value, 0).hex()


def _digest(value: object, depth: int) -> bytes:
    hasher = hashlib.blake2b(digest_size=_BYTES)
    hasher.update(type(value).__qualname__.encode() + b"\0")
    for piece in _pieces(value, depth):
        hasher.update(len(piece).to_bytes(8, "little"))
        hasher.update(piece)
    return hasher.digest()


def _pieces(value: object, depth: int) -> list[bytes | memoryview]:
    """Return the bytes that a value is made of; none if only its type counts."""
    if value is None or depth >= _DEEPEST:
        return []
    match value:
        case bool() | int() | float() | complex():
            return [repr(value).encode()]
        case str():
            return [value.encode("utf-8", "surrogatepass")]
        case bytes() | bytearray() | memoryview():
            return [bytes(value)]
        case Tensor():
            return _of_tensor(value)
        case np.ndarray() | np.generic():
            return _of_array(np.asarray(value), depth)
        case Mapping():
            # sorted: the order of keys may come from a set of strings
            pairs = ((_digest(k, depth + 1), v) for k, v in value.items())
            return [
                piece
                for key, held in sorted(pairs, key=lambda pair: pair[0])
                for piece in (key, _digest(held, depth + 1))
            ]
        case Set():
            return list(sorted(_digest(held, depth + 1) for held in value))
        case range():
            return [repr(value).encode()]
        case Sequence():
            return [_digest(held, depth + 1) for held in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [_digest(getattr(value, name, None), depth + 1) for name in names]
    return _of_image(value)


def _of_tensor(tensor: Tensor) -> list[bytes | memoryview]:
    about = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        return [about]  # their numbers are not in one stretch of memory
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return [about, plain.reshape(-1).view(torch.uint8).numpy().data]


def _of_array(array: np.ndarray[Any, np.dtype[Any]], depth: int) -> list[Any]:
    about = f"{array.dtype.str} {array.shape}".encode()
    if array.dtype.hasobject:
        return [about, *(_digest(held, depth + 1) for held in array.ravel().tolist())]
    return [about, np.ascontiguousarray(array).tobytes()]


def _of_image(value: Any) -> list[bytes | memoryview]:
    """Return what an image of PIL's is made of."""
    if not type(value).__module__.startswith("PIL."):
        return []
    return [f"{value.mode} {value.size}".encode(), value.tobytes()]
