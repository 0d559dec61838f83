"""What a model is besides its parameters: buffers, and whether it is in training mode.

Workers compute every part with the buffers that the root's model has. A forward pass
may change a buffer; what the root's buffer becomes then is a question of its rule:

| rule | the root's buffer changes by | default for |
| --- | --- | --- |
| `"mean"` | the mean of the parts' changes, weighted by samples | running \
statistics of normalisation layers, vectors of spectral norm, whole numbers |
| `"sum"` | the sum of the parts' changes | - |
| `"first"` | the change of the first part of the step that has samples | - |

Whole numbers (counters, flags) must change alike in all parts. Any other buffer has no
rule unless the job gives it one, and a forward pass that changes it is refused: what is
right depends on what the buffer means. A sum of the batch wants `"sum"`, an average
`"mean"`; a codebook whose update is not linear in the batch wants `"first"`, as
DistributedDataParallel takes the buffers of its first process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from codedgrad.errors import InvalidJob
from codedgrad.torch.model.seal import Piece, digest_of

RULES = ("mean", "sum", "first")

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_ALIGNED = 16  # bytes: the longest number, complex128
_FEW = 4096  # whole numbers of all buffers that may always be sent along
_SHARE = 8  # or one in so many of the gradient's
_SMALL = 1 << 16  # bytes of a buffer that is copied sooner than digested
_BASE, _LIMBS = 1 << 10, 3  # whole numbers are sent as so many below so much
_ALIKE = 1e-3  # how far the mean of marks may be from a mark, by rounding


@dataclass(slots=True, eq=False)
class _Home:
    """Where a module keeps a buffer, and where it lies in the vector."""

    name: str
    buffers: dict[str, Tensor | None]
    key: str
    own: Tensor
    rule: str | None
    is_cache: bool  # not in state_dict(): a forward may put a longer one in its place
    start: int = 0
    place: Tensor = field(init=False)
    published: int | None = None  # digest of what `place` was last filled with

    @property
    def now(self) -> Tensor:
        """The buffer that the module has now: a forward may have put another there."""
        now = self.buffers.get(self.key)
        if (
            now is None
            or now.shape != self.own.shape
            or now.dtype != self.own.dtype
            or now.device != self.own.device
        ):
            problem = "is gone, or has another shape, type or device than in the job"
            advice = "to change its numbers only, or register it with persistent=False"
            raise InvalidJob(f"the buffer {self.name}", problem, advice)
        return now

    @property
    def is_replaced(self) -> bool:
        """Whether a forward pass has put another kind of tensor in a cache's place."""
        now = self.buffers.get(self.key)
        kind = None if now is None else (now.shape, now.dtype, now.device)
        own = self.own
        is_other = kind != (own.shape, own.dtype, own.device)
        return self.is_cache and self.rule is None and is_other

    @property
    def is_whole(self) -> bool:
        """Whether it has whole numbers, or flags."""
        return _is_whole(self.own)

    @property
    def sent(self) -> int:
        """Numbers of a message that say how it changes."""
        if not self.is_whole:
            return self.own.numel()
        return self.own.numel() * _LIMBS + (self.rule == "mean")

    @property
    def size(self) -> int:
        """Bytes in the vector."""
        return self.own.numel() * self.own.itemsize

    @property
    def is_small(self) -> bool:
        """Whether copying it costs less than digesting it."""
        return self.size <= _SMALL


class _ModuleBuffers:
    """The buffers that a module had in the job, and those that were None."""

    __slots__ = ("_buffers", "_caches", "_count", "_nones", "_path", "_there")

    def __init__(self, path: str, module: nn.Module) -> None:
        self._path = path
        self._buffers = module._buffers
        self._caches = module._non_persistent_buffers_set
        self._count = len(self._buffers)
        self._there = {k for k, b in self._buffers.items() if b is not None}
        self._nones = [k for k, b in self._buffers.items() if b is None]

    @property
    def is_other(self) -> bool:
        """Whether the module has a buffer that the job did not make, but for caches."""
        if len(self._buffers) == self._count and not any(
            self._buffers.get(name) is not None for name in self._nones
        ):
            return False
        return bool(self._new)

    @property
    def _new(self) -> list[str]:
        there = [k for k, b in self._buffers.items() if b is not None]
        return [k for k in there if k not in self._there and k not in self._caches]

    @property
    def name(self) -> str:
        """Names the first one."""
        path = f"{self._path}." if self._path else ""
        return f"the buffer {path}{self._new[0]}"


