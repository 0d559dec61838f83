"""`codedgrad demo`: real training under stragglers, waiting for all and coded."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from codedgrad.core import Scheme
from codedgrad.delays import Delays, Times, draw
from codedgrad.delays import build as build_delays
from codedgrad.errors import InvalidFolder, InvalidOptions
from codedgrad.scenario.delays_text import table_of
from codedgrad.scenario.scenario import is_change
from codedgrad.schemes import build, uncoded
from codedgrad.view import LiveView, write_page

if TYPE_CHECKING:
    from codedgrad.torch.rehearsal import Rehearsal, Trial

_DELAYS = (
    "shifted-exponential(floor=0.08, mean=0.02)",
    "sticky(factor=10, enter=0.1, leave=0.2, workers=[2, 5])",
)
_BATCH = {"digits": 256}  # others: a larger one
_WAITING = "waiting for all"


def demo(
    scheme: Annotated[
        str,
        typer.Option(
            help="What to compare with waiting for all; your own: FILE.py:NAME."
        ),
    ] = "auto",
    workers: Annotated[int, typer.Option(help="Processes.", min=2, max=64)] = 8,
    steps: Annotated[int, typer.Option(help="Of each run.", min=1)] = 80,
    data: Annotated[
        str, typer.Option(help="digits, fashion-mnist, or the latter's folder.")
    ] = "digits",
    delays: Annotated[
        list[str] | None,
        typer.Option(help="What makes workers slow; as for simulate. May be repeated."),
    ] = None,
    kill: Annotated[bool, typer.Option(help="Kill a worker process half-way.")] = True,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    run_dir: Annotated[
        Path | None, typer.Option(help="For records; default runs/demo-<time>.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Train a real network twice, on workers some of which are slow.

    Once the root waits for all workers in every step, as synchronous training does,
    and once it takes the gradient from whoever is fast enough: that of all samples, to
    rounding. Same network, samples in every step, seed and stragglers. Workers are real
    processes; their slowness is sleep, put in on purpose and equal for both, so that
    two cores can show eight machines.

    Writes both runs and a page to look at into a folder.

    Example: codedgrad demo --steps 200 --data fashion-mnist --scheme "cyclic(2)"
    """
    law, times = _times(delays, workers, steps, seed)
    built = build(scheme, workers, run_files=True)
    schemes = {_WAITING: _waiting(built), built.name: built}
    rehearsal = _rehearsal(data, steps, seed, times, (workers - 2, steps // 2), kill)
    folder = _folder(run_dir)
    console = Console(stderr=as_json, highlight=False, width=None)
    console.print(_opening(rehearsal, schemes, law, seed), soft_wrap=True)
    trials = _run(rehearsal, schemes, folder, console)
    page = folder / "report.html"
    write_page([trial.path for trial in trials], page, "Waiting for all, and not")
    if as_json:
        typer.echo(json.dumps(_facts(rehearsal, trials, law, seed, page)))
        return
    console.print(_table(rehearsal, trials))
    console.print(_verdict(trials, page), soft_wrap=True)


def _waiting(scheme: Scheme) -> Scheme:
    """Return waiting for all with the parts of a scheme, so that samples are alike."""
    return uncoded(scheme.workers, parts=scheme.parts)


def _times(
    delays: list[str] | None, workers: int, steps: int, seed: int
) -> tuple[Delays, Times]:
    usual = _DELAYS if workers > 5 else (_DELAYS[0], _DELAYS[1].replace("2, 5", "1"))
    tables = [table_of(text) for text in delays or usual]
    if is_change(tables[0]):  # the demo's own parts take next to no time to change
        tables.insert(0, table_of(_DELAYS[0]))
    law = build_delays(tables)
    return law, draw(law, steps=steps, workers=workers, seed=seed)


def _rehearsal(
    data: str,
    steps: int,
    seed: int,
    times: Times,
    kill: tuple[int, int],
    kills: bool,
) -> Rehearsal:
    try:
        from codedgrad.torch.pictures import pictures
        from codedgrad.torch.rehearsal import Rehearsal
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        advice = 'pip install "codedgrad[demo]"'
        problem = "trains with PyTorch, which is not installed"
        raise InvalidOptions("demo", problem, advice) from None
    return Rehearsal(
        data=pictures(data),
        steps=steps,
        batch_size=_BATCH.get(data, 512),
        seed=seed,
        times=times,
        kill=kill if kills else None,
    )


def _folder(given: Path | None) -> Path:
    folder = given or Path("runs", f"demo-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidFolder(f"--run-dir {folder}", "is there already", "another name")
    return folder


def _run(
    rehearsal: Rehearsal,
    schemes: dict[str, Scheme],
    folder: Path,
    console: Console,
) -> list[Trial]:
    trials = []
    workers = next(iter(schemes.values())).workers
    with LiveView(list(schemes), rehearsal.steps, workers, console) as view:
        for number, (label, built) in enumerate(schemes.items()):
            view.begin(label)
            path = folder / ("coded" if number else "waiting")
            trials.append(rehearsal.run(built, path, label, view.step))
    return trials


def _opening(
    rehearsal: Rehearsal, schemes: dict[str, Scheme], law: Delays, seed: int
) -> str:
    data = rehearsal.data
    workers = next(iter(schemes.values())).workers
    samples, pixels = data.train[0].shape
    said = [
        f"[bold]{data.name}[/bold]: {samples:,} pictures of {pixels} pixels, "
        f"{rehearsal.batch_size} a step; {workers} worker processes, seed {seed}",
        f"put in on purpose: {escape(str(law))}",
    ]
    if rehearsal.kill is not None:
        worker, step = rehearsal.kill
        said.append(f"worker {worker} is killed in step {step}")
    return "\n".join(said) + "\n"


def _table(rehearsal: Rehearsal, trials: list[Trial]) -> Table:
    goal = rehearsal.data.goal
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for trial in trials:
        name = _WAITING if trial is trials[0] else trial.scheme
        table.add_column(name, justify="right")
    facts = [_figures(trial, goal) for trial in trials]
    for name, form in (
        ("mean time per step [s]", "{:.3f}"),
        ("99th percentile [s]", "{:.3f}"),
        (f"time to {goal:.0%} accuracy [s]", "{:.1f}"),
        ("accuracy at the end [%]", "{:.1f}"),
        ("parts computed per step", "{:.1f}"),
        ("messages per step", "{:.1f}"),
        ("off single-process gradients", "{:.0e}"),
    ):
        key = name.replace(f"time to {goal:.0%} accuracy", "time to goal")
        cells = [_cell(form, fact[key]) for fact in facts]
        table.add_row(escape(name), *cells)
    return table


def _cell(form: str, value: float) -> str:
    return form.format(value) if math.isfinite(value) else "not reached"


def _figures(trial: Trial, goal: float) -> dict[str, float]:
    return {
        "mean time per step [s]": float(trial.seconds.mean()),
        "99th percentile [s]": float(np.quantile(trial.seconds, 0.99)),
        "time to goal [s]": trial.seconds_to(goal),
        "accuracy at the end [%]": 100 * float(trial.score[-1]),
        "parts computed per step": float(np.mean([r.work for r in trial.reports])),
        "messages per step": float(np.mean([r.messages for r in trial.reports])),
        "off single-process gradients": trial.deviation,
    }


def _verdict(trials: list[Trial], page: Path) -> str:
    waiting, coded = (float(trial.seconds.mean()) for trial in trials)
    if coded < waiting:
        said = f"{trials[1].scheme} took {waiting / coded:.1f} times less time per step"
    else:
        said = (
            f"{trials[1].scheme} took {coded / waiting:.1f} times more time per step: "
            "it does not pay here"
        )
    return f"\n{said}.\nBoth are measured; the slowness was put in.\nLook at {page}"


def _facts(
    rehearsal: Rehearsal, trials: list[Trial], law: Delays, seed: int, page: Path
) -> dict[str, Any]:
    goal = rehearsal.data.goal
    runs = []
    for trial in trials:
        figures = {
            key: value if math.isfinite(value) else None
            for key, value in _figures(trial, goal).items()
        }
        runs.append({"scheme": trial.scheme, "run": str(trial.path), **figures})
    return {
        "data": rehearsal.data.name,
        "seed": seed,
        "steps": rehearsal.steps,
        "goal": goal,
        "delays": str(law),
        "runs": runs,
        "report": str(page),
    }
