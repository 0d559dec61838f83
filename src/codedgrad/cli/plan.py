"""`codedgrad plan`: which scheme for this cluster, or none."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from codedgrad.advise import Advice, Asked, Planned, advice_on
from codedgrad.advise import plan as make_plan
from codedgrad.advise.plan.scenario import check_scenario, write_scenario
from codedgrad.advise.plan.search import Score
from codedgrad.advise.plan.sources import Source, source_from, source_of_delays
from codedgrad.cli.bars import bar
from codedgrad.cli.echo import PATHS_HELP, WIDTH, echo_wrapped
from codedgrad.errors import InvalidOptions
from codedgrad.scenario.network_text import network_of, network_table
from codedgrad.sim import Machine

_LABEL = 26  # columns for the name of a scheme; longer ones have a line of their own
_SIZES = (9, 9, 7, 10, 6)


def plan(
    source: Annotated[
        str | None,
        typer.Argument(
            help=PATHS_HELP,
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    delays: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a PATH: a law, or a change to it, as for simulate; "
            "again for more.",
            metavar="TEXT",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Of a worker's time, the share that grows with its load; default as "
            "probed or estimated, else 1.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(
            help="Seconds of a message, each way; default as probed, else 0.", min=0.0
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="What messages go through, as for simulate: port=0.1, latency=0.05. "
            "Then trees are tried, too.",
            metavar="TEXT",
        ),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain/--no-drain",
            help="Late workers finish the part in hand first, or stop at once.",
        ),
    ] = True,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Default as recorded, which others extrapolate; of a law, 8.",
            min=1,
            max=10_000,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="In a run; default as recorded.", min=1)
    ] = None,
    runs: Annotated[int, typer.Option(help="Independent runs.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Of the delays.", min=0)] = 0,
    fitted: Annotated[
        bool,
        typer.Option("--fitted", help="Draw from a law that fits, rather than replay."),
    ] = False,
    top: Annotated[int, typer.Option(help="Rows of the table.", min=1)] = 6,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a scenario for codedgrad simulate, what is advised first.",
            metavar="FILE.toml",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say which scheme to use on a cluster, or that there is nothing to gain.

    Simulates waiting for all, and every exact scheme that may beat it, on the times of
    your workers, and says which one to take. Often that is none.

    Examples: codedgrad plan runs/first, codedgrad plan times.csv, codedgrad plan AR

    With a law instead of a recording, and 32 workers:

    codedgrad plan --delays "shifted-exponential(floor=0.5, mean=0.5)" --share 0.1
    --workers 32
    """
    table = None if network is None else network_table(network)
    machine = Machine(
        drain=drain,
        network=None if table is None else network_of(table),
    )
    if out is not None:
        check_scenario(out)
    asked = Asked(
        workers=workers,
        steps=steps,
        runs=runs,
        seed=seed,
        share=share,
        machine=machine,
        latency=latency,
        fitted=fitted,
    )
    known = _source(source, delays or [], share)
    try:
        with bar("planning", "steps") as advanced:
            planned = make_plan(known, asked, advanced)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    advice = advice_on(planned)
    written = [] if out is None else write_scenario(out, planned, advice, table)
    if as_json:
        typer.echo(json.dumps(_for_machines(planned, advice, written), allow_nan=False))
        return
    for line in _lines(planned, advice, top, written):
        echo_wrapped(line)


def _source(path: str | None, delays: Sequence[str], share: float | None) -> Source:
    if (path is None) == (not delays):
        problem = "takes either a PATH or --delays"
        raise InvalidOptions("plan", problem, "codedgrad plan AR, to see what it says")
    return source_of_delays(delays) if path is None else source_from(path, share)


# -- what people see -----------------------------------------------------------------


def _lines(
    planned: Planned, advice: Advice, top: int, written: Sequence[Path]
) -> Iterator[str]:
    yield advice.sentence
    if advice.default:
        yield advice.default
    savings = planned.setting.source.savings
    if savings is not None:
        yield f"in this run {savings}"
    yield from advice.slow
    if advice.codes:
        yield advice.codes
    yield ""
    yield from _table(planned, advice, top)
    yield ""
    yield _meaning(planned)
    if advice.chosen.candidate.label != advice.chosen.candidate.text:
        yield "its speeds are in what --json prints and --out writes"
    for said in (advice.equals, advice.left_out, *advice.break_even):
        if said:
            yield said
    yield from planned.setting.notes
    for warning in planned.setting.warnings:
        yield f"warning: {warning}"
    for path in written:
        yield f"written: {path}"
    if written:
        yield f"codedgrad simulate {written[-1]} runs it"


