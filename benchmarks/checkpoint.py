"""What checkpoints cost the loop: in it, and in the background.

    python benchmarks/checkpoint.py            # a minute; 400 MB, three times on disk
    python benchmarks/checkpoint.py --quick    # 40 MB, for a look
    python benchmarks/checkpoint.py --json     # the same figures, for a program

A state as Adam has it: a third parameters, two thirds moments. Steps of some 25 ms, a
checkpoint every 40 of them (20), on the disk of TMPDIR; rounds of the three kinds
interleaved, on one thread.

- Steps of matrix products, which release the GIL, and steps of Python alone, which give
  it to the writing thread only every 5 ms.
- How long a checkpoint holds the loop, and the worst step of a round, which includes it
  (medians of the rounds); the median step; and the time of all steps beside that
  without checkpoints (the best rounds, because other processes disturb most of them).
- Aim: in the background a checkpoint holds the loop half as long as in it, at most, and
  the worst step is half as long.

Exit code 1 if an aim is missed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch

from codedgrad.torch.checkpoint.files import Shelf, load
from codedgrad.torch.checkpoint.writer import Saver

QUICK = "--quick" in sys.argv[1:]
AS_JSON = "--json" in sys.argv[1:]
TENSORS = 10 if QUICK else 100  # of 4 MB each
ROUNDS = 2 if QUICK else 7
EVERY = 20 if QUICK else 40  # steps
AIM = 0.5

Step = Callable[[], object]
Save = Callable[[int, Mapping[str, Any]], object]


def state() -> dict[str, Any]:
    """Return 4 MB x TENSORS: parameters, and two moments of each."""
    names = ["parameters", "exp_avg", "exp_avg_sq"]
    found: dict[str, Any] = {name: [] for name in names}
    for number in range(TENSORS):
        found[names[number % 3]].append(torch.randn(1_000_000))
    return found


def products() -> Step:
    matrix = torch.randn(700, 700)
    return lambda: [matrix @ matrix for _ in range(3)]


def python() -> Step:
    return lambda: sum(number * number for number in range(350_000))


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def stepping(step: Step, save: Step) -> tuple[float, list[float]]:
    """Return how long a checkpoint held the loop, and the seconds of its steps."""
    held = seconds(save)
    first, *rest = (seconds(step) for _ in range(EVERY))
    return held, [held + first, *rest]


def measure(step: Step, folder: Path) -> dict[str, dict[str, float]]:
    """Return figures of the three kinds, in ms but for the ratio."""
    shelf = Shelf(folder, keep=2)
    saver = Saver(shelf)
    kinds: dict[str, Save] = {
        "none": lambda number, state: None,
        "in the loop": shelf.write,
        "in the background": saver.start,
    }
    found: dict[str, list[tuple[float, list[float]]]] = {kind: [] for kind in kinds}
    for number in range(ROUNDS + 1):
        for kind, save in kinds.items():
            found[kind].append(stepping(step, partial(save, number, STATE)))
            saver.finish()
    saver.close()
    best = {kind: min(sum(times) for _, times in found[kind][1:]) for kind in kinds}
    return {
        kind: {
            "held": 1e3 * median(held for held, _ in rounds[1:]),
            "median": 1e3 * median(chain(*(times for _, times in rounds[1:]))),
            "worst": 1e3 * median(max(times) for _, times in rounds[1:]),
            "total": best[kind] / best["none"],
            "first": 1e3 * rounds[0][0],  # held; its memory is new
        }
        for kind, rounds in found.items()
    }


def shown(name: str, found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the lines of a table."""
    head = (
        f"{'held':>8} {'median step':>12} {'worst step':>11} {'all, beside none':>17}"
    )
    lines = [f"steps of {name} [ms]", f"  {'checkpoints':18} {head}"]
    for kind, figures in found.items():
        lines.append(
            f"  {kind:18} {figures['held']:8.0f} {figures['median']:12.1f} "
            f"{figures['worst']:11.0f} {figures['total']:17.2f}"
        )
    return lines


def verdicts(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return what the background takes of what the loop takes."""
    background, loop = found["in the background"], found["in the loop"]
    return {
        "held, of that in the loop": background["held"] / loop["held"],
        "worst step, of that in the loop": background["worst"] / loop["worst"],
    }


def main() -> int:
    found, missed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("matrix products", products), ("Python", python)):
            found[name] = measure(make(), Path(folder))
        reading = seconds(lambda: load(Shelf(folder).path(ROUNDS)))
    lines = [f"{4 * TENSORS} MB, a checkpoint every {EVERY} steps"]
    for name, figures in found.items():
        lines += shown(name, figures)
        for what, ratio in verdicts(figures).items():
            is_met = ratio <= AIM
            lines.append(
                f"  {what}: {ratio:.2f} (aim {AIM}{'' if is_met else ': MISSED'})"
            )
            missed += [] if is_met else [f"{name}: {what}"]
    first = found["matrix products"]["in the background"]["first"]
    lines.append(
        f"the first in the background, whose memory is new, holds {first:.0f} ms"
    )
    lines.append(f"reading it back, with its digest: {reading * 1e3:.0f} ms")
    lines.append("all met" if not missed else "MISSED an aim")
    if AS_JSON:
        print(json.dumps({"steps": found, "reading": reading, "missed": missed}))
    else:
        print("\n".join(lines))
    return bool(missed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    STATE = state()
    sys.exit(main())
