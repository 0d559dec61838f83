"""Batches of every kind go to the device; here `meta`, where nothing is computed."""

from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from codedgrad.torch.model.workload import to_device


class Pair(NamedTuple):
    x: Any
    y: Any = None


class Edges(NamedTuple):
    """Has a `to` that is not a method."""

    away: Tensor
    to: Tensor


@dataclass
class Batch:
    x: Tensor
    name: str = "batch"
    rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.rows += len(self.x)


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Tensor
    inner: Batch


class Own:
    """Knows how to move, as batches of many libraries do."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: str) -> "Own":
        return Own(self.x.to(device))


def one() -> Tensor:
    return torch.ones(2, 3)


def packed() -> PackedSequence:
    return pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])


def there(moved: Any) -> bool:
    return isinstance(moved, Tensor) and moved.device.type == "meta"


def test_a_namedtuple_stays_one() -> None:
    moved = to_device(Pair(one(), [one(), "label"]), "meta")
    assert type(moved) is Pair
    assert there(moved.x)
    assert there(moved.y[0])
    assert moved.y[1] == "label"
    edges = to_device(Edges(one(), one()), "meta")
    assert type(edges) is Edges
    assert there(edges.away)
    assert there(edges.to)


def test_a_packed_sequence_stays_one() -> None:
    moved = to_device((packed(), one()), "meta")
    assert type(moved[0]) is PackedSequence
    assert there(moved[0].data)
    assert moved[0].batch_sizes.device.type == "cpu"  # as torch wants it


def test_what_can_move_itself_does() -> None:
    moved = to_device({"own": Own(one())}, "meta")
    assert type(moved["own"]) is Own
    assert there(moved["own"].x)


def test_a_dataclass_stays_one_and_is_not_made_anew() -> None:
    given = Frozen(one(), Batch(one()))
    moved = to_device(given, "meta")
    assert type(moved) is Frozen
    assert there(moved.x)
    assert type(moved.inner) is Batch
    assert there(moved.inner.x)
    assert (moved.inner.name, moved.inner.rows) == ("batch", 2)
    assert given.inner.x.device.type == "cpu"  # the given one is as it was


@pytest.mark.parametrize(
    "given",
    [
        {"x": one()},
        OrderedDict(x=one()),
        defaultdict(list, x=one()),
        UserDict(x=one()),
        MappingProxyType({"x": one()}),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_mapping_stays_what_it_is_where_that_can_be(given: Any) -> None:
    moved = to_device(given, "meta")
    can_be = not isinstance(given, MappingProxyType)
    assert type(moved) is (type(given) if can_be else dict)
    assert there(moved["x"])
    assert given["x"].device.type == "cpu"


def test_tuples_and_lists_stay_what_they_are_and_the_rest_as_it_is() -> None:
    label = object()
    moved = to_device((one(), [one()], "text", 3, None, label, Batch), "meta")
    assert there(moved[0])
    assert type(moved[1]) is list
    assert there(moved[1][0])
    assert moved[2:] == ("text", 3, None, label, Batch)
    largest = to_device(one().max(dim=0), "meta")
    assert type(largest) is torch.return_types.max
    assert there(largest.values)


def test_on_the_cpu_nothing_is_touched() -> None:
    given = Pair(one(), packed())
    assert to_device(given, "cpu") is given
