"""What a model is besides its parameters: buffers, and whether it is in training mode.

Workers compute every part with what the root's model has. Where a forward pass changes
a buffer (running statistics of BatchNorm, the vectors of spectral norm, counters), the
root's takes the mean change over the parts, weighted by samples: workers send their
changes, which are 0 for whatever stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidScenario

__all__ = ["State"]

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_ALIGNED = 16  # bytes: the longest number, complex128
_FEW = 4096  # numbers of all buffers that may always be sent along
_SHARE = 8  # or one in so many of the gradient's


@dataclass(slots=True, eq=False)
class _Home:
    """Where a module keeps a buffer, and where it lies in the vector."""

    name: str
    buffers: dict[str, Tensor | None]
    key: str
    own: Tensor
    start: int
    carried: bool
    place: Tensor
    version: int = -1

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
            problem = "is gone, or has another shape, type or device"
            advice = "to change its numbers only"
            raise InvalidScenario(f"the buffer {self.name}", problem, advice)
        return now

    @property
    def is_touched(self) -> bool:
        """Whether somebody may have changed it since it was set.

        Batch normalisation changes its statistics without telling the version.
        """
        now = self.buffers.get(self.key)
        return self.carried or now is not self.own or now._version != self.version


class State:
    """The buffers and the training modes of a model.

    Args:
        model: Whose.
        start: The byte of the vector where they begin.
        gradient: Numbers in a gradient, beside which buffers should be few.

    Attributes:
        end: The byte where they end.
        carried: Numbers in the buffers whose changes are sent.
        has_statistics: Whether a layer in training mode keeps running statistics.
    """

    def __init__(self, model: nn.Module, start: int, gradient: int) -> None:
        self._modules = list(model.modules())
        self._all: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        self._homes: list[_Home] = []
        self.has_statistics = False
        few = _count(model) <= max(_FEW, gradient // _SHARE)
        seen: dict[int, Tensor] = {}
        for path, module in model.named_modules():
            is_norm = isinstance(module, _NORMS)
            for key, buffer in module._buffers.items():
                if buffer is None:
                    continue
                self.has_statistics |= is_norm and module.training
                is_new = id(buffer) not in seen
                own = seen.setdefault(id(buffer), _spread(buffer))
                module._buffers[key] = own
                self._all.append((module._buffers, key, own))
                if is_new:
                    start = -(-start // _ALIGNED) * _ALIGNED
                    carried = (few or is_norm) and not own.is_complex()
                    name = f"{path}.{key}" if path else key
                    self._homes.append(
                        _Home(name, module._buffers, key, own, start, carried, own)
                    )
                    start += own.numel() * own.itemsize
        self._modes = start
        self.end = start + len(self._modules)
        self._sent = [home for home in self._homes if home.carried]
        self.carried = sum(home.own.numel() for home in self._sent)

    def settle(self, vector: Tensor) -> None:
        """Take a place in a vector."""
        raw = vector.view(torch.uint8)
        for home in self._homes:
            own = home.own
            stretch = raw[home.start : home.start + own.numel() * own.itemsize]
            home.place = stretch.view(own.dtype).view(own.shape)
        self._flags = raw[self._modes : self.end]
        self._known: list[bool] = []
        self.gather()

    def gather(self) -> None:
        """Write into the vector what the model has."""
        for home in self._homes:
            if home.is_touched:
                home.place.copy_(home.now)
                home.version = home.own._version if home.now is home.own else -1
        modes = [module.training for module in self._modules]
        if modes != self._known:
            self._known = modes
            self._flags.copy_(torch.tensor(modes, dtype=torch.uint8))

    def scatter(self) -> None:
        """Let the model have what the vector says."""
        for buffers, key, buffer in self._all:
            buffers[key] = buffer
        for home in self._homes:
            home.own.copy_(home.place)
            home.version = home.own._version
        self._known = [bool(flag) for flag in self._flags.tolist()]
        self._set_modes()

    def changes(self) -> Tensor:
        """Return by how much a forward pass changed what is carried, (carried,).

        Raises:
            InvalidScenario: If it changed something else.
        """
        found = [_change(home) for home in self._sent]
        for home in self._homes:
            if (
                not home.carried
                and home.is_touched
                and not torch.equal(home.now, home.place)
            ):
                problem = "is changed by the forward pass, and is too large to be sent"
                advice = "buffers of 4096 numbers in all, or an eighth of the gradient"
                raise InvalidScenario(f"the buffer {home.name}", problem, advice)
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)

    def put_back(self) -> None:
        """Undo what a forward pass changed: every part starts from the root's."""
        for buffers, key, buffer in self._all:
            buffers[key] = buffer
        for home in self._homes:
            if home.carried or home.own._version != home.version:
                home.own.copy_(home.place)
                home.version = home.own._version
        self._set_modes()

    def _set_modes(self) -> None:
        for module, mode in zip(self._modules, self._known, strict=True):
            if module.training != mode:
                module.training = mode

    def change(self, changes: Tensor) -> None:
        """Change the model's buffers by so much, (carried,)."""
        at = 0
        for home in self._sent:
            mean = changes[at : at + home.own.numel()]
            at += home.own.numel()
            if mean.any():
                before = _wide(home.now)
                by = mean.double().view(before.shape)
                is_whole = before.dtype == torch.int64
                home.now.copy_(before + (by.round().long() if is_whole else by))


def _spread(buffer: Tensor) -> Tensor:
    """Give every number a place of its own, which expanded tensors do not have."""
    places = zip(buffer.shape, buffer.stride(), strict=True)
    is_expanded = any(length > 1 and step == 0 for length, step in places)
    return buffer.contiguous() if is_expanded else buffer


def _change(home: _Home) -> Tensor:
    return (_wide(home.now) - _wide(home.place)).double().flatten()


def _wide(buffer: Tensor) -> Tensor:
    """Return numbers as they are, whole ones of any size too."""
    wide = buffer.detach().cpu()
    return wide.double() if wide.is_floating_point() else wide.long()


def _count(model: nn.Module) -> int:
    return sum(buffer.numel() for buffer in model.buffers())
