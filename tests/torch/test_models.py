"""Models of many kinds train as they do in plain PyTorch over the same parts.

The reference is written with PyTorch alone: it knows which samples the parts have, and
what the rule of a buffer says, and nothing else of codedgrad.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from codedgrad.errors import InvalidJob, JobFailed
from codedgrad.torch import Job, train
from codedgrad.torch.data import Batches, Parts
from codedgrad.torch.model.determinism import seed_everything

SAMPLES, FEATURES, BATCH, STEPS = 60, 6, 30, 4
PARTS = 4  # two workers with two pieces each


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


X = numbers(SAMPLES, FEATURES)
Y = torch.arange(SAMPLES) % 3


@dataclass
class Kind:
    """A model, its loss, and what its loop does at the root."""

    name: str
    model: Callable[[], nn.Module]
    loss: Callable[..., tuple[Tensor, Any]]
    data: Any = field(default_factory=lambda: (X, Y))
    collate: Any = None
    buffers: dict[str, str] = field(default_factory=dict)
    before: Callable[[Any, Any, int], None] = lambda model, knobs, step: None
    after: Callable[[Any], None] = lambda model: None
    rate: Callable[[str, int], float] = lambda name, step: 0.05
    within: float = 1e-9

    def job(self) -> Job:
        return Job(
            self.model(),
            self.loss,
            self.data,
            batch_size=BATCH,
            collate=self.collate,
            buffers=self.buffers,
        )

    def descend(self, model: nn.Module, step: int) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    parameter -= self.rate(name, step) * parameter.grad
        self.after(model)


def plain(kind: Kind) -> Iterator[nn.Module]:
    """Train in plain PyTorch, part by part; yield the model after every step."""
    torch.manual_seed(0)
    model = kind.model()
    parts = Parts(SAMPLES, PARTS, BATCH, seed=0)
    batches = Batches(kind.data, kind.collate)
    knobs: dict[str, Any] = {}
    for step in range(STEPS):
        kind.before(model, knobs, step)
        start = {name: buffer.clone() for name, buffer in model.named_buffers()}
        sums: dict[str, Tensor] = {}
        changes: list[tuple[int, dict[str, Tensor]]] = []
        count = 0.0
        for part in range(PARTS):
            indices = parts.indices(part, step)
            for name, buffer in model.named_buffers():
                buffer.data.copy_(start[name])
            model.zero_grad()
            seed_everything(0, step, part)
            given = {"knobs": knobs} if knobs else {}
            total, number = kind.loss(model, batches(indices), **given)
            total.backward()
            count += float(number)
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    wide = torch.promote_types(parameter.dtype, torch.float32)
                    gradient = parameter.grad.to(wide)
                    sums[name] = sums.get(name, 0) + gradient
            now = {name: b - start[name] for name, b in model.named_buffers()}
            changes.append((len(indices), now))
        for name, buffer in model.named_buffers():
            rule = kind.buffers.get(name, "mean")
            found = [(n, change[name].double()) for n, change in changes]
            by = {
                "mean": sum(n * change for n, change in found) / BATCH,
                "sum": sum(change for _, change in found),
                "first": found[0][1],
            }[rule]
            buffer.data.copy_(start[name] + by.to(buffer.dtype))
        for name, parameter in model.named_parameters():
            parameter.grad = None
            if name in sums:
                parameter.grad = (sums[name] / count).to(parameter.dtype)
        kind.descend(model, step)
        yield model


def classified(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    return F.cross_entropy(model(x), y, reduction="sum"), len(y)


# -- a VQ-VAE with the usual moving averages -------------------------------------------


class Quantizer(nn.Module):
    """Codes that follow the mean of what they stand for, written through `.data`."""

    def __init__(self, codes: int) -> None:
        super().__init__()
        self.register_buffer("codes", numbers(codes, 2, seed=1))
        self.register_buffer("sizes", torch.ones(codes).double())
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        nearest = torch.cdist(z, self.codes).argmin(1)
        found = self.codes[nearest]
        hits = F.one_hot(nearest, len(self.codes)).to(z)
        with torch.no_grad():
            self.sizes.data.mul_(0.9).add_(hits.sum(0), alpha=0.1)
            self.sums.data.mul_(0.9).add_(hits.T @ z, alpha=0.1)
            self.codes.data.copy_(self.sums / self.sizes.clamp(min=1e-3)[:, None])
        loss = F.mse_loss(z, found.detach(), reduction="sum")
        return z + (found - z).detach(), loss


class VQVAE(nn.Module):
    def __init__(self, codes: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, 2).double()
        self.quantizer = Quantizer(codes)
        self.decoder = nn.Linear(2, FEATURES).double()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found, loss = self.quantizer(self.encoder(x))
        return self.decoder(found), loss


def rebuilt(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    x, _ = batch
    y, loss = model(x)
    return F.mse_loss(y, x, reduction="sum") + 0.25 * loss, len(x)


def vqvae(codes: int, rule: str | None) -> Kind:
    names = ("codes", "sizes", "sums") if rule else ()
    rules = {f"quantizer.{name}": str(rule) for name in names}
    return Kind(f"vqvae {codes} {rule}", lambda: VQVAE(codes), rebuilt, buffers=rules)


# -- a GAN: two losses in turn, each for one of two networks ---------------------------


class GAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(3, FEATURES).double()
        self.critic = nn.Linear(FEATURES, 1).double()


def adversarial(model: Any, batch: Any, knobs: Any) -> tuple[Tensor, int]:
    x, _ = batch
    made = model.generator(torch.randn(len(x), 3, dtype=torch.float64))
    if knobs["turn"] == "critic":
        fake, real = model.critic(made.detach()), model.critic(x)
        return (F.softplus(fake) + F.softplus(-real)).sum(), len(x)
    return F.softplus(-model.critic(made)).sum(), len(x)


def take_turns(model: Any, knobs: Any, step: int) -> None:
    knobs["turn"] = "generator" if step % 2 else "critic"


def of_whose_turn_it_is(name: str, step: int) -> float:
    return 0.05 if name.startswith("generator" if step % 2 else "critic") else 0.0


# -- a teacher that is an average of its student ---------------------------------------


class Distilled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(FEATURES, 3).double()
        self.teacher = deepcopy(self.student).requires_grad_(False)


def distilled(model: Any, batch: Any) -> tuple[Tensor, int]:
    x, y = batch
    guess, wanted = model.student(x), model.teacher(x + 0.1).softmax(1)
    soft = F.cross_entropy(guess, wanted, reduction="sum")
    return soft + F.cross_entropy(guess, y, reduction="sum"), len(x)


def average(model: Any) -> None:
    pairs = zip(model.teacher.parameters(), model.student.parameters(), strict=True)
    for teacher, student in pairs:
        teacher.data.lerp_(student.data, 0.3)


# -- LoRA: small matrices beside frozen ones of another type ---------------------------


class LoRA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(FEATURES, 3).bfloat16().requires_grad_(False)
        self.down = nn.Parameter(numbers(FEATURES, 2, seed=2))
        self.up = nn.Parameter(torch.zeros(2, 3).double())

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x.bfloat16()).double() + x @ self.down @ self.up


# -- an LSTM over sequences of many lengths --------------------------------------------


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, 5).double()
        self.last = nn.Linear(5, 3).double()

    def forward(self, words: PackedSequence) -> Tensor:
        _, (state, _) = self.lstm(words)
        return self.last(state[-1])


SENTENCES = [(numbers(1 + i % 7, FEATURES, seed=i), i % 3) for i in range(SAMPLES)]


def packed(samples: list[Any]) -> tuple[PackedSequence, Tensor]:
    words = pack_sequence([w for w, _ in samples], enforce_sorted=False)
    return words, torch.tensor([label for _, label in samples])


# -- a pair of networks that find each other among the others of a part ----------------


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(FEATURES, 4).double()
        self.right = nn.Linear(FEATURES, 4).double()


def contrasted(model: Any, batch: Any) -> tuple[Tensor, int]:
    x, _ = batch
    scores = model.left(x) @ model.right(x.flip(1)).T
    return F.cross_entropy(scores, torch.arange(len(x)), reduction="sum"), len(x)


# -- a temperature that the loop lowers ------------------------------------------------


class Annealed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 3).double()
        self.drop = nn.Dropout(0.5)
        self.temperature = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.last(x)) / self.temperature


def anneal(model: Any, knobs: Any, step: int) -> None:
    model.temperature *= 0.7
    model.drop.p = 0.5 / (step + 1)


def half() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 3)).half()


def old_norm(norm: Any) -> nn.Module:
    first = norm(nn.Linear(FEATURES, 8).double())
    return nn.Sequential(first, nn.Tanh(), nn.Linear(8, 3).double())


KINDS = [
    vqvae(512, "first"),
    vqvae(64, "first"),
    vqvae(64, "mean"),
    vqvae(64, "sum"),
    Kind("gan", GAN, adversarial, before=take_turns, rate=of_whose_turn_it_is),
    Kind("weight norm", lambda: old_norm(parametrizations.weight_norm), classified),
    Kind("spectral norm", lambda: old_norm(parametrizations.spectral_norm), classified),
    Kind("old spectral norm", lambda: old_norm(nn.utils.spectral_norm), classified),
    Kind("ema teacher", Distilled, distilled, after=average),
    Kind("lora", LoRA, classified),
    Kind("lstm", Reader, classified, data=SENTENCES, collate=packed),
    Kind("contrastive", Pair, contrasted),
    Kind("fp16", half, classified, data=(X.half(), Y), within=1e-6),
    Kind("annealed", Annealed, classified, before=anneal),
]


def torch_warns_of_old_weight_norm() -> Any:
    return pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")


@torch_warns_of_old_weight_norm()
@pytest.mark.parametrize(
    "kind",
    [
        *KINDS,
        Kind("old weight norm", lambda: old_norm(nn.utils.weight_norm), classified),
    ],
    ids=lambda kind: kind.name,
)
def test_it_trains_as_in_plain_pytorch_over_the_same_parts(kind: Kind) -> None:
    same_as_plain(kind, scheme="auto(pieces=2)", engine="here")


@pytest.mark.quick("64")
@pytest.mark.parametrize("codes", [64, 512])
def test_codebooks_do_on_processes(codes: int) -> None:
    same_as_plain(vqvae(codes, "first"), scheme="auto(pieces=2)")


def same_as_plain(kind: Kind, **options: Any) -> None:
    torch.manual_seed(0)
    model = kind.model()
    before = deepcopy(model.state_dict())

    def job() -> Job:
        made = kind.job()
        made.model.load_state_dict(before)
        return made

    reference = plain_from(kind, before)
    with train(job, workers=2, **options) as coded:
        for step in coded.steps(STEPS):
            kind.before(coded.model, coded.knobs, step)
            report = coded.backward()
            assert report.finite
            assert report.samples == BATCH
            kind.descend(coded.model, step)
            wanted = next(reference).state_dict()
            for name, found in coded.model.state_dict().items():
                torch.testing.assert_close(
                    found, wanted[name], rtol=kind.within, atol=kind.within, msg=name
                )
    moved = [name for name, p in wanted.items() if not torch.equal(p, before[name])]
    assert moved


def plain_from(kind: Kind, state: dict[str, Tensor]) -> Iterator[nn.Module]:
    def model() -> nn.Module:
        made = kind.model()
        made.load_state_dict(state)
        return made

    whole = deepcopy(kind)
    whole.model = model
    return plain(whole)


# -- codebooks -------------------------------------------------------------------------


@pytest.mark.parametrize("codes", [64, 512])
def test_a_codebook_without_a_rule_is_refused_by_a_sentence(codes: int) -> None:
    with (
        train(vqvae(codes, None).job, workers=2, engine="here") as coded,
        pytest.raises(
            InvalidJob,
            match=r"the buffer quantizer\.\w+: is changed by the forward pass, and how "
            r'parts add up is not known; try Job\(buffers=\{"quantizer\.\w+": rule\}\)',
        ),
    ):
        coded.backward()


def test_processes_refuse_it_too() -> None:
    with (
        train(vqvae(512, None).job, workers=2) as coded,
        pytest.raises(JobFailed, match="the buffer quantizer"),
    ):
        coded.backward()


class Collecting(Quantizer):
    """Adds up hits in buffers; the root moves the codes, once a step."""

    def __init__(self, codes: int) -> None:
        super().__init__(codes)
        self.register_buffer("new_sizes", torch.zeros(codes).double())
        self.register_buffer("new_sums", torch.zeros(codes, 2).double())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        nearest = torch.cdist(z, self.codes).argmin(1)
        found = self.codes[nearest]
        hits = F.one_hot(nearest, len(self.codes)).to(z)
        self.new_sizes += hits.sum(0)
        self.new_sums += hits.T @ z.detach()
        loss = F.mse_loss(z, found.detach(), reduction="sum")
        return z + (found - z).detach(), loss

    def move(self) -> None:
        self.sizes.mul_(0.9).add_(self.new_sizes, alpha=0.1)
        self.sums.mul_(0.9).add_(self.new_sums, alpha=0.1)
        self.codes.copy_(self.sums / self.sizes.clamp(min=1e-3)[:, None])
        self.new_sizes.zero_()
        self.new_sums.zero_()


@pytest.mark.parametrize("codes", [64, 512])
def test_sums_over_the_batch_make_a_codebook_equal_to_one_of_the_whole_batch(
    codes: int,
) -> None:
    """Not only over the same parts: what the docs advise is exact in every sense."""
    torch.manual_seed(0)
    whole: Any = VQVAE(codes)
    whole.quantizer = Collecting(codes)
    start = deepcopy(whole)

    def job() -> Job:
        rules = {"quantizer.new_*": "sum"}
        return Job(deepcopy(start), rebuilt, (X, Y), batch_size=BATCH, buffers=rules)

    parts = Parts(SAMPLES, PARTS, BATCH, seed=0)
    with train(job, workers=2, scheme="auto(pieces=2)", engine="here") as coded:
        for step in coded.steps(STEPS):
            coded.backward()
            rows = np.concatenate([parts.indices(p, step) for p in range(PARTS)])
            whole.zero_grad()
            total, count = rebuilt(whole, (X[torch.from_numpy(rows)], None))
            (total / count).backward()
            for model in (coded.model, whole):
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.05 * parameter.grad
                    model.quantizer.move()
            for name, wanted in whole.state_dict().items():
                found = coded.model.state_dict()[name]
                torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


# -- counters --------------------------------------------------------------------------


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(FEATURES, 3).double()
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        self.calls += 1
        return self.last(x)


def test_a_counter_that_parts_count_differently_is_refused_unless_it_has_a_rule() -> (
    None
):
    def job(**rules: str) -> Any:
        return lambda: Job(Tokens(), classified, (X, Y), batch_size=30, buffers=rules)

    with train(job(), workers=4, scheme="uncoded", engine="here") as coded:
        with pytest.raises(InvalidJob, match="the buffer seen: counts, and not"):
            coded.backward()  # parts of 8 and 7, whose mean is no whole number
        assert coded.model.calls == 0
        assert coded.model.last.weight.grad is None
    with train(job(seen="sum"), workers=4, scheme="uncoded", engine="here") as coded:
        for _ in coded.steps(2):
            coded.backward()
        assert coded.model.seen == 60
        assert coded.model.calls == 2


def test_a_mean_that_happens_to_be_whole_is_not_taken_for_alike() -> None:
    class Unlike(Tokens):
        def forward(self, x: Tensor) -> Tensor:
            self.seen += 4 if (x == X[0]).all(1).any() else 8
            return self.last(x)

    def job() -> Job:
        return Job(Unlike(), classified, (X[:4], Y[:4]))

    with (
        train(job, workers=2, scheme="uncoded", engine="here") as coded,
        pytest.raises(InvalidJob, match="the buffer seen: counts, and not alike"),
    ):
        coded.backward()  # 4 and 8 of two samples each: the mean is 6


@pytest.mark.parametrize("rule", ["mean", "sum", "first"])
@pytest.mark.parametrize("by", [20_000_003, -20_000_003, 2**30 - 1])
@pytest.mark.parametrize("scheme", ["uncoded", "cyclic(1)"])
def test_whole_numbers_are_added_up_to_the_last_digit(
    rule: str, by: int, scheme: str
) -> None:
    """Also in float32, which has 24 bits."""

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(FEATURES, 3)
            self.register_buffer("seen", torch.tensor([1, 2]))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += by
            return self.last(x)

    def job() -> Job:
        rules = {"seen": rule}
        return Job(Large(), classified, (X.float(), Y), batch_size=30, buffers=rules)

    times = 3 if rule == "sum" else 1
    with train(job, workers=3, scheme=scheme, engine="here") as coded:
        coded.backward()
        assert coded.model.seen.tolist() == [1 + times * by, 2 + times * by]


def test_a_whole_number_that_changes_by_too_much_is_refused() -> None:
    class Huge(Tokens):
        def forward(self, x: Tensor) -> Tensor:
            self.seen += 2**41
            return self.last(x)

    with (
        train(
            lambda: Job(Huge(), classified, (X, Y)),
            workers=2,
            scheme="uncoded",
            engine="here",
        ) as coded,
        pytest.raises(InvalidJob, match="the buffer seen: changes by 2,199,0"),
    ):
        coded.backward()


class Observed(nn.Module):
    """Keeps the largest value seen, and batch normalisation beside it."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES).double()
        self.last = nn.Linear(FEATURES, 3).double()
        self.register_buffer("largest", torch.tensor(start).double())
        self.register_buffer("open", torch.tensor(float("inf")).double())

    def forward(self, x: Tensor) -> Tensor:
        self.largest = torch.maximum(self.largest, x.max())
        return self.last(self.norm(x))


