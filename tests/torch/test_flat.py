"""A model as vectors."""

import pytest
import torch
from torch import Tensor, nn

from codedgrad.errors import InvalidScenario
from codedgrad.torch.flat import Flat, Span, refuse_sparse


def model() -> nn.Module:
    """Something of everything: 6 frozen, 4 statistics, 3 numbers in a half buffer."""
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    net[0].weight.requires_grad_(False)
    net.register_buffer("scale", torch.ones(3).half())
    net.register_buffer("numbers", torch.arange(4))  # not published
    return net


def test_spans_follow_each_other() -> None:
    flat = Flat(model())
    assert [span.size for span in flat.spans] == [2 + 4 + 4 + 2, 6, 3, 4, 1]
    ends = [span.end for span in flat.spans]
    assert [span.start for span in flat.spans] == [0, *ends[:-1]]
    assert flat.size == ends[-1] == 26


def test_a_model_lives_in_its_vector() -> None:
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    flat = Flat(net)
    vector = flat.vector()
    assert all(map(torch.equal, net.parameters(), before))
    vector.zero_()
    assert not any(p.any() for p in net.parameters())
    with torch.no_grad():
        net[2].bias.fill_(7.0)
    assert (vector == 7.0).sum() == 2


def test_what_is_of_another_type_is_copied_there_and_back() -> None:
    net = model()
    flat = Flat(net)
    vector = flat.vector()
    scale = flat.buffers.views(vector)[0]
    net.scale.fill_(0.1)
    assert (scale == 1).all()
    flat.buffers.gather(vector)
    assert torch.equal(scale, torch.full((3,), 0.1).half().float())
    scale.fill_(2.5)
    flat.buffers.scatter(vector)
    assert net.scale.tolist() == [2.5] * 3
    vector[-1] = 12.0
    flat.counted.scatter(vector)
    assert net[1].num_batches_tracked == 12


def test_a_tensor_that_moved_out_is_gathered_and_scattered() -> None:
    net = model()
    flat = Flat(net)
    vector = flat.vector()
    net[2].bias.data = torch.tensor([5.0, 6.0])
    flat.trainable.gather(vector)
    assert flat.trainable.views(vector)[-1].tolist() == [5.0, 6.0]
    flat.trainable.views(vector)[-1].fill_(1.0)
    flat.trainable.scatter(vector)
    assert net[2].bias.tolist() == [1.0, 1.0]


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
    span, vector = Span([tensor], 0), torch.empty(len(given), dtype=wide)
    span.gather(vector)
    tensor.zero_()
    span.scatter(vector)
    assert torch.equal(tensor.view(torch.uint8), given.view(torch.uint8))


def test_tied_parameters_are_in_it_once() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    flat = Flat(net)
    assert flat.trainable.size == 9 + 3 + 3
    flat.vector()
    assert net[1].weight is net[0].weight


@pytest.mark.parametrize(
    ("dtypes", "wide"),
    [
        ([torch.float32], torch.float32),
        ([torch.bfloat16], torch.float32),
        ([torch.float16, torch.bfloat16], torch.float32),
        ([torch.float32, torch.float64], torch.float64),
    ],
)
def test_vectors_are_of_float32_at_least(
    dtypes: list[torch.dtype], wide: torch.dtype
) -> None:
    net = nn.ModuleList(nn.Linear(2, 2).to(dtype) for dtype in dtypes)
    assert Flat(net).vector().dtype == wide


def test_layers_in_eval_mode_have_buffers_and_no_statistics() -> None:
    net = model()
    net[1].eval()
    flat = Flat(net)
    assert (flat.buffers.size, flat.running.size, flat.counted.size) == (3 + 4, 0, 0)


def test_layers_that_do_not_track_have_no_statistics() -> None:
    norm = nn.BatchNorm1d(2, track_running_stats=False)
    assert Flat(nn.Sequential(nn.Linear(2, 2), norm)).running.size == 0


def test_buffers_that_were_replaced_are_put_back() -> None:
    net = model()
    flat = Flat(net)
    own: Tensor = net.scale
    net.scale = torch.zeros(3)
    flat.put_back()
    assert net.scale is own


def test_layers_that_are_not_sparse_are_fine() -> None:
    refuse_sparse(nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 2)))


def test_a_sparse_layer_is_named() -> None:
    net = nn.ModuleDict({"words": nn.Embedding(3, 2, sparse=True)})
    with pytest.raises(InvalidScenario, match=r"the layer words: \(Embedding\)"):
        refuse_sparse(net)


def test_a_model_without_anything_to_train_is_refused() -> None:
    with pytest.raises(InvalidScenario, match="no parameter with requires_grad"):
        Flat(nn.Tanh())
