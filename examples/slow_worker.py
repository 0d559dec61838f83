"""One of four workers is ten times slow: what does not waiting for it save?

    python examples/slow_worker.py              # with auto, which does not wait
    python examples/slow_worker.py uncoded      # waits, with the same parts

The loss sleeps 6 ms a sample in place of a large model, so that any machine shows it.
"""

import sys
import time

import torch
from torch.nn import functional as F

import codedgrad as cg


def loss(model, batch):
    x, y = batch
    time.sleep(0.006 * len(y))
    return F.mse_loss(model(x), y, reduction="sum"), len(y)


def job():
    x = torch.linspace(0, 1, 1024).reshape(1024, 1)
    return cg.torch.Job(torch.nn.Linear(1, 1), loss, (x, 2 * x), batch_size=256)


def main() -> None:
    waits = sys.argv[1:] == ["uncoded"]
    scheme = "uncoded(pieces=8)" if waits else "auto"
    slow = cg.delays.Slow(worker=3, factor=10)
    with cg.torch.train(job, workers=4, scheme=scheme, delays=slow) as coded:
        optimizer = torch.optim.SGD(coded.model.parameters(), lr=0.1)
        for _ in coded.steps(4 if waits else 12):
            coded.backward()
            optimizer.step()
        print(coded.savings)


if __name__ == "__main__":
    main()
