"""Tables, CSV files and figures of what was measured in the lab."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass
class Table:
    """Words in rows and columns."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def table(shown: Table) -> str:
    """Return it as lines, the columns as wide as they must be."""
    lines = [shown.head, *shown.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(shown.head))]
    return "\n".join(
        "  ".join(word.ljust(w) for word, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def save(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a CSV file."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def figure(width: float = 7.0, height: float = 4.0) -> tuple[Any, Any, Any]:
    """Return matplotlib's pyplot, a figure and its axes, without a screen."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return pyplot, fig, axes


def bars(path: Path, rows: Sequence[dict[str, Any]], setting: Any) -> None:
    """Write the rows, and a figure of the median of every scheme beside the model."""
    save(path.with_suffix(".csv"), rows)
    names = list(dict.fromkeys(row["scheme"] for row in rows))
    _, fig, axes = figure()
    for at, (slow, colour) in enumerate((("no", "#4477aa"), ("yes", "#cc6677"))):
        for place, name in enumerate(names):
            mine = [r for r in rows if (r["scheme"], r["slow hosts"]) == (name, slow)]
            y = place + 0.2 * (2 * at - 1)
            label = None if place else f"slow hosts: {slow}"
            seconds = median(float(r["sums"]) for r in mine)
            axes.barh(y, seconds, 0.36, color=colour, label=label)
            hint = "predicted" if not place and at else None
            axes.plot([mine[0]["predicted"]] * 2, [y - 0.18, y + 0.18], "k", label=hint)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds from computed to summed, median of steps")
    title = f"{setting.workers} hosts, {setting.rate}, {setting.size / 1e6:g} MB a sum"
    axes.set_title(title, loc="left")
    axes.legend(frameon=False)
    fig.savefig(path.with_suffix(".png"), dpi=120)
