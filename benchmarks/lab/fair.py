"""A root's link that hosts with unequal links share: fair, and first come first served.

Four of eight hosts have links of 40 Mbit/s, four of 10. A step takes the first four
messages that come and drops the others, so it matters who is let in. What each worker
delivers is counted over all steps: Jain's index of it is 1 if all deliver the same, and
1/2 here if the four fast ones deliver everything.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hosts import Lab, bits
from trees import said
from writing import Table, figure, save, table

from codedgrad.uplink.bounds import jain

STEPS = Path(__file__).with_name("steps.py")
RATES = ("40mbit",) * 4 + ("10mbit",) * 4
SIZE = 250_000
POLICIES = ("first come", "fair", "round_robin", "max_rate")


def measure(lab: Lab, policy: str, steps: int) -> dict[str, Any]:
    words = ["-m", "codedgrad.engines.mpi", str(STEPS), "--workers", str(len(RATES))]
    words += ["--size", str(SIZE), "--steps", str(steps), "first four"]
    if policy != "first come":
        seconds = ",".join(f"{SIZE * 8 / bits(rate):g}" for rate in RATES)
        words += ["--uplink", policy, "--seconds", seconds]
    found = [one for one in said(lab, words) if "step" in one]
    heard = Counter(worker for one in found for worker in one["heard"])
    delivered = [heard[worker] for worker in range(len(RATES))]
    seconds = sum(one["seconds"] for one in found)
    each = {f"worker {number}": count for number, count in enumerate(delivered)}
    return {
        "policy": policy,
        "jain": round(jain(delivered), 3),
        "messages/s": round(sum(delivered) / seconds, 2),
        **each,
    }


def main(quick: bool, out: Path) -> list[str]:
    """Measure, print, write; return what was missed."""
    steps = 30 if quick else 100
    with Lab(len(RATES) + 1, "100mbit") as lab:
        for host, rate in zip(lab.hosts[1:], RATES, strict=True):
            host.set_rate(rate)
        rows = [measure(lab, policy, steps) for policy in POLICIES]
    lines = [
        (r["policy"], f"{r['jain']:.2f}", f"{r['messages/s']:.1f}",
         " ".join(str(r[f"worker {i}"]) for i in range(len(RATES))))
        for r in rows
    ]  # fmt: skip
    head = ("policy", "Jain", "messages/s", f"delivered in {steps} steps, by worker")
    print(table(Table(head, lines)))
    save(out / "lab-fair.csv", rows)
    _draw(out / "lab-fair.png", rows, steps)
    first, fair = rows[0], rows[1]
    return [] if fair["jain"] > first["jain"] else ["fair is no fairer"]


def _draw(path: Path, rows: list[dict[str, Any]], steps: int) -> None:
    _, fig, axes = figure(height=3.2)
    for place, row in enumerate(rows):
        for worker, rate in enumerate(RATES):
            x = place + 0.1 * (worker - 3.5)
            fast = rate == RATES[0]
            label = None if place or worker % 4 else f"{rate}/s".replace("bit", "bit")
            colour = "#4477aa" if fast else "#cc6677"
            share = row[f"worker {worker}"] / steps
            axes.bar(x, share, 0.09, color=colour, label=label)
    names = [
        f"{r['policy']}\nJain {r['jain']:.2f}, {r['messages/s']:.1f}/s" for r in rows
    ]
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("share of steps it is heard in")
    axes.set_ylim(0, 1.2)  # room for the legend
    axes.legend(frameon=False, loc="upper right", ncols=2)
    fig.savefig(path, dpi=120)