class ModelState:
    """The buffers and the training modes of a model.

    ```text
    vector   small buffers | training modes | large buffers, each a stretch of its own
    ```

    Args:
        model: Whose.
        start: The byte of the vector where they begin.
        gradient: Numbers in a gradient, beside which whole numbers should be few.
        rules: By name of a buffer, or a pattern such as `"quantizer.*"`: what becomes
            of changes in a forward pass. Later ones win.

    Attributes:
        end: The byte where they end.
        carried: Numbers in the buffers whose changes are sent.
        has_statistics: Whether a layer in training mode keeps running statistics.
    """

    def __init__(
        self,
        model: nn.Module,
        start: int,
        gradient: int,
        rules: Mapping[str, str] | None = None,
    ) -> None:
        self._modules = list(model.modules())
        self._all: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        self.has_statistics = False
        self._homes = list(self._found(model, gradient, rules or {}))
        self._tables = [
            _ModuleBuffers(path, module) for path, module in model.named_modules()
        ]
        self._small = [home for home in self._homes if home.is_small]
        self._large = [home for home in self._homes if not home.is_small]
        self.start = start
        for home in self._small:
            start = home.start = _aligned(start)
            start += home.size
        self._modes = start
        start += len(self._modules)
        self._end_of_small = _aligned(start)
        for home in self._large:
            start = home.start = _aligned(start)
            start += home.size
        self.end = _aligned(start)
        # those of one type together, so that they are subtracted at once
        self._sent = sorted(
            (home for home in self._homes if home.rule), key=lambda h: str(h.own.dtype)
        )
        self.carried = sum(home.sent for home in self._sent)

    def _found(
        self, model: nn.Module, gradient: int, rules: Mapping[str, str]
    ) -> Iterator[_Home]:
        """Yield where every buffer is, once, with its rule."""
        unused = _checked(rules)
        whole = sum(b.numel() for b in model.buffers() if _is_whole(b))
        few = whole <= max(_FEW, gradient // _SHARE)
        seen: dict[int, Tensor] = {}
        for path, module in model.named_modules():
            statistics = _STATISTICS if isinstance(module, _NORMS) else ()
            for key, buffer in module._buffers.items():
                if buffer is None:
                    continue
                self.has_statistics |= key in statistics and module.training
                is_new = id(buffer) not in seen
                own = seen.setdefault(id(buffer), _spread(buffer))
                module._buffers[key] = own
                self._all.append((module._buffers, key, own))
                if not is_new:
                    continue
                name = f"{path}.{key}" if path else key
                is_known = key in statistics or key in _spectral(module)
                rule = "mean" if is_known or (few and _is_whole(own)) else None
                for pattern, asked in rules.items():
                    if fnmatchcase(name, pattern):
                        rule = asked
                        unused.discard(pattern)
                if rule and own.is_complex():
                    problem = "is complex, and cannot be sent along"
                    advice = "its real and imaginary parts as two buffers"
                    raise InvalidJob(f"the buffer {name}", problem, advice)
                is_cache = key in module._non_persistent_buffers_set
                yield _Home(name, module._buffers, key, own, rule, is_cache)
        if unused:
            names = ", ".join(name for name, _ in model.named_buffers()) or "none"
            problem = f"{sorted(unused)[0]!r} is no buffer of the model"
            raise InvalidJob("job: buffers", problem, f"one of: {names}")

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The (first, last + 1) bytes of what is published together."""
        bounds = [(self.start, self._end_of_small)]
        for home in self._large:
            bounds.append((bounds[-1][1], _aligned(home.start + home.size)))
        return bounds

    def settle(self, vector: Tensor) -> None:
        """Take a place in a vector, and write there what the model has."""
        bytes_ = vector.view(torch.uint8)
        for home in self._homes:
            own, stretch = home.own, bytes_[home.start : home.start + home.size]
            home.place = stretch.view(own.dtype).view(own.shape)
        self._flags = bytes_[self._modes : self._modes + len(self._modules)]
        self._known: list[bool] = []
        self.gather()

    # -- at the root -----------------------------------------------------------------

    def gather(self) -> set[int]:
        """Write into the vector what the model has now.

        Returns:
            Numbers of the stretches of large buffers whose memory is not what it was.
        """
        for table in self._tables:
            if table.is_other:
                problem = "was not there when the job was made"
                advice = "to make it in the job: workers must have it as well"
                raise InvalidJob(table.name, problem, advice)
        for home in self._small:
            if not home.is_replaced:
                home.place.copy_(home.now)
        changed = set()
        for number, home in enumerate(self._large):
            if home.is_replaced:
                continue
            now = digest_of(home.now)
            if now != home.published:
                home.place.copy_(home.now)
                home.published = now
                changed.add(number + 1)
        modes = [module.training for module in self._modules]
        if modes != self._known:
            self._known = modes
            self._flags.copy_(torch.tensor(modes, dtype=torch.uint8))
        return changed

    def lose_track(self) -> None:
        """Let `gather` return everything the next time."""
        for home in self._large:
            home.published = None

    def change(self, decoded: Tensor, samples: float) -> None:
        """Change the root's buffers by what all parts together say.

        Args:
            decoded: Sum over the parts of what `changes` returned, (carried,).
            samples: Of the step.

        Raises:
            InvalidJob: If a counter has not changed alike in all parts. Nothing
                has changed then.
        """
        found = []
        sums = torch.split(decoded.double(), [home.sent for home in self._sent])
        for home, sum_ in zip(self._sent, sums, strict=True):
            if sum_.any():
                by = sum_ / samples if home.rule == "mean" else sum_
                found.append((home, _joined(home, by) if home.is_whole else by))
        for home, by in found:
            before = _wide(home.now)
            home.now.copy_(before + by.view(before.shape))

    # -- in a worker -----------------------------------------------------------------

    def scatter(self, stretches: set[int] | None = None) -> None:
        """Let the model have what the vector says, in some stretches or all."""
        self._put_in_place()
        for number, homes in enumerate([self._small, *([x] for x in self._large)]):
            if stretches is None or number in stretches:
                for home in homes:
                    home.own.copy_(home.place)
        self._known = [bool(flag) for flag in self._flags.tolist()]
        self._set_modes()

    def changes(self, samples: int, is_first: bool) -> Tensor:
        """Return what a forward pass adds to the changes of the step, (carried,).

        Changes and not values: a weighted mean of values would round a buffer that no
        part has changed.

        Args:
            samples: Of the part.
            is_first: Whether it is the first part of the step that has any.
        """
        factors = {"mean": samples, "sum": 1, "first": int(is_first)}
        found = []
        for _, group in groupby(self._sent, key=lambda home: home.own.dtype):
            homes = list(group)
            nows, places = (
                _flat([h.now for h in homes]),
                _flat([h.place for h in homes]),
            )
            lengths = [home.own.numel() for home in homes]
            changes = torch.split(nows - places, lengths)
            for home, change in zip(homes, changes, strict=True):
                factor = factors[home.rule or ""]
                if home.is_whole:
                    found.append(factor * _limbs(home, change).double())
                else:
                    found.append(factor * _finite(home, change, factor))
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)

    def put_back(self) -> None:
        """Undo what a forward pass changed: every part starts from the root's."""
        self._refuse_replaced()
        self._put_in_place()
        for home in self._sent:
            home.own.copy_(home.place)
        self._set_modes()

    def pieces(self) -> list[tuple[int, Piece]]:
        """Return the buffers without a rule, which no forward pass may change.

        Each comes with the number of the stretch that it is published in.
        """
        numbered = [(0, home) for home in self._small]
        numbered += [(1 + number, home) for number, home in enumerate(self._large)]
        return [
            (
                number,
                Piece(
                    partial(_refused, home.name),
                    partial(digest_of, home.own),
                    home.size,
                ),
            )
            for number, home in numbered
            if not home.rule
        ]

    def _refuse_replaced(self) -> None:
        """Refuse a forward that has made a buffer, or put another in its place."""
        for table in self._tables:
            if table.is_other:
                problem = "is made by the forward pass, which has none at its start"
                advice = "to make it in the job, or a plain attribute if it is a cache"
                raise InvalidJob(table.name, problem, advice)
        for home in self._homes:
            if home.rule or home.buffers.get(home.key) is home.own or home.is_replaced:
                continue
            if digest_of(home.now) != digest_of(home.place):
                raise _refused(home.name)

    def _put_in_place(self) -> None:
        for buffers, key, buffer in self._all:
            buffers[key] = buffer

    def _set_modes(self) -> None:
        for module, mode in zip(self._modules, self._known, strict=True):
            if module.training != mode:
                module.training = mode


def _refused(name: str) -> InvalidJob:
    problem = "is changed by the forward pass, and how parts add up is not known"
    advice = (
        f'Job(buffers={{"{name}": rule}}) with "sum" for sums over the batch, "mean" '
        'for averages, "first" for the change of one part (docs/torch.md)'
    )
    return InvalidJob(f"the buffer {name}", problem, advice)


def _checked(rules: Mapping[str, str]) -> set[str]:
    for pattern, rule in rules.items():
        if rule not in RULES:
            problem = f"the rule of {pattern!r} is {rule!r}"
            raise InvalidJob("job: buffers", problem, '"mean", "sum" or "first"')
    return set(rules)


def _spectral(module: nn.Module) -> tuple[str, ...]:
    """Return the buffers of a module that are vectors of spectral norm."""
    if isinstance(module, _SpectralNorm):
        return "_u", "_v"
    hooks = module._forward_pre_hooks.values()
    names = [h.name for h in hooks if isinstance(h, SpectralNorm)]
    return tuple(f"{name}{end}" for name in names for end in ("_u", "_v"))


def _is_whole(buffer: Tensor) -> bool:
    return not buffer.is_floating_point() and not buffer.is_complex()


def _spread(buffer: Tensor) -> Tensor:
    """Give every number a place of its own, which expanded tensors do not have."""
    places = zip(buffer.shape, buffer.stride(), strict=True)
    is_expanded = any(length > 1 and step == 0 for length, step in places)
    return buffer.contiguous() if is_expanded else buffer


def _flat(tensors: list[Tensor]) -> Tensor:
    """Return the numbers of tensors of one type in one wide tensor."""
    return _wide(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]))


