"""A state as the bytes of a safetensors file, with a digest of all of them.

The library reads checkpoints and this module writes them. The library's `save_file`
does not say which error the disk gave, and in older versions it holds the GIL while it
writes, so that a loop beside it stands still.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from codedgrad.errors import InvalidCheckpoint
from codedgrad.torch.checkpoint.state_tree import flatten
from codedgrad.torch.model.seal import raw

KIND = "codedgrad checkpoint"
VERSION = 2  # 1: another order of samples, from before steps had equal sizes
DIGEST = "xxh3"  # the key in the metadata
_LONGEST = 40_000_000  # bytes of JSON; safetensors reads a header of 100 MB
_CODES = {  # what the format calls the types; not every torch has all of them
    getattr(torch, name): code
    for name, code in {
        "bool": "BOOL",
        "uint8": "U8",
        "uint16": "U16",
        "uint32": "U32",
        "uint64": "U64",
        "int8": "I8",
        "int16": "I16",
        "int32": "I32",
        "int64": "I64",
        "float16": "F16",
        "bfloat16": "BF16",
        "float32": "F32",
        "float64": "F64",
        "complex64": "C64",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e4m3fnuz": "F8_E4M3FNUZ",
        "float8_e5m2": "F8_E5M2",
        "float8_e5m2fnuz": "F8_E5M2FNUZ",
        "float8_e8m0fnu": "F8_E8M0",
    }.items()
    if hasattr(torch, name)
}
_SIZES = {code: dtype.itemsize for dtype, code in _CODES.items()}


@dataclass(frozen=True, slots=True)
class Packed:
    """A state as a file will hold it. Made by `pack`.

    Attributes:
        structure: The state as JSON, with a name in the place of every tensor.
        listing: Name, type and shape of every tensor, in the order of the file.
        data: Their bytes, in the same order, in as many pieces as there happen to be.
    """

    structure: str
    listing: list[tuple[str, str, list[int]]]
    data: list[NDArray[np.uint8]]

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(piece.size for piece in self.data)

    def copied(self, memory: NDArray[np.uint8]) -> Packed:
        """Return the same with its bytes in `memory`, which has room for them."""
        whole = memory[: self.size]
        if self.data:
            np.concatenate(self.data, out=whole)
        return Packed(self.structure, self.listing, [whole])

    def pieces(self) -> list[bytes | memoryview]:
        """Return the content of the file.

        Nothing here calls torch, whose threads must not be cut short at exit.
        """
        header: dict[str, Any] = {
            "__metadata__": {
                "kind": KIND,
                "version": str(VERSION),
                "structure": self.structure,
                DIGEST: _digest(self.structure, self.listing, self.data),
            }
        }
        begin = 0
        for name, code, shape in self.listing:
            end = begin + _SIZES[code] * math.prod(shape)
            offsets = [begin, end]
            header[name] = {"dtype": code, "shape": shape, "data_offsets": offsets}
            begin = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # so that the data is aligned
        length = len(text).to_bytes(8, "little")
        return [length + text, *(piece.data for piece in self.data)]


def pack(path: Path | str, state: Mapping[str, Any]) -> Packed:
    """Take a state apart, for a file.

    Nothing is copied but tensors that are not contiguous, that overlap, or that are on
    a GPU: the bytes are those of the state, and change with it.

    Args:
        path: The file, for errors to name.
        state: What `state_tree.flatten` takes: numbers, text, tensors, nested.

    Raises:
        InvalidCheckpoint: If there is something else in the state.
    """
    try:
        structure, tensors = flatten(dict(state))
    except InvalidCheckpoint as error:
        raise InvalidCheckpoint(path, error.problem) from None
    text = json.dumps(structure, allow_nan=False, separators=(",", ":"))
    if len(text) > _LONGEST:
        problem = f"has {len(text)} bytes of numbers and text, over {_LONGEST}"
        raise InvalidCheckpoint(path, f"{problem}; keep long lists as tensors")
    return _packed(text, tensors)


def _packed(structure: str, tensors: Mapping[str, torch.Tensor]) -> Packed:
    # The widest types first, so that each tensor is aligned to its own.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    listing = [
        (name, _CODES[tensors[name].dtype], list(tensors[name].shape)) for name in names
    ]
    return Packed(structure, listing, [raw(tensors[name]) for name in names])


def _digest(
    structure: str,
    listing: list[tuple[str, str, list[int]]],
    data: Iterable[NDArray[np.uint8]],
) -> str:
    """Return the digest of all that a file holds, however its data is cut up."""
    digest = xxhash.xxh3_64(json.dumps([structure, listing]).encode())
    for piece in data:
        digest.update(piece.data)
    return digest.hexdigest()


def digest_of_state(structure: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the digest that a file with this structure and these tensors has."""
    found = _packed(structure, tensors)
    return _digest(found.structure, found.listing, found.data)


def is_whole(path: Path) -> bool:
    """Whether a file holds what its digest says, read in pieces and without torch."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 3 * _LONGEST)))
            metadata = header.pop("__metadata__")
            tensors = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
            listing = [(name, each["dtype"], each["shape"]) for name, each in tensors]
            pieces = iter(lambda: file.read(1 << 20), b"")
            data = (np.frombuffer(piece, np.uint8) for piece in pieces)
            return _digest(metadata["structure"], listing, data) == str(
                metadata[DIGEST]
            )
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        return False
