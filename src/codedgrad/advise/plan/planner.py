"""Which scheme for this cluster, or none.

`plan` takes what is known of a cluster, simulates the schemes that may win on it, and
says which one to use, whether codes pay at all, and what it has assumed. Not to code is
an answer like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from codedgrad.advise.plan.breakeven import BreakEven, break_even, growing_share
from codedgrad.advise.plan.candidates import candidates, pieces_for
from codedgrad.advise.plan.search import Arena, Search, search
from codedgrad.advise.plan.sources import Source, drawn, fitted, resized
from codedgrad.advise.plan.worker_seconds import numbered
from codedgrad.delays import Chain, Delays, Matrix, Replay, Times, draw
from codedgrad.errors import InvalidOptions
from codedgrad.sim import Machine

_STEPS = 200  # of a law, unless somebody says otherwise
_WORKERS = 8
_FEW = 20  # steps recorded, below which chance has much to say


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be planned; None where nobody has said.

    Attributes:
        workers: How many; default as recorded.
        steps: In a run; default as recorded.
        runs: Independent ones.
        seed: Of whatever is drawn.
        share: Of a worker's time, what grows with its load.
        machine: What the engine can do.
        latency: Seconds of a message; default as measured.
        fitted: Draw from a law that fits, rather than replay.
    """

    workers: int | None = None
    steps: int | None = None
    runs: int = 1
    seed: int = 0
    share: float | None = None
    machine: Machine = field(default_factory=Machine)
    latency: float | None = None
    fitted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Where candidates are compared, and what was assumed to get there.

    Attributes:
        source: What is known.
        field: Where candidates are compared.
        names: Of the workers.
        share: What grows with the load; None if the law says so itself.
        matrix: What is replayed, if it is; else None.
        path: The file of it, if it is in one as it is.
        tables: The law in tables, if it is not replayed.
        notes: What was done to get there, in sentences.
        warnings: What one should know before one believes it, in sentences.
    """

    source: Source
    field: Arena
    names: tuple[str, ...]
    share: float | None
    matrix: Matrix | None
    path: str | None
    tables: tuple[Mapping[str, object], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def times(self) -> Times:
        """Return the times of the first run, at the uncoded load."""
        where = self.field
        return draw(
            where.law, steps=where.steps, workers=where.workers, seed=where.seed
        )


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """What there is to say.

    Attributes:
        setting: Where candidates were compared.
        times: Of the first run, at the uncoded load.
        found: What came of them.
        break_even: Up to which share codes pay.
        pieces: Parts for each worker, for schemes that move them.
        why: Why so many.
    """

    setting: Setting
    times: Times
    found: Search
    break_even: tuple[BreakEven, ...]
    pieces: int
    why: str


def plan(
    source: Source, asked: Asked, advanced: Callable[[int, int], None] | None = None
) -> Planned:
    """Find the scheme for a cluster.

    Args:
        source: What is known of it.
        asked: What is to be planned.
        advanced: Told how many scheme-steps are done, of how many.

    Example:
        >>> from codedgrad.advise.plan.sources import source_from
        >>> planned = plan(source_from("AR"), Asked(steps=10))
        >>> [f"{one.share:.2f}" for one in planned.break_even[:2]]
        ['1.27', '0.64']
    """
    setting = settle(source, asked)
    where, times = setting.field, setting.times()
    typical = float(np.median(times.fixed + times.unit))
    pieces, why = pieces_for(typical, growing_share(times), source.overhead)
    chosen = candidates(times, pieces=pieces, network=where.machine.network is not None)
    total, done = len(chosen) * where.steps * where.runs, 0

    def tell(steps: int) -> None:
        nonlocal done
        done += steps
        if advanced is not None:
            advanced(done, total)

    found = search(where, chosen, tell)
    return Planned(setting, times, found, break_even(times), pieces, why)


# -- where ---------------------------------------------------------------------------


def settle(source: Source, asked: Asked) -> Setting:
    """Say where candidates are to be compared, and what that assumes."""
    machine = asked.machine
    latency = source.latency if asked.latency is None else asked.latency
    machine = replace(machine, latency=latency)
    notes: list[str] = []
    warnings = list(source.remarks)
    if source.matrix is None:
        return _of_law(source, asked, machine, warnings)
    share = asked.share if asked.share is not None else source.share
    if share is None:
        share = 1.0
        warnings.append(
            "Nobody said what share of a worker's time grows with its load: all of it "
            "is assumed (--share 1), the worst for codes. codedgrad probe measures it."
        )
    elif asked.share is None and source.knows:
        notes.append(
            f"{100 * share:.3g} % of a worker's time grows with its load, "
            f"{source.knows}."
        )
    _warn_of_matrix(source.matrix, warnings)
    matrix, path = source.matrix, source.path
    rows, columns = matrix.seconds.shape
    workers = asked.workers or columns
    if workers != columns:
        warnings.append(
            f"{columns} workers were recorded and {workers} are asked for: this "
            "extrapolates, as if the others were like those."
        )
        path = None
    if asked.fitted:
        law, said = fitted(matrix)
        notes.append(said)
        steps = (asked.steps or max(rows, _STEPS)) * asked.runs
        matrix = drawn(law, steps=steps, workers=workers, seed=asked.seed)
        replay, runs, path = Replay(matrix.seconds, share), 1, None
    else:
        matrix = matrix if workers == columns else resized(matrix, workers)
        steps, runs = asked.steps or rows, asked.runs
        order = "recorded" if steps <= rows and runs == 1 else "shuffled"
        if order == "shuffled":
            warnings.append(
                f"{steps} steps x {runs} are asked for and {rows} were recorded: the "
                "replay repeats them, drawn at random, which forgets their order and "
                "adds no evidence."
            )
        replay = Replay(matrix.seconds, share, order)
    where = _field(replay, workers, steps, runs, asked.seed, machine, source)
    return Setting(
        source, where, matrix.workers, share, matrix, path, (), tuple(notes),
        tuple(warnings),
    )  # fmt: skip


def _of_law(
    source: Source, asked: Asked, machine: Machine, warnings: list[str]
) -> Setting:
    """Use a law as it is; with a share of its own it is drawn, and replayed."""
    law, matrix = source.law, None
    assert law is not None  # a source has one or the other
    if asked.fitted:
        raise InvalidOptions("--fitted", "is for recordings", "it without --delays")
    base = law.base if isinstance(law, Chain) else law
    recorded = base.seconds.shape if isinstance(base, Replay) else (_STEPS, _WORKERS)
    workers, steps = asked.workers or recorded[1], asked.steps or recorded[0]
    runs, tables = asked.runs, source.tables
    if asked.share is not None:
        steps, runs, tables = steps * runs, 1, ()
        matrix = drawn(law, steps=steps, workers=workers, seed=asked.seed)
        law = Replay(matrix.seconds, asked.share)
    where = _field(law, workers, steps, runs, asked.seed, machine, source)
    names = numbered(workers)
    return Setting(
        source, where, names, asked.share, matrix, None, tables, (), tuple(warnings)
    )


def _field(
    law: Delays,
    workers: int,
    steps: int,
    runs: int,
    seed: int,
    machine: Machine,
    source: Source,
) -> Arena:
    overhead = source.overhead or 0.0
    return Arena(law, workers, steps, runs, seed, machine, overhead, source.pieces)


def _warn_of_matrix(matrix: Matrix, warnings: list[str]) -> None:
    rows = len(matrix.steps)
    if rows < _FEW:
        warnings.append(
            f"Only {rows} steps were recorded: chance may have decided; {_FEW} or more "
            "say more."
        )
    if not matrix.follows.all():
        warnings.append(
            "The step numbers have gaps: how long somebody stays slow is not known, "
            "and schemes that learn may do better or worse than it says here."
        )
