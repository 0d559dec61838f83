"""States taken apart and put together again: every type, every optimizer."""

import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from codedgrad.errors import InvalidCheckpoint
from codedgrad.torch.checkpoint.state_tree import DEEPEST, flatten, unflatten


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def there_and_back(state: Any) -> Any:
    """Take apart, through JSON and safetensors, and put together."""
    structure, tensors = flatten(state)
    text = json.dumps(structure, allow_nan=False)
    return unflatten(
        json.loads(text), safetensors.torch.load(safetensors.torch.save(tensors))
    )


def same(a: Any, b: Any) -> bool:
    """Say whether two states are of the same types, bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bits(a) == bits(b)
    if isinstance(a, np.ndarray | np.generic):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, deque) and a.maxlen != b.maxlen:
        return False
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b if isinstance(a, int) else repr(a) == repr(b)


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


# Values

DTYPES = [
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2,
    torch.float8_e5m2fnuz,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4,), (2, 1, 3)], ids=str)
def test_a_tensor_of_any_dtype_and_shape_comes_back(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    assert same(there_and_back({"t": tensor}), {"t": tensor})


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "<i4", ">i8", "<f2", ">f8", "c16"])
@pytest.mark.parametrize("shape", [(), (0, 2), (5,), (2, 3)], ids=str)
def test_a_numpy_array_comes_back_as_a_numpy_array(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    assert same(there_and_back([array, array.T.copy().T]), [array, array])


def label(value: Any) -> str:
    said = hex(value) if isinstance(value, int) else ascii(value)
    return f"{type(value).__name__} {said[:20]}"


@pytest.mark.parametrize(
    "value",
    [
        True, 0, -1, 2**63, -(2**63), 10**5000, -(10**5000), 0.1, -0.0, 5e-324, 1e300,
        float("inf"), float("-inf"), float("nan"), "", "é\n\0", "\ud800", None,
        (), [], {}, ([],), (1, (2, [3, ()])), deque([1, 2], 2), deque(),
        Counter({30: 2, 80: 1}), Counter(), OrderedDict(b=1, a=2), {0: "a", "0": "b"},
        {None: 1, True: 2, 2.5: 3, (0, ("a", -0.0)): 4, float("nan"): 5, 2**70: 6},
        np.float32(0.1), np.float64("nan"), np.int64(-3), np.bool_(True),
        np.complex64(1j), np.longdouble(1) / 3, np.uint64(2**64 - 1),
    ],
    ids=label,
)  # fmt: skip
def test_a_value_comes_back(value: Any) -> None:
    for state in (value, {"a": [value, value]}, (value,), {"": {"deep": value}}):
        assert same(there_and_back(state), state)


def test_what_the_user_calls_as_we_do_is_still_the_users() -> None:
    state = {
        "tensor": ["tensor", "a"],
        "list": ["list"],
        "dict": {"dict": ["dict", ["a", 1]]},
        "float": ("float", "nan"),
        "x": [["int", "0x1"], ["array", "<f8", [], "a"], ["ordered", None]],
        "__metadata__": torch.ones(2),
    }
    assert same(there_and_back(state), state)


def test_names_of_tensors_tell_the_place_and_never_collide() -> None:
    one, two, three, four = (torch.tensor([float(i)]) for i in range(4))
    state = {"a.b": one, "a": {"b": two, 0: [three]}, "__metadata__": four}
    _, tensors = flatten(state)
    assert sorted(tensors) == ["__metadata__#2", "a.0[0]", "a.b", "a.b#2"]
    assert same(there_and_back(state), state)
    assert same(there_and_back(one), one)
    odd = {"\ud800": one, "\\ud800": two}
    assert same(there_and_back(odd), odd)


def test_a_size_becomes_a_tuple_and_a_defaultdict_a_dict() -> None:
    assert same(there_and_back(torch.Size([2, 3])), (2, 3))
    assert same(there_and_back(defaultdict(list, a=[1])), {"a": [1]})
    assert same(there_and_back(defaultdict(list, {1: 2})), {1: 2})


def test_the_metadata_of_a_modules_state_come_back() -> None:
    state = nn.BatchNorm1d(2).state_dict()
    back = there_and_back(state)
    assert same(back, state)
    assert same(back._metadata, state._metadata)
    assert back._metadata[""]["version"] == 2


def test_a_parameter_becomes_a_plain_tensor_without_history() -> None:
    parameter = nn.Parameter(torch.ones(2))
    product = parameter * 2
    back = there_and_back([parameter, product])
    assert same(back, [torch.ones(2), torch.full((2,), 2.0)])
    assert not back[0].requires_grad


# Memory


def test_views_of_one_storage_come_back_whatever_they_overlap() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = [
        base, base.T, base[1], base[:, 2], base[1:2, 1:], base[0, 0], base[:0],
        base.reshape(-1)[3:9], base[1, 1:1], torch.ones(1).expand(5), base.flip(0),
        base.numpy(), base.numpy()[::-1, ::2], base.view(torch.int32),
    ]  # fmt: skip
    assert same(there_and_back(state), state)


def test_conjugates_and_negatives_that_are_only_views_come_back() -> None:
    for dtype in (torch.complex64, torch.complex128):
        z = torch.tensor([1 + 2j, 3 - 1j], dtype=dtype)
        state = [z, z.conj(), z.conj().imag, z.imag, z[0], z[0].conj()]
        back = there_and_back(state)
        assert same(back, state)
        assert not torch.equal(back[0], back[1])


def test_nothing_is_copied_that_need_not_be() -> None:
    flat = torch.arange(10.0)
    array = np.arange(3)
    state = {"a": flat[:4], "b": flat[4:].reshape(2, 3), "array": array}
    _, tensors = flatten(state)
    for name in ("a", "b"):
        assert tensors[name].data_ptr() == state[name].data_ptr()
    assert tensors["array"].data_ptr() == array.ctypes.data


def test_the_same_memory_twice_is_stored_once_and_shared_again() -> None:
    step, array = torch.tensor(1.0), np.zeros(2)
    state = {"a": step, "b": [step.detach()], "c": array, "d": array}
    structure, tensors = flatten(state)
    assert len(tensors) == 2
    back = unflatten(structure, {k: v.clone() for k, v in tensors.items()})
    back["a"] += 1
    back["c"] += 1
    assert same(back["b"], [torch.tensor(2.0)])
    assert same(back["d"], np.ones(2))


def test_temporary_copies_are_never_taken_for_one_another() -> None:
    z = torch.randn(64, 4, dtype=torch.complex128)
    frozen = [np.full(50, i) for i in range(20)]
    for array in frozen:
        array.flags.writeable = False
    state = [[row[::2].conj() for row in z], frozen]
    assert same(there_and_back(state), state)


# Refusals


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


class Special(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda: None, "is a function"),
        (object(), "is an object"),
        (Colour.RED, "is a Colour"),
        (Point(1), "is a Point"),
        ({1}, "is a set"),
        (b"", "is a bytes"),
        (1j, "is a complex"),
        (torch.float32, "is a dtype"),
        (np.array(["a"]), "is a numpy array of <U1"),
        (np.array([None]), "is a numpy array of object"),
        (np.datetime64("2020-01-01"), "is a datetime64"),
        (np.ma.masked_array([1]), "is a MaskedArray"),
        (torch.ones(2).to_sparse(), "is a sparse_coo tensor of float32 on cpu"),
        (torch.ones(2, device="meta"), "is a strided tensor of float32 on meta"),
        (nn.UninitializedParameter(), "is an UninitializedParameter"),
        (torch.ones(1).as_subclass(Special), "is a Special"),
        ({frozenset(): 1}, "has the key frozenset()"),
        ({(1, b""): 1}, "has the key (1, b'')"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anything_else_is_refused_and_its_place_named(value: Any, said: str) -> None:
    state = {"optimizer": {"param_groups": [{"foo": value}], "state": {}}}
    with pytest.raises(InvalidCheckpoint) as caught:
        flatten(state)
    assert caught.value.problem == (
        f"optimizer.param_groups[0].foo {said}; checkpoints hold numbers, text "
        f"and tensors only; leave it out of state_dict()"
    )


def test_a_state_of_nothing_but_a_function_is_refused() -> None:
    with pytest.raises(InvalidCheckpoint, match="the state is a type; checkpoints"):
        flatten(int)


def nested(levels: int) -> Any:
    state: Any = 1
    for _ in range(levels):
        state = [state]
    return state


def test_a_state_may_be_deep_but_not_without_end() -> None:
    assert same(there_and_back(nested(DEEPEST)), nested(DEEPEST))
    with pytest.raises(InvalidCheckpoint, match="levels deep, or holds itself"):
        flatten(nested(DEEPEST + 1))
    state: dict[str, Any] = {"a": 1}
    state["self"] = [state, state]
    with pytest.raises(InvalidCheckpoint, match=r"self\[0\]\.self\[0\] is over"):
        flatten(state)


@pytest.mark.parametrize(
    "structure",
    [
        [], [1], ["what"], ["list", []], ["tensor"], ["tensor", 1], ["tensor", "other"],
        ["tensor", "t", "t"], ["int", "zz"], ["int", 1], ["float", "1.0"], ["float"],
        ["dict", 1], ["dict", [1]], ["dict", "ab"], ["dict", [["list"], 1]],
        ["dict", [["tensor", "t"], 1]], ["dict", [["tuple", ["list"]], 1]],
        ["counter", {"a": 1}], ["ordered"], ["ordered", None, 1],
        ["deque"], ["deque", -1], ["deque", "a"], ["deque", 2**80],
        ["complex", "t"], ["complex", "u"], ["array", "<f8", [1], "t"],
        ["array", "O", [1], "u"], ["array", "<O8", [1], "u"],
        ["array", "<f3", [1], "u"], ["array", "|u1", [2**70], "u"],
        ["array", "|u1", ["a"], "u"], ["array", "|u1", [0.5], "u"],
        ["array", "|u1", 8, "u"], ["array", "<c16", [1], "u"],
        ["array", "i4,i4", [1], "u"], ["tensor", "v"],
        ["scalar", "<f8", "00"], ["scalar", "<f8", ""], ["scalar", "<f8", "xx"],
        ["scalar", "<f8", "00" * 16], ["scalar", "M8", "00" * 8], {"a": ["b"]},
        nested(DEEPEST + 1), object(), {"a": (lambda: None)},
    ],
    ids=lambda structure: repr(structure).partition(" at 0x")[0][:30],
)  # fmt: skip
def test_a_structure_that_is_none_is_refused(structure: Any) -> None:
    tensors = {"t": torch.ones(3), "u": torch.zeros(8, dtype=torch.uint8)}
    tensors["v"] = tensors["u"].view(torch.float4_e2m1fn_x2)
    with pytest.raises(InvalidCheckpoint, match="the structure"):
        unflatten(structure, tensors)


# Any tree

WORDS = st.sampled_from(["list", "dict", "tensor", "float", "nan", "0x1", "a.b", "a"])
KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda keys: st.lists(keys, max_size=2).map(tuple),
    max_leaves=3,
)
NUMPY = arrays(
    st.sampled_from([np.float64, np.int32, np.uint8, np.bool_, np.dtype(">f4")]),
    st.sampled_from([(), (0,), (2,), (2, 2)]),
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.sampled_from([(), (0,), (3,), (2, 3)]))
    dtype = draw(st.sampled_from(DTYPES[:15]))
    tensor = torch.full(shape, draw(st.integers(0, 5))).to(dtype)
    return tensor.t() if draw(st.booleans()) and tensor.ndim == 2 else tensor


def containers(trees: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    row = st.lists(trees, max_size=3)
    flat = st.dictionaries(KEYS, trees, max_size=3)
    named = st.dictionaries(st.text(max_size=3) | WORDS, trees, max_size=3)
    return (
        row | row.map(tuple) | row.map(deque) | flat | named
        | flat.map(OrderedDict) | st.dictionaries(KEYS, st.integers()).map(Counter)
        | trees.map(lambda tree: [tree, tree])
    )  # fmt: skip


TREES = st.recursive(
    KEYS | tensors() | NUMPY | NUMPY.map(lambda array: array.sum()), containers
)


@given(TREES)
@example({"list": ["list", ["tensor", "list"]]})
def test_any_tree_comes_back(tree: Any) -> None:
    assert same(there_and_back(tree), tree)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda nodes: (
        st.lists(nodes, max_size=4)
        | st.tuples(WORDS, nodes, nodes).map(list)
        | st.dictionaries(WORDS, nodes, max_size=2)
    ),
)


@given(JSON)
def test_any_json_is_a_state_or_refused(structure: Any) -> None:
    try:
        state = unflatten(structure, {"a": torch.ones(2)})
    except InvalidCheckpoint:
        return
    assert same(there_and_back(state), state)


# What people train with


class Net(nn.Module):
    """A little of everything: a sparse table, a batch norm, a matrix."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4, sparse=sparse)
        self.norm = nn.BatchNorm1d(4)
        self.matrix = nn.Linear(4, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.matrix(self.norm(self.table(x)))


Parts = dict[str, Any]  # what has a state_dict, by name


def parts_of(
    optimizer: Callable[..., torch.optim.Optimizer],
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
    sparse: bool = False,
    only: str = "",
) -> Parts:
    torch.manual_seed(5)
    model = Net(sparse)
    chosen = [p for name, p in model.named_parameters() if name.startswith(only)]
    made = optimizer(chosen)
    parts = {"model": model, "optimizer": made}
    if scheduler is not None:
        parts["scheduler"] = scheduler(made)
    return parts


def train(parts: Parts, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        x = torch.randint(5, (6,), generator=generator)
        y = torch.randint(3, (6,), generator=generator)

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            parts["optimizer"].zero_grad()
            loss = nn.functional.cross_entropy(parts["model"](x), y)
            loss.backward()
            return loss

        loss = parts["optimizer"].step(closure)
        if "scheduler" in parts:
            plateau = isinstance(parts["scheduler"], lrs.ReduceLROnPlateau)
            parts["scheduler"].step(*([loss.item()] if plateau else []))
        if "average" in parts:
            parts["average"].update_parameters(parts["model"])


def check_goes_on_alike(make: Callable[[], Parts]) -> None:
    """Train two steps, restore into new objects, go on with both: all is the same."""
    parts = make()
    train(parts, range(2))
    state = {name: part.state_dict() for name, part in parts.items()}
    before = deepcopy(state)
    back = there_and_back(state)
    assert same(back, state)
    again = make()
    for name, part in again.items():
        part.load_state_dict(back[name])
    train(parts, range(2, 5))
    train(again, range(2, 5))
    for name, part in again.items():
        assert same(part.state_dict(), parts[name].state_dict()), name
    assert not same(parts["model"].state_dict(), before["model"])  # it did train


def optimizers() -> Iterator[Any]:
    special = {"SparseAdam": {"sparse": True, "only": "table"}, "Muon": {"only": "mat"}}
    for name in torch.optim.__all__:
        made = getattr(torch.optim, name)
        if isinstance(made, type) and made is not torch.optim.Optimizer:
            yield pytest.param(made, special.get(name, {}), id=name)


@pytest.mark.parametrize(("optimizer", "options"), [*optimizers()])
def test_every_optimizer_goes_on_where_it_was(optimizer: Any, options: dict) -> None:
    check_goes_on_alike(lambda: parts_of(optimizer, **options))


VARIANTS = {
    "adam, amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adam, foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "adam, fused": lambda p: torch.optim.Adam(p, fused=True),
    "adam, lr a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "sgd, nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "rmsprop, centred": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "two groups": lambda p: torch.optim.AdamW(
        [{"params": p[:2], "lr": 0.1, "note": "table"}, {"params": p[2:]}], lr=0.01
    ),
    "lbfgs, wolfe": lambda p: torch.optim.LBFGS(
        p, max_iter=4, line_search_fn="strong_wolfe"
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_an_optimizer_goes_on_where_it_was(name: str) -> None:
    check_goes_on_alike(lambda: parts_of(VARIANTS[name]))


def later(optimizer: torch.optim.Optimizer) -> Any:
    parts = [lrs.ConstantLR(optimizer, 0.1, 2), lrs.ExponentialLR(optimizer, 0.9)]
    return lrs.SequentialLR(optimizer, parts, milestones=[3])


def chained(optimizer: torch.optim.Optimizer) -> Any:
    parts = [lrs.LinearLR(optimizer, 0.5, 1.0, 4), lrs.MultiStepLR(optimizer, [1, 3])]
    return lrs.ChainedScheduler(parts)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: lrs.StepLR(o, 2),
    "MultiStepLR": lambda o: lrs.MultiStepLR(o, [1, 3, 3]),
    "CosineAnnealingLR": lambda o: lrs.CosineAnnealingLR(o, 5),
    "OneCycleLR": lambda o: lrs.OneCycleLR(o, 0.1, total_steps=6),
    "CosineAnnealingWarmRestarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 2),
    "ReduceLROnPlateau": lambda o: lrs.ReduceLROnPlateau(o, patience=0, threshold=9.0),
    "LambdaLR": lambda o: lrs.LambdaLR(o, lambda step: 0.5**step),
    "MultiplicativeLR": lambda o: lrs.MultiplicativeLR(o, lambda step: 0.5),
    "PolynomialLR": lambda o: lrs.PolynomialLR(o, 5),
    "CyclicLR": lambda o: lrs.CyclicLR(o, 0.01, 0.1, 2),
    "SequentialLR": later,
    "ChainedScheduler": chained,
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_goes_on_where_it_was(name: str) -> None:
    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    check_goes_on_alike(lambda: parts_of(sgd, SCHEDULERS[name]))


def test_the_milestones_of_a_scheduler_stay_a_counter() -> None:
    parts = parts_of(torch.optim.SGD, SCHEDULERS["MultiStepLR"])
    back = there_and_back(parts["scheduler"].state_dict())
    assert same(back["milestones"], Counter({1: 1, 3: 2}))


@pytest.mark.parametrize("ema", [False, True])
def test_an_averaged_model_goes_on_where_it_was(ema: bool) -> None:
    how = get_ema_multi_avg_fn(0.9) if ema else None

    def make() -> Parts:
        parts = parts_of(torch.optim.Adam)
        return parts | {"average": AveragedModel(parts["model"], multi_avg_fn=how)}

    check_goes_on_alike(make)


def test_tied_weights_go_on_where_they_were() -> None:
    def make() -> Parts:
        parts = parts_of(torch.optim.SGD)
        parts["model"].again = parts["model"].matrix
        return parts

    assert len(flatten(make()["model"].state_dict())[1]) == 7
    check_goes_on_alike(make)