def _finite(home: _Home, change: Tensor, factor: float) -> Tensor:
    """Return a change that can be multiplied and added up.

    Raises:
        InvalidJob: If it cannot, because the buffer was not finite before. What
            is not finite afterwards is a model that has diverged, and comes out so.
    """
    if not factor:
        return torch.zeros_like(change)  # 0 x infinity would not be
    if torch.isfinite(change.sum()) or torch.isfinite(change).all():
        return change
    before, now = _flat([home.place]), _flat([home.now])
    same = (before == now) | (before.isnan() & now.isnan())
    if not (before.isfinite() | same).all():
        problem = "changes from a value that is not finite"
        advice = "to begin with a finite number: such changes cannot be added up"
        raise InvalidJob(f"the buffer {home.name}", problem, advice)
    return torch.where(same, torch.zeros_like(change), change)


def _limbs(home: _Home, change: Tensor) -> Tensor:
    """Return whole numbers as numbers below 1024, lowest first: (limbs x numbers,).

    Messages may be float32, which has no room for whole numbers above 2^24, and
    decoding a sum may cost it some of that.
    """
    limbs, rest = list[Tensor](), change
    for _ in range(_LIMBS - 1):
        limbs.append(rest % _BASE)
        rest = rest.div(_BASE, rounding_mode="floor")
    if (rest.abs() > _BASE).any():
        problem = f"changes by {change.abs().max().item():,} in a part"
        advice = f"{_BASE**_LIMBS:,} at most, so that it can be added up exactly"
        raise InvalidJob(f"the buffer {home.name}", problem, advice)
    if home.rule == "mean":
        return torch.cat([*limbs, rest, _mark(change)])
    return torch.cat([*limbs, rest])


