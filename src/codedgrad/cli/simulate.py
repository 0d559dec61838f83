"""`codedgrad simulate`: would it pay on this cluster?"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer
from rich.console import Console

from codedgrad.advise.plan.sources import times_from
from codedgrad.cli.bars import bar
from codedgrad.cli.echo import PATHS_HELP, WIDTH, echo_wrapped
from codedgrad.core import Scheme
from codedgrad.delays import MODELS, Times, draw
from codedgrad.errors import InvalidOptions
from codedgrad.scenario.delays_text import PATHS, keys_of
from codedgrad.scenario.scenario import Flags, Scenario, scenario_from_flags
from codedgrad.sim import Bounds, bounds_of, compare, header_of, run_events
from codedgrad.trace import Recorder
from codedgrad.view import (
    ComparisonRow,
    about_bounds,
    check_plot,
    compared,
    facts,
    plot,
    table,
    verdict,
)
from codedgrad.view.comparison import percent

Advanced: TypeAlias = Callable[[int], None]


_WHAT = (
    "All schemes meet the same workers. The table says how long a step takes with "
    "each, and whether the difference to the first one is more than chance. Nothing "
    "is trained, and no worker process is started."
)
_DELAYS = (
    "codedgrad schemes lists the schemes and their options. Delays are a law, then "
    "changes to it, each with a --delays of its own. The law is a PATH (its times are "
    "replayed) or, as every change, one of these kinds with its keys:"
)


def help_text() -> str:
    """Return the help of the command, with the kinds of delays there are."""
    kinds = "\n".join(
        f"  {kind}({', '.join(keys_of(kind))})\n      {_summary(model)}"
        for kind, model in MODELS.items()
    )
    return f"""Compare schemes on simulated workers: would coding help on your cluster?

{_WHAT}

A PATH is {PATHS}. A recording has a row per step and a column per worker, in seconds.

On the times that workers took in a run, with the scheme of the run among others:

  codedgrad simulate runs/first

Three schemes on a recorded job of 4 workers, one of them slow:

  codedgrad simulate --delays AR --scheme uncoded \\
      --scheme "fractional(tolerance=1)" --scheme "cyclic(tolerance=1)"

The same with 8 workers, of which worker 0 is always 10 times as slow:

  codedgrad simulate --workers 8 \\
      --delays "sticky(factor=10, workers=0, always=true)" --scheme uncoded \\
      --scheme "fractional(tolerance=1)" --scheme "cyclic(tolerance=1)"

A scheme of your own, the class or function Mine of my_scheme.py:

  codedgrad simulate --workers 8 --scheme uncoded \\
      --scheme "./my_scheme.py:Mine(option=3)"

{_DELAYS}

{kinds}
"""


def _summary(model: type) -> str:
    return (model.__doc__ or "").partition("\n")[0]


def simulate(
    path: Annotated[
        Path | None,
        typer.Argument(
            help=f"{PATHS_HELP} Or a scenario (.toml).",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers; default 8, or as recorded.")
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            help="A scheme to compare, such as cyclic(tolerance=2); again for more. "
            "The first is what the others are compared with. Default: uncoded, "
            "fractional(tolerance=1), cyclic(tolerance=1), and the scheme of the run "
            "whose times are replayed. Training uses auto, which takes some 10 ms a "
            "step to simulate. A scheme of your own is the name under which its "
            "package registers it, or FILE.py:NAME(option=value), which runs the file.",
            metavar="TEXT",
        ),
    ] = None,
    delays: Annotated[
        list[str] | None,
        typer.Option(help="A law, or a change to it; again for more.", metavar="TEXT"),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Of a recorded time, the share that grows with the load, 0 to 1; "
            "default 1."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="In a run; default 1000, or as recorded.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Independent runs; default 1.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the delays; default 0.")] = None,
    drain: Annotated[
        bool | None,
        typer.Option(
            "--drain/--no-drain",
            help="Late workers finish the part in hand first (default), or stop at "
            "once: ideal, and fast to simulate.",
        ),
    ] = None,
    latency: Annotated[
        float | None, typer.Option(help="Seconds of a message, each way; default 0.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="What messages go through, seconds: port=0.1, latency=0.05, down=0.1; "
            "or uplink=fair, slot=0.01, seconds=0.1.",
            metavar="TEXT",
        ),
    ] = None,
    pieces: Annotated[
        int | None,
        typer.Option(help="Parts for each worker, where a scheme does not say."),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Show how far each scheme is from the best possible: its time over "
            "that of whoever knows all delays beforehand.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    plot_file: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Draw it: a .png, .svg or .pdf file.", metavar="FILE"
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the events of the first run, one file a scheme.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Compare schemes on simulated workers."""
    is_scenario = path is not None and path.suffix.lower() == ".toml"
    recorded: list[Mapping[str, object]] = []
    if path is not None and not is_scenario:
        recorded = [{"kind": "replay", "path": str(path)}]
    flags = Flags(
        workers=workers,
        steps=steps,
        runs=runs,
        seed=seed,
        schemes=scheme or (),
        delays=[*recorded, *(delays or ())],
        share=share,
        pieces=pieces,
        drain=drain,
        latency=latency,
        network=network,
    )
    asked = scenario_from_flags(flags, path if is_scenario else None, times_from)
    if plot_file is not None:
        check_plot(plot_file)
    files = {} if trace is None else _trace_files(asked, trace)
    try:
        _run(asked, _Outputs(plot_file, trace, files, bound, as_json))
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None


