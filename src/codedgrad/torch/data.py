"""Which samples a part has at a step, and the batch they make.

Both are functions of their arguments alone, so every worker that computes a part of a
step, now or later, sees the same samples in the same order.

An epoch is a row of N positions, one per sample. Step t takes the next `batch_size` of
them, so that steps are those of a `DataLoader`, whatever the number of parts:

```text
position  p = 0 1 2 3 4 5 6 7 8 9          N = 10, batch_size = 4, k = 3 parts
step      t = 0 0 0 0 1 1 1 1 2 2          p div batch_size
shard     j = 0 1 2 0 1 2 0 1 2 0          p mod k
rank          0 0 0 1 1 1 2 2 2 3          p div k, in the shard's order of the epoch
```

Part j of a step is what falls to shard j. Hence parts of a step, and shards, differ by
one sample at most, and the parts take turns at having one more. Shards cut into batches
of their own would leave a short step for every remainder: with 64 parts of a batch of
100, half of all steps had 28 samples.

| `shuffle` | shard j | the sample at a position |
| --- | --- | --- |
| `True` | a fixed set, drawn once for the run | by rank in an order drawn every epoch |
| `False` | samples j, j + k, j + 2k, ... | the sample of that number |
| `"global"` | drawn anew every epoch, from all | by position in an order of all |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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

from codedgrad.errors import InvalidData, InvalidOptions

Ints: TypeAlias = NDArray[np.int64]

# What random numbers are drawn for: each use has a stream of its own.
SHARDS, ORDERS, EPOCHS, CHECKED = range(4)
MAP_STYLE = "a Dataset with __len__ and __getitem__, or tensors of equal lengths"


class Parts:
    """Says which samples a part has at a step.

    For every number of samples, parts and samples a step:

    1. Every step but the last of an epoch has exactly `batch_size` samples.
    2. An epoch has as many steps as a `DataLoader` has batches; the last may be short.
    3. Every sample comes up exactly once an epoch.
    4. No shard is favoured: the sizes of shards, and of the parts of a step, differ by
       one sample at most.

    Parts without a sample are possible: in a short last step, or in every step where
    there are more parts than samples in it.

    With `least_samples` a part has so many or none. A step of the usual size must have
    enough for all parts. A last step that has not is dealt out to as many parts as it
    can fill, evenly spread and other ones every epoch; these have samples of other
    shards too. Only where the whole last step has fewer than `least_samples`, its one
    part has fewer.

    Args:
        samples: In the data set.
        parts: A step is cut into.
        batch_size: Samples of a step, all parts together; None for all there are.
        seed: Of every random order, 0 or more.
        shuffle: True, False or "global"; see the table of this module.
        least_samples: The fewest samples of a part that has any; None: `preferred`, if
            usual steps have enough samples for that, or else 1.
        preferred: See `least_samples`.

    Attributes:
        samples: As given.
        parts: As given.
        batch_size: As given, or all samples.
        least_samples: As given, or as found.
        sizes: Samples in the shard of every part.
        steps_per_epoch: Steps until every sample has come up.
        smallest: Samples in the smallest part of a usual step that has any.
        smallest_at_end: The same of the last step of an epoch.

    Example:
        >>> parts = Parts(samples=10, parts=3, batch_size=4, seed=0, shuffle=False)
        >>> parts.sizes, parts.steps_per_epoch
        ((4, 3, 3), 3)
        >>> [parts.indices(part=0, step=step).tolist() for step in range(4)]
        [[0, 3], [6], [9], [0, 3]]
        >>> [parts.total(step) for step in range(4)]
        [4, 4, 2, 4]
    """

    def __init__(
        self,
        samples: int,
        parts: int,
        batch_size: int | None,
        seed: int,
        shuffle: bool | str = True,
        least_samples: int | None = None,
        preferred: int = 1,
    ) -> None:
        self.samples = _whole("samples", samples, 1)
        self.parts = _whole("parts", parts, 1)
        self.batch_size = (
            self.samples if batch_size is None else _whole("batch_size", batch_size, 1)
        )
        if not isinstance(shuffle, bool) and shuffle != "global":
            problem = f"is {brief(shuffle)}"
            raise InvalidOptions("shuffle", problem, 'True, False or "global"')
        self._usual = min(self.batch_size, self.samples)  # samples of a usual step
        if least_samples is None:
            is_enough = self._usual >= preferred * self.parts
            least_samples = preferred if is_enough else 1
        self.least_samples = _whole("least_samples", least_samples, 1)
        self._refuse_small_parts()
        self.sizes = _cut(self.samples, self.parts)
        self.steps_per_epoch = -(-self.samples // self._usual)
        self.smallest = self._smallest(self._usual)
        self.smallest_at_end = self._smallest(self.total(self.steps_per_epoch - 1))
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
            raise InvalidOptions("part", f"is {part}", advice)
        epoch, i = divmod(_whole("step", step, 0), self.steps_per_epoch)
        start, total = i * self._usual, self.total(step)
        if self._filled(total) < self.parts:
            return self._dealt(part, epoch, start, total)
        first, end = start + (part - start) % self.parts, start + total
        if not self._shuffle:
            return np.arange(first, end, self.parts, dtype=np.int64)
        if self._shards is None:
            return self._of_epoch(epoch)[first : end : self.parts].copy()
        rank, count = first // self.parts, len(range(first, end, self.parts))
        return self._shard(part, epoch)[rank : rank + count].copy()

    def total(self, step: int) -> int:
        """Return how many samples all parts of a step have together."""
        i = _whole("step", step, 0) % self.steps_per_epoch
        return min(self._usual, self.samples - i * self._usual)

    def _filled(self, total: int) -> int:
        """Return how many parts a step of so many samples is dealt out to.

        All parts, unless some would have fewer samples than they may. A part that has
        any has one sample at least, so without `least_samples` shards stay together.
        """
        least = self.least_samples
        if least == 1 or total >= least * self.parts:
            return self.parts
        return max(1, total // least)

    def _smallest(self, total: int) -> int:
        return max(1, total // self._filled(total))

    def _refuse_small_parts(self) -> None:
        usual, least, parts = self._usual, self.least_samples, self.parts
        if least == 1 or usual >= least * parts:
            return
        problem = (
            f"a step of {usual} samples in {parts} parts leaves some with "
            f"{usual // parts}, and {least} are asked for"
        )
        advice = []
        if most := usual // least:
            few = f"{most} part{'s' * (most > 1)} at most"
            advice.append(f"{few} (fewer `pieces` or workers)")
        if self.samples >= least * parts:
            advice.append(f"batch_size={least * parts} or more")
        advice.append(f"least_samples={max(1, usual // parts)}")
        raise InvalidData("least_samples", problem, ", or ".join(advice))

    def _dealt(self, part: int, epoch: int, start: int, total: int) -> Ints:
        """Return the samples of a part of a last step that cannot fill all parts.

        Position p goes to group (p - start) mod `filled`. Groups are spread over the
        parts, so that they fall to several workers, and move on by one every epoch.
        """
        filled = self._filled(total)
        place = (part - epoch) % self.parts
        group = -(-place * filled // self.parts)  # the only one that can be there
        if group == filled or group * self.parts // filled != place:
            return np.empty(0, dtype=np.int64)
        positions = np.arange(start + group, start + total, filled, dtype=np.int64)
        if not self._shuffle:
            return positions
        if self._shards is None:
            return self._of_epoch(epoch)[positions]
        ranks, shards = np.divmod(positions, self.parts)
        for shard in np.unique(shards).tolist():
            is_in = shards == shard
            positions[is_in] = self._shard(shard, epoch)[ranks[is_in]]
        return positions

    def _of_epoch(self, epoch: int) -> Ints:
        """Return all samples in the order of an epoch, which all parts share."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._orders = {0: self._order(self.samples, EPOCHS, epoch)}
        return self._orders[0]

    def checked(self, count: int) -> list[int]:
        """Return the samples by which workers compare their data, ascending."""
        sequence = np.random.SeedSequence(self._seed, spawn_key=(CHECKED,))
        drawn = np.random.default_rng(sequence).integers(self.samples, size=count)
        return sorted({*drawn.tolist()})

    def _shard(self, part: int, epoch: int) -> Ints:
        """Return the samples of a fixed shard in their order of an epoch."""
        assert self._shards is not None
        if epoch != self._epoch:
            self._epoch, self._orders = epoch, {}
        if part not in self._orders:
            order = self._order(self.sizes[part], ORDERS, epoch, part)
            own = self._shards[self._starts[part] : self._starts[part + 1]]
            self._orders[part] = own[order]
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
        self._epoch = -1
        self._columns = _columns(data)
        self._samples = _rows(self._columns) if self._columns else _length(data)
        if not self._samples:
            raise InvalidData("data", "has no samples", "one or more")

    def __len__(self) -> int:
        """Return how many samples there are."""
        return self._samples

    def set_epoch(self, epoch: int) -> None:
        """Tell the data set, or what it wraps, which epoch it is, if it asks for it."""
        if epoch != self._epoch:
            self._epoch = epoch
            for data in _wrapped(self._data):
                if callable(getattr(data, "set_epoch", None)):
                    data.set_epoch(epoch)

    def __call__(self, indices: Sequence[int] | Ints) -> Any:
        """Return the batch of these samples, in this order; there must be one."""
        picked = np.asarray(indices).tolist()
        if not picked:
            problem = "no sample is asked for, and of none no batch can be made"
            raise InvalidData("batch", problem, "to pass over parts without any")
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


