"""Parts of a data set, and batches of samples, against PyTorch's own loader."""

from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
)

from codedgrad.errors import InvalidScenario
from codedgrad.torch.data import Batches, Parts

SHUFFLES = [True, False, "global"]

settings = {
    "samples": st.integers(1, 60),
    "parts": st.integers(1, 9),
    "batch_size": st.none() | st.integers(9, 80),
    "seed": st.integers(0, 2**40),
    "shuffle": st.sampled_from(SHUFFLES),
}


def epoch(parts: Parts, number: int = 0) -> list[list[list[int]]]:
    """Indices by step and part."""
    first = number * parts.steps_per_epoch
    steps = range(first, first + parts.steps_per_epoch)
    return [[parts.indices(p, t).tolist() for p in range(parts.parts)] for t in steps]


def flat(nested: list[list[list[int]]]) -> list[int]:
    return [i for step in nested for part in step for i in part]


@pytest.mark.hypothesis
@given(st.fixed_dictionaries(settings), st.integers(0, 3))
def test_every_sample_comes_up_exactly_once_an_epoch(
    setting: dict[str, Any], number: int
) -> None:
    parts = Parts(**setting)
    steps = epoch(parts, number)
    assert sorted(flat(steps)) == list(range(setting["samples"]))
    assert all(map(any, steps))  # no step is empty
    batch = setting["batch_size"] or setting["samples"]
    for step in steps:
        for share, part in zip(parts.shares, step, strict=True):
            assert len(part) <= share
        assert len(flat([step])) <= batch
    assert sum(parts.shares) == batch
    assert sum(parts.sizes) == setting["samples"]
    for cut in (parts.sizes, parts.shares):
        assert list(cut) == sorted(cut, reverse=True)
        assert cut[0] - cut[-1] <= 1


@pytest.mark.hypothesis
@given(st.fixed_dictionaries(settings), st.data())
def test_any_step_can_be_asked_for_at_any_time(
    setting: dict[str, Any], data: st.DataObject
) -> None:
    asked, k = Parts(**setting), setting["parts"]
    last = 3 * asked.steps_per_epoch
    order = data.draw(
        st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, last)), max_size=12)
    )
    for part, step in order:
        want = Parts(**setting).indices(part, step)
        np.testing.assert_array_equal(asked.indices(part, step), want)


def test_a_part_is_the_next_slice_of_its_shard() -> None:
    parts = Parts(10, 3, 5, 0, shuffle=False)
    assert (parts.sizes, parts.shares, parts.steps_per_epoch) == (
        (4, 3, 3),
        (2, 2, 1),
        3,
    )
    assert epoch(parts) == epoch(parts, 5)
    assert epoch(parts) == [
        [[0, 1], [4, 5], [7]],
        [[2, 3], [6], [8]],
        [[], [], [9]],
    ]


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_shards_are_kept_or_drawn_anew_as_asked_for(shuffle: bool | str) -> None:
    parts = Parts(60, 3, 12, 7, shuffle)

    def members(number: int) -> list[set[int]]:
        steps = epoch(parts, number)
        return [{i for step in steps for i in step[p]} for p in range(3)]

    assert (members(0) == members(1)) == (shuffle != "global")
    assert (epoch(parts, 0) == epoch(parts, 1)) == (shuffle is False)


@pytest.mark.parametrize("shuffle", [True, "global"])
def test_orders_differ_by_seed_epoch_and_part(shuffle: bool | str) -> None:
    def order(seed: int, number: int, part: int) -> list[int]:
        parts = Parts(200, 2, 200, seed, shuffle)
        found = parts.indices(part, number)
        ranks = np.argsort(np.argsort(found))  # whatever the samples are
        return ranks.tolist()

    orders = [order(s, e, p) for s in range(3) for e in range(3) for p in range(2)]
    assert len({tuple(each) for each in orders}) == len(orders)


def test_an_order_is_drawn_evenly() -> None:
    # Each of the 24 orders of 4 samples is expected in 100 of 2400 epochs, +- 10; 40
    # off is 4 standard deviations, which one in 600 seeds would be.
    parts = Parts(4, 1, None, 0)
    orders = [tuple(parts.indices(0, e).tolist()) for e in range(2400)]
    counts = [orders.count(each) for each in set(orders)]
    assert len(counts) == 24
    assert 60 <= min(counts) <= max(counts) <= 140


def test_shards_do_not_follow_the_order_of_the_data() -> None:
    parts = Parts(1000, 2, None, 0)
    low = (parts.indices(0, 0) < 500).sum()
    assert 200 < low < 300  # 250 +- 8: more than 6 standard deviations


def test_without_a_batch_size_a_step_is_everything() -> None:
    parts = Parts(7, 3, None, 0)
    assert (parts.shares, parts.sizes, parts.steps_per_epoch) == (
        (3, 2, 2),
        (3, 2, 2),
        1,
    )


