"""What the figures of a page are made of: sections, panels, keys, bins of steps.

A panel is a plotly figure as plain data; nothing here needs plotly.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codedgrad.view.subjects import Floats, Subject

MOST = 2000  # steps drawn one by one; more are put into bins

_WAITING = "#6b7c93"
_COLOURS = ("#2377d1", "#0b8f6a", "#8a5bd0", "#c94a93", "#a4730b", "#2f97bd")


@dataclass(frozen=True, slots=True)
class Key:
    """What a colour means.

    Attributes:
        text: In words.
        colours: One, or several of a scale.
        kind: `line`, `dots`, `dashes`, `cross` or `box`.
    """

    text: str
    colours: tuple[str, ...]
    kind: str = "box"


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot.

    Attributes:
        data: Traces, as plotly takes them.
        layout: Of plotly; colours of text and grid are the page's business.
        height: In pixels.
        heading: What stands above it.
        is_log: Whether the y axis begins logarithmic; None if that is no choice.
    """

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 320
    heading: str = ""
    is_log: bool | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Plots that belong together.

    Attributes:
        name: Of the section, for links.
        heading: What it shows.
        caption: What to look at.
        panels: The plots.
        keys: What the colours mean.
        is_paired: Whether two panels stand side by side, where there is room.
    """

    name: str
    heading: str
    caption: str
    panels: list[Panel]
    keys: list[Key] = field(default_factory=list)
    is_paired: bool = False


def colours(subjects: Sequence[Subject]) -> list[str]:
    """Return a colour for every subject; grey for the first that waits for all."""
    waiting = next((s for s in subjects if s.waits_for_all), None)
    if len(subjects) == 1:
        waiting = None
    found, used = [], 0
    for subject in subjects:
        if subject is waiting:
            found.append(_WAITING)
        else:
            found.append(_COLOURS[used % len(_COLOURS)])
            used += 1
    return found


def label(text: str) -> str:
    """Return a text that plotly shows as it is; it takes some tags for itself."""
    return html.escape(text, quote=False)


def folded(text: str, width: int = 24) -> str:
    """Return a text for plotly that is broken into lines of about so many letters.

    Example:
        >>> folded("waiting for all of them, always")
        'waiting for all of them,<br>always'
    """
    return "<br>".join(map(label, textwrap.wrap(text, width))) or label(text)


def bins(count: int, most: int = MOST) -> list[slice]:
    """Return how to cut `count` steps into at most so many bins of equal size.

    Example:
        >>> bins(5, most=2)
        [slice(0, 3, None), slice(3, 6, None)]
    """
    size = max(1, math.ceil(count / most))
    return [slice(first, first + size) for first in range(0, count, size)]


def means(values: Floats, cuts: Sequence[slice]) -> Floats:
    """Return the mean of every bin, of what is finite in it; NaN if nothing is."""
    found = np.full(len(cuts), np.nan)
    for number, cut in enumerate(cuts):
        some = values[cut][np.isfinite(values[cut])]
        if some.size:
            found[number] = some.mean()
    return found


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON has them, with five digits; None for what is none.

    Example:
        >>> numbers([0.123456, float("nan"), 3])
        [0.12346, None, 3.0]
    """
    return [float(f"{x:.5g}") if math.isfinite(x) else None for x in values]


def span(values: Sequence[Floats]) -> tuple[float, float]:
    """Return the least and the largest of all that is finite and above 0; else 1, 1."""
    some = [each[np.isfinite(each) & (each > 0)] for each in values]
    flat = np.concatenate(some) if some else np.array([])
    return (float(flat.min()), float(flat.max())) if flat.size else (1.0, 1.0)
