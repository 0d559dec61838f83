"""A model as vectors, with its buffers and modes."""

from typing import Any

import pytest
import torch
from torch import nn

from codedgrad.errors import InvalidJob
from codedgrad.torch.model.flat import Flat, Span, refuse


def model() -> Any:
    """Something of everything: two layers, one half frozen; buffers of four types."""
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    net[0].weight.requires_grad_(False)
    net.register_buffer("scale", torch.tensor([0.1, 0.2, 0.3]).half())
    net.register_buffer("large", torch.tensor([2**62 + 1, -3]))
    net.register_buffer("flags", torch.tensor([True, False, True]))
    net.register_buffer("turns", torch.tensor([1 + 2j], dtype=torch.complex128))
    net[2].eval()
    return net


def test_spans_follow_each_other() -> None:
    flat = Flat(model())
    assert (flat.trainable.start, flat.trainable.size) == (0, 2 + 4 + 4 + 2)
    assert (flat.frozen.start, flat.frozen.end) == (48, 48 + 32)  # bytes, aligned
    assert flat.state.carried == 4 + 3 * (1 + 2 + 3) + 3  # limbs and marks


def test_parameters_live_in_the_vector() -> None:
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    flat = Flat(net)
    assert all(map(torch.equal, net.parameters(), before))
    flat.vector.zero_()
    assert not any(p.any() for p in net.parameters())
    with torch.no_grad():
        net[2].bias.fill_(7.0)
    assert (flat.vector[:12] == 7.0).sum() == 2


def test_another_model_becomes_what_a_vector_says() -> None:
    """To the last bit, whatever the type; so do modes."""
    one, other = model(), model()
    there, here = Flat(one), Flat(other)
    with torch.no_grad():
        for number, parameter in enumerate(one.parameters()):
            parameter.fill_(number + 0.5)
    one(torch.ones(2, 3))  # changes statistics
    one.scale.mul_(3)
    one.large += 1
    one.flags = ~one.flags
    one.turns *= 1j
    one[0].eval()
    one[2].train()
    there.gather()
    here.load(there.vector.numpy())
    state = one.state_dict()
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert [m.training for m in other.modules()] == [m.training for m in one.modules()]


def test_a_tensor_that_moved_out_is_gathered_and_loaded() -> None:
    net = model()
    flat = Flat(net)
    net[2].bias.data = torch.tensor([5.0, 6.0])
    flat.gather()
    assert flat.trainable.views(flat.vector)[-1].tolist() == [5.0, 6.0]
    published = flat.vector.clone()
    flat.trainable.views(published)[-1].fill_(1.0)
    flat.load(published.numpy())
    assert net[2].bias.tolist() == [1.0, 1.0]


def test_only_what_has_changed_is_said_to_have() -> None:
    """Whatever was written, and however; the table of revisions always has."""
    net = model()
    net.register_buffer("wide", torch.zeros(5, 20_000))
    net.register_parameter("base", nn.Parameter(torch.zeros(600_000), False))
    flat = Flat(net)
    end = len(flat.vector)
    assert flat.gather() == [(0, end)]
    small = flat.gather()
    assert [stretch[0] for stretch in small] == [0, small[-1][0]]
    assert small[0] == (0, 12)
    assert sum(b - a for a, b in small) < 40
    net.base.data[500_000] = 1.0  # the second MiB of them
    [_, (first, last), _] = flat.gather()
    assert first < 12 + 8 + 500_000 < last
    assert last - first <= 2**18
    net.wide.data[0, 0] = -0.0
    [_, stretch, _] = flat.gather()
    assert stretch[1] - stretch[0] == 100_000
    net[1].running_mean.data += 1
    [_, stretch, _] = flat.gather()
    assert stretch[1] - stretch[0] < 100
    assert flat.gather() == small