def test_more_than_there_is_makes_one_step() -> None:
    parts = Parts(5, 2, 100, 0)
    assert parts.steps_per_epoch == 1
    assert sorted(flat(epoch(parts, 4))) == [0, 1, 2, 3, 4]


def test_more_parts_than_samples_leaves_some_empty() -> None:
    parts = Parts(2, 4, None, 0)
    assert parts.sizes == (1, 1, 0, 0)
    assert parts.indices(3, 9).tolist() == []
    assert parts.indices(3, 9).dtype == np.int64


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_what_is_returned_is_the_caller_s_to_change(shuffle: bool | str) -> None:
    parts = Parts(10, 2, 10, 3, shuffle)
    want = parts.indices(0, 0).tolist()
    parts.indices(0, 0)[:] = -1
    assert parts.indices(0, 0).tolist() == want
    assert parts.indices(0, 0).dtype == np.int64


def test_only_one_epoch_is_kept() -> None:
    for shuffle in (True, "global"):
        parts = Parts(1000, 4, 100, 0, shuffle)
        for step in range(10 * parts.steps_per_epoch):
            for part in range(4):
                parts.indices(part, step)
        assert sum(map(len, parts._orders.values())) == 1000


def test_parts_travel() -> None:
    parts = Parts(20, 3, 6, 1)
    assert epoch(cloudpickle.loads(cloudpickle.dumps(parts)), 2) == epoch(parts, 2)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"samples": 0}, "samples: is 0; try a whole number, 1 or more"),
        ({"samples": 2.5}, "samples: is 2.5; try"),
        ({"parts": 0}, "parts: is 0; try a whole number, 1 or more"),
        ({"parts": True}, "parts: is True; try"),
        ({"batch_size": 0}, "batch_size: is 0; try a whole number, 1 or more"),
        ({"batch_size": "8"}, "batch_size: is '8'; try"),
        (
            {"batch_size": 3},
            "batch_size: 3 samples cannot be cut into 4 parts; try 4 or more, or fewer",
        ),
        ({"seed": -1}, "seed: is -1; try a whole number, 0 or more"),
        ({"seed": None}, "seed: is None; try"),
        ({"shuffle": "all"}, "shuffle: is 'all'; try True, False or \"global\""),
        ({"shuffle": None}, "shuffle: is None; try"),
    ],
    ids=str,
)
def test_parts_that_cannot_be_are_refused(
    change: dict[str, Any], complaint: str
) -> None:
    setting = {"samples": 10, "parts": 4, "batch_size": 8, "seed": 0} | change
    with pytest.raises(InvalidScenario) as caught:
        Parts(**setting)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("part", "step", "complaint"),
    [
        (4, 0, "part: is 4; try a part from 0 to 3"),
        (-1, 0, "part: is -1; try a whole number, 0 or more"),
        (0, -1, "step: is -1; try a whole number, 0 or more"),
    ],
)
def test_a_part_that_is_not_there_is_refused(
    part: int, step: int, complaint: str
) -> None:
    with pytest.raises(InvalidScenario) as caught:
        Parts(10, 4, 8, 0).indices(part, step)
    assert complaint in str(caught.value)


# batches


X = torch.arange(24.0).view(8, 3)
Y = torch.arange(8)
SOME = [[3, 1, 7], [0], [5, 5, 2, 6]]


