"""Which samples a part has at a step, and the batch they make.

Both are functions of their arguments alone, so whichever worker computes a part of a
step, now or later, sees the same samples in the same order.

| `shuffle` | the samples of a part | their order |
| --- | --- | --- |
| `True` | drawn once for the whole run | drawn anew every epoch |
| `False` | a range of numbers | ascending |
| `"global"` | drawn anew every epoch, from all | drawn anew every epoch |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import index
from reprlib import repr as brief
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    TensorDataset,
    default_collate,
)

from codedgrad.errors import InvalidScenario

__all__ = ["Batches", "Parts"]

Ints: TypeAlias = NDArray[np.int64]

SHARDS, ORDERS, EPOCHS, CHECKED = range(
    4
)  # what randomness is for: no two share a stream
MAP_STYLE = "a Dataset with __len__ and __getitem__, or tensors of equal lengths"


class Parts:
    """Says which samples a part has at a step.

    The data set is cut into as many shards as there are parts, the batch of a step into
    as many shares; sizes differ by at most one and the first are the larger. A part is
    the next share of its shard. Every sample comes up exactly once an epoch; at the end
    of one, parts may be short or empty.

    Args:
        samples: In the data set.
        parts: A step is cut into.
        batch_size: Samples of a step, all parts together; None for all there are.
        seed: Of every random order, 0 or more.
        shuffle: True, False or "global"; see the table of this module.

    Attributes:
        samples: As given.
        parts: As given.
        sizes: Samples in the shard of every part.
        shares: Samples of every part in a full step.
        steps_per_epoch: Steps until every sample has come up.
        least: Samples in the smallest part of an epoch that has any.

    Example:
        >>> parts = Parts(samples=10, parts=2, batch_size=5, seed=0, shuffle=False)
        >>> parts.sizes, parts.shares, parts.steps_per_epoch
        ((5, 5), (3, 2), 3)
        >>> [parts.indices(part=1, step=step).tolist() for step in range(4)]
        [[5, 6], [7, 8], [9], [5, 6]]
        >>> [parts.total(step) for step in range(4)]
        [5, 4, 1, 5]
    """

    def __init__(
        self,
        samples: int,
        parts: int,
        batch_size: int | None,
        seed: int,
        shuffle: bool | str = True,
    ) -> None:
        self.samples = _whole("samples", samples, 1)
        self.parts = _whole("parts", parts, 1)
        batch = self.samples if batch_size is None else _batch(batch_size, self.parts)
        if not isinstance(shuffle, bool) and shuffle != "global":
            problem = f"is {brief(shuffle)}"
            raise InvalidScenario("shuffle", problem, 'True, False or "global"')
        self.sizes = _cut(self.samples, self.parts)
        self.shares = _cut(batch, self.parts)
        self.steps_per_epoch = max(
            -(-size // share)
            for size, share in zip(self.sizes, self.shares, strict=True)
            if size
        )
        self.least = min(
            size % share or min(size, share)
            for size, share in zip(self.sizes, self.shares, strict=True)
            if size
        )
        self._starts = (0, *accumulate(self.sizes))
        self._seed = _whole("seed", seed, 0)
        self._shuffle = shuffle
        # the shards of the whole run; the orders of one epoch, by part, as they come up
        self._shards = self._order(self.samples, SHARDS) if shuffle is True else None
        self._epoch = -1
        self._orders = dict[int, Ints]()

    def indices(self, part: int, step: int) -> Ints:
        """Return the samples of a part at a step, in order; there may be none."""
        if _whole("part", part, 0) >= self.parts:
            advice = f"a part from 0 to {self.parts - 1}"
            raise InvalidScenario("part", f"is {part}", advice)
        epoch, i = divmod(_whole("step", step, 0), self.steps_per_epoch)
        share, size = self.shares[part], self.sizes[part]
        first, end = min(i * share, size), min((i + 1) * share, size)
        if not self._shuffle:
            start = self._starts[part]
            return np.arange(start + first, start + end, dtype=np.int64)
        return self._shard(part, epoch)[first:end].copy()

    def total(self, step: int) -> int:
        """Return how many samples all parts of a step have together."""
        i = _whole("step", step, 0) % self.steps_per_epoch
        return sum(
            min((i + 1) * share, size) - min(i * share, size)
            for size, share in zip(self.sizes, self.shares, strict=True)
        )

    def checked(self, count: int) -> list[int]:
        """Return the samples by which workers compare their data, ascending."""
        sequence = np.random.SeedSequence(self._seed, spawn_key=(CHECKED,))
        drawn = np.random.default_rng(sequence).integers(self.samples, size=count)
        return sorted({*drawn.tolist()})

    def _shard(self, part: int, epoch: int) -> Ints:
        """Return the samples of a part in an epoch, in order."""
        if epoch != self._epoch:
            self._epoch, self._orders = epoch, {}
        own = slice(self._starts[part], self._starts[part + 1])
        if self._shards is None:  # all parts share one order
            if 0 not in self._orders:
                self._orders[0] = self._order(self.samples, EPOCHS, epoch)
            return self._orders[0][own]
        if part not in self._orders:
            order = self._order(self.sizes[part], ORDERS, epoch, part)
            self._orders[part] = self._shards[own][order]
        return self._orders[part]

    def _order(self, size: int, *use: int) -> Ints:
        sequence = np.random.SeedSequence(self._seed, spawn_key=use)
        return np.random.default_rng(sequence).permutation(size)


class Batches:
    """Makes a batch of samples that are picked by their numbers.

    Tensors, and a plain `TensorDataset`, are indexed as a whole. From any other data
    set samples are taken one by one (or by its `__getitems__`) and collated, as a
    `DataLoader` does.

    Args:
        data: A map-style data set, a tensor, or a tuple, list or dict of tensors with
            a row per sample.
        collate: Makes a batch of a list of samples; `default_collate` without it.

    Example:
        >>> batches = Batches((torch.arange(4) * 10, torch.arange(4)))
        >>> len(batches), batches([2, 0])
        (4, (tensor([20,  0]), tensor([2, 0])))
    """

    def __init__(
        self, data: Any, collate: Callable[[list[Any]], Any] | None = None
    ) -> None:
        _check_collate(collate)
        if type(data) is TensorDataset and collate is None:
            data = list(data.tensors)  # a list, as default_collate makes of samples
        self._data = data
        self._collate = collate
        self._columns = _columns(data)
        self._samples = _rows(self._columns) if self._columns else _length(data)
        if not self._samples:
            raise InvalidScenario("data", "has no samples", "one or more")

    def __len__(self) -> int:
        """Return how many samples there are."""
        return self._samples

    def __call__(self, indices: Sequence[int] | Ints) -> Any:
        """Return the batch of these samples, in this order; there must be one."""
        picked = np.asarray(indices).tolist()
        if not picked:
            problem = "no sample is asked for, and of none no batch can be made"
            raise InvalidScenario("batch", problem, "to pass over parts without any")
        if self._columns and self._collate is None:
            rows = torch.tensor(picked)
            return _like(
                self._data,
                [each.index_select(0, rows.to(each.device)) for each in self._columns],
            )
        return (self._collate or default_collate)(self._pick(picked))

    def sample(self, number: int) -> Any:
        """Return one sample, as it is before it is collated."""
        return self._pick([number])[0]

    def _pick(self, indices: list[int]) -> list[Any]:
        if self._columns:
            return [_like(self._data, [x[i] for x in self._columns]) for i in indices]
        several = getattr(self._data, "__getitems__", None)
        if several:
            samples: list[Any] = several(indices)
            return samples
        return [self._data[i] for i in indices]


def _check_collate(given: Any) -> None:
    if given is not None and not callable(given):
        advice = "a function of a list of samples"
        raise InvalidScenario("collate", f"is {brief(given)}", advice)


def _columns(data: Any) -> list[Any]:
    """Return the tensors that data is made of; none if it is a data set."""
    if isinstance(data, torch.Tensor):
        return [data]
    if isinstance(data, Mapping):
        return list(data.values())
    arrays = torch.Tensor | np.ndarray
    if isinstance(data, tuple | list) and any(isinstance(x, arrays) for x in data):
        return list(data)
    return []


def _like(data: Any, columns: list[torch.Tensor]) -> Any:
    """Return columns in the same wrapping as the data."""
    if isinstance(data, torch.Tensor):
        return columns[0]
    if isinstance(data, Mapping):
        return dict(zip(data, columns, strict=True))
    return tuple(columns) if isinstance(data, tuple) else columns


def _rows(columns: list[Any]) -> int:
    for column in columns:
        if not isinstance(column, torch.Tensor):
            problem = f"a {type(column).__name__} is among its columns"
            raise InvalidScenario("data", problem, "tensors only, or a Dataset")
        if not column.ndim:
            problem = "a tensor of shape () is among its columns"
            raise InvalidScenario("data", problem, "tensors with a row per sample")
    lengths: list[int] = [column.size(0) for column in columns]
    if len(set(lengths)) > 1:
        problem = f"its tensors have {_listed(lengths)} rows"
        raise InvalidScenario("data", problem, "a row per sample in every tensor")
    return lengths[0]


def _length(data: Any) -> int:
    """Return the length of a map-style data set; refuse what is none."""
    if isinstance(data, DataLoader):
        problem = "is a DataLoader, and parts are picked by index"
        advice = "its data set, loader.dataset, and its batch_size"
        raise InvalidScenario("data", problem, advice)
    if isinstance(data, IterableDataset):
        problem = (
            f"a {type(data).__name__} can only be read from its start, and parts are "
            "picked by index, so that any worker can compute any of them"
        )
        raise InvalidScenario("data", problem, "a map-style Dataset")
    if isinstance(data, type | str | bytes) or not (
        hasattr(data, "__len__") and hasattr(data, "__getitem__")
    ):
        raise InvalidScenario("data", f"is {brief(data)}", MAP_STYLE)
    return len(data)


def _batch(given: int, parts: int) -> int:
    batch = _whole("batch_size", given, 1)
    if batch < parts:
        problem = f"{batch} samples cannot be cut into {parts} parts"
        advice = f"{parts} or more, or fewer parts: less `pieces` or workers"
        raise InvalidScenario("batch_size", problem, advice)
    return batch


def _whole(name: str, given: int, least: int) -> int:
    try:
        number = index(given)
    except TypeError:
        number = least - 1
    if number < least or isinstance(given, bool):
        advice = f"a whole number, {least} or more"
        raise InvalidScenario(name, f"is {brief(given)}", advice)
    return number


def _cut(total: int, parts: int) -> tuple[int, ...]:
    """Return sizes that add up to the total, the larger ones first."""
    each, more = divmod(total, parts)
    return (each + 1,) * more + (each,) * (parts - more)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