def test_only_what_is_not_there_is_loaded() -> None:
    there, here = Flat(model()), Flat(model())
    there.gather()
    here.load(there.vector.numpy())
    spoiled = there.vector.clone()
    spoiled[12 : there.frozen.end // 4] = 7.0  # frozen ones, of the same revision
    here.load(spoiled.numpy())
    assert not (here.vector[12 : there.frozen.end // 4] == 7.0).any()
    here.forget()
    here.load(spoiled.numpy())
    assert (here.vector[12 : there.frozen.end // 4] == 7.0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_numbers_come_back_without_a_change_of_a_bit(
    dtype: torch.dtype, wide: torch.dtype
) -> None:
    """All of 16 bits; the largest, smallest and strangest of 32."""
    if dtype is torch.float32:
        info = torch.finfo(dtype)
        given = torch.tensor([info.max, info.tiny, 1e-45, -0.0, float("inf"), 1 / 3])
    else:
        given = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
        given = given[~given.isnan()]
    tensor = given.clone()
    span = Span([tensor], 0)
    span.move(torch.empty(len(given), dtype=wide))
    tensor.zero_()
    if dtype is not wide:  # else it lives there
        span.scatter()
        assert torch.equal(tensor.view(torch.uint8), given.view(torch.uint8))


def test_tied_parameters_are_in_it_once() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    assert Flat(net).trainable.size == 9 + 3 + 3
    assert net[1].weight is net[0].weight


@pytest.mark.parametrize(
    ("trainable", "frozen", "messages", "published"),
    [
        (torch.float32, torch.float32, torch.float32, torch.float32),
        (torch.bfloat16, torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float32, torch.float32),
        (torch.float64, torch.bfloat16, torch.float64, torch.float64),
    ],
)
def test_vectors_are_of_float32_at_least(
    trainable: torch.dtype,
    frozen: torch.dtype,
    messages: torch.dtype,
    published: torch.dtype,
) -> None:
    rest = nn.Linear(2, 2).to(frozen).requires_grad_(False)
    flat = Flat(nn.ModuleList([nn.Linear(2, 2).to(trainable), rest]))
    assert (flat.dtype, flat.vector.dtype) == (messages, published)


def test_changes_of_buffers_are_told_and_undone() -> None:
    net = model()
    state = Flat(net, {"scale": "sum"}).state
    unchanged = state.changes(1, True)
    net.scale = torch.tensor([0.1, 1.2, 0.3]).half()  # another in its place
    net.flags[1] = True
    net.large -= 5
    net[1].num_batches_tracked += 1
    told = state.changes(1, True)
    assert told.any()
    state.put_back()
    assert torch.equal(net.scale, model().scale)
    assert torch.equal(net.large, model().large)
    assert torch.equal(state.changes(1, True), unchanged)
    state.change(told, samples=1)
    assert net.flags.tolist() == [True, True, True]
    assert net.scale.tolist() == torch.tensor([0.1, 1.2, 0.3]).half().tolist()
    assert net.large.tolist() == [2**62 + 1 - 5, -3 - 5]
    assert net[1].num_batches_tracked == 1


def test_modes_are_put_back() -> None:
    net = model()
    state = Flat(net).state
    net.train()
    state.put_back()
    assert [layer.training for layer in net] == [True, True, False]


def test_an_expanded_buffer_is_spread_out_wherever_it_is_used() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    rows = torch.arange(3.0).expand(2, -1)
    for layer in net:
        layer.register_buffer("rows", rows)
    Flat(net).state.scatter()
    assert net[0].rows is net[1].rows
    assert torch.equal(net[0].rows, rows)


def test_a_buffer_of_another_shape_is_refused() -> None:
    net = model()
    flat = Flat(net)
    net.scale = torch.zeros(4).half()
    with pytest.raises(InvalidJob, match="the buffer scale: is gone, or has"):
        flat.gather()


@pytest.mark.parametrize(
    ("norm", "has"),
    [
        (nn.BatchNorm1d(2), True),
        (nn.BatchNorm1d(2).eval(), False),
        (nn.BatchNorm1d(2, track_running_stats=False), False),
        (nn.InstanceNorm1d(2), False),
        (nn.InstanceNorm1d(2, track_running_stats=True), True),
        (nn.LayerNorm(2), False),
    ],
    ids=str,
)
def test_layers_in_training_mode_that_track_have_statistics(
    norm: nn.Module, has: bool
) -> None:
    assert Flat(nn.Sequential(nn.Linear(2, 2), norm)).state.has_statistics == has


class Overlapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(3, 3))
        self.row = nn.Parameter(self.matrix.data[1])


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)
        self.register_buffer("scale", torch.ones(2, requires_grad=True))


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (nn.Tanh(), "the model: has no parameter with requires_grad; try one"),
        (Overlapping(), "the tensor row: shares the memory of matrix"),
        (Trained(), "the buffer scale: has requires_grad; try an nn.Parameter"),
        (
            nn.ModuleDict({"words": nn.Embedding(3, 2, sparse=True)}),
            r"the layer words: \(Embedding\) makes sparse gradients",
        ),
    ],
)
def test_what_cannot_be_published_or_sent_is_refused(net: nn.Module, said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        refuse(net)


def test_neighbours_in_one_memory_are_fine() -> None:
    memory = torch.zeros(6)
    net = nn.ParameterList([nn.Parameter(memory[:3]), nn.Parameter(memory[3:])])
    assert Flat(net).trainable.size == 6
