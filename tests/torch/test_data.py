"""Parts of a data set, and batches of samples, against PyTorch's own loader."""

import re
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

from codedgrad.errors import InvalidData, InvalidOptions
from codedgrad.torch.data import Batches, Parts

SHUFFLES = [True, False, "global"]

settings = {
    "samples": st.integers(1, 60),
    "parts": st.integers(1, 9),
    "batch_size": st.none() | st.integers(1, 80),
    "seed": st.integers(0, 2**40),
    "shuffle": st.sampled_from(SHUFFLES),
}


@st.composite
def fillable(draw: st.DrawFn) -> dict[str, Any]:
    """Settings whose usual steps have enough samples for all parts."""
    parts, least = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    samples = draw(st.integers(parts * least, 90))
    return {
        "samples": samples,
        "parts": parts,
        "batch_size": draw(st.none() | st.integers(parts * least, 100)),
        "seed": draw(st.integers(0, 2**40)),
        "shuffle": draw(st.sampled_from(SHUFFLES)),
        "least_samples": least,
    }


def epoch(parts: Parts, number: int = 0) -> list[list[list[int]]]:
    """Indices by step and part."""
    first = number * parts.steps_per_epoch
    steps = range(first, first + parts.steps_per_epoch)
    return [[parts.indices(p, t).tolist() for p in range(parts.parts)] for t in steps]


def flat(nested: list[list[list[int]]]) -> list[int]:
    return [i for step in nested for part in step for i in part]


@pytest.mark.hypothesis
@given(st.fixed_dictionaries(settings) | fillable(), st.integers(0, 3))
def test_steps_are_those_of_a_data_loader_and_every_sample_comes_up_once_an_epoch(
    setting: dict[str, Any], number: int
) -> None:
    samples, batch = setting["samples"], setting["batch_size"] or setting["samples"]
    parts = Parts(**setting)
    steps = epoch(parts, number)
    loader = DataLoader(range(samples), batch_size=batch)  # type: ignore[arg-type]
    assert [len(flat([step])) for step in steps] == [len(each) for each in loader]
    assert sorted(flat(steps)) == list(range(samples))
    first = number * len(steps)
    assert [parts.total(first + i) for i in range(len(steps))] == [
        len(flat([step])) for step in steps
    ]


@pytest.mark.hypothesis
@given(st.fixed_dictionaries(settings), st.integers(0, 3))
def test_no_shard_is_favoured(setting: dict[str, Any], number: int) -> None:
    parts = Parts(**setting)
    steps = epoch(parts, number)
    for step in steps:
        sizes = [len(part) for part in step]
        assert max(sizes) - min(sizes) <= 1
    so_far = np.cumsum([[len(part) for part in step] for step in steps], axis=0)
    assert (so_far.max(axis=1) - so_far.min(axis=1)).max() <= 1  # they take turns
    assert so_far[-1].tolist() == list(parts.sizes)
    filled = [[len(part) for part in step if part] for step in steps]
    assert parts.smallest == min(filled[0])
    assert parts.smallest_at_end == min(filled[-1])


@pytest.mark.hypothesis
@given(st.fixed_dictionaries(settings) | fillable(), st.integers(0, 3))
def test_without_shuffling_a_step_is_the_batch_of_a_loader_without_shuffling(
    setting: dict[str, Any], number: int
) -> None:
    setting["shuffle"] = False
    batch = setting["batch_size"] or setting["samples"]
    data: Any = range(setting["samples"])
    loader = DataLoader(data, batch_size=batch, collate_fn=list)
    steps = epoch(Parts(**setting), number)
    assert [sorted(flat([step])) for step in steps] == list(loader)
    assert all(part == sorted(part) for step in steps for part in step)


