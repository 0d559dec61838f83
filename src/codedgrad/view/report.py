"""Reports: a page about runs, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from codedgrad.errors import InvalidOptions
from codedgrad.trace.files import write_whole
from codedgrad.view.page.page import page
from codedgrad.view.reading import read_subjects
from codedgrad.view.subjects import Subject

_PAGE = "<!doctype html>"


def write_page(runs: Sequence[Path | str], out: Path | str, title: str = "") -> None:
    """Write a page about some runs: who was late, and what that cost.

    The file is one self-contained HTML page, replaced at once or not at all.

    Args:
        runs: Runs, traces, recordings or probes; several are compared.
        out: The file, which ends in .html.
        title: What stands at the top; by default the names of the runs.

    Raises:
        InvalidOptions: If the file cannot be written, or plotly is not installed; else
            as `read_subject` raises.
    """
    check_page(Path(out))
    save_page(read_subjects(runs), Path(out), title)


def save_page(subjects: Sequence[Subject], out: Path, title: str = "") -> None:
    """Write the page about what has been read already."""
    check_page(out)
    save_text("the page", out, page(subjects, title))


def check_page(file: Path) -> None:
    """See that a page can be written to a file, which ends in .html."""
    check_target("the page", file, ".html", _PAGE)


def default_page(path: Path) -> Path:
    """Return where the page goes if nobody says: in the folder, or beside the file."""
    return (path if path.is_dir() else path.parent) / "report.html"


def check_target(what: str, file: Path, ending: str, begins: str) -> None:
    """See that a file can be written, and that nothing else would be lost by it.

    Args:
        what: For people, such as `--out`.
        file: The file.
        ending: What its name must end in.
        begins: What a file of its kind begins with; another one is not overwritten.
    """
    folder, where = file.parent, f"{what} {file}"
    if file.suffix.lower() != ending:
        raise InvalidOptions(where, f"does not end in {ending}", "another name")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        advice = "a file in a folder that exists and is yours"
        raise InvalidOptions(where, "cannot be written", advice)
    if file.is_dir():
        raise InvalidOptions(where, "is a folder", "a file")
    try:
        if file.exists():
            with file.open("rb") as there:
                start = there.read(len(begins))
            if start and start != begins.encode():
                problem = "is there and is something else"
                raise InvalidOptions(where, problem, "another name")
    except OSError as error:
        problem = f"cannot be replaced ({error.strerror})"
        raise InvalidOptions(where, problem, "another name") from None


def save_text(what: str, file: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    try:
        write_whole(file, text.encode())
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InvalidOptions(f"{what} {file}", problem, "another file") from None
