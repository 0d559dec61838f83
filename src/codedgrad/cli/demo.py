"""`codedgrad demo`: the algebra of gradient codes at work."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import combinations
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from codedgrad.codes import Code, amplification, clustered, cyclic, decode, fractional
from codedgrad.codes.arguments import divisors
from codedgrad.codes.late_sets import heard_without
from codedgrad.errors import InvalidCode

_LENGTH = 1000  # numbers in a part gradient
_MOST_SETS = 20_000  # sets of late workers tried; beyond, that many are drawn


class Family(StrEnum):
    """The exact codes the demo can show."""

    cyclic = "cyclic"
    fractional = "fractional"
    clustered = "clustered"


def demo(
    workers: Annotated[
        int, typer.Option(help="Workers, and parts.", min=1, max=500)
    ] = 8,
    tolerance: Annotated[int, typer.Option(help="Late workers to survive.")] = 2,
    code: Annotated[Family, typer.Option(help="The code to show.")] = Family.cyclic,
    clusters: Annotated[int, typer.Option(help="For --code clustered.", min=1)] = 2,
    late: Annotated[str, typer.Option(help="Who is late, such as 1,4.")] = "",
    seed: Annotated[int, typer.Option(help="Of the part gradients.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Lose workers, recover the sum: what a gradient code does, in numbers.

    Draws random part gradients, encodes them, loses every set of workers that the
    code tolerates, and recovers the full sum; then loses one worker more. This is
    the algebra only: no model is trained and no worker process is started.

    Example: codedgrad demo --workers 12 --tolerance 3 --late 0,1,2
    """
    chosen = _build(code, workers, tolerance, clusters)
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((workers, _LENGTH))
    lost = _named(late, workers) if late else _drawn(workers, tolerance, rng)
    trials = [_try(chosen, G, rng)]
    if 0 < tolerance < workers - 1:  # else every cyclic code is plain repetition
        draw = cyclic(
            workers, tolerance, construction="random", accept_amplification=True
        )
        trials.append(_try(draw, G, rng))
    if as_json:
        example = decode(chosen, _heard(chosen, lost))
        typer.echo(
            json.dumps(
                {
                    "seed": seed,
                    "late": lost,
                    "weights": example.weights,
                    "residual": example.residual,
                    "trials": [asdict(trial) for trial in trials],
                }
            )
        )
        return
    console = Console(highlight=False, width=80)
    console.print(
        "[bold]The algebra of gradient codes[/bold] "
        "(no training, no worker processes)\n\n"
        f"{chosen}\nworkers {workers}, parts {workers}, parts to a worker "
        f"{chosen.load}, late workers survived {tolerance}, seed {seed}\n"
    )
    _print_example(console, chosen, G, lost)
    _print_trials(console, trials, tolerance)


@dataclass(frozen=True)
class Trial:
    """What came of losing workers; errors are relative norms."""

    code: str
    amplification: float
    sets: int
    worst_residual: float
    worst_error: float
    worst_error_float32: float
    sets_of_one_more: int
    exact_of_one_more: int


