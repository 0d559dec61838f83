"""One house style for all figures: what is drawn is data, how it looks is here.

Curves differ by dash and mark as well as by colour, bars by hatching, so that a figure
can be read in grey. Title, legend and lines have room of their own, in inches: nothing
overlaps, whatever they say.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codedgrad.errors import InvalidOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats: TypeAlias = NDArray[np.float64]

_WIDTH, _DPI = 9.0, 150  # inches, dots an inch
_LINE, _ENTRY, _TITLE, _GAP = 0.148, 0.175, 0.34, 0.12  # inches
_WRAP = 150  # characters in a line under a figure
_FEW = 14  # points of a curve that has a mark at each; others: one every so much
_SPACE = 0.14  # of the diagonal of a panel

_COLOURS = (
    "#000000", "#0072b2", "#d55e00", "#009e73", "#a05195", "#b8860b", "#56b4e9",
    "#777777", "#cc6677",
)  # fmt: skip
_DASHES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (9, 3)),
    (0, (4, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (12, 2, 2, 2)), (0, (1, 3)),
)  # fmt: skip
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++")
_FILLS = ("#bbbbbb", "#9ecae1", "#f2c9a1", "#b5dfcd", "#dcc5de", "#e6d8a8")


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis, with its unit.

    Attributes:
        name: What is along it.
        unit: In which unit, such as `s`, `steps`, or `GC = 1`.
        is_log: Whether it is logarithmic.
        limits: From where to where; None: as the data want it.
        ticks: Where to put numbers; None: as matplotlib thinks best.
    """

    name: str
    unit: str
    is_log: bool = False
    limits: tuple[float, float] | None = None
    ticks: tuple[float, ...] | None = None

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.name} [{self.unit}]"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Points that belong together.

    Attributes:
        name: For the legend; the same name looks the same in every panel.
        x: Of the points.
        y: Of the points.
    """

    name: str
    x: Sequence[float] | Floats
    y: Sequence[float] | Floats


@dataclass(frozen=True, slots=True, eq=False)
class FigurePanel:
    """Curves on one pair of axes.

    Attributes:
        heading: Above it.
        x: The horizontal axis.
        y: The vertical axis.
        curves: What is drawn.
        mark: Where to draw a vertical line, and what it means.
    """

    heading: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    mark: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that look alike, one for every category.

    Attributes:
        name: For the legend.
        values: Lengths; NaN: none.
        errors: Their standard errors.
    """

    name: str
    values: tuple[float, ...]
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars in groups.

    Attributes:
        heading: Above it.
        x: The axis along the bars.
        categories: What the bars are of, from top to bottom.
        groups: At least one.
    """

    heading: str
    x: Axis
    categories: tuple[str, ...]
    groups: tuple[Group, ...]


def check_drawing() -> None:
    """Refuse to begin where nothing could be drawn."""
    try:
        import matplotlib.figure  # noqa: F401  # only whether it is there
    except ImportError:
        problem = "draws with matplotlib, which is not installed"
        raise InvalidOptions(
            "papers", problem, 'pip install "codedgrad[plot]"'
        ) from None


def save(
    path: Path, title: str, panels: Sequence[FigurePanel | Bars], lines: Sequence[str]
) -> None:
    """Draw into a .png file."""
    drawn(title, panels, lines).savefig(path, format="png")


def drawn(
    title: str, panels: Sequence[FigurePanel | Bars], lines: Sequence[str]
) -> Figure:
    """Return a figure: title, panels, legend, and lines under them."""
    check_drawing()
    from matplotlib.figure import Figure

    names = _legend_names(panels)
    columns = _legend_columns(names)
    below = [part for line in lines for part in textwrap.wrap(line, _WRAP)]
    rows, across = _grid(len(panels))
    under = _GAP + _LINE * len(below)
    legend = _GAP + _ENTRY * math.ceil(len(names) / columns)
    tall = max(map(_height, panels)) * rows
    height = _TITLE + tall + legend + under
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    low = (legend + under) / height
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0.005, low, 0.99, tall / height))
    places = np.ravel(figure.subplots(rows, across, squeeze=False))
    for axes, panel in zip(places, panels, strict=False):
        _draw(axes, panel, names)
    for axes in places[len(panels) :]:
        axes.remove()
    figure.text(0.012, 1 - 0.09 / height, title, va="top", weight="bold", size=10)
    figure.text(
        0.012, (under - _GAP / 2) / height, "\n".join(below), va="top", size=7.5,
        linespacing=1.3,
    )  # fmt: skip
    figure.legend(
        handles=_handles(panels, names), loc="upper center", ncols=columns,
        bbox_to_anchor=(0.5, low), fontsize=8, frameon=False, handlelength=4.2,
        borderaxespad=0.2,
    )  # fmt: skip
    return figure


def _grid(panels: int) -> tuple[int, int]:
    return (1, panels) if panels <= 3 else (math.ceil(panels / 2), 2)


def _height(panel: FigurePanel | Bars) -> float:
    if isinstance(panel, FigurePanel):
        return 2.9
    return 0.75 + len(panel.categories) * (0.12 + 0.145 * len(panel.groups))


def _legend_names(panels: Sequence[FigurePanel | Bars]) -> list[str]:
    """Return all names once, in the order in which they come up; marks last."""
    names: dict[str, None] = {}
    for panel in panels:
        each = panel.curves if isinstance(panel, FigurePanel) else panel.groups
        names |= dict.fromkeys(one.name for one in each)
    marks = [p.mark[1] for p in panels if isinstance(p, FigurePanel) and p.mark]
    return list(names | dict.fromkeys(marks))


def _legend_columns(names: Sequence[str]) -> int:
    """Return as many as fit, and rows as even as can be."""
    most = max(1, min(len(names), int(118 / (max(map(len, names)) + 11))))
    return math.ceil(len(names) / math.ceil(len(names) / most))


def _handles(panels: Sequence[FigurePanel | Bars], names: list[str]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = {p.mark[1] for p in panels if isinstance(p, FigurePanel) and p.mark}
    if any(isinstance(panel, Bars) for panel in panels):
        return [Patch(label=name, **_fill(i)) for i, name in enumerate(names)]
    return [
        Line2D([], [], label=name, **(_MARK if name in marks else _line(i)))
        for i, name in enumerate(names)
    ]


_MARK: dict[str, Any] = {"color": "0.75", "lw": 5, "solid_capstyle": "butt"}


def _line(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "marker": _MARKS[number % len(_MARKS)],
        "lw": 1.5,
        "ms": 4.5,
    }


def _fill(number: int) -> dict[str, Any]:
    return {
        "facecolor": _FILLS[number % len(_FILLS)],
        "hatch": _HATCHES[number % len(_HATCHES)],
        "edgecolor": "#222222",
        "lw": 0.6,
    }


def _draw(axes: Axes, panel: FigurePanel | Bars, names: list[str]) -> None:
    if isinstance(panel, FigurePanel):
        _draw_curves(axes, panel, names)
    else:
        _draw_bars(axes, panel, names)
    axes.set_title(panel.heading, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _draw_curves(axes: Axes, panel: FigurePanel, names: list[str]) -> None:
    if panel.mark:
        axes.axvline(panel.mark[0], zorder=0, **_MARK)
    for curve in panel.curves:
        number = names.index(curve.name)
        first = _SPACE * (number + 0.5) / len(names)  # not all at the same places
        every: Any = 1 if len(curve.x) <= _FEW else (first, _SPACE)
        axes.plot(curve.x, curve.y, markevery=every, **_line(number))
    _set_axis(axes, "x", panel.x)
    _set_axis(axes, "y", panel.y)
    axes.grid(alpha=0.3)


def _draw_bars(axes: Axes, panel: Bars, names: list[str]) -> None:
    count, places = len(panel.groups), np.arange(len(panel.categories))
    thick = 0.8 / count
    for i, group in enumerate(panel.groups):
        at = places + (i - (count - 1) / 2) * thick
        axes.barh(at, group.values, thick, **_fill(names.index(group.name)))
        errors = np.array(group.errors or (0.0,) * len(at))
        known = np.nan_to_num(errors)
        axes.errorbar(
            group.values, at, xerr=known, fmt="none", ecolor="black", capsize=1.5,
            lw=0.8,
        )  # fmt: skip
        for y, value, error in zip(at, group.values, known, strict=True):
            if math.isfinite(value):
                text = f" {value:.3g}"
                axes.text(value + error, float(y), text, va="center", size=6.5)
    longest = max(np.nanmax(group.values) for group in panel.groups)
    axes.set_yticks(places, panel.categories)
    axes.set_ylim(len(places) - 0.45, -0.55)
    _set_axis(axes, "x", panel.x)
    if panel.x.limits is None:
        axes.set_xlim(0, 1.16 * longest)
    axes.grid(axis="x", alpha=0.3)


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    own = axes.xaxis if which == "x" else axes.yaxis
    own.set_label_text(axis.label, fontsize=8.5)
    change = axes.set_xscale if which == "x" else axes.set_yscale
    if axis.is_log:
        change("log")
    if axis.ticks is not None:
        own.set_ticks(axis.ticks, [f"{tick:g}" for tick in axis.ticks])
        own.set_ticks([], minor=True)
    if axis.limits is not None:
        limit = axes.set_xlim if which == "x" else axes.set_ylim
        limit(*axis.limits)