def test_a_buffer_that_begins_at_infinity_is_refused_and_does_not_freeze_others() -> (
    None
):
    rules = {"largest": "first", "open": "mean"}

    def job(start: float) -> Any:
        return lambda: Job(Observed(start), classified, (X, Y), buffers=rules)

    with (
        train(job(-torch.inf), workers=2, scheme="uncoded", engine="here") as coded,
        pytest.raises(
            InvalidJob, match="the buffer largest: changes from a value that is"
        ),
    ):
        coded.backward()
    with train(job(-1e9), workers=2, scheme="uncoded", engine="here") as coded:
        report = coded.backward()
        assert report.finite
        rows = coded._work.parts.indices(0, 0)
        wanted = X[torch.from_numpy(rows)].max()
        torch.testing.assert_close(coded.model.largest, wanted)
        assert coded.model.norm.num_batches_tracked == 1
        assert coded.model.open.isinf()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"sen": "sum"}, "job: buffers: 'sen' is no buffer of the model; try one of: "),
        ({"seen": "median"}, "job: buffers: the rule of 'seen' is 'median'"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(
    rules: dict[str, str], said: str
) -> None:
    def job() -> Job:
        return Job(Tokens(), classified, (X, Y), buffers=rules)

    with pytest.raises(InvalidJob, match=said):
        train(job, workers=2, engine="here")
