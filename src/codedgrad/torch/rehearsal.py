"""A real training run under stragglers made on purpose, to see what a scheme is worth.

The same network, data, seeds and stragglers for every scheme; only who is waited for
differs. The clock runs while the root waits for gradients; the optimizer and the
evaluation, which are the same for all, are off it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from codedgrad.core import Record, Scheme
from codedgrad.delays import Times
from codedgrad.engines import FaultPlan
from codedgrad.torch.job import Job
from codedgrad.torch.pictures import Pictures
from codedgrad.torch.report import Report
from codedgrad.torch.train import Coded, train

Watcher: TypeAlias = Callable[[Report, float, Record | None], None]
"""Is told every step, the accuracy after it, and all that was seen of it."""

_HIDDEN = 128
_RATE = 0.003
_LOOKS = 5  # steps in which the gradient is compared with this process's own


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What came of one scheme.

    Attributes:
        scheme: Its name.
        path: The run's folder.
        seconds: Of every step, until its gradient is there, (steps,).
        score: Accuracy on the test set after every step, (steps,).
        reports: How every step went.
        deviation: Largest relative distance between a gradient and the one this
            process computed alone, of some steps.
    """

    scheme: str
    path: Path
    seconds: NDArray[np.float64]
    score: NDArray[np.float64]
    reports: tuple[Report, ...]
    deviation: float

    def seconds_to(self, score: float) -> float:
        """Return the seconds until an accuracy was first reached; inf if never."""
        reached = np.flatnonzero(self.score >= score)
        return float(self.seconds[: reached[0] + 1].sum()) if reached.size else np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """What is the same for all schemes.

    Attributes:
        data: What to learn.
        steps: How many.
        batch_size: Samples a step.
        seed: Of everything that is random.
        times: What every part is to take longer.
        kill: (worker, step) to kill, if anybody.
        shuffle: As of a `Job`; False: every step has the next pictures, in order.
    """

    data: Pictures
    steps: int
    batch_size: int
    seed: int
    times: Times
    kill: tuple[int, int] | None = None
    shuffle: bool = True

    def run(
        self, scheme: Scheme, path: Path, label: str, watch: Watcher | None = None
    ) -> Trial:
        """Train with a scheme; leave the record in a folder."""
        faults = FaultPlan()
        if self.kill is not None:
            faults.kill(*self.kill)
        with train(
            self._job(),
            scheme=scheme,
            seed=self.seed,
            run_dir=path,
            label=label,
            delays=self.times,
            faults=faults,
            progress=False,
        ) as coded:
            return self._train(coded, path, watch)

    def _job(self) -> Callable[[], Job]:
        return network(self.data, self.batch_size, self.seed, self.shuffle)

    def _train(self, coded: Coded, path: Path, watch: Watcher | None) -> Trial:
        optimizer = torch.optim.AdamW(coded.model.parameters(), lr=_RATE)
        coded.track(optimizer=optimizer)
        seconds, score = np.zeros((2, self.steps))
        reports, deviations = [], []
        every = max(1, self.steps // _LOOKS)
        for step in coded.steps(self.steps):
            report = coded.backward()
            seconds[step] = report.seconds
            if step % every == 0:
                deviations.append(coded.deviation())
            optimizer.step()
            score[step] = self._accuracy(coded.model)
            coded.log(accuracy=float(score[step]))
            reports.append(report)
            if watch is not None:
                watch(report, float(score[step]), coded.record)
        return Trial(
            coded.scheme.name, path, seconds, score, tuple(reports), max(deviations)
        )

    def _accuracy(self, model: nn.Module) -> float:
        images, labels = self.data.test
        model.eval()
        with torch.no_grad():
            right = (model(images).argmax(1) == labels).sum().item()
        model.train()
        return float(right) / len(labels)


def network(
    data: Pictures, batch_size: int, seed: int, shuffle: bool = True
) -> Callable[[], Job]:
    """Return what makes the job of a small network on pictures."""
    (images, labels), classes = data.train, data.classes

    def job() -> Job:
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(images.shape[1], _HIDDEN),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(_HIDDEN, classes),
        )
        samples = images, labels
        return Job(model, F.cross_entropy, samples, batch_size, shuffle=shuffle)

    return job
