"""`codedgrad report`: what came of a run, on one page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from codedgrad.cli.echo import PATHS_HELP, WIDTH, echo, echo_wrapped
from codedgrad.view import (
    Subject,
    caveats,
    check_page,
    check_scalars,
    check_timeline,
    default_page,
    read_subjects,
    save_page,
    summary,
    summary_table,
    verdict_on,
    write_scalars,
    write_timeline,
)


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help=f"{PATHS_HELP} Several are compared.",
            metavar="PATH...",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page; default report.html in the first run, or beside it.",
            metavar="FILE.html",
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Also write a time line, for ui.perfetto.dev or chrome://tracing.",
            metavar="FILE.json",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            help="Also write scalars for TensorBoard, a folder a run.", metavar="DIR"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show what came of a run: who was late, and what that cost, on one page.

    The page is one HTML file that needs no network: time per step, who answered when,
    who was heard, loss and scores against time, and work. Of several runs it is a
    comparison. Only measured runs are compared; what waiting for all would have taken,
    in a run that did not wait for all, is an estimate with a range.

    Example: codedgrad report runs/waiting runs/coded --out both.html
    """
    if out is not None:
        check_page(out)
    if timeline is not None:
        check_timeline(timeline)
    with _reading() as reading:
        subjects = read_subjects(paths, reading)
    file = default_page(paths[0]) if out is None else out
    check_page(file)
    if tensorboard is not None:
        check_scalars(subjects, tensorboard)
    save_page(subjects, file)
    if timeline is not None:
        write_timeline(subjects, timeline)
    if tensorboard is not None:
        write_scalars(subjects, tensorboard)
    written = {"page": file, "timeline": timeline, "tensorboard": tensorboard}
    show = _show_machines if as_json else _show_people
    show(subjects, {k: str(v) for k, v in written.items() if v is not None})


@contextmanager
def _reading() -> Iterator[Callable[[Path], None]]:
    """Say on a terminal what is being read; a long trace takes a while."""
    console = Console(stderr=True)
    with console.status("reading") as status:
        yield lambda path: status.update(Text(f"reading {path.name!r}"))


def _show_machines(subjects: Sequence[Subject], written: dict[str, str]) -> None:
    told = {
        "verdict": verdict_on(subjects),
        "caveats": caveats(subjects),
        "runs": [summary(subject).for_machines() for subject in subjects],
        **written,
    }
    typer.echo(json.dumps(told, allow_nan=False))


def _show_people(subjects: Sequence[Subject], written: dict[str, str]) -> None:
    console = Console(width=WIDTH)
    with console.capture() as shown:
        console.print(summary_table([summary(subject) for subject in subjects]))
    lines = [line.rstrip() for line in shown.get().splitlines()]
    meaning = (
        "mean step: with publishing and decoding; wait all: what waiting for all "
        "workers would have taken, and saved: both up to a step's decision; work: "
        "parts computed"
    )
    for line in (*lines, "", meaning, "", verdict_on(subjects), *caveats(subjects)):
        echo_wrapped(line)
    echo("")
    for what, where in written.items():
        echo(f"{what}: {where}")
