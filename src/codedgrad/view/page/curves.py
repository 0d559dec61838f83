"""Curves and bars over runs: time of a step, loss and scores, work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codedgrad.trace import StepLine
from codedgrad.view.page.panels import (
    MOST,
    Key,
    Panel,
    Section,
    bins,
    colours,
    folded,
    label,
    means,
    numbers,
    span,
)
from codedgrad.view.subjects import Floats, Subject
from codedgrad.view.summaries import number_text, summary

_ESTIMATE = "#d97706"
_WIDE = 10.0  # from here on, longest over shortest, an axis begins logarithmic
_SCORES = 8  # curves of things logged, at most
_WASTED = "#e08a1e"


def time_per_step(subjects: Sequence[Subject]) -> Section | None:
    """Return how long every step took; of a single run, beside waiting for all."""
    some = _with_steps(subjects)
    if not some:
        return None
    data: list[dict[str, Any]] = []
    keys = [Key(s.title, (colour,), "line") for s, colour in some]
    alone = len(subjects) == 1 and not subjects[0].waits_for_all
    if alone:
        keys += _estimate(subjects[0], data)
    for subject, colour in some:
        data += _curve(subject, colour)
    shortest, longest = span([subject.seconds for subject, _ in some])
    layout = {
        "xaxis": {"title": {"text": "step"}},
        "yaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
        "hovermode": "closest",
    }
    panel = Panel(data, layout, height=360, is_log=longest / shortest > _WIDE)
    caption = "Lower is faster; a peak is a step that had to wait for a worker."
    if alone:
        caption += (
            " Waiting for all was not measured here: the dashed line is an estimate, "
            "the band its range."
        )
    if any(len(subject.reports) > MOST for subject, _ in some):
        caption += " Long runs are shown as means over bins of steps, with the range."
    return Section("seconds", "Time per step", caption, [panel], keys)


def _with_steps(subjects: Sequence[Subject]) -> list[tuple[Subject, str]]:
    pairs = zip(subjects, colours(subjects), strict=True)
    return [(subject, colour) for subject, colour in pairs if subject.reports]


def _curve(subject: Subject, colour: str) -> list[dict[str, Any]]:
    seconds, steps = subject.seconds, subject.steps
    cuts = bins(len(seconds))
    x = [int(steps[cut][0]) for cut in cuts]
    curve = {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= 60 else "lines",
        "name": label(subject.title),
        "x": x,
        "y": numbers(means(seconds, cuts)),
        "line": {"color": colour, "width": 1.8},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "step %{x}: %{y:.3g} s<extra>%{fullData.name}</extra>",
    }
    if len(cuts) == len(seconds):
        return [curve]
    low = numbers(float(seconds[cut].min()) for cut in cuts)
    high = numbers(float(seconds[cut].max()) for cut in cuts)
    return [_band(x, low, high, colour), curve]


def _band(
    x: list[int], low: list[float | None], high: list[float | None], colour: str
) -> dict[str, Any]:
    """Return the area between two curves."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *reversed(x)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "line": {"width": 0, "color": colour},
        "opacity": 0.25,
        "hoverinfo": "skip",
    }


def _estimate(subject: Subject, data: list[dict[str, Any]]) -> list[Key]:
    """Add what waiting for all would have taken: a curve, and its range as a band."""
    cuts = bins(len(subject.reports))
    x = [int(subject.steps[cut][0]) for cut in cuts]
    waiting = [report.waiting for report in subject.reports]
    low, high, mean = (
        numbers(means(np.array(values), cuts))
        for values in (
            [w.low for w in waiting],
            [w.high for w in waiting],
            [w.estimate for w in waiting],
        )
    )
    told = "waiting for all, estimate"
    curve = {
        "type": "scatter",
        "mode": "lines",
        "name": told,
        "x": x,
        "y": mean,
        "line": {"color": _ESTIMATE, "width": 1.6, "dash": "dash"},
        "hovertemplate": f"step %{{x}}: {told} %{{y:.3g}} s<extra></extra>",
    }
    data += [_band(x, low, high, _ESTIMATE), curve]
    return [Key("waiting for all, estimate and range", (_ESTIMATE,), "dashes")]


# -- loss and scores -----------------------------------------------------------------


