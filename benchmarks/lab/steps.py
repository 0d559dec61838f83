"""Steps of the MPI engine with messages of some size; runs in process 0 of the lab.

    steps.py --size 1000000 --steps 4 star gc tree cr

Prints one line of JSON for every scheme and step: the seconds from its start to the
sum, those of them that were left when half of the workers had computed, the bytes that
came to the root's interface meanwhile and in how many sums, and who was heard. Every
sum is checked, unless its scheme is not exact.

Workers compute next to nothing, and have few parameters, so that what is measured is
the way of the sums; `--parameters` gives them more.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.codes import Code, fractional
from codedgrad.core import Command, Event, Progressed, Scheme
from codedgrad.core.plan import Tally
from codedgrad.engines import Driver, Mpi
from codedgrad.jobs import VectorLayout
from codedgrad.schemes import build
from codedgrad.schemes.fixed_code import CodedScheme
from codedgrad.schemes.stop_rules import Decodable
from codedgrad.uplink import Link

RECEIVED = Path("/sys/class/net/eth0/statistics/rx_bytes")


@dataclass(frozen=True)
class Counted:
    """Enough is a number of messages, from which the sum can then be had.

    As gradient coding is usually written about: whoever tolerates S late workers waits
    for all but S. The repetition code used here would often need far fewer.
    """

    messages: int
    budget: float = math.inf

    def start(self, code: Code) -> Tally:
        return _Count(self.messages, Decodable().start(code))

    def __str__(self) -> str:
        return f"{self.messages} messages"


class _Count:
    def __init__(self, messages: int, decodable: Tally) -> None:
        self._left, self._decodable = messages, decodable

    def hear(self, message: int) -> bool:
        self._left -= 1
        return self._decodable.hear(message) and self._left <= 0


def repetition(workers: int) -> Code:
    """Return a code that tolerates the loss of less than a quarter of all workers."""
    return fractional(workers, workers // 4 - 1)


SCHEMES: dict[str, Callable[[int], Scheme]] = {
    "star": partial(build, "uncoded"),
    "gc": lambda n: CodedScheme("gc", repetition(n), Counted(n - n // 4)),
    "gc, first of a group": lambda n: CodedScheme("gc", repetition(n), Decodable()),
    "first four": partial(build, "ignore(4)"),
    "tree": partial(build, "coded_reduce(4, 0)"),
    "cr": partial(build, "coded_reduce(4, 1, inner=cyclic, rule=threshold)"),
    "cr, first of a pair": partial(build, "coded_reduce(4, 1)"),
}


class Even:
    """A job whose part j has j + 1 everywhere."""

    def __init__(self, layout: VectorLayout) -> None:
        self.layout = layout

    def part(
        self,
        parameters: NDArray[Any],
        part: int,
        step: int,
        coefficient: float,
        out: NDArray[Any],
        add: bool = False,
    ) -> None:
        if add:
            out += coefficient * (part + 1)
        else:
            out[:] = coefficient * (part + 1)


class Watch:
    """Notes when workers have computed."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, event: Event, commands: list[Command]) -> None:
        if isinstance(event, Progressed) and event.closed:
            self.at.append(event.at)


def run(scheme: Scheme, options: argparse.Namespace, name: str) -> None:
    size = options.size // 4 - 2
    kinds = {"dtype": "float32", "parameters_dtype": "float32"}
    layout = VectorLayout(max(1, options.parameters // 4), size, **kinds)
    # No worker is on the root's host: every sum has to come over its link.
    engine = Mpi(root_is_agent=False, threads=1)
    watch, exact = Watch(), name != "first four"
    if options.uplink:
        seconds = tuple(float(one) for one in options.seconds.split(","))
        engine.share(Link(options.uplink, seconds=seconds))
    try:
        driver = Driver(engine, scheme, layout, watch=watch)
        begun = time.monotonic()
        engine.start(partial(Even, layout), layout, scheme.workers, parts=scheme.parts)
        print(json.dumps({"scheme": name, "start": time.monotonic() - begun}))
        for step in range(options.steps):
            came, sums = int(RECEIVED.read_text()), engine.fetched
            watch.at.clear()
            sum_ = driver.step(np.zeros(layout.parameters, np.float32))
            left = engine.now() - median(watch.at) if watch.at else 0.0
            said = {
                "scheme": name,
                "step": step,
                "seconds": round(sum_.report.seconds, 4),
                "sums": round(left, 4),
                "root_received": int(RECEIVED.read_text()) - came,
                "root_sums": engine.fetched - sums,
                "heard": list(sum_.report.heard),
            }
            print(json.dumps(said), flush=True)
            expected = scheme.parts * (scheme.parts + 1) / 2
            if exact and not np.allclose(sum_.vector, expected, rtol=1e-4):
                raise SystemExit(f"{name}: a wrong sum")
    finally:
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("schemes", nargs="+", choices=SCHEMES)
    parser.add_argument("--workers", type=int, default=84)
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes")
    parser.add_argument("--parameters", type=int, default=1000, help="bytes")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--uplink", help="a policy, such as fair")
    parser.add_argument("--seconds", default="1", help="of a message, by worker: 1,2,4")
    options = parser.parse_args()
    for name in options.schemes:
        run(SCHEMES[name](options.workers), options, name)


if __name__ == "__main__":
    main()