@dataclass(frozen=True, slots=True)
class _Outputs:
    """What is made of a comparison, besides or instead of a table."""

    plot: Path | None
    trace: Path | None
    files: dict[int, str]
    bound: bool
    as_json: bool


def _run(asked: Scenario, wanted: _Outputs) -> None:
    total = asked.steps * (asked.runs * len(asked.schemes) + len(wanted.files))
    titled = [asked.title] if asked.title else []
    with _progress(total) as advanced:
        results = compare(
            asked.schemes,
            asked.delays,
            steps=asked.steps,
            runs=asked.runs,
            seed=asked.seed,
            machine=asked.machine,
            advanced=advanced,
        )
        rows = compared(results, _bounds(asked) if wanted.bound else None)
        lines = facts(rows, asked.delays, asked.machine, asked.seed)
        with _traced(asked, wanted.trace, wanted.files, advanced) as publish:
            if wanted.plot is not None:
                plot(results, wanted.plot, [*titled, *lines])
            publish()
    if wanted.as_json:
        typer.echo(json.dumps(_for_machines(asked, rows), allow_nan=False))
    else:
        _print(asked, rows, [*titled, *lines])


def _bounds(asked: Scenario) -> list[Bounds]:
    return bounds_of(
        asked.schemes,
        asked.delays,
        steps=asked.steps,
        runs=asked.runs,
        seed=asked.seed,
    )


# -- what people see -----------------------------------------------------------------


def _print(
    asked: Scenario, rows: Sequence[ComparisonRow], lines: Sequence[str]
) -> None:
    console = Console(width=WIDTH)
    with console.capture() as shown:
        console.print(table(rows))
    known = [row.distance for row in rows if row.distance is not None]
    gave_up = any(row.figures["gave_up"] for row in rows)
    bound = about_bounds(known, asked.machine, gave_up) if known else ()
    after = (*_lost(asked, rows), *_noise(rows), *bound, verdict(rows))
    for line in (*lines, *asked.notes, "", *shown.get().splitlines(), "", *after):
        echo_wrapped(line.rstrip())


def _noise(rows: Sequence[ComparisonRow]) -> list[str]:
    known = [r for row in rows if (r := row.ratio) is not None and r.blocks > 1]
    if not known:
        return []
    of = "runs" if known[0].over_runs else "stretches of steps"
    gave_up = any(row.figures["gave_up"] for row in rows)
    over = ", over steps that both finished" if gave_up else ""
    text = f"vs first: below 1 is faster{over}; ± its standard error"
    if not all(ratio.is_clear for ratio in known):
        text += "; ~ no clear difference"
    return [f"{text} ({known[0].blocks} {of})"]


def _lost(asked: Scenario, rows: Sequence[ComparisonRow]) -> list[str]:
    """Say who gave steps up, and why."""
    gave_up = {str(row): row.figures["gave_up"] for row in rows}
    if not any(gave_up.values()):
        return []
    dead = np.flatnonzero(np.isinf(_first_times(asked).unit).any(axis=0)).tolist()
    named = ", ".join(map(str, dead))
    why = "the others could not give the sum"
    if len(dead) == 1:
        why = f"worker {named} was dead and {why}"
    elif dead:
        why = f"workers {named} were dead and {why}"
    return [
        f"{name} gave up {percent(share)} of its steps: {why}"
        for name, share in gave_up.items()
        if share
    ]