def learning(subjects: Sequence[Subject]) -> Section | None:
    """Return loss, metrics and whatever was logged, against the seconds of steps."""
    pairs = zip(subjects, colours(subjects), strict=True)
    some = [(subject, colour) for subject, colour in pairs if subject.lines]
    names = [("loss", "")]
    for kind in ("logged", "metrics"):
        found = [getattr(line, kind) for s, _ in some for line in s.lines]
        names += [(kind, name) for name in dict.fromkeys(n for d in found for n in d)]
    panels: list[Panel] = []
    left_out = 0
    for kind, name in names:
        data = [t for s, colour in some if (t := _against(s, colour, kind, name))]
        if data and len(panels) < 1 + _SCORES:
            panels.append(_score_panel(kind, name, data))
        elif data:
            left_out += 1
    if not panels:
        return None
    caption = (
        "The same value further to the left was reached earlier; seconds are those "
        "spent in steps, added up."
    )
    if any(len(s.lines) > MOST for s, _ in some):
        caption += " Long runs are shown as means over bins of steps."
    if left_out:
        caption += f" {left_out} more were logged and are not drawn."
    keys = [Key(s.title, (colour,), "line") for s, colour in some]
    keys = keys if len(subjects) > 1 else []
    heading = "Loss and scores against time" if len(panels) > 1 else "Loss against time"
    return Section("learning", heading, caption, panels, keys, is_paired=True)


def _score_panel(kind: str, name: str, data: list[dict[str, Any]]) -> Panel:
    words = {"loss": "loss", "logged": name, "metrics": f"{name} (mean over the step)"}
    layout = {
        "xaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": label(name) if name else "loss"}},
        "hovermode": "closest",
    }
    is_log = False if kind == "loss" else None
    return Panel(data, layout, height=300, heading=words[kind], is_log=is_log)


def _against(subject: Subject, colour: str, kind: str, name: str) -> dict[str, Any]:
    elapsed = np.cumsum([line.seconds for line in subject.lines])
    values = np.array([_value(line, kind, name) for line in subject.lines])
    known = np.isfinite(values)
    x, y = elapsed[known], values[known]
    if not y.size:
        return {}
    cuts = bins(len(y))
    sparse = len(cuts) <= 60
    return {
        "type": "scatter",
        "mode": "lines+markers" if sparse else "lines",
        "name": label(subject.title),
        "x": numbers(float(x[cut][-1]) for cut in cuts),
        "y": numbers(means(y, cuts)),
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "%{y:.4g} after %{x:.3g} s<extra>%{fullData.name}</extra>",
    }


def _value(line: StepLine, kind: str, name: str) -> float:
    found = line.loss if kind == "loss" else getattr(line, kind).get(name)
    return np.nan if found is None else found


# -- work ----------------------------------------------------------------------------


def work_per_step(subjects: Sequence[Subject]) -> Section | None:
    """Return how many parts were computed in a step, and how many were not needed."""
    some = [pair for pair in _with_steps(subjects) if pair[0].kind != "recording"]
    some = [(s, colour) for s, colour in some if s.combined.any()]
    if not some:
        return None
    figures = [summary(subject) for subject, _ in some]
    work = np.array([f.work / f.parts for f in figures])
    wasted = np.array([f.wasted / f.parts for f in figures])
    titles = [folded(f.title) for f in figures]
    data = [
        _bars(titles, work - wasted, "in the sum", [colour for _, colour in some]),
        _bars(titles, wasted, "copies that were not needed", _WASTED),
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.4,
        "xaxis": {"title": {"text": "parts computed / parts"}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True},
    }
    heard = "; ".join(
        f"“{f.title}” {number_text(f.messages)}" if len(figures) > 1
        else number_text(f.messages)
        for f in figures
    )  # fmt: skip
    caption = (
        "What speed was paid with: 1 is every part computed once. Parts known to be "
        "finished are counted; a late worker may have done more. "
        f"Messages heard in a step: {heard}."
    )
    panel = Panel(data, layout, height=110 + 44 * len(figures))
    keys = [
        Key("in the sum", tuple(dict.fromkeys(colour for _, colour in some))),
        Key("copies that were not needed", (_WASTED,)),
    ]
    return Section("work", "Work per step", caption, [panel], keys)


def _bars(titles: list[str], share: Floats, name: str, colour: Any) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": titles,
        "x": numbers(share),
        "marker": {"color": colour},
        "hovertemplate": f"%{{y}}: %{{x:.3g}} {name}<extra></extra>",
    }