def _build(family: Family, workers: int, tolerance: int, clusters: int) -> Code:
    if family is Family.fractional:
        return fractional(workers, tolerance)
    if family is Family.cyclic:
        return cyclic(workers, tolerance)
    if workers % clusters:
        problem = f"clusters = {clusters} must divide workers = {workers}"
        raise InvalidCode("clustered", problem, f"clusters in {divisors(workers)}")
    return clustered(cyclic(workers // clusters, tolerance), clusters)


def _named(late: str, workers: int) -> list[int]:
    words = late.split(",")
    named = sorted({int(word) for word in words if word.strip().isdecimal()})
    if len(named) < len(words) or named[-1] >= workers:
        advice = f"different worker numbers from 0 to {workers - 1}, such as 1,4"
        raise InvalidCode("demo", f"--late {late} does not name workers", advice)
    return named


def _drawn(workers: int, count: int, rng: np.random.Generator) -> list[int]:
    return sorted(rng.choice(workers, count, replace=False).tolist())


def _heard(code: Code, late: list[int]) -> list[int]:
    return [m for m, worker in enumerate(code.owner) if worker not in late]


def _late_sets(workers: int, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    if math.comb(workers, count) <= _MOST_SETS:
        sets = list(combinations(range(workers), count))
    else:
        sets = [tuple(_drawn(workers, count, rng)) for _ in range(_MOST_SETS)]
    return np.array(sets, dtype=np.intp).reshape(len(sets), count)


def _try(code: Code, G: NDArray[np.float64], rng: np.random.Generator) -> Trial:
    s = code.tolerance or 0
    total, B = G.sum(axis=0), code.B.toarray()
    sets = _late_sets(code.workers, s, rng)
    a = code.decoder.weights(heard_without(sets, code.owner))
    exact = np.linalg.norm(a @ (B @ G) - total, axis=1)
    single = a.astype(np.float32) @ (B.astype(np.float32) @ G.astype(np.float32))
    rounded = np.linalg.norm(single - total, axis=1)
    beyond = _late_sets(code.workers, s + 1, rng)
    return Trial(
        code=code.name,
        amplification=amplification(code).value,
        sets=len(sets),
        worst_residual=float(np.max(np.square(a @ B - 1).sum(axis=1))),
        worst_error=float(np.max(exact) / np.linalg.norm(total)),
        worst_error_float32=float(np.max(rounded) / np.linalg.norm(total)),
        sets_of_one_more=len(beyond),
        exact_of_one_more=int(
            code.decoder.decodable(heard_without(beyond, code.owner)).sum()
        ),
    )


def _print_example(
    console: Console, code: Code, G: NDArray[np.float64], late: list[int]
) -> None:
    decoding = decode(code, _heard(code, late))
    weights, messages = dict(decoding.weights), code.B.toarray() @ G
    table = Table("worker", "coefficient x part", "message", "weight", box=None)
    for worker in range(min(code.workers, 12)):
        row = code.B[[worker]]
        pairs = zip(row.data, row.indices, strict=True)
        numbers = ", ".join(f"{x:.2f}" for x in messages[worker, :3])
        table.add_row(
            f"{worker}",
            " ".join(f"{c:+.3g}x{part}" for c, part in pairs),
            f"({numbers}, ...)",
            "late" if worker in late else f"{weights.get(worker, 0.0):+.3f}",
            style="dim" if worker in late else None,
        )
    console.print(table)
    if code.workers > 12:
        console.print(f"... and {code.workers - 12} workers more")
    got = sum((a * messages[m] for m, a in decoding.weights), np.zeros(_LENGTH))
    true = G.sum(axis=0)
    for name, sum_ in (("all parts added up", true), ("weighted messages", got)):
        numbers = ", ".join(f"{x:+.6f}" for x in sum_[:3])
        console.print(f"{name:<19} ({numbers}, ...)")
    error = np.linalg.norm(got - true) / np.linalg.norm(true)
    console.print(
        f"without {late}: residual {decoding.residual:.1e}, relative error {error:.1e}"
        f" {'(exact)' if decoding.is_exact else '(too many late)'}\n"
    )


def _print_trials(console: Console, trials: list[Trial], tolerance: int) -> None:
    own = trials[0]
    console.print(
        f"Any {tolerance} late: {own.sets} sets tried, worst residual "
        f"{own.worst_residual:.1e}, worst relative error {own.worst_error:.1e}.\n"
        f"One more late: {own.exact_of_one_more} of {own.sets_of_one_more} sets "
        "still give the exact sum.\n"
    )
    table = Table(
        "coefficients", "amplification", "worst error, float32 messages", box=None
    )
    for trial, name in zip(trials, ("ours", "papers' random draw"), strict=False):
        table.add_row(
            name, f"{trial.amplification:.3g}", f"{trial.worst_error_float32:.1e}"
        )
    console.print(table)