@contextmanager
def _progress(total: int) -> Iterator[Advanced]:
    """Show a bar on a terminal once the work has taken a second."""
    done = 0
    with bar("simulating", "steps") as shown:

        def advanced(steps: int) -> None:
            nonlocal done
            done += steps
            shown(done, total)

        yield advanced


# -- what machines see ---------------------------------------------------------------


def _for_machines(asked: Scenario, rows: Sequence[ComparisonRow]) -> dict[str, object]:
    machine = asked.machine
    return {
        "scenario": {
            "title": asked.title,
            "workers": asked.workers,
            "parts": {str(row): row.scheme.parts for row in rows},
            "steps": asked.steps,
            "runs": asked.runs,
            "seed": asked.seed,
            "delays": str(asked.delays),
            "machine": {
                "drain": machine.drain,
                "progress": machine.progress,
                "latency": machine.latency,
                "network": None if machine.network is None else asdict(machine.network),
            },
            "notes": list(asked.notes),
        },
        "results": [_row_for_machines(row) for row in rows],
        "verdict": verdict(rows),
    }


def _row_for_machines(row: ComparisonRow) -> dict[str, object]:
    ratio, far = row.ratio, row.distance
    return {
        "name": str(row),
        "rule": row.rule,
        "tolerance": row.scheme.tolerance,
        "parts": row.scheme.parts,
        "load": row.load,
        "by_events": row.result.by_events,
        **{key: _finite(value) for key, value in row.figures.items()},
        "ratio": 1.0 if ratio is None else _finite(ratio.value),
        "ratio_standard_error": None if ratio is None else _finite(ratio.error),
        "ratio_is_clear": None if ratio is None else ratio.is_clear,
        "fluid_ratio": None if far is None else _finite(far.fluid),
        "whole_ratio": None if far is None else _finite(far.whole),
        "bound_is_comparable": None if far is None else far.is_comparable,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- events --------------------------------------------------------------------------


def _trace_files(asked: Scenario, folder: Path) -> dict[int, str]:
    """Return a file name for every scheme, by its number; none may exist yet."""
    if not folder.name:
        raise InvalidOptions(
            f"--trace {folder}", "has no name", "a folder such as runs"
        )
    if folder.exists() and not folder.is_dir():
        raise InvalidOptions(f"--trace {folder}", "is a file", "a folder")
    near = _nearest(folder)
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise InvalidOptions(f"--trace {folder}", "cannot be written", "another folder")
    files: dict[int, str] = {}
    for number, scheme in enumerate(asked.schemes):
        plain = re.sub(r"[^\w.=]+", "-", scheme.name).strip("-")
        name = f"{plain}.jsonl"
        if name in files.values():
            name = f"{plain}-{number + 1}.jsonl"
        if (folder / name).exists():
            problem = f"{name} is there already"
            raise InvalidOptions(f"--trace {folder}", problem, "another folder")
        files[number] = name
    return files


def _nearest(folder: Path) -> Path:
    """Return the folder itself, or the nearest one above it that exists."""
    whole = folder.absolute()
    return next(path for path in (whole, *whole.parents) if path.exists())


def _first_times(asked: Scenario) -> Times:
    """Return the times of the first run, as `compare` draws them."""
    return draw(asked.delays, steps=asked.steps, workers=asked.workers, seed=asked.seed)


@contextmanager
def _traced(
    asked: Scenario, folder: Path | None, files: dict[int, str], advanced: Advanced
) -> Iterator[Callable[[], None]]:
    """Write the traces where nobody sees them; what is yielded shows them."""
    if folder is None:
        yield lambda: None
        return
    hidden = Path(tempfile.mkdtemp(prefix=".codedgrad-", dir=_nearest(folder)))
    try:
        times = _first_times(asked)
        for number, name in files.items():
            _record(asked, asked.schemes[number], times, hidden / name, advanced)
        yield lambda: _publish(hidden, folder)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _record(
    asked: Scenario, scheme: Scheme, times: Times, file: Path, advanced: Advanced
) -> None:
    machine = asked.machine
    note = f"delays: {asked.delays}"
    header = header_of(scheme, times, machine, asked.seed, note)
    with Recorder(file, header) as record:
        run_events(scheme, times, machine, advanced, watch=record)


def _publish(hidden: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(hidden.iterdir()):
            os.replace(file, folder / file.name)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InvalidOptions(f"--trace {folder}", problem, "another folder") from None
