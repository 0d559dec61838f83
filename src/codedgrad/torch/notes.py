"""Plain attributes and knobs: what the root says beside parameters and buffers.

A model's behaviour also hangs on plain attributes of its modules: a temperature, the
`p` of a dropout layer, the momentum of batch normalisation. Under
DistributedDataParallel every process runs the whole script, so that setting one takes
effect everywhere. Here the script runs at the root alone, and forward passes in the
workers. So the root looks at every `backward` which attributes have changed, and
publishes them with the parameters, as MessagePack in a stretch of the vector.

| attribute of a module | when the root changes it |
| --- | --- |
| number, bool, str, None, bytes; tuples of these; tensors of up to 1024 numbers | \
workers have it from the next `backward` on |
| anything else, new attributes, submodules, hooks | one warning that names it, \
unless its name begins with an underscore |

In a worker every part begins with the root's numbers: one that a forward pass sets is
set back, with one warning, because its value would depend on which parts the worker
happened to compute. Anything else that a forward pass sets, such as a cache, is left
alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import msgspec
import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidScenario
from codedgrad.torch.seal import digest, raw

__all__ = ["ROOM", "Knobs", "Notes"]

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

_Code: TypeAlias = Any
"""A value as MessagePack has it: plain, or a list that begins with its kind."""


def _is_plain(value: object) -> bool:
    """Whether a value is of a kind that is published."""
    if value is None or isinstance(value, bool | float | str | bytes):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**64  # what MessagePack has room for
    if type(value) is tuple:
        return len(value) <= _FEW and all(map(_is_plain, value))
    return _is_small(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_small(value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and type(value) is Tensor
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
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _decoded(code: _Code) -> Any:
    if not isinstance(code, list):
        return code
    if code[0] == "tuple":
        return tuple(map(_decoded, code[1:]))
    _, dtype, shape, numbers = code
    flat = torch.frombuffer(bytearray(numbers), dtype=torch.uint8)
    return flat.view(getattr(torch, dtype)).view(shape)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two plain values are the same, NaN and -0.0 too."""
    if type(one) is not type(other):
        return False
    if one is other:
        return True
    return bool(_encode(_encoded(one)) == _encode(_encoded(other)))


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
            raise InvalidScenario("knobs", problem, advice) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __setitem__(self, name: str, value: Any) -> None:
        given: object = name
        if not isinstance(given, str) or not _is_plain(value):
            problem = f"{name!r} is {type(value).__name__}"
            advice = "numbers, strings, None, tuples of them, or small tensors, by name"
            raise InvalidScenario("knobs", problem, advice)
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Knobs({self._values!r})"


class _Module:
    """What a module had when it was last looked at."""

    def __init__(self, path: str, module: nn.Module) -> None:
        self.path = path
        self.attributes = vars(module)
        self.derived = _STANDARD | _computed(module)
        self.known = {
            name: _kept(value)
            for name, value in self.attributes.items()
            if name not in self.derived
        }
        self.size = len(self.attributes)
        self.children = dict(module._modules)
        self.hooks = self._hooks()

    def name(self, attribute: str) -> str:
        return f"{self.path}.{attribute}" if self.path else attribute

    def _hooks(self) -> dict[str, int]:
        return {name: len(self.attributes[name]) for name in _HOOKS}

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield every attribute that is not what it was, with its value."""
        attributes = self.attributes
        for name, before in self.known.items():
            now = attributes.get(name, _GONE)
            if now is not before and not _is_unchanged(now, before):
                yield name, now
        if len(attributes) != self.size:
            self.size = len(attributes)
            for name in attributes.keys() - self.known.keys() - self.derived:
                yield name, attributes[name]

    def strange(self) -> Iterator[str]:
        """Yield what is new, and can only be warned of."""
        children = self.attributes["_modules"]
        if children != self.children:
            names = {*children, *self.children}
            for name in sorted(names):
                if children.get(name) is not self.children.get(name):
                    yield f"the submodule {self.name(name)}"
            self.children = dict(children)
        hooks = self._hooks()
        if hooks != self.hooks:
            if any(hooks[name] > self.hooks[name] for name in _HOOKS):
                yield f"a hook of {self.path or 'the model'}"
            self.hooks = hooks


def _computed(module: nn.Module) -> frozenset[str]:
    """Return attributes that hooks of weight norm, spectral norm or pruning compute."""
    ends = ("_g", "_v", "_orig")
    names = module._parameters
    return frozenset(n.removesuffix(e) for n in names for e in ends if n.endswith(e))


class _Copy:
    """A mutable value as it was: a tensor's numbers, a list's or a dict's items."""

    def __init__(self, value: Any) -> None:
        self.of = value
        self.content = self.content_of(value)

    @staticmethod
    def content_of(value: Any) -> Any:
        if isinstance(value, Tensor):
            return (value.dtype, value.shape, digest(raw(value)))
        if isinstance(value, dict):
            return {key: id(item) for key, item in value.items()}
        return [id(item) for item in value]

    def is_still(self, value: Any) -> bool:
        return bool(self.content_of(value) == self.content)


