"""A comparison of schemes on the screen and on paper."""

from __future__ import annotations

import math
import os
import secrets
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from codedgrad.errors import InvalidOptions
from codedgrad.sim import Machine, Result, mean_error
from codedgrad.view.comparison import ComparisonRow, Floats, compared, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")

# -- on the screen -------------------------------------------------------------------


def table(rows: Sequence[ComparisonRow]) -> Table:
    """Return the table of a comparison; it fits 80 columns.

    Distances to the best possible take the place of p99.

    Args:
        rows: As `compared` makes them.
    """
    residual = not all(row.is_exact for row in rows)
    bound = any(row.distance is not None for row in rows)
    gap = 1 if residual or bound else 2
    shown = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    shown.add_column("scheme", overflow="fold")
    for name in _columns(len(rows) > 1, bound, residual):
        shown.add_column(Text(name), justify="right", no_wrap=True)
    digits = _digits(row.figures["mean_seconds"] for row in rows)
    marked = _ratios(rows), _distances(rows)
    for row, ratio, distances in zip(rows, *marked, strict=True):
        figures = row.figures
        cells = [f"{row.load:.1f}x", _number(figures["mean_seconds"], digits)]
        if not bound:
            cells.append(_number(figures["p99_seconds"], digits))
        if len(rows) > 1:
            cells.append(ratio)
        cells += distances
        cells += [_number(figures["work"], 2), _number(100 * figures["exact"], 1)]
        if residual:
            cells.append(_number(figures["residual"], 3))
        shown.add_row(Text(str(row)), *map(Text, cells))
    return shown


