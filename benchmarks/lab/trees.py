"""Stars, trees and a ring of 84 workers: the engine itself, with and without slow ones.

Every worker of the MPI engine is in a host of its own, with a link of 100 Mbit/s, and
sends messages of 1 MB. In the second half one child of every parent, inner ones too,
has a link ten times as slow. Workers compute next to nothing, and their parameters are
short.

What is predicted counts messages at the busiest port, t_c each, and knows nothing else:
no queue, no TCP, no processes, and not the two cores that all these hosts share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hosts import Lab, LabFailed, bits
from launch import run_mpi
from writing import Table, bars, table

HERE = Path(__file__).parent
CHILDREN, SLOWER = 4, 10.0
FRAMED = 1.007  # bytes on the link for one of a message: frames of 9000 bytes


@dataclass(frozen=True)
class Setting:
    """How large a lab, and what is done in it.

    Attributes:
        workers: 84, or 20.
        rate: Of a link.
        size: Of a message, bytes.
        steps: Of every scheme.
        warm: Of those, at first, are not counted: connections are made, and the engine
            learns how long a sum usually takes.
    """

    workers: int = 84
    rate: str = "100mbit"
    size: int = 1_000_000
    steps: int = 6
    warm: int = 2

    @property
    def t_c(self) -> float:
        """Seconds for one message."""
        return FRAMED * self.size * 8 / bits(self.rate)

    @property
    def layers(self) -> int:
        return 3 if self.workers == 84 else 2


def predicted(setting: Setting, slow: bool) -> dict[str, float]:
    """Return the seconds of a step without compute, by hand."""
    n, layers, t_c = setting.workers, setting.layers, setting.t_c
    kept = CHILDREN - 1
    path = layers * CHILDREN
    if slow:
        # The lowest slow parent takes four messages in at its own rate. Above it, three
        # of four have come by then, and every slow link takes one more.
        path = CHILDREN * SLOWER + (layers - 1) * SLOWER
    return {
        "star": n * t_c,
        "gc": (n - n // 4) * t_c,
        "gc, first of a group": 4 * t_c,
        "tree": path * t_c,
        "cr": layers * kept * t_c,
        "cr, first of a pair": layers * 2 * t_c,
        "ring": (SLOWER if slow else 1.0) * 2 * (n - 1) / n * t_c,
    }


def measure(
    setting: Setting, slow: bool, schemes: Sequence[str] = ()
) -> list[dict[str, float | str]]:
    """Return a row for every scheme, or some of them, and step that counts."""
    rows: list[dict[str, float | str]] = []
    model = predicted(setting, slow)
    with Lab(setting.workers + 1, setting.rate) as lab:
        if slow:
            rate = f"{bits(setting.rate) / SLOWER / 1e6:g}mbit"
            for host in lab.hosts[CHILDREN::CHILDREN]:
                host.set_rate(rate)
        for name in schemes or model:
            for one in _steps(lab, name, setting):
                row = {"slow hosts": "yes" if slow else "no", "scheme": name}
                rows.append(row | one | {"predicted": round(model[name], 4)})
    return rows


def _steps(lab: Lab, name: str, setting: Setting) -> Iterable[dict[str, float]]:
    if name == "ring":
        # MPI's own limit of what is sent unasked is below a share of a message.
        args = ["--shape", "ring", "--size", str(setting.size), "--rounds", "4"]
        found = said(lab, [str(HERE / "bare.py"), *args])
        for one in found[1:]:
            seconds = float(one["seconds"])
            yield {"seconds": seconds, "sums": seconds, "root_received": 0}
        return
    args = ["--workers", str(setting.workers), "--size", str(setting.size)]
    args += ["--steps", str(setting.steps), name]
    found = said(lab, ["-m", "codedgrad.engines.mpi", str(HERE / "steps.py"), *args])
    for one in found:
        if one.get("step", -1) >= setting.warm:
            kept = ("seconds", "sums", "root_received", "root_sums")
            yield {key: float(one[key]) for key in kept}


def said(lab: Lab, words: list[str], eager: int = 0) -> list[dict[str, Any]]:
    """Run an MPI program in all hosts; return the lines of JSON that it prints.

    Args:
        lab: Where.
        words: The script and its arguments.
        eager: Bytes up to which messages are sent unasked, if there is latency: to ask
            takes twice as long.
    """
    lines: list[str] = []
    limit = ["--mca", "btl_tcp_eager_limit", str(eager)]
    options = limit if eager and lab.latency else []
    code = run_mpi(
        lab, lab.hosts, words[0], words[1:], show=lines.append, options=options
    )
    if code:
        raise LabFailed(f"it ended with {code}: {' '.join(lines)[-600:]}", "see above")
    return [json.loads(line) for line in lines if line.startswith("{")]


def main(quick: bool, out: Path) -> list[str]:
    """Measure, print, write; return what was missed."""
    setting = Setting(workers=20, steps=5) if quick else Setting()
    print(
        f"{setting.workers} workers at {setting.rate}, {setting.size / 1e6:g} MB a sum"
    )
    rows = [row for slow in (False, True) for row in measure(setting, slow)]
    shown = Table(
        ("slow hosts", "scheme", "predicted", "step [s]", "sums [s]", "root [MB]"), []
    )
    middle: dict[tuple[str, str], float] = {}
    for slow in ("no", "yes"):
        for name in predicted(setting, False):
            mine = [r for r in rows if (r["slow hosts"], r["scheme"]) == (slow, name)]
            seconds, sums, came = (
                median(float(r[key]) for r in mine)
                for key in ("seconds", "sums", "root_received")
            )
            middle[slow, name] = sums
            shown.rows.append(
                (slow, name, f"{mine[0]['predicted']:.2f}", f"{seconds:.2f}",
                 f"{sums:.2f}", f"{came / 1e6:.1f}")
            )  # fmt: skip
    print(table(shown))
    model = predicted(setting, False)
    wanted = model["gc"] / model["cr"]
    missed = []
    for slow in ("no", "yes"):
        found = middle[slow, "gc"] / middle[slow, "cr"]
        print(f"GC / CR, slow hosts: {slow}: {found:.2f} found, {wanted:.2f} predicted")
        if found < 0.9 * wanted:
            missed.append(f"GC / CR is {found / wanted:.2f} of what is predicted")
    bars(out / "lab-trees", rows, setting)
    return missed
