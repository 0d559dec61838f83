"""Which latency decides a tree against a ring?

Bare MPI on 84 hosts, without the engine: a tree of three layers of four children, all
of them waited for or three of four, and a ring all-reduce of the workers. On bandwidth
alone the ring wins, as every link carries two messages and no more; it takes 166 hops,
and so loses where each of them costs. The model has the latency that was put in, and
nothing of what a hop costs by itself: processes that sleep two milliseconds between
looks, on two cores for all hosts.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from hosts import Lab, bits
from trees import CHILDREN, said
from writing import Table, figure, save, table

BARE = Path(__file__).with_name("bare.py")
RATE, SIZE = "10mbit", 200_000
T_C = SIZE * 8 / bits(RATE)
SHAPES = ("tree", "tree, 3 of 4", "ring")


def predicted(workers: int, layers: int, latency: float) -> dict[str, float]:
    return {
        "tree": layers * (CHILDREN * T_C + latency),
        "tree, 3 of 4": layers * ((CHILDREN - 1) * T_C + latency),
        "ring": 2 * (workers - 1) * (latency + T_C / workers),
    }


def measure(workers: int, layers: int, latency: float) -> list[dict[str, Any]]:
    model = predicted(workers, layers, latency)
    rows = []
    with Lab(workers + 1, RATE, latency, queue=100_000_000) as lab:
        for name in SHAPES:
            shape, _, late = name.partition(", ")
            words = [str(BARE), "--shape", shape, "--size", str(SIZE), "--rounds", "4"]
            words += ["--late", "1", "--window", "1"] if late else []
            found = [float(one["seconds"]) for one in said(lab, words, eager=2 * SIZE)]
            rows.append(
                {
                    "latency / t_c": round(latency / T_C, 4),
                    "shape": name,
                    "seconds": median(found[1:]),
                    "predicted": round(model[name], 4),
                }
            )
    return rows


def main(quick: bool, out: Path) -> list[str]:
    """Measure, print, write; return what was missed."""
    workers, layers = (20, 2) if quick else (84, 3)
    shares = (0.0, 0.25) if quick else (0.0, 0.02, 0.05, 0.1, 0.3)
    rows = [row for share in shares for row in measure(workers, layers, share * T_C)]
    lines = [
        (f"{r['latency / t_c']:.3f}", r["shape"], f"{r['predicted']:.2f}",
         f"{r['seconds']:.2f}")
        for r in rows
    ]  # fmt: skip
    head = ("latency / t_c", "shape", "predicted [s]", "measured [s]")
    print(f"{workers} workers at {RATE}, {SIZE / 1e6:g} MB: t_c = {T_C:.3f} s")
    print(table(Table(head, lines)))
    save(out / "lab-latency.csv", rows)
    _draw(out / "lab-latency.png", rows)
    last = {r["shape"]: r["seconds"] for r in rows[-len(SHAPES) :]}
    return [] if last["tree"] < last["ring"] else ["the ring wins at every latency"]


def _draw(path: Path, rows: list[dict[str, Any]]) -> None:
    _, fig, axes = figure()
    colours = dict(zip(SHAPES, ("#4477aa", "#228833", "#cc6677"), strict=True))
    for name in SHAPES:
        mine = [r for r in rows if r["shape"] == name]
        x = [r["latency / t_c"] for r in mine]
        axes.plot(x, [r["predicted"] for r in mine], "--", color=colours[name], lw=1)
        axes.plot(
            x, [r["seconds"] for r in mine], "o-", color=colours[name], label=name
        )
    axes.set_xlabel("latency of a hop, in times of one message; dashed: predicted")
    axes.set_ylabel("seconds")
    axes.set_yscale("log")
    axes.legend(frameon=False)
    fig.savefig(path, dpi=120)
