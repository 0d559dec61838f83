"""Does codedgrad give the numbers of a plain script? A few steps of both say so.

In every step three gradients are computed from the same parameters and samples:

| gradient | computed by | if it differs from the workers' |
| --- | --- | --- |
| of the script | this process, one backward pass over the whole batch | see below |
| by part | this process, one backward pass for every part | the workers compute \
something else: data or random numbers differ |
| of the job's loss | this process, over the whole batch, where the script's loss is \
given | the two losses differ |

So a difference has one of three reasons, and the report says which. Besides, the plain
loop goes on from its own parameters, as the script would, and the parameters of both
are compared after every step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from codedgrad.core import Scheme
from codedgrad.engines import Engine
from codedgrad.errors import InvalidOptions
from codedgrad.torch.job import Job
from codedgrad.torch.model.workload import make_job
from codedgrad.torch.plain import (
    PlainGradient,
    PlainLoop,
    ScriptLoss,
    gradients_of,
    take_over,
)
from codedgrad.torch.train import Coded, train

MakeOptimizer: TypeAlias = Callable[[Iterator[nn.Parameter]], Optimizer]
"""Makes the optimizer of some parameters."""

Update: TypeAlias = Callable[[nn.Module, Optimizer], object]
"""What a script does with gradients: clips them, takes the step of the optimizer."""

_WIDTH = 79  # characters of a line
_LIKE_A_MEAN = 0.1  # by how much the means of parts may differ from that of a batch

_ROUNDING = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
"""Relative difference of two gradients up to which it is called rounding, by type."""


@dataclass(frozen=True, slots=True)
class StepDifference:
    """One step of both. Differences are relative: 0 is the same, 1 is nothing alike.

    Attributes:
        step: Its number.
        loss: Of codedgrad.
        plain_loss: Of the plain loop, which goes on from its own parameters.
        gradient: Between the gradient of the workers and that of the whole batch at
            once, at the same parameters.
        by_part: Between that of the workers and that of the parts, one after the
            other, in this process.
        parameters: Between the parameters after the step.
        parameter: The name of the parameter whose gradient differs most.
    """

    step: int
    loss: float
    plain_loss: float
    gradient: float
    by_part: float
    parameters: float
    parameter: str


@dataclass(frozen=True, slots=True)
class PlainComparison:
    """A few steps of codedgrad beside a plain loop; printed, it is a table.

    Attributes:
        steps: One by one.
        limit: The largest difference that is called rounding, for the types of the
            model.
        same: Whether all gradients are the same up to that.
        verdict: What the differences mean, in a sentence or two.
        causes: Likely ones, most likely first; none if they are the same.
    """

    steps: tuple[StepDifference, ...]
    limit: float
    same: bool
    verdict: str
    causes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            "                           gradient differs from that  parameters",
            "step  codedgrad      plain  of the batch  of its parts   differ by",
        ]
        for each in self.steps:
            lines.append(
                f"{each.step:4d}{each.loss:11.5g}{each.plain_loss:11.5g}"
                f"{each.gradient:14.1e}{each.by_part:14.1e}{each.parameters:12.1e}"
            )
        lines += ["", fill(self.verdict, _WIDTH)]
        lines += [fill(f"- {x}", _WIDTH, subsequent_indent="  ") for x in self.causes]
        return "\n".join(lines)


def compare_with_plain(
    job: Callable[[], Job],
    optimizer: MakeOptimizer | None = None,
    *,
    steps: int = 5,
    loss: ScriptLoss | None = None,
    update: Update | None = None,
    knobs: Mapping[str, Any] | None = None,
    scheme: Scheme | str = "auto",
    workers: int | None = None,
    engine: Engine | str = "local",
    address: str | None = None,
    seed: int = 0,
    show: bool = True,
) -> PlainComparison:
    """Train some steps with codedgrad and in a plain loop, and compare all numbers.

    Args:
        job: As for `train`. This process must be able to read its data.
        optimizer: Makes the optimizer of your script; None: SGD with a rate of 0.01.
        steps: How many.
        loss: The loss of your script, a function of (model, batch) that returns what
            the script calls `backward()` on; None: the job's, which for a loss of torch
            is that loss, called as a script calls it.
        update: What your script does between `backward()` and the next step, with
            (model, optimizer); None: `optimizer.step()`.
        knobs: For a loss that asks for them.
        scheme: As for `train`.
        workers: As for `train`; None: 2, or those of the scheme.
        engine: As for `train`.
        address: As for `train`.
        seed: As for `train`.
        show: Whether to print the result.

    Example:
        >>> def job():
        ...     x = torch.linspace(-1, 1, 48, dtype=torch.float64).reshape(48, 1)
        ...     return Job(nn.Linear(1, 1).double(), nn.MSELoss(), (x, x**2), 16)
        >>> compare_with_plain(job, engine="here", show=False).same
        True
    """
    if not isinstance(steps, int) or steps < 1:
        raise InvalidOptions("steps", f"is {steps!r}", "a whole number, 1 or more")
    if workers is None and isinstance(scheme, str) and not scheme.endswith(".toml"):
        workers = 2
    with train(
        job,
        scheme=scheme,
        workers=workers,
        engine=engine,
        address=address,
        seed=seed,
        progress=False,
    ) as coded:
        coded.knobs = dict(knobs or {})
        run = _Run(coded, make_job(job, seed), seed, loss, update or _step)
        found = run.compare(optimizer or _sgd, steps)
    if show:
        print(found)
    return found


def _sgd(parameters: Iterator[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def _step(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.step()


class _Run:
    """Both loops, and a third model that takes over codedgrad's parameters."""

    def __init__(
        self,
        coded: Coded,
        job: Job,
        seed: int,
        loss: ScriptLoss | None,
        update: Update,
    ) -> None:
        self._coded = coded
        self._job = job
        self._loss = loss
        self._update = update
        self._limit = _limit(job)
        self._plain, self._probe = (
            PlainLoop(job, self._samples, coded.steps_per_epoch, seed, coded.knobs)
            for _ in range(2)
        )
        self._begun = copy.deepcopy(job.model)  # as codedgrad's was before a step

    def _samples(self, step: int) -> list[list[int]]:
        parts = range(self._coded.scheme.parts)
        return [self._coded.samples(step, part=part) for part in parts]

    def compare(self, make: MakeOptimizer, steps: int) -> PlainComparison:
        coded, plain = self._coded, self._plain
        take_over(plain.model, coded.model)
        ours, theirs = make(coded.model.parameters()), make(plain.model.parameters())
        differences: list[StepDifference] = []
        first: tuple[str, tuple[str, ...]] | None = None
        for step in coded.steps(steps):
            take_over(self._begun, coded.model)  # `backward` may change buffers
            report = coded.backward()
            gradient = PlainGradient(report.loss, gradients_of(coded.model))
            whole = self._fresh().whole(step, self._loss)
            by_part = self._fresh().by_part(step)
            gap, parameter = _difference(gradient.gradients, whole.gradients)
            gap_by_part, _ = _difference(gradient.gradients, by_part.gradients)
            if first is None and not gap <= self._limit:
                first = self._explained(step, gradient, whole, by_part, report.residual)
            plain_loss = float(plain.script(step, self._loss))
            self._update(coded.model, ours)
            self._update(plain.model, theirs)
            drift, _ = _difference(_values(coded.model), _values(plain.model))
            differences.append(
                StepDifference(
                    step=step,
                    loss=report.loss,
                    plain_loss=plain_loss,
                    gradient=gap,
                    by_part=gap_by_part,
                    parameters=drift,
                    parameter=parameter,
                )
            )
        verdict, causes = first or (self._same(differences), ())
        return PlainComparison(
            tuple(differences), self._limit, first is None, verdict, causes
        )

    def _fresh(self) -> PlainLoop:
        """Return the third model, as codedgrad's was before the step."""
        take_over(self._probe.model, self._begun)
        return self._probe

    def _same(self, differences: list[StepDifference]) -> str:
        most = max(each.gradient for each in differences)
        drift = max(each.parameters for each in differences)
        verdict = (
            f"The same numbers: gradients differ by {most:.1e} at most, "
            f"and up to {self._limit:.0e} is rounding."
        )
        if drift > self._limit:
            verdict += (
                f" The parameters drift apart by {drift:.1e} all the same: what is "
                f"rounding in a gradient is more in what the optimizer makes of it. "
                f"Adam divides a gradient by its size, also where that is nothing but "
                f"rounding."
            )
        return verdict

    def _explained(
        self,
        step: int,
        gradient: PlainGradient,
        whole: PlainGradient,
        by_part: PlainGradient,
        residual: float,
    ) -> tuple[str, tuple[str, ...]]:
        """Return which of the reasons it is, and its likely causes."""
        gap, parameter = _difference(gradient.gradients, whole.gradients)
        head = (
            f"Not the same numbers: in step {step} the gradient differs by {gap:.1e} "
            f"from that of the whole batch, most in {parameter}"
        )
        gap_by_part, _ = _difference(gradient.gradients, by_part.gradients)
        if not gap_by_part <= self._limit:
            text = (
                f"{head}, and by {gap_by_part:.1e} from that of its parts, one after "
                f"the other, in this process. The workers compute something else:"
            )
            return text, tuple(self._causes_in_workers(step, by_part, residual))
        if self._loss is not None:
            own = self._fresh().whole(step, None)
            if _difference(gradient.gradients, own.gradients)[0] <= self._limit:
                return self._other_loss(head, own, whole)
        text = (
            f"{head}, and by {gap_by_part:.1e} from that of its "
            f"{self._coded.scheme.parts} parts, one after the other. codedgrad "
            f"computes the loss of every part on its own, and for this job that is not "
            f"the loss of the whole batch:"
        )
        return text, tuple(self._causes_in_parts(step))

    def _other_loss(
        self, head: str, own: PlainGradient, whole: PlainGradient
    ) -> tuple[str, tuple[str, ...]]:
        text = (
            f"{head}. The loss of the job is not the loss of the script: on the same "
            f"batch and parameters the job's is {own.loss:.6g}, the script's "
            f"{whole.loss:.6g}."
        )
        cause = (
            "a loss of (model, batch) returns (sum, count): the sum over the samples, "
            "and what the script's mean divides it by"
        )
        return text, (cause,)

    def _causes_in_workers(
        self, step: int, by_part: PlainGradient, residual: float
    ) -> Iterator[str]:
        if residual > self._limit:
            yield (
                f"the scheme {self._coded.scheme.name} ends a step before the sum is "
                f"exact (residual {residual:.2g}): compare with an exact one, such as "
                f"auto"
            )
            return
        again = self._fresh().by_part(step)
        if not _difference(by_part.gradients, again.gradients)[0] <= self._limit:
            yield (
                "the same part gives another gradient when it is computed again, in "
                "this process too: a generator of its own, or data that changes from "
                "call to call; torch, numpy and random are seeded for every part, so "
                "draw from those"
            )
            return
        yield (
            "data that differs from process to process: an unsorted listing of a "
            "folder, files that only some hosts have, samples drawn when they are read"
        )
        yield (
            "what the loss reads from globals, files or the environment, and the "
            "script has changed since the workers were started: use coded.knobs"
        )

    def _causes_in_parts(self, step: int) -> Iterator[str]:
        has_layer = False
        if norms := _normalising(self._fresh().model):
            has_layer = True
            yield (
                f"the layer {norms} normalises over the samples of a part, not of the "
                f"step: that is another model, as with DistributedDataParallel; larger "
                f"parts (pieces=1, or least_samples) come nearer"
            )
        one = self._fresh().whole(step, self._loss, draw=1)
        other = self._fresh().whole(step, self._loss, draw=2)
        if not _difference(one.gradients, other.gradients)[0] <= self._limit:
            has_layer = True
            yield (
                "the job draws random numbers (dropout, augmentation), and parts draw "
                "others than the whole batch: as with another seed; to compare all the "
                "rest, set them off (p=0) in the job"
            )
        if not has_layer or self._differs_in_evaluation(step):
            yield self._cause_in_loss(step)

    def _cause_in_loss(self, step: int) -> str:
        probe = self._fresh()
        probe.model.eval()
        (total, count), (totals, counts) = probe.sums(step)
        if abs(count - counts) > self._limit * abs(counts):
            return (
                f"the count that the loss returns is {count:g} for the whole batch, "
                f"and {counts:g} for all its parts together: return one that adds up, "
                f"such as the number of samples or tokens"
            )
        parts = sum(1 for samples in self._samples(step) if samples)
        if parts > 1 and math.isclose(totals, parts * total, rel_tol=_LIKE_A_MEAN):
            return (
                f"the sum that the loss returns is {total:.6g} for the whole batch, "
                f"and {parts} times that, {totals:.6g}, for its {parts} parts together:"
                f' it is a mean; return the sum over the samples (reduction="sum")'
            )
        return (
            f"the sum that the loss returns is {total:.6g} for the whole batch, and "
            f"{totals:.6g} for all its parts together: it compares samples with each "
            f"other (contrastive, in-batch negatives), or has a regulariser, which is "
            f"to be added times the count"
        )

    def _differs_in_evaluation(self, step: int) -> bool:
        """Whether it does without dropout and statistics of batches."""
        probe = self._fresh()
        probe.model.eval()
        whole, by_part = probe.whole(step, self._loss), probe.by_part(step)
        return not _difference(whole.gradients, by_part.gradients)[0] <= self._limit


