"""`codedgrad papers`: what four papers say, made anew."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from codedgrad.cli.echo import WIDTH, echo
from codedgrad.errors import InvalidOptions
from codedgrad.papers import PAPERS, Effort, Exhibit, Paper, Recipe
from codedgrad.papers.drawing import check_drawing
from codedgrad.papers.writing import check_folder, facts, write_exhibit, write_facts


def papers(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Which: {', '.join(PAPERS)}; default all.",
            metavar="[NAME]...",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs: a look, within minutes.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Not simulated: 8 real processes train a network, on Fashion-MNIST "
            "where it is installed and on digits elsewhere.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 1,
    out: Annotated[
        Path, typer.Option(help="The folder for the files.", metavar="DIR")
    ] = Path("papers"),
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Make the tables and figures of papers anew, and say what was found.

    Of every paper: its setting, tables (.csv) and figures (.png) with lines that say
    what the paper claims, what is our reconstruction and what the numbers just made
    say, and a setting in which the method does not pay. papers.json has all numbers
    (live.json those of --live). The papers' own data and machines are not available;
    what stands in for them is said.

    Example: codedgrad papers gc-dc --quick --out figures
    """
    chosen = _chosen(name)
    check_drawing()
    check_folder(out)
    files: list[Path] = []
    try:
        _run(chosen, Effort(quick=quick, seed=seed), live, out, as_json, files)
    except KeyboardInterrupt:
        left = f"{len(files)} files are in {out}" if files else "nothing was written"
        print(f"interrupted: {left}", file=sys.stderr)
        raise typer.Exit(130) from None


def _chosen(names: Sequence[str] | None) -> list[Paper]:
    chosen = dict.fromkeys(each.lower().replace("_", "-") for each in names or PAPERS)
    for given in chosen:
        if given not in PAPERS:
            close = get_close_matches(given, PAPERS, n=1)
            advice = close[0] if close else f"one of {', '.join(PAPERS)}"
            raise InvalidOptions("papers", f"there is no paper {given!r}", advice)
    return [PAPERS[each] for each in chosen]


def _run(
    chosen: Sequence[Paper],
    effort: Effort,
    live: bool,
    out: Path,
    as_json: bool,
    files: list[Path],
) -> None:
    made: list[tuple[Paper, list[Exhibit]]] = []
    recipes = {paper.name: paper.live if live else paper.recipes for paper in chosen}
    with _progress([r for each in recipes.values() for r in each]) as bar:
        for paper in chosen:
            made.append((paper, []))
            if not as_json:
                bar.aside(lambda paper=paper: _print_paper(paper, effort))  # type: ignore[misc]  # mypy knows no defaults
            for recipe in recipes[paper.name]:
                exhibit = bar.make(paper, recipe, effort)
                made[-1][1].append(exhibit)
                files += write_exhibit(out, paper, exhibit)
                if not as_json:
                    bar.aside(lambda exhibit=exhibit: _print_exhibit(exhibit))  # type: ignore[misc]  # as above
    found = facts(made, seed=effort.seed, quick=effort.quick)
    files.append(out / ("live.json" if live else "papers.json"))
    found["files"] = [str(file) for file in files]
    write_facts(files[-1], found)
    if as_json:
        typer.echo(json.dumps(found, allow_nan=False))
    else:
        _echo(f"{len(files)} files in {out}: {', '.join(f.name for f in files)}")


# -- how far it is ---------------------------------------------------------------------


class _Bar:
    """A bar on a terminal: what is made, and how long it will take."""

    def __init__(self, recipes: Sequence[Recipe], console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %, left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        total = sum(recipe.cost for recipe in recipes)
        self._task = self._bar.add_task("", total=total)
        self._is_shown = console.is_terminal
        self._before = 0.0

    def make(self, paper: Paper, recipe: Recipe, effort: Effort) -> Exhibit:
        """Make an exhibit, and show how far it is."""
        self._bar.update(self._task, description=f"{paper.name}: {recipe.name}")
        done = 0.0

        def advance(share: float) -> None:
            nonlocal done
            done = min(1.0, done + share)
            at = self._before + done * recipe.cost
            self._bar.update(self._task, completed=at)

        own = Effort(effort.quick, effort.seed, advance, effort.part)
        exhibit = recipe.make(own)
        self._before += recipe.cost
        self._bar.update(self._task, completed=self._before)
        return exhibit

    def aside(self, show: Callable[[], None]) -> None:
        """Print something while the bar is out of the way."""
        self.stop()
        show()
        self.start()

    def start(self) -> None:
        """Show it, if somebody is looking."""
        if self._is_shown:
            self._bar.start()

    def stop(self) -> None:
        """Take it away."""
        if self._bar.live.is_started:
            self._bar.stop()


@contextmanager
def _progress(recipes: Sequence[Recipe]) -> Iterator[_Bar]:
    bar = _Bar(recipes, Console(stderr=True))
    bar.start()
    try:
        yield bar
    finally:
        bar.stop()


# -- what people see -------------------------------------------------------------------


def _print_paper(paper: Paper, effort: Effort) -> None:
    _echo(f"{paper.name}: {paper.title}")
    for line in paper.lines:
        _echo(line, indent=2)
    how = "quick: few runs, large errors; " if effort.quick else ""
    _echo(f"({how}seed {effort.seed})", indent=2)
    typer.echo("")


def _print_exhibit(exhibit: Exhibit) -> None:
    _echo(f"-- {exhibit.title}")
    typer.echo("")
    console = Console(width=WIDTH)
    with console.capture() as shown:
        console.print(_table(exhibit))
    for line in shown.get().splitlines():
        _echo(line)
    typer.echo("")
    for line in exhibit.lines:
        _echo(line, indent=2)
    typer.echo("")


def _table(exhibit: Exhibit) -> Table:
    table = exhibit.table
    shown = [(i, c) for i, c in enumerate(table.columns) if c.is_shown]
    apart = 2 if len(shown) < 7 else 1
    drawn = Table(box=None, pad_edge=False, padding=(0, apart, 0, 0))
    for i, column in shown:
        head = Text(column.name + (f"\n[{column.unit}]" if column.unit else ""))
        drawn.add_column(head, justify="right" if i else "left", no_wrap=not i)
    for row in table.rows:
        drawn.add_row(*(Text(column.text(row[i])) for i, column in shown))
    return drawn


def _echo(text: str, indent: int = 0) -> None:
    """Print what fits, and what standard output can show; some know ASCII only."""
    text = text.rstrip()
    if indent or len(text) > WIDTH:
        begin, later = " " * indent, " " * (indent + 2)
        text = textwrap.fill(
            text,
            WIDTH,
            initial_indent=begin,
            subsequent_indent=later,
            break_on_hyphens=False,
        )
    echo(text)
