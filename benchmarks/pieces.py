"""What it costs to cut a worker's share into parts, on a job that computes.

    python benchmarks/pieces.py            # about a minute
    python benchmarks/pieces.py --quick    # a few steps, for a look
    python benchmarks/pieces.py --json

`auto` cuts the share of every worker into eight parts, so that there is something to
move when one is slow. A part has costs of its own: orders and reports, the layers of a
model called once more, and a gradient as long as the model to be added up. Here four
workers train without any of them being slow, and the figure is the median step over
that of `uncoded`, which computes one part a worker. Schemes take turns.

Aim: the default takes at most twice a step of `uncoded`. One model is small beside its
batch, the other large.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median

import torch
from torch import nn

import codedgrad as cg

WORKERS, TURNS, STEPS = 4, 4, 12
AIM = 2.0
SCHEMES = ("uncoded", "auto(pieces=2)", "auto(pieces=4)", "auto")
MODELS = {
    "64-256-10, 4096 samples a step": (256, 4096),
    "64-1024-1024-10, 1024 samples a step": (1024, 1024),
}


def job(width: int, batch: int) -> cg.torch.Job:
    x = torch.randn(4 * batch, 64, generator=torch.Generator().manual_seed(0))
    y = (x[:, :10]).argmax(dim=1)
    layers = [nn.Linear(64, width), nn.ReLU()]
    if width > 512:
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    return cg.torch.Job(model, nn.CrossEntropyLoss(), (x, y), batch_size=batch)


def measure(width: int, batch: int, turns: int) -> dict[str, float]:
    """Return the median step of every scheme, seconds."""
    seconds: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
    make = partial(job, width, batch)
    with ExitStack() as stack:
        runs = {
            scheme: stack.enter_context(
                cg.torch.train(make, workers=WORKERS, scheme=scheme, progress=False)
            )
            for scheme in SCHEMES
        }
        for _ in range(turns):
            for scheme, coded in runs.items():
                taken = [coded.backward().seconds for _ in range(STEPS)]
                seconds[scheme] += taken[2:]  # it has just been woken up
    return {scheme: median(taken) for scheme, taken in seconds.items()}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps")
    parser.add_argument("--json", action="store_true", help="for machines")
    asked = parser.parse_args(arguments)
    logging.getLogger("codedgrad").setLevel(logging.ERROR)  # parts are small on purpose
    turns = 1 if asked.quick else TURNS
    found = {name: measure(*size, turns) for name, size in MODELS.items()}
    if asked.json:
        print(json.dumps(found))
        return 0
    print(f"| model | {' | '.join(SCHEMES)} |")
    print(f"| --- |{' --- |' * len(SCHEMES)}")
    for name, medians in found.items():
        ratios = [f"{s / medians['uncoded']:.2f}" for s in medians.values()]
        print(f"| {name} | {' | '.join(ratios)} |")
    worst = max(medians["auto"] / medians["uncoded"] for medians in found.values())
    print("all met" if worst <= AIM else f"MISSED: auto takes {worst:.2f}, aim {AIM}")
    return int(worst > AIM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
