"""Stars, trees and rings on a network, beside what the simulator says of them.

Every worker is an MPI process in a host of its own, with a link of a known rate. The
tree is that of CodedReduce: 4 children below every parent. The simulator knows that a
port takes in one message at a time, and that is all it knows: a switch that loses what
its queue cannot hold, TCP, MPI and the two cores of this machine are not in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from hosts import Lab, LabFailed, bits
from launch import run_mpi

from codedgrad.codes.tree import Tree
from codedgrad.delays import Times
from codedgrad.schemes import coded_reduce
from codedgrad.sim import Network, counted_seconds, ring_seconds, tree_seconds

CHILDREN = 4
BARE = Path(__file__).with_name("bare.py")
ROUNDS = 4  # the first of them makes the connections, and is not counted
CLOSE = 0.25  # to what is predicted of star / tree, relative
SHALLOW, DEEP = 1_000_000, 100_000_000  # bytes of a queue


@dataclass(frozen=True)
class Setting:
    """One network, and what is done on it.

    Attributes:
        title: What it is to show.
        rate: Of every link.
        size: Of a message, bytes.
        latency: Seconds, one way.
        queue: Of every link, bytes.
        late: Children that a parent does without; the star as large a share of all.
        window: Messages that a parent takes in at a time; 0: all.
        shapes: Which are run.
        judged: Whether star / tree is to be as predicted.
    """

    title: str
    rate: str = "10mbit"
    size: int = 100_000
    latency: float = 0.0
    queue: int = DEEP
    late: int = 0
    window: int = 0
    shapes: tuple[str, ...] = ("star", "tree", "ring")
    judged: bool = True


SETTINGS = (
    Setting("rate only: a queue at the root's link that holds everything"),
    Setting("latency of half a message", latency=0.04),
    Setting(
        "one of four late at every parent, a quarter of the star; one at a time",
        late=1,
        window=1,
        shapes=("star", "tree"),
    ),
    Setting(
        "incast: a queue of 1 MB at each link, all send at once",
        rate="100mbit",
        size=1_000_000,
        queue=SHALLOW,
        shapes=("star", "tree"),
        judged=False,
    ),
    Setting(
        "the same queue, 4 at a time",
        rate="100mbit",
        size=1_000_000,
        queue=SHALLOW,
        window=4,
        shapes=("star", "tree"),
    ),
)


def predicted(setting: Setting, workers: int) -> dict[str, float]:
    """Return the seconds that the simulator gives each shape."""
    network = Network.of(setting.size, bits(setting.rate) / 8, setting.latency)
    at_once = Times(np.zeros((1, workers)), np.zeros((1, workers)))
    late = setting.late
    inner = {"inner": "cyclic", "rule": "threshold"} if late else {}
    tree = coded_reduce(workers, CHILDREN, late, **inner)  # type: ignore[arg-type]
    star = counted_seconds(late * workers // CHILDREN, at_once, network)
    return {
        "star": float(star[0]),
        "tree": float(tree_seconds(tree, at_once, network)[0]),
        "ring": float(ring_seconds(at_once, network)[0]),
    }


def measured(setting: Setting, workers: int) -> list[dict[str, float | str]]:
    """Return what the processes say of every round that counts."""
    args = ["--shape", ",".join(setting.shapes), "--size", str(setting.size)]
    args += ["--rounds", str(ROUNDS), "--children", str(CHILDREN)]
    args += ["--late", str(setting.late), "--window", str(setting.window)]
    # With latency, send unasked: to ask takes twice the latency more.
    eager = ["--mca", "btl_tcp_eager_limit", str(2 * setting.size)]
    options = eager if setting.latency else []
    lines: list[str] = []
    with Lab(workers + 1, setting.rate, setting.latency, queue=setting.queue) as lab:
        code = run_mpi(lab, lab.hosts, BARE, args, show=lines.append, options=options)
    found = [json.loads(line) for line in lines if line.startswith("{")]
    if code or len(found) != ROUNDS * len(setting.shapes):
        said = " ".join(lines)[-500:]
        raise LabFailed(f"bare.py ended with {code}: {said}", "see what it says")
    return [one for one in found if one["round"] > 0]


def show(setting: Setting, workers: int, missed: list[str]) -> None:
    print(f"\n{setting.title}\n  {setting.rate}, {setting.size / 1e6:g} MB", end="")
    print(f", latency {setting.latency:g} s, queue {setting.queue / 1e6:g} MB")
    rounds, model = measured(setting, workers), predicted(setting, workers)
    print(f"  {'':<6}{'predicted':>10}{'measured':>10}  {'rounds [s]':<22} root [MB]")
    middle = {}
    for shape in setting.shapes:
        mine = [one for one in rounds if one["shape"] == shape]
        seconds = [float(one["seconds"]) for one in mine]
        middle[shape] = median(seconds)
        came = median(float(one["root_received"]) for one in mine) / 1e6
        each = " ".join(f"{one:.2f}" for one in seconds)
        print(
            f"  {shape:<6}{model[shape]:>10.2f}{middle[shape]:>10.2f}  "
            f"{each:<22} {came:.2f}"
        )
    for shape in setting.shapes:
        if shape != "tree":
            wanted = model[shape] / model["tree"]
            found = middle[shape] / middle["tree"]
            print(f"  {shape} / tree: {wanted:.2f} predicted, {found:.2f} measured")
            if shape == "star" and setting.judged and abs(found / wanted - 1) > CLOSE:
                missed.append(f"{setting.title}: star / tree is {found:.2f}")


def main(quick: bool, out: Path) -> list[str]:
    """Measure and print; return what was missed."""
    layers = 2 if quick else 3
    workers = Tree(CHILDREN, layers).workers
    missed: list[str] = []
    print(f"{workers} workers and a root; a tree of {layers} layers of {CHILDREN}")
    for setting in SETTINGS:
        show(setting, workers, missed)
    print(f"\naim: star / tree within {CLOSE:.0%} of what is predicted")
    return missed
