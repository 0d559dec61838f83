"""What is known of a cluster, from a recording, a run, a trace or a probe.

Everything ends up as seconds that workers take for the uncoded load, a row per step and
a column per worker, or as a law that draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codedgrad.advise.evidence import Evidence, open_evidence, travel_of
from codedgrad.advise.plan.worker_seconds import numbered, seen_in
from codedgrad.advise.slow.times import SecondsByStep, paces_of_trace
from codedgrad.delays import Delays, Matrix, build, draw, fit, traces
from codedgrad.delays.matrix import SHORTEST
from codedgrad.errors import InvalidOptions, InvalidTrace
from codedgrad.learning.savings import Savings
from codedgrad.scenario.delays_text import table_of
from codedgrad.scenario.scenario import DEFAULT_LAW, is_change
from codedgrad.scenario.times import TimesToReplay, with_share
from codedgrad.trace import Trace

_RECORDED = {"kind", "path"}
_SHARED = 0.01  # of the times, below which it is not worth a word


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What is known of a cluster.

    Attributes:
        name: Of what it was taken from, for people.
        matrix: Seconds for the uncoded load; None if there is only a law.
        law: What draws them; None if they were recorded.
        tables: The law in tables, as `codedgrad.delays.build` takes them.
        path: The recording as a scenario may name it; None if it is in no such file.
        share: What grows with the load, if somebody knows; else None.
        knows: Where that is from, in words.
        pieces: Parts that the uncoded load was cut into while it was measured.
        overhead: Seconds that one part more takes, if somebody knows.
        latency: Seconds that an order, or a report, is under way; not in `matrix`.
        remarks: What one should know before one believes it, in sentences.
        scheme: The scheme of a run or a trace, in words; else empty.
        savings: What its steps took, and what waiting for all would have taken; None
            where it is not a run or a trace.
        paces: What `codedgrad who` would look at; None likewise.
    """

    name: str
    matrix: Matrix | None = None
    law: Delays | None = None
    tables: tuple[Mapping[str, object], ...] = ()
    path: str | None = None
    share: float | None = None
    knows: str = ""
    pieces: float = 1.0
    overhead: float | None = None
    latency: float = 0.0
    remarks: tuple[str, ...] = ()
    scheme: str = ""
    savings: Savings | None = None
    paces: SecondsByStep | None = None


def source_from(path: Path | str, share: float | None = None) -> Source:
    """Read what is known of a cluster.

    Args:
        path: As `open_evidence` takes it.
        share: What grows with the load, if it is known better.
    """
    evidence = open_evidence(path)
    if evidence.trace is not None:
        return _of_trace(evidence.path, evidence.trace, share)
    if evidence.probe is not None:
        return _of_probe(evidence)
    named = evidence.name if evidence.name in traces() else str(evidence.path)
    return Source(evidence.name, evidence.matrix, path=named)


def times_from(path: Path | str, share: float | None = None) -> TimesToReplay:
    """Read what `simulate` replays: the times of any path that `source_from` takes."""
    source = source_from(path, share)
    assert source.matrix is not None  # a path is never a law
    notes = source.remarks
    if share is None and source.share is not None:
        grows = f"{100 * source.share:.3g} % of a worker's time grows with its load"
        notes = (f"{grows}, {source.knows}.", *notes)
    return TimesToReplay(
        source.matrix, source.share, source.latency, source.scheme, notes
    )


def source_of_delays(texts: Sequence[str]) -> Source:
    """Return what delays in words stand for, as `simulate` takes them."""
    tables = tuple(table_of(text) for text in texts)
    first, remarks = tables[0], tuple[str, ...]()
    if len(tables) == 1 and first["kind"] == "replay" and first.keys() <= _RECORDED:
        return source_from(str(first["path"]))
    if is_change(first):
        tables = (table_of(DEFAULT_LAW), *tables)
        said = f"{first['kind']} changes a law and none was given"
        remarks = (f"{said}: {DEFAULT_LAW} is assumed.",)
    known: dict[str, TimesToReplay] = {}
    tables = tuple(with_share(table, known, times_from) for table in tables)
    remarks += tuple(note for each in known.values() for note in each.notes)
    law = build(tables, read=lambda path: known[path].matrix)
    return Source(str(law), law=law, tables=tables, remarks=remarks)


