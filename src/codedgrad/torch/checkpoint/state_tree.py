"""A nested state as JSON and named tensors, and back, exactly.

| JSON | stands for |
| --- | --- |
| text, `true`, `false`, `null`, a number | itself |
| `{...}` | a dict whose keys are all text |
| `["dict", [key, value], ...]` | any other dict |
| `["counter", [key, value], ...]` | a `Counter` |
| `["ordered", metadata, [key, value], ...]` | an `OrderedDict`, as modules have |
| `["list", ...]`, `["tuple", ...]` | a list, a tuple |
| `["deque", longest, ...]` | a `deque` |
| `["int", "0x..."]` | a whole number past 64 bits |
| `["float", "inf"]`, or `"-inf"`, `"nan"` | that float |
| `["tensor", name]` | a tensor |
| `["complex", name]` | a tensor of complex128, kept as pairs of float64 |
| `["array", dtype, shape, name]` | a numpy array, kept as bytes |
| `["scalar", dtype, bytes]` | a numpy number, its bytes in hexadecimal |

An object is always the user's dict and an array is always one of these words with what
follows, so nothing that the user wrote can be taken for one of ours.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from math import isfinite
from reprlib import repr as brief
from typing import Any, TypeAlias

import numpy as np
import torch

from codedgrad.errors import InvalidCheckpoint

Path: TypeAlias = tuple[str, ...]

DEEPEST = 64  # levels; nobody's state has as many, a dict that holds itself has more
STATE, STRUCTURE = "the state", "the structure"
_PLAIN = (str, int, float, bool, type(None))
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_NUMBERS = "biufc"  # numpy's letters for bool, int, uint, float, complex
_DTYPE = re.compile(r"[<>|=][biufc][0-9]{1,2}")
_DTYPES = """
    bool uint8 uint16 uint32 uint64 int8 int16 int32 int64
    float16 bfloat16 float32 float64 complex64 complex128
    float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
"""  # what safetensors can hold, but for complex128; not every torch has all of them
_HELD = {getattr(torch, name, None) for name in re.findall(r"\w+", _DTYPES)}


def flatten(state: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Take a state apart.

    Nothing is copied that need not be: the tensors are those of the state, so write
    them before it changes. Where two entries are the same view of the same memory, one
    tensor stands for both, and they share it again when read back.

    Args:
        state: Numbers, text, tensors, and numpy's, in dicts, lists, tuples.

    Returns:
        What `json.dumps` takes, and tensors by name: in main memory, contiguous, none
        overlapping another. Names tell the place: `optimizer.state.0.exp_avg`.

    Raises:
        InvalidCheckpoint: If there is anything else in it; says where.

    Example:
        >>> flatten({"step": 3, "sizes": (1, 2), "w": torch.tensor([1.0, 2.0])})
        ... # doctest: +NORMALIZE_WHITESPACE
        ({'step': 3, 'sizes': ['tuple', 1, 2], 'w': ['tensor', 'w']},
         {'w': tensor([1., 2.])})
    """
    writer = _Writer()
    structure = writer.put(state, ())
    return structure, _apart(writer.tensors)