def _wrapped(data: Any) -> Iterator[Any]:
    """Yield a data set, and the one it is a subset of, and so on."""
    while data is not None:
        yield data
        data = getattr(data, "dataset", None)


def _check_collate(given: Any) -> None:
    if given is not None and not callable(given):
        advice = "a function of a list of samples"
        raise InvalidData("collate", f"is {brief(given)}", advice)


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
            raise InvalidData("data", problem, "tensors only, or a Dataset")
        if not column.ndim:
            problem = "a tensor of shape () is among its columns"
            raise InvalidData("data", problem, "tensors with a row per sample")
    lengths: list[int] = [column.size(0) for column in columns]
    if len(set(lengths)) > 1:
        problem = f"its tensors have {_listed(lengths)} rows"
        raise InvalidData("data", problem, "a row per sample in every tensor")
    return lengths[0]


def _length(data: Any) -> int:
    """Return the length of a map-style data set; refuse what is none."""
    if isinstance(data, DataLoader):
        problem = "is a DataLoader, and parts are picked by index"
        advice = "its data set, loader.dataset, and its batch_size"
        raise InvalidData("data", problem, advice)
    if isinstance(data, IterableDataset):
        problem = (
            f"a {type(data).__name__} can only be read from its start, and parts are "
            "picked by index, so that any worker can compute any of them"
        )
        raise InvalidData("data", problem, "a map-style Dataset")
    if isinstance(data, type | str | bytes) or not (
        hasattr(data, "__len__") and hasattr(data, "__getitem__")
    ):
        raise InvalidData("data", f"is {brief(data)}", MAP_STYLE)
    return len(data)


def _whole(name: str, given: int, least: int) -> int:
    try:
        number = index(given)
    except TypeError:
        number = least - 1
    if number < least or isinstance(given, bool):
        advice = f"a whole number, {least} or more"
        raise InvalidOptions(name, f"is {brief(given)}", advice)
    return number


def _cut(total: int, parts: int) -> tuple[int, ...]:
    """Return sizes that add up to the total, the larger ones first."""
    each, more = divmod(total, parts)
    return (each + 1,) * more + (each,) * (parts - more)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