def _values(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: p.detach().to("cpu", torch.float64)
        for name, p in model.named_parameters()
    }


def _difference(
    one: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> tuple[float, str]:
    """Return the relative distance of two sets of tensors, and where it is largest.

    One that is not finite is infinitely far from everything.
    """
    gaps = {name: float((one[name] - other[name]).norm()) for name in one}
    size = max(_norm(one.values()), _norm(other.values()))
    gap = torch.tensor(list(gaps.values()), dtype=torch.float64).norm().item()
    worst = max(gaps, key=lambda name: (gaps[name] != gaps[name], gaps[name]))
    if gap != gap or size == torch.inf:
        return torch.inf, worst
    return (gap / size if size else gap), worst


def _norm(tensors: Iterable[Tensor]) -> float:
    norms = [float(tensor.norm()) for tensor in tensors]
    return float(torch.tensor(norms, dtype=torch.float64).norm())


def _normalising(model: nn.Module) -> str:
    """Return the name of a layer that normalises over a batch, and how many more do."""
    names = [
        name or type(module).__name__
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
    ]
    if not names:
        return ""
    return names[0] + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _limit(job: Job) -> float:
    types = {p.dtype for p in job.model.parameters() if p.requires_grad}
    if job.autocast is not None:
        types.add(job.autocast)
    return max(_ROUNDING[dtype] for dtype in types)
