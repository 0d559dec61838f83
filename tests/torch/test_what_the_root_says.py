"""Whatever the root's model is when `backward` is called, workers compute with it.

However it was changed: through `.data`, through NumPy, in a buffer, an attribute or a
knob. And a forward pass that changes what it may not is refused, however it does that.
"""

import enum
import logging
import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codedgrad.errors import InvalidJob, JobFailed
from codedgrad.torch import Job, train
from codedgrad.torch.model import seal as seal_module
from codedgrad.torch.model.flat import Flat
from codedgrad.torch.model.seal import Piece, Seal, digest_of

SAMPLES, FEATURES = 24, 4
X = torch.linspace(-1, 1, SAMPLES * FEATURES).reshape(SAMPLES, FEATURES).double()
Y = (X**2).sum(1, keepdim=True)


class Net(nn.Module):
    """Has something of every kind that the root may change."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(FEATURES, 8)
        self.drop = nn.Dropout(0.0)
        self.norm = nn.BatchNorm1d(8, momentum=0.5)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.last = nn.Linear(8, 1)
        self.register_buffer("mask", torch.ones(8))
        self.register_buffer("table", torch.ones(8, 2000))  # large: digested
        self.temperature: Any = 1.0
        self.kind = "tanh"
        self.shift = torch.zeros(8).double()
        self.pair = (1.0, 2)
        self.nothing = None
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)) * self.mask * self.table.mean(1)
        x = torch.tanh(x) if self.kind == "tanh" else torch.relu(x)
        x = self.drop(x + self.shift) * self.pair[0] / float(self.temperature)
        return self.last(x + self.frozen(x))


def job() -> Job:
    return Job(Net(), nn.MSELoss(), (X, Y), batch_size=12)


def by_hand(model: nn.Module, indices: list[Any]) -> list[Tensor]:
    """Compute the gradient of a step with plain PyTorch, over the same parts."""
    plain = deepcopy(model)
    plain.zero_grad()
    start = deepcopy(plain.state_dict())
    count = sum(map(len, indices))
    for part in indices:
        plain.load_state_dict(start)
        x = torch.from_numpy(part)
        (F.mse_loss(plain(X[x]), Y[x], reduction="sum") / count).backward()
    return [p.grad for p in plain.parameters() if p.grad is not None]


def write_data(model: Any) -> None:
    model.first.weight.data.mul_(3)


def write_frozen(model: Any) -> None:
    model.frozen.weight.data.zero_()


def write_numpy(model: Any) -> None:
    model.last.bias.detach().numpy()[:] = 5.0


def write_mask(model: Any) -> None:
    model.mask.data[:4].zero_()


def write_table(model: Any) -> None:
    model.table.data[3, 7] = 1e4


def replace_mask(model: Any) -> None:
    model.mask = torch.arange(8.0).double()


def set_number(model: Any) -> None:
    model.temperature = 0.25


def set_whole_number(model: Any) -> None:
    model.temperature = 7


def set_text(model: Any) -> None:
    model.kind = "relu"


def set_tensor(model: Any) -> None:
    model.shift[2] = 3.0


def set_tuple(model: Any) -> None:
    model.pair = (4.0, 2)


def set_momentum(model: Any) -> None:
    model.norm.momentum = 0.01
    model.norm.eps = 0.3


CHANGES = [
    write_data,
    write_frozen,
    write_numpy,
    write_mask,
    write_table,
    replace_mask,
    set_number,
    set_whole_number,
    set_text,
    set_tensor,
    set_tuple,
    set_momentum,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_changed_at_the_root_reaches_the_workers(
    change: Callable[[Any], None],
) -> None:
    with train(job, workers=3, scheme="fractional(2)", engine="here") as coded:
        for step in coded.steps(3):
            if step == 1:
                before = by_hand(coded.model, parts_of(coded, step))
                change(coded.model)
            wanted = by_hand(coded.model, parts_of(coded, step))
            coded.backward()
            found = [p.grad for p in coded.model.parameters() if p.grad is not None]
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
            if step == 1:  # the change is one that shows
                pairs = zip(before, wanted, strict=True)
                assert not all(torch.allclose(a, b) for a, b in pairs)
            assert coded.deviation() < 1e-9


def parts_of(coded: Any, step: int) -> list[Any]:
    parts = coded._work.parts
    found = [parts.indices(part, step) for part in range(coded.scheme.parts)]
    return [indices for indices in found if len(indices)]


def test_it_reaches_worker_processes_too() -> None:
    """All changes at once, one a step."""
    with train(job, workers=2, scheme="auto(pieces=2)") as coded:
        for step in coded.steps(len(CHANGES)):
            CHANGES[step](coded.model)
            wanted = by_hand(coded.model, parts_of(coded, step))
            coded.backward()
            found = [p.grad for p in coded.model.parameters() if p.grad is not None]
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_momentum_set_at_the_root_is_that_of_the_running_statistics() -> None:
    with train(job, workers=3, scheme="uncoded", engine="here") as coded:
        coded.model.norm.momentum = 0.0
        before = coded.model.norm.running_mean.clone()
        coded.backward()
        assert torch.equal(coded.model.norm.running_mean, before)


# -- what cannot reach them -----------------------------------------------------------


def test_what_does_not_reach_the_workers_is_one_warning_that_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        train(job, workers=3, scheme="uncoded", engine="here") as coded,
        caplog.at_level(logging.WARNING, "codedgrad"),
    ):
        caplog.clear()
        coded.backward()
        assert not caplog.records
        model: Any = coded.model
        model.fresh = 1.0
        model.kind = object()
        model.norm.register_forward_hook(lambda *_: None)
        model.last.weight.register_hook(lambda gradient: gradient)
        model.first.bias.register_post_accumulate_grad_hook(lambda parameter: None)
        model.drop = nn.Identity()
        model._cache = object()  # private: not worth a warning
        for _ in range(2):
            coded.backward()
        [record] = caplog.records
        said = record.getMessage()
    for name in (
        "fresh",
        "kind",
        "a hook of norm",
        "a hook of the parameter last.weight",
        "a hook of the parameter first.bias",
        "the submodule drop",
    ):
        assert name in said
    assert "_cache" not in said


class Counting(nn.Module):
    """A schedule that the forward pass advances by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 1).double()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.last(x) * self.calls