class Squares(Dataset[tuple[int, float]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> tuple[int, float]:
        assert type(i) is int
        return i, i * i / 2


class Several(Squares):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert all(type(i) is int for i in indices)
        return [
            {"x": X[i], "name": f"sample {i}", "more": (i, [Y[i]])} for i in indices
        ]


class Named(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": X[i].numpy(), "y": float(i), "name": str(i)}


class Changed(TensorDataset):
    def __getitem__(self, i: int) -> tuple[Tensor, ...]:
        return tuple(-tensor for tensor in super().__getitem__(i))

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, ...]]:
        return [self[i] for i in indices]


def first_of_each(samples: list[Any]) -> Any:
    return "mine", [sample[0] for sample in samples]


def equal(a: Any, b: Any) -> bool:
    """Whether two batches are the same, down to types."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@pytest.mark.parametrize("collate", [None, first_of_each])
@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(X, Y),
        TensorDataset(Y),
        Changed(X, Y),
        Subset(TensorDataset(X, Y), [7, 6, 5, 4, 3, 2, 1, 0]),
        Subset(Squares(), range(8)),
        Squares(),
        [(i, str(i)) for i in range(8)],
        StackDataset(X, Squares()),
        X.numpy(),
    ],
    ids=lambda data: type(data).__name__,
)
def test_batches_are_those_of_a_loader(data: Any, collate: Any) -> None:
    loader = DataLoader(data, batch_sampler=SOME, collate_fn=collate)
    batches = Batches(data, collate)
    assert len(batches) == 8
    for indices, want in zip(SOME, loader, strict=True):
        assert equal(batches(np.array(indices)), want)
        assert equal(batches(indices), want)


@pytest.mark.parametrize("data", [Named(), Several()], ids=["one", "several"])
def test_batches_of_dicts_are_those_of_a_loader(data: Any) -> None:
    for indices, want in zip(SOME, DataLoader(data, batch_sampler=SOME), strict=True):
        assert equal(Batches(data)(indices), want)


def test_tensors_are_indexed_in_the_wrapping_they_came_in() -> None:
    rows = [3, 1]
    assert equal(Batches(X)(rows), X[rows])
    assert equal(Batches((X, Y))(rows), (X[rows], Y[rows]))
    assert equal(Batches([X, Y])(rows), [X[rows], Y[rows]])
    assert equal(Batches({"x": X, "y": Y})(rows), {"x": X[rows], "y": Y[rows]})
    assert len(Batches({"x": X, "y": Y})) == len(Batches(X)) == 8


def test_a_batch_of_tensors_is_a_copy() -> None:
    x = X.clone()
    Batches(x)([0, 1]).zero_()
    assert torch.equal(x, X)


@pytest.mark.parametrize("data", [X, (X, Y), [X, Y], {"x": X, "y": Y}])
def test_tensors_are_collated_sample_by_sample_if_asked_for(data: Any) -> None:
    samples = Batches(data, collate=list)([3, 1])
    if isinstance(data, Tensor):
        assert equal(samples, [X[3], X[1]])
    elif isinstance(data, dict):
        assert equal(samples, [{"x": X[3], "y": Y[3]}, {"x": X[1], "y": Y[1]}])
    else:
        assert equal(samples, [type(data)((X[i], Y[i])) for i in (3, 1)])


def test_parts_and_batches_make_the_whole_data_set() -> None:
    batches = Batches((X, Y))
    parts = Parts(len(batches), 3, 5, seed=4)
    rows = [batches(np.array(part)) for step in epoch(parts) for part in step if part]
    x, y = (torch.cat(column) for column in zip(*rows, strict=True))
    assert sorted(y.tolist()) == Y.tolist()
    assert torch.equal(x, X[y])


def test_batches_travel() -> None:
    for data in ((X, Y), TensorDataset(X, Y), {"x": X}, [(1, 2), (3, 4)]):
        batches = Batches(data)
        there = cloudpickle.loads(cloudpickle.dumps(batches))
        assert equal(there([1, 0]), batches([1, 0]))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


class Endless(Dataset[int]):
    def __getitem__(self, i: int) -> int:
        return i


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (
            Stream(),
            "data: a Stream can only be read from its start, and parts are picked by "
            "index, so that any worker can compute any of them; try a map-style Data",
        ),
        (
            DataLoader(Squares(), batch_size=2),
            "data: is a DataLoader, and parts are picked by index; try its data set, "
            "loader.dataset, and its batch_size",
        ),
        (
            Endless(),
            "; try a Dataset with __len__ and __getitem__, or tensors of equal",
        ),
        (iter([1, 2]), "; try a Dataset with __len__ and __getitem__"),
        (Squares, "; try a Dataset with __len__ and __getitem__"),
        ("train", "data: is 'train'; try a Dataset"),
        (None, "data: is None; try a Dataset"),
        ([], "data: has no samples; try one or more"),
        ({}, "data: has no samples; try one or more"),
        (X[:0], "data: has no samples"),
        (TensorDataset(X[:0], Y[:0]), "data: has no samples"),
        (Subset(Squares(), []), "data: has no samples"),
        ((X, Y[:5]), "data: its tensors have 8 and 5 rows; try a row per sample in ev"),
        ({"x": X, "y": Y[:5], "z": Y}, "data: its tensors have 8, 5 and 8 rows"),
        ((X, torch.tensor(1.0)), "data: a tensor of shape () is among its columns"),
        (torch.tensor(1.0), "data: a tensor of shape () is among its columns"),
        ((X.numpy(), Y.numpy()), "data: a ndarray is among its columns; try tensors o"),
        ([X, None], "data: a NoneType is among its columns; try tensors only, or a Da"),
        ({"train": Squares()}, "data: a Squares is among its columns"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_has_no_samples_by_number_is_refused(data: Any, complaint: str) -> None:
    with pytest.raises(InvalidScenario) as caught:
        Batches(data)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("data", [X, Squares()])
def test_a_batch_of_nothing_is_refused(data: Any) -> None:
    with pytest.raises(InvalidScenario, match="batch: no sample is asked for"):
        Batches(data)(np.array([], dtype=np.int64))


def test_a_collate_that_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidScenario, match="collate: is 3; try a function of a"):
        Batches(X, collate=3)  # type: ignore[arg-type]
