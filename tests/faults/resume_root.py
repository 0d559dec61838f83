"""The root of a run that tests kill: `python resume_root.py FOLDER OPTIONS`.

It prints how many steps are done, at the start of each step and at the end.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import codedgrad as cg

SAMPLES, BATCH, EPOCHS = 256, 64, 4
TOTAL = EPOCHS * SAMPLES // BATCH  # steps
EVERY = 2  # steps from a checkpoint to the next


class Model(nn.Module):
    """A small network, and one number for every sample that counts its gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
        self.seen = nn.Parameter(torch.zeros(SAMPLES))


def loss(model: Model, batch: tuple[Tensor, ...]) -> tuple[Tensor, int]:
    """Return a sum over samples in which `seen[i]` has gradient 1 if i is among them.

    Divided by the batch size, and with a learning rate of 1, a sample thus lowers its
    own entry by 1 / BATCH whenever it is in a gradient, and no other.
    """
    ids, x, y = batch
    gap = model.net(x)[:, 0] - y
    return (gap**2).sum() + model.seen[ids].sum(), len(ids)


def make() -> cg.torch.Job:
    torch.manual_seed(1)
    x = torch.randn(SAMPLES, 6, dtype=torch.float64)
    data = (torch.arange(SAMPLES), x, x.prod(1).sin())
    return cg.torch.Job(Model().double(), loss, data, batch_size=BATCH)


def optimizers(
    model: Model,
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Return an optimizer with a memory, and a schedule of the network's rate."""
    optimizer = torch.optim.SGD(
        [
            {"params": model.net.parameters(), "lr": 0.05, "momentum": 0.9},
            {"params": [model.seen], "lr": 1.0},
        ]
    )
    rates = [lambda n: 1 / (1 + n % 7), lambda n: 1.0]
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rates)


class Padding:
    """Makes checkpoints large, so that writing one takes a while."""

    def __init__(self, size: int) -> None:
        self.zeros = torch.zeros(size, dtype=torch.uint8)

    def state_dict(self) -> dict[str, Any]:
        return {"zeros": self.zeros}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Keep the size of this life."""


def live(
    folder: Path | str | None,
    scheme: str,
    workers: int,
    engine: str,
    parts: int | None = None,
    padding: int = 0,
    waits: bool = False,
) -> Model:
    """Train, or go on.

    Args:
        folder: Of the run.
        scheme: In words.
        workers: How many.
        engine: Its name.
        parts: Of a run that begins; None: as many as the scheme has.
        padding: Bytes that each checkpoint has more.
        waits: Whether to wait in the last step to be killed.
    """
    built = scheme if parts is None else cg.schemes.build(scheme, workers, parts=parts)
    where = {}
    if folder is not None:
        when = cg.torch.Checkpoints(seconds=None, steps=EVERY, keep=2)
        where = {"run_dir": folder, "resume": "auto", "checkpoints": when}
    with cg.torch.train(
        make, scheme=built, workers=workers, engine=engine, **where
    ) as coded:
        optimizer, schedule = optimizers(coded.model)
        coded.track(optimizer=optimizer, schedule=schedule, padding=Padding(padding))
        for step in coded.steps(TOTAL):
            print(step, flush=True)
            if waits and step == TOTAL - 1:
                signal.pause()
            coded.backward()
            optimizer.step()
            schedule.step()
        print(coded.step, flush=True)
        return coded.model


if __name__ == "__main__":
    live(sys.argv[1], **json.loads(sys.argv[2]))