def test_a_number_that_the_forward_pass_sets_is_set_back_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Or it would depend on who computes which part."""

    def make() -> Job:
        torch.manual_seed(0)
        return Job(Counting(), nn.MSELoss(), (X, Y), batch_size=12)

    found = []
    for scheme in ("uncoded", "fractional(2)"):
        with train(make, workers=3, scheme=scheme, engine="here") as coded:
            for _ in coded.steps(2):
                coded.backward()
                assert coded.deviation() == 0.0
            found.append(coded.model.last.weight.grad.clone())
    assert torch.equal(*found)
    said = [r.getMessage() for r in caplog.records if "calls" in r.getMessage()]
    assert said
    assert said[0].startswith("the forward pass sets the attribute calls")


class Mode(enum.StrEnum):
    ONE, TWO = "one", "two"


def change_config(model: Any) -> None:
    model.config.rate = 5.0


def change_list(model: Any) -> None:
    model.config.sizes.append(3)
    model.sizes.append(3)


def change_mode(model: Any) -> None:
    model.mode = Mode.TWO


def replace_attribute(model: Any) -> None:
    del model.spare
    model.other = 1.0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (change_config, ["what config refers to"]),
        (change_list, ["what sizes refers to"]),
        (change_mode, ["mode"]),
        (replace_attribute, ["spare", "other"]),
    ],
)
def test_changes_that_cannot_be_published_are_named(
    change: Any, named: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Job:
        net: Any = Net()
        net.config = SimpleNamespace(rate=1.0, sizes=[1, 2])
        net.drop.config = net.config  # shared, and named once
        net.sizes = net.config.sizes
        net.mode = Mode.ONE  # a string that workers would get as a mere one
        net.spare = 1.0
        return Job(net, nn.MSELoss(), (X, Y), batch_size=12)

    with train(make, workers=3, scheme="uncoded", engine="here") as coded:
        caplog.clear()
        coded.backward()
        change(coded.model)
        for _ in range(3):
            coded.backward()
        if hasattr(coded.model, "other"):
            coded.model.other = 2.0  # is not published the second time, either
            coded.backward()
    [said] = [r.getMessage() for r in caplog.records]
    for name in named:
        assert f" {name}" in said


def test_numpy_numbers_and_arrays_reach_the_workers() -> None:
    def loss(model: Any, batch: Any) -> Any:
        x, y = batch
        total = F.mse_loss(model(x), y, reduction="sum")
        return total * float(model.scale) * float(model.weights[1]), len(x)

    def make() -> Job:
        torch.manual_seed(0)
        net: Any = nn.Linear(FEATURES, 1).double()
        net.scale, net.weights = np.float32(1.0), np.ones(3)
        return Job(net, loss, (X, Y))

    with train(make, workers=2, scheme="uncoded", engine="here") as coded:
        first = coded.backward().loss
        coded.model.scale = np.float32(0.5)
        coded.model.weights[1] = 4.0
        assert coded.backward().loss == pytest.approx(2 * first, rel=1e-12)


class Remembering(nn.Module):
    """A forward pass that keeps what it has seen, in attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 1).double()
        self.state = torch.zeros(FEATURES).double()
        self.warm = False
        self.pair = (0, 0)
        self.cache = None

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state + x.detach().mean(0)
        self.pair = (self.pair[0] + 1, 0)
        scale = 2.0 if self.warm else 1.0
        self.warm = True
        self.cache = x.detach() if self.cache is None else self.cache
        return self.last(x + self.state) * (scale + self.pair[0])


