"""`codedgrad probe`: measure a cluster before it is planned for."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from codedgrad.advise import Probe, write_probe
from codedgrad.advise import probe as measure
from codedgrad.advise.plan.candidates import pieces_for
from codedgrad.advise.probe.probe import Work, steps_of
from codedgrad.cli.bars import bar
from codedgrad.cli.echo import echo_wrapped
from codedgrad.engines import Engine, Here, Local
from codedgrad.errors import EngineFailed, InvalidJob, InvalidOptions, StepGivenUp

if TYPE_CHECKING:
    from codedgrad.torch import Job

_ENGINES: dict[str, Callable[[], Engine]] = {"local": Local, "here": Here}
_BATCH = 256  # samples a step, of the demo's data
_ROWS = 16  # workers in the table


def probe(
    engine: Annotated[
        str, typer.Option(help="What the workers are: local, or here.")
    ] = "local",
    workers: Annotated[int, typer.Option(help="How many.", min=2, max=256)] = 8,
    job: Annotated[
        str | None,
        typer.Option(
            help="Your own job, as you give it to codedgrad.torch.train: a function "
            "without arguments that returns a Job. Its module is imported from here, "
            "which runs it, as your own script would.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(help="Without a job: digits, or as for the demo.")
    ] = "digits",
    steps: Annotated[
        int, typer.Option(help="That count, at each load.", min=1, max=1000)
    ] = 10,
    pieces: Annotated[
        int, typer.Option(help="Parts for each worker.", min=1, max=64)
    ] = 8,
    seed: Annotated[int, typer.Option(help="Of the job.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write it, for codedgrad plan; what is there is replaced.",
            metavar="FILE.json",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Measure a job on real workers: what its parts take, and its messages.

    Three short runs on the engine itself: at the usual load and at twice that, which
    tells what grows with the load; in several parts, which tells what a part costs;
    and with a job that does nothing, which tells how long orders take.

    Example: codedgrad probe --workers 8 --out probe.json; codedgrad plan probe.json
    """
    if engine not in _ENGINES:
        raise InvalidOptions("--engine", f"is {engine!r}", " or ".join(_ENGINES))
    if out is not None:
        _check_out(out)
    prepared, name, batch = _prepared(job, data, seed)
    cut = min(pieces, max(1, batch // workers))
    try:
        found = _measured(prepared, engine, workers, steps, cut, name)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    except StepGivenUp as error:
        advice = "once more, when all workers stay"
        raise EngineFailed(f"nothing was measured: {error.reason}", advice) from None
    if out is not None:
        write_probe(out, found)
    if as_json:
        typer.echo(json.dumps(_for_machines(found), allow_nan=False))
        return
    for line in _lines(found, out):
        echo_wrapped(line)


def _measured(
    prepared: Callable[[int], Work],
    engine: str,
    workers: int,
    steps: int,
    pieces: int,
    name: str,
) -> Probe:
    done, total = 0, steps_of(steps, pieces)
    with bar("measuring", "steps") as advanced:

        def tell() -> None:
            nonlocal done
            done += 1
            advanced(done, total)

        return measure(
            prepared,
            _ENGINES[engine],
            workers,
            steps=steps,
            pieces=pieces,
            job=name,
            advanced=tell,
        )


def _check_out(path: Path) -> None:
    if path.suffix.lower() != ".json":
        raise InvalidOptions(f"--out {path}", "does not end in .json", "probe.json")
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidOptions(f"--out {path}", "cannot be written", "another folder")


# -- the job -------------------------------------------------------------------------


def _prepared(
    text: str | None, data: str, seed: int
) -> tuple[Callable[[int], Work], str, int]:
    """Return what cuts the job, what to call it, and the samples of a step."""
    try:
        from codedgrad.torch.model.workload import workload
        from codedgrad.torch.pictures import pictures
        from codedgrad.torch.rehearsal import network
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        advice = 'pip install "codedgrad[demo]"'
        problem = "computes with PyTorch, which is not installed"
        raise InvalidOptions("probe", problem, advice) from None
    make: Callable[[], Job]
    if text is None:
        shown = pictures(data)
        make, name = network(shown, _BATCH, seed), shown.name
    else:
        make, name = _imported(text), text

    def prepared(parts: int) -> Work:
        again = partial(workload, make, parts, seed)
        work = again()
        work.flat.gather()
        return Work(again, work.layout, np.array(work.flat.vector.numpy()))

    return prepared, name, workload(make, 1, seed).parts.total(0)


def _imported(text: str) -> Callable[[], Any]:
    """Import the user's own module, from where the command is given."""
    module, colon, path = text.partition(":")
    advice = "MODULE:FUNCTION, such as train:job for job() of train.py"
    if not colon or not module or not path:
        raise InvalidOptions(f"--job {text}", "does not name a function", advice)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # it is the user's own code
        problem = f"cannot be imported ({_one_line(error)})"
        raise InvalidOptions(f"--job {text}", problem, advice) from None
    if not callable(found):
        raise InvalidOptions(f"--job {text}", "is not a function", advice)

    def made() -> Any:
        try:
            return found()
        except Exception as error:
            problem = f"makes no job ({_one_line(error)})"
            advice = "to run it by itself first"
            raise InvalidJob(f"--job {text}", problem, advice) from error

    return made


def _one_line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


# -- what people see -----------------------------------------------------------------


def _lines(found: Probe, out: Path | None) -> list[str]:
    steps, n = len(found.seconds), found.workers
    count, why = pieces_for(found.typical, found.share, found.overhead)
    lines = [
        f"{found.job}: {n} workers ({found.engine}), {steps} steps at each load, "
        f"{found.pieces} parts a worker",
        "",
        *_table(found),
        "",
        f"grows with the load    {100 * found.share:.0f} % of a worker's time",
        f"a part more            {_duration(found.overhead)}",
        f"an order, or a report  {_duration(found.latency)}",
        f"a message              {_size(found.message)}, {_speed(found)}",
        f"parts per worker: {count} ({why})",
    ]
    lines += [f"warning: {said}" for said in (*found.remarks, *_crowded(found))]
    if out is None:
        return [*lines, "--out probe.json keeps it for codedgrad plan"]
    return [*lines, f"written: {out}", f"codedgrad plan {out} says what to do with it"]


def _crowded(found: Probe) -> list[str]:
    """Say so if workers of this machine have to take turns."""
    cores = len(os.sched_getaffinity(0))
    if found.engine != "local" or found.workers <= cores:
        return []
    return [
        f"{found.workers} workers share {cores} {'core' if cores == 1 else 'cores'}: "
        "they hold each other up, which as many machines would not."
    ]


def _table(found: Probe) -> list[str]:
    """Return a line for every worker; of many, for the slowest."""
    one, two, cut = (
        np.median(rows, axis=0) for rows in (found.seconds, found.doubled, found.cut)
    )
    slowest = np.argsort(-one, kind="stable")[:_ROWS]
    parts = f"in {found.pieces} parts [s]"
    lines = [f"worker  step [s]  twice the load [s]  {parts:>15}  grows with load"]
    for worker in sorted(slowest.tolist()):
        lines.append(
            f"{worker:>6}  {one[worker]:8.4f}  {two[worker]:18.4f}  "
            f"{cut[worker]:15.4f}  {100 * found.shares[worker]:13.0f} %"
        )
    if found.workers > _ROWS:
        lines.append(f"and {found.workers - _ROWS} more, all faster")
    return lines


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "not measured: one part each"
    if seconds == 0:
        return "too little to tell"
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _speed(found: Probe) -> str:
    if found.bandwidth is None:
        return "too quick to tell how quick"
    memory = " (memory)" if found.engine in _ENGINES else ""
    return f"{_size(found.bandwidth)}/s{memory}"


# -- what machines see ---------------------------------------------------------------


def _for_machines(found: Probe) -> dict[str, Any]:
    count, why = pieces_for(found.typical, found.share, found.overhead)
    return {
        "engine": found.engine,
        "job": found.job,
        "workers": found.workers,
        "steps": len(found.seconds),
        "pieces_measured": found.pieces,
        "median_seconds": np.median(found.seconds, axis=0).tolist(),
        "doubled_seconds": np.median(found.doubled, axis=0).tolist(),
        "cut_seconds": np.median(found.cut, axis=0).tolist(),
        "shares": found.shares,
        "share": found.share,
        "overhead_seconds": found.overhead,
        "latency_seconds": found.latency,
        "message_bytes": found.message,
        "bytes_per_second": found.bandwidth,
        "pieces": count,
        "pieces_why": why,
        "spread": found.spread,
        "warnings": [*found.remarks, *_crowded(found)],
    }
