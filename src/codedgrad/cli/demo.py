"""`codedgrad demo`: the algebra of gradient codes at work."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from codedgrad.codes import Code, amplification, clustered, cyclic, decode, fractional
from codedgrad.codes.decoders import residuals
from codedgrad.codes.late_sets import heard_without, late_sets
from codedgrad.errors import InvalidOption

_LENGTH = 100  # numbers in a part gradient


class Family(StrEnum):
    """The exact codes the demo can show."""

    cyclic = "cyclic"
    fractional = "fractional"
    clustered = "clustered"


def demo(
    workers: Annotated[
        int, typer.Option(help="Workers, and parts.", min=1, max=100)
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
    code tolerates (beyond 100,000 sets: many of them), and recovers the full sum;
    then loses one worker more. This is the algebra only: no model is trained and no
    worker process is started.

    Example: codedgrad demo --workers 12 --tolerance 3 --late 0,1,2
    """
    chosen = _build(code, workers, tolerance, clusters)
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((workers, _LENGTH))
    drawn = rng.choice(workers, tolerance, replace=False)
    lost = _named(late, workers) if late else sorted(drawn.tolist())
    trials = [_try(chosen, G)]
    if 0 < tolerance < workers - 1:  # else every cyclic code is plain repetition
        draw = cyclic(
            workers, tolerance, construction="random", accept_amplification=True
        )
        trials.append(_try(draw, G))
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
    amplification_is_exact: bool
    sets: int
    sets_are_all: bool
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
    size, rest = divmod(workers, clusters)
    if rest or not 0 <= tolerance < size:
        option = f"--clusters {clusters} --tolerance {tolerance} do not fit"
        advice = f"clusters that divide {workers}, of more workers than the tolerance"
        raise InvalidOption(option, advice)
    return clustered(cyclic(size, tolerance), clusters)


def _named(late: str, workers: int) -> list[int]:
    words = late.split(",")
    named = sorted({int(word) for word in words if word.strip().isdecimal()})
    if len(named) < len(words) or named[-1] >= workers:
        advice = f"different worker numbers from 0 to {workers - 1}, such as 1,4"
        raise InvalidOption(f"--late {late} does not name workers", advice)
    return named


def _heard(code: Code, late: list[int]) -> list[int]:
    return [m for m, worker in enumerate(code.owner) if worker not in late]


def _try(code: Code, G: NDArray[np.float64]) -> Trial:
    s = code.tolerance or 0
    total, B = G.sum(axis=0), code.B.toarray()
    messages, rounded = B @ G, B.astype(np.float32) @ G.astype(np.float32)
    sets, seen = late_sets(code.workers, s), 0
    residual = error = error32 = 0.0
    for late in sets.batches:
        seen += len(late)
        a = code.decoder.weights(heard_without(late, code.owner))
        residual = max(residual, float(np.max(residuals(code.B, a))))
        error = max(error, _worst(a @ messages - total))
        error32 = max(error32, _worst(a.astype(np.float32) @ rounded - total))
    beyond = late_sets(code.workers, s + 1).batches
    exact = [code.decoder.decodable(heard_without(b, code.owner)) for b in beyond]
    digits = amplification(code)
    return Trial(
        code=code.name,
        amplification=digits.value,
        amplification_is_exact=digits.exact,
        sets=seen,
        sets_are_all=sets.all_of_them,
        worst_residual=residual,
        worst_error=error / float(np.linalg.norm(total)),
        worst_error_float32=error32 / float(np.linalg.norm(total)),
        sets_of_one_more=sum(map(len, exact)),
        exact_of_one_more=int(sum(e.sum() for e in exact)),
    )


def _worst(gaps: NDArray[np.floating]) -> float:
    return float(np.max(np.linalg.norm(gaps, axis=1)))


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
    which = "all" if own.sets_are_all else "every window and random ones,"
    console.print(
        f"{tolerance} late: {which} {own.sets} sets, worst residual "
        f"{own.worst_residual:.1e}, worst relative error {own.worst_error:.1e}\n"
        f"{tolerance + 1} late: {own.exact_of_one_more} of {own.sets_of_one_more} sets "
        "tried still give the exact sum\n"
    )
    table = Table(
        "coefficients", "amplification", "worst error, float32 messages", box=None
    )
    for trial, name in zip(trials, ("this code", "papers' cyclic draw"), strict=False):
        at_least = "" if trial.amplification_is_exact else "at least "
        amplified = f"{at_least}{trial.amplification:.3g}"
        table.add_row(name, amplified, f"{trial.worst_error_float32:.1e}")
    console.print(table)
