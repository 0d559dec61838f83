"""The page of a report: one HTML file that needs nothing else.

Whatever comes from a file is escaped where it enters the page. A content security
policy says the rest: no script runs but the two that are meant, whose hashes it names,
and nothing is ever loaded or sent.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

import codedgrad
from codedgrad.errors import InvalidOptions
from codedgrad.view.comparison import percent
from codedgrad.view.page.curves import learning, time_per_step, work_per_step
from codedgrad.view.page.panels import Key, Panel, Section, colours
from codedgrad.view.page.slow import who_was_slow
from codedgrad.view.page.workers import answers, shares
from codedgrad.view.subjects import Subject
from codedgrad.view.summaries import (
    Summary,
    number_text,
    seconds_text,
    summary,
)
from codedgrad.view.verdicts import caveats, verdict_on


def page(subjects: Sequence[Subject], title: str = "") -> str:
    """Return the page about some runs, as HTML.

    Args:
        subjects: As `read_subjects` gives them.
        title: What stands at the top; by default the names of the runs.

    Raises:
        InvalidOptions: If plotly is not installed.
    """
    library, script = _plotly(), _resource("page.js")
    made = (
        time_per_step(subjects),
        answers(subjects),
        shares(subjects),
        learning(subjects),
        work_per_step(subjects),
    )
    sections = [section for section in made if section is not None]
    panels = [panel for section in sections for panel in section.panels]
    numbers = iter(range(len(panels)))
    return Template(_resource("page.html")).substitute(
        policy=_policy(library, script),
        version=_text(codedgrad.__version__),
        title=_text(title or _title(subjects)),
        style=_resource("page.css"),
        verdict=_text(verdict_on(subjects)),
        bars=_bars(subjects),
        caveats=_notes(caveats(subjects)),
        slow=who_was_slow(subjects),
        sections="\n".join(
            _section(section, [next(numbers) for _ in section.panels])
            for section in sections
        ),
        facts=_facts(subjects),
        figures=_json([_figure(panel) for panel in panels]),
        library=library,
        script=script,
    )


def _title(subjects: Sequence[Subject]) -> str:
    names = [subject.title for subject in subjects]
    if len(names) > 3:
        return f"{len(names)} runs compared"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _plotly() -> str:
    try:
        offline = importlib.import_module("plotly.offline")
    except ImportError:
        problem = "needs plotly, which is not installed"
        advice = 'pip install "codedgrad[report]"'
        raise InvalidOptions("a report", problem, advice) from None
    source: str = offline.get_plotlyjs()
    return source.replace("</script", "<\\/script").replace("\r", "")


def _resource(name: str) -> str:
    return resources.files("codedgrad.view.page").joinpath(name).read_text("utf-8")


def _policy(*scripts: str) -> str:
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = (f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; "
        "style-src 'unsafe-inline'; img-src data: blob:"
    )


def _text(text: str) -> str:
    return html.escape(text)


def _json(value: object) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figure(panel: Panel) -> dict[str, Any]:
    return {
        "data": panel.data,
        "layout": panel.layout,
        "height": panel.height,
        "log": bool(panel.is_log),
    }


def _notes(sentences: Sequence[str]) -> str:
    notes = "\n".join(f"<p>{_text(sentence)}</p>" for sentence in sentences)
    return f'<div class="note">\n{notes}\n</div>' if sentences else ""


# -- sections ------------------------------------------------------------------------


def _section(section: Section, numbers: Sequence[int]) -> str:
    pairs = zip(section.panels, numbers, strict=True)
    paired = " paired" if section.is_paired else ""
    panels = "\n".join(_panel(panel, number, section) for panel, number in pairs)
    keys = "\n".join(map(_key, section.keys))
    first = section.panels[0]
    choice = "" if first.heading else _choice(first, numbers[0])
    top = f'<ul class="keys">\n{keys}\n</ul>{choice}' if keys else choice
    return (
        f'<section id="{_text(section.name)}">\n<h2>{_text(section.heading)}</h2>\n'
        f'<p class="caption">{_text(section.caption)}</p>\n'
        f'<div class="top">{top}</div>\n'
        f'<div class="panels{paired}">\n{panels}\n</div>\n</section>'
    )


def _panel(panel: Panel, number: int, section: Section) -> str:
    top = ""
    if panel.heading:
        choice = _choice(panel, number)
        top = f'<div class="top"><h3>{_text(panel.heading)}</h3>{choice}</div>\n'
    told = ", ".join(filter(None, (section.heading, panel.heading)))
    return (
        f'<div class="panel">\n{top}<div class="plot" id="plot{number}" '
        f'data-figure="{number}" role="img" aria-label="{_text(told)}" '
        f'style="height:{panel.height}px"></div>\n</div>'
    )


def _choice(panel: Panel, number: int) -> str:
    if panel.is_log is None:
        return ""
    choices = ("no", "linear", not panel.is_log), ("yes", "log", panel.is_log)
    buttons = "".join(
        f'<button type="button" data-plot="plot{number}" data-log="{value}" '
        f'aria-pressed="{"true" if chosen else "false"}">{text}</button>'
        for value, text, chosen in choices
    )
    return f'<div class="choice" role="group" aria-label="Scale">{buttons}</div>'


def _key(key: Key) -> str:
    return f'<li class="key">{_swatch(key)}{_text(key.text)}</li>'


def _swatch(key: Key) -> str:
    dash = {"dots": "2 4", "dashes": "7 4"}.get(key.kind, "")
    if key.kind == "cross":
        width, shape = (
            14,
            (
                f'<path d="M2 2 12 12M12 2 2 12" stroke="{key.colours[0]}" '
                'stroke-width="3"/>'
            ),
        )
    elif key.kind != "box":
        shape = (
            f'<line x1="1" x2="23" y1="7" y2="7" stroke="{key.colours[0]}" '
            f'stroke-width="3" stroke-dasharray="{dash}"/>'
        )
        width = 24
    else:
        each = 14 if len(key.colours) == 1 else 12
        width = each * len(key.colours)
        shape = "".join(
            f'<rect x="{i * each}" width="{each}" height="14" fill="{colour}"/>'
            for i, colour in enumerate(key.colours)
        )
    return f'<svg width="{width}" height="14" aria-hidden="true">{shape}</svg>'


# -- the measured bars ---------------------------------------------------------------


def _bars(subjects: Sequence[Subject]) -> str:
    """Return mean steps as bars; what was not measured is hatched, and says so."""
    figures = [summary(subject) for subject in subjects]
    rows = [
        (f.title, _basis(subject, f), f.mean_seconds, colour)
        for subject, f, colour in zip(subjects, figures, colours(subjects), strict=True)
        if f.steps > f.gave_up
    ]
    if len(subjects) == 1 and rows and not figures[0].waited_for_all:
        name, small, _, colour = rows[0]
        small = f"mean of {figures[0].steps - figures[0].gave_up} steps"
        rows = [(name, small, figures[0].step_seconds, colour)]
        told = f"an estimate, {_range(figures[0])}"
        rows.append(("waiting for all", told, figures[0].waiting_estimate, ""))
    longest = max((row[2] for row in rows), default=0.0) or 1.0
    shown = "\n".join(_bar(*row, longest) for row in rows)
    return f'<div class="bars">\n{shown}\n</div>' if rows else ""


def _basis(subject: Subject, figures: Summary) -> str:
    """Say what a mean is over; what was logged has more in it than the trace."""
    steps = f"mean of {figures.steps - figures.gave_up} steps"
    return f"{steps}, publishing and decoding included" if subject.lines else steps


def _bar(name: str, small: str, seconds: float, colour: str, longest: float) -> str:
    fill = colour or "repeating-linear-gradient(135deg,#d9902f 0 5px,#f2c485 5px 10px)"
    width = 78 * max(seconds, 0.0) / longest
    return (
        f'<div class="name">{_text(name)}<small>{_text(small)}</small></div>'
        f'<div class="track"><div class="bar" style="width:{width:.2f}%;'
        f'background:{fill}"></div>'
        f'<div class="value">{seconds_text(seconds)}</div></div>'
    )


_OF_RECORDINGS = ("mean step", "median step", "99th percentile")
"""The facts that a matrix of seconds has; it knows of no messages and no parts."""


# -- facts ---------------------------------------------------------------------------


def _facts(subjects: Sequence[Subject]) -> str:
    heads = "".join(
        f'<th scope="col"><span class="swatch" style="background:{colour}"></span>'
        f"{_text(subject.title)}</th>"
        for subject, colour in zip(subjects, colours(subjects), strict=True)
    )
    told = [_told(subject, summary(subject)) for subject in subjects]
    names = dict.fromkeys(name for each in told for name in each)
    rows = "\n".join(
        f'<tr><th scope="row">{_text(name)}</th>'
        + "".join(f"<td>{_text(each.get(name, '') or '-')}</td>" for each in told)
        + "</tr>"
        for name in names
    )
    least = 7.5 + 6.5 * len(subjects)  # narrower, and the table scrolls
    return (
        f'<table style="min-width:{least}em">\n'
        f'<thead><tr><td class="corner"></td>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )


def _told(subject: Subject, figures: Summary) -> dict[str, str]:
    n, whole = figures.workers, figures.steps > figures.gave_up
    gave_up = f", {figures.gave_up} given up" if figures.gave_up else ""
    told = {
        "scheme": subject.scheme,
        "workers": str(n),
        "parts": "" if subject.kind == "recording" else str(subject.parts),
        "steps": f"{figures.steps}{gave_up}" if figures.steps else "none has ended yet",
    }
    if whole:
        told |= _measured(subject, figures)
    told["measured by"] = subject.source
    return told | subject.facts | {"from": subject.where}


def _range(figures: Summary) -> str:
    low, high = number_text(figures.waiting_low), seconds_text(figures.waiting_high)
    return f"{low} to {high}"


def _measured(subject: Subject, figures: Summary) -> dict[str, str]:
    n, parts = figures.workers, figures.parts
    waited = figures.waited_for_all
    told = {
        "mean step": seconds_text(figures.mean_seconds),
        "of that to its decision": seconds_text(figures.step_seconds),
        "median step": seconds_text(figures.p50_seconds),
        "99th percentile": seconds_text(figures.p99_seconds),
        "waiting for all, estimate": seconds_text(figures.waiting_estimate),
        "its range": _range(figures),
        "saved per step": seconds_text(figures.saved),
        "heard per step": f"{figures.heard:.1f} of {n}",
        "late per step": f"{figures.late:.1f}",
        "lost per step": f"{figures.lost:.1f}",
        "workers lost": f"{figures.losses} times" if figures.losses else "none",
        "exact sums": percent(figures.exact),
        "parts computed per step": f"{figures.work:.1f}, {figures.work / parts:.2f}x",
        "of those not needed": f"{figures.wasted:.1f}",
        "messages per step": f"{figures.messages:.1f}",
    }
    if waited:
        told["waiting for all, estimate"] = "it waited, see mean step"
        del told["its range"], told["saved per step"]
    if subject.kind == "recording":
        told = {name: text for name, text in told.items() if name in _OF_RECORDINGS}
    if figures.loss == figures.loss:
        told["final loss"] = number_text(figures.loss)
    for name, value in figures.scores.items():
        told[f"last {name}"] = number_text(value)
    return told