def _ratios(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the ratios; those that are not clear are marked, the others padded."""
    unclear = [(r := row.ratio) and r.blocks > 1 and not r.is_clear for row in rows]
    marks = ["~" if each else " " if any(unclear) else "" for each in unclear]
    texts = ["1" if row.ratio is None else str(row.ratio) for row in rows]
    return [text + mark for text, mark in zip(texts, marks, strict=True)]


def _distances(rows: Sequence[ComparisonRow]) -> list[list[str]]:
    """Return the two distances; those that are not comparable are marked."""
    known = [row.distance for row in rows]
    alike = all(d is None or d.is_comparable for d in known)
    marks = ["" if alike else " " if d and d.is_comparable else "*" for d in known]
    return [
        [] if d is None else [_number(each, 3) + mark for each in (d.fluid, d.whole)]
        for d, mark in zip(known, marks, strict=True)
    ]


def _columns(several: bool, bound: bool, residual: bool) -> list[str]:
    ratio = ["vs first"] if several else []
    last = ["residual\n/parts"] if residual else []
    tail = ["/fluid", "/whole"] if bound else []
    times = ["mean\nstep [s]"] if bound else ["mean\nstep [s]", "p99\n[s]"]
    return ["load", *times, *ratio, *tail, "work\n/parts", "exact\n[%]", *last]


def _digits(seconds: Iterable[float]) -> int:
    """Return the decimals that show the smallest number with four digits."""
    smallest = min((x for x in seconds if x > 0), default=1.0)
    return min(max(3 - math.floor(math.log10(smallest)), 0), 9)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def facts(
    rows: Sequence[ComparisonRow], delays: object, machine: Machine, seed: int
) -> list[str]:
    """Return the lines that a table, or a plot, is worth nothing without.

    Args:
        rows: As `compared` makes them.
        delays: The law, in words.
        machine: The engine that was simulated.
        seed: Of the delays.
    """
    runs, steps = rows[0].result.seconds.shape
    parts = _grouped(rows, lambda row: str(row.scheme.parts))
    rules = _grouped(rows, lambda row: row.rule)
    ways = _grouped(
        rows, lambda row: "by events" if row.result.by_events else "fast path"
    )
    late = (
        "late workers finish the part in hand (drain)"
        if machine.drain
        else "late workers stop at once"
    )
    latency = f", latency {machine.latency:g} s" if machine.latency else ""
    network = [] if machine.network is None else [f"network: {machine.network}"]
    return [
        f"{rows[0].scheme.workers} workers, parts: {parts}, {steps} steps x "
        f"{runs} {'run' if runs == 1 else 'runs'}, seed {seed}",
        f"delays: {delays}",
        *network,
        f"stop rule: {rules}; {late}{latency}; {ways}",
    ]


def _grouped(
    rows: Sequence[ComparisonRow], value: Callable[[ComparisonRow], str]
) -> str:
    """Return the one value that all have, or each with the schemes that have it."""
    families = [str(row).partition("(")[0] for row in rows]
    groups: dict[str, list[str]] = {}
    for row, family in zip(rows, families, strict=True):
        name = family if families.count(family) == 1 else str(row)
        groups.setdefault(value(row), []).append(name)
    if len(groups) == 1:
        return next(iter(groups))
    return ", ".join(f"{each} ({', '.join(names)})" for each, names in groups.items())


# -- on paper ------------------------------------------------------------------------

_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#a05195", "#b8860b", "#56b4e9")
_DASHES = (
    "-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 3)),
    (0, (4, 1, 1, 1, 1, 1)),
)  # fmt: skip
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
_POINTS = 2000  # of a curve at most: a vector file stays small


def check_plot(path: Path) -> None:
    """Refuse a file that `plot` could not write, before there is anything to lose."""
    if path.suffix.lower() not in FORMATS:
        advice = f"one of {', '.join(FORMATS)}"
        raise InvalidOptions(f"--plot {path}", "has an unknown ending", advice)
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        advice = "a file in a folder that exists and is yours"
        raise InvalidOptions(f"--plot {path}", "cannot be written", advice)
    _figure()


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        problem = "needs matplotlib, which is not installed"
        advice = 'pip install "codedgrad[plot]"'
        raise InvalidOptions("--plot", problem, advice) from None
    return Figure


def plot(results: Sequence[Result], path: Path | str, lines: Sequence[str]) -> None:
    """Draw how long steps took, and how long on average.

    The file appears at once or not at all.

    Args:
        results: Of `compare`.
        path: A .png, .svg or .pdf file.
        lines: What was simulated, for the title.
    """
    path, rows = Path(path), compared(results)
    check_plot(path)
    wide = max(len(str(row)) for row in rows)
    columns = max(1, min(len(rows), 110 // (wide + 8)))
    height = 3.6 + 0.22 * (math.ceil(len(rows) / columns) + len(rows))
    figure = _figure()(figsize=(10, height), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_tails(left, rows)
    _draw_means(right, rows)
    title = "\n".join(textwrap.fill(line, 120) for line in lines)
    figure.suptitle(title, fontsize=9)
    figure.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        frameon=False,
        handlelength=3.5,
    )
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    hidden = path.with_name(f".{secrets.token_hex(8)}{path.suffix.lower()}")
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix.lower())
    try:
        figure.savefig(hidden, metadata={dated: None} if dated else None)
        os.replace(hidden, path)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InvalidOptions(f"--plot {path}", problem, "another file") from None
    finally:
        hidden.unlink(missing_ok=True)


def _draw_tails(axes: Axes, rows: Sequence[ComparisonRow]) -> None:
    every = np.concatenate([row.result.seconds.ravel() for row in rows])
    done = every[np.isfinite(every)]
    low, high = (done.min(), done.max()) if done.size else (1.0, 10.0)
    spread = high / max(low, 1e-9)
    low, high = low / spread**0.05, high * spread**0.05
    if spread < 1.05:
        low, high = low * 0.9, high * 1.1
    for number, row in enumerate(rows):
        t, share = _tail(row.result.seconds, low, high)
        axes.step(t, share, where="post", label=str(row), lw=1.8, **_style(number))
    axes.set_yscale("log", nonpositive="clip")
    if spread > 20:
        axes.set_xscale("log")
    least = 0.5 / rows[0].result.seconds.size
    axes.set(xlim=(low, high), ylim=(least, 1.5))
    axes.set(xlabel="time t [s]", ylabel="share of steps that take longer than t")
    axes.grid(alpha=0.3)


def _tail(seconds: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Return t and the share of steps that took longer; given up is longer than all."""
    t = np.sort(seconds.ravel())
    count = t.size
    last = int(np.isfinite(t).sum())
    places = np.arange(last)
    if last > _POINTS:  # evenly, and densely at the far end
        even = np.linspace(0, last - 1, _POINTS // 2)
        far = last - np.geomspace(1, last, _POINTS // 2)
        places = np.unique(np.concatenate([even, far]).astype(int))
    share = 1 - (places + 1) / count
    ends = [high], [1 - last / count]
    return (
        np.concatenate([[low], t[places], ends[0]]),
        np.concatenate([[1.0], share, ends[1]]),
    )


def _draw_means(axes: Axes, rows: Sequence[ComparisonRow]) -> None:
    means = [row.figures["mean_seconds"] for row in rows]
    known = [mean for mean in means if math.isfinite(mean)]
    longest = max(known, default=1.0)
    digits = _digits(known)
    for number, (row, mean) in enumerate(zip(rows, means, strict=True)):
        if not math.isfinite(mean):
            axes.text(0.02 * longest, number, "gave up every step", va="center", size=9)
            continue
        colour, hatch = _cycled(_COLOURS, number), _cycled(_HATCHES, number)
        axes.barh(
            number, mean, 0.6, color=colour, alpha=0.25, hatch=hatch, edgecolor=colour
        )
        error = mean_error(row.result)
        error = 0.0 if math.isnan(error) else error
        axes.errorbar(mean, number, xerr=error, color="black", capsize=3, lw=1.2)
        text = f"{mean:.{digits}f} s\nwork {row.figures['work']:.2f}x"
        if row.figures["gave_up"] > 0:
            text += f", gave up {percent(row.figures['gave_up'])}"
        axes.text(mean + error + 0.03 * longest, number, text, va="center", size=8)
    names = [textwrap.fill(str(row), 24) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set(xlim=(0, 1.55 * longest), ylim=(len(rows) - 0.4, -0.6))
    axes.set(xlabel="mean step [s] and its standard error")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _style(number: int) -> dict[str, Any]:
    return {"color": _cycled(_COLOURS, number), "linestyle": _cycled(_DASHES, number)}


def _cycled(choices: Sequence[Any], number: int) -> Any:
    return choices[number % len(choices)]