def _table(planned: Planned, advice: Advice, top: int) -> Iterator[str]:
    """Return a row and a reason for the best few, and for waiting for all."""
    shown = _shown(advice, top)
    width = min(max(len(score.candidate.label) for score in shown), _LABEL)
    head = ("s/step", "x bound", "work", "messages", "data")
    yield " " * (WIDTH - 11) + "if a worker"
    yield _row("scheme", head, "dies", width)
    digits = _digits(planned.found.bound)
    for score in shown:
        candidate = score.candidate
        cells = (
            _number(score.seconds, digits),
            _number(score.over_bound, 2),
            _number(score.work, 2),
            _number(score.messages, 1),
            f"{100 * candidate.storage:.0f} %",
        )
        label = candidate.label
        if len(label) > width:
            yield label
            label = ""
        last = "goes on" if candidate.goes_on else "waits"
        yield _row(label, cells, last, width)
        said = candidate.reason
        if score.gave_up:
            said += f"; gave up {100 * score.gave_up:.0f} % of the steps"
        yield f"    {said}"


def _row(label: str, cells: Sequence[str], last: str, width: int) -> str:
    figures = "".join(
        f"{cell:>{size}}" for cell, size in zip(cells, _SIZES, strict=True)
    )
    return f"{label:<{width}}{figures}".ljust(WIDTH - 11) + last


def _shown(advice: Advice, top: int) -> list[Score]:
    """Return the best, and what one compares them with."""
    best = list(advice.ranking[:top])
    waiting = [s for s in advice.ranking[top:] if s.candidate.text == "uncoded"]
    return best + waiting


def _meaning(planned: Planned) -> str:
    where = planned.setting.field
    runs = "1 run" if where.runs == 1 else f"{where.runs} runs"
    ways = "finish the part in hand" if where.machine.drain else "stop at once"
    latency, network = where.machine.latency, where.machine.network
    ways += f", latency {latency:.2g} s" if latency else ""
    if network is not None:
        ways += f", messages through ports ({_seconds(network.port)} s each)"
    return (
        f"{where.workers} workers, {where.steps} steps x {runs}, seed {where.seed}; "
        f"late workers {ways}. "
        f"x bound: over the {planned.found.bound:.4g} s of whoever knows all times; "
        "work: parts computed over parts; data: what a worker holds of all data"
    )


def _seconds(port: float | Sequence[float]) -> str:
    each = port if isinstance(port, Sequence) else (port,)
    return " to ".join(f"{seconds:.2g}" for seconds in sorted({min(each), max(each)}))


def _digits(seconds: float) -> int:
    """Return the decimals that show a number of this size with four digits."""
    if not 0 < seconds < math.inf:
        return 3
    return min(max(3 - math.floor(math.log10(seconds)), 0), 9)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


# -- what machines see ---------------------------------------------------------------


def _for_machines(
    planned: Planned, advice: Advice, written: Sequence[Path]
) -> dict[str, Any]:
    setting = planned.setting
    where = setting.field
    return {
        "advice": advice.sentence,
        "default": advice.default,
        "scheme": advice.chosen.candidate.text,
        "slow": list(advice.slow),
        "savings": None
        if setting.source.savings is None
        else asdict(setting.source.savings),
        "codes": advice.codes,
        "source": setting.source.name,
        "workers": where.workers,
        "steps": where.steps,
        "runs": where.runs,
        "seed": where.seed,
        "share": setting.share,
        "machine": {
            "drain": where.machine.drain,
            "progress": where.machine.progress,
            "latency": where.machine.latency,
            "port": None
            if where.machine.network is None
            else where.machine.network.port,
        },
        "bound_seconds": _finite(planned.found.bound),
        "pieces": planned.pieces,
        "pieces_why": planned.why,
        "ranking": [_score_for_machines(score) for score in advice.ranking],
        "left_out": [
            {"scheme": one.candidate.text, "least_seconds": _finite(one.least)}
            for one in planned.found.left_out
        ],
        "break_even": [
            {"tolerance": one.tolerance, "share": _finite(one.share)}
            for one in planned.break_even
        ],
        "notes": list(setting.notes),
        "warnings": list(setting.warnings),
        "written": [str(path) for path in written],
    }


def _score_for_machines(score: Score) -> dict[str, Any]:
    candidate = score.candidate
    return {
        "scheme": candidate.text,
        "reason": candidate.reason,
        "is_code": candidate.is_code,
        "tolerance": candidate.scheme.tolerance,
        "goes_on_if_one_dies": candidate.goes_on,
        "storage": candidate.storage,
        "mean_seconds": _finite(score.seconds),
        "over_bound": _finite(score.over_bound),
        "work": _finite(score.work),
        "messages": _finite(score.messages),
        "gave_up": score.gave_up,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
