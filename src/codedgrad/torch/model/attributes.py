"""Plain attributes and knobs: what the root says beside parameters and buffers.

A model's behaviour also hangs on plain attributes of its modules: a temperature, the
`p` of a dropout layer, the momentum of batch normalisation. Under
DistributedDataParallel every process runs the whole script, so that setting one takes
effect everywhere. Here the script runs at the root alone, and forward passes in the
workers. So the root looks at every `backward` which attributes have changed, and
publishes them with the parameters, as MessagePack in a stretch of the vector.

| attribute of a module | when the root changes it |
| --- | --- |
| number, bool, str, None; tuples of these; tensors and arrays of up to 1024 numbers | \
workers have it from the next `backward` on |
| anything else, new attributes, submodules, hooks | one warning that names it, \
unless its name begins with an underscore |

In a worker every part begins with the root's values: one that a forward pass sets is
set back, with one warning, because its value would depend on which parts the worker
happened to compute. An attribute that was None is left alone: it is a cache, as a rule.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidJob
from codedgrad.torch.model.seal import digest, raw

_log = logging.getLogger("codedgrad")

ROOM = 1 << 15
"""Bytes of the vector for notes. They are sent only when they have changed."""

_HEAD = 8  # bytes: the length of what follows
_FEW = 1024  # numbers of a tensor, items of a tuple
_STANDARD = frozenset(vars(nn.Module()))  # what every module has: not the user's
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_NAMED = 10  # changes that a warning names
_GONE = object()
_IMMUTABLE = (bool, int, float, str)
_OPAQUE = (type, FunctionType, MethodType, ModuleType, nn.Module, Tensor, torch.device)

_Code: TypeAlias = Any
"""A value as MessagePack has it: plain, or a list that begins with its kind."""


def _is_plain(value: object) -> bool:
    """Whether a value is of a kind that is published.

    Subclasses are not: an enumeration would arrive as a mere string or number.
    """
    if value is None or type(value) in (bool, float, str):
        return True
    if type(value) is int:
        return -(2**63) <= value < 2**64  # what MessagePack has room for
    if type(value) is tuple:
        return len(value) <= _FEW and all(map(_is_plain, value))
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufc"
    return _is_small(value)


def _is_small(value: object) -> bool:
    """Whether a value is a tensor or an array that is short enough to be published."""
    if type(value) is np.ndarray:
        return value.dtype.kind in "biufc" and value.size <= _FEW
    return (
        type(value) is Tensor
        and value.numel() <= _FEW
        and value.layout == torch.strided
        and not value.is_quantized
        and value.device.type == "cpu"
        and not value.requires_grad
    )


def _encoded(value: Any) -> _Code:
    if isinstance(value, tuple):
        return ["tuple", *map(_encoded, value)]
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return ["tensor", dtype, list(value.shape), raw(value).tobytes()]
    if isinstance(value, np.ndarray | np.generic):
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return [kind, value.dtype.str, list(value.shape), value.tobytes()]
    return value


def _decoded(code: _Code) -> Any:
    if not isinstance(code, list):
        return code
    if code[0] == "tuple":
        return tuple(map(_decoded, code[1:]))
    kind, dtype, shape, numbers = code
    if kind == "tensor":
        flat = torch.frombuffer(bytearray(numbers), dtype=torch.uint8)
        return flat.view(getattr(torch, dtype)).view(shape)
    array = np.frombuffer(bytearray(numbers), dtype).reshape(shape)
    return array if kind == "array" else array[()]


def _is_same(one: Any, other: Any) -> bool:
    """Whether two plain values are the same, NaN and -0.0 too."""
    if type(one) is not type(other):
        return False
    return one is other or bool(_encode(_encoded(one)) == _encode(_encoded(other)))


_encode = msgspec.msgpack.Encoder().encode


class Knobs(MutableMapping[str, Any]):
    """Numbers that the loop sets and a loss asks for, by name.

    A loss of (model, batch) that has a parameter `knobs` is called with them as they
    were when `backward` was called.

    Example:
        >>> knobs = Knobs()
        >>> knobs["beta"] = 0.5
        >>> dict(knobs)
        {'beta': 0.5}
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = dict(values or {})

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            problem = f"{name!r} has no value; there are {sorted(self._values)}"
            advice = f"coded.knobs[{name!r}] = ... before backward()"
            raise InvalidJob("knobs", problem, advice) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __setitem__(self, name: str, value: Any) -> None:
        given: object = name
        if not isinstance(given, str) or not _is_plain(value):
            problem = f"{name!r} is {type(value).__name__}"
            advice = "numbers, strings, None, tuples of them, or small tensors, by name"
            raise InvalidJob("knobs", problem, advice)
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Knobs({self._values!r})"