def _mark(change: Tensor) -> Tensor:
    """Return a number by which to tell changes apart, (1,).

    The mean of the parts' marks is the mark of their mean change only if all parts
    have changed alike.
    """
    return torch.tensor([0.5 + (digest_of(change) >> 48) / 65536], dtype=torch.float64)


def _joined(home: _Home, by: Tensor) -> Tensor:
    """Return the whole numbers that limbs make, which may be sums or means of some.

    Raises:
        InvalidJob: If they are means, and parts have not changed alike.
    """
    size = home.own.numel()
    limbs = torch.split(by[: _LIMBS * size].round().long(), size)
    change = torch.stack([limb * _BASE**i for i, limb in enumerate(limbs)]).sum(0)
    if home.rule == "mean" and abs(float(by[-1] - _mark(change))) > _ALIKE:
        problem = "counts, and not alike in all parts of a step"
        advice = f'Job(buffers={{"{home.name}": "sum"}}), or "first"'
        raise InvalidJob(f"the buffer {home.name}", problem, advice)
    return change


def _wide(buffer: Tensor) -> Tensor:
    """Return numbers as they are, whole ones of any size too."""
    wide = buffer.detach().cpu()
    return wide.double() if wide.is_floating_point() else wide.long()


def _aligned(byte: int) -> int:
    return -(-byte // _ALIGNED) * _ALIGNED
