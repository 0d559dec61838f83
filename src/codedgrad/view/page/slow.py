"""Which workers were slow, as a section of the page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace

from codedgrad.advise.slow.sentences import HEADS, rest, rows, said
from codedgrad.advise.slow.slowness import who_is_slow
from codedgrad.advise.slow.times import SecondsByStep, paces_of_matrix, paces_of_trace
from codedgrad.advise.slow.verdicts import Slowness
from codedgrad.delays import Matrix
from codedgrad.view.subjects import Subject, shown

_CAPTION = (
    "Against the others, per part and step by step; what is told is clearly more than "
    "chance and more than 15 %. Now: the others' time over its own, of the last ten "
    "steps. Best: its own best stretch over that. 1 is as it should be."
)
_ROWS = 50  # of a table
_SAID = 3  # sentences above it


def slowness_of(subject: Subject) -> Slowness:
    """Find who was slow in a run, a trace or a recording."""
    return who_is_slow(_paces(subject))


def _paces(subject: Subject) -> SecondsByStep:
    if subject.trace is not None:
        return paces_of_trace(subject.trace)
    numbers = tuple(map(str, range(len(subject.workers))))  # names may be alike
    paces = paces_of_matrix(Matrix(subject.steps, subject.answers, numbers))
    return replace(paces, names=subject.workers)


def who_was_slow(subjects: Sequence[Subject]) -> str:
    """Return the section as HTML; empty if no worker was slow in any run.

    A recording has little else to tell, so its section also says that none was slow.
    """
    found = [(each, slowness_of(each)) for each in subjects if each.reports]
    some = [
        (subject, told)
        for subject, told in found
        if told.verdicts or subject.kind == "recording"
    ]
    if not some:
        return ""
    tables = "\n".join(
        _table(told, subject.title if len(subjects) > 1 else "")
        for subject, told in some
    )
    return (
        '<section id="slow">\n<h2>Who was slow</h2>\n'
        f'<p class="caption">{html.escape(_CAPTION)}</p>\n{tables}\n</section>'
    )


def _table(found: Slowness, title: str) -> str:
    heading = f"<h3>{html.escape(title)}</h3>\n" if title else ""
    heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in HEADS)
    listed = rows(found)
    body = "\n".join(map(_row, listed[:_ROWS]))
    more = f"{len(listed) - _ROWS} more are slow" if len(listed) > _ROWS else ""
    notes = [*said(found)[:_SAID], more, rest(found), *found.doubts]
    told = " ".join(_sentence(note) for note in notes if note)
    caption = f'{heading}<p class="caption">{html.escape(told)}</p>'
    if not listed:
        return caption
    return (
        f'{caption}\n<div class="scroll">\n'
        f'<table class="slow">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _row(cells: Sequence[str]) -> str:
    first, *others = (html.escape(shown(cell)) for cell in cells)
    data = "".join(f"<td>{cell}</td>" for cell in others)
    return f'<tr><th scope="row">{first}</th>{data}</tr>'


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