class _Copy:
    """A value that can be changed in place, with what it was.

    Of tensors and arrays the numbers count, of lists, dicts and objects what they
    refer to.
    """

    __slots__ = ("_content", "_numbers", "of")

    def __init__(self, value: Any) -> None:
        self.of = value
        self._content = self._content_of(value)
        self._numbers = _encoded(value) if _is_small(value) else None

    @staticmethod
    def _content_of(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.dtype, value.shape, digest(raw(value))
        if isinstance(value, np.ndarray):
            return value.dtype, value.shape, value.tobytes()
        if isinstance(value, list | set):
            return [id(item) for item in value]
        items = value if isinstance(value, dict) else vars(value)
        return {
            key: item if type(item) in _IMMUTABLE else id(item)
            for key, item in items.items()
        }

    @property
    def is_still(self) -> bool:
        """Whether it is what it was."""
        return bool(self._content_of(self.of) == self._content)

    def is_like(self, value: Any) -> bool:
        """Whether another value, of tensors and arrays, is what this one was."""
        return _is_small(value) and bool(self._content_of(value) == self._content)

    def renew(self) -> None:
        """Take what it is now for what it was."""
        self._content = self._content_of(self.of)

    def back(self) -> Any:
        """Return a tensor or an array as it was, which is this one from now on."""
        self.of = _decoded(self._numbers)
        return self.of


class _Module:
    """What a module had when it was last looked at."""

    def __init__(
        self, path: str, module: nn.Module, objects: dict[int, tuple[str, _Copy]]
    ) -> None:
        self.path = path
        self.attributes = vars(module)
        self._passed_over = _STANDARD | _computed(module)
        self._objects = objects
        self.known: dict[str, Any] = {}
        for name, value in self.attributes.items():
            if name not in self._passed_over:
                self.note(name, value)
        self._size = len(self.attributes)
        self._children = dict(module._modules)
        self._hooks = self._count_hooks()

    def name(self, attribute: str) -> str:
        return f"{self.path}.{attribute}" if self.path else attribute

    def note(self, name: str, value: Any) -> None:
        """Note what to compare an attribute with later."""
        is_short = isinstance(value, list | dict | set) and len(value) <= _FEW
        is_object = hasattr(value, "__dict__") and not isinstance(value, _OPAQUE)
        if is_short or is_object:  # several modules may share one: it is compared once
            self._objects.setdefault(id(value), (self.name(name), _Copy(value)))
        self.known[name] = _Copy(value) if _is_small(value) else value

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield every attribute that is not what it was, with its value."""
        attributes, is_gone = self.attributes, False
        for name, before in self.known.items():
            now = attributes.get(name, _GONE)
            is_gone |= now is _GONE
            if isinstance(before, _Copy):
                is_same = before.is_still if now is before.of else before.is_like(now)
            else:
                is_same = now is before or (_is_plain(now) and _is_same(now, before))
            if not is_same:
                yield name, now
        if is_gone or len(attributes) != self._size:
            self._size = len(attributes)
            new = attributes.keys() - self.known.keys() - self._passed_over
            self._passed_over |= new  # workers do not have them, now or later
            for name in sorted(new):
                yield name, _GONE

    def strange(self) -> Iterator[str]:
        """Yield what is new, and can only be warned of."""
        children = self.attributes["_modules"]
        if children != self._children:
            for name in sorted({*children, *self._children}):
                if children.get(name) is not self._children.get(name):
                    yield f"the submodule {self.name(name)}"
            self._children = dict(children)
        hooks = self._count_hooks()
        if hooks != self._hooks:
            if any(hooks[name] > self._hooks[name] for name in _HOOKS):
                yield f"a hook of {self.path or 'the model'}"
            self._hooks = hooks

    def _count_hooks(self) -> dict[str, int]:
        return {name: len(self.attributes[name]) for name in _HOOKS}


def _computed(module: nn.Module) -> frozenset[str]:
    """Return attributes that hooks of weight norm, spectral norm or pruning compute."""
    ends = ("_g", "_v", "_orig")
    names = list(module._parameters)
    return frozenset(n.removesuffix(e) for n in names for e in ends if n.endswith(e))


def _hooks_of(parameter: Tensor) -> int:
    after = getattr(parameter, "_post_accumulate_grad_hooks", None)
    return len(parameter._backward_hooks or ()) + len(after or ())


class Notes:
    """The attributes of a model's modules, and the knobs; at the root or in a worker.

    Args:
        model: Whose modules. Those of TorchScript are passed over: they are compiled.

    Attributes:
        knobs: By name; at the root they are the user's.
    """

    def __init__(self, model: nn.Module) -> None:
        self._objects: dict[int, tuple[str, _Copy]] = {}  # by id: a name, what it was
        self._modules = [
            _Module(path, module, self._objects)
            for path, module in model.named_modules()
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        self._told: dict[tuple[int, str], Any] = {}  # attributes the root has changed
        self._warned: set[str] = set()
        self._said = b""
        self.knobs = Knobs()
        self._restorable = self._all_plain()
        self._parameters = list(model.named_parameters())
        self._hooks = [_hooks_of(parameter) for _, parameter in self._parameters]

    # -- at the root -----------------------------------------------------------------

    def gather(self, place: Tensor) -> None:
        """Write into a stretch of bytes what has changed since the start.

        Raises:
            InvalidJob: If there is no room for it.
        """
        strange: list[str] = []
        for number, module in enumerate(self._modules):
            for name, value in list(module.changed()):
                if value is not _GONE:
                    module.note(name, value)
                if value is not _GONE and _is_plain(value):
                    self._told[number, name] = _encoded(value)
                elif not name.startswith("_"):  # caches, as a rule
                    strange.append(module.name(name))
            strange += module.strange()
        for name, copy in self._objects.values():
            if not copy.is_still:
                copy.renew()
                strange.append(f"what {name} refers to")
        self._warn([*strange, *self._hooked()])
        attributes = [[*key, code] for key, code in self._told.items()]
        knobs = {name: _encoded(value) for name, value in self.knobs.items()}
        said = _encode([attributes, knobs])
        if said == self._said:
            return
        if len(said) > ROOM - _HEAD:
            problem = f"take {len(said):,} bytes"
            advice = f"{ROOM - _HEAD:,} at most: buffers, for what is large"
            raise InvalidJob("changed attributes and knobs", problem, advice)
        framed = len(said).to_bytes(_HEAD, "little") + said
        place[: len(framed)] = torch.frombuffer(bytearray(framed), dtype=torch.uint8)
        self._said = said

    def _hooked(self) -> Iterator[str]:
        """Yield parameters that have hooks which the job did not give them."""
        for number, (name, parameter) in enumerate(self._parameters):
            hooks = _hooks_of(parameter)
            if hooks > self._hooks[number]:
                yield f"a hook of the parameter {name}"
            self._hooks[number] = hooks

    def _warn(self, names: list[str]) -> None:
        new = [name for name in names if name not in self._warned]
        if not new:
            return
        self._warned.update(new)
        more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        _log.warning(
            "the root's model was changed in what does not reach the workers: %s; "
            "forward passes run there, with what the job has made (docs/torch.md says "
            "what reaches them)", ", ".join(new[:_NAMED]) + more,
        )  # fmt: skip

    # -- in a worker -----------------------------------------------------------------

    def scatter(self, place: Tensor) -> None:
        """Let the modules have what a stretch of bytes says."""
        bytes_ = place.numpy()
        length = int.from_bytes(bytes_[:_HEAD].tobytes(), "little")
        if not length:
            return
        said = bytes_[_HEAD : _HEAD + length].tobytes()
        attributes, knobs = msgspec.msgpack.decode(said)
        for number, name, code in attributes:
            module = self._modules[number]
            module.attributes[name] = _decoded(code)
            module.note(name, module.attributes[name])
        self.knobs = Knobs({name: _decoded(code) for name, code in knobs.items()})
        self._restorable = self._all_plain()

    def _all_plain(self) -> list[tuple[dict[str, Any], str, Any, _Module]]:
        """Return every attribute that is set back if a forward pass sets it."""
        return [
            (module.attributes, name, value, module)
            for module in self._modules
            for name, value in module.known.items()
            if isinstance(value, _Copy) or (value is not None and _is_plain(value))
        ]

    def put_back(self) -> None:
        """Undo what a forward pass has set."""
        for attributes, name, before, module in self._restorable:
            now = attributes.get(name, _GONE)
            if now is before:
                continue
            if isinstance(before, _Copy):
                if now is before.of and before.is_still:
                    continue
                attributes[name] = before.back()
                is_other = not before.is_like(now)
            else:
                attributes[name] = before
                is_other = not (_is_plain(now) and _is_same(now, before))
            if is_other and module.name(name) not in self._warned:
                self._warned.add(module.name(name))
                _log.warning(
                    "the forward pass sets the attribute %s; every part begins with "
                    "the root's value of it, so it does not add up: set it at the "
                    "root, ask for `step` in the loss, or make it a buffer",
                    module.name(name),
                )  # fmt: skip
