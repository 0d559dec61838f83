"""The same training on one machine, on Ray, by MPI or by torchrun: one word changes.

    python examples/anywhere.py --engine local
    python examples/anywhere.py --engine ray
    mpirun -n 2 python -m codedgrad.engines.mpi examples/anywhere.py --engine mpi
    torchrun --standalone examples/anywhere.py --engine torchrun

A small network learns what another one says, once for every scheme. Whatever the
engine, and whoever was late, it is the same network in the end.
"""

import argparse
import sys

import numpy as np
import torch
from torch import nn

import codedgrad as cg
from codedgrad.errors import CodedgradError


def network():
    return nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10)).double()


def job():  # runs once in the root and once in every worker, seeded alike
    samples = torch.randn(2000, 64, dtype=torch.float64)
    with torch.no_grad():
        classes = network()(samples).argmax(dim=1)
    return cg.torch.Job(
        model=network(),
        loss=nn.CrossEntropyLoss(),
        data=(samples, classes),
        batch_size=240,
    )


def train(scheme, asked):
    """Train with a scheme; return the last report and the parameters."""
    where = {"engine": asked.engine, "address": asked.address}
    with cg.torch.train(job, scheme=scheme, workers=asked.workers, **where) as coded:
        optimizer = torch.optim.SGD(coded.model.parameters(), lr=0.5, momentum=0.9)
        for _ in coded.steps(asked.steps):
            report = coded.backward()
            optimizer.step()
        return report, nn.utils.parameters_to_vector(coded.model.parameters())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--engine", default="local", help="local, ray, mpi, torchrun or here"
    )
    parser.add_argument("--address", help="of a Ray cluster that is there: auto")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save", help="a file for the parameters, such as out.npz")
    parser.add_argument("schemes", nargs="*", default=["uncoded", "auto"])
    asked = parser.parse_args()
    saved = {}
    for scheme in asked.schemes:
        report, parameters = train(scheme, asked)
        if not saved:  # only now: torchrun runs in every process what is before `train`
            print(f"{'scheme':<34} {'loss':>8}  parameters")
        first = " ".join(f"{number:.8f}" for number in parameters[:3])
        print(f"{scheme:<34} {report.loss:>8.5f}  {first} ...", flush=True)
        saved[scheme] = parameters.detach().numpy()
    if asked.save:
        np.savez(asked.save, **saved)


if __name__ == "__main__":
    try:
        main()
    except CodedgradError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