def test_whatever_a_forward_pass_remembers_every_part_begins_with_the_root_s(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make() -> Job:
        torch.manual_seed(0)
        return Job(Remembering(), nn.MSELoss(), (X, Y), batch_size=12)

    found = []
    for scheme in ("uncoded", "fractional(2)"):
        with train(make, workers=3, scheme=scheme, engine="here") as coded:
            for _ in coded.steps(3):
                coded.backward()
                assert coded.deviation() == 0.0
            found.append(coded.model.last.weight.grad.clone())
    assert torch.equal(*found)
    said = " ".join(r.getMessage() for r in caplog.records)
    for name in ("state", "warm", "pair"):
        assert f"sets the attribute {name};" in said
    assert "cache" not in said


class Late(nn.Module):
    """Has a buffer that is None until somebody makes it."""

    def __init__(self, makes: bool, persistent: bool = True) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 1).double()
        self.makes = makes
        self.register_buffer("mean", None, persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        if self.makes and self.mean is None:
            self.mean = x.detach().mean(0)
        return self.last(x if self.mean is None else x - self.mean)


def late(**options: Any) -> Any:
    return lambda: Job(Late(**options), nn.MSELoss(), (X, Y), batch_size=12)


def test_a_buffer_that_the_job_did_not_make_is_refused() -> None:
    with train(late(makes=False), workers=2, scheme="uncoded", engine="here") as coded:
        coded.backward()
        coded.model.mean = torch.ones(FEATURES).double()
        with pytest.raises(InvalidJob, match="the buffer mean: was not there when"):
            coded.backward()
        coded.model.mean = None
        coded.model.last.register_buffer("mask", torch.ones(1))
        with pytest.raises(InvalidJob, match=r"the buffer last\.mask: was not"):
            coded.backward()
    with (
        train(late(makes=True), workers=2, scheme="uncoded", engine="here") as coded,
        pytest.raises(InvalidJob, match="the buffer mean: is made by the forward"),
    ):
        coded.backward()


class Rotary(nn.Module):
    """A table that a forward pass makes longer when it has to."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 1).double()
        self.register_buffer("table", torch.ones(1).double(), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        if len(self.table) < x.shape[1]:
            self.table = torch.ones(x.shape[1]).double()
        return self.last(x * self.table)


def test_a_cache_may_grow_in_the_forward_pass_if_it_is_called_one() -> None:
    def job(persistent: bool) -> Any:
        return lambda: Job(Rotary(persistent), nn.MSELoss(), (X, Y), batch_size=12)

    with train(job(False), workers=2, scheme="uncoded", engine="here") as coded:
        for _ in coded.steps(2):
            coded.backward()
            assert coded.deviation() == 0.0
            coded.model(X)  # as an evaluation would, at the root
    with (
        train(job(True), workers=2, scheme="uncoded", engine="here") as coded,
        pytest.raises(InvalidJob, match="register it with persistent=False"),
    ):
        coded.backward()


@pytest.mark.parametrize("interrupt", ["no room", "Ctrl-C"])
def test_a_change_is_not_lost_when_publishing_is_interrupted(
    interrupt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest may be noted already: it must be published all the same."""
    with train(job, workers=3, scheme="uncoded", engine="here") as coded:
        for _ in coded.steps(3):
            coded.backward()
        coded.model.table.data[3, 7] = 1e4
        coded.model.frozen.weight.data.zero_()
        if interrupt == "no room":
            coded.knobs["text"] = "x" * (1 << 15)
            with pytest.raises(InvalidJob):
                coded.backward()
            del coded.knobs["text"]
        else:
            with monkeypatch.context() as patch:
                patch.setattr(Flat, "_revisions", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    coded.backward()
        wanted = by_hand(coded.model, parts_of(coded, coded.step + 1))
        coded.backward()
        found = [p.grad for p in coded.model.parameters() if p.grad is not None]
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")
def test_a_model_of_torch_script_trains() -> None:
    def make() -> Job:
        torch.manual_seed(0)
        net = torch.jit.script(nn.Linear(FEATURES, 1).double())
        return Job(net, nn.MSELoss(), (X, Y))

    with train(make, workers=2, scheme="uncoded", engine="here") as coded:
        coded.backward()
        assert coded.deviation() < 1e-12


def test_attributes_and_knobs_without_room_are_one_sentence() -> None:
    with train(job, workers=3, scheme="uncoded", engine="here") as coded:
        coded.knobs["text"] = "x" * (1 << 15)
        with pytest.raises(InvalidJob, match="changed attributes and knobs: take"):
            coded.backward()
        coded.knobs["text"] = "x" * 30_000  # fits
        coded.backward()


# -- knobs, step and epoch -------------------------------------------------------------


def asking(model: nn.Module, batch: Any, *, knobs: Any, step: int, epoch: int) -> Any:
    x, y = batch
    total = F.mse_loss(model(x), y, reduction="sum") * knobs["beta"]
    told = {"step": float(step * len(x)), "epoch": float(epoch * len(x))}
    return total, len(x), told


@pytest.mark.parametrize("engine", ["here", "local"])
def test_knobs_step_and_epoch_reach_a_loss_that_asks_for_them(engine: str) -> None:
    def make() -> Job:
        torch.manual_seed(0)
        net = nn.Linear(FEATURES, 1).double()
        return Job(net, asking, (X, Y), batch_size=12, metrics=["step", "epoch"])

    with train(make, workers=2, scheme="uncoded", engine=engine) as coded:
        gradients = []
        for step in coded.steps(5):
            coded.knobs["beta"] = 2.0**step
            report = coded.backward()
            assert report.metrics == {"step": step, "epoch": step // 2}
            assert coded.deviation() == 0.0
            gradients.append(coded.model.weight.grad.clone())
        plain = F.mse_loss(coded.model(X), Y)
        (wanted,) = torch.autograd.grad(plain, [coded.model.weight])
        for epoch in range(2):  # two steps make an epoch
            first, second = gradients[2 * epoch : 2 * epoch + 2]
            mean = (first / 4**epoch + second / (2 * 4**epoch)) / 2
            torch.testing.assert_close(mean, wanted)


def test_a_knob_that_nobody_has_set_is_one_sentence() -> None:
    def make() -> Job:
        net = nn.Linear(FEATURES, 1).double()
        return Job(net, asking, (X, Y), metrics=["step", "epoch"])

    with (
        train(make, workers=2, scheme="uncoded", engine="here") as coded,
        pytest.raises(InvalidJob, match=r"knobs: 'beta' has no value.*try coded"),
    ):
        coded.backward()


def test_knobs_may_be_set_all_at_once() -> None:
    def make() -> Job:
        torch.manual_seed(0)
        net = nn.Linear(FEATURES, 1).double()
        return Job(net, asking, (X, Y), metrics=["step", "epoch"])

    with train(make, workers=2, scheme="uncoded", engine="here") as coded:
        coded.knobs["old"] = 1.0
        coded.knobs = {"beta": 1.0}
        first = coded.backward().loss
        coded.knobs = {"beta": 3.0}
        assert dict(coded.knobs) == {"beta": 3.0}
        assert coded.backward().loss == pytest.approx(3 * first)
        with pytest.raises(InvalidJob, match="knobs: 'net' is Linear"):
            coded.knobs = {"beta": 5.0, "net": nn.Linear(1, 1)}
        assert dict(coded.knobs) == {"beta": 3.0}


def test_knobs_are_in_checkpoints(tmp_path: Path) -> None:
    def make() -> Job:
        torch.manual_seed(0)
        net = nn.Linear(FEATURES, 1).double()
        return Job(net, asking, (X, Y), metrics=["step", "epoch"])

    values = {"beta": 0.5, "turn": "critic", "sizes": (1, None), "mask": torch.ones(2)}
    for total in (1, 2):
        with train(
            make, workers=2, scheme="uncoded", engine="here", run_dir=tmp_path,
            resume="auto",
        ) as coded:  # fmt: skip
            if total == 1:
                coded.knobs = values
            for _ in coded.steps(total):
                coded.backward()
        assert coded.knobs["turn"] == "critic"
        assert coded.knobs["sizes"] == (1, None)
        assert torch.equal(coded.knobs["mask"], torch.ones(2))


class Module(nn.Module):
    def forward(self, model: nn.Module, batch: Any, step: int = -1) -> Any:
        return asked(model, batch, step=step)


def asked(model: nn.Module, batch: Any, step: int = -1) -> Any:
    x, y = batch
    total = F.mse_loss(model(x), y, reduction="sum")
    return total, len(x), {"step": float(step * len(x))}


@pytest.mark.parametrize(
    ("loss", "told"),
    [(asked, 2), (Module(), 2), (partial(asked, step=1000), 1000)],
    ids=["function", "module", "bound"],
)
def test_a_loss_of_any_kind_is_told_the_step_unless_it_is_bound(
    loss: Any, told: int
) -> None:
    def make() -> Job:
        net = nn.Linear(FEATURES, 1).double()
        return Job(net, loss, (X, Y), metrics=["step"])

    with train(make, workers=2, scheme="uncoded", engine="here") as coded:
        for _ in coded.steps(3):
            report = coded.backward()
        assert report.metrics == {"step": told}


def test_a_knob_is_a_plain_value() -> None:
    with train(job, workers=3, scheme="uncoded", engine="here") as coded:
        with pytest.raises(InvalidJob, match="knobs: 'net' is Linear"):
            coded.knobs["net"] = nn.Linear(1, 1)
        with pytest.raises(InvalidJob, match="knobs: 'large' is int"):
            coded.knobs["large"] = 2**64
        with pytest.raises(InvalidJob, match="knobs: 'raw' is bytes"):
            coded.knobs["raw"] = b"abc"


class Epochs(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Samples that depend on the epoch, as augmented ones do."""

    def __init__(self) -> None:
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index] * (self.epoch + 1), Y[index]


@pytest.mark.parametrize("subset", [False, True])
def test_data_sets_that_want_to_know_the_epoch_are_told(subset: bool) -> None:
    def make() -> Job:
        torch.manual_seed(0)
        data: Any = Epochs()
        if subset:
            data = torch.utils.data.Subset(data, range(SAMPLES))
        return Job(nn.Linear(FEATURES, 1).double(), nn.MSELoss(), data, batch_size=12)

    with train(make, workers=2, scheme="uncoded") as coded:
        gradients = []
        for _ in coded.steps(6):
            coded.backward()
            gradients.append(coded.model.weight.grad.clone())
        for epoch in range(3):
            plain = F.mse_loss(coded.model(X * (epoch + 1)), Y)
            (wanted,) = torch.autograd.grad(plain, [coded.model.weight])
            mean = (gradients[2 * epoch] + gradients[2 * epoch + 1]) / 2
            torch.testing.assert_close(mean, wanted)


# -- what a forward pass may not change ------------------------------------------------


class Writing(nn.Module):
    """A forward pass that writes where PyTorch does not count it."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 1).double()
        self.base = nn.Linear(FEATURES, FEATURES).double().requires_grad_(False)
        self.narrow = nn.Linear(FEATURES, FEATURES).half()  # has memory of its own
        self.register_buffer("small", torch.ones(FEATURES).double())
        self.register_buffer("large", torch.ones(FEATURES, 5000).double())
        self.register_buffer("flags", torch.zeros(5000, dtype=torch.int64))
        self.what = what

    def forward(self, x: Tensor) -> Tensor:
        written = self.get_parameter if "." in self.what else self.get_buffer
        if self.what == "moved":
            self.last.weight.data = self.last.weight.data * 2
        elif self.what == "replaced":
            self.small = self.small + 1
        elif self.what:
            written(self.what).data.add_(1)
        return self.last(self.base(x) * self.small * self.large.mean(1))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("last.weight", "changes the parameter last.weight"),
        ("last.bias", "changes the parameter last.bias"),
        ("base.weight", "changes the parameter base.weight"),
        ("narrow.bias", "changes the parameter narrow.bias"),
        ("moved", "changes the parameter last.weight"),
        ("small", 'the buffer small: is changed .*Job\\(buffers={"small": rule}\\)'),
        ("large", "the buffer large: is changed by the forward pass"),
        ("flags", "the buffer flags: is changed by the forward pass"),
        ("replaced", "the buffer small: is changed by the forward pass"),
    ],
)
def test_a_forward_pass_that_writes_unseen_is_refused(what: str, said: str) -> None:
    def make() -> Job:
        torch.manual_seed(0)
        return Job(Writing(what), nn.MSELoss(), (X, Y), batch_size=12)

    with (
        train(make, workers=2, scheme="uncoded", engine="here") as coded,
        pytest.raises(InvalidJob, match=said),
    ):
        coded.backward()


def test_a_forward_pass_that_writes_nothing_is_not() -> None:
    def make() -> Job:
        torch.manual_seed(0)
        return Job(Writing(""), nn.MSELoss(), (X, Y), batch_size=12)

    with train(make, workers=2, scheme="uncoded", engine="here") as coded:
        for _ in coded.steps(3):
            coded.backward()


def test_processes_refuse_it_as_well() -> None:
    def make() -> Job:
        torch.manual_seed(0)
        return Job(Writing("small"), nn.MSELoss(), (X, Y), batch_size=12)

    with (
        train(make, workers=2, scheme="uncoded") as coded,
        pytest.raises(JobFailed, match="the buffer small: is changed by the forward"),
    ):
        coded.backward()


def test_numbers_that_are_not_finite_are_not_taken_for_changed() -> None:
    def make() -> Job:
        torch.manual_seed(0)
        return Job(Writing(""), nn.MSELoss(), (X, Y), batch_size=12)

    with train(make, workers=2, scheme="uncoded", engine="here") as coded:
        coded.model.small.fill_(math.nan)
        coded.model.base.weight.data.fill_(math.nan)
        assert not coded.backward().finite


# -- seals -----------------------------------------------------------------------------


def piece(tensor: Tensor, name: str) -> Piece:
    return Piece(
        lambda: ValueError(name), lambda: digest_of(tensor), tensor.numel() * 8
    )


def test_what_is_fresh_is_looked_at_in_full_and_the_rest_in_turn() -> None:
    tensors = [torch.zeros(1000).double() for _ in range(4)]
    seal = Seal([piece(tensor, str(n)) for n, tensor in enumerate(tensors)])
    seal.close(range(4))
    assert seal.check(0.0) is None
    for number, tensor in enumerate(tensors):
        tensor.numpy()[7] = 1.0
        assert seal.check(0.0) is None  # no time for a look
        assert str(seal.check(1e6)) == str(number)  # time for all of them
        seal.close([number])
        tensor.numpy()[7] = 2.0
        assert str(seal.check(0.0)) == str(number)  # fresh
        seal.close([number])
        assert seal.check(0.0) is None


def test_a_look_costs_no_more_than_its_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at a piece takes 1 ms here, by a clock that only looks advance."""
    now, looks = [0.0], []
    monkeypatch.setattr(seal_module.time, "perf_counter", lambda: now[0])

    def look(number: int) -> int:
        looks.append(number)
        now[0] += 1e-3
        return 0

    pieces = [Piece(ValueError, partial(look, n), 1000) for n in range(10)]
    seal = Seal(pieces)
    seal.close(range(10))
    seal.check(0.0)
    looks.clear()
    seal.check(0.0501)  # 2 % of it are 1 ms
    assert looks == [0]
    for _ in range(9):
        seal.check(0.005)
    assert looks == [0]  # it takes ten of these
    seal.check(0.005)
    assert looks == [0, 1]
    seal.check(100.0)
    assert looks == [0, 1, *range(2, 10), 0, 1]  # none twice at a time
    seal.check(0.04)
    assert len(looks) == 12  # and what was left over is not saved up
