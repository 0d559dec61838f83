"""What `backward` has to say about a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from codedgrad.engines import Sum
from codedgrad.learning.savings import Waiting


@dataclass(frozen=True, slots=True)
class Report:
    """One step, as the root saw it.

    Attributes:
        step: Its number.
        loss: Mean loss at the parameters before the step.
        count: What the losses were divided by: samples, tokens, or weights.
        samples: Samples in it.
        metrics: Means over the step, by name.
        finite: Whether all of the gradient is. If not, the model has diverged.
        residual: Of the sum; 0 is the exact gradient of all samples.
        seconds: What `backward` took: publishing, waiting and decoding.
        decoding: Seconds of that for adding up the messages.
        waiting: What waiting for all would have taken from the start of the step to its
            decision, seconds: an estimate and its range, as known at the end of the
            step. `Coded.savings` has the means over the run, with what came to be known
            since.
        saved: The estimate less the seconds that the step took likewise; may be
            negative.
        heard: Workers that were heard, ascending.
        late: Workers that were not waited for, or did less than an equal share of the
            parts because they are slower than the others; ascending.
        messages: Messages heard.
        work: Parts known to be computed, copies counted.
        wasted: Of those, copies that the sum did not need.
        contradicted: Workers that sent what others contradict.
    """

    step: int
    loss: float
    count: float
    samples: float
    metrics: dict[str, float]
    finite: bool
    residual: float
    seconds: float
    decoding: float
    waiting: Waiting
    saved: float
    heard: tuple[int, ...]
    late: tuple[int, ...]
    messages: int
    work: int
    wasted: int
    contradicted: tuple[int, ...]


def report_of(sum_: Sum, metrics: tuple[str, ...], seconds: float) -> Report:
    """Return the report of a step.

    Args:
        sum_: What it gave.
        metrics: Names, in the order of their scalars.
        seconds: What it took the root.
    """
    told = sum_.report
    _, _, samples, *rest = sum_.vector[sum_.layout.gradient :].tolist()
    named = rest[: 2 * len(metrics)]
    pairs = zip(named[0::2], named[1::2], strict=True)
    return Report(
        step=sum_.step,
        loss=sum_.loss,
        count=sum_.count,
        samples=samples,
        metrics={
            name: total / count if count else math.nan
            for name, (total, count) in zip(metrics, pairs, strict=True)
        },
        finite=sum_.finite,
        residual=told.residual,
        seconds=seconds,
        decoding=sum_.decoding,
        waiting=told.waiting,
        saved=told.waiting.estimate - told.seconds,
        heard=told.heard,
        late=told.late,
        messages=told.messages,
        work=told.work,
        wasted=told.wasted,
        contradicted=sum_.contradicted,
    )
