"""Who answered when, and who was heard: worker by worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codedgrad.view.page.panels import Key, Panel, Section, bins, label, numbers, span
from codedgrad.view.subjects import Fate, Floats, Subject
from codedgrad.view.summaries import seconds_text

_CELLS = 60_000  # of all heat maps of a page
_ROWS = 500  # workers shown, at most
_FEWEST = 20  # columns, however many workers there are
_HEARD = ("#e4eff8", "#a9cde8", "#5fa3d3", "#1f6fae", "#083a6b")
_LATE = ("#ffd8a6", "#f3a54a", "#d97706", "#8f4700")
_ONE = {Fate.LOST: "#b3264f", Fate.FAILED: "#a83fb0", Fate.SPARED: "#c3cad4"}
_WORDS = {
    Fate.HEARD: "heard",
    Fate.LATE: "late",
    Fate.LOST: "lost",
    Fate.FAILED: "sent what is not finite, or failed",
    Fate.SPARED: "not asked, or not needed",
}


def answers(subjects: Sequence[Subject]) -> Section | None:
    """Return the heat maps: seconds until every worker answered, in every step."""
    some = [_crowd(subject) for subject in subjects if subject.reports]
    if not some:
        return None
    limits = span([subject.answers for subject in some])
    maps = [_Map(subject, _CELLS // len(some), limits) for subject in some]
    panels = [each.panel(heading=len(subjects) > 1) for each in maps]
    caption = (
        "A row that stays darker than the others, or orange, is a slow worker; such a "
        "column is a slow step."
    )
    if any((subject.fates == Fate.LATE).any() for subject in some):
        caption += (
            " A late worker is shown with what an equal share of the parts would have "
            "taken it, or at least so much where it was cut off."
        )
    binned = {each.size for each in maps if each.size > 1}
    if binned:
        caption += (
            f" Every column stands for {' or '.join(map(str, sorted(binned)))} steps: "
            "what happened most often in them, and its mean."
        )
    caption += _left_out(subjects)
    heading = "When every worker answered"
    return Section("answers", heading, caption, panels, _keys(some, limits))


def _crowd(subject: Subject) -> Subject:
    """Return a subject of no more workers than can be shown: those heard least."""
    if len(subject.workers) <= _ROWS:
        return subject
    heard = (subject.fates == Fate.HEARD).sum(axis=0)
    keep = np.sort(np.argsort(heard, kind="stable")[:_ROWS])
    return replace(
        subject,
        workers=tuple(subject.workers[worker] for worker in keep),
        answers=subject.answers[:, keep],
        is_bound=subject.is_bound[:, keep],
        fates=subject.fates[:, keep],
        losses=tuple(
            (row, int(np.searchsorted(keep, worker)))
            for row, worker in subject.losses
            if worker in keep
        ),
    )


def _left_out(subjects: Sequence[Subject]) -> str:
    if all(len(subject.workers) <= _ROWS for subject in subjects):
        return ""
    return f" Of many workers only the {_ROWS} that were heard least are shown."


def _keys(some: Sequence[Subject], limits: tuple[float, float]) -> list[Key]:
    seen = {Fate(value) for s in some for value in np.unique(s.fates)}
    low, high = map(seconds_text, limits)
    keys = [Key(f"heard after {low} to {high}", _HEARD)]
    if Fate.LATE in seen:
        keys.append(Key("late, darker is longer", _LATE))
    keys += [Key(_WORDS[f], (c,)) for f, c in _ONE.items() if f in seen]
    if any(subject.losses for subject in some):
        keys.append(Key("lost just then", (_ONE[Fate.LOST],), "cross"))
    return keys


class _Map:
    """A heat map of one subject: what happened most often in every bin of steps."""

    def __init__(
        self, subject: Subject, cells: int, limits: tuple[float, float]
    ) -> None:
        self.subject = subject
        self.limits = limits
        steps, workers = subject.fates.shape
        most = max(_FEWEST, cells // workers)
        cuts = bins(steps, most)
        self.size = cuts[0].stop
        self.firsts = [int(subject.steps[cut][0]) for cut in cuts]
        self.fates, self.seconds, self.is_bound = _typical(subject, cuts)

    def panel(self, heading: bool) -> Panel:
        data = []
        for fate in Fate:
            if (self.fates == fate).any():
                data += self._traces(fate)
        if self.subject.losses:
            data.append(self._crosses())
        layout = {
            "xaxis": {"title": {"text": "step"}, "showgrid": False, **self._ticks()},
            "yaxis": {
                "title": {"text": "worker"},
                "type": "category",
                "autorange": "reversed",
                "showgrid": False,
                "automargin": True,
            },
        }
        height = min(640, 84 + max(70, 22 * len(self.subject.workers)))
        title = self.subject.title if heading else ""
        return Panel(data, layout, height=height, heading=title)

    def _crosses(self) -> dict[str, Any]:
        places = self.firsts if self._is_even() else range(len(self.firsts))
        rows, workers = zip(*self.subject.losses, strict=True)
        steps = [self.subject.reports[row].step for row in rows]
        return {
            "type": "scatter",
            "mode": "markers",
            "x": [places[row // self.size] for row in rows],
            "y": [label(self.subject.workers[worker]) for worker in workers],
            "customdata": steps,
            "marker": {
                "symbol": "x",
                "size": 9,
                "color": _ONE[Fate.LOST],
                "line": {"color": "#ffffff", "width": 1},
            },
            "hovertemplate": (
                "worker %{y} was lost, step %{customdata}<extra></extra>"
            ),
        }

    def _ticks(self) -> dict[str, Any]:
        """Return ticks for steps that do not follow each other; else none are needed.

        Cells are as wide as each other, so the place of a step is not its number then.
        """
        if self._is_even():
            return {}
        places = np.unique(np.linspace(0, len(self.firsts) - 1, 8).astype(int))
        texts = [str(self.firsts[place]) for place in places]
        return {"tickvals": places.tolist(), "ticktext": texts}

    def _is_even(self) -> bool:
        steps = self.subject.steps
        return len(steps) < 2 or bool((np.diff(steps) == 1).all())

    def _traces(self, fate: Fate) -> list[dict[str, Any]]:
        here = self.fates == fate
        if fate in _ONE:
            told = _WORDS[fate]
            return [self._trace(np.where(here, 0.0, np.nan), (_ONE[fate],) * 2, told)]
        scale = _HEARD if fate == Fate.HEARD else _LATE
        if fate == Fate.HEARD:
            return [self._timed(here, scale, "heard after %{customdata:.3g} s")]
        told = "late: about %{customdata:.3g} s for its share"
        cut = "late: cut off after %{customdata:.3g} s, at least that long"
        both = ((here & ~self.is_bound, told), (here & self.is_bound, cut))
        return [
            self._timed(cells, scale, words) for cells, words in both if cells.any()
        ]

    def _timed(
        self, here: NDArray[np.bool_], scale: tuple[str, ...], told: str
    ) -> dict[str, Any]:
        low, high = self.limits
        seconds = np.clip(self.seconds, low, None)
        trace = self._trace(np.where(here, np.log10(seconds), np.nan), scale, told)
        shown = np.where(here, self.seconds, np.nan)
        trace["customdata"] = [numbers(row) for row in shown.T]
        floor = math.log10(low)
        trace["zmin"], trace["zmax"] = floor, max(math.log10(high), floor + 1e-3)
        return trace

    def _trace(self, z: Floats, scale: tuple[str, ...], told: str) -> dict[str, Any]:
        steps = self.firsts if self._is_even() else list(range(len(self.firsts)))
        where = "worker %{y}, step %{x}" if self._is_even() else "worker %{y}"
        return {
            "type": "heatmap",
            "x": steps,
            "y": [label(name) for name in self.subject.workers],
            "z": [numbers(row) for row in z.T],
            "colorscale": [[i / (len(scale) - 1), c] for i, c in enumerate(scale)],
            "showscale": False,
            "hoverongaps": False,
            "xgap": 1 if len(steps) <= 60 else 0,
            "ygap": 1 if len(self.subject.workers) <= 40 else 0,
            "hovertemplate": f"{where}<br>{told}<extra></extra>",
        }


def _typical(
    subject: Subject, cuts: Sequence[slice]
) -> tuple[NDArray[np.int8], Floats, NDArray[np.bool_]]:
    """Return per bin and worker the fate that was most frequent, and its mean."""
    fates, answers = subject.fates, subject.answers
    if len(cuts) == len(fates):
        return fates, answers, subject.is_bound
    shape = (len(cuts), fates.shape[1])
    most, count = np.zeros(shape, np.int8), np.zeros(shape)
    mean, bound = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    for fate in Fate:
        here = fates == fate
        known = here & np.isfinite(answers)
        for number, cut in enumerate(cuts):
            often = here[cut].sum(axis=0)
            more = often > count[number]
            count[number][more], most[number][more] = often[more], fate
            sums = np.where(known[cut], answers[cut], 0.0).sum(axis=0)
            times = np.maximum(known[cut].sum(axis=0), 1)
            mean[number][more] = (sums / times)[more]
            cut_off = (subject.is_bound[cut] & here[cut]).any(axis=0)
            bound[number][more] = cut_off[more]
    return most, mean, bound


# -- shares --------------------------------------------------------------------------


def shares(subjects: Sequence[Subject]) -> Section | None:
    """Return the stacked bars: the share of steps each worker was heard, late, lost."""
    told = [s for s in subjects if s.reports and s.kind != "recording"]
    some = [_crowd(subject) for subject in told]  # a recording says nothing of that
    if not some:
        return None
    panels = [_share_panel(subject, len(subjects) > 1) for subject in some]
    seen = [f for f in Fate if any((s.fates == f).any() for s in some)]
    keys = [Key(_WORDS[fate], (_solid(fate),)) for fate in seen]
    caption = (
        "A bar that is mostly orange is a worker that the steps did without; one that "
        "is lost was not there."
    )
    if set(seen) == {Fate.HEARD}:
        caption = "Everybody was heard in every step."
    caption += _left_out(subjects)
    heading = "Who was heard"
    return Section("shares", heading, caption, panels, keys, is_paired=len(panels) > 1)


def _solid(fate: Fate) -> str:
    return {Fate.HEARD: _HEARD[2], Fate.LATE: _LATE[1]}.get(fate) or _ONE[fate]


def _share_panel(subject: Subject, heading: bool) -> Panel:
    steps = len(subject.reports)
    names = [label(name) for name in subject.workers]
    data = []
    for fate in Fate:
        counts = (subject.fates == fate).sum(axis=0)
        if counts.any():
            told = f"worker %{{x}}: {_WORDS[fate]} in %{{customdata}} of {steps} steps"
            data.append(
                {
                    "type": "bar",
                    "name": _WORDS[fate],
                    "x": names,
                    "y": numbers(100 * counts / steps),
                    "customdata": counts.tolist(),
                    "marker": {"color": _solid(fate)},
                    "hovertemplate": f"{told}<extra></extra>",
                }
            )
    layout = {
        "barmode": "stack",
        "bargap": 0.25 if len(names) <= 60 else 0,
        "xaxis": {"title": {"text": "worker"}, "type": "category"},
        "yaxis": {"title": {"text": "share of steps [%]"}, "range": [0, 100]},
    }
    title = subject.title if heading else ""
    return Panel(data, layout, height=280, heading=title)
