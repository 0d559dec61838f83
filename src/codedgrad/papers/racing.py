"""Papers on real processes: accuracy against measured seconds.

Slowness is sleep, put in on purpose, so that two cores can show eight machines;
everything else is real: processes, orders, messages, gradients. The clock runs while
the root waits for a gradient. PyTorch is imported when it is needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from codedgrad.delays import Times
from codedgrad.errors import InvalidOptions
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Column, Effort, Table
from codedgrad.schemes import build

if TYPE_CHECKING:
    from codedgrad.torch.pictures import Pictures
    from codedgrad.torch.rehearsal import Trial

WORKERS = 8
_MOST = 12_000, 2_000  # pictures to learn and to test: they are copied to all workers


@dataclass(frozen=True, slots=True)
class Race:
    """Schemes that train the same network among the same stragglers, in turn.

    Attributes:
        schemes: By label, in words.
        data: What to learn.
        times: What every part is to take longer; as many steps as are taken.
        effort: Its seed, and who is told how far it is.
        shuffle: Whether every worker has some of everything.
        share: Of the exhibit.
    """

    schemes: dict[str, str]
    data: Pictures
    times: Times
    effort: Effort
    shuffle: bool = True
    share: float = 1.0

    @property
    def batch_size(self) -> int:
        """Pictures a step."""
        return 512 if len(self.data.train[1]) > 10_000 else 256

    def run(self) -> dict[str, Trial]:
        """Train with all schemes; their records are not kept."""
        from codedgrad.torch.rehearsal import Rehearsal

        rehearsal = Rehearsal(
            data=self.data,
            steps=self.times.steps,
            batch_size=self.batch_size,
            seed=self.effort.seed,
            times=self.times,
            shuffle=self.shuffle,
        )
        each = self.share / (self.times.steps * len(self.schemes))
        trials = {}
        with tempfile.TemporaryDirectory(prefix="codedgrad-papers-") as folder:
            for number, (label, words) in enumerate(self.schemes.items()):
                trials[label] = rehearsal.run(
                    build(words, self.times.workers),
                    Path(folder, str(number)),
                    label,
                    lambda *told: self.effort.advance(each),
                )
        return trials

    def __str__(self) -> str:
        return (
            f"{self.times.workers} worker processes of one machine, "
            f"{len(self.data.train[1])} pictures of {self.data.name}, a network with "
            f"one hidden layer of 128, AdamW, {self.batch_size} pictures a step, "
            f"{self.times.steps} steps, seed {self.effort.seed}"
        )


def pictures_here() -> Pictures:
    """Return some of Fashion-MNIST where it is installed, and digits elsewhere."""
    try:
        from codedgrad.torch.pictures import FASHION, pictures
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        advice = 'pip install "codedgrad[demo]"'
        problem = "trains with PyTorch, which is not installed"
        raise InvalidOptions("--live", problem, advice) from None
    found = pictures("fashion-mnist" if FASHION.is_dir() else "digits")
    train, test = (
        (images[:most], labels[:most])
        for (images, labels), most in zip((found.train, found.test), _MOST, strict=True)
    )
    return replace(found, train=train, test=test)


def by_class(data: Pictures, shards: int, seed: int) -> Pictures:
    """Return the pictures in the order of their classes, shuffled within shards.

    Taken as they are, every worker then has classes of its own.
    """
    images, labels = data.train
    order = np.argsort(labels.numpy(), kind="stable")
    rng = np.random.default_rng(seed)
    cut = [rng.permutation(shard) for shard in np.array_split(order, shards)]
    order = np.concatenate(cut)
    return replace(data, train=(images[order], labels[order]))


def horizon(trials: Iterable[Trial]) -> float:
    """Return the seconds that all have trained for."""
    return min(float(trial.seconds.sum()) for trial in trials)


def score_at(trial: Trial, seconds: float) -> float:
    """Return the accuracy after so many seconds; 0 before the first step."""
    done = np.flatnonzero(np.cumsum(trial.seconds) <= seconds + 1e-9)
    return float(trial.score[done[-1]]) if done.size else 0.0


def panel(heading: str, trials: dict[str, Trial]) -> FigurePanel:
    """Return accuracy against seconds."""
    curves = tuple(
        Curve(label, np.cumsum(trial.seconds), 100 * trial.score)
        for label, trial in trials.items()
    )
    x, y = Axis("time in steps", "s"), Axis("accuracy on the test set", "%")
    return FigurePanel(heading, x, y, curves)


def table(trials: dict[str, Trial], goal: float, end: float) -> Table:
    """Return what came of every scheme.

    Args:
        trials: By label.
        goal: An accuracy to be reached.
        end: Seconds after which to compare.
    """
    columns = (
        Column("scheme"),
        Column("mean step", "s"),
        Column("p95 step", "s"),
        Column(f"after {end:.1f} s", "%", ".1f"),
        Column("at the end", "%", ".1f"),
        Column(f"time to {100 * goal:.0f} %", "s", ".1f"),
    )
    rows = tuple(
        (
            label,
            float(trial.seconds.mean()),
            float(np.quantile(trial.seconds, 0.95)),
            100 * score_at(trial, end),
            100 * float(trial.score[-1]),
            trial.seconds_to(goal),
        )
        for label, trial in trials.items()
    )
    return Table(columns, rows)


def equal_steps(trials: Mapping[str, Trial]) -> str:
    """Say how far trials are from each other, and from a single process."""
    first, *others = trials.values()
    gap = max(float(np.abs(each.score - first.score).max()) for each in others)
    off = max(each.deviation for each in trials.values())
    return (
        f"after equal steps accuracies differ by {100 * gap:.1f} points at most, and "
        f"gradients are off those of a single process by {off:.0e}."
    )