def _kept(value: Any) -> Any:
    """Return what to compare an attribute with later; what is mutable is copied."""
    is_short = isinstance(value, list | dict | set) and len(value) <= _FEW
    return _Copy(value) if is_short or _is_small(value) else value


def _is_unchanged(now: Any, before: Any) -> bool:
    if isinstance(before, _Copy):
        if type(now) is not type(before.of):
            return False
        if isinstance(now, Tensor):
            return _is_small(now) and before.is_still(now)
        return now is before.of and before.is_still(now)
    return _is_plain(now) and _is_plain(before) and _is_same(now, before)


def _hooks_of(parameter: Tensor) -> int:
    after = getattr(parameter, "_post_accumulate_grad_hooks", None)
    return len(parameter._backward_hooks or ()) + len(after or ())


class Notes:
    """The attributes of a model's modules, and the knobs; at the root or in a worker.

    Args:
        model: Whose modules.

    Attributes:
        knobs: By name; at the root they are the user's.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = [_Module(path, m) for path, m in model.named_modules()]
        self._told: dict[tuple[int, str], Any] = {}  # attributes the root has changed
        self._warned: set[str] = set()
        self._said = b""
        self.knobs = Knobs()
        self._plain = self._restorable()
        self._parameters = list(model.named_parameters())
        self._hooks = [_hooks_of(parameter) for _, parameter in self._parameters]

    # -- at the root -----------------------------------------------------------------

    def gather(self, place: Tensor) -> None:
        """Write into a stretch of bytes what has changed since the start.

        Raises:
            InvalidScenario: If there is no room for it.
        """
        strange: list[str] = []
        for number, module in enumerate(self._modules):
            for name, value in module.changed():
                is_new = name not in module.known
                module.known[name] = _kept(value)
                if is_new or not _is_plain(value):
                    if not name.startswith("_"):  # caches, as a rule
                        strange.append(module.name(name))
                else:
                    value = value.clone() if isinstance(value, Tensor) else value
                    self._told[number, name] = value
            strange += module.strange()
        self._warn([*strange, *self._hooked()])
        attributes = [[*key, _encoded(value)] for key, value in self._told.items()]
        knobs = {name: _encoded(value) for name, value in self.knobs.items()}
        said = _encode([attributes, knobs])
        if said == self._said:
            return
        if len(said) > ROOM - _HEAD:
            problem = f"take {len(said):,} bytes"
            advice = f"{ROOM - _HEAD:,} at most: buffers, for what is large"
            raise InvalidScenario("changed attributes and knobs", problem, advice)
        self._said = said
        framed = len(said).to_bytes(_HEAD, "little") + said
        place[: len(framed)].copy_(
            torch.frombuffer(bytearray(framed), dtype=torch.uint8)
        )

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
            module.known[name] = _kept(module.attributes[name])
        self.knobs = Knobs({name: _decoded(code) for name, code in knobs.items()})
        self._plain = self._restorable()

    def _restorable(self) -> list[tuple[dict[str, Any], str, Any, _Module]]:
        """Return every attribute that is a number."""
        return [
            (module.attributes, name, value, module)
            for module in self._modules
            for name, value in module.known.items()
            if _is_number(value)
        ]

    def put_back(self) -> None:
        """Undo what a forward pass has set."""
        for attributes, name, value, module in self._plain:
            now = attributes.get(name, _GONE)
            if now is not value and _is_number(now):
                attributes[name] = value
                if now != value:
                    self._warn_of_forward(module.name(name))

    def _warn_of_forward(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _log.warning(
                "the forward pass sets the attribute %s; every part begins with the "
                "root's value of it, so it does not add up: set it at the root, or ask "
                "for `step` in the loss", name,
            )  # fmt: skip