def _of_trace(path: Path, trace: Trace, share: float | None) -> Source:
    try:
        seen = seen_in(trace, share)
    except InvalidTrace as error:
        raise InvalidTrace(path, error.problem) from None
    except (LookupError, ValueError, ArithmeticError, MemoryError) as error:
        problem = f"contradicts itself ({type(error).__name__}: {error})"
        raise InvalidTrace(path, problem) from None
    remarks = []
    if seen.bounds > _SHARED:
        remarks.append(
            f"{100 * seen.bounds:.0f} % of the times are lower bounds, of workers that "
            "were not waited for: waiting for all may take longer than it says here."
        )
    if seen.filled > _SHARED:
        remarks.append(
            f"{100 * seen.filled:.0f} % of the times were not seen: a worker was gone, "
            "was given nothing, or was at a part of an earlier step all the time. Its "
            "usual time stands there, also in what uncoded takes."
        )
    return Source(
        path.name,
        seen.matrix,
        share=seen.share,
        knows="estimated from loads that differ" if share is None else "",
        pieces=seen.pieces,
        savings=seen.savings,
        paces=paces_of_trace(trace),
        remarks=tuple(remarks),
        scheme=trace.header.scheme,
    )


def _of_probe(evidence: Evidence) -> Source:
    """Return what a probe measured; both ways of a message are not in the seconds."""
    probe, matrix = evidence.probe, evidence.matrix
    assert probe is not None  # the caller has looked
    assert matrix is not None  # a probe has one
    working = float(np.median(matrix.seconds))
    share = min(1.0, probe.share * float(np.median(probe.seconds)) / working)
    return Source(
        evidence.name,
        matrix,
        share=share,
        knows="measured by the probe; what messages take is not in it",
        overhead=probe.overhead,
        latency=travel_of(probe) / 2,
        remarks=probe.remarks,
    )


# -- other matrices ------------------------------------------------------------------


def drawn(law: Delays, *, steps: int, workers: int, seed: int) -> Matrix:
    """Draw seconds for the uncoded load, as if they had been recorded."""
    times = draw(law, steps=steps, workers=workers, seed=seed)
    seconds = np.maximum(times.fixed + times.unit, SHORTEST)
    if not np.all(np.isfinite(seconds)):
        problem = "needs the times of all workers, and a worker is dead"
        raise InvalidOptions("--share", problem, "to leave it, or that worker, out")
    return Matrix(np.arange(steps), seconds, numbered(workers))


def fitted(matrix: Matrix) -> tuple[Delays, str]:
    """Return the law that fits best, and how well, in words."""
    best = fit(matrix)[0]
    return best.model, (
        f"Fitted: {best.model} ({best.note}; distance {best.distance:.2f} of 0 to 1)."
    )


def resized(matrix: Matrix, workers: int) -> Matrix:
    """Return a recording of more or fewer workers, made of those there are.

    Fewer: every so many. More: copies, each later by a share of the recording, so that
    a worker and its copy are not slow in the same steps.

    Example:
        >>> matrix = Matrix([0, 1], [[1.0, 2.0], [3.0, 4.0]], ["a", "b"])
        >>> resized(matrix, 4).seconds
        array([[1., 2., 3., 4.],
               [3., 4., 1., 2.]])
    """
    rows, columns = matrix.seconds.shape
    copies = -(-workers // columns)
    if copies == 1:
        kept = np.arange(workers) * columns // workers
        names = tuple(matrix.workers[place] for place in kept)
        return Matrix(matrix.steps, matrix.seconds[:, kept], names)
    shifts = [copy * rows // copies for copy in range(copies)]
    each = [np.roll(matrix.seconds, -shift, axis=0) for shift in shifts]
    seconds = np.hstack(each)[:, :workers]
    return Matrix(matrix.steps, seconds, numbered(workers))