@pytest.mark.parametrize(
    ("samples", "batch", "parts", "steps"),
    [(50_000, 100, 64, 500), (1_281_167, 1000, 512, 1282)],
)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_batch_that_the_parts_do_not_divide_is_a_batch_all_the_same(
    samples: int, batch: int, parts: int, steps: int, shuffle: bool | str
) -> None:
    which = Parts(samples, parts, batch, 0, shuffle)
    assert which.steps_per_epoch == steps
    middle = [len(which.indices(part, steps // 2)) for part in range(parts)]
    assert (sum(middle), {*middle}) == (batch, {1, 2})
    left = samples - (steps - 1) * batch
    end = [len(which.indices(part, steps - 1)) for part in range(parts)]
    assert sum(end) == which.total(steps - 1) == left


@pytest.mark.hypothesis
@given(fillable(), st.integers(0, 3))
def test_a_part_has_as_many_samples_as_it_must_or_none(
    setting: dict[str, Any], number: int
) -> None:
    parts, least = Parts(**setting), setting["least_samples"]
    *usual, last = epoch(parts, number)
    assert all(len(part) >= least for step in usual for part in step)
    sizes = [len(part) for part in last if part]
    assert min(sizes) == parts.smallest_at_end
    if sum(sizes) < least:
        assert len(sizes) == 1
    else:
        assert min(sizes) >= least
        assert len(sizes) == min(setting["parts"], sum(sizes) // least)  # no fewer
    assert max(sizes) - min(sizes) <= 1


def test_a_last_step_is_dealt_out_to_other_parts_every_epoch() -> None:
    parts = Parts(40 + 11, 8, 40, 0, least_samples=5)
    found = []
    for number in range(8):
        last = epoch(parts, number)[-1]
        found.append([j for j in range(8) if last[j]])
        assert sorted(map(len, last)) == [0] * 6 + [5, 6]
    assert found[:3] == [[0, 4], [1, 5], [2, 6]]  # spread over the workers
    assert {*map(tuple, found)} == {(0, 4), (1, 5), (2, 6), (3, 7)}


def test_a_part_at_its_edge_is_filled_and_one_past_it_is_refused() -> None:
    at_the_edge = Parts(100, 4, 32, 0, least_samples=8)
    assert at_the_edge.smallest == 8
    with pytest.raises(InvalidData) as caught:
        Parts(100, 4, 31, 0, least_samples=8)
    assert str(caught.value) == (
        "least_samples: a step of 31 samples in 4 parts leaves some with 7, and 8 are "
        "asked for; try 3 parts at most (fewer `pieces` or workers), or "
        "batch_size=32 or more, or least_samples=7"
    )


def test_what_is_preferred_is_done_where_a_usual_step_has_enough() -> None:
    found = [Parts(20, 4, size, 0, preferred=2).least_samples for size in (7, 8, None)]
    assert found == [1, 2, 2]
    assert Parts(20, 4, 8, 0, least_samples=1, preferred=2).least_samples == 1


@pytest.mark.hypothesis
@given(fillable(), st.integers(1, 200), st.integers(2, 9))
def test_what_is_advised_for_parts_that_are_too_small_does(
    setting: dict[str, Any], batch: int, least: int
) -> None:
    setting |= {"batch_size": batch, "least_samples": least}
    usual = min(batch, setting["samples"])
    if usual // setting["parts"] >= least:
        Parts(**setting)
        return
    with pytest.raises(InvalidData) as caught:
        Parts(**setting)
    tried = re.search(r"; try (.*)", str(caught.value))
    assert tried
    for advice in tried[1].split(", or "):
        number = int(re.search(r"\d+", advice)[0])  # type: ignore[index]
        name = advice.partition("=")[0] if "=" in advice else "parts"
        Parts(**setting | {name: number})


@pytest.mark.hypothesis
@given(st.fixed_dictionaries(settings) | fillable(), st.data())
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


def test_positions_are_dealt_out_to_the_shards_in_turn() -> None:
    parts = Parts(10, 3, 4, 0, shuffle=False)
    assert (parts.sizes, parts.steps_per_epoch) == ((4, 3, 3), 3)
    assert epoch(parts) == epoch(parts, 5)
    assert epoch(parts) == [
        [[0, 3], [1], [2]],
        [[6], [4, 7], [5]],
        [[9], [], [8]],
    ]


def test_a_batch_may_be_smaller_than_the_number_of_parts() -> None:
    parts = Parts(10, 4, 3, 0, shuffle=False)
    assert epoch(parts) == [
        [[0], [1], [2], []],
        [[4], [5], [], [3]],
        [[8], [], [6], [7]],
        [[], [9], [], []],
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
    assert (parts.batch_size, parts.sizes, parts.steps_per_epoch) == (7, (3, 2, 2), 1)


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
        ({"least_samples": 0}, "least_samples: is 0; try a whole number, 1 or more"),
        ({"least_samples": 1.5}, "least_samples: is 1.5; try"),
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
    with pytest.raises(InvalidOptions) as caught:
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
    with pytest.raises(InvalidOptions) as caught:
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
    with pytest.raises(InvalidData) as caught:
        Batches(data)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("data", [X, Squares()])
def test_a_batch_of_nothing_is_refused(data: Any) -> None:
    with pytest.raises(InvalidData, match="batch: no sample is asked for"):
        Batches(data)(np.array([], dtype=np.int64))


def test_a_collate_that_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidData, match="collate: is 3; try a function of a"):
        Batches(X, collate=3)  # type: ignore[arg-type]