def unflatten(structure: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Put a state together again.

    Args:
        structure: As `flatten` gives it, or whatever a file says in its place.
        tensors: By name. They, and no copies, are in the state.

    Raises:
        InvalidCheckpoint: If the structure is none, or a tensor is missing.

    Example:
        >>> unflatten(["list", 1, ["float", "nan"], ["tuple"]], {})
        [1, nan, ()]
    """
    try:
        return _Reader(tensors).get(structure, 0)
    except InvalidCheckpoint:
        raise
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidCheckpoint(STRUCTURE, f"has no meaning: {error}") from error


class _Writer:
    """Takes a state apart, and gathers its tensors by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        # By where in memory; the tensors are kept so that no other comes to lie there.
        self._stored: dict[tuple[Any, ...], tuple[str, torch.Tensor]] = {}

    def put(self, value: Any, path: Path) -> Any:
        """Return what stands for a value in JSON."""
        kind = type(value)
        if len(path) > DEEPEST:
            raise _refused(path[:4], f"is over {DEEPEST} levels deep, or holds itself")
        if kind in _PLAIN:
            return _plain(value)
        if kind in _DICTS:
            return self._dict(value, path)
        if kind in (list, tuple, torch.Size, deque):
            return self._row(value, path)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if kind is np.ndarray and value.dtype.kind in _NUMBERS:
            name = self._store(_bytes(value), path)
            return ["array", value.dtype.str, list(value.shape), name]
        if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS:
            return ["scalar", value.dtype.str, value.tobytes().hex()]
        what = f"numpy array of {value.dtype}" if kind is np.ndarray else kind.__name__
        raise _refused(path, f"is {_article(what)} {what}")

    def _row(self, value: Any, path: Path) -> list[Any]:
        items = [self.put(item, (*path, f"[{i}]")) for i, item in enumerate(value)]
        if isinstance(value, deque):
            return ["deque", value.maxlen, *items]
        return ["list" if isinstance(value, list) else "tuple", *items]

    def _dict(self, value: dict[Any, Any], path: Path) -> Any:
        if type(value) in (dict, defaultdict) and all(type(k) is str for k in value):
            return {k: self.put(item, (*path, f".{k}")) for k, item in value.items()}
        pairs = [self._pair(key, item, path) for key, item in value.items()]
        if isinstance(value, Counter):
            return ["counter", *pairs]
        if isinstance(value, OrderedDict):
            metadata = getattr(value, "_metadata", None)  # a module's state dict has it
            return ["ordered", self.put(metadata, (*path, "._metadata")), *pairs]
        return ["dict", *pairs]

    def _pair(self, key: Any, item: Any, path: Path) -> list[Any]:
        if not _is_key(key):
            raise _refused(path, f"has the key {brief(key)}")
        place = (*path, _step(key))
        return [self.put(key, place), self.put(item, place)]

    def _tensor(self, value: torch.Tensor, path: Path) -> list[str]:
        kind = type(value)
        if kind not in (torch.Tensor, torch.nn.Parameter):
            raise _refused(path, f"is {_article(kind.__name__)} {kind.__name__}")
        if value.layout != torch.strided or value.is_meta or value.dtype not in _HELD:
            what = f"{value.layout} tensor of {value.dtype} on {value.device}"
            raise _refused(path, f"is a {what}".replace("torch.", ""))
        value = value.detach()
        if value.dtype == torch.complex128:
            pairs = torch.view_as_real(value.resolve_conj())
            return ["complex", self._store(pairs, path)]
        return ["tensor", self._store(value, path)]

    def _store(self, tensor: torch.Tensor, path: Path) -> str:
        """Keep a tensor; return its name, an earlier one's if that is the same."""
        form = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        memory = (tensor.data_ptr(), tensor.is_conj(), tensor.is_neg(), *form)
        if tensor.numel() and memory in self._stored:
            return self._stored[memory][0]
        name = self._name(path)
        whole = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        self.tensors[name], self._stored[memory] = whole, (name, tensor)
        return name

    def _name(self, path: Path) -> str:
        name = unique = _said(path).encode(errors="backslashreplace").decode()
        number = 1
        while unique in self.tensors or unique == "__metadata__":
            number += 1  # {"a.b": tensor, "a": {"b": tensor}}
            unique = f"{name}#{number}"
        return unique


class _Reader:
    """Puts a state together from tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def get(self, node: Any, depth: int) -> Any:
        """Return what a value in JSON stands for."""
        if depth > DEEPEST:
            raise InvalidCheckpoint(STRUCTURE, f"is more than {DEEPEST} levels deep")
        match node:
            case None | bool() | int() | float() | str():
                return node
            case dict():
                return {key: self.get(item, depth + 1) for key, item in node.items()}
            case ["dict", *pairs]:
                return dict(self._pairs(pairs, depth))
            case ["counter", *pairs]:
                return Counter(dict(self._pairs(pairs, depth)))
            case ["ordered", metadata, *pairs]:
                return _ordered(
                    self._pairs(pairs, depth), self.get(metadata, depth + 1)
                )
            case ["list", *items]:
                return self._row(items, depth)
            case ["tuple", *items]:
                return tuple(self._row(items, depth))
            case ["deque", None | int() as longest, *items]:
                return deque(self._row(items, depth), longest)
            case [str(), *_]:
                return self._number(node)
        raise _senseless(node)

    def _number(self, node: list[Any]) -> Any:
        match node:
            case ["int", str(digits)]:
                return int(digits, 16)
            case ["float", "inf" | "-inf" | "nan" as word]:
                return float(word)
            case ["tensor", str(name)]:
                return self._named(name)
            case ["complex", str(name)]:
                return torch.view_as_complex(self._named(name))
            case ["array", str(dtype), list(shape), str(name)]:
                return self._named(name).numpy().view(_dtype(dtype)).reshape(shape)
            case ["scalar", str(dtype), str(digits)]:
                [value] = np.frombuffer(bytes.fromhex(digits), _dtype(dtype))
                return value
        raise _senseless(node)

    def _named(self, name: str) -> torch.Tensor:
        if name not in self.tensors:
            raise InvalidCheckpoint(STRUCTURE, f"needs a tensor {name!r}, and has none")
        tensor = self.tensors[name]
        if tensor.dtype not in _HELD:
            raise InvalidCheckpoint(STRUCTURE, f"has {name!r} of {tensor.dtype}")
        return tensor

    def _row(self, items: list[Any], depth: int) -> list[Any]:
        return [self.get(item, depth + 1) for item in items]

    def _pairs(self, pairs: list[Any], depth: int) -> Iterable[tuple[Any, Any]]:
        for pair in pairs:
            match pair:
                case [key, item] if _is_key(found := self.get(key, depth + 1)):
                    yield found, self.get(item, depth + 1)
                case _:
                    raise _senseless(pair)


def _senseless(node: Any) -> InvalidCheckpoint:
    return InvalidCheckpoint(STRUCTURE, f"has no meaning at {brief(node)}")


def _plain(value: Any) -> Any:
    """Return what stands for text, a number, or None."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        return ["int", hex(value)]
    if type(value) is float and not isfinite(value):
        return ["float", repr(value)]
    return value


def _is_key(key: Any) -> bool:
    return type(key) in _PLAIN or (type(key) is tuple and all(map(_is_key, key)))


def _ordered(pairs: Iterable[tuple[Any, Any]], metadata: Any) -> OrderedDict[Any, Any]:
    found = OrderedDict(pairs)
    if metadata is not None:
        found._metadata = metadata  # type: ignore[attr-defined]  # as torch does
    return found


def _bytes(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return the bytes of an array, of itself where that can be."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return torch.from_numpy(flat if flat.flags.writeable else flat.copy())


def _dtype(text: str) -> np.dtype[Any]:
    """Return a dtype of numbers; others, such as objects, are not made from files."""
    if not _DTYPE.fullmatch(text):
        raise InvalidCheckpoint(
            STRUCTURE, f"names {brief(text)}, not a dtype of numbers"
        )
    return np.dtype(text)


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy what overlaps an earlier tensor: safetensors takes no shared memory."""
    end = 0
    for name in sorted(tensors, key=lambda name: tensors[name].data_ptr()):
        tensor = tensors[name]
        if not tensor.numel() or tensor.data_ptr() < end:
            tensors[name] = tensor.clone()
        end = max(end, tensor.data_ptr() + tensor.numel() * tensor.itemsize)
    return tensors


def _step(key: Any) -> str:
    """Return the step of a path that a key is: `.lr`, `.0`, or `[(0, 1)]`."""
    return f".{key}" if type(key) in (str, int) else f"[{brief(key)}]"


def _said(path: Path) -> str:
    return "".join(path).removeprefix(".") or STATE


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiouAEIOU" else "a"


def _refused(path: Path, problem: str) -> InvalidCheckpoint:
    advice = (
        "checkpoints hold numbers, text and tensors only; leave it out of state_dict()"
    )
    return InvalidCheckpoint(STATE, f"{_said(path)} {problem}; {advice}")
